//! The fast reader of plain packets: TCP or UDP over IPv4 without tags, options and fragments.
//! Their fields have fixed places. The result is that of the walk, which a property test checks.

use crate::field::{Field, word};
use crate::key::Key;
use crate::meta::PacketMeta;
use wire::headers::Frag;

/// The words of an untagged Ethernet header.
const ETHERNET: [usize; 4] = [
    Field::InPort.word(),
    Field::EthDst.word(),
    Field::EthSrc.word(),
    Field::VlanTpid0.word(),
];
/// The words of a plain packet's headers behind Ethernet.
const IP: usize = Field::IpProto.word();
const ADDRESSES: usize = Field::Ipv4Src.word();
const TRANSPORT: usize = Field::TpSrc.word();

/// The words of a plain packet's key.
#[derive(Clone, Copy)]
pub(super) struct Plain {
    ethernet: [u64; ETHERNET.len()],
    ip: u64,
    addresses: u64,
    transport: u64,
}

impl Plain {
    /// `None` where the packet is not plain, or shorter than Ethernet, IPv4 and TCP's header: 54
    /// bytes.
    #[inline(always)]
    pub(super) fn read(data: &[u8], meta: &PacketMeta) -> Option<Plain> {
        let header: &[u8; 54] = data.first_chunk()?;
        // EtherType, version and header length, type of service, total length, identification: 16,
        // 8, 8, 16, 16 bits.
        let front = be64(header, 12);
        // Flags and fragment offset, time to live, protocol, checksum, half an address: 16, 8, 8,
        // 16, 16 bits.
        let back = be64(header, 20);
        let total_len = (front >> 16 & 0xffff) as usize;
        if front >> 40 != 0x08_0045 || back >> 48 & 0x3fff != 0 || total_len > data.len() - 14 {
            return None;
        }
        let flags = match back >> 32 & 0xff {
            6 => {
                let word = u64::from(u16::from_be_bytes([header[46], header[47]]));
                let header_len = (word >> 12) as usize * 4;
                if header_len < 20 || total_len < 20 + header_len {
                    return None;
                }
                word
            }
            17 if total_len >= 28 => 0,
            _ => return None,
        };
        let (addresses, ports) = (be64(header, 26), be64(header, 34) >> 32);
        let ethernet = ethernet(header.first_chunk()?, front >> 48, meta);
        let ip = word([
            (Field::IpProto, back >> 32),
            (Field::IpTos, front >> 32),
            (Field::IpTtl, back >> 40),
            (Field::IpFrag, Frag::No as u64),
        ]);
        let addresses = word([(Field::Ipv4Src, addresses >> 32), (Field::Ipv4Dst, addresses)]);
        let transport = word([
            (Field::TpSrc, ports >> 16),
            (Field::TpDst, ports),
            (Field::TcpFlags, flags),
        ]);
        Some(Plain {
            ethernet,
            ip,
            addresses,
            transport,
        })
    }

    /// Whether these words of a key are the same.
    #[inline(always)]
    pub(super) fn is_of(self, key: &Key) -> bool {
        // Word by word, addresses first, which is where most packets differ: a key that was just
        // written is slow to be read in larger pieces.
        let words = &key.words;
        words[ADDRESSES] == self.addresses
            && words[TRANSPORT] == self.transport
            && words[IP] == self.ip
            && begins_with(key, &self.ethernet)
    }

    #[inline(always)]
    pub(super) fn write(self, key: &mut Key) {
        write_ethernet(key, &self.ethernet);
        key.words[IP] = self.ip;
        key.words[ADDRESSES] = self.addresses;
        key.words[TRANSPORT] = self.transport;
    }
}

/// Whether a packet has the length, the headers and the metadata of the packet before it, which was
/// [`Same`](super::Reading::Same) itself. Then it has the same key. This is faster than to compare
/// keys, and says no to some packets with the same key.
#[inline(always)]
pub fn repeats((packet, meta): (&[u8], &PacketMeta), (before, meta_before): (&[u8], &PacketMeta)) -> bool {
    const UDP_OR_TCP: [u64; 2] = [0, 0xffff];
    // The packet before was `Same`: its metadata is plain.
    if !meta.is_plain() || word(origin(meta)) != word(origin(meta_before)) {
        return false;
    }
    let (Some(one), Some(other)) = (before.first_chunk::<54>(), packet.first_chunk::<54>()) else {
        return false;
    };
    // Eight bytes from there on, as far as a key has them.
    let differ = |at, mask| (be64(one, at) ^ be64(other, at)) & mask;
    // Without the identification and the checksum, and what of TCP is not its flags.
    let flags = UDP_OR_TCP[usize::from(one[23] == 6)];
    let front = differ(0, u64::MAX) | differ(8, u64::MAX) | differ(16, 0xffff_0000_ffff_ffff);
    let back = differ(26, u64::MAX) | differ(30, u64::MAX) | differ(40, flags);
    front | back == 0 && before.len() == packet.len()
}

/// Whether a key has these words of an Ethernet header.
#[inline(always)]
fn begins_with(key: &Key, words: &[u64; ETHERNET.len()]) -> bool {
    // Addresses first: they differ most often.
    let same = |n: usize| key.words[ETHERNET[n]] == words[n];
    same(2) && same(1) && same(0) && same(3)
}

/// Writes the words of an Ethernet header to a key.
#[inline(always)]
fn write_ethernet(key: &mut Key, words: &[u64; ETHERNET.len()]) {
    for (n, word) in ETHERNET.into_iter().zip(*words) {
        key.words[n] = word;
    }
}

/// The fields that say where a packet comes from.
#[inline(always)]
pub(super) fn origin(meta: &PacketMeta) -> [(Field, u64); 2] {
    [
        (Field::InPort, meta.in_port.0.into()),
        (Field::RecircId, meta.recirc_id.into()),
    ]
}

#[inline(always)]
fn ethernet(header: &[u8; 14], kind: u64, meta: &PacketMeta) -> [u64; ETHERNET.len()] {
    [
        word(origin(meta)),
        word([(Field::EthDst, be64(header, 0) >> 16), (Field::EthType, kind)]),
        word([(Field::EthSrc, be64(header, 6) >> 16), (Field::VlanTci0, 0)]),
        word([(Field::VlanTpid0, 0)]),
    ]
}

/// Eight bytes from `at` on.
#[inline(always)]
fn be64<const N: usize>(header: &[u8; N], at: usize) -> u64 {
    // One load of eight bytes: the compiler makes several of single bytes.
    match header[at..].first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => unreachable!("the header has eight bytes there"),
    }
}
