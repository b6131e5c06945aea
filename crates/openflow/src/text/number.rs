//! Numbers in text: hexadecimal behind `0x`, octal behind `0`, else decimal.

use super::ParseError;

/// The digits of a number without its prefix, and their base.
fn base(text: &[u8]) -> (&[u8], u32) {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => (digits, 16),
        [b'0', digits @ ..] if !digits.is_empty() => (digits, 8),
        digits => (digits, 10),
    }
}

fn digit(digit: u8, base: u32) -> Option<u8> {
    let value = match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        b'A'..=b'F' => digit - b'A' + 10,
        _ => return None,
    };
    (u32::from(value) < base).then_some(value)
}

/// A number of at most 64 bits.
pub(super) fn unsigned(text: &str) -> Option<u64> {
    let (digits, base) = base(text.as_bytes());
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, d| {
        let value = digit(*d, base)?;
        number.checked_mul(base.into())?.checked_add(value.into())
    })
}

/// The same, of 128 bits.
pub(super) fn wide(text: &str) -> Option<u128> {
    if let Some(number) = unsigned(text) {
        return Some(number.into());
    }
    let (digits, base) = base(text.as_bytes());
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u128, |number, d| {
        let value = digit(*d, base)?;
        number.checked_mul(base.into())?.checked_add(value.into())
    })
}

/// A number of a named argument.
pub(super) fn named<T: TryFrom<u64>>(text: &str, name: &str) -> Result<T, ParseError> {
    let number = unsigned(text).and_then(|n| T::try_from(n).ok());
    number.ok_or_else(|| ParseError::new(format!("invalid {name} \"{text}\"")))
}

/// A number without a name; negative ones are 64 bits in two's complement.
pub(super) fn u64(text: &str) -> Result<u64, ParseError> {
    if text.is_empty() {
        return Err(ParseError::new("missing required numeric argument"));
    }
    let negative = || text.strip_prefix('-').and_then(unsigned).map(u64::wrapping_neg);
    let number = unsigned(text).or_else(negative);
    number.ok_or_else(|| ParseError::new(format!("invalid numeric format {text}")))
}

/// A number of 32 bits without a name; negative ones are in two's complement.
pub(super) fn u32(text: &str) -> Result<u32, ParseError> {
    let number = u64(text)?;
    let signed = i32::try_from(number as i64).map(|n| n as u32);
    let number = u32::try_from(number).or(signed);
    number.map_err(|_| ParseError::new(format!("invalid numeric format {text}")))
}

/// Hexadecimal with `0x` before it, but for zero.
pub(super) fn hex(number: u128) -> String {
    let mut out = String::new();
    put_hex(&mut out, number);
    out
}

/// Appends a number in hexadecimal with `0x` before it, but for zero.
pub(super) fn put_hex(out: &mut String, number: u128) {
    if number == 0 {
        out.push('0');
        return;
    }
    out.push_str("0x");
    let digits = (128 - number.leading_zeros()).div_ceil(4);
    for place in (0..digits).rev() {
        put_nibble(out, (number >> (4 * place)) as u8);
    }
}

/// Appends a byte's low four bits.
fn put_nibble(out: &mut String, nibble: u8) {
    out.push(char::from(b"0123456789abcdef"[usize::from(nibble & 15)]));
}

/// Appends a byte as two hexadecimal digits.
pub(super) fn put_byte(out: &mut String, byte: u8) {
    put_nibble(out, byte >> 4);
    put_nibble(out, byte);
}

/// Appends a number in decimal.
pub(super) fn put_decimal(out: &mut String, number: u128) {
    let Ok(mut rest) = u64::try_from(number) else {
        out.push_str(&number.to_string());
        return;
    };
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    digits[at..].iter().for_each(|digit| out.push(char::from(*digit)));
}
