//! Packets that try to harm: tunnels that lead into themselves, wrong sources, fragments.

use super::{End, inner, options};
use crate::fixture::{stand_in, start};
use std::net::Ipv4Addr;
use testkit::{Packet, eventually, skip};

/// A packet with VXLAN's headers to the end at `place`, from an address.
fn outer(source: [u8; 4], key: u8, payload: &[u8]) -> Vec<u8> {
    let destination = Ipv4Addr::new(1, 1, 2, 88);
    let body = [&[8, 0, 0, 0, 0, 0, key, 0][..], payload].concat();
    let packet = Packet::new([0xaa, 0x55, 0xaa, 0x55, 0, 1], [0xaa, 0x55, 0xaa, 0x55, 0, 0]);
    packet.ipv4(source.into(), destination).udp(50_000, 4789, &body).bytes()
}

const REMOTE: [u8; 4] = [1, 1, 2, 92];

/// Our switch alone.
fn own() -> End {
    End::new(start(options()), 0)
}

impl End {
    fn counts(&self, cause: &str, least: u64) {
        eventually(cause, || (self.drops(cause) >= least).then_some(()));
    }

    /// Nothing has come to the host but this.
    fn delivers(&mut self, frames: &[Vec<u8>]) {
        let mut came = Vec::new();
        eventually("the host has its packets", || {
            came.extend(self.delivered.take());
            (came.len() >= frames.len()).then_some(())
        });
        assert_eq!(came, frames);
    }
}

#[test]
fn a_tunnel_whose_way_leads_into_itself_ends_at_a_counted_limit() {
    skip!(unless "ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    if stand_in() {
        skip!("Open vSwitch counts it elsewhere");
    }
    let mut end = own();
    end.switch.vsctl(
        "set bridge br0 other_config:hwaddr=aa:55:aa:55:01:00 -- add-port br0 t1 \
         -- set interface t1 type=vxlan ofport_request=1 options:key=1 options:remote_ip=1.2.0.92",
    );
    end.appctl("netdev-dummy/ip4addr br0 1.2.0.88/24");
    end.appctl("ovs/route/add 1.2.0.0/24 br0");
    end.appctl("tnl/neigh/set br0 1.2.0.92 aa:55:aa:55:01:01");
    end.rule("br0", "actions=1");
    for number in 1..=3 {
        end.receive("p9", &inner(number));
    }
    end.counts("drop_translation_limit", 3);
    // Packets of others go on.
    end.rule("br0", "priority=40000,in_port=99,ip,nw_dst=10.0.0.9,actions=in_port");
    end.receive("p9", &inner(9));
    end.delivers(&[inner(9)]);
    assert!(end.sent.take().is_empty());
}

#[test]
fn headers_within_headers_are_taken_off_up_to_a_counted_limit() {
    skip!(unless "ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    if stand_in() {
        skip!("Open vSwitch counts it elsewhere");
    }
    let mut end = own();
    end.switch.vsctl(
        "add-port under t1 -- set interface t1 type=vxlan ofport_request=1 options:key=1 options:remote_ip=1.1.2.92 \
         -- add-port br0 t2 -- set interface t2 type=vxlan ofport_request=2 options:key=2 options:remote_ip=1.1.2.92",
    );
    end.rule("under", "priority=9,in_port=1,actions=local");
    end.rule("br0", "in_port=2,actions=99");
    let wrapped = |times: usize| {
        let mut packet = outer(REMOTE, 2, &inner(9));
        for _ in 0..times {
            packet = outer(REMOTE, 1, &packet);
        }
        packet
    };
    // So many have room in a packet of a wire.
    for times in [0, 1, 2, 3] {
        end.receive("p1", &wrapped(times));
        end.delivers(&[inner(9)]);
    }
    for times in [20, 28] {
        let before = end.drops("drop_recirculation");
        end.receive("p1", &wrapped(times));
        end.counts("drop_recirculation", before + 1);
    }
    end.receive("p1", &wrapped(0));
    end.delivers(&[inner(9)]);
}

#[test]
fn packets_from_others_than_the_other_end_are_nobodys() {
    skip!(unless "ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    if stand_in() {
        skip!("Open vSwitch counts it elsewhere");
    }
    let mut end = own();
    end.switch.vsctl(
        "add-port br0 t1 -- set interface t1 type=vxlan ofport_request=1 options:key=7 options:remote_ip=1.1.2.92 \
         -- add-port br0 t2 -- set interface t2 type=vxlan ofport_request=2 options:key=8 options:remote_ip=flow",
    );
    end.rule("br0", "in_port=1,actions=99");
    end.rule("br0", "in_port=2,tun_src=1.1.2.93,actions=99");
    let good = outer(REMOTE, 7, &inner(1));
    end.receive("p1", &good);
    end.delivers(&[inner(1)]);
    let mut counted = [0; 2];
    for (source, place) in [
        // Another host, the switch itself, one end's neighbour with the other tunnel's key.
        ([1, 1, 2, 93], 0),
        ([1, 1, 2, 88], 0),
        ([127, 0, 0, 1], 0),
        // Addresses that no host has.
        ([0, 0, 0, 0], 1),
        ([224, 0, 0, 5], 1),
        ([255, 255, 255, 255], 1),
    ] {
        end.receive("p1", &outer(source, 7, &inner(2)));
        counted[place] += 1;
        let cause = ["drop_no_tunnel", "drop_tunnel_source"][place];
        end.counts(cause, counted[place]);
        // A cached flow of another source does not take it.
        end.receive("p1", &good);
        end.delivers(&[inner(1)]);
        end.receive("p1", &outer(source, 7, &inner(2)));
        counted[place] += 1;
        end.counts(cause, counted[place]);
    }
    // The same key from several ends: rules see who it was.
    for (source, delivered) in [(93, true), (94, false), (93, true), (94, false)] {
        end.receive("p1", &outer([1, 1, 2, source], 8, &inner(3)));
        end.receive("p1", &good);
        match delivered {
            true => end.delivers(&[inner(3), inner(1)]),
            false => end.delivers(&[inner(1)]),
        }
    }
}

#[test]
fn fragments_of_outer_packets_are_not_taken_for_whole_ones() {
    skip!(unless "ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let mut end = own();
    end.switch.vsctl(
        "add-port br0 t1 -- set interface t1 type=vxlan ofport_request=1 options:key=7 options:remote_ip=1.1.2.92",
    );
    end.rule("br0", "in_port=1,actions=99");
    let whole = outer(REMOTE, 7, &inner(1));
    for (flags, value) in [(20, 0x20), (21, 1), (21, 0x10)] {
        let mut fragment = whole.clone();
        fragment[flags] = value;
        fragment[24..26].fill(0);
        let sum = testkit::checksum(&fragment[14..34]);
        fragment[24..26].copy_from_slice(&sum.to_be_bytes());
        end.receive("p1", &whole);
        end.receive("p1", &fragment);
        end.receive("p1", &whole);
        end.delivers(&[inner(1), inner(1)]);
    }
}
