//! Packets of established connections, between two hosts behind a stateful firewall.

use super::super::simulated::Simulated;
use super::By;
use crate::actions::Shared;
use crate::dep_epochs::{DepEpochs, PortOffload};
use crate::pipeline::{Budget, Pipeline, RxQueue};
use conntrack::{Conntrack, Cursor, Filter, Nat, PolicyId, Range, Request, Timeout};
use dp::offload::{OffloadTable, PacketKind};
use dp::{
    Action, Answer, Carried, Change, Changes, Credit, Dep, FlowHash, SetField, Slowpath, Track, Translation, Upcall,
};
use flow::{Field, Mask, PortNo, RecircId};
use nanos::Nanos;
use netdev::{Dummy, Netdev};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use testkit::{Packet, Rng, mac};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

const BEFORE: Dep = Dep(1);
const BEHIND: Dep = Dep(2);
const AGAIN: u32 = 7;
const NEW: u128 = 1;
const ESTABLISHED: u128 = 2;
/// The address that the inner host has outside, if there is translation.
const OUTSIDE: [u8; 4] = [10, 0, 0, 9];
const ROUTER: u64 = 0x77;

/// Host 1 behind port 101 may begin connections with host 2 behind port 102.
#[derive(Default)]
struct Firewall {
    translates: bool,
    /// All packets are tracked in another zone too.
    twice: bool,
    /// Packets of the inner host with an odd mark leave by port 103.
    by_mark: bool,
    /// Established packets also leave by a port that does not exist.
    copies: bool,
    /// Nothing is tracked: a hash of the packets selects a megaflow.
    distributes: bool,
    credited: Mutex<BTreeMap<Credit, (u64, u64)>>,
}

/// The first of the dependencies of slots.
const SLOTS: u64 = 1000;

fn by_hash() -> Action {
    Action::RecircByHash {
        id: RecircId::hashed(2),
        hash: FlowHash::SymmetricL4 { basis: 0 },
    }
}

impl Firewall {
    fn actions(&self, key: &flow::Key) -> (Vec<Action>, Dep) {
        let inside = key.in_port() == PortNo(101);
        let track = |request| {
            let track = Track {
                request,
                fragments: false,
            };
            Action::Ct(Arc::new(track))
        };
        let nat = |nat: Nat| self.translates.then_some(nat);
        let look = |zone| Request {
            zone,
            nat: nat(Nat::Existing),
            ..Request::default()
        };
        let out = Action::Output(PortNo(if inside { 102 } else { 101 }));
        if self.distributes {
            return match RecircId(key.get(Field::RecircId) as u32).hash() {
                None => (vec![by_hash()], BEFORE),
                Some(slot) => (vec![out], Dep(SLOTS + u64::from(slot))),
            };
        }
        if key.get(Field::RecircId) == 0 {
            let mut actions = vec![track(look(5)), Action::Recirc(AGAIN)];
            if self.twice {
                // Without an answer there is no connection in this one, so it commits each time.
                let commit = Request {
                    commit: true,
                    ..look(6)
                };
                actions.insert(0, track(commit));
            }
            return (actions, BEFORE);
        }
        let state = key.get(Field::CtState);
        let odd = self.by_mark && inside && key.get(Field::CtMark) & 1 != 0;
        let out = if odd { Action::Output(PortNo(103)) } else { out };
        let actions = if state & ESTABLISHED != 0 && self.copies {
            vec![out, Action::Output(PortNo(104))]
        } else if state & ESTABLISHED != 0 {
            let router = SetField::new(Field::EthSrc, ROUTER.into(), u128::MAX).unwrap();
            match self.translates {
                true => vec![Action::SetField(router), out],
                false => vec![out],
            }
        } else if state & NEW != 0 && inside {
            let outside = IpAddr::from(OUTSIDE);
            let commit = Request {
                commit: true,
                nat: nat(Nat::Source(Range {
                    addresses: Some((outside, outside)),
                    ..Range::default()
                })),
                ..look(5)
            };
            vec![track(commit), out]
        } else {
            vec![]
        };
        (actions, BEHIND)
    }
}

