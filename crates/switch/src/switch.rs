//! The switch as its caller sees it. How it is configured is in `configure`, how it answers in
//! `translate`.

use crate::bridge::Bridge;
use crate::dep::Read;
use crate::fdb::{Kind, Outlook};
use crate::port::Ingress;
use crate::tables::contexts::{Contexts, Gone, Room};
use crate::tables::{BridgeRule, Context, MeterNumbers, Translated};
use crate::{FragMode, PortFlags};
use dp::{Change, Effect, PortNo};
use openflow::OfError;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use wire::{MacAddr, Nanos, Vid};

/// A set of bridges. See the crate's page for how to drive it.
#[derive(Debug)]
pub struct Switch {
    pub(crate) seed: u64,
    pub(crate) vlan_limit: u8,
    pub(crate) bridges: BTreeMap<u32, Bridge>,
    pub(crate) bridge_ids: BTreeMap<String, u32>,
    pub(crate) next_bridge: u32,
    pub(crate) attachments: HashMap<PortNo, Ingress>,
    /// For datapath ports with queues that mark: the DSCP by queue.
    pub(crate) marks: HashMap<PortNo, BTreeMap<u32, u8>>,
    pub(crate) contexts: Contexts,
    pub(crate) meter_numbers: MeterNumbers,
    /// The datapath's meters that bridges had that are gone.
    pub(crate) dead_meters: Vec<u32>,
    /// What was ignored since it was last asked for.
    ignored: Ignored,
}

/// What packets wanted to teach and was ignored for now, because their ports had spent their
/// budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Stations that would have changed their port.
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
    /// It would change what translations depend on: it must be called before the translation is
    /// used.
    pub changes: bool,
    /// It would note that known stations were seen again, which has time.
    pub seen: bool,
    /// What it would ignore.
    pub ignored: Ignored,
}

/// Why a station could not be entered or removed by hand.
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

/// A translation that must not be used: what its handles mean has changed since. It brings what
/// went stale meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfDate(pub Vec<Change>);

/// Stations and handles that one tick forgets at most. What a storm has taught expires at once, and
/// nobody is to wait for all of it.
const EXPIRIES: usize = 256;

impl Switch {
    /// A switch without bridges. Whoever chooses addresses must not know the seed.
    pub fn new(seed: u64) -> Switch {
        Switch {
            seed,
            vlan_limit: 1,
            bridges: BTreeMap::new(),
            bridge_ids: BTreeMap::new(),
            next_bridge: 0,
            attachments: HashMap::new(),
            marks: HashMap::new(),
            contexts: Contexts::default(),
            meter_numbers: MeterNumbers::default(),
            dead_meters: Vec::new(),
            ignored: Ignored::default(),
        }
    }

