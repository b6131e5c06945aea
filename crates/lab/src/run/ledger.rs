//! Where packets were lost: the causes together are what is missing.

use crate::results::Loss;

/// What remains when every cause has been counted.
pub(crate) const UNEXPLAINED: &str = "unexplained";

/// Counters after less counters before; a counter that is new began at 0. One that went back was begun anew, by a switch that was.
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

/// Closes the ledger: what is `missing` and has no cause is unexplained; and what to say where more was counted than is missing.
pub(crate) fn close(mut losses: Vec<Loss>, missing: u64) -> (Vec<Loss>, Option<String>) {
    let named: u64 = losses.iter().map(|loss| loss.packets).sum();
    if named < missing {
        losses.push(Loss {
            cause: UNEXPLAINED.to_owned(),
            place: String::new(),
            packets: missing - named,
        });
    }
    let more = (named > missing).then(|| {
        let of = named - missing;
        format!(
            "{of} of the packets that were dropped are not missing from a flow: answers, ARP, TCP's own, or sent again"
        )
    });
    (losses, more)
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
        let (losses, remark) = close(vec![loss("policer", "p1", 20), loss("receiver", "h2", 3)], 30);
        assert_eq!(losses.iter().map(|loss| loss.packets).sum::<u64>(), 30);
        assert_eq!(losses.last(), Some(&loss(UNEXPLAINED, "", 7)));
        assert_eq!(remark, None);
    }

    #[test]
    fn drops_that_no_flow_misses_are_told_apart() {
        let (losses, remark) = close(vec![loss("queue", "p1", 20)], 15);
        assert_eq!(losses, [loss("queue", "p1", 20)]);
        assert!(remark.unwrap().starts_with("5 of the packets"));
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
