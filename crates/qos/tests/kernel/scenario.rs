//! A scenario: the kernel's commands, our configuration, the offered packets, and the tolerances.

use crate::common::Parcel;
use crate::offer::{CLASS_PORT, FLOW_PORT, Offer};
use qos::{LeafConfig, LinkLayer, Nanos, PortSpeed, Scheduler, Shaper, Single};

/// The device that has the kernel's qdisc.
pub(crate) const DEV: &str = "eth0";

/// The rate of the link in most scenarios, in bit/s: 1000 bytes take 800 µs.
pub(crate) const LINK: u64 = 10_000_000;

/// What a class can send at once, in bytes: two maximum packets.
pub(crate) const BURST: u64 = 3_028;

pub(crate) type Ours = Box<dyn Scheduler<Parcel>>;

/// A discipline of the kernel's and one of ours, with packets for both.
pub(crate) struct Scenario {
    pub name: &'static str,
    /// The words after `tc`, command by command.
    pub tc: Vec<String>,
    pub offers: Vec<Offer>,
    pub ours: fn() -> Ours,
    pub near: Near,
}

/// Tolerances of a comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Near {
    /// By how many places a packet may be earlier or later in the order of leaving.
    pub moved: usize,
    /// How many packets may be dropped by one and not by the other.
    pub fates: usize,
    /// By how many the numbers of dropped, and of marked, packets may differ.
    pub drops: usize,
    /// By how many µs a packet may leave earlier or later than the others do: all but the worst
    /// twentieth, for a machine that sends a burst reads nothing meanwhile.
    pub late: u64,
    /// By how much a class's bytes may differ, in each quarter of the time, as a part of what all
    /// classes sent in it.
    pub share: f64,
    /// By how many µs the mean wait of a class's packets may differ, in each quarter of the time.
    pub wait: u64,
}

impl Near {
    /// The same packets in the same order, each at the same time except for the kernel's path.
    pub(crate) const SAME: Near = Near {
        moved: 0,
        fates: 0,
        drops: 0,
        late: 100,
        share: 0.01,
        wait: 400,
    };
    /// Only numbers and shares, to 2 %.
    pub(crate) const SHARES: Near = Near {
        moved: usize::MAX,
        fates: usize::MAX,
        drops: usize::MAX,
        late: u64::MAX,
        share: 0.02,
        wait: u64::MAX,
    };
}

/// A qdisc under a single HTB class that is the link: the commands before it, and `1:1` as its
/// parent.
pub(crate) fn on_a_link(qdisc: &str) -> Vec<String> {
    vec![
        format!("qdisc add dev {DEV} root handle 1: htb default 1"),
        htb_class("1:", 1, &rates(LINK, LINK)),
        format!("qdisc add dev {DEV} parent 1:1 handle 10: {qdisc}"),
    ]
}

/// Ours on the same link.
pub(crate) fn single(leaf: LeafConfig) -> Ours {
    Box::new(Shaper::new(Single::new(&leaf), Some(link(BURST))))
}

/// A link that makes up for so many bytes.
pub(crate) fn link(burst: u64) -> PortSpeed {
    let slack = Nanos(burst * 8_000_000_000 / LINK);
    PortSpeed::new(LINK).unwrap().link(LinkLayer::FRAME).slack(slack)
}

/// A class of HTB with a leaf of 1000 packets.
pub(crate) fn htb_class(parent: &str, number: u32, rest: &str) -> String {
    format!("class add dev {DEV} parent {parent} classid 1:{number:x} htb {rest}")
}

pub(crate) fn rates(rate: u64, ceil: u64) -> String {
    format!("rate {rate}bit ceil {ceil}bit burst {BURST}b cburst {BURST}b")
}

/// FIFO of so many packets as the leaf of a class.
pub(crate) fn pfifo(number: u32, limit: u64) -> String {
    format!("qdisc add dev {DEV} parent 1:{number:x} pfifo limit {limit}")
}

/// Packets of a class go to the class of that number.
pub(crate) fn by_class(class: u16) -> String {
    let port = CLASS_PORT + class;
    format!("filter add dev {DEV} parent 1: protocol ip prio 1 u32 match ip dport {port} 0xffff flowid 1:{class:x}")
}

/// Packets of a flow go to a queue of their own of the qdisc `10:`, whatever its hash says.
pub(crate) fn by_flow(flow: u16) -> String {
    let (port, queue) = (FLOW_PORT + flow, flow + 1);
    format!("filter add dev {DEV} parent 10: protocol ip prio 1 u32 match ip sport {port} 0xffff flowid 10:{queue:x}")
}
