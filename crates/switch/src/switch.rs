//! The switch as its caller sees it. How it is configured is in `configure`, how it answers in
//! `translate`.

use crate::bond::BondState;
use crate::bridge::Bridge;
use crate::dep::Read;
use crate::export::FlowCounts;
use crate::fdb::{Kind, Outlook, Station};
use crate::port::{Egress, Ingress};
use crate::security::Security;
use crate::tables::contexts::{Bounds, Contexts, Gone};
use crate::tables::{BridgeRule, Context, MeterChange, MeterNumbers, NewFlowRecord, Translated};
use crate::tunnel::{PortCounts, Tunnels};
use crate::{FragMode, LinkState, PortFlags};
use conntrack::PolicyId;
use dp::{Change, Effect, PortNo};
use nanos::Nanos;
use openflow::OfError;
use protocols::bond::BUCKETS;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::{MacAddr, Vid};

/// A set of bridges. See the crate's page for how to drive it.
#[derive(Debug)]
pub struct Switch {
    pub(crate) seed: u64,
    pub(crate) vlan_limit: u8,
    /// The timeout policies of zones that have one of their own.
    pub(crate) timeout_policies: BTreeMap<u16, PolicyId>,
    pub(crate) bridges: BTreeMap<u32, Bridge>,
    pub(crate) bridge_ids: BTreeMap<String, u32>,
    pub(crate) next_bridge: u32,
    pub(crate) attachments: BTreeMap<PortNo, Ingress>,
    /// The DSCP by queue, of datapath ports with queues that mark.
    pub(crate) marks: BTreeMap<PortNo, BTreeMap<u32, u8>>,
    pub(crate) tunnels: Tunnels,
    /// The ends of patches: their names, and what they have carried.
    pub(crate) patches: BTreeMap<Ingress, (String, PortCounts)>,
    pub(crate) contexts: Contexts,
    pub(crate) meter_numbers: MeterNumbers,
    pub(crate) port_meter_numbers: MeterNumbers,
    /// Meters of ports for the datapath, until [`Switch::take_new_meters`].
    pub(crate) new_meters: Vec<MeterChange>,
    /// The datapath's meters of deleted bridges.
    pub(crate) dead_meters: Vec<u32>,
    /// Stations ignored since [`Switch::take_ignored`].
    ignored: Ignored,
    /// What port security has done: bridge, port, station.
    pub(crate) secured: Vec<(u32, u32, Station, Security)>,
}

/// Stations that were not learned because their ports had spent their budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Stations that would have moved to another port.
    pub moves: u64,
    /// Stations that would have been new.
    pub new: u64,
}

impl Ignored {
    fn count(&mut self, kind: Kind) {
        match kind {
            Kind::Move => self.moves += 1,
            Kind::New => self.new += 1,
        }
    }
}

/// What [`Switch::accept`] would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// It would change what translations depend on: the caller must call it before it uses the
    /// translation.
    pub changes: bool,
    /// It would refresh known stations, which can wait.
    pub seen: bool,
    /// The stations that it would ignore.
    pub ignored: Ignored,
}

/// Why a static entry could not be added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FdbError {
    /// There is no bridge of that name.
    #[error("no such bridge")]
    NoBridge,
    /// The bridge has no port of that name.
    #[error("no such port")]
    NoPort,
    /// The bridge has no static entry for the station.
    #[error("could not find static mac entry")]
    NoEntry,
}

/// A translation that must not be used: another context has taken one of its handles. It brings
/// what became stale meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfDate(pub Vec<Change>);

/// Stations and handles that one tick removes at most: many may expire at once, and no thread
/// should wait for all of them.
const EXPIRIES: usize = 256;

impl Switch {
    /// The other end of a patch.
    pub(crate) fn peer_of(&self, peer: Ingress) -> Option<&Ingress> {
        let port = self.bridges.get(&peer.bridge)?.ports.get(&peer.port)?;
        match &port.members.get(peer.interface)?.egress {
            Egress::Patch(own) => Some(own),
            _ => None,
        }
    }

