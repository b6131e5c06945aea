//! Packets through a pipeline and a simulated kernel, on virtual time.

use super::simulated::{Calls, Simulated};
use crate::bonds::BondView;
use crate::dep_epochs::{DepEpochs, PortOffload};
use crate::hash::KeyHasher;
use crate::megaflow::{Candidate, FlowTable};
use crate::pipeline::{Budget, Pipeline, RxQueue};
use dp::offload::{MAX_FLOWS, OffloadTable, PacketKind};
use dp::{Action, Answer, Carried, Change, Changes, Credit, Dep, Slowpath, Translation, Upcall};
use flow::{Field, Mask, PortNo};
use nanos::Nanos;
use netdev::{Dummy, Netdev};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;
use testkit::{Packet, Rng, mac};

mod crowded;
mod tracked;
mod tunnelled;

/// Most offloaded flows that a worker may open, stop, close or look at between packets.
const SLICE: usize = 32;
const LOOKS: usize = 256 + 64;

/// Sends packets to the port that their destination address names. What a packet is sent by depends
/// on its bridge, which is the hundreds of the port that it comes in by, and on both of its
/// stations.
#[derive(Default)]
struct Switch {
    /// Ports that depend on another bridge, too.
    crossing: HashMap<u32, u32>,
    /// Translations take long.
    late: AtomicBool,
    /// Where all packets are sent instead, unless it is 0.
    detour: AtomicU32,
    upcalls: AtomicU64,
    credited: Mutex<BTreeMap<Credit, (u64, u64)>>,
}

fn bridge(number: u32) -> Dep {
    Dep(1000 + u64::from(number))
}

fn station(bridge: u32, station: u128) -> Dep {
    Dep(1 << 60 | u64::from(bridge) << 50 | station as u64 & 0xffff_ffff)
}

impl Slowpath for Switch {
    fn try_upcall(&self, upcall: &Upcall<'_>, now: Nanos) -> Answer {
        match self.late.load(Acquire) {
            true => Answer::Later,
            false => Answer::Cache(self.upcall(upcall, now)),
        }
    }

    fn upcall(&self, upcall: &Upcall<'_>, _: Nanos) -> Translation {
        self.upcalls.fetch_add(1, Relaxed);
        let port = upcall.key.in_port().0;
        let (src, dst) = (upcall.key.get(Field::EthSrc), upcall.key.get(Field::EthDst));
        let to = match self.detour.load(Acquire) {
            0 => dst as u32 & 0xffff,
            detour => detour,
        };
        let mut mask = Mask::exact(Field::InPort);
        mask.add(Field::EthSrc);
        mask.add(Field::EthDst);
        let mut deps = vec![bridge(port / 100), station(port / 100, src), station(port / 100, dst)];
        deps.extend(self.crossing.get(&port).map(|other| bridge(*other)));
        Translation {
            actions: Arc::from([Action::Output(PortNo(to))]),
            mask,
            deps: deps.into(),
            effects: Default::default(),
            credits: [Credit(u128::from(port))].as_slice().into(),
            drop: None,
        }
    }

    fn refresh(&self, _: &[dp::Effect], _: Nanos) {}

    fn credit(&self, credits: &[(Credit, Carried)], _: Nanos) {
        let mut credited = self.credited.lock();
        for (credit, carried) in credits {
            let sum = credited.entry(*credit).or_default();
            sum.0 += carried.packets;
            sum.1 += carried.bytes;
        }
    }

    fn port_failed(&self, _: PortNo) {}
}

struct Bench {
    kernel: Arc<Simulated>,
    deps: Arc<DepEpochs>,
    changes: Arc<Changes>,
    switch: Arc<Switch>,
    pipeline: Pipeline,
    ports: BTreeMap<u32, (Arc<Dummy>, RxQueue)>,
    now: Nanos,
    /// Packets and bytes sent, by the port that they came in by.
    sent: BTreeMap<u32, (u64, u64)>,
}

/// Who forwarded a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Kernel,
    Worker,
}

impl Bench {
    fn new(ports: &[u32]) -> Bench {
        Bench::with(ports, Switch::default())
    }

