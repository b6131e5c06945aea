//! What a switch is busy with while a flow is watched.

use serde::{Deserialize, Serialize};

/// What happens to a switch meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum During {
    /// Nothing.
    Nothing,
    /// Internal ports come to another bridge in one transaction, and go.
    InternalPorts,
    /// The same with veth devices.
    VethPorts,
    /// Rules come one by one, and go.
    Rules,
    /// Rules come in a bundle, and go in another.
    Bundle,
    /// The rules of offloaded flows go.
    OffloadedRules,
    /// All megaflows go, those of the offloaded flows too.
    OffloadedFlows,
    /// The port that offloaded flows go to is removed and added again.
    OffloadedPort,
}

/// What a part takes beside what happens, and how many ports and rules a second come or go, in
/// seconds; roughly.
const BESIDE: f64 = 0.4;
const PORTS: f64 = 400.0;
const RULES: f64 = 150_000.0;

/// How many offloaded flows a second are prepared.
const FLOWS: f64 = 600.0;

impl During {
    /// The most of them. Of the offload's 8192 flows one port may have 7168; of more than half,
    /// those that are idle for a second close.
    pub(crate) fn most(self) -> u32 {
        match self {
            During::Nothing => u32::MAX,
            During::InternalPorts | During::VethPorts => 10_000,
            During::Rules | During::Bundle => 1_000_000,
            During::OffloadedRules | During::OffloadedFlows | During::OffloadedPort => 3500,
        }
    }

    /// About how long it takes, if the flow is watched for so many seconds before and after each
    /// part.
    pub(super) fn seconds(self, number: u32, around: f64) -> f64 {
        let number = f64::from(number);
        let (parts, each) = match self {
            During::Nothing => (1.0, 0.0),
            During::InternalPorts | During::VethPorts => (2.0, number / PORTS),
            During::Rules | During::Bundle => (2.0, number / RULES),
            During::OffloadedRules | During::OffloadedFlows | During::OffloadedPort => (1.0, number / FLOWS),
        };
        parts * (each + 2.0 * around + BESIDE)
    }
}
