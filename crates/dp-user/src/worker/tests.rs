use super::*;
use crate::device_facts::DeviceFacts;
use crate::pipeline::Budget;
use dp::{Action, Answer, Changes, Translation, Upcall};
use flow::{Field, Mask};
use netdev::{Dummy, Frame, Rx};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

/// Sends everything to port 9 and makes a megaflow of each source address.
#[derive(Default)]
struct Switch {
    /// Somebody has the tables.
    locked: AtomicBool,
}

impl Slowpath for Switch {
    fn try_upcall(&self, upcall: &Upcall<'_>, now: Nanos) -> Answer {
        match self.locked.load(Ordering::Relaxed) {
            true => Answer::Busy,
            false => Answer::Cache(self.upcall(upcall, now)),
        }
    }

    fn upcall(&self, _: &Upcall<'_>, _: Nanos) -> Translation {
        Translation {
            actions: Arc::from([Action::Output(PortNo(9))]),
            mask: Mask::exact(Field::EthSrc),
            deps: Default::default(),
            effects: Default::default(),
            credits: Default::default(),
            drop: None,
        }
    }

    fn refresh(&self, _: &[dp::Effect], _: Nanos) {}

    fn port_failed(&self, _: PortNo) {}
}

struct Fixture {
    worker: Worker,
    switch: Arc<Switch>,
    commands: Arc<CommandQueue>,
}

impl Fixture {
    fn new() -> Fixture {
        let commands = Arc::new(CommandQueue::new().unwrap());
        let switch = Arc::<Switch>::default();
        let pipeline = Pipeline::new(
            100_000,
            Duration::from_secs(10),
            switch.clone(),
            Arc::new(Changes::new()),
        );
        let mut worker = Worker::new(
            0,
            pipeline,
            commands.clone(),
            switch.clone(),
            Arc::new(SpinTime::new(Some(Duration::ZERO))),
            Devices::start().unwrap(),
        )
        .unwrap();
        // However slowly a test runs.
        worker.backlog.lately = Duration::MAX;
        Fixture {
            worker,
            switch,
            commands,
        }
    }

    fn add_port(&mut self, port: u32) -> Arc<Dummy> {
        self.add_port_with(port, |rx| rx)
    }

    fn add_port_with(&mut self, port: u32, wrap: impl FnOnce(Box<dyn Rx>) -> Box<dyn Rx>) -> Arc<Dummy> {
        let device = Arc::new(Dummy::open("p", &BTreeMap::new()).unwrap());
        let rx = wrap(device.open_rx().unwrap().remove(0));
        let (done, answer) = mpsc::channel();
        self.commands.push(Command::AddPort {
            port: PortNo(port),
            device: device.clone(),
            facts: DeviceFacts::of(&*device),
            tx: device.open_tx().ok(),
            stats: Arc::default(),
            offload: None,
            assigned_queues: vec![AssignedQueue {
                rx_queue: Pipeline::rx_queue(PortNo(port), rx, Budget::new(8, 256)),
                number: 0,
                ifindex: 0,
                load: Arc::default(),
            }],
            done,
        });
        self.turn();
        answer.recv().unwrap().unwrap();
        device
    }

    /// How many translations there were.
    fn asked(&self) -> u64 {
        self.worker.pipeline.cache_stats().upcalls
    }

    fn turn(&mut self) {
        assert!(self.worker.turn(Some(Duration::ZERO)));
    }
}

fn packet(src: u32) -> [u8; 60] {
    let mut packet = [0; 60];
    packet[8..12].copy_from_slice(&src.to_be_bytes());
    packet
}

