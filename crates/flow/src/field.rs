//! The registry of fields: which word of a key has a field, and where in it. Nothing else knows a
//! word's number. The words of metadata and those of the packet's bytes are two groups.
//!
//! A mask has a bit for each word, 64 in all. The values of tunnel options (up to 32 words) have no
//! room: a key has a hash of them, and only packets from tunnels have them beside the key.

use std::ops::Range;

/// Words in a key.
pub const KEY_WORDS: usize = {
    let (mut words, mut n) = (0, 0);
    while n < Field::ALL.len() {
        let end = Field::ALL[n].word() + 1;
        words = if end > words { end } else { words };
        n += 1;
    }
    words
};

/// Words at the front of a key that only packets from tunnels and tracked packets have.
pub const EXTRA_WORDS: usize = {
    let (mut words, mut n) = (0, 0);
    while n < Field::ALL.len() {
        let info = Field::ALL[n].info();
        let end = info.word as usize + 1;
        words = if info.prerequisite.is_extra() && end > words {
            end
        } else {
            words
        };
        n += 1;
    }
    words
};

/// Words at the front of a key: those, where a packet comes from, and its Ethernet header and tags.
pub const ETHERNET_WORDS: usize = {
    let (mut words, mut n) = (0, 0);
    while n < Field::ALL.len() {
        let info = Field::ALL[n].info();
        let is_front = matches!(info.group, Group::Packet) && info.prerequisite.is_of_ethernet();
        let end = info.word as usize + 1;
        words = if is_front && end > words { end } else { words };
        n += 1;
    }
    words
};

// See the module's page.
const _: () = assert!(KEY_WORDS <= u64::BITS as usize);

// Each word belongs to one group; the front of a key to tunnels and connections, then to Ethernet
// and other metadata.
const _: () = {
    let mut groups = [None::<Group>; KEY_WORDS];
    let mut n = 0;
    while n < Field::ALL.len() {
        let info = Field::ALL[n].info();
        let word = info.word as usize;
        assert!((word < EXTRA_WORDS) == info.prerequisite.is_extra());
        assert!(word < EXTRA_WORDS || word >= ETHERNET_WORDS || info.prerequisite.is_of_ethernet());
        match groups[word] {
            Some(group) => assert!(group as u8 == info.group as u8),
            None => groups[word] = Some(info.group),
        }
        n += 1;
    }
};

/// Whether a field is read from a packet's bytes or from its [`PacketMeta`](crate::PacketMeta).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// From the metadata.
    Metadata,
    /// From the bytes.
    Packet,
}

/// What a packet must be for a field to mean something. Where it is not, the field is zero in the
/// packet's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Prerequisite {
    /// Every packet has it.
    None,
    /// An outermost VLAN tag.
    Tag0,
    /// A second VLAN tag.
    Tag1,
    /// ARP or reverse ARP for IPv4 over Ethernet.
    Arp,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// IPv4 or IPv6.
    Ip,
    /// TCP, UDP or SCTP, and not a later fragment.
    Ports,
    /// TCP, and not a later fragment.
    Tcp,
    /// ICMP or ICMPv6, and not a later fragment.
    Icmp,
    /// A label stack entry, MPLS unicast or multicast.
    Mpls,
    /// A backbone service instance tag.
    Pbb,
    /// A network service header (RFC 8300).
    Nsh,
    /// No Ethernet header.
    Bare,
    /// A neighbour solicitation or advertisement (RFC 4861 §4.3, §4.4).
    Nd,
    /// It came from a tunnel.
    Tunnel,
    /// It passed the connection tracker.
    Connection,
}

impl Prerequisite {
    /// Whether only packets from tunnels or tracked packets have it.
    pub const fn is_extra(self) -> bool {
        matches!(self, Prerequisite::Tunnel | Prerequisite::Connection)
    }

    /// Whether an Ethernet header with its tags is enough.
    pub const fn is_of_ethernet(self) -> bool {
        matches!(self, Prerequisite::None | Prerequisite::Tag0 | Prerequisite::Tag1)
    }
}

