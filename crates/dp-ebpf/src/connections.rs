//! Connections that packets bypass, and the headers that packets get: the layouts of
//! `bpf/connection.h`.

use crate::shared::SharedArray;
use aya::Pod;
use conntrack::{Numbers, Passed};
use dp::offload::{FLOW_CONNECTIONS, FlowConnection, NewHeaders, Refused};
use nanos::Nanos;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Words of a `struct direction`, and their number.
const NUMBERS: usize = 0;
const WINDOW: usize = 1;
const PACKETS: usize = 2;
const BYTES: usize = 3;
const USED: usize = 4;
const DIRECTION_WORDS: usize = 8;
/// Words of a `struct connection`.
pub(crate) const CONNECTION_WORDS: usize = 2 * DIRECTION_WORDS;

/// `struct tracked`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Tracked {
    number: u32,
    reply: u8,
    tcp: u8,
    checks: u8,
    shift: u8,
    peer_shift: u8,
    unused: [u8; 3],
}

impl Tracked {
    pub(crate) fn of(connection: &FlowConnection) -> Tracked {
        let [shift, peer_shift] = connection.tcp.map_or([0; 2], |tcp| tcp.shifts);
        Tracked {
            number: connection.number,
            reply: connection.reply.into(),
            tcp: connection.tcp.is_some().into(),
            checks: connection.tcp.is_some_and(|tcp| tcp.decide).into(),
            shift,
            peer_shift,
            unused: [0; 3],
        }
    }

    /// Those of a flow; all are of TCP, or none is.
    ///
    /// # Errors
    /// [`Refused::Unsupported`].
    pub(crate) fn all(connections: &[FlowConnection]) -> Result<[Tracked; FLOW_CONNECTIONS], Refused> {
        let mut tracked = [Tracked::default(); FLOW_CONNECTIONS];
        if connections.len() > FLOW_CONNECTIONS {
            return Err(Refused::Unsupported("flow with so many connections"));
        }
        for (place, connection) in tracked.iter_mut().zip(connections) {
            *place = Tracked::of(connection);
        }
        let of_tcp = connections.iter().filter(|connection| connection.tcp.is_some()).count();
        match of_tcp == 0 || of_tcp == connections.len() {
            true => Ok(tracked),
            false => Err(Refused::Unsupported("connections of different protocols")),
        }
    }
}

/// `struct headers`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Headers {
    ticket: u32,
    changed: u32,
    ip: u32,
    addresses: u32,
    ports: u32,
    headers: [u8; 64],
}

// SAFETY: it is made of numbers without bytes between them, and any bytes are one.
unsafe impl Pod for Headers {}

const ETHERNET: u32 = 1;
const IP: u32 = 2;
const ADDRESSES: u32 = 4;
const PORTS: u32 = 8;
const IPV6: u32 = 16;
const OF_UDP: u32 = 32;
const UDP: u8 = 17;

impl Headers {
    pub(crate) fn of(headers: &NewHeaders, ticket: u32) -> Headers {
        let (old, new) = (headers.before(), headers.after());
        let v6 = headers.is_ipv6();
        // Type and hop limit, addresses, ports.
        let (protocol, addresses, ports) = match v6 {
            false => (23, 26..34, 34..38),
            true => (20, 22..54, 54..58),
        };
        let mut changed = if v6 { IPV6 } else { 0 };
        if new[protocol] == UDP {
            changed |= OF_UDP;
        }
        let before_addresses = 14..addresses.start;
        for (flag, part) in [
            (ETHERNET, 0..12),
            (IP, before_addresses),
            (ADDRESSES, addresses.clone()),
            (PORTS, ports.clone()),
        ] {
            if old[part.clone()] != new[part] {
                changed |= flag;
            }
        }
        let difference = |part: std::ops::Range<usize>| difference(&old[part.clone()], &new[part]);
        Headers {
            ticket,
            changed,
            ip: difference(14..addresses.end),
            addresses: difference(addresses),
            ports: difference(ports),
            headers: *new,
        }
    }
}

