//! Packets of other types than Ethernet: `encap`, `decap` and network service headers (RFC 8300).
//!
//! Whether a packet has an Ethernet header is committed with its other fields: the addresses that
//! an action gives it later are then part of `push_eth`. A network service header is changed where
//! it is pushed, as a label is. Behind a popped header the packet recirculates.

use super::freeze::Why;
use super::labels::clear_payload;
use super::pipeline::Pipeline;
use dp::{Action as Step, DropCause, NshPush};
use flow::{Field, Key, MatchPrerequisite};
use openflow::model::EncapProperty;
use std::sync::Arc;
use wire::EtherType;
use wire::nsh::{self, protocol};

const IPV4: u32 = EtherType::IPV4.packet_type();
const IPV6: u32 = EtherType::IPV6.packet_type();
const NSH: u32 = EtherType::NSH.packet_type();
const MPLS: u32 = EtherType::MPLS.packet_type();
const MPLS_MULTICAST: u32 = EtherType::MPLS_MULTICAST.packet_type();

/// The type of what is behind a popped header, where the header itself says it.
const FROM_HEADER: u32 = 0xfffe;

/// The first time to live (RFC 8300 §2.2) and the first service index.
const TTL: u8 = 63;
const INDEX: u8 = 255;

/// The fields that the header of an action has.
const OF_HEADER: [Field; 10] = [
    Field::NshFlags,
    Field::NshTtl,
    Field::NshMdtype,
    Field::NshNp,
    Field::NshSpi,
    Field::NshSi,
    Field::NshC1,
    Field::NshC2,
    Field::NshC3,
    Field::NshC4,
];

