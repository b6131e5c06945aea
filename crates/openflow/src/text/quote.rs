//! Names of ports and tables in text. A name that is not a letter with letters and digits behind it
//! is between quotes, with the escapes of a JSON string (RFC 8259 §7).

use std::borrow::Cow;
use std::fmt::Write;

/// A name as a text shows it.
pub(super) fn quoted(name: &str) -> Cow<'_, str> {
    let first = name.chars().next();
    if first.is_some_and(|c| c.is_ascii_alphabetic()) && name.chars().all(|c| c.is_ascii_alphanumeric()) {
        return name.into();
    }
    let mut out = String::from('"');
    for c in name.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out.into()
}

/// The name that a text means, with or without quotes. A text with wrong escapes is a name as it
/// stands.
pub(super) fn unquoted(text: &str) -> Cow<'_, str> {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let name = inner.and_then(|inner| match inner.contains('\\') {
        true => unescaped(inner).map(Cow::Owned),
        false => Some(inner.into()),
    });
    name.unwrap_or(text.into())
}

fn unescaped(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match rest.next()? {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let digits = rest.as_str().get(..4)?;
                rest = rest.as_str().get(4..)?.chars();
                char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
            }
            c @ ('"' | '\\' | '/') => c,
            _ => return None,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_unless_they_are_letters_and_digits() {
        for (name, text) in [
            ("p1", "p1"),
            ("a_b", "\"a_b\""),
            ("4x", "\"4x\""),
            ("a\"b\\\n\u{1}é", "\"a\\\"b\\\\\\n\\u0001é\""),
            ("", "\"\""),
        ] {
            assert_eq!(quoted(name), text);
            assert_eq!(unquoted(text), name);
        }
        assert_eq!(unquoted("\"a\\x\""), "\"a\\x\"", "an unknown escape");
        assert_eq!(unquoted("\"a\\u12\""), "\"a\\u12\"", "an escape that is cut off");
        assert_eq!(unquoted("\""), "\"");
    }
}
