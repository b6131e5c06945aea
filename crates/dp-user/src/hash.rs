//! Hashing of keys that an attacker chooses.
//!
//! The NH construction of UMAC/VHASH: pairs of words, each word with its own secret added, are
//! multiplied to 128 bits and summed. The chance that two keys collide does not depend on the keys,
//! and the multiplications do not wait for one another. A pair of words that is zero in every key
//! of a table adds a constant and can be left out. So can a pair that is zero in this key: if it is
//! not zero in another key, the sums differ by a product with secrets of its own.

use flow::{Field, KEY_WORDS, Key, Mask};
use smallvec::SmallVec;
use std::hash::{BuildHasher, RandomState};
use wire::EtherType;

/// Pairs of words in a key; the last word of an odd number is paired with zero.
const PAIRS: usize = KEY_WORDS.div_ceil(2);

/// The packets that have words of a pair that are not zero.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carrier {
    /// All pairs, or those of IPv4.
    Ipv4,
    /// Those of IPv6, and no others.
    Ipv6,
    /// Those from tunnels, and one that has words of connections too.
    Tunnel,
    /// Those that were tracked.
    Connection,
    Other,
}

const IPV4_PAIRS: [usize; 4] = pairs_of(Carrier::Ipv4);
const IPV6_PAIRS: [usize; 2] = pairs_of(Carrier::Ipv6);
const TUNNEL_PAIRS: [usize; 5] = pairs_of(Carrier::Tunnel);
const CONNECTION_PAIRS: [usize; 4] = pairs_of(Carrier::Connection);
const OTHER_PAIRS: [usize; PAIRS - 15] = pairs_of(Carrier::Other);
/// A word that is not zero in packets from tunnels, whose time to live is not zero.
const TUNNEL: usize = Field::TunTtl.word();
/// A word that is not zero in packets that were tracked.
const TRACKED: usize = Field::CtState.word();
/// Words of IPv4's pairs that are zero in most packets: tags and marks.
const RARE: [usize; 2] = [Field::VlanTpid0.word(), Field::PktMark.word()];
/// The other words of these pairs.
const COMMON: [usize; 2] = [RARE[0] ^ 1, RARE[1] ^ 1];
/// IPv4's pairs without these.
const FULL: [usize; 2] = {
    let (mut full, mut at, mut n) = ([0; 2], 0, 0);
    while n < IPV4_PAIRS.len() {
        let pair = IPV4_PAIRS[n];
        if pair != RARE[0] / 2 && pair != RARE[1] / 2 {
            full[at] = pair;
            at += 1;
        }
        n += 1;
    }
    full
};

/// The pairs of a carrier; it has `N`.
const fn pairs_of<const N: usize>(carrier: Carrier) -> [usize; N] {
    let (mut pairs, mut at, mut n) = ([0; N], 0, 0);
    while n < PAIRS {
        if carrier_of(n) as u8 == carrier as u8 {
            pairs[at] = n;
            at += 1;
        }
        n += 1;
    }
    assert!(at == N);
    pairs
}

const fn carrier_of(pair: usize) -> Carrier {
    use flow::Prerequisite as P;
    let (mut carrier, mut n) = (Carrier::Other, 0);
    while n < Field::ALL.len() {
        let info = Field::ALL[n].info();
        let last = info.word as usize;
        let first = if info.bits > 64 { last - 1 } else { last };
        if first / 2 == pair || last / 2 == pair {
            match info.prerequisite {
                P::None | P::Tag0 | P::Tag1 | P::Ipv4 | P::Ip | P::Ports | P::Tcp | P::Icmp => return Carrier::Ipv4,
                P::Ipv6 => carrier = Carrier::Ipv6,
                P::Tunnel => carrier = Carrier::Tunnel,
                P::Connection if carrier as u8 == Carrier::Tunnel as u8 => {}
                P::Connection => carrier = Carrier::Connection,
                P::Arp | P::Mpls | P::Pbb | P::Nsh | P::Bare | P::Nd => {}
            }
        }
        n += 1;
    }
    carrier
}

/// Secrets drawn once per table.
pub(crate) struct KeyHasher {
    secrets: [[u64; 2]; PAIRS],
}

