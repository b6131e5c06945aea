//! Two ends on virtual time: agreement on intervals, losses, poll sequences.

use super::lab::{End, MS, SECOND, every, frame, packet, pair, pair_up, recorded, states};
use crate::bfd::wire::{Packet, State, diagnostic};
use crate::bfd::{Config, Session, timers};
use nanos::Nanos;
use std::time::Duration;
use testkit::network::{Network, Quality};

#[test]
fn two_ends_come_up_within_two_slow_intervals() {
    for seed in 0..100 {
        let mut network = pair(seed, &every(100), &every(10));
        let up = |network: &Network<End>| states(network) == [State::Up, State::Up];
        let end = Nanos::ZERO + timers::SLOW * 2;
        assert!(network.run_until_or(end, up).is_some(), "seed {seed}");
    }
}

#[test]
fn packets_keep_the_agreed_interval_with_its_jitter_and_announce_no_less() {
    let slow_receiver = Config {
        min_rx: MS * 200,
        ..every(20)
    };
    let mut network = pair_up(&every(50), &slow_receiver);
    network.record();
    network.run_for(SECOND * 20);
    let sent = recorded(&mut network);
    for (end, interval) in [(0, 200_u32), (1, 50)] {
        let times: Vec<Nanos> = sent.iter().filter(|sent| sent.0 == end).map(|sent| sent.1).collect();
        let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.len() > 90);
        for gap in &gaps {
            assert!(
                *gap <= MS * interval && *gap >= MS * interval / 4 * 3,
                "end {end}: {gap:?}"
            );
        }
        assert!(gaps.iter().max() > Some(&(MS * interval / 100 * 95)));
    }
    assert!(sent.iter().all(|sent| !sent.2.poll && !sent.2.is_final));
    assert_eq!(network.node(0).session.status().flap_count, 1);
}

#[test]
fn a_silent_link_is_noticed_by_both_ends_within_the_detection_time() {
    let mut network = pair_up(&every(10), &every(10));
    network.set_quality(
        0,
        Quality {
            loss: 100,
            ..Quality::delay(MS)
        },
    );
    let begin = network.now();
    let down = |network: &Network<End>| states(network) == [State::Down, State::Down];
    let end = begin + MS * 30 + MS;
    assert!(network.run_until_or(end, down).is_some());
    assert_eq!(network.node(0).session.status().diagnostic, diagnostic::EXPIRED);
    network.set_quality(0, Quality::delay(MS));
    network.run_for(SECOND * 3);
    assert_eq!(states(&network), [State::Up, State::Up]);
    assert_eq!(network.node(0).session.status().flap_count, 3);
}

#[test]
fn the_end_that_is_not_heard_learns_it_from_the_other() {
    let mut network = pair_up(&every(100), &every(100));
    // End 1 hears nothing; its packets arrive.
    network.set_up(0, false);
    let mut deaf = 0;
    while states(&network)[1] == State::Up {
        let now = network.now();
        let still = frame(&packet(State::Up));
        network.with(0, |end, _| end.session.receive(&still, now));
        network.run_for(MS * 50);
        deaf += 1;
        assert!(deaf < 10);
    }
    let mut told = packet(State::Down);
    told.diagnostic = diagnostic::EXPIRED;
    let now = network.now();
    network.with(0, |end, _| end.session.receive(&frame(&told), now));
    let status = network.node(0).session.status();
    assert_eq!(
        (status.state, status.diagnostic),
        (State::Down, diagnostic::NEIGHBOR_DOWN)
    );
}

/// The packets of a change of end 0's intervals, from the first on.
fn change(from: &Config, to: &Config) -> Vec<(usize, Nanos, Packet)> {
    let mut network = pair_up(from, &every(20));
    network.record();
    let now = network.now();
    network.with(0, |end, _| end.session.configure(to, now));
    network.run_for(SECOND * 3);
    assert_eq!(network.node(0).session.status().flap_count, 1);
    let mut sent = recorded(&mut network);
    sent.retain(|sent| sent.1 >= now);
    sent
}

#[test]
fn a_change_of_an_interval_is_polled_and_answered_at_once() {
    for (from, to) in [(50, 500), (500, 50)] {
        let sent = change(&every(from), &every(to));
        let polls: Vec<_> = sent.iter().filter(|sent| sent.2.poll).collect();
        assert!(polls.len() == 1 && polls[0].0 == 0, "{from} to {to}: {polls:?}");
        assert_eq!(polls[0].2.desired_min_tx, to * 1000);
        let finals: Vec<_> = sent.iter().filter(|sent| sent.2.is_final).collect();
        assert!(finals.len() == 1 && finals[0].0 == 1);
        assert_eq!(finals[0].1, polls[0].1 + MS);
        assert!(sent.iter().all(|sent| !(sent.2.poll && sent.2.is_final)));
    }
}

#[test]
fn a_slower_interval_is_in_force_only_when_the_other_end_has_answered() {
    let mut network = pair_up(&every(50), &every(20));
    network.set_quality(
        0,
        Quality {
            loss: 100,
            ..Quality::delay(MS)
        },
    );
    let now = network.now();
    network.record();
    network.with(0, |end, _| end.session.configure(&every(900), now));
    network.run_for(MS * 55);
    let sent = recorded(&mut network);
    let own: Vec<_> = sent.iter().filter(|sent| sent.0 == 0 && sent.1 >= now).collect();
    assert!(own.len() >= 2 && own.iter().all(|sent| sent.2.poll), "{own:?}");
}

