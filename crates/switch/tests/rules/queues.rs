//! Queues that set the DSCP of packets.

use crate::ask::Ask;
use crate::model::Topology;
use dp::Action as Step;
use flow::{Field, Key, PortNo, extract};
use nanos::Nanos;
use openflow::model::FlowCommand;
use openflow::text::{Names, parse_flow};
use switch::{Attach, Switch, SwitchConfig};
use testkit::{Packet, mac};

/// Port 2 marks by queue 0 with 10, by queue 3 with 46.
fn config() -> SwitchConfig {
    let mut config = Topology::fixed().config();
    for port in config.bridges.values_mut().flat_map(|bridge| bridge.ports.values_mut()) {
        let marks = port.interfaces.iter().any(|i| i.attach == Attach::Device(PortNo(2)));
        if marks {
            port.dscp = [(0, 10), (3, 46)].into();
        }
    }
    config
}

fn bridge(rules: &[&str]) -> Switch {
    let mut switch = Switch::new(5);
    switch.configure(config(), Nanos::ZERO);
    for rule in rules {
        let change = parse_flow(FlowCommand::Add, rule, &Names::default()).unwrap();
        switch.flow_mod("br0", &change, Nanos::ZERO).unwrap();
    }
    switch
}

fn udp() -> Key {
    let packet = Packet::new(mac(1), mac(2)).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    extract(&packet.udp(7, 80, b"data").bytes(), &PortNo(1).into()).unwrap()
}

/// The effects of a translation, with the type of service of each copy sent.
fn sent(actions: &str, key: &Key) -> Vec<(u32, u8)> {
    let translation = bridge(&[&format!("actions={actions}")]).ask(key).translation;
    let mut tos = key.get(Field::IpTos) as u8;
    let mut sent = Vec::new();
    for step in &translation.actions[..] {
        match step {
            Step::SetField(set) if set.field() == Field::IpTos => {
                let (value, mask) = (set.value() as u8, set.mask() as u8);
                tos = tos & !mask | value & mask;
            }
            Step::Output(port) => sent.push((port.0, tos)),
            Step::SetQueue(_) => {}
            other => panic!("{other:?}"),
        }
    }
    sent
}

#[test]
fn a_copy_that_leaves_by_a_marking_queue_gets_its_dscp_and_no_other() {
    let mut key = udp();
    key.set(Field::IpTos, 0x51);
    let (ef, af11) = (46 << 2 | 1, 10 << 2 | 1);
    for (actions, wanted) in [
        ("set_queue:3,output:2,output:3", vec![(2, ef), (3, 0x51)]),
        ("enqueue:2:3,output:2", vec![(2, ef), (2, 0x51)]),
        (
            "set_queue:3,output:3,output:2,pop_queue,output:2",
            vec![(3, 0x51), (2, ef), (2, 0x51)],
        ),
        ("set_queue:4,output:2", vec![(2, 0x51)]),
        // The default queue marks only packets for which an action has chosen it.
        ("output:2", vec![(2, 0x51)]),
        ("set_queue:0,output:2", vec![(2, af11)]),
        (
            "set_queue:3,set_queue:0,output:2,pop_queue,output:2",
            vec![(2, af11), (2, 0x51)],
        ),
        ("enqueue:2:0,output:2", vec![(2, af11), (2, 0x51)]),
        ("clone(set_queue:0,output:2),output:2", vec![(2, af11), (2, 0x51)]),
    ] {
        assert_eq!(sent(actions, &key), wanted, "{actions}");
    }
}

#[test]
fn what_is_not_ip_is_not_marked() {
    let packet = Packet::new(mac(1), mac(2)).payload(0x88b5, b"data");
    let key = extract(&packet.bytes(), &PortNo(1).into()).unwrap();
    assert_eq!(sent("set_queue:3,output:2", &key), [(2, 0)]);
}

#[test]
fn behind_a_label_the_copy_that_is_marked_is_marked_and_no_other() {
    let packet = Packet::new(mac(1), mac(2)).payload(0x8847, &[0, 0, 0x51, 64, 0x45, 0, 0, 20]);
    let key = extract(&packet.bytes(), &PortNo(1).into()).unwrap();
    let rule = "mpls,actions=pop_mpls:0x0800,set_queue:3,output:2,output:3";
    let steps = bridge(&[rule]).ask(&key).translation.actions;
    let expected = [
        Step::PopMpls { ethertype: 0x0800 },
        Step::Clone(3),
        Step::SetField(dp::SetField::new(Field::IpTos, 46 << 2, 0xfc).unwrap()),
        Step::SetQueue(3),
        Step::Output(PortNo(2)),
        Step::SetQueue(3),
        Step::Output(PortNo(3)),
    ];
    assert_eq!(steps[..], expected);
}

#[test]
fn the_mark_is_in_the_mask_and_follows_the_configuration() {
    let mut switch = bridge(&["actions=set_queue:3,output:2"]);
    let translation = switch.ask(&udp()).translation;
    assert_eq!(translation.mask.get(Field::IpTos) & 0xfc, 0xfc);
    let mut other = config();
    for port in other.bridges.values_mut().flat_map(|bridge| bridge.ports.values_mut()) {
        port.dscp.clear();
    }
    let stale = switch.configure(other.clone(), Nanos::ZERO);
    assert!(stale.iter().any(|change| translation.depends_on(change)));
    let actions = switch.ask(&udp()).translation.actions;
    assert_eq!(actions[..], [Step::SetQueue(3), Step::Output(PortNo(2))]);
    assert_eq!(switch.configure(other, Nanos::ZERO), []);
}
