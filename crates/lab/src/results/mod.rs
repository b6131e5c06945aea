//! The results of a run: samples, skipped cells with their reasons, and the machine.
//!
//! A run is a directory ([`Store`]):
//! - `run.json`: a [`Run`]: options and machine;
//! - `samples.jsonl`: a [`Record`] a line, appended when it is complete, so that an interrupted run
//!   can continue;
//! - `configuration/SCENARIO/SYSTEM.txt`: the commands that set the system up, as a user would type
//!   them.

mod machine;
mod store;

pub use machine::Machine;
pub use store::{Results, Store, load};

pub use crate::scenario::Profile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `run.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`FORMAT`] of those who wrote it.
    pub format: u32,
    /// How much of each scenario.
    pub profile: Profile,
    /// The seed of the order of repetitions.
    pub seed: u64,
    /// In a virtual machine of the lab's own.
    pub in_guest: bool,
    /// Where, as it was found at the beginning.
    pub machine: Machine,
    /// The machine that the switches ran on; none: the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
    /// Descriptions of the systems under test, by name.
    pub systems: BTreeMap<String, String>,
    /// By id.
    pub scenarios: BTreeMap<String, Experiment>,
    /// Each time that `oxvs lab run` worked on it, in order.
    pub invocations: Vec<Invocation>,
    /// How often two builds were compared to decide what to repeat; 0 of other runs.
    #[serde(default)]
    pub looks: u32,
}

/// Format of a run's directory.
pub const FORMAT: u32 = 1;

impl Run {
    /// One that has not begun, of a machine that is not known yet.
    pub(crate) fn new(profile: Profile, seed: u64) -> Run {
        Run {
            format: FORMAT,
            profile,
            seed,
            in_guest: false,
            machine: Machine::default(),
            remote: None,
            systems: BTreeMap::new(),
            scenarios: BTreeMap::new(),
            invocations: Vec::new(),
            looks: 0,
        }
    }
}

/// A second machine, which the switches run on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remote {
    /// Its name, as ssh takes it.
    pub host: String,
    /// The devices of the wire, here and there, and how it carries cables.
    pub wire: String,
    /// The machine.
    pub machine: Machine,
}

impl Remote {
    /// The differences of two runs' second machines that forbid mixing their results; none if there
    /// are none.
    pub fn differ(one: Option<&Remote>, other: Option<&Remote>) -> Option<String> {
        match (one, other) {
            (None, None) => None,
            (None, Some(there)) => Some(format!("its switch was here, not on {}", there.host)),
            (Some(there), None) => Some(format!("its switch was on {}, not here", there.host)),
            (Some(one), Some(other)) if one.wire != other.wire => {
                Some(format!("wire '{}', not '{}'", one.wire, other.wire))
            }
            (Some(one), Some(other)) => {
                let difference = one.machine.differs(&other.machine);
                difference.map(|difference| format!("the switch's {difference}"))
            }
        }
    }
}

/// A scenario as it was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// The file's name.
    pub file: String,
    /// All of the file.
    pub text: String,
    /// SHA-1 of the text, in hexadecimal.
    pub hash: String,
    /// Number of samples of each system in this profile.
    pub samples: u64,
    /// How often its verdicts were looked at, to decide whether to go on (`--until-decided`).
    #[serde(default)]
    pub looks: u32,
    /// How often cells are measured that are measured more often than others, by their numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub repeated: BTreeMap<usize, u32>,
    /// The systems that were chosen for it, each with the number of its samples. Empty: the run is
    /// of a version that did not record it.
    #[serde(default)]
    pub chosen: BTreeMap<String, u64>,
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Experiment {
    /// Of a file's text.
    pub fn new(file: &str, text: &str, samples: u64) -> Experiment {
        use sha1::Digest;
        let hash = sha1::Sha1::digest(text.as_bytes());
        Experiment {
            file: file.to_owned(),
            text: text.to_owned(),
            hash: hex(&hash),
            samples,
            looks: 0,
            repeated: BTreeMap::new(),
            chosen: BTreeMap::new(),
        }
    }
}

/// An invocation that worked on a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Invocation {
    /// Seconds since 1970.
    pub began: f64,
    /// How long, in seconds; none: it is at work, or was killed.
    pub seconds: Option<f64>,
    /// Version of oxvs.
    pub version: String,
    /// Mean number of processes that ran or wanted to, over the minute before.
    pub load: f64,
    /// How it ended: `complete`, `budget`, `interrupted`, or the error.
    pub end: Option<String>,
}

/// A line of `samples.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// A repetition that was run.
    Sample(Box<Sample>),
    /// What could not be run.
    Skipped(Skipped),
}

