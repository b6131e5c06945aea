//! Link selection by a hash of the packet: `multipath`, `bundle`, `bundle_load` (ovs-actions(7)).
//!
//! The hash differs from Open vSwitch's, so a packet may take another link than in Open vSwitch.
//!
//! The hash has no secret seed: a flow keeps its link after a restart, and switches with the same
//! rules choose the same link. A controller sets its own `basis` if senders must not predict the
//! choice.

use super::budget::cost;
use super::pipeline::Pipeline;
use crate::dep::Read;
use dp::DropCause;
use flow::{Field, MatchPrerequisite, TAG_PRESENT};
use openflow::model::{Bundle, BundleAlgorithm, HashFields, Multipath, MultipathAlgorithm, Port};

/// Rounds of rehashing in search of a link, before the fallback.
const ITERATIONS: u64 = 64;

impl Pipeline<'_> {
    /// A hash of the fields that `fields` names.
    pub(super) fn hash_of(&mut self, fields: HashFields, basis: u64) -> u64 {
        use Field as F;
        let mut hash = flow::mix(0, basis);
        match fields {
            HashFields::EthSrc => hash = mix(hash, self.read(F::EthSrc)),
            HashFields::NwSrc => hash = mix(hash, self.address(F::Ipv4Src, F::Ipv6Src)),
            HashFields::NwDst => hash = mix(hash, self.address(F::Ipv4Dst, F::Ipv6Dst)),
            HashFields::SymmetricL3 => hash = self.symmetric_addresses(hash),
            HashFields::SymmetricL4 => {
                hash = mix(hash, self.read(F::EthSrc) ^ self.read(F::EthDst));
                hash = mix(hash, self.read(F::EthType));
                let vid = u128::from(TAG_PRESENT | 0xfff);
                self.consult(F::VlanTci0, vid);
                hash = mix(hash, self.packet.state.key.get(F::VlanTci0) & vid);
                hash = self.symmetric_l3(hash);
                hash = self.symmetric_ports(hash, false);
            }
            HashFields::SymmetricL3L4 => {
                hash = self.symmetric_l3(hash);
                hash = self.symmetric_ports(hash, false);
            }
            HashFields::SymmetricL3L4Udp => {
                hash = self.symmetric_l3(hash);
                hash = self.symmetric_ports(hash, true);
            }
        }
        hash
    }

    fn address(&mut self, v4: Field, v6: Field) -> u128 {
        match self.read(Field::EthType) {
            0x0800 => self.read(v4),
            0x86dd => self.read(v6),
            _ => 0,
        }
    }

    /// Both addresses of IP.
    fn symmetric_addresses(&mut self, hash: u64) -> u64 {
        let addresses = self.address(Field::Ipv4Src, Field::Ipv6Src) ^ self.address(Field::Ipv4Dst, Field::Ipv6Dst);
        mix(hash, addresses)
    }

    /// Both addresses of IP and the protocol.
    fn symmetric_l3(&mut self, hash: u64) -> u64 {
        if !self.meets(MatchPrerequisite::Ip) {
            return hash;
        }
        let hash = self.symmetric_addresses(hash);
        mix(hash, self.read(Field::IpProto))
    }

    fn symmetric_ports(&mut self, hash: u64, udp: bool) -> u64 {
        use MatchPrerequisite as P;
        if self.meets(P::Tcp) || self.meets(P::Sctp) || udp && self.meets(P::Udp) {
            mix(hash, self.read(Field::TpSrc) ^ self.read(Field::TpDst))
        } else {
            hash
        }
    }

    /// The action `multipath`: writes the number of a link.
    pub(super) fn multipath(&mut self, choice: &Multipath) {
        let links = match choice.algorithm {
            MultipathAlgorithm::Hrw => usize::from(choice.max_link),
            _ => 0,
        };
        if !self.spend(links / 8) {
            return;
        }
        let hash = self.hash_of(choice.fields, choice.basis.into());
        let links = u64::from(choice.max_link) + 1;
        let link = match choice.algorithm {
            MultipathAlgorithm::ModuloN => hash % links,
            MultipathAlgorithm::HashThreshold => ((u128::from(hash) * u128::from(links)) >> 64) as u64,
            MultipathAlgorithm::Hrw => highest((0..links).map(|link| (link, flow::mix(hash, link)))).unwrap_or(0),
            MultipathAlgorithm::IterHash => {
                let modulo = u64::from(choice.arg.max(choice.max_link.into()))
                    .max(1)
                    .next_power_of_two();
                let tried = (0..ITERATIONS).map(|n| flow::mix(hash, n) & (modulo * 2 - 1));
                tried.into_iter().find(|link| *link < links).unwrap_or(hash % links)
            }
        };
        self.write_bits(&choice.dst, link.into());
        self.detail_of_bits(&choice.dst);
    }

    /// The action `bundle`: sends the packet to one of several live ports, or writes its number.
    pub(super) fn bundle(&mut self, choice: &Bundle) {
        let hash = match choice.algorithm {
            BundleAlgorithm::ActiveBackup => 0,
            BundleAlgorithm::Hrw => self.hash_of(choice.fields, choice.basis.into()),
        };
        let mut live = Vec::new();
        for (at, member) in choice.members.iter().enumerate() {
            if self.is_live(*member) {
                live.push((*member, at as u64));
                if choice.algorithm == BundleAlgorithm::ActiveBackup {
                    break;
                }
            }
        }
        let chosen = highest(live.into_iter().map(|(port, at)| (port, flow::mix(hash, at))));
        let port = chosen.unwrap_or(Port::ANY);
        match &choice.dst {
            Some(dst) => {
                // Without a port it is OFPP_NONE, in the numbers of OpenFlow 1.0 where there is no
                // room for others.
                let number = if dst.n_bits() <= 16 {
                    flow::port_to_of10(port.0).into()
                } else {
                    port.0
                };
                self.write_bits(dst, number.into());
                self.detail_of_bits(dst);
            }
            None if port == Port::ANY => self.dropped(DropCause::NoDestination),
            None => self.output(port, 0),
        }
    }

    /// Whether a port is live.
    pub(super) fn is_live(&mut self, port: Port) -> bool {
        if !self.spend(cost::PORT) {
            return false;
        }
        let Some(bridge) = self.packet.place.bridge else {
            return false;
        };
        let Some((at, interface)) = bridge.of_ports.get(&port.0).copied() else {
            self.depend(Read::Flood(bridge.id));
            return false;
        };
        self.depend(Read::Port(bridge.id, at));
        let member = bridge.ports.get(&at).and_then(|port| port.members.get(interface));
        member.is_some_and(|member| member.live)
    }
}

fn mix(hash: u64, value: u128) -> u64 {
    flow::mix(flow::mix(hash, (value >> 64) as u64), value as u64)
}

/// The link with the highest score.
fn highest<T>(all: impl Iterator<Item = (T, u64)>) -> Option<T> {
    all.max_by_key(|(_, score)| *score).map(|(which, _)| which)
}
