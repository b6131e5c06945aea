//! Bytes in text.

use std::fmt::Write;

/// Bytes, sixteen a line: their place, hexadecimal digits and characters.
pub(crate) fn hex_dump(out: &mut String, data: &[u8]) {
    for (line, bytes) in data.chunks(16).enumerate() {
        let _ = write!(out, "{:08x} ", line * 16);
        for n in 0..16 {
            out.push(if n == 8 && bytes.len() >= 8 { '-' } else { ' ' });
            match bytes.get(n) {
                Some(byte) => {
                    let _ = write!(out, "{byte:02x}");
                }
                None => out.push_str("  "),
            }
        }
        out.push_str(" |");
        for n in 0..16 {
            out.push(match bytes.get(n) {
                Some(byte @ 0x20..=0x7e) => char::from(*byte),
                Some(_) => '.',
                None => ' ',
            });
        }
        out.push_str("|\n");
    }
}

/// Bytes, sixteen a line: their place and hexadecimal digits.
pub fn hex_lines(out: &mut String, data: &[u8]) {
    for (n, line) in data.chunks(16).enumerate() {
        let _ = write!(out, "{:08x} ", n * 16);
        for (n, byte) in line.iter().enumerate() {
            let separator = if n == 8 { '-' } else { ' ' };
            let _ = write!(out, "{separator}{byte:02x}");
        }
        out.push('\n');
    }
}

/// As [`hex_lines`]; the middle of the last line is marked, whether bytes follow or not.
pub(super) fn marked_hex_lines(out: &mut String, data: &[u8]) {
    hex_lines(out, data);
    if data.len() % 16 == 8 {
        out.insert(out.len() - 1, '-');
    }
}

/// Text from a peer; unprintable bytes and the backslash are written in octal.
pub(super) fn printable(out: &mut String, data: &[u8]) {
    for byte in data {
        match byte {
            b'\\' | 0..0x20 | 0x7f.. => {
                let _ = write!(out, "\\{byte:03o}");
            }
            _ => out.push(char::from(*byte)),
        }
    }
}
