//! The scenarios.

use crate::common::fifo;
use crate::offer::{CLASS_PORT, Offer, burst, steady, together};
use crate::policed::Policed;
use crate::scenario::*;
use qos::police::{IngressPolicer, IngressPolicerConfig};
use qos::{
    CodelConfig, Curve, FifoConfig, FqCodelConfig, Hfsc, HfscClass, HfscConfig, Htb, HtbClass, HtbConfig, LeafConfig,
    Netem, NetemConfig, SfqConfig, Shaper, Single,
};

const SECOND: u64 = 1_000_000;

/// Packets arrive at 100 and 200 µs after the times at which packets leave the full queue: those
/// are 400 µs apart, and 22 µs before a multiple of that, because of the burst. A kernel that takes
/// a microsecond more drops the same packets.
pub(crate) fn fifo_with_a_limit() -> Scenario {
    Scenario {
        name: "fifo",
        tc: on_a_link("pfifo limit 50"),
        offers: together([
            burst(Offer::new(0, 1000), 30),
            burst(Offer::new(10_000, 500), 80),
            burst(Offer::new(60_000, 1000), 1),
            steady(Offer::new(60_100, 1000).flow(1), 1200, 400_000),
            steady(Offer::new(60_200, 500).flow(2), 400, 400_000),
        ]),
        ours: || single(fifo(50)),
        // Packets of a burst arrive when the machine has them ready.
        near: Near { fates: 4, ..Near::SAME },
    }
}

pub(crate) fn three_bands() -> Scenario {
    let mut tc = on_a_link("pfifo_fast");
    tc.push(format!("qdisc add dev {DEV} clsact"));
    for priority in [1, 2, 4, 6, 7, 9] {
        let port = CLASS_PORT + priority;
        tc.push(format!(
            "filter add dev {DEV} egress protocol ip prio 1 u32 match ip dport {port} 0xffff action skbedit priority {priority}"
        ));
    }
    let series = [0, 1, 2, 4, 6, 7, 9].map(|priority: u16| {
        let first = Offer::new(u64::from(priority) * 110, 900).class(priority);
        steady(first, 3_000, 200_000)
    });
    Scenario {
        name: "pfifo_fast",
        tc,
        offers: together(series),
        ours: || single(LeafConfig::PfifoFast(FifoConfig::default())),
        near: Near::SAME,
    }
}

/// Six flows of different packets, each with more than its share to send.
fn six_flows(end: u64) -> Vec<Offer> {
    let sizes = [200, 400, 600, 800, 1200, 1400];
    together((0..6).zip(sizes).map(|(flow, bytes)| {
        let first = Offer::new(u64::from(flow) * 37, bytes).flow(flow);
        steady(first, u64::from(bytes) * 8 / 3, end)
    }))
}

fn sfq(limit: u64) -> Vec<String> {
    let mut tc = on_a_link(&format!("sfq limit {limit} depth 100 quantum 1514 headdrop"));
    tc.extend((0..6).map(by_flow));
    tc
}

pub(crate) fn turns_of_bytes() -> Scenario {
    Scenario {
        name: "sfq",
        tc: sfq(600),
        offers: six_flows(100_000),
        ours: || {
            single(LeafConfig::Sfq(
                SfqConfig::new(0, 1514).unwrap().limits(600, 100, 1024).unwrap(),
            ))
        },
        near: Near::SAME,
    }
}

pub(crate) fn the_longest_queue_pays() -> Scenario {
    Scenario {
        name: "sfq-limit",
        tc: sfq(60),
        offers: six_flows(300_000),
        ours: || {
            single(LeafConfig::Sfq(
                SfqConfig::new(0, 1514).unwrap().limits(60, 100, 1024).unwrap(),
            ))
        },
        // Of queues of one length either may be taken.
        near: Near {
            moved: 20,
            fates: 30,
            ..Near::SAME
        },
    }
}

fn codel_config(limit: u64, ecn: bool) -> CodelConfig {
    CodelConfig::new(5_000, 100_000, limit, ecn).unwrap()
}

/// The kernel estimates 1/√count by steps of Newton's method, of which the first is far off: there
/// the second drop comes after half an interval, where RFC 8289 and we wait 0.7 of it. From then on
/// other packets are dropped, but as many.
fn codel_near(wait: u64) -> Near {
    Near {
        moved: 0,
        drops: 5,
        share: 0.01,
        wait,
        ..Near::SHARES
    }
}

