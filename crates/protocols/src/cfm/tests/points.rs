//! Maintenance points on virtual time: faults, health, extended mode, bounds.

use super::lab::{End, MS, config, faults, network, silent};
use crate::cfm::wire::{GROUP, Message};
use crate::cfm::{Interval, MOST_REMOTES, VlanTagging};
use std::time::Duration;
use testkit::network::{Network, Quality};
use wire::{MacAddr, Vid};

/// Three and a half intervals of 100 ms, with a margin for the delay.
const LOOK: Duration = Duration::from_millis(355);

fn pair() -> Network<End> {
    let mut network = network(&[config(1, 100, false), config(2, 100, false)]);
    network.run_for(LOOK * 4);
    assert_eq!([faults(&network, 0), faults(&network, 1)], ["", ""]);
    network
}

#[test]
fn ends_that_hear_each_other_have_no_fault_and_full_health() {
    let mut network = pair();
    network.run_for(LOOK * 20);
    for (end, other) in [(0, 2), (1, 1)] {
        let status = network.node(end).point.status();
        assert!(status.faults.is_none() && network.node(end).point.is_alive());
        assert_eq!((status.health, status.flap_count), (Some(100), 0));
        assert_eq!((status.remotes, status.remote_up), (vec![other], None));
    }
}

#[test]
fn a_silent_link_is_a_fault_within_two_looks_and_passes() {
    let mut network = pair();
    network.set_quality(0, silent());
    network.run_for(LOOK * 2);
    for end in [0, 1] {
        let status = network.node(end).point.status();
        assert_eq!((faults(&network, end).as_str(), status.flap_count), ("recv", 1));
        assert!(status.remotes.is_empty() && !network.node(end).point.is_alive());
    }
    network.run_for(LOOK * 14);
    assert_eq!(network.node(0).point.status().health, Some(0));
    network.set_quality(0, Quality::delay(MS));
    network.run_for(LOOK * 3);
    assert_eq!([faults(&network, 0), faults(&network, 1)], ["", ""]);
    // In between, the other end was heard, and told that it heard nobody.
    assert_eq!(network.node(0).point.status().flap_count, 3);
}

#[test]
fn an_end_that_hears_nobody_tells_so() {
    let mut deaf = network(&[config(1, 100, false), config(2, 100, false)]);
    deaf.set_up(0, false);
    for _ in 0..30 {
        // The messages of end 0 only: end 1 hears, and end 0 does not.
        deaf.run_for(MS * 100);
        let told = Message {
            remote_defect: true,
            interval: 3,
            sequence: 0,
            point: 1,
            of_association: true,
            interval_ms: 0,
            extended_point: 0,
            down: false,
        };
        let frame = told.emit(MacAddr([2; 6]), GROUP, None);
        deaf.with(1, |end, _| end.point.receive(&frame));
    }
    assert_eq!(faults(&deaf, 0), "recv");
    assert_eq!(faults(&deaf, 1), "rdi");
}

#[test]
fn what_is_wrong_with_messages_is_a_fault_until_they_stop() {
    type Change = fn(&mut Message);
    let cases: [(Change, &str); 3] = [
        (|message| message.of_association = false, "maid"),
        (|message| message.point = 1, "loopback"),
        (|message| message.remote_defect = true, "rdi"),
    ];
    for (change, name) in cases {
        let mut network = pair();
        let mut message = Message {
            remote_defect: false,
            interval: 3,
            sequence: 9,
            point: 2,
            of_association: true,
            interval_ms: 0,
            extended_point: 0,
            down: false,
        };
        change(&mut message);
        let frame = message.emit(MacAddr([2; 6]), GROUP, None);
        network.with(0, |end, _| end.point.receive(&frame));
        network.run_for(LOOK);
        assert_eq!(faults(&network, 0), name);
        assert!(!network.node(0).point.is_alive());
        network.run_for(LOOK * 2);
        assert_eq!(faults(&network, 0), "");
        assert_eq!(network.node(0).point.status().flap_count, 2);
    }
}

#[test]
fn extended_mode_has_intervals_numbers_and_states_of_its_own() {
    let far = u64::MAX - 1;
    let mut down = config(far, 300, true);
    down.up = false;
    let mut network = network(&[config(1, 300, true), down]);
    network.run_for(MS * 5000);
    let near = &network.node(0).point;
    assert_eq!(faults(&network, 0), "");
    assert_eq!(
        (near.status().remotes, near.status().remote_up),
        (vec![far], Some(false))
    );
    assert!(!near.is_alive() && network.node(1).point.is_alive());
    // Another interval is counted, also if both have no number, and no fault.
    let other = |network: &Network<End>| network.node(0).point.counters().other_interval;
    assert_eq!(other(&network), 0);
    let now = network.now();
    network.with(1, |end, _| end.point.configure(&config(far, 400, true), now));
    network.run_for(MS * 5000);
    assert_eq!([faults(&network, 0), faults(&network, 1)], ["", ""]);
    assert!(other(&network) > 10);
}

