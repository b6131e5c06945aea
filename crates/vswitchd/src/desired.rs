//! What the database asks for, in the daemon's own terms.
//!
//! [`crate::rows`] makes these from typed rows; [`crate::bridges`] makes them so. Whatever a row
//! asks that cannot be done is kept beside it as a problem, in words for the user, and ends up in
//! the row's own status columns.

use crate::controllers::config::Controller;
use crate::{qos, workers};
use mgmt::stream::Remote;
use netdev::Spec;
use openflow::Versions;
use ovsdb::Uuid;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use switch::tables::TableSettings;
use switch::{FailMode, PortConfig, VlanSet};
use wire::MacAddr;

/// The whole configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Desired {
    pub(crate) bridges: BTreeMap<String, Bridge>,
    /// Rows of bridges that cannot be made, with their names and the reasons.
    pub(crate) refused: Vec<(Uuid, String, String)>,
    /// How often statistics are written to the database.
    pub(crate) stats_interval: Option<Duration>,
    /// Which workers there are, and what they serve.
    pub(crate) workers: workers::Wanted,
    /// Most megaflows that the datapath caches.
    pub(crate) flow_limit: Option<usize>,
    /// How long a megaflow stays that carries nothing.
    pub(crate) max_idle: Option<Duration>,
    /// How often megaflows are looked at to age them and to count what they carried.
    pub(crate) max_revalidator: Option<Duration>,
    /// After how long a silence of its controller a bundle is given up.
    pub(crate) bundle_timeout: Duration,
    /// How many VLAN tags of a packet count.
    pub(crate) vlan_limit: u8,
    /// Managers that are reached over bridges.
    pub(crate) managers: Vec<Remote>,
    /// Keys and columns of the root row that ask for what is not built.
    pub(crate) unsupported: Vec<String>,
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
    /// Versions of OpenFlow that are spoken.
    pub(crate) protocols: Versions,
    /// `other_config:dp-desc`.
    pub(crate) description: Option<String>,
    /// `other_config:dp-sn`.
    pub(crate) serial: Option<String>,
    /// Packets that may wait for a controller.
    pub(crate) controller_queue: usize,
    /// What is said of OpenFlow tables.
    pub(crate) tables: BTreeMap<u8, TableSettings>,
    pub(crate) mac_aging: Duration,
    pub(crate) mac_table_size: usize,
    pub(crate) flood_vlans: VlanSet,
    pub(crate) forward_bpdu: bool,
    /// Its controllers, and whether and in which queue it reaches them over its own ports.
    pub(crate) controllers: Vec<Controller>,
    pub(crate) disable_in_band: bool,
    pub(crate) in_band_queue: Option<u32>,
    pub(crate) ports: BTreeMap<String, Port>,
    pub(crate) unsupported: BTreeSet<String>,
}

/// A `Port` row.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) uuid: Uuid,
    /// VLANs and flags; its interfaces are filled in when their devices are open.
    pub(crate) config: PortConfig,
    pub(crate) interfaces: BTreeMap<String, Interface>,
    /// `qos`.
    pub(crate) qos: Option<qos::Wanted>,
    /// Why the port cannot do what its row asks.
    pub(crate) problems: Vec<String>,
    /// Whether it is left out of the bridge because of its problems.
    pub(crate) refused: bool,
}

/// An `Interface` row.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    /// `None` for the bridge's local interface where no row asks for it.
    pub(crate) uuid: Option<Uuid>,
    pub(crate) kind: InterfaceKind,
    /// `ofport_request`, or the number it has had.
    pub(crate) ofport_request: Option<u16>,
    pub(crate) ofport_before: Option<u16>,
    /// `mac`, for internal interfaces.
    pub(crate) mac: Option<MacAddr>,
    pub(crate) mtu_request: Option<u32>,
    /// `ingress_policing_*` and `other_config:port-speed`.
    pub(crate) limits: qos::Limits,
    /// What its row asks that is not built; the interface works without it.
    pub(crate) unsupported: Vec<String>,
}

/// What stands behind an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InterfaceKind {
    /// A device of the kernel or a test device.
    Device(Spec),
    /// One end of a virtual cable to another bridge's interface.
    Patch {
        /// The other end's name.
        peer: String,
    },
    /// A type or option that cannot be had; the reason.
    Refused(String),
}
