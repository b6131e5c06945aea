//! Cutting text into words.

/// A key and what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair<'a> {
    pub(super) key: &'a str,
    /// What follows `=` or `:`, or is in parentheses (with what follows them up to the next separator); empty without any.
    pub(super) value: &'a str,
    /// Whether anything followed.
    pub(super) given: bool,
    /// What follows the closing parenthesis.
    pub(super) tail: &'a str,
}

/// Whether a character ends a word.
fn separates(c: char) -> bool {
    c == ',' || c.is_ascii_whitespace()
}

/// Cuts the next pair off a text: `key`, `key=value`, `key:value` or `key(value)`, up to a comma or space outside of parentheses.
pub(super) fn next<'a>(text: &mut &'a str) -> Option<Pair<'a>> {
    let rest = text.trim_start_matches(separates);
    if rest.is_empty() {
        *text = rest;
        return None;
    }
    let end = rest
        .find(|c: char| separates(c) || matches!(c, '=' | ':' | '('))
        .unwrap_or(rest.len());
    let (key, behind) = rest.split_at(end);
    let pair = |value, given, tail| Pair {
        key,
        value,
        given,
        tail,
    };
    match behind.chars().next() {
        Some('=' | ':') => {
            let (value, rest) = behind[1..].split_at(extent(&behind[1..]));
            *text = rest;
            Some(pair(value, true, ""))
        }
        Some('(') => {
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

/// How long a value is: to the first separator outside of parentheses and quotes.
fn extent(text: &str) -> usize {
    let mut depth = 0u32;
    let mut quoted = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            c if depth == 0 && separates(c) => return at,
            _ => {}
        }
    }
    text.len()
}

/// Where the parenthesis that a text begins with is closed.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0u32;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => {
                depth -= 1;
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
    let mut rest = text.trim_start_matches(separates);
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(extent(rest));
        parts.push(part);
        rest = behind.trim_start_matches(separates);
    }
    parts
}
