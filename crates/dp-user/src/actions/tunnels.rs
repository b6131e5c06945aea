//! Outer headers of tunnels: put before packets, and taken off.

mod too_big;

use super::connections::{Spare, keep};
use super::{Actor, Context, ETHERNET, ethernet_len};
use crate::edit::edit_each;
use crate::flow_look::FlowSecret;
use crate::stats::DropSink;
use dp::{Action, DropCause, MAX_RECIRCULATIONS, TunnelPush, cause_of_refusal, tunnel_of, write_tunnel};
use flow::{Key, PacketMeta, PortNo};
use nanos::Nanos;
use netdev::{Csum, Frame, Gso, Offload, checksum};
use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use too_big::Answers;
use tunnel::format::ecn::{self, Ecn};
use tunnel::format::{Checksums, Format, Inner, Packet, decapsulate, inner_ip};
use wire::EtherType;

pub(super) use too_big::is_too_big;

/// Length of a VLAN tag.
const TAG: usize = 4;
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
    /// The last identification of IPv4 packets that may be fragmented, of all workers: the other
    /// end must not join fragments of two packets (RFC 6864 §4.3).
    identification: Arc<AtomicU16>,
}

impl TunnelSecrets {
    /// The identification of the next packet that may be fragmented.
    fn identify(&self) -> u16 {
        self.identification.fetch_add(1, Ordering::Relaxed)
    }
}

/// What a worker's tunnels need.
pub(crate) struct Tunnels {
    secrets: TunnelSecrets,
    /// The last identification of IPv4 packets that are not fragmented.
    identification: u16,
    answers: Answers,
}

impl Tunnels {
    pub(super) fn new(secrets: TunnelSecrets) -> Tunnels {
        Tunnels {
            secrets,
            identification: 0,
            answers: Answers::default(),
        }
    }

    /// Whether an ICMP error may be sent about a packet now.
    fn may_answer(&mut self, packet: &[u8], now: Nanos) -> bool {
        self.answers.take(self.secrets.flows.look(packet).hash as u32, now)
    }

    /// Runs actions that change packets and encapsulate them once, on packets that these do not
    /// [take apart](takes_apart). A packet without room for another header is left without a byte;
    /// returns whether there is such a packet.
    #[inline(never)]
    pub(super) fn edit_and_push(
        &mut self,
        edits: &[Action],
        frames: &mut [Frame],
        spare: &mut Spare,
        now: Nanos,
    ) -> bool {
        let pushes = |action: &Action| matches!(action, Action::TunnelPush(_));
        let (before, rest) = edits.split_at(edits.iter().position(pushes).unwrap_or(edits.len()));
        let mut lost = !before.is_empty() && edit_each(before, frames);
        if let [Action::TunnelPush(push), behind @ ..] = rest {
            for frame in &mut *frames {
                if frame.is_empty() || self.push(frame, push, spare, now).is_err() {
                    frame.truncate(0);
                    lost = true;
                }
            }
            lost |= !behind.is_empty() && edit_each(behind, frames);
        }
        lost
    }

    /// Puts outer headers before a packet that is no segment.
    #[inline]
    pub(super) fn push(
        &mut self,
        frame: &mut Frame,
        push: &TunnelPush,
        spare: &mut Spare,
        now: Nanos,
    ) -> Result<(), DropCause> {
        // The checksum lies in the inner packet, where no device would look for it.
        if matches!(frame.offload.csum, Csum::Partial { .. }) && checksum::fill(frame).is_err() {
            return Err(DropCause::Malformed);
        }
        let hash = self.hash(frame.data());
        if push.headers.inner() != Inner::Ethernet {
            frame.advance(ethernet_len(frame)).map_err(|_| DropCause::Malformed)?;
        }
        let identification = match &push.limit {
            Some(limit) if limit.fragments => self.secrets.identify(),
            _ => {
                self.identification = self.identification.wrapping_add(1);
                self.identification
            }
        };
        let packet = Packet {
            hash,
            identification,
            sequence: push.sequence.as_ref().map_or(0, |sequence| sequence.next()),
            time: (now.0 / ERSPAN_TIME) as u32,
            sum: None,
        };
        let len = push.headers.len();
        frame.offload = Offload::default();
        if frame.prepend(len).is_err() {
            make_room(frame, len);
        }
        frame.offload = Offload::ENCAPSULATED;
        push.headers
            .write(frame.data_mut(), &packet)
            .map_err(|_| DropCause::TooBig)?;
        if let Some(extra) = frame.meta.take_extra() {
            keep(spare, extra);
        }
        Ok(())
    }

