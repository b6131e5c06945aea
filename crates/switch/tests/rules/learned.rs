//! Learned rules: how packets add and keep them.

use crate::ask::Ask;
use crate::model::Topology;
use dp::Action as Step;
use flow::{Key, PortNo, extract};
use nanos::Nanos;
use openflow::model::{FlowCommand, FlowMod};
use openflow::text::{Names, parse_flow};
use std::time::Duration;
use switch::tables::Condition;
use switch::{FragMode, PortFlags, Switch};
use testkit::{Packet, mac};

fn bridge(rules: &[&str]) -> Switch {
    let mut switch = Switch::new(5);
    switch.configure(Topology::fixed().config(), Nanos::ZERO);
    for rule in rules {
        switch
            .flow_mod("br0", &flow_mod(FlowCommand::Add, rule), Nanos::ZERO)
            .unwrap();
    }
    switch
}

fn flow_mod(command: FlowCommand, text: &str) -> FlowMod {
    parse_flow(command, text, &Names::default()).unwrap()
}

fn tcp(flags: u8) -> Key {
    let packet = Packet::new(mac(1), mac(2)).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    extract(&packet.tcp(1, 2, flags, b"").bytes(), &PortNo(1).into()).unwrap()
}

fn from(station: u32) -> Key {
    let packet = Packet::new(mac(station), mac(9)).payload(0x88b5, b"data");
    extract(&packet.bytes(), &PortNo(1).into()).unwrap()
}

fn rules_in(switch: &Switch, table: u8) -> usize {
    switch.bridge("br0").unwrap().tables().rules_in(table)
}

#[test]
fn what_a_packet_makes_is_there_for_later_ones_and_stays_while_they_come() {
    let learn = "actions=learn(table=5,hard_timeout=9,NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),resubmit(3,5)";
    let mut switch = bridge(&[learn]);
    let first = switch.ask(&from(1));
    assert_eq!(rules_in(&switch, 5), 0);
    let changes = switch.accept(&first, Nanos::ZERO).unwrap();
    assert!(changes.iter().any(|change| first.translation.depends_on(change)));
    assert_eq!(rules_in(&switch, 5), 1);
    let second = switch.ask(&from(1));
    assert_eq!((first.rules.len(), second.rules.len()), (1, 2));
    // Its packets keep the rule.
    let mut now = Nanos::ZERO;
    for _ in 0..4 {
        now += Duration::from_secs(6);
        assert_eq!(switch.apply(&second.translation.effects, now), []);
        assert_eq!(switch.tick(now), []);
    }
    assert!(!switch.tick(now + Duration::from_secs(9)).is_empty());
    assert_eq!(rules_in(&switch, 5), 0);
}

#[test]
fn what_was_learned_before_a_packet_is_given_up_stays_learned() {
    let learn = |table: u8| format!("learn(table={table},NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])");
    let loops = format!("in_port=1,actions=output:2,{},resubmit(,0),{}", learn(5), learn(6));
    let labels = format!(
        "in_port=2,actions=output:1,{},push_mpls:0x8847,push_mpls:0x8847,push_mpls:0x8847,push_mpls:0x8847,{}",
        learn(5),
        learn(6)
    );
    let mut switch = bridge(&[&loops, &labels]);
    for (station, port, learned) in [(1, 1, 1), (2, 2, 2)] {
        let packet = Packet::new(mac(station), mac(9)).payload(0x88b5, b"data");
        let key = extract(&packet.bytes(), &PortNo(port).into()).unwrap();
        let translated = switch.ask(&key);
        assert!(translated.translation.actions.is_empty(), "{translated:?}");
        switch.accept(&translated, Nanos::ZERO).unwrap();
        assert_eq!([5, 6].map(|table| rules_in(&switch, table)), [learned, 0]);
    }
}

#[test]
fn a_rule_made_of_no_port_sends_nowhere() {
    let learn = "in_port=1,actions=load:0->NXM_OF_IN_PORT[],learn(table=5,NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])";
    let mut switch = bridge(&[learn, "in_port=2,actions=resubmit(,5)"]);
    switch.accept(&switch.ask(&from(1)), Nanos::ZERO).unwrap();
    assert_eq!(rules_in(&switch, 5), 1);
    let packet = Packet::new(mac(1), mac(9)).payload(0x88b5, b"data");
    let later = switch.ask(&extract(&packet.bytes(), &PortNo(2).into()).unwrap());
    assert_eq!((later.rules.len(), later.translation.actions.len()), (2, 0));
}

