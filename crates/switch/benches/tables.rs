//! The cost of a million rules of two addresses: memory, and the time of changes, one by one and in
//! bundles. Prints a table.

use flow::MatchField as F;
use nanos::Nanos;
use openflow::model::{Action, FlowCommand, FlowFlags, FlowMod, Instructions, Port};
use std::time::Instant;
use switch::tables::Condition;
use switch::{BridgeConfig, BundleItem, FailMode, Switch, SwitchConfig};

const RULES: u32 = 1_000_000;
const NOW: Nanos = Nanos::from_secs(1);

fn main() {
    let mods: Vec<FlowMod> = (0..RULES).map(rule).collect();
    one_by_one("plain", &mods);
    let timed: Vec<FlowMod> = mods
        .iter()
        .map(|change| FlowMod {
            idle_timeout: 60,
            hard_timeout: 600,
            ..change.clone()
        })
        .collect();
    one_by_one("with timeouts", &timed);
    drop(timed);
    bundles(&mods);
}

fn rule(n: u32) -> FlowMod {
    let scattered = n.wrapping_mul(0x9e37_79b1);
    let mut change = FlowMod {
        new_cookie: Some(n.into()),
        instructions: output(1 + n % 4),
        flags: FlowFlags(0),
        ..FlowMod::default()
    };
    change.matching.set(F::EthType, 0x0800, 0xffff);
    change.matching.set(F::IpSrc, scattered.into(), u32::MAX.into());
    change.matching.set(F::IpDst, (!n).into(), u32::MAX.into());
    change
}

fn output(port: u32) -> Instructions {
    let port = Port(port);
    Instructions::apply(vec![Action::Output { port, max_len: 0 }])
}

fn switch() -> Switch {
    let mut switch = Switch::new(7);
    let bridge = BridgeConfig {
        fail_mode: FailMode::Secure,
        ..BridgeConfig::default()
    };
    let mut config = SwitchConfig::default();
    config.bridges.insert("br0".into(), bridge);
    switch.configure(config, Nanos::ZERO);
    switch
}

fn one_by_one(name: &str, mods: &[FlowMod]) {
    let mut switch = switch();
    let before = resident();
    time(name, "add", || {
        for change in mods {
            let _ = switch.flow_mod("br0", change, NOW);
        }
    });
    let grown = resident().saturating_sub(before);
    println!("  {name}: {} bytes a rule", grown / mods.len());
    time(name, "replace", || {
        for change in mods {
            let _ = switch.flow_mod("br0", change, NOW);
        }
    });
    let strictly = |command: FlowCommand| {
        move |change: &FlowMod| FlowMod {
            command,
            ..change.clone()
        }
    };
    let changes: Vec<FlowMod> = mods.iter().map(strictly(FlowCommand::ModifyStrict)).collect();
    time(name, "modify strictly", || {
        for change in &changes {
            let _ = switch.flow_mod("br0", change, NOW);
        }
    });
    drop(changes);
    let mut all = FlowMod {
        command: FlowCommand::Modify,
        instructions: output(9),
        ..FlowMod::default()
    };
    time(name, "modify all", || {
        let _ = switch.flow_mod("br0", &all, NOW);
    });
    time(name, "walk", || {
        let mut sum = 0;
        let Some(bridge) = switch.bridge("br0") else { return };
        bridge
            .tables()
            .for_each(None, &Condition::ANY, |_, _, rule| sum += rule.packets);
        std::hint::black_box(sum);
    });
    if mods[0].hard_timeout != 0 {
        let late = NOW + std::time::Duration::from_secs(700);
        let mut longest = 0;
        time(name, "end all", || {
            while switch.next_event().is_some_and(|due| due <= late) {
                let start = Instant::now();
                switch.tick(late);
                longest = longest.max(start.elapsed().as_micros());
            }
        });
        println!("  {name}: the longest tick took {longest} µs");
        return;
    }
    all.command = FlowCommand::Delete;
    time(name, "delete all", || {
        let _ = switch.flow_mod("br0", &all, NOW);
    });
}

fn bundles(mods: &[FlowMod]) {
    let mut switch = switch();
    let items: Vec<BundleItem<'_>> = mods.iter().map(BundleItem::Flow).collect();
    let mut longest = 0;
    for what in ["bundle of new rules", "bundle of the same again", "bundle given up"] {
        let mut step = |switch: &mut Switch, work: &mut dyn FnMut(&mut Switch) -> bool| {
            let start = Instant::now();
            let done = work(switch);
            longest = longest.max(start.elapsed().as_micros());
            done
        };
        time(what, "in all", || {
            step(&mut switch, &mut |switch| switch.bundle_open("br0", NOW).is_ok());
            for some in items.chunks(1024) {
                step(&mut switch, &mut |switch| switch.bundle_apply("br0", some, NOW).is_ok());
            }
            step(&mut switch, &mut |switch| {
                if what == "bundle given up" {
                    switch.bundle_abort("br0");
                } else {
                    switch.bundle_commit("br0");
                }
                true
            });
            while !step(&mut switch, &mut |switch| switch.bundle_settle("br0", 1024, NOW)) {}
        });
    }
    println!("  bundles: the longest step took {longest} µs");
}

fn time(name: &str, what: &str, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    let each = start.elapsed().as_nanos() / u128::from(RULES);
    println!("  {name}: {what}: {each} ns a rule");
}

/// Memory of the process in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0usize) * 4096
}
