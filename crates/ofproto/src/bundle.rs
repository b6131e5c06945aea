//! Bundles: requests that are collected, and carried out together or not at all (OpenFlow 1.4 §6.9).
//!
//! Messages are kept as they came: that is less than what they mean takes, and there may be a million of them. What the first of them mean is
//! kept too, so that those of short bundles are decoded once. A commit is worked on in steps,
//! as dumps are, while other connections' requests wait.

use crate::agent::Core;
use crate::conn::Conn;
use crate::dump::Job;
use crate::env::Env;
use crate::mass::Sweep;
use openflow::model::{Body, BundleAdd, BundleControl, FlowMod, GroupMod, PacketOut, PortMod};
use openflow::{Codec, HEADER_LEN, OfError};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use switch::BundleItem;
use wire::Nanos;

/// Kinds of control messages; a reply is one more.
const OPEN: u16 = 0;
const CLOSE: u16 = 2;
const COMMIT: u16 = 4;
const DISCARD: u16 = 6;

/// Bundles that a connection may have begun.
const MOST: usize = 256;
/// Messages, of all bundles of a connection, of which it is kept what they mean.
const MOST_DECODED: usize = 4096;
/// Bytes of messages in all bundles of a connection.
const MOST_BYTES: usize = 512 << 20;
/// Messages that are carried out while the switch is locked once.
const SLICE: usize = 128;
/// Rules that are settled while the switch is locked once.
pub(crate) const SETTLE: usize = 256;

/// A connection's bundles.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    open: BTreeMap<u32, Bundle>,
    bytes: usize,
    decoded: usize,
}

#[derive(Debug)]
struct Bundle {
    flags: u16,
    closed: bool,
    /// Messages, one behind the other.
    messages: Vec<u8>,
    count: usize,
    /// What the first of them mean.
    decoded: VecDeque<Body>,
    touched: Nanos,
    /// What began it.
    first: Vec<u8>,
}

impl Bundles {
    /// The bundle of a message, which must be open and of these flags; it is gone otherwise.
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
        self.bytes -= bundle.messages.len();
        self.decoded -= bundle.decoded.len();
        Some(bundle)
    }

    fn begin(&mut self, id: u32, flags: u16, message: &[u8], now: Nanos) -> Result<(), OfError> {
        if self.open.len() >= MOST {
            return Err(OfError::BfcOutOfBundles);
        }
        let bundle = Bundle {
            flags,
            closed: false,
            messages: Vec::new(),
            count: 0,
            decoded: VecDeque::new(),
            touched: now,
            first: message[..message.len().min(QUOTED)].to_vec(),
        };
        self.open.insert(id, bundle);
        Ok(())
    }

    /// When a bundle of which nothing was heard for `idle` has to go.
    pub(crate) fn next_event(&self, idle: Duration) -> Option<Nanos> {
        self.open.values().map(|bundle| bundle.touched + idle).min()
    }

    /// Takes out a bundle of which nothing was heard for `idle`. What began it.
    pub(crate) fn expire(&mut self, idle: Duration, now: Nanos) -> Option<Vec<u8>> {
        let mut bundles = self.open.iter();
        let (id, _) = bundles.find(|(_, bundle)| bundle.touched + idle <= now)?;
        let id = *id;
        self.take(id).map(|bundle| bundle.first)
    }
}

