//! Megaflows of packets that tunnels have received: none covers packets of another key or another
//! endpoint, and each has the actions of all packets that it covers.

use super::parts;
use crate::ask::Ask;
use flow::{Field, Key, PortNo, Tunnel, TunnelDetails, TunnelOptionBytes, extract};
use nanos::Nanos;
use openflow::model::FlowCommand;
use openflow::text::{Names, parse_flow};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use switch::{
    Attach, BridgeConfig, FailMode, InterfaceConfig, LinkState, PortConfig, Punts, Switch, SwitchConfig, Underlay,
};
use testkit::{Packet, Rng, mac};
use tunnel::route::{Hop, Prefix};
use tunnel::vport::{Type, Vport};

/// The datapath ports of a device, of tunnels of Geneve and of those of GRE.
const DEVICE: u32 = 1;
const KINDS: [(Type, u32); 2] = [(Type::Geneve, 6081), (Type::Gre, 5)];

fn address(n: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, n as u8])
}

/// Options of a tunnel, out of few, so that tunnels often meet.
fn options(rng: &mut Rng) -> BTreeMap<String, String> {
    let mut options = BTreeMap::new();
    let mut add = |key: &str, value: &str| {
        options.insert(key.to_owned(), value.to_owned());
    };
    let remote_ip = rng.pick(&["flow", "10.0.0.1", "10.0.0.2"]);
    add("remote_ip", remote_ip);
    let key = rng.pick(&["flow", "0", "1", "2"]);
    add("key", key);
    if rng.chance(30) {
        let local_ip = rng.pick(&["10.0.0.8", "10.0.0.9"]);
        add("local_ip", local_ip);
    }
    if rng.chance(20) {
        add("packet_type", "ptap");
    }
    options
}

/// A switch with tunnels, whose packets the host's stack carries, and rules about them.
fn switch(rng: &mut Rng) -> (Switch, String) {
    let mut told = String::new();
    let mut interfaces = vec![("d".to_owned(), 1, Attach::Device(PortNo(DEVICE)))];
    for n in 2..10_u16 {
        let (kind, datapath_port) = *rng.pick(&KINDS);
        let name = format!("t{n}");
        let options = options(rng);
        told += &format!("{name} {} {options:?}\n", kind.name());
        let Some(config) = tunnel::vport::parse(&name, kind, &options).config else {
            continue;
        };
        let vport = Vport {
            name: name.clone(),
            datapath_port,
            config,
        };
        interfaces.push((name, n, Attach::Tunnel(Arc::new(vport))));
    }
    let ports = interfaces.into_iter().map(|(name, ofport, attach)| {
        let interface = InterfaceConfig {
            name: name.clone(),
            ofport,
            attach,
            link: LinkState::UP,
            punts: Punts::default(),
        };
        let port = PortConfig {
            interfaces: vec![interface],
            ..PortConfig::default()
        };
        (name, port)
    });
    let config = BridgeConfig {
        fail_mode: FailMode::Secure,
        ports: ports.collect(),
        ..BridgeConfig::default()
    };
    let mut switch = Switch::new(rng.number());
    let mut all = SwitchConfig::default();
    all.bridges.insert("br0".to_owned(), config);
    switch.configure(all, Nanos::ZERO);
    let mut underlay = Underlay::default();
    let mut routes = tunnel::route::Table::default();
    let hop = Hop {
        device: "eth0".to_owned(),
        gateway: None,
        source: address(8),
    };
    routes.add(Prefix::new(address(0), 24).unwrap(), 0, hop);
    underlay.routes = Arc::new(routes);
    underlay.host = KINDS.map(|(_, port)| PortNo(port)).into();
    switch.set_underlay(underlay);
    for priority in 0..12 {
        let matching = *rng.pick(&[
            "",
            "in_port=2,",
            "in_port=3,",
            "tun_id=1,",
            "tun_id=0/2,",
            "tun_src=10.0.0.1,",
            "tun_dst=10.0.0.8/31,",
            "tun_ttl=9,",
            "tun_flags=oam,",
            "ip,nw_dst=10.1.0.0/16,",
        ]);
        let actions = *rng.pick(&[
            "normal",
            "1",
            "2,3",
            "in_port",
            "set_field:2->tun_id,4,5",
            "move:NXM_NX_TUN_IPV4_SRC[]->NXM_NX_TUN_IPV4_DST[],set_field:1->tun_id,3,4,5,6",
            "set_field:10.0.0.2->tun_dst,6,7,8",
            "9,1",
        ]);
        let rule = format!("priority={priority},{matching}actions={actions}");
        // Some actions need what only some conditions say.
        let Ok(change) = parse_flow(FlowCommand::Add, &rule, &Names::default()) else {
            continue;
        };
        switch.flow_mod("br0", &change, Nanos::ZERO).unwrap();
        told += &rule;
        told.push('\n');
    }
    (switch, told)
}

