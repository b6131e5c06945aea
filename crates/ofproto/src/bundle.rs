//! Bundles: requests that are collected, and applied together or not at all (OpenFlow 1.4 §6.9).
//!
//! A commit runs in slices, as dumps do, while requests of other connections wait.

use crate::agent::Core;
use crate::conn::Conn;
use crate::dump::Job;
use crate::env::Env;
use crate::log;
use crate::mass::Sweep;
use crate::memory::{BUNDLE_REFUSED, OVERHEAD};
use crate::work::{Part, Work, xid_of};
use nanos::Nanos;
use openflow::model::{Body, BundleAdd, BundleControl, FlowCommand, FlowMod, GroupMod, PacketOut, PortMod};
use openflow::{Codec, OfError};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;
use switch::tables::names_tunnel_options;
use switch::{BundleItem, Switch};
use telemetry::budget::Share;

/// Types of control messages; the type of a reply is one more.
const OPEN: u16 = 0;
const CLOSE: u16 = 2;
const COMMIT: u16 = 4;
const DISCARD: u16 = 6;

/// The most bundles that a connection may have open.
const MOST: usize = 256;
/// The most bytes of messages in all bundles of a connection.
const MOST_BYTES: usize = 512 << 20;
/// Messages applied under one lock of the switch.
const SLICE: usize = 128;
/// Rules settled under one lock of the switch.
pub(crate) const SETTLE: usize = 256;

/// A connection's bundles.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    open: BTreeMap<u32, Bundle>,
    bytes: usize,
}

#[derive(Debug)]
struct Bundle {
    flags: u16,
    closed: bool,
    work: Work,
    /// Bytes of its messages.
    bytes: usize,
    touched: Nanos,
    /// The message that opened it.
    first: Vec<u8>,
    /// The fields of tunnel options that its rules use, a bit each: their mappings stay while it is
    /// open, as in Open vSwitch.
    options: Option<Arc<AtomicU64>>,
}

impl Bundles {
    /// The bundle that a message belongs to. It must be open and have these flags; otherwise it is
    /// discarded.
    fn checked(&mut self, id: u32, flags: u16) -> Result<&mut Bundle, OfError> {
        let bundle = self.open.get(&id).ok_or(OfError::BfcBadId)?;
        let error = if bundle.closed {
            Some(OfError::BfcBundleClosed)
        } else if bundle.flags != flags {
            Some(OfError::BfcBadFlags)
        } else {
            None
        };
        if let Some(error) = error {
            self.take(id);
            return Err(error);
        }
        self.open.get_mut(&id).ok_or(OfError::BfcBadId)
    }

    fn take(&mut self, id: u32) -> Option<Bundle> {
        let bundle = self.open.remove(&id)?;
        self.bytes -= bundle.bytes;
        Some(bundle)
    }

    /// Bytes of messages in all bundles.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.open.len() * OVERHEAD
    }

    fn begin(&mut self, id: u32, flags: u16, message: &[u8], now: Nanos, share: &mut Share) -> Result<(), OfError> {
        if self.open.len() >= MOST || share.grow(OVERHEAD).is_err() {
            BUNDLE_REFUSED.inc();
            return Err(OfError::BfcOutOfBundles);
        }
        let bundle = Bundle {
            flags,
            closed: false,
            work: Work::default(),
            bytes: 0,
            touched: now,
            first: message[..message.len().min(QUOTED)].to_vec(),
            options: None,
        };
        self.open.insert(id, bundle);
        Ok(())
    }

    /// When the next bundle expires, after `idle` without a message.
    pub(crate) fn next_event(&self, idle: Duration) -> Option<Nanos> {
        self.open.values().map(|bundle| bundle.touched + idle).min()
    }

    /// Removes a bundle that has had no message for `idle`, and returns the message that opened it.
    pub(crate) fn expire(&mut self, idle: Duration, now: Nanos) -> Option<Vec<u8>> {
        let mut bundles = self.open.iter();
        let (id, _) = bundles.find(|(_, bundle)| bundle.touched + idle <= now)?;
        let id = *id;
        self.take(id).map(|bundle| bundle.first)
    }
}

/// How many bytes of a message are kept to quote it in errors.
const QUOTED: usize = 64;

impl Core {
    pub(crate) fn bundle_control(
        &mut self,
        conn: &mut Conn,
        xid: u32,
        control: BundleControl,
        message: &[u8],
        now: Nanos,
    ) -> Result<(), OfError> {
        let BundleControl {
            bundle: id,
            kind,
            flags,
        } = control;
        match kind {
            OPEN => {
                if conn.bundles.take(id).is_some() {
                    return Err(OfError::BfcBadId);
                }
                conn.bundles.begin(id, flags, message, now, &mut conn.share)?;
            }
            CLOSE => {
                let bundle = conn.bundles.checked(id, flags)?;
                bundle.closed = true;
                bundle.touched = now;
            }
            COMMIT => {
                let bundle = conn.bundles.take(id).ok_or(OfError::BfcBadId)?;
                if bundle.flags != flags {
                    return Err(OfError::BfcBadFlags);
                }
                self.committing = Some(conn.id);
                conn.job = Some(Job::Commit(Commit {
                    xid,
                    request: message[..message.len().min(QUOTED)].to_vec(),
                    control,
                    work: bundle.work,
                    bytes: bundle.bytes,
                    phase: Phase::Begin,
                    sweep: None,
                    later: Vec::new(),
                }));
                return Ok(());
            }
            DISCARD => {
                conn.bundles.take(id).ok_or(OfError::BfcBadId)?;
            }
            _ => return Err(OfError::BfcBadType),
        }
        reply(conn, xid, control);
        Ok(())
    }

