//! One cell of a scenario: a testbed with its traffic and observations.

use super::application::Application;
use super::during::During;
use super::openflow::{Mode, OpenFlow};
use crate::stats::{jain, proportional};
use crate::topology::Topology;
use crate::traffic::{Flow, Test};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The time that `iperf3` takes to start and end, in seconds.
const WITNESS_SECONDS: f64 = 0.5;

/// The time that Mininet takes to make and remove a network and to ping, in seconds.
const MININET_SECONDS: f64 = 4.0;

/// What a trial of RFC 2544 takes beside its traffic, in seconds.
const TRIAL_SECONDS: f64 = 0.35;

/// How long it takes to try the changes of a match, in seconds.
const SUPPORTED_SECONDS: f64 = 2.0;

/// How the highest rate of a flow is measured before a cell, in seconds.
pub(crate) struct Settling {
    /// At most.
    pub(crate) seconds: f64,
    pub(crate) warmup: f64,
    /// To begin and to end.
    beside: f64,
}

/// It is short: a tenth of the rate is left.
pub(crate) const SETTLING: Settling = Settling {
    seconds: 2.0,
    warmup: 0.2,
    beside: 0.4,
};

/// One combination of the values of a scenario's dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The dimensions' values, as in [`crate::results::Sample::at`].
    pub at: BTreeMap<String, String>,
    /// The setup.
    pub setup: Setup,
}

/// A testbed with its traffic and observations.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Two cells with equal topologies can share the testbed and the switch on it; two with an
    /// equal [`Topology::cabling`] the testbed.
    pub topology: Topology,
    /// Unmeasured traffic, from before the warm-up until the end.
    pub background: Vec<Flow>,
    /// Traffic that is measured, all at the same time.
    pub measured: Vec<Flow>,
    /// The observations.
    pub observed: Vec<Observation>,
    /// Set-up by a controller before the run, if any.
    pub openflow: Option<OpenFlow>,
    /// Names of the systems that it runs on; empty: all.
    pub systems: Vec<String>,
    /// How long is measured, in seconds.
    pub seconds: f64,
    /// How long traffic flows before that, in seconds.
    pub warmup: f64,
    /// Whether the laboratory [keeps processors awake](crate::awake).
    pub awake: bool,
}

impl Setup {
    /// No testbed on which nothing is done.
    #[cfg(test)]
    pub(crate) fn nothing() -> Setup {
        Setup {
            topology: Topology::default(),
            background: Vec::new(),
            measured: Vec::new(),
            observed: Vec::new(),
            openflow: None,
            systems: Vec::new(),
            seconds: 1.0,
            warmup: 0.0,
            awake: true,
        }
    }

    /// Whether it runs on a system of this name.
    pub fn is_for(&self, system: &str) -> bool {
        self.systems.is_empty() || self.systems.iter().any(|name| name == system)
    }

    /// The metrics of [`Observe::Fairness`], out of those of the measured flows.
    pub fn fairness(&self, metrics: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
        let mut found = BTreeMap::new();
        for observed in &self.observed {
            let Observe::Fairness { flows } = &observed.what else {
                continue;
            };
            let chosen = self
                .measured
                .iter()
                .filter(|flow| flows.is_empty() || flows.contains(&flow.name));
            let rates = chosen.map(|flow| {
                let received = ["rate", "total"]
                    .iter()
                    .find_map(|key| metrics.get(&format!("{}.{key}", flow.name)));
                (flow, received.copied().unwrap_or(0.0))
            });
            let rates: Vec<_> = rates.collect();
            let mut add = |metric: &str, value: f64| found.insert(format!("{}.{metric}", observed.name), value);
            add("sum", rates.iter().map(|(_, received)| received).sum());
            let offered = |flow: &Flow| match flow.test {
                Test::Cbr { rate, .. } => Some(rate as f64),
                _ => None,
            };
            let offers: Option<Vec<f64>> = rates.iter().map(|(flow, _)| offered(flow)).collect();
            let received: Vec<f64> = rates.iter().map(|(_, received)| *received).collect();
            // Without an offered load all are due the same.
            let offers = offers.unwrap_or_else(|| vec![1.0; received.len()]);
            let of_offered: Vec<f64> = received.iter().zip(&offers).map(|(r, o)| r / o).collect();
            add("jain", jain(&of_offered));
            add("unproportional", proportional(&offers, &received));
        }
        found
    }

