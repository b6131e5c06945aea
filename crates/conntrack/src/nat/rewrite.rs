//! Writes a tuple into a packet. Checksums change by the difference (RFC 1624), so that a wrong one
//! stays wrong.

use crate::checksum::Checksum;
use crate::packet::{Content, Inner, Parsed};
use crate::tuple::{ICMP, ICMPV6, SCTP, TCP, Tuple, UDP};
use std::net::IpAddr;
use wire::checksum::Sum;
use wire::crc32c;

/// Gives a packet of a connection this tuple. Of an ICMP error, the packet inside gets the reverse
/// of it, and outside the addresses change as those of other packets in this direction do: the
/// source too, since the address of a router behind a translated destination is not the client's
/// business.
pub(crate) fn translate(data: &mut [u8], parsed: &Parsed, to: &Tuple, sum: Checksum) {
    match parsed.content {
        Content::Error(inner) => error(data, parsed, inner, to, sum),
        _ if sum != Checksum::Partial && plain(data, parsed, to).is_some() => {}
        _ => drop(packet(data, 0, (parsed.l4, parsed.end), to, sum)),
    }
}

/// What [`packet`] does, for TCP and UDP over IPv4: the old tuple was read from the packet. `None`,
/// and nothing is changed, of other packets.
fn plain(data: &mut [u8], parsed: &Parsed, to: &Tuple) -> Option<()> {
    let at = match (to.protocol(), to.is_ipv6()) {
        (TCP, false) => 16,
        (UDP, false) => 6,
        _ => return None,
    };
    let (old, new) = (parsed.tuple.words(), to.words());
    let (header, body) = data.split_at_mut_checked(parsed.l4)?;
    let header: &mut [u8; 20] = header.first_chunk_mut()?;
    let checksum = body.get(at..at + 2)?;
    let addresses = change(old.0[0], new.0[0]);
    let both = addresses.and(change(old.1.into(), new.1.into()));
    let was = u16::from_be_bytes([checksum[0], checksum[1]]);
    if both != Sum::ZERO && !(at == 6 && was == 0) {
        let sum = both.word(!was);
        let sum = if at == 6 { sum.finish_udp() } else { sum.finish() };
        body[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    body[..4].copy_from_slice(&new.1.to_be_bytes());
    if addresses != Sum::ZERO {
        let sum = addresses.word(!u16::from_be_bytes([header[10], header[11]]));
        header[10..12].copy_from_slice(&sum.finish().to_be_bytes());
        header[12..20].copy_from_slice(&new.0[0].to_be_bytes());
    }
    Some(())
}

/// What a change adds to the sum of a packet: nothing if there is none.
#[inline]
fn change(old: u64, new: u64) -> Sum {
    match old == new {
        true => Sum::ZERO,
        false => Sum::ZERO.words(!old).words(new),
    }
}

fn error(data: &mut [u8], parsed: &Parsed, inner: Inner, to: &Tuple, sum: Checksum) {
    let inside = to.reverse();
    let body = packet(data, inner.ip, (inner.l4, parsed.end), &inside, Checksum::Verify);
    // What is inside is data of the outer packet.
    if sum != Checksum::Partial {
        adjust(data, parsed.l4 + 2, body, Field::Plain);
    }
    let changed = |new: IpAddr, old: IpAddr| (new != old).then_some(new);
    let outside = (
        changed(to.src(), parsed.tuple.src()),
        changed(to.dst(), parsed.tuple.dst()),
    );
    let (addresses, _) = write_addresses(data, 0, to.is_ipv6(), outside);
    if to.is_ipv6() {
        let field = if sum == Checksum::Partial {
            Field::Partial
        } else {
            Field::Plain
        };
        adjust(data, parsed.l4 + 2, addresses, field);
    }
}

/// Writes addresses and ports into the packet whose IP header is at `ip`, and fixes its checksums.
/// Returns the change of all its bytes.
fn packet(data: &mut [u8], ip: usize, (l4, end): (usize, usize), tuple: &Tuple, sum: Checksum) -> Sum {
    let both = (Some(tuple.src()), Some(tuple.dst()));
    let (addresses, header) = write_addresses(data, ip, tuple.is_ipv6(), both);
    let (src, dst) = (tuple.src_port().to_be_bytes(), tuple.dst_port().to_be_bytes());
    let old_ports: [u8; 4] = data
        .get(l4..l4 + 4)
        .and_then(|b| b.first_chunk())
        .copied()
        .unwrap_or_default();
    let ports = match tuple.protocol() {
        TCP | UDP | SCTP => write(data, l4, &[src[0], src[1], dst[0], dst[1]]),
        _ if tuple.is_icmp() => write(data, l4 + 4, &src),
        _ => Sum::ZERO,
    };
    // Behind an ICMP error's header only a part of the transport header may be there: a checksum
    // that is not there is not fixed.
    let has = |at: usize| at + 2 <= end;
    let (at, field) = match (tuple.protocol(), tuple.is_ipv6()) {
        (TCP, _) => (l4 + 16, Field::Plain),
        (UDP, _) => (l4 + 6, Field::Udp),
        (ICMP, false) | (ICMPV6, true) => (l4 + 2, Field::Plain),
        (SCTP, _) => {
            let crc = fix_crc(data, (l4, end), old_ports, sum);
            return addresses.and(header).and(ports).and(crc);
        }
        _ => return addresses.and(header),
    };
    // ICMP over IPv4 has no pseudo header.
    let pseudo = if tuple.protocol() == ICMP { Sum::ZERO } else { addresses };
    let fixed = match sum {
        _ if !has(at) => Sum::ZERO,
        Checksum::Partial => adjust(data, at, pseudo, Field::Partial),
        _ => adjust(data, at, pseudo.and(ports), field),
    };
    addresses.and(header).and(ports).and(fixed)
}

/// Writes the addresses that are given; returns their change and that of the header checksum.
fn write_addresses(data: &mut [u8], ip: usize, v6: bool, (src, dst): (Option<IpAddr>, Option<IpAddr>)) -> (Sum, Sum) {
    let (src_at, dst_at) = if v6 { (ip + 8, ip + 24) } else { (ip + 12, ip + 16) };
    let mut addresses = Sum::ZERO;
    for (at, address) in [(src_at, src), (dst_at, dst)] {
        let change = match address {
            Some(IpAddr::V4(address)) => write(data, at, &address.octets()),
            Some(IpAddr::V6(address)) => write(data, at, &address.octets()),
            None => Sum::ZERO,
        };
        addresses = addresses.and(change);
    }
    let header = match v6 {
        true => Sum::ZERO,
        false => adjust(data, ip + 10, addresses, Field::Plain),
    };
    (addresses, header)
}

/// The CRC of SCTP, which covers the ports (RFC 9260 §6.8), where the whole packet is there.
fn fix_crc(data: &mut [u8], (l4, end): (usize, usize), old: [u8; 4], sum: Checksum) -> Sum {
    let Some(body) = data
        .get(l4..end)
        .filter(|body| body.len() >= 12 && sum != Checksum::Partial)
    else {
        return Sum::ZERO;
    };
    let change: [u8; 4] = std::array::from_fn(|n| old[n] ^ body[n]);
    let crc: [u8; 4] = std::array::from_fn(|n| body[8 + n]);
    let crc = u32::from_le_bytes(crc) ^ crc32c::delta(&change, body.len() - 4);
    write(data, l4 + 8, &crc.to_le_bytes())
}

/// How a checksum stands in its field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    /// The complement of the sum.
    Plain,
    /// The same; 0 is no checksum.
    Udp,
    /// The sum of the pseudo header.
    Partial,
}

/// Adds a change to a checksum; returns the change of the field.
fn adjust(data: &mut [u8], at: usize, delta: Sum, field: Field) -> Sum {
    let Some(&[a, b]) = data.get(at..).and_then(|rest| rest.first_chunk()) else {
        return Sum::ZERO;
    };
    let old = u16::from_be_bytes([a, b]);
    if delta == Sum::ZERO || field == Field::Udp && old == 0 {
        return Sum::ZERO;
    }
    let new = match field {
        Field::Partial => delta.word(old).fold(),
        Field::Plain => delta.word(!old).finish(),
        Field::Udp => delta.word(!old).finish_udp(),
    };
    write(data, at, &new.to_be_bytes())
}

/// Writes bytes at an even distance from the beginning of what the checksum covers.
fn write(data: &mut [u8], at: usize, new: &[u8]) -> Sum {
    let Some(old) = data.get_mut(at..at + new.len()) else {
        return Sum::ZERO;
    };
    if old == new {
        return Sum::ZERO;
    }
    let word = |bytes: &[u8]| u16::from_be_bytes([bytes[0], bytes[1]]);
    let words = old.chunks_exact(2).zip(new.chunks_exact(2));
    let delta = words.fold(Sum::ZERO, |sum, (old, new)| sum.word(!word(old)).word(word(new)));
    old.copy_from_slice(new);
    delta
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::parse;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    proptest! {
        #[test]
        fn plain_packets_become_what_all_packets_become(
            tcp: bool,
            tuple: (u32, u32, u16, u16),
            same: (bool, bool),
            to: (u32, u32, u16, u16),
            sum: u16,
            none: bool,
            options in 0usize..3,
            payload in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let protocol = if tcp { TCP } else { UDP };
            let start = 20 + 4 * options;
            let mut data = vec![0; start];
            data[0] = 0x40 | (start / 4) as u8;
            data[9] = protocol;
            data[12..16].copy_from_slice(&tuple.0.to_be_bytes());
            data[16..20].copy_from_slice(&tuple.1.to_be_bytes());
            data.extend([tuple.2.to_be_bytes(), tuple.3.to_be_bytes()].concat());
            let sum = if none { 0 } else { sum }.to_be_bytes();
            match tcp {
                true => data.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 16, 1, 0, sum[0], sum[1], 0, 0]),
                false => data.extend([0, 8 + payload.len() as u8, sum[0], sum[1]]),
            }
            data.extend(payload);
            let len = data.len() as u16;
            data[2..4].copy_from_slice(&len.to_be_bytes());
            data[10..12].fill(0);
            let header = wire::checksum::checksum(&data[..start]);
            data[10..12].copy_from_slice(&header.to_be_bytes());
            let mut parsed = Parsed::BLANK;
            prop_assert_eq!(parse(&data, false, Checksum::Good, &mut parsed), Ok(()));
            let source = if same.0 { (tuple.0, tuple.2) } else { (to.0, to.2) };
            let target = if same.1 { (tuple.1, tuple.3) } else { (to.1, to.3) };
            let address = |bits| IpAddr::from(Ipv4Addr::from_bits(bits));
            let to = Tuple::new(address(source.0), address(target.0), protocol, source.1, target.1).unwrap();
            let mut other = data.clone();
            prop_assert!(plain(&mut data, &parsed, &to).is_some());
            packet(&mut other, 0, (parsed.l4, parsed.end), &to, Checksum::Good);
            prop_assert_eq!(data, other);
        }
    }
}
