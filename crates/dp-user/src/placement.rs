//! Assigns receive queues to workers.
//!
//! A pure function from queues and their load to workers. The policies are those of
//! `other_config:pmd-rxq-assign`.

use dp::Assign;
use std::collections::BTreeMap;

/// A queue to be placed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wish {
    /// The worker that it is pinned to.
    pub(crate) pinned: Option<usize>,
    /// The worker that it stays with, if that may be.
    pub(crate) stay: Option<usize>,
    /// Recent load in cycles.
    pub(crate) cycles: u64,
    /// The NUMA node of its device, if that is known.
    pub(crate) node: Option<usize>,
}

/// An assignment of queues to workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Of each queue its worker.
    pub(crate) workers: Vec<usize>,
    /// Of each worker whether it serves only queues that are pinned to it.
    pub(crate) isolated: Vec<bool>,
}

/// Assigns queues to workers, at least one; `nodes` has the NUMA node of each. A worker with
/// pinned queues serves no others if `isolate` is set, unless all workers have pinned queues. A
/// queue goes to a worker on the node of its device, if one may serve it.
pub(crate) fn place(nodes: &[Option<usize>], wishes: &[Wish], assign: Assign, isolate: bool) -> Placed {
    let workers = nodes.len().max(1);
    let mut isolated = vec![false; workers];
    let (mut load, mut count) = (vec![0_u64; workers], vec![0_usize; workers]);
    let mut placed: Vec<Option<usize>> = wishes
        .iter()
        .map(|wish| wish.pinned.filter(|at| *at < workers))
        .collect();
    for worker in placed.iter().flatten() {
        isolated[*worker] = isolate;
    }
    let everyone = isolated.iter().all(|isolated| *isolated);
    let open: Vec<usize> = (0..workers).filter(|worker| everyone || !isolated[*worker]).collect();
    for (wish, at) in wishes.iter().zip(&mut placed) {
        if at.is_none() {
            *at = wish.stay.filter(|stay| open.contains(stay));
        }
        if let Some(at) = at {
            load[*at] += wish.cycles;
            count[*at] += 1;
        }
    }
    let mut rest: Vec<usize> = (0..wishes.len()).filter(|n| placed[*n].is_none()).collect();
    if assign != Assign::RoundRobin {
        rest.sort_by_key(|n| std::cmp::Reverse(wishes[*n].cycles));
    }
    let counted = count.clone();
    // How many queues have had their turn, by the node that they are limited to.
    let mut turns: BTreeMap<Option<usize>, usize> = BTreeMap::new();
    for n in rest {
        let on = |node| {
            open.iter()
                .copied()
                .filter(move |worker| nodes.get(*worker) == Some(&node))
        };
        let node = wishes[n].node.filter(|node| on(Some(*node)).next().is_some());
        let candidates: Vec<usize> = match node {
            Some(_) => on(node).collect(),
            None => open.clone(),
        };
        // Round robin, if none of them had a queue before.
        let fresh = candidates.iter().all(|worker| counted[*worker] == 0);
        let turn = turns.entry(node).or_default();
        let least = match assign {
            Assign::Group => candidates.iter().min_by_key(|worker| (load[**worker], count[**worker])),
            _ => candidates.iter().min_by_key(|worker| (count[**worker], load[**worker])),
        };
        let at = match assign {
            Assign::RoundRobin if fresh => candidates[*turn % candidates.len()],
            Assign::Cycles if fresh => candidates[zigzag(*turn, candidates.len())],
            _ => *least.unwrap_or(&0),
        };
        *turn += 1;
        placed[n] = Some(at);
        load[at] += wishes[n].cycles;
        count[at] += 1;
    }
    Placed {
        workers: placed.into_iter().map(|at| at.unwrap_or(0)).collect(),
        isolated,
    }
}

/// 0, 1, … n-1, n-1, … 1, 0, 0, 1, …
fn zigzag(turn: usize, n: usize) -> usize {
    let at = turn % (2 * n);
    at.min(2 * n - 1 - at)
}

/// By how many percent the variance of the workers' loads would be smaller in another placement; 0
/// where it would not.
pub(crate) fn improvement(now: &[u64], then: &[u64]) -> u64 {
    let (now, then) = (variance(now), variance(then));
    if then >= now {
        0
    } else {
        ((now - then) * 100 / now) as u64
    }
}