#[test]
fn a_worker_sleeps_while_somebody_has_the_tables_and_asks_again_soon() {
    let mut fixture = Fixture::new();
    let (port, sink) = (fixture.add_port(1), fixture.add_port(9));
    fixture.switch.locked.store(true, Ordering::Relaxed);
    for n in 0..3 {
        assert!(port.inject(&packet(n)));
        fixture.turn();
        let sleep = fixture.worker.timeout().unwrap();
        assert!(sleep > Duration::ZERO && sleep <= Duration::from_millis(1), "{sleep:?}");
    }
    fixture.switch.locked.store(false, Ordering::Relaxed);
    while fixture.worker.backlog.waiting {
        let sleep = fixture.worker.timeout();
        assert!(fixture.worker.turn(sleep));
    }
    assert_eq!(sink.take_sent().len(), 3);
    // Housekeeping comes to an end.
    (0..100).for_each(|_| fixture.turn());
    assert_ne!(fixture.worker.timeout(), Some(Duration::ZERO));
}

#[test]
fn a_storm_of_new_flows_costs_another_port_a_few_translations_and_no_turn() {
    let mut fixture = Fixture::new();
    let (storm, quiet, sink) = (fixture.add_port(1), fixture.add_port(2), fixture.add_port(9));
    let known = 1 << 24;
    assert!(quiet.inject(&packet(known)));
    fixture.turn();
    assert_eq!(sink.take_sent().len(), 1);
    let mut next = 0;
    for n in 1..500 {
        while storm.pending() < 64 {
            assert!(storm.inject(&packet(next)));
            next += 1;
        }
        let before = fixture.asked();
        // Every third turn finds the storm alone.
        if n % 3 > 0 {
            assert!(quiet.inject(&packet(known)));
            assert!(quiet.inject(&packet(known | n)));
        }
        fixture.turn();
        let mut from_quiet = sink.take_sent();
        from_quiet.retain(|packet| packet[8] == 1);
        let expected = [packet(known), packet(known | n)].map(Vec::from);
        assert_eq!(from_quiet, if n % 3 > 0 { &expected[..] } else { &[] });
        // The first batch comes before it is known that there are many.
        let of_storm = if n == 1 { 4 } else { 2 };
        assert_eq!(fixture.asked() - before, if n % 3 > 0 { of_storm + 1 } else { 2 });
    }
}

#[test]
fn a_storm_of_new_flows_has_all_translations_again_when_others_have_been_silent_for_long() {
    let mut fixture = Fixture::new();
    let (storm, quiet, _sink) = (fixture.add_port(1), fixture.add_port(2), fixture.add_port(9));
    (0..1000).for_each(|n| assert!(storm.inject(&packet(n))));
    fixture.turn();
    assert_eq!(fixture.asked(), 8);
    assert!(quiet.inject(&packet(1 << 24)));
    fixture.turn();
    assert_eq!(fixture.asked(), 8 + 1 + 2);
    fixture.turn();
    assert_eq!(fixture.asked(), 11 + 2);
    fixture.worker.backlog.lately = Duration::ZERO;
    fixture.turn();
    assert_eq!(fixture.asked(), 13 + 16);
}

#[test]
fn a_known_flow_waits_for_no_more_than_a_turns_translations_of_a_storm_even_where_the_worker_spins() {
    for spin in [0, 1_000_000] {
        let mut fixture = Fixture::new();
        let (storm, quiet, sink) = (fixture.add_port(1), fixture.add_port(2), fixture.add_port(9));
        fixture.worker.looks.spin.set(Some(Duration::from_secs(spin)));
        let known = packet(1 << 24);
        let mut next = 0;
        for n in 0..200 {
            // The other port is silent for a while.
            for _ in 0..n % 11 {
                while storm.pending() < 64 {
                    assert!(storm.inject(&packet(next)));
                    next += 1;
                }
                assert!(fixture.worker.step());
            }
            sink.take_sent();
            let before = fixture.asked();
            assert!(quiet.inject(&known));
            let mut steps = 0;
            let sent = loop {
                assert!(fixture.worker.step());
                steps += 1;
                let sent = sink.take_sent();
                if sent.contains(&known.to_vec()) {
                    break sent;
                }
            };
            if n > 11 {
                let asked = fixture.asked() - before;
                assert!(steps == 1 && asked <= 2, "{steps} steps, {asked} translations");
                assert_eq!(sent[0], known);
            }
        }
    }
}

