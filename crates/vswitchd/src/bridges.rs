//! Makes bridges, ports and devices as the database wants them.
//!
//! [`Bridges::apply`] is declarative: it compares the whole desired state with the present one and
//! changes only the differences. The order keeps traffic correct: first remove devices whose name
//! is reused, then add new devices to the datapath, then change the switch's tables in one step,
//! then remove unused devices.

use self::config::switch_config;
use crate::carriers::{Ask, Monitor};
use crate::connections;
use crate::desired::{self, Desired, InterfaceKind};
use crate::ipsec::Ipsec;
use crate::mirrors;
use crate::ofport::{LOCAL, OfPorts, Wish};
use crate::qos::{Applied, Found, Target};
use crate::retries::Retries;
use crate::slowpath::Shared;
use dp::{Datapath, PortNo};
use netdev::{Netdev, Spec, State};
use ovsdb::Uuid;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use switch::tables::MeterChange;
use tunnel::vport::Vport;
use wire::MacAddr;

/// The devices and numbers in use.
pub(crate) struct Bridges {
    shared: Arc<Shared>,
    datapath: Arc<dyn Datapath>,
    open: BTreeMap<String, OpenDevice>,
    numbers: BTreeMap<String, OfPorts>,
    last_port: u32,
    /// The schedulers' random seed.
    seed: u64,
    state: BTreeMap<String, BridgeState>,
    /// What of mirrors is ignored.
    mirror_problems: Vec<mirrors::Problem>,
    /// Devices that another process holds and may release soon.
    retries: Retries,
    /// Asks for the links of bonds' members.
    carriers: Monitor,
    /// The datapath port numbers of tunnels, by the names of the datapath ports.
    tunnel_ports: BTreeMap<String, PortNo>,
    /// What the database says of tracked connections.
    connections: connections::Applied,
    /// Whether the switch's configuration has changed since [`Bridges::take_altered`].
    altered: Cell<bool>,
    /// Sockets of the host's stack for them, by the same names.
    host_tunnels: BTreeMap<String, tunnels::HostPort>,
    /// The policies of tunnels with IPsec.
    ipsec: Ipsec,
}

struct OpenDevice {
    spec: Spec,
    device: Arc<dyn Netdev>,
    port: PortNo,
    /// The last known state. Querying each device at each change would make changes slower with the
    /// number of devices.
    link: State,
    details: BTreeMap<String, String>,
    qos: Applied,
    /// The other users of the device that the log already names.
    contenders: BTreeSet<String>,
}

impl OpenDevice {
    fn warn_of(&mut self, name: &str, other: String) {
        if self.contenders.len() < 16 && !self.contenders.contains(&other) {
            tracing::warn!(target: "netdev", "{name}: {other} also uses or wants this device; two switches must not have the same port");
            self.contenders.insert(other);
        }
    }

    /// Its state, with the configured speed.
    fn shown(&self) -> State {
        State {
            speed: self.qos.port_speed().or(self.link.speed),
            ..self.link.clone()
        }
    }
}

/// The present state of a bridge.
pub(crate) struct BridgeState {
    pub(crate) uuid: Uuid,
    pub(crate) datapath_id: u64,
    /// `system` where the row has none.
    pub(crate) datapath_type: String,
    pub(crate) interfaces: BTreeMap<String, InterfaceState>,
}

/// The present state of an interface.
pub(crate) struct InterfaceState {
    pub(crate) uuid: Option<Uuid>,
    pub(crate) kind: &'static str,
    /// The port number, or why there is none.
    pub(crate) ofport: Result<u16, String>,
    /// Settings of the row without an effect, although the interface works.
    pub(crate) notes: Vec<String>,
    pub(crate) device: Option<Arc<dyn Netdev>>,
    pub(crate) port: Option<PortNo>,
    /// The device's last known state.
    pub(crate) link: Option<State>,
    /// The content of `Interface.status`.
    pub(crate) details: BTreeMap<String, String>,
    /// The other end, of a patch.
    pub(crate) peer: Option<String>,
    /// The tunnel, of a tunnel.
    pub(crate) tunnel: Option<Arc<Vport>>,
    /// Why the host's stack cannot carry the tunnel's packets, or not encrypt them.
    pub(crate) underlay_error: Option<String>,
    /// Errors of its queues and policers.
    pub(crate) qos: Found,
    /// The DSCP that each queue sets.
    dscp: BTreeMap<u32, u8>,
}