    pub(crate) fn bundle_add(
        &mut self,
        conn: &mut Conn,
        codec: Codec,
        add: &BundleAdd,
        message: &[u8],
        env: &impl Env,
        now: Nanos,
    ) -> Result<(), OfError> {
        // An invalid message is refused now, not when the bundle is committed.
        let body = codec.decode(&add.message)?.body;
        let mut options = 0;
        match &body {
            Body::FlowMod(change) => {
                crate::flows::check(&codec, change)?;
                if names_tunnel_options(change) {
                    let used = self.tables(env, |tables| Some(tables.options().used_by(change)));
                    let used = used.unwrap_or(Ok(0))?;
                    let deletes = matches!(change.command, FlowCommand::Delete | FlowCommand::DeleteStrict);
                    options = if deletes { 0 } else { used };
                }
            }
            Body::GroupMod(_) | Body::PortMod(_) | Body::PacketOut(_) => {}
            _ => return Err(OfError::BfcMsgUnsup),
        }
        if !conn.bundles.open.contains_key(&add.bundle) {
            conn.bundles
                .begin(add.bundle, add.flags, message, now, &mut conn.share)?;
        }
        let bytes = add.message.len();
        if conn.bundles.bytes + bytes > MOST_BYTES || conn.share.grow(bytes).is_err() {
            BUNDLE_REFUSED.inc();
            return Err(OfError::BfcMsgTooMany);
        }
        let bundle = conn.bundles.checked(add.bundle, add.flags)?;
        bundle.work.push(&add.message, body);
        if options != 0 {
            let held = bundle.options.get_or_insert_with(|| {
                let held = Arc::new(AtomicU64::new(0));
                self.options_in_bundles.retain(|held| held.strong_count() > 0);
                self.options_in_bundles.push(Arc::downgrade(&held));
                held
            });
            held.fetch_or(options, Relaxed);
        }
        bundle.bytes += bytes;
        bundle.touched = now;
        conn.bundles.bytes += bytes;
        Ok(())
    }

    /// The fields of tunnel options that rules in open bundles use, a bit each.
    pub(crate) fn held_options(&self) -> u64 {
        let open = self.options_in_bundles.iter().filter_map(Weak::upgrade);
        open.fold(0, |all, held| all | held.load(Relaxed))
    }
}

fn reply(conn: &mut Conn, xid: u32, control: BundleControl) {
    let kind = control.kind + 1;
    conn.send(xid, Body::BundleControl(BundleControl { kind, ..control }));
}

/// A commit that is under way.
#[derive(Debug)]
pub(crate) struct Commit {
    xid: u32,
    request: Vec<u8>,
    control: BundleControl,
    work: Work,
    /// Bytes of its messages.
    bytes: usize,
    phase: Phase,
    /// A bulk change under way, and the position of its message.
    sweep: Option<(Sweep, usize)>,
    /// Changes to make after those of the tables.
    later: Vec<Body>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begin,
    Apply,
    Settle,
}

/// A message of a bundle.
enum Change {
    Flow(Box<FlowMod>),
    Group(GroupMod),
    Port(PortMod),
    PacketOut(Box<PacketOut>),
}

impl Commit {
    /// Does the next slice; returns the rest.
    pub(crate) fn step(mut self, core: &mut Core, conn: &mut Conn, env: &impl Env) -> Option<Job> {
        let bridge = core.config.bridge.clone();
        match self.phase {
            Phase::Begin => {
                let begun = env.change(|switch, now| (switch.bundle_open(&bridge, now), Vec::new()));
                if let Err(error) = begun {
                    conn.refuse(self.xid, error, &self.request);
                    core.committing = None;
                    return None;
                }
                self.phase = Phase::Apply;
            }
            Phase::Apply if self.sweep.is_some() || self.work.next().is_some() => {
                if let Err((error, message)) = self.apply(core, conn, env) {
                    env.change(|switch, _| (switch.bundle_abort(&bridge), Vec::new()));
                    let xid = xid_of(&message);
                    log::refused(&bridge, &conn.options.name, error, &message);
                    conn.refuse(xid, error, &message);
                    conn.refuse(self.xid, OfError::BfcMsgFailed, &self.request);
                    self.phase = Phase::Settle;
                }
            }
            Phase::Apply => {
                env.change(|switch, _| ((), switch.bundle_commit(&bridge)));
                for body in std::mem::take(&mut self.later) {
                    // It was checked before. An error now means that something else changed since
                    // then.
                    let _ = match body {
                        Body::PortMod(change) => core.port_mod(conn.id, &change, env),
                        Body::PacketOut(packet) => core.packet_out(conn, &packet, env),
                        _ => Ok(()),
                    };
                }
                (self.work, self.bytes) = (Work::default(), 0);
                reply(conn, self.xid, self.control);
                self.phase = Phase::Settle;
            }
            Phase::Settle => {
                let done = env.change(|switch, now| (switch.bundle_settle(&bridge, SETTLE, now), Vec::new()));
                core.take_events(env, Some((conn.id, self.xid)));
                if done {
                    core.committing = None;
                    return None;
                }
            }
        }
        Some(Job::Commit(self))
    }

