//! A connection: its negotiated version and settings, and what is queued on it.

use crate::asynchronous::Masks;
use crate::bundle::Bundles;
use crate::dump::Job;
use crate::limit::{Limit, PacketIns};
use crate::log::{self, FlowMods};
use crate::memory::REQUEST_REFUSED;
use crate::monitor::Monitors;
use crate::outbox::Outbox;
use crate::probe::Probe;
use nanos::Nanos;
use openflow::model::{Body, Message, PacketInFormat, Role, StatsRequest};
use openflow::{Codec, ErrorBody, ErrorKind, Framer, FramerError, Hello, OfError, Version, Versions, negotiate};
use std::time::Duration;
use telemetry::budget::Share;

/// A connection's number; the agent never uses it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub(crate) u64);

/// The kind of a connection's peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A controller that the switch connects to. It gets asynchronous messages without asking.
    Primary,
    /// A tool, or a controller that connects to the switch. It gets asynchronous messages after it
    /// has set a `miss_send_len` other than 0.
    Service,
    /// A peer that snoops on the messages of primary connections.
    Snoop,
}

/// The settings of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The kind of its peer.
    pub kind: Kind,
    /// Its name in logs.
    pub name: String,
    /// Whether a primary controller gets asynchronous messages before it asks
    /// (`Controller.enable_async_messages`).
    pub asynchronous: bool,
    /// The inactivity probe: after this silence the agent sends an echo request, and after the same
    /// time without an answer the connection ends; `None` for never.
    pub probe: Option<Duration>,
    /// The limit on the rate of its packet-ins.
    pub limit: Option<Limit>,
    /// The most packet-ins queued for it, at least 1; the bridge's setting if `None`.
    pub queue: Option<usize>,
    /// How long the peer may take to send its hello; `None` for any time.
    pub hello: Option<Duration>,
}

impl Options {
    /// Settings without limits and timeouts.
    pub fn new(kind: Kind, name: String) -> Options {
        Options {
            kind,
            name,
            asynchronous: true,
            probe: None,
            limit: None,
            queue: None,
            hello: None,
        }
    }
}

/// Why a connection has to end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// The stream cannot be cut into messages.
    #[error("{0}")]
    Framing(#[from] FramerError),
    /// The first message was not a hello.
    #[error("received message type {0} before hello")]
    NoHello(u8),
    /// The two sides have no version in common.
    #[error("no version in common: we support {ours:#04x}, the peer supports {theirs:#04x} (bit n for version n)")]
    NoVersion {
        /// Our versions.
        ours: u32,
        /// The peer's.
        theirs: u32,
    },
    /// The peer sent no hello in time.
    #[error("no hello in time")]
    HelloTimeout,
    /// The peer did not answer the inactivity probe.
    #[error("no response to inactivity probe")]
    ProbeTimeout,
    /// The peer left too many bytes unread.
    #[error("the peer is not reading; closing the connection")]
    NotReading,
    /// The connection does not exist.
    #[error("no such connection")]
    Gone,
}

/// The counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnStats {
    /// Received messages.
    pub received: u64,
    /// Sent and queued messages.
    pub sent: u64,
    /// Requests answered with an error.
    pub refused: u64,
    /// Packet-ins dropped, because its queue was full or by its limit.
    pub dropped: u64,
}

/// The most bytes of a multipart request whose parts are joined.
const MAX_PARTIAL: usize = 2 << 20;

