//! Numbers as C reads them, since Open vSwitch reads options so.

/// A number in the base, which is 0 for "as its prefix says": blanks and a sign may precede it,
/// anything may follow. The number, its sign and what follows; the number is the greatest one if it
/// does not fit.
fn scan(text: &str, base: u32) -> (u64, bool, &str) {
    let trimmed = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let negative = trimmed.starts_with('-');
    let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let hexadecimal = hexadecimal.filter(|rest| rest.starts_with(|c: char| c.is_ascii_hexdigit()));
    let (radix, digits) = match (base, hexadecimal) {
        (0 | 16, Some(rest)) => (16, rest),
        (0, None) if digits.starts_with('0') => (8, digits),
        (0, None) => (10, digits),
        (base, _) => (base, digits),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    if end == 0 {
        return (0, false, text);
    }
    let value = u64::from_str_radix(&digits[..end], radix).unwrap_or(u64::MAX);
    (value, negative, &digits[end..])
}

/// `strtoul` and `strtoull`: a negative number counts from the end.
pub(super) fn unsigned(text: &str, base: u32) -> u64 {
    let (value, negative, _) = scan(text, base);
    if negative && value != u64::MAX {
        value.wrapping_neg()
    } else {
        value
    }
}

/// `strtol`, and what follows the number.
pub(super) fn signed(text: &str, base: u32) -> (i64, &str) {
    let (value, negative, rest) = scan(text, base);
    let limit = if negative { i64::MIN } else { i64::MAX };
    let value = i64::try_from(value)
        .ok()
        .map(|value| if negative { -value } else { value });
    (value.unwrap_or(limit), rest)
}

/// `atoi`.
pub(super) fn int(text: &str) -> i32 {
    signed(text, 10).0 as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        assert_eq!(unsigned("0x1f", 0), 31);
        assert_eq!(unsigned("017", 0), 15);
        assert_eq!(unsigned(" 7x", 0), 7);
        assert_eq!(unsigned("-1", 0), u64::MAX);
        assert_eq!(unsigned("99999999999999999999", 0), u64::MAX);
        assert_eq!(unsigned("0x10", 10), 0);
        assert_eq!(unsigned("1f", 16), 31);
        assert_eq!(unsigned("zz", 0), 0);
        assert_eq!(signed("0x4x", 0), (4, "x"));
        assert_eq!(signed("-9223372036854775809", 0), (i64::MIN, ""));
        assert_eq!(signed("", 0), (0, ""));
        assert_eq!(signed("0x", 0), (0, "x"));
        assert_eq!(int("-1"), -1);
        assert_eq!(int("300 "), 300);
    }
}
