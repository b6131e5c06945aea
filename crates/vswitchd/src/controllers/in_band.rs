//! In-band control: the rules that let a bridge reach its controllers over its own ports, whatever
//! its tables say.
//!
//! The rules admit DHCP and ARP of the local port, ARP for the controllers, and the controllers'
//! TCP connections. Priorities are those of Open vSwitch in `bridge/dump-flows`.

use flow::MatchField as F;
use openflow::model::{Action, Instructions, Match, Port};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use switch::tables::HiddenRule;
use wire::MacAddr;

/// The addresses in the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InBand {
    /// The local port's address.
    pub(super) local: MacAddr,
    /// Controllers and managers: address and TCP port.
    pub(super) remotes: BTreeSet<(Ipv4Addr, u16)>,
    /// The MAC addresses of the next hops to them.
    pub(super) next_hops: BTreeSet<MacAddr>,
    /// `other_config:in-band-queue`.
    pub(super) queue: Option<u32>,
}

const FROM_LOCAL_DHCP: u32 = 180_000;
const TO_LOCAL_ARP: u32 = 180_001;
const FROM_LOCAL_ARP: u32 = 180_002;
const TO_NEXT_HOP_ARP: u32 = 180_003;
const FROM_NEXT_HOP_ARP: u32 = 180_004;
const TO_REMOTE_ARP: u32 = 180_005;
const FROM_REMOTE_ARP: u32 = 180_006;
const TO_REMOTE_TCP: u32 = 180_007;
const FROM_REMOTE_TCP: u32 = 180_008;

/// The priority of the fail-open rule.
const FAIL_OPEN: u32 = 0x00f0_f0f0;

const ETH_IP: u128 = 0x0800;
const ETH_ARP: u128 = 0x0806;
const TCP: u128 = 6;
const UDP: u128 = 17;
const REQUEST: u128 = 1;
const REPLY: u128 = 2;

/// The rule of a bridge in fail-open mode.
pub(super) fn fail_open() -> HiddenRule {
    HiddenRule {
        priority: FAIL_OPEN,
        matching: Match::default(),
        instructions: normal(None),
    }
}

fn normal(queue: Option<u32>) -> Instructions {
    let output = Action::Output {
        port: Port::NORMAL,
        max_len: 0,
    };
    let queue = queue.map(Action::SetQueue);
    Instructions::apply(queue.into_iter().chain([output]).collect())
}

impl InBand {
    /// The rules; none without remotes.
    pub(super) fn rules(&self) -> Vec<HiddenRule> {
        if self.remotes.is_empty() {
            return Vec::new();
        }
        let mut rules = Vec::new();
        let mut rule = |priority, fields: &[(F, u128)]| {
            let mut matching = Match::default();
            for (field, value) in fields {
                matching.set(*field, *value, field.info().valid);
            }
            rules.push(HiddenRule {
                priority,
                matching,
                instructions: normal(self.queue),
            });
        };
        let local = u128::from(self.local.to_u64());
        let dhcp = [
            (F::EthType, ETH_IP),
            (F::InPortOxm, Port::LOCAL.0.into()),
            (F::EthSrc, local),
            (F::NwProto, UDP),
            (F::UdpSrc, 68),
            (F::UdpDst, 67),
        ];
        rule(FROM_LOCAL_DHCP, &dhcp);
        let mut arp = |priority, operation, field, value| {
            rule(
                priority,
                &[(F::EthType, ETH_ARP), (F::ArpOp, operation), (field, value)],
            );
        };
        arp(TO_LOCAL_ARP, REPLY, F::EthDst, local);
        arp(FROM_LOCAL_ARP, REQUEST, F::EthSrc, local);
        for hop in &self.next_hops {
            let hop = u128::from(hop.to_u64());
            arp(TO_NEXT_HOP_ARP, REPLY, F::EthDst, hop);
            arp(FROM_NEXT_HOP_ARP, REQUEST, F::EthSrc, hop);
        }
        let addresses: BTreeSet<Ipv4Addr> = self.remotes.iter().map(|(address, _)| *address).collect();
        for address in addresses {
            let address = u128::from(address.to_bits());
            arp(TO_REMOTE_ARP, REPLY, F::ArpTpa, address);
            arp(FROM_REMOTE_ARP, REQUEST, F::ArpSpa, address);
        }
        for (address, port) in &self.remotes {
            let (address, port) = (u128::from(address.to_bits()), u128::from(*port));
            let ip = [(F::EthType, ETH_IP), (F::NwProto, TCP)];
            rule(TO_REMOTE_TCP, &[ip[0], ip[1], (F::IpDst, address), (F::TcpDst, port)]);
            rule(FROM_REMOTE_TCP, &[ip[0], ip[1], (F::IpSrc, address), (F::TcpSrc, port)]);
        }
        rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::text::{Names, parse_match};

    #[test]
    fn the_rules_are_open_vswitchs() {
        let local = MacAddr([0x7a, 0x6b, 0x70, 0x86, 0x9f, 0x49]);
        let in_band = InBand {
            local,
            remotes: [(Ipv4Addr::LOCALHOST, 19999)].into(),
            next_hops: [MacAddr([2, 0, 0, 0, 0, 1])].into(),
            queue: Some(3),
        };
        let rules = in_band.rules();
        let expected = [
            (180_008, "tcp,nw_src=127.0.0.1,tp_src=19999"),
            (180_007, "tcp,nw_dst=127.0.0.1,tp_dst=19999"),
            (180_006, "arp,arp_spa=127.0.0.1,arp_op=1"),
            (180_005, "arp,arp_tpa=127.0.0.1,arp_op=2"),
            (180_004, "arp,dl_src=02:00:00:00:00:01,arp_op=1"),
            (180_003, "arp,dl_dst=02:00:00:00:00:01,arp_op=2"),
            (180_002, "arp,dl_src=7a:6b:70:86:9f:49,arp_op=1"),
            (180_001, "arp,dl_dst=7a:6b:70:86:9f:49,arp_op=2"),
            (
                180_000,
                "udp,in_port=LOCAL,dl_src=7a:6b:70:86:9f:49,tp_src=68,tp_dst=67",
            ),
        ];
        assert_eq!(rules.len(), expected.len());
        for (priority, text) in expected {
            let rule = rules.iter().find(|rule| rule.priority == priority).unwrap();
            let wanted = parse_match(text, &Names::default()).unwrap();
            assert_eq!(rule.matching.to_state(), wanted.to_state(), "{text}");
            assert_eq!(rule.instructions.apply.len(), 2);
            assert_eq!(rule.instructions.apply[0], Action::SetQueue(3));
        }
        assert_eq!(InBand::default().rules(), []);
    }
}
