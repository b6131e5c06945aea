//! A packet that hits a cache allocates nothing.

use conntrack::Request;
use dp::{
    Action, CacheStats, Credit, DropCause, Effect, FlowHash, PortNo, SetField, Slowpath, Track, Translation, Upcall,
};
use dp_user::pipeline::{BATCH, Budget, Pipeline};
use flow::{Field, Mask, RecircId};
use nanos::Nanos;
use netdev::{DeviceDrops, Frame, Kind, Netdev, Rx, State, Tx, TxReport};
use qos::{Discipline, FqCodelConfig, HtbClass, HtbConfig, LeafConfig, PortConfig, PortSpeed, SfqConfig};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use sys::CountingAlloc;
use wire::{MacAddr, VlanTag};

#[global_allocator]
static ALLOCATOR: CountingAlloc = CountingAlloc;

/// UDP over IPv4, without a checksum.
const PACKET: [u8; 60] = {
    let mut packet = [0; 60];
    packet[12] = 8;
    packet[14] = 0x45;
    packet[17] = 46;
    packet[22] = 64;
    packet[23] = 17;
    packet[24] = 0x7a;
    packet[25] = 0xc0;
    packet[39] = 26;
    packet
};

/// A device that always has packets of some flows, and discards sent ones.
struct Endless {
    event: Arc<OwnedFd>,
    next: u32,
}

impl Rx for Endless {
    fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn recv(&mut self, out: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        for _ in 0..max {
            let mut packet = PACKET;
            self.next = self.next.wrapping_add(1);
            packet[11] = (self.next % 100) as u8;
            out.push(Frame::from_slice(&packet));
        }
        Ok(max)
    }
}

impl Tx for Endless {
    fn send(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        TxReport {
            packets: frames.drain(..).count() as u64,
            ..TxReport::default()
        }
    }
}

