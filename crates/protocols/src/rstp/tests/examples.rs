//! What the standard describes, in small networks.

use crate::rstp::wire::{Bpdu, PortId, RstFlags, WireRole};
use crate::rstp::{PointToPoint, PortStatus, Role, State};
use crate::stp::tests::lab::{Bridge, Machine, fault, id};
use std::time::Duration;
use testkit::network::{Network, Node, Quality, Sent};

const SECOND: Duration = Duration::from_secs(1);
const LAN: Quality = Quality {
    delay: Duration::from_millis(1),
    jitter: Duration::ZERO,
    loss: 0,
    duplication: 0,
    reordering: (0, Duration::ZERO),
};

fn bridges(count: usize) -> Network<Bridge> {
    let mut network = Network::new(1);
    for bridge in 1..=count {
        network.add(Bridge::rstp(bridge));
    }
    network
}

fn port(network: &Network<Bridge>, bridge: usize, port: u32) -> PortStatus {
    network.node(bridge).rstp_port(port, network.now())
}

fn shape(network: &Network<Bridge>, bridge: usize, number: u32) -> (Role, State) {
    let status = port(network, bridge, number);
    (status.role, status.state)
}

fn flags(sent: &Sent) -> Option<RstFlags> {
    match Bpdu::parse(&sent.frame) {
        Ok(Bpdu::Rst(_, flags)) => Some(flags),
        _ => None,
    }
}

const DESIGNATED: (Role, State) = (Role::Designated, State::Forwarding);
const ROOT: (Role, State) = (Role::Root, State::Forwarding);

#[test]
fn a_link_forwards_after_a_proposal_and_an_agreement() {
    // §17.10: the designated port proposes, the root port of the other end agrees.
    let mut network = bridges(2);
    network.record();
    network.connect(&[(0, 1), (1, 1)], LAN);
    network.run_for(Duration::from_millis(10));
    let sent = network.recorded();
    let proposal = sent
        .iter()
        .position(|sent| sent.from == (0, 1) && flags(sent).unwrap().proposal);
    let agreement = sent.iter().position(|sent| {
        sent.from == (1, 1) && flags(sent).is_some_and(|flags| flags.agreement && flags.role == WireRole::Root)
    });
    assert!(proposal.unwrap() < agreement.unwrap(), "{sent:?}");
    assert_eq!((shape(&network, 0, 1), shape(&network, 1, 1)), (DESIGNATED, ROOT));
    let first = flags(&sent[0]).unwrap();
    assert!(!first.learning && !first.forwarding && !first.agreement);
}

#[test]
fn a_ring_has_one_alternate_port_which_takes_over_at_once() {
    let mut network = bridges(4);
    for bridge in 0..4 {
        network.connect(&[(bridge, 1), ((bridge + 1) % 4, 2)], LAN);
    }
    network.run_for(SECOND * 5);
    assert_eq!(fault(&network), None);
    assert_eq!((shape(&network, 1, 1), shape(&network, 3, 2)), (DESIGNATED, DESIGNATED));
    assert_eq!((shape(&network, 2, 2), shape(&network, 3, 1)), (ROOT, ROOT));
    assert_eq!(shape(&network, 2, 1), (Role::Alternate, State::Discarding));
    // Bridge 3 loses its way to the root: its alternate port is the root port in no time at all.
    network.set_up(1, false);
    assert_eq!(shape(&network, 2, 1), ROOT);
    network.run_for(Duration::from_millis(10));
    assert_eq!(fault(&network), None);
}

