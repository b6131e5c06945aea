//! A port of a bridge. What it does with VLAN tags is in [`crate::tables::tags`].

use crate::bond::BondState;
use crate::fdb::Station;
use crate::tables::tags::PortVlans;
use crate::{LinkState, MacLimit, PortGuard, Punts, VlanMode};
use dp::Action;
use flow::PortNo;
use protocols::bond::Outputs;
use std::collections::BTreeMap;
use std::sync::Arc;
use tunnel::vport::Vport;

/// A port of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) name: String,
    /// The first interface's OpenFlow port number.
    pub(crate) ofport: Option<u16>,
    pub(crate) vlans: PortVlans,
    pub(crate) protected: bool,
    pub(crate) no_flood: bool,
    pub(crate) no_normal: bool,
    pub(crate) mcast_flood: bool,
    pub(crate) mcast_flood_reports: bool,
    pub(crate) guard: PortGuard,
    pub(crate) mac_limit: Option<MacLimit>,
    /// The station that was one too many: the port takes and sends nothing.
    pub(crate) shut: Option<Station>,
    /// The meters of its limits, in the order of [`crate::Storm::ALL`].
    pub(crate) storm: [Option<u32>; 3],
    pub(crate) dscp: BTreeMap<u32, u8>,
    pub(crate) egress: Egress,
    /// The interface that carries the traffic, if there are several.
    pub(crate) active: usize,
    pub(crate) interfaces: usize,
    pub(crate) members: Vec<Member>,
    /// Its bond, once the control plane has set it.
    pub(crate) bond: Option<Arc<BondState>>,
    /// What the bond's buckets have sent, in bytes.
    pub(crate) loads: Vec<u64>,
}

impl Port {
    /// Chooses the interface that carries the traffic, after links have changed.
    pub(crate) fn settle(&mut self) {
        let alone = self.members.len() == 1;
        for member in &mut self.members {
            let shut = self.shut.is_some();
            member.live = member.link.up && member.link.alive && member.wired != Egress::None && !shut;
            member.egress = if member.live || alone && !shut {
                member.wired
            } else {
                Egress::None
            };
        }
        if let Some(bond) = &self.bond {
            let active = bond.active.filter(|_| bond.outputs != Outputs::Nothing);
            self.egress = self.egress_of_member(active);
            return;
        }
        let active = self.members.iter().position(|member| member.egress != Egress::None);
        self.egress = active.map_or(Egress::None, |at| self.members[at].egress);
        self.active = active.unwrap_or_default();
    }

    /// Why the port does not take a packet with this VLAN, in Open vSwitch's words.
    pub(crate) fn refusal(&self, vid: u16) -> String {
        let name = &self.name;
        match self.vlans.mode() {
            VlanMode::Access => {
                let own = self.vlans.tag();
                format!(
                    "dropping VLAN {vid} tagged packet received on port {name} configured as VLAN {own} access port"
                )
            }
            VlanMode::Dot1qTunnel => {
                format!("dropping VLAN {vid} packet received on dot1q-tunnel port {name} that excludes this VLAN")
            }
            VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => {
                format!("dropping VLAN {vid} packet received on port {name} not configured for trunking VLAN {vid}")
            }
        }
    }
}

/// An interface of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its port number in OpenFlow 1.1 and later.
    pub(crate) number: u32,
    /// What it is attached to.
    pub(crate) wired: Egress,
    pub(crate) link: LinkState,
    pub(crate) punts: Punts,
    /// Where packets leave: nowhere if another interface carries the port's traffic.
    pub(crate) egress: Egress,
    /// Whether groups and bundles may select it.
    pub(crate) live: bool,
    /// The configuration of a tunnel. The table of tunnels has it too; here a change of it makes
    /// the port another one.
    pub(crate) tunnel: Option<Arc<Vport>>,
}

/// Where packets leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Egress {
    /// Nowhere: none of several interfaces is up, or a patch port has no peer.
    None,
    Device(PortNo),
    /// By a bond whose member the datapath selects.
    Bond {
        /// The bond's number in the datapath.
        bond: u32,
        /// A member that is enabled: all have the same port of the bridge, and the same queues.
        member: PortNo,
    },
    /// Into another bridge.
    Patch(Ingress),
    /// Through the tunnel of the interface at this place.
    Tunnel(Ingress),
}

impl Egress {
    /// The device, or one of those that packets may leave by.
    pub(crate) fn device(self) -> Option<PortNo> {
        match self {
            Egress::Device(device) | Egress::Bond { member: device, .. } => Some(device),
            Egress::None | Egress::Patch(_) | Egress::Tunnel(_) => None,
        }
    }

    /// The datapath's action for a device or a bond.
    pub(crate) fn action(self) -> Option<Action> {
        match self {
            Egress::Device(device) => Some(Action::Output(device)),
            Egress::Bond { bond, .. } => Some(Action::OutputBond(bond)),
            Egress::None | Egress::Patch(_) | Egress::Tunnel(_) => None,
        }
    }
}

/// Where a packet enters a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ingress {
    pub(crate) bridge: u32,
    pub(crate) port: u32,
    pub(crate) interface: usize,
}