pub(crate) fn codel_under_overload() -> Scenario {
    Scenario {
        name: "codel",
        tc: on_a_link("codel limit 1000 target 5ms interval 100ms noecn"),
        offers: together([steady(Offer::new(0, 1000), 640, 2 * SECOND)]),
        ours: || single(LeafConfig::Codel(codel_config(1000, false))),
        near: codel_near(3_000),
    }
}

pub(crate) fn codel_comes_back() -> Scenario {
    let load = |from: u64, until: u64| steady(Offer::new(from, 1000), 650, until);
    Scenario {
        name: "codel-again",
        tc: on_a_link("codel limit 1000 target 5ms interval 100ms noecn"),
        // The third follows at once and takes up the count of the second; the fourth comes too late
        // for that.
        offers: together([
            load(0, SECOND / 2),
            load(SECOND * 8 / 10, SECOND * 15 / 10),
            load(SECOND * 18 / 10, SECOND * 22 / 10),
            load(SECOND * 45 / 10, SECOND * 5),
        ]),
        ours: || single(LeafConfig::Codel(codel_config(1000, false))),
        near: codel_near(1_000),
    }
}

pub(crate) fn codel_marks() -> Scenario {
    let offer = Offer {
        ecn: true,
        ..Offer::new(0, 1000)
    };
    Scenario {
        name: "codel-ecn",
        tc: on_a_link("codel limit 1000 target 5ms interval 100ms ecn"),
        offers: together([
            steady(offer, 720, SECOND),
            steady(Offer::new(350, 200).flow(1), 10_000, SECOND),
        ]),
        ours: || single(LeafConfig::Codel(codel_config(1000, true))),
        near: codel_near(1_500),
    }
}

fn bulk_and_thin(end: u64) -> Vec<Offer> {
    let bulk = (1..5).map(|flow: u16| steady(Offer::new(u64::from(flow) * 53, 1400).flow(flow), 2_000, end));
    together(bulk.chain([steady(Offer::new(5_000, 120), 9_000, end)]))
}

fn fq_codel(options: &str) -> Vec<String> {
    let mut tc = on_a_link(&format!("fq_codel flows 1024 quantum 1514 {options}"));
    tc.extend((0..5).map(by_flow));
    tc
}

pub(crate) fn new_flows_first() -> Scenario {
    Scenario {
        name: "fq_codel",
        tc: fq_codel("limit 10240 target 5ms interval 100ms noecn"),
        offers: bulk_and_thin(SECOND),
        ours: || {
            single(LeafConfig::FqCodel(
                FqCodelConfig::new(codel_config(10_240, false), 1024, 1514).unwrap(),
            ))
        },
        near: Near {
            moved: 10,
            drops: 15,
            ..codel_near(8_000)
        },
    }
}

pub(crate) fn the_fattest_flow_pays() -> Scenario {
    Scenario {
        name: "fq_codel-limit",
        tc: fq_codel("limit 100 target 900ms interval 1s noecn"),
        // So patient a CoDel drops nothing. One flow has far more to send than the link carries,
        // the others less than their share.
        offers: together([
            steady(Offer::new(5_000, 120), 9_000, SECOND / 2),
            steady(Offer::new(0, 1400).flow(1), 800, SECOND / 2),
            burst(Offer::new(100_000, 700).flow(1), 90),
            steady(Offer::new(100, 600).flow(2), 2_500, SECOND / 2),
            steady(Offer::new(700, 300).flow(3), 1_700, SECOND / 2),
        ]),
        ours: || {
            single(LeafConfig::FqCodel(
                FqCodelConfig::new(CodelConfig::new(900_000, 1_000_000, 100, false).unwrap(), 1024, 1514).unwrap(),
            ))
        },
        near: Near { moved: 5, ..Near::SAME },
    }
}

/// Classes of HTB: number, parent (0: the port's), rate, ceiling, quantum, priority.
type HtbRow = (u32, u32, u64, u64, u64, u64);

fn htb(rows: &[HtbRow], limit: u64) -> Vec<String> {
    let root = 0xfffe;
    let mut tc = vec![
        format!("qdisc add dev {DEV} root handle 1: htb default 1"),
        htb_class("1:", root, &rates(LINK, LINK)),
    ];
    for &(number, parent, rate, ceil, quantum, priority) in rows {
        let parent = if parent == 0 { root } else { parent };
        let rates = rates(rate, ceil);
        tc.push(htb_class(
            &format!("1:{parent:x}"),
            number,
            &format!("prio {priority} {rates} quantum {quantum}"),
        ));
    }
    for &(number, ..) in rows {
        if rows.iter().all(|row| row.1 != number) {
            tc.push(pfifo(number, limit));
            tc.push(by_class(number as u16));
        }
    }
    tc
}

