//! Reads database rows into the desired configuration.

use crate::controllers::config::{Controller, controller, managers};
use crate::desired::{Bridge, Desired, Interface, InterfaceKind, Port};
use crate::mirrors::Mirror;
use crate::protocols::aggregation::rows as aggregation;
use crate::protocols::bfd::rows as bfd;
use crate::protocols::cfm::rows as cfm;
use crate::protocols::trees::rows as trees;
use crate::protocols::{lldp, snooping};
use crate::{connections, qos, unsupported, workers};
use crate::{exports, guard};
use netdev::{AfxdpConfig, DummyKind, Spec};
use openflow::model::Subfield;
use openflow::{Version, Versions};
use ovsdb::{Uuid, rows};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use switch::tables::{Overflow, TABLES, TableSettings};
use switch::{FailMode, PortConfig, PriorityTags, VlanMode, VlanSet};
use wire::{EtherType, MacAddr, Vid};

/// Whether test devices stand in for the kernel's (`--enable-dummy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dummies {
    /// There is no `dummy` type.
    #[default]
    Off,
    /// `dummy` interfaces and datapaths exist beside the others.
    Allowed,
    /// Dummies stand in for datapaths and interfaces of type `system` too.
    System,
    /// Every device is a dummy.
    Override,
}

impl Dummies {
    /// Whether the datapath of a type of bridges is a dummy's.
    pub(crate) fn is_dummy_datapath(self, datapath_type: &str) -> bool {
        match self {
            Dummies::Off => false,
            Dummies::Allowed => datapath_type == "dummy",
            Dummies::System => matches!(datapath_type, "dummy" | "system" | ""),
            Dummies::Override => true,
        }
    }
}

/// The rows the daemon reads, typed.
#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) root: Option<rows::OpenVSwitch>,
    pub(crate) bridges: BTreeMap<Uuid, rows::Bridge>,
    pub(crate) ports: BTreeMap<Uuid, rows::Port>,
    pub(crate) interfaces: BTreeMap<Uuid, rows::Interface>,
    pub(crate) mirrors: BTreeMap<Uuid, rows::Mirror>,
    pub(crate) auto_attaches: BTreeMap<Uuid, rows::AutoAttach>,
    pub(crate) netflows: BTreeMap<Uuid, rows::NetFlow>,
    pub(crate) sflows: BTreeMap<Uuid, rows::SFlow>,
    pub(crate) ipfixes: BTreeMap<Uuid, rows::Ipfix>,
    pub(crate) sample_sets: BTreeMap<Uuid, rows::FlowSampleCollectorSet>,
    pub(crate) flow_tables: BTreeMap<Uuid, rows::FlowTable>,
    pub(crate) ssl: Option<rows::Ssl>,
    pub(crate) controllers: BTreeMap<Uuid, rows::Controller>,
    pub(crate) managers: BTreeMap<Uuid, rows::Manager>,
    pub(crate) qos: BTreeMap<Uuid, rows::QoS>,
    pub(crate) queues: BTreeMap<Uuid, rows::Queue>,
    pub(crate) datapaths: BTreeMap<Uuid, rows::Datapath>,
    pub(crate) ct_zones: BTreeMap<Uuid, rows::CtZone>,
    pub(crate) ct_timeout_policies: BTreeMap<Uuid, rows::CtTimeoutPolicy>,
}

