//! The SHA-1 of a record's body, which its header contains.

use sha1::{Digest, Sha1};

/// A SHA-1 as 40 lower-case hexadecimal digits.
pub(super) struct Sum([u8; 40]);

impl Sum {
    /// The sum of these bytes.
    pub(super) fn of(bytes: &[u8]) -> Sum {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 40];
        for (pair, byte) in text.chunks_exact_mut(2).zip(Sha1::digest(bytes)) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        Sum(text)
    }

    /// The digits.
    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_another_implementation() {
        let bytes: Vec<u8> = (0..1000u32).map(|at| (at * 7) as u8).collect();
        for length in (0..200).chain([999, 1000]) {
            let other = sha1_smol::Sha1::from(&bytes[..length]).digest().to_string();
            assert_eq!(Sum::of(&bytes[..length]).as_str(), other);
        }
    }
}