#[test]
fn new_flows_of_a_port_wait_for_no_more_translations_of_a_storm_than_their_own() {
    let mut fixture = Fixture::new();
    let (storm, quiet, sink) = (fixture.add_port(1), fixture.add_port(2), fixture.add_port(9));
    (0..4096).for_each(|n| assert!(storm.inject(&packet(n))));
    (0..1000).for_each(|n| assert!(quiet.inject(&packet(1 << 24 | n))));
    let mut arrived = 0;
    // Fewer than its line has room for at once, and the rest stays with the device until there is
    // room.
    while arrived < 256 {
        fixture.turn();
        arrived += sink.take_sent().iter().filter(|packet| packet[8] == 1).count();
    }
    let asked = fixture.worker.pipeline.cache_stats().upcalls;
    assert!(asked <= 2 * arrived as u64 + 8, "{asked} for {arrived}");
}

#[test]
fn a_port_with_too_many_new_flows_loses_packets_only_while_others_wait() {
    let mut fixture = Fixture::new();
    let (storm, quiet, sink) = (fixture.add_port(1), fixture.add_port(2), fixture.add_port(9));
    (0..4096).for_each(|n| assert!(storm.inject(&packet(n))));
    (0..1280).for_each(|_| assert!(quiet.inject(&packet(1 << 24))));
    (0..40).for_each(|_| fixture.turn());
    // 40 batches of 32 each: of the storm's, 4 went up in the first turn and 2 in each of the
    // others, and 256 wait.
    let stats = fixture.worker.pipeline.cache_stats();
    let asked = 4 + 39 * 2;
    assert_eq!(stats.lost, 40 * 32 - asked - 256);
    let sent = sink.take_sent();
    assert_eq!(sent.iter().filter(|packet| packet[8] == 1).count(), 1280);
    while storm.pending() > 0 || fixture.worker.backlog.waiting {
        fixture.turn();
    }
    assert_eq!(fixture.worker.pipeline.cache_stats().lost, stats.lost);
    assert_eq!(sink.take_sent().len() as u64, 4096 - stats.lost - asked);
}

#[test]
fn ports_that_all_have_too_many_new_flows_lose_nothing_and_translate_without_a_break() {
    let mut fixture = Fixture::new();
    let (one, other, sink) = (fixture.add_port(1), fixture.add_port(2), fixture.add_port(9));
    // Of the other's packets one in four is of a known flow, so that their lines run empty at
    // different times.
    (0..2048).for_each(|n| assert!(one.inject(&packet(n))));
    (0..2048).for_each(|n| assert!(other.inject(&packet(1 << 24 | if n % 4 == 0 { 0 } else { n }))));
    let mut turns = 0;
    while one.pending() + other.pending() > 0 || fixture.worker.backlog.waiting {
        fixture.turn();
        turns += 1;
    }
    let stats = fixture.worker.pipeline.cache_stats();
    assert_eq!((stats.lost, stats.upcalls), (0, 2048 + 1536 + 1));
    assert_eq!(sink.take_sent().len(), 4096);
    // Four a turn each while both have some, eight for one alone, or twice that.
    assert!(turns <= 3585 / 8 + 120, "{turns}");
}

#[test]
fn a_worker_does_not_sleep_while_packets_wait_and_counts_those_of_a_port_that_goes() {
    let mut fixture = Fixture::new();
    let (storm, _sink) = (fixture.add_port(1), fixture.add_port(9));
    (0..20).for_each(|n| assert!(storm.inject(&packet(n))));
    fixture.turn();
    assert_eq!(fixture.worker.timeout(), Some(Duration::ZERO));
    let (done, _) = mpsc::channel();
    fixture.commands.push(Command::DelPort { port: PortNo(1), done });
    fixture.turn();
    let drops = fixture.worker.pipeline.drops();
    assert!(drops.contains(&(dp::DropCause::UpcallBudget, 12)), "{drops:?}");
}

