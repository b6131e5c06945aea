//! Packets that are longer with their outer headers than the path of their tunnel takes.
//!
//! The outer packet is fragmented where the tunnel asks for it, or where every link has to carry
//! the inner packet. Any other packet is dropped, and its sender gets an ICMP error as from the
//! other end of the tunnel: the bridge receives the error by the tunnel, and forwards it like any
//! packet. As with the kernel's tunnels, the error has the options of the packet's outer headers.

use super::super::{Context, ETHERNET};
use super::IPV6_LEN;
use dp::{Action, DropCause, MAX_RECIRCULATIONS, TunnelPush};
use flow::{PacketMeta, Tunnel, TunnelDetails, TunnelOptionBytes};
use nanos::Nanos;
use netdev::{Frame, checksum};
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tunnel::format::{Inner, Kind};
use tunnel::path_mtu::{allow_fragments, answer, fragments, must_be_carried};
use wire::EtherType;
use wire::headers::behind_tags;

telemetry::counters! {
    /// ICMP errors to senders of packets that were too big for a tunnel.
    ANSWERED = "tunnel_too_big_answered";
    /// Outer packets that were fragmented.
    FRAGMENTED = "tunnel_fragmented";
}

/// Length of an IPv4 header.
const IPV4_LEN: usize = 20;
/// Lengths of the headers of UDP and of Geneve, which are before the options.
const BEFORE_OPTIONS: usize = 16;

/// Errors that a worker may send at once; it earns another one with each [`PERIOD`]
/// (RFC 1812 §4.3.2.8, RFC 4443 §2.4).
const BURST: u64 = 64;
/// In nanoseconds.
const PERIOD: u64 = 1_000_000;

/// Limits the errors of a worker.
pub(super) struct Answers {
    /// Errors that may be sent at the time `since`.
    left: u64,
    since: Nanos,
    /// The flow of the last error, and its time.
    last: Option<(u32, Nanos)>,
}

impl Default for Answers {
    fn default() -> Answers {
        Answers {
            left: BURST,
            since: Nanos::ZERO,
            last: None,
        }
    }
}

impl Answers {
    /// Whether an error may be sent to a flow. The packets of one batch get one: they are often
    /// segments of one large packet.
    pub(super) fn take(&mut self, flow: u32, now: Nanos) -> bool {
        let earned = now.since(self.since).as_nanos() as u64 / PERIOD;
        if earned > 0 {
            self.left = self.left.saturating_add(earned).min(BURST);
            self.since = now;
        }
        if self.left == 0 || self.last == Some((flow, now)) {
            return false;
        }
        self.left -= 1;
        self.last = Some((flow, now));
        true
    }
}

/// Whether a packet gets longer than the path of the tunnel takes.
#[inline]
pub(in super::super) fn is_too_big(frame: &Frame, push: &TunnelPush) -> bool {
    let Some(limit) = &push.limit else { return false };
    let hidden = match push.headers.inner() {
        Inner::Ethernet => 0,
        _ => super::ethernet_len(frame),
    };
    frame.len() - hidden.min(frame.len()) + push.headers.len() > usize::from(limit.mtu) + ETHERNET
}

