//! The ledger of lost packets: the causes add up to the missing packets.

use crate::bed::{ARP, Fragments};
use crate::results::Loss;
use crate::scenario::Setup;
use crate::traffic::{Account, Test};
use std::collections::BTreeMap;

/// The cause of losses without another cause.
pub(crate) const UNEXPLAINED: &str = "unexplained";

/// The differences of counters. A new counter started at 0, and so did one that decreased, because
/// its switch restarted.
pub(crate) fn since(after: Vec<Loss>, before: &[Loss]) -> Vec<Loss> {
    let earlier = |loss: &Loss| {
        let same = before
            .iter()
            .filter(|old| old.cause == loss.cause && old.place == loss.place);
        same.map(|old| old.packets).sum::<u64>()
    };
    let counted = after.into_iter().map(|loss| {
        let before = earlier(&loss);
        Loss {
            packets: loss.packets.checked_sub(before).unwrap_or(loss.packets),
            ..loss
        }
    });
    counted.filter(|loss| loss.packets > 0).collect()
}

/// Takes off the datagrams that have arrived and were not to be read, which hosts count as dropped.
pub(crate) fn arrived(losses: &mut Vec<Loss>, sunk: &BTreeMap<String, u64>) {
    for loss in losses.iter_mut().filter(|loss| loss.cause == "receiver") {
        let datagrams = sunk.get(&loss.place).copied().unwrap_or(0);
        loss.packets = loss.packets.saturating_sub(datagrams);
    }
    losses.retain(|loss| loss.packets > 0);
}

/// Causes of the same name at the same place become one; the order is that of the first of each.
pub(crate) fn merge(losses: Vec<Loss>) -> Vec<Loss> {
    let mut merged: Vec<Loss> = Vec::new();
    for loss in losses.into_iter().filter(|loss| loss.packets > 0) {
        match merged
            .iter_mut()
            .find(|other| other.cause == loss.cause && other.place == loss.place)
        {
            Some(other) => other.packets += loss.packets,
            None => merged.push(loss),
        }
    }
    merged
}

/// Packets that are missing: of a datagram that is, all that it was sent in.
pub(crate) fn missing(accounts: &[Account]) -> u64 {
    let of = |account: &Account| account.sent.saturating_sub(account.received) * account.packets;
    accounts.iter().map(of).sum()
}

/// Fragments that a host received but could not reassemble; and, for reassembled datagrams that
/// were dropped later, the fragments beyond the one that the host counts.
pub(crate) fn fragments(
    hosts: &BTreeMap<String, Fragments>,
    before: &BTreeMap<String, Fragments>,
    accounts: &[Account],
    setup: &Setup,
) -> Vec<Loss> {
    let mut losses = Vec::new();
    for (host, now) in hosts {
        let counted = now.since(before.get(host).copied().unwrap_or_default());
        // Flows whose datagrams come in fragments to this host, and those that do so on their way
        // back.
        let (mut here, mut back) = (Vec::new(), false);
        for account in accounts.iter().filter(|account| account.packets > 1) {
            let flow = setup.measured.iter().chain(&setup.background);
            let Some(flow) = flow.clone().find(|flow| flow.name == account.flow) else {
                continue;
            };
            let returns = matches!(flow.test, Test::Rtt { .. } | Test::UdpRr(_));
            if flow.to == *host || returns && flow.from == *host {
                here.push(account);
                back |= returns;
            }
        }
        let received: u64 = here.iter().map(|account| account.received).sum();
        // Of flows of different lengths, as many fragments as their datagrams have on average.
        let each = match (received, here.first()) {
            (_, None) => continue,
            (0, Some(first)) => first.packets as f64,
            _ => {
                here.iter()
                    .map(|account| account.received * account.packets)
                    .sum::<u64>() as f64
                    / received as f64
            }
        };
        let rest = counted.received as f64 - each * counted.whole as f64;
        losses.push(receiver(
            format!("{host}, fragments of datagrams that were not whole"),
            rest,
        ));
        if !back {
            let dropped = counted.whole.saturating_sub(received);
            losses.push(receiver(host.clone(), (each - 1.0) * dropped as f64));
        }
    }
    losses.retain(|loss| loss.packets > 0);
    losses
}

