//! Timeout policies of zones of connections.

use crate::ask::Ask;
use crate::model::Topology;
use conntrack::PolicyId;
use dp::{Action as Step, Translation};
use flow::{Key, PortNo, extract};
use nanos::Nanos;
use openflow::model::FlowCommand;
use openflow::text::{Names, parse_flow};
use switch::{Switch, SwitchConfig};
use testkit::{Packet, mac};

fn config(policies: &[(u16, u16)]) -> SwitchConfig {
    SwitchConfig {
        timeout_policies: policies.iter().map(|(zone, id)| (*zone, PolicyId(*id))).collect(),
        ..Topology::fixed().config()
    }
}

fn udp() -> Key {
    let packet = Packet::new(mac(1), mac(2)).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    extract(&packet.udp(7, 80, b"data").bytes(), &PortNo(1).into()).unwrap()
}

/// The translation by a rule with these actions.
fn translate(switch: &mut Switch, actions: &str) -> Translation {
    let rule = parse_flow(FlowCommand::Add, &format!("udp,actions={actions}"), &Names::default()).unwrap();
    switch.flow_mod("br0", &rule, Nanos::ZERO).unwrap();
    switch.ask(&udp()).translation
}

/// The policy of the first step, which is `ct`.
fn policy(translation: &Translation) -> u16 {
    match &translation.actions[0] {
        Step::Ct(track) => track.request.policy.0,
        other => panic!("{other:?}"),
    }
}

#[test]
fn new_connections_of_a_zone_have_its_policy_and_others_the_default() {
    let mut switch = Switch::new(5);
    switch.configure(config(&[(5, 3), (6, 4)]), Nanos::ZERO);
    for (actions, expected) in [
        ("ct(commit,zone=5)", 3),
        ("ct(zone=5)", 0),
        ("load:6->NXM_NX_REG0[],ct(commit,zone=NXM_NX_REG0[0..15])", 4),
        ("ct(commit,zone=7)", 0),
    ] {
        assert_eq!(policy(&translate(&mut switch, actions)), expected, "{actions}");
    }
}

#[test]
fn a_change_of_a_zones_policy_makes_only_its_own_translations_stale() {
    let mut switch = Switch::new(5);
    switch.configure(config(&[(5, 3)]), Nanos::ZERO);
    let of_zone = translate(&mut switch, "ct(commit,zone=5)");
    let of_other = translate(&mut switch, "ct(commit,zone=6)");
    let looking = translate(&mut switch, "ct(zone=5)");
    assert_eq!(switch.configure(config(&[(5, 3)]), Nanos::ZERO), []);
    let mut stale = |policies| {
        let changes = switch.configure(config(policies), Nanos::ZERO);
        [&of_zone, &of_other, &looking].map(|translation| changes.iter().any(|change| translation.depends_on(change)))
    };
    assert_eq!(stale(&[(5, 4)]), [true, false, false]);
    assert_eq!(stale(&[(5, 4), (6, 1)]), [false, true, false]);
    assert_eq!(stale(&[]), [true, true, false]);
}