    /// A switch without bridges. The seed must be unknown to senders, who choose addresses.
    pub fn new(seed: u64) -> Switch {
        Switch {
            seed,
            vlan_limit: 1,
            timeout_policies: BTreeMap::new(),
            bridges: BTreeMap::new(),
            bridge_ids: BTreeMap::new(),
            next_bridge: 0,
            attachments: BTreeMap::new(),
            marks: BTreeMap::new(),
            tunnels: Tunnels::default(),
            patches: BTreeMap::new(),
            contexts: Contexts::default(),
            meter_numbers: MeterNumbers::of_rules(),
            port_meter_numbers: MeterNumbers::of_ports(),
            new_meters: Vec::new(),
            dead_meters: Vec::new(),
            ignored: Ignored::default(),
            secured: Vec::new(),
        }
    }

    /// The timeout policy of new connections in a zone. A translation that asks also depends on
    /// [`Read::TimeoutPolicy`].
    pub fn timeout_policy(&self, zone: u16) -> PolicyId {
        self.timeout_policies.get(&zone).copied().unwrap_or_default()
    }

    /// Notes the contexts of a translation and applies its effects, before the translation is used.
    /// Returns no changes if all contexts are known and no station has moved.
    ///
    /// # Errors
    /// [`OutOfDate`] where another translation has taken one of the handles or the last free one:
    /// the translation must not be used, and nothing of it is noted. Translating the packet again
    /// gives another handle, or an answer without one.
    pub fn accept(&mut self, translated: &Translated, now: Nanos) -> Result<Vec<Change>, OutOfDate> {
        let mut gone = Gone::default();
        let kept = self.contexts.keep_all(&translated.contexts, now, &mut gone);
        let mut changes = self.gone(gone);
        match kept {
            Ok(()) => {
                if let Some(flow) = &translated.flow
                    && let Some(bridge) = self.bridges.get_mut(&flow.bridge)
                {
                    bridge.flows.know(flow.number, flow.record, now);
                }
                changes.extend(self.apply(&translated.translation.effects, now));
                Ok(changes)
            }
            Err(_) => Err(OutOfDate(changes)),
        }
    }

    fn gone(&self, gone: Gone) -> Vec<Change> {
        let handles = gone.handles.into_iter().map(Read::Context);
        self.changes(handles.chain(gone.bridges.into_iter().map(Read::Handles)))
    }

    /// Handles of [`Context`]s that were freed since the last call.
    pub fn take_forgotten(&mut self) -> Vec<u32> {
        self.contexts.take_gone()
    }

    /// Bounds the number of [`Context`]s, in all and of each bridge.
    pub fn limit_handles(&mut self, total: usize, per_bridge: usize) {
        self.contexts.set_bounds(Bounds {
            total,
            per_bridge,
            ..Bounds::default()
        });
    }

    /// Applies effects of translations. Returns no changes if no station has moved and no rule is
    /// new.
    ///
    /// Each port has a budget: 512 stations a second and 4096 at once that move to it; 1024 a
    /// second and a full table at once that are new. Stations beyond it are not learned for now,
    /// and [`Switch::take_ignored`] counts them.
    pub fn apply(&mut self, effects: &[Effect], now: Nanos) -> Vec<Change> {
        let (mut stale, mut changes) = (Vec::new(), Vec::new());
        for effect in effects {
            match *effect {
                Effect::Learn {
                    bridge,
                    vlan,
                    mac,
                    port,
                } => {
                    if let Some(bridge) = self.bridges.get_mut(&bridge) {
                        let ignored = bridge.learn(vlan, mac, port, now, &mut stale, &mut self.secured);
                        ignored.into_iter().for_each(|kind| self.ignored.count(kind));
                    }
                }
                Effect::Heard { bridge, heard } => self.hear(bridge, &heard, now, &mut stale),
                Effect::Resolve { bridge, address } => self.resolve(bridge, address, now),
                Effect::Context(handle) => {
                    self.contexts.touch(handle, now);
                    if let Some(context) = self.contexts.get(handle).cloned() {
                        self.act_on(&context, now, &mut changes);
                    }
                }
            }
        }
        changes.extend(self.changes(stale));
        changes
    }

    /// As [`Switch::apply`], for effects that had to wait. It leaves out stations that have moved
    /// or were removed meanwhile.
    pub fn apply_late(&mut self, effects: &[Effect], now: Nanos) -> Vec<Change> {
        let holds = |effect: &&Effect| match self.outlook(effect, now) {
            Some(outlook) => outlook == Outlook::Seen,
            None => !matches!(effect, Effect::Learn { .. }),
        };
        let held: Vec<Effect> = effects.iter().filter(holds).copied().collect();
        self.apply(&held, now)
    }

