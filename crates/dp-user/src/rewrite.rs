//! Writes to header fields, and updates checksums.
//!
//! Checksums are updated by the difference of the data (RFC 1624), never computed from the whole
//! packet: a wrong one stays wrong, so that the switch does not hide a corrupted packet, and the
//! cost does not depend on the packet's length. If the transport checksum is pending
//! ([`Csum::Partial`]), its field holds the pseudo header's sum, and only this sum is updated. The
//! headers of a segment that a device will cut are changed once, for all parts.
//!
//! The checksum of an SCTP fragment cannot be updated, since it depends on the length of the rest.
//! The receiver drops such packets.

use crate::layers::{Layers, Network, Transport};
use dp::SetField;
use flow::Field;
use netdev::{Csum, Frame};
use wire::checksum::Sum;
use wire::crc32c;

/// Writes to a field; does nothing where the packet does not have it.
#[inline]
pub(crate) fn set_field(frame: &mut Frame, layers: &mut Layers, set: &SetField) {
    let at = match set.field() {
        Field::EthDst => 0,
        Field::EthSrc => 6,
        Field::PktMark => {
            frame.meta.mark = frame.meta.mark & !(set.mask() as u32) | set.value() as u32;
            return;
        }
        Field::SkbPriority => {
            frame.meta.priority = frame.meta.priority & !(set.mask() as u32) | set.value() as u32;
            return;
        }
        _ => return set_inner(frame, layers, set),
    };
    if let Some(bytes) = frame.data_mut().get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        write::<6>(bytes, set.value() as u64, set.mask() as u64);
    }
}

/// Writes to the outermost MPLS label stack entry.
pub(crate) fn set_mpls(frame: &mut Frame, layers: &mut Layers, lse: u32, mask: u32) {
    if layers.locate(frame.data()).network == Network::Mpls {
        let bytes = frame.data_mut()[layers.start..].first_chunk_mut();
        bytes.map(|bytes| write::<4>(bytes, (lse & mask).into(), mask.into()));
    }
}

/// The DSCP and ECN octet of an IP packet.
pub(crate) fn tos(frame: &Frame, layers: &mut Layers) -> Option<u8> {
    let layers = layers.locate(frame.data());
    let data = frame.data().get(layers.start..)?;
    match layers.network {
        Network::Ipv4 => Some(data[1]),
        Network::Ipv6 => Some(data[0] << 4 | data[1] >> 4),
        _ => None,
    }
}

/// A field's place: some whole 16-bit words of the packet, and what covers them.
struct Place {
    at: usize,
    /// In bytes: 2, 4, 6 or 16.
    len: usize,
    /// Position of the field's lowest bit in those bytes.
    shift: u32,
    covered: Covered,
}

/// The checksums that cover a field.
#[derive(Clone, Copy)]
enum Covered {
    Nothing,
    /// That of the IPv4 header.
    Header,
    /// That of the IPv4 header, and by the pseudo header that of the transport.
    Address4,
    /// By the pseudo header that of the transport.
    Address6,
    /// That of the transport.
    Transport,
}

fn set_inner(frame: &mut Frame, layers: &mut Layers, set: &SetField) {
    let layers = layers.locate(frame.data());
    let Some(place) = Place::find(set.field(), frame.data(), layers) else {
        return;
    };
    let Some(bytes) = frame.data_mut().get_mut(place.at..place.at + place.len) else {
        return;
    };
    let (mut value, mut mask) = ((set.value() as u64) << place.shift, (set.mask() as u64) << place.shift);
    match set.field() {
        // The field of a key is wider than that of the header.
        Field::NshTtl => (value, mask) = (value & 0xfc0, mask & 0xfc0),
        Field::NshFlags => (value, mask) = (value & 0x3000, mask & 0x3000),
        _ => {}
    }
    if set.field() == Field::VlanTci0 && mask != 0 {
        // A tag that is rewritten loses its drop eligible indicator.
        (value, mask) = (value & !0x1000, mask | 0x1000);
    }
    let change = match place.len {
        2 => write_slice::<2>(bytes, value, mask),
        4 => write_slice::<4>(bytes, value, mask),
        6 => write_slice::<6>(bytes, value, mask),
        _ => {
            let (high, low) = bytes.split_at_mut(8);
            let high = write_slice::<8>(high, (set.value() >> 64) as u64, (set.mask() >> 64) as u64);
            write_slice::<8>(low, value, mask).and(&high)
        }
    };
    if matches!(place.covered, Covered::Header | Covered::Address4) {
        update(frame.data_mut(), layers.start + 10, change.sum);
    }
    let Some(transport) = &layers.transport else { return };
    match place.covered {
        Covered::Nothing | Covered::Header => {}
        Covered::Address6 if set.field() == Field::Ipv6Dst && !transport.final_destination => {}
        // ICMP has no pseudo header.
        Covered::Address4 if transport.protocol == 1 => {}
        Covered::Address4 | Covered::Address6 => pseudo_header_changed(frame, transport, change.sum),
        Covered::Transport => transport_changed(frame, transport, &place, &change),
    }
}

