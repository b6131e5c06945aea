use super::*;
use dp::{Action, CacheStats, DpError, FlowDump, MeterConfig, MeterStats, PortCounters};
use netdev::Netdev;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A datapath that records its calls.
#[derive(Default)]
struct Fake {
    asked: Mutex<Vec<String>>,
    refuses: std::sync::atomic::AtomicBool,
}

impl Fake {
    fn note(&self, what: String) -> Result<(), DpError> {
        if self.refuses.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(DpError::NoPort(PortNo(1)));
        }
        self.asked.lock().unwrap().push(what);
        Ok(())
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl Datapath for Fake {
    fn set_qos(&self, _: PortNo, config: Option<&PortConfig>) -> Result<(), DpError> {
        let kind = |config: &PortConfig| match &config.discipline {
            Discipline::Htb(_) => "htb",
            Discipline::Leaf(_) => "leaf",
            Discipline::Noop => "none",
            _ => "other",
        };
        let speed = |config: &PortConfig| if config.speed.is_some() { " with a speed" } else { "" };
        self.note(config.map_or("no qos".to_owned(), |config| kind(config).to_owned() + speed(config)))
    }

    fn set_policing(&self, _: PortNo, config: Option<&IngressPolicerConfig>) -> Result<(), DpError> {
        self.note(if config.is_some() { "police" } else { "no policing" }.to_owned())
    }

    fn qos(&self, _: PortNo) -> Option<QosReport> {
        None
    }

    fn add_port(&self, _: PortNo, _: Arc<dyn Netdev>) -> Result<(), DpError> {
        Ok(())
    }
    fn del_port(&self, _: PortNo) -> Result<(), DpError> {
        Ok(())
    }
    fn port_counters(&self, _: PortNo) -> Option<PortCounters> {
        None
    }
    fn execute(&self, _: PortNo, _: &[u8], _: &[Action]) {}

    fn send_ahead(&self, _: PortNo, _: &[u8]) {}
    fn dump_flows(&self) -> Vec<FlowDump> {
        Vec::new()
    }
    fn put_flow(&self, _: &dp::Key, _: &dp::Mask, _: &[Action], _: dp::PutFlow) -> Result<(), dp::PutFlowError> {
        Ok(())
    }
    fn del_flow(&self, _: &dp::Key, _: &dp::Mask) -> bool {
        false
    }
    fn push_stats(&self) {}
    fn flush_flows(&self) {}
    fn cache_stats(&self) -> CacheStats {
        CacheStats::default()
    }
    fn set_bond(&self, _: u32, _: Option<dp::BondTable>) {}
    fn take_bond_loads(&self, _: u32) -> Option<[u64; dp::BOND_BUCKETS]> {
        None
    }
    fn now(&self) -> Nanos {
        Nanos::ZERO
    }
    fn conntrack(&self) -> &Arc<conntrack::Conntrack> {
        static NONE: std::sync::LazyLock<Arc<conntrack::Conntrack>> =
            std::sync::LazyLock::new(|| conntrack::Conntrack::new(0));
        &NONE
    }
    fn set_meter(&self, _: u32, _: &MeterConfig) -> Result<(), DpError> {
        Ok(())
    }
    fn del_meter(&self, _: u32) -> Option<MeterStats> {
        None
    }
    fn meter_stats(&self, _: u32) -> Option<MeterStats> {
        None
    }
    fn default_limits(&self) -> dp::Limits {
        dp::Limits {
            flows: 0,
            idle: Duration::ZERO,
            period: Duration::ZERO,
        }
    }
    fn set_limits(&self, _: dp::Limits) {}
    fn flow_limit(&self) -> usize {
        0
    }
    fn ageing_took(&self) -> Duration {
        Duration::ZERO
    }
    fn set_offload(&self, _: bool) {}
    fn offload_error(&self) -> Option<String> {
        None
    }
    fn offload_events(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    fn links_changed(&self, _: &std::collections::BTreeSet<&str>) {}
    fn workers(&self) -> Option<&dyn dp::WorkerControl> {
        None
    }
    fn drops(&self) -> Vec<(dp::DropCause, u64)> {
        Vec::new()
    }
}

/// An interface in a datapath, and its rows.
#[derive(Default)]
struct Lab {
    datapath: Fake,
    applied: RefCell<Applied>,
    seconds: Cell<u64>,
    speed: Cell<Option<u64>>,
}

fn strings(text: &str) -> Strings {
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn row(kind: &str, keys: &str, queues: &[(u32, &str)]) -> Wanted {
    let queue = |text: &str| QueueRow {
        other_config: strings(text),
        dscp: None,
    };
    Wanted {
        kind: kind.to_owned(),
        other_config: strings(keys),
        queues: queues.iter().map(|(number, text)| (*number, queue(text))).collect(),
    }
}

fn limits_of(keys: &str, policing: [i64; 4]) -> Limits {
    limits(&rows::Interface {
        other_config: strings(keys),
        ingress_policing_rate: policing[0],
        ingress_policing_burst: policing[1],
        ingress_policing_kpkts_rate: policing[2],
        ingress_policing_kpkts_burst: policing[3],
        ..rows::Interface::default()
    })
}

impl Lab {
    /// Applies these rows a second later. Returns the datapath's calls.
    fn settle(&self, wanted: Option<&Wanted>, limits: &Limits) -> Vec<String> {
        self.seconds.set(self.seconds.get() + 1);
        let target = Target {
            datapath: &self.datapath,
            port: PortNo(1),
            link: Link {
                speed: self.speed.get(),
                mtu: Some(1500),
                seed: 1,
            },
            now: Nanos::from_secs(self.seconds.get()),
        };
        self.applied.borrow_mut().settle(wanted, limits, &target);
        self.datapath.asked()
    }

    fn found(&self) -> Found {
        self.applied.borrow().found.clone()
    }

    fn rate(&self) -> Option<u64> {
        let applied = self.applied.borrow();
        applied.discipline().and_then(|(_, configured)| configured.rate)
    }

    /// The numbers of the queues, and the second in which each was created.
    fn queues(&self) -> Vec<(u32, u64)> {
        let queues = self.applied.borrow().queues(None);
        queues
            .iter()
            .map(|queue| (queue.number, queue.since.expect("known").0 / 1_000_000_000))
            .collect()
    }
}

#[test]
fn a_port_without_rows_is_left_alone() {
    let lab = Lab::default();
    assert_eq!(lab.settle(None, &Limits::default()), [""; 0]);
    assert_eq!(
        lab.settle(Some(&row("linux-noop", "", &[])), &Limits::default()),
        ["no qos"]
    );
    assert_eq!(lab.queues(), []);
    assert_eq!(lab.applied.borrow().discipline().map(|(kind, _)| kind.to_owned()), None);
}

#[test]
fn the_datapath_is_asked_only_for_what_changed() {
    let lab = Lab::default();
    let off = Limits::default();
    let (htb, policed) = (
        row("linux-htb", "max-rate=1000000", &[]),
        limits_of("", [1000, 0, 0, 0]),
    );
    assert_eq!(lab.settle(Some(&htb), &off), ["htb"]);
    assert_eq!(lab.settle(Some(&htb), &off), [""; 0]);
    assert_eq!(lab.settle(Some(&htb), &policed)[0], "police");
    assert_eq!(lab.settle(Some(&htb), &policed), [""; 0]);
    let faster = row("linux-htb", "max-rate=2000000", &[]);
    assert_eq!(lab.settle(Some(&faster), &policed), ["htb"]);
    assert_eq!(lab.rate(), Some(2_000_000));
    let speed = limits_of("port-speed=10000000", [0; 4]);
    assert_eq!(lab.settle(Some(&faster), &speed), ["no policing", "htb with a speed"]);
    assert_eq!(lab.settle(None, &speed), ["none with a speed"]);
    assert_eq!(lab.applied.borrow().port_speed(), Some(10_000_000));
    assert_eq!(lab.settle(None, &off), ["no qos"]);
    assert_eq!(lab.found(), Found::default());
}

#[test]
fn the_rate_is_that_of_the_link_unless_a_row_or_the_ports_speed_says_another() {
    let lab = Lab::default();
    let (htb, off) = (row("linux-htb", "", &[]), Limits::default());
    lab.settle(Some(&htb), &off);
    assert_eq!(lab.rate(), Some(10_000_000_000));
    lab.speed.set(Some(1_000_000_000));
    assert_eq!(lab.settle(Some(&htb), &off), ["htb"]);
    assert_eq!(lab.rate(), Some(1_000_000_000));
    lab.settle(Some(&htb), &limits_of("port-speed=5000000", [0; 4]));
    assert_eq!(lab.rate(), Some(5_000_000));
}

#[test]
fn what_is_refused_is_said_and_what_was_before_goes_on() {
    let lab = Lab::default();
    let off = Limits::default();
    lab.settle(Some(&row("linux-htb", "max-rate=1000000", &[(3, "")])), &off);
    let wrong = row("linux-htb", "max-rate=1M", &[]);
    lab.settle(Some(&wrong), &off);
    assert_eq!(lab.found().port, ["qos: QoS: max-rate=1M: not a whole number of bit/s"]);
    assert_eq!((lab.rate(), lab.queues()), (Some(1_000_000), vec![(0, 1), (3, 1)]));
    assert_eq!(lab.settle(Some(&wrong), &off), [""; 0]);
    assert_eq!(lab.found().port.len(), 1);
    // Valid settings beside it are applied.
    lab.settle(Some(&wrong), &limits_of("port-speed=x", [5, -1, 0, 0]));
    let found = lab.found();
    assert_eq!(found.port.len(), 1);
    let wanted = [
        "ingress_policing_burst=-1: not between 0 and 4294967296",
        "other_config:port-speed=x: not a whole number of bit/s",
    ];
    assert_eq!(found.interface, wanted);
    let asked = lab.settle(Some(&wrong), &limits_of("port-speed=5000000", [5, 0, 0, 0]));
    assert_eq!(asked, ["police", "htb with a speed"]);
    lab.settle(Some(&row("linux-htb", "max-rate=1000000 x=y", &[])), &off);
    assert_eq!((lab.found().port, lab.found().interface), (vec![], vec![]));
    assert_eq!(lab.found().warnings.len(), 1);
}

#[test]
fn what_the_datapath_refuses_is_said_and_not_believed_to_be_in_force() {
    let lab = Lab::default();
    lab.datapath.refuses.store(true, std::sync::atomic::Ordering::Relaxed);
    lab.settle(Some(&row("linux-htb", "", &[])), &limits_of("", [5, 0, 0, 0]));
    let found = lab.found();
    assert_eq!(found.port, ["qos: no datapath port 1"]);
    assert_eq!(found.interface, ["ingress policing: no datapath port 1"]);
    assert_eq!(lab.queues(), []);
}

#[test]
fn queues_are_as_old_as_they_are_unless_the_kind_is_another() {
    let lab = Lab::default();
    let off = Limits::default();
    lab.settle(Some(&row("linux-htb", "", &[(3, "")])), &off);
    lab.settle(Some(&row("linux-htb", "", &[(3, "min-rate=50000"), (4, "")])), &off);
    assert_eq!(lab.queues(), [(0, 1), (3, 1), (4, 2)]);
    lab.settle(Some(&row("linux-hfsc", "", &[(3, ""), (4, "")])), &off);
    assert_eq!(lab.queues(), [(0, 3), (3, 3), (4, 3)]);
}

#[test]
fn rates_of_queues_are_told_in_tenths_of_a_percent() {
    let lab = Lab::default();
    let keys = "min-rate=2000000 max-rate=5000000";
    lab.settle(
        Some(&row("linux-htb", "max-rate=10000000", &[(3, keys)])),
        &Limits::default(),
    );
    let queues = lab.applied.borrow().queues(None);
    assert_eq!((queues[0].min_rate, queues[0].max_rate), (None, None));
    assert_eq!((queues[1].min_rate, queues[1].max_rate), (Some(200), Some(500)));
}

#[test]
fn a_queue_with_children_counts_what_these_did() {
    let rows = row(
        "linux-htb",
        "",
        &[(1, ""), (2, "parent=1"), (3, "parent=2"), (4, "parent=2")],
    );
    let lab = Lab::default();
    lab.settle(Some(&rows), &Limits::default());
    let stats = |packets: u64| Stats {
        packets,
        ..Stats::default()
    };
    let report = QosReport {
        queues: vec![(0, stats(1)), (3, stats(10)), (4, stats(100))],
        ..QosReport::default()
    };
    let queues = lab.applied.borrow().queues(Some(&report));
    let packets: Vec<u64> = queues.iter().map(|queue| queue.tx_packets).collect();
    assert_eq!(packets, [1, 110, 110, 10, 100]);
}

#[test]
fn a_patch_has_nothing_to_queue_for() {
    let found = Found::without_device(
        Some(&row("linux-htb", "", &[])),
        &limits_of("port-speed=5000000", [0; 4]),
    );
    assert_eq!((found.port.len(), found.interface.len()), (1, 1));
    assert_eq!(Found::without_device(None, &Limits::default()), Found::default());
}