    /// The hash by which the outer headers of a packet, or of one with these headers, are chosen.
    #[inline]
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
    pub(crate) fn pop(
        &self,
        frame: &mut Frame,
        port: PortNo,
        format: Format,
        spare: &mut Spare,
    ) -> Result<(), DropCause> {
        // A packet that is refused needs none.
        let mut meta = std::mem::take(&mut frame.meta);
        let ip = ethernet_len(frame);
        let data = frame.data().get(ip..).ok_or(DropCause::TunnelMalformed)?;
        let checksums = match frame.offload.csum {
            Csum::Unknown => Checksums::Verify,
            Csum::Valid | Csum::Partial { .. } => Checksums::Good,
        };
        let outer = decapsulate(format, data, checksums).map_err(cause_of_refusal)?;
        let (inner, tos) = (outer.inner, outer.tos);
        let (start, end) = (ip + outer.start, ip + outer.end);
        let tunnel = meta.renew_tunnel(port, || spare.pop().unwrap_or_default());
        write_tunnel(tunnel, &outer, &self.secrets.options);
        frame.meta = meta;
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
        Ok(())
    }
}

impl Actor {
    /// Takes the outer headers of packets off, none of which is an
    /// [outer segment](is_outer_segment). Those that have wrong ones are counted, and left without
    /// a byte; returns whether there are such packets.
    pub(crate) fn pop_tunnels(
        &mut self,
        frames: &mut [Frame],
        port: PortNo,
        format: Format,
        drops: DropSink<'_>,
    ) -> bool {
        let spare = &mut self.connections.spare;
        let mut lost = false;
        for frame in frames {
            if let Err(cause) = self.tunnels.pop(frame, port, format, spare) {
                drops.count(cause, 1);
                frame.truncate(0);
                lost = true;
            }
        }
        lost
    }
}

impl Context<'_> {
    /// Takes outer headers off, and recirculates the packet as one that a tunnel's port has
    /// received.
    #[inline(never)]
    pub(super) fn pop_tunnel(&mut self, frame: Frame, port: PortNo, format: Format) {
        if is_outer_segment(&frame) {
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
        let spare = &mut self.connections.spare;
        match self.tunnels.pop(&mut frame, port, format, spare) {
            Ok(()) => self.recirculated.push(frame),
            Err(cause) => self.dropped(cause),
        }
    }
}

/// Whether actions that encapsulate packets make something else of one of them than a packet with
/// more headers: it is a segment, or may be too long then.
pub(crate) fn takes_apart(actions: &[Action], frames: &[Frame]) -> bool {
    let (mut tags, mut limits) = (0, None);
    for action in actions {
        match action {
            Action::PushVlan(_) => tags += TAG,
            Action::TunnelPush(push) => {
                let most = push.limit.as_ref().map_or(u16::MAX, |limit| limit.mtu);
                let hidden = if push.headers.inner() == Inner::Ethernet {
                    0
                } else {
                    ETHERNET
                };
                limits = Some((usize::from(most) + ETHERNET + hidden, push.headers.len()));
            }
            _ => {}
        }
    }
    let Some((most, headers)) = limits else { return false };
    let apart = |frame: &Frame| frame.offload.gso != Gso::None || frame.len() + tags + headers > most;
    frames.iter().any(apart)
}

