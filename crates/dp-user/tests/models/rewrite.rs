//! Packets as the values of their fields: the expected result of a rewrite, computed without one.

use flow::{Field, Key, TAG_PRESENT};
use proptest::prelude::*;
use wire::crc32c;

/// A packet: its shape, and its fields' values.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) shape: Shape,
    pub(crate) values: Key,
}

#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// TPIDs from the outermost tag on.
    tags: Vec<u16>,
    /// The outermost tag has its drop eligible indicator set.
    dei: bool,
    snap: bool,
    pub(crate) net: Net,
    pub(crate) l4: L4,
    payload: Vec<u8>,
    /// Bytes behind the IP packet.
    padding: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum Net {
    Arp,
    /// A label stack entry; more of them may follow.
    Mpls,
    /// A backbone service instance tag.
    Pbb,
    /// So many bytes of options, and flags with fragment offset.
    V4(usize, u16),
    V6(Vec<Extension>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Extension {
    HopByHop,
    /// Segments left.
    Routing(u8),
    /// Offset and flags.
    Fragment(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum L4 {
    Tcp,
    /// With its checksum or without.
    Udp(bool),
    Sctp,
    Icmp,
    /// Which link-layer address options it has.
    Nd(bool, bool),
    /// An unknown protocol.
    Unknown,
}

/// Content of the transport's checksum field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sums {
    /// The checksum.
    Whole,
    /// The same as a device fills it in: never zero.
    Filled,
    /// The pseudo header's sum.
    Partial,
}

/// The final destination of packets with segments left.
const FINAL: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0bad;

impl Model {
    /// A frame to be cut into segments: TCP or UDP with a long payload.
    pub(crate) fn segment(v6: bool, udp: bool, payload: usize) -> Model {
        let mut values = Key::ZERO;
        for (number, field) in (1..).zip(Field::ALL) {
            values.set(*field, number * 0x0123_4567_89ab_cdef);
        }
        let shape = Shape {
            tags: Vec::new(),
            dei: false,
            snap: false,
            net: if v6 { Net::V6(Vec::new()) } else { Net::V4(0, 0) },
            l4: if udp { L4::Udp(true) } else { L4::Tcp },
            payload: (0..payload).map(|n| n as u8).collect(),
            padding: 0,
        };
        Model { shape, values }
    }

    /// Whether a length field precedes its type.
    pub(crate) fn is_snap(&self) -> bool {
        self.shape.snap
    }

    /// Whether the packet has a field.
    pub(crate) fn has(&self, field: Field) -> bool {
        use Field as F;
        let shape = &self.shape;
        let (v4, v6) = (matches!(shape.net, Net::V4(..)), matches!(shape.net, Net::V6(_)));
        let l4 = shape.has_l4();
        match field {
            F::EthDst | F::EthSrc => true,
            F::VlanTci0 => !shape.tags.is_empty(),
            F::ArpOp | F::ArpSha | F::ArpSpa | F::ArpTha | F::ArpTpa => matches!(shape.net, Net::Arp),
            F::MplsLse0 => matches!(shape.net, Net::Mpls),
            F::PbbIsid | F::PbbUca => matches!(shape.net, Net::Pbb),
            // The field is in the header itself; the other fields exist in packets made as
            // neighbour discovery.
            F::NdReserved => l4 && v6 && self.has_nd_type(),
            F::IpTos | F::IpTtl => v4 || v6,
            F::Ipv4Src | F::Ipv4Dst => v4,
            F::Ipv6Src | F::Ipv6Dst | F::Ipv6Label => v6,
            F::TpSrc | F::TpDst => l4 && matches!(shape.l4, L4::Tcp | L4::Udp(_) | L4::Sctp),
            F::TcpFlags => l4 && shape.l4 == L4::Tcp,
            F::IcmpType | F::IcmpCode => l4 && matches!(shape.l4, L4::Icmp | L4::Nd(..)),
            F::NdTarget => l4 && self.is_nd(),
            F::NdSll => l4 && self.is_nd() && matches!(shape.l4, L4::Nd(true, _)),
            F::NdTll => l4 && self.is_nd() && matches!(shape.l4, L4::Nd(_, true)),
            _ => false,
        }
    }

    fn is_nd(&self) -> bool {
        matches!(self.shape.l4, L4::Nd(..)) && self.has_nd_type()
    }

    /// Whether the type and code are of neighbour discovery, however the message was made.
    fn has_nd_type(&self) -> bool {
        let kind = (self.values.get(Field::IcmpType), self.values.get(Field::IcmpCode));
        matches!(self.shape.l4, L4::Icmp | L4::Nd(..)) && matches!(kind, (135 | 136, 0))
    }

    /// Writes to a field.
    pub(crate) fn set(&mut self, field: Field, value: u128, mask: u128) {
        if self.has(field) {
            let value = self.values.get(field) & !mask | value & mask;
            self.values.set(field, value);
            if field == Field::VlanTci0 && mask & 0xefff != 0 {
                self.shape.dei = false;
            }
        }
    }

    /// Offset of the transport header, and of its checksum from there.
    pub(crate) fn checksum(&self) -> (usize, usize) {
        let extensions = match &self.shape.net {
            Net::Arp | Net::Mpls | Net::Pbb => 0,
            Net::V4(options, _) => 20 + options,
            Net::V6(extensions) => 40 + extensions.len() * 8,
        };
        let start = 14 + self.shape.tags.len() * 4 + if self.shape.snap { 8 } else { 0 } + extensions;
        let offset = match self.shape.l4 {
            L4::Tcp => 16,
            L4::Udp(_) => 6,
            L4::Sctp => 8,
            _ => 2,
        };
        (start, offset)
    }

    /// Whether the transport's checksum covers the whole packet, and the packet holds all the bytes
    /// that it covers.
    pub(crate) fn is_whole(&self) -> bool {
        self.shape.has_l4() && !self.shape.is_fragment()
    }

    /// Whether the pseudo header has the destination that is in the header.
    pub(crate) fn final_destination(&self) -> bool {
        match &self.shape.net {
            Net::V6(extensions) => !extensions.iter().any(|e| matches!(e, Extension::Routing(1..))),
            _ => true,
        }
    }

    /// The packet.
    pub(crate) fn bytes(&self, sums: Sums) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.put(&mut bytes, Field::EthDst, 6);
        self.put(&mut bytes, Field::EthSrc, 6);
        let mut dei = self.shape.dei;
        for (level, tpid) in self.shape.tags.iter().enumerate() {
            bytes.extend(tpid.to_be_bytes());
            let field = [Field::VlanTci0, Field::VlanTci1][level.min(1)];
            let tci = self.values.get(field) as u16 & !TAG_PRESENT | u16::from(dei) << 12;
            bytes.extend(tci.to_be_bytes());
            dei = false;
        }
        if self.shape.snap {
            bytes.extend([0, 100, 0xaa, 0xaa, 3, 0, 0, 0]);
        }
        match &self.shape.net {
            Net::Arp => {
                bytes.extend([8, 6, 0, 1, 8, 0, 6, 4]);
                let fields = [
                    (Field::ArpOp, 2),
                    (Field::ArpSha, 6),
                    (Field::ArpSpa, 4),
                    (Field::ArpTha, 6),
                    (Field::ArpTpa, 4),
                ];
                fields
                    .iter()
                    .for_each(|(field, len)| self.put(&mut bytes, *field, *len));
            }
            Net::Mpls => {
                bytes.extend([0x88, 0x47]);
                self.put(&mut bytes, Field::MplsLse0, 4);
                bytes.extend(&self.shape.payload);
            }
            Net::Pbb => {
                bytes.extend([0x88, 0xe7, 0x71 | (self.values.get(Field::PbbUca) as u8) << 3]);
                self.put(&mut bytes, Field::PbbIsid, 3);
                bytes.extend(&self.shape.payload);
            }
            Net::V4(options, fragment) => self.ipv4(&mut bytes, *options, *fragment, sums),
            Net::V6(extensions) => self.ipv6(&mut bytes, extensions, sums),
        }
        bytes.resize(bytes.len() + self.shape.padding, 0x5a);
        bytes
    }

    fn put(&self, bytes: &mut Vec<u8>, field: Field, len: usize) {
        bytes.extend(&self.values.get(field).to_be_bytes()[16 - len..]);
    }

    fn ipv4(&self, bytes: &mut Vec<u8>, options: usize, fragment: u16, sums: Sums) {
        bytes.extend([8, 0]);
        let mut header = vec![0x45 + (options / 4) as u8];
        self.put(&mut header, Field::IpTos, 1);
        header.extend([0, 0, 0x12, 0x34]);
        header.extend(fragment.to_be_bytes());
        self.put(&mut header, Field::IpTtl, 1);
        header.extend([self.protocol(), 0, 0]);
        self.put(&mut header, Field::Ipv4Src, 4);
        self.put(&mut header, Field::Ipv4Dst, 4);
        header.resize(20 + options, 1);
        let transport = self.transport(&header[12..20], sums);
        let total = (header.len() + transport.len()) as u16;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        let sum = !naive(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(header);
        bytes.extend(transport);
    }

    fn ipv6(&self, bytes: &mut Vec<u8>, extensions: &[Extension], sums: Sums) {
        bytes.extend([0x86, 0xdd]);
        let first = 6 << 28 | (self.values.get(Field::IpTos) as u32) << 20 | self.values.get(Field::Ipv6Label) as u32;
        let mut addresses = Vec::new();
        self.put(&mut addresses, Field::Ipv6Src, 16);
        self.put(&mut addresses, Field::Ipv6Dst, 16);
        let mut pseudo = addresses.clone();
        if !self.final_destination() {
            pseudo[16..].copy_from_slice(&FINAL.to_be_bytes());
        }
        let transport = self.transport(&pseudo, sums);
        let mut kinds: Vec<u8> = extensions.iter().map(|extension| extension.kind()).collect();
        kinds.push(self.protocol());
        bytes.extend(first.to_be_bytes());
        bytes.extend(((extensions.len() * 8 + transport.len()) as u16).to_be_bytes());
        bytes.push(kinds[0]);
        self.put(bytes, Field::IpTtl, 1);
        bytes.extend(addresses);
        for (extension, next) in extensions.iter().zip(&kinds[1..]) {
            bytes.extend(match extension {
                Extension::HopByHop => [*next, 0, 1, 4, 0, 0, 0, 0],
                Extension::Routing(left) => [*next, 0, 253, *left, 0, 0, 0, 0],
                Extension::Fragment(offset) => [*next, 0, (offset >> 8) as u8, *offset as u8, 0, 0, 0, 9],
            });
        }
        bytes.extend(transport);
    }

    fn protocol(&self) -> u8 {
        match self.shape.l4 {
            L4::Tcp => 6,
            L4::Udp(_) => 17,
            L4::Sctp => 132,
            L4::Icmp | L4::Nd(..) if matches!(self.shape.net, Net::V6(_)) => 58,
            L4::Icmp | L4::Nd(..) => 1,
            L4::Unknown => 253,
        }
    }

    /// The bytes after the IP header.
    fn transport(&self, addresses: &[u8], sums: Sums) -> Vec<u8> {
        use Field as F;
        let mut bytes = Vec::new();
        if !self.shape.has_l4() {
            return self.shape.payload.clone();
        }
        match self.shape.l4 {
            L4::Tcp => {
                self.put(&mut bytes, F::TpSrc, 2);
                self.put(&mut bytes, F::TpDst, 2);
                bytes.extend([1, 2, 3, 4, 5, 6, 7, 8]);
                bytes.extend((5 << 12 | self.values.get(F::TcpFlags) as u16).to_be_bytes());
                bytes.extend([1, 0, 0, 0, 0, 0]);
            }
            L4::Udp(_) => {
                self.put(&mut bytes, F::TpSrc, 2);
                self.put(&mut bytes, F::TpDst, 2);
                bytes.extend((8 + self.shape.payload.len() as u16).to_be_bytes());
                bytes.extend([0, 0]);
            }
            L4::Sctp => {
                self.put(&mut bytes, F::TpSrc, 2);
                self.put(&mut bytes, F::TpDst, 2);
                bytes.extend([9, 9, 9, 9, 0, 0, 0, 0]);
            }
            L4::Icmp | L4::Nd(..) => {
                self.put(&mut bytes, F::IcmpType, 1);
                self.put(&mut bytes, F::IcmpCode, 1);
                bytes.extend([0, 0]);
                match self.shape.net {
                    // An all-zero message would have the other form of zero as its sum.
                    Net::V4(..) => bytes.extend([0, 1, 0, 2]),
                    _ => self.put(&mut bytes, F::NdReserved, 4),
                }
            }
            L4::Unknown => {}
        }
        if let L4::Nd(sll, tll) = self.shape.l4 {
            self.put(&mut bytes, F::NdTarget, 16);
            bytes.extend([14, 1, 1, 2, 3, 4, 5, 6]);
            for (kind, field, there) in [(1, F::NdSll, sll), (2, F::NdTll, tll)] {
                if there {
                    bytes.extend([kind, 1]);
                    self.put(&mut bytes, field, 6);
                }
            }
        } else {
            bytes.extend(&self.shape.payload);
        }
        self.fill_in(&mut bytes, addresses, sums);
        bytes
    }

    fn fill_in(&self, bytes: &mut [u8], addresses: &[u8], sums: Sums) {
        let (_, at) = self.checksum();
        let mut pseudo = addresses.to_vec();
        pseudo.extend((bytes.len() as u32).to_be_bytes());
        pseudo.extend([0, self.protocol()]);
        if self.protocol() == 1 {
            pseudo.clear();
        }
        let sum = match self.shape.l4 {
            L4::Unknown | L4::Udp(false) => return,
            L4::Sctp => {
                // In a fragment it cannot be kept, and stays.
                let sum = if self.shape.is_fragment() {
                    7
                } else {
                    crc32c::crc32c(bytes)
                };
                let sum = if sums == Sums::Partial { 0 } else { sum };
                return bytes[8..12].copy_from_slice(&sum.to_le_bytes());
            }
            _ if sums == Sums::Partial => naive(&pseudo),
            l4 => {
                pseudo.extend(&*bytes);
                match !naive(&pseudo) {
                    0 if l4 == L4::Udp(true) || sums == Sums::Filled => 0xffff,
                    sum => sum,
                }
            }
        };
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

impl Extension {
    fn kind(self) -> u8 {
        match self {
            Extension::HopByHop => 0,
            Extension::Routing(_) => 43,
            Extension::Fragment(_) => 44,
        }
    }
}

impl Shape {
    /// Takes the bytes behind the IP packet away; returns how many there were.
    pub(crate) fn remove_padding(&mut self) -> usize {
        std::mem::take(&mut self.padding)
    }

    /// The offset and flags of a fragment, as IPv4 has them.
    fn fragment(&self) -> (u16, bool) {
        match &self.net {
            Net::V4(_, fragment) => (fragment & 0x1fff, fragment & 0x2000 != 0),
            Net::V6(extensions) => extensions
                .iter()
                .find_map(|extension| match extension {
                    Extension::Fragment(offset) => Some((offset >> 3, offset & 1 != 0)),
                    _ => None,
                })
                .unwrap_or((0, false)),
            Net::Arp | Net::Mpls | Net::Pbb => (0, false),
        }
    }

    fn is_fragment(&self) -> bool {
        self.fragment() != (0, false)
    }

    fn has_l4(&self) -> bool {
        matches!(self.net, Net::V4(..) | Net::V6(_)) && self.fragment().0 == 0
    }
}

/// The Internet checksum's sum, word by word.
fn naive(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0, |sum: u16, word| {
        let word = u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]);
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}

pub(crate) fn any_model() -> impl Strategy<Value = Model> {
    let tpid = || prop_oneof![Just(0x8100u16), Just(0x88a8)];
    let extension = prop_oneof![
        Just(Extension::HopByHop),
        (0..2u8).prop_map(Extension::Routing),
        prop_oneof![Just(0u16), Just(1), Just(8), Just(9)].prop_map(Extension::Fragment),
    ];
    let fragment = prop_oneof![6 => Just(0u16), 2 => Just(0x4000), 1 => Just(0x2000), 1 => Just(0x2001)];
    let net = prop_oneof![
        1 => Just(Net::Arp),
        1 => Just(Net::Mpls),
        1 => Just(Net::Pbb),
        4 => (0..4usize, fragment).prop_map(|(words, fragment)| Net::V4(words * 4, fragment)),
        2 => Just(Net::V6(Vec::new())),
        2 => prop::collection::vec(extension, 1..3).prop_map(Net::V6),
    ];
    let l4 = prop_oneof![
        3 => Just(L4::Tcp),
        3 => any::<bool>().prop_map(L4::Udp),
        1 => Just(L4::Sctp),
        1 => Just(L4::Icmp),
        2 => (any::<bool>(), any::<bool>()).prop_map(|(sll, tll)| L4::Nd(sll, tll)),
        1 => Just(L4::Unknown),
    ];
    let shape = (
        prop::collection::vec(tpid(), 0..3),
        any::<bool>(),
        any::<bool>(),
        net,
        l4,
        prop::collection::vec(any::<u8>(), 0..15),
        0..20usize,
    );
    let values = prop::collection::vec(
        prop_oneof![Just(0u128), any::<u128>(), Just(u128::MAX)],
        Field::ALL.len(),
    );
    (shape, values, 135..137u8).prop_map(|((tags, dei, snap, net, l4, payload, padding), values, nd)| {
        let mut key = Key::ZERO;
        Field::ALL
            .iter()
            .zip(values)
            .for_each(|(field, value)| key.set(*field, value));
        // Of fragments there is one header at most, and neighbour discovery is of IPv6.
        let (net, l4) = match (net, l4) {
            (Net::V6(mut extensions), l4) => {
                let mut fragments = 0;
                extensions.retain(|extension| {
                    fragments += u32::from(matches!(extension, Extension::Fragment(_)));
                    fragments < 2 || !matches!(extension, Extension::Fragment(_))
                });
                (Net::V6(extensions), l4)
            }
            (net, L4::Nd(..)) => (net, L4::Icmp),
            other => other,
        };
        if matches!(l4, L4::Nd(..)) {
            key.set(Field::IcmpType, nd.into());
            key.set(Field::IcmpCode, 0);
        }
        let shape = Shape {
            dei: dei && !tags.is_empty(),
            tags,
            snap,
            net,
            l4,
            payload,
            padding,
        };
        Model { shape, values: key }
    })
}

/// A write to some field; half of them to all of it. The kind of an option stays: a new kind would
/// make it another option.
pub(crate) fn any_write() -> impl Strategy<Value = (Field, u128, u128)> {
    let mask = prop_oneof![2 => Just(u128::MAX), 1 => any::<u128>(), 1 => Just(0)];
    let field = (0..Field::ALL.len()).prop_map(|field| Field::ALL[field]);
    let field = field.prop_filter("not the kind of an option", |field| *field != Field::NdOptionsType);
    (field, any::<u128>(), mask)
}
