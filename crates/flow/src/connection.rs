//! The fields of a key that say which connection a packet belongs to.

use crate::field::{fill, words_of};
use crate::{Connection, Field, Key, OriginalTuple, Prerequisite};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

impl Connection {
    /// The bits of `ct_state` by their names, in the order in which they are printed.
    pub const STATES: [(&str, u16); 8] = [
        ("new", 0x01),
        ("est", 0x02),
        ("rel", 0x04),
        ("rpl", 0x08),
        ("inv", 0x10),
        ("trk", 0x20),
        ("snat", 0x40),
        ("dnat", 0x80),
    ];

    /// The names of the bits that are set, with `|` between them; empty if none is.
    pub fn names_of_state(state: u32) -> String {
        names_of_bits(&Connection::STATES, state)
    }

    /// The names of the bits in a mask, each with a sign that says whether it is set.
    pub fn signed_state(state: u32, mask: u32) -> String {
        signed_bits(&Connection::STATES, state, mask)
    }
}

/// The names of the bits of a table that are set, with `|` between them.
pub(crate) fn names_of_bits(table: &[(&str, u16)], bits: u32) -> String {
    let set = table.iter().filter(|(_, bit)| bits & u32::from(*bit) != 0);
    set.map(|(name, _)| *name).collect::<Vec<_>>().join("|")
}

/// The names of the bits of a table that are in a mask, each with `+` if it is set and `-` if not.
pub(crate) fn signed_bits(table: &[(&str, u16)], bits: u32, mask: u32) -> String {
    let known = table.iter().filter(|(_, bit)| mask & u32::from(*bit) != 0);
    let sign = |bit: u16| if bits & u32::from(bit) == 0 { '-' } else { '+' };
    known.map(|(name, bit)| format!("{}{name}", sign(*bit))).collect()
}

/// An address of IPv6; zero of another.
fn bits_of_v6(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(_) => 0,
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The words of connections: no other field lies in them.
const OF_CONNECTIONS: Range<usize> = words_of(Prerequisite::Connection);

/// Those of IPv6 addresses.
const OF_IPV6: Range<usize> = Field::CtIpv6Src.word() - 1..Field::CtIpv6Dst.word() + 1;

impl Key {
    /// Sets the fields of a connection; those that it does not have become zero.
    #[inline]
    pub fn set_connection(&mut self, connection: &Connection) {
        let (mut protocol, mut ports) = (0, [0; 2]);
        let mut addresses = [0; 2];
        self.words[OF_IPV6].fill(0);
        if let Some(original) = &connection.original {
            protocol = original.protocol.into();
            ports = [original.tp_src.into(), original.tp_dst.into()];
            match (original.src, original.dst) {
                (IpAddr::V4(src), IpAddr::V4(dst)) => addresses = [src.to_bits().into(), dst.to_bits().into()],
                (src, dst) => self.set_sides(src, dst),
            }
        }
        let fields = [
            (Field::CtState, connection.state.into()),
            (Field::CtProto, protocol),
            (Field::CtZone, connection.zone.into()),
            (Field::CtTpSrc, ports[0]),
            (Field::CtTpDst, ports[1]),
        ];
        let addresses = [(Field::CtIpv4Src, addresses[0]), (Field::CtIpv4Dst, addresses[1])];
        fill(&mut self.words, fields);
        fill(&mut self.words, [(Field::CtMark, connection.mark.into())]);
        fill(&mut self.words, addresses);
        self.set(Field::CtLabel, connection.label);
    }

    /// Sets the addresses of a connection of IPv6.
    #[inline(never)]
    fn set_sides(&mut self, src: IpAddr, dst: IpAddr) {
        self.set(Field::CtIpv6Src, bits_of_v6(src));
        self.set(Field::CtIpv6Dst, bits_of_v6(dst));
    }

    /// Takes the fields of a connection away: the packet is untracked.
    #[inline]
    pub fn clear_connection(&mut self) {
        self.words[OF_CONNECTIONS].fill(0);
    }

    /// The connection of a tracked packet; `None` if it has not passed the tracker. The tracker's
    /// number of it is in no key.
    pub fn connection(&self) -> Option<Connection> {
        let get = |field| self.get(field);
        if get(Field::CtState) == 0 {
            return None;
        }
        let addresses: Option<(IpAddr, IpAddr)> = if get(Field::CtIpv4Src) | get(Field::CtIpv4Dst) != 0 {
            let address = |field| Ipv4Addr::from_bits(get(field) as u32);
            Some((address(Field::CtIpv4Src).into(), address(Field::CtIpv4Dst).into()))
        } else if get(Field::CtIpv6Src) | get(Field::CtIpv6Dst) != 0 {
            let address = |field| Ipv6Addr::from_bits(get(field));
            Some((address(Field::CtIpv6Src).into(), address(Field::CtIpv6Dst).into()))
        } else {
            None
        };
        Some(Connection {
            state: get(Field::CtState) as u32,
            zone: get(Field::CtZone) as u16,
            mark: get(Field::CtMark) as u32,
            label: get(Field::CtLabel),
            original: addresses.map(|(src, dst)| OriginalTuple {
                src,
                dst,
                protocol: get(Field::CtProto) as u8,
                tp_src: get(Field::CtTpSrc) as u16,
                tp_dst: get(Field::CtTpDst) as u16,
            }),
            id: 0,
        })
    }
}

impl Field {
    /// The fields of connections.
    pub fn of_connections() -> impl Iterator<Item = Field> {
        Field::ALL.iter().copied().filter(|field| field.is_of_connection())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_comes_back_from_its_key() {
        let addresses: [(IpAddr, IpAddr); 2] = [
            ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
            (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::from_bits(5 << 70).into()),
        ];
        let tuples = addresses.map(|(src, dst)| OriginalTuple {
            src,
            dst,
            protocol: 6,
            tp_src: 65_535,
            tp_dst: 80,
        });
        for original in [None, Some(tuples[0]), Some(tuples[1])] {
            let connection = Connection {
                state: 0xa2,
                zone: 7,
                mark: 0xffff_fffe,
                label: 1 << 127 | 1,
                original,
                id: 0,
            };
            let mut key = Key::ZERO;
            key.set_connection(&connection);
            assert_eq!(key.connection(), Some(connection));
            key.clear_connection();
            assert_eq!(key, Key::ZERO);
        }
    }

    #[test]
    fn states_have_names() {
        assert_eq!(Connection::names_of_state(0x21), "new|trk");
        assert_eq!(Connection::signed_state(0x22, 0x33), "-new+est-inv+trk");
    }
}
