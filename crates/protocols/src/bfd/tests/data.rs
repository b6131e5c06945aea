//! Received data: `decay_min_rx` and `forwarding_if_rx`.

use super::lab::{End, MS, SECOND, every, pair_up, states};
use crate::bfd::Config;
use crate::bfd::wire::State;
use testkit::network::{Network, Quality};

/// Lets time pass in which an end receives data at intervals of 100 ms.
fn run_with_data(network: &mut Network<End>, end: usize, tenths: u32) {
    for _ in 0..tenths {
        network.with(end, |end, _| end.rx_packets += 100);
        network.run_for(MS * 100);
    }
}

#[test]
fn an_idle_interface_receives_at_the_slower_interval_until_data_comes() {
    let decaying = Config {
        decay_min_rx: Some(SECOND * 3),
        ..every(100)
    };
    let mut network = pair_up(&decaying, &every(100));
    let interval = |network: &Network<End>| network.node(0).session.rx_interval();
    network.run_for(SECOND * 10);
    assert_eq!(interval(&network), SECOND * 3);
    assert_eq!(network.node(1).session.tx_interval(), SECOND * 3);
    run_with_data(&mut network, 0, 80);
    assert_eq!(interval(&network), MS * 100);
    assert_eq!(network.node(1).session.tx_interval(), MS * 100);
    network.run_for(SECOND * 20);
    assert_eq!(interval(&network), SECOND * 3);
    // A change of the settings starts again.
    let now = network.now();
    network.with(0, |end, _| end.session.configure(&every(100), now));
    network.run_for(SECOND * 4);
    assert_eq!(interval(&network), MS * 100);
    assert_eq!(network.node(0).session.status().flap_count, 1);
}

#[test]
fn data_keeps_an_interface_in_use_while_control_packets_are_lost_for_a_time() {
    let config = Config {
        forwarding_if_rx: true,
        ..every(100)
    };
    let mut network = pair_up(&config, &every(100));
    network.set_quality(
        0,
        Quality {
            loss: 100,
            ..Quality::delay(MS)
        },
    );
    run_with_data(&mut network, 0, 90);
    let status = network.node(0).session.status();
    assert_eq!((status.state, status.forwarding), (State::Down, true));
    // 100 receive intervals after the last control packet data does not count any more.
    run_with_data(&mut network, 0, 20);
    assert!(!network.node(0).session.is_forwarding());
    network.set_quality(0, Quality::delay(MS));
    network.run_for(SECOND * 5);
    assert_eq!(states(&network), [State::Up, State::Up]);
    network.set_quality(
        0,
        Quality {
            loss: 100,
            ..Quality::delay(MS)
        },
    );
    run_with_data(&mut network, 0, 10);
    assert!(network.node(0).session.is_forwarding());
    // No data for two seconds either.
    network.run_for(SECOND * 3);
    assert!(!network.node(0).session.is_forwarding());
}

#[test]
fn data_of_before_the_session_is_no_sign_of_life() {
    let config = Config {
        forwarding_if_rx: true,
        ..every(100)
    };
    let mut end = End::new(10, &config);
    end.rx_packets = 1_000_000;
    testkit::network::Node::tick(&mut end, nanos::Nanos::from_secs(1));
    assert!(!end.session.is_forwarding());
}