/// Whether it is an outer packet that a device is to segment.
#[inline]
pub(crate) fn is_outer_segment(frame: &Frame) -> bool {
    frame.offload.gso != Gso::None && !is_inner_segment(frame)
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

#[cfg(test)]
mod tests {
    use super::*;
    use dp::offload::PacketKind;
    use flow::Field;
    use proptest::prelude::*;
    use testkit::mac;

    const TUNNEL: PortNo = PortNo(9);

    fn inner(kind: usize) -> Vec<u8> {
        let packet = testkit::Packet::new(mac(3), mac(4));
        let packet = match kind % 2 {
            0 => packet.ipv4([10, 9, 0, 1].into(), [10, 9, 0, 2].into()),
            _ => packet.ipv6(1.into(), 2.into()),
        };
        match kind / 2 {
            0 => packet.udp(1000, 2000, b"some payload"),
            1 => packet.tcp(1000, 2000, 0x10, b"some payload"),
            _ => packet.echo(7, 1, b"some payload"),
        }
        .bytes()
    }

    fn outer(tos: u8, header: &[u8], inner: &[u8]) -> Vec<u8> {
        let mut packet = outer_of(false, true, header, inner);
        packet[15] = tos;
        with_sum(&mut packet);
        packet[40..42].fill(0);
        packet
    }

    fn outer_of(ipv6: bool, sum: bool, header: &[u8], inner: &[u8]) -> Vec<u8> {
        let packet = testkit::Packet::new(mac(1), mac(2));
        let (packet, udp) = match ipv6 {
            false => (packet.ipv4([172, 31, 0, 1].into(), [172, 31, 0, 2].into()), 34),
            true => (packet.ipv6(5.into(), 6.into()), 54),
        };
        let mut packet = packet.udp(0x8001, 4789, &[header, inner].concat()).bytes();
        if !sum {
            packet[udp + 6..udp + 8].fill(0);
        }
        packet
    }

    fn with_sum(packet: &mut [u8]) {
        packet[24..26].fill(0);
        let sum = testkit::checksum(&packet[14..34]);
        packet[24..26].copy_from_slice(&sum.to_be_bytes());
    }

    const VXLAN: [u8; 8] = [8, 0, 0, 0, 0, 0, 42, 0];
    const GENEVE: [u8; 16] = [2, 0, 0x65, 0x58, 0, 0, 42, 0, 1, 2, 3, 1, 9, 9, 9, 9];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// An offloaded flow out of a tunnel is not wider than both megaflows.
        #[test]
        fn packets_of_tunnels_of_one_kind_read_the_same(
            kind in 0..6_usize,
            geneve in any::<bool>(),
            ipv6 in any::<bool>(),
            sum in any::<bool>(),
            changes in prop::collection::vec((0..170_usize, any::<u8>(), any::<bool>()), 0..4),
        ) {
            let tunnels = Tunnels::new(TunnelSecrets::default());
            let formats = [
                (Format::Vxlan { gbp: true, gpe: false }, &VXLAN[..]),
                (Format::Geneve, &GENEVE[..]),
            ];
            let (format, header) = formats[usize::from(geneve)];
            let one = outer_of(ipv6, sum, header, &inner(kind));
            let mut other = one.clone();
            for (at, value, low) in changes {
                if let Some(byte) = other.get_mut(at) {
                    *byte = if low { byte.wrapping_add(value % 3) } else { value };
                }
            }
            if !ipv6 {
                with_sum(&mut other);
            }
            let of = |packet: &[u8]| PacketKind::of_tunnel(1, packet, format, false);
            prop_assert!(of(&one).is_some());
            if of(&one) == of(&other) {
                let read = |packet: &[u8]| {
                    let inner = tunnels.inner_key(&Frame::from_slice(packet), TUNNEL, format);
                    let outer = flow::extract(packet, &PortNo(3).into());
                    [inner, outer].map(|key| {
                        key.map(|mut key| {
                            key.set(Field::TcpFlags, 0);
                            key
                        })
                    })
                };
                prop_assert_eq!(read(&one), read(&other), "{:02x?}", other);
            }
        }

        /// The source port of an offloaded flow is that of its packets that workers sent.
        #[test]
        fn the_headers_of_a_kind_have_the_hash_of_its_packets(kind in 0..6_usize, port in any::<u16>()) {
            let tunnels = Tunnels::new(TunnelSecrets::default());
            let mut packet = inner(kind);
            let at = if kind % 2 == 0 { 34 } else { 54 };
            if kind < 4 {
                packet[at..at + 2].copy_from_slice(&port.to_be_bytes());
            }
            let kind = PacketKind::of(1, &packet).unwrap();
            prop_assert_eq!(tunnels.hash(kind.headers()), tunnels.hash(&packet));
        }
    }

    #[test]
    fn what_is_read_of_a_packet_is_what_is_left_of_it_without_outer_headers_unless_a_mark_changes_it() {
        let tunnels = Tunnels::new(TunnelSecrets::default());
        for (outer_tos, inner_tos, same) in [
            (0, 0, true),
            (2, 0, true),
            (2, 2, true),
            (0x28, 3, true),
            (3, 0, false),
            (3, 2, false),
            (1, 2, false),
        ] {
            let mut inside = inner(0);
            inside[15] = inner_tos;
            let mut frame = Frame::from_slice(&outer(outer_tos, &GENEVE, &inside));
            let key = tunnels.inner_key(&frame, TUNNEL, Format::Geneve);
            let popped = tunnels.pop(&mut frame, TUNNEL, Format::Geneve, &mut Spare::new());
            let left = flow::extract(frame.data(), &frame.meta).filter(|_| popped.is_ok());
            match same {
                true => assert_eq!(key, left, "{outer_tos} {inner_tos}"),
                false => assert_eq!(key, None, "{outer_tos} {inner_tos}"),
            }
        }
    }
}