impl Bridges {
    /// Whether the configuration that packets follow has changed since the last call.
    pub(crate) fn take_altered(&self) -> bool {
        self.altered.take()
    }

    pub(crate) fn new(
        shared: Arc<Shared>,
        datapath: Arc<dyn Datapath>,
        left: Option<Arc<connections::LeftConnections>>,
        seed: u64,
    ) -> Bridges {
        Bridges {
            carriers: Monitor::new(shared.clone(), datapath.clone()),
            shared,
            datapath,
            open: BTreeMap::new(),
            numbers: BTreeMap::new(),
            last_port: 0,
            seed,
            state: BTreeMap::new(),
            mirror_problems: Vec::new(),
            retries: Retries::default(),
            tunnel_ports: BTreeMap::new(),
            connections: connections::Applied::beside(left),
            altered: Cell::new(false),
            host_tunnels: BTreeMap::new(),
            ipsec: Ipsec::default(),
        }
    }

    /// The bridges as the last [`Bridges::apply`] left them, by name.
    pub(crate) fn state(&self) -> &BTreeMap<String, BridgeState> {
        &self.state
    }

    /// Whether the database has limits of zones: then it alone has them.
    pub(crate) fn has_zone_limits(&self) -> bool {
        self.connections.has_limits()
    }

    /// What the last [`Bridges::apply`] ignored of mirrors, in Open vSwitch's words.
    pub(crate) fn mirror_problems(&self) -> &[mirrors::Problem] {
        &self.mirror_problems
    }