    fn with(ports: &[u32], switch: Switch) -> Bench {
        let (kernel, changes, switch) = (Simulated::new(), Arc::new(Changes::new()), Arc::new(switch));
        let deps = DepEpochs::new(OffloadTable::new(kernel.clone()));
        let told = deps.clone();
        assert!(changes.tell(move |changes| told.changed(changes)));
        let pipeline = Pipeline::new(100_000, Duration::from_secs(10), switch.clone(), changes.clone());
        let mut bench = Bench {
            kernel,
            deps,
            changes,
            switch,
            pipeline,
            ports: BTreeMap::new(),
            now: Nanos(1_000_000_000_000),
            sent: BTreeMap::new(),
        };
        ports.iter().for_each(|port| bench.add_port(*port));
        bench
    }

    fn add_port(&mut self, port: u32) {
        let device = Arc::new(Dummy::open(&format!("p{port}"), &BTreeMap::new()).unwrap());
        let rx = device.open_rx().unwrap().remove(0);
        let mut rx_queue = Pipeline::rx_queue(PortNo(port), rx, Budget::new(64, 1024));
        let offload = PortOffload {
            port: self.deps.table().port(port).unwrap(),
            deps: self.deps.clone(),
            device: device.state().ok(),
        };
        rx_queue.offload_port = Some(offload.port.clone());
        self.pipeline.add_port(PortNo(port), device.clone());
        self.pipeline.add_offload_port(PortNo(port), Some(offload));
        self.ports.insert(port, (device, rx_queue));
    }

    /// One of the kinds of packets that go from one port to another.
    fn packet(from: u32, to: u32, kind: u32) -> Vec<u8> {
        let packet = Packet::new(mac(from), mac(to));
        let [high, low] = [(kind >> 16) as u16, kind as u16];
        packet
            .ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))
            .udp(high, low, b"payload")
            .bytes()
    }

    fn key(&self, from: u32, to: u32, kind: u32) -> PacketKind {
        let entrance = self.ports[&from].1.offload_port.as_ref().unwrap();
        entrance.kind(&Bench::packet(from, to, kind)).unwrap()
    }

    /// Lets a packet come.
    fn send(&mut self, from: u32, to: u32, kind: u32) -> By {
        let packet = Bench::packet(from, to, kind);
        let sent = self.sent.entry(from).or_default();
        sent.0 += 1;
        sent.1 += packet.len() as u64;
        if self
            .kernel
            .receive(&self.key(from, to, kind), packet.len() as u64, self.now)
            .is_some()
        {
            return By::Kernel;
        }
        self.work(from, &packet);
        By::Worker
    }

    /// Lets the worker have a packet.
    fn work(&mut self, from: u32, packet: &[u8]) {
        let (device, rx_queue) = self.ports.get_mut(&from).unwrap();
        assert!(device.inject(packet));
        assert_eq!(self.pipeline.receive(rx_queue, false, self.now).unwrap(), 1);
        device.take_sent();
    }

    /// Lets packets come until the kernel forwards them.
    fn offload(&mut self, from: u32, to: u32, kind: u32) {
        for _ in 0..4 {
            if self.send(from, to, kind) == By::Kernel {
                return;
            }
            // What it had is closed first.
            self.settle();
        }
        panic!("the kernel does not forward {from} {to} {kind}");
    }

    /// Lets the kernel forward so many kinds, as far as it does; returns how many it does.
    fn offload_many(&mut self, from: u32, to: u32, kinds: u32) -> u32 {
        for kind in 0..kinds {
            for _ in 0..3 {
                if self.send(from, to, kind) == By::Kernel {
                    break;
                }
            }
        }
        self.offloaded(from, to, kinds)
    }

    /// How many kinds the kernel has, in force or not.
    fn offloaded(&self, from: u32, to: u32, kinds: u32) -> u32 {
        let has = |kind: &u32| self.kernel.has(&self.key(from, to, *kind));
        (0..kinds).filter(has).count() as u32
    }

    fn publish(&self, dep: Dep) {
        self.changes.publish(&[Change::Dep(dep)]);
    }

    /// One turn of the worker without packets; what it asked of the kernel is no more than a slice.
    fn turn(&mut self) -> Option<Nanos> {
        let before = self.kernel.calls();
        let next = self.pipeline.housekeep(self.now);
        self.check_slice(before);
        next
    }

    #[track_caller]
    fn check_slice(&self, before: Calls) {
        let after = self.kernel.calls();
        assert!(after.closed - before.closed <= SLICE, "{before:?} {after:?}");
        assert!(after.suspended - before.suspended <= 3 * SLICE, "{before:?} {after:?}");
        assert!(after.read - before.read <= 2 * LOOKS, "{before:?} {after:?}");
    }

    /// Turns until there is nothing to do for some milliseconds.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.now += Duration::from_micros(100);
            if self
                .turn()
                .is_none_or(|next| next > self.now + Duration::from_millis(5))
            {
                return;
            }
        }
        panic!("the worker does not come to an end");
    }

    /// All that was sent from a port was reported.
    #[track_caller]
    fn check_credits(&mut self) {
        self.settle();
        let before = self.kernel.calls();
        self.pipeline.push_stats(self.now);
        assert_eq!(self.kernel.calls().closed, before.closed);
        let credited = self.switch.credited.lock();
        let credited: BTreeMap<u32, (u64, u64)> =
            credited.iter().map(|(credit, sum)| (credit.0 as u32, *sum)).collect();
        assert_eq!(credited, self.sent);
    }
}

