//! The actions of a copy (`clone`, a group's bucket, a patch port) do not change the packet itself.

use crate::ask::Ask;
use crate::frames::{self, Frame};
use crate::frozen::bridge;
use crate::model::Topology;
use flow::{PortNo, extract};
use nanos::Nanos;
use openflow::model::FlowCommand;
use openflow::text::{Names, parse_flow};
use switch::{Attach, Switch, VlanMode};
use testkit::{Packet, mac};
use wire::Vid;

/// The packets that leave, by port.
type Sent = Vec<(u32, String)>;

/// The packets that leave the second port for a tagged packet: after these actions, and unchanged.
fn sent(actions: &str) -> (Sent, Sent) {
    let packet = Packet::new(mac(1), mac(2)).tag(0x8100, 10);
    let packet = packet.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let key = extract(&packet.udp(1, 2, b"data").bytes(), &PortNo(3).into()).unwrap();
    let out = |actions: &str| {
        let switch = bridge(&[], &[&format!("actions={actions}")]);
        let translation = switch.ask(&key).translation;
        let mut sent = frames::run(&translation.actions, &Frame::new(&key), false);
        sent.retain(|(port, _)| *port == 2);
        sent
    };
    (out(actions), out("output:2"))
}

#[test]
fn tags_that_a_copy_buries_under_a_label_stay_with_the_copy() {
    let tags = "push_vlan:0x8100,push_vlan:0x8100";
    let (sent, untouched) = sent(&format!("clone({tags},push_mpls:0x8847,output:1),output:2"));
    assert_eq!(sent, untouched);
}

#[test]
fn a_tag_that_comes_off_for_an_access_port_stays_on_for_the_next_action() {
    let packet = Packet::new(mac(1), mac(2)).tag(0x8100, 10);
    let key = extract(&packet.payload(0x88b5, b"data").bytes(), &PortNo(3).into()).unwrap();
    let mut config = Topology::fixed().config();
    for port in config.bridges.values_mut().flat_map(|bridge| bridge.ports.values_mut()) {
        if port.interfaces.iter().any(|i| i.attach == Attach::Device(PortNo(2))) {
            (port.vlan_mode, port.tag) = (VlanMode::Access, Some(Vid::from_tci(7)));
        }
    }
    let mut switch = Switch::new(5);
    switch.configure(config, Nanos::ZERO);
    let sent = |switch: &mut Switch, actions: &str| {
        let tags = "push_vlan:0x8100,push_vlan:0x8100,set_field:4103->vlan_vid";
        let rule = parse_flow(
            FlowCommand::Add,
            &format!("actions={tags},{actions}"),
            &Names::default(),
        )
        .unwrap();
        switch.flow_mod("br0", &rule, Nanos::ZERO).unwrap();
        let steps = switch.ask(&key).translation.actions;
        frames::run(&steps, &Frame::new(&key), false)
    };
    let alone = sent(&mut switch, "output:4");
    let behind = sent(&mut switch, "NORMAL,output:4");
    let last: Vec<_> = behind.into_iter().filter(|(port, _)| *port == 4).collect();
    assert_eq!(last, [alone.clone(), alone].concat(), "flooded and sent");
}
