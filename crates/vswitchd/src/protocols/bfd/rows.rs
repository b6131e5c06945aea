//! The columns `bfd` and `bfd_status` of `Interface`.

use ovsdb::rows;
use protocols::bfd::wire::diagnostic;
use protocols::bfd::{Config, Status, datagram};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;
use switch::BfdFrames;
use wire::MacAddr;

/// A session that a row asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The settings, without the Ethernet source.
    pub(crate) config: Config,
    /// `bfd_local_src_mac`; the interface's address by default.
    pub(crate) src_mac: Option<MacAddr>,
    /// The frames that are the session's.
    pub(crate) frames: BfdFrames,
    /// A tunnel that can marks its packets as those of control.
    pub(crate) oam: bool,
    /// What is wrong with the settings, for the log.
    pub(crate) problems: Vec<String>,
}

/// Reads `Interface.bfd`. `None` if it is off. Wrong values count as missing, as in Open vSwitch.
pub(crate) fn wanted(row: &rows::Interface) -> Option<Wanted> {
    let keys = &row.bfd;
    let flag = |key: &str| keys.get(key).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    if !flag("enable") {
        return None;
    }
    let number = |key: &str| keys.get(key).and_then(|value| value.trim().parse::<i32>().ok());
    let interval = |key: &str, default: i32| {
        let millis = number(key).unwrap_or(default).max(1);
        Duration::from_millis(millis.unsigned_abs().into())
    };
    let mac = |key: &str| {
        let mac = keys.get(key).and_then(|text| text.parse::<MacAddr>().ok());
        mac.filter(|mac| !mac.is_zero())
    };
    let mut problems = Vec::new();
    let mut address = |key: &str| {
        let text = keys.get(key)?;
        let address = text.parse::<Ipv4Addr>().ok();
        if address.is_none() {
            problems.push(format!("\"{text}\" is not a valid IP address"));
        }
        address
    };
    let (src, dst) = (address("bfd_src_ip"), address("bfd_dst_ip"));
    let min_rx = interval("min_rx", 1000);
    let decay = number("decay_min_rx").filter(|millis| *millis > 0);
    let decay = decay.map(|millis| Duration::from_millis(millis.unsigned_abs().into()));
    if decay.is_some_and(|decay| decay < min_rx) {
        problems.push(format!("decay_min_rx cannot be less than {} ms", min_rx.as_millis()));
    }
    let config = Config {
        min_tx: interval("min_tx", 100),
        min_rx,
        decay_min_rx: decay.filter(|decay| *decay >= min_rx),
        forwarding_if_rx: flag("forwarding_if_rx"),
        cpath_down: flag("cpath_down"),
        multiplier: number("mult")
            .and_then(|mult| u8::try_from(mult).ok())
            .filter(|mult| *mult > 0)
            .unwrap_or(3),
        src_mac: MacAddr::ZERO,
        dst_mac: mac("bfd_local_dst_mac").unwrap_or(datagram::DEFAULT_DESTINATION_MAC),
        src: src.unwrap_or(datagram::DEFAULT_SOURCE),
        dst: dst.unwrap_or(datagram::DEFAULT_DESTINATION),
    };
    Some(Wanted {
        src_mac: mac("bfd_local_src_mac"),
        frames: BfdFrames {
            dst_mac: mac("bfd_remote_dst_mac"),
            // With the default address the session takes packets to any.
            dst: Some(config.src).filter(|src| *src != datagram::DEFAULT_SOURCE),
            without_key: flag("check_tnl_key"),
        },
        oam: flag("oam"),
        config,
        problems,
    })
}

/// `Interface.bfd_status`; empty without a session.
pub(crate) fn status(status: Option<Status>) -> BTreeMap<String, String> {
    let Some(status) = status else {
        return BTreeMap::new();
    };
    let entries = [
        ("diagnostic", diagnostic::text(status.diagnostic).to_owned()),
        ("flap_count", status.flap_count.to_string()),
        ("forwarding", status.forwarding.to_string()),
        (
            "remote_diagnostic",
            diagnostic::text(status.remote_diagnostic).to_owned(),
        ),
        ("remote_state", status.remote_state.name().to_owned()),
        ("state", status.state.name().to_owned()),
    ];
    entries.map(|(key, value)| (key.to_owned(), value)).into()
}