/// Where a field lies and what it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// Our name, in snake case.
    pub name: &'static str,
    /// The name in Open vSwitch's flow syntax.
    pub ovs_name: &'static str,
    /// Where its value comes from.
    pub group: Group,
    /// The word of the key that has its lowest bits (of a field wider than 64 bits, the one before
    /// has the highest).
    pub word: u8,
    /// The position of its lowest bit in that word; 0 where the field is wider than a word.
    pub shift: u8,
    /// Its width, 1 to 128.
    pub bits: u8,
    /// When it means something.
    pub prerequisite: Prerequisite,
}

macro_rules! registry {
    ($($group:ident {
        $($(#[$doc:meta])* $variant:ident $name:literal $ovs:literal $word:literal $shift:literal $bits:literal $prerequisite:ident;)*
    })*) => {
        /// A field of a packet or of its metadata.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Field {
            $($($(#[$doc])* $variant,)*)*
        }

        impl Field {
            /// Every field, in the order of the key's layout.
            pub const ALL: &'static [Field] = &[$($(Field::$variant),*),*];

            /// The field's row in the registry.
            #[inline(always)]
            pub const fn info(self) -> FieldInfo {
                match self {
                    $($(Field::$variant => FieldInfo {
                        name: $name,
                        ovs_name: $ovs,
                        group: Group::$group,
                        word: $word,
                        shift: $shift,
                        bits: $bits,
                        prerequisite: Prerequisite::$prerequisite,
                    },)*)*
                }
            }
        }
    };
}

// What rules of virtual networks look at comes first, as they do: tunnels and connections. The
// fields that plain switching looks at come next, so that its masks touch few words.
registry! {
    Metadata {
        /// The key of the tunnel that the packet came from; 0 without one.
        TunId "tun_id" "tun_id" 0 0 64 Tunnel;
        /// Outer IPv4 source.
        TunSrc "tun_src" "tun_src" 1 0 32 Tunnel;
        /// Outer IPv4 destination.
        TunDst "tun_dst" "tun_dst" 1 32 32 Tunnel;
        /// Outer IPv6 source.
        TunIpv6Src "tun_ipv6_src" "tun_ipv6_src" 3 0 128 Tunnel;
        /// Outer IPv6 destination.
        TunIpv6Dst "tun_ipv6_dst" "tun_ipv6_dst" 5 0 128 Tunnel;
        /// The flags of [`Tunnel`](crate::Tunnel).
        TunFlags "tun_flags" "tun_flags" 6 0 16 Tunnel;
        /// Outer time to live or hop limit.
        TunTtl "tun_ttl" "tun_ttl" 6 16 8 Tunnel;
        /// Outer type of service or traffic class.
        TunTos "tun_tos" "tun_tos" 6 24 8 Tunnel;
        /// The group of a VXLAN group policy.
        TunGbpId "tun_gbp_id" "tun_gbp_id" 6 32 16 Tunnel;
        /// The flags of a VXLAN group policy.
        TunGbpFlags "tun_gbp_flags" "tun_gbp_flags" 6 48 8 Tunnel;
        /// The version of ERSPAN.
        TunErspanVer "tun_erspan_ver" "tun_erspan_ver" 6 56 8 Tunnel;
        /// The index of ERSPAN version 1.
        TunErspanIdx "tun_erspan_idx" "tun_erspan_idx" 7 0 32 Tunnel;
        /// The direction of ERSPAN version 2.
        TunErspanDir "tun_erspan_dir" "tun_erspan_dir" 7 32 8 Tunnel;
        /// The hardware id of ERSPAN version 2.
        TunErspanHwid "tun_erspan_hwid" "tun_erspan_hwid" 7 40 8 Tunnel;
        /// The flags of GTP-U.
        TunGtpuFlags "tun_gtpu_flags" "tun_gtpu_flags" 7 48 8 Tunnel;
        /// The message type of GTP-U.
        TunGtpuMsgtype "tun_gtpu_msgtype" "tun_gtpu_msgtype" 7 56 8 Tunnel;
        /// A hash of the tunnel options, with a secret; 0 without any.
        TunOptions "tun_options" "tun_options" 8 0 64 Tunnel;
        /// What the connection tracker said of the packet: the bits of `ct_state` in
        /// `ovs-fields(7)`.
        CtState "ct_state" "ct_state" 9 0 8 Connection;
        /// The protocol of the connection's original direction.
        CtProto "ct_nw_proto" "ct_nw_proto" 9 8 8 Connection;
        /// The zone in which it was tracked.
        CtZone "ct_zone" "ct_zone" 9 16 16 Connection;
        /// The source port of the original direction; of ICMP, the type.
        CtTpSrc "ct_tp_src" "ct_tp_src" 9 32 16 Connection;
        /// The destination port of the original direction; of ICMP, the code.
        CtTpDst "ct_tp_dst" "ct_tp_dst" 9 48 16 Connection;
        /// The connection's mark.
        CtMark "ct_mark" "ct_mark" 10 0 32 Connection;
        /// The connection's label.
        CtLabel "ct_label" "ct_label" 12 0 128 Connection;
        /// The IPv4 source of the original direction.
        CtIpv4Src "ct_nw_src" "ct_nw_src" 13 0 32 Connection;
        /// The IPv4 destination of the original direction.
        CtIpv4Dst "ct_nw_dst" "ct_nw_dst" 13 32 32 Connection;
        /// The IPv6 source of the original direction.
        CtIpv6Src "ct_ipv6_src" "ct_ipv6_src" 15 0 128 Connection;
        /// The IPv6 destination of the original direction.
        CtIpv6Dst "ct_ipv6_dst" "ct_ipv6_dst" 17 0 128 Connection;
    }
    Metadata {
        /// The datapath port that the packet came in on.
        InPort "in_port" "in_port" 18 0 32 None;
        /// The number of the recirculation that the packet is in; 0 at first.
        RecircId "recirc_id" "recirc_id" 18 32 32 None;
    }
    Packet {
        /// Destination address.
        EthDst "eth_dst" "dl_dst" 19 0 48 None;
        /// The type behind all parsed tags; 0x05ff for a frame that has a length and no SNAP type.
        EthType "eth_type" "dl_type" 19 48 16 None;
        /// Source address.
        EthSrc "eth_src" "dl_src" 20 0 48 None;
        /// Outermost tag's control information, with [`crate::TAG_PRESENT`]; 0 without a tag.
        VlanTci0 "vlan_tci0" "vlan_tci" 20 48 16 Tag0;
        /// Outermost tag's protocol identifier.
        VlanTpid0 "vlan_tpid0" "vlan_tpid" 21 0 16 Tag0;
        /// Second tag's control information, with [`crate::TAG_PRESENT`].
        VlanTci1 "vlan_tci1" "vlan_tci1" 21 16 16 Tag1;
        /// Second tag's protocol identifier.
        VlanTpid1 "vlan_tpid1" "vlan_tpid1" 21 32 16 Tag1;
        /// Protocol (IPv4) or last next header (IPv6).
        IpProto "ip_proto" "nw_proto" 22 0 8 Ip;
        /// DSCP and ECN: the type of service or traffic class octet.
        IpTos "ip_tos" "nw_tos" 22 8 8 Ip;
        /// Time to live or hop limit.
        IpTtl "ip_ttl" "nw_ttl" 22 16 8 Ip;
        /// A [`crate::Frag`].
        IpFrag "ip_frag" "nw_frag" 22 24 8 Ip;
        /// IPv6 flow label.
        Ipv6Label "ipv6_label" "ipv6_label" 22 32 20 Ipv6;
        /// Which IPv6 extension headers there are, by the bits of OpenFlow 1.5 §7.2.3.8: none (1),
        /// ESP (2), authentication (4), destination options (8), fragment (16), routing (32),
        /// hop-by-hop options (64), one repeated (128), an order that is not recommended (256).
        Ipv6Exthdr "ipv6_exthdr" "ipv6_exthdr" 22 52 9 Ipv6;
        /// IPv4 source.
        Ipv4Src "ipv4_src" "nw_src" 23 0 32 Ipv4;
        /// IPv4 destination.
        Ipv4Dst "ipv4_dst" "nw_dst" 23 32 32 Ipv4;
        /// IPv6 source.
        Ipv6Src "ipv6_src" "ipv6_src" 25 0 128 Ipv6;
        /// IPv6 destination.
        Ipv6Dst "ipv6_dst" "ipv6_dst" 27 0 128 Ipv6;
        /// Source port.
        TpSrc "tp_src" "tp_src" 28 0 16 Ports;
        /// Destination port.
        TpDst "tp_dst" "tp_dst" 28 16 16 Ports;
        /// TCP's flags, 12 bits with the reserved ones.
        TcpFlags "tcp_flags" "tcp_flags" 28 32 12 Tcp;
        /// ICMP or ICMPv6 type.
        IcmpType "icmp_type" "icmp_type" 28 44 8 Icmp;
        /// ICMP or ICMPv6 code.
        IcmpCode "icmp_code" "icmp_code" 28 52 8 Icmp;
    }
    Metadata {
        /// A mark that actions set.
        PktMark "pkt_mark" "skb_mark" 29 0 32 None;
        /// The queue of its port that the packet goes through.
        SkbPriority "skb_priority" "skb_priority" 29 32 32 None;
    }
    Packet {
        /// ARP sender protocol address.
        ArpSpa "arp_spa" "arp_spa" 30 0 32 Arp;
        /// ARP target protocol address.
        ArpTpa "arp_tpa" "arp_tpa" 30 32 32 Arp;
        /// ARP sender hardware address.
        ArpSha "arp_sha" "arp_sha" 31 0 48 Arp;
        /// ARP operation.
        ArpOp "arp_op" "arp_op" 31 48 16 Arp;
        /// ARP target hardware address.
        ArpTha "arp_tha" "arp_tha" 32 0 48 Arp;
        /// The type of the first link-layer address option; 0 where there is none.
        NdOptionsType "nd_options_type" "nd_options_type" 32 48 8 Nd;
        /// The reserved word of a solicitation, flags and reserved bits of an advertisement.
        NdReserved "nd_reserved" "nd_reserved" 33 0 32 Nd;
        /// The third MPLS label stack entry.
        MplsLse2 "mpls_lse2" "mpls_lse2" 33 32 32 Mpls;
        /// Neighbour discovery target address.
        NdTarget "nd_target" "nd_target" 35 0 128 Nd;
        /// Source link-layer address option.
        NdSll "nd_sll" "nd_sll" 36 0 48 Nd;
        /// Target link-layer address option.
        NdTll "nd_tll" "nd_tll" 37 0 48 Nd;
        /// The outermost MPLS label stack entry (RFC 3032 §2.1): label (20 bits), traffic class
        /// (3), bottom of stack (1), time to live (8).
        MplsLse0 "mpls_lse0" "mpls_lse" 38 0 32 Mpls;
        /// The second MPLS label stack entry; zero where the first is the bottom of the stack.
        MplsLse1 "mpls_lse1" "mpls_lse1" 38 32 32 Mpls;
        /// Service instance of a backbone header (IEEE 802.1Q §9.7).
        PbbIsid "pbb_isid" "pbb_isid" 39 0 24 Pbb;
        /// Whether a backbone header says that the customer addresses are to be used.
        PbbUca "pbb_uca" "pbb_uca" 39 24 1 Pbb;
        /// The packet type: namespace and type, 16 bits each; 0 for Ethernet.
        PacketType "packet_type" "packet_type" 39 32 32 Bare;
        /// The flags O and U of a network service header (RFC 8300 §2.2).
        NshFlags "nsh_flags" "nsh_flags" 40 0 8 Nsh;
        /// Its time to live, 6 bits.
        NshTtl "nsh_ttl" "nsh_ttl" 40 8 8 Nsh;
        /// Its metadata type.
        NshMdtype "nsh_mdtype" "nsh_mdtype" 40 16 8 Nsh;
        /// The protocol behind it.
        NshNp "nsh_np" "nsh_np" 40 24 8 Nsh;
        /// The service path identifier.
        NshSpi "nsh_spi" "nsh_spi" 40 32 24 Nsh;
        /// The service index.
        NshSi "nsh_si" "nsh_si" 40 56 8 Nsh;
        /// The context headers of metadata type 1.
        NshC1 "nsh_c1" "nsh_c1" 41 0 32 Nsh;
        /// The second one.
        NshC2 "nsh_c2" "nsh_c2" 41 32 32 Nsh;
        /// The third one.
        NshC3 "nsh_c3" "nsh_c3" 42 0 32 Nsh;
        /// The fourth one.
        NshC4 "nsh_c4" "nsh_c4" 42 32 32 Nsh;
    }
}

impl Field {
    /// Whether it is of the tunnel that a packet came from.
    pub const fn is_of_tunnel(self) -> bool {
        matches!(self.info().prerequisite, Prerequisite::Tunnel)
    }

    /// Whether the connection tracker says it.
    pub const fn is_of_connection(self) -> bool {
        matches!(self.info().prerequisite, Prerequisite::Connection)
    }

    /// The word of the key that has its lowest bits.
    #[inline(always)]
    pub const fn word(self) -> usize {
        self.info().word as usize
    }

    /// The highest value of the field.
    #[inline(always)]
    pub const fn max_value(self) -> u128 {
        u128::MAX >> (128 - self.info().bits as u32)
    }

    /// The field that one of its names means.
    pub fn from_name(name: &str) -> Option<Field> {
        Field::ALL.iter().copied().find(|field| {
            let info = field.info();
            info.name == name || info.ovs_name == name
        })
    }
}

/// The words of the fields of a prerequisite, in which no other field lies.
pub(crate) const fn words_of(prerequisite: Prerequisite) -> Range<usize> {
    let (mut first, mut end, mut n) = (KEY_WORDS, 0, 0);
    while n < Field::ALL.len() {
        let field = Field::ALL[n];
        if field.info().prerequisite as u8 == prerequisite as u8 {
            let (low, high) = (field.word() + 1 - (field.info().bits > 64) as usize, field.word());
            first = if low - 1 < first { low - 1 } else { first };
            end = if high + 1 > end { high + 1 } else { end };
        }
        n += 1;
    }
    n = 0;
    while n < Field::ALL.len() {
        let (info, word) = (Field::ALL[n].info(), Field::ALL[n].word());
        assert!((info.prerequisite as u8 == prerequisite as u8) == (first <= word && word < end));
        n += 1;
    }
    first..end
}

/// Reads a field from words.
#[inline(always)]
pub(crate) const fn get(words: &[u64; KEY_WORDS], field: Field) -> u128 {
    let info = field.info();
    let word = info.word as usize;
    if info.bits > 64 {
        (words[word - 1] as u128) << 64 | words[word] as u128
    } else {
        (words[word] >> info.shift) as u128 & field.max_value()
    }
}

/// Writes a field to words. Bits of `value` above the field's width are ignored.
#[inline(always)]
pub(crate) const fn set(words: &mut [u64; KEY_WORDS], field: Field, value: u128) {
    let info = field.info();
    let word = info.word as usize;
    if info.bits > 64 {
        words[word - 1] = (value >> 64) as u64;
        words[word] = value as u64;
    } else {
        let max = field.max_value() as u64;
        words[word] = words[word] & !(max << info.shift) | (value as u64 & max) << info.shift;
    }
}

/// A word of a key with fields that lie in it, and zero in the rest.
#[inline(always)]
pub(crate) fn word<const N: usize>(fields: [(Field, u64); N]) -> u64 {
    let mut word = 0;
    for (field, value) in fields {
        let info = field.info();
        debug_assert!(info.word as usize == fields[0].0.word() && info.bits <= 64);
        word |= (value & field.max_value() as u64) << info.shift;
    }
    word
}

/// Writes a [`word`] to its place. Unlike [`set`] it does not read the word first, which was often
/// just written.
#[inline(always)]
pub(crate) fn fill<const N: usize>(words: &mut [u64; KEY_WORDS], fields: [(Field, u64); N]) {
    words[fields[0].0.word()] = word(fields);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_fields_share_a_bit_and_every_word_is_used() {
        let mut taken = [0u64; KEY_WORDS];
        for field in Field::ALL {
            let mut own = [0u64; KEY_WORDS];
            set(&mut own, *field, u128::MAX);
            assert_eq!(get(&own, *field), field.max_value());
            for (taken, own) in taken.iter_mut().zip(own) {
                assert_eq!(*taken & own, 0, "{field:?}");
                *taken |= own;
            }
        }
        assert!(taken.iter().all(|word| *word != 0));
    }

    #[test]
    fn a_name_means_one_field() {
        for field in Field::ALL {
            assert_eq!(Field::from_name(field.info().name), Some(*field));
            assert_eq!(Field::from_name(field.info().ovs_name), Some(*field));
        }
        assert_eq!(Field::from_name("no_such_field"), None);
    }
}