/// A packet of a host, or one that a tunnel has received.
fn packet(rng: &mut Rng) -> Key {
    let packet = Packet::new(mac(1), mac(2)).ipv4([10, 1, 0, 1].into(), [10, rng.below(2) as u8, 0, 2].into());
    let bytes = packet.udp(1, 2, &[]).bytes();
    if rng.chance(20) {
        return extract(&bytes, &PortNo(DEVICE).into()).unwrap();
    }
    let (_, port) = *rng.pick(&KINDS);
    let mut key = extract(&bytes, &PortNo(port).into()).unwrap();
    let mut flags = 0;
    for flag in [Tunnel::KEY, Tunnel::DF, Tunnel::OAM, Tunnel::CSUM] {
        flags |= if rng.chance(50) { flag } else { 0 };
    }
    flags |= if rng.chance(10) { Tunnel::NO_ETHERNET } else { 0 };
    key.set_tunnel(&Tunnel {
        id: rng.below(3) as u64,
        src: address(1 + rng.below(3)),
        dst: address(8 + rng.below(2)),
        tp_src: rng.below(9) as u16,
        tp_dst: port as u16,
        tos: rng.below(4) as u8,
        ttl: *rng.pick(&[9, 64]),
        flags,
        details: TunnelDetails::None,
        options: TunnelOptionBytes::NONE,
    });
    key
}

#[test]
fn no_megaflow_covers_packets_of_another_tunnel_key_or_endpoint() {
    let ends = |key: &Key| (key.in_port(), key.get(Field::TunId), key.tunnel_addresses());
    let mut covered = 0;
    for round in 0..60 {
        let mut rng = Rng::new(round);
        let (switch, told) = switch(&mut rng);
        let packets: Vec<Key> = (0..150).map(|_| packet(&mut rng)).collect();
        for key in &packets {
            let translated = switch.ask(key);
            let mask = translated.translation.mask;
            let mut changed = super::covered(&mut rng, key, &mask);
            // Of a tunnel over IPv4, and none of other packets.
            let own = [
                Field::TunTos,
                Field::TunTtl,
                Field::TunFlags,
                Field::TunId,
                Field::TunSrc,
                Field::TunDst,
            ];
            let is_own = |field: &Field| key.tunnel_addresses().is_some() && own.contains(field);
            for field in Field::of_tunnels().filter(|field| !is_own(field)) {
                changed.set(field, key.get(field));
            }
            let others = packets.iter().filter(|other| *other != key && mask.eq_key(key, other));
            for other in others.chain([&changed]) {
                covered += 1;
                let shown = || format!("round {round}: {key:?} and {other:?}\n{told}");
                if key.tunnel_addresses().is_some() {
                    assert_eq!(ends(key), ends(other), "{}", shown());
                }
                assert_eq!(
                    parts(&translated, other),
                    parts(&switch.ask(other), other),
                    "{}",
                    shown()
                );
            }
        }
    }
    assert!(covered > 20_000, "hardly any packet is covered: {covered}");
}