#[test]
fn a_second_port_at_a_shared_segment_is_a_backup() {
    // §17.7: LAN with bridge 1 twice and bridge 2 once.
    let mut network = bridges(2);
    network.connect(&[(0, 1), (0, 2), (1, 1)], LAN);
    for (bridge, port) in [(0, 1), (0, 2), (1, 1)] {
        network.with(bridge, |bridge, now| {
            bridge.rstp_config(now, |config| {
                config.ports.get_mut(&port).unwrap().point_to_point = PointToPoint::ForceFalse;
            });
        });
    }
    network.run_for(SECOND * 60);
    assert_eq!(shape(&network, 0, 1), DESIGNATED);
    assert_eq!(shape(&network, 0, 2), (Role::Backup, State::Discarding));
    assert_eq!(shape(&network, 1, 1), ROOT);
    // The designated port fails: the backup port takes over.
    network.with(0, |bridge, now| bridge.link(1, false, now));
    network.run_for(SECOND * 60);
    assert_eq!(shape(&network, 0, 1), (Role::Disabled, State::Disabled));
    assert_eq!(shape(&network, 0, 2), DESIGNATED);
}

#[test]
fn a_port_without_bpdus_is_an_edge_port_until_one_comes() {
    // §17.25: after the migrate time; and an edge port forwards at once.
    let mut network = bridges(2);
    network.with(0, |bridge, now| bridge.link(1, true, now));
    network.run_for(Duration::from_millis(2900));
    assert!(!port(&network, 0, 1).edge);
    assert_eq!(port(&network, 0, 1).state, State::Discarding);
    network.run_for(Duration::from_millis(200));
    assert!(port(&network, 0, 1).edge);
    assert_eq!(shape(&network, 0, 1), DESIGNATED);
    let hello = {
        network.with(1, |bridge, now| bridge.link(1, true, now));
        network.with(1, |bridge, _| bridge.take_frame());
        let Machine::Rstp(machine, _) = &network.node(1).machine else {
            unreachable!()
        };
        assert_eq!(machine.status().root.root, id(2));
        Bpdu::Config(
            crate::rstp::wire::Message {
                root: id(9),
                bridge: id(9),
                port: PortId(0x8001),
                times: crate::stp::BridgeTimes::default().times(),
                ..Default::default()
            },
            false,
        )
        .emit(id(9).mac())
    };
    network.with(0, |bridge, now| bridge.receive(1, &hello, now));
    assert!(!port(&network, 0, 1).edge);
}

#[test]
fn an_administrative_edge_port_forwards_at_once_and_tells_no_topology_change() {
    let mut network = bridges(3);
    network.connect(&[(0, 1), (1, 1)], LAN);
    network.connect(&[(1, 2), (2, 1)], LAN);
    network.run_for(SECOND * 20);
    let changes = |network: &Network<Bridge>| match &network.node(0).machine {
        Machine::Rstp(machine, _) => machine.status().topology_changes,
        Machine::Stp(..) => unreachable!(),
    };
    let before = changes(&network);
    let edge = |network: &mut Network<Bridge>, port: usize, edge: bool| {
        network.with(2, |bridge, now| {
            bridge.link(port, false, now);
            bridge.rstp_config(now, |config| {
                config.ports.get_mut(&(port as u32)).unwrap().admin_edge = edge
            });
            bridge.link(port, true, now);
        });
    };
    edge(&mut network, 9, true);
    assert_eq!(shape(&network, 2, 9), DESIGNATED);
    network.run_for(SECOND * 5);
    assert_eq!(changes(&network), before);
    assert!(!network.node(1).flushed.is_empty());
}

#[test]
fn a_topology_change_flushes_all_ports_but_the_one_that_told_of_it() {
    // §17.30: bridge 1 - 2 - 3, and bridge 3 gets a further neighbour.
    let mut network = bridges(4);
    network.connect(&[(0, 1), (1, 1)], LAN);
    network.connect(&[(1, 2), (2, 1)], LAN);
    network.with(1, |bridge, now| bridge.link(7, true, now));
    network.run_for(SECOND * 20);
    assert!(port(&network, 1, 7).edge);
    let before = network.node(1).flushed.clone();
    network.connect(&[(2, 2), (3, 1)], LAN);
    network.run_for(SECOND);
    let after = &network.node(1).flushed;
    let flushed = |port: u32| after.get(&port).copied().unwrap_or(0) - before.get(&port).copied().unwrap_or(0);
    assert_eq!([flushed(1), flushed(2), flushed(7)], [1, 0, 0]);
}