#[test]
fn a_change_of_one_bridge_leaves_the_offloaded_flows_of_another_in_force() {
    let mut bench = Bench::new(&[101, 102, 201, 202]);
    for (from, to) in [(101, 102), (102, 101), (201, 202), (202, 201)] {
        bench.offload(from, to, 0);
    }
    bench.publish(bridge(1));
    assert_eq!(bench.send(201, 202, 0), By::Kernel);
    assert_eq!(bench.send(202, 201, 0), By::Kernel);
    assert_eq!(bench.send(101, 102, 0), By::Worker);
    assert_eq!(bench.send(102, 101, 0), By::Worker);
    bench.changes.publish(&[Change::All]);
    assert_eq!(bench.send(201, 202, 0), By::Worker);
    bench.check_credits();
}

#[test]
fn a_station_that_is_learned_suspends_only_packets_from_and_to_it() {
    let mut bench = Bench::new(&[101, 102, 103, 104]);
    bench.offload(101, 102, 0);
    bench.offload(103, 104, 0);
    for new in 0..10_000 {
        bench.publish(station(1, new << 8));
        assert_eq!(bench.send(101, 102, 0), By::Kernel);
    }
    bench.publish(station(1, 104));
    assert_eq!(bench.send(101, 102, 0), By::Kernel);
    assert_eq!(bench.send(103, 104, 0), By::Worker);
    bench.offload(103, 104, 0);
    bench.check_credits();
}

#[test]
fn packets_that_cross_bridges_depend_on_each_of_them() {
    let crossing = HashMap::from([(101, 2)]);
    let switch = Switch {
        crossing,
        ..Switch::default()
    };
    let mut bench = Bench::with(&[101, 102, 103, 201, 202], switch);
    for (from, to) in [(101, 201), (102, 103), (201, 202)] {
        bench.offload(from, to, 0);
    }
    bench.publish(bridge(2));
    assert_eq!(bench.send(102, 103, 0), By::Kernel);
    assert_eq!(bench.send(101, 201, 0), By::Worker);
    assert_eq!(bench.send(201, 202, 0), By::Worker);
    bench.offload(101, 201, 0);
    bench.offload(201, 202, 0);
    bench.publish(bridge(1));
    assert_eq!(bench.send(201, 202, 0), By::Kernel);
    assert_eq!(bench.send(102, 103, 0), By::Worker);
    assert_eq!(bench.send(101, 201, 0), By::Worker);
    bench.check_credits();
}

#[test]
fn an_offloaded_flow_is_not_put_in_force_while_a_change_is_not_applied() {
    let kernel = Simulated::new();
    let deps = DepEpochs::new(OffloadTable::new(kernel.clone()));
    let ports = [1, 2].map(|ifindex| deps.table().port(ifindex).unwrap());
    let mut flows = FlowTable::new(Arc::new(KeyHasher::new()), 1000, Duration::from_secs(10));
    for (number, port) in [101, 102].into_iter().zip(&ports) {
        let device = Arc::new(Dummy::open("p", &BTreeMap::new()).unwrap());
        let offload = PortOffload {
            port: port.clone(),
            deps: deps.clone(),
            device: device.state().ok(),
        };
        flows.add_offload_port(PortNo(number), offload);
    }
    let packet = Bench::packet(101, 102, 0);
    let key = flow::extract(&packet, &PortNo(101).into()).unwrap();
    let upcall = Upcall::new(&key, &packet);
    let translation = Switch::default().upcall(&upcall, Nanos::ZERO);
    let kind = ports[0].kind(&packet).unwrap();
    let flow = flows.insert(&key, PortNo(101), &translation, 60, Nanos::ZERO);
    let (outputs, loads) = flows
        .outputs((flow, 0), &kind, &kind.flow_key(), &mut BondView::new(Arc::default()))
        .unwrap();
    let candidate = Candidate {
        kind,
        from: PortNo(101),
        flow,
        outer: None,
        way: None,
        push: None,
        outputs,
        loads,
    };
    let takes = || kernel.receive(&candidate.kind, 60, Nanos::ZERO).is_some();
    let mut now = Nanos(1_000_000_000);
    let mut offer = |is_current: bool| {
        now += Duration::from_millis(2);
        if let Some(place) = flows.offload(&candidate, || is_current, now) {
            let given = flows.given(place).unwrap();
            assert!(!takes(), "the worker may have others");
            assert!(!flows.settle(place, given), "one has come since");
            assert!(!takes());
            // Packets come too fast: it carries them at last, until it is put in force again.
            (0..100).for_each(|_| flows.did_not_settle(place));
            assert!(takes());
            flows.offload(&candidate, || is_current, now);
            assert!(!takes());
            let given = flows.given(place).unwrap();
            assert!(flows.settle(place, given));
        }
    };
    // A change of what it depends on was published before the first offloaded flow.
    deps.changed(&[Change::Dep(bridge(1))]);
    offer(false);
    assert!(!takes());
    offer(true);
    assert!(takes());
    deps.changed(&[Change::Dep(bridge(1))]);
    offer(false);
    assert!(!takes());
    offer(true);
    assert!(takes());
}