    /// Bytes of its messages.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Applies some messages. Returns the error of the first that fails, with the message.
    fn apply(&mut self, core: &mut Core, conn: &mut Conn, env: &impl Env) -> Result<(), (OfError, Vec<u8>)> {
        let Some(codec) = conn.codec else { return Ok(()) };
        let bridge = &core.config.bridge;
        if let Some((sweep, start)) = &mut self.sweep {
            let failed = |error| (error, self.work.message_at(*start).to_vec());
            if sweep.step(bridge, env).map_err(failed)? {
                self.sweep = None;
            }
            return Ok(());
        }
        let Range { mut start, end } = match self.work.next() {
            Some(Part::Messages(range)) => range,
            Some(Part::Additions(range)) => return self.add(conn, codec, bridge, range, env),
            None => return Ok(()),
        };
        let mut changes = Vec::new();
        let mut starts = Vec::new();
        while changes.len() < SLICE && start < end {
            let message = self.work.message_at(start);
            let failed = |error| (error, message.to_vec());
            changes.push(match codec.decode(message).map_err(failed)?.body {
                Body::FlowMod(change)
                    if crate::flows::may_be_mass(&change)
                        && env.look(|switch| switch.is_mass_change(bridge, &change)) =>
                {
                    // Changes before it are applied first.
                    if changes.is_empty() {
                        self.sweep = Some((Sweep::new(change), start));
                        start += message.len();
                    }
                    break;
                }
                Body::FlowMod(change) => Change::Flow(change),
                Body::GroupMod(change) => Change::Group(change),
                Body::PortMod(change) => {
                    core.check_port_mod(&change).map_err(failed)?;
                    Change::Port(change)
                }
                Body::PacketOut(packet) => {
                    core.check_packet_out(conn, &packet, env).map_err(failed)?;
                    Change::PacketOut(packet)
                }
                _ => return Err(failed(OfError::BfcMsgUnsup)),
            });
            starts.push(start);
            start += message.len();
        }
        self.work.done(start);
        let items: Vec<BundleItem<'_>> = changes.iter().map(Change::item).collect();
        let (done, now) = env.change(|switch, now| ((switch.bundle_apply(bridge, &items, now), now), Vec::new()));
        if let Err(failed) = done {
            let message = starts.get(failed.at).map(|at| self.work.message_at(*at));
            return Err((failed.error, message.unwrap_or_default().to_vec()));
        }
        for change in changes {
            match change {
                Change::Port(change) => self.later.push(Body::PortMod(change)),
                Change::PacketOut(packet) => self.later.push(Body::PacketOut(packet)),
                Change::Flow(change) => conn.flow_mods.count(change.command, 1, now),
                Change::Group(_) => {}
            }
        }
        Ok(())
    }

    /// Adds some rules.
    fn add(
        &mut self,
        conn: &mut Conn,
        codec: Codec,
        bridge: &str,
        range: Range<usize>,
        env: &impl Env,
    ) -> Result<(), (OfError, Vec<u8>)> {
        let range = range.start..range.end.min(range.start + SLICE);
        let additions = self.work.additions();
        let add = |switch: &mut Switch, now| (switch.bundle_add(bridge, additions, range.clone(), now), now);
        let (added, now) = env.change(|switch, now| (add(switch, now), Vec::new()));
        added.map_err(|failed| (failed.error, self.work.message_of(codec, range.start + failed.at)))?;
        conn.flow_mods.count(FlowCommand::Add, range.len() as u64, now);
        self.work.done(range.end);
        Ok(())
    }

    /// Gives up a commit whose connection closes: rolls back what is not committed. Returns the
    /// rest of that work.
    pub(crate) fn give_up(mut self, core: &mut Core, env: &impl Env) -> Option<Job> {
        match self.phase {
            Phase::Begin => {
                core.committing = None;
                return None;
            }
            Phase::Apply => {
                let bridge = &core.config.bridge;
                env.change(|switch, _| (switch.bundle_abort(bridge), Vec::new()));
                self.phase = Phase::Settle;
            }
            Phase::Settle => {}
        }
        Some(Job::Commit(self))
    }
}

impl Change {
    fn item(&self) -> BundleItem<'_> {
        match self {
            Change::Flow(change) => BundleItem::Flow(change),
            Change::Group(change) => BundleItem::Group(change),
            Change::Port(change) => BundleItem::Port(change),
            Change::PacketOut(packet) => BundleItem::PacketOut(packet),
        }
    }
}