fn receiver(place: String, packets: f64) -> Loss {
    Loss {
        cause: "receiver".to_owned(),
        place,
        // Negative is none.
        packets: packets.round() as u64,
    }
}

/// Closes the ledger: `missing` packets of datagram flows without a cause are unexplained. TCP has
/// sent `retransmitted` segments again: as many of the counted drops may be its own, and explain no
/// missing datagram. [`ARP`], which the kernel counts for all namespaces together, explains no more
/// than is missing otherwise. Returns a remark if the two cannot be told apart, or
/// if more was counted than is missing.
pub(crate) fn close(mut losses: Vec<Loss>, missing: u64, retransmitted: u64) -> (Vec<Loss>, Option<String>) {
    let told: u64 = losses
        .iter()
        .filter(|loss| loss.cause != ARP)
        .map(|loss| loss.packets)
        .sum();
    for loss in losses.iter_mut().filter(|loss| loss.cause == ARP) {
        loss.packets = loss.packets.min(missing.saturating_sub(told));
    }
    losses.retain(|loss| loss.packets > 0);
    let named: u64 = losses.iter().map(|loss| loss.packets).sum();
    let least = missing.saturating_sub(named);
    let most = missing.saturating_sub(named.saturating_sub(retransmitted));
    if most > 0 {
        losses.push(Loss {
            cause: UNEXPLAINED.to_owned(),
            place: String::new(),
            packets: most,
        });
    }
    let remark = if most > least {
        Some(format!(
            "{least} to {most} missing packets are unexplained: TCP has sent {retransmitted} segments again, whose drops are counted with the others"
        ))
    } else {
        (named > missing).then(|| {
            let of = named - missing;
            format!(
                "{of} of the packets that were dropped are not missing from a flow: answers, ARP, TCP's own, or sent again"
            )
        })
    };
    (losses, remark)
}

