//! Parses a database's strings into configurations and their displayed details.
//!
//! Source of the documented keys: the tables QoS and Queue of ovs-vswitchd.conf.db(5). Keys of our
//! own, in `Queue.other_config`: `parent`, `rt`, `ls`, `ul`, `leaf` with the keys of that
//! discipline, and `ecn`.
//!
//! An illegal value refuses the whole configuration: [`KeyError`] names row, key, value and the
//! legal values. An unread key is a warning.
//!
//! - [`reader`]: a row's keys, one by one.
//! - [`leaves`]: disciplines without classes. [`others`]: netem and the policers.
//! - [`family`]: the tree of queues. [`htb`], [`hfsc`]: classes.

mod family;
mod hfsc;
mod htb;
mod leaves;
mod others;
mod reader;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_classes;

use crate::discipline::Discipline;
use crate::police::IngressPolicerConfig;
use crate::{ConfigError, PortSpeed, Rate};
use leaves::LeafKind;
use reader::Reader;
use std::collections::BTreeMap;
use std::fmt;

/// Strings of the database.
pub type Strings = BTreeMap<String, String>;

/// The kinds of QoS.
pub const KINDS: [&str; 9] = [
    "egress-policer",
    "linux-codel",
    "linux-fq_codel",
    "linux-hfsc",
    "linux-htb",
    "linux-netem",
    "linux-noop",
    "linux-sfq",
    "trtcm-policer",
];

/// The assumed rate of a link with unknown speed, in bit/s.
const DEFAULT_SPEED: u64 = 10_000_000_000;

/// Maximum number of warnings of one configuration.
const MOST_WARNINGS: usize = 10;

/// The default and minimum guaranteed rate of a class, in bit/s.
const LEAST_RATE: u64 = 12_000;

/// A `Queue` row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueRow {
    /// Its keys.
    pub other_config: Strings,
    /// The DSCP that it sets, 0 to 63.
    pub dscp: Option<u8>,
}

/// The link's properties, on which defaults depend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Bit/s, where they are known (else 10 Gbit/s).
    pub speed: Option<u64>,
    /// Bytes of a packet without its Ethernet header, where they are known (else 1500).
    pub mtu: Option<u32>,
    /// A seed for random choices. A change sorts the queued packets again.
    pub seed: u64,
}

/// Keys as they are shown, with the values in force.
pub type Details = Vec<(&'static str, String)>;

/// A parsed configuration.
#[derive(Clone, Debug)]
pub struct Configured {
    /// The configuration.
    pub discipline: Discipline,
    /// The rate that the port's queues share, in bit/s, where the kind has one.
    pub rate: Option<u64>,
    /// The port's keys.
    pub details: Details,
    /// Its queues; queue 0 is always there.
    pub queues: BTreeMap<u32, Queue>,
    /// The DSCP for each queue number, whether the kind has such queues or not.
    pub dscp: BTreeMap<u32, u8>,
    /// Settings without the expected effect.
    pub warnings: Vec<String>,
}

/// A queue as it is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Its keys.
    pub details: Details,
    /// The queue that it is a child of; `None` is the port.
    pub parent: Option<u32>,
    /// Its guaranteed rate in bit/s, if set.
    pub min_rate: Option<u64>,
    /// Its maximum rate in bit/s, if set.
    pub max_rate: Option<u64>,
}

/// Reads a `QoS` row and its queues.
///
/// # Errors
/// The first value that breaks a rule.
pub fn discipline(
    kind: &str,
    other_config: &Strings,
    queues: &BTreeMap<u32, QueueRow>,
    link: &Link,
) -> Result<Configured, KeyError> {
    let mut port = Reader::new(Row::Qos, other_config);
    let mut rows: BTreeMap<u32, Reader<'_>> = BTreeMap::new();
    for (number, row) in queues {
        rows.insert(*number, Reader::new(Row::Queue(*number), &row.other_config));
    }
    let mut configured = match kind {
        "linux-htb" => htb::read(&mut port, &mut rows, link)?,
        "linux-hfsc" => hfsc::read(&mut port, &mut rows, link)?,
        "linux-sfq" => leaves::read(LeafKind::Sfq, &mut port, link)?,
        "linux-codel" => leaves::read(LeafKind::Codel, &mut port, link)?,
        "linux-fq_codel" => leaves::read(LeafKind::FqCodel, &mut port, link)?,
        "linux-netem" => others::netem(&mut port, link)?,
        "linux-noop" => Configured::single(Discipline::Noop, Details::new()),
        "egress-policer" => others::egress_policer(&mut port)?,
        "trtcm-policer" => others::trtcm_policer(&mut port, &mut rows)?,
        _ => {
            return Err(KeyError {
                row: Row::Qos,
                key: "type".to_owned(),
                value: Some(kind.to_owned()),
                rule: format!("not one of {}", KINDS.join(", ")),
            });
        }
    };
    for number in queues.keys().filter(|number| !configured.queues.contains_key(*number)) {
        let warning = format!("queue {number}: {kind} has one queue, in which its packets are with all others");
        configured.warnings.push(warning);
    }
    for reader in std::iter::once(&port).chain(rows.values()) {
        for key in reader.unread() {
            let warning = format!(
                "{}: {key} is no key of {kind} in this place and has no effect",
                reader.row()
            );
            configured.warnings.push(warning);
        }
    }
    let more = configured.warnings.len().saturating_sub(MOST_WARNINGS);
    if more > 0 {
        configured.warnings.truncate(MOST_WARNINGS);
        configured.warnings.push(format!("and {more} more like these"));
    }
    let marks = queues.iter().filter_map(|(number, row)| Some((*number, row.dscp?)));
    configured.dscp = marks.filter(|(_, dscp)| *dscp < 64).collect();
    Ok(configured)
}

