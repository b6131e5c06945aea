//! What a controller sets up at a bridge before a run.

use serde::{Deserialize, Serialize};

/// A controller's set-up of a bridge before the run; it gets no packets during the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenFlow {
    /// The bridge.
    pub bridge: String,
    /// Whether rules are installed.
    #[serde(default)]
    pub mode: Mode,
    /// The match of the flows' rules.
    #[serde(default, rename = "match")]
    pub matching: Matching,
    /// The change of packets by these rules.
    #[serde(default)]
    pub rewrite: Rewrite,
    /// Number of rules; those of the flows are installed last.
    #[serde(default)]
    pub rules: Fill,
    /// How many different masks the other rules with wildcards have, 1 to 24.
    #[serde(default = "one")]
    pub masks: u32,
    /// Maximum number of rules to install in order to fill the table.
    #[serde(default = "at_most")]
    pub at_most: u32,
}

fn one() -> u32 {
    1
}

/// The largest table that a study reports: a million rules in Open vSwitch.
fn at_most() -> u32 {
    1_000_000
}

/// The forwarding mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The switch, by MAC learning.
    Legacy,
    /// Rules.
    #[default]
    Openflow,
}

/// The match of a rule (study S3, table II).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Matching {
    /// The port that a packet comes in by.
    #[default]
    Port,
    /// Source and destination MAC addresses.
    Mac,
    /// Ethertype, source and destination IP addresses.
    Ip,
    /// Those of `ip`, transport protocol, source and destination ports.
    UdpPort,
    /// All twelve fields of OpenFlow 1.0.
    Exact,
}

impl Matching {
    /// All of them.
    pub const ALL: [Matching; 5] = [
        Matching::Port,
        Matching::Mac,
        Matching::Ip,
        Matching::UdpPort,
        Matching::Exact,
    ];
}

/// The change that a rule makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rewrite {
    /// Nothing.
    #[default]
    None,
    /// The source MAC address.
    Mac,
    /// The source IP address.
    Ip,
    /// The priority of the VLAN tag.
    VlanPriority,
    /// The IP type of service.
    IpTos,
    /// The UDP source port.
    UdpPort,
}

impl Rewrite {
    /// All of them, and none.
    pub const ALL: [Rewrite; 6] = [
        Rewrite::None,
        Rewrite::Mac,
        Rewrite::Ip,
        Rewrite::VlanPriority,
        Rewrite::IpTos,
        Rewrite::UdpPort,
    ];
}

/// How many rules a table has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// No more than the flows need.
    #[default]
    One,
    /// A tenth less than it takes.
    NearlyFull,
    /// As many as it takes.
    Full,
    /// So many.
    #[serde(untagged)]
    Number(u32),
}
