//! A port of a bridge: how packets get from the wire into a VLAN, and back.
//!
//! The rules are those of "VLAN Configuration" in ovs-vswitchd.conf.db(5) and of "The OVS Normal Pipeline" in ovs-actions(7); where these leave
//! something open (a tag inside a tag, priorities), they are what Open vSwitch 3.1 does.

use crate::tags::{Reader, Tags};
use crate::{PortConfig, PriorityTags, VlanMode, VlanSet};
use flow::PortNo;
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
    pub(crate) egress: Egress,
    /// The interface that carries the traffic, where there are several.
    pub(crate) active: usize,
    pub(crate) interfaces: usize,
}

/// Where packets leave to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Egress {
    /// Nowhere: no interface is up, or a patch port has no peer.
    None,
    Device(PortNo),
    /// Into another bridge.
    Patch(Ingress),
}

/// Where a packet comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    /// The VLAN of a packet that comes in; `None` where the port does not take it. Makes the packet's tags those that it has inside the bridge,
    /// where the outermost one names the VLAN.
    pub(crate) fn ingress(&self, tags: &mut Tags, reader: &mut Reader<'_>) -> Option<Vid> {
        let tagged = tags.vid(0, reader);
        let vid = tagged.unwrap_or_default();
        match self.mode {
            VlanMode::Trunk => self.trunk(vid).then_some(vid),
            VlanMode::Access if vid != Vid::NONE => None,
            VlanMode::NativeTagged | VlanMode::NativeUntagged if vid != Vid::NONE => {
                (vid == self.tag || self.trunk(vid)).then_some(vid)
            }
            VlanMode::Access | VlanMode::NativeTagged | VlanMode::NativeUntagged => {
                tags.set_vid(self.tag, reader);
                Some(self.tag)
            }
            VlanMode::Dot1qTunnel => {
                if !self.customer(vid) {
                    return None;
                }
                // A tag that says nothing is not worth carrying through the service network.
                if tagged == Some(Vid::NONE) && !tags.has_priority(reader) {
                    tags.pop();
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
            VlanMode::NativeTagged if vlan == self.tag || self.trunk(vlan) => false,
            VlanMode::NativeUntagged if vlan == self.tag || self.trunk(vlan) => vlan == self.tag,
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
                out.pop();
                if self.mode == VlanMode::Access && out.vid(0, reader).is_some() {
                    out.pop();
                }
                let bare = out.vid(0, reader).is_none();
                if bare && self.priority_tags != PriorityTags::Never && tags.has_priority(reader) {
                    out.push_priority(tags);
                }
            }
            // A priority tag stays where it has a priority, whatever `priority-tags` says: so it is there.
            Some(Vid::NONE) if self.priority_tags != PriorityTags::Always && !tags.has_priority(reader) => out.pop(),
            Some(_) => {}
        }
        Some(out)
    }

    fn trunk(&self, vid: Vid) -> bool {
        self.trunks.is_empty() || self.trunks.contains(vid)
    }

    fn customer(&self, vid: Vid) -> bool {
        self.cvlans.is_empty() || self.cvlans.contains(vid)
    }
}
