//! The part of bonds in NORMAL: which packets of members it accepts, and the member by which others
//! leave.

use super::Credited;
use super::pipeline::Pipeline;
use crate::bond::{Admission, BondState};
use crate::bridge::Bridge;
use crate::dep::Read;
use crate::port::{Egress, Ingress, Port};
use flow::{Field, Key};
use protocols::bond::{Outputs, hash_of_source};
use wire::{EtherType, MacAddr, Vid};

impl Pipeline<'_> {
    /// Whether NORMAL accepts a packet that a member of a bond has received. The port depends on
    /// its bond already.
    pub(super) fn bond_admits(&mut self, key: &Key, (bridge, vlan): (&Bridge, Vid), at: Ingress, port: &Port) -> bool {
        let Some(bond) = &port.bond else {
            // Only one interface of several carries traffic until the bond is known.
            return port.active == at.interface;
        };
        let Some(member) = port.members.get(at.interface) else {
            return false;
        };
        let dst = MacAddr::from_u64(self.reader(key).read(Field::EthDst) as u64);
        match bond.admission(member.number, dst.is_multicast()) {
            Admission::Accept => true,
            Admission::Drop => {
                self.detail(|_| String::from("bonding refused admissibility, dropping"));
                false
            }
            Admission::DropIfMoved => {
                let src = MacAddr::from_u64(self.reader(key).read(Field::EthSrc) as u64);
                self.depend(Read::Station(bridge.id, vlan, src));
                let elsewhere = bridge.fdb.lookup(vlan, src).is_some_and(|(known, _)| known != at.port);
                // A station that moves says so by gratuitous ARP.
                if elsewhere && !self.is_gratuitous_arp(key, dst) {
                    self.detail(|_| String::from("SLB bond thinks this packet looped back, dropping"));
                    return false;
                }
                true
            }
        }
    }

    /// Where a packet leaves a bond. Counts it for the load of its bucket.
    pub(super) fn bond_egress(&mut self, key: &Key, vlan: Vid, bridge: u32, port: &Port, bond: &BondState) -> Egress {
        let bucket = match bond.outputs {
            Outputs::Nothing | Outputs::Active => return port.egress,
            Outputs::Slb => {
                let src = MacAddr::from_u64(self.reader(key).read(Field::EthSrc) as u64);
                hash_of_source(src, vlan.get(), bond.basis)
            }
            Outputs::Tcp if !self.names_members() => return port.egress_of_bond(bond),
            Outputs::Tcp => self.hash_of_flow(key, bond.basis),
        };
        if let Some(at) = self.port_number(port) {
            let credited = Credited::Bond {
                bridge,
                port: at,
                bucket,
            };
            self.credits.push(credited.credit());
        }
        port.egress_of_bucket(bucket)
    }

    /// The number in its bridge of a port that is being sent to.
    fn port_number(&self, port: &Port) -> Option<u32> {
        let bridge = self.packet.place.bridge?;
        let member = port.members.first()?;
        bridge.of_ports.get(&member.number).map(|(port, _)| *port)
    }

    /// Whether exports or captures name the member that a packet leaves by.
    fn names_members(&self) -> bool {
        self.packet.place.bridge.is_some_and(Bridge::names_members)
    }

    /// The bucket that the datapath selects for a packet; reads all that it depends on.
    fn hash_of_flow(&mut self, key: &Key, basis: u32) -> u8 {
        let mut read = vec![Field::EthSrc, Field::EthDst, Field::EthType];
        let addresses = match EtherType(key.get(Field::EthType) as u16) {
            EtherType::IPV4 => Some([Field::Ipv4Src, Field::Ipv4Dst]),
            EtherType::IPV6 => Some([Field::Ipv6Src, Field::Ipv6Dst]),
            _ => None,
        };
        if let Some(addresses) = addresses {
            read.extend(addresses);
            read.extend([Field::IpProto, Field::IpFrag, Field::TpSrc, Field::TpDst]);
        }
        let reader = &mut self.reader(key);
        for field in read {
            reader.read(field);
        }
        dp::bucket_of_bond(key, basis)
    }

    /// Whether a packet is a gratuitous ARP: a broadcast by which a station says where it is.
    fn is_gratuitous_arp(&mut self, key: &Key, dst: MacAddr) -> bool {
        const REPLY: u128 = 2;
        let reader = &mut self.reader(key);
        if dst != MacAddr::BROADCAST || reader.read(Field::EthType) != u128::from(EtherType::ARP.0) {
            return false;
        }
        reader.read(Field::ArpOp) == REPLY || reader.read(Field::ArpSpa) == reader.read(Field::ArpTpa)
    }
}