    pub(crate) fn knows_flow(&self, flow: &NewFlowRecord) -> bool {
        let bridge = self.bridges.get(&flow.bridge);
        bridge.is_some_and(|bridge| bridge.flows.knows(flow.number))
    }

    /// What [`Switch::accept`] would do with a translation's effects and proposed handles.
    pub(crate) fn news(&self, effects: &[Effect], proposed: &[(u32, Arc<Context>)], now: Nanos) -> News {
        let mut news = News {
            changes: !self.contexts.has_all(proposed),
            ..News::default()
        };
        for effect in effects {
            let acts = match (self.outlook(effect, now), effect) {
                (Some(Outlook::Learns), _) => true,
                (Some(Outlook::Seen), _) => false,
                (Some(Outlook::Ignored(kind)), _) => {
                    news.ignored.count(kind);
                    continue;
                }
                (Some(Outlook::Refused), _) | (None, Effect::Learn { .. }) => continue,
                (None, Effect::Context(handle)) => self.contexts.get(*handle).is_none_or(|context| context.acts()),
                (None, Effect::Heard { bridge, heard }) => !self.has_heard(*bridge, heard),
                (None, Effect::Resolve { bridge, address }) => !self.is_resolved(*bridge, *address),
            };
            news.changes |= acts;
            news.seen |= !acts;
        }
        news
    }

    /// Stations that [`Switch::apply`] has ignored since the last call.
    pub fn take_ignored(&mut self) -> Ignored {
        std::mem::take(&mut self.ignored)
    }

    /// What learning a station would do; `None` for other effects.
    fn outlook(&self, effect: &Effect, now: Nanos) -> Option<Outlook> {
        match *effect {
            Effect::Learn {
                bridge,
                vlan,
                mac,
                port,
            } => self.bridges.get(&bridge)?.outlook(vlan, mac, port, now),
            Effect::Context(_) | Effect::Heard { .. } | Effect::Resolve { .. } => None,
        }
    }

    /// Adds the rule of a `learn` action, or shortens a rule's timeouts.
    fn act_on(&mut self, context: &Context, now: Nanos, changes: &mut Vec<Change>) {
        match context {
            Context::Recirculation(_) | Context::Controller(_) | Context::Sampled(_) => {}
            Context::Learned(learned) => {
                let Some(bridge) = self.bridges.get_mut(&learned.bridge) else {
                    return;
                };
                let mut log = bridge.tables.log();
                // If the table refuses the rule, nobody is notified.
                if bridge.tables.learn(learned, now, &mut log).is_err() {
                    return;
                }
                bridge.tables.delete_orphans(now, &mut log);
                let id = bridge.id;
                bridge.events.append(&mut log.events);
                changes.extend(self.changes_of_tables(id, false, &log.stale));
            }
            Context::Closing { rule, idle, hard } => {
                if let Some(bridge) = self.bridges.get_mut(&rule.bridge) {
                    bridge.tables.shorten(rule.rule, *idle, *hard);
                }
            }
        }
    }

    /// Removes stations that have not been seen for their bridge's ageing time, unused handles and
    /// expired rules: a few in one call. While more are due, [`Switch::next_event`] is not in the
    /// future.
    pub fn tick(&mut self, now: Nanos) -> Vec<Change> {
        let (mut stale, mut ended) = (Vec::new(), Vec::new());
        let mut left = EXPIRIES;
        for bridge in self.bridges.values_mut() {
            while left > 0
                && let Some((vlan, mac)) = bridge.fdb.expire(now)
            {
                stale.extend(Read::moved(bridge.id, vlan, mac));
                left -= 1;
            }
            let mut log = bridge.tables.log();
            bridge.tables.end_old(now, &mut log);
            bridge.tables.delete_orphans(now, &mut log);
            bridge.events.append(&mut log.events);
            ended.push((bridge.id, log.stale));
        }
        self.age_tunnel_tables(now, &mut stale);
        let mut gone = Gone::default();
        self.contexts.tick(now, &mut left, &mut gone);
        let mut changes = self.changes(stale);
        changes.extend(self.gone(gone));
        for (bridge, stale) in ended {
            changes.extend(self.changes_of_tables(bridge, false, &stale));
        }
        changes
    }

