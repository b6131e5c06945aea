//! Every discipline, overloaded: it holds no more than its configuration says, and once it has held
//! that, it allocates nothing.

mod common;

use common::{Parcel, fifo};
use qos::police::{EgressPolicerConfig, TrTcmConfig};
use qos::{
    CodelConfig, Curve, Discipline, FifoConfig, FqCodelConfig, HfscClass, HfscConfig, HtbClass, HtbConfig, LeafConfig,
    Nanos, NetemConfig, Port, PortConfig, PortSpeed, Scheduler, SfqConfig, TrTcmPortConfig,
};
use sys::CountingAlloc;

#[global_allocator]
static ALLOCATOR: CountingAlloc = CountingAlloc;

const LIMIT: u64 = 300;

fn leaves() -> Vec<LeafConfig> {
    let codel = CodelConfig::new(2_000, 20_000, LIMIT, true).unwrap();
    let sfq = SfqConfig::new(1, 1_514).unwrap();
    let fq_codel = FqCodelConfig::new(codel, 16, 500).unwrap();
    vec![
        fifo(LIMIT),
        LeafConfig::PfifoFast(FifoConfig::new(LIMIT).unwrap()),
        LeafConfig::Codel(codel),
        // Fewer queues than flows: they share queues, and move to other queues each second.
        LeafConfig::Sfq(sfq.limits(LIMIT, 127, 8).unwrap()),
        LeafConfig::FqCodel(fq_codel),
        // Where memory is what there is too little of: parcels of at least 60 bytes.
        LeafConfig::FqCodel(fq_codel.memory(65_536).unwrap()),
    ]
}

fn htb(leaf: LeafConfig) -> HtbConfig {
    let class = |n: u32| {
        let class = HtbClass::new(n).unwrap().min_rate(1_000_000).unwrap().leaf(leaf);
        class.priority(u64::from(n) % 3)
    };
    let classes = vec![class(0), class(1), class(2).parent(1), class(3).parent(1), class(4)];
    HtbConfig::new(20_000_000, classes).unwrap()
}

fn hfsc(leaf: LeafConfig) -> HfscConfig {
    let class = |n: u32| {
        let class = HfscClass::new(n).unwrap().rates(1_000_000, Some(8_000_000)).unwrap();
        class.leaf(leaf)
    };
    let top = HfscClass::new(1).unwrap().ls(Curve::linear("ls", 1_000_000).unwrap());
    let classes = vec![class(0), top, class(2).parent(1), class(3).parent(1), class(4)];
    HfscConfig::new(20_000_000, classes).unwrap()
}

/// Every discipline, with the most packets that it may hold.
fn all() -> Vec<(PortConfig, u64)> {
    let mut all = Vec::new();
    for leaf in leaves() {
        all.push((Discipline::Leaf(leaf), LIMIT));
        // Four leaves; HFSC takes the next packet of each out of its discipline.
        all.push((Discipline::Htb(htb(leaf)), 4 * LIMIT));
        all.push((Discipline::Hfsc(hfsc(leaf)), 4 * (LIMIT + 1)));
    }
    let netem = NetemConfig::new(20_000, 5_000, 1.0, LIMIT, 3).unwrap();
    all.push((Discipline::Netem(netem), LIMIT));
    all.push((
        Discipline::EgressPolicer(EgressPolicerConfig::new(1_000_000, 10_000).unwrap()),
        1_000,
    ));
    let marker = TrTcmConfig::new(500_000, 10_000, 500_000, 10_000).unwrap();
    let queues = vec![(0, marker), (3, marker)];
    all.push((Discipline::TrTcm(TrTcmPortConfig { port: marker, queues }), 1_000));
    all.push((Discipline::Noop, 1_000));
    let speed = Some(PortSpeed::new(20_000_000).unwrap());
    all.into_iter()
        .map(|(discipline, most)| (PortConfig { discipline, speed }, most))
        .collect()
}

/// Twice of what the port can send for a while, in flows, queues and priorities of all kinds, and
/// then a pause; again and again.
struct Load {
    now: Nanos,
    random: u64,
    most: u64,
    sent: u64,
    lost: u64,
}

impl Load {
    fn step(&mut self, port: &mut Port<Parcel>, n: u64) {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(n | 1);
        let random = self.random >> 20;
        let mut lost = 0;
        let mut parcel = Parcel::new(n, 60 + (random % 1_400) as u32)
            .flow(random % 40)
            .queue((random >> 8) as u32 % 6);
        (parcel.priority, parcel.ecn) = ((random >> 12) as u8 % 16, random & (1 << 17) != 0);
        let pause = n % 8_000 > 7_600;
        if !pause {
            let _ = port.enqueue(parcel, self.now, &mut |_, _| lost += 1);
        }
        // 760 bytes on average in 150 µs: some 40 Mbit/s.
        self.now = self.now + Nanos(if pause { 1_500_000 } else { 150_000 });
        while port.dequeue(self.now, &mut |_, _| lost += 1).is_some() {
            self.sent += 1;
        }
        self.lost += lost;
        self.most = self.most.max(port.packets());
    }
}

#[test]
fn no_discipline_allocates_for_a_packet_nor_holds_more_than_its_limit() {
    for (config, most) in all() {
        let mut port = Port::new(&config).unwrap();
        let mut load = Load {
            now: Nanos::from_secs(1),
            random: 1,
            most: 0,
            sent: 0,
            lost: 0,
        };
        // Full to the last packet of every queue, and empty again.
        for n in 0..40_000u32 {
            let parcel = Parcel::new(0, 60).queue(n % 6).flow(u64::from(n % 97)).queue(n % 6);
            let _ = port.enqueue(parcel, load.now, &mut |_, _| ());
            load.most = load.most.max(port.packets());
        }
        for n in 0..16_000 {
            load.step(&mut port, n);
        }
        (load.sent, load.lost) = (0, 0);
        let before = CountingAlloc::allocations();
        for n in 16_000..48_000 {
            load.step(&mut port, n);
        }
        let allocations = CountingAlloc::allocations() - before;
        assert_eq!(allocations, 0, "{config:?}");
        assert!(load.most <= most, "{} packets in {config:?}", load.most);
        assert!(
            load.sent > 5_000 && load.lost > 1_000,
            "{} {} {config:?}",
            load.sent,
            load.lost
        );
    }
}

#[test]
fn a_full_port_takes_no_more_memory_however_long_the_overload_lasts() {
    for (config, most) in all() {
        let mut port = Port::new(&config).unwrap();
        let now = Nanos::from_secs(1);
        let mut flood = |from: u64| {
            for n in from..from + 30_000 {
                let parcel = Parcel::new(n, 60 + (n % 1_400) as u32).queue(n as u32 % 6).flow(n % 97);
                let _ = port.enqueue(parcel, now, &mut |_, _| ());
            }
            port.packets()
        };
        let held = flood(0);
        let before = CountingAlloc::allocations();
        let later = flood(30_000);
        assert_eq!(CountingAlloc::allocations() - before, 0, "{config:?}");
        assert!(held <= most && later <= most, "{held} {later} in {config:?}");
    }
}
