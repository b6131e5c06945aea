//! Any database content is either refused with a reason or runs.

mod common;

use common::Parcel;
use proptest::prelude::*;
use qos::keys::{Configured, KINDS, KeyError, Link, QueueRow, Strings, discipline};
use qos::{Cause, Enqueued, Nanos, Port, PortConfig, PortSpeed, Scheduler};
use std::collections::BTreeMap;

const KEYS: [&str; 24] = [
    "min-rate",
    "max-rate",
    "burst",
    "priority",
    "parent",
    "leaf",
    "rt",
    "ls",
    "ul",
    "ecn",
    "limit",
    "perturb",
    "quantum",
    "depth",
    "flows",
    "target",
    "interval",
    "memory_limit",
    "latency",
    "jitter",
    "loss",
    "cir",
    "cbs",
    "other",
];

/// Numbers of queues are among them, for `parent`; most are legal for some key.
const VALUES: [&str; 24] = [
    "1",
    "2",
    "3",
    "4",
    "0",
    "64",
    "1500",
    "12000",
    "700000",
    "5000000",
    "70000",
    "sfq",
    "codel",
    "fq_codel",
    "fifo",
    "true",
    "false",
    "700000/5000/20000",
    "20000/1000/500000",
    "5/10/0",
    "0/10/5000",
    "",
    "-1",
    "99999999999999999999",
];

/// Keys of our own and of others, with values that some of them can have.
fn row(most: usize) -> impl Strategy<Value = Strings> {
    let pair = (prop::sample::select(&KEYS[..]), prop::sample::select(&VALUES[..]));
    let pair = pair.prop_map(|(key, value)| (key.to_owned(), value.to_owned()));
    prop::collection::vec(pair, 0..=most).prop_map(|pairs| pairs.into_iter().collect())
}

fn rows() -> impl Strategy<Value = (&'static str, Strings, BTreeMap<u32, QueueRow>)> {
    let queue = (row(3), prop::option::of(0u8..64)).prop_map(|(other_config, dscp)| QueueRow { other_config, dscp });
    let queues = prop::collection::btree_map(0u32..5, queue, 0..5);
    // Policers want keys that few rows would have by chance.
    let policed = prop::bool::ANY.prop_map(|policed| policed.then_some([("cir", "9000"), ("cbs", "9000")]));
    (prop::sample::select(&KINDS[..]), row(3), queues, policed).prop_map(|(kind, mut port, mut queues, policed)| {
        for (key, value) in policed.into_iter().flatten() {
            port.insert(key.to_owned(), value.to_owned());
            if kind == "trtcm-policer" {
                queues
                    .values_mut()
                    .for_each(|row| _ = row.other_config.insert(key.to_owned(), value.to_owned()));
            }
        }
        (kind, port, queues)
    })
}

fn read((kind, port, queues): &(&str, Strings, BTreeMap<u32, QueueRow>)) -> Result<Configured, KeyError> {
    let link = Link {
        speed: Some(1_000_000_000),
        ..Link::default()
    };
    discipline(kind, port, queues, &link)
}

/// Sends packets of every queue. Returns the numbers sent and dropped.
fn pass(port: &mut Port<Parcel>, now: Nanos) -> (u64, u64) {
    let mut dropped = 0;
    let mut sent = 0;
    let mut drop = |_, _: Cause| dropped += 1;
    for id in 0..20 {
        let parcel = Parcel::new(id, 100).queue(id as u32 % 7).flow(id % 3);
        let _: Enqueued = port.enqueue(parcel, now, &mut drop);
    }
    let mut at = now;
    // The slowest possible class sends one of these packets within a hundred seconds, if others let
    // it.
    while let Some(next) = port.next_event(at)
        && next < now + Nanos::from_secs(100_000)
    {
        at = next;
        sent += u64::from(port.dequeue(at, &mut drop).is_some());
    }
    (sent, dropped)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 4))]

    #[test]
    fn what_is_read_runs_and_gives_out_or_drops_every_packet(from in rows(), to in rows()) {
        let mut port: Option<Port<Parcel>> = None;
        let mut now = Nanos::from_secs(1);
        for rows in [&from, &to] {
            let configured = match read(rows) {
                Ok(configured) => configured,
                Err(error) => {
                    // The value is as it was given.
                    let map = match error.row {
                        qos::keys::Row::Queue(number) => &rows.2[&number].other_config,
                        _ => &rows.1,
                    };
                    if error.key != "queues" {
                        prop_assert_eq!(error.value.as_ref(), map.get(&error.key), "{}", error);
                    }
                    prop_assert!(!error.rule.is_empty());
                    continue;
                }
            };
            prop_assert!(configured.queues.contains_key(&0));
            let mut config = PortConfig::new(configured.discipline);
            config.speed = Some(PortSpeed::new(1_000_000_000).unwrap());
            match &mut port {
                Some(port) => prop_assert!(port.reconfigure(&config, now, &mut |_, _| ()).is_ok()),
                None => port = Some(Port::new(&config).unwrap()),
            }
            if let Some(port) = &mut port {
                let (sent, dropped) = pass(port, now);
                prop_assert_eq!(sent + dropped, 20);
                prop_assert_eq!(port.packets(), 0);
            }
            now = now + Nanos::from_secs(200_000);
        }
    }
}