#[test]
fn a_port_falls_back_to_stp_and_returns_by_a_migration_check() {
    // §17.24.
    let mut network = bridges(2);
    network.with(1, |bridge, now| {
        bridge.rstp_config(now, |config| config.force_stp = true)
    });
    network.connect(&[(0, 1), (1, 1)], LAN);
    network.run_for(SECOND * 60);
    assert!(!port(&network, 0, 1).sends_rstp);
    assert_eq!((shape(&network, 0, 1), shape(&network, 1, 1)), (DESIGNATED, ROOT));
    // The other end speaks RSTP now, but hears Configuration BPDUs, and answers with such.
    network.with(1, |bridge, now| {
        bridge.rstp_config(now, |config| config.force_stp = false)
    });
    network.run_for(SECOND * 20);
    network.with(0, |bridge, now| {
        bridge.rstp_config(now, |config| config.ports.get_mut(&1).unwrap().mcheck = true);
    });
    network.run_for(SECOND * 10);
    assert!(port(&network, 0, 1).sends_rstp && port(&network, 1, 1).sends_rstp);
    assert_eq!(fault(&network), None);
}

#[test]
fn a_link_that_carries_frames_in_one_direction_only_is_no_loop() {
    // 802.1Q: the dispute. Bridge 2 does not hear bridge 1, and would forward.
    let mut network = bridges(2);
    network.connect(&[(0, 1), (1, 1)], LAN);
    network.run_for(SECOND * 10);
    assert_eq!(fault(&network), None);
    network.record();
    network.run_for(SECOND * 3);
    network.set_up(0, false);
    network.with(0, |bridge, now| bridge.link(1, true, now));
    network.with(1, |bridge, now| bridge.link(1, true, now));
    network.run_for(SECOND * 5);
    // Both are edge ports now. A frame of the inferior bridge, which learns, reaches bridge 1.
    assert_eq!(shape(&network, 0, 1), DESIGNATED);
    let frame = {
        network.record();
        network.run_for(SECOND * 4);
        let sent = network.recorded();
        sent.into_iter().rfind(|sent| sent.from == (1, 1)).unwrap().frame
    };
    network.with(0, |bridge, now| bridge.receive(1, &frame, now));
    assert_eq!(shape(&network, 0, 1), (Role::Designated, State::Discarding));
}

#[test]
fn no_port_sends_more_than_the_hold_count_in_a_second() {
    let mut network = bridges(2);
    network.connect(&[(0, 1), (1, 1)], LAN);
    network.run_for(SECOND * 5);
    network.record();
    for number in 0..1000_u16 {
        network.with(0, |bridge, now| {
            bridge.rstp_config(now, |config| {
                config.ports.get_mut(&1).unwrap().id = PortId(0x8000 | (number % 7 + 1))
            });
        });
        network.run_for(Duration::from_millis(1));
    }
    let sent = network.recorded().iter().filter(|sent| sent.from == (0, 1)).count();
    assert!((6..=8).contains(&sent), "{sent}");
}

#[test]
fn the_first_ports_of_a_bridge_decide_between_two_links() {
    let mut network = bridges(2);
    network.connect(&[(0, 1), (1, 1)], LAN);
    network.connect(&[(0, 2), (1, 2)], LAN);
    network.run_for(SECOND * 5);
    assert_eq!(shape(&network, 1, 1), ROOT);
    assert_eq!(shape(&network, 1, 2), (Role::Alternate, State::Discarding));
    // A lower priority of the designated port moves the root port.
    network.with(0, |bridge, now| {
        bridge.rstp_config(now, |config| config.ports.get_mut(&2).unwrap().id = PortId(0x1002));
    });
    network.run_for(SECOND * 5);
    assert_eq!(shape(&network, 1, 2), ROOT);
    // And so does a cost at the other end.
    network.with(1, |bridge, now| {
        bridge.rstp_config(now, |config| config.ports.get_mut(&2).unwrap().cost = 30_000);
    });
    network.run_for(SECOND * 5);
    assert_eq!(shape(&network, 1, 1), ROOT);
}