/// Reads the whole configuration.
pub(crate) fn desired(tables: &Tables, dummies: Dummies) -> Desired {
    let Some(root) = &tables.root else {
        return Desired::default();
    };
    let interval = number(&root.other_config, "stats-update-interval");
    let mut desired = Desired {
        bridges: BTreeMap::new(),
        refused: Vec::new(),
        stats_interval: interval.map(|ms: u64| Duration::from_millis(ms.max(5000))),
        workers: workers::wanted(root, tables.interfaces.values()),
        flow_limit: number(&root.other_config, "flow-limit"),
        max_idle: number(&root.other_config, "max-idle").map(|ms: u64| Duration::from_millis(ms.max(500))),
        max_revalidator: number(&root.other_config, "max-revalidator")
            .map(|ms: u64| Duration::from_millis(ms.max(100))),
        bundle_timeout: Duration::from_secs(
            number(&root.other_config, "bundle-idle-timeout")
                .unwrap_or(10_u64)
                .clamp(1, u64::from(u32::MAX)),
        ),
        vlan_limit: vlan_limit(&root.other_config),
        connections: connections::Wanted::default(),
        managers: managers(&tables.managers),
        unsupported: unsupported::open_vswitch(root),
    };
    for row in root.bridges.iter().filter_map(|uuid| tables.bridges.get(uuid)) {
        match invalid_name(&row.name) {
            Some(reason) => desired.refused.push((row.uuid, row.name.clone(), reason.to_owned())),
            None => _ = desired.bridges.insert(row.name.clone(), bridge(row, tables, dummies)),
        }
    }
    let types = desired.bridges.values().map(|bridge| bridge.datapath_type());
    desired.connections = connections::wanted(root, tables, &types.collect());
    desired
}

/// Why a bridge name is invalid. It becomes part of socket names, which must stay in the run
/// directory.
fn invalid_name(name: &str) -> Option<&'static str> {
    name.contains('/')
        .then_some("the name of a bridge must not contain \"/\"")
}

fn bridge(row: &rows::Bridge, tables: &Tables, dummies: Dummies) -> Bridge {
    let config = &row.other_config;
    let aging = number(config, "mac-aging-time").unwrap_or(300_u64);
    let mut bridge = Bridge {
        uuid: row.uuid,
        datapath_type: row.datapath_type.clone(),
        fail_mode: match row.fail_mode.as_deref() {
            Some("secure") => FailMode::Secure,
            _ => FailMode::Standalone,
        },
        hwaddr: config.get("hwaddr").and_then(|mac| mac.parse::<MacAddr>().ok()),
        datapath_id: config.get("datapath-id").and_then(|id| datapath_id(id)),
        protocols: protocols(&row.protocols),
        description: config.get("dp-desc").cloned(),
        serial: config.get("dp-sn").cloned(),
        tables: flow_tables(row, tables),
        controller_queue: number(config, "controller-queue-size")
            .filter(|size| (1..=512).contains(size))
            .unwrap_or(100_usize),
        mac_aging: Duration::from_secs(aging.clamp(15, 3600)),
        mac_table_size: number(config, "mac-table-size")
            .unwrap_or(8192_usize)
            .clamp(10, 1_000_000),
        flood_vlans: vlans(&row.flood_vlans),
        forward_bpdu: flag(config, "forward-bpdu"),
        snooping: None,
        auto_attach: row
            .auto_attach
            .and_then(|uuid| tables.auto_attaches.get(&uuid))
            .map(lldp::rows::auto_attach),
        tree: None,
        mirrors: mirrors(row, tables),
        exports: exports::rows::wanted(row, tables),
        controllers: controllers(row, tables),
        disable_in_band: flag(config, "disable-in-band"),
        in_band_queue: number(config, "in-band-queue"),
        ports: BTreeMap::new(),
        unsupported: BTreeSet::new(),
    };
    if row.mcast_snooping_enable {
        bridge.snooping = Some(snooping::wanted(config, &mut bridge.unsupported));
    }
    for row in row.controller.iter().filter_map(|uuid| tables.controllers.get(uuid)) {
        bridge.unsupported.extend(unsupported::controller(row));
    }
    if !matches!(row.datapath_type.as_str(), "" | "system" | "netdev" | "dummy") {
        bridge
            .unsupported
            .insert(format!("datapath_type={}", row.datapath_type));
    }
    for row in row.ports.iter().filter_map(|uuid| tables.ports.get(uuid)) {
        bridge
            .ports
            .insert(row.name.clone(), port(row, &bridge, tables, dummies));
    }
    guard::apply(row, &tables.ports, &mut bridge);
    add_local(&row.name, &mut bridge, dummies);
    for port in row.ports.iter().filter_map(|uuid| tables.ports.get(uuid)) {
        if port.bond_fake_iface && port.interfaces.len() > 1 {
            add_fake(&port.name, &mut bridge, dummies);
        }
    }
    trees::apply(row, &tables.ports, &mut bridge);
    bridge
}

