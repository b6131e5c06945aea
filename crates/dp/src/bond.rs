//! Bonds whose member the datapath selects, by a hash of a packet's flow.

use flow::{Field, Key, PortNo};
use wire::EtherType;

/// Values of the hash.
pub const BOND_BUCKETS: usize = 256;

/// Odd numbers with half of their bits set: those of the golden ratio and of the root of 2.
const SECRETS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0x6a09_e667_f3bc_c909];

/// The members of a bond, by the hash of a packet's flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BondTable {
    /// Changes the hash.
    pub basis: u32,
    /// The member of each bucket; packets of a bucket without one are dropped under
    /// [`DropCause::PortDown`](crate::DropCause::PortDown).
    pub members: [Option<PortNo>; BOND_BUCKETS],
}

impl BondTable {
    /// The bucket of a packet ([`bucket_of_bond`]).
    #[inline]
    pub fn bucket(&self, key: &Key) -> u8 {
        bucket_of_bond(key, self.basis)
    }
}

/// The bucket of a packet in a bond: a hash of layers 2 to 4 that both directions of a flow share.
/// VLAN tags do not count, since bridges change them. Fragments have no ports: all fragments of a
/// packet leave by one member.
#[inline]
pub fn bucket_of_bond(key: &Key, basis: u32) -> u8 {
    let both = |a: Field, b: Field| key.get(a) ^ key.get(b);
    let kind = EtherType(key.get(Field::EthType) as u16);
    let stations = both(Field::EthSrc, Field::EthDst) as u64 ^ u64::from(kind.0) << 48;
    let mut hash = stations ^ u64::from(basis);
    let mut flow = 0;
    if matches!(kind, EtherType::IPV4 | EtherType::IPV6) {
        flow = (key.get(Field::IpProto) as u64) << 48;
        // Protocols without ports have zeros there, or a type.
        if key.get(Field::IpFrag) == 0 {
            flow |= (both(Field::TpSrc, Field::TpDst) as u64) << 32;
        }
        if kind == EtherType::IPV4 {
            flow |= both(Field::Ipv4Src, Field::Ipv4Dst) as u64;
        } else {
            let addresses = both(Field::Ipv6Src, Field::Ipv6Dst);
            hash = flow::mix(hash, (addresses >> 64) as u64);
            hash = flow::mix(hash, addresses as u64);
        }
    }
    // One multiplication for most packets, without mixing before it (NH): each packet pays for it.
    let product = u128::from(hash.wrapping_add(SECRETS[0])) * u128::from(flow.wrapping_add(SECRETS[1]));
    ((product >> 64) as u64 >> 24 ^ product as u64 >> 24) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(ethertype: u128, fields: &[(Field, u128)]) -> Key {
        let mut key = Key::ZERO;
        key.set(Field::EthType, ethertype);
        for (field, value) in fields {
            key.set(*field, *value);
        }
        key
    }

    fn bucket(key: &Key) -> u8 {
        let table = BondTable {
            basis: 7,
            members: [None; BOND_BUCKETS],
        };
        table.bucket(key)
    }

    #[test]
    fn both_directions_of_a_flow_share_a_bucket_and_flows_spread() {
        let mut used = [0u32; BOND_BUCKETS];
        for port in 0..10_000 {
            let forth = [
                (Field::EthSrc, 1),
                (Field::EthDst, 2),
                (Field::Ipv4Src, 3),
                (Field::Ipv4Dst, 4),
                (Field::IpProto, 6),
                (Field::TpSrc, port),
                (Field::TpDst, 80),
            ];
            let back = [
                (Field::EthSrc, 2),
                (Field::EthDst, 1),
                (Field::Ipv4Src, 4),
                (Field::Ipv4Dst, 3),
                (Field::IpProto, 6),
                (Field::TpSrc, 80),
                (Field::TpDst, port),
            ];
            let there = bucket(&key(0x0800, &forth));
            assert_eq!(there, bucket(&key(0x0800, &back)));
            used[usize::from(there)] += 1;
        }
        // 39 on average; five standard deviations are 31.
        assert!(used.iter().all(|n| (8..=70).contains(n)), "{used:?}");
    }

    #[test]
    fn fragments_of_a_packet_share_a_bucket() {
        let of = |frag: u128, port: u128| {
            bucket(&key(
                0x0800,
                &[(Field::IpProto, 17), (Field::IpFrag, frag), (Field::TpSrc, port)],
            ))
        };
        assert_eq!(of(1, 53), of(3, 0));
        assert_ne!(of(0, 53), of(0, 54));
    }

    #[test]
    fn tags_do_not_change_the_bucket() {
        let tagged = [
            (Field::EthSrc, 9),
            (Field::VlanTci0, 0x1005),
            (Field::VlanTpid0, 0x8100),
        ];
        assert_eq!(bucket(&key(0x0806, &tagged)), bucket(&key(0x0806, &tagged[..1])));
    }
}
