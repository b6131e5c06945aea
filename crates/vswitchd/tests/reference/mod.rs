//! The whole way of packets beside a plain one.
//!
//! [`plain`] is a datapath as one would explain it: it reads each packet from its bytes, walks the
//! rules from the highest priority down, does one action after the other on the bytes, and counts.
//! The other side is the one that users run: caches, batches, megaflows of many masks, limits that
//! make megaflows go, changes that make them stale, translation by the classifier, learning,
//! statistics that are reported now and then. Both get the same random rules, packets and changes;
//! what leaves each port must be the same bytes in the same order, and so must every counter of
//! every rule and port.
//!
//! `OXVS_SOAK` in the environment asks for that many times as many cases, `OXVS_SEED` for others.

mod nested;
mod plain;
mod random;

use super::Shared;
use super::tests::bridge_of;
use dp::{Answer, Carried, Credit, DropCause, Effect, PortCounters, PortNo, Punt, Slowpath, Translation, Upcall};
use dp_user::pipeline::{BATCH, Budget, Pipeline, RxQueue};
use nanos::Nanos;
use netdev::{Dummy, Netdev};
use openflow::model::{FlowCommand, FlowMod};
use openflow::text::{Names, parse_flow, parse_match};
use parking_lot::Mutex;
use plain::Plain;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use random::{PORTS, Rule, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use switch::tables::Condition;
use switch::{FailMode, MirrorConfig, MirrorOutput, SwitchConfig};
use wire::Vid;

/// The daemon's answers, and what goes to controllers.
struct Noted {
    shared: Arc<Shared>,
    copies: Mutex<Vec<Vec<u8>>>,
}

impl Slowpath for Noted {
    fn upcall(&self, upcall: &Upcall<'_>, now: Nanos) -> Translation {
        self.shared.upcall(upcall, now)
    }

    fn try_upcall(&self, upcall: &Upcall<'_>, now: Nanos) -> Answer {
        self.shared.try_upcall(upcall, now)
    }

    fn refresh(&self, effects: &[Effect], now: Nanos) {
        self.shared.refresh(effects, now);
    }

    fn credit(&self, credits: &[(Credit, Carried)], now: Nanos) {
        self.shared.credit(credits, now);
    }

    fn punt(&self, packet: &Punt<'_>, _now: Nanos) -> bool {
        self.copies.lock().push(packet.packet.to_vec());
        true
    }

    fn port_failed(&self, _port: PortNo) {}
}

/// The real thing, with a bridge of a few ports.
struct Fast {
    noted: Arc<Noted>,
    pipeline: Pipeline,
    devices: Vec<Arc<Dummy>>,
    rx_queues: Vec<RxQueue>,
    now: Nanos,
}

impl Fast {
    /// Of the ports 1 to `ports` of a datapath.
    fn new(config: SwitchConfig, ports: u32, flow_limit: usize) -> Fast {
        let shared = Shared::new(1);
        shared.clock.stop();
        shared.update(|switch, now| switch.configure(config, now));
        let changes = shared.changes.clone();
        let noted = Arc::new(Noted {
            shared,
            copies: Mutex::default(),
        });
        let mut pipeline = Pipeline::new(flow_limit, Duration::from_secs(10), noted.clone(), changes);
        let (mut devices, mut rx_queues) = (Vec::new(), Vec::new());
        for port in 1..=ports {
            let device = Arc::new(Dummy::open(&format!("p{port}"), &BTreeMap::new()).unwrap());
            pipeline.add_port(PortNo(port), device.clone());
            let rx = device.open_rx().unwrap().remove(0);
            // So many that no packet has to wait: packets that wait are overtaken by those of other
            // flows, which may teach what these ask for.
            rx_queues.push(Pipeline::rx_queue(PortNo(port), rx, Budget::new(BATCH as u32, 256)));
            devices.push(device);
        }
        Fast {
            noted,
            pipeline,
            devices,
            rx_queues,
            now: Nanos::from_secs(1),
        }
    }

    fn receive(&mut self, port: u32, packets: &[Vec<u8>]) {
        let at = port as usize - 1;
        for packet in packets {
            assert!(self.devices[at].inject(packet));
        }
        while self.pipeline.receive(&mut self.rx_queues[at], false, self.now).unwrap() > 0 {}
    }

    fn change(&self, command: FlowCommand, rule: &Rule) {
        let text = match command {
            FlowCommand::DeleteStrict => rule.key_text(),
            _ => rule.text(),
        };
        let change: FlowMod =
            parse_flow(command, &text, &Names::default()).unwrap_or_else(|error| panic!("{text}: {error}"));
        let shared = &self.noted.shared;
        shared.update(|switch, now| {
            switch
                .flow_mod("br0", &change, now)
                .unwrap_or_else(|error| panic!("{text}: {error:?}"))
        });
    }

    fn mirror(&self, mirror: Option<&random::Mirror>) {
        let mut config = bridge_of(PORTS as u16, FailMode::Secure);
        let names = |ports: &BTreeSet<u32>| ports.iter().map(|port| format!("p{port}")).collect();
        let mirrors = mirror.map(|mirror| MirrorConfig {
            id: 1,
            select_all: false,
            select_src: names(&mirror.src),
            select_dst: names(&mirror.dst),
            vlans: mirror.vlan.and_then(|vid| Vid::new(vid).ok()).into_iter().collect(),
            filter: mirror
                .kind
                .map(|kind| parse_match(&format!("dl_type={kind:#x}"), &Names::default()).unwrap()),
            output: MirrorOutput::Port(format!("p{}", mirror.output)),
            snaplen: mirror.snaplen.map(|len| len as u32),
        });
        config.bridges.get_mut("br0").unwrap().mirrors = mirrors.into_iter().collect();
        self.noted.shared.update(|switch, now| switch.configure(config, now));
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        while self.pipeline.housekeep(self.now) == Some(Nanos::ZERO) {}
    }

    /// Packets and bytes of every rule, by table and priority.
    fn rules(&mut self) -> BTreeMap<(u8, u16), (u64, u64)> {
        self.pipeline.push_stats(self.now);
        self.noted.shared.catch_up();
        let switch = self.noted.shared.switch.read();
        let any = Condition::ANY;
        let mut rules = BTreeMap::new();
        switch
            .bridge("br0")
            .unwrap()
            .tables()
            .for_each(None, &any, |at, priority, rule| {
                rules.insert((at.table, priority), (rule.packets, rule.bytes));
            });
        rules
    }

    /// Packets and bytes received and sent by a port.
    fn port(&self, port: u32) -> [u64; 4] {
        let PortCounters {
            rx_packets, rx_bytes, ..
        } = self.rx_queues[port as usize - 1].counters();
        let sent = self.pipeline.port_counters(PortNo(port)).unwrap();
        [rx_packets, rx_bytes, sent.tx_packets, sent.tx_bytes]
    }

    fn dropped(&self) -> u64 {
        let drops = self.pipeline.drops();
        for (cause, packets) in &drops {
            let expected = matches!(
                cause,
                DropCause::NoDestination | DropCause::NoRule | DropCause::Loop | DropCause::MirrorOutput
            );
            assert!(expected || *packets == 0, "{packets} lost: {cause:?}");
        }
        drops.into_iter().map(|(_, packets)| packets).sum()
    }
}

fn hex(packets: &[Vec<u8>]) -> Vec<String> {
    packets.iter().map(|packet| testkit::to_hex(packet)).collect()
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, plain: &T, fast: &T) -> Result<(), TestCaseError> {
    if plain == fast {
        return Ok(());
    }
    Err(TestCaseError::fail(format!(
        "{what}: plainly {plain:?}, with caches {fast:?}"
    )))
}

/// Both sides through the same steps.
fn compare(rules: &[Rule], steps: &[Step], limit: usize, met: &mut Met) -> Result<(), TestCaseError> {
    let (mut plain, mut fast) = (
        Plain::default(),
        Fast::new(bridge_of(PORTS as u16, FailMode::Secure), PORTS, limit),
    );
    for rule in rules {
        put(rule, &mut plain, &mut fast);
    }
    for step in steps {
        match step {
            Step::Receive(port, shots) => {
                let packets: Vec<_> = shots.iter().map(random::Shot::bytes).collect();
                let mut expected = vec![Vec::new(); PORTS as usize + 1];
                for packet in &packets {
                    for (port, bytes) in plain.receive(*port, packet) {
                        expected[port as usize].push(bytes);
                    }
                }
                fast.receive(*port, &packets);
                for port in 1..=PORTS {
                    let sent = fast.devices[port as usize - 1].take_sent();
                    same(&format!("port {port}"), &hex(&expected[port as usize]), &hex(&sent))?;
                    met.sent += sent.len();
                }
                same("controllers", &hex(&plain.copies), &hex(&fast.noted.copies.lock()))?;
                met.packets += packets.len();
            }
            Step::Add(rule) => put(rule, &mut plain, &mut fast),
            Step::Modify(at, actions) => {
                if let Some(rule) = plain.change(*at, actions) {
                    fast.change(FlowCommand::ModifyStrict, &rule);
                }
            }
            Step::Delete(at) => {
                if let Some(rule) = plain.remove_nth(*at) {
                    fast.change(FlowCommand::DeleteStrict, &rule);
                }
            }
            Step::Forget => {
                plain.stations.clear();
                let shared = &fast.noted.shared;
                shared.update(|switch, _| switch.fdb_flush("br0", None).unwrap());
            }
            Step::Wait(seconds) => fast.wait(*seconds),
            Step::Mirror(mirror) => {
                plain.mirror(mirror.clone());
                fast.mirror(mirror.as_ref());
            }
            Step::Count => count(&plain, &mut fast)?,
        }
        let (least, dropped) = (plain.dropped, fast.dropped());
        if !(least..=least + plain.bared).contains(&dropped) {
            same("drops", &least, &dropped)?;
        }
    }
    count(&plain, &mut fast)?;
    for port in 1..=PORTS {
        same(&format!("counters of port {port}"), &plain.port(port), &fast.port(port))?;
    }
    let caches = fast.pipeline.cache_stats();
    met.hits += caches.exact_hits + caches.megaflow_hits;
    met.upcalls += caches.upcalls;
    met.masks = met.masks.max(caches.masks);
    Ok(())
}

/// Compares the counters of all rules.
fn count(plain: &Plain, fast: &mut Fast) -> Result<(), TestCaseError> {
    let rules = fast.rules();
    if plain.counted_as(&rules) {
        return Ok(());
    }
    same("rules", plain.counters(), &rules)
}

/// Puts a rule in, in place of the one of its priority.
fn put(rule: &Rule, plain: &mut Plain, fast: &mut Fast) {
    if let Some(old) = plain.remove(rule.table, rule.priority) {
        fast.change(FlowCommand::DeleteStrict, &old);
    }
    fast.change(FlowCommand::Add, rule);
    plain.add(rule.clone());
}

/// How much of what is to be compared there was.
#[derive(Debug, Default)]
struct Met {
    packets: usize,
    sent: usize,
    hits: u64,
    upcalls: u64,
    masks: u64,
}

/// Runs so many cases, or as many times more as the environment asks for.
fn runner(cases: u32) -> TestRunner {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let (times, seed) = (number("OXVS_SOAK").unwrap_or(1), number("OXVS_SEED").unwrap_or(1));
    let config = Config {
        cases: cases * times as u32,
        failure_persistence: None,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

#[test]
fn packets_leave_and_are_counted_as_in_a_plain_datapath() {
    let met = Mutex::new(Met::default());
    let outcome = runner(100).run(&random::cases(), |(rules, steps, limit)| {
        compare(&rules, &steps, limit, &mut met.lock()).map_err(|error| {
            let rules: Vec<_> = rules.iter().map(Rule::text).collect();
            TestCaseError::fail(format!("{error}\n{}", rules.join("\n")))
        })
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    let met = met.into_inner();
    println!("{met:?}");
    assert!(met.sent > met.packets / 2, "little is sent: {met:?}");
    assert!(met.hits > met.upcalls, "the caches answer little: {met:?}");
    assert!(met.masks > 4, "few masks: {met:?}");
}
