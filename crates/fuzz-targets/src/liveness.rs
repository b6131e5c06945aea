//! BFD control packets and continuity checks, pauses and settings, in any order, through a session
//! and a maintenance point.

use nanos::Nanos;
use protocols::bfd::wire::State;
use protocols::bfd::{Config, Identity, Session, datagram, timers};
use protocols::cfm::wire::Message;
use protocols::cfm::{self, Interval, MOST_REMOTES, MaintenancePoint, VlanTagging};
use std::time::Duration;
use wire::{MacAddr, Vid};

/// Each step has a byte that says what it is, a byte of length, time or settings, and for a frame
/// its bytes. What is sent is well-formed; what is refused changes nothing; a session that is up
/// has heard its peer within the detection time.
pub fn liveness(data: &[u8]) {
    continuity(data);
    let start = Nanos::from_secs(5);
    let mut now = start;
    let identity = Identity {
        discriminator: 10,
        src_port: 49152,
        seed: 1,
    };
    let mut session = Session::new(&Config::default(), identity, now);
    let (mut rx_packets, mut asked, mut sent, mut rest) = (0, 0_u64, 0_u64, data);
    while let [what, value, behind @ ..] = rest {
        rest = behind;
        match what % 4 {
            0 | 1 => {
                let (frame, others) = rest.split_at(usize::from(*value).min(rest.len()));
                rest = others;
                rx_packets += 1;
                let before = (session.status(), session.counters().refused);
                session.receive(frame, now);
                match datagram::parse(frame) {
                    Ok(packet) => asked += u64::from(packet.poll),
                    Err(_) => assert_eq!((session.status(), session.counters().refused), (before.0, before.1 + 1)),
                }
            }
            2 => {
                now += Duration::from_millis(u64::from(*value) * 10);
                rx_packets += u64::from(what >> 4);
                if session.wants_count() {
                    session.count(rx_packets, now);
                }
                session.tick(now);
                assert!(session.next_event().is_none_or(|due| due > now));
            }
            _ => {
                let config = Config {
                    min_tx: Duration::from_millis(u64::from(value & 7) * 50 + 1),
                    min_rx: Duration::from_millis(u64::from(value >> 5) * 50 + 1),
                    decay_min_rx: (value & 8 != 0).then_some(Duration::from_secs(3)),
                    forwarding_if_rx: value & 16 != 0,
                    cpath_down: what & 16 != 0,
                    multiplier: (what >> 5) + 1,
                    ..Config::default()
                };
                session.configure(&config, now);
            }
        }
        while let Some(frame) = session.take_frame() {
            let packet = datagram::parse(&frame).expect("what is sent is well-formed");
            assert!(packet.my_discriminator == 10 && !(packet.poll && packet.is_final));
            sent += 1;
        }
        let status = session.status();
        assert!(status.state != State::Up || session.next_event().is_some());
        assert!(!session.show(now).is_empty() || session.take_changed());
    }
    // Answers to polls, and at most one packet in each gap.
    let gaps = now.since(start).as_millis() / timers::SHORTEST.as_millis();
    assert!(u128::from(sent - sent.min(asked)) <= gaps + 1 + data.len() as u128);
}

/// The same for CFM: what is refused changes nothing, and the ends that are kept are bounded.
fn continuity(data: &[u8]) {
    let mut now = Nanos::from_secs(5);
    let config = |value: u8| cfm::Config {
        point: 1,
        extended: value & 1 != 0,
        interval: Interval::of(u32::from(value) * 10 + 1, value & 1 != 0),
        demand: value & 2 != 0,
        up: value & 4 == 0,
        vlan: match value & 8 {
            0 => VlanTagging::Vlan(Vid::from_tci(value.into())),
            _ => VlanTagging::Random,
        },
        priority: value >> 5,
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
    };
    let mut point = MaintenancePoint::new(&config(10), 1, now);
    let (mut rx_packets, mut rest) = (0, data);
    while let [what, value, behind @ ..] = rest {
        rest = behind;
        match what % 4 {
            0 | 1 => {
                let (frame, others) = rest.split_at(usize::from(*value).min(rest.len()));
                rest = others;
                rx_packets += 1;
                let before = point.show(now);
                point.receive(frame);
                assert!(Message::parse(frame).is_ok() || point.show(now) == before);
            }
            2 => {
                now += Duration::from_millis(u64::from(*value) * 10);
                rx_packets += u64::from(what >> 4);
                point.tick(rx_packets, now);
                assert!(point.next_event() > now);
            }
            _ => point.configure(&config(*value), now),
        }
        while let Some(frame) = point.take_frame() {
            assert!(Message::parse(&frame).is_ok_and(|message| message.of_association));
        }
        let status = point.status();
        assert!(status.remotes.len() <= MOST_REMOTES && status.health.is_none_or(|health| health <= 100));
    }
}