#[test]
fn an_end_that_wants_no_packets_gets_none_but_answers() {
    let mut network = pair_up(&every(50), &every(50));
    let mut quiet = packet(State::Up);
    quiet.required_min_rx = 0;
    let now = network.now();
    network.set_up(0, false);
    network.with(0, |end, _| end.session.receive(&frame(&quiet), now));
    assert_eq!(network.node(0).session.next_event(), Some(now + MS * 300));
    quiet.poll = true;
    network.record();
    network.with(0, |end, _| end.session.receive(&frame(&quiet), now));
    let sent = recorded(&mut network);
    assert!(sent.len() == 1 && sent[0].2.is_final);
}

#[test]
fn a_peer_in_demand_mode_gets_no_periodic_packets_while_both_are_up() {
    let mut network = pair_up(&every(50), &every(50));
    let mut demand = packet(State::Up);
    demand.demand = true;
    let now = network.now();
    network.set_up(0, false);
    network.with(0, |end, _| end.session.receive(&frame(&demand), now));
    assert_eq!(network.node(0).session.next_event(), Some(now + MS * 300));
    // It wants to hear when something changes.
    network.record();
    network.with(0, |end, _| end.session.configure(&every(60), now));
    network.run_for(MS * 10);
    assert!(recorded(&mut network).iter().any(|sent| sent.0 == 0 && sent.2.poll));
}

#[test]
fn a_path_that_is_down_behind_an_end_stops_the_traffic_and_not_the_session() {
    let mut network = pair_up(&every(50), &every(50));
    let broken = Config {
        cpath_down: true,
        ..every(50)
    };
    for (config, forwards) in [(&broken, false), (&every(50), true)] {
        let now = network.now();
        network.with(0, |end, _| end.session.configure(config, now));
        network.run_for(SECOND);
        assert_eq!(states(&network), [State::Up, State::Up]);
        let [near, far] = [0, 1].map(|number| network.node(number).session.status());
        assert!(near.forwarding);
        assert_eq!(far.forwarding, forwards);
        let told = match forwards {
            true => diagnostic::NONE,
            false => diagnostic::CONCATENATED_PATH_DOWN,
        };
        assert_eq!((near.diagnostic, far.remote_diagnostic), (told, told));
    }
}

#[test]
fn an_override_says_what_the_interface_does_and_leaves_the_session_alone() {
    let mut session = Session::new(&every(50), super::lab::identity(10), Nanos::ZERO);
    assert!(session.take_changed() && !session.take_changed());
    session.force(Some(true));
    assert!(session.is_forwarding() && session.take_changed());
    session.force(None);
    assert!(!session.is_forwarding());
    assert_eq!(session.status().flap_count, 0);
}

/// A rough link, with outages, and then a good one.
fn run(seed: u64) {
    let mut network: Network<End> = Network::new(seed);
    let mut intervals = [0, 0];
    for interval in &mut intervals {
        *interval = 10 + (network.rng().number() % 500) as u32;
    }
    for (number, interval) in [(10, intervals[0]), (20, intervals[1])] {
        let mut config = every(interval);
        config.multiplier = 1 + (network.rng().number() % 5) as u8;
        network.add(End::new(number, &config));
    }
    let rough = Quality {
        delay: MS,
        jitter: MS * 30,
        loss: network.rng().number() % 70,
        duplication: 5,
        reordering: (network.rng().number() % 40, SECOND * 3),
    };
    let link = network.connect(&[(0, 0), (1, 0)], rough);
    for _ in 0..6 {
        let up = network.is_up(link);
        network.set_up(link, !up);
        let time = Duration::from_millis(network.rng().number() % 10_000);
        network.run_for(time);
        let (now, end) = (network.now(), (network.rng().number() % 2) as usize);
        let config = every(10 + (network.rng().number() % 500) as u32);
        network.with(end, |end, _| end.session.configure(&config, now));
    }
    network.set_up(link, true);
    network.set_quality(link, Quality::delay(MS));
    // What was late has come, and what went down because of it is up again.
    network.run_for(SECOND * 12);
    assert_eq!(states(&network), [State::Up, State::Up], "seed {seed}");
    let flaps = |network: &Network<End>| [0, 1].map(|end| network.node(end).session.status().flap_count);
    let before = flaps(&network);
    network.run_for(SECOND * 20);
    assert_eq!(flaps(&network), before, "seed {seed}: a good link does not flap");
    network.set_quality(
        link,
        Quality {
            loss: 100,
            ..Quality::delay(MS)
        },
    );
    network.run_for(MS * 510 * 5);
    assert_eq!(states(&network), [State::Down, State::Down], "seed {seed}");
}

#[test]
fn random_losses_reorderings_and_outages_end_up_and_stay_there() {
    (0..300).for_each(run);
}

#[test]
fn ten_thousand_random_links_end_up_and_stay_there() {
    testkit::skip!(unless long);
    (300..10_000).for_each(run);
}
