//! Keys of kinds without classes, and what is common to all.

use super::*;
use crate::police::EgressPolicerConfig;
use crate::{CodelConfig, FqCodelConfig, LeafConfig, NetemConfig, SfqConfig};

const LINK: Link = Link {
    speed: None,
    mtu: None,
    seed: 7,
};

/// `key=value` pairs.
pub(super) fn strings(text: &str) -> Strings {
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

pub(super) fn rows(queues: &[(u32, &str)]) -> BTreeMap<u32, QueueRow> {
    let row = |text: &str| QueueRow {
        other_config: strings(text),
        dscp: None,
    };
    queues.iter().map(|(number, text)| (*number, row(text))).collect()
}

pub(super) fn read(kind: &str, port: &str, queues: &[(u32, &str)]) -> Configured {
    discipline(kind, &strings(port), &rows(queues), &LINK).expect("the keys are legal")
}

pub(super) fn error(kind: &str, port: &str, queues: &[(u32, &str)]) -> String {
    let refused = discipline(kind, &strings(port), &rows(queues), &LINK);
    refused.expect_err("the keys are not legal").to_string()
}

pub(super) fn shown(details: &Details) -> String {
    let pairs: Vec<String> = details.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(" ")
}

fn leaf(kind: &str, port: &str) -> LeafConfig {
    match read(kind, port, &[]).discipline {
        Discipline::Leaf(leaf) => leaf,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sfq_perturbs_every_10_s_and_its_quantum_is_the_mtu() {
    let default = SfqConfig::new(10, 1500).unwrap().seed(7);
    assert_eq!(leaf("linux-sfq", ""), LeafConfig::Sfq(default));
    let all = SfqConfig::new(3, 3000).unwrap().limits(10, 5, 16).unwrap().seed(7);
    let given = leaf("linux-sfq", "perturb=3 quantum=3000 limit=10 depth=5 flows=16");
    assert_eq!(given, LeafConfig::Sfq(all));
    let jumbo = Link {
        mtu: Some(9000),
        ..LINK
    };
    let configured = discipline("linux-sfq", &Strings::new(), &BTreeMap::new(), &jumbo).unwrap();
    assert!(shown(&configured.details).starts_with("quantum=9000 perturb=10 "));
}

#[test]
fn codel_has_the_defaults_of_the_rfc_and_no_ecn() {
    assert_eq!(leaf("linux-codel", ""), LeafConfig::Codel(CodelConfig::default()));
    let all = CodelConfig::new(1000, 20_000, 50, true).unwrap();
    let given = leaf("linux-codel", "target=1000 interval=20000 limit=50 ecn=true");
    assert_eq!(given, LeafConfig::Codel(all));
    let shown = shown(&read("linux-codel", "", &[]).details);
    assert_eq!(shown, "target=5000 limit=10240 interval=100000 ecn=false");
}

#[test]
fn fq_codel_has_the_defaults_of_the_rfc_and_ecn() {
    assert_eq!(
        leaf("linux-fq_codel", ""),
        LeafConfig::FqCodel(FqCodelConfig::default().seed(7))
    );
    let codel = CodelConfig::new(1000, 20_000, 50, false).unwrap();
    let all = FqCodelConfig::new(codel, 64, 300).unwrap().memory(1 << 20).unwrap();
    let given = leaf(
        "linux-fq_codel",
        "target=1000 interval=20000 limit=50 ecn=false flows=64 quantum=300 memory_limit=1048576",
    );
    assert_eq!(given, LeafConfig::FqCodel(all.seed(7)));
    let shown = shown(&read("linux-fq_codel", "", &[]).details);
    let wanted = "target=5000 limit=10240 interval=100000 ecn=true flows=1024 quantum=1514 memory_limit=33554432";
    assert_eq!(shown, wanted);
}

#[test]
fn netem_delays_in_microseconds_and_loses_percents() {
    let netem = |port: &str| match read("linux-netem", port, &[]).discipline {
        Discipline::Netem(config) => config,
        other => panic!("{other:?}"),
    };
    assert_eq!(netem(""), NetemConfig::new(0, 0, 0.0, 1000, 7).unwrap());
    let all = NetemConfig::new(20_000, 300, 2.5, 99, 7).unwrap();
    assert_eq!(netem("latency=20000 jitter=300 loss=2.5 limit=99"), all);
    for wrong in ["loss=101", "loss=-1", "loss=x", "loss=1e1", "loss=inf"] {
        let error = error("linux-netem", wrong, &[]);
        assert_eq!(error, format!("QoS: {wrong}: not a percentage between 0 and 100"));
    }
}

#[test]
fn an_egress_policer_needs_a_rate_and_a_burst() {
    let configured = read("egress-policer", "cir=46000000 cbs=2048", &[]);
    let wanted = EgressPolicerConfig::new(46_000_000, 2048).unwrap();
    assert!(matches!(configured.discipline, Discipline::EgressPolicer(config) if config == wanted));
    assert_eq!(shown(&configured.details), "cir=46000000 cbs=2048");
    assert_eq!(
        error("egress-policer", "cir=5", &[]),
        "QoS: cbs: required by egress-policer"
    );
    assert_eq!(
        error("egress-policer", "cir=0 cbs=2048", &[]),
        "QoS: cir=0: not between 1 and 1099511627776"
    );
}

#[test]
fn queue_0_of_a_trtcm_policer_is_as_the_port_unless_it_is_configured() {
    let port = "cir=1000 cbs=2000 eir=3000 ebs=4000";
    let configured = read("trtcm-policer", port, &[(2, "cir=1 cbs=2")]);
    assert_eq!(shown(&configured.queues[&0].details), port);
    assert_eq!(shown(&configured.queues[&2].details), "cir=1 cbs=2 eir=0 ebs=0");
    let Discipline::TrTcm(config) = configured.discipline else {
        panic!("another kind");
    };
    assert_eq!(config.queues.len(), 1);
    let configured = read("trtcm-policer", port, &[(0, "cir=1 cbs=2")]);
    assert_eq!(shown(&configured.queues[&0].details), "cir=1 cbs=2 eir=0 ebs=0");
    assert!(error("trtcm-policer", port, &[(2, "cir=1")]).starts_with("queue 2: cbs: "));
}

#[test]
fn numbers_are_digits_and_in_range_or_the_error_names_row_key_value_and_rule() {
    for (port, rule) in [
        ("limit=", "not a whole number of packets"),
        ("limit=-1", "not a whole number of packets"),
        ("limit=+1", "not a whole number of packets"),
        ("limit=ten", "not a whole number of packets"),
        ("limit=1.5", "not a whole number of packets"),
        ("limit=0", "not between 1 and 1000000"),
        ("limit=99999999999999999999999", "not between 1 and 1000000"),
        ("target=0", "not between 1 and 10000000"),
        ("interval=4999", "not between 5000 and 10000000"),
        ("ecn=1", "neither true nor false"),
    ] {
        assert_eq!(error("linux-codel", port, &[]), format!("QoS: {port}: {rule}"));
    }
    assert!(error("linux-fq_codel", "flows=0", &[]).starts_with("QoS: flows=0: not between 1 and "));
    assert!(error("linux-fq_codel", "quantum=1", &[]).starts_with("QoS: quantum=1: not between 64 and "));
    assert!(error("linux-fq_codel", "memory_limit=1", &[]).starts_with("QoS: memory_limit=1: "));
    assert!(error("linux-sfq", "perturb=90000", &[]).starts_with("QoS: perturb=90000: "));
    assert!(error("linux-sfq", "depth=0", &[]).starts_with("QoS: depth=0: "));
    assert!(error("linux-netem", "latency=60000001", &[]).starts_with("QoS: latency=60000001: "));
}

#[test]
fn a_kind_that_is_not_known_is_refused_with_those_that_are() {
    let error = error("linux-cake", "", &[]);
    assert!(
        error.starts_with("QoS: type=linux-cake: not one of egress-policer, "),
        "{error}"
    );
    for kind in KINDS {
        let port = "cir=1 cbs=1500";
        assert!(
            discipline(kind, &strings(port), &BTreeMap::new(), &LINK).is_ok(),
            "{kind}"
        );
    }
}

#[test]
fn what_nobody_reads_is_a_warning() {
    let configured = read("linux-codel", "limt=5 max-rate=3", &[(0, ""), (4, "min-rate=2")]);
    let wanted = [
        "queue 4: linux-codel has one queue, in which its packets are with all others",
        "QoS: limt is no key of linux-codel in this place and has no effect",
        "QoS: max-rate is no key of linux-codel in this place and has no effect",
        "queue 4: min-rate is no key of linux-codel in this place and has no effect",
    ];
    assert_eq!(configured.warnings, wanted);
    assert!(read("linux-noop", "", &[]).warnings.is_empty());
}

#[test]
fn of_many_warnings_a_few_are_told() {
    let queues: Vec<(u32, &str)> = (0..100).map(|number| (number, "x=y")).collect();
    let warnings = read("linux-htb", "", &queues).warnings;
    assert_eq!((warnings.len(), warnings[10].as_str()), (11, "and 90 more like these"));
}

#[test]
fn a_queue_of_any_kind_can_mark_its_packets() {
    let mut queues = rows(&[(0, ""), (4, "")]);
    queues.get_mut(&4).expect("it is there").dscp = Some(46);
    let configured = discipline("linux-sfq", &Strings::new(), &queues, &LINK).unwrap();
    assert_eq!(configured.dscp, BTreeMap::from([(4, 46)]));
    assert_eq!(configured.queues.len(), 1);
}

#[test]
fn a_port_speed_is_in_bit_per_second() {
    assert_eq!(port_speed(&strings("lacp-port-id=3")), Ok(None));
    let wanted = PortSpeed::new(10_000_000).unwrap();
    assert_eq!(
        port_speed(&strings("port-speed=10000000")),
        Ok(Some((10_000_000, wanted)))
    );
    for wrong in ["port-speed=10M", "port-speed=999", "port-speed=0", "port-speed=-5"] {
        let error = port_speed(&strings(wrong)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("interface: {wrong}: not ")), "{error}");
    }
}

#[test]
fn ingress_policing_is_off_at_rates_of_0_and_its_bursts_have_defaults() {
    assert_eq!(policing([0, 5, 0, 5]), Ok(None));
    let of = |a, b, c, d| Some(IngressPolicerConfig::new(a, b, c, d).unwrap());
    assert_eq!(policing([1000, 0, 0, 0]), Ok(of(1000, 8000, 0, 0)));
    assert_eq!(policing([0, 0, 10, 0]), Ok(of(0, 8000, 10, 16)));
    assert_eq!(policing([1, 2, 3, 4]), Ok(of(1, 2, 3, 4)));
    let error = policing([1, -2, 3, 4]).unwrap_err().to_string();
    assert_eq!(
        error,
        "interface: ingress_policing_burst=-2: not between 0 and 4294967296"
    );
    let error = policing([1, 2, 1 << 33, 4]).unwrap_err().to_string();
    assert!(
        error.starts_with("interface: ingress_policing_kpkts_rate=8589934592: "),
        "{error}"
    );
}
