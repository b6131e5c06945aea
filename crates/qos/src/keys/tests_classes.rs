//! Keys of classes.

use super::tests::{error, read, rows, shown, strings};
use super::*;
use crate::{Curve, HfscConfig, HtbConfig};

fn htb(configured: Configured) -> HtbConfig {
    match configured.discipline {
        Discipline::Htb(config) => config,
        other => panic!("{other:?}"),
    }
}

fn hfsc(configured: Configured) -> HfscConfig {
    match configured.discipline {
        Discipline::Hfsc(config) => config,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_port_has_the_rate_of_its_row_else_of_its_link_else_10_gbit() {
    for kind in ["linux-htb", "linux-hfsc"] {
        assert_eq!(read(kind, "max-rate=5000000", &[]).rate, Some(5_000_000));
        assert_eq!(read(kind, "", &[]).rate, Some(10_000_000_000));
        let link = Link {
            speed: Some(100_000_000),
            ..Link::default()
        };
        let configured = discipline(kind, &Strings::new(), &BTreeMap::new(), &link).unwrap();
        assert_eq!(configured.rate, Some(100_000_000));
        assert_eq!(shown(&configured.details), "max-rate=100000000");
        for wrong in ["max-rate=0", "max-rate=-1", "max-rate=1M", "max-rate=4398046511105"] {
            assert!(
                error(kind, wrong, &[]).starts_with(&format!("QoS: {wrong}: not ")),
                "{wrong}"
            );
        }
    }
}

#[test]
fn queue_0_is_always_there() {
    for kind in ["linux-htb", "linux-hfsc", "linux-sfq", "linux-noop", "linux-netem"] {
        assert_eq!(
            read(kind, "", &[]).queues.keys().copied().collect::<Vec<_>>(),
            [0],
            "{kind}"
        );
    }
    let configured = read("linux-htb", "max-rate=1000000", &[(7, "min-rate=500000")]);
    assert_eq!(configured.queues.keys().copied().collect::<Vec<_>>(), [0, 7]);
    let default = &configured.queues[&0];
    assert_eq!(shown(&default.details), "burst=24224 min-rate=12000 max-rate=1000000");
    assert_eq!((default.min_rate, default.max_rate), (None, None));
}

#[test]
fn every_key_of_htb_reaches_its_class() {
    let keys = "min-rate=2000000 max-rate=5000000 burst=80000 priority=4";
    let configured = read("linux-htb", "max-rate=10000000", &[(0, "min-rate=1000000"), (3, keys)]);
    let queue = &configured.queues[&3];
    assert_eq!(
        shown(&queue.details),
        "burst=80000 priority=4 min-rate=2000000 max-rate=5000000"
    );
    assert_eq!((queue.min_rate, queue.max_rate), (Some(2_000_000), Some(5_000_000)));
    assert!(configured.warnings.is_empty(), "{:?}", configured.warnings);
    let config = htb(configured);
    let class = &config.classes[1];
    assert_eq!((class.number, class.min_rate.bits_per_second()), (3, 2_000_000));
    assert_eq!(class.max_rate.map(Rate::bits_per_second), Some(5_000_000));
    assert_eq!((class.burst, class.priority), (Some(10_000), 1));
}

#[test]
fn a_burst_that_is_too_small_is_raised_and_rates_have_a_floor() {
    let configured = read(
        "linux-htb",
        "max-rate=10000000",
        &[(1, "min-rate=1 max-rate=8000 burst=1")],
    );
    let queue = &configured.queues[&1];
    assert_eq!(shown(&queue.details), "burst=24224 min-rate=12000 max-rate=12000");
}

#[test]
fn of_priorities_the_order_counts() {
    let queues = [
        (1, "priority=4000000000"),
        (2, "priority=20"),
        (3, "priority=7"),
        (4, ""),
    ];
    let config = htb(read("linux-htb", "", &queues));
    let priority = |number| {
        config
            .classes
            .iter()
            .find(|class| class.number == number)
            .map(|c| c.priority)
    };
    assert_eq!([1, 2, 3, 4].map(priority), [Some(3), Some(2), Some(1), Some(0)]);
    let many: Vec<(u32, String)> = (1..=9).map(|n| (n, format!("priority={}", n * 10))).collect();
    let many: Vec<(u32, &str)> = many.iter().map(|(n, text)| (*n, text.as_str())).collect();
    let configured = read("linux-htb", "", &many);
    assert!(
        configured.warnings[0].contains("10 priorities"),
        "{:?}",
        configured.warnings
    );
    let config = htb(configured);
    assert_eq!(config.classes.iter().map(|class| class.priority).max(), Some(7));
    let wrong = error("linux-htb", "", &[(1, "priority=4294967296")]);
    assert_eq!(wrong, "queue 1: priority=4294967296: not between 0 and 4294967295");
}

#[test]
fn wrong_rates_of_queues_name_the_queue() {
    for kind in ["linux-htb", "linux-hfsc"] {
        for (keys, wanted) in [
            ("min-rate=0", "queue 9: min-rate=0: not between 1 and 4398046511104"),
            ("max-rate=0", "queue 9: max-rate=0: not between 1 and 4398046511104"),
            ("min-rate=fast", "queue 9: min-rate=fast: not a whole number of bit/s"),
            ("min-rate=5 max-rate=4", "queue 9: min-rate=5: more than max-rate=4"),
            ("leaf=red", "queue 9: leaf=red: not one of fifo, sfq, codel, fq_codel"),
            ("leaf=codel ecn=maybe", "queue 9: ecn=maybe: neither true nor false"),
            ("limit=0", "queue 9: limit=0: not between 1 and 1000000"),
        ] {
            assert_eq!(error(kind, "", &[(1, ""), (9, keys)]), wanted);
        }
        let wrong = error(kind, "", &[(61_440, "")]);
        assert_eq!(wrong, "QoS: queues=61440: not between 0 and 61439");
    }
    let wrong = error("linux-htb", "", &[(9, "burst=0")]);
    assert_eq!(wrong, "queue 9: burst=0: not at least 1");
}

#[test]
fn parents_make_a_tree_and_nothing_else() {
    for kind in ["linux-htb", "linux-hfsc"] {
        let chain = [(1, ""), (2, "parent=1"), (3, "parent=2"), (4, "parent=3")];
        let configured = read(kind, "", &chain);
        assert!(shown(&configured.queues[&4].details).contains("parent=3"));
        for (queues, wanted) in [
            (
                &[(0, ""), (1, "parent=0")][..],
                "queue 1: parent=0: queue 0 is for what has no queue, so it can be no parent",
            ),
            (
                &[(1, "parent=0")][..],
                "queue 1: parent=0: queue 0 is for what has no queue, so it can be no parent",
            ),
            (
                &[(1, "parent=5")],
                "queue 1: parent=5: there is no queue of this number",
            ),
            (&[(1, "parent=x")], "queue 1: parent=x: not a whole number of a queue"),
            (
                &[(1, "parent=1")],
                "queue 1: parent=1: the queue would be among its own ancestors",
            ),
            (
                &[(1, "parent=2"), (2, "parent=3"), (3, "parent=2")],
                "queue 2: parent=3: the queue would be among its own ancestors",
            ),
            (
                &[(1, "leaf=sfq"), (2, "parent=1")],
                "queue 1: leaf=sfq: a queue with children takes no packets",
            ),
        ] {
            assert_eq!(error(kind, "", queues), wanted);
        }
    }
}

#[test]
fn ten_thousand_queues_in_a_chain_are_read_in_no_time() {
    let queues: Vec<(u32, String)> = (1..=10_000_u32)
        .map(|n| {
            (
                n,
                if n > 1 {
                    format!("parent={}", n - 1)
                } else {
                    String::new()
                },
            )
        })
        .collect();
    let queues: Vec<(u32, &str)> = queues.iter().map(|(n, text)| (*n, text.as_str())).collect();
    assert_eq!(htb(read("linux-htb", "", &queues)).classes.len(), 10_001);
}

#[test]
fn a_queue_ends_in_the_discipline_that_it_names() {
    for kind in ["linux-htb", "linux-hfsc"] {
        let queues = [
            (0, "limit=50"),
            (1, "leaf=sfq quantum=2000"),
            (2, "leaf=codel target=2000 ecn=true"),
            (3, "leaf=fq_codel flows=16"),
            (4, "leaf=fifo limit=9"),
        ];
        let configured = read(kind, "", &queues);
        assert!(configured.warnings.is_empty(), "{:?}", configured.warnings);
        let ends = |number: u32, wanted: &str| {
            let shown = shown(&configured.queues[&number].details);
            assert!(shown.ends_with(wanted), "{shown}");
        };
        ends(1, " leaf=sfq quantum=2000 perturb=10 limit=1024 depth=127 flows=1024");
        ends(2, " leaf=codel target=2000 limit=10240 interval=100000 ecn=true");
        ends(4, " leaf=fifo limit=9");
        assert!(shown(&configured.queues[&3].details).contains(" leaf=fq_codel target=5000 "));
    }
    let misplaced = read("linux-htb", "", &[(1, "target=5000 rt=5")]);
    assert_eq!(misplaced.warnings.len(), 2);
}

#[test]
fn more_than_there_is_can_be_promised_with_a_warning() {
    let queues = [
        (1, "min-rate=700000"),
        (2, "min-rate=700000"),
        (3, "parent=2 min-rate=800000"),
    ];
    let configured = read("linux-htb", "max-rate=1000000", &queues);
    let wanted = [
        "QoS: the queues are promised 1400000 bit/s together, more than the 1000000 bit/s that there are",
        "queue 2: its children are promised 800000 bit/s together, more than the 700000 bit/s that there are",
    ];
    assert_eq!(configured.warnings, wanted);
    for kind in ["linux-htb", "linux-hfsc"] {
        let configured = read(kind, "max-rate=1000000", &[(1, "min-rate=3000000")]);
        let wanted = "queue 1: min-rate=3000000 is more than the port's 1000000, which counts";
        assert_eq!(configured.warnings, [wanted]);
        assert_eq!(configured.queues[&1].min_rate, Some(1_000_000));
    }
    let queues = [(1, "rt=700000"), (2, "min-rate=700000")];
    let configured = read("linux-hfsc", "max-rate=1000000", &queues);
    assert_eq!(configured.warnings, wanted[..1]);
}

#[test]
fn rates_of_hfsc_are_linear_curves() {
    let queues = [
        (0, ""),
        (1, "min-rate=2000000 max-rate=5000000"),
        (2, "max-rate=99000000"),
    ];
    let configured = read("linux-hfsc", "max-rate=10000000", &queues);
    let shown_of = |number: u32| shown(&configured.queues[&number].details);
    assert_eq!(shown_of(0), "min-rate=12000 max-rate=10000000");
    assert_eq!(shown_of(1), "min-rate=2000000 max-rate=5000000");
    assert_eq!(shown_of(2), "min-rate=12000 max-rate=10000000");
    let queue = &configured.queues[&1];
    assert_eq!((queue.min_rate, queue.max_rate), (Some(2_000_000), Some(5_000_000)));
    let config = hfsc(configured);
    let curve = |rate| Some(Curve::linear("rt", rate).unwrap());
    let class = &config.classes[1];
    assert_eq!(
        (class.rt, class.ls, class.ul),
        (curve(2_000_000), curve(2_000_000), curve(5_000_000))
    );
    let class = &config.classes[0];
    assert_eq!((class.rt, class.ls, class.ul), (curve(12_000), curve(12_000), None));
}

#[test]
fn curves_of_hfsc_are_rates_or_two_pieces() {
    let keys = "rt=6000000/10000/1000000 ls=2000000 ul=5000000/1000/3000000 parent=1";
    let configured = read("linux-hfsc", "", &[(1, "ls=4000000"), (2, keys)]);
    assert!(configured.warnings.is_empty(), "{:?}", configured.warnings);
    assert!(
        shown(&configured.queues[&2].details).contains("rt=6000000/10000/1000000 ls=2000000 ul=5000000/1000/3000000")
    );
    let config = hfsc(configured);
    let (inner, class) = (&config.classes[0], &config.classes[1]);
    assert_eq!(
        (inner.rt, inner.ls),
        (None, Some(Curve::linear("ls", 4_000_000).unwrap()))
    );
    assert_eq!(class.rt, Some(Curve::new("rt", 6_000_000, 10_000, 1_000_000).unwrap()));
    assert_eq!(class.ls, Some(Curve::linear("ls", 2_000_000).unwrap()));
    assert_eq!(class.ul, Some(Curve::new("ul", 5_000_000, 1_000, 3_000_000).unwrap()));
    // A curve replaces only its own default from the rate.
    let config = hfsc(read("linux-hfsc", "", &[(1, "min-rate=1000000 rt=5000000/5000/0")]));
    let class = &config.classes[0];
    assert_eq!(class.rt, Some(Curve::new("rt", 5_000_000, 5_000, 0).unwrap()));
    assert_eq!(class.ls, Some(Curve::linear("ls", 1_000_000).unwrap()));
}

#[test]
fn curves_that_are_none_or_never_send_are_refused() {
    let form = "neither a rate in bit/s nor M1/D/M2 in bit/s, µs, bit/s";
    for (keys, key, rule) in [
        ("rt=fast", "rt=fast", form),
        ("ls=1/2", "ls=1/2", form),
        ("ul=1/2/3/4", "ul=1/2/3/4", form),
        ("ls=1/-2/3", "ls=1/-2/3", form),
        ("ls=0", "ls=0", "not between 1 and 4398046511104"),
        (
            "ls=5/60000001/5",
            "ls=5/60000001/5",
            "its time is not between 0 and 60000000 µs",
        ),
        ("ls=5/10/0", "ls=5/10/0", "its last slope must not be 0"),
        ("rt=5 ls=5 ul=5/10/0", "ul=5/10/0", "its last slope must not be 0"),
        (
            "rt=5/10/0",
            "rt=5/10/0",
            "its last slope must not be 0 where there is no ls",
        ),
        (
            "rt=5 ul=5",
            "ul=5",
            "it limits what ls gives, and there is neither ls nor min-rate",
        ),
        (
            "rt=5 max-rate=5",
            "max-rate=5",
            "it limits what ls gives, and there is neither ls nor min-rate",
        ),
    ] {
        assert_eq!(error("linux-hfsc", "", &[(1, keys)]), format!("queue 1: {key}: {rule}"));
    }
    let wrong = error("linux-hfsc", "", &[(1, "rt=5"), (2, "parent=1")]);
    assert_eq!(
        wrong,
        "queue 1: rt=5: only a queue without children can have a real-time curve"
    );
}

#[test]
fn what_is_read_can_always_be_built() {
    // A scheduler must accept every configuration that the reader accepts; an error there would
    // leave the port without one.
    struct Frame;
    impl crate::Packet for Frame {
        fn bytes(&self) -> u32 {
            1
        }
        fn flow_hash(&self) -> u64 {
            0
        }
        fn mark_ecn(&mut self) -> bool {
            false
        }
    }
    let values = ["", "700000", "4398046511104", "5/10/0", "5/0/5", "0/10/5"];
    let parents = ["", "parent=1", "parent=2", "parent=3"];
    let mut built = 0;
    for rt in values {
        for ls in values {
            for other in ["", "min-rate=5000 leaf=codel", "ul=700000", "max-rate=3 priority=9"] {
                for parent in parents {
                    let pair = |key: &str, value: &str| match value {
                        "" => String::new(),
                        value => format!("{key}={value} "),
                    };
                    let keys = pair("rt", rt) + &pair("ls", ls) + other;
                    let queues = rows(&[(1, &keys), (2, parent), (3, &format!("{parent} min-rate=7"))]);
                    for kind in ["linux-htb", "linux-hfsc"] {
                        let port = strings("max-rate=1000000");
                        let Ok(configured) = discipline(kind, &port, &queues, &Link::default()) else {
                            continue;
                        };
                        built += 1;
                        match configured.discipline {
                            Discipline::Htb(config) => assert!(crate::Htb::<Frame>::new(&config).is_ok()),
                            Discipline::Hfsc(config) => assert!(crate::Hfsc::<Frame>::new(&config).is_ok()),
                            other => panic!("{other:?}"),
                        }
                    }
                }
            }
        }
    }
    assert!(built > 200, "{built}");
}