impl Context<'_> {
    /// Does what is to be done with a packet that [`is_too_big`]; `rest` are the actions behind
    /// [`Action::TunnelPush`].
    #[cold]
    pub(in super::super) fn push_too_big(&mut self, mut frame: Frame, push: &TunnelPush, rest: &[Action]) {
        let Some(limit) = &push.limit else { return };
        if checksum::fill(&mut frame).is_err() {
            return self.dropped(DropCause::Malformed);
        }
        let (kind, start) = behind_tags(frame.data(), usize::MAX).unwrap_or((EtherType(0), ETHERNET));
        let packet = frame.data().get(start..).unwrap_or_default();
        let is_v4 = push.headers.bytes().get(ETHERNET).is_some_and(|first| first >> 4 == 4);
        if is_v4 && (limit.fragments || must_be_carried(kind, packet)) {
            return self.push_fragments(frame, push, limit.mtu.into(), rest);
        }
        let link = match push.headers.inner() {
            Inner::Ethernet => start,
            _ => 0,
        };
        let most = usize::from(limit.mtu).saturating_sub(push.headers.len() - ETHERNET + link);
        let to_many = frame.data().first().is_none_or(|first| first & 1 != 0);
        if limit.answers
            && self.depth < MAX_RECIRCULATIONS
            && !to_many
            && let Some(error) = answer(kind, packet, most)
            && self.tunnels.may_answer(frame.data(), self.now)
        {
            ANSWERED.inc();
            let secrets = &self.tunnels.secrets;
            let frame = received(&frame.data()[..start], &error, frame.meta.mark, push, &secrets.options);
            self.recirculated.push(frame);
        }
        self.dropped(DropCause::TunnelTooBig);
    }

    /// Sends a packet in fragments of its outer packet.
    fn push_fragments(&mut self, mut frame: Frame, push: &TunnelPush, mtu: usize, rest: &[Action]) {
        if let Err(cause) = self
            .tunnels
            .push(&mut frame, push, &mut self.connections.spare, self.now)
        {
            return self.dropped(cause);
        }
        let identification = self.tunnels.secrets.identify();
        let packet = frame.data_mut().get_mut(ETHERNET..);
        if !packet.is_some_and(|packet| allow_fragments(packet, identification)) {
            return self.dropped(DropCause::TunnelTooBig);
        }
        FRAGMENTED.inc();
        if push.underlay == push.port {
            // The host's stack makes the fragments.
            return self.steps(rest, frame, None);
        }
        let (link, packet) = frame.data().split_at(ETHERNET);
        let mut any = false;
        for piece in fragments(packet, mtu) {
            let mut fragment = Frame::from_slice(&[link, &piece].concat());
            fragment.meta = frame.meta.clone();
            self.steps(rest, fragment, None);
            any = true;
        }
        if !any {
            self.dropped(DropCause::TunnelTooBig);
        }
    }
}

/// An error as a packet that the tunnel has received, for the sender of a packet with this
/// Ethernet header and these tags.
fn received(link: &[u8], error: &[u8], mark: u32, push: &TunnelPush, secret: &impl BuildHasher) -> Frame {
    let mut link = link.to_vec();
    let is_ethernet = push.headers.inner() == Inner::Ethernet;
    if !is_ethernet {
        // The tunnel does not carry tags either.
        link.drain(12..link.len() - 2);
    }
    if let Some(addresses) = link.first_chunk_mut::<12>() {
        match is_ethernet {
            true => addresses.rotate_left(6),
            false => addresses.fill(0),
        }
    }
    let mut frame = Frame::from_slice(&[&link, error].concat());
    let mut meta = PacketMeta::received(push.port);
    meta.mark = mark;
    meta.extra_mut().tunnel = tunnel_back(push, is_ethernet, secret);
    frame.meta = meta;
    frame
}

/// The outer headers of a packet from the other end.
fn tunnel_back(push: &TunnelPush, is_ethernet: bool, secret: &impl BuildHasher) -> Option<Tunnel> {
    let ip = push.headers.bytes().get(ETHERNET..)?;
    let (dst, src, rest): (IpAddr, IpAddr, &[u8]) = match ip.first()? >> 4 {
        4 => {
            let address = |at: usize| Some(Ipv4Addr::from(*ip.get(at..)?.first_chunk::<4>()?));
            (address(12)?.into(), address(16)?.into(), ip.get(IPV4_LEN..)?)
        }
        _ => {
            let address = |at: usize| Some(Ipv6Addr::from(*ip.get(at..)?.first_chunk::<16>()?));
            (address(8)?.into(), address(24)?.into(), ip.get(IPV6_LEN..)?)
        }
    };
    let options = match push.kind {
        Kind::Geneve => rest.get(BEFORE_OPTIONS..).unwrap_or_default(),
        _ => &[],
    };
    let id = push.limit.as_ref().and_then(|limit| limit.id);
    let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
    Some(Tunnel {
        id: id.unwrap_or(0),
        src,
        dst,
        tp_src: 0,
        tp_dst: 0,
        tos: 0,
        ttl: 64,
        flags: flag(id.is_some(), Tunnel::KEY) | flag(!is_ethernet, Tunnel::NO_ETHERNET) | Tunnel::OWN_ERROR,
        details: TunnelDetails::None,
        options: TunnelOptionBytes::new(options, secret).unwrap_or_default(),
    })
}