/// How many bytes of a request an error quotes. The rest would not fit in a message.
const MAX_QUOTED: usize = 65_000;

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) id: ConnId,
    pub(crate) options: Options,
    pub(crate) framer: Framer,
    /// `None` until the hello.
    pub(crate) codec: Option<Codec>,
    pub(crate) versions: Versions,
    pub(crate) role: Role,
    pub(crate) miss_send_len: u16,
    pub(crate) masks: Option<Masks>,
    pub(crate) packet_in_format: PacketInFormat,
    pub(crate) controller_id: u16,
    pub(crate) out: Outbox,
    /// The most bytes that the peer may leave unread.
    pub(crate) most_unread: usize,
    /// A long answer or change under way; later requests wait for it.
    pub(crate) job: Option<Job>,
    /// A multipart request whose last part has not arrived.
    pub(crate) partial: Option<Partial>,
    pub(crate) stats: ConnStats,
    pub(crate) probe: Probe,
    /// When the hello must have arrived.
    pub(crate) hello_deadline: Option<Nanos>,
    /// Its share of the memory budget.
    pub(crate) share: Share,
    /// Whether the peer sent a request that means to control the bridge.
    pub(crate) admitted: bool,
    /// The queue of its packet-ins.
    pub(crate) packets: PacketIns,
    pub(crate) bundles: Bundles,
    pub(crate) monitors: Monitors,
    /// Whether its requests wait for another connection's commit.
    pub(crate) waits: bool,
    /// Why the connection has to end.
    pub(crate) closed: Option<Closed>,
    /// Messages of this primary connection to be copied to snooping connections.
    pub(crate) snooped: Vec<u8>,
    /// Whether a connection snoops on it.
    pub(crate) is_snooped: bool,
    /// Its flow mods, for the log.
    pub(crate) flow_mods: FlowMods,
}

/// The received parts of a multipart request.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) xid: u32,
    pub(crate) request: StatsRequest,
    pub(crate) len: usize,
    /// When the last part arrived.
    pub(crate) heard: Nanos,
}

/// The default `miss_send_len` of primary controllers.
const DEFAULT_MISS_SEND_LEN: u16 = 128;

impl Conn {
    /// Whether the next message may change what another connection's bundle changes. Until that
    /// bundle is committed, dumps of tables and groups show what packets see.
    pub(crate) fn is_next_a_change(&self) -> bool {
        let Some([_, kind, ..]) = self.framer.peek() else {
            return false;
        };
        match (self.version(), kind) {
            (None, _) => false,
            // Experimenter, configuration, flow mod, port mod (1.0) or group mod.
            (_, 4 | 9 | 14 | 15) => true,
            // Port mod, table mod, meter mod, bundles. OpenFlow 1.0 has other messages with these
            // numbers.
            (Some(version), 16 | 17 | 29 | 33 | 34) => version > Version::V10,
            _ => false,
        }
    }

    pub(crate) fn new(
        id: ConnId,
        options: Options,
        versions: Versions,
        queue: usize,
        share: Share,
        now: Nanos,
    ) -> Conn {
        let primary = options.kind == Kind::Primary && options.asynchronous;
        let mut conn = Conn {
            id,
            probe: Probe::new(options.probe, now),
            hello_deadline: options.hello.map(|patience| now + patience),
            share,
            admitted: false,
            packets: PacketIns::new(options.queue.unwrap_or(queue), options.limit, now),
            options,
            framer: Framer::new(),
            codec: None,
            versions,
            role: Role::Equal,
            miss_send_len: if primary { DEFAULT_MISS_SEND_LEN } else { 0 },
            masks: None,
            packet_in_format: PacketInFormat::Standard,
            controller_id: 0,
            out: Outbox::default(),
            most_unread: usize::MAX,
            job: None,
            partial: None,
            stats: ConnStats::default(),
            bundles: Bundles::default(),
            monitors: Monitors::default(),
            waits: false,
            closed: None,
            snooped: Vec::new(),
            is_snooped: false,
            flow_mods: FlowMods::default(),
        };
        let newest = versions.newest().unwrap_or(Version::V10);
        let hello = Hello {
            version: newest.number(),
            bitmap: Some(versions),
        };
        let body = Body::Hello(hello);
        conn.put(&Codec::new(newest).encode(&Message { xid: 1, body }));
        conn
    }

    /// The version agreed on.
    pub(crate) fn version(&self) -> Option<Version> {
        self.codec.map(|codec| codec.version)
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, xid: u32, body: Body) {
        if let Some(codec) = self.codec {
            let bytes = codec.encode(&Message { xid, body });
            self.put(&bytes);
        }
    }

