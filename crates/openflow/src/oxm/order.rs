//! The order of fields in a message: Open vSwitch's, which clients compare and print.

use flow::MatchField;

/// Canonical fields in the order of messages. Tunnel metadata stands for all of its fields.
const ORDER: &[MatchField] = {
    use MatchField::*;
    &[
        PacketType,
        DpHash,
        RecircId,
        ConjId,
        SkbPriority,
        InPortOxm,
        InPhyPort,
        ActsetOutput,
        EthSrc,
        EthDst,
        EthType,
        VlanTci,
        PbbIsid,
        PbbUca,
        MplsTc,
        MplsBos,
        MplsTtl,
        MplsLabel,
        IpSrc,
        IpDst,
        Ipv6Src,
        Ipv6Dst,
        IpFrag,
        NwTos,
        NwEcn,
        NwTtl,
        Ipv6Label,
        Ipv6Exthdr,
        NwProto,
        TcpSrc,
        TcpDst,
        TcpFlags,
        UdpSrc,
        UdpDst,
        SctpSrc,
        SctpDst,
        IcmpType,
        IcmpCode,
        Icmpv6Type,
        Icmpv6Code,
        NdReserved,
        NdTarget,
        NdOptionsType,
        NdSll,
        NdTll,
        ArpOp,
        ArpSpa,
        ArpTpa,
        ArpSha,
        ArpTha,
        TunId,
        TunFlags,
        TunSrc,
        TunDst,
        TunIpv6Src,
        TunIpv6Dst,
        TunGbpId,
        TunGbpFlags,
        TunTos,
        TunTtl,
        TunMetadata0,
        TunErspanIdx,
        TunErspanVer,
        TunErspanDir,
        TunErspanHwid,
        TunGtpuFlags,
        TunGtpuMsgtype,
        NshFlags,
        NshTtl,
        NshMdtype,
        NshNp,
        NshSpi,
        NshSi,
        NshC1,
        NshC2,
        NshC3,
        NshC4,
        Reg0,
        Reg1,
        Reg2,
        Reg3,
        Reg4,
        Reg5,
        Reg6,
        Reg7,
        Reg8,
        Reg9,
        Reg10,
        Reg11,
        Reg12,
        Reg13,
        Reg14,
        Reg15,
        PktMark,
        CtState,
        CtZone,
        CtMark,
        CtLabel,
        CtNwSrc,
        CtNwDst,
        CtIpv6Src,
        CtIpv6Dst,
        CtNwProto,
        CtTpSrc,
        CtTpDst,
        Metadata,
    ]
};

/// Places of fields in [`ORDER`], by the field's number.
const PLACES: [u8; MatchField::ALL.len()] = {
    let mut places = [NOWHERE; MatchField::ALL.len()];
    let mut place = 0;
    while place < ORDER.len() {
        places[ORDER[place] as usize] = place as u8;
        place += 1;
    }
    places
};

const NOWHERE: u8 = u8::MAX;

/// A set of canonical fields, to be gone through in the order of messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fields(u128);

const _: () = assert!(ORDER.len() <= 128);

impl Fields {
    /// Adds a canonical field.
    pub(super) fn insert(&mut self, field: MatchField) {
        let place = PLACES[field as usize];
        if place != NOWHERE {
            self.0 |= 1 << place;
        }
    }
}

impl Iterator for Fields {
    type Item = MatchField;

    fn next(&mut self) -> Option<MatchField> {
        let field = *ORDER.get(self.0.trailing_zeros() as usize)?;
        self.0 &= self.0 - 1;
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_canonical_field_has_one_place() {
        for field in MatchField::ALL {
            let places = ORDER.iter().filter(|other| *other == field).count();
            let tunnel_metadata = field.info().home == flow::Home::Elsewhere && *field != MatchField::TunMetadata0;
            let expected = usize::from(field.info().canonical && !tunnel_metadata);
            assert_eq!(places, expected, "{field}");
        }
    }
}
