//! The table of match fields: those of `ovs-fields(7)`, and further ones of the OpenFlow
//! specification, one row each.

use super::{Access, Format, Home, Maskable, MatchFieldInfo, MatchPrerequisite, OxmClass, OxmId};
use crate::Field;

/// The lowest `bits` bits.
const fn low(bits: u32) -> u128 {
    u128::MAX >> (128 - bits)
}

const fn id(class: OxmClass, suffix: &'static str, number: u8, since: u8) -> OxmId {
    OxmId {
        class,
        number,
        since,
        suffix,
    }
}

const fn nxm0(suffix: &'static str, number: u8) -> OxmId {
    id(OxmClass::Nxm0, suffix, number, 0)
}

const fn nxm1(suffix: &'static str, number: u8) -> OxmId {
    id(OxmClass::Nxm1, suffix, number, 0)
}

const fn oxm(suffix: &'static str, number: u8, since: u8) -> OxmId {
    id(OxmClass::OpenFlowBasic, suffix, number, since)
}

const fn pkt_reg(suffix: &'static str, number: u8) -> OxmId {
    id(OxmClass::PacketRegisters, suffix, number, 4)
}

const fn onf(suffix: &'static str, number: u8) -> OxmId {
    id(OxmClass::Onf, suffix, number, 4)
}

const fn nx(suffix: &'static str, number: u8) -> OxmId {
    id(OxmClass::Nicira, suffix, number, 0)
}

const fn nsh(suffix: &'static str, number: u8) -> OxmId {
    id(OxmClass::Nsh, suffix, number, 0)
}

const fn eric(suffix: &'static str, number: u8) -> OxmId {
    id(OxmClass::Ericsson, suffix, number, 0)
}

macro_rules! home {
    (key($field:ident, $shift:literal)) => {
        Home::Key {
            field: Field::$field,
            shift: $shift,
        }
    };
    (meta($word:literal, $shift:literal)) => {
        Home::Meta {
            word: $word,
            shift: $shift,
        }
    };
    (elsewhere()) => {
        Home::Elsewhere
    };
}

macro_rules! canonical {
    (own) => {
        true
    };
    (view) => {
        false
    };
}

macro_rules! registry {
    ($($variant:ident [$name:literal $(, $alias:literal)*] $bits:literal $valid:expr, $format:ident $mask:ident $access:ident $pre:ident $own:ident
        $home:ident $place:tt [$($id:expr),*];)*) => {
        /// A field that OpenFlow can match.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum MatchField {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl MatchField {
            /// Every field, in the order of the variants.
            pub const ALL: &'static [MatchField] = &[$(MatchField::$variant),*];

            /// The field's row in the registry.
            pub const fn info(self) -> &'static MatchFieldInfo {
                &TABLE[self as usize]
            }
        }

        static TABLE: [MatchFieldInfo; MatchField::ALL.len()] = [$(MatchFieldInfo {
            names: &[$name $(, $alias)*],
            bits: $bits,
            valid: $valid,
            format: Format::$format,
            maskable: Maskable::$mask,
            access: Access::$access,
            prerequisite: MatchPrerequisite::$pre,
            canonical: canonical!($own),
            home: home!($home $place),
            ids: &[$($id),*],
        }),*];
    };
}