impl Configured {
    /// Of a kind that has one queue.
    fn single(discipline: Discipline, details: Details) -> Configured {
        Configured {
            discipline,
            rate: None,
            details,
            queues: BTreeMap::from([(0, Queue::default())]),
            dscp: BTreeMap::new(),
            warnings: Vec::new(),
        }
    }
}

/// Reads `Interface.other_config:port-speed`, in bit/s, from 1000.
///
/// # Errors
/// What is not such a number.
pub fn port_speed(other_config: &Strings) -> Result<Option<(u64, PortSpeed)>, KeyError> {
    let mut reader = Reader::new(Row::Interface, other_config);
    let Some(bits) = reader.number("port-speed", "bit/s")? else {
        return Ok(None);
    };
    let speed = reader.check(PortSpeed::new(bits))?;
    Ok(Some((bits, speed)))
}

/// Reads the columns `ingress_policing_rate`, `_burst`, `_kpkts_rate` and `_kpkts_burst` of an
/// interface; `None` where nothing is policed.
///
/// # Errors
/// A number below 0 or above 2^32.
pub fn policing(columns: [i64; 4]) -> Result<Option<IngressPolicerConfig>, KeyError> {
    const NAMES: [&str; 4] = [
        "ingress_policing_rate",
        "ingress_policing_burst",
        "ingress_policing_kpkts_rate",
        "ingress_policing_kpkts_burst",
    ];
    let refuse = |at: usize| KeyError {
        row: Row::Interface,
        key: NAMES[at].to_owned(),
        value: Some(columns[at].to_string()),
        rule: format!("not between 0 and {}", 1_u64 << 32),
    };
    let mut values = [0_u64; 4];
    for (at, column) in columns.iter().enumerate() {
        values[at] = u64::try_from(*column).map_err(|_| refuse(at))?;
    }
    let [rate, burst, kpkts, kpkts_burst] = values;
    let config = IngressPolicerConfig::new(rate, burst, kpkts, kpkts_burst).map_err(|error| match error {
        ConfigError::OutOfRange { key, .. } => refuse(NAMES.iter().position(|name| *name == key).unwrap_or(0)),
        _ => refuse(0),
    })?;
    Ok(Some(config).filter(|config| !config.is_off()))
}

/// The rate that queues share: the row's, else the link's.
fn port_rate(port: &mut Reader<'_>, link: &Link) -> Result<u64, KeyError> {
    let rate = port.rate("max-rate")?;
    Ok(rate.unwrap_or_else(|| link.speed.unwrap_or(DEFAULT_SPEED).clamp(1, Rate::MAX)))
}

/// The rates of a class: each at least 1 bit/s, the first not above the second.
fn rates(row: &mut Reader<'_>) -> Result<(Option<u64>, Option<u64>), KeyError> {
    let (min, max) = (row.rate("min-rate")?, row.rate("max-rate")?);
    match (min, max) {
        (Some(min), Some(max)) if min > max => Err(row.refuse("min-rate", format!("more than max-rate={max}"))),
        rates => Ok(rates),
    }
}

/// A row of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// The `QoS` row.
    Qos,
    /// The `Queue` row of a number.
    Queue(u32),
    /// The `Interface` row.
    Interface,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Row::Qos => write!(f, "QoS"),
            Row::Queue(number) => write!(f, "queue {number}"),
            Row::Interface => write!(f, "interface"),
        }
    }
}

/// A value that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// Where it stands.
    pub row: Row,
    /// Its key, or its column.
    pub key: String,
    /// The value; `None` where there is none and must be one.
    pub value: Option<String>,
    /// The rule that it breaks.
    pub rule: String,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.row, self.key)?;
        if let Some(value) = &self.value {
            write!(f, "={value}")?;
        }
        write!(f, ": {}", self.rule)
    }
}

impl std::error::Error for KeyError {}