impl Netdev for Endless {
    fn name(&self) -> &str {
        "endless"
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

impl Endless {
    fn end(&self) -> Box<Endless> {
        Box::new(Endless {
            event: self.event.clone(),
            next: 0,
        })
    }
}

/// Answers by source address: to one port or the other, a flood, with a tag, headers rewritten,
/// with a label, metered, cut, recirculated, also by a hash, dropped.
struct Switch;

impl Slowpath for Switch {
    fn upcall(&self, upcall: &Upcall<'_>, _: Nanos) -> Translation {
        let (one, two) = (Action::Output(PortNo(1)), Action::Output(PortNo(2)));
        let tag = Action::PushVlan(VlanTag { tpid: 0x8100, tci: 7 });
        let set = |field, value| SetField::new(field, value, u128::MAX).map_or(Action::PopVlan, Action::SetField);
        let (address, port) = (set(Field::Ipv4Dst, 7), set(Field::TpDst, 7));
        let label = Action::PushMpls {
            ethertype: 0x8847,
            lse: 0x140,
        };
        let controller = Action::Punt {
            reason: dp::PuntReason::Controller,
            handle: 1,
            max_len: 20,
        };
        let branch = Action::IfLonger {
            len: 59,
            then: 1,
            otherwise: 1,
        };
        let by_hash = Action::RecircByHash {
            id: RecircId::hashed(9),
            hash: FlowHash::L4 { basis: 0 },
        };
        let again = upcall.key.get(Field::RecircId) != 0;
        let actions: &[Action] = match upcall.key.get(Field::EthSrc) % 10 {
            8 if again => &[address, two],
            0 if again => &[one],
            0 => &[by_hash],
            1 => &[two],
            2 => &[one, two],
            3 => &[one, tag, two],
            4 => &[address, port, one],
            5 => &[Action::Clone(3), address, label, one, two],
            6 => &[Action::Meter(1), Action::Trunc(20), one, two],
            7 => &[controller, one],
            8 => &[
                Action::SetQueue(3),
                Action::Clone(1),
                Action::Recirc(8),
                branch,
                two,
                tag,
                one,
            ],
            _ => &[],
        };
        let mut mask = Mask::exact(Field::EthSrc);
        mask.add(Field::RecircId);
        if upcall.key.get(Field::EthSrc).is_multiple_of(2) {
            mask.add(Field::InPort);
        }
        Translation {
            actions: Arc::from(actions),
            mask,
            deps: Default::default(),
            effects: Default::default(),
            credits: [Credit(1), Credit(upcall.key.get(Field::EthSrc))].into_iter().collect(),
            drop: None,
        }
    }

    fn refresh(&self, _: &[Effect], _: Nanos) {}

    fn port_failed(&self, _: PortNo) {}
}

/// Every packet is of a connection, and leaves by port 2 behind the tracker.
struct Tracker;

impl Slowpath for Tracker {
    fn upcall(&self, upcall: &Upcall<'_>, _: Nanos) -> Translation {
        let track = Track {
            request: Request {
                commit: true,
                ..Request::default()
            },
            fragments: false,
        };
        let mut mask = Mask::exact(Field::RecircId);
        let actions = match upcall.key.get(Field::RecircId) {
            0 => vec![Action::Ct(Arc::new(track)), Action::Recirc(1)],
            _ => {
                mask.add(Field::CtState);
                vec![Action::Output(PortNo(2))]
            }
        };
        Translation {
            actions: actions.into(),
            mask,
            deps: Default::default(),
            effects: Default::default(),
            credits: Default::default(),
            drop: None,
        }
    }

    fn refresh(&self, _: &[Effect], _: Nanos) {}

    fn port_failed(&self, _: PortNo) {}
}

#[test]
fn packets_of_known_connections_are_tracked_without_an_allocation() {
    let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let device = Arc::new(Endless { event, next: 0 });
    let mut pipeline = Pipeline::new(1000, Duration::from_secs(10), Arc::new(Tracker), Arc::default());
    pipeline.add_port(PortNo(2), device.clone());
    let mut rx_queue = Pipeline::rx_queue(PortNo(1), device.end(), Budget::new(8, 256));
    let mut run = |batches: u32, now: Nanos| {
        for _ in 0..batches {
            pipeline.receive(&mut rx_queue, true, now).unwrap();
        }
        pipeline.cache_stats()
    };
    let before = run(100, Nanos::from_secs(1));
    let allocated = CountingAlloc::allocations();
    let after = run(1000, Nanos::from_secs(1));
    assert_eq!(CountingAlloc::allocations() - allocated, 0);
    let hits = |stats: &CacheStats| stats.exact_hits + stats.megaflow_hits;
    assert_eq!(hits(&after) - hits(&before), 2 * 1000 * BATCH as u64);
}

/// Disciplines of each kind: some that send at once, some that hold back and, on a link that is too
/// slow, drop.
fn disciplines() -> Vec<PortConfig> {
    let class = |n| {
        HtbClass::new(n)
            .unwrap()
            .leaf(LeafConfig::FqCodel(FqCodelConfig::default()))
    };
    let htb = HtbConfig::new(20_000_000, vec![class(0), class(3)]).unwrap();
    vec![
        PortConfig::new(Discipline::Leaf(LeafConfig::FqCodel(FqCodelConfig::default()))),
        PortConfig::new(Discipline::Htb(htb)),
        PortConfig {
            discipline: Discipline::Leaf(LeafConfig::Sfq(SfqConfig::default())),
            speed: Some(PortSpeed::new(10_000_000).unwrap()),
        },
    ]
}

#[test]
fn packets_that_hit_a_cache_are_forwarded_without_an_allocation() {
    let disciplines = disciplines();
    for discipline in std::iter::once(None).chain(disciplines.iter().map(Some)) {
        forward(discipline);
    }
}

/// With a scheduler on one of the ports, or without.
fn forward(discipline: Option<&PortConfig>) {
    let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let device = Arc::new(Endless { event, next: 0 });
    let mut pipeline = Pipeline::new(1000, Duration::from_secs(10), Arc::new(Switch), Arc::default());
    pipeline.add_port(PortNo(1), device.clone());
    pipeline.add_port(PortNo(2), device.clone());
    let mut rx_queue = Pipeline::rx_queue(PortNo(1), device.end(), Budget::new(8, 256));
    pipeline.set_qos(PortNo(2), discipline, Nanos::from_secs(1)).unwrap();
    let mut run = |batches: u32, mut now: Nanos| {
        for _ in 0..batches {
            now += Duration::from_millis(1);
            pipeline.receive(&mut rx_queue, true, now).unwrap();
            pipeline.pace(now);
            pipeline.housekeep(now);
        }
        pipeline.cache_stats()
    };
    // Until queues are as long as they get.
    run(2_000, Nanos::from_secs(1));
    // Buffers grow to the size of a report once.
    let before = run(10, Nanos::from_secs(5));
    let allocated = CountingAlloc::allocations();
    let after = run(1000, Nanos::from_secs(7));
    assert_eq!(CountingAlloc::allocations() - allocated, 0, "{discipline:?}");
    assert_eq!(after.upcalls, before.upcalls);
    let hits = after.exact_hits + after.megaflow_hits - before.exact_hits - before.megaflow_hits;
    // Two packets of ten are looked up twice.
    assert_eq!(hits, 1000 * BATCH as u64 * 12 / 10);
    // A link that is too slow was full all the time.
    let slow = discipline.is_some_and(|config| config.speed.is_some());
    assert_eq!(pipeline.drops()[DropCause::QueueFull as usize].1 > 0, slow);
}