/// A remark on what the cause [`ARP`] may hide.
pub(crate) fn doubt(losses: &[Loss]) -> Option<String> {
    let shared: u64 = losses
        .iter()
        .filter(|loss| loss.cause == ARP)
        .map(|loss| loss.packets)
        .sum();
    (shared > 0).then(|| {
        format!("up to {shared} packets more may be unexplained: the kernel counts those that waited in vain for ARP for all namespaces together")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(cause: &str, place: &str, packets: u64) -> Loss {
        Loss {
            cause: cause.to_owned(),
            place: place.to_owned(),
            packets,
        }
    }

    #[test]
    fn counters_are_taken_by_their_difference() {
        let before = [loss("policer", "p1", 10), loss("queue", "p2", 5)];
        let after = vec![
            loss("policer", "p1", 30),
            loss("queue", "p2", 5),
            loss("upcall", "br0", 2),
        ];
        assert_eq!(
            since(after, &before),
            [loss("policer", "p1", 20), loss("upcall", "br0", 2)]
        );
        assert_eq!(
            since(vec![loss("policer", "p1", 3)], &before),
            [loss("policer", "p1", 3)]
        );
    }

    #[test]
    fn the_causes_together_are_what_is_missing() {
        let (losses, remark) = close(vec![loss("policer", "p1", 20), loss("receiver", "h2", 3)], 30, 0);
        assert_eq!(losses.iter().map(|loss| loss.packets).sum::<u64>(), 30);
        assert_eq!(losses.last(), Some(&loss(UNEXPLAINED, "", 7)));
        assert_eq!(remark, None);
    }

    #[test]
    fn datagrams_that_nobody_was_to_read_are_not_lost() {
        let mut losses = vec![
            loss("receiver", "B", 100),
            loss("receiver", "C", 5),
            loss("sender", "B", 100),
        ];
        arrived(
            &mut losses,
            &BTreeMap::from([("B".to_owned(), 98), ("C".to_owned(), 5)]),
        );
        assert_eq!(losses, [loss("receiver", "B", 2), loss("sender", "B", 100)]);
    }

    #[test]
    fn drops_that_no_flow_misses_are_told_apart() {
        let (losses, remark) = close(vec![loss("queue", "p1", 20)], 15, 0);
        assert_eq!(losses, [loss("queue", "p1", 20)]);
        assert!(remark.unwrap().starts_with("5 of the packets"));
    }

    #[test]
    fn packets_that_waited_for_arp_explain_what_is_missing_and_no_more() {
        let counted = vec![loss("policer", "p1", 20), loss(ARP, "all namespaces", 100)];
        let (losses, _) = close(counted.clone(), 25, 0);
        assert_eq!(losses, [loss("policer", "p1", 20), loss(ARP, "all namespaces", 5)]);
        assert!(doubt(&losses).unwrap().starts_with("up to 5 packets"));
        let (losses, _) = close(counted, 20, 0);
        assert_eq!(losses, [loss("policer", "p1", 20)]);
        assert_eq!(doubt(&losses), None);
    }

    #[test]
    fn drops_that_tcp_has_repaired_explain_no_missing_datagram() {
        let (losses, remark) = close(vec![loss("queue", "p1", 50)], 10, 45);
        assert_eq!(losses.last(), Some(&loss(UNEXPLAINED, "", 5)));
        assert!(remark.unwrap().starts_with("0 to 5 missing packets"));
        let (losses, _) = close(vec![loss("queue", "p1", 50)], 10, 40);
        assert_eq!(losses, [loss("queue", "p1", 50)]);
    }

    /// A flow of datagrams of four packets each, with these numbers sent and received.
    fn long(sent: u64, received: u64) -> (Setup, Account) {
        let flow = crate::traffic::Flow {
            name: "f".to_owned(),
            from: "a".to_owned(),
            to: "b".to_owned(),
            test: Test::Cbr {
                payload: 5000,
                rate: 1,
                buffer: None,
                pinned: false,
                imix: false,
            },
        };
        let setup = Setup {
            measured: vec![flow],
            ..Setup::nothing()
        };
        let account = Account {
            flow: "f".to_owned(),
            sent,
            received,
            packets: 4,
        };
        (setup, account)
    }

    #[test]
    fn a_lost_fragment_loses_the_others_of_its_datagram_at_the_receiver() {
        // Of 10 datagrams, 3 lost a fragment in a queue, and one more was whole and found no room
        // in the socket's buffer.
        let (setup, account) = long(10, 6);
        let before = BTreeMap::from([(
            "b".to_owned(),
            Fragments {
                received: 100,
                whole: 20,
            },
        )]);
        let after = BTreeMap::from([
            ("a".to_owned(), Fragments::default()),
            (
                "b".to_owned(),
                Fragments {
                    received: 137,
                    whole: 27,
                },
            ),
        ]);
        let accounts = [account];
        let mut losses = fragments(&after, &before, &accounts, &setup);
        assert_eq!(losses.iter().map(|loss| loss.packets).sum::<u64>(), 9 + 3);
        assert!(losses[0].place.starts_with("b, fragments"));
        losses.extend([loss("queue", "p1", 3), loss("receiver", "b", 1)]);
        let (losses, remark) = close(losses, missing(&accounts), 0);
        assert!(losses.iter().all(|loss| loss.cause != UNEXPLAINED), "{losses:?}");
        assert_eq!(remark, None);
    }

    #[test]
    fn where_nothing_is_fragmented_there_are_no_fragments() {
        let (setup, mut account) = long(10, 6);
        account.packets = 1;
        let counts = BTreeMap::from([("b".to_owned(), Fragments { received: 9, whole: 1 })]);
        assert_eq!(fragments(&counts, &BTreeMap::new(), &[account.clone()], &setup), []);
        assert_eq!(missing(&[account]), 4);
    }

    #[test]
    fn one_place_and_cause_is_one_line() {
        let merged = merge(vec![
            loss("queue", "p1", 1),
            loss("queue", "p2", 1),
            loss("queue", "p1", 2),
            loss("port", "p1", 0),
        ]);
        assert_eq!(merged, [loss("queue", "p1", 3), loss("queue", "p2", 1)]);
    }
}
