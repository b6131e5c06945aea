//! Bonds whose member the datapath selects.

use crate::common::{FakeSwitch, dummy, eventually, number, output, packet, translation};
use dp::{Action, BondTable, Datapath, DropCause, PortNo};
use dp_user::{DpUser, Options};
use flow::Field;
use netdev::{Dummy, Netdev};
use qos::{Discipline, FifoConfig, LeafConfig, PortConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use testkit::Packet;

/// Port 0 sends to a bond of ports 1 and 2, by these actions; ports 3 and 4 too, by others.
fn datapath() -> (Arc<DpUser>, Vec<Arc<Dummy>>, Arc<FakeSwitch>) {
    let switch = FakeSwitch::new(|key| {
        let push = Action::PushVlan(crate::common::tag(5));
        let actions = match key.in_port().0 {
            0 => vec![Action::OutputBond(9)],
            3 => vec![push, Action::OutputBond(9)],
            _ => vec![push, output(5), Action::OutputBond(9)],
        };
        translation(&actions, &[Field::InPort])
    });
    let options = Options {
        workers: 2,
        ..Options::default()
    };
    let datapath = DpUser::new(options, switch.clone(), Arc::default()).unwrap();
    let devices: Vec<_> = (0..6).map(|n| dummy(&format!("p{n}"))).collect();
    for (n, device) in (0..).zip(&devices) {
        datapath.add_port(PortNo(n), device.clone()).unwrap();
    }
    (datapath, devices, switch)
}

fn table(member: impl Fn(usize) -> Option<u32>) -> Option<BondTable> {
    Some(BondTable {
        basis: 1,
        members: std::array::from_fn(|bucket| member(bucket).map(PortNo)),
    })
}

/// A packet of one of many flows.
fn of_flow(flow: u16) -> Vec<u8> {
    let packet = Packet::new(testkit::mac(1), testkit::mac(2)).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    packet.udp(flow, 53, b"").bytes()
}

/// The source port of a packet with or without a tag.
fn flow_of(packet: &[u8]) -> u16 {
    let ip = if packet[12] == 0x81 { 18 } else { 14 };
    u16::from_be_bytes([packet[ip + 20], packet[ip + 21]])
}

#[test]
fn flows_spread_over_members_and_move_at_once_without_an_upcall() {
    let (datapath, devices, switch) = datapath();
    datapath.set_bond(9, table(|bucket| Some(1 + bucket as u32 % 2)));
    let mut members = BTreeMap::<u16, usize>::new();
    for from in [0, 3, 4] {
        (0..500).for_each(|flow| assert!(devices[from].inject(&of_flow(flow))));
        let mut taken = BTreeMap::new();
        eventually("all packets leave by members", || {
            for member in [1, 2] {
                let sent = devices[member].take_sent();
                taken.extend(sent.iter().map(|packet| (flow_of(packet), member)));
            }
            taken.len() == 500
        });
        // However the packets come to the bond, their flows have the same members.
        assert!(members.is_empty() || members == taken);
        members = taken;
    }
    let on_one = members.values().filter(|member| **member == 1).count();
    assert!((150..350).contains(&on_one), "{on_one}");
    let loads = || datapath.take_bond_loads(9).unwrap().iter().sum::<u64>();
    let (plain, tagged) = (500 * of_flow(0).len() as u64, 500 * (of_flow(0).len() as u64 + 4));
    assert_eq!(loads(), plain + 2 * tagged);

    let upcalls = switch.upcalls();
    datapath.set_bond(9, table(|_| Some(2)));
    (0..500).for_each(|flow| assert!(devices[0].inject(&of_flow(flow))));
    let mut sent = 0;
    eventually("all packets leave by the other member", || {
        sent += devices[2].take_sent().len();
        sent == 500
    });
    assert!(devices[1].take_sent().is_empty());
    assert_eq!(switch.upcalls(), upcalls);
    assert_eq!(loads(), plain);
}

#[test]
fn packets_of_a_bond_without_members_are_dropped_and_counted() {
    let (datapath, devices, _) = datapath();
    let dropped = || {
        let drops = datapath.drops();
        drops.iter().find(|(cause, _)| *cause == DropCause::PortDown).unwrap().1
    };
    for (n, from) in [0, 3, 4].into_iter().enumerate() {
        assert!(devices[from].inject(&packet(2, 1, 7)));
        eventually("the drop is counted", || dropped() == n as u64 + 1);
    }
    assert_eq!(number(&devices[5].take_sent()[0][4..]), 7);
    datapath.set_bond(9, table(|_| None));
    assert!(devices[0].inject(&packet(2, 1, 7)));
    eventually("the drop is counted", || dropped() == 4);
    assert_eq!(datapath.take_bond_loads(9), Some([0; 256]));
    datapath.set_bond(9, None);
    assert_eq!(datapath.take_bond_loads(9), None);
}

#[test]
fn a_port_that_comes_in_place_of_a_member_gets_none_of_its_packets() {
    let (datapath, devices, _) = datapath();
    datapath.set_bond(9, table(|bucket| Some(1 + bucket as u32 % 2)));
    let inject = || (0..100).for_each(|flow| assert!(devices[0].inject(&of_flow(flow))));
    let mut sent = [0; 2];
    let mut take = || {
        for (sent, device) in sent.iter_mut().zip(&devices[1..=2]) {
            *sent += device.take_sent().len();
        }
        sent
    };
    inject();
    eventually("both members carry flows", || take().iter().sum::<usize>() == 100);
    let [first, second] = take();
    assert!(first > 0 && second > 0);

    datapath.del_port(PortNo(1)).unwrap();
    let other = dummy("other");
    datapath.add_port(PortNo(7), other.clone()).unwrap();
    inject();
    let dropped = || {
        let drops = datapath.drops();
        drops.iter().find(|(cause, _)| *cause == DropCause::PortDown).unwrap().1
    };
    eventually("the flows of the member that is gone are dropped", || {
        dropped() == first as u64 && take() == [first, 2 * second]
    });
    assert!(other.take_sent().is_empty());

    datapath.add_port(PortNo(1), devices[1].clone()).unwrap();
    inject();
    eventually("it carries its flows again", || take() == [2 * first, 3 * second]);
}

/// The number in a packet of the flow from port 7.
fn numbered(number: u32) -> Vec<u8> {
    let packet = Packet::new(testkit::mac(1), testkit::mac(2)).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    packet.udp(7, 53, &number.to_be_bytes()).bytes()
}

#[test]
fn what_waits_for_a_member_that_fails_is_lost_and_counted_and_nothing_overtakes() {
    const EACH: u32 = 50;
    let (datapath, devices, _) = datapath();
    // The first member takes some packets; the others wait.
    devices[1].set_room(Some(10));
    let fifo = LeafConfig::Fifo(FifoConfig::new(1000).unwrap());
    let queue = PortConfig::new(Discipline::Leaf(fifo));
    datapath.set_qos(PortNo(1), Some(&queue)).unwrap();
    let waiting = || {
        let report = datapath.qos(PortNo(1)).unwrap();
        let queued = report.queues.iter().map(|(_, stats)| stats.backlog_packets);
        queued.sum::<u64>() + report.held_packets
    };
    let counted = |wanted| {
        let drops = datapath.drops();
        drops.iter().find(|(cause, _)| *cause == wanted).unwrap().1
    };
    let dropped = || counted(DropCause::PortDown);
    let link = |up: bool| {
        devices[1].set_up(up).unwrap();
        datapath.links_changed(&BTreeSet::from(["p1"]));
    };
    let mut arrived = Vec::new();
    let mut take = |member: usize| {
        let sent = devices[member].take_sent();
        let number = |packet: &Vec<u8>| u32::from_be_bytes(packet[42..46].try_into().unwrap());
        arrived.extend(sent.iter().map(number));
        (arrived.len() as u32, arrived.is_sorted())
    };
    datapath.set_bond(9, table(|_| Some(1)));
    (0..EACH).for_each(|n| assert!(devices[0].inject(&numbered(n))));
    eventually("packets wait for the first member", || waiting() > u64::from(EACH) / 2);

    // The link is down before the bond knows of it.
    link(false);
    eventually("what waits is dropped", || dropped() > u64::from(EACH) / 2);
    (EACH..2 * EACH).for_each(|n| assert!(devices[0].inject(&numbered(n))));
    eventually("the next packets come to it, too", || {
        waiting() + dropped() > u64::from(EACH) * 3 / 2
    });
    datapath.set_bond(9, table(|_| Some(2)));
    let (by_first, _) = take(1);
    (2 * EACH..3 * EACH).for_each(|n| assert!(devices[0].inject(&numbered(n))));
    // Packets that were not looked at before the change come to it, too.
    eventually("the second member carries the flow", || take(2).0 >= by_first + EACH);

    // The link comes back after all that waited for it was dropped: nothing of it does.
    eventually("all others are counted", || waiting() == 0);
    link(true);
    devices[1].set_room(None);
    eventually("every packet has arrived or is counted", || {
        take(2);
        // A packet that waited for long before the link was down found the device full.
        let lost = dropped() + counted(DropCause::DeviceFull);
        u64::from(take(1).0) + lost == u64::from(3 * EACH)
    });
    assert!(take(1).1, "in order");
}