    /// Every interface with its bridge's and its own name.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = (&str, &str, &InterfaceState)> {
        self.state.iter().flat_map(|(bridge, state)| {
            state
                .interfaces
                .iter()
                .map(move |(name, interface)| (bridge.as_str(), name.as_str(), interface))
        })
    }

    /// The interface of a name.
    pub(crate) fn interface(&self, name: &str) -> Option<&InterfaceState> {
        self.state.values().find_map(|bridge| bridge.interfaces.get(name))
    }

    /// Whether the kernel's device for the interface of that name is open; `None` where there is no
    /// such interface, or its device is a test device in memory.
    pub(crate) fn has_device(&self, name: &str) -> Option<bool> {
        let open = self.open.get(name);
        if open.is_some_and(|open| !open.spec.is_kernels()) {
            return None;
        }
        let known = self.state.values().any(|bridge| bridge.interfaces.contains_key(name));
        known.then_some(open.is_some())
    }

    /// Forgets a device that has vanished; the next [`Bridges::apply`] tries to open it again.
    pub(crate) fn forget(&mut self, name: &str) {
        if let Some(open) = self.open.remove(name) {
            self.close(name, &open);
        }
    }

    /// The name of the device behind a datapath port.
    pub(crate) fn device_of(&self, port: PortNo) -> Option<&str> {
        let found = self.open.iter().find(|(_, open)| open.port == port);
        found.map(|(name, _)| name.as_str())
    }

    /// Queries a device's state. Returns whether anything changed that bridges depend on.
    pub(crate) fn look_at(&mut self, name: &str) -> bool {
        let Some(open) = self.open.get_mut(name) else {
            return false;
        };
        let Ok(mut link) = open.device.state() else {
            return false;
        };
        link.carrier = self.carriers.link(name).unwrap_or(link.carrier);
        let settings = |link: &State| (link.mac, link.mtu, link.carrier);
        let mut matters = settings(&link) != settings(&open.link);
        matters |= open.qos.is_scheduled() && link.speed != open.link.speed;
        open.link = link;
        for bridge in self.state.values_mut() {
            if let Some(interface) = bridge.interfaces.get_mut(name).filter(|i| i.link.is_some()) {
                interface.link = Some(open.shown());
            }
        }
        matters
    }

    /// Warns once of each other process that uses or wants a device of this switch.
    pub(crate) fn warn_of_contenders(&mut self) {
        for (name, open) in &mut self.open {
            for other in open.device.contenders() {
                open.warn_of(name, other);
            }
        }
    }

    /// Warns once of each device that has enslaved one of this switch's devices.
    pub(crate) fn warn_of_owner(&mut self, name: &str, owner: &str) {
        if let Some(open) = self.open.get_mut(name) {
            open.warn_of(name, owner.to_owned());
        }
    }

    /// Queries every device's state.
    pub(crate) fn look_at_all(&mut self) {
        let names: Vec<String> = self.open.keys().cloned().collect();
        for name in names {
            self.look_at(&name);
        }
    }

    /// Applies `desired`.
    pub(crate) fn apply(&mut self, desired: &Desired) {
        let wanted = wanted_devices(desired);
        self.close_where(|name, spec| wanted.get(name).is_some_and(|w| *w != spec));
        let failures = self.open_missing(&wanted);
        self.monitor(desired);

        self.number_tunnels(desired);
        self.numbers.retain(|name, _| desired.bridges.contains_key(name));
        let mut state = BTreeMap::new();
        for (name, bridge) in &desired.bridges {
            state.insert(name.clone(), self.bridge_state(name, bridge, &failures));
        }
        self.shared.links.lock().begin_trees(&in_trees(desired));
        let (mut config, mirror_problems) = switch_config(desired, &state, &self.shared);
        let conntrack = self.datapath.conntrack();
        config.timeout_policies = self.connections.settle(&desired.connections, conntrack);
        // A process that waits for another one has no bridges, and what that leaves comes later.
        if !desired.bridges.is_empty() {
            let (now, policies) = (self.datapath.now(), &config.timeout_policies);
            self.connections.take_over(conntrack, now, policies);
        }
        self.mirror_problems = mirror_problems;
        self.shared.update(|switch, now| {
            let changes = switch.configure(config, now);
            self.altered.set(self.altered.get() || !changes.is_empty());
            for meter in switch.take_new_meters() {
                self.set_meter(&meter);
            }
            changes
        });

        self.connections.forget(conntrack);
        self.refuse_tunnels(&mut state);
        self.shared.captures.note_applied(|bridge| state.contains_key(bridge));
        self.close_where(|name, _| !wanted.contains_key(name));
        log::changes(&self.state, &state);
        self.state = state;
        let types = self.state.values().flat_map(|bridge| {
            let ports = bridge.interfaces.values().filter_map(|interface| interface.port);
            ports.map(|port| (port, bridge.datapath_type.clone()))
        });
        self.shared.set_types(types.collect());
    }

    /// Asks for the links of bonds' members.
    fn monitor(&mut self, desired: &Desired) {
        let mut monitored = BTreeMap::new();
        for (_, name, port, _) in desired.bridges.values().flat_map(interfaces_of) {
            if let Some(open) = self.open.get(name).filter(|_| port.interfaces.len() > 1) {
                let ask = port.miimon.map_or(Ask::Carrier(open.port), Ask::Phy);
                monitored.insert(name.to_owned(), (open.device.clone(), ask));
            }
        }
        if self.carriers.follow(&monitored) {
            self.look_at_all();
        }
    }

    fn set_meter(&self, change: &MeterChange) {
        if let MeterChange::Set { number, config } = change
            && let Err(error) = self.datapath.set_meter(*number, config)
        {
            tracing::error!(target: "bridge", "meter {number}: {error}");
        }
    }

    fn close_where(&mut self, unwanted: impl Fn(&str, &Spec) -> bool) {
        let names: Vec<String> = self
            .open
            .iter()
            .filter(|(name, open)| unwanted(name, &open.spec))
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            self.forget(&name);
        }
    }

    fn close(&self, name: &str, open: &OpenDevice) {
        if let Err(error) = self.datapath.del_port(open.port) {
            tracing::warn!(target: "bridge", "{name}: {error}");
        }
    }

    fn bridge_state(
        &mut self,
        name: &str,
        bridge: &desired::Bridge,
        failures: &BTreeMap<String, String>,
    ) -> BridgeState {
        let numbers = self.assign_numbers(name, bridge, failures);
        let mut interfaces = BTreeMap::new();
        for (_, interface_name, _, interface) in interfaces_of(bridge) {
            let open = self.open.get(interface_name);
            let refusal = refusal(interface, failures.get(interface_name));
            let ofport = match (refusal, numbers.get(interface_name)) {
                (Some(reason), _) => Err(reason),
                (None, Some(number)) => Ok(*number),
                (None, None) => Err("all OpenFlow port numbers are in use".to_owned()),
            };
            let (kind, peer) = match &interface.kind {
                InterfaceKind::Device(_) => (open.map_or("", |o| type_of(&*o.device)), None),
                InterfaceKind::Patch { peer } => ("patch", Some(peer.clone())),
                InterfaceKind::Tunnel(config) => (config.kind.name(), None),
                InterfaceKind::Refused(_) => ("", None),
            };
            let used = open.filter(|_| ofport.is_ok());
            let tunnel = self.tunnel_of(interface_name, interface).filter(|_| ofport.is_ok());
            let state = InterfaceState {
                uuid: interface.uuid,
                kind,
                device: used.map(|o| o.device.clone()),
                port: used
                    .map(|o| o.port)
                    .or(tunnel.as_ref().map(|tunnel| PortNo(tunnel.datapath_port))),
                link: used.map(|o| o.link.clone()),
                details: used.map(|o| o.details.clone()).unwrap_or_default(),
                ofport,
                notes: interface.unsupported.clone(),
                peer,
                tunnel,
                underlay_error: None,
                qos: Found::default(),
                dscp: BTreeMap::new(),
            };
            interfaces.insert(interface_name.to_owned(), state);
        }
        let mac = bridge_mac(bridge, name, &interfaces);
        for changed in settle_devices(name, bridge, mac, &interfaces) {
            self.look_at(changed);
            if let Some(interface) = interfaces.get_mut(changed) {
                interface.link = self.open.get(changed).map(|open| open.link.clone());
            }
        }
        self.settle_qos(bridge, &mut interfaces);
        let from_mac = mac.0.iter().fold(0, |id, byte| id << 8 | u64::from(*byte));
        BridgeState {
            uuid: bridge.uuid,
            datapath_id: bridge.datapath_id.unwrap_or(from_mac),
            datapath_type: bridge.datapath_type().to_owned(),
            interfaces,
        }
    }

    /// Sets the devices' configured queues and policers.
    fn settle_qos(&mut self, bridge: &desired::Bridge, interfaces: &mut BTreeMap<String, InterfaceState>) {
        let now = self.shared.clock.now();
        for (_, name, port, interface) in interfaces_of(bridge) {
            let Some(state) = interfaces.get_mut(name) else {
                continue;
            };
            let open = self.open.get_mut(name).filter(|open| state.port == Some(open.port));
            let Some(open) = open else {
                state.qos = Found::without_device(port.qos.as_ref(), &interface.limits);
                continue;
            };
            let target = Target {
                datapath: &*self.datapath,
                port: open.port,
                link: ::qos::keys::Link {
                    speed: open.link.speed,
                    mtu: Some(open.link.mtu),
                    seed: self.seed,
                },
                now,
            };
            open.qos.settle(port.qos.as_ref(), &interface.limits, &target);
            state.qos = open.qos.found.clone();
            state.dscp = open.qos.dscp();
            state.link = Some(open.shown());
        }
    }

    /// An interface's queues and policers; `None` without a device.
    pub(crate) fn qos(&self, name: &str) -> Option<&Applied> {
        let interface = self.interface(name)?;
        let open = self.open.get(name)?;
        (interface.port == Some(open.port)).then_some(&open.qos)
    }

    fn assign_numbers(
        &mut self,
        name: &str,
        bridge: &desired::Bridge,
        failures: &BTreeMap<String, String>,
    ) -> BTreeMap<String, u16> {
        let mut wishes = BTreeMap::new();
        for (_, interface_name, _, interface) in interfaces_of(bridge) {
            let failed = refusal(interface, failures.get(interface_name)).is_some();
            if interface_name != name && !failed {
                let wish = Wish {
                    request: interface.ofport_request,
                    before: interface.ofport_before,
                };
                wishes.insert(interface_name, wish);
            }
        }
        let mut assigned = self.numbers.entry(name.to_owned()).or_default().assign(&wishes);
        assigned.insert(name.to_owned(), LOCAL);
        assigned
    }
}

