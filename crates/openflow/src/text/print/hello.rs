//! Hellos: the one message that is decoded in any version.

use super::hex::hex_dump;
use crate::HEADER_LEN;
use std::fmt::Write;

/// Prints the versions that a hello offers.
pub(super) fn hello(out: &mut String, data: &[u8]) {
    const BITMAP: u16 = 1;
    let mut rest = &data[HEADER_LEN..];
    let mut bitmap = None;
    let mut understood = true;
    while !rest.is_empty() {
        let Some([a, b, c, d]) = rest.first_chunk() else {
            understood = false;
            break;
        };
        let (kind, len) = (u16::from_be_bytes([*a, *b]), usize::from(u16::from_be_bytes([*c, *d])));
        if len < 4 || rest.len() < len.next_multiple_of(8) {
            understood = false;
            break;
        }
        let element = &rest[4..len];
        match (kind, element.first_chunk::<4>()) {
            (BITMAP, Some(word)) => {
                let word = u32::from_be_bytes(*word);
                if word & 1 != 0 {
                    understood = false;
                }
                if word & !1 == 0 {
                    understood = false;
                } else {
                    bitmap = Some(word & !1);
                }
            }
            _ => understood = false,
        }
        rest = &rest[len.next_multiple_of(8)..];
    }
    let bitmap = bitmap.unwrap_or_else(|| (1u64 << (u64::from(data[0]) + 1).min(32)).wrapping_sub(2) as u32);
    let versions: Vec<String> = (0..32)
        .filter(|n| bitmap & 1 << n != 0)
        .map(|n| format!("0x{n:02x}"))
        .collect();
    let _ = write!(out, "\n version bitmap: {}", versions.join(", "));
    if !understood {
        out.push_str("\n unknown data in hello:\n");
        hex_dump(out, data);
    }
}