#[test]
fn no_more_rules_are_made_than_may_be_and_a_bit_says_so() {
    let learn = "actions=learn(table=5,limit=2,cookie=0x7,result_dst=NXM_NX_REG0[0],NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),resubmit(,6)";
    let mut switch = bridge(&[
        learn,
        "table=6,reg0=1,actions=output:2",
        "table=6,reg0=0,actions=output:3",
    ]);
    let mut sent = Vec::new();
    for station in 1..=4 {
        let translated = switch.ask(&from(station));
        switch.accept(&translated, Nanos::ZERO).unwrap();
        sent.push(translated.translation.actions[0].clone());
    }
    let (two, three) = (Step::Output(PortNo(2)), Step::Output(PortNo(3)));
    assert_eq!(sent, [two.clone(), two.clone(), three.clone(), three]);
    assert_eq!(rules_in(&switch, 5), 2);
    assert_eq!(switch.ask(&from(1)).translation.actions[0], two);
}

#[test]
fn rules_go_with_the_last_one_that_makes_such() {
    let learn = "actions=learn(table=5,cookie=0x7,delete_learned,NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])";
    let rules = ["in_port=1,", "in_port=2,"].map(|port| format!("{port}{learn}"));
    let other = "table=5,cookie=0x8,in_port=3,actions=drop";
    let mut switch = bridge(&[&rules[0], &rules[1], other]);
    let translated = switch.ask(&from(1));
    switch.accept(&translated, Nanos::ZERO).unwrap();
    assert_eq!(rules_in(&switch, 5), 2);
    let gone = |switch: &mut Switch, port: &str| {
        let delete = flow_mod(FlowCommand::DeleteStrict, &format!("{port},table=0"));
        switch.flow_mod("br0", &delete, Nanos::ZERO).unwrap();
    };
    gone(&mut switch, "in_port=1");
    assert_eq!(rules_in(&switch, 5), 2);
    gone(&mut switch, "in_port=2");
    let mut left = Vec::new();
    let tables = switch.bridge("br0").unwrap().tables();
    tables.for_each(Some(5), &Condition::ANY, |_, _, rule| left.push(rule.cookie));
    assert_eq!(left, [8]);
}

#[test]
fn a_rule_ends_soon_behind_its_connection() {
    let mut switch = bridge(&["tcp,idle_timeout=100,actions=fin_timeout(idle_timeout=5),output:2"]);
    for (flags, last) in [(0x10, 100), (0x11, 5)] {
        let translated = switch.ask(&tcp(flags));
        switch.accept(&translated, Nanos::ZERO).unwrap();
        let end = switch.bridge("br0").unwrap().tables().next_event();
        assert_eq!(end, Some(Nanos::from_secs(last)));
    }
}

#[test]
fn what_controllers_say_of_ports_and_fragments_counts() {
    let mut switch = bridge(&["actions=FLOOD", "priority=40000,tcp,tp_dst=2,actions=output:3"]);
    let ports = |switch: &Switch, key: &Key| {
        let actions = switch.ask(key).translation.actions;
        let port = |action: &Step| match action {
            Step::Output(port) => Some(port.0),
            _ => None,
        };
        let mut ports: Vec<u32> = actions.iter().filter_map(port).collect();
        ports.sort_unstable();
        ports
    };
    let flags = |set: fn(&mut PortFlags)| {
        let mut flags = PortFlags::default();
        set(&mut flags);
        flags
    };
    let all = ports(&switch, &from(1));
    let before = switch.ask(&from(1)).translation;
    let changes = switch.set_port_flags("br0", 2, flags(|f| f.no_flood = true)).unwrap();
    assert!(changes.iter().any(|change| before.depends_on(change)));
    let without = |port: u32| all.iter().copied().filter(|other| *other != port).collect::<Vec<_>>();
    assert_eq!(ports(&switch, &from(1)), without(2));
    switch.set_port_flags("br0", 2, flags(|f| f.no_fwd = true)).unwrap();
    assert_eq!(ports(&switch, &from(1)), without(2));
    switch.set_port_flags("br0", 2, PortFlags::default()).unwrap();
    switch.set_port_flags("br0", 1, flags(|f| f.no_recv = true)).unwrap();
    assert!(ports(&switch, &from(1)).is_empty());
    switch.set_port_flags("br0", 1, PortFlags::default()).unwrap();
    assert!(switch.set_port_flags("br0", 99, PortFlags::default()).is_err());

    let mut fragment = tcp(2);
    assert_eq!(ports(&switch, &fragment), [3]);
    fragment.set(flow::Field::IpFrag, 1);
    assert_eq!(ports(&switch, &fragment), all);
    switch.set_frag_mode("br0", FragMode::NxMatch);
    assert_eq!(ports(&switch, &fragment), [3]);
    switch.set_frag_mode("br0", FragMode::Drop);
    switch.set_misses_to_controller("br0", true);
    let dropped = switch.ask(&fragment);
    assert_eq!(dropped.translation.actions[..], [], "nor is it missed");
}