    /// For how many whole seconds programs send that know no others.
    pub fn whole_seconds(&self) -> u32 {
        // More than a float can say of a second is an hour of tests.
        self.seconds.round().clamp(1.0, 3600.0) as u32
    }

    /// How long a repetition takes: warm-up, measurement, rates that are measured before,
    /// `iperf3` runs, and Mininet's networks.
    pub fn duration(&self) -> f64 {
        let witnesses = self
            .observed
            .iter()
            .filter(|one| matches!(one.what, Observe::Witness { .. }));
        let each = f64::from(self.whole_seconds()) + WITNESS_SECONDS;
        let networks = self
            .observed
            .iter()
            .filter(|one| matches!(one.what, Observe::Mininet { .. }));
        let own = f64::from(self.whole_seconds()) - self.seconds + MININET_SECONDS;
        let others = self.observed.iter().map(|one| one.what.beyond(self.seconds));
        let settling = self.seconds.min(SETTLING.seconds) + SETTLING.warmup + SETTLING.beside;
        self.warmup
            + self.seconds
            + each * witnesses.count() as f64
            + own * networks.count() as f64
            + others.sum::<f64>()
            + self.unsettled().count() as f64 * settling
    }

    /// The flows whose rate is a share of the highest one.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = &Flow> {
        let flows = self.background.iter().chain(&self.measured);
        flows.filter(|flow| matches!(flow.test, Test::Flood { of_most: Some(_), .. }))
    }

    /// Whether only a switch with OpenFlow can do it.
    pub fn needs_openflow(&self) -> bool {
        self.openflow
            .as_ref()
            .is_some_and(|openflow| openflow.mode == Mode::Openflow)
            || self.observed.iter().any(|observed| observed.what.needs_openflow())
            || self
                .topology
                .bridges
                .iter()
                .any(|bridge| bridge.control != crate::topology::Control::Learning)
    }
}

/// Something that is measured and is not traffic from one host to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Its name in results, as a flow's: `name.metric`. Unique among flows and observations.
    pub name: String,
    /// The observation.
    #[serde(flatten)]
    pub what: Observe,
}

