//! The desired configuration, in the daemon's own types.
//!
//! [`crate::rows`] builds it from typed rows; [`crate::bridges`] applies it. An invalid or
//! unsupported setting is kept as a problem text and goes to the row's own status columns.

use crate::controllers::config::Controller;
use crate::exports;
use crate::mirrors::Mirror;
use crate::protocols::aggregation::rows as aggregation;
use crate::protocols::bfd::rows as bfd;
use crate::protocols::lldp::rows::AutoAttach;
use crate::protocols::snooping;
use crate::protocols::trees::rows as trees;
use crate::{connections, qos, workers};
use mgmt::stream::Remote;
use netdev::Spec;
use openflow::Versions;
use ovsdb::Uuid;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use switch::tables::TableSettings;
use switch::{FailMode, PortConfig, VlanSet};
use tunnel::vport::Config;
use wire::MacAddr;

/// The whole configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Desired {
    pub(crate) bridges: BTreeMap<String, Bridge>,
    /// Rows of refused bridges, with their names and the reasons.
    pub(crate) refused: Vec<(Uuid, String, String)>,
    /// How often statistics are written to the database.
    pub(crate) stats_interval: Option<Duration>,
    /// The workers and their queues.
    pub(crate) workers: workers::Wanted,
    /// Most megaflows that the datapath caches.
    pub(crate) flow_limit: Option<usize>,
    /// Idle timeout of a megaflow.
    pub(crate) max_idle: Option<Duration>,
    /// How often megaflows are aged and their counters collected.
    pub(crate) max_revalidator: Option<Duration>,
    /// Timeout of a bundle whose controller is silent.
    pub(crate) bundle_timeout: Duration,
    /// How many VLAN tags of a packet can be matched.
    pub(crate) vlan_limit: u8,
    /// Timeout policies and limits of tracked connections.
    pub(crate) connections: connections::Wanted,
    /// Managers reached in-band.
    pub(crate) managers: Vec<Remote>,
    /// Unsupported keys and columns of the root row.
    pub(crate) unsupported: Vec<String>,
}

impl Desired {
    /// All interfaces, with their names.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = (&str, &Interface)> {
        self.ports().flat_map(|port| {
            port.interfaces
                .iter()
                .map(|(name, interface)| (name.as_str(), interface))
        })
    }

    /// The members of all bonds.
    pub(crate) fn bonded(&self) -> impl Iterator<Item = &str> {
        let bonds = self.ports().filter(|port| port.interfaces.len() > 1);
        bonds.flat_map(|port| port.interfaces.keys().map(String::as_str))
    }

    fn ports(&self) -> impl Iterator<Item = &Port> {
        self.bridges.values().flat_map(|bridge| bridge.ports.values())
    }
}

/// A `Bridge` row.
#[derive(Clone, Debug)]
pub(crate) struct Bridge {
    pub(crate) uuid: Uuid,
    pub(crate) datapath_type: String,
    pub(crate) fail_mode: FailMode,
    /// `other_config:hwaddr`.
    pub(crate) hwaddr: Option<MacAddr>,
    /// `other_config:datapath-id`.
    pub(crate) datapath_id: Option<u64>,
    /// Allowed OpenFlow versions.
    pub(crate) protocols: Versions,
    /// `other_config:dp-desc`.
    pub(crate) description: Option<String>,
    /// `other_config:dp-sn`.
    pub(crate) serial: Option<String>,
    /// Length of a controller's packet-in queue.
    pub(crate) controller_queue: usize,
    /// Settings of OpenFlow tables.
    pub(crate) tables: BTreeMap<u8, TableSettings>,
    pub(crate) mac_aging: Duration,
    pub(crate) mac_table_size: usize,
    pub(crate) flood_vlans: VlanSet,
    pub(crate) forward_bpdu: bool,
    /// Multicast snooping.
    pub(crate) snooping: Option<snooping::Wanted>,
    /// What auto-attach tells over LLDP.
    pub(crate) auto_attach: Option<AutoAttach>,
    /// Its spanning tree.
    pub(crate) tree: Option<trees::Wanted>,
    /// Rows of its mirrors, by their UUIDs.
    pub(crate) mirrors: Vec<Mirror>,
    /// Its exporters.
    pub(crate) exports: exports::rows::Wanted,
    /// Its controllers, and whether and in which queue it reaches them over its own ports.
    pub(crate) controllers: Vec<Controller>,
    pub(crate) disable_in_band: bool,
    pub(crate) in_band_queue: Option<u32>,
    pub(crate) ports: BTreeMap<String, Port>,
    pub(crate) unsupported: BTreeSet<String>,
}

impl Bridge {
    /// The type of its datapath; `system` where the row has none.
    pub(crate) fn datapath_type(&self) -> &str {
        match self.datapath_type.as_str() {
            "" => "system",
            other => other,
        }
    }
}

/// A `Port` row.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) uuid: Uuid,
    /// VLANs and flags; its interfaces are filled in when their devices are open.
    pub(crate) config: PortConfig,
    pub(crate) interfaces: BTreeMap<String, Interface>,
    /// Its bond and LACP.
    pub(crate) aggregation: aggregation::Wanted,
    /// How often the PHYs of a bond's members are asked for their links; `None` where the kernel's
    /// word is enough.
    pub(crate) miimon: Option<Duration>,
    /// `qos`.
    pub(crate) qos: Option<qos::Wanted>,
    /// Errors for the port's row.
    pub(crate) problems: Vec<String>,
}

/// An `Interface` row.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    /// `None` for the bridge's local interface where no row asks for it.
    pub(crate) uuid: Option<Uuid>,
    pub(crate) kind: InterfaceKind,
    /// The row's type is `internal`.
    pub(crate) internal: bool,
    /// `ofport_request`, or the number it has had.
    pub(crate) ofport_request: Option<u16>,
    pub(crate) ofport_before: Option<u16>,
    /// `mac`, for internal interfaces.
    pub(crate) mac: Option<MacAddr>,
    pub(crate) mtu_request: Option<u32>,
    /// `ingress_policing_*` and `other_config:port-speed`.
    pub(crate) limits: qos::Limits,
    pub(crate) lacp: aggregation::LacpMember,
    /// It sends and receives LLDP.
    pub(crate) lldp: bool,
    /// `bfd`.
    pub(crate) bfd: Option<bfd::Wanted>,
    /// `cfm_mpid` and the like.
    pub(crate) cfm: Option<protocols::cfm::Config>,
    /// Unsupported settings of its row; the interface works without them.
    pub(crate) unsupported: Vec<String>,
}

/// The kind of an interface's device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InterfaceKind {
    /// A device of the kernel or a test device.
    Device(Spec),
    /// One end of a virtual cable to another bridge's interface.
    Patch {
        /// The other end's name.
        peer: String,
    },
    /// A tunnel.
    Tunnel(Box<Config>),
    /// A refused type or option; the reason.
    Refused(String),
}
