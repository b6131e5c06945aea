//! Guards, and floods of spoofed BPDUs, of both protocols.

use super::lab::{Bridge, Machine, fault, id, mac, random};
use crate::stp::wire::{Bpdu, BridgeId, Message, PortId, RstFlags, Times, WireRole};
use crate::stp::{Guard, Guards};
use nanos::Nanos;
use std::time::Duration;
use testkit::network::{Network, Quality};
use wire::MacAddr;

const SECOND: Duration = Duration::from_secs(1);
const LAN: Quality = Quality {
    delay: Duration::from_micros(100),
    jitter: Duration::ZERO,
    loss: 0,
    duplication: 0,
    reordering: (0, Duration::ZERO),
};
/// The port of bridge 0 at which the attacker is.
const PORT: usize = 99;

/// A claim to be a root.
fn claim(root: BridgeId, rst: bool) -> Vec<u8> {
    let message = Message {
        root,
        cost: 0,
        bridge: root,
        port: PortId(0x8001),
        times: Times {
            message_age: 0,
            max_age: Times::seconds(20),
            hello_time: Times::seconds(2),
            forward_delay: Times::seconds(15),
        },
        topology_change: true,
    };
    let flags = RstFlags {
        role: WireRole::Designated,
        proposal: true,
        agreement: false,
        learning: true,
        forwarding: true,
    };
    let bpdu = if rst {
        Bpdu::Rst(message, flags)
    } else {
        Bpdu::Config(message, true)
    };
    bpdu.emit(MacAddr([0x66; 6]))
}

/// A settled network with a port for an attacker, which has these guards.
fn network(make: fn(usize) -> Bridge, guards: &Guards) -> Network<Bridge> {
    let mut network = random(3, 6, 5, LAN, make);
    network.with(0, |bridge, now| {
        use testkit::network::Node;
        bridge.link(PORT, true, now);
        let guards = guards.clone();
        match bridge.machine {
            Machine::Stp(..) => bridge.stp_config(now, |config| {
                config.ports.get_mut(&(PORT as u32)).unwrap().guards = guards;
            }),
            Machine::Rstp(..) => bridge.rstp_config(now, |config| {
                config.ports.get_mut(&(PORT as u32)).unwrap().guards = guards;
            }),
        }
    });
    network.run_for(SECOND * 80);
    assert_eq!(fault(&network), None);
    assert!(network.node(0).forward.contains(&(PORT as u32)));
    network
}

/// Sends a flood for a time: the frames that `frame` makes, a thousand a second.
fn flood(network: &mut Network<Bridge>, seconds: u64, frame: impl Fn(u64) -> Vec<u8>) {
    use testkit::network::Node;
    for number in 0..seconds * 1000 {
        network.with(0, |bridge, now| bridge.receive(PORT, &frame(number), now));
        network.run_for(Duration::from_millis(1));
    }
}

fn refused(network: &Network<Bridge>) -> crate::stp::Refused {
    let (bridge, now) = (network.node(0), network.now());
    match bridge.machine {
        Machine::Stp(..) => bridge.stp_port(PORT as u32, now).refused,
        Machine::Rstp(..) => bridge.rstp_port(PORT as u32, now).refused,
    }
}

const BOTH: [fn(usize) -> Bridge; 2] = [Bridge::stp, Bridge::rstp];

/// What all bridges but for the attacked port do.
fn others(network: &Network<Bridge>) -> Vec<(BridgeId, Vec<u32>)> {
    let ports = |bridge: &Bridge| {
        bridge
            .forward
            .iter()
            .copied()
            .filter(|port| *port != PORT as u32)
            .collect()
    };
    network.nodes().map(|bridge| (bridge.root().0, ports(bridge))).collect()
}

