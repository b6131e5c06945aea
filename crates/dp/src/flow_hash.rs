//! The hash of a packet's flow by which the datapath chooses among buckets of a group.
//!
//! It has no secret seed: connections keep their bucket after a restart, and switches with the same
//! groups choose alike. A controller sets its own basis if senders must not predict the choice.

use flow::{Field, Key, mix};
use std::fmt;
use std::sync::Arc;
use wire::EtherType;

/// What the hash of a packet's flow depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FlowHash {
    /// Addresses, protocol and ports of an IP packet; the Ethernet addresses and the type of
    /// another. Fragments count without their ports: all of a packet have one hash.
    L4 {
        /// Changes the hash.
        basis: u32,
    },
    /// As [`FlowHash::L4`], the same for both directions of a flow.
    SymmetricL4 {
        /// Changes the hash.
        basis: u32,
    },
    /// Some bits of some fields.
    Fields(Arc<FieldsHash>),
}

/// The fields of a hash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldsHash {
    /// Changes the hash.
    pub basis: u64,
    /// Fields, with the bits that count.
    pub fields: Vec<(Field, u128)>,
}

impl FlowHash {
    /// The part of the hash that a recirculation id carries.
    #[inline]
    pub fn short(&self, key: &Key) -> u8 {
        (self.of(key) >> 32) as u8
    }

    /// The hash of a packet with this key.
    #[inline]
    pub fn of(&self, key: &Key) -> u64 {
        match self {
            FlowHash::L4 { basis } => of_flow(key, *basis, mix),
            FlowHash::SymmetricL4 { basis } => of_flow(key, *basis, |src, dst| mix(src ^ dst, src.wrapping_add(dst))),
            FlowHash::Fields(of) => of.fields.iter().fold(of.basis, |hash, (field, bits)| {
                let value = key.get(*field) & bits;
                mix(mix(hash, (value >> 64) as u64), value as u64)
            }),
        }
    }

    /// The fields that the hash of this packet reads, with the bits of each.
    pub fn reads(&self, key: &Key) -> Vec<(Field, u128)> {
        use Field as F;
        let (kind, more): (Field, &[Field]) = match self {
            FlowHash::Fields(of) => return of.fields.clone(),
            _ => match EtherType(key.get(F::EthType) as u16) {
                EtherType::IPV4 => (
                    F::EthType,
                    &[F::Ipv4Src, F::Ipv4Dst, F::IpProto, F::IpFrag, F::TpSrc, F::TpDst],
                ),
                EtherType::IPV6 => (
                    F::EthType,
                    &[F::Ipv6Src, F::Ipv6Dst, F::IpProto, F::IpFrag, F::TpSrc, F::TpDst],
                ),
                _ => (F::EthType, &[F::EthSrc, F::EthDst]),
            },
        };
        let has_ports = key.get(F::IpFrag) == 0;
        let counts = |field: &&Field| has_ports || !matches!(field, F::TpSrc | F::TpDst);
        let more = more.iter().filter(counts).copied();
        std::iter::once(kind)
            .chain(more)
            .map(|field| (field, field.max_value()))
            .collect()
    }
}

/// The hash of addresses, protocol and ports; `pair` hashes both ends.
#[inline]
fn of_flow(key: &Key, basis: u32, pair: impl Fn(u64, u64) -> u64) -> u64 {
    let get = |field| key.get(field) as u64;
    let kind = EtherType(get(Field::EthType) as u16);
    let start = u64::from(basis) << 32 | u64::from(kind.0);
    if !matches!(kind, EtherType::IPV4 | EtherType::IPV6) {
        return mix(start, pair(get(Field::EthSrc), get(Field::EthDst)));
    }
    // Protocols without ports have zeros there, or a type.
    let ports = match key.get(Field::IpFrag) {
        0 => (get(Field::TpSrc), get(Field::TpDst)),
        _ => (0, 0),
    };
    let start = start | get(Field::IpProto) << 16;
    if kind == EtherType::IPV4 {
        // An end is an address and a port.
        let src = get(Field::Ipv4Src) << 16 | ports.0;
        let dst = get(Field::Ipv4Dst) << 16 | ports.1;
        return mix(start, pair(src, dst));
    }
    let (src, dst) = (key.get(Field::Ipv6Src), key.get(Field::Ipv6Dst));
    let high = pair((src >> 64) as u64, (dst >> 64) as u64);
    let low = pair(src as u64, dst as u64);
    mix(mix(mix(start, pair(ports.0, ports.1)), high), low)
}