impl Slowpath for Firewall {
    fn try_upcall(&self, upcall: &Upcall<'_>, now: Nanos) -> Answer {
        Answer::Cache(self.upcall(upcall, now))
    }

    fn upcall(&self, upcall: &Upcall<'_>, _: Nanos) -> Translation {
        let (actions, dep) = self.actions(upcall.key);
        let mut mask = Mask::exact(Field::InPort);
        mask.add(Field::RecircId);
        mask.add(Field::EthType);
        if upcall.key.get(Field::RecircId) != 0 {
            mask.add(Field::CtState);
            mask.add(Field::CtMark);
        }
        let credit = Credit(upcall.key.get(Field::RecircId));
        Translation {
            actions: actions.into(),
            mask,
            deps: vec![dep].into(),
            effects: Default::default(),
            credits: [credit].as_slice().into(),
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
    changes: Arc<Changes>,
    firewall: Arc<Firewall>,
    conntrack: Arc<Conntrack>,
    table: Arc<OffloadTable>,
    pipeline: Pipeline,
    /// The third one only sends.
    ports: [(Arc<Dummy>, RxQueue); 3],
    now: Nanos,
}

/// A packet from a host; `flags` of TCP, UDP without.
fn packet(reply: bool, client: u16, flags: Option<u8>, to: [u8; 4]) -> Vec<u8> {
    let (from, ports) = if reply { (2, (80, client)) } else { (1, (client, 80)) };
    let packet = Packet::new(mac(from), mac(3 - from)).ipv4([10, 0, 0, from as u8].into(), to.into());
    match flags {
        None => packet.udp(ports.0, ports.1, b"payload"),
        Some(flags) => packet.tcp(ports.0, ports.1, flags, b""),
    }
    .bytes()
}

impl Bench {
    fn new(firewall: Firewall) -> Bench {
        let (kernel, changes, firewall) = (Simulated::new(), Arc::new(Changes::new()), Arc::new(firewall));
        let deps = DepEpochs::new(OffloadTable::new(kernel.clone()));
        let told = deps.clone();
        assert!(changes.tell(move |changes| told.changed(changes)));
        let shared = Shared::default();
        let conntrack = shared.conntrack.clone();
        // The packets of these tests have no numbers.
        conntrack.set_check_sequence(false);
        let idle = Duration::from_secs(10);
        let mut pipeline = Pipeline::with_shared(1000, idle, firewall.clone(), changes.clone(), shared);
        let ports = [101, 102, 103].map(|number| {
            let device = Arc::new(Dummy::open(&format!("p{number}"), &BTreeMap::new()).unwrap());
            let rx = device.open_rx().unwrap().remove(0);
            let mut rx_queue = Pipeline::rx_queue(PortNo(number), rx, Budget::new(64, 1024));
            let offload = PortOffload {
                port: deps.table().port(number).unwrap(),
                deps: deps.clone(),
                device: device.state().ok(),
            };
            rx_queue.offload_port = Some(offload.port.clone());
            pipeline.add_port(PortNo(number), device.clone());
            pipeline.add_offload_port(PortNo(number), Some(offload));
            (device, rx_queue)
        });
        Bench {
            kernel,
            changes,
            firewall,
            conntrack,
            table: deps.table().clone(),
            pipeline,
            ports,
            now: Nanos(1_000_000_000_000),
        }
    }

    fn kind(&self, packet: &[u8], reply: bool) -> PacketKind {
        let port = self.ports[usize::from(reply)].1.offload_port.as_ref().unwrap();
        port.kind(packet).unwrap()
    }

    /// Where packets to a client go.
    fn to(&self, reply: bool) -> [u8; 4] {
        match (reply, self.firewall.translates) {
            (false, _) => [10, 0, 0, 2],
            (true, false) => [10, 0, 0, 1],
            (true, true) => OUTSIDE,
        }
    }

    /// Lets a packet come. Says who forwarded it, and what the worker sent.
    fn pass(&mut self, reply: bool, client: u16, flags: Option<u8>) -> (By, Vec<Vec<u8>>) {
        let packet = packet(reply, client, flags, self.to(reply));
        self.now += Duration::from_micros(10);
        let plain = flags.is_none_or(|flags| flags & (FIN | SYN | RST) == 0);
        let bytes = packet.len() as u64;
        if plain
            && self
                .kernel
                .receive(&self.kind(&packet, reply), bytes, self.now)
                .is_some()
        {
            return (By::Kernel, Vec::new());
        }
        let (device, rx_queue) = &mut self.ports[usize::from(reply)];
        assert!(device.inject(&packet));
        self.pipeline.receive(rx_queue, false, self.now).unwrap();
        let sent = self.ports[usize::from(!reply)].0.take_sent();
        (By::Worker, sent.iter().map(|frame| frame.to_vec()).collect())
    }

    fn send(&mut self, reply: bool, client: u16, flags: Option<u8>) -> By {
        self.pass(reply, client, flags).0
    }

    /// Begins a connection, and lets packets come until the kernel forwards both directions.
    fn offload(&mut self, client: u16, tcp: bool) {
        let ack = tcp.then_some(ACK);
        self.send(false, client, tcp.then_some(SYN));
        self.send(true, client, tcp.then_some(SYN | ACK));
        for reply in [false, true] {
            let by = (0..10).find(|_| {
                self.settle();
                self.send(reply, client, ack) == By::Kernel
            });
            assert!(by.is_some(), "the kernel does not forward {client} {reply}");
        }
    }

    fn settle(&mut self) {
        for _ in 0..1000 {
            self.now += Duration::from_micros(100);
            let next = self.pipeline.housekeep(self.now);
            if next.is_none_or(|next| next > self.now + Duration::from_millis(5)) {
                return;
            }
        }
        panic!("the worker does not come to an end");
    }

    fn connections(&self) -> Vec<conntrack::Connection> {
        let mut found = Vec::new();
        self.conntrack
            .tracker()
            .connections(Cursor::default(), 1 << 20, self.now, &mut found);
        found
    }
}

#[test]
fn both_directions_of_an_established_connection_are_forwarded_by_the_kernel_and_counted() {
    for (tcp, twice) in [(false, false), (true, false), (true, true)] {
        let firewall = Firewall {
            twice,
            ..Firewall::default()
        };
        let mut bench = Bench::new(firewall);
        let ack = tcp.then_some(ACK);
        assert_eq!(bench.send(false, 1000, tcp.then_some(SYN)), By::Worker);
        assert_eq!(bench.conntrack.bypassed(), 0, "there is no answer yet");
        bench.conntrack.tracker().flush(&Filter::default());
        bench.offload(1000, tcp);
        assert_eq!(bench.conntrack.bypassed(), if twice { 2 } else { 1 });
        for _ in 0..100 {
            assert_eq!(bench.send(false, 1000, ack), By::Kernel);
            assert_eq!(bench.send(true, 1000, ack), By::Kernel);
        }
        bench.pipeline.push_stats(bench.now);
        let credited = bench.firewall.credited.lock().clone();
        let (first, second) = (credited[&Credit(0)], credited[&Credit(AGAIN.into())]);
        assert_eq!(first, second, "both megaflows count all");
        let connections = bench.connections();
        let of_zone = |zone: u16| connections.iter().find(|one| one.zone == zone).unwrap();
        // The first packet was of an earlier connection.
        assert_eq!(of_zone(5).packets.iter().sum::<u64>(), first.0 - 1);
    }
}

#[test]
fn flows_that_a_hash_distributes_are_forwarded_by_the_kernel_until_their_slot_changes() {
    for tcp in [false, true] {
        let firewall = Firewall {
            distributes: true,
            ..Firewall::default()
        };
        let mut bench = Bench::new(firewall);
        let ack = tcp.then_some(ACK);
        for client in [1000, 1001] {
            bench.offload(client, tcp);
        }
        assert_eq!((bench.conntrack.bypassed(), bench.connections().len()), (0, 0));
        for _ in 0..100 {
            for (client, reply) in [(1000, false), (1000, true), (1001, false)] {
                assert_eq!(bench.send(reply, client, ack), By::Kernel);
            }
        }
        bench.pipeline.push_stats(bench.now);
        let credited = bench.firewall.credited.lock().clone();
        let behind = credited.iter().filter(|(credit, _)| **credit != Credit(0));
        let behind = behind.fold((0, 0), |sum, (_, (packets, bytes))| (sum.0 + packets, sum.1 + bytes));
        assert_eq!(credited[&Credit(0)], behind, "both megaflows count all");
        let slot = |client| {
            let packet = packet(false, client, ack, bench.to(false));
            let Action::RecircByHash { hash, .. } = by_hash() else {
                panic!()
            };
            hash.short(&flow::extract(&packet, &PortNo(101).into()).unwrap())
        };
        assert_ne!(slot(1000), slot(1001));
        let changed = Change::Dep(Dep(SLOTS + u64::from(slot(1000))));
        bench.changes.publish(&[changed]);
        assert_eq!(bench.send(false, 1001, ack), By::Kernel);
        assert_eq!(bench.send(false, 1000, ack), By::Worker);
        assert_eq!(bench.send(true, 1000, ack), By::Worker);
        bench.offload(1000, tcp);
        bench.changes.publish(&[Change::Dep(BEFORE)]);
        assert_eq!(bench.send(false, 1001, ack), By::Worker);
    }
}

#[test]
fn changes_of_rules_before_and_behind_the_tracker_are_in_force_at_once() {
    let mut bench = Bench::new(Firewall::default());
    for change in [Change::Dep(BEFORE), Change::Dep(BEHIND), Change::All] {
        bench.offload(1000, true);
        bench.changes.publish(&[change]);
        assert_eq!(bench.send(false, 1000, Some(ACK)), By::Worker);
        assert_eq!(bench.send(true, 1000, Some(ACK)), By::Worker);
    }
}

#[test]
fn the_end_of_a_connection_gives_its_packets_back_and_frees_what_it_had() {
    type End = fn(&mut Bench);
    let ends: [(&str, End); 4] = [
        ("fin", |bench| drop(bench.pass(false, 1000, Some(ACK | FIN)))),
        ("rst", |bench| drop(bench.pass(true, 1000, Some(ACK | RST)))),
        ("flush", |bench| {
            assert_eq!(bench.conntrack.tracker().flush(&Filter::default()), 1);
            bench.pass(false, 1000, Some(ACK));
        }),
        ("policy", |bench| {
            bench.conntrack.set_policy(PolicyId(0), &[(Timeout::TcpEstablished, 1)]);
            bench.settle();
        }),
    ];
    for (name, end) in ends {
        let mut bench = Bench::new(Firewall::default());
        bench.offload(1000, true);
        let kinds = [false, true].map(|reply| {
            let packet = packet(reply, 1000, Some(ACK), bench.to(reply));
            bench.kind(&packet, reply)
        });
        end(&mut bench);
        assert_eq!(bench.send(false, 1000, Some(ACK)), By::Worker, "{name}");
        assert_eq!(bench.send(true, 1000, Some(ACK)), By::Worker, "{name}");
        if name == "policy" {
            continue;
        }
        bench.settle();
        assert!(kinds.iter().all(|kind| !bench.kernel.has(kind)), "{name}");
        assert_eq!(bench.conntrack.bypassed(), 0, "{name}");
    }
}

#[test]
fn packets_of_the_kernel_keep_the_connection() {
    let mut bench = Bench::new(Firewall::default());
    bench.offload(1000, false);
    for _ in 0..20 {
        bench.now += Duration::from_secs(5);
        assert_eq!(bench.send(false, 1000, None), By::Kernel);
        for _ in 0..20 {
            bench.now += Duration::from_millis(500);
            bench.pipeline.housekeep(bench.now);
        }
        assert_eq!(bench.conntrack.len(), 1);
        bench.settle();
        bench.offload(1000, false);
    }
    for _ in 0..100 {
        bench.now += Duration::from_millis(500);
        bench.pipeline.housekeep(bench.now);
    }
    assert_eq!(bench.conntrack.len(), 0, "and then it times out");
    assert_eq!(bench.conntrack.bypassed(), 0);
}

#[test]
fn the_kernel_gives_packets_the_headers_that_the_worker_gives_them() {
    let mut bench = Bench::new(Firewall {
        translates: true,
        ..Firewall::default()
    });
    for tcp in [false, true] {
        let ack = tcp.then_some(ACK);
        bench.pipeline.set_offload(false);
        bench.send(false, 1000, tcp.then_some(SYN));
        bench.send(true, 1000, tcp.then_some(SYN | ACK));
        let by_worker = [false, true].map(|reply| bench.pass(reply, 1000, ack).1.remove(0));
        bench.pipeline.set_offload(true);
        bench.offload(1000, tcp);
        for (reply, sent) in [false, true].into_iter().zip(by_worker) {
            let received = packet(reply, 1000, ack, bench.to(reply));
            let kind = bench.kind(&received, reply);
            let new = bench.kernel.headers(&kind).unwrap();
            assert_eq!(bench.kind(&sent, reply).headers(), new.after());
        }
    }
}

#[test]
fn packets_that_come_to_the_worker_nevertheless_do_not_keep_others_from_the_kernel() {
    let mut bench = Bench::new(Firewall::default());
    bench.offload(1000, true);
    let before = bench.kernel.calls().unsettled;
    for _ in 0..20 {
        // The kernel does not know what such a packet is to the connection. It is nothing.
        assert_eq!(bench.send(false, 1000, Some(SYN | ACK)), By::Worker);
        assert_eq!(bench.send(false, 1000, Some(ACK)), By::Kernel);
    }
    assert_eq!(bench.kernel.calls().unsettled, before);
}

#[test]
fn a_connection_is_not_opened_for_packets_that_cannot_be_offloaded() {
    let mut bench = Bench::new(Firewall {
        copies: true,
        ..Firewall::default()
    });
    for _ in 0..20 {
        assert_eq!(bench.send(false, 1000, None), By::Worker);
        assert_eq!(bench.send(true, 1000, None), By::Worker);
        bench.settle();
    }
    assert_eq!(bench.kernel.calls().connections, 0);
}

#[test]
fn no_packet_passes_the_tracker_after_a_change_of_its_connection() {
    let mut rng = Rng::new(11);
    let mut bench = Bench::new(Firewall::default());
    // Packets that have to meet the worker before the kernel forwards the like of them again.
    let mut suspended: HashSet<(u16, bool)> = HashSet::new();
    let all = || (1000..1004).flat_map(|client| [(client, false), (client, true)]);
    suspended.extend(all());
    let (mut by_kernel, mut by_worker) = (0, 0);
    for _ in 0..40_000 {
        bench.now += Duration::from_micros(rng.below(500) as u64);
        let (client, reply) = (1000 + rng.below(4) as u16, rng.below(2) == 0);
        // Two are of UDP.
        let tcp = client < 1002;
        match rng.below(200) {
            0 => {
                let dep = if reply { BEFORE } else { BEHIND };
                bench.changes.publish(&[Change::Dep(dep)]);
                suspended.extend(all());
            }
            1 => {
                bench.conntrack.tracker().flush(&Filter::default());
                suspended.extend(all());
            }
            2 => {
                let id = bench.connections().first().map(|one| (one.id, one.original.src_port()));
                if let Some((id, client)) = id {
                    assert!(bench.conntrack.tracker().remove(id));
                    suspended.extend([(client, false), (client, true)]);
                }
            }
            3 => {
                bench.conntrack.set_policy(PolicyId(0), &[]);
                suspended.extend(all());
            }
            4 if tcp => {
                let end = if reply { FIN } else { RST };
                bench.pass(reply, client, Some(ACK | end));
                suspended.extend([(client, false), (client, true)]);
            }
            5 if rng.below(10) == 0 => {
                bench.pipeline.flush();
                suspended.extend(all());
            }
            6..20 => drop(bench.pipeline.housekeep(bench.now)),
            20..24 if tcp => {
                bench.pass(reply, client, Some(if reply { SYN | ACK } else { SYN }));
                suspended.remove(&(client, reply));
            }
            _ => match bench.send(reply, client, tcp.then_some(ACK)) {
                By::Kernel => {
                    by_kernel += 1;
                    assert!(!suspended.contains(&(client, reply)), "{client} {reply}");
                }
                By::Worker => {
                    by_worker += 1;
                    suspended.remove(&(client, reply));
                }
            },
        }
    }
    assert!(by_kernel > 10_000 && by_worker > 1000, "{by_kernel} {by_worker}");
    bench.pipeline.flush();
    bench.settle();
    assert_eq!(bench.conntrack.bypassed(), 0);
    let free: Vec<u32> = std::iter::from_fn(|| bench.table.connection()).collect();
    assert_eq!(free.len(), dp::offload::MAX_CONNECTIONS as usize);
}

#[test]
fn a_new_mark_is_in_force_when_it_is_set_whatever_the_worker_does_meanwhile() {
    let mut bench = Bench::new(Firewall {
        by_mark: true,
        ..Firewall::default()
    });
    bench.offload(1000, false);
    let received = packet(false, 1000, None, [10, 0, 0, 2]);
    let (kind, done) = (bench.kind(&received, false), Arc::new(AtomicBool::new(false)));
    // One for both: a connection without packets for long ends.
    let time = Arc::new(AtomicU64::new(bench.now.0));
    let publisher = {
        let (kernel, conntrack) = (bench.kernel.clone(), bench.conntrack.clone());
        let (mut received, done, time) = (received.clone(), done.clone(), time.clone());
        std::thread::spawn(move || {
            let (mut tracker, mut forwarded) = (conntrack.tracker(), 0);
            for mark in 0..2000 {
                let now = Nanos(time.load(Relaxed));
                let request = Request {
                    zone: 5,
                    commit: true,
                    mark: Some((mark, u32::MAX)),
                    ..Request::default()
                };
                tracker.track(&request, &mut conntrack::Packet::new(&mut received[14..], false), now);
                for _ in 0..200 {
                    if let Some(device) = kernel.receive(&kind, 60, now) {
                        assert_eq!(device, 102 + mark % 2, "mark {mark}");
                        forwarded += 1;
                        break;
                    }
                    std::thread::yield_now();
                }
            }
            done.store(true, Relaxed);
            forwarded
        })
    };
    while !done.load(Relaxed) && !publisher.is_finished() {
        bench.now += Duration::from_micros(500);
        time.store(bench.now.0, Relaxed);
        let (device, rx_queue) = &mut bench.ports[0];
        assert!(device.inject(&received));
        bench.pipeline.receive(rx_queue, false, bench.now).unwrap();
        bench.pipeline.housekeep(bench.now);
    }
    let forwarded = publisher.join().unwrap();
    assert!(forwarded > 50, "{forwarded}");
}
