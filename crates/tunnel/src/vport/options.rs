//! From an Interface row's options to a configuration, in Open vSwitch's words.

use super::config::{Config, Endpoint, ErspanConfig, Extensions, Key, Local, Mode, Segments, Tos, Ttl, Type};
use super::numbers::{int, signed, unsigned};
use crate::format::{FlowLabel, Payload};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::EtherType;

/// What became of a row's options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The configuration; `None` if the port cannot be set up.
    pub config: Option<Config>,
    /// What Open vSwitch says about the options, a line each: for the log, and if there is no
    /// configuration also for `Interface.error`.
    pub complaints: Vec<String>,
}

impl Parsed {
    /// The text of `Interface.error`.
    pub fn error(&self) -> Option<String> {
        self.config.is_none().then(|| self.complaints.join("\n"))
    }
}

/// Reads the options of an interface. They are read in the order of their names; Open vSwitch's
/// order is that of a hash.
pub fn parse(name: &str, kind: Type, options: &BTreeMap<String, String>) -> Parsed {
    let mut reader = Reader::new(name, kind);
    let config = match reader.read(options) {
        Ok(()) => Some(reader.config),
        Err(Refused) => None,
    };
    Parsed {
        config,
        complaints: reader.complaints,
    }
}

/// The port cannot be set up.
struct Refused;

