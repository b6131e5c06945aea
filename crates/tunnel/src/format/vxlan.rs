//! VXLAN (RFC 7348), group policies (draft-smith-vxlan-group-policy) and generic protocol
//! encapsulation (draft-ietf-nvo3-vxlan-gpe).

use super::inner::Inner;
use super::template::EncapsulateError;
use super::{Details, Found, Kind, Refusal, be16, be32};
use wire::EtherType;

/// Length of the header.
pub(super) const LEN: usize = 8;

/// The header has a VNI.
const I: u8 = 0x08;
/// The header has a group policy.
const G: u8 = 0x80;
/// The header has a next protocol (GPE).
const P: u8 = 0x04;
/// The packet is of operation and maintenance (GPE).
const O: u8 = 0x01;
/// Bits of GPE that do not change how a packet is read: version, P, B and O.
const GPE_BITS: u8 = 0x37;

/// The group policy of a packet (draft-smith-vxlan-group-policy §2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gbp {
    /// The group, `tun_gbp_id`.
    pub id: u16,
    /// `tun_gbp_flags`: bit 6 forbids learning, bit 3 says that the policy was applied.
    pub flags: u8,
}

impl Gbp {
    /// The bits that flags may have.
    pub const FLAGS: u8 = 0x48;
}

#[inline]
pub(super) fn parse(data: &[u8], gbp: bool, gpe: bool) -> Result<Found<'_>, Refusal> {
    let header: &[u8; LEN] = data.first_chunk().ok_or(Refusal::Truncated)?;
    let (mut flags, mut inner, mut details) = (header[0], Inner::Ethernet, Details::None);
    // The bytes that extensions use; without one they are reserved.
    let mut reserved = be32(header, 0) & 0xff_ffff;
    if gpe && flags & P != 0 {
        if flags & O != 0 {
            return Err(Refusal::VxlanOam);
        }
        flags &= !GPE_BITS;
        reserved &= !0xff;
        inner = of_next_protocol(header[3]).ok_or(Refusal::VxlanNextProtocol)?;
    } else if gbp && flags & G != 0 {
        flags &= !G;
        reserved = 0;
        details = Details::Gbp(Gbp {
            id: be16(header, 2),
            flags: header[1] & Gbp::FLAGS,
        });
    }
    if flags != I || reserved != 0 {
        return Err(Refusal::VxlanFlags);
    }
    if header[7] != 0 {
        return Err(Refusal::VxlanReserved);
    }
    let id = u64::from(be32(header, 4) >> 8);
    let found = Found::new(Kind::Vxlan, Some(id), inner, LEN, data.len());
    Ok(Found { details, ..found })
}

/// The header of a packet with this VNI.
pub(super) fn build(vni: u32, gbp: Option<Gbp>, gpe: bool, inner: Inner) -> Result<[u8; LEN], EncapsulateError> {
    let mut header = [0; LEN];
    header[0] = I;
    header[4..].copy_from_slice(&(vni << 8).to_be_bytes());
    if gpe {
        header[0] |= P;
        header[3] = next_protocol(inner).ok_or(EncapsulateError::Inner)?;
    } else if inner != Inner::Ethernet {
        return Err(EncapsulateError::Inner);
    } else if let Some(gbp) = gbp {
        header[0] |= G;
        header[1] = gbp.flags & Gbp::FLAGS;
        header[2..4].copy_from_slice(&gbp.id.to_be_bytes());
    }
    Ok(header)
}

/// Next protocols and what follows.
const NEXT_PROTOCOLS: [(u8, Inner); 5] = [
    (1, Inner::Packet(EtherType::IPV4)),
    (2, Inner::Packet(EtherType::IPV6)),
    (3, Inner::Ethernet),
    (4, Inner::Packet(EtherType::NSH)),
    (5, Inner::Packet(EtherType::MPLS)),
];

fn of_next_protocol(number: u8) -> Option<Inner> {
    let found = NEXT_PROTOCOLS.iter().find(|(own, _)| *own == number);
    found.map(|(_, inner)| *inner)
}

fn next_protocol(inner: Inner) -> Option<u8> {
    let found = NEXT_PROTOCOLS.iter().find(|(_, own)| *own == inner);
    found.map(|(number, _)| *number)
}