#[test]
fn no_packet_is_offloaded_after_a_change_of_what_it_depends_on() {
    let mut rng = Rng::new(7);
    let crossing = HashMap::from([(101, 2), (202, 3)]);
    let ports = [101, 102, 103, 201, 202, 301];
    let switch = Switch {
        crossing: crossing.clone(),
        ..Switch::default()
    };
    let mut bench = Bench::with(&ports, switch);
    // Packets that have to meet the worker before the kernel forwards the like of them again.
    let mut suspended: HashSet<(u32, u32, u32)> = HashSet::new();
    let all = || {
        let pairs = ports.iter().flat_map(|from| ports.iter().map(|to| (*from, *to)));
        pairs
            .filter(|(from, to)| from != to)
            .flat_map(|(from, to)| (0..3).map(move |kind| (from, to, kind)))
    };
    suspended.extend(all());
    let mut by_kernel = 0;
    for _ in 0..60_000 {
        bench.now += Duration::from_micros(rng.below(300) as u64);
        let (from, to) = (ports[rng.below(ports.len())], ports[rng.below(ports.len())]);
        let kind = rng.below(3) as u32;
        match rng.below(100) {
            0 => {
                let number = rng.below(4) as u32;
                bench.publish(bridge(number));
                let crosses = |from: &u32| from / 100 == number || crossing.get(from) == Some(&number);
                suspended.extend(all().filter(|(from, _, _)| crosses(from)));
            }
            1 | 2 => {
                let moved = station(from / 100, u128::from(to));
                bench.publish(moved);
                let is_it = |(other, src_dst): (&u32, [u32; 2])| other / 100 == from / 100 && src_dst.contains(&to);
                suspended.extend(all().filter(|(other, dst, _)| is_it((other, [*other, *dst]))));
            }
            3 if rng.below(10) == 0 => {
                bench.changes.publish(&[Change::All]);
                suspended.extend(all());
            }
            4 if rng.below(10) == 0 => {
                bench.pipeline.flush();
                suspended.extend(all());
            }
            5 if rng.below(10) == 0 => {
                bench.pipeline.stop_offloaded(PortNo(from));
                suspended.extend(all().filter(|(other, dst, _)| *other == from || *dst == from));
            }
            6 if rng.below(10) == 0 => {
                bench.pipeline.set_offload(true);
                suspended.extend(all());
            }
            7..20 => drop(bench.turn()),
            _ if from != to => match bench.send(from, to, kind) {
                By::Kernel => {
                    by_kernel += 1;
                    assert!(!suspended.contains(&(from, to, kind)), "{from} {to} {kind}");
                }
                By::Worker => drop(suspended.remove(&(from, to, kind))),
            },
            _ => {}
        }
    }
    assert!(by_kernel > 10_000, "{by_kernel}");
    bench.check_credits();
    bench.pipeline.flush();
    bench.settle();
    assert_eq!(bench.deps.len(), 0);
    assert_eq!(bench.deps.table().left(), MAX_FLOWS);
}

