//! Control protocols of links and bridges: the machines of the crate `protocols`, the thread that
//! runs them, and their way into the switch.
//!
//! A frame comes from a worker ([`frames`]) or leaves ahead of all data
//! ([`dp::Datapath::send_ahead`]). What a protocol says of an interface ([`links`]) reaches the
//! switch's tables at once, without a reconfiguration. A thread of its own runs the machines, so
//! that work of the control plane does not delay a hello. A hello of a device on a bridge
//! without mirrors and captures does not wait for the switch's tables. Hellos through patches and
//! tunnels do, and all that the thread does with the tables.
//!
//! Each protocol is a [`Service`]. The control thread tells services of the configuration
//! ([`Protocols::follow`]) and reads their state for commands and status columns.
//!
//! Lock order: the services, then the switch's tables, then [`Links`].

pub(crate) mod aggregation;
pub(crate) mod bfd;
pub(crate) mod cfm;
pub(crate) mod frames;
mod learning;
pub(crate) mod links;
pub(crate) mod lldp;
mod ports;
pub(crate) mod snooping;
pub(crate) mod trees;

use crate::bridges::Bridges;
use crate::desired::Desired;
use crate::own_changes::OwnChange;
use crate::slowpath::Shared;
use aggregation::Aggregations;
use dp::{BondTable, Change, Datapath, PortNo, PuntReason};
use flow::{FlowState, Key, MatchField, PacketMeta, Tunnel};
use frames::Frame;
use learning::{Announcement, ChooseMember};
use links::{Links, Passes, Watcher};
use nanos::Nanos;
use openflow::model::{Action, Port, Value};
use parking_lot::Mutex;
use ports::{PortFacts, Ports};
use protocols::bond::BUCKETS;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use switch::tables::{Patience, Translated};
use switch::{LinkState, Switch};
use tokio::sync::Notify;
use wire::Vid;

/// Frames that the thread takes before it looks at timers again.
const FRAMES: usize = 64;

/// What tunnels have carried is asked for so often at most.
const COUNT: Duration = Duration::from_millis(200);

/// A control protocol, or several that belong together.
pub(crate) trait Service: Send {
    /// Whether it takes frames that were punted for this reason.
    fn takes(&self, reason: PuntReason) -> bool;