impl KeyHasher {
    /// A hasher with secrets of its own, from the process's random state.
    pub(crate) fn new() -> KeyHasher {
        let random = RandomState::new();
        KeyHasher {
            secrets: std::array::from_fn(|n| [random.hash_one(2 * n), random.hash_one(2 * n + 1)]),
        }
    }

    /// The hash of all of a key. Words that are zero in it, or in any packet of its kind, are left
    /// out.
    #[inline(always)]
    pub(crate) fn whole(&self, key: &Key) -> u64 {
        let part = |sum: u128, n: usize| sum.wrapping_add(self.part(key, n));
        let across = |[a, b]: [usize; 2]| {
            let secret = [self.secrets[a / 2][a % 2], self.secrets[b / 2][b % 2]];
            product(key.words()[a], key.words()[b], &secret)
        };
        // Words that are rarely other than zero are paired with each other: a pair less for most
        // packets.
        let mut sum = FULL.into_iter().fold(across(COMMON), part);
        let [tag, marks] = RARE;
        let extra = key.words()[TUNNEL] | key.words()[TRACKED];
        if key.words()[tag] | key.words()[marks] | extra != 0 {
            if key.words()[tag] | key.words()[marks] != 0 {
                sum = sum.wrapping_add(across(RARE));
            }
            if key.words()[TUNNEL] != 0 {
                sum = TUNNEL_PAIRS.into_iter().fold(sum, part);
            } else if extra != 0 {
                sum = part(sum, TRACKED / 2);
            }
            if key.words()[TRACKED] != 0 {
                sum = CONNECTION_PAIRS.into_iter().fold(sum, part);
            }
        }
        let kind = EtherType(key.get(Field::EthType) as u16);
        if kind != EtherType::IPV4 {
            sum = IPV6_PAIRS.into_iter().fold(sum, part);
            // A neighbour solicitation has more.
            if kind != EtherType::IPV6 || key.get(Field::IpProto) == 58 {
                sum = OTHER_PAIRS.into_iter().fold(sum, part);
            }
        }
        finish(sum)
    }

    /// A pair's contribution to the sum.
    #[inline(always)]
    fn part(&self, key: &Key, n: usize) -> u128 {
        let [a, b] = pair(key.words(), n);
        product(a, b, &self.secrets[n])
    }

    /// A hash of a packet that recirculates with number `id` and had `hash` before. It reads no
    /// word of the key. It is not the hash of the whole key: the same key has another hash after
    /// another extraction or another recirculation.
    #[inline(always)]
    pub(crate) fn recirculated(&self, hash: u64, id: u32) -> u64 {
        finish(product(hash, id.into(), &self.secrets[Field::RecircId.word() / 2]))
    }

    /// The same where the packet was tracked meanwhile. Of what the tracker says it reads what may
    /// differ between packets with the same headers: state, zone, mark and label.
    #[inline(always)]
    pub(crate) fn recirculated_tracked(&self, hash: u64, key: &Key, id: u32) -> u64 {
        let [state, mark, label] = [Field::CtState, Field::CtMark, Field::CtLabel].map(Field::word);
        let across = |[a, b]: [usize; 2]| {
            let secret = [self.secrets[a / 2][a % 2], self.secrets[b / 2][b % 2]];
            product(key.words()[a], key.words()[b], &secret)
        };
        let sum = product(hash, id.into(), &self.secrets[Field::RecircId.word() / 2]);
        let sum = sum.wrapping_add(across([state, mark]));
        finish(sum.wrapping_add(across([label - 1, label])))
    }

    /// The hash of the bits of a key that a mask leaves.
    #[inline]
    pub(crate) fn masked(&self, key: &Key, mask: &MaskPairs) -> u64 {
        let mut sum = 0u128;
        for (n, words) in IPV4_PAIRS.into_iter().enumerate() {
            if mask.used >> n & 1 != 0 {
                let [a, b] = pair(key.words(), words);
                let (a, b) = (a & mask.front[2 * n], b & mask.front[2 * n + 1]);
                sum = sum.wrapping_add(product(a, b, &self.secrets[words]));
            }
        }
        for part in &mask.rest {
            let [a, b] = pair(key.words(), part.pair);
            let secret = &self.secrets[part.pair];
            sum = sum.wrapping_add(product(a & part.mask[0], b & part.mask[1], secret));
        }
        finish(sum)
    }
}