fn mirrors(row: &rows::Bridge, tables: &Tables) -> Vec<Mirror> {
    let rows = row.mirrors.iter().filter_map(|uuid| tables.mirrors.get(uuid));
    rows.map(|row| Mirror::new(row, &tables.ports)).collect()
}

/// A bridge's controllers. Of several with the same target the first counts.
fn controllers(row: &rows::Bridge, tables: &Tables) -> Vec<Controller> {
    let mut found: Vec<Controller> = Vec::new();
    let bridge = &row.name;
    for row in row.controller.iter().filter_map(|uuid| tables.controllers.get(uuid)) {
        if !found.iter().any(|known| known.target == row.target) {
            found.push(controller(bridge, row));
        }
    }
    found
}

/// A bridge has a port with its own name even without a row.
fn add_local(name: &str, bridge: &mut Bridge, dummies: Dummies) {
    let has_local = bridge.ports.values().any(|port| port.interfaces.contains_key(name));
    if has_local || bridge.ports.contains_key(name) {
        return;
    }
    let port = internal_port(name, &bridge.datapath_type, dummies);
    bridge.ports.insert(name.to_owned(), port);
}

/// Adds the internal interface with the name of a bond that `bond_fake_iface` asks for. It is a
/// port of OpenFlow only, as in Open vSwitch.
fn add_fake(name: &str, bridge: &mut Bridge, dummies: Dummies) {
    if bridge.ports.values().any(|port| port.interfaces.contains_key(name)) {
        return;
    }
    let mut port = internal_port(name, &bridge.datapath_type, dummies);
    port.config.no_normal = true;
    // The bond has the name itself.
    bridge.ports.insert(format!("{name} (bond_fake_iface)"), port);
}

/// A port of an internal interface that has no row.
fn internal_port(name: &str, datapath_type: &str, dummies: Dummies) -> Port {
    let interface = Interface {
        uuid: None,
        kind: device("internal", name, &BTreeMap::new(), datapath_type, dummies),
        internal: true,
        ofport_request: None,
        ofport_before: None,
        mac: None,
        mtu_request: None,
        limits: qos::Limits::default(),
        lacp: aggregation::LacpMember::default(),
        lldp: false,
        bfd: None,
        cfm: None,
        unsupported: Vec::new(),
    };
    Port {
        uuid: Uuid::default(),
        config: PortConfig::default(),
        interfaces: BTreeMap::from([(name.to_owned(), interface)]),
        aggregation: aggregation::Wanted::default(),
        miimon: None,
        qos: None,
        problems: Vec::new(),
    }
}

fn port(row: &rows::Port, bridge: &Bridge, tables: &Tables, dummies: Dummies) -> Port {
    let tag = row.tag.and_then(vid);
    let mut problems: Vec<String> = unsupported::port(row)
        .iter()
        .map(|what| format!("{what} is not supported yet"))
        .collect();
    let (aggregation, problem) = aggregation::port(row);
    problems.extend(problem);
    let (miimon, problem) = aggregation::miimon(row);
    problems.extend(problem);
    let interfaces = row
        .interfaces
        .iter()
        .filter_map(|uuid| tables.interfaces.get(uuid))
        .map(|row| (row.name.clone(), interface(row, bridge, dummies)))
        .collect();
    let config = PortConfig {
        vlan_mode: vlan_mode(row, tag),
        tag,
        trunks: vlans(&row.trunks),
        cvlans: vlans(&row.cvlans),
        qinq_ethertype: match row.other_config.get("qinq-ethtype").map(String::as_str) {
            Some("802.1q") => EtherType::VLAN.0,
            _ => EtherType::QINQ.0,
        },
        priority_tags: match row.other_config.get("priority-tags").map(String::as_str) {
            Some("true" | "if-nonzero") => PriorityTags::IfNonzero,
            Some("always") => PriorityTags::Always,
            _ => PriorityTags::Never,
        },
        protected: row.protected,
        mcast_flood: flag(&row.other_config, "mcast-snooping-flood"),
        mcast_flood_reports: flag(&row.other_config, "mcast-snooping-flood-reports"),
        ..PortConfig::default()
    };
    Port {
        uuid: row.uuid,
        config,
        interfaces,
        aggregation,
        miimon,
        qos: qos::wanted(row, tables),
        problems,
    }
}

