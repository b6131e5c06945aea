//! Packets from memory through the caches to a null device, on one core: the cost of the datapath
//! itself.
//!
//! `io` is the baseline: the same source and sink, without the caches. The other groups differ in
//! the switch's answer: one megaflow for all packets of the port (as one rule `in_port → out`), or
//! one for each pair of stations (as learning does), of one mask or of eight, or to two ports in
//! turn. The group `rewrite` has one megaflow for all packets that changes headers before the
//! output: MAC addresses, an IPv4 address, a port, the fields that a router changes (both MAC
//! addresses, TTL), those of address translation (address and port), a pushed label; `none` runs
//! the same code and changes nothing. The group `recirculation` has a pipeline that recirculates
//! each packet twice, as connection tracking does, beside the same without. `full` is the cost of a
//! packet of a new flow while the table is full.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use dp::{Action, Effect, PortNo, SetField, Slowpath, Translation, Upcall};
use dp_user::pipeline::{BATCH, Budget, Pipeline, RxQueue};
use flow::{Field, Mask};
use nanos::Nanos;
use netdev::{DeviceDrops, Frame, Kind, Netdev, Rx, State, Tx, TxReport};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use wire::{MacAddr, VlanTag};

/// A device that always has packets, and discards sent ones.
struct Memory {
    event: Arc<OwnedFd>,
    packets: Arc<[[u8; 60]]>,
    next: usize,
}

impl Memory {
    fn new(flows: u32) -> Memory {
        Memory {
            event: Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd")),
            packets: (0..flows).map(packet).collect(),
            next: 0,
        }
    }
}

/// A UDP packet of a flow with addresses and ports of its own.
fn packet(flow: u32) -> [u8; 60] {
    let mut packet = [0; 60];
    let id = flow.to_be_bytes();
    packet[..2].copy_from_slice(&[2, 0]);
    packet[2..6].copy_from_slice(&id);
    packet[6..8].copy_from_slice(&[2, 1]);
    packet[8..12].copy_from_slice(&id);
    packet[12..14].copy_from_slice(&[8, 0]);
    packet[14..16].copy_from_slice(&[0x45, 0]);
    packet[16..18].copy_from_slice(&46u16.to_be_bytes());
    packet[22..24].copy_from_slice(&[64, 17]);
    packet[26..30].copy_from_slice(&id);
    packet[30..34].copy_from_slice(&[192, 0, 2, 1]);
    packet[34..36].copy_from_slice(&id[2..]);
    packet[36..38].copy_from_slice(&53u16.to_be_bytes());
    packet[38..40].copy_from_slice(&26u16.to_be_bytes());
    packet
}

impl Rx for Memory {
    fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn recv(&mut self, out: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        for _ in 0..max {
            out.push(Frame::from_slice(&self.packets[self.next]));
            self.next += 1;
            if self.next == self.packets.len() {
                self.next = 0;
            }
        }
        Ok(max)
    }
}

impl Tx for Memory {
    fn send(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        let mut report = TxReport::default();
        for frame in frames.drain(..) {
            report.packets += 1;
            report.bytes += frame.len() as u64;
        }
        report
    }
}

