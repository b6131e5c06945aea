//! What is answered of queues.

use crate::world::Lab;
use nanos::Nanos;
use ofproto::{Kind, QueueInfo};
use openflow::model::*;
use openflow::{ErrorBody, ErrorKind, OfError, Version};

/// A queue's number, and its least and greatest rate.
type Rates = (u32, Option<u16>, Option<u16>);

/// Ports 1 and 3 with queues, port 2 without.
fn lab() -> Lab {
    let lab = Lab::new();
    let queue = |number: u32, min_rate: Option<u16>| QueueInfo {
        number,
        min_rate,
        max_rate: min_rate.map(|rate| rate * 2),
        tx_packets: u64::from(number) + 1,
        tx_bytes: 1000,
        tx_errors: 2,
        since: Some(Nanos::from_millis(500)),
    };
    {
        let mut queues = lab.world.queues.borrow_mut();
        queues.insert("p1".to_owned(), vec![queue(0, None), queue(3, Some(200))]);
        queues.insert("p3".to_owned(), vec![queue(0, None)]);
    }
    lab.world.now.set(Nanos::from_millis(2500));
    lab
}

/// The only answer to a request.
fn answer(lab: &mut Lab, version: Version, body: Body) -> Result<Body, OfError> {
    let id = lab.open(Kind::Primary, version);
    lab.say(id, version, 5, body);
    let mut heard = lab.hear(id, version);
    assert_eq!(heard.len(), 1, "{version}: {heard:?}");
    lab.disconnect(id);
    match heard.remove(0).body {
        Body::Error(ErrorBody {
            kind: ErrorKind::Known(error),
            ..
        }) => Err(error),
        body => Ok(body),
    }
}

fn stats(lab: &mut Lab, version: Version, port: Port, queue: u32) -> Result<Vec<QueueStats>, OfError> {
    let request = StatsRequest::Queue { port, queue };
    match answer(lab, version, Body::StatsRequest { more: false, request })? {
        Body::StatsReply {
            reply: StatsReply::Queue(queues),
            ..
        } => Ok(queues),
        other => panic!("{other:?}"),
    }
}

#[test]
fn queue_statistics_are_told_of_one_or_all_in_every_version() {
    for version in Version::ALL {
        let mut lab = lab();
        let mut numbers = |port, queue| -> Result<Vec<(u32, u32)>, OfError> {
            let stats = stats(&mut lab, version, port, queue)?;
            Ok(stats.iter().map(|stats| (stats.port.0, stats.queue)).collect())
        };
        assert_eq!(numbers(Port::ANY, ALL_QUEUES), Ok(vec![(1, 0), (1, 3), (3, 0)]));
        assert_eq!(numbers(Port::ANY, 0), Ok(vec![(1, 0), (3, 0)]));
        assert_eq!(numbers(Port(1), ALL_QUEUES), Ok(vec![(1, 0), (1, 3)]));
        assert_eq!(numbers(Port(1), 3), Ok(vec![(1, 3)]));
        assert_eq!(numbers(Port(2), ALL_QUEUES), Ok(vec![]));
        assert_eq!(numbers(Port(2), 0), Err(OfError::QofcBadQueue));
        assert_eq!(numbers(Port(1), 7), Err(OfError::QofcBadQueue));
        assert_eq!(numbers(Port::ANY, 7), Err(OfError::QofcBadQueue));
        assert_eq!(numbers(Port(9), ALL_QUEUES), Err(OfError::QofcBadPort));
        let told = stats(&mut lab, version, Port(1), 3).unwrap();
        let [one] = told[..] else { panic!("{told:?}") };
        assert_eq!((one.tx_packets, one.tx_bytes, one.tx_errors), (4, 1000, 2));
        let wanted = if version >= Version::V13 { 2 } else { 0 };
        assert_eq!((one.duration.sec, one.duration.nsec), (wanted, 0));
    }
}

#[test]
fn queues_are_described_in_the_way_of_each_version() {
    for version in Version::ALL {
        let mut lab = lab();
        let mut rates = |port, queue| -> Result<Vec<Rates>, OfError> {
            let body = match version >= Version::V14 {
                true => Body::StatsRequest {
                    more: false,
                    request: StatsRequest::QueueDesc { port, queue },
                },
                false => Body::QueueGetConfigRequest(port),
            };
            let queues = match answer(&mut lab, version, body)? {
                Body::QueueGetConfigReply { port: of, queues } => {
                    assert_eq!(of, port);
                    queues
                }
                Body::StatsReply {
                    reply: StatsReply::QueueDesc(queues),
                    ..
                } => queues.into_iter().map(|(_, queue)| queue).collect(),
                other => panic!("{other:?}"),
            };
            Ok(queues.iter().map(|q| (q.queue, q.min_rate, q.max_rate)).collect())
        };
        let (zero, three) = ((0, None, None), (3, Some(200), Some(400)));
        assert_eq!(rates(Port(1), ALL_QUEUES), Ok(vec![zero, three]), "{version}");
        assert_eq!(rates(Port(2), ALL_QUEUES), Ok(vec![]));
        assert_eq!(rates(Port(9), ALL_QUEUES), Err(OfError::QofcBadPort));
        if version > Version::V10 {
            assert_eq!(rates(Port::ANY, ALL_QUEUES), Ok(vec![zero, three, zero]));
        }
        if version >= Version::V14 {
            assert_eq!(rates(Port(1), 3), Ok(vec![three]));
            assert_eq!(rates(Port(1), 7), Err(OfError::QofcBadQueue));
        }
    }
}

#[test]
fn more_queues_than_a_message_holds_are_cut_off_or_told_in_parts() {
    let mut lab = lab();
    let many = (0..20_000).map(|number| QueueInfo {
        number,
        min_rate: Some(1),
        ..QueueInfo::default()
    });
    lab.world.queues.borrow_mut().insert("p2".to_owned(), many.collect());
    match answer(&mut lab, Version::V13, Body::QueueGetConfigRequest(Port(2))) {
        Ok(Body::QueueGetConfigReply { queues, .. }) => assert_eq!(queues.len(), 65_000 / 32),
        other => panic!("{other:?}"),
    }
    let id = lab.open(Kind::Primary, Version::V13);
    let request = StatsRequest::Queue {
        port: Port(2),
        queue: ALL_QUEUES,
    };
    lab.say(id, Version::V13, 5, Body::StatsRequest { more: false, request });
    let mut told = 0;
    for message in lab.hear(id, Version::V13) {
        match message.body {
            Body::StatsReply {
                reply: StatsReply::Queue(queues),
                ..
            } => told += queues.len(),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told, 20_000);
}
