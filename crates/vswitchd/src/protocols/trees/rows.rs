//! Spanning trees in the rows of bridges and ports.
//!
//! A value that is not legal is named in the row, and the default takes its place.

use crate::desired::{self, Bridge};
use ovsdb::{Uuid, rows};
use protocols::rstp::{Guards, PointToPoint};
use protocols::stp::BridgeTimes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;
use wire::MacAddr;

/// The protocol of a bridge's spanning tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// IEEE 802.1D-1998.
    Stp,
    /// IEEE 802.1D-2004.
    Rstp,
}

impl Protocol {
    /// The highest number of a port, which is how many ports a tree has at most.
    pub(super) const fn most_ports(self) -> u16 {
        match self {
            Protocol::Stp => 255,
            Protocol::Rstp => 4095,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Protocol::Stp => "STP",
            Protocol::Rstp => "RSTP",
        }
    }
}

/// A bridge's spanning tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) protocol: Protocol,
    /// `stp-system-id` or `rstp-address`; the bridge's address by default.
    pub(super) mac: Option<MacAddr>,
    pub(super) priority: u16,
    pub(super) times: BridgeTimes,
    pub(super) force_stp: bool,
    pub(super) hold_count: u32,
    /// For the log.
    pub(crate) notice: Option<&'static str>,
    /// The ports that take part, by their interfaces.
    pub(crate) ports: BTreeMap<String, PortWanted>,
}

/// A port of a spanning tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortWanted {
    pub(super) port: String,
    /// `None`: the OpenFlow port number, if it is free.
    pub(super) number: Option<u16>,
    pub(super) priority: u8,
    /// `None`: by the speed of the link.
    pub(super) cost: Option<u32>,
    /// `rstp-admin-port-state`.
    pub(super) enabled: bool,
    pub(super) point_to_point: PointToPoint,
    pub(super) admin_edge: bool,
    pub(super) auto_edge: bool,
    pub(super) mcheck: bool,
    pub(super) guards: Guards,
}

/// Reads a bridge's spanning tree; its ports have been read.
pub(crate) fn apply(row: &rows::Bridge, ports: &BTreeMap<Uuid, rows::Port>, bridge: &mut Bridge) {
    let protocol = match (row.stp_enable, row.rstp_enable) {
        (_, true) => Protocol::Rstp,
        (true, false) => Protocol::Stp,
        (false, false) => return,
    };
    let mut keys = Keys::new(&row.other_config);
    let mut tree = match protocol {
        Protocol::Stp => stp(&mut keys),
        Protocol::Rstp => rstp(&mut keys),
    };
    if row.stp_enable && row.rstp_enable {
        tree.notice = Some("RSTP and STP are mutually exclusive but both are configured; enabling RSTP");
    }
    if protocol == Protocol::Rstp
        && let Some(seconds) = keys.number("rstp-ageing-time", 10..=1_000_000)
        && !row.other_config.contains_key("mac-aging-time")
    {
        bridge.mac_aging = Duration::from_secs(seconds);
    }
    bridge.unsupported.extend(keys.wrong);
    let outputs: BTreeSet<String> = bridge
        .mirrors
        .iter()
        .filter_map(|mirror| mirror.output_port().map(str::to_owned))
        .collect();
    let mut numbers = BTreeSet::new();
    let rows: BTreeMap<&str, &rows::Port> = row
        .ports
        .iter()
        .filter_map(|uuid| ports.get(uuid))
        .map(|row| (row.name.as_str(), row))
        .collect();
    // The local port is internal, whatever its row says.
    let local = row.name.as_str();
    for (name, row) in rows.into_iter().filter(|(name, _)| *name != local) {
        let Some(port) = bridge.ports.get_mut(name) else {
            continue;
        };
        let mut keys = Keys::new(&row.other_config);
        if let Some(interface) = participant(protocol, name, port, &mut keys, &outputs) {
            if tree.ports.len() < usize::from(protocol.most_ports()) {
                let wanted = port_wanted(protocol, name, &mut keys, &mut numbers);
                tree.ports.insert(interface, wanted);
            } else {
                let problem = format!("too many {} ports, disabling", protocol.name());
                port.problems.push(problem);
            }
        }
        let wrong = keys.wrong.into_iter();
        port.problems
            .extend(wrong.map(|what| format!("{what} is not a legal value")));
    }
    bridge.tree = Some(tree);
}

