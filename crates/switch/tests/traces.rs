//! The same random rules and packets through our `ofproto/trace` and that of Debian's Open vSwitch:
//! which packets leave, and the text of the trace.
//!
//! `ORACLE_ROUNDS` and `ORACLE_SEED` in the environment ask for more, or other, rules, `OXVS_SOAK`
//! for that many times as many; `ORACLE_ALL=1` prints all differences. Where we mean to differ is
//! in [`known`].

#[path = "support/ask.rs"]
mod ask;
#[path = "support/frames.rs"]
mod frames;
#[path = "traces/known.rs"]
mod known;
#[path = "traces/metadata.rs"]
mod metadata;
#[path = "rules/model.rs"]
#[allow(dead_code)]
mod model;
#[path = "traces/packets.rs"]
mod packets;
#[path = "traces/programs.rs"]
mod programs;
#[path = "support/steps.rs"]
mod steps;

use ask::Ask;
use flow::{PortNo, extract};
use frames::{Frame, run};
use model::{BRIDGES, Topology};
use nanos::Nanos;
use openflow::model::{FlowCommand, GroupCommand, MeterCommand};
use openflow::text::{Names, parse_flow, parse_group_mod, parse_meter_mod};
use std::collections::BTreeMap;
use switch::Switch;
use switch::tables::Patience;
use switch::trace::Request;
use testkit::{Options, Rng, Vswitch, skip, to_hex};

/// Packets through each set of rules.
const PACKETS: usize = 40;

#[test]
fn a_trace_tells_what_open_vswitch_tells_and_what_leaves_is_the_same() {
    skip!(unless "ovs-vswitchd", "ovsdb-server", "ovs-vsctl", "ovs-ofctl");
    let (rounds, seed) = (env("ORACLE_ROUNDS").unwrap_or(40), env("ORACLE_SEED").unwrap_or(1));
    let rounds = rounds * env("OXVS_SOAK").unwrap_or(1);
    let oracle = Vswitch::debian(Options::default());
    oracle.vsctl(&Topology::create());
    let mut control = oracle.unixctl();
    let topology = Topology::read(&control.call("dpif/show", &[]).unwrap());
    let (mut compared, mut sent, mut excused) = (0, 0, BTreeMap::<&str, u64>::new());
    let mut wrong = Vec::new();
    for round in 0..rounds {
        let mut rng = Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(round));
        let mut ours = Switch::new(seed);
        ours.configure(topology.config(), Nanos::ZERO);
        let rules = install(&oracle, &mut ours, &mut rng, &topology);
        for bridge in BRIDGES {
            control.call("fdb/flush", &[bridge]).unwrap();
        }
        for _ in 0..PACKETS {
            let (port, bytes) = packets::random(&mut rng, &topology);
            let ofport = topology.ofport(port);
            let in_port = format!("in_port={ofport}");
            let key = extract(&bytes, &PortNo(port).into()).unwrap();
            let mut request = Request::new("br0", key, flow::port_from_of10(ofport));
            request.effective = true;
            let traced = ours.trace(&request, Nanos::ZERO, Patience::Whole).unwrap().unwrap();
            if let Some(reason) = known::fatal(&traced.text) {
                *excused.entry(reason).or_default() += 1;
                continue;
            }
            let theirs = control
                .call("ofproto/trace", &["br0", &in_port, &to_hex(&bytes)])
                .unwrap();
            ours.accept(&traced.translated, Nanos::ZERO).unwrap();
            let translation = ours.ask(&key);
            compared += 1;

            let line = theirs.lines().find_map(|line| line.strip_prefix("Datapath actions: "));
            let line = line.unwrap_or_else(|| panic!("no actions in {theirs}"));
            let (mut faults, mut left) = (Vec::new(), Vec::new());
            let actions = &traced.translated.translation.actions;
            let frame = Frame::new(&key);
            for long in [false, true] {
                let (want, have) = (run(&steps::parse(line), &frame, long), run(actions, &frame, long));
                sent += u64::from(!have.is_empty());
                if want != have {
                    faults.push(format!("longer {long}: theirs {want:#?}\nours {have:#?}"));
                }
                left.extend(have.into_iter().map(|(_, packet)| packet));
            }
            // A rule that is learned a second time changes nothing.
            if translation.translation.actions != *actions && !theirs.contains("learn") {
                faults.push(format!("translated {:?}", translation.translation.actions));
            }
            let (sent, own) = (controllers(&traced.text), controllers(&theirs));
            if sent != own && !actions.is_empty() {
                faults.push(format!("to controllers {sent:?} and theirs {own:?}"));
            }
            let (mine, own) = (told(&traced.text), told(&theirs));
            if mine != own {
                let at = mine
                    .iter()
                    .zip(&own)
                    .position(|(a, b)| a != b)
                    .unwrap_or(mine.len().min(own.len()));
                faults.push(format!(
                    "from line {at}: {:?} and theirs {:?}",
                    mine.get(at),
                    own.get(at)
                ));
            }
            if faults.is_empty() {
                continue;
            }
            let case = known::Case {
                theirs: &theirs,
                ours: &traced.text,
                left: &left,
                rules: &rules,
            };
            if let Some(reason) = case.excuse() {
                *excused.entry(reason).or_default() += 1;
                // Different packets teach different things.
                for bridge in BRIDGES {
                    control.call("fdb/flush", &[bridge]).unwrap();
                    ours.fdb_flush(bridge, None).unwrap();
                }
                continue;
            }
            wrong.push(format!(
                "round {round}: {}\n{}\n==== ours\n{}\n==== theirs\n{theirs}\n{}",
                to_hex(&bytes),
                faults.join("\n"),
                traced.text,
                rules.join("\n")
            ));
        }
    }
    eprintln!(
        "{compared} compared, {} wrong, known differences: {excused:#?}",
        wrong.len()
    );
    if env("ORACLE_ALL").is_some() {
        wrong.iter().for_each(|case| eprintln!("{case}\n########"));
    }
    assert!(
        wrong.is_empty(),
        "{} of {compared} differ; the first:\n{}",
        wrong.len(),
        wrong[0]
    );
    let known: u64 = excused.values().sum();
    assert!(known * 3 < compared, "the excuses are too wide: {known} of {compared}");
    assert!(
        sent * 3 > compared,
        "nearly everything is dropped: {sent} of {compared}"
    );
}

