//! A connection: what was agreed on it, and what waits on it.

use crate::asynchronous::Masks;
use crate::bundle::Bundles;
use crate::dump::Job;
use crate::limit::{Limit, PacketIns};
use crate::memory::REQUEST_REFUSED;
use crate::monitor::Monitors;
use crate::outbox::Outbox;
use crate::probe::Probe;
use openflow::model::{Body, Message, PacketInFormat, Role, StatsRequest};
use openflow::{Codec, ErrorBody, ErrorKind, Framer, FramerError, Hello, OfError, Version, Versions, negotiate};
use std::time::Duration;
use telemetry::budget::Share;
use wire::Nanos;

/// A connection's number, never used again in its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub(crate) u64);

/// What stands behind a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A controller that the switch connects to: it is told of packets, ports and ends of rules
    /// without asking.
    Primary,
    /// A tool, or a controller that connects to the switch: it is told when it has asked (a
    /// `miss_send_len` other than 0).
    Service,
    /// Somebody who listens to what is said with the controllers.
    Snoop,
}

/// How a connection is treated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What stands behind it.
    pub kind: Kind,
    /// Its name in logs.
    pub name: String,
    /// Whether a primary controller hears of anything before it asks
    /// (`Controller.enable_async_messages`).
    pub asynchronous: bool,
    /// After how long a silence the peer is asked whether it is there, and after how long without
    /// an answer the connection ends; `None` for never.
    pub probe: Option<Duration>,
    /// How many packets it is told of; any number without it.
    pub limit: Option<Limit>,
    /// How many packets may wait for it, at least 1; as the bridge says without it.
    pub queue: Option<usize>,
    /// How long the peer may take for its hello; any time without it.
    pub hello: Option<Duration>,
}

impl Options {
    /// A connection without limits, of which nothing is expected.
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
    /// The stream makes no sense.
    #[error("{0}")]
    Framing(#[from] FramerError),
    /// The first message was no hello.
    #[error("received message type {0} before hello")]
    NoHello(u8),
    /// There is no version that both sides have.
    #[error("no version in common: we support {ours:#04x}, the peer supports {theirs:#04x} (bit n for version n)")]
    NoVersion {
        /// Our versions.
        ours: u32,
        /// The peer's.
        theirs: u32,
    },
    /// The peer sent no hello in time.
    #[error("no hello in time")]
    NoGreeting,
    /// The peer did not answer when it was asked whether it is there.
    #[error("no response to inactivity probe")]
    Silent,
    /// The peer did not read for so long that what it has to be told does not fit any more.
    #[error("the peer does not read what it is told")]
    Stalled,
    /// There is no such connection.
    #[error("no such connection")]
    Gone,
}

/// What a connection has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnStats {
    /// Messages that came.
    pub received: u64,
    /// Messages that went, or wait to go.
    pub sent: u64,
    /// Requests answered with an error.
    pub refused: u64,
    /// Packets that it was not told of, for lack of room or by its limit.
    pub dropped: u64,
}

/// How long the list of what a multipart request asks in several messages may become, in bytes.
const MAX_PARTIAL: usize = 2 << 20;

/// How much of a request an error quotes: all but what is longer than a message with the error's
/// own headers can be.
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
    /// As many bytes as may wait to be sent: of what happens without its asking.
    pub(crate) most_unread: usize,
    /// A long answer, which the rest waits for.
    pub(crate) dump: Option<Job>,
    /// A request whose further parts are to come.
    pub(crate) partial: Option<Partial>,
    pub(crate) stats: ConnStats,
    pub(crate) probe: Probe,
    /// When the hello must be here.
    pub(crate) greet_by: Option<Nanos>,
    /// What it holds of the memory budget.
    pub(crate) share: Share,
    /// Whether it has asked for more than who we are.
    pub(crate) admitted: bool,
    /// Packets that it is to be told of.
    pub(crate) packets: PacketIns,
    pub(crate) bundles: Bundles,
    pub(crate) monitors: Monitors,
    /// Whether its requests wait for another connection's commit.
    pub(crate) waits: bool,
    /// Why nothing more is read.
    pub(crate) closed: Option<Closed>,
    /// What primary connections say, for those who listen.
    pub(crate) overheard: Vec<u8>,
    /// Whether somebody listens.
    pub(crate) tapped: bool,
}

/// A multipart request of which parts have come.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) xid: u32,
    pub(crate) request: StatsRequest,
    pub(crate) len: usize,
    /// When the last part came.
    pub(crate) heard: Nanos,
}

/// How much primary controllers are told of a packet without rule until they say otherwise.
const DEFAULT_MISS_SEND_LEN: u16 = 128;

impl Conn {
    /// Whether the next message may change what a bundle of another connection changes. Until that
    /// is there, what tables and groups are said to be is what packets see.
    pub(crate) fn is_next_a_change(&self) -> bool {
        let Some([_, kind, ..]) = self.framer.peek() else {
            return false;
        };
        match (self.version(), kind) {
            (None, _) => false,
            // Experimenters' messages, configuration, rules, ports or groups.
            (_, 4 | 9 | 14 | 15) => true,
            // Ports, tables, meters, bundles: OpenFlow 1.0 has other messages by these numbers.
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
            greet_by: options.hello.map(|patience| now + patience),
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
            dump: None,
            partial: None,
            stats: ConnStats::default(),
            bundles: Bundles::default(),
            monitors: Monitors::default(),
            waits: false,
            closed: None,
            overheard: Vec::new(),
            tapped: false,
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

    /// Refuses a request, which is quoted, as far as there is room.
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
            // Who serves it is to notice.
            self.out.push(&[]);
            return;
        }
        self.stats.sent += 1;
        self.out.push(bytes);
        if self.tapped {
            self.overheard.extend_from_slice(bytes);
        }
    }

    /// What a connection's first message says.
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
            self.codec = Some(Codec::new(version));
            self.greet_by = None;
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

    /// Puts the parts of a multipart request together. The whole request, when its last part is
    /// there.
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
            // Its asker never came to the end of it; what it asks next is another thing.
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