/// The observation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "observe", rename_all = "snake_case", deny_unknown_fields)]
pub enum Observe {
    /// Every host pings every other, and all capture what they hear. Metrics `A-B` for each pair
    /// (1: B answered A, 0: it did not), `leaks` (pairs that reach each other though none of
    /// `groups` holds both, and ARP requests heard outside the asker's group), `missing` (pairs of
    /// one group that do not), `heard.A-B` (ARP requests of A that B heard), `heard.other` (those
    /// heard outside the asker's group).
    Reachability {
        /// Hosts that should reach each other.
        groups: Vec<Vec<String>>,
    },
    /// Nothing is sent: counts frames that the switch sends by itself. Metrics `frames` (a minute,
    /// all hosts), `frames.HOST`.
    Idle {},
    /// A host sends broadcasts, all others count them. Metrics `share` (received/due at the hosts
    /// of its VLAN), `leaks` (received elsewhere), `cost` (CPU of the switch for a broadcast, µs),
    /// `copy` (the same for a copy of it).
    Broadcast {
        /// The host that sends.
        from: String,
        /// Broadcasts a second.
        rate: u32,
        /// UDP payload in bytes.
        payload: u32,
    },
    /// Compares a flow's measured rate with a capture at its receiver: payload bytes of the frames
    /// over the time. Metrics `tool`, `capture` (bit/s), `ratio` (tool/capture).
    Capture {
        /// Name of a measured flow.
        flow: String,
    },
    /// `iperf3`, where it is installed, sends the same as a flow of `cbr` or `tcp_stream`, after
    /// it, alone and for whole seconds. Metrics `tool`, `iperf3` (bit/s received), `difference`
    /// ((tool - iperf3)/iperf3), of `cbr` `jitter` (µs).
    Witness {
        /// Name of a measured flow.
        flow: String,
    },
    /// How several flows share the capacity. Metrics `sum` (received by all, bit/s), `jain` (Jain's
    /// index of received/offered, 0 to 1), `unproportional` (the largest distance of a flow's share
    /// of the received from its share of the offered, 0 to 1). See [`Setup::fairness`].
    Fairness {
        /// Measured flows' names; none: all.
        #[serde(default)]
        flows: Vec<String>,
    },
    /// What the switch and the machine use meanwhile. Metrics `system`, `all` (processors that the
    /// switch's processes and the whole machine use, on average), `memory` (of the switch's
    /// processes, bytes), with a flow `cost` and `cost_all` (the same time for each byte that
    /// arrives, of `new_flows` and `flood` for each datagram, ns). Linux's bridge has `all`
    /// and `cost_all` only.
    Usage {
        /// Name of a measured flow.
        flow: Option<String>,
    },
    /// A cable is cut while traffic flows. Metrics `silence.FLOW` (longest time without a packet of
    /// a measured flow, ms), and of all flows with datagrams of a constant rate `silence` (the
    /// longest), `lost` and `overtaken` (datagrams).
    Cut {
        /// The two ends, as of a link.
        between: (String, String),
        /// Which of the links between them, counted from 0 in their order.
        #[serde(default)]
        which: usize,
        /// What happens to it.
        #[serde(default)]
        by: Cause,
        /// When, as a share of the measured time, 0 to 1.
        after: f64,
    },
    /// How long packets of a known flow wait, from the first host to the second, while the switch
    /// is busy with something else. Metrics of each part (`wait`, `come`, `go`) after its name:
    /// `delay` (the longest), `p999`, `median` (ms), `lost` (packets), `turn` (the longest time
    /// between two turns of a worker without its sleep, ms; of oxvs only), `seconds` (of what
    /// happens); of all parts `delay`, `turn`, `lost`.
    Gaps {
        /// What happens.
        during: During,
        /// How many ports, rules or flows.
        #[serde(default = "one")]
        number: u32,
        /// Whether workers of oxvs, the sender and the kernel's threads for packets run before all
        /// others.
        #[serde(default = "yes")]
        priority: bool,
    },
    /// How often BFD and LACP take links for broken that are not, while traffic flows. Metrics of
    /// BFD `intervals` (packets due), `alarms` (sessions that went down), `rate` (alarms in 100 000
    /// intervals); of LACP `expired` (partners not heard in time). A sample with BFD is void if
    /// this machine is a guest whose host took a processor away for two intervals or longer.
    Liveness {
        /// The two bridges.
        between: (String, String),
    },
    /// What the switch tells of a host's traffic, against what its rules have counted, warm-up
    /// included. Metrics of a mirror: `missed` (share of the bytes). Of sFlow and IPFIX: `error`
    /// (of the estimated number of UDP datagrams, as a share of the received ones), `bound` (what
    /// 95 % of estimates stay within by the theory of sampling), `of_bound` (error/bound, unless
    /// each packet is sampled), `unaccounted` (if each is: the share of the datagrams that are
    /// neither told nor covered by lost samples), `lost` (samples that the switch dropped). Of
    /// NetFlow: `error`, `frame` (bytes of a datagram).
    Watch {
        /// How.
        by: Watcher,
        /// One sample in so many packets; flows for `netflow` and copies for `mirror` are never
        /// sampled.
        one_in: u32,
        /// The bridge.
        bridge: String,
        /// The host whose traffic is watched.
        from: String,
        /// The host behind the mirror's output; it must send nothing.
        to: String,
    },
    /// How many rules fit. Metrics `rules`, `full` (1: the switch said that its table is full, 0:
    /// it took `at_most`), `seconds` (to install them), `lost` (exchanges of a probe through the
    /// full table that were not answered), `answered` (1: the switch answers an echo while full).
    Capacity {
        /// Every field is matched, or some are wildcarded.
        exact: bool,
        /// Of those with wildcards: how many different masks they have, 1 to 24.
        #[serde(default = "one")]
        masks: u32,
        /// Where to stop.
        at_most: u32,
        /// A limit to set on the table, if the switch has such a setting.
        limit: Option<u32>,
    },
    /// How many addresses a learning switch remembers. Metrics `rules` (addresses), `full`,
    /// `seconds`, `lost`, `answered` as with capacity.
    Addresses {
        /// Where to stop.
        at_most: u32,
    },
    /// Mininet makes a network with bridges of the system under test, which must be Mininet's
    /// switch; the bed has neither hosts nor bridges. Metrics of its tests: `dropped` (share of the
    /// pings between all hosts that were not answered), `received`, `sent` (by `iperf` from the
    /// first to the last host, bit/s), `of_asked` (received/rate), `hosts`, `switches`.
    Mininet {
        /// As `mn --topo` takes it: `single,3`, `linear,2`, `tree,2`.
        topology: String,
        /// The rate of each link in bit/s; none: unlimited.
        rate: Option<u64>,
    },
    /// Requests the statistics of all rules. Metrics `delay` (mean until the last part arrives,
    /// ms); distribution `delay`.
    FlowStatistics {
        /// Seconds between the beginnings of two requests.
        every: f64,
    },
    /// Requests the statistics of all ports. Metrics as of flow statistics.
    PortStatistics {
        /// Seconds between the beginnings of two requests.
        every: f64,
    },
    /// Rules are added, then changed, then deleted, a barrier at the end of each. Metrics
    /// `install`, `modify`, `delete` (rules/s).
    Rules {
        /// How many.
        rules: u32,
    },
    /// A rule and a barrier at a time. Metrics `delay` (until the barrier's reply, mean, ms);
    /// distribution `delay`.
    Barrier {},
    /// Which matches and changes of study S3 the switch has, in the rules that it takes and in what
    /// they do: each is tried with exchanges of two hosts; with `[openflow]` only those of its
    /// `match`. Metrics `MATCH-REWRITE`, or `REWRITE` of one match (1: works, 0: refused, or no
    /// exchange is answered), `supported`, `tried`.
    Supported {},
    /// A rule for a flow of datagrams is added again and again. Metrics `effect` (from its request
    /// to the first datagram that arrives, mean, ms), `barrier` (until the barrier's reply, mean,
    /// ms), `early` (share of the replies that came before the effect), `rounds`; distribution
    /// `effect`.
    Effect {},
    /// The tests of RFC 2544 with datagrams from a host to another. Metrics `throughput` (highest
    /// rate without a loss, bit/s of payload), `frames` (the same, datagrams/s), `limited` (1: the
    /// generator, not the network, was the limit), `latency` (one way at this rate, half of a round
    /// trip, µs), `loss.100`, `loss.90` and so on down to two rates without a loss (share of the
    /// sent at this percentage of `most`), `burst` (longest burst at `most` without a loss,
    /// datagrams).
    Rfc2544 {
        /// The sending host.
        from: String,
        /// More sending hosts (RFC 8239, section 4): all have the same part of the rate.
        #[serde(default)]
        beside: Vec<String>,
        /// The receiving host.
        to: String,
        /// UDP payload in bytes.
        payload: u32,
        /// Datagrams of three lengths, as [`crate::traffic::Test::Cbr`] has them.
        #[serde(default)]
        imix: bool,
        /// The highest rate that is tried, bit/s of payload of all senders.
        most: u64,
        /// Where the search ends: the distance of two rates, as a share of `most`, 0.001 to 0.5.
        resolution: f64,
        /// Whether latency, losses and bursts are measured too.
        #[serde(default)]
        whole: bool,
    },
    /// A host sends the frames of a capture file to another, with the distances in time that they
    /// were captured with; all get the receiver's Ethernet address, and one that no host has as
    /// their source. Metrics `sent`, `received` (frames), `share` (received/sent), `rate`
    /// (received, frames/s), `bits` (received, bit/s), `refused` (frames that the sender's device
    /// did not take), `cut` (frames that the file does not have whole), `late` (µs that one frame
    /// in a hundred was sent late by).
    Replay {
        /// The sending host.
        from: String,
        /// The receiving host.
        to: String,
        /// A file in the classic pcap format, of Ethernet frames; relative to the directory that
        /// the laboratory runs in.
        file: std::path::PathBuf,
        /// By how much faster than it was captured.
        #[serde(default = "as_captured")]
        speed: f64,
    },
    /// A host serves, another one loads it with requests for whole seconds, by real programs.
    /// For HTTP/3 the laboratory's own program sends the requests.
    /// Metrics `rate` (answers/s), `bits` (of the answers, bit/s), `latency` (mean, µs), of the web
    /// also `median` and `p99` (µs), `lost` (requests without a right answer).
    Application {
        /// Which.
        application: Application,
        /// The host that asks.
        from: String,
        /// The host that serves.
        to: String,
        /// Connections of the web, clients of DNS, at the same time; each has one request
        /// outstanding.
        connections: u32,
        /// Bytes of a page of the web.
        #[serde(default = "page")]
        size: u32,
        /// Whether each page comes by a connection of its own.
        #[serde(default)]
        fresh: bool,
    },
    /// The switch sends a packet-in for every new flow (cbench). Metrics `throughput` (packet-ins/s
    /// with unlimited outstanding ones), `latency` (ms with one outstanding).
    PacketIn {},
    /// The controller sends packets through the switch. Metrics `rate` (arrived/s), `share`
    /// (arrived/sent).
    PacketOut {
        /// UDP payload in bytes.
        payload: u32,
    },
}