#[test]
fn a_known_packet_that_waits_behind_others_of_its_flow_is_not_offloaded() {
    let mut bench = Bench::new(&[101, 102]);
    bench.switch.late.store(true, Release);
    assert_eq!(bench.send(101, 102, 1), By::Worker);
    assert!(bench.ports[&101].1.has_pending());
    // Another kind has the same megaflow.
    bench.switch.late.store(false, Release);
    for kind in [2, 1, 1, 1] {
        assert_eq!(bench.send(101, 102, kind), By::Worker);
        assert!(
            !bench.kernel.has(&bench.key(101, 102, 1)),
            "the kernel would let later packets overtake"
        );
    }
    bench.now += Duration::from_millis(1);
    bench.offload(101, 102, 1);
    assert!(!bench.ports[&101].1.has_pending());
    bench.check_credits();
}

#[test]
fn a_packet_that_the_kernel_leaves_to_the_worker_is_not_overtaken_where_that_matters() {
    let mut bench = Bench::new(&[101, 102]);
    bench.offload(101, 102, 0);
    let (kind, packet) = (bench.key(101, 102, 0), Bench::packet(101, 102, 0));
    for _ in 0..100 {
        bench.kernel.leave(&kind);
        assert_eq!(
            bench.kernel.receive(&kind, 60, bench.now),
            None,
            "the worker has one before"
        );
        bench.work(101, &packet);
        assert_eq!(bench.send(101, 102, 0), By::Kernel);
    }
}

#[test]
fn offers_that_a_port_is_refused_keep_no_dependencies() {
    let (mut bench, _) = crowded::crowded();
    let watched = bench.deps.len();
    let over_share = |bench: &Bench| bench.pipeline.flows().offloaded.tally.over_share;
    let refused = over_share(&bench);
    // Each has a megaflow of its own.
    bench.switch.detour.store(102, Release);
    for to in 1000..1200 {
        // Made, seen, refused.
        for _ in 0..3 {
            assert_eq!(bench.send(101, to, 0), By::Worker);
        }
    }
    assert!(over_share(&bench) >= refused + 200);
    assert_eq!(bench.deps.len(), watched);
    assert!(bench.pipeline.flows().offloaded.released.is_empty());
}

#[test]
fn a_device_that_changes_suspends_the_offloaded_flows_of_its_port_alone() {
    let mut bench = Bench::new(&[101, 102, 201, 202]);
    bench.offload(101, 102, 0);
    bench.offload(201, 202, 0);
    let down = |bench: &Bench| {
        let state = bench.ports[&202].0.state().unwrap();
        Some(netdev::State {
            carrier: false,
            ..state
        })
    };
    let state = down(&bench);
    bench.pipeline.link_changed(PortNo(202), state);
    assert_eq!(bench.send(101, 102, 0), By::Kernel);
    for _ in 0..5 {
        assert_eq!(bench.send(201, 202, 0), By::Worker, "the device has no carrier");
        bench.settle();
    }
    let state = bench.ports[&202].0.state().ok();
    bench.pipeline.link_changed(PortNo(202), state);
    bench.offload(201, 202, 0);
    bench.check_credits();
}

#[test]
fn a_change_is_in_force_when_its_publisher_goes_on_whatever_the_worker_does_meanwhile() {
    let mut bench = Bench::new(&[101, 102, 103]);
    let (kernel, changes, switch) = (bench.kernel.clone(), bench.changes.clone(), bench.switch.clone());
    let (key, done) = (bench.key(101, 102, 0), Arc::new(AtomicBool::new(false)));
    let publisher = {
        let done = done.clone();
        std::thread::spawn(move || {
            let mut forwarded = 0;
            for n in 0..400 {
                let to = 102 + n % 2;
                switch.detour.store(to, Release);
                changes.publish(&[Change::Dep(bridge(1))]);
                for _ in 0..1000 {
                    if let Some(device) = kernel.receive(&key, 60, Nanos::ZERO) {
                        assert_eq!(device, to, "after change {n}");
                        forwarded += 1;
                        break;
                    }
                    std::thread::yield_now();
                }
            }
            done.store(true, Release);
            forwarded
        })
    };
    while !done.load(Acquire) && !publisher.is_finished() {
        bench.now += Duration::from_micros(500);
        let (device, rx_queue) = bench.ports.get_mut(&101).unwrap();
        assert!(device.inject(&Bench::packet(101, 102, 0)));
        bench.pipeline.receive(rx_queue, false, bench.now).unwrap();
        bench.pipeline.housekeep(bench.now);
    }
    let forwarded = publisher.join().unwrap();
    assert!(forwarded > 50, "{forwarded}");
}