fn stp(keys: &mut Keys<'_>) -> Wanted {
    let defaults = BridgeTimes::default();
    // Out of its range, a timer takes the nearest legal value, as in Open vSwitch.
    let seconds = |keys: &mut Keys<'_>, key, default| {
        let found = keys.number(key, 0..=u64::MAX);
        found.map_or(default, |seconds| u16::try_from(seconds).unwrap_or(u16::MAX))
    };
    Wanted {
        protocol: Protocol::Stp,
        mac: keys.mac("stp-system-id"),
        priority: keys.number("stp-priority", 0..=0xffff).unwrap_or(0x8000) as u16,
        times: BridgeTimes {
            max_age: seconds(keys, "stp-max-age", defaults.max_age),
            hello_time: seconds(keys, "stp-hello-time", defaults.hello_time),
            forward_delay: seconds(keys, "stp-forward-delay", defaults.forward_delay),
        },
        force_stp: false,
        hold_count: 0,
        notice: None,
        ports: BTreeMap::new(),
    }
}

fn rstp(keys: &mut Keys<'_>) -> Wanted {
    let defaults = BridgeTimes::default();
    let max_age = keys.number("rstp-max-age", 6..=40);
    let forward_delay = keys.number("rstp-forward-delay", 4..=30);
    let mut times = BridgeTimes {
        max_age: max_age.map_or(defaults.max_age, |seconds| seconds as u16),
        forward_delay: forward_delay.map_or(defaults.forward_delay, |seconds| seconds as u16),
        ..defaults
    };
    // IEEE 802.1D-2004 §17.14, with which Open vSwitch compares as well.
    if 2 * (times.forward_delay - 1) < times.max_age {
        keys.refuse("rstp-max-age");
        keys.refuse("rstp-forward-delay");
        times = defaults;
    }
    let version = keys.number("rstp-force-protocol-version", 0..=2).unwrap_or(2);
    if version == 1 {
        keys.refuse("rstp-force-protocol-version");
    }
    Wanted {
        protocol: Protocol::Rstp,
        mac: keys.mac("rstp-address"),
        // Rounded down to a multiple of 4096.
        priority: keys.number("rstp-priority", 0..=0xffff).unwrap_or(0x8000) as u16 & 0xf000,
        times,
        force_stp: version == 0,
        hold_count: keys.number("rstp-transmit-hold-count", 1..=10).unwrap_or(6) as u32,
        notice: None,
        ports: BTreeMap::new(),
    }
}

/// The interface of a port, if the port takes part.
fn participant(
    protocol: Protocol,
    name: &str,
    port: &mut desired::Port,
    keys: &mut Keys<'_>,
    outputs: &BTreeSet<String>,
) -> Option<String> {
    let key = match protocol {
        Protocol::Stp => "stp-enable",
        Protocol::Rstp => "rstp-enable",
    };
    if !keys.flag(key, true) {
        return None;
    }
    if port.interfaces.len() > 1 {
        let problem = format!("cannot enable {} on bonds, disabling", protocol.name());
        port.problems.push(problem);
        return None;
    }
    let (interface, config) = port.interfaces.iter().next()?;
    (!config.internal && !outputs.contains(name)).then(|| interface.clone())
}