/// What happens to a cable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Both ends lose the carrier.
    #[default]
    Carrier,
    /// It loses all frames, and the carrier stays; only a cable with a rate can.
    Silence,
    /// An administrator takes it out of the bonds at both ends.
    Removal,
}

/// What a switch tells of its traffic by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Watcher {
    /// Nothing.
    None,
    /// A mirror (SPAN).
    Mirror,
    /// sFlow version 5.
    Sflow,
    /// IPFIX.
    Ipfix,
    /// NetFlow version 5.
    Netflow,
}

impl Observe {
    /// How much longer than the configured time it takes, in seconds.
    fn beyond(&self, seconds: f64) -> f64 {
        match self {
            Observe::Rfc2544 { resolution, whole, .. } => {
                let search = (1.0 / resolution.clamp(0.001, 0.5)).log2().ceil();
                let trials = if *whole { 2.0 * search + 6.0 } else { search + 1.0 };
                trials * (seconds + TRIAL_SECONDS) - seconds
            }
            Observe::Supported {} => SUPPORTED_SECONDS,
            Observe::Gaps { during, number, .. } => during.seconds(*number, seconds) - seconds,
            _ => 0.0,
        }
    }

    fn needs_openflow(&self) -> bool {
        match self {
            Observe::Reachability { .. }
            | Observe::Idle {}
            | Observe::Broadcast { .. }
            | Observe::Capture { .. }
            | Observe::Witness { .. }
            | Observe::Fairness { .. }
            | Observe::Usage { .. }
            | Observe::Cut { .. }
            | Observe::Liveness { .. }
            | Observe::Watch { .. }
            | Observe::Mininet { .. }
            | Observe::Rfc2544 { .. }
            | Observe::Replay { .. }
            | Observe::Application { .. }
            | Observe::Addresses { .. } => false,
            Observe::Capacity { .. }
            | Observe::Supported {}
            | Observe::Effect {}
            | Observe::Gaps { .. }
            | Observe::FlowStatistics { .. }
            | Observe::PortStatistics { .. }
            | Observe::Rules { .. }
            | Observe::Barrier {}
            | Observe::PacketIn {}
            | Observe::PacketOut { .. } => true,
        }
    }
}

fn page() -> u32 {
    1000
}

fn as_captured() -> f64 {
    1.0
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_takes_longer_for_each_rate_that_is_measured_before() {
        let mut setup = Setup::nothing();
        assert_eq!(setup.duration(), 1.0);
        let flow = |of_most| Flow {
            name: "short".to_owned(),
            from: "a".to_owned(),
            to: "b".to_owned(),
            test: Test::Flood {
                payload: 18,
                rate: None,
                of_most,
            },
        };
        setup.background = vec![flow(Some(0.9)), flow(None)];
        assert!((setup.duration() - 2.6).abs() < 1e-9);
        setup.seconds = 60.0;
        assert!((setup.duration() - 62.6).abs() < 1e-9);
    }
}
