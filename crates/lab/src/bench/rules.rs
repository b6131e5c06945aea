//! Rule sets in the syntax of `ovs-ofctl`.

use super::case::{Case, NEW_FLOWS};
use super::trace::{Flow, STATIONS, VLAN};
use super::tunnel;
use crate::stats::SplitMix;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};
use std::net::Ipv4Addr;

/// The number of the port that packets leave by.
pub(crate) const SINK: u32 = 100;

/// How many rules an access list has.
const ACL: usize = 1000;

/// A set of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rules {
    /// Drop every packet: the cost of receiving
    Io,
    /// One rule, from port to port
    Port,
    /// NORMAL: MAC learning, forwarding by address and VLAN
    Normal,
    /// A rule for every flow that matches all fields
    Exact,
    /// 1000 rules of an access list over many masks
    Acl,
    /// Five tables that pass metadata
    Pipeline,
    /// A tag is pushed
    VlanPush,
    /// A tag is popped
    VlanPop,
    /// Both MAC addresses, the TTL and an IP address are changed
    Rewrite,
    /// Every packet is of a new connection: the cost of an upcall. Each connection has its own
    /// megaflow, and all are flushed before each turn
    New,
    /// One rule, to a port with an egress-policer, the one kind of QoS that both have
    Qos,
    /// One rule, and a mirror of the ports that packets come in on to a port that drops them
    Mirror,
    /// One rule, and sFlow of one packet in 1000
    Sflow,
    /// One rule, and IPFIX of one packet in 1000, as it comes in
    Ipfix,
    /// NORMAL, to a bond of two ports in balance-tcp; beside oxvs with one plain port, in turns
    BalanceTcp,
    /// Tracked connections, with packets in both directions: new ones are committed, known ones
    /// pass
    Ct,
    /// Tracked connections with another source address
    CtNat,
    /// One rule, to a VXLAN tunnel over the bridge's own port; sizes are of the inner packets
    VxlanPush,
    /// Packets of a VXLAN tunnel, whose inner packets leave by one rule
    VxlanPop,
    /// To a Geneve tunnel; the rule sets its key and an option, as a distributed controller does
    Geneve,
}

impl Rules {
    /// All of them.
    pub(crate) const ALL: [Rules; 20] = [
        Rules::Io,
        Rules::Port,
        Rules::Normal,
        Rules::Exact,
        Rules::Acl,
        Rules::Pipeline,
        Rules::VlanPush,
        Rules::VlanPop,
        Rules::Rewrite,
        Rules::New,
        Rules::Qos,
        Rules::Mirror,
        Rules::Sflow,
        Rules::Ipfix,
        Rules::BalanceTcp,
        Rules::Ct,
        Rules::CtNat,
        Rules::VxlanPush,
        Rules::VxlanPop,
        Rules::Geneve,
    ];

    /// Maximum number of flows without minutes of preparation: each is a rule and an upcall.
    pub(crate) fn most_flows(self) -> usize {
        if self == Rules::Exact { 100_000 } else { usize::MAX }
    }

    /// Minimum number of flows: fewer would not be new for long.
    pub(crate) fn least_flows(self) -> usize {
        if self == Rules::New { NEW_FLOWS } else { 1 }
    }

    /// Whether megaflows are flushed before each turn.
    pub(crate) fn forgets(self) -> bool {
        self == Rules::New
    }

    /// What makes the port that watches, if the rules are about a mirror: it has the number behind
    /// the sink's.
    pub(crate) fn watches(self) -> bool {
        self == Rules::Mirror
    }

    /// The number of ports that packets leave by, from [`SINK`] on; several are a bond's members.
    pub(crate) fn sinks(self) -> u32 {
        if self == Rules::BalanceTcp { 2 } else { 1 }
    }

    /// The rules that oxvs is measured with beside these, to show what these cost.
    pub(crate) fn beside(self) -> Option<Rules> {
        (self == Rules::BalanceTcp).then_some(Rules::Normal)
    }