/// A bridge's settings of OpenFlow tables.
fn flow_tables(row: &rows::Bridge, tables: &Tables) -> BTreeMap<u8, TableSettings> {
    let there = row.flow_tables.iter().filter_map(|(number, uuid)| {
        let number = u8::try_from(*number).ok().filter(|number| *number < TABLES)?;
        Some((number, table_settings(tables.flow_tables.get(uuid)?)))
    });
    there.collect()
}

fn table_settings(row: &rows::FlowTable) -> TableSettings {
    TableSettings {
        name: row.name.clone().unwrap_or_default(),
        limit: row.flow_limit.and_then(|limit| usize::try_from(limit).ok()),
        overflow: match row.overflow_policy.as_deref() {
            Some("evict") => Overflow::Evict,
            _ => Overflow::Refuse,
        },
        groups: row.groups.iter().filter_map(|field| subfield(field)).collect(),
    }
}

/// A subfield in the syntax `NXM_OF_ETH_SRC[]` or `NXM_NX_REG0[0..15]`.
fn subfield(text: &str) -> Option<Subfield> {
    openflow::text::parse_subfield(text).ok()
}

fn vlan_mode(row: &rows::Port, tag: Option<Vid>) -> VlanMode {
    match row.vlan_mode.as_deref() {
        Some("access") => VlanMode::Access,
        Some("trunk") => VlanMode::Trunk,
        Some("native-tagged") => VlanMode::NativeTagged,
        Some("native-untagged") => VlanMode::NativeUntagged,
        Some("dot1q-tunnel") => VlanMode::Dot1qTunnel,
        // The manual's default: access with a tag, else trunk.
        _ if tag.is_some() => VlanMode::Access,
        _ => VlanMode::Trunk,
    }
}

fn interface(row: &rows::Interface, bridge: &Bridge, dummies: Dummies) -> Interface {
    let kind = device(&row.type_, &row.name, &row.options, &bridge.datapath_type, dummies);
    Interface {
        uuid: Some(row.uuid),
        kind,
        internal: row.type_ == "internal",
        ofport_request: row.ofport_request.and_then(|n| u16::try_from(n).ok()),
        ofport_before: row.ofport.and_then(|n| u16::try_from(n).ok()),
        mac: row.mac.as_deref().and_then(|mac| mac.parse().ok()),
        mtu_request: row.mtu_request.and_then(|n| u32::try_from(n).ok()),
        limits: qos::limits(row),
        lacp: aggregation::interface(row),
        lldp: flag(&row.lldp, "enable"),
        bfd: bfd::wanted(row),
        cfm: cfm::wanted(row),
        unsupported: unsupported::interface(row),
    }
}

fn device(
    kind: &str,
    name: &str,
    options: &BTreeMap<String, String>,
    datapath_type: &str,
    dummies: Dummies,
) -> InterfaceKind {
    let is_dummy = dummies.is_dummy_datapath(datapath_type);
    if let Some(dummy) = dummy_kind(kind, is_dummy, dummies) {
        return InterfaceKind::Device(Spec::Dummy {
            name: name.to_owned(),
            kind: dummy,
            options: options.clone(),
        });
    }
    let name = name.to_owned();
    match kind {
        "" | "system" => InterfaceKind::Device(Spec::System { name }),
        "afxdp" | "afxdp-nonpmd" => match AfxdpConfig::from_options(options) {
            Ok(config) => InterfaceKind::Device(Spec::Afxdp { name, config }),
            Err(reason) => InterfaceKind::Refused(format!("{name}: could not set configuration ({reason})")),
        },
        "internal" => InterfaceKind::Device(Spec::Internal {
            name,
            mac: None,
            mtu: DEFAULT_MTU,
        }),
        "tap" => InterfaceKind::Device(Spec::Tap { name }),
        "pcap" => InterfaceKind::Device(Spec::Pcap {
            name,
            options: options.clone(),
        }),
        "null" => InterfaceKind::Device(Spec::Null { name }),
        "patch" => match options.get("peer") {
            Some(peer) if *peer == name => InterfaceKind::Refused(format!("{name}: patch peer must not be self")),
            Some(peer) => InterfaceKind::Patch { peer: peer.clone() },
            None => InterfaceKind::Refused(format!("{name}: patch type requires valid 'peer' argument")),
        },
        kind if let Some(kind) = tunnel::vport::Type::of(kind) => tunnel_kind(name, kind, options),
        known if KNOWN_TYPES.contains(&known) => InterfaceKind::Refused(format!(
            "could not open network device {name} (interface type {known} is not supported yet)"
        )),
        unknown => InterfaceKind::Refused(format!("could not create netdev {name} of unknown type {unknown}")),
    }
}