impl Place {
    #[inline]
    fn find(field: Field, data: &[u8], layers: &Layers) -> Option<Place> {
        use Field as F;
        let network = |of: Network, at: usize, len: usize, shift: u32, covered: Covered| {
            let cut = layers.network == Network::Ipv6Cut && matches!(field, F::Ipv6Src | F::Ipv6Dst);
            (layers.network == of || of == Network::Ipv6 && cut).then_some(Place {
                at: layers.start + at,
                len,
                shift,
                covered,
            })
        };
        let transport = |protocols: &[u8], at: usize, len: usize, shift: u32| {
            let transport = layers.transport.as_ref()?;
            protocols.contains(&transport.protocol).then_some(Place {
                at: transport.start + at,
                len,
                shift,
                covered: Covered::Transport,
            })
        };
        match field {
            F::VlanTci0 => {
                let tagged = matches!(data.get(12..14)?, [0x81, 0] | [0x88, 0xa8] | [0x91, 0]);
                tagged.then_some(Place {
                    at: 14,
                    len: 2,
                    shift: 0,
                    covered: Covered::Nothing,
                })
            }
            F::IpTos if layers.network == Network::Ipv4 => network(Network::Ipv4, 0, 2, 0, Covered::Header),
            F::IpTos => network(Network::Ipv6, 0, 2, 4, Covered::Nothing),
            F::IpTtl if layers.network == Network::Ipv4 => network(Network::Ipv4, 8, 2, 8, Covered::Header),
            F::IpTtl => network(Network::Ipv6, 6, 2, 0, Covered::Nothing),
            F::Ipv6Label => network(Network::Ipv6, 0, 4, 0, Covered::Nothing),
            F::Ipv4Src => network(Network::Ipv4, 12, 4, 0, Covered::Address4),
            F::Ipv4Dst => network(Network::Ipv4, 16, 4, 0, Covered::Address4),
            F::Ipv6Src => network(Network::Ipv6, 8, 16, 0, Covered::Address6),
            F::Ipv6Dst => network(Network::Ipv6, 24, 16, 0, Covered::Address6),
            F::TpSrc => transport(&[6, 17, 132], 0, 2, 0),
            F::TpDst => transport(&[6, 17, 132], 2, 2, 0),
            F::TcpFlags => transport(&[6], 12, 2, 0),
            F::IcmpType => transport(&[1, 58], 0, 2, 8),
            F::IcmpCode => transport(&[1, 58], 0, 2, 0),
            F::ArpOp => network(Network::Arp, 6, 2, 0, Covered::Nothing),
            F::ArpSha => network(Network::Arp, 8, 6, 0, Covered::Nothing),
            F::ArpSpa => network(Network::Arp, 14, 4, 0, Covered::Nothing),
            F::ArpTha => network(Network::Arp, 18, 6, 0, Covered::Nothing),
            F::ArpTpa => network(Network::Arp, 24, 4, 0, Covered::Nothing),
            F::NdTarget => transport(&[58], neighbour_discovery(field, data, layers)?, 16, 0),
            F::NdSll | F::NdTll => transport(&[58], neighbour_discovery(field, data, layers)?, 6, 0),
            F::NdReserved => transport(&[58], neighbour_discovery(field, data, layers)?, 4, 0),
            F::NdOptionsType => transport(&[58], neighbour_discovery(field, data, layers)?, 2, 8),
            F::MplsLse0 => network(Network::Mpls, 0, 4, 0, Covered::Nothing),
            F::PbbIsid => network(Network::Pbb, 0, 4, 0, Covered::Nothing),
            F::PbbUca => network(Network::Pbb, 0, 4, 27, Covered::Nothing),
            F::NshFlags => network(Network::Nsh, 0, 2, 12, Covered::Nothing),
            F::NshTtl => network(Network::Nsh, 0, 2, 6, Covered::Nothing),
            F::NshSpi => network(Network::Nsh, 4, 4, 8, Covered::Nothing),
            F::NshSi => network(Network::Nsh, 4, 4, 0, Covered::Nothing),
            F::NshC1 | F::NshC2 | F::NshC3 | F::NshC4 => {
                // Only metadata type 1 has them.
                let at = match field {
                    F::NshC1 => 8,
                    F::NshC2 => 12,
                    F::NshC3 => 16,
                    _ => 20,
                };
                let is_fixed = data.get(layers.start + 2).is_some_and(|kind| kind & 0xf == 1);
                network(Network::Nsh, at, 4, 0, Covered::Nothing).filter(|_| is_fixed)
            }
            _ => None,
        }
    }
}