fn port_wanted(protocol: Protocol, name: &str, keys: &mut Keys<'_>, numbers: &mut BTreeSet<u16>) -> PortWanted {
    let prefix = match protocol {
        Protocol::Stp => "stp",
        Protocol::Rstp => "rstp",
    };
    let is_rstp = protocol == Protocol::Rstp;
    let key = |suffix: &str| format!("{prefix}-{suffix}");
    let number = keys.number(&key("port-num"), 1..=protocol.most_ports().into());
    let number = number.map(|number| number as u16);
    let taken = number.is_some_and(|number| !numbers.insert(number));
    if taken {
        keys.refuse(&key("port-num"));
    }
    let (most, mask, costs) = match protocol {
        Protocol::Stp => (255, 0xff, 0..=0xffff),
        Protocol::Rstp => (240, 0xf0, 1..=200_000_000),
    };
    PortWanted {
        port: name.to_owned(),
        number: number.filter(|_| !taken),
        priority: keys.number(&key("port-priority"), 0..=most).unwrap_or(0x80) as u8 & mask,
        cost: keys.number(&key("path-cost"), costs).map(|cost| cost as u32),
        enabled: !is_rstp || keys.flag("rstp-admin-port-state", true),
        point_to_point: match is_rstp.then(|| keys.number("rstp-admin-p2p-mac", 0..=2)).flatten() {
            Some(0) => PointToPoint::ForceFalse,
            Some(2) => PointToPoint::Auto,
            _ => PointToPoint::ForceTrue,
        },
        admin_edge: is_rstp && keys.flag("rstp-port-admin-edge", false),
        auto_edge: is_rstp && keys.flag("rstp-port-auto-edge", true),
        mcheck: is_rstp && keys.flag("rstp-port-mcheck", false),
        guards: guards(keys),
    }
}

/// The guards, by keys of our own that STP and RSTP share.
fn guards(keys: &mut Keys<'_>) -> Guards {
    Guards {
        bpdu_guard: keys.flag("bpdu-guard", false),
        bpdu_filter: keys.flag("bpdu-filter", false),
        root_guard: keys.flag("root-guard", false),
        allowed_roots: keys.macs("allowed-roots"),
    }
}

/// Keys of `other_config`, and those whose values are not legal.
struct Keys<'a> {
    map: &'a BTreeMap<String, String>,
    wrong: Vec<String>,
}

impl<'a> Keys<'a> {
    fn new(map: &'a BTreeMap<String, String>) -> Keys<'a> {
        Keys { map, wrong: Vec::new() }
    }

    fn refuse(&mut self, key: &str) {
        if let Some(value) = self.map.get(key) {
            self.wrong.push(format!("other_config:{key}={value}"));
        }
    }

    /// A number in decimal, or in hex after `0x`.
    fn number(&mut self, key: &str, legal: RangeInclusive<u64>) -> Option<u64> {
        let text = self.map.get(key)?.trim();
        let parsed = match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => text.parse(),
        };
        let found = parsed.ok().filter(|number| legal.contains(number));
        if found.is_none() {
            self.refuse(key);
        }
        found
    }

    fn flag(&mut self, key: &str, default: bool) -> bool {
        match self.map.get(key).map(String::as_str) {
            Some("true") => true,
            Some("false") => false,
            None => default,
            Some(_) => {
                self.refuse(key);
                default
            }
        }
    }

    fn mac(&mut self, key: &str) -> Option<MacAddr> {
        let found = self.map.get(key)?.parse().ok();
        if found.is_none() {
            self.refuse(key);
        }
        found
    }
    /// Addresses, separated by spaces or commas. A wrong one is left out.
    fn macs(&mut self, key: &str) -> BTreeSet<MacAddr> {
        let text = self.map.get(key).map_or("", String::as_str);
        let words = text.split([' ', ',']).filter(|word| !word.is_empty());
        let mut found = BTreeSet::new();
        for word in words {
            match word.parse() {
                Ok(mac) => _ = found.insert(mac),
                Err(_) => self.wrong.push(format!("other_config:{key}={word}")),
            }
        }
        found
    }
}