    /// What else is configured before the ports that packets come in on, as arguments of
    /// `ovs-vsctl`.
    pub(crate) fn configuration(self) -> Option<&'static str> {
        match self {
            // The one kind that both have, with a rate above the load.
            Rules::Qos => Some(
                "set port sink qos=@q -- --id=@q create qos type=egress-policer other_config:cir=125000000000 \
                 other_config:cbs=1000000000",
            ),
            // Nobody listens there.
            Rules::Sflow => Some(
                "set bridge br0 sflow=@s -- --id=@s create sflow targets=\"127.0.0.1:6343\" agent=127.0.0.1 \
                 sampling=1000 polling=0",
            ),
            Rules::Ipfix => Some(
                "set bridge br0 ipfix=@i -- --id=@i create ipfix targets=\"127.0.0.1:4739\" sampling=1000 \
                 other_config:enable-output-sampling=false",
            ),
            _ => None,
        }
    }

    /// Every second flow is to be the answer to the one before.
    pub(crate) fn wants_answers(self) -> bool {
        self == Rules::Ct
    }

    /// Packets are to have a tag.
    pub(crate) fn wants_tags(self) -> bool {
        self == Rules::VlanPop
    }

    /// The tunnel that packets take.
    pub(crate) fn tunnel(self) -> Option<tunnel::Kind> {
        match self {
            Rules::VxlanPush | Rules::VxlanPop => Some(tunnel::Kind::Vxlan),
            Rules::Geneve => Some(tunnel::Kind::Geneve),
            _ => None,
        }
    }

    /// Packets come from the tunnel's other end.
    pub(crate) fn wants_outer_headers(self) -> bool {
        self == Rules::VxlanPop
    }

    /// Stations behind the sink are to be known.
    pub(crate) fn learns(self) -> bool {
        matches!(self, Rules::Normal | Rules::BalanceTcp)
    }

    /// Packets are to leave by the sink, all of them or nearly so.
    pub(crate) fn delivers(self) -> bool {
        self != Rules::Io
    }

    /// The rules for packets of this many sources, a line each.
    pub(crate) fn lines(self, case: &Case, sources: usize) -> String {
        let ports = 1..=sources;
        let each = |actions: &str| -> String {
            ports
                .clone()
                .map(|port| {
                    let ip = if actions.starts_with("ct") { ",ip" } else { "" };
                    format!("in_port={port}{ip},actions={actions}\n")
                })
                .collect()
        };
        match self {
            Rules::Io => "actions=drop\n".to_owned(),
            Rules::Normal | Rules::BalanceTcp => "actions=NORMAL\n".to_owned(),
            Rules::Port | Rules::Qos | Rules::Mirror | Rules::Sflow | Rules::Ipfix => each(&format!("output:{SINK}")),
            Rules::VlanPush => each(&format!("push_vlan:0x8100,set_field:4196->vlan_vid,output:{SINK}")),
            Rules::VlanPop => ports
                .map(|port| format!("in_port={port},dl_vlan={VLAN},actions=pop_vlan,output:{SINK}\n"))
                .collect(),
            Rules::Rewrite => ports
                .map(|port| {
                    format!(
                        "in_port={port},ip,actions=mod_dl_src:02:03:00:00:00:01,mod_dl_dst:02:03:00:00:00:02,dec_ttl,\
                         mod_nw_dst:192.0.2.1,output:{SINK}\n"
                    )
                })
                .collect(),
            Rules::New => ports
                .map(|port| format!("in_port={port},ip,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],output:{SINK}\n"))
                .collect(),
            Rules::Ct => {
                each("ct(table=1)")
                    + &format!(
                        "table=1,ct_state=+trk+new,ip,actions=ct(commit),output:{SINK}\n\
                         table=1,ct_state=+trk+est,ip,actions=output:{SINK}\n"
                    )
            }
            Rules::CtNat => {
                each("ct(commit,nat(src=192.0.2.1-192.0.2.250),table=1)")
                    + &format!("table=1,ct_state=+trk-inv,ip,actions=output:{SINK}\n")
            }
            Rules::VxlanPush => each(&format!("output:{}", tunnel::PORT)) + &tunnel::outer_rule(),
            Rules::VxlanPop => each("LOCAL") + &format!("in_port={},actions=output:{SINK}\n", tunnel::PORT),
            Rules::Geneve => {
                each(&format!(
                    "set_field:42->tun_id,set_field:0x10002->tun_metadata0,output:{}",
                    tunnel::PORT
                )) + &tunnel::outer_rule()
            }
            Rules::Exact => (0..case.flows).map(exact).collect(),
            Rules::Acl => acl(case.flows),
            Rules::Pipeline => pipeline(sources),
        }
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&super::case::name(*self))
    }
}

/// Arguments of `ovs-vsctl` for a port that gets a copy of all that the sources receive.
pub(crate) fn mirror(device: &str, sources: usize) -> String {
    let number = SINK + 1;
    let gets: String = (1..=sources)
        .map(|port| format!("-- --id=@s{port} get port src{port} "))
        .collect();
    let names: Vec<String> = (1..=sources).map(|port| format!("@s{port}")).collect();
    format!(
        "add-port br0 watch -- set interface watch ofport_request={number} {device} -- --id=@w get port watch {gets}\
         -- --id=@m create mirror name=m output_port=@w select_src_port={} -- set bridge br0 mirrors=@m",
        names.join(",")
    )
}

/// The rule matches all fields except the ingress port, which depends on how the trace is divided.
fn exact(number: usize) -> String {
    let flow = Flow::new(number);
    format!(
        "udp,vlan_tci=0,dl_src={},dl_dst={},nw_src={},nw_dst={},nw_tos=0,tp_src={},tp_dst={},actions=output:{SINK}\n",
        mac(flow.src),
        mac(flow.dst),
        Ipv4Addr::from(flow.nw_src),
        Ipv4Addr::from(flow.nw_dst),
        flow.tp_src,
        flow.tp_dst
    )
}

