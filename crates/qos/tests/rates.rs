//! Rates on virtual time, to the packet: what leaves in a second is the rate, but for the one
//! packet that a second can begin or end in. At the rate of an HTB's port it is one for each leaf:
//! what is a leaf's own it sends whether or not the port has tokens.

mod common;

use common::{Greedy, Parcel, fifo};
use qos::{
    Curve, Hfsc, HfscClass, HfscConfig, Htb, HtbClass, HtbConfig, LinkLayer, Nanos, PortSpeed, Scheduler, Shaper,
    Single,
};

const SECOND: Nanos = Nanos::from_secs(1);

/// Odd rates too: neither a bit nor a packet takes a whole number of nanoseconds.
const RATES: [u64; 11] = [
    64_000,
    65_537,
    128_000,
    1_000_000,
    1_544_000,
    9_999_991,
    100_000_000,
    622_080_000,
    1_000_000_000,
    2_999_999_999,
    10_000_000_000,
];

/// Large where it is fast, to get through a second in no more than some ten thousand packets.
fn size(rate: u64) -> u32 {
    match rate {
        0..=200_000 => 97,
        200_001..=99_999_999 => 1_514,
        100_000_000..=1_000_000_000 => 9_018,
        _ => 30_000,
    }
}

/// One packet at most (`most`) more or less than the rate in each of two seconds; `cost` is what
/// one takes on the link.
fn exact(what: &str, rate: u64, queues: &[u32], cost: u32, most: f64, scheduler: &mut impl Scheduler<Parcel>) {
    let size = size(rate);
    let mut sources = Greedy::new(&queues.iter().map(|queue| (*queue, size)).collect::<Vec<_>>());
    // Bursts are over, and what they took from the port's is paid back.
    sources.run(
        scheduler,
        Nanos::from_millis(if rate < 1_000_000 { 3_000 } else { 300 }),
    );
    for second in 0..2 {
        sources.run(scheduler, SECOND);
        let packets: u64 = queues.iter().map(|queue| sources.sent[queue] / u64::from(size)).sum();
        let wanted = rate as f64 / 8.0 / f64::from(cost);
        let off = packets as f64 - wanted;
        assert!(
            off.abs() <= most,
            "{what} at {rate} bit/s: {packets} packets in second {second} are {off} off"
        );
    }
}

fn htb(rate: u64, classes: Vec<HtbClass>) -> Htb<Parcel> {
    Htb::new(&HtbConfig::new(rate, classes).unwrap()).unwrap()
}

fn class(number: u32, min: u64, max: u64) -> HtbClass {
    let class = HtbClass::new(number).unwrap().min_rate(min).unwrap();
    class.max_rate(max).unwrap()
}

#[test]
fn htb_sends_its_own_its_borrowed_and_its_ports_rate_to_the_packet() {
    for rate in RATES {
        let cost = size(rate);
        let mut own = htb(rate * 2, vec![class(1, rate, rate)]);
        exact("a class's own", rate, &[1], cost, 1.0, &mut own);
        let mut borrowed = htb(rate * 2, vec![class(1, rate / 4, rate)]);
        exact("a class's ceiling", rate, &[1], cost, 1.0, &mut borrowed);
        let mut port = htb(
            rate,
            vec![
                class(1, rate / 4, rate),
                class(2, rate / 8, rate),
                class(3, rate / 16, rate).parent(2),
            ],
        );
        exact("a port's", rate, &[1, 3], cost, 2.0, &mut port);
    }
}

#[test]
fn hfsc_sends_in_real_time_at_its_limit_and_at_its_ports_rate_to_the_packet() {
    let linear = |rate| Curve::linear("curve", rate).unwrap();
    let class = |number| HfscClass::new(number).unwrap();
    for rate in RATES {
        let hfsc = |port, classes| Hfsc::<Parcel>::new(&HfscConfig::new(port, classes).unwrap()).unwrap();
        let cost = size(rate);
        let mut real_time = hfsc(rate * 4, vec![class(1).rt(linear(rate))]);
        exact("real time", rate, &[1], cost, 1.0, &mut real_time);
        let mut limited = hfsc(rate * 4, vec![class(1).ls(linear(rate)).ul(linear(rate))]);
        exact("an upper limit", rate, &[1], cost, 1.0, &mut limited);
        let sharing = vec![class(1).ls(linear(rate)), class(2).ls(linear(rate / 3))];
        exact("a port's", rate, &[1, 2], cost, 1.0, &mut hfsc(rate, sharing));
    }
}

#[test]
fn a_port_sends_at_its_speed_to_the_packet_with_the_overhead_of_ethernet() {
    for rate in RATES {
        let speed = PortSpeed::new(rate).unwrap();
        let mut port = Shaper::new(Single::new(&fifo(100)), Some(speed));
        let cost = LinkLayer::ETHERNET.cost(size(rate), 1);
        exact("a speed", rate, &[0], cost, 1.0, &mut port);
    }
}

#[test]
fn a_rate_counts_the_overhead_that_it_is_told() {
    let rate = 10_000_000;
    let link = LinkLayer::new(42, 100).unwrap();
    let config = HtbConfig::new(rate, vec![class(1, rate, rate)]).unwrap().link(link);
    let cost = link.cost(size(rate), 1);
    assert_eq!(cost, size(rate) + 42);
    exact("HTB", rate, &[1], cost, 1.0, &mut Htb::new(&config).unwrap());
    let linear = Curve::linear("ls", rate).unwrap();
    let classes = vec![HfscClass::new(1).unwrap().ls(linear)];
    let config = HfscConfig::new(rate, classes).unwrap().link(link);
    exact("HFSC", rate, &[1], cost, 1.0, &mut Hfsc::new(&config).unwrap());
}