impl Netdev for Memory {
    fn name(&self) -> &str {
        "memory"
    }
    fn kind(&self) -> Kind {
        Kind::Dummy
    }
    fn state(&self) -> io::Result<State> {
        Ok(State::default())
    }
    fn set_mtu(&self, _: u32) -> io::Result<()> {
        Ok(())
    }
    fn set_mac(&self, _: MacAddr) -> io::Result<()> {
        Ok(())
    }
    fn set_up(&self, _: bool) -> io::Result<()> {
        Ok(())
    }
    fn open_rx(&self) -> io::Result<Vec<Box<dyn Rx>>> {
        Ok(vec![self.end()])
    }
    fn open_tx(&self) -> io::Result<Box<dyn Tx>> {
        Ok(self.end())
    }
    fn drops(&self) -> DeviceDrops {
        DeviceDrops::default()
    }
    fn status(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

impl Memory {
    fn end(&self) -> Box<Memory> {
        Box::new(Memory {
            event: self.event.clone(),
            packets: self.packets.clone(),
            next: 0,
        })
    }
}

/// The fields that the switch matches.
#[derive(Clone, Copy)]
enum Looks {
    Port,
    Stations,
    EightWays,
    TwoPorts,
    Rewrite(Rewrite),
    /// Addresses and ports; each packet is recirculated so often.
    Connections(u32),
}

/// The changes to a packet before its output.
#[derive(Clone, Copy)]
enum Rewrite {
    None,
    Mac,
    Ip,
    Port,
    Router,
    Nat,
    Label,
    Vlan,
}

impl Rewrite {
    const ALL: [(&str, Rewrite); 8] = [
        ("none", Rewrite::None),
        ("mac", Rewrite::Mac),
        ("ip", Rewrite::Ip),
        ("port", Rewrite::Port),
        ("router", Rewrite::Router),
        ("nat", Rewrite::Nat),
        ("label", Rewrite::Label),
        ("vlan", Rewrite::Vlan),
    ];

    fn actions(self) -> Vec<Action> {
        let set = |field, value| SetField::new(field, value, u128::MAX).map(Action::SetField);
        let (dst, src) = (
            set(Field::EthDst, 0x0200_0000_0001),
            set(Field::EthSrc, 0x0200_0000_0002),
        );
        let (ip, port) = (set(Field::Ipv4Dst, 0x0a00_0001), set(Field::TpDst, 1053));
        let label = Action::PushMpls {
            ethertype: 0x8847,
            lse: 0x0001_0140,
        };
        let changes = match self {
            // A write of no bits: the way of a packet that is changed, without the change.
            Rewrite::None => vec![SetField::new(Field::EthDst, 0, 0).map(Action::SetField)],
            Rewrite::Mac => vec![dst],
            Rewrite::Ip => vec![ip],
            Rewrite::Port => vec![port],
            Rewrite::Router => vec![dst, src, set(Field::IpTtl, 63)],
            Rewrite::Nat => vec![ip, port],
            Rewrite::Label => vec![Some(label)],
            Rewrite::Vlan => vec![Some(Action::PushVlan(VlanTag { tpid: 0x8100, tci: 7 }))],
        };
        changes.into_iter().flatten().collect()
    }
}

fn answer(mask: Mask, actions: Vec<Action>) -> Translation {
    Translation {
        actions: Arc::from(actions),
        mask,
        deps: Default::default(),
        effects: Default::default(),
        credits: Default::default(),
        drop: None,
    }
}

impl Slowpath for Looks {
    fn upcall(&self, upcall: &Upcall<'_>, _: Nanos) -> Translation {
        let mut mask = Mask::exact(Field::InPort);
        if !matches!(self, Looks::Port | Looks::Rewrite(_)) {
            for field in [Field::EthSrc, Field::EthDst, Field::EthType, Field::VlanTci0] {
                mask.add(field);
            }
        }
        if matches!(self, Looks::EightWays) {
            let way = upcall.key.get(Field::EthSrc) % 8;
            mask.add_bits(Field::Ipv4Src, way);
        }
        if let Looks::Connections(recirculations) = self {
            let fields = [
                Field::EthType,
                Field::IpProto,
                Field::Ipv4Src,
                Field::Ipv4Dst,
                Field::TpSrc,
                Field::TpDst,
            ];
            fields
                .into_iter()
                .chain([Field::RecircId])
                .for_each(|field| mask.add(field));
            let number = upcall.key.get(Field::RecircId) as u32;
            if number < *recirculations {
                return answer(mask, vec![Action::Recirc(number + 1)]);
            }
        }
        let port = match self {
            Looks::TwoPorts => 2 + upcall.key.get(Field::EthSrc) as u32 % 2,
            _ => 2,
        };
        let mut actions = match self {
            Looks::Rewrite(rewrite) => rewrite.actions(),
            _ => Vec::new(),
        };
        actions.push(Action::Output(PortNo(port)));
        answer(mask, actions)
    }

    fn refresh(&self, _: &[Effect], _: Nanos) {}

    fn port_failed(&self, _: PortNo) {}
}

fn pipeline(looks: Looks, flows: u32, limit: usize) -> (Pipeline, RxQueue) {
    let device = Arc::new(Memory::new(flows));
    let mut pipeline = Pipeline::new(limit, Duration::from_secs(10), Arc::new(looks), Arc::default());
    pipeline.add_port(PortNo(2), device.clone());
    pipeline.add_port(PortNo(3), device.clone());
    let mut rx_queue = Pipeline::rx_queue(PortNo(1), device.end(), Budget::new(BATCH as u32, 256));
    // Until the caches have the size that they will have.
    for _ in 0..=8 * flows as usize / BATCH {
        pipeline
            .receive(&mut rx_queue, false, Nanos(1))
            .expect("memory does not fail");
    }
    (pipeline, rx_queue)
}

fn batches(c: &mut Criterion) {
    let mut group = c.benchmark_group("pipeline");
    group.throughput(Throughput::Elements(BATCH as u64));
    group.warm_up_time(Duration::from_millis(300));
    group.measurement_time(Duration::from_secs(1));
    for flows in [1, 1000, 10_000, 100_000, 1_000_000] {
        let mut device = Memory::new(flows);
        let mut frames = Vec::new();
        group.bench_function(format!("io/{flows}"), |b| {
            b.iter(|| {
                let received = device.recv(&mut frames, BATCH);
                black_box((received.is_ok(), device.send(&mut frames)))
            });
        });
        for (name, looks) in [
            ("port", Looks::Port),
            ("stations", Looks::Stations),
            ("eight", Looks::EightWays),
            ("two_ports", Looks::TwoPorts),
        ] {
            let mut made = None;
            group.bench_function(format!("{name}/{flows}"), |b| {
                let (pipeline, rx_queue) = made.get_or_insert_with(|| pipeline(looks, flows, 1_000_000));
                b.iter(|| black_box(pipeline.receive(rx_queue, false, Nanos(2)).is_ok()));
            });
        }
    }
    let mut made = None;
    group.bench_function("full", |b| {
        let (pipeline, rx_queue) = made.get_or_insert_with(|| pipeline(Looks::Stations, 50_000, 25_000));
        b.iter(|| black_box(pipeline.receive(rx_queue, false, Nanos(2)).is_ok()));
    });
    group.finish();
}

fn rewrites(c: &mut Criterion) {
    let mut group = c.benchmark_group("rewrite");
    group.throughput(Throughput::Elements(BATCH as u64));
    group.warm_up_time(Duration::from_millis(300));
    group.measurement_time(Duration::from_secs(1));
    for (name, rewrite) in Rewrite::ALL {
        let mut made = None;
        group.bench_function(name, |b| {
            let (pipeline, rx_queue) = made.get_or_insert_with(|| pipeline(Looks::Rewrite(rewrite), 1000, 1_000_000));
            b.iter(|| black_box(pipeline.receive(rx_queue, false, Nanos(2)).is_ok()));
        });
    }
    group.finish();
}

/// A pipeline that recirculates each packet twice, beside the same without.
fn recirculation(c: &mut Criterion) {
    let mut group = c.benchmark_group("recirculation");
    group.throughput(Throughput::Elements(BATCH as u64));
    group.warm_up_time(Duration::from_millis(300));
    group.measurement_time(Duration::from_secs(1));
    for flows in [1, 1000] {
        for (name, recirculations) in [("none", 0), ("twice", 2)] {
            let mut made = None;
            group.bench_function(format!("{name}/{flows}"), |b| {
                let looks = Looks::Connections(recirculations);
                let (pipeline, rx_queue) = made.get_or_insert_with(|| pipeline(looks, flows, 1_000_000));
                b.iter(|| black_box(pipeline.receive(rx_queue, false, Nanos(2)).is_ok()));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, batches, rewrites, recirculation);
criterion_main!(benches);