    /// When [`Switch::tick`] is due; `None` while nothing ages.
    pub fn next_event(&self) -> Option<Nanos> {
        self.bridges
            .values()
            .flat_map(|bridge| [bridge.fdb.next_expiry(), bridge.tables.next_event()])
            .chain([self.contexts.next_event(), self.tunnels.next_event()])
            .flatten()
            .min()
    }

    /// Sets the flags of a port (port-mod), by its OpenFlow port number.
    ///
    /// # Errors
    /// [`OfError::PmfcBadPort`] where there is no such bridge or port.
    pub fn set_port_flags(&mut self, bridge: &str, port: u32, flags: PortFlags) -> Result<Vec<Change>, OfError> {
        let bridge = self.bridge_mut(bridge).map_err(|_| OfError::PmfcBadPort)?;
        let (at, _) = *bridge.of_ports.get(&port).ok_or(OfError::PmfcBadPort)?;
        if bridge.flags_of(port) == flags {
            return Ok(Vec::new());
        }
        if flags == PortFlags::default() {
            bridge.port_flags.remove(&port);
        } else {
            bridge.port_flags.insert(port, flags);
        }
        let id = bridge.id;
        Ok(self.changes([Read::Port(id, at), Read::Flood(id)]))
    }

    /// Sets the links of a bridge's interfaces, by their OpenFlow port numbers, until
    /// [`Switch::configure`] says otherwise. Unknown ones are ignored.
    pub fn set_links(&mut self, bridge: &str, links: &[(u32, LinkState)]) -> Vec<Change> {
        let Ok(bridge) = self.bridge_mut(bridge) else {
            return Vec::new();
        };
        let mut stale = Vec::new();
        bridge.set_links(links, &mut stale);
        self.changes(stale)
    }

    /// Sets the bonds of a bridge's ports; `None` for a port that is none.
    pub fn set_bonds(&mut self, bridge: &str, bonds: Vec<(String, Option<BondState>)>) -> Vec<Change> {
        let Ok(bridge) = self.bridge_mut(bridge) else {
            return Vec::new();
        };
        let mut stale = Vec::new();
        bridge.set_bonds(bonds, &mut stale);
        self.changes(stale)
    }

    /// What the buckets of a bond have sent since the last call, in bytes; `None` for nothing.
    pub fn take_bond_loads(&mut self, bridge: &str, port: &str) -> Option<[u64; BUCKETS]> {
        self.bridge_mut(bridge).ok()?.take_bond_loads(port)
    }

    /// Sets how a bridge's tables treat fragments.
    pub fn set_frag_mode(&mut self, bridge: &str, mode: FragMode) -> Vec<Change> {
        let Ok(bridge) = self.bridge_mut(bridge) else {
            return Vec::new();
        };
        let changes = bridge.frags != mode;
        bridge.frags = mode;
        let id = bridge.id;
        self.changes(changes.then_some(Read::Bridge(id)))
    }

    /// Sets whether controllers get table misses, as controllers of OpenFlow 1.0 to 1.2 do.
    pub fn set_misses_to_controller(&mut self, bridge: &str, send: bool) -> Vec<Change> {
        let Ok(bridge) = self.bridge_mut(bridge) else {
            return Vec::new();
        };
        let changes = bridge.misses_to_controller != send;
        bridge.misses_to_controller = send;
        let id = bridge.id;
        self.changes(changes.then_some(Read::Bridge(id)))
    }

    /// Adds to the counters of rules; `used` is when the last packet came.
    pub fn credit(&mut self, rules: &[BridgeRule], packets: u64, bytes: u64, used: Nanos) {
        for rule in rules {
            if let Some(bridge) = self.bridges.get_mut(&rule.bridge) {
                bridge.tables.credit(rule.rule, packets, bytes, used);
            }
        }
    }

    /// The bridge with a name.
    pub fn bridge(&self, name: &str) -> Option<&Bridge> {
        self.bridges.get(self.bridge_ids.get(name)?)
    }

    /// Takes what the flows of a bridge that NetFlow is told of have carried since the last call.
    /// Forgets flows without packets for `unused`, which is longer than the datapath keeps them.
    pub fn take_flows(&mut self, bridge: &str, now: Nanos, unused: Duration) -> FlowCounts {
        let id = self.bridge_ids.get(bridge);
        let bridge = id.and_then(|id| self.bridges.get_mut(id));
        bridge.map_or_else(FlowCounts::default, |bridge| bridge.flows.take(now, unused))
    }