    /// Takes note of what a translation speaks of, and does what it asks for. Comes before the
    /// translation is used. The changes are empty where everything is known and all stations are
    /// where they were.
    ///
    /// # Errors
    /// [`OutOfDate`] where another translation has taken one of its handles since, or the
    /// last room for handles: it must not be used, and nothing of it is noted. Whoever translates
    /// the packet again gets another handle, or an answer that does without.
    pub fn accept(&mut self, translated: &Translated, now: Nanos) -> Result<Vec<Change>, OutOfDate> {
        let mut gone = Gone::default();
        let kept = self.contexts.keep_all(&translated.contexts, now, &mut gone);
        let mut changes = self.gone(gone);
        match kept {
            Ok(()) => {
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

    /// Handles of [`Context`]s that mean nothing any more, since the last call.
    pub fn take_forgotten(&mut self) -> Vec<u32> {
        self.contexts.take_gone()
    }

    /// Keeps no more than so many [`Context`]s, in all and of each bridge.
    pub fn limit_handles(&mut self, total: usize, per_bridge: usize) {
        self.contexts.set_room(Room {
            total,
            per_bridge,
            ..Room::default()
        });
    }

    /// Does what translations ask for. The changes are empty where all stations are where they
    /// were, and all rules that packets make there.
    ///
    /// A port whose packets teach more than its budget is ignored for now, and
    /// [`Switch::take_ignored`] counts it: stations that move to the port, 512 a second and 4096 at
    /// once; stations that are new, 1024 a second and at once as many as the table has room for.
    pub fn apply(&mut self, effects: &[Effect], now: Nanos) -> Vec<Change> {
        let (mut stale, mut changes) = (Vec::new(), Vec::new());
        for effect in effects {
            match *effect {
                Effect::Learn {
                    bridge,
                    vlan,
                    mac,
                    port,
                    gratuitous_arp: _,
                } => {
                    if let Some(bridge) = self.bridges.get_mut(&bridge) {
                        let ignored = bridge.learn(vlan, mac, port, now, &mut stale);
                        ignored.into_iter().for_each(|kind| self.ignored.count(kind));
                    }
                }
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

    /// As [`Switch::apply`], of effects that had to wait. What they say of stations that have moved
    /// or were forgotten meanwhile is out of date, and is left out.
    pub fn apply_late(&mut self, effects: &[Effect], now: Nanos) -> Vec<Change> {
        let holds = |effect: &&Effect| match self.outlook(effect, now) {
            Some(outlook) => outlook == Outlook::Seen,
            None => matches!(effect, Effect::Context(_)),
        };
        let held: Vec<Effect> = effects.iter().filter(holds).copied().collect();
        self.apply(&held, now)
    }

    /// What [`Switch::accept`] would do with a translation's effects and the handles that it
    /// proposes.
    pub(crate) fn news(&self, effects: &[Effect], proposed: &[(u32, Arc<Context>)], now: Nanos) -> News {
        let mut news = News {
            changes: !self.contexts.has_all(proposed),
            ..News::default()
        };
        for effect in effects {
            match self.outlook(effect, now) {
                Some(Outlook::Learns) => news.changes = true,
                Some(Outlook::Seen) => news.seen = true,
                Some(Outlook::Ignored(kind)) => news.ignored.count(kind),
                None => {
                    let Effect::Context(handle) = effect else { continue };
                    let acts = self.contexts.get(*handle).is_none_or(|context| context.acts());
                    news.changes |= acts;
                    news.seen |= !acts;
                }
            }
        }
        news
    }

    /// What [`Switch::apply`] has ignored since the last call.
    pub fn take_ignored(&mut self) -> Ignored {
        std::mem::take(&mut self.ignored)
    }

    /// What learning a station would do; `None` where nothing is learned.
    fn outlook(&self, effect: &Effect, now: Nanos) -> Option<Outlook> {
        match *effect {
            Effect::Learn {
                bridge,
                vlan,
                mac,
                port,
                gratuitous_arp: _,
            } => self.bridges.get(&bridge)?.outlook(vlan, mac, port, now),
            Effect::Context(_) => None,
        }
    }

    /// Makes the rule that packets ask for, or ends one.
    fn act_on(&mut self, context: &Context, now: Nanos, changes: &mut Vec<Change>) {
        match context {
            Context::Recirculation(_) | Context::Controller(_) => {}
            Context::Learned(learned) => {
                let Some(bridge) = self.bridges.get_mut(&learned.bridge) else {
                    return;
                };
                let mut log = bridge.tables.log();
                // A rule that cannot be there is not made; nobody is to be told.
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

    /// Forgets stations that have not been seen for their bridge's ageing time, and handles that
    /// have not been used: a few in one call. While more of them are left, [`Switch::next_event`]
    /// is not in the future.
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
        let mut gone = Gone::default();
        self.contexts.tick(now, &mut left, &mut gone);
        let mut changes = self.changes(stale);
        changes.extend(self.gone(gone));
        for (bridge, stale) in ended {
            changes.extend(self.changes_of_tables(bridge, false, &stale));
        }
        changes
    }

    /// When [`Switch::tick`] has something to do; `None` while nothing ages.
    pub fn next_event(&self) -> Option<Nanos> {
        self.bridges
            .values()
            .flat_map(|bridge| [bridge.fdb.next_expiry(), bridge.tables.next_event()])
            .chain([self.contexts.next_event()])
            .flatten()
            .min()
    }

    /// Notes what a controller says of a port, by its OpenFlow port number.
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

    /// Sets what becomes of fragments in a bridge's tables.
    pub fn set_frag_mode(&mut self, bridge: &str, mode: FragMode) -> Vec<Change> {
        let Ok(bridge) = self.bridge_mut(bridge) else {
            return Vec::new();
        };
        let changes = bridge.frags != mode;
        bridge.frags = mode;
        let id = bridge.id;
        self.changes(changes.then_some(Read::Bridge(id)))
    }

    /// Notes whether controllers get the packets that a bridge's tables have no rules for, as those
    /// of OpenFlow 1.0 to 1.2 do.
    pub fn set_misses_to_controller(&mut self, bridge: &str, send: bool) -> Vec<Change> {
        let Ok(bridge) = self.bridge_mut(bridge) else {
            return Vec::new();
        };
        let changes = bridge.misses_to_controller != send;
        bridge.misses_to_controller = send;
        let id = bridge.id;
        self.changes(changes.then_some(Read::Bridge(id)))
    }

    /// Adds what a datapath has carried by rules, `used` being when the last packet came.
    pub fn credit(&mut self, rules: &[BridgeRule], packets: u64, bytes: u64, used: Nanos) {
        for rule in rules {
            if let Some(bridge) = self.bridges.get_mut(&rule.bridge) {
                bridge.tables.credit(rule.rule, packets, bytes, used);
            }
        }
    }

    /// The bridge of a name.
    pub fn bridge(&self, name: &str) -> Option<&Bridge> {
        self.bridges.get(self.bridge_ids.get(name)?)
    }

    /// The name of the bridge of a number, as [`crate::tables::ForController`] has it.
    pub fn bridge_name(&self, number: u32) -> Option<&str> {
        let mut bridges = self.bridge_ids.iter();
        bridges.find(|(_, id)| **id == number).map(|(name, _)| name.as_str())
    }

    /// The names of all bridges.
    pub fn bridge_names(&self) -> impl Iterator<Item = &str> {
        self.bridge_ids.keys().map(String::as_str)
    }

    /// Forgets what a bridge has learned, everywhere or on one of its ports. Static entries stay.
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

    /// Enters a station by hand, in the place of any entry that it has. It neither ages nor moves
    /// until it is removed.
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
        let evicted = bridge.fdb.add_static(vlan, mac, port);
        let made_room = evicted.map(|(vlan, mac)| Read::Station(id, vlan, mac));
        Ok(self.changes(Read::moved(id, vlan, mac).into_iter().chain(made_room)))
    }

    /// Removes a station that was entered by hand.
    ///
    /// # Errors
    /// [`FdbError::NoBridge`], [`FdbError::NoEntry`].
    pub fn fdb_del(&mut self, bridge: &str, vlan: Vid, mac: MacAddr) -> Result<Vec<Change>, FdbError> {
        let bridge = self.bridge_mut(bridge)?;
        if !bridge.fdb.del_static(vlan, mac) {
            return Err(FdbError::NoEntry);
        }
        let reads = Read::moved(bridge.id, vlan, mac);
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