/// Prints as in Open vSwitch; a hash of chosen fields is printed in the same way.
impl fmt::Display for FlowHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlowHash::L4 { basis } => write!(f, "hash(l4({basis}))"),
            FlowHash::SymmetricL4 { basis } => write!(f, "hash(sym_l4({basis}))"),
            FlowHash::Fields(of) => {
                write!(f, "hash(fields({:#x}", of.basis)?;
                for (field, bits) in &of.fields {
                    write!(f, ",{}", field.info().name)?;
                    if *bits != field.max_value() {
                        write!(f, "/{bits:#x}")?;
                    }
                }
                f.write_str("))")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(fields: &[(Field, u128)]) -> Key {
        let mut key = Key::ZERO;
        for (field, value) in fields {
            key.set(*field, *value);
        }
        key
    }

    fn of(kind: u128, src: u128, dst: u128, ports: (u128, u128)) -> Key {
        let (from, to) = match kind {
            0x800 => (Field::Ipv4Src, Field::Ipv4Dst),
            _ => (Field::Ipv6Src, Field::Ipv6Dst),
        };
        key(&[
            (Field::EthType, kind),
            (from, src),
            (to, dst),
            (Field::IpProto, 6),
            (Field::TpSrc, ports.0),
            (Field::TpDst, ports.1),
        ])
    }

    const KINDS: [fn(u32) -> FlowHash; 2] = [|basis| FlowHash::L4 { basis }, |basis| FlowHash::SymmetricL4 { basis }];

    #[test]
    fn a_symmetric_hash_is_that_of_both_directions_and_the_other_is_not() {
        for kind in [0x800, 0x86dd] {
            let (there, back) = (of(kind, 1, 2, (5, 80)), of(kind, 2, 1, (80, 5)));
            let [ordered, symmetric] = KINDS.map(|hash| hash(0));
            assert_eq!(symmetric.of(&there), symmetric.of(&back));
            assert_ne!(ordered.of(&there), ordered.of(&back));
            for hash in [&ordered, &symmetric] {
                assert_ne!(hash.of(&there), hash.of(&of(kind, 1, 2, (6, 80))));
                assert_ne!(hash.of(&there), hash.of(&of(kind, 1, 3, (5, 80))));
            }
        }
        let ethernet = |src, dst| key(&[(Field::EthType, 0x806), (Field::EthSrc, src), (Field::EthDst, dst)]);
        let symmetric = FlowHash::SymmetricL4 { basis: 0 };
        assert_eq!(symmetric.of(&ethernet(1, 2)), symmetric.of(&ethernet(2, 1)));
        assert_ne!(symmetric.of(&ethernet(1, 2)), symmetric.of(&ethernet(1, 3)));
    }

    #[test]
    fn all_fragments_of_a_packet_have_one_hash() {
        let mut first = of(0x800, 1, 2, (5, 80));
        first.set(Field::IpFrag, 1);
        let mut later = of(0x800, 1, 2, (0, 0));
        later.set(Field::IpFrag, 3);
        for hash in KINDS.map(|hash| hash(3)) {
            assert_eq!(hash.of(&first), hash.of(&later));
        }
    }

    #[test]
    fn the_short_hash_spreads_connections_evenly() {
        for (kind, hash) in [0x800, 0x86dd]
            .into_iter()
            .flat_map(|kind| KINDS.map(|hash| (kind, hash(0))))
        {
            let mut counts = [0u32; 16];
            for n in 0..16_000 {
                let (client, port) = (n % 250, 1024 + n / 7);
                counts[usize::from(hash.short(&of(kind, 0x0a00_0000 + client, 0x0a00_0001, (port, 80)))) % 16] += 1;
            }
            // Of 1000 expected, the deviation is about 31.
            assert!(
                counts.iter().all(|count| (850..1150).contains(count)),
                "{kind:x} {hash}: {counts:?}"
            );
        }
    }

    #[test]
    fn the_hash_depends_on_what_it_says_it_reads_and_on_nothing_else() {
        let fields = FlowHash::Fields(Arc::new(FieldsHash {
            basis: 7,
            fields: vec![(Field::Ipv4Src, 0xff00), (Field::TpDst, 0xffff)],
        }));
        for hash in [KINDS[0](1), KINDS[1](1), fields] {
            let base = of(0x800, 0x0102, 0x0304, (5, 80));
            let reads = hash.reads(&base);
            for field in Field::ALL {
                let bits = reads
                    .iter()
                    .find(|(read, _)| read == field)
                    .map_or(0, |(_, bits)| *bits);
                for bit in (0..field.info().bits).map(|bit| 1u128 << bit) {
                    let mut other = base;
                    other.set(*field, other.get(*field) ^ bit);
                    assert_eq!(
                        hash.of(&other) != hash.of(&base),
                        bits & bit != 0,
                        "{hash} {field:?} {bit:x}"
                    );
                }
            }
        }
    }
}