    /// Follows a change of the configuration or of a device.
    fn follow(&mut self, desired: &Desired, world: &mut World<'_>);

    /// Takes a received frame, from the Ethernet header on.
    fn receive(&mut self, from: &PortFacts, frame: &[u8], world: &mut World<'_>);

    /// Runs the timers that are due.
    fn tick(&mut self, world: &mut World<'_>);

    /// When [`Service::tick`] is due.
    fn next_event(&self) -> Option<Nanos>;

    /// The interfaces whose received packets [`Service::tick`] would ask for now.
    fn counted(&self, _now: Nanos) -> Vec<&str> {
        Vec::new()
    }

    /// Follows what other services say of links.
    fn links_changed(&mut self, _world: &mut World<'_>) {}
}

/// What a service sees of the switch, and its ways to act on it.
pub(crate) struct World<'a> {
    pub(crate) now: Nanos,
    pub(crate) ports: &'a Ports,
    links: &'a mut Links,
    datapath: &'a dyn Datapath,
    frames: Vec<Outgoing>,
    /// Frames for all ports of a VLAN, by bridge.
    floods: Vec<(String, Vec<u8>)>,
    /// The VLAN of the frame that is being received.
    vlan: Option<Vid>,
    /// Packets received by tunnels that services count now: their counters are the switch's.
    of_tunnels: BTreeMap<String, u64>,
    /// Bridge, port and interface of the ports to flush.
    flushes: BTreeSet<(String, String, String)>,
    changes: Vec<SwitchChange>,
    /// Numbers of bonds that the datapath is to forget.
    ended_bonds: Vec<u32>,
    announcements: Vec<Announcement>,
    own_changes: Vec<OwnChange>,
    /// Status columns have changed.
    status: bool,
}

/// A frame to send.
struct Outgoing {
    interface: String,
    frame: Vec<u8>,
    /// A tunnel marks it as one of control (Geneve's bit O, RFC 8926 §3.4).
    oam: bool,
}

/// A change of the switch's tables, which returns what became stale.
type SwitchChange = Box<dyn FnOnce(&mut Switch, Nanos) -> Vec<Change>>;

impl World<'_> {
    /// Sends a frame out of an interface, ahead of all that is queued there.
    pub(crate) fn send(&mut self, interface: &str, frame: Vec<u8>) {
        self.send_marked(interface, frame, false);
    }

    /// The same; `oam`: a tunnel that can marks it as one of control.
    pub(crate) fn send_marked(&mut self, interface: &str, frame: Vec<u8>, oam: bool) {
        let interface = interface.to_owned();
        self.frames.push(Outgoing { interface, frame, oam });
    }

    /// Sends a frame as NORMAL of a bridge forwards it. Its tag says in which VLAN.
    pub(crate) fn flood(&mut self, bridge: &str, frame: Vec<u8>) {
        self.floods.push((bridge.to_owned(), frame));
    }

    /// The VLAN to which the ingress port assigns the frame that is being received; `None` if it
    /// refuses it.
    pub(crate) fn vlan(&self) -> Option<Vid> {
        self.vlan
    }

    /// Notes what a watcher says of the other end of an interface; `None` for one that does not
    /// watch it.
    pub(crate) fn set_alive(&mut self, interface: &str, by: Watcher, alive: Option<bool>) {
        self.links.set_alive(interface, by, alive);
    }

    /// Notes what the spanning tree lets an interface do; `None` for one that takes no part.
    pub(crate) fn set_tree(&mut self, interface: &str, tree: Option<Passes>) {
        self.links.set_tree(interface, tree);
    }

    /// Forgets the stations and the multicast groups behind a port of one interface, after the
    /// service's call.
    pub(crate) fn flush(&mut self, bridge: &str, port: &str, interface: &str) {
        let names = [bridge, port, interface].map(str::to_owned);
        self.flushes.insert(names.into());
    }

    /// The link of an interface; `None` if it does not work.
    pub(crate) fn link(&self, interface: &str) -> Option<LinkState> {
        let facts = self.ports.get(interface)?;
        Some(self.links.state(interface, facts.up))
    }

    /// The packets that an interface has received, the kernel's included; 0 for a patch. A tunnel's
    /// are known only where its service said so in [`Service::counted`].
    pub(crate) fn rx_packets(&self, interface: &str) -> u64 {
        if let Some(packets) = self.of_tunnels.get(interface) {
            return *packets;
        }
        let device = self.ports.get(interface).and_then(|facts| facts.device);
        let counters = device.and_then(|port| self.datapath.port_counters(port));
        counters.map_or(0, |counters| counters.rx_packets)
    }

    /// Changes the switch's tables, after the service's call.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Switch, Nanos) -> Vec<Change> + 'static) {
        self.changes.push(Box::new(change));
    }

    /// Sets the members of a bond in the datapath, at once.
    pub(crate) fn set_bond(&self, bond: u32, table: BondTable) {
        self.datapath.set_bond(bond, Some(table));
    }

    /// Lets the datapath forget a bond, after the switch's tables have changed.
    pub(crate) fn end_bond(&mut self, bond: u32) {
        self.ended_bonds.push(bond);
    }

    /// What the buckets of a bond have sent by the datapath's choice since the last call, in bytes.
    pub(crate) fn take_bond_loads(&self, bond: u32) -> Option<[u64; BUCKETS]> {
        self.datapath.take_bond_loads(bond)
    }

    /// Sends a learning packet for each station of a bridge that is not behind this port, by the
    /// member that `choose` names, after the switch's tables have changed.
    pub(crate) fn announce(&mut self, bridge: &str, port: &str, choose: ChooseMember) {
        self.announcements.push(Announcement {
            bridge: bridge.to_owned(),
            port: port.to_owned(),
            choose,
        });
    }

    /// Changes the configuration in the database.
    pub(crate) fn write(&mut self, change: OwnChange) {
        self.own_changes.push(change);
    }

    /// Lets the daemon write status columns soon.
    pub(crate) fn note_status(&mut self) {
        self.status = true;
    }
}

/// The services, by name for commands and reports.
pub(crate) struct Services {
    pub(crate) bfd: bfd::Sessions,
    pub(crate) cfm: cfm::Points,
    pub(crate) aggregations: Aggregations,
    ports: Ports,
    /// When the datapath reported what tunnels have carried, for services.
    counted: Nanos,
    pub(crate) snooping: snooping::Bridges,
    pub(crate) lldp: lldp::Interfaces,
    own_changes: Vec<OwnChange>,
    pub(crate) trees: trees::Trees,
}

impl Services {
    fn new(seed: u64) -> Services {
        Services {
            bfd: bfd::Sessions::new(seed),
            cfm: cfm::Points::new(seed),
            aggregations: Aggregations::default(),
            ports: Ports::default(),
            counted: Nanos::ZERO,
            snooping: snooping::Bridges::default(),
            lldp: lldp::Interfaces::default(),
            trees: trees::Trees::default(),
            own_changes: Vec::new(),
        }
    }

