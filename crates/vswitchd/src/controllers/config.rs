//! The controllers that the database configures.

use crate::desired::Bridge;
use mgmt::paths;
use mgmt::stream::{DEFAULT_DSCP, OPENFLOW_PORT, Remote};
use ofproto::{Kind, Limit};
use ovsdb::{Uuid, rows};
use std::collections::BTreeMap;
use std::time::Duration;

/// A `Controller` row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Controller {
    pub(crate) uuid: Uuid,
    pub(crate) target: String,
    /// Its address, or why it is invalid.
    pub(crate) remote: Result<Remote, String>,
    pub(crate) settings: Settings,
    /// Whether the connection runs over the bridge itself.
    pub(crate) in_band: bool,
}

/// The settings of a controller's connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) kind: Kind,
    pub(crate) max_backoff: Duration,
    pub(crate) probe: Option<Duration>,
    pub(crate) asynchronous: bool,
    pub(crate) limit: Option<Limit>,
    /// The length of its packet-in queue, if not the default.
    pub(crate) queue: Option<usize>,
    pub(crate) dscp: u8,
}

const MAX_BACKOFF: Duration = Duration::from_secs(8);
const PROBE: Duration = Duration::from_secs(5);

/// Reads a row of a bridge's.
pub(crate) fn controller(bridge: &str, row: &rows::Controller) -> Controller {
    let remote = Remote::parse(&row.target, OPENFLOW_PORT).map_err(|error| error.to_string());
    let remote = remote.and_then(|remote| harmless(bridge, remote));
    let passive = remote.as_ref().is_ok_and(Remote::is_passive);
    let kind = match row.type_.as_deref() {
        Some("primary") => Kind::Primary,
        Some("service") => Kind::Service,
        _ if passive => Kind::Service,
        _ => Kind::Primary,
    };
    let number = |value: Option<i64>, least: u32| value.map(|v| u32::try_from(v).unwrap_or(0).max(least));
    let millis = |value: i64| Duration::from_millis(u64::try_from(value).unwrap_or(0));
    let rate = number(row.controller_rate_limit, 100);
    Controller {
        uuid: row.uuid,
        target: row.target.clone(),
        remote,
        settings: Settings {
            kind,
            max_backoff: row.max_backoff.map_or(MAX_BACKOFF, millis).max(Duration::from_secs(1)),
            probe: Some(row.inactivity_probe.map_or(PROBE, millis)).filter(|probe| !probe.is_zero()),
            asynchronous: row.enable_async_messages.unwrap_or(true),
            limit: rate.map(|rate| Limit {
                rate,
                burst: number(row.controller_burst_limit, 25).unwrap_or(rate / 4).max(1),
            }),
            queue: number(row.controller_queue_size, 1).map(|size| size.min(512) as usize),
            dscp: dscp(&row.other_config),
        },
        in_band: row.connection_mode.as_deref() != Some("out-of-band"),
    }
}

/// A remote client that writes to the database must not make the switch open any socket of this
/// machine. As Open vSwitch does, the switch connects only to sockets in the run directory, and
/// listens there only on one with the bridge's name.
fn harmless(bridge: &str, remote: Remote) -> Result<Remote, String> {
    let own = paths::in_rundir(format!("{bridge}.controller"));
    match &remote {
        Remote::Unix(file) if file.parent() != own.parent() => Err(format!(
            "{remote}: not connected to, because it is not in the directory {}; {bridge}.mgmt there is always served",
            paths::rundir().display()
        )),
        Remote::PassiveUnix(file) if *file != own => Err(format!(
            "{remote}: not listened on, because only punix:{} may be",
            own.display()
        )),
        _ => Ok(remote),
    }
}

fn dscp(config: &BTreeMap<String, String>) -> u8 {
    let given = config.get("dscp").and_then(|text| text.parse().ok());
    given.filter(|dscp| *dscp < 64).unwrap_or(DEFAULT_DSCP)
}

/// The managers that the database connects to, which in-band rules must admit besides controllers.
pub(crate) fn managers(rows: &BTreeMap<Uuid, rows::Manager>) -> Vec<Remote> {
    rows.values()
        .filter(|row| row.connection_mode.as_deref() != Some("out-of-band"))
        .filter_map(|row| row.target.parse().ok())
        .filter(|remote: &Remote| !remote.is_passive() && !remote.is_local())
        .collect()
}

impl Bridge {
    /// Whether a controller is configured to program the bridge.
    pub(crate) fn is_controlled(&self) -> bool {
        self.controllers.iter().any(|c| c.settings.kind == Kind::Primary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(target: &str, change: impl FnOnce(&mut rows::Controller)) -> Controller {
        let mut row = rows::Controller {
            target: target.to_owned(),
            ..rows::Controller::default()
        };
        change(&mut row);
        controller("br0", &row)
    }

    #[test]
    fn whoever_is_connected_to_is_primary_and_whoever_connects_serves_unless_the_row_says_otherwise() {
        let kind =
            |target: &str, kind: Option<&str>| read(target, |row| row.type_ = kind.map(str::to_owned)).settings.kind;
        assert_eq!(kind("tcp:10.0.0.1", None), Kind::Primary);
        assert_eq!(kind("pssl:", None), Kind::Service);
        assert_eq!(kind("punix:br0.controller", None), Kind::Service);
        assert_eq!(kind("ptcp:", Some("primary")), Kind::Primary);
        assert_eq!(kind("ssl:h", Some("service")), Kind::Service);
    }

    #[test]
    fn defaults_are_open_vswitchs_and_the_port_is_openflows() {
        let plain = read("tcp:10.0.0.1", |_| {});
        assert_eq!(plain.remote.unwrap().to_string(), "tcp:10.0.0.1:6653");
        assert!(plain.in_band);
        let expected = Settings {
            kind: Kind::Primary,
            max_backoff: Duration::from_secs(8),
            probe: Some(Duration::from_secs(5)),
            asynchronous: true,
            limit: None,
            queue: None,
            dscp: 48,
        };
        assert_eq!(plain.settings, expected);
    }

    #[test]
    fn a_burst_without_a_number_is_a_quarter_of_the_rate_and_no_probe_is_zero() {
        let limited = read("tcp:10.0.0.1", |row| {
            row.controller_rate_limit = Some(1000);
            row.inactivity_probe = Some(0);
            row.max_backoff = Some(1);
            row.other_config.insert("dscp".into(), "64".into());
            row.connection_mode = Some("out-of-band".into());
        });
        assert_eq!(limited.settings.limit, Some(Limit { rate: 1000, burst: 250 }));
        assert_eq!(limited.settings.probe, None);
        assert_eq!(limited.settings.max_backoff, Duration::from_secs(1));
        assert_eq!((limited.settings.dscp, limited.in_band), (48, false));
        assert!(read("nowhere", |_| {}).remote.is_err());
    }

    #[test]
    fn sockets_of_files_are_only_those_of_the_run_directory() {
        let is_ok = |target: &str| read(target, |_| {}).remote.is_ok();
        assert!(is_ok("unix:controller.sock"));
        assert!(is_ok("punix:br0.controller"));
        for target in [
            "unix:/etc/x",
            "unix:../x",
            "punix:/etc/x",
            "punix:br1.controller",
            "punix:br0.mgmt",
        ] {
            assert!(!is_ok(target), "{target}");
        }
    }
}