    /// The name of the bridge with a number, as in [`crate::tables::ForController`].
    pub fn bridge_name(&self, number: u32) -> Option<&str> {
        let mut bridges = self.bridge_ids.iter();
        bridges.find(|(_, id)| **id == number).map(|(name, _)| name.as_str())
    }

    /// A bridge's number.
    pub fn bridge_number(&self, name: &str) -> Option<u32> {
        self.bridge_ids.get(name).copied()
    }

    /// The names of all bridges.
    pub fn bridge_names(&self) -> impl Iterator<Item = &str> {
        self.bridge_ids.keys().map(String::as_str)
    }

    /// Removes the stations that a bridge has learned, on all ports or on one. Static entries stay.
    ///
    /// # Errors
    /// [`FdbError::NoBridge`], [`FdbError::NoPort`].
    pub fn fdb_flush(&mut self, bridge: &str, port: Option<&str>) -> Result<Vec<Change>, FdbError> {
        let bridge = self.bridge_mut(bridge)?;
        let port = port
            .map(|port| bridge.port_ids.get(port).copied().ok_or(FdbError::NoPort))
            .transpose()?;
        let id = bridge.id;
        let any = bridge.fdb.flush(port);
        Ok(self.changes(any.then_some(Read::Bridge(id))))
    }

    /// Adds a static entry for a station, in place of any entry that it has. It neither ages nor
    /// moves.
    ///
    /// # Errors
    /// [`FdbError::NoBridge`], [`FdbError::NoPort`].
    pub fn fdb_add(&mut self, bridge: &str, port: &str, vlan: Vid, mac: MacAddr) -> Result<Vec<Change>, FdbError> {
        let bridge = self.bridge_mut(bridge)?;
        let port = *bridge.port_ids.get(port).ok_or(FdbError::NoPort)?;
        if bridge.fdb.lookup(vlan, mac) == Some((port, true)) {
            return Ok(Vec::new());
        }
        let id = bridge.id;
        let was_sticky = bridge
            .fdb
            .is_sticky(vlan, mac)
            .then(|| bridge.fdb.lookup(vlan, mac))
            .flatten();
        let evicted = bridge.fdb.add_static(vlan, mac, port);
        if let Some((at, _)) = was_sticky {
            self.secured.push((id, at, (vlan, mac), Security::Released));
        }
        let made_room = evicted.map(|(vlan, mac)| Read::Station(id, vlan, mac));
        Ok(self.changes(Read::moved(id, vlan, mac).into_iter().chain(made_room)))
    }

    /// Removes a static entry.
    ///
    /// # Errors
    /// [`FdbError::NoBridge`], [`FdbError::NoEntry`].
    pub fn fdb_del(&mut self, bridge: &str, vlan: Vid, mac: MacAddr) -> Result<Vec<Change>, FdbError> {
        let bridge = self.bridge_mut(bridge)?;
        let (id, was_sticky) = (bridge.id, bridge.fdb.is_sticky(vlan, mac));
        let at = bridge.fdb.lookup(vlan, mac);
        if !bridge.fdb.del_static(vlan, mac) {
            return Err(FdbError::NoEntry);
        }
        if let Some((at, _)) = at.filter(|_| was_sticky) {
            self.secured.push((id, at, (vlan, mac), Security::Released));
        }
        let reads = Read::moved(id, vlan, mac);
        Ok(self.changes(reads))
    }

    /// Sets a bridge's statistics of learning to zero.
    ///
    /// # Errors
    /// [`FdbError::NoBridge`].
    pub fn fdb_stats_clear(&mut self, bridge: &str) -> Result<(), FdbError> {
        self.bridge_mut(bridge)?.fdb.clear_stats();
        Ok(())
    }

    pub(crate) fn bridge_mut(&mut self, name: &str) -> Result<&mut Bridge, FdbError> {
        let id = self.bridge_ids.get(name).ok_or(FdbError::NoBridge)?;
        self.bridges.get_mut(id).ok_or(FdbError::NoBridge)
    }

    pub(crate) fn changes(&self, stale: impl IntoIterator<Item = Read>) -> Vec<Change> {
        stale.into_iter().map(|read| Change::Dep(read.dep(self.seed))).collect()
    }
}