fn our_htb(rows: &[HtbRow], limit: u64) -> Ours {
    let classes = rows.iter().map(|&(number, parent, rate, ceil, quantum, priority)| {
        let class = HtbClass::new(number)
            .unwrap()
            .min_rate(rate)
            .unwrap()
            .max_rate(ceil)
            .unwrap();
        let class = class
            .burst(BURST * 8)
            .unwrap()
            .quantum(quantum)
            .unwrap()
            .priority(priority)
            .leaf(fifo(limit));
        if parent == 0 { class } else { class.parent(parent) }
    });
    Box::new(Htb::new(&HtbConfig::new(LINK, classes.collect()).unwrap()).unwrap())
}

/// 1000-byte packets of a class every `period` µs.
fn load(class: u16, period: u64, from: u64, until: u64) -> Vec<Offer> {
    steady(
        Offer::new(from + u64::from(class) * 41, 1000).class(class).flow(class),
        period,
        until,
    )
}

const BORROWERS: &[HtbRow] = &[
    (1, 0, 2_000_000, 10_000_000, 2_000, 0),
    (2, 0, 3_000_000, 10_000_000, 3_000, 0),
    (3, 0, 1_000_000, 4_000_000, 1_000, 0),
];

pub(crate) fn classes_borrow() -> Scenario {
    Scenario {
        name: "htb",
        tc: htb(BORROWERS, 40),
        offers: together([
            load(1, 1_000, 0, 2 * SECOND),
            load(2, 900, 0, SECOND),
            load(3, 1_100, 0, 2 * SECOND),
        ]),
        ours: || our_htb(BORROWERS, 40),
        near: Near {
            wait: 800,
            ..Near::SHARES
        },
    }
}

const RANKED: &[HtbRow] = &[
    (1, 0, 1_000_000, 10_000_000, 1_500, 0),
    (2, 0, 1_000_000, 10_000_000, 1_500, 1),
    (3, 0, 2_000_000, 10_000_000, 1_500, 7),
];

pub(crate) fn classes_have_priorities() -> Scenario {
    Scenario {
        name: "htb-priority",
        tc: htb(RANKED, 40),
        offers: together([
            load(1, 2_000, 0, 16 * SECOND / 10),
            load(2, 1_000, 0, 16 * SECOND / 10),
            load(3, 1_200, 0, 16 * SECOND / 10),
        ]),
        ours: || our_htb(RANKED, 40),
        near: Near::SAME,
    }
}

const FAMILIES: &[HtbRow] = &[
    (1, 0, 4_000_000, 6_000_000, 2_000, 0),
    (2, 0, 6_000_000, 10_000_000, 3_000, 0),
    (11, 1, 1_000_000, 6_000_000, 1_000, 0),
    (12, 1, 3_000_000, 6_000_000, 3_000, 0),
    (21, 2, 2_000_000, 10_000_000, 2_000, 0),
    (22, 2, 4_000_000, 5_000_000, 4_000, 0),
];

pub(crate) fn a_tree_of_classes() -> Scenario {
    Scenario {
        name: "htb-tree",
        tc: htb(FAMILIES, 40),
        // First all want more than they get; then a whole family is silent; then one of each.
        offers: together([
            load(11, 1_000, 0, 2 * SECOND),
            load(12, 1_100, 0, SECOND),
            load(21, 1_300, 0, SECOND / 2),
            load(22, 1_000, 0, SECOND / 2),
            load(21, 1_300, SECOND * 3 / 2, 2 * SECOND),
        ]),
        ours: || our_htb(FAMILIES, 40),
        near: Near {
            wait: 2_000,
            ..Near::SHARES
        },
    }
}

pub(crate) fn a_token_bucket() -> Scenario {
    Scenario {
        name: "tbf",
        tc: vec![format!(
            "qdisc add dev {DEV} root tbf rate {LINK}bit burst 5000b limit 400000b"
        )],
        offers: together([
            burst(Offer::new(0, 1000), 20),
            burst(Offer::new(50_000, 1000), 60),
            steady(Offer::new(200_000, 1000), 790, SECOND),
        ]),
        // A bucket passes a packet that it has tokens for, a link one that it is free for: a packet
        // less.
        ours: || Box::new(Shaper::new(Single::new(&fifo(1000)), Some(link(4_000)))),
        near: Near::SAME,
    }
}