fn variance(loads: &[u64]) -> u128 {
    let n = loads.len().max(1) as u128;
    let mean = loads.iter().map(|load| u128::from(*load)).sum::<u128>() / n;
    loads
        .iter()
        .map(|load| u128::from(*load).abs_diff(mean).pow(2))
        .sum::<u128>()
        / n
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn costs(cycles: &[u64]) -> Vec<Wish> {
        let wish = |cycles| Wish {
            cycles,
            ..Wish::default()
        };
        cycles.iter().copied().map(wish).collect()
    }

    #[test]
    fn each_way_spreads_queues_as_open_vswitch_does() {
        let equal = costs(&[0; 7]);
        assert_eq!(
            place(&[None; 2], &equal, Assign::Cycles, true).workers,
            [0, 1, 1, 0, 0, 1, 1]
        );
        assert_eq!(
            place(&[None; 2], &equal, Assign::RoundRobin, true).workers,
            [0, 1, 0, 1, 0, 1, 0]
        );
        assert_eq!(
            place(&[None; 2], &equal, Assign::Group, true).workers,
            [0, 1, 0, 1, 0, 1, 0]
        );
        // The manual's reason for the third: one queue costs more than all others together.
        let uneven = costs(&[10, 80, 20, 5]);
        assert_eq!(place(&[None; 2], &uneven, Assign::Cycles, true).workers, [1, 0, 1, 0]);
        assert_eq!(place(&[None; 2], &uneven, Assign::Group, true).workers, [1, 0, 1, 1]);
    }

    #[test]
    fn a_pinned_queue_has_its_worker_for_itself_unless_that_is_not_wanted() {
        let mut wishes = costs(&[0; 4]);
        wishes[2].pinned = Some(1);
        let placed = place(&[None; 2], &wishes, Assign::Cycles, true);
        assert_eq!((placed.workers, placed.isolated), (vec![0, 0, 1, 0], vec![false, true]));
        let placed = place(&[None; 2], &wishes, Assign::Group, false);
        assert_eq!(
            (placed.workers, placed.isolated),
            (vec![0, 0, 1, 1], vec![false, false])
        );
        // Both workers have pinned queues, so one of them has to serve the others.
        wishes[3].pinned = Some(0);
        let placed = place(&[None; 2], &wishes, Assign::Cycles, true);
        assert_eq!((placed.workers, placed.isolated), (vec![0, 1, 1, 0], vec![true, true]));
    }

    #[test]
    fn queues_that_stay_do_and_new_ones_go_where_least_is() {
        let mut wishes = costs(&[50, 1, 1, 1]);
        wishes[0].stay = Some(1);
        wishes[1].stay = Some(1);
        wishes[2].stay = Some(9);
        let placed = place(&[None; 3], &wishes, Assign::Cycles, true);
        assert_eq!(placed.workers, [1, 1, 0, 2]);
    }

    #[test]
    fn queues_go_to_workers_on_the_node_of_their_device_if_there_are_some() {
        let nodes = [Some(0), Some(0), Some(1), Some(1)];
        let on = |node| Wish {
            node: Some(node),
            ..Wish::default()
        };
        let mut wishes = vec![on(0), on(1), on(1), on(0), on(0), on(0), on(9)];
        for (assign, expected) in [
            (Assign::Cycles, [0, 2, 3, 1, 1, 0, 0]),
            (Assign::RoundRobin, [0, 2, 3, 1, 0, 1, 0]),
            (Assign::Group, [0, 2, 3, 1, 0, 1, 2]),
        ] {
            assert_eq!(place(&nodes, &wishes, assign, true).workers, expected, "{assign:?}");
        }
        // Both workers of node 1 have pinned queues, so those of node 0 serve its other queue.
        wishes[0].pinned = Some(2);
        wishes[3].pinned = Some(3);
        let placed = place(&nodes, &wishes[..4], Assign::Cycles, true);
        assert_eq!(placed.workers, [2, 0, 1, 3]);
    }

    #[test]
    fn an_even_load_is_better_than_an_uneven_one() {
        assert_eq!(improvement(&[100, 0], &[50, 50]), 100);
        assert_eq!(improvement(&[50, 50], &[100, 0]), 0);
        assert_eq!(improvement(&[90, 10], &[70, 30]), 75);
        assert_eq!(improvement(&[0, 0], &[0, 0]), 0);
    }

    proptest! {
        #[test]
        fn every_queue_has_a_worker_that_there_is(
            nodes in proptest::collection::vec(proptest::option::of(0_usize..3), 1..5),
            wishes in proptest::collection::vec((proptest::option::of(0_usize..7), proptest::option::of(0_usize..7), 0_u64..100, proptest::option::of(0_usize..4)), 0..20),
            assign in 0..3,
            isolate: bool,
        ) {
            let assign = [Assign::Cycles, Assign::RoundRobin, Assign::Group][assign as usize];
            let wishes: Vec<Wish> = wishes.into_iter().map(|(pinned, stay, cycles, node)| Wish { pinned, stay, cycles, node }).collect();
            let placed = place(&nodes, &wishes, assign, isolate);
            prop_assert_eq!(placed.workers.len(), wishes.len());
            for (wish, at) in wishes.iter().zip(&placed.workers) {
                prop_assert!(*at < nodes.len());
                if let Some(pinned) = wish.pinned.filter(|pinned| *pinned < nodes.len()) {
                    prop_assert_eq!(*at, pinned);
                }
            }
        }
    }
}