/// Offset of a field of a neighbour solicitation or advertisement from the ICMPv6 header, by the
/// rules of a key: an option without length, or one cut short, is the last; an option that comes
/// twice makes target and addresses unknown.
fn neighbour_discovery(field: Field, data: &[u8], layers: &Layers) -> Option<usize> {
    let transport = layers.transport.as_ref()?;
    let message = data.get(transport.start..transport.end)?;
    if transport.protocol != 58 || !matches!(message, [135 | 136, 0, ..]) {
        return None;
    }
    if field == Field::NdReserved {
        return Some(4);
    }
    if message.len() < 24 {
        return None;
    }
    let mut at = 24;
    let (mut sll, mut tll, mut first) = (None, None, None);
    while let Some(header) = message[at..].first_chunk::<8>() {
        let len = usize::from(header[1]) * 8;
        if len == 0 || len > message.len() - at {
            break;
        }
        let place = at + 2;
        at += len;
        let address = match header[0] {
            1 if len == 8 => &mut sll,
            2 if len == 8 => &mut tll,
            _ => continue,
        };
        if address.is_some_and(|place: usize| message[place..place + 6] != [0; 6]) {
            return None;
        }
        *address = Some(place);
        first.get_or_insert(place - 2);
    }
    match field {
        Field::NdTarget => Some(8),
        Field::NdSll => sll,
        Field::NdTll => tll,
        _ => first,
    }
}

/// The difference that a write made: a number of up to eight bytes, big-endian.
#[derive(Clone, Copy)]
struct Change {
    /// The sum of what came minus the sum of what went.
    sum: Sum,
    /// The old value XOR the new one, of the last bytes.
    xor: u64,
}

impl Change {
    const NONE: Change = Change { sum: Sum::ZERO, xor: 0 };

    fn and(self, other: &Change) -> Change {
        Change {
            sum: self.sum.and(other.sum),
            ..self
        }
    }
}

fn write_slice<const N: usize>(bytes: &mut [u8], value: u64, mask: u64) -> Change {
    match bytes.first_chunk_mut() {
        Some(bytes) => write::<N>(bytes, value, mask),
        None => Change::NONE,
    }
}

/// Writes the bits of `mask` to bytes that are read as a number, big-endian.
#[inline(always)]
fn write<const N: usize>(bytes: &mut [u8; N], value: u64, mask: u64) -> Change {
    let mut wide = [0; 8];
    wide[8 - N..].copy_from_slice(bytes);
    let old = u64::from_be_bytes(wide);
    let new = old & !mask | value;
    bytes.copy_from_slice(&new.to_be_bytes()[8 - N..]);
    let all = u64::MAX >> (64 - 8 * N);
    Change {
        sum: Sum::ZERO.words(!old & all).words(new),
        xor: old ^ new,
    }
}

/// Addresses of the pseudo header changed.
fn pseudo_header_changed(frame: &mut Frame, transport: &Transport, change: Sum) {
    match pending(frame, transport) {
        Some(at) => {
            if let Some(field) = frame.data_mut().get_mut(at..at + 2) {
                let sum = change.word(u16::from_be_bytes([field[0], field[1]])).fold();
                field.copy_from_slice(&sum.to_be_bytes());
            }
        }
        None => update_transport(frame, transport, change),
    }
}

/// Something behind the IP header changed.
fn transport_changed(frame: &mut Frame, transport: &Transport, place: &Place, change: &Change) {
    if pending(frame, transport).is_some() {
        return;
    }
    if transport.protocol != 132 {
        return update_transport(frame, transport, change.sum);
    }
    // SCTP's ports are its only writable fields.
    let delta = crc32c::delta(&(change.xor as u16).to_be_bytes(), transport.end - place.at - 2);
    let at = transport.start + 8;
    if !transport.fragment
        && let Some(field) = frame.data_mut()[at..].first_chunk_mut()
    {
        *field = (u32::from_le_bytes(*field) ^ delta).to_le_bytes();
    }
}

/// Offset of the field of a pending transport checksum.
fn pending(frame: &Frame, transport: &Transport) -> Option<usize> {
    match frame.offload.csum {
        Csum::Partial { start, offset } if usize::from(start) == transport.start => {
            Some(usize::from(start) + usize::from(offset))
        }
        _ => None,
    }
}

fn update_transport(frame: &mut Frame, transport: &Transport, change: Sum) {
    let Some(at) = transport.checksum().map(|at| transport.start + at) else {
        return;
    };
    let data = frame.data_mut();
    // A UDP datagram without a checksum has zero there, and one whose checksum is zero the other
    // form of zero (RFC 768).
    if transport.protocol == 17 {
        if data[at..at + 2] != [0, 0] {
            update(data, at, change);
            if data[at..at + 2] == [0, 0] {
                data[at..at + 2].fill(0xff);
            }
        }
    } else {
        update(data, at, change);
    }
}

/// Updates a checksum by the difference of the data (RFC 1624 equation 3).
fn update(data: &mut [u8], at: usize, change: Sum) {
    let old = u16::from_be_bytes([data[at], data[at + 1]]);
    let new = change.word(!old).finish();
    data[at..at + 2].copy_from_slice(&new.to_be_bytes());
}

#[cfg(test)]
#[path = "../tests/models/rewrite.rs"]
pub(crate) mod model;
#[cfg(test)]
mod tests;