/// How much of a message is kept to be quoted.
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
                conn.bundles.begin(id, flags, message, now)?;
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
                conn.dump = Some(Job::Commit(Commit {
                    xid,
                    request: message[..message.len().min(QUOTED)].to_vec(),
                    control,
                    messages: bundle.messages,
                    decoded: bundle.decoded,
                    at: 0,
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
        now: Nanos,
    ) -> Result<(), OfError> {
        // What makes no sense is refused now, not when all depends on it.
        let body = codec.decode(&add.message)?.body;
        match &body {
            Body::FlowMod(change) => crate::flows::check(&codec, change)?,
            Body::GroupMod(_) | Body::PortMod(_) | Body::PacketOut(_) => {}
            _ => return Err(OfError::BfcMsgUnsup),
        }
        if !conn.bundles.open.contains_key(&add.bundle) {
            conn.bundles.begin(add.bundle, add.flags, message, now)?;
        }
        if conn.bundles.bytes + add.message.len() > MOST_BYTES {
            return Err(OfError::BfcMsgTooMany);
        }
        let room = conn.bundles.decoded < MOST_DECODED;
        let bundle = conn.bundles.checked(add.bundle, add.flags)?;
        let keeps = room && bundle.decoded.len() == bundle.count;
        if keeps {
            bundle.decoded.push_back(body);
        }
        bundle.count += 1;
        bundle.messages.extend_from_slice(&add.message);
        bundle.touched = now;
        conn.bundles.bytes += add.message.len();
        conn.bundles.decoded += usize::from(keeps);
        Ok(())
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
    messages: Vec<u8>,
    /// What the first of those mean that are not carried out.
    decoded: VecDeque<Body>,
    /// Where the messages begin that are not carried out.
    at: usize,
    phase: Phase,
    /// A change of very many rules that is being carried out, and where its message begins.
    sweep: Option<(Sweep, usize)>,
    /// What is done once the tables are changed.
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
    /// Does the next part; what is left to do.
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
            Phase::Apply if self.sweep.is_some() || self.at < self.messages.len() => {
                if let Err((error, message)) = self.apply(core, conn, env) {
                    env.change(|switch, _| (switch.bundle_abort(&bridge), Vec::new()));
                    let xid = xid_of(&message);
                    conn.refuse(xid, error, &message);
                    conn.refuse(self.xid, OfError::BfcMsgFailed, &self.request);
                    self.phase = Phase::Settle;
                }
            }
            Phase::Apply => {
                env.change(|switch, _| ((), switch.bundle_commit(&bridge)));
                for body in std::mem::take(&mut self.later) {
                    // Checked before; what has changed since then is as if it had changed after it.
                    let _ = match body {
                        Body::PortMod(change) => core.port_mod(&change, env),
                        Body::PacketOut(packet) => core.packet_out(conn, &packet, env),
                        _ => Ok(()),
                    };
                }
                self.messages = Vec::new();
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

    /// Carries out some messages. The error of the first that cannot be, with the message.
    fn apply(&mut self, core: &mut Core, conn: &mut Conn, env: &impl Env) -> Result<(), (OfError, Vec<u8>)> {
        let Some(codec) = conn.codec else { return Ok(()) };
        let bridge = &core.config.bridge;
        if let Some((sweep, start)) = &mut self.sweep {
            let failed = |error| (error, message_at(&self.messages, *start).unwrap_or_default().to_vec());
            if sweep.step(bridge, env).map_err(failed)? {
                self.sweep = None;
            }
            return Ok(());
        }
        let mut changes = Vec::new();
        let mut starts = Vec::new();
        while changes.len() < SLICE
            && let Some(message) = message_at(&self.messages, self.at)
        {
            let failed = |error| (error, message.to_vec());
            let body = match self.decoded.pop_front() {
                Some(body) => body,
                None => codec.decode(message).map_err(failed)?.body,
            };
            changes.push(match body {
                Body::FlowMod(change)
                    if crate::flows::may_be_mass(&change)
                        && env.look(|switch| switch.is_mass_change(bridge, &change)) =>
                {
                    // Those before it come first.
                    if changes.is_empty() {
                        self.sweep = Some((Sweep::new(change), self.at));
                        self.at += message.len();
                    } else {
                        self.decoded.push_front(Body::FlowMod(change));
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
            starts.push(self.at);
            self.at += message.len();
        }
        let items: Vec<BundleItem<'_>> = changes.iter().map(Change::item).collect();
        let done = env.change(|switch, now| (switch.bundle_apply(bridge, &items, now), Vec::new()));
        if let Err(failed) = done {
            let message = starts.get(failed.at).and_then(|at| message_at(&self.messages, *at));
            return Err((failed.error, message.unwrap_or_default().to_vec()));
        }
        for change in changes {
            match change {
                Change::Port(change) => self.later.push(Body::PortMod(change)),
                Change::PacketOut(packet) => self.later.push(Body::PacketOut(packet)),
                Change::Flow(_) | Change::Group(_) => {}
            }
        }
        Ok(())
    }

    /// Ends a commit whose connection has gone: what was not committed never was.
    pub(crate) fn give_up(self, core: &mut Core, env: &impl Env) {
        let bridge = core.config.bridge.clone();
        if self.phase == Phase::Apply {
            env.change(|switch, _| (switch.bundle_abort(&bridge), Vec::new()));
        }
        if self.phase != Phase::Begin {
            let settle = || env.change(|switch, now| (switch.bundle_settle(&bridge, SETTLE, now), Vec::new()));
            while !settle() {}
        }
        core.take_events(env, None);
        core.committing = None;
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

/// The message that begins at a place.
fn message_at(messages: &[u8], at: usize) -> Option<&[u8]> {
    let rest = messages.get(at..)?;
    let [_, _, a, b, ..] = rest.first_chunk::<HEADER_LEN>()?;
    rest.get(..usize::from(u16::from_be_bytes([*a, *b])))
}

fn xid_of(message: &[u8]) -> u32 {
    let xid = message.get(4..HEADER_LEN).and_then(|xid| xid.try_into().ok());
    xid.map_or(0, u32::from_be_bytes)
}