struct Reader<'a> {
    name: &'a str,
    config: Config,
    remote: Option<Endpoint>,
    complaints: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(name: &'a str, kind: Type) -> Reader<'a> {
        let mut config = Config {
            kind,
            remote: Endpoint::Flow,
            local: Local::Any,
            in_key: Key::None,
            out_key: Key::None,
            dst_port: kind.default_port().unwrap_or(0),
            tos: Tos::Value(0),
            ttl: Ttl::Value(Ttl::DEFAULT),
            df: true,
            csum: false,
            seq: false,
            egress_pkt_mark: None,
            mode: Mode::LegacyL2,
            extensions: Extensions::default(),
            erspan: ErspanConfig {
                version: Some(0),
                index: Some(0),
                egress: Some(false),
                hwid: Some(0),
            },
            payload: Payload::Ip,
            segments: Segments::NONE,
            label: FlowLabel::Zero,
            ipsec: false,
        };
        if kind == Type::Srv6 {
            config.label = FlowLabel::Copy;
        }
        Reader {
            name,
            config,
            remote: None,
            complaints: Vec::new(),
        }
    }

    fn complain(&mut self, text: impl std::fmt::Display) {
        self.complaints.push(format!("{}: {text}", self.name));
    }

    fn refuse(&mut self, text: impl std::fmt::Display) -> Result<(), Refused> {
        self.complain(text);
        Err(Refused)
    }

    fn read(&mut self, options: &BTreeMap<String, String>) -> Result<(), Refused> {
        for (key, value) in options {
            self.option(key, value)?;
        }
        self.mode(options.get("packet_type").map(String::as_str))?;
        self.endpoints()?;
        let key = |own: &str| {
            options
                .get(own)
                .or_else(|| options.get("key"))
                .map_or(Key::None, |text| read_key(text))
        };
        self.config.in_key = key("in_key");
        self.config.out_key = key("out_key");
        Ok(())
    }

    fn option(&mut self, key: &str, value: &str) -> Result<(), Refused> {
        let kind = self.config.kind;
        let is_gre = matches!(kind, Type::Gre | Type::Ip6gre);
        let has_csum = is_gre || matches!(kind, Type::Vxlan | Type::Geneve);
        match key {
            "remote_ip" => self.remote(value)?,
            "local_ip" => self.local(value),
            "tos" => self.tos(value),
            "ttl" => self.ttl(value),
            "dst_port" if kind.default_port().is_some() => self.config.dst_port = int(value) as u16,
            "csum" if has_csum => self.config.csum = value == "true",
            "seq" if is_gre => self.config.seq = value == "true",
            "df_default" => self.config.df = value != "false",
            "egress_pkt_mark" => self.config.egress_pkt_mark = Some(unsigned(value, 10) as u32),
            "exts" if kind == Type::Vxlan => self.extensions(value),
            "payload_type" if kind == Type::Bareudp => self.payload(value)?,
            "srv6_segs" if kind == Type::Srv6 => self.segments(value),
            "srv6_flowlabel" if kind == Type::Srv6 => self.label(value),
            "erspan_ver" | "erspan_idx" | "erspan_dir" | "erspan_hwid" => self.erspan(key, value)?,
            // Read when the others are known.
            "key" | "in_key" | "out_key" | "packet_type" => {}
            // What they say is for the IPsec monitor.
            "psk" | "remote_cert" | "remote_name" if has_csum => self.config.ipsec = true,
            _ if has_csum && key.starts_with("ipsec_") => {}
            _ => self.complain(format_args!("unknown {} argument '{key}'", kind.name())),
        }
        Ok(())
    }

    fn remote(&mut self, value: &str) -> Result<(), Refused> {
        if value == "flow" {
            self.remote = Some(Endpoint::Flow);
            return Ok(());
        }
        match address(value) {
            None => self.complain(format_args!("bad {} 'remote_ip'", self.config.kind.name())),
            Some(address) if address.is_multicast() => {
                return self.refuse(format_args!("multicast remote_ip={value} not allowed"));
            }
            // The unspecified address of IPv6 is none.
            Some(address) => self.remote = (address != UNSPECIFIED).then_some(Endpoint::Address(address)),
        }
        Ok(())
    }

    fn local(&mut self, value: &str) {
        self.config.local = match (value, address(value)) {
            ("flow", _) => Local::Flow,
            (_, Some(UNSPECIFIED)) => Local::Any,
            (_, Some(address)) => Local::Address(address),
            (_, None) => {
                self.complain(format_args!("bad {} 'local_ip'", self.config.kind.name()));
                Local::Any
            }
        };
    }

    fn tos(&mut self, value: &str) {
        if value == "inherit" {
            self.config.tos = Tos::Inherit;
            return;
        }
        match signed(value, 0) {
            (tos, "") if tos & 0xfc == tos => self.config.tos = Tos::Value(tos as u8),
            _ => self.complain(format_args!("invalid TOS {value}")),
        }
    }

    fn ttl(&mut self, value: &str) {
        self.config.ttl = match int(value) as u8 {
            _ if value == "inherit" => Ttl::Inherit,
            0 => Ttl::Value(Ttl::DEFAULT),
            ttl => Ttl::Value(ttl),
        };
    }

    fn extensions(&mut self, value: &str) {
        for name in value.split(',').filter(|name| !name.is_empty()) {
            match name {
                "gbp" => self.config.extensions.gbp = true,
                "gpe" => self.config.extensions.gpe = true,
                _ => self.complain(format_args!("unknown extension '{name}'")),
            }
        }
    }

    fn payload(&mut self, value: &str) -> Result<(), Refused> {
        self.config.payload = match (value, signed(value, 0)) {
            ("ip", _) => Payload::Ip,
            ("mpls", _) => Payload::Mpls,
            (_, (kind, "")) if u16::try_from(kind).is_ok_and(|kind| kind >= EtherType::MIN.0) => {
                Payload::Type(EtherType(kind as u16))
            }
            _ => return self.refuse("could not set configuration (Invalid argument)"),
        };
        Ok(())
    }

    fn segments(&mut self, value: &str) {
        let segments: Option<Vec<Ipv6Addr>> = value.split(',').map(|text| text.trim().parse().ok()).collect();
        match segments.and_then(|segments| Segments::new(&segments)) {
            Some(segments) => self.config.segments = segments,
            None => self.complain(format_args!("bad {} 'srv6_segs'", self.config.kind.name())),
        }
    }

    fn label(&mut self, value: &str) {
        match value {
            "zero" => self.config.label = FlowLabel::Zero,
            "compute" => self.config.label = FlowLabel::Hash,
            "copy" => self.config.label = FlowLabel::Copy,
            _ => self.complain(format_args!("bad {} 'srv6_flowlabel'", self.config.kind.name())),
        }
    }

    fn erspan(&mut self, key: &str, value: &str) -> Result<(), Refused> {
        let fields = &mut self.config.erspan;
        let (what, good) = match (key, value) {
            ("erspan_ver", "flow") => {
                *fields = ErspanConfig {
                    version: None,
                    index: None,
                    egress: None,
                    hwid: None,
                };
                return Ok(());
            }
            ("erspan_idx", "flow") => {
                fields.index = None;
                return Ok(());
            }
            ("erspan_dir", "flow") => {
                fields.egress = None;
                return Ok(());
            }
            ("erspan_hwid", "flow") => {
                fields.hwid = None;
                return Ok(());
            }
            ("erspan_ver", _) => {
                fields.version = Some(int(value) as u8);
                ("version", matches!(int(value), 1 | 2))
            }
            ("erspan_idx", _) => {
                let index = signed(value, 16).0 as u32;
                fields.index = Some(index);
                ("index", index <= 0xf_ffff)
            }
            ("erspan_dir", _) => {
                fields.egress = Some(int(value) == 1);
                ("direction", matches!(int(value), 0 | 1))
            }
            _ => {
                let hwid = signed(value, 16).0;
                fields.hwid = Some(hwid as u8);
                ("hardware ID", (0..=0x3f).contains(&hwid))
            }
        };
        if good {
            return Ok(());
        }
        self.refuse(format_args!("invalid erspan {what}: {value}"))
    }

    fn mode(&mut self, value: Option<&str>) -> Result<(), Refused> {
        let config = &self.config;
        let what = match config.kind {
            Type::Vxlan if config.extensions.gpe => "VXLAN-GPE",
            Type::Vxlan => "VXLAN (without GPE)",
            kind => kind.name(),
        };
        self.config.mode = match value {
            None => config.default_mode(),
            Some("legacy_l2") if config.carries_l2() => Mode::LegacyL2,
            Some("legacy_l3") if config.carries_l3() => Mode::LegacyL3,
            Some("ptap") => Mode::Ptap,
            Some("legacy_l2") => {
                let text = format!("legacy_l2 configured on {what} tunnel that cannot carry L2 traffic");
                return self.refuse(text);
            }
            Some("legacy_l3") => {
                let text = format!("legacy_l3 configured on {what} tunnel that cannot carry L3 traffic");
                return self.refuse(text);
            }
            Some(other) => return self.refuse(format_args!("unknown packet_type '{other}'")),
        };
        Ok(())
    }

    fn endpoints(&mut self) -> Result<(), Refused> {
        let kind = self.config.kind.name();
        let Some(remote) = self.remote else {
            return self.refuse(format_args!("{kind} type requires valid 'remote_ip' argument"));
        };
        self.config.remote = remote;
        match (remote, self.config.local) {
            (Endpoint::Address(_), Local::Flow) => self.refuse(format_args!(
                "{kind} type requires 'remote_ip=flow' with 'local_ip=flow'"
            )),
            (Endpoint::Address(remote), Local::Address(local)) if remote.is_ipv4() != local.is_ipv4() => {
                self.refuse("'remote_ip' and 'local_ip' has to be of the same address family")
            }
            _ => Ok(()),
        }
    }
}

const UNSPECIFIED: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// An address; one of IPv4 in IPv6 is one of IPv4.
fn address(text: &str) -> Option<IpAddr> {
    match text.parse::<IpAddr>().ok()? {
        IpAddr::V6(address) => Some(address.to_ipv4_mapped().map_or(address.into(), Ipv4Addr::into)),
        address => Some(address),
    }
}

fn read_key(text: &str) -> Key {
    match text {
        "flow" => Key::Flow,
        text => Key::Value(unsigned(text, 0)),
    }
}
