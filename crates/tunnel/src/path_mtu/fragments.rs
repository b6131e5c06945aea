//! Fragments of outer packets (RFC 791 §3.2).

use wire::checksum::checksum;

const IPV4_LEN: usize = 20;
/// The bit "more fragments", in its byte.
const MORE: u8 = 0x20;

/// Clears "don't fragment" in an IPv4 header without options and sets its identification, which no
/// other packet between these addresses has at this time. Returns whether it is such a header.
pub fn allow_fragments(packet: &mut [u8], identification: u16) -> bool {
    let Some(header) = packet.first_chunk_mut::<IPV4_LEN>().filter(|header| header[0] == 0x45) else {
        return false;
    };
    header[4..6].copy_from_slice(&identification.to_be_bytes());
    header[6] &= MORE;
    with_sum(header);
    true
}

/// The fragments of an IPv4 packet without options, which is no fragment itself, of at most `mtu`
/// bytes each. None if it is another packet, or `mtu` has no room for data.
pub fn fragments(packet: &[u8], mtu: usize) -> impl Iterator<Item = Vec<u8>> {
    let parts = packet.split_first_chunk::<IPV4_LEN>();
    let parts = parts.filter(|(header, _)| header[0] == 0x45 && header[6] & !0x40 == 0 && header[7] == 0);
    // Fragments but the last have a multiple of 8 bytes.
    let room = mtu.saturating_sub(IPV4_LEN) / 8 * 8;
    let (header, data) = parts
        .filter(|_| room > 0)
        .map_or((None, &[][..]), |(header, data)| (Some(header), data));
    let last = data.len().saturating_sub(1) / room.max(1);
    header.into_iter().flat_map(move |header| {
        data.chunks(room).enumerate().map(move |(n, piece)| {
            let mut header = *header;
            let len = (IPV4_LEN + piece.len()) as u16;
            header[2..4].copy_from_slice(&len.to_be_bytes());
            let offset = (n * room / 8) as u16;
            header[6..8].copy_from_slice(&offset.to_be_bytes());
            header[6] |= if n < last { MORE } else { 0 };
            with_sum(&mut header);
            [&header, piece].concat()
        })
    })
}

fn with_sum(header: &mut [u8; IPV4_LEN]) {
    header[10..12].fill(0);
    let sum = checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}
