//! Cutting text into words.

/// A key and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair<'a> {
    pub(super) key: &'a str,
    /// The text behind `=` or `:`, or in parentheses (with the text behind them up to the next
    /// separator); empty if there is none.
    pub(super) value: &'a str,
    /// Whether there is a value.
    pub(super) given: bool,
    /// The text behind the closing parenthesis.
    pub(super) tail: &'a str,
}

/// Whether a byte ends a word.
const fn separates(byte: u8) -> bool {
    matches!(byte, b',' | b' ' | b'\t' | b'\r' | b'\n')
}

/// A text without what separates words at its start.
fn trimmed(text: &str) -> &str {
    let start = text.bytes().position(|b| !separates(b)).unwrap_or(text.len());
    &text[start..]
}

/// Cuts the next pair off a text: `key`, `key=value`, `key:value` or `key(value)`, up to a comma or
/// space outside of parentheses.
pub(super) fn next<'a>(text: &mut &'a str) -> Option<Pair<'a>> {
    let rest = trimmed(text);
    if rest.is_empty() {
        *text = rest;
        return None;
    }
    let ends = |b: u8| separates(b) || matches!(b, b'=' | b':' | b'(');
    let end = rest.bytes().position(ends).unwrap_or(rest.len());
    let (key, behind) = rest.split_at(end);
    let pair = |value, given, tail| Pair {
        key,
        value,
        given,
        tail,
    };
    match behind.as_bytes().first() {
        Some(b'=' | b':') => {
            let (value, rest) = behind[1..].split_at(extent(&behind[1..]));
            *text = rest;
            Some(pair(value, true, ""))
        }
        Some(b'(') => {
            let (whole, rest) = behind.split_at(extent(behind));
            *text = rest;
            let close = closing(whole).unwrap_or(whole.len());
            let tail = whole.get(close + 1..).unwrap_or("");
            Some(pair(&whole[1..close], true, tail))
        }
        _ => {
            *text = behind;
            Some(pair("", false, ""))
        }
    }
}

/// Length of a value: to the first separator outside of parentheses and quotes.
fn extent(text: &str) -> usize {
    let mut depth = 0u32;
    let mut quoted = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            byte if depth == 0 && separates(byte) => return at,
            _ => {}
        }
    }
    text.len()
}

/// Position of the parenthesis that closes the one at the start of a text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0u32;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// The parts of a list at commas and spaces outside of parentheses.
pub(super) fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = trimmed(text);
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(extent(rest));
        parts.push(part);
        rest = trimmed(behind);
    }
    parts
}
