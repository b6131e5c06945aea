use super::lab::{System, config, mac, pair};
use crate::lacp::wire::{Info, SlowFrame, State};
use crate::lacp::{Lacp, Receive};
use nanos::Nanos;
use std::time::Duration;
use testkit::network::{Network, Quality};

const SECOND: Duration = Duration::from_secs(1);

fn claim(system: u8, key: u16, seen: Info) -> Vec<u8> {
    let state = State(0x3f);
    let actor = Info {
        system_priority: 1,
        system: mac(system),
        key,
        port_priority: 1,
        port: 1,
        state,
    };
    SlowFrame::Lacp { actor, partner: seen }.emit(mac(system))
}

#[test]
fn a_flood_at_one_member_costs_the_others_nothing_and_is_not_answered_without_end() {
    let mut network = pair(3);
    let frames = network.counts().sent;
    network.with(0, |node, now| {
        for n in 0..100_000_u32 {
            let seen = Info {
                key: n as u16,
                ..Info::default()
            };
            node.groups[0].receive(2, &claim(99, n as u16, seen), now);
        }
    });
    assert!(network.counts().sent - frames <= 6);
    // The best port decides, as the standard says; members in sync stay together.
    let enabled = network.node(0).enabled();
    assert!(enabled == [0, 1] || enabled == [2], "{enabled:?}");
    network.run_for(20 * SECOND);
    assert_eq!(network.node(0).enabled(), [0, 1, 2]);
}

#[test]
fn malformed_frames_change_nothing_but_a_counter() {
    let mut network = pair(3);
    network.with(0, |node, now| {
        let lacp = &mut node.groups[0];
        let good = claim(99, 5, Info::default());
        let before: Vec<_> = (0..3).map(|n| lacp.member(n).map(|member| member.partner)).collect();
        for len in 0..56 {
            lacp.receive(1, &good[..len], now);
        }
        lacp.receive(77, &good, now);
        let after: Vec<_> = (0..3).map(|n| lacp.member(n).map(|member| member.partner)).collect();
        assert_eq!(before, after);
        assert_eq!(lacp.counters(1).map(|counters| counters.rx_bad), Some(56));
    });
    assert_eq!(network.node(0).enabled(), [0, 1, 2]);
}

#[test]
fn a_member_that_hears_its_own_system_is_not_attached() {
    let mut network: Network<System> = Network::new(1);
    network.add(System::new(&[config(10, true, 2)]));
    network.connect(&[(0, 0), (0, 1)], Quality::delay(Duration::from_millis(1)));
    network.run_for(30 * SECOND);
    let lacp: &Lacp = &network.node(0).groups[0];
    assert_eq!(lacp.loops().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(network.node(0).enabled(), [0_u32; 0]);
}

#[test]
fn two_passive_systems_stay_silent_and_apart() {
    let mut network = Network::new(1);
    for system in [10, 20] {
        network.add(System::new(&[config(system, false, 2)]));
    }
    network.connect(&[(0, 0), (1, 0)], Quality::default());
    network.run_for(100 * SECOND);
    assert_eq!(network.counts().sent, 0);
    assert_eq!(network.node(0).enabled(), [0_u32; 0]);
}

#[test]
fn a_member_without_a_partner_carries_traffic_only_with_the_fallback() {
    for fallback in [false, true] {
        let mut wanted = config(10, true, 2);
        wanted.fallback = fallback;
        let mut lacp = Lacp::new(&wanted, Nanos::ZERO);
        let end = Nanos::from_secs(100);
        while let Some(next) = lacp.next_event().filter(|next| *next <= end) {
            lacp.tick(next);
            while lacp.take_frame().is_some() {}
        }
        assert_eq!(lacp.member(0).map(|member| member.receive), Some(Receive::Defaulted));
        assert_eq!((lacp.may_enable(0), lacp.is_negotiated()), (fallback, false));
        assert!(!lacp.is_current(0));
    }
}