#[test]
fn a_worker_without_megaflows_sleeps_for_ever_and_one_with_some_until_they_age() {
    let mut fixture = Fixture::new();
    let (device, _sink) = (fixture.add_port(1), fixture.add_port(9));
    fixture.turn();
    assert_eq!(fixture.worker.timeout(), None);
    assert!(device.inject(&packet(1)));
    fixture.turn();
    // A pass begins at once; packets came before it, so the next may be a second later.
    fixture.turn();
    assert!(
        fixture
            .worker
            .timeout()
            .is_some_and(|timeout| timeout <= Duration::from_secs(10))
    );
    fixture.worker.pipeline.flush();
    fixture.turn();
    fixture.turn();
    assert_eq!(fixture.worker.timeout(), None);
}

#[test]
fn a_spinning_worker_finds_packets_by_itself_and_is_as_fair() {
    let mut fixture = Fixture::new();
    let (storm, quiet, sink) = (fixture.add_port(1), fixture.add_port(2), fixture.add_port(9));
    fixture.worker.looks.spin.set(Some(Duration::from_secs(1_000_000)));
    fixture.worker.looks.idle_since = Some(clock());
    assert!(fixture.worker.spins());
    (0..4096).for_each(|n| assert!(storm.inject(&packet(n))));
    (0..1280).for_each(|_| assert!(quiet.inject(&packet(1 << 24))));
    (0..40).for_each(|_| assert!(fixture.worker.step()));
    // As above, but that it learns of the contention from what the first look found.
    let lost = fixture.worker.pipeline.cache_stats().lost;
    assert!(lost > 20 * 32, "{lost}");
    assert_eq!(sink.take_sent().iter().filter(|packet| packet[8] == 1).count(), 1280);
    // A device that is gone is not asked again.
    fixture.worker.gone(0);
    (0..3).for_each(|_| assert!(fixture.worker.step()));
    assert_eq!(sink.take_sent().len(), 0);
    assert!(storm.pending() > 0);
}

#[test]
fn short_gaps_between_packets_turn_busy_polling_on_and_long_ones_turn_it_off() {
    let mut looks = Looks::new(Arc::new(SpinTime::new(None)));
    let mut now = Nanos(1_000_000_000);
    let mut gap = |looks: &mut Looks, micros| {
        looks.note_nothing(now);
        now += Duration::from_micros(micros);
        looks.note_nothing(now);
        looks.note_arrival(now);
        looks.busy_poll_time()
    };
    for _ in 0..100 {
        assert_eq!(gap(&mut looks, 60), Duration::ZERO);
    }
    let polls: Vec<bool> = (0..10).map(|_| !gap(&mut looks, 20).is_zero()).collect();
    assert_eq!(polls.iter().filter(|polls| **polls).count(), 3, "{polls:?}");
    (0..10).for_each(|_| _ = gap(&mut looks, 20));
    // Three long gaps turn it off.
    assert!(!gap(&mut looks, 1000).is_zero());
    assert!(!gap(&mut looks, 1000).is_zero());
    assert!(gap(&mut looks, 1000).is_zero());
    // Turns that all find packets have no gap between them, however long they are.
    (0..8).for_each(|_| looks.note_arrival(Nanos(2_000_000_000)));
    assert!(!looks.busy_poll_time().is_zero());
    // The configured time takes precedence.
    looks.spin.set(Some(Duration::ZERO));
    (0..20).for_each(|_| assert!(gap(&mut looks, 1).is_zero()));
    looks.spin.set(Some(Duration::from_millis(20)));
    assert_eq!(gap(&mut looks, 1000), Duration::from_millis(20));
    looks.spin.set(None);
    (0..4).for_each(|_| _ = gap(&mut looks, 1000));
    assert!(looks.busy_poll_time().is_zero());
}

