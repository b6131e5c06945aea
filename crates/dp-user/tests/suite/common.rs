//! A switch and devices for tests.
#![allow(dead_code)]

use dp::{Action, Answer, Carried, Changes, Credit, Dep, Effect, PortNo, Punt, Slowpath, Translation, Upcall};
use dp_user::pipeline::{BATCH, Budget, Pipeline, RxQueue};
use flow::{Field, Key, Mask};
use nanos::Nanos;
use netdev::{Dummy, Netdev};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wire::{MacAddr, VlanTag};

type Translator = dyn Fn(&Key, &[u8]) -> Translation + Send + Sync;

/// A slowpath with the test's answers; records the upcalls and reports.
pub(crate) struct FakeSwitch {
    answer: Box<Translator>,
    /// How often the answer about a destination is not there yet.
    pub(crate) late: Mutex<BTreeMap<u128, u32>>,
    /// Whether such an answer is out of date when it comes, and whether there is room for such
    /// questions.
    pub(crate) once: AtomicBool,
    pub(crate) refuses: AtomicBool,
    upcalls: AtomicU64,
    /// Somebody has the tables.
    pub(crate) locked: AtomicBool,
    pub(crate) refreshed: Mutex<Vec<Effect>>,
    /// Sums of the reports, and the time of last use.
    pub(crate) credited: Mutex<BTreeMap<Credit, Carried>>,
    pub(crate) failed: Mutex<Vec<PortNo>>,
    /// Handle, input port and bytes of what went to controllers.
    pub(crate) punts: Mutex<Vec<(u32, PortNo, Vec<u8>)>>,
}

impl FakeSwitch {
    pub(crate) fn new(answer: impl Fn(&Key) -> Translation + Send + Sync + 'static) -> Arc<FakeSwitch> {
        FakeSwitch::with_packet(move |key, _| answer(key))
    }

    pub(crate) fn with_packet(answer: impl Fn(&Key, &[u8]) -> Translation + Send + Sync + 'static) -> Arc<FakeSwitch> {
        Arc::new(FakeSwitch {
            answer: Box::new(answer),
            late: Mutex::default(),
            once: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
            upcalls: AtomicU64::new(0),
            locked: AtomicBool::new(false),
            refreshed: Mutex::default(),
            credited: Mutex::default(),
            failed: Mutex::default(),
            punts: Mutex::default(),
        })
    }

    /// Packets, bytes and time of last use reported for a credit.
    pub(crate) fn credited(&self, credit: u128) -> (u64, u64, Nanos) {
        let credited = self.credited.lock();
        let carried = credited.get(&Credit(credit)).copied().unwrap_or_default();
        (carried.packets, carried.bytes, carried.used)
    }

    pub(crate) fn upcalls(&self) -> u64 {
        self.upcalls.load(Ordering::Relaxed)
    }
}

impl Slowpath for FakeSwitch {
    fn upcall(&self, upcall: &Upcall<'_>, _now: Nanos) -> Translation {
        self.upcalls.fetch_add(1, Ordering::Relaxed);
        (self.answer)(upcall.key, upcall.packet)
    }

    fn try_upcall(&self, upcall: &Upcall<'_>, now: Nanos) -> Answer {
        if self.locked.load(Ordering::Relaxed) {
            return Answer::Busy;
        }
        let late = match self.late.lock().get_mut(&upcall.key.get(Field::EthDst)) {
            None => return Answer::Cache(self.upcall(upcall, now)),
            Some(late) => {
                *late = late.saturating_sub(1);
                *late > 0
            }
        };
        match (late, self.once.load(Ordering::Relaxed)) {
            (true, _) if self.refuses.load(Ordering::Relaxed) => Answer::Refused,
            (true, _) => Answer::Later,
            (false, false) => Answer::Cache(self.upcall(upcall, now)),
            (false, true) => Answer::Once(self.upcall(upcall, now)),
        }
    }

    fn refresh(&self, effects: &[Effect], _now: Nanos) {
        self.refreshed.lock().extend_from_slice(effects);
    }

    fn credit(&self, credits: &[(Credit, Carried)], _now: Nanos) {
        let mut credited = self.credited.lock();
        for (credit, carried) in credits {
            assert!(carried.packets > 0);
            let sum = credited.entry(*credit).or_default();
            sum.packets += carried.packets;
            sum.bytes += carried.bytes;
            sum.used = sum.used.max(carried.used);
        }
    }

    fn port_failed(&self, port: PortNo) {
        self.failed.lock().push(port);
    }

    fn punt(&self, packet: &Punt<'_>, _now: Nanos) -> bool {
        let taken = (packet.handle, packet.in_port, packet.packet.to_vec());
        self.punts.lock().push(taken);
        true
    }
}

