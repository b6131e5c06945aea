use super::*;
use crate::pipeline::Budget;
use dp::{Action, Changes, Translation, Upcall};
use flow::{Field, Mask};
use netdev::Dummy;
use std::collections::BTreeMap;
use std::sync::mpsc;

/// Sends everything to port 9 and makes a megaflow of each source address.
struct Switch;

impl Slowpath for Switch {
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
    commands: Arc<CommandQueue>,
}

impl Fixture {
    fn new() -> Fixture {
        let commands = Arc::new(CommandQueue::new().unwrap());
        let slowpath = Arc::new(Switch);
        let pipeline = Pipeline::new(
            100_000,
            Duration::from_secs(10),
            slowpath.clone(),
            Arc::new(Changes::new()),
        );
        let worker = Worker::new(
            0,
            pipeline,
            commands.clone(),
            slowpath,
            Arc::new(SpinTime::new(Duration::ZERO)),
        )
        .unwrap();
        Fixture { worker, commands }
    }

    fn add_port(&mut self, port: u32) -> Arc<Dummy> {
        let device = Arc::new(Dummy::open("p", &BTreeMap::new()).unwrap());
        let rx = device.open_rx().unwrap().remove(0);
        let (done, answer) = mpsc::channel();
        self.commands.push(Command::AddPort {
            port: PortNo(port),
            device: device.clone(),
            stats: Arc::default(),
            intakes: vec![Intake {
                inlet: Pipeline::inlet(PortNo(port), rx, Budget::new(8, 256)),
                number: 0,
                load: Arc::default(),
            }],
            done,
        });
        self.turn();
        answer.recv().unwrap().unwrap();
        device
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
fn a_storm_of_new_flows_delays_another_port_by_no_more_than_a_batch_each_turn() {
    let mut fixture = Fixture::new();
    let (storm, quiet, sink) = (fixture.add_port(1), fixture.add_port(2), fixture.add_port(9));
    (0..4096).for_each(|n| assert!(storm.inject(&packet(n))));
    (0..100).for_each(|n| assert!(quiet.inject(&packet(1 << 24 | n))));
    (0..4).for_each(|_| fixture.turn());
    let sent = sink.take_sent();
    assert_eq!(sent.iter().filter(|packet| packet[8] == 1).count(), 100);
    assert_eq!(sent.len(), 100 + 4 * 32);
    assert_eq!(fixture.worker.pipeline.cache_stats().lost, 0);
}

#[test]
fn a_port_with_too_many_new_flows_loses_packets_only_while_others_wait() {
    let mut fixture = Fixture::new();
    let (storm, quiet, sink) = (fixture.add_port(1), fixture.add_port(2), fixture.add_port(9));
    (0..4096).for_each(|n| assert!(storm.inject(&packet(n))));
    (0..1280).for_each(|_| assert!(quiet.inject(&packet(1 << 24))));
    (0..40).for_each(|_| fixture.turn());
    // 40 batches of 32 each: of the storm's, 256 in reserve and 8 a batch went up; the first batch found the reserve full.
    let stats = fixture.worker.pipeline.cache_stats();
    assert_eq!(stats.lost, 40 * 32 - 256 - 39 * 8);
    let sent = sink.take_sent();
    assert_eq!(sent.iter().filter(|packet| packet[8] == 1).count(), 1280);
    while storm.pending() > 0 {
        fixture.turn();
    }
    assert_eq!(fixture.worker.pipeline.cache_stats().lost, stats.lost);
    assert_eq!(sink.take_sent().len(), 4096 - 1280);
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
    fixture.worker.spin.set(Duration::from_secs(1_000_000));
    fixture.worker.active = clock();
    assert!(fixture.worker.spins());
    (0..4096).for_each(|n| assert!(storm.inject(&packet(n))));
    (0..1280).for_each(|_| assert!(quiet.inject(&packet(1 << 24))));
    (0..40).for_each(|_| fixture.worker.look());
    // As above, but that it learns of the contention from what the first look found.
    let lost = fixture.worker.pipeline.cache_stats().lost;
    assert!(lost > 20 * 32, "{lost}");
    assert_eq!(sink.take_sent().iter().filter(|packet| packet[8] == 1).count(), 1280);
    // A device that is gone is not asked again.
    fixture.worker.gone(0);
    (0..3).for_each(|_| fixture.worker.look());
    assert_eq!(sink.take_sent().len(), 0);
    assert!(storm.pending() > 0);
}
