//! The texts and commands of `bond/*` and `lacp/*`, as Open vSwitch prints them.

use super::{Aggregation, Aggregations, World};
use nanos::Nanos;
use protocols::bond::{Bond, Refused};
use protocols::lacp::wire::Info;
use protocols::lacp::{Lacp, MemberStatus};
use std::fmt::Write;

const NO_BOND: &str = "no such bond";
const NO_LACP: &str = "no such lacp object";

impl Aggregations {
    /// `bond/list`.
    pub(crate) fn list_bonds(&self) -> String {
        let mut out = String::from("bond\ttype\trecircID\tmembers\n");
        for port in self.by_name() {
            let Some(bond) = &port.bond else { continue };
            let config = bond.config();
            let members: Vec<&str> = config.members.keys().map(String::as_str).collect();
            let (mode, members) = (config.mode.name(), members.join(", "));
            let _ = writeln!(out, "{}\t{mode}\t{}\t{members}", port.port, config.id);
        }
        out
    }

    /// `bond/show`.
    pub(crate) fn show_bonds(&self, name: Option<&String>, now: Nanos) -> Result<String, String> {
        let ports = self.by_name();
        let bonds = ports.iter().filter_map(|port| Some((&port.port, port.bond.as_ref()?)));
        let shown: Vec<String> = bonds
            .filter(|(port, _)| name.is_none_or(|name| name == *port))
            .map(|(port, bond)| bond.show(port, now))
            .collect();
        found(shown, name, NO_BOND)
    }

    /// `lacp/show`.
    pub(crate) fn show_lacp(&self, name: Option<&String>) -> Result<String, String> {
        self.each_lacp(name, |port, lacp| port.show_lacp(lacp))
    }

    /// `lacp/show-stats`.
    pub(crate) fn show_lacp_stats(&self, name: Option<&String>) -> Result<String, String> {
        self.each_lacp(name, |port, lacp| port.show_lacp_stats(lacp))
    }

    fn each_lacp(&self, name: Option<&String>, show: impl Fn(&Aggregation, &Lacp) -> String) -> Result<String, String> {
        let ports = self.by_name();
        let wanted = ports.iter().filter(|port| name.is_none_or(|name| *name == port.port));
        let shown = wanted.filter_map(|port| Some(show(port, port.lacp.as_ref()?)));
        found(shown.collect(), name, NO_LACP)
    }

    /// Changes a bond, and tells the switch at once.
    pub(crate) fn change_bond<R>(
        &mut self,
        name: &str,
        world: &mut World<'_>,
        change: impl FnOnce(&mut Bond) -> Result<R, Refused>,
    ) -> Result<R, String> {
        let port = self.bond(name).ok_or(NO_BOND)?;
        let bond = port.bond.as_mut().ok_or(NO_BOND)?;
        let result = change(bond).map_err(|refused| refused.to_string())?;
        port.settle(world);
        Ok(result)
    }
}

fn found(shown: Vec<String>, name: Option<&String>, none: &str) -> Result<String, String> {
    match (shown.is_empty(), name) {
        (true, Some(_)) => Err(none.to_owned()),
        _ => Ok(shown.concat()),
    }
}

impl Aggregation {
    fn show_lacp(&self, lacp: &Lacp) -> String {
        let config = lacp.config();
        let mode = if config.active { "active" } else { "passive" };
        let negotiated = if lacp.is_negotiated() { " negotiated" } else { "" };
        let key = lacp.key().map_or_else(|| "none".to_owned(), |key| key.to_string());
        let time = if config.fast { "fast" } else { "slow" };
        let mut out = format!(
            "---- {} ----\n  status: {mode}{negotiated}\n  sys_id: {}\n  sys_priority: {}\n  \
             aggregation key: {key}\n  lacp_time: {time}\n",
            self.port, config.system, config.system_priority
        );
        for (name, member) in self.lacp_members(lacp) {
            let attached = if member.attached { "attached" } else { "detached" };
            let _ = write!(
                out,
                "\nmember: {name}: {} {attached}\n  port_id: {}\n  port_priority: {}\n  may_enable: {}\n",
                member.receive.name(),
                member.config.port,
                member.config.priority,
                member.may_enable
            );
            write_info(&mut out, "actor", &member.actor);
            write_info(&mut out, "partner", &member.partner);
        }
        out
    }

    fn show_lacp_stats(&self, lacp: &Lacp) -> String {
        let mut out = format!("---- {} statistics ----\n", self.port);
        for (name, member) in self.lacp_members(lacp) {
            let counters = member.counters;
            let _ = write!(
                out,
                "\nmember: {name}:\n  TX PDUs: {}\n  RX PDUs: {}\n  RX Bad PDUs: {}\n  \
                 RX Marker Request PDUs: {}\n  Link Expired: {}\n  Link Defaulted: {}\n  \
                 Carrier Status Changed: {}\n",
                counters.tx,
                counters.rx,
                counters.rx_bad,
                counters.rx_markers,
                counters.expired,
                counters.defaulted,
                counters.carrier_changes
            );
        }
        out
    }

    fn lacp_members<'a>(&'a self, lacp: &'a Lacp) -> impl Iterator<Item = (&'a str, MemberStatus<'a>)> {
        let members = self.members.iter();
        members.filter_map(|(name, ofport)| Some((name.as_str(), lacp.member((*ofport).into())?)))
    }
}

fn write_info(out: &mut String, end: &str, info: &Info) {
    let state = info.state.to_string();
    let space = if state.is_empty() { "" } else { " " };
    let _ = write!(
        out,
        "\n  {end} sys_id: {}\n  {end} sys_priority: {}\n  {end} port_id: {}\n  {end} port_priority: {}\n  \
         {end} key: {}\n  {end} state:{space}{state}\n",
        info.system, info.system_priority, info.port, info.port_priority, info.key
    );
}
