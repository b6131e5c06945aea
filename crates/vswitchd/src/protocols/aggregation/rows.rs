//! Bonds and LACP in the rows of ports and interfaces.

use crate::carriers::INTERVAL;
use ovsdb::rows;
use protocols::bond::{Config, Mode};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::MacAddr;

/// What a port's row says of its bond and of LACP.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// The bond, without members.
    pub(crate) bond: Config,
    pub(crate) lacp: Option<Lacp>,
}

/// LACP of a port.
#[derive(Clone, Debug)]
pub(crate) struct Lacp {
    pub(crate) active: bool,
    pub(crate) fast: bool,
    pub(crate) priority: u16,
    /// `lacp-system-id`; the bridge's address by default.
    pub(crate) system: Option<MacAddr>,
}

/// LACP of an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LacpMember {
    /// 0 for the OpenFlow port number.
    pub(crate) port: u16,
    pub(crate) priority: u16,
    /// 0 for the number of the port that provides the key ([`protocols::lacp`]).
    pub(crate) key: u16,
}

impl Default for LacpMember {
    fn default() -> LacpMember {
        LacpMember {
            port: 0,
            priority: u16::MAX,
            key: 0,
        }
    }
}

impl Wanted {
    /// Whether a port of so many interfaces has a bond or LACP.
    pub(crate) fn is_wanted(&self, interfaces: usize) -> bool {
        interfaces > 1 || self.lacp.is_some()
    }
}

/// A port's bond and LACP, and what is wrong with their settings.
pub(crate) fn port(row: &rows::Port) -> (Wanted, Option<String>) {
    let keys = &row.other_config;
    let flag = |key: &str| keys.get(key).is_some_and(|value| value == "true");
    let delay = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or_default());
    let (mode, problem) = match row.bond_mode.as_deref() {
        None | Some("active-backup") => (Mode::ActiveBackup, None),
        Some("balance-slb") => (Mode::Slb, None),
        Some("balance-tcp") => (Mode::Tcp, None),
        Some(other) => (
            Mode::ActiveBackup,
            Some(format!("unknown bond_mode {other}, defaulting to active-backup")),
        ),
    };
    let rebalance = number(keys, "bond-rebalance-interval").unwrap_or(10_000_u64);
    let bond = Config {
        mode,
        updelay: delay(row.bond_updelay),
        downdelay: delay(row.bond_downdelay),
        basis: number(keys, "bond-hash-basis").unwrap_or_default(),
        rebalance: (rebalance != 0).then(|| Duration::from_millis(rebalance.max(1000))),
        fallback: flag("lacp-fallback-ab"),
        all_members_active: flag("all-members-active"),
        lb_output: flag("lb-output-action"),
        // Relevant in these modes only, as in Open vSwitch.
        primary: keys
            .get("bond-primary")
            .filter(|_| mode == Mode::ActiveBackup || flag("lacp-fallback-ab"))
            .cloned(),
        was_active: row.bond_active_slave.as_deref().and_then(|mac| mac.parse().ok()),
        ..Config::default()
    };
    let lacp = match row.lacp.as_deref() {
        Some(mode @ ("active" | "passive")) => Some(Lacp {
            active: mode == "active",
            fast: keys.get("lacp-time").is_some_and(|time| time == "fast"),
            priority: number(keys, "lacp-system-priority")
                .filter(|priority| *priority > 0)
                .unwrap_or(u16::MAX - u16::from(row.interfaces.len() > 1)),
            system: keys.get("lacp-system-id").and_then(|mac| mac.parse().ok()),
        }),
        _ => None,
    };
    (Wanted { bond, lacp }, problem)
}

/// How often the PHYs of a bond's members are asked, and what is wrong with the settings.
pub(crate) fn miimon(row: &rows::Port) -> (Option<Duration>, Option<String>) {
    let keys = &row.other_config;
    let interval = number(keys, "bond-miimon-interval").filter(|ms: &u64| *ms > 0);
    let interval = interval.map_or(INTERVAL, Duration::from_millis);
    match keys.get("bond-detect-mode").map(String::as_str) {
        Some("miimon") => (Some(interval).filter(|_| row.interfaces.len() > 1), None),
        None | Some("carrier") => (None, None),
        Some(other) => (
            None,
            Some(format!("unsupported bond-detect-mode {other}, defaulting to carrier")),
        ),
    }
}

/// LACP of an interface's row.
pub(crate) fn interface(row: &rows::Interface) -> LacpMember {
    let keys = &row.other_config;
    let positive = |key: &str| number(keys, key).filter(|number: &u16| *number > 0);
    LacpMember {
        port: positive("lacp-port-id").unwrap_or_default(),
        priority: positive("lacp-port-priority").unwrap_or(u16::MAX),
        key: positive("lacp-aggregation-key").unwrap_or_default(),
    }
}

fn number<T: std::str::FromStr>(map: &BTreeMap<String, String>, key: &str) -> Option<T> {
    map.get(key)?.trim().parse().ok()
}