    /// Logs how many flow mods came since the last such line, if there were any.
    pub(crate) fn log_flow_mods(&mut self, bridge: &str, now: Nanos) {
        if let Some(line) = self.flow_mods.take(now) {
            tracing::info!(target: "connmgr", "{}: {line}", log::full_name(bridge, &self.options.name));
        }
    }

    /// Sends an error that quotes the request, as far as it fits.
    pub(crate) fn refuse(&mut self, xid: u32, error: OfError, request: &[u8]) {
        self.stats.refused += 1;
        let quoted = &request[..request.len().min(MAX_QUOTED)];
        let body = ErrorBody {
            kind: ErrorKind::Known(error),
            data: quoted.to_vec(),
        };
        self.send(xid, Body::Error(body));
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.close_if_unread() {
            // So that the caller learns that the connection has to end.
            self.out.push(&[]);
            return;
        }
        self.stats.sent += 1;
        log::sent(&self.options.name, bytes);
        self.out.push(bytes);
        if self.is_snooped {
            self.snooped.extend_from_slice(bytes);
        }
    }

    /// Negotiates the version by the first message.
    pub(crate) fn greet(&mut self, message: &[u8]) -> Result<(), Closed> {
        let kind = message.get(1).copied().unwrap_or_default();
        let said = Codec::new(Version::V10).decode(message);
        let Ok(Message {
            body: Body::Hello(theirs),
            xid,
        }) = said
        else {
            return Err(Closed::NoHello(kind));
        };
        if let Some(version) = negotiate(self.versions, theirs) {
            log::negotiated(&self.options.name, version.number(), self.versions, theirs);
            self.codec = Some(Codec::new(version));
            self.hello_deadline = None;
            return Ok(());
        }
        let theirs_bits = theirs.bitmap.map_or(1 << (theirs.version & 31), Versions::bitmap);
        let closed = Closed::NoVersion {
            ours: self.versions.bitmap(),
            theirs: theirs_bits,
        };
        let said = Version::from_number(theirs.version.clamp(Version::V10.number(), Version::V15.number()));
        self.codec = Some(Codec::new(said.unwrap_or(Version::V10)));
        let text = closed.to_string();
        self.refuse(xid, OfError::HfcIncompatible, text.as_bytes());
        Err(closed)
    }

    /// Joins the parts of a multipart request. Returns the whole request after its last part.
    pub(crate) fn assemble(
        &mut self,
        xid: u32,
        more: bool,
        request: StatsRequest,
        len: usize,
        now: Nanos,
    ) -> Result<Option<StatsRequest>, OfError> {
        if (more || self.partial.is_some()) && self.share.grow(len).is_err() {
            self.partial = None;
            REQUEST_REFUSED.inc();
            return Err(OfError::BrcMultipartBufferOverflow);
        }
        let mut joined = match self.partial.take() {
            Some(partial) if partial.xid == xid => join(partial, request, len)?,
            // The peer did not finish the request before. It sends another one now.
            _ if !more => return Ok(Some(request)),
            _ => Partial {
                xid,
                request,
                len,
                heard: now,
            },
        };
        if !more {
            return Ok(Some(joined.request));
        }
        if joined.len > MAX_PARTIAL {
            return Err(OfError::BrcMultipartBufferOverflow);
        }
        joined.heard = now;
        self.partial = Some(joined);
        Ok(None)
    }
}

fn join(partial: Partial, request: StatsRequest, len: usize) -> Result<Partial, OfError> {
    let Partial {
        xid,
        request: first,
        len: before,
        heard,
    } = partial;
    let request = match (first, request) {
        (StatsRequest::TableFeatures(mut all), StatsRequest::TableFeatures(more)) => {
            all.extend(more);
            StatsRequest::TableFeatures(all)
        }
        (StatsRequest::FlowMonitor(mut all), StatsRequest::FlowMonitor(more)) => {
            all.extend(more);
            StatsRequest::FlowMonitor(all)
        }
        _ => return Err(OfError::BrcBadStat),
    };
    Ok(Partial {
        xid,
        request,
        len: before + len,
        heard,
    })
}