    /// All services. Those that watch links come before those that use them.
    fn all(&mut self) -> [&mut dyn Service; 6] {
        [
            &mut self.bfd,
            &mut self.cfm,
            &mut self.aggregations,
            &mut self.trees,
            &mut self.snooping,
            &mut self.lldp,
        ]
    }
}

/// The control protocols of all bridges.
pub(crate) struct Protocols {
    services: Mutex<Services>,
    shared: Arc<Shared>,
    datapath: Arc<dyn Datapath>,
    /// Notified when status columns have changed.
    pub(crate) changed: Notify,
    ended: AtomicBool,
}

/// The protocols' thread; ends with this value.
pub(crate) struct Running {
    protocols: Arc<Protocols>,
    thread: Option<JoinHandle<()>>,
}

impl Protocols {
    /// Starts the thread. `seed` is for random numbers of protocols.
    ///
    /// # Errors
    /// The kernel's, where it starts no thread.
    pub(crate) fn start(shared: Arc<Shared>, datapath: Arc<dyn Datapath>, seed: u64) -> io::Result<Running> {
        let protocols = Arc::new(Protocols {
            services: Mutex::new(Services::new(seed)),
            shared,
            datapath,
            changed: Notify::new(),
            ended: AtomicBool::new(false),
        });
        let own = protocols.clone();
        let thread = std::thread::Builder::new()
            .name("protocols".to_owned())
            .spawn(move || own.run())?;
        Ok(Running {
            protocols,
            thread: Some(thread),
        })
    }

    fn run(&self) {
        while !self.ended.load(Ordering::Acquire) {
            // Nothing comes due while the clock stands still.
            let until = self.step().and_then(|next| self.shared.clock.instant_of(next));
            self.shared.frames.wait(until);
        }
    }

    /// Takes frames and runs the timers that are due. Returns when the next one is; that may be
    /// over already.
    pub(crate) fn step(&self) -> Option<Nanos> {
        let mut services = self.services.lock();
        let now = self.shared.clock.now();
        let frames = self.shared.frames.take(FRAMES);
        let vlans = self.vlans(&services.ports, &frames);
        let of_tunnels = self.packets_of_tunnels(&mut services, now);
        self.act(&mut services, |services, world| {
            let ports = world.ports;
            world.of_tunnels = of_tunnels;
            for (frame, vlan) in frames.iter().zip(vlans) {
                let Some(from) = ports.at(frame.at) else {
                    continue;
                };
                world.vlan = vlan;
                for service in services.all() {
                    if service.takes(frame.reason) {
                        service.receive(from, &frame.data, world);
                    }
                }
            }
            for service in services.all() {
                if service.next_event().is_some_and(|due| due <= now) {
                    service.tick(world);
                }
            }
        });
        services.all().iter().filter_map(|service| service.next_event()).min()
    }

