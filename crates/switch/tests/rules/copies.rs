//! What a copy of a packet does to it (`clone`, a group's bucket, a patch port) is not done to the packet.

use crate::frames::{self, Frame};
use crate::frozen::bridge;
use flow::{PortNo, extract};
use testkit::{Packet, mac};

/// What leaves the second port for a tagged packet, with these actions.
fn sent(actions: &str) -> (Vec<(u32, String)>, Vec<(u32, String)>) {
    let packet = Packet::new(mac(1), mac(2)).tag(0x8100, 10);
    let packet = packet.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let key = extract(&packet.udp(1, 2, b"data").bytes(), PortNo(3)).unwrap();
    let out = |actions: &str| {
        let switch = bridge(&[], &[&format!("actions={actions}")]);
        let translation = switch.translate(&key, wire::Nanos::ZERO);
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
