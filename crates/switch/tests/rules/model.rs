//! Two bridges with a patch between them, and random rules for them, as text and as flow-mods.

use flow::{MatchField as F, PortNo};
use openflow::model::{Action, FlowMod, Port, Subfield};
use std::net::Ipv4Addr;
use switch::{Attach, BridgeConfig, FailMode, InterfaceConfig, LinkState, PortConfig, Punts, SwitchConfig};
use testkit::{Rng, mac};
use wire::MacAddr;

pub(crate) const BRIDGES: [&str; 2] = ["br0", "br1"];
const PORTS: [(&str, &str); 8] = [
    ("br0", "a1"),
    ("br0", "a2"),
    ("br0", "a3"),
    ("br0", "a4"),
    ("br0", "x0"),
    ("br1", "x1"),
    ("br1", "b1"),
    ("br1", "b2"),
];

/// Bridge, name, OpenFlow number and, where it is no patch, datapath number of ports.
pub(crate) struct Topology(Vec<(&'static str, String, u16, Option<u32>)>);

impl Topology {
    pub(crate) fn create() -> String {
        let mut words = String::new();
        for bridge in BRIDGES {
            words += &format!("-- add-br {bridge} -- set bridge {bridge} datapath_type=dummy fail_mode=secure ");
        }
        for (bridge, port) in PORTS {
            let kind = match port {
                "x0" => "type=patch options:peer=x1",
                "x1" => "type=patch options:peer=x0",
                _ => "type=dummy",
            };
            words += &format!("-- add-port {bridge} {port} -- set interface {port} {kind} ");
        }
        words
    }

    pub(crate) fn fixed() -> Topology {
        let mut show = String::new();
        for (at, (bridge, port)) in PORTS.iter().enumerate() {
            if at == 0 || PORTS[at - 1].0 != *bridge {
                show += &format!("{bridge}:\n{bridge} 65534/{}:\n", 100 + at);
            }
            show += &match port.starts_with('x') {
                true => format!("{port} {}/none:\n", at + 1),
                false => format!("{port} {0}/{0}:\n", at + 1),
            };
        }
        Topology::read(&show)
    }

    pub(crate) fn read(show: &str) -> Topology {
        let mut ports = Vec::new();
        let mut bridge = "";
        for line in show.lines().map(str::trim) {
            if let Some(name) = BRIDGES.iter().find(|name| line.strip_suffix(':') == Some(name)) {
                bridge = name;
            }
            let words: Vec<_> = line.split([' ', '/', ':']).collect();
            if let [name, ofport, port, ..] = words[..]
                && let Ok(ofport) = ofport.parse()
            {
                ports.push((bridge, name.to_owned(), ofport, port.parse().ok()));
            }
        }
        assert_eq!(ports.len(), PORTS.len() + 2, "{show}");
        Topology(ports)
    }

    /// Datapath numbers of the first bridge's ports.
    pub(crate) fn inputs(&self) -> Vec<u32> {
        let of_first = self.0.iter().filter(|port| port.0 == "br0");
        of_first.filter_map(|port| port.3).collect()
    }

    pub(crate) fn ofport(&self, port: u32) -> u16 {
        self.0.iter().find(|other| other.3 == Some(port)).unwrap().2
    }

    pub(crate) fn config(&self) -> SwitchConfig {
        let mut config = SwitchConfig::default();
        for (bridge, name, ofport, port) in &self.0 {
            let attach = match (port, name.as_str()) {
                (Some(port), _) => Attach::Device(PortNo(*port)),
                (None, "x0") => Attach::Patch { peer: "x1".to_owned() },
                (None, _) => Attach::Patch { peer: "x0".to_owned() },
            };
            let interface = InterfaceConfig {
                name: name.clone(),
                ofport: *ofport,
                attach,
                link: LinkState::UP,
                punts: Punts::default(),
            };
            let port = PortConfig {
                interfaces: vec![interface],
                ..PortConfig::default()
            };
            let bridge = config
                .bridges
                .entry((*bridge).to_owned())
                .or_insert_with(|| BridgeConfig {
                    fail_mode: FailMode::Secure,
                    ..BridgeConfig::default()
                });
            bridge.ports.insert(name.clone(), port);
        }
        config
    }

    /// OpenFlow numbers of a bridge's ports.
    pub(crate) fn ofports(&self, bridge: &str) -> Vec<u16> {
        let of_bridge = self.0.iter().filter(|port| port.0 == bridge && port.2 < 0xff00);
        of_bridge.map(|port| port.2).collect()
    }
}

type Rule = (&'static str, String, FlowMod);

/// Rules for both bridges.
pub(crate) fn random_rules(rng: &mut Rng, topology: &Topology) -> Vec<Rule> {
    let mut rules = Vec::new();
    let mut priority = 100;
    for _ in 0..4 + rng.below(40) {
        // No two rules of a table have the same priority: the specification does not say which one
        // wins.
        priority += 1;
        let bridge = if rng.chance(80) { "br0" } else { "br1" };
        rules.push(random_rule(rng, bridge, priority, &topology.ofports(bridge)));
    }
    for (bridge, table) in [("br0", 0), ("br0", 1), ("br1", 0)] {
        if rng.chance(70) {
            let change = FlowMod {
                table: Some(table),
                priority: 1,
                instructions: openflow::model::Instructions::apply(vec![to(Port::NORMAL)]),
                ..FlowMod::default()
            };
            rules.push((bridge, format!("table={table},priority=1,actions=NORMAL"), change));
        }
    }
    rules
}

fn to(port: Port) -> Action {
    Action::Output { port, max_len: 0 }
}

fn address(mac: [u8; 6]) -> u128 {
    MacAddr(mac).to_u64().into()
}

fn random_rule(rng: &mut Rng, bridge: &'static str, priority: u16, ports: &[u16]) -> Rule {
    let table = *rng.pick(&[0, 0, 0, 1, 2]);
    let mut change = FlowMod {
        table: Some(table),
        priority,
        ..FlowMod::default()
    };
    let mut text = format!("table={table},priority={priority}");
    let mut require = |text: &mut String, words: String, fields: &[(F, u128, u128)]| {
        *text += &format!(",{words}");
        for (field, value, mask) in fields {
            change.matching.set(*field, *value, *mask);
        }
    };
    const ALL: u128 = u128::MAX;
    let is_ip = rng.chance(60);
    let transport = is_ip && rng.chance(60);
    if rng.chance(20) {
        let port = *rng.pick(ports);
        require(
            &mut text,
            format!("in_port={port}"),
            &[(F::InPortOxm, port.into(), u32::MAX.into())],
        );
    }
    for (name, field) in [("dl_src", F::EthSrc), ("dl_dst", F::EthDst)] {
        if rng.chance(20) {
            let value = mac(1 + rng.below(5) as u32);
            require(
                &mut text,
                format!("{name}={}", MacAddr(value)),
                &[(field, address(value), ALL)],
            );
        }
    }
    match rng.below(6) {
        0 => {
            let vid = *rng.pick(&[0u16, 10, 20]);
            require(&mut text, format!("dl_vlan={vid}"), &[(F::DlVlan, vid.into(), 0xfff)]);
        }
        1 => require(&mut text, "vlan_tci=0x0000".into(), &[(F::VlanTci, 0, 0xffff)]),
        _ => {}
    }
    if rng.chance(15) {
        let value = rng.below(3) as u128;
        require(&mut text, format!("reg0={value}"), &[(F::Reg0, value, u32::MAX.into())]);
    }
    if is_ip {
        let protocol = *rng.pick(&[("tcp", 6), ("udp", 17)]);
        let mut fields = vec![(F::EthType, 0x0800, 0xffff)];
        if transport {
            fields.push((F::NwProto, protocol.1, 0xff));
        }
        let name = if transport { protocol.0 } else { "ip" };
        require(&mut text, name.into(), &fields);
        for (name, field) in [("nw_src", F::IpSrc), ("nw_dst", F::IpDst)] {
            if rng.chance(40) {
                let len = *rng.pick(&[8, 16, 24, 30, 31, 32]);
                let mask = u32::MAX << (32 - len);
                let addr = 0x0a00_0000 | (rng.below(2) as u32) << 8 | rng.below(4) as u32;
                let value = format!("{name}={}/{len}", Ipv4Addr::from_bits(addr & mask));
                require(&mut text, value, &[(field, (addr & mask).into(), mask.into())]);
            }
        }
        if transport && rng.chance(50) {
            let field = if protocol.1 == 6 { F::TcpDst } else { F::UdpDst };
            let port = 80 + rng.below(3) as u128;
            require(&mut text, format!("tp_dst={port}"), &[(field, port, 0xffff)]);
        }
    }
    let newer = rng.chance(20) && bridge == "br0";
    let mut words = Vec::new();
    let mut actions = Vec::new();
    for _ in 0..rng.below(5) {
        let (word, action) = random_action(rng, ports, table, is_ip, transport, newer);
        words.push(word);
        actions.push(action);
    }
    change.instructions.apply = actions;
    if newer {
        if rng.chance(60) {
            let port = *rng.pick(ports);
            let source = mac(7);
            words.push(format!(
                "write_actions(set_field:{}->eth_src,output:{port})",
                MacAddr(source)
            ));
            change.instructions.write = vec![Action::SetEthSrc(MacAddr(source)), to(Port(port.into()))];
        }
        let goto = table + 1 + rng.below(2) as u8;
        words.push(format!("goto_table:{goto}"));
        change.instructions.goto = Some(goto);
    }
    if words.is_empty() {
        words.push("drop".into());
    }
    (bridge, format!("{text},actions={}", words.join(",")), change)
}

fn random_action(
    rng: &mut Rng,
    ports: &[u16],
    table: u8,
    is_ip: bool,
    transport: bool,
    newer: bool,
) -> (String, Action) {
    let port = *rng.pick(ports);
    loop {
        return match rng.below(16) {
            0..=2 => (format!("output:{port}"), to(Port(port.into()))),
            3 => ("IN_PORT".into(), to(Port::IN_PORT)),
            4 => ("FLOOD".into(), to(Port::FLOOD)),
            5 => ("ALL".into(), to(Port::ALL)),
            6 => ("NORMAL".into(), to(Port::NORMAL)),
            7 if table < 2 => {
                let table = table + 1;
                let action = Action::Resubmit {
                    in_port: Port::IN_PORT,
                    table,
                    ct: false,
                };
                (format!("resubmit(,{table})"), action)
            }
            8 if !newer => {
                let vid = 10 * (1 + rng.below(3) as u16);
                (format!("mod_vlan_vid:{vid}"), Action::SetVlanVid(vid))
            }
            9 if !newer => ("strip_vlan".into(), Action::StripVlan),
            10 => {
                let mac = MacAddr(mac(1 + rng.below(5) as u32));
                (format!("mod_dl_dst:{mac}"), Action::SetEthDst(mac))
            }
            11 if is_ip => {
                let addr = Ipv4Addr::new(10, 0, 0, rng.below(4) as u8);
                (format!("mod_nw_dst:{addr}"), Action::SetIpv4Dst(addr))
            }
            12 if is_ip => ("dec_ttl".into(), Action::DecTtl(vec![0])),
            13 if transport => (format!("mod_tp_src:{port}"), Action::SetTpSrc(port)),
            14 => {
                let value = rng.below(3) as u64;
                let dst = Subfield::whole(F::Reg0);
                (format!("load:{value}->NXM_NX_REG0[]"), Action::Load { dst, value })
            }
            15 => {
                let (src, dst) = (
                    Subfield::new(F::EthSrc, 0, 2).unwrap(),
                    Subfield::new(F::Reg0, 0, 2).unwrap(),
                );
                let words = "move:NXM_OF_ETH_SRC[0..1]->NXM_NX_REG0[0..1]".to_owned();
                (words, Action::Move { src, dst })
            }
            _ => continue,
        };
    }
}
