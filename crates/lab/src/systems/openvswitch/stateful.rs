//! Rules that track connections, as `ovs-ofctl` commands without the program's name.

use crate::systems::layout::{BridgeLayout, Layout};
use crate::topology::Stateful;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::net::Ipv4Addr;

/// The zone of all connections.
const ZONE: u16 = 1;

/// The commands that a bridge's rules need, in their order; none if it tracks no connections.
/// Table 0 looks connections up, table 1 admits them, table 2 lets translated packets pass.
pub(crate) fn commands(layout: &Layout, bridge: &BridgeLayout) -> Result<Vec<String>> {
    let Some(stateful) = &bridge.stateful else {
        return Ok(Vec::new());
    };
    let from = layout
        .hosts
        .get(stateful.from())
        .and_then(|addresses| addresses.first());
    let from = from.with_context(|| format!("{} is no host with an address", stateful.from()))?;
    let mut commands = Vec::new();
    if let Stateful::Balance { servers, .. } = stateful {
        commands.push(format!("-O OpenFlow15 add-group {} {}", bridge.name, group(servers)));
    }
    let rules = rules(stateful, *from);
    commands.extend(rules.iter().map(|rule| format!("add-flow {} {rule}", bridge.name)));
    Ok(commands)
}

/// A bucket for each server.
fn group(servers: &[Ipv4Addr]) -> String {
    let mut group = "group_id=1,type=select,selection_method=dp_hash".to_owned();
    for server in servers {
        // Writing to a string does not fail.
        let _ = write!(
            group,
            ",bucket=actions=ct(commit,table=2,zone={ZONE},nat(dst={server}))"
        );
    }
    group
}

/// The rules for connections from `from`.
fn rules(stateful: &Stateful, from: Ipv4Addr) -> Vec<String> {
    let nat = match stateful {
        Stateful::Firewall { .. } => "",
        Stateful::Snat { .. } | Stateful::Balance { .. } => ",nat",
    };
    let new = format!("table=1,priority=2,ct_state=+trk+new,ip,nw_src={from}");
    let known = "table=1,priority=1,ct_state=+trk+est,ip";
    let mut rules = vec![
        "table=0,priority=2,arp,actions=NORMAL".to_owned(),
        format!("table=0,priority=1,ip,actions=ct(table=1,zone={ZONE}{nat})"),
    ];
    match stateful {
        Stateful::Firewall { .. } => rules.extend([
            format!("{new},actions=ct(commit,zone={ZONE}),NORMAL"),
            format!("{known},actions=NORMAL"),
        ]),
        Stateful::Snat { address, .. } => rules.extend([
            format!("{new},actions=ct(commit,table=2,zone={ZONE},nat(src={address}))"),
            format!("{known},actions=resubmit(,2)"),
            format!("table=2,ip,nw_src={address},actions=NORMAL"),
            format!("table=2,ip,nw_dst={from},actions=NORMAL"),
        ]),
        Stateful::Balance { address, servers, .. } => {
            rules.extend([
                format!("{new},nw_dst={address},actions=group:1"),
                format!("{known},actions=resubmit(,2)"),
                format!("table=2,ip,nw_src={address},actions=NORMAL"),
            ]);
            rules.extend(
                servers
                    .iter()
                    .map(|server| format!("table=2,ip,nw_dst={server},actions=NORMAL")),
            );
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::layout::tests::layout;

    fn said(stateful: &str) -> Vec<String> {
        let layout = layout(&format!(
            "host = [{{ name = 'a', address = [{{ ip = '10.0.0.1', prefix = 24 }}, {{ ip = '10.0.0.101', prefix = 24 }}] }}]
             bridge = [{{ name = 's1', stateful = {{ from = 'a', {stateful} }} }}]"
        ));
        commands(&layout, &layout.bridges[0]).unwrap()
    }

    #[test]
    fn a_firewall_admits_new_connections_of_one_host_and_all_packets_of_known_ones() {
        assert_eq!(
            said("kind = 'firewall'"),
            [
                "add-flow s1 table=0,priority=2,arp,actions=NORMAL",
                "add-flow s1 table=0,priority=1,ip,actions=ct(table=1,zone=1)",
                "add-flow s1 table=1,priority=2,ct_state=+trk+new,ip,nw_src=10.0.0.1,actions=ct(commit,zone=1),NORMAL",
                "add-flow s1 table=1,priority=1,ct_state=+trk+est,ip,actions=NORMAL",
            ]
        );
    }

    #[test]
    fn only_translated_packets_pass() {
        let snat = said("kind = 'snat', address = '10.0.0.101'");
        assert_eq!(
            &snat[2..],
            [
                "add-flow s1 table=1,priority=2,ct_state=+trk+new,ip,nw_src=10.0.0.1,actions=ct(commit,table=2,zone=1,nat(src=10.0.0.101))",
                "add-flow s1 table=1,priority=1,ct_state=+trk+est,ip,actions=resubmit(,2)",
                "add-flow s1 table=2,ip,nw_src=10.0.0.101,actions=NORMAL",
                "add-flow s1 table=2,ip,nw_dst=10.0.0.1,actions=NORMAL",
            ]
        );
        let balance = said("kind = 'balance', address = '10.0.0.2', servers = ['10.0.0.11', '10.0.0.12']");
        assert_eq!(
            balance[0],
            "-O OpenFlow15 add-group s1 group_id=1,type=select,selection_method=dp_hash\
             ,bucket=actions=ct(commit,table=2,zone=1,nat(dst=10.0.0.11))\
             ,bucket=actions=ct(commit,table=2,zone=1,nat(dst=10.0.0.12))"
        );
        assert!(
            balance
                .iter()
                .all(|command| !command.contains("nw_dst=10.0.0.2,actions=NORMAL"))
        );
    }
}