/// Classes of HFSC: number, parent (0: the port's), then real-time, link-share and upper-limit
/// curves as (m1, d in µs, m2).
type HfscRow = (u32, u32, Option<HfscCurve>, Option<HfscCurve>, Option<HfscCurve>);
type HfscCurve = (u64, u64, u64);

fn hfsc(rows: &[HfscRow], limit: u64) -> Vec<String> {
    let root = 0xfffe;
    let class = |parent: &str, number: u32, curves: &str| {
        format!("class add dev {DEV} parent {parent} classid 1:{number:x} hfsc{curves}")
    };
    let curve = |kind: &str, curve: Option<HfscCurve>| {
        curve.map_or(String::new(), |(m1, d, m2)| {
            format!(" {kind} m1 {m1}bit d {d}us m2 {m2}bit")
        })
    };
    let mut tc = vec![
        format!("qdisc add dev {DEV} root handle 1: hfsc default 1"),
        class("1:", root, &format!(" ls m2 {LINK}bit ul m2 {LINK}bit")),
    ];
    for &(number, parent, rt, ls, ul) in rows {
        let parent = if parent == 0 { root } else { parent };
        let curves = curve("rt", rt) + &curve("ls", ls) + &curve("ul", ul);
        tc.push(class(&format!("1:{parent:x}"), number, &curves));
    }
    for &(number, ..) in rows {
        if rows.iter().all(|row| row.1 != number) {
            tc.push(pfifo(number, limit));
            tc.push(by_class(number as u16));
        }
    }
    tc
}

fn our_hfsc(rows: &[HfscRow], limit: u64) -> Ours {
    let curve = |(m1, d, m2): HfscCurve| Curve::new("curve", m1, d, m2).unwrap();
    let classes = rows.iter().map(|&(number, parent, rt, ls, ul)| {
        let mut class = HfscClass::new(number).unwrap().leaf(fifo(limit));
        if parent != 0 {
            class = class.parent(parent);
        }
        if let Some(rt) = rt {
            class = class.rt(curve(rt));
        }
        if let Some(ls) = ls {
            class = class.ls(curve(ls));
        }
        if let Some(ul) = ul {
            class = class.ul(curve(ul));
        }
        class
    });
    Box::new(Hfsc::new(&HfscConfig::new(LINK, classes.collect()).unwrap()).unwrap())
}

/// A curve of one rate.
const fn linear(rate: u64) -> Option<HfscCurve> {
    Some((rate, 0, rate))
}

const SHARERS: &[HfscRow] = &[
    (1, 0, linear(1_000_000), linear(1_000_000), None),
    (2, 0, linear(2_000_000), linear(2_000_000), None),
    (3, 0, linear(5_000_000), linear(5_000_000), linear(6_000_000)),
];

pub(crate) fn curves_of_one_rate() -> Scenario {
    Scenario {
        name: "hfsc",
        tc: hfsc(SHARERS, 40),
        offers: together([
            load(1, 1_000, 0, 2 * SECOND),
            load(2, 900, 0, SECOND),
            load(3, 1_000, 0, 2 * SECOND),
        ]),
        ours: || our_hfsc(SHARERS, 40),
        near: Near {
            wait: 8_000,
            ..Near::SHARES
        },
    }
}

const VOICE_AND_BULK: &[HfscRow] = &[
    (1, 0, Some((1_600_000, 2_000, 200_000)), linear(200_000), None),
    (2, 0, None, linear(6_000_000), None),
    (3, 0, linear(2_000_000), linear(2_000_000), None),
];

pub(crate) fn delay_apart_from_rate() -> Scenario {
    Scenario {
        name: "hfsc-realtime",
        tc: hfsc(VOICE_AND_BULK, 40),
        offers: together([
            // 400 bytes each 20 ms are 160 kbit/s, due within 2 ms each.
            steady(Offer::new(3_100, 400).class(1).flow(1), 20_000, 3 * SECOND / 2),
            load(2, 1_100, 0, 3 * SECOND / 2),
            load(3, 1_300, 0, 3 * SECOND / 2),
        ]),
        ours: || our_hfsc(VOICE_AND_BULK, 40),
        near: Near {
            wait: 4_000,
            ..Near::SHARES
        },
    }
}