// Name and other names; bits in messages and valid bits; format, masks, access, prerequisite;
// whether it is canonical, and where its bits are stored; identifiers, with the first version that
// has them.
registry! {
    ConjId ["conj_id"] 32 low(32), Decimal Exact Ro None own meta(9, 0) [nxm1("CONJ_ID", 37)];
    RecircId ["recirc_id"] 32 low(32), Decimal Exact Ro None own key(RecircId, 0) [nxm1("RECIRC_ID", 36)];
    DpHash ["dp_hash"] 32 low(32), Hex Any Ro None own meta(11, 0) [nxm1("DP_HASH", 35)];
    SkbPriority ["skb_priority"] 32 low(32), Hex Exact Ro None own key(SkbPriority, 0) [];
    PktMark ["pkt_mark"] 32 low(32), Hex Any Rw None own key(PktMark, 0) [nxm1("PKT_MARK", 33)];
    ActsetOutput ["actset_output"] 32 low(32), Port Exact Ro None own meta(10, 32) [onf("ACTSET_OUTPUT", 43), oxm("ACTSET_OUTPUT", 43, 6)];
    PacketType ["packet_type"] 32 low(32), PacketType Exact Ro None own key(PacketType, 0) [oxm("PACKET_TYPE", 44, 6)];
    Reg0 ["reg0"] 32 low(32), Hex Any Rw None own meta(0, 32) [nxm1("REG0", 0)];
    Reg1 ["reg1"] 32 low(32), Hex Any Rw None own meta(0, 0) [nxm1("REG1", 1)];
    Reg2 ["reg2"] 32 low(32), Hex Any Rw None own meta(1, 32) [nxm1("REG2", 2)];
    Reg3 ["reg3"] 32 low(32), Hex Any Rw None own meta(1, 0) [nxm1("REG3", 3)];
    Reg4 ["reg4"] 32 low(32), Hex Any Rw None own meta(2, 32) [nxm1("REG4", 4)];
    Reg5 ["reg5"] 32 low(32), Hex Any Rw None own meta(2, 0) [nxm1("REG5", 5)];
    Reg6 ["reg6"] 32 low(32), Hex Any Rw None own meta(3, 32) [nxm1("REG6", 6)];
    Reg7 ["reg7"] 32 low(32), Hex Any Rw None own meta(3, 0) [nxm1("REG7", 7)];
    Reg8 ["reg8"] 32 low(32), Hex Any Rw None own meta(4, 32) [nxm1("REG8", 8)];
    Reg9 ["reg9"] 32 low(32), Hex Any Rw None own meta(4, 0) [nxm1("REG9", 9)];
    Reg10 ["reg10"] 32 low(32), Hex Any Rw None own meta(5, 32) [nxm1("REG10", 10)];
    Reg11 ["reg11"] 32 low(32), Hex Any Rw None own meta(5, 0) [nxm1("REG11", 11)];
    Reg12 ["reg12"] 32 low(32), Hex Any Rw None own meta(6, 32) [nxm1("REG12", 12)];
    Reg13 ["reg13"] 32 low(32), Hex Any Rw None own meta(6, 0) [nxm1("REG13", 13)];
    Reg14 ["reg14"] 32 low(32), Hex Any Rw None own meta(7, 32) [nxm1("REG14", 14)];
    Reg15 ["reg15"] 32 low(32), Hex Any Rw None own meta(7, 0) [nxm1("REG15", 15)];
    Xreg0 ["xreg0"] 64 low(64), Hex Any Rw None view meta(0, 0) [pkt_reg("PKT_REG0", 0)];
    Xreg1 ["xreg1"] 64 low(64), Hex Any Rw None view meta(1, 0) [pkt_reg("PKT_REG1", 1)];
    Xreg2 ["xreg2"] 64 low(64), Hex Any Rw None view meta(2, 0) [pkt_reg("PKT_REG2", 2)];
    Xreg3 ["xreg3"] 64 low(64), Hex Any Rw None view meta(3, 0) [pkt_reg("PKT_REG3", 3)];
    Xreg4 ["xreg4"] 64 low(64), Hex Any Rw None view meta(4, 0) [pkt_reg("PKT_REG4", 4)];
    Xreg5 ["xreg5"] 64 low(64), Hex Any Rw None view meta(5, 0) [pkt_reg("PKT_REG5", 5)];
    Xreg6 ["xreg6"] 64 low(64), Hex Any Rw None view meta(6, 0) [pkt_reg("PKT_REG6", 6)];
    Xreg7 ["xreg7"] 64 low(64), Hex Any Rw None view meta(7, 0) [pkt_reg("PKT_REG7", 7)];
    Xxreg0 ["xxreg0"] 128 low(128), Hex Any Rw None view meta(1, 0) [nxm1("XXREG0", 111)];
    Xxreg1 ["xxreg1"] 128 low(128), Hex Any Rw None view meta(3, 0) [nxm1("XXREG1", 112)];
    Xxreg2 ["xxreg2"] 128 low(128), Hex Any Rw None view meta(5, 0) [nxm1("XXREG2", 113)];
    Xxreg3 ["xxreg3"] 128 low(128), Hex Any Rw None view meta(7, 0) [nxm1("XXREG3", 114)];
    Metadata ["metadata"] 64 low(64), Hex Any Rw None own meta(8, 0) [oxm("METADATA", 2, 3)];
    InPort ["in_port"] 16 low(16), Port Exact Rw None view meta(9, 32) [nxm0("IN_PORT", 0)];
    InPortOxm ["in_port_oxm"] 32 low(32), Port Exact Rw None own meta(9, 32) [oxm("IN_PORT", 0, 3)];
    InPhyPort ["in_phy_port"] 32 low(32), Port Exact Ro None own meta(12, 32) [oxm("IN_PHY_PORT", 1, 3)];
    TunId ["tun_id", "tunnel_id"] 64 low(64), Hex Any Rw None own key(TunId, 0) [nxm1("TUN_ID", 16), oxm("TUNNEL_ID", 38, 4)];
    TunSrc ["tun_src"] 32 low(32), Ipv4 Any Rw None own key(TunSrc, 0) [nxm1("TUN_IPV4_SRC", 31)];
    TunDst ["tun_dst"] 32 low(32), Ipv4 Any Rw None own key(TunDst, 0) [nxm1("TUN_IPV4_DST", 32)];
    TunIpv6Src ["tun_ipv6_src"] 128 low(128), Ipv6 Any Rw None own key(TunIpv6Src, 0) [nxm1("TUN_IPV6_SRC", 109)];
    TunIpv6Dst ["tun_ipv6_dst"] 128 low(128), Ipv6 Any Rw None own key(TunIpv6Dst, 0) [nxm1("TUN_IPV6_DST", 110)];
    TunFlags ["tun_flags"] 16 low(1), TunFlags Any Rw None own key(TunFlags, 0) [nxm1("TUN_FLAGS", 104)];
    TunTtl ["tun_ttl"] 8 low(8), Decimal Exact Rw None own key(TunTtl, 0) [];
    TunTos ["tun_tos"] 8 low(8), Decimal Exact Rw None own key(TunTos, 0) [];
    TunGbpId ["tun_gbp_id"] 16 low(16), Decimal Any Rw None own key(TunGbpId, 0) [nxm1("TUN_GBP_ID", 38)];
    TunGbpFlags ["tun_gbp_flags"] 8 low(8), Hex Any Rw None own key(TunGbpFlags, 0) [nxm1("TUN_GBP_FLAGS", 39)];
    TunErspanVer ["tun_erspan_ver"] 8 low(4), Decimal Any Rw None own key(TunErspanVer, 0) [nx("ERSPAN_VER", 12)];
    TunErspanIdx ["tun_erspan_idx"] 32 low(20), Hex Any Rw None own key(TunErspanIdx, 0) [nx("ERSPAN_IDX", 11)];
    TunErspanDir ["tun_erspan_dir"] 8 low(1), Decimal Any Rw None own key(TunErspanDir, 0) [nx("ERSPAN_DIR", 13)];
    TunErspanHwid ["tun_erspan_hwid"] 8 low(6), Hex Any Rw None own key(TunErspanHwid, 0) [nx("ERSPAN_HWID", 14)];
    TunGtpuFlags ["tun_gtpu_flags"] 8 low(8), Hex Any Ro None own key(TunGtpuFlags, 0) [nx("GTPU_FLAGS", 15)];
    TunGtpuMsgtype ["tun_gtpu_msgtype"] 8 low(8), Decimal Any Ro None own key(TunGtpuMsgtype, 0) [nx("GTPU_MSGTYPE", 16)];
    TunMetadata0 ["tun_metadata0"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA0", 40)];
    TunMetadata1 ["tun_metadata1"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA1", 41)];
    TunMetadata2 ["tun_metadata2"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA2", 42)];
    TunMetadata3 ["tun_metadata3"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA3", 43)];
    TunMetadata4 ["tun_metadata4"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA4", 44)];
    TunMetadata5 ["tun_metadata5"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA5", 45)];
    TunMetadata6 ["tun_metadata6"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA6", 46)];
    TunMetadata7 ["tun_metadata7"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA7", 47)];
    TunMetadata8 ["tun_metadata8"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA8", 48)];
    TunMetadata9 ["tun_metadata9"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA9", 49)];
    TunMetadata10 ["tun_metadata10"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA10", 50)];
    TunMetadata11 ["tun_metadata11"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA11", 51)];
    TunMetadata12 ["tun_metadata12"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA12", 52)];
    TunMetadata13 ["tun_metadata13"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA13", 53)];
    TunMetadata14 ["tun_metadata14"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA14", 54)];
    TunMetadata15 ["tun_metadata15"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA15", 55)];
    TunMetadata16 ["tun_metadata16"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA16", 56)];
    TunMetadata17 ["tun_metadata17"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA17", 57)];
    TunMetadata18 ["tun_metadata18"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA18", 58)];
    TunMetadata19 ["tun_metadata19"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA19", 59)];
    TunMetadata20 ["tun_metadata20"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA20", 60)];
    TunMetadata21 ["tun_metadata21"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA21", 61)];
    TunMetadata22 ["tun_metadata22"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA22", 62)];
    TunMetadata23 ["tun_metadata23"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA23", 63)];
    TunMetadata24 ["tun_metadata24"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA24", 64)];
    TunMetadata25 ["tun_metadata25"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA25", 65)];
    TunMetadata26 ["tun_metadata26"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA26", 66)];
    TunMetadata27 ["tun_metadata27"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA27", 67)];
    TunMetadata28 ["tun_metadata28"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA28", 68)];
    TunMetadata29 ["tun_metadata29"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA29", 69)];
    TunMetadata30 ["tun_metadata30"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA30", 70)];
    TunMetadata31 ["tun_metadata31"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA31", 71)];
    TunMetadata32 ["tun_metadata32"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA32", 72)];
    TunMetadata33 ["tun_metadata33"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA33", 73)];
    TunMetadata34 ["tun_metadata34"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA34", 74)];
    TunMetadata35 ["tun_metadata35"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA35", 75)];
    TunMetadata36 ["tun_metadata36"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA36", 76)];
    TunMetadata37 ["tun_metadata37"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA37", 77)];
    TunMetadata38 ["tun_metadata38"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA38", 78)];
    TunMetadata39 ["tun_metadata39"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA39", 79)];
    TunMetadata40 ["tun_metadata40"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA40", 80)];
    TunMetadata41 ["tun_metadata41"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA41", 81)];
    TunMetadata42 ["tun_metadata42"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA42", 82)];
    TunMetadata43 ["tun_metadata43"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA43", 83)];
    TunMetadata44 ["tun_metadata44"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA44", 84)];
    TunMetadata45 ["tun_metadata45"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA45", 85)];
    TunMetadata46 ["tun_metadata46"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA46", 86)];
    TunMetadata47 ["tun_metadata47"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA47", 87)];
    TunMetadata48 ["tun_metadata48"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA48", 88)];
    TunMetadata49 ["tun_metadata49"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA49", 89)];
    TunMetadata50 ["tun_metadata50"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA50", 90)];
    TunMetadata51 ["tun_metadata51"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA51", 91)];
    TunMetadata52 ["tun_metadata52"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA52", 92)];
    TunMetadata53 ["tun_metadata53"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA53", 93)];
    TunMetadata54 ["tun_metadata54"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA54", 94)];
    TunMetadata55 ["tun_metadata55"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA55", 95)];
    TunMetadata56 ["tun_metadata56"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA56", 96)];
    TunMetadata57 ["tun_metadata57"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA57", 97)];
    TunMetadata58 ["tun_metadata58"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA58", 98)];
    TunMetadata59 ["tun_metadata59"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA59", 99)];
    TunMetadata60 ["tun_metadata60"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA60", 100)];
    TunMetadata61 ["tun_metadata61"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA61", 101)];
    TunMetadata62 ["tun_metadata62"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA62", 102)];
    TunMetadata63 ["tun_metadata63"] 992 low(128), Hex Any Rw None own elsewhere() [nxm1("TUN_METADATA63", 103)];
    CtState ["ct_state"] 32 low(8), CtState Any Ro None own key(CtState, 0) [nxm1("CT_STATE", 105)];
    CtZone ["ct_zone"] 16 low(16), Hex Exact Ro None own key(CtZone, 0) [nxm1("CT_ZONE", 106)];
    CtMark ["ct_mark"] 32 low(32), Hex Any Rw None own key(CtMark, 0) [nxm1("CT_MARK", 107)];
    CtLabel ["ct_label"] 128 low(128), Hex Any Rw None own key(CtLabel, 0) [nxm1("CT_LABEL", 108)];
    EthDst ["eth_dst", "dl_dst"] 48 low(48), Ethernet Any Rw Ethernet own key(EthDst, 0) [nxm0("ETH_DST", 1), oxm("ETH_DST", 3, 3)];
    EthSrc ["eth_src", "dl_src"] 48 low(48), Ethernet Any Rw Ethernet own key(EthSrc, 0) [nxm0("ETH_SRC", 2), oxm("ETH_SRC", 4, 3)];
    VlanTci ["vlan_tci"] 16 low(16), Hex Any Rw Ethernet own key(VlanTci0, 0) [nxm0("VLAN_TCI", 4)];
    DlVlan ["dl_vlan"] 16 low(12), Decimal Exact Rw Ethernet view key(VlanTci0, 0) [];
    DlVlanPcp ["dl_vlan_pcp"] 8 low(3), Decimal Exact Rw Ethernet view key(VlanTci0, 13) [];
    VlanVid ["vlan_vid"] 16 low(13), Decimal Any Rw Ethernet view key(VlanTci0, 0) [oxm("VLAN_VID", 6, 3)];
    VlanPcp ["vlan_pcp"] 8 low(3), Decimal Exact Rw VlanVid view key(VlanTci0, 13) [oxm("VLAN_PCP", 7, 3)];
    EthType ["eth_type", "dl_type"] 16 low(16), Hex Exact Ro Ethernet own key(EthType, 0) [nxm0("ETH_TYPE", 3), oxm("ETH_TYPE", 5, 3)];
    PbbIsid ["pbb_isid"] 24 low(24), Hex Any Rw Pbb own key(PbbIsid, 0) [oxm("PBB_ISID", 37, 4)];
    PbbUca ["pbb_uca"] 8 low(1), Decimal Exact Rw Pbb own key(PbbUca, 0) [oxm("PBB_UCA", 41, 5)];
    MplsLabel ["mpls_label"] 32 low(20), Decimal Exact Rw Mpls own key(MplsLse0, 12) [oxm("MPLS_LABEL", 34, 3)];
    MplsTc ["mpls_tc"] 8 low(3), Decimal Exact Rw Mpls own key(MplsLse0, 9) [oxm("MPLS_TC", 35, 3)];
    MplsBos ["mpls_bos"] 8 low(1), Decimal Exact Ro Mpls own key(MplsLse0, 8) [oxm("MPLS_BOS", 36, 4)];
    MplsTtl ["mpls_ttl"] 8 low(8), Decimal Exact Rw Mpls own key(MplsLse0, 0) [nxm1("MPLS_TTL", 30)];
    NwProto ["nw_proto", "ip_proto"] 8 low(8), Decimal Exact Ro Ip own key(IpProto, 0) [nxm0("IP_PROTO", 6), oxm("IP_PROTO", 10, 3)];
    IpFrag ["ip_frag", "nw_frag"] 8 low(2), Frag Any Ro Ip own key(IpFrag, 0) [nxm1("IP_FRAG", 26)];
    NwTos ["nw_tos"] 8 0xfc, Decimal Exact Rw Ip own key(IpTos, 0) [nxm0("IP_TOS", 5)];
    IpDscp ["ip_dscp"] 8 low(6), Decimal Exact Rw Ip view key(IpTos, 2) [oxm("IP_DSCP", 8, 3)];
    NwEcn ["nw_ecn", "ip_ecn"] 8 low(2), Decimal Exact Rw Ip own key(IpTos, 0) [nxm1("IP_ECN", 28), oxm("IP_ECN", 9, 3)];
    NwTtl ["nw_ttl"] 8 low(8), Decimal Exact Rw Ip own key(IpTtl, 0) [nxm1("IP_TTL", 29)];
    IpSrc ["ip_src", "nw_src"] 32 low(32), Ipv4 Any Rw Ipv4 own key(Ipv4Src, 0) [nxm0("IP_SRC", 7), oxm("IPV4_SRC", 11, 3)];
    IpDst ["ip_dst", "nw_dst"] 32 low(32), Ipv4 Any Rw Ipv4 own key(Ipv4Dst, 0) [nxm0("IP_DST", 8), oxm("IPV4_DST", 12, 3)];
    Ipv6Src ["ipv6_src"] 128 low(128), Ipv6 Any Rw Ipv6 own key(Ipv6Src, 0) [nxm1("IPV6_SRC", 19), oxm("IPV6_SRC", 26, 3)];
    Ipv6Dst ["ipv6_dst"] 128 low(128), Ipv6 Any Rw Ipv6 own key(Ipv6Dst, 0) [nxm1("IPV6_DST", 20), oxm("IPV6_DST", 27, 3)];
    Ipv6Label ["ipv6_label"] 32 low(20), Hex Any Rw Ipv6 own key(Ipv6Label, 0) [nxm1("IPV6_LABEL", 27), oxm("IPV6_FLABEL", 28, 3)];
    Ipv6Exthdr ["ipv6_exthdr"] 16 low(9), Hex Any Ro Ipv6 own key(Ipv6Exthdr, 0) [oxm("IPV6_EXTHDR", 39, 4)];
    ArpOp ["arp_op"] 16 low(16), Decimal Exact Rw Arp own key(ArpOp, 0) [nxm0("ARP_OP", 15), oxm("ARP_OP", 21, 3)];
    ArpSpa ["arp_spa"] 32 low(32), Ipv4 Any Rw Arp own key(ArpSpa, 0) [nxm0("ARP_SPA", 16), oxm("ARP_SPA", 22, 3)];
    ArpTpa ["arp_tpa"] 32 low(32), Ipv4 Any Rw Arp own key(ArpTpa, 0) [nxm0("ARP_TPA", 17), oxm("ARP_TPA", 23, 3)];
    ArpSha ["arp_sha"] 48 low(48), Ethernet Any Rw Arp own key(ArpSha, 0) [nxm1("ARP_SHA", 17), oxm("ARP_SHA", 24, 3)];
    ArpTha ["arp_tha"] 48 low(48), Ethernet Any Rw Arp own key(ArpTha, 0) [nxm1("ARP_THA", 18), oxm("ARP_THA", 25, 3)];
    NshFlags ["nsh_flags"] 8 low(8), Decimal Any Rw Nsh own key(NshFlags, 0) [nsh("FLAGS", 1)];
    NshTtl ["nsh_ttl"] 8 low(8), Decimal Exact Rw Nsh own key(NshTtl, 0) [nsh("TTL", 10)];
    NshMdtype ["nsh_mdtype"] 8 low(8), Decimal Exact Ro Nsh own key(NshMdtype, 0) [nsh("MDTYPE", 2)];
    NshNp ["nsh_np"] 8 low(8), Decimal Exact Ro Nsh own key(NshNp, 0) [nsh("NP", 3)];
    NshSpi ["nsh_spi", "nsp"] 32 low(24), Hex Exact Rw Nsh own key(NshSpi, 0) [nsh("SPI", 4)];
    NshSi ["nsh_si", "nsi"] 8 low(8), Decimal Exact Rw Nsh own key(NshSi, 0) [nsh("SI", 5)];
    NshC1 ["nsh_c1", "nshc1"] 32 low(32), Hex Any Rw Nsh own key(NshC1, 0) [nsh("C1", 6)];
    NshC2 ["nsh_c2", "nshc2"] 32 low(32), Hex Any Rw Nsh own key(NshC2, 0) [nsh("C2", 7)];
    NshC3 ["nsh_c3", "nshc3"] 32 low(32), Hex Any Rw Nsh own key(NshC3, 0) [nsh("C3", 8)];
    NshC4 ["nsh_c4", "nshc4"] 32 low(32), Hex Any Rw Nsh own key(NshC4, 0) [nsh("C4", 9)];
    TcpSrc ["tcp_src", "tp_src"] 16 low(16), Decimal Any Rw Tcp own key(TpSrc, 0) [nxm0("TCP_SRC", 9), oxm("TCP_SRC", 13, 3)];
    TcpDst ["tcp_dst", "tp_dst"] 16 low(16), Decimal Any Rw Tcp own key(TpDst, 0) [nxm0("TCP_DST", 10), oxm("TCP_DST", 14, 3)];
    UdpSrc ["udp_src"] 16 low(16), Decimal Any Rw Udp own key(TpSrc, 0) [nxm0("UDP_SRC", 11), oxm("UDP_SRC", 15, 3)];
    UdpDst ["udp_dst"] 16 low(16), Decimal Any Rw Udp own key(TpDst, 0) [nxm0("UDP_DST", 12), oxm("UDP_DST", 16, 3)];
    SctpSrc ["sctp_src"] 16 low(16), Decimal Any Rw Sctp own key(TpSrc, 0) [oxm("SCTP_SRC", 17, 3)];
    SctpDst ["sctp_dst"] 16 low(16), Decimal Any Rw Sctp own key(TpDst, 0) [oxm("SCTP_DST", 18, 3)];
    TcpFlags ["tcp_flags"] 16 low(12), TcpFlags Any Ro Tcp own key(TcpFlags, 0) [nxm1("TCP_FLAGS", 34), onf("TCP_FLAGS", 42), oxm("TCP_FLAGS", 42, 6)];
    IcmpType ["icmp_type"] 8 low(8), Decimal Exact Rw Icmpv4 own key(IcmpType, 0) [nxm0("ICMP_TYPE", 13), oxm("ICMPV4_TYPE", 19, 3)];
    IcmpCode ["icmp_code"] 8 low(8), Decimal Exact Rw Icmpv4 own key(IcmpCode, 0) [nxm0("ICMP_CODE", 14), oxm("ICMPV4_CODE", 20, 3)];
    Icmpv6Type ["icmpv6_type"] 8 low(8), Decimal Exact Rw Icmpv6 own key(IcmpType, 0) [nxm1("ICMPV6_TYPE", 21), oxm("ICMPV6_TYPE", 29, 3)];
    Icmpv6Code ["icmpv6_code"] 8 low(8), Decimal Exact Rw Icmpv6 own key(IcmpCode, 0) [nxm1("ICMPV6_CODE", 22), oxm("ICMPV6_CODE", 30, 3)];
    NdTarget ["nd_target"] 128 low(128), Ipv6 Any Rw Nd own key(NdTarget, 0) [nxm1("ND_TARGET", 23), oxm("IPV6_ND_TARGET", 31, 3)];
    NdSll ["nd_sll"] 48 low(48), Ethernet Any Rw NdSolicit own key(NdSll, 0) [nxm1("ND_SLL", 24), oxm("IPV6_ND_SLL", 32, 3)];
    NdTll ["nd_tll"] 48 low(48), Ethernet Any Rw NdAdvert own key(NdTll, 0) [nxm1("ND_TLL", 25), oxm("IPV6_ND_TLL", 33, 3)];
    NdReserved ["nd_reserved"] 32 low(32), Decimal Exact Rw Nd own key(NdReserved, 0) [eric("ICMPV6_ND_RESERVED", 1)];
    NdOptionsType ["nd_options_type"] 8 low(8), Decimal Exact Rw Nd own key(NdOptionsType, 0) [eric("ICMPV6_ND_OPTIONS_TYPE", 2)];
    CtNwProto ["ct_nw_proto"] 8 low(8), Decimal Exact Ro Ct own key(CtProto, 0) [nxm1("CT_NW_PROTO", 119)];
    CtNwSrc ["ct_nw_src"] 32 low(32), Ipv4 Any Ro CtIpv4 own key(CtIpv4Src, 0) [nxm1("CT_NW_SRC", 120)];
    CtNwDst ["ct_nw_dst"] 32 low(32), Ipv4 Any Ro CtIpv4 own key(CtIpv4Dst, 0) [nxm1("CT_NW_DST", 121)];
    CtIpv6Src ["ct_ipv6_src"] 128 low(128), Ipv6 Any Ro CtIpv6 own key(CtIpv6Src, 0) [nxm1("CT_IPV6_SRC", 122)];
    CtIpv6Dst ["ct_ipv6_dst"] 128 low(128), Ipv6 Any Ro CtIpv6 own key(CtIpv6Dst, 0) [nxm1("CT_IPV6_DST", 123)];
    CtTpSrc ["ct_tp_src"] 16 low(16), Decimal Any Ro CtPorts own key(CtTpSrc, 0) [nxm1("CT_TP_SRC", 124)];
    CtTpDst ["ct_tp_dst"] 16 low(16), Decimal Any Ro CtPorts own key(CtTpDst, 0) [nxm1("CT_TP_DST", 125)];
}