impl Pipeline<'_> {
    /// Whether the packet has no Ethernet header.
    pub(super) fn is_bare(&self) -> bool {
        self.packet_type() != 0
    }

    /// The packet as tables see it, if the Ethernet header that the datapath has given it is none
    /// of its own.
    pub(super) fn bare(&mut self, mut key: Key) -> Key {
        self.packet.typed = true;
        self.consult(Field::EthType, u128::MAX);
        let kind = EtherType(key.get(Field::EthType) as u16);
        set_type(&mut key, kind.packet_type());
        key
    }

    fn packet_type(&self) -> u32 {
        self.packet.state.key.get(Field::PacketType) as u32
    }

    /// Puts a header before the packet.
    pub(super) fn encap(&mut self, packet_type: u32, properties: &[EncapProperty]) {
        self.packet.typed = true;
        match packet_type {
            0 => self.encap_ethernet(),
            NSH => self.encap_nsh(properties),
            MPLS | MPLS_MULTICAST => self.encap_mpls(packet_type as u16),
            _ => {}
        }
    }

    fn encap_ethernet(&mut self) {
        if !self.is_bare() {
            return self.unsupported("Dropping packet as encap(ethernet) is not supported for packet type ethernet.");
        }
        self.commit();
        let key = &mut self.packet.state.key;
        key.set(Field::PacketType, 0);
        key.set(Field::EthSrc, 0);
        key.set(Field::EthDst, 0);
    }

    fn encap_nsh(&mut self, properties: &[EncapProperty]) {
        let protocol = match self.packet_type() {
            0 => protocol::ETHERNET,
            IPV4 => protocol::IPV4,
            IPV6 => protocol::IPV6,
            NSH => protocol::NSH,
            kind => {
                let text = format!(
                    "Dropping packet as encap(nsh) is not supported for packet type {}",
                    name(kind)
                );
                return self.unsupported(&text);
            }
        };
        let (mut md_type, mut metadata) = (nsh::FIXED, Vec::new());
        for property in properties {
            match property {
                EncapProperty::NshMdType(kind) => md_type = *kind,
                EncapProperty::NshTlv { class, kind, data } => {
                    metadata.extend(class.to_be_bytes());
                    metadata.extend([*kind, data.len() as u8]);
                    metadata.extend(data);
                    metadata.resize(metadata.len().next_multiple_of(4), 0);
                }
            }
        }
        self.commit();
        self.cover(EtherType::NSH);
        let mut push = NshPush {
            flags: 0,
            ttl: TTL,
            md_type,
            protocol,
            path: 0,
            index: INDEX,
            metadata,
        };
        push.set_context([0; 4]);
        let key = &mut self.packet.state.key;
        for (field, value) in [
            (Field::NshTtl, TTL),
            (Field::NshMdtype, md_type),
            (Field::NshNp, protocol),
            (Field::NshSi, INDEX),
        ] {
            key.set(field, value.into());
        }
        self.packet.base.key = self.packet.state.key;
        self.actions.push(Step::PushNsh(Arc::new(push)));
    }

    /// Puts a label before the whole packet.
    fn encap_mpls(&mut self, ethertype: u16) {
        let lse = self.first_lse();
        let lse = match self.meets(MatchPrerequisite::Mpls) && self.is_bare() {
            true => self.read(Field::MplsLse0) as u32 & !0x100,
            false => lse & 0xfff | 0x100,
        };
        let below = [Field::MplsLse0, Field::MplsLse1].map(|field| match lse & 0x100 {
            0 => self.packet.state.key.get(field),
            _ => 0,
        });
        self.commit();
        self.cover(EtherType(ethertype));
        let key = &mut self.packet.state.key;
        key.set(Field::MplsLse0, lse.into());
        key.set(Field::MplsLse1, below[0]);
        key.set(Field::MplsLse2, below[1]);
        self.packet.base.key = self.packet.state.key;
        self.actions.push(Step::AddMpls { ethertype, lse });
    }

    /// The packet is now behind a header of this type, which no Ethernet header is before.
    fn cover(&mut self, kind: EtherType) {
        self.touch_tags();
        self.packet.covered.clear();
        self.packet.hidden = false;
        clear_payload(&mut self.packet.state.key);
        self.packet.state.key.set_tag(0, None);
        self.packet.state.key.set_tag(1, None);
        self.packet.buried.clear();
        self.packet.base.buried.clear();
        set_type(&mut self.packet.state.key, kind.packet_type());
    }

    /// A packet of another type has the type of the label that was pushed, or of what was under it.
    pub(super) fn follow_type(&mut self, ethertype: u16) {
        if self.is_bare() {
            let kind = EtherType(ethertype).packet_type();
            self.packet.state.key.set(Field::PacketType, kind.into());
        }
    }

    /// Takes the outermost header off.
    pub(super) fn decap(&mut self, behind: u32) {
        self.packet.typed = true;
        match self.packet_type() {
            0 => self.decap_ethernet(),
            NSH => self.decap_nsh(),
            MPLS | MPLS_MULTICAST => self.decap_mpls(behind),
            kind => {
                let text = format!(
                    "Dropping packet as the decap() does not support packet type {}",
                    name(kind)
                );
                self.unsupported(&text);
            }
        }
    }

    fn decap_ethernet(&mut self) {
        self.consult(Field::VlanTci0, flow::TAG_PRESENT.into());
        if self.packet.state.key.tag(0).is_some() {
            return self.unsupported("Dropping packet, cannot decap Ethernet if VLAN is present.");
        }
        let kind = EtherType(self.read(Field::EthType) as u16);
        set_type(&mut self.packet.state.key, kind.packet_type());
    }

    fn decap_nsh(&mut self) {
        let protocol = self.packet.state.key.get(Field::NshNp) as u8;
        let inner = match protocol {
            protocol::ETHERNET => 0,
            protocol::IPV4 => IPV4,
            protocol::IPV6 => IPV6,
            protocol::NSH => NSH,
            _ => {
                self.consult_unshown(Field::NshNp, u128::MAX);
                let text = format!("Dropping packet as NSH next protocol {protocol} is not supported");
                return self.unsupported(&text);
            }
        };
        self.consult(Field::NshNp, u128::MAX);
        self.commit();
        self.actions.push(Step::PopNsh);
        if inner == 0 {
            self.packet.state.key.set(Field::PacketType, 0);
        } else {
            clear_payload(&mut self.packet.state.key);
            set_type(&mut self.packet.state.key, inner);
        }
        self.uncovered();
    }

    fn decap_mpls(&mut self, behind: u32) {
        self.consult(Field::MplsLse0, 0x100);
        self.commit();
        let ethertype = match behind {
            0 => EtherType::BRIDGED.0,
            kind => kind as u16,
        };
        self.actions.push(Step::PopMpls { ethertype });
        clear_payload(&mut self.packet.state.key);
        match behind {
            0 => {
                self.packet.state.key.set(Field::PacketType, 0);
                self.packet.state.key.set(Field::EthType, EtherType::BRIDGED.0.into());
            }
            FROM_HEADER => set_type(&mut self.packet.state.key, FROM_HEADER),
            kind => set_type(&mut self.packet.state.key, kind),
        }
        self.uncovered();
    }

    /// Only the datapath knows what is behind the header that was popped.
    fn uncovered(&mut self) {
        self.packet.base.key = self.packet.state.key;
        self.packet.covered.clear();
        self.freeze(Why::Recirculate);
    }

    /// Decrements the time to live of a network service header. Whether the action list continues.
    pub(super) fn dec_nsh_ttl(&mut self) -> bool {
        if !self.meets(MatchPrerequisite::Nsh) {
            return true;
        }
        let ttl = self.read(Field::NshTtl);
        if ttl > 1 {
            self.packet.state.key.set(Field::NshTtl, ttl - 1);
            return true;
        }
        self.warning(|_| String::from("NSH decrement TTL exception"));
        self.ttl_over(0);
        false
    }

    /// Gives the datapath's packet an Ethernet header, or takes it off.
    pub(super) fn commit_type(&mut self) {
        let (base, key) = (&mut self.packet.base.key, &self.packet.state.key);
        match (base.get(Field::PacketType), key.get(Field::PacketType)) {
            (0, 0) => {}
            (0, kind) => {
                self.actions.push(Step::PopEth);
                set_type(base, kind as u32);
            }
            (_, 0) => {
                let (src, dst) = (key.eth_src(), key.eth_dst());
                self.actions.push(Step::PushEth { src, dst });
                base.set(Field::PacketType, 0);
                base.set(Field::EthSrc, key.get(Field::EthSrc));
                base.set(Field::EthDst, key.get(Field::EthDst));
            }
            _ => {}
        }
    }

    /// Changes a network service header that the last action has pushed.
    pub(super) fn commit_nsh(&mut self) {
        let (base, key) = (&mut self.packet.base.key, &self.packet.state.key);
        if OF_HEADER.iter().all(|field| base.get(*field) == key.get(*field)) {
            return;
        }
        let Some(Step::PushNsh(push)) = self.actions[self.packet.own_steps..].last_mut() else {
            return;
        };
        let push = Arc::make_mut(push);
        push.flags = key.get(Field::NshFlags) as u8;
        push.ttl = key.get(Field::NshTtl) as u8;
        push.path = key.get(Field::NshSpi) as u32;
        push.index = key.get(Field::NshSi) as u8;
        let context = [Field::NshC1, Field::NshC2, Field::NshC3, Field::NshC4];
        push.set_context(context.map(|field| key.get(field) as u32));
        OF_HEADER.iter().for_each(|field| base.set(*field, key.get(*field)));
    }

    /// Whether a packet may leave by a port that takes Ethernet packets only.
    pub(super) fn is_ethernet(&mut self) -> bool {
        if self.is_bare() {
            self.warning(|_| {
                String::from("Trying to send non-Ethernet packet through legacy L2 port. Dropping packet.")
            });
            self.dropped(DropCause::PacketType);
        }
        !self.is_bare()
    }

    /// Drops a packet for whose type an action is not made.
    fn unsupported(&mut self, text: &str) {
        self.failed_for(DropCause::PacketType, "Unsupported packet type");
        self.line(super::report::Kind::Action, |_| text.to_owned());
    }
}

/// Whether a packet has no Ethernet header.
pub(super) fn is_bare(key: &Key) -> bool {
    key.get(Field::PacketType) != 0
}

/// The packet is of this type, which is not Ethernet.
fn set_type(key: &mut Key, packet_type: u32) {
    key.set(Field::PacketType, packet_type.into());
    key.set(Field::EthType, (packet_type & 0xffff).into());
    key.set(Field::EthSrc, 0);
    key.set(Field::EthDst, 0);
}

/// As Open vSwitch names a type.
fn name(packet_type: u32) -> String {
    format!("({},0x{:x})", packet_type >> 16, packet_type & 0xffff)
}
