//! Outer headers of tunnels: put before packets, and taken off.

use super::{Context, ETHERNET, ethernet_len};
use crate::flow_look::FlowSecret;
use dp::{DropCause, MAX_RECIRCULATIONS, TunnelPush, cause_of_refusal, tunnel_of};
use flow::{Key, PacketMeta, PortNo};
use nanos::Nanos;
use netdev::{Csum, Frame, Gso, Offload, checksum};
use std::hash::RandomState;
use std::sync::Arc;
use tunnel::format::ecn::{self, Ecn};
use tunnel::format::{Checksums, Format, Inner, Packet, decapsulate, inner_ip};
use wire::EtherType;

/// Length of an IPv6 header.
const IPV6_LEN: usize = 40;

/// The unit of ERSPAN's time, in nanoseconds.
const ERSPAN_TIME: u64 = 100_000;

/// Secrets of the tunnels of a datapath.
#[derive(Clone, Default)]
pub(crate) struct TunnelSecrets {
    /// Of the hashes of options.
    options: RandomState,
    /// Of the hashes of flows, which choose outer source ports.
    flows: Arc<FlowSecret>,
}

/// What a worker's tunnels need.
pub(crate) struct Tunnels {
    secrets: TunnelSecrets,
    /// The last identification of IPv4.
    identification: u16,
}

impl Tunnels {
    pub(super) fn new(secrets: TunnelSecrets) -> Tunnels {
        Tunnels {
            secrets,
            identification: 0,
        }
    }

    /// Puts outer headers before a packet that is no segment.
    pub(super) fn push(&mut self, frame: &mut Frame, push: &TunnelPush, now: Nanos) -> Result<(), DropCause> {
        // The checksum lies in the inner packet, where no device would look for it.
        if matches!(frame.offload.csum, Csum::Partial { .. }) && checksum::fill(frame).is_err() {
            return Err(DropCause::Malformed);
        }
        let hash = self.hash(frame.data());
        if push.headers.inner() != Inner::Ethernet {
            frame.advance(ethernet_len(frame)).map_err(|_| DropCause::Malformed)?;
        }
        self.identification = self.identification.wrapping_add(1);
        let packet = Packet {
            hash,
            identification: self.identification,
            sequence: push.sequence.as_ref().map_or(0, |sequence| sequence.next()),
            time: (now.0 / ERSPAN_TIME) as u32,
            sum: None,
        };
        let len = push.headers.len();
        if frame.prepend(len).is_err() {
            make_room(frame, len);
        }
        frame.offload = Offload::default();
        push.headers
            .write(frame.data_mut(), &packet)
            .map_err(|_| DropCause::TooBig)?;
        frame.meta.take_extra();
        Ok(())
    }

    /// The hash by which the outer headers of a packet, or of one with these headers, are chosen.
    pub(crate) fn hash(&self, data: &[u8]) -> u32 {
        self.secrets.flows.look(data).hash as u32
    }

    /// The key of the Ethernet frame in a tunnel's packet that [`Tunnels::pop`] does not change;
    /// `None` for other packets.
    pub(crate) fn inner_key(&self, frame: &Frame, port: PortNo, format: Format) -> Option<Key> {
        let packet = frame.data().get(ethernet_len(frame)..)?;
        let outer = decapsulate(format, packet, Checksums::Good).ok()?;
        let inner = packet.get(outer.start..outer.end)?;
        if outer.inner != Inner::Ethernet {
            return None;
        }
        let marks = (Ecn::of_tos(outer.tos), Ecn::of_tos(inner_ip(inner, outer.inner)?.tos));
        if ecn::decapsulate(marks.0, marks.1) != Ok(marks.1) {
            return None;
        }
        let mut meta = PacketMeta::received(port);
        meta.mark = frame.meta.mark;
        meta.extra_mut().tunnel = Some(tunnel_of(&outer, &self.secrets.options));
        flow::extract(inner, &meta)
    }