/// Every interface of a bridge: (port's name, interface's name, port, interface).
pub(crate) fn interfaces_of(
    bridge: &desired::Bridge,
) -> impl Iterator<Item = (&str, &str, &desired::Port, &desired::Interface)> {
    bridge.ports.iter().flat_map(|(port_name, port)| {
        port.interfaces
            .iter()
            .map(move |(name, interface)| (port_name.as_str(), name.as_str(), port, interface))
    })
}

/// The type that a device is shown with.
fn type_of(device: &dyn Netdev) -> &'static str {
    match device.as_dummy() {
        Some(dummy) => dummy.dummy_kind().as_str(),
        None => device.kind().as_str(),
    }
}

/// Why an interface must not be attached, if so.
fn refusal(interface: &desired::Interface, failure: Option<&String>) -> Option<String> {
    if let InterfaceKind::Refused(reason) = &interface.kind {
        return Some(reason.clone());
    }
    failure.cloned()
}

/// The devices of attached interfaces. A name belongs to the first interface that claims it.
fn wanted_devices(desired: &Desired) -> BTreeMap<&str, &Spec> {
    let mut wanted = BTreeMap::new();
    for bridge in desired.bridges.values() {
        for (_, name, _, interface) in interfaces_of(bridge) {
            if let InterfaceKind::Device(spec) = &interface.kind {
                wanted.entry(name).or_insert(spec);
            }
        }
    }
    wanted
}

