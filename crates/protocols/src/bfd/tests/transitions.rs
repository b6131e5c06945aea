//! Every state and every received one (RFC 5880 §6.8.6, and the figure of §6.2).

use super::lab::{every, frame, identity, packet};
use crate::bfd::Session;
use crate::bfd::wire::{State, diagnostic};
use nanos::Nanos;
use std::time::Duration;

const ALL: [State; 4] = [State::AdminDown, State::Down, State::Init, State::Up];

/// A session in a state that packets can bring about.
fn session_in(state: State) -> Session {
    let mut session = Session::new(&every(100), identity(10), Nanos::ZERO);
    let heard: &[State] = match state {
        State::Init => &[State::Down],
        State::Up => &[State::Init],
        State::Down | State::AdminDown => &[],
    };
    for state in heard {
        session.receive(&frame(&packet(*state)), Nanos::ZERO);
    }
    assert_eq!(session.status().state, state);
    session
}

#[test]
fn each_state_answers_each_received_state_as_the_standard_says() {
    use State::{AdminDown, Down, Init, Up};
    let expected = [
        // Heard AdminDown, Down, Init, Up.
        (Down, [Down, Init, Up, Down]),
        (Init, [Down, Init, Up, Up]),
        (Up, [Down, Down, Up, Up]),
    ];
    for (before, after) in expected {
        for (heard, after) in ALL.into_iter().zip(after) {
            let mut session = session_in(before);
            session.receive(&frame(&packet(heard)), Nanos::ZERO);
            let status = session.status();
            assert_eq!(status.state, after, "{before:?} hears {heard:?}");
            let signaled = before != Down && after == Down;
            let why = if signaled {
                diagnostic::NEIGHBOR_DOWN
            } else {
                diagnostic::NONE
            };
            assert_eq!(status.diagnostic, why, "{before:?} hears {heard:?}");
            assert_ne!(after, AdminDown);
        }
    }
}

#[test]
fn a_session_goes_down_when_the_detection_time_is_over_and_not_before() {
    for state in [State::Init, State::Up] {
        let mut session = session_in(state);
        // Three of the peer's intervals.
        let end = Nanos::ZERO + Duration::from_millis(300);
        session.tick(Nanos(end.0 - 1));
        assert_eq!(session.status().state, state);
        session.tick(end);
        let status = session.status();
        assert_eq!((status.state, status.diagnostic), (State::Down, diagnostic::EXPIRED));
        assert_eq!(status.remote_state, State::Down);
    }
}

#[test]
fn the_detection_time_takes_the_peers_multiplier_and_the_slower_interval() {
    for (min_tx, multiplier, millis) in [(100, 3, 300), (20, 5, 500), (250, 4, 1000), (0, 1, 100)] {
        let mut session = session_in(State::Up);
        let mut slow = packet(State::Up);
        (slow.desired_min_tx, slow.multiplier) = (min_tx * 1000, multiplier);
        session.receive(&frame(&slow), Nanos::ZERO);
        session.tick(Nanos(Nanos::from_millis(millis).0 - 1));
        assert_eq!(session.status().state, State::Up);
        session.tick(Nanos::from_millis(millis));
        assert_eq!(session.status().state, State::Down, "{min_tx} {multiplier}");
    }
}

#[test]
fn the_last_frame_of_a_session_tells_that_an_administrator_ended_it() {
    let end = session_in(State::Up).end();
    let mut peer = Session::new(&every(100), identity(20), Nanos::ZERO);
    for state in [State::Down, State::Init] {
        let mut heard = packet(state);
        (heard.my_discriminator, heard.your_discriminator) = (10, 20);
        peer.receive(&frame(&heard), Nanos::ZERO);
    }
    assert_eq!(peer.status().state, State::Up);
    peer.receive(&end, Nanos::ZERO);
    let status = peer.status();
    assert_eq!(
        (status.state, status.diagnostic),
        (State::Down, diagnostic::NEIGHBOR_DOWN)
    );
    assert!(!status.forwarding && status.flap_count == 2);
}