const HOUSES: &[HfscRow] = &[
    (1, 0, None, linear(4_000_000), None),
    (2, 0, None, linear(6_000_000), None),
    (11, 1, None, linear(1_000_000), None),
    (12, 1, linear(1_000_000), linear(3_000_000), None),
    (21, 2, None, linear(2_000_000), None),
    (22, 2, None, Some((1_000_000, 200_000, 4_000_000)), None),
];

pub(crate) fn a_tree_of_curves() -> Scenario {
    Scenario {
        name: "hfsc-tree",
        tc: hfsc(HOUSES, 40),
        offers: together([
            load(11, 1_000, 0, 2 * SECOND),
            load(12, 1_100, 0, SECOND),
            load(21, 1_300, 0, SECOND / 2),
            load(22, 1_000, 0, SECOND / 2),
            load(21, 1_300, SECOND * 3 / 2, 2 * SECOND),
        ]),
        ours: || our_hfsc(HOUSES, 40),
        near: Near {
            wait: 8_000,
            ..Near::SHARES
        },
    }
}

const FENCED: &[HfscRow] = &[
    (1, 0, None, linear(4_000_000), linear(4_000_000)),
    (2, 0, None, linear(3_000_000), linear(3_000_000)),
    (11, 1, None, linear(1_000_000), None),
    (12, 1, linear(1_000_000), linear(3_000_000), None),
];

/// All classes are backlogged all the time: in the kernel a class can catch up on an unused upper
/// limit later, but not here.
pub(crate) fn upper_limits() -> Scenario {
    Scenario {
        name: "hfsc-limits",
        tc: hfsc(FENCED, 40),
        offers: together([
            load(11, 1_000, 0, SECOND),
            load(12, 1_100, 0, SECOND),
            load(2, 1_300, 0, SECOND),
        ]),
        ours: || our_hfsc(FENCED, 40),
        near: Near {
            wait: 8_000,
            ..Near::SHARES
        },
    }
}

fn netem(options: &str) -> Vec<String> {
    vec![format!("qdisc add dev {DEV} root netem {options}")]
}

fn our_netem(latency: u64, jitter: u64, loss: f64, limit: u64) -> Ours {
    Box::new(Netem::new(NetemConfig::new(latency, jitter, loss, limit, 1).unwrap()))
}

pub(crate) fn a_network_that_delays() -> Scenario {
    Scenario {
        name: "netem",
        tc: netem("limit 25 delay 20ms"),
        offers: together([
            steady(Offer::new(0, 500), 1_000, 200_000),
            steady(Offer::new(200_000, 500), 700, 400_000),
        ]),
        ours: || our_netem(20_000, 0, 0.0, 25),
        near: Near {
            fates: 30,
            ..Near::SAME
        },
    }
}

pub(crate) fn a_network_that_jitters() -> Scenario {
    Scenario {
        name: "netem-jitter",
        tc: netem("limit 1000 delay 20ms 8ms"),
        offers: steady(Offer::new(0, 300), 1_000, 2 * SECOND),
        ours: || our_netem(20_000, 8_000, 0.0, 1000),
        near: Near {
            moved: 30,
            late: 14_000,
            share: 0.02,
            wait: 1_000,
            ..Near::SAME
        },
    }
}

pub(crate) fn a_network_that_loses() -> Scenario {
    Scenario {
        name: "netem-loss",
        tc: netem("limit 1000 loss 10%"),
        offers: steady(Offer::new(0, 300), 500, SECOND),
        ours: || our_netem(0, 0, 10.0, 1000),
        near: Near {
            drops: 40,
            share: 0.08,
            ..Near::SHARES
        },
    }
}

pub(crate) fn a_policer() -> Scenario {
    Scenario {
        name: "police",
        tc: vec![
            format!("qdisc add dev {DEV} clsact"),
            format!(
                "filter add dev {DEV} egress matchall action police rate 1000kbit burst 10000b conform-exceed drop/pipe"
            ),
        ],
        offers: together([
            burst(Offer::new(0, 500), 40),
            steady(Offer::new(10_000, 1000), 4_000, SECOND),
            steady(Offer::new(SECOND, 300), 700, 2 * SECOND),
        ]),
        ours: || {
            Box::new(Policed {
                policer: IngressPolicer::new(IngressPolicerConfig::new(1000, 80, 0, 0).unwrap()),
                behind: Single::new(&fifo(1000)),
            })
        },
        // Tokens of less than the microsecond that a record tells decide whether a packet passes or
        // the next one does.
        near: Near {
            fates: 30,
            drops: 1,
            ..Near::SAME
        },
    }
}