    /// Packets received by the tunnels that services count now. The switch is locked before links.
    fn packets_of_tunnels(&self, services: &mut Services, now: Nanos) -> BTreeMap<String, u64> {
        let mut names = BTreeSet::new();
        for service in services.all() {
            names.extend(service.counted(now).into_iter().map(str::to_owned));
        }
        names.retain(|name| services.ports.get(name).is_some_and(|facts| facts.device.is_none()));
        if names.is_empty() {
            return BTreeMap::new();
        }
        if now.since(services.counted) >= COUNT {
            services.counted = now;
            self.datapath.push_stats();
            self.shared.catch_up();
        }
        let switch = self.shared.switch.read();
        let count = |name: String| {
            let packets = switch.counts_of_port(&name).rx_packets;
            (name, packets)
        };
        names.into_iter().map(count).collect()
    }

    /// The VLANs of frames, where a protocol reads them.
    fn vlans(&self, ports: &Ports, frames: &[Frame]) -> Vec<Option<Vid>> {
        if frames.iter().all(|frame| frame.reason != PuntReason::Igmp) {
            return vec![None; frames.len()];
        }
        let switch = self.shared.switch.read();
        let vlan = |frame: &Frame| {
            let facts = ports.at(frame.at).filter(|_| frame.reason == PuntReason::Igmp)?;
            switch.vlan_at(&facts.bridge, flow::port_from_of10(facts.ofport), &frame.data)
        };
        frames.iter().map(vlan).collect()
    }

    /// Follows the configuration, after [`Bridges::apply`].
    pub(crate) fn follow(&self, desired: &Desired, bridges: &Bridges) {
        let ports = Ports::new(bridges, &self.shared.switch.read());
        let mut services = self.services.lock();
        services.ports = ports;
        self.act(&mut services, |services, world| {
            for service in services.all() {
                service.follow(desired, world);
            }
        });
        // The switch has links of before.
        let names: Vec<String> = self.shared.links.lock().interfaces().map(str::to_owned).collect();
        self.set_links(&services.ports, names);
        drop(services);
        self.shared.frames.call();
    }

    /// The changes of the configuration that services have asked for since the last call.
    pub(crate) fn take_own_changes(&self) -> Vec<OwnChange> {
        std::mem::take(&mut self.services.lock().own_changes)
    }

    /// Looks at the services' state.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut Services) -> R) -> R {
        look(&mut self.services.lock())
    }