/// The bridge's own address: the configured one, or the lowest globally administered address of its
/// devices, or a stable generated one. As in Open vSwitch, locally administered addresses do not
/// count: those of containers and guests come and go, and would change the bridge's datapath id.
fn bridge_mac(bridge: &desired::Bridge, name: &str, interfaces: &BTreeMap<String, InterfaceState>) -> MacAddr {
    if let Some(mac) = bridge.hwaddr {
        return mac;
    }
    /// The locally administered bit (IEEE 802-2014 §8.4).
    const LOCALLY_ADMINISTERED: u8 = 0x02;
    let lowest = interfaces
        .iter()
        .filter(|(interface, state)| *interface != name && state.kind != "internal")
        .filter_map(|(_, state)| Some(state.link.as_ref()?.mac))
        .filter(|mac| !mac.is_multicast() && mac.0[0] & LOCALLY_ADMINISTERED == 0 && mac.0 != [0; 6])
        .min();
    lowest.unwrap_or_else(|| {
        let mut mac = [0; 6];
        mac.copy_from_slice(&bridge.uuid.as_u128().to_be_bytes()[..6]);
        mac[0] = mac[0] & 0xfc | 0x02;
        MacAddr(mac)
    })
}

/// Sets addresses and MTUs from the database or the bridge. Returns the names of the changed
/// devices.
fn settle_devices<'a>(
    name: &str,
    bridge: &'a desired::Bridge,
    mac: MacAddr,
    interfaces: &BTreeMap<String, InterfaceState>,
) -> Vec<&'a str> {
    let mut changed = Vec::new();
    let bridge_mtu = interfaces
        .values()
        .filter(|state| state.kind != "internal")
        .filter_map(|state| Some(state.link.as_ref()?.mtu))
        .min();
    for (_, interface_name, _, interface) in interfaces_of(bridge) {
        let Some(state) = interfaces.get(interface_name) else {
            continue;
        };
        let (Some(device), Some(now)) = (&state.device, &state.link) else {
            continue;
        };
        let internal = state.kind == "internal";
        let mac = if interface_name == name {
            Some(mac)
        } else {
            interface.mac.filter(|_| internal)
        };
        if let Some(mac) = mac.filter(|mac| *mac != now.mac) {
            changed.push(interface_name);
            if let Err(error) = device.set_mac(mac) {
                tracing::warn!(target: "bridge", "interface {interface_name}: cannot set MAC address {mac}: {error}");
            }
        }
        let mtu = interface.mtu_request.or(bridge_mtu.filter(|_| internal));
        if let Some(mtu) = mtu.filter(|mtu| *mtu != now.mtu) {
            changed.push(interface_name);
            if let Err(error) = device.set_mtu(mtu) {
                tracing::warn!(target: "bridge", "interface {interface_name}: cannot set MTU {mtu}: {error}");
            }
        }
    }
    changed
}

/// The interfaces that take part in spanning trees.
fn in_trees(desired: &Desired) -> BTreeSet<&str> {
    let trees = desired.bridges.values().filter_map(|bridge| bridge.tree.as_ref());
    trees.flat_map(|tree| tree.ports.keys().map(String::as_str)).collect()
}

mod config;
mod log;
mod opening;
mod tunnels;