/// Half of the rules admit a set with some flow, half refuse a set without flows. Prefixes and
/// ports are as they are in lists of firewalls: any, a network or a host on either side, a port, a
/// range of ports or none, UDP, TCP or any.
fn acl(flows: usize) -> String {
    const PREFIXES: [u32; 7] = [0, 8, 16, 20, 24, 28, 32];
    let mut random = SplitMix(1000);
    let mut lines = format!("priority=0,actions=output:{SINK}\n");
    for number in 0..ACL {
        let flow = Flow::new(random.below(flows.max(1)));
        let admits = number.is_multiple_of(2);
        let mut line = format!("priority={}", 60_000 - number);
        line += if admits || random.below(2) == 0 { ",udp" } else { ",tcp" };
        let mut prefix = |address: u32, least: usize| {
            let length = PREFIXES[least + random.below(PREFIXES.len() - least)];
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            (length, Ipv4Addr::from(address & mask))
        };
        // Refused packets come from other networks, so that all packets of flows arrive.
        let other = if admits { 0 } else { 0x1000_0000 };
        let (length, source) = prefix(flow.nw_src ^ other, if admits { 0 } else { 2 });
        // Writing to a string does not fail.
        let _ = (length > 0).then(|| write!(line, ",nw_src={source}/{length}"));
        let (length, target) = prefix(flow.nw_dst, 0);
        let _ = (length > 0).then(|| write!(line, ",nw_dst={target}/{length}"));
        match random.below(4) {
            0 => {}
            1 => line += &format!(",tp_dst={:#x}/{:#x}", flow.tp_dst & 0xffc0, 0xffc0),
            _ => line += &format!(",tp_dst={}", flow.tp_dst),
        }
        line += if admits {
            ",actions=output:100\n"
        } else {
            ",actions=drop\n"
        };
        lines += &line;
    }
    lines
}

fn pipeline(sources: usize) -> String {
    let mut lines = String::new();
    let mut add = |line: String| lines += &(line + "\n");
    for port in 1..=sources {
        add(format!(
            "table=0,in_port={port},actions=write_metadata:{port}/0xff,goto_table:1"
        ));
    }
    for number in 0..STATIONS {
        let mac = mac(Flow::new(number as usize).src);
        add(format!(
            "table=1,dl_src={mac},actions=write_metadata:{:#x}/0xff00,goto_table:2",
            (number % 16 + 1) << 8
        ));
    }
    for network in 0..256_u32 {
        let network_address = Ipv4Addr::from(0xac10_0000 | network << 8);
        add(format!(
            "table=2,ip,nw_dst={network_address}/24,actions=write_metadata:{:#x}/0xff0000,goto_table:3",
            (network % 8 + 1) << 16
        ));
    }
    add("table=3,priority=1,actions=goto_table:4".to_owned());
    for port in [7, 19, 111, 135, 137, 139, 445, 515] {
        add(format!("table=3,priority=2,tcp,tp_dst={port},actions=drop"));
    }
    for class in 1..=8_u32 {
        add(format!(
            "table=4,metadata={:#x}/0xff0000,actions=output:{SINK}",
            class << 16
        ));
    }
    lines
}

fn mac(address: [u8; 6]) -> String {
    wire::MacAddr(address).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::case::{Distribution, Size};
    use super::*;
    use openflow::model::FlowCommand;
    use openflow::text::{Names, parse_flow};
    use std::collections::HashSet;

    fn lines(rules: Rules) -> String {
        let case = Case {
            rules,
            flows: 1000,
            distribution: Distribution::Uniform,
            size: Size::B60,
            workers: 1,
        };
        rules.lines(&case, 2)
    }

    #[test]
    fn every_rule_can_be_read() {
        for rules in Rules::ALL {
            for line in lines(rules).lines() {
                parse_flow(FlowCommand::Add, line, &Names::default()).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
    }

    #[test]
    fn an_access_list_has_a_thousand_rules_over_many_masks() {
        let text = lines(Rules::Acl);
        assert_eq!(text.lines().count(), 1 + ACL);
        let shape = |line: &str| -> String {
            let fields = line
                .split(',')
                .filter(|field| !field.starts_with("priority") && !field.starts_with("actions"));
            fields
                .map(|field| match (field.split_once('='), field.rsplit_once('/')) {
                    (Some((name, _)), Some((_, mask))) => format!("{name}/{mask},"),
                    (Some((name, _)), None) => format!("{name},"),
                    _ => format!("{field},"),
                })
                .collect()
        };
        let shapes: HashSet<String> = text.lines().map(shape).collect();
        assert!(shapes.len() > 100, "{}", shapes.len());
    }
}