#[test]
fn a_worker_polls_while_packets_are_close_and_sleeps_when_none_come() {
    let mut fixture = Fixture::new();
    let (source, sink) = (fixture.add_port(1), fixture.add_port(9));
    fixture.worker.looks.spin.set(None);
    assert_eq!(fixture.worker.timeout(), None);
    for _ in 0..10 {
        assert!(source.inject(&packet(1 << 24)));
        assert!(fixture.worker.turn(Some(Duration::ZERO)));
    }
    assert_eq!(sink.take_sent().len(), 10);
    assert_eq!(fixture.worker.timeout(), Some(Duration::ZERO));
    std::thread::sleep(Duration::from_millis(1));
    assert!(fixture.worker.turn(Some(Duration::ZERO)));
    std::thread::sleep(Duration::from_millis(1));
    assert!(fixture.worker.turn(Some(Duration::ZERO)));
    assert_ne!(fixture.worker.timeout(), Some(Duration::ZERO));
}

#[test]
fn packets_that_wait_are_no_reason_to_busy_poll() {
    let mut fixture = Fixture::new();
    let source = fixture.add_port(1);
    fixture.worker.looks.spin.set(None);
    (0..256).for_each(|n| assert!(source.inject(&packet(n))));
    assert!(fixture.worker.turn(Some(Duration::ZERO)));
    for _ in 0..10 {
        assert!(fixture.worker.backlog.waiting);
        assert!(fixture.worker.turn(Some(Duration::ZERO)));
    }
    assert!(!fixture.worker.spins());
}

/// A queue that says that it lies in memory.
struct InMemory(Box<dyn Rx>);

impl Rx for InMemory {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    fn is_free_to_ask(&self) -> bool {
        true
    }

    fn recv(&mut self, out: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        self.0.recv(out, max)
    }
}

#[test]
fn queues_in_memory_are_looked_into_until_they_are_empty_and_the_kernel_is_asked_only_then_or_after_many_looks() {
    let mut fixture = Fixture::new();
    let one = fixture.add_port_with(1, |rx| Box::new(InMemory(rx)));
    let sink = fixture.add_port_with(9, |rx| Box::new(InMemory(rx)));
    assert!(one.inject(&packet(1)));
    fixture.turn();
    for look in 1..=LOOKS {
        assert!(fixture.worker.goes_on(), "packets came in the last look");
        // However slowly the test runs.
        fixture.worker.looks.until = Nanos(u64::MAX);
        assert!(one.inject(&packet(1)));
        assert!(fixture.worker.step());
        assert_eq!(fixture.worker.looks.count, look);
    }
    assert_eq!(sink.take_sent().len(), 1 + LOOKS as usize);
    assert!(one.inject(&packet(1)));
    assert!(fixture.worker.step());
    assert_eq!((fixture.worker.looks.count, sink.take_sent().len()), (0, 1), "a turn");
    fixture.worker.looks.until = Nanos(u64::MAX);
    assert!(fixture.worker.step());
    assert_eq!(fixture.worker.looks.count, 1);
    assert!(!fixture.worker.goes_on(), "nothing came");
}

/// A queue that is readable before its packets can be taken.
struct ReportedEarly {
    rx: Box<dyn Rx>,
    under_way: Arc<AtomicBool>,
}

impl Rx for ReportedEarly {
    fn fd(&self) -> BorrowedFd<'_> {
        self.rx.fd()
    }

    fn recv(&mut self, out: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        match self.under_way.load(Ordering::Relaxed) {
            true => Ok(0),
            false => self.rx.recv(out, max),
        }
    }
}