#[test]
fn in_demand_mode_data_stands_for_messages() {
    let mut asking = config(1, 500, true);
    asking.demand = true;
    let mut network = network(&[asking, config(2, 500, true)]);
    network.run_for(MS * 4000);
    assert_eq!(faults(&network, 0), "");
    network.set_quality(0, silent());
    for _ in 0..60 {
        network.with(0, |end, _| end.rx_packets += 1);
        network.run_for(MS * 100);
    }
    assert_eq!([faults(&network, 0), faults(&network, 1)], ["", "recv"]);
    network.run_for(MS * 4000);
    assert_eq!(faults(&network, 0), "recv");
}

#[test]
fn in_demand_mode_one_message_is_needed_in_a_hundred_intervals() {
    let mut asking = config(1, 500, true);
    asking.demand = true;
    let mut network = network(&[asking, config(2, 500, true)]);
    network.run_for(MS * 4000);
    network.set_quality(0, silent());
    let mut data_for = |intervals: u64| {
        for _ in 0..intervals {
            network.with(0, |end, _| end.rx_packets += 1);
            network.run_for(MS * 500);
        }
        faults(&network, 0)
    };
    assert_eq!(data_for(90), "");
    assert_eq!(data_for(20), "recv");
}

#[test]
fn intervals_are_those_of_the_standard_but_in_extended_mode() {
    let of = |millis, extended| {
        let interval = Interval::of(millis, extended);
        (interval.code, interval.millis)
    };
    let cases = [
        (1, 1, 3),
        (3, 1, 3),
        (9, 1, 3),
        (10, 2, 10),
        (999, 3, 100),
        (1000, 4, 1000),
        (u32::MAX, 7, 600_000),
    ];
    for (wish, code, millis) in cases {
        assert_eq!(of(wish, false), (code, millis), "{wish}");
    }
    assert_eq!(of(999, true), (0, 999));
    assert_eq!(of(1000, true), (4, 1000));
    assert_eq!(of(100_000, true), (0, 65535));
}

#[test]
fn a_flood_of_senders_is_bounded_and_passes() {
    let mut network = pair();
    for round in 0..50 {
        for number in 0..2000_u32 {
            let message = Message {
                remote_defect: false,
                interval: 3,
                sequence: number,
                point: 100 + number as u16,
                of_association: true,
                interval_ms: 0,
                extended_point: 0,
                down: false,
            };
            let frame = message.emit(MacAddr([2; 6]), GROUP, None);
            network.with(0, |end, _| end.point.receive(&frame));
        }
        network.run_for(MS * 10);
        let _ = round;
    }
    network.run_for(LOOK);
    let status = network.node(0).point.status();
    assert!(status.remotes.len() <= MOST_REMOTES, "{}", status.remotes.len());
    assert!(
        status.faults.names().any(|name| name == "overflow"),
        "{}",
        status.faults
    );
    network.run_for(LOOK * 3);
    assert_eq!(faults(&network, 0), "");
    assert_eq!(network.node(0).point.status().remotes, [2]);
}

#[test]
fn an_override_says_whether_there_is_a_fault() {
    let mut network = pair();
    network.with(0, |end, _| {
        end.point.take_changed();
        end.point.force(Some(true));
        assert!(end.point.take_changed() && !end.point.is_alive());
        assert_eq!(end.point.faults().to_string(), "override");
        end.point.force(None);
        assert!(end.point.is_alive());
    });
    network.set_quality(0, silent());
    network.run_for(LOOK * 3);
    network.with(0, |end, _| {
        end.point.force(Some(false));
        assert!(end.point.is_alive());
    });
}

#[test]
fn messages_are_tagged_as_configured() {
    let mut tagged = config(1, 100, false);
    let vids = |config| {
        let mut network = network(&[config]);
        network.record();
        network.run_for(MS * 1000);
        let sent = network.recorded();
        let tag = |frame: &[u8]| u16::from_be_bytes([frame[14], frame[15]]);
        sent.iter()
            .map(|sent| (sent.frame[12], tag(&sent.frame)))
            .collect::<Vec<_>>()
    };
    (tagged.vlan, tagged.priority) = (VlanTagging::Vlan(Vid::new(7).unwrap()), 5);
    assert!(vids(tagged.clone()).iter().all(|tag| *tag == (0x81, 0xa007)));
    (tagged.vlan, tagged.priority) = (VlanTagging::Random, 0);
    let random = vids(tagged.clone());
    assert!(random.iter().any(|tag| *tag != random[0]));
    tagged.vlan = VlanTagging::Vlan(Vid::NONE);
    assert!(vids(tagged).iter().all(|tag| tag.0 == 0x89));
}