/// A tunnel by its options. What is odd about them goes to the log.
fn tunnel_kind(name: String, kind: tunnel::vport::Type, options: &BTreeMap<String, String>) -> InterfaceKind {
    let parsed = tunnel::vport::parse(&name, kind, options);
    let error = parsed.error();
    match (parsed.config, error) {
        (Some(config), _) => {
            for complaint in &parsed.complaints {
                tracing::warn!(target: "netdev_vport", "{complaint}");
            }
            InterfaceKind::Tunnel(Box::new(config))
        }
        (None, error) => InterfaceKind::Refused(error.unwrap_or_default()),
    }
}

/// What the dummy of an interface type stands for; `None` if the type has none.
fn dummy_kind(kind: &str, is_dummy_datapath: bool, dummies: Dummies) -> Option<DummyKind> {
    let all = dummies == Dummies::Override;
    Some(match kind {
        "internal" if is_dummy_datapath => DummyKind::Internal,
        "dummy-internal" if dummies != Dummies::Off => DummyKind::Internal,
        "dummy" if dummies != Dummies::Off => DummyKind::Plain,
        "dummy-pmd" if dummies != Dummies::Off => DummyKind::Pmd,
        "" | "system" if all || dummies == Dummies::System => DummyKind::Instead("system"),
        "tap" if all => DummyKind::Instead("tap"),
        "afxdp" if all => DummyKind::Instead("afxdp"),
        "afxdp-nonpmd" if all => DummyKind::Instead("afxdp-nonpmd"),
        kind if all => DummyKind::Instead(tunnel::vport::Type::of(kind)?.name()),
        _ => return None,
    })
}

/// The default MTU of a device.
const DEFAULT_MTU: u32 = 1500;

/// Interface types in `ovs-vswitchd.conf.db(5)` that this version does not support.
const KNOWN_TYPES: &[&str] = &["dpdk", "dpdkr", "dpdkvhostuser", "dpdkvhostuserclient", "lisp", "stt"];

pub(crate) fn vid(number: i64) -> Option<Vid> {
    Vid::new(u16::try_from(number).ok()?).ok()
}

pub(crate) fn vlans(numbers: &[i64]) -> VlanSet {
    numbers.iter().filter_map(|n| vid(*n)).collect()
}

fn number<T: std::str::FromStr>(map: &BTreeMap<String, String>, key: &str) -> Option<T> {
    map.get(key)?.trim().parse().ok()
}

/// `vlan-limit`: 0 means the maximum of two tags; the default of 1 is for controllers that know
/// only one.
fn vlan_limit(map: &BTreeMap<String, String>) -> u8 {
    match number(map, "vlan-limit") {
        Some(1_u64) | None => 1,
        Some(_) => 2,
    }
}

fn flag(map: &BTreeMap<String, String>, key: &str) -> bool {
    map.get(key).is_some_and(|value| value == "true")
}

/// A bridge's OpenFlow versions; an empty list means all.
fn protocols(names: &[String]) -> Versions {
    let named: Versions = names.iter().filter_map(|name| name.parse::<Version>().ok()).collect();
    if named == Versions::NONE { Versions::ALL } else { named }
}

/// A datapath id as the manual defines it: exactly 16 hex digits, or 1 to 16 after `0x`; not zero.
fn datapath_id(text: &str) -> Option<u64> {
    let digits = match text.strip_prefix("0x") {
        Some(digits) if (1..=16).contains(&digits.len()) => digits,
        None if text.len() == 16 => text,
        _ => return None,
    };
    let id = u64::from_str_radix(digits, 16).ok()?;
    (id != 0).then_some(id)
}
