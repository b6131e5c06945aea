//! `struct virtio_net_hdr`: the pending offloads of a packet of a socket or TAP device (virtio 1.2
//! §5.1.6, legacy layout of ten bytes in the host's byte order).

use crate::{Csum, Gso, Offload};

/// Length of the header.
pub(crate) const LEN: usize = 10;

const F_NEEDS_CSUM: u8 = 1;
const F_DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// The header for a packet that is sent.
#[inline]
pub(crate) fn encode(offload: &Offload) -> [u8; LEN] {
    let mut header = [0; LEN];
    match offload.csum {
        Csum::Unknown => {}
        Csum::Valid => header[0] = F_DATA_VALID,
        Csum::Partial { start, offset } => {
            header[0] = F_NEEDS_CSUM;
            header[6..8].copy_from_slice(&start.to_ne_bytes());
            header[8..10].copy_from_slice(&offset.to_ne_bytes());
        }
    }
    let gso = match offload.gso {
        Gso::None => return header,
        Gso::Tcp4 => GSO_TCPV4,
        Gso::Tcp6 => GSO_TCPV6,
        Gso::Udp => GSO_UDP_L4,
    };
    header[1] = gso | if offload.ecn { GSO_ECN } else { 0 };
    header[2..4].copy_from_slice(&offload.hdr_len.to_ne_bytes());
    header[4..6].copy_from_slice(&offload.gso_size.to_ne_bytes());
    header
}

/// The pending offloads of a received packet; `None` for an unknown kind of segment.
#[inline]
pub(crate) fn decode(header: &[u8; LEN]) -> Option<Offload> {
    let field = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let csum = if header[0] & F_NEEDS_CSUM != 0 {
        Csum::Partial {
            start: field(6),
            offset: field(8),
        }
    } else if header[0] & F_DATA_VALID != 0 {
        Csum::Valid
    } else {
        Csum::Unknown
    };
    let gso = match header[1] & !GSO_ECN {
        GSO_NONE => {
            return Some(Offload {
                csum,
                ..Offload::default()
            });
        }
        GSO_TCPV4 => Gso::Tcp4,
        GSO_TCPV6 => Gso::Tcp6,
        GSO_UDP_L4 => Gso::Udp,
        _ => return None,
    };
    Some(Offload {
        csum,
        gso,
        ecn: header[1] & GSO_ECN != 0,
        gso_size: field(4),
        hdr_len: field(2),
        encapsulated: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_decodes_to_the_same() {
        for csum in [Csum::Unknown, Csum::Valid, Csum::Partial { start: 34, offset: 16 }] {
            for gso in [Gso::None, Gso::Tcp4, Gso::Tcp6, Gso::Udp] {
                let some = gso != Gso::None;
                let offload = Offload {
                    csum,
                    gso,
                    ecn: gso == Gso::Tcp4,
                    gso_size: if some { 1448 } else { 0 },
                    hdr_len: if some { 66 } else { 0 },
                    encapsulated: false,
                };
                assert_eq!(decode(&encode(&offload)), Some(offload));
            }
        }
    }

    #[test]
    fn an_unknown_kind_of_segment_is_not_taken_for_a_packet() {
        assert_eq!(decode(&[0, 3, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
