//! The time that a unit of work takes: times of translations of different kinds, divided by their
//! work.

#[path = "../tests/support/ask.rs"]
mod ask;
use ask::Ask;
use dp::Key;
use flow::Field;
use nanos::Nanos;
use openflow::model::{FlowCommand, GroupCommand};
use openflow::text::{Names, parse_flow, parse_group_mod};
use std::time::{Duration, Instant};
use switch::{Attach, BridgeConfig, FailMode, InterfaceConfig, LinkState, PortConfig, Punts, Switch, SwitchConfig};

fn switch(ports: u32, groups: &[String], rules: &[String]) -> Switch {
    let mut bridge = BridgeConfig {
        fail_mode: if rules.is_empty() {
            FailMode::Standalone
        } else {
            FailMode::Secure
        },
        ..BridgeConfig::default()
    };
    for n in 1..=ports {
        let interface = InterfaceConfig {
            name: format!("p{n}"),
            ofport: n as u16,
            attach: Attach::Device(dp::PortNo(n)),
            link: LinkState::UP,
            punts: Punts::default(),
        };
        let port = PortConfig {
            interfaces: vec![interface],
            ..PortConfig::default()
        };
        bridge.ports.insert(format!("p{n}"), port);
    }
    let mut config = SwitchConfig::default();
    config.bridges.insert("br0".to_owned(), bridge);
    let mut switch = Switch::new(1);
    switch.configure(config, Nanos::ZERO);
    for group in groups {
        let (change, _) = parse_group_mod(GroupCommand::Add, group, &Names::default()).expect("a group");
        switch.group_mod("br0", &change, Nanos::ZERO).expect("a group");
    }
    for rule in rules {
        let change = parse_flow(FlowCommand::Add, rule, &Names::default()).expect("a rule");
        switch.flow_mod("br0", &change, Nanos::ZERO).expect("a rule");
    }
    switch
}

/// Rules by which a packet meets the last table so many times.
fn tree(levels: u32, leaf: &str) -> Vec<String> {
    let twice = |table: u32| format!("table={table},actions=resubmit(,{0}),resubmit(,{0})", table + 1);
    (0..levels)
        .map(twice)
        .chain([format!("table={levels},actions={leaf}")])
        .collect()
}

fn measure(name: &str, switch: &Switch) {
    let mut key = Key::ZERO;
    key.set(Field::InPort, 1);
    key.set(Field::EthSrc, 0x0200_0000_0001);
    key.set(Field::EthDst, 0x0200_0000_0002);
    key.set(Field::EthType, 0x0800);
    let begun = Instant::now();
    let (mut rounds, mut work, mut shortest) = (0u32, 0, Duration::MAX);
    while rounds < 3 || begun.elapsed() < Duration::from_millis(300) {
        let round = Instant::now();
        work = switch.ask(&key).work;
        shortest = shortest.min(round.elapsed());
        rounds += 1;
    }
    let nanos = shortest.as_nanos() as f64;
    println!(
        "{name:32} {work:8} units {:10.1} us {:6.1} ns a unit",
        nanos / 1000.0,
        nanos / f64::from(work)
    );
}

fn main() {
    let many = |step: &str, times: usize| vec![step; times].join(",");
    measure("flood without rules, 1000 ports", &switch(1000, &[], &[]));
    measure("NORMAL, 1000 ports", &switch(1000, &[], &["actions=NORMAL".to_owned()]));
    measure("ALL, 1000 ports", &switch(1000, &[], &["actions=ALL".to_owned()]));
    let leaves = [
        ("lookups", "drop".to_owned()),
        ("actions", many("load:1->NXM_NX_REG0[]", 50)),
        ("headers", many("set_field:1->tcp_dst,output:2", 5)),
        ("tags", many("push_vlan:0x8100,output:2,pop_vlan", 5)),
        ("copies", many("clone(load:1->NXM_NX_REG0[])", 20)),
        ("outputs", many("output:2", 5)),
        ("controllers", many("controller(userdata=01)", 2)),
        ("learn", "learn(table=99,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])".to_owned()),
        (
            "multipath",
            "multipath(symmetric_l4,0,hrw,1000,0,NXM_NX_REG0[])".to_owned(),
        ),
        ("length", "check_pkt_larger(100)->NXM_NX_REG0[0]".to_owned()),
        ("buckets", "group:1".to_owned()),
        ("select", "group:2".to_owned()),
        ("watched groups", "group:3".to_owned()),
    ];
    let mut groups = vec![
        format!("group_id=1,type=all{}", ",bucket=load:1->NXM_NX_REG0[]".repeat(50)),
        format!(
            "group_id=2,type=select{}",
            ",bucket=weight=1,watch_port:2,actions=load:1->NXM_NX_REG0[]".repeat(50)
        ),
    ];
    for group in 3..53 {
        groups.push(format!(
            "group_id={group},type=ff,bucket=watch_group:{0},output:2,bucket=watch_group:{0},output:2",
            group + 1
        ));
    }
    groups.push("group_id=53,type=ff,bucket=watch_port:99,output:2".to_owned());
    for (name, leaf) in &leaves {
        measure(name, &switch(4, &groups, &tree(8, leaf)));
    }
    for masks in [100u32, 1000, 10_000] {
        let mask = |n: u32| {
            format!(
                "priority={},reg1={:#x}/{:#x},actions=drop",
                1 + n % 60_000,
                n + 1,
                n + 1
            )
        };
        let rules: Vec<String> = (0..masks).map(mask).collect();
        measure(&format!("a lookup among {masks} masks"), &switch(4, &[], &rules));
        let all: Vec<String> = (0..masks)
            .map(|n| {
                let bits = u64::from(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
                format!("priority={},eth_src={1}/{1},actions=drop", 1 + n % 60_000, mac(bits))
            })
            .collect();
        measure(&format!("a lookup among {masks} masks of MAC"), &switch(4, &[], &all));
    }
}

fn mac(bits: u64) -> String {
    let bytes = bits.to_be_bytes();
    bytes[2..]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .join(":")
}
