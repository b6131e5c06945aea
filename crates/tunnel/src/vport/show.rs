//! Configurations and ports as Open vSwitch prints them.

use super::config::{Config, Endpoint, Key, Local, Mode, Tos, Ttl, Type};
use super::table::Vport;
use crate::format::FlowLabel;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Hexadecimal with a prefix, but zero without one, as C prints `%#x`.
struct Hex(u64);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            f.write_str("0")
        } else {
            write!(f, "{:#x}", self.0)
        }
    }
}

/// How the port's packets are recognized: `::->1.1.1.1, key=0, legacy_l2, dp port=4789`.
pub(super) struct Matching<'a>(pub(super) &'a Vport);

impl fmt::Display for Matching<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.0.config;
        match config.local {
            Local::Address(local) => write!(f, "{local}->")?,
            Local::Any => f.write_str("::->")?,
            Local::Flow => f.write_str("flow->")?,
        }
        match config.remote {
            Endpoint::Address(remote) => write!(f, "{remote}")?,
            Endpoint::Flow => f.write_str("flow")?,
        }
        match config.in_key {
            Key::None => f.write_str(", key=0")?,
            Key::Value(key) => write!(f, ", key={}", Hex(key))?,
            Key::Flow => f.write_str(", key=flow")?,
        }
        write!(f, ", {}, dp port={}", config.mode.name(), self.0.datapath_port)
    }
}

/// A line of `ofproto/list-tunnels`.
impl fmt::Display for Vport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.config;
        let kind = config.kind.name();
        write!(
            f,
            "port {}: {} ({kind}: {}",
            self.datapath_port,
            self.name,
            Matching(self)
        )?;
        if config.out_key != config.in_key {
            match config.out_key {
                Key::None => f.write_str(", out_key=none")?,
                Key::Value(key) => write!(f, ", out_key={}", Hex(key))?,
                Key::Flow => f.write_str(", out_key=flow")?,
            }
        }
        match config.ttl {
            Ttl::Inherit => f.write_str(", ttl=inherit")?,
            Ttl::Value(ttl) => write!(f, ", ttl={ttl}")?,
        }
        match config.tos {
            Tos::Inherit => f.write_str(", tos=inherit")?,
            Tos::Value(0) => {}
            Tos::Value(tos) => write!(f, ", tos={tos:#x}")?,
        }
        if !config.df {
            f.write_str(", df=false")?;
        }
        if config.csum {
            f.write_str(", csum=true")?;
        }
        f.write_str(")")
    }
}

impl Config {
    /// The options that are not the default, by name: what `dpif/show` prints behind the type.
    pub fn options(&self) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        self.show_endpoints(&mut all);
        self.show_erspan(&mut all);
        let mut add = |key, value: &dyn fmt::Display| all.push((key, value.to_string()));
        if self.csum {
            add("csum", &true);
        }
        if !self.df {
            add("df_default", &false);
        }
        if self.seq {
            add("seq", &true);
        }
        if let Some(mark) = self.egress_pkt_mark {
            add("egress_pkt_mark", &mark);
        }
        if self.dst_port != 0 && Some(self.dst_port) != self.kind.default_port() {
            add("dst_port", &self.dst_port);
        }
        if self.mode == Mode::Ptap || self.mode != self.default_mode() {
            add("packet_type", &self.mode.name());
        }
        match self.tos {
            Tos::Inherit => add("tos", &"inherit"),
            Tos::Value(0) => {}
            Tos::Value(tos) => add("tos", &Hex(tos.into())),
        }
        match self.ttl {
            Ttl::Inherit => add("ttl", &"inherit"),
            Ttl::Value(Ttl::DEFAULT) => {}
            Ttl::Value(ttl) => add("ttl", &ttl),
        }
        if self.kind == Type::Srv6 {
            let segments: Vec<String> = self.segments.as_slice().iter().map(Ipv6Addr::to_string).collect();
            if !segments.is_empty() {
                add("srv6_segs", &segments.join(","));
            }
            match self.label {
                FlowLabel::Zero => add("srv6_flowlabel", &"zero"),
                FlowLabel::Hash => add("srv6_flowlabel", &"compute"),
                FlowLabel::Copy => {}
            }
        }
        all.sort_unstable();
        all
    }

    fn show_endpoints(&self, all: &mut Vec<(&'static str, String)>) {
        let shown = |address: IpAddr| match address {
            // Zeros of IPv4 are no zeros of IPv6.
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => format!("::ffff:{address}"),
            address => address.to_string(),
        };
        match self.remote {
            Endpoint::Address(address) => all.push(("remote_ip", shown(address))),
            Endpoint::Flow => all.push(("remote_ip", "flow".to_owned())),
        }
        match self.local {
            Local::Address(address) => all.push(("local_ip", shown(address))),
            Local::Any => {}
            Local::Flow => all.push(("local_ip", "flow".to_owned())),
        }
        let mut key = |name, key| match key {
            Key::None => {}
            Key::Value(key) => all.push((name, key.to_string())),
            Key::Flow => all.push((name, "flow".to_owned())),
        };
        if self.in_key == self.out_key {
            key("key", self.in_key);
        } else {
            key("in_key", self.in_key);
            key("out_key", self.out_key);
        }
    }

    fn show_erspan(&self, all: &mut Vec<(&'static str, String)>) {
        if !matches!(self.kind, Type::Erspan | Type::Ip6erspan) {
            return;
        }
        let fields = self.erspan;
        let mut add = |key, value: Option<String>| {
            all.push((key, value.unwrap_or_else(|| "flow".to_owned())));
        };
        add("erspan_ver", fields.version.map(|version| version.to_string()));
        if matches!(fields.version, None | Some(1)) {
            add("erspan_idx", fields.index.map(|index| Hex(index.into()).to_string()));
        }
        if matches!(fields.version, None | Some(2)) {
            add("erspan_dir", fields.egress.map(|egress| u8::from(egress).to_string()));
            add("erspan_hwid", fields.hwid.map(|hwid| Hex(hwid.into()).to_string()));
        }
    }
}
