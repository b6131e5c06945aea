//! Workers with as many offloaded flows as a port gets.

use super::*;

/// A worker with as many offloaded flows as a port gets, all of one megaflow.
pub(super) fn crowded() -> (Bench, u32) {
    let mut bench = Bench::new(&[101, 102, 201, 202]);
    let kinds = MAX_FLOWS;
    let open = bench.offload_many(101, 102, kinds);
    assert!(open > MAX_FLOWS / 2, "{open}");
    (bench, open)
}

#[test]
fn many_offloaded_flows_that_end_at_once_forward_nothing_more_and_are_closed_in_slices() {
    let ends: [fn(&mut Bench); 6] = [
        |bench| bench.publish(station(1, 102)),
        |bench| bench.pipeline.flush(),
        |bench| drop(bench.pipeline.remove_port(PortNo(102))),
        |bench| bench.pipeline.stop_offloaded(PortNo(101)),
        |bench| bench.pipeline.set_offload(true),
        |bench| bench.pipeline.link_changed(PortNo(102), None),
    ];
    for (n, end) in ends.into_iter().enumerate() {
        let (mut bench, open) = crowded();
        bench.settle();
        let before = bench.kernel.calls();
        end(&mut bench);
        bench.pipeline.apply_changes();
        bench.check_slice(before);
        for kind in 0..MAX_FLOWS {
            let key = bench.key(101, 102, kind);
            assert_eq!(bench.kernel.receive(&key, 60, bench.now), None, "end {n}");
        }
        // One that was let through before is counted a moment later.
        let late = bench.key(101, 102, 5);
        assert!(bench.kernel.has(&late));
        bench.turn();
        let len = Bench::packet(101, 102, 5).len() as u64;
        bench.kernel.count_late(&late, len, bench.now);
        let sent = bench.sent.get_mut(&101).unwrap();
        *sent = (sent.0 + 1, sent.1 + len);
        let before = bench.kernel.calls();
        bench.settle();
        assert_eq!(bench.offloaded(101, 102, MAX_FLOWS), 0, "end {n}");
        assert_eq!(bench.kernel.calls().closed - before.closed, open as usize, "end {n}");
        bench.check_credits();
        assert_eq!(bench.deps.table().left(), MAX_FLOWS);
    }
}

#[test]
fn ageing_looks_at_offloaded_flows_in_slices_and_closes_those_that_carry_nothing() {
    let (mut bench, open) = crowded();
    bench.settle();
    for _ in 0..30 {
        // More than half of all are open, so those unused for a second go.
        bench.now += Duration::from_millis(100);
        for kind in 0..100 {
            assert_eq!(bench.send(101, 102, kind), By::Kernel);
        }
        bench.settle();
    }
    let left = bench.offloaded(101, 102, MAX_FLOWS);
    assert!((100..=MAX_FLOWS / 2).contains(&left), "{left} of {open}");
    bench.now += Duration::from_secs(9);
    for kind in 0..100 {
        assert_eq!(bench.send(101, 102, kind), By::Kernel);
    }
    bench.settle();
    bench.now += Duration::from_secs(2);
    bench.settle();
    assert_eq!(bench.offloaded(101, 102, MAX_FLOWS), 100);
    bench.check_credits();
    assert_eq!(
        bench.switch.upcalls.load(Relaxed),
        1,
        "the megaflow is kept by what offloaded flows carry"
    );
}

#[test]
fn a_port_with_many_offloaded_flows_gives_way_to_one_with_few() {
    let (mut bench, _) = crowded();
    bench.settle();
    let few = bench.offload_many(201, 202, 1000);
    assert!(few >= 900, "{few} of the reserve");
    let mut all = few;
    for _ in 0..100 {
        bench.now += Duration::from_millis(1);
        bench.settle();
        all = bench.offload_many(201, 202, 2500);
    }
    assert_eq!(all, 2500, "less than the share of one of two ports");
    assert!(bench.offloaded(101, 102, MAX_FLOWS) >= MAX_FLOWS / 3);
    bench.check_credits();
}
