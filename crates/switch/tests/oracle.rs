//! The same random configurations and packets through our translation and through Debian's Open
//! vSwitch.
//!
//! Open vSwitch runs with dummy devices in a sandbox; `ofproto/trace` translates a packet and
//! learns from it, as our switch does. The test compares the egress ports, the tags of the packets,
//! and the learned stations. The order and the actions may differ, but we must not need more
//! actions. [`model::Config::excuse`] has the intended differences.
//!
//! `ORACLE_ROUNDS` and `ORACLE_SEED` in the environment ask for more, or other, configurations;
//! `ORACLE_ALL=1` prints all differences.

#[path = "oracle/actions.rs"]
mod actions;
#[path = "support/ask.rs"]
mod ask;
#[path = "oracle/megaflow.rs"]
mod megaflow;
#[path = "oracle/model.rs"]
mod model;
#[path = "support/steps.rs"]
mod steps;

use actions::{Frame, run};
use ask::Ask;
use model::{Config, Shot, Topology};
use nanos::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use switch::Switch;
use testkit::{Options, Rng, Unixctl, Vswitch, skip};

/// Shots at each configuration.
const SHOTS: usize = 50;

#[test]
fn packets_leave_as_they_leave_open_vswitch() {
    skip!(unless "ovs-vswitchd", "ovsdb-server", "ovs-vsctl");
    let rounds = env("ORACLE_ROUNDS").unwrap_or(40);
    let seed = env("ORACLE_SEED").unwrap_or(1);
    let oracle = Vswitch::debian(Options::default());
    oracle.vsctl(&Topology::create());
    let mut control = oracle.unixctl();
    let topology = Topology::read(&control.call("dpif/show", &[]).unwrap());

    let mut ours = Switch::new(seed);
    let (mut compared, mut excused) = (0, BTreeMap::new());
    let mut wrong = Vec::new();
    for round in 0..rounds {
        let mut rng = Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(round));
        let config = Config::random(&mut rng);
        oracle.vsctl(&config.vsctl());
        ours.configure(config.switch(&topology), Nanos::ZERO);
        flush(&mut control, &mut ours);
        for _ in 0..SHOTS {
            let shot = Shot::random(&mut rng, &topology);
            let in_port = format!("in_port={}", shot.ofport);
            let trace = control
                .call("ofproto/trace", &[shot.bridge, &in_port, &shot.hex()])
                .unwrap();
            let line = trace.lines().find_map(|line| line.strip_prefix("Datapath actions: "));
            let theirs = steps::parse(line.unwrap_or_else(|| panic!("no actions in:\n{trace}")));

            let translation = ours.ask(&shot.key()).translation;
            ours.apply(&translation.effects, Nanos::ZERO);

            let frame = Frame(shot.tags.clone());
            let (expected, got) = (run(&theirs, &frame), run(&translation.actions, &frame));
            compared += 1;
            let longer = translation.actions.len() > theirs.len();
            let (known, learned) = (stations(&mut control), ours_known(&ours));
            if expected == got && !longer && known == learned {
                continue;
            }
            // Different packets teach different things.
            flush(&mut control, &mut ours);
            if let Some(reason) = config.excuse(&shot, &trace, &expected, &got, known == learned) {
                *excused.entry(reason).or_insert(0) += 1;
                continue;
            }
            let ours = translation
                .actions
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(",");
            let theirs = line.unwrap_or_default();
            wrong.push(format!(
                "round {round}: {shot}\n  ours:   {ours} {:?} {learned:?}\n  theirs: {theirs} {known:?}\n{}\n{trace}",
                translation.drop,
                config.difference(&topology, &shot, &expected, &got),
            ));
        }
    }
    eprintln!(
        "{compared} packets compared, {} wrong, known differences: {excused:#?}",
        wrong.len()
    );
    if env("ORACLE_ALL").is_some() {
        wrong.iter().for_each(|case| eprintln!("{case}"));
    }
    assert!(
        wrong.is_empty(),
        "{} of {compared} differ; the first:\n{}",
        wrong.len(),
        wrong[0]
    );
    let known: u64 = excused.values().sum();
    assert!(known * 5 < compared, "the excuses are too wide: {known} of {compared}");
}

/// Bridge, port, VLAN and address of the stations that Open vSwitch knows.
fn stations(control: &mut Unixctl) -> BTreeSet<String> {
    let mut stations = BTreeSet::new();
    for bridge in model::BRIDGES {
        let show = control.call("fdb/show", &[bridge]).unwrap();
        for line in show.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            stations.insert([&[bridge], &words[..3]].concat().join(" "));
        }
    }
    stations
}

/// The same of ours.
fn ours_known(ours: &Switch) -> BTreeSet<String> {
    let entries = |name| {
        ours.bridge(name)
            .unwrap()
            .entries(Nanos::ZERO)
            .map(move |entry| (name, entry))
    };
    let all = model::BRIDGES.into_iter().flat_map(entries);
    all.map(|(name, entry)| {
        let port = match entry.ofport.unwrap() {
            65534 => "LOCAL".to_owned(),
            port => port.to_string(),
        };
        format!("{name} {port} {} {}", entry.vlan, entry.mac)
    })
    .collect()
}

fn flush(control: &mut Unixctl, ours: &mut Switch) {
    for bridge in model::BRIDGES {
        control.call("fdb/flush", &[bridge]).unwrap();
        ours.fdb_flush(bridge, None).unwrap();
    }
}

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