/// Words of a key that a packet of IPv4, or of an unknown protocol, may have, in the order of
/// [`IPV4_PAIRS`].
pub(crate) type Front = [u64; 2 * IPV4_PAIRS.len()];

/// These words of a key.
#[inline(always)]
pub(crate) fn front(words: &[u64; KEY_WORDS]) -> Front {
    // Written out: as a loop it stays one.
    let [a, b, c, d] = IPV4_PAIRS;
    [
        words[2 * a],
        words[2 * a + 1],
        words[2 * b],
        words[2 * b + 1],
        words[2 * c],
        words[2 * c + 1],
        words[2 * d],
        words[2 * d + 1],
    ]
}

/// A mask prepared for comparisons: the front, which is compared whole, and those pairs of the
/// other words in which the mask has bits.
pub(crate) struct MaskPairs {
    front: Front,
    /// Pairs of the front that it has bits in, a bit each.
    used: u8,
    rest: SmallVec<[Part; 2]>,
}

struct Part {
    pair: usize,
    mask: [u64; 2],
}

impl MaskPairs {
    pub(crate) fn new(mask: &Mask) -> MaskPairs {
        let rest = (0..PAIRS)
            .filter(|n| !IPV4_PAIRS.contains(n))
            .map(|n| Part {
                pair: n,
                mask: pair(mask.words(), n),
            })
            .filter(|part| part.mask != [0, 0])
            .collect();
        let front = front(mask.words());
        let used = |n: &usize| front[2 * n] | front[2 * n + 1] != 0;
        MaskPairs {
            used: (0..IPV4_PAIRS.len()).filter(used).map(|n| 1 << n).sum(),
            front,
            rest,
        }
    }

    /// Whether the front of `key` equals that of the masked key `masked` under the mask.
    #[inline(always)]
    pub(crate) fn front_matches(&self, key: &Key, masked: &Front) -> bool {
        let key = front(key.words());
        let mut difference = 0;
        for n in 0..masked.len() {
            difference |= (key[n] & self.front[n]) ^ masked[n];
        }
        difference == 0
    }

    /// Whether the mask has bits in the front only.
    #[inline(always)]
    pub(crate) fn is_front(&self) -> bool {
        self.rest.is_empty()
    }

    /// Whether the rest of `key` equals that of the masked key `masked` under the mask.
    #[inline]
    pub(crate) fn rest_matches(&self, key: &Key, masked: &Key) -> bool {
        self.rest.iter().all(|part| {
            let [a, b] = pair(key.words(), part.pair);
            [a & part.mask[0], b & part.mask[1]] == pair(masked.words(), part.pair)
        })
    }
}

#[inline(always)]
fn pair(words: &[u64; KEY_WORDS], n: usize) -> [u64; 2] {
    let second = if KEY_WORDS.is_multiple_of(2) || 2 * n + 1 < KEY_WORDS {
        words[2 * n + 1]
    } else {
        0
    };
    [words[2 * n], second]
}

#[inline(always)]
fn product(a: u64, b: u64, secret: &[u64; 2]) -> u128 {
    u128::from(a.wrapping_add(secret[0])) * u128::from(b.wrapping_add(secret[1]))
}