#[test]
fn with_a_root_guard_a_flood_of_better_roots_blocks_the_port_and_changes_nothing_else() {
    for make in BOTH {
        for rst in [false, true] {
            let guards = Guards {
                root_guard: true,
                ..Guards::default()
            };
            let mut network = network(make, &guards);
            let is_stp = matches!(network.node(0).machine, Machine::Stp(..));
            let before = others(&network);
            flood(&mut network, 5, |number| {
                claim(BridgeId::new(number as u16 % 7, mac(1)), rst)
            });
            assert_eq!(others(&network), before);
            assert!(!network.node(0).forward.contains(&(PORT as u32)));
            assert_eq!(network.node(0).guarded, [(PORT as u32, Guard::Root)]);
            let counts = refused(&network);
            assert!(counts.guard >= 400 && counts.rate >= 3000, "{counts:?}");
            // It forwards again once the claims have stopped.
            network.run_for(SECOND * if is_stp { 60 } else { 30 });
            assert!(network.node(0).forward.contains(&(PORT as u32)));
            assert_eq!(others(&network), before);
        }
    }
}

#[test]
fn only_the_allowed_roots_are_believed() {
    for make in BOTH {
        let guards = Guards {
            allowed_roots: [mac(1), mac(77)].into(),
            ..Guards::default()
        };
        let mut network = network(make, &guards);
        let before = others(&network);
        flood(&mut network, 2, |_| claim(BridgeId::new(0, mac(78)), false));
        assert_eq!(others(&network), before);
        assert_eq!(network.node(0).guarded, [(PORT as u32, Guard::Claim)]);
        network.run_for(SECOND * 60);
        let allowed = claim(BridgeId::new(0, mac(77)), false);
        for _ in 0..10 {
            flood(
                &mut network,
                1,
                |number| if number == 0 { allowed.clone() } else { Vec::new() },
            );
        }
        assert!(network.nodes().all(|bridge| bridge.root().0.mac() == mac(77)));
    }
}

#[test]
fn a_bpdu_guard_disables_the_port_until_its_link_goes_down() {
    use testkit::network::Node;
    for make in BOTH {
        let guards = Guards {
            bpdu_guard: true,
            ..Guards::default()
        };
        let mut network = network(make, &guards);
        let before = others(&network);
        flood(&mut network, 1, |_| claim(id(1), false));
        assert_eq!(network.node(0).guarded, [(PORT as u32, Guard::Bpdu)]);
        network.run_for(SECOND * 200);
        assert!(!network.node(0).forward.contains(&(PORT as u32)));
        assert_eq!(others(&network), before);
        network.with(0, |bridge, now| bridge.link(PORT, false, now));
        network.with(0, |bridge, now| bridge.link(PORT, true, now));
        network.run_for(SECOND * 40);
        assert!(network.node(0).forward.contains(&(PORT as u32)));
    }
}

#[test]
fn a_bpdu_filter_neither_sends_nor_takes() {
    for make in BOTH {
        let guards = Guards {
            bpdu_filter: true,
            ..Guards::default()
        };
        let mut network = network(make, &guards);
        let before = others(&network);
        network.record();
        flood(&mut network, 3, |_| claim(BridgeId::new(0, mac(5)), true));
        assert!(network.recorded().iter().all(|sent| sent.from != (0, PORT)));
        assert_eq!(others(&network), before);
        assert!(network.node(0).forward.contains(&(PORT as u32)));
        assert_eq!(refused(&network).filter, 3000);
    }
}

#[test]
fn malformed_frames_change_nothing_but_a_counter() {
    for make in BOTH {
        let mut network = network(make, &Guards::default());
        let before = others(&network);
        let whole = claim(BridgeId::new(0, mac(5)), true);
        flood(&mut network, 2, |number| {
            whole[..number as usize % whole.len()].to_vec()
        });
        assert_eq!(others(&network), before);
        assert!(network.node(0).forward.contains(&(PORT as u32)));
        let counts = refused(&network);
        assert!(counts.errors >= 300, "{counts:?}");
        assert_eq!(counts.errors + counts.rate, 2000);
        assert!(network.now() > Nanos::ZERO);
    }
}