    /// Runs a command of a service, with its effects.
    pub(crate) fn command<R>(&self, run: impl FnOnce(&mut Services, &mut World<'_>) -> R) -> R {
        let mut services = self.services.lock();
        let result = self.act(&mut services, run);
        drop(services);
        self.shared.frames.call();
        result
    }

    /// Lets services act, and carries out what they want.
    fn act<R>(&self, services: &mut Services, run: impl FnOnce(&mut Services, &mut World<'_>) -> R) -> R {
        let ports = std::mem::take(&mut services.ports);
        let mut links = self.shared.links.lock();
        let mut world = World {
            now: self.shared.clock.now(),
            ports: &ports,
            links: &mut links,
            datapath: &*self.datapath,
            frames: Vec::new(),
            floods: Vec::new(),
            vlan: None,
            of_tunnels: BTreeMap::new(),
            flushes: BTreeSet::new(),
            changes: Vec::new(),
            ended_bonds: Vec::new(),
            announcements: Vec::new(),
            own_changes: Vec::new(),
            status: false,
        };
        let result = run(services, &mut world);
        if world.links.has_changed() {
            for service in services.all() {
                service.links_changed(&mut world);
            }
        }
        for (bridge, port, interface) in std::mem::take(&mut world.flushes) {
            services.snooping.flush_port(&bridge, &interface, &mut world);
            world.change(move |switch, _| switch.fdb_flush(&bridge, Some(&port)).unwrap_or_default());
        }
        let World {
            frames,
            floods,
            changes,
            ended_bonds,
            announcements,
            own_changes,
            mut status,
            ..
        } = world;
        let changed = links.take_changed();
        status |= !changed.is_empty() || !own_changes.is_empty();
        drop(links);
        self.set_links(&ports, changed);
        if !changes.is_empty() {
            self.shared
                .update(|switch, now| changes.into_iter().flat_map(|change| change(switch, now)).collect());
        }
        // A frame may tell the other end of what the switch does from now on: RSTP's agreement lets
        // it forward.
        for Outgoing { interface, frame, oam } in frames {
            if let Some(facts) = ports.get(&interface) {
                self.send(facts, &frame, oam);
            }
        }
        for (bridge, frame) in floods {
            self.send_by(&bridge, &frame, &[output(Port::NORMAL)]);
        }
        for bond in ended_bonds {
            self.datapath.set_bond(bond, None);
        }
        for announcement in announcements {
            self.announce(&ports, &announcement);
        }
        services.ports = ports;
        services.own_changes.extend(own_changes);
        if status {
            self.changed.notify_one();
        }
        result
    }

    fn send(&self, facts: &PortFacts, frame: &[u8], oam: bool) {
        if let Some(port) = facts.device {
            self.datapath.send_ahead(port, frame);
            // Reading the tables waits for their lock. A worker that is preempted while it holds
            // the lock would delay a hello past BFD's detection time.
            if facts.mirrored {
                self.mirror(&facts.bridge, port, frame);
            }
            return;
        }
        // Through a patch, into the other bridge; or with outer headers into the underlay.
        let output = output(Port(flow::port_from_of10(facts.ofport)));
        match oam {
            false => self.send_by(&facts.bridge, frame, &[output]),
            true => {
                let mark = Action::SetField {
                    field: MatchField::TunFlags,
                    value: Value::Word(Tunnel::OAM.into()),
                    mask: None,
                };
                self.send_by(&facts.bridge, frame, &[mark, output]);
            }
        }
    }

    /// Sends a frame by actions of a bridge.
    fn send_by(&self, bridge: &str, frame: &[u8], actions: &[Action]) {
        self.translated(frame, |switch, state, now, patience| {
            switch.packet_out(bridge, state, actions, now, patience)
        });
    }

    /// Sends the copies that mirrors take of a frame that leaves through a device.
    fn mirror(&self, bridge: &str, device: PortNo, frame: &[u8]) {
        self.translated(frame, |switch, state, now, patience| {
            switch.mirror_sent(bridge, device, state, now, patience)
        });
    }

    /// Sends a frame of the switch itself by the actions of its translation.
    fn translated(
        &self,
        frame: &[u8],
        translate: impl Fn(&Switch, &FlowState, Nanos, Patience<'_>) -> Option<Option<Translated>>,
    ) {
        if let Some(key) = flow::extract(frame, &PacketMeta::default()) {
            let state = FlowState::new(key, Port::CONTROLLER.0);
            let translate = |switch: &Switch, now, patience: Patience<'_>| translate(switch, &state, now, patience);
            self.shared.send(&*self.datapath, Key::ZERO.in_port(), frame, translate);
        }
    }

    /// Tells the switch of interfaces' links.
    fn set_links(&self, ports: &Ports, names: impl IntoIterator<Item = String>) {
        let mut bridges: BTreeMap<&str, Vec<(u32, LinkState)>> = BTreeMap::new();
        {
            let links = self.shared.links.lock();
            for name in names {
                if let Some(facts) = ports.get(&name) {
                    let link = (flow::port_from_of10(facts.ofport), links.state(&name, facts.up));
                    bridges.entry(&facts.bridge).or_default().push(link);
                }
            }
        }
        if !bridges.is_empty() {
            self.shared.update(|switch, _| {
                let changes = bridges
                    .iter()
                    .flat_map(|(bridge, links)| switch.set_links(bridge, links));
                changes.collect()
            });
        }
    }
}

fn output(port: Port) -> Action {
    Action::Output { port, max_len: 0 }
}

impl std::ops::Deref for Running {
    type Target = Protocols;

    fn deref(&self) -> &Protocols {
        &self.protocols
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.protocols.ended.store(true, Ordering::Release);
        self.protocols.shared.frames.call();
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