/// What is to be added to a sum of 16-bit words as they lie in memory, where old ones are replaced.
fn difference(old: &[u8], new: &[u8]) -> u32 {
    let words = |bytes: &[u8], invert: u16| -> u32 {
        let words = bytes.chunks_exact(2).map(|word| u16::from_ne_bytes([word[0], word[1]]));
        words.map(|word| u32::from(word ^ invert)).sum()
    };
    words(old, u16::MAX) + words(new, 0)
}

fn direction(row: &[AtomicU64], n: usize) -> &[AtomicU64] {
    &row[n * DIRECTION_WORDS..][..DIRECTION_WORDS]
}

/// Begins a connection.
pub(crate) fn reset(connections: &SharedArray, number: u32) {
    for word in connections.row(number) {
        word.store(0, Release);
    }
}

/// What has passed of a connection.
pub(crate) fn passed(connections: &SharedArray, number: u32) -> Passed {
    let row = connections.row(number);
    let of = |word: usize| [0, 1].map(|n| direction(row, n)[word].load(Acquire));
    let (numbers, windows) = (of(NUMBERS), of(WINDOW));
    Passed {
        packets: of(PACKETS),
        bytes: of(BYTES),
        used: Nanos(of(USED).into_iter().fold(0, u64::max)),
        numbers: [0, 1].map(|n: usize| Numbers {
            low: (numbers[n] >> 32) as u32,
            // The other direction says how far this one may go.
            high: numbers[1 - n] as u32,
            window: windows[n] as u16,
        }),
    }
}

/// Notes numbers, as far as they are later ones.
pub(crate) fn note(connections: &SharedArray, number: u32, numbers: [Numbers; 2]) {
    let row = connections.row(number);
    let is_first = (0..2).all(|n| direction(row, n)[WINDOW].load(Acquire) == 0);
    for n in 0..2 {
        let (own, peer) = (numbers[n], numbers[1 - n]);
        let words = direction(row, n);
        let written = Numbers {
            low: own.low,
            high: peer.high,
            window: own.window,
        };
        // A program may write at the same time: see `bpf/connection.h`.
        let merge = |old: u64| {
            let known = Numbers {
                low: (old >> 32) as u32,
                high: old as u32,
                window: 0,
            };
            let new = if is_first { written } else { known.later(written) };
            Some(u64::from(new.low) << 32 | u64::from(new.high))
        };
        // It always has a new value.
        let _ = words[NUMBERS].fetch_update(AcqRel, Relaxed, merge);
    }
    // Last: there are numbers when there is a window.
    for (n, numbers) in numbers.iter().enumerate() {
        direction(row, n)[WINDOW].fetch_max(numbers.window.max(1).into(), AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dp::offload::PacketKind;
    use testkit::{Packet, mac};
    use wire::checksum::Sum;

    #[test]
    fn differences_correct_the_checksums_of_any_packet() {
        let packet = Packet::new(mac(1), mac(2)).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let packet = packet.udp(1000, 2000, b"some payload").bytes();
        let mut headers = NewHeaders::of(&PacketKind::of(1, &packet).unwrap());
        let tuple = conntrack::Tuple::new([192, 168, 7, 9].into(), [10, 0, 0, 3].into(), 17, 7, 65_535).unwrap();
        headers.set_tuple(&tuple);
        let made = Headers::of(&headers, 1);
        assert_eq!(made.changed, ADDRESSES | PORTS | OF_UDP);
        let mut new = packet.clone();
        for (at, (old, byte)) in headers.before().iter().zip(headers.after()).enumerate() {
            if old != byte {
                new[at] = *byte;
            }
        }
        let add = |at: usize, differences: &[u32]| {
            let old = u16::from_ne_bytes([packet[at], packet[at + 1]]);
            let sum = differences.iter().fold(u64::from(!old), |sum, d| sum + u64::from(*d));
            (!Sum::ZERO.words(sum).fold()).to_ne_bytes()
        };
        let ip = add(24, &[made.ip]);
        new[24..26].copy_from_slice(&ip);
        let udp = add(40, &[made.addresses, made.ports]);
        new[40..42].copy_from_slice(&udp);
        assert_eq!(testkit::checksum(&new[14..34]), 0);
        let len = (new.len() - 34) as u16;
        let pseudo = [&new[26..34], &[0, 17], &len.to_be_bytes(), &new[34..]].concat();
        assert_eq!(testkit::checksum(&pseudo), 0);
    }
}
