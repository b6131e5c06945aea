//! Numbers in text.

use super::ParseError;

/// A number: hexadecimal behind `0x`, else decimal.
pub(super) fn unsigned(text: &str) -> Option<u64> {
    u64::try_from(wide(text)?).ok()
}

/// The same, of 128 bits.
pub(super) fn wide(text: &str) -> Option<u128> {
    let lower = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match lower {
        Some(digits) if !digits.starts_with('+') => u128::from_str_radix(digits, 16).ok(),
        None if !text.starts_with('+') => text.parse().ok(),
        _ => None,
    }
}

/// A number of a named argument.
pub(super) fn named<T: TryFrom<u64>>(text: &str, name: &str) -> Result<T, ParseError> {
    let number = unsigned(text).and_then(|n| T::try_from(n).ok());
    number.ok_or_else(|| ParseError::new(format!("invalid {name} \"{text}\"")))
}

/// A number without a name; negative ones are 64 bits in two's complement.
pub(super) fn u64(text: &str) -> Result<u64, ParseError> {
    let negative = text.strip_prefix('-').and_then(unsigned);
    let number = unsigned(text).or(negative.map(u64::wrapping_neg));
    number.ok_or_else(|| ParseError::new(format!("invalid numeric format {text}")))
}

/// A number of 32 bits without a name.
pub(super) fn u32(text: &str) -> Result<u32, ParseError> {
    let number = u64(text)?;
    u32::try_from(number).map_err(|_| ParseError::new(format!("invalid numeric format {text}")))
}

/// Hexadecimal with `0x` before it, but for zero.
pub(super) fn hex(number: u128) -> String {
    match number {
        0 => "0".into(),
        _ => format!("{number:#x}"),
    }
}