/// One repetition of one cell of a scenario on one system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Id of the scenario, as `S0.rtt.l3`.
    pub scenario: String,
    /// Name of the switch under test, as `oxvs`, `bridge`, `ovs-userspace`.
    pub system: String,
    /// The dimensions' values.
    pub at: BTreeMap<String, String>,
    /// Counted from 0; those of a warm-up are not recorded.
    pub repetition: u32,
    /// The number of the testbed: those with the same number were taken on one testbed with one
    /// switch on it, and are not independent of each other. 0: unknown, so all are taken for one.
    #[serde(default)]
    pub testbed: u32,
    /// Seconds since 1970.
    pub started: f64,
    /// How long the measured part took.
    pub seconds: f64,
    /// By flow and metric, as `probe.rtt`; units as [`crate::traffic::Test`] and the scenario say.
    pub metrics: BTreeMap<String, f64>,
    /// By flow and metric.
    #[serde(default)]
    pub distributions: BTreeMap<String, Distribution>,
    /// What happened inside it, by what and where, as `rate.PC4`, `cpu.system`, `drops`: seconds
    /// since the measurement began, and values in bit/s, processors, packets a second.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Vec<(f64, f64)>>,
    /// Where packets were lost.
    #[serde(default)]
    pub losses: Vec<Loss>,
    /// Processor seconds by user: the system, `lab`, all; of a switch on another machine `remote`,
    /// all of that one.
    #[serde(default)]
    pub cpu: BTreeMap<String, f64>,
    /// Average number of processors busy with other work.
    pub load: f64,
    /// Remarks about this sample.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// Whether it counts, and by what it was measured.
    #[serde(default)]
    pub validity: Validity,
}

/// Whether a sample counts, and by what it was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Validity {
    /// Why it does not count, as a void sample; empty: it counts.
    #[serde(default)]
    pub void: Vec<String>,
    /// What its hosts are; none: not recorded.
    #[serde(default)]
    pub acceleration: Option<Acceleration>,
    /// How fast the guests' processors are: their share of this machine's speed in the same loop.
    #[serde(default)]
    pub guest_speed: Option<f64>,
    /// What the same instruments found on a bare cable in this run, by flow and metric as
    /// [`Sample::metrics`]: the floor of a round trip, the most that the generator sends.
    #[serde(default)]
    pub controls: BTreeMap<String, f64>,
}

/// What the hosts of a testbed are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Acceleration {
    /// Network namespaces of this machine.
    Namespaces,
    /// Guests, by the processor itself.
    Kvm,
    /// Guests, emulated by QEMU.
    Tcg,
}

impl Acceleration {
    /// For a reader.
    pub fn name(self) -> &'static str {
        match self {
            Acceleration::Namespaces => "namespaces",
            Acceleration::Kvm => "KVM",
            Acceleration::Tcg => "emulation (TCG)",
        }
    }
}

impl Sample {
    /// Whether it counts.
    pub fn is_valid(&self) -> bool {
        self.validity.void.is_empty()
    }

    /// Whether it may decide a study's claim: no study measured guests under emulation.
    pub fn decides(&self) -> bool {
        self.is_valid() && self.validity.acceleration != Some(Acceleration::Tcg)
    }
}

/// A distribution of many values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// How many.
    pub count: u64,
    /// Shares of the values (0 to 1) with their quantiles, ascending. At most 200.
    pub quantiles: Vec<(f64, f64)>,
}

/// Packets lost for one cause at one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// Which part: `sender`, `arp`, `port`, `policer`, `queue`, `upcall`, `cable`, `receiver`,
    /// `unexplained`.
    pub cause: String,
    /// Where, as a port's or host's name.
    pub place: String,
    /// How many.
    pub packets: u64,
}

/// A cell, or more, that could not be run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    /// Id of the scenario.
    pub scenario: String,
    /// Name of the switch under test.
    pub system: String,
    /// Which cells: all that have these values.
    #[serde(default)]
    pub at: BTreeMap<String, String>,
    /// Why, for a reader of the report.
    pub reason: String,
    /// It was tried; else it cannot be run here.
    #[serde(default)]
    pub failed: bool,
}