#[test]
fn a_queue_that_is_reported_before_its_packet_is_there_rests_briefly_and_then_brings_it() {
    let mut fixture = Fixture::new();
    let under_way = Arc::new(AtomicBool::new(true));
    let source = fixture.add_port_with(1, |rx| {
        Box::new(ReportedEarly {
            rx,
            under_way: under_way.clone(),
        })
    });
    let sink = fixture.add_port(9);
    assert!(source.inject(&packet(1)));
    (0..17).for_each(|_| fixture.turn());
    assert_eq!(fixture.worker.timeout(), Some(Duration::from_micros(50)));
    under_way.store(false, Ordering::Relaxed);
    std::thread::sleep(Duration::from_micros(50));
    // The first turn ends its rest.
    (0..2).for_each(|_| fixture.turn());
    assert_eq!(sink.take_sent().len(), 1);
    assert_eq!(fixture.worker.queues[0].as_ref().unwrap().fruitless, 0);
}

#[test]
fn queues_that_cost_a_system_call_are_not_looked_into_by_a_worker_that_does_not_spin() {
    let mut fixture = Fixture::new();
    let (one, memory, sink) = (
        fixture.add_port(1),
        fixture.add_port_with(2, |rx| Box::new(InMemory(rx))),
        fixture.add_port(9),
    );
    assert!(one.inject(&packet(1)));
    fixture.turn();
    assert!(!fixture.worker.goes_on(), "nothing came by the queue in memory");
    assert!(memory.inject(&packet(2)));
    fixture.turn();
    assert!(fixture.worker.goes_on());
    fixture.worker.looks.until = Nanos(u64::MAX);
    assert!(one.inject(&packet(1)) && memory.inject(&packet(2)));
    assert!(fixture.worker.step());
    assert_eq!((one.pending(), memory.pending()), (1, 0), "a look");
    fixture.worker.looks.until = Nanos::ZERO;
    assert!(fixture.worker.step());
    assert_eq!((one.pending(), sink.take_sent().len()), (0, 4), "a turn");
}

/// A queue that takes the kernel long to close.
struct Closing(Box<dyn Rx>, Arc<AtomicBool>);

impl Rx for Closing {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    fn recv(&mut self, out: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        self.0.recv(out, max)
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_a_port_had_is_closed_by_who_removes_it_and_not_by_the_worker() {
    let mut fixture = Fixture::new();
    let closed = Arc::<AtomicBool>::default();
    let device = fixture.add_port_with(1, |rx| Box::new(Closing(rx, closed.clone())));
    let (done, answer) = mpsc::channel();
    fixture.commands.push(Command::DelPort { port: PortNo(1), done });
    fixture.turn();
    let released = answer.recv().unwrap();
    // Both have it: this test, and the way to send that the worker had.
    assert!(Arc::strong_count(&device) > 1 && !closed.load(Ordering::Relaxed));
    drop(released);
    assert!(Arc::strong_count(&device) == 1 && closed.load(Ordering::Relaxed));
}

#[test]
fn many_commands_are_followed_in_slices_and_in_order_while_packets_go() {
    let mut fixture = Fixture::new();
    let (port, sink) = (fixture.add_port(1), fixture.add_port(9));
    for n in 0..4096 {
        fixture.commands.push(Command::Execute {
            in_port: PortNo(1),
            frame: Frame::from_slice(&packet(n)),
            actions: vec![Action::Output(PortNo(9))],
        });
    }
    let mut sent = Vec::new();
    assert!(port.inject(&packet(1 << 24)));
    fixture.turn();
    sent.append(&mut sink.take_sent());
    assert!(
        sent.contains(&packet(1 << 24).to_vec()) && sent.len() < 4097,
        "{}",
        sent.len()
    );
    while sent.len() < 4097 {
        assert_eq!(fixture.worker.timeout(), Some(Duration::ZERO));
        fixture.turn();
        sent.append(&mut sink.take_sent());
    }
    sent.retain(|sent| *sent != packet(1 << 24));
    assert!(sent.into_iter().eq((0..4096).map(|n| packet(n).to_vec())));
}
