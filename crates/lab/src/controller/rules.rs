//! Rules for a conversation between two hosts, by match and change.

use crate::scenario::{Matching, Rewrite};
use std::net::Ipv4Addr;

/// Two hosts that send each other packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// Of the packets.
    pub transport: Transport,
    /// The client.
    pub from: Endpoint,
    /// Who answers.
    pub to: Endpoint,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

/// One end of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// OpenFlow port of the bridge that it is attached to.
    pub port: u32,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Its IP address.
    pub ip: Ipv4Addr,
    /// Its UDP or TCP port.
    pub transport_port: u16,
}

/// The changed Ethernet address, IP address and port of an endpoint, which no host has.
impl Endpoint {
    fn other_mac(self) -> [u8; 6] {
        let mut mac = self.mac;
        mac[5] ^= 0x80;
        mac
    }

    /// The IP address that [`Rewrite::Ip`] gives it: in the same network, so that it is answered.
    pub fn other_ip(self) -> Ipv4Addr {
        let [a, b, c, d] = self.ip.octets();
        Ipv4Addr::new(a, b, c, d ^ 0x40)
    }

    fn other_port(self) -> u16 {
        self.transport_port ^ 1
    }
}

impl Conversation {
    /// The reverse direction.
    fn reply(self) -> Conversation {
        Conversation {
            transport: self.transport,
            from: self.to,
            to: self.from,
        }
    }
}

/// The rules for both directions, as `ovs-ofctl` writes them. They change packets of the first
/// direction, and undo the change in the reverse direction.
pub fn conversation_rules(conversation: Conversation, matching: Matching, rewrite: Rewrite) -> Vec<String> {
    let there = conversation;
    let mut back = conversation.reply();
    let (changed, changed_back) = match rewrite {
        Rewrite::None => (String::new(), String::new()),
        Rewrite::Mac => (format!("mod_dl_src:{},", mac(there.from.other_mac())), String::new()),
        Rewrite::Ip => {
            back.to.ip = there.from.other_ip();
            (
                format!("mod_nw_src:{},", there.from.other_ip()),
                format!("mod_nw_dst:{},", there.from.ip),
            )
        }
        Rewrite::VlanPriority => ("mod_vlan_pcp:5,".to_owned(), String::new()),
        Rewrite::IpTos => ("mod_nw_tos:184,".to_owned(), String::new()),
        Rewrite::UdpPort => {
            back.to.transport_port = there.from.other_port();
            (
                format!("mod_tp_src:{},", there.from.other_port()),
                format!("mod_tp_dst:{},", there.from.transport_port),
            )
        }
    };
    let rule = |way: Conversation, changed: &str| {
        let matched = matched(way, matching);
        format!("priority=100,{matched},actions={changed}output:{}", way.to.port)
    };
    // A change of an IP address or a port needs a match on the protocol.
    let knows_ip = matching != Matching::Port && matching != Matching::Mac;
    let typed = |rule: String| match rewrite {
        Rewrite::Ip | Rewrite::IpTos if !knows_ip => rule.replacen("priority=100,", "priority=100,ip,", 1),
        Rewrite::UdpPort if matching != Matching::UdpPort && matching != Matching::Exact => {
            let name = transport(conversation.transport);
            let rule = rule.replacen(",ip,", ",", 1);
            rule.replacen("priority=100,", &format!("priority=100,{name},"), 1)
        }
        _ => rule,
    };
    vec![typed(rule(there, &changed)), typed(rule(back, &changed_back))]
}

fn matched(way: Conversation, matching: Matching) -> String {
    let Conversation {
        transport: kind,
        from,
        to,
    } = way;
    let addresses = format!("nw_src={},nw_dst={}", from.ip, to.ip);
    let ports = format!("tp_src={},tp_dst={}", from.transport_port, to.transport_port);
    let macs = format!("dl_src={},dl_dst={}", mac(from.mac), mac(to.mac));
    let kind = transport(kind);
    match matching {
        Matching::Port => format!("in_port={}", from.port),
        Matching::Mac => macs,
        Matching::Ip => format!("ip,{addresses}"),
        Matching::UdpPort => format!("{kind},{addresses},{ports}"),
        Matching::Exact => format!(
            "{kind},in_port={},{macs},dl_vlan=0xffff,{addresses},nw_tos=0,{ports}",
            from.port
        ),
    }
}

fn transport(kind: Transport) -> &'static str {
    match kind {
        Transport::Udp => "udp",
        Transport::Tcp => "tcp",
    }
}

pub(super) fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::model::FlowCommand;
    use openflow::text::{Names, parse_flow};

    const CONVERSATION: Conversation = Conversation {
        transport: Transport::Udp,
        from: Endpoint {
            port: 1,
            mac: [2, 0, 0, 0, 0, 1],
            ip: Ipv4Addr::new(10, 0, 0, 1),
            transport_port: 4000,
        },
        to: Endpoint {
            port: 2,
            mac: [2, 0, 0, 0, 0, 2],
            ip: Ipv4Addr::new(10, 0, 0, 2),
            transport_port: 7,
        },
    };

    #[test]
    fn every_match_and_change_is_a_rule_of_openflow_1_0() {
        for matching in Matching::ALL {
            for rewrite in Rewrite::ALL {
                for rule in conversation_rules(CONVERSATION, matching, rewrite) {
                    let parsed = parse_flow(FlowCommand::Add, &rule, &Names::default());
                    assert!(parsed.is_ok(), "{rule}: {parsed:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_changed_on_the_way_there_is_changed_back() {
        let rules = conversation_rules(CONVERSATION, Matching::UdpPort, Rewrite::UdpPort);
        assert_eq!(
            rules,
            [
                "priority=100,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=4000,tp_dst=7,actions=mod_tp_src:4001,output:2",
                "priority=100,udp,nw_src=10.0.0.2,nw_dst=10.0.0.1,tp_src=7,tp_dst=4001,actions=mod_tp_dst:4000,output:1",
            ]
        );
    }

    #[test]
    fn an_exact_match_has_all_fields_of_an_untagged_packet() {
        let rules = conversation_rules(CONVERSATION, Matching::Exact, Rewrite::None);
        let rule = parse_flow(FlowCommand::Add, &rules[0], &Names::default()).unwrap();
        // Ingress port, two MAC addresses, VLAN, Ethertype, two IP addresses, protocol, ToS, two
        // ports.
        assert_eq!(rule.matching.entries().len(), 11, "{:?}", rule.matching);
    }
}