/// The text of a trace without the megaflow, which is wider here, and without the actions, which
/// are compared by their effect.
fn told(text: &str) -> Vec<String> {
    // A miss in another bridge it tells by the match of a rule of its own.
    let text = text.replace(". reg0=0x2, priority 0\n", ". No match.\n");
    // It says of a flow whose metadata alone is another that it has changed, and prints it as it
    // was.
    let flow = text
        .lines()
        .next()
        .unwrap_or_default()
        .trim_start_matches("Flow: ")
        .to_owned();
    let text = text.replace(&format!("Final flow: {flow}\n"), "Final flow: unchanged\n");
    let lines = text.lines().map(str::to_owned);
    lines
        .filter(|line| !line.starts_with("Megaflow:") && !line.starts_with("Datapath actions:"))
        .filter(|line| !line.starts_with("This flow is handled") && !line.starts_with("  - "))
        .collect()
}

/// The attributes of punts to controllers, without their handle, sorted.
fn controllers(text: &str) -> Vec<String> {
    let mut all: Vec<String> = text
        .split("controller(reason=")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(words, _)| {
            let words = words.split(',').filter(|word| !word.starts_with("recirc_id="));
            words.collect::<Vec<_>>().join(",")
        })
        .collect();
    all.sort();
    all
}

/// Installs random rules in both switches. Returns them as text.
fn install(oracle: &Vswitch, ours: &mut Switch, rng: &mut Rng, topology: &Topology) -> Vec<String> {
    let mut all = Vec::new();
    let ofctl = |words: &[&str]| oracle.tool("ovs-ofctl", words).expect_ok();
    for bridge in BRIDGES {
        ofctl(&["-O", "OpenFlow14", "del-flows", bridge]);
        ofctl(&["-O", "OpenFlow14", "del-groups", bridge]);
        for group in programs::groups(rng, topology, bridge) {
            ofctl(&["-O", "OpenFlow14", "add-group", bridge, &group]);
            let (change, _) = parse_group_mod(GroupCommand::Add, &group, &Names::default()).unwrap();
            ours.group_mod(bridge, &change, Nanos::ZERO).unwrap();
            all.push(format!("{bridge} {group}"));
        }
        ofctl(&["-O", "OpenFlow14", "del-meters", bridge]);
        let meter = "meter=1,kbps,band=type=drop,rate=100";
        ofctl(&["-O", "OpenFlow14", "add-meter", bridge, meter]);
        let change = parse_meter_mod(MeterCommand::Add, meter).unwrap();
        ours.meter_mod(bridge, &change, Nanos::ZERO).unwrap();
        let mut rules = programs::rules(rng, topology, bridge);
        rules.extend(programs::dimensions(rng));
        let file = oracle.sandbox.arg("flows");
        loop {
            std::fs::write(&file, rules.join("\n")).unwrap();
            let done = oracle.tool("ovs-ofctl", &["-O", "OpenFlow14", "add-flows", bridge, &file]);
            if done.ok() {
                break;
            }
            if done.stderr.contains("none of the usable flow formats") {
                // The same, where it says only that no version has such a rule.
                let before = rules.len();
                rules.retain(|rule| oracle.tool("ovs-ofctl", &["-O", "OpenFlow14", "parse-flow", rule]).ok());
                assert!(rules.len() < before, "{}", done.stderr);
                continue;
            }
            // Actions that do not fit the packet after the actions before them.
            let line = done
                .stderr
                .split("flows:")
                .nth(1)
                .and_then(|rest| rest.split(':').next());
            let Some(line) = line.and_then(|line| line.parse::<usize>().ok()) else {
                // No version can say all of a rule: ovs-ofctl does not tell which rule it is.
                assert!(done.stderr.contains("usable flow formats (none)"), "{}", done.stderr);
                let before = rules.len();
                rules.retain(|rule| {
                    let told = oracle.tool("ovs-ofctl", &["parse-flow", rule]).stdout;
                    let usable = told.lines().find_map(|line| line.strip_prefix("usable protocols: "));
                    usable.is_some_and(|usable| usable == "any" || usable.contains("OXM"))
                });
                assert!(rules.len() < before, "{}", done.stderr);
                continue;
            };
            assert!(
                done.stderr.contains("actions are invalid with specified match"),
                "{}: {}",
                rules[line - 1],
                done.stderr
            );
            rules.remove(line - 1);
        }
        // As Open vSwitch has them, so that both have the same ones.
        let dump = ofctl(&["-O", "OpenFlow14", "--no-stats", "--no-names", "dump-flows", bridge]);
        for line in dump.lines().map(str::trim).filter(|line| line.contains("actions=")) {
            let change = parse_flow(FlowCommand::Add, line, &Names::default());
            let change = change.unwrap_or_else(|error| panic!("{line}: {error}"));
            ours.flow_mod(bridge, &change, Nanos::ZERO)
                .unwrap_or_else(|error| panic!("{line}: {error:?}"));
            all.push(format!("{bridge} {line}"));
        }
    }
    all
}

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