/// An answer that looked at some fields.
pub(crate) fn translation(actions: &[Action], fields: &[Field]) -> Translation {
    let mut mask = Mask::EMPTY;
    fields.iter().for_each(|field| mask.add(*field));
    Translation {
        actions: Arc::from(actions),
        mask,
        deps: Default::default(),
        effects: Default::default(),
        credits: Default::default(),
        drop: None,
    }
}

/// The same with dependencies.
pub(crate) fn depending(mut translation: Translation, deps: &[u64]) -> Translation {
    translation.deps = deps.iter().map(|dep| Dep(*dep)).collect();
    translation
}

/// The same with what counts it.
pub(crate) fn credited(mut translation: Translation, credits: &[u128]) -> Translation {
    translation.credits = credits.iter().map(|credit| Credit(*credit)).collect();
    translation
}

pub(crate) fn output(port: u32) -> Action {
    Action::Output(PortNo(port))
}

pub(crate) fn tag(vid: u16) -> VlanTag {
    VlanTag { tpid: 0x8100, tci: vid }
}

/// A frame of 60 bytes between two stations, with a number in its payload.
pub(crate) fn packet(dst: u32, src: u32, number: u32) -> Vec<u8> {
    let mut packet = vec![0; 60];
    packet[..6].copy_from_slice(&mac(dst).0);
    packet[6..12].copy_from_slice(&mac(src).0);
    packet[12..14].copy_from_slice(&[0x88, 0xb5]);
    packet[14..18].copy_from_slice(&number.to_be_bytes());
    packet
}

/// The number in the payload of an untagged [`packet`].
pub(crate) fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[14..18].try_into().unwrap())
}

pub(crate) fn mac(station: u32) -> MacAddr {
    let [a, b, c, d] = station.to_be_bytes();
    MacAddr([2, 0, a, b, c, d])
}

pub(crate) fn dummy(name: &str) -> Arc<Dummy> {
    Arc::new(Dummy::open(name, &BTreeMap::new()).unwrap())
}

/// A pipeline with dummy devices as ports 0 to n − 1, in the hand of the test.
pub(crate) struct Bench {
    pub(crate) pipeline: Pipeline,
    pub(crate) devices: Vec<Arc<Dummy>>,
    pub(crate) rx_queues: Vec<RxQueue>,
    pub(crate) switch: Arc<FakeSwitch>,
    pub(crate) changes: Arc<Changes>,
    pub(crate) now: Nanos,
}

impl Bench {
    pub(crate) fn new(ports: u32, switch: Arc<FakeSwitch>) -> Bench {
        Bench::with(ports, switch, Arc::default(), 200_000)
    }

    pub(crate) fn with(ports: u32, switch: Arc<FakeSwitch>, changes: Arc<Changes>, flow_limit: usize) -> Bench {
        let mut pipeline = Pipeline::new(flow_limit, Duration::from_secs(10), switch.clone(), changes.clone());
        let devices: Vec<_> = (0..ports).map(|n| dummy(&format!("p{n}"))).collect();
        let mut rx_queues = Vec::new();
        for (n, device) in (0..).zip(&devices) {
            pipeline.add_port(PortNo(n), device.clone());
            let rx = device.open_rx().unwrap().remove(0);
            // Actions on the packets of one batch run in their order.
            rx_queues.push(Pipeline::rx_queue(PortNo(n), rx, Budget::new(BATCH as u32, 256)));
        }
        Bench {
            pipeline,
            devices,
            rx_queues,
            switch,
            changes,
            now: Nanos::from_secs(1),
        }
    }

    /// Receives packets on a port and takes them all the way.
    pub(crate) fn receive(&mut self, port: usize, packets: &[Vec<u8>]) {
        // As many as a device's queue has room for.
        for some in packets.chunks(1000) {
            for packet in some {
                assert!(self.devices[port].inject(packet));
            }
            self.drain(port);
        }
    }

    /// Takes what waits on a port all the way.
    pub(crate) fn drain(&mut self, port: usize) {
        let rx_queue = &mut self.rx_queues[port];
        while self.pipeline.receive(rx_queue, false, self.now).unwrap() > 0 {}
    }

    /// Packets sent on a port since the last call.
    pub(crate) fn sent(&self, port: usize) -> Vec<Vec<u8>> {
        self.devices[port].take_sent()
    }

    /// The numbers of the packets sent on a port since the last call.
    pub(crate) fn numbers(&self, port: usize) -> Vec<u32> {
        self.sent(port).iter().map(|packet| number(packet)).collect()
    }

    /// Runs housekeeping until no work is due.
    pub(crate) fn housekeep(&mut self) -> Option<Nanos> {
        loop {
            match self.pipeline.housekeep(self.now) {
                Some(Nanos::ZERO) => {}
                next => return next,
            }
        }
    }
}

/// Waits for something that must come to pass.
pub(crate) fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