    /// Takes the outer headers of a packet off: it is then one that the tunnel has received.
    pub(crate) fn pop(&self, frame: &mut Frame, port: PortNo, format: Format) -> Result<(), DropCause> {
        let ip = ethernet_len(frame);
        let data = frame.data().get(ip..).ok_or(DropCause::TunnelMalformed)?;
        let checksums = match frame.offload.csum {
            Csum::Unknown => Checksums::Verify,
            Csum::Valid | Csum::Partial { .. } => Checksums::Good,
        };
        let outer = decapsulate(format, data, checksums).map_err(cause_of_refusal)?;
        let (inner, tos) = (outer.inner, outer.tos);
        let (start, end) = (ip + outer.start, ip + outer.end);
        let mark = frame.meta.mark;
        let tunnel = tunnel_of(&outer, &self.secrets.options);
        if matches!(frame.offload.csum, Csum::Partial { start: at, .. } if usize::from(at) < start) {
            checksum::fill(frame).map_err(|_| DropCause::TunnelMalformed)?;
            frame.offload = Offload::default();
        }
        frame.truncate(end);
        match inner {
            // A message keeps its headers.
            Inner::Message => {}
            _ => frame.advance(start).map_err(|_| DropCause::TunnelMalformed)?,
        }
        if !matches!(frame.offload.csum, Csum::Partial { .. }) {
            frame.offload = Offload::default();
        }
        ecn::apply(frame.data_mut(), inner, tos).map_err(cause_of_refusal)?;
        if let Inner::Packet(kind) = inner {
            add_ethernet(frame, kind)?;
        }
        let mut meta = PacketMeta::received(port);
        meta.mark = mark;
        meta.extra_mut().tunnel = Some(tunnel);
        frame.meta = meta;
        Ok(())
    }
}

impl Context<'_> {
    /// Takes outer headers off, and recirculates the packet as one that a tunnel's port has
    /// received.
    #[inline(never)]
    pub(super) fn pop_tunnel(&mut self, frame: Frame, port: PortNo, format: Format) {
        if frame.offload.gso != Gso::None && !is_inner_segment(&frame) {
            for segment in self.completed(frame) {
                self.pop_tunnel(segment, port, format);
            }
            return;
        }
        self.settled = true;
        if self.depth >= MAX_RECIRCULATIONS {
            return self.dropped(DropCause::Recirculation);
        }
        let mut frame = frame;
        match self.tunnels.pop(&mut frame, port, format) {
            Ok(()) => self.recirculated.push(frame),
            Err(cause) => self.dropped(cause),
        }
    }
}

/// Whether it is the inner packet that a device is to segment, as the kernel's own tunnels leave
/// it: then the segment stays whole when the outer headers come off.
fn is_inner_segment(frame: &Frame) -> bool {
    let ip = ethernet_len(frame);
    let outer = match frame.data().get(ip) {
        Some(first) if first >> 4 == 4 => ip + usize::from(first & 0xf) * 4,
        // Behind extension headers, nobody knows.
        _ if !matches!(frame.data().get(ip + 6), Some(17 | 47)) => return false,
        _ => ip + IPV6_LEN,
    };
    matches!(frame.offload.csum, Csum::Partial { start, .. } if usize::from(start) > outer)
}

/// Gives a packet without an Ethernet header one with addresses of zero.
fn add_ethernet(frame: &mut Frame, kind: EtherType) -> Result<(), DropCause> {
    let header = frame.prepend(ETHERNET).map_err(|_| DropCause::TunnelMalformed)?;
    header.fill(0);
    header[12..].copy_from_slice(&kind.0.to_be_bytes());
    Ok(())
}

/// Moves a packet into a buffer with room for `len` bytes before it, which become its first.
#[cold]
pub(super) fn make_room(frame: &mut Frame, len: usize) {
    let mut bytes = vec![0; len];
    bytes.extend_from_slice(frame.data());
    let mut moved = Frame::from_slice(&bytes);
    moved.meta = std::mem::take(&mut frame.meta);
    *frame = moved;
}