#[inline(always)]
fn finish(sum: u128) -> u64 {
    // Both ends are used, one as an index and one as a signature, so every bit of the sum has to
    // reach both.
    let folded = (sum as u64) ^ ((sum >> 64) as u64);
    let mixed = u128::from(folded) * 0x9e37_79b9_7f4a_7c15;
    (mixed as u64) ^ ((mixed >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{Field, PortNo};

    fn key(port: u32) -> Key {
        let mut key = Key::default();
        key.set(Field::InPort, u128::from(PortNo(port).0));
        key
    }

    #[test]
    fn keys_equal_under_a_mask_have_the_same_hash_and_match() {
        let hasher = KeyHasher::new();
        let mut mask = Mask::EMPTY;
        mask.add(Field::InPort);
        let pairs = MaskPairs::new(&mask);
        let mut other = key(7);
        other.set(Field::EthSrc, 0x0200_0000_0001);
        assert_eq!(hasher.masked(&key(7), &pairs), hasher.masked(&other, &pairs));
        assert_ne!(hasher.whole(&key(7)), hasher.whole(&other));
        assert!(pairs.is_front());
        assert!(pairs.front_matches(&other, &front(key(7).words())));
        assert!(!pairs.front_matches(&key(8), &front(key(7).words())));
    }

    #[test]
    fn recirculations_of_a_packet_and_of_others_have_hashes_of_their_own() {
        let hasher = KeyHasher::new();
        let mut hashes = std::collections::HashSet::new();
        for port in 0..100 {
            let hash = hasher.whole(&key(port));
            hashes.insert(hash);
            for id in [1, 2, u32::MAX] {
                let first = hasher.recirculated(hash, id);
                hashes.extend([first, hasher.recirculated(first, id)]);
                assert_eq!(first, hasher.recirculated(hash, id));
            }
        }
        assert_eq!(hashes.len(), 700);
    }

    #[test]
    fn each_bit_of_a_mask_is_hashed_and_compared() {
        let hasher = KeyHasher::new();
        for field in Field::ALL {
            let pairs = MaskPairs::new(&Mask::exact(*field));
            let mut other = key(0);
            other.set(*field, 1);
            let matches = |a: &Key, b: &Key| pairs.front_matches(a, &front(b.words())) && pairs.rest_matches(a, b);
            assert!(matches(&other, &other) && matches(&key(0), &key(0)));
            assert!(!matches(&other, &key(0)) && !matches(&key(0), &other), "{field:?}");
            assert_ne!(
                hasher.masked(&other, &pairs),
                hasher.masked(&key(0), &pairs),
                "{field:?}"
            );
        }
    }

    #[test]
    fn a_field_that_a_packet_of_its_kind_can_have_changes_the_hash() {
        let hasher = KeyHasher::new();
        for (kind, protocol) in [
            (0x800u16, 6u8),
            (0x86dd, 17),
            (0x86dd, 58),
            (0x806, 0),
            (0x8847, 0),
            (0x88e7, 0),
        ] {
            let mut key = key(1);
            key.set(Field::EthType, kind.into());
            key.set(Field::IpProto, protocol.into());
            for field in Field::ALL {
                use flow::Prerequisite as P;
                let has = match field.info().prerequisite {
                    P::None | P::Tag0 | P::Tag1 => true,
                    P::Arp => kind == 0x806,
                    P::Ipv4 => kind == 0x800,
                    P::Ipv6 => kind == 0x86dd,
                    P::Ip => matches!(kind, 0x800 | 0x86dd),
                    P::Ports | P::Tcp => matches!(protocol, 6 | 17),
                    P::Icmp | P::Nd => protocol == 58,
                    P::Mpls => kind == 0x8847,
                    P::Pbb => kind == 0x88e7,
                    P::Nsh => kind == 0x894f,
                    P::Bare => false,
                    P::Tunnel => key.get(Field::TunTtl) != 0,
                    P::Connection => key.get(Field::CtState) != 0,
                };
                let mut other = key;
                other.set(*field, key.get(*field) ^ 1);
                assert!(
                    !has || hasher.whole(&key) != hasher.whole(&other),
                    "{field:?} of {kind:x}"
                );
            }
        }
    }

    #[test]
    fn neighbouring_keys_spread_over_index_and_signature() {
        let hasher = KeyHasher::new();
        let hashes: Vec<u64> = (0..1000).map(|n| hasher.whole(&key(n))).collect();
        let distinct = |shift: u32| {
            let mut parts: Vec<u16> = hashes.iter().map(|h| (h >> shift) as u16).collect();
            parts.sort_unstable();
            parts.dedup();
            parts.len()
        };
        // 1000 balls in 65 536 bins meet about 8 times.
        assert!(distinct(0) > 950 && distinct(48) > 950);
    }

    #[test]
    fn the_empty_mask_matches_everything() {
        let pairs = MaskPairs::new(&Mask::EMPTY);
        assert!(pairs.front_matches(&key(1), &front(Key::default().words())) && pairs.is_front());
    }
}
