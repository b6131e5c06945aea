//! A port of a bridge: how packets get from the wire into a VLAN, and back.
//!
//! The rules are those of "VLAN Configuration" in ovs-vswitchd.conf.db(5) and of "The OVS Normal
//! Pipeline" in ovs-actions(7); where these leave something open (a tag inside a tag, priorities),
//! they are what Open vSwitch 3.1 does.

use crate::tables::tags::{Reader, Tags};
use crate::{PortConfig, PriorityTags, VlanMode, VlanSet};
use flow::PortNo;
use std::collections::BTreeMap;
use wire::Vid;

/// An attachment of a bridge, ready for use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) name: String,
    /// The first interface's OpenFlow port number.
    pub(crate) ofport: Option<u16>,
    pub(crate) vlans: PortVlans,
    pub(crate) protected: bool,
    pub(crate) no_flood: bool,
    pub(crate) dscp: BTreeMap<u32, u8>,
    pub(crate) egress: Egress,
    /// The interface that carries the traffic, where there are several.
    pub(crate) active: usize,
    pub(crate) interfaces: usize,
    pub(crate) members: Vec<Member>,
}

/// An interface of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its port number as OpenFlow 1.1 and later have it.
    pub(crate) number: u32,
    pub(crate) egress: Egress,
    /// Whether what chooses between ports may choose it.
    pub(crate) live: bool,
}

/// Where packets leave to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Egress {
    /// Nowhere: none of several interfaces is up, or a patch port has no peer.
    None,
    Device(PortNo),
    /// Into another bridge.
    Patch(Ingress),
}

/// Where a packet comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ingress {
    pub(crate) bridge: u32,
    pub(crate) port: u32,
    pub(crate) interface: usize,
}

/// How a port maps tags to VLANs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortVlans {
    mode: VlanMode,
    tag: Vid,
    trunks: VlanSet,
    cvlans: VlanSet,
    service_tpid: u16,
    priority_tags: PriorityTags,
}

impl PortVlans {
    pub(crate) fn new(config: &PortConfig) -> PortVlans {
        PortVlans {
            mode: config.vlan_mode,
            tag: config.tag.unwrap_or_default(),
            trunks: config.trunks.clone(),
            cvlans: config.cvlans.clone(),
            service_tpid: config.qinq_ethertype,
            priority_tags: config.priority_tags,
        }
    }

    /// The VLAN of an access port.
    pub(crate) fn access(&self) -> Option<Vid> {
        (self.mode == VlanMode::Access).then_some(self.tag)
    }

    /// The VLAN of a packet that comes in; `None` where the port does not take it. Makes the
    /// packet's tags those that it has inside the bridge, where the outermost one names the VLAN.
    pub(crate) fn ingress(&self, tags: &mut Tags, reader: &mut Reader<'_>) -> Option<Vid> {
        let vid = tags.vid(0, reader).unwrap_or_default();
        match self.mode {
            VlanMode::Trunk => self.trunk(vid).then_some(vid),
            VlanMode::Access if vid != Vid::NONE => None,
            VlanMode::NativeTagged | VlanMode::NativeUntagged if vid != Vid::NONE => self.native(vid).then_some(vid),
            VlanMode::Access | VlanMode::NativeTagged | VlanMode::NativeUntagged => {
                tags.set_vid(self.tag, reader);
                Some(self.tag)
            }
            VlanMode::Dot1qTunnel => {
                if !self.customer(vid) {
                    return None;
                }
                tags.push(self.service_tpid, self.tag);
                Some(self.tag)
            }
        }
    }

    /// The tags with which a packet of a VLAN leaves; `None` where the port does not carry it.
    pub(crate) fn egress(&self, vlan: Vid, tags: &Tags, reader: &mut Reader<'_>) -> Option<Tags> {
        let strip = match self.mode {
            VlanMode::Trunk if self.trunk(vlan) => false,
            VlanMode::NativeTagged if self.native(vlan) => false,
            VlanMode::NativeUntagged if self.native(vlan) => vlan == self.tag,
            // A tag inside the VLAN's own is a customer's, for which an access port has no use.
            VlanMode::Access if vlan == self.tag && tags.vid(1, reader).unwrap_or_default() == Vid::NONE => true,
            VlanMode::Dot1qTunnel if vlan == self.tag && self.customer(tags.vid(1, reader).unwrap_or_default()) => true,
            _ => return None,
        };
        let mut out = tags.clone();
        match tags.vid(0, reader) {
            // Came and leaves untagged.
            None => {}
            Some(_) if strip => {
                let inner = tags.vid(1, reader).is_some();
                out.pop();
                if inner && self.mode == VlanMode::Access {
                    out.pop();
                }
                let bare = !inner || self.mode == VlanMode::Access;
                if bare && self.priority_tags != PriorityTags::Never && tags.has_priority(reader) {
                    if !inner && tags.is_priority(reader) {
                        return Some(tags.clone());
                    }
                    out.push_priority(tags);
                }
            }
            // A tag for nothing but a priority stays, whatever `priority-tags` says; one without
            // even that goes, unless it would bare another, which the next bridge would take for
            // the packet's VLAN.
            Some(Vid::NONE)
                if self.priority_tags != PriorityTags::Always
                    && !tags.has_priority(reader)
                    && !tags.has_inner(reader) =>
            {
                out.pop();
            }
            Some(_) => {}
        }
        Some(out)
    }

    fn trunk(&self, vid: Vid) -> bool {
        self.trunks.is_empty() || self.trunks.contains(vid)
    }

    /// Whether a port with a native VLAN carries a VLAN: VLAN 0 only where it is the native one.
    fn native(&self, vid: Vid) -> bool {
        vid == self.tag || vid != Vid::NONE && self.trunk(vid)
    }

    fn customer(&self, vid: Vid) -> bool {
        self.cvlans.is_empty() || self.cvlans.contains(vid)
    }
}
