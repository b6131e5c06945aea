//! Sets of flags: `+syn-ack`, `syn|ack`, numbers.

use super::TextError;
use super::lex::c_number;
use flow::Format;

/// The names of a format's flags, from the lowest bit, and what they are called in errors.
fn flags(format: Format) -> (&'static [&'static str], &'static str) {
    match format {
        Format::TcpFlags => (
            &["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"],
            "TCP",
        ),
        Format::CtState => (&["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"], "ct_state"),
        _ => (&["oam"], "tunnel"),
    }
}

/// Reads flags: value and mask.
pub(super) fn parse(text: &str, format: Format) -> Result<(u128, u128), TextError> {
    let (names, what) = flags(format);
    let all = (1_u128 << names.len()) - 1;
    let unknown = |text: &str| TextError::Flag {
        text: text.to_string(),
        what,
    };
    let bit = |name: &str| names.iter().position(|n| *n == name).ok_or_else(|| unknown(name));
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let number = |text: &str| c_number(text).and_then(|n| u128::try_from(n).ok());
        let (value, mask) = match text.split_once('/') {
            Some((value, mask)) => (number(value), number(mask)),
            None => (number(text), Some(all)),
        };
        return match (value, mask) {
            (Some(value), Some(mask)) if (value | mask) & !all == 0 => Ok((value & mask, mask)),
            _ => Err(unknown(text)),
        };
    }
    if !text.starts_with(['+', '-']) {
        let mut value = 0;
        for name in text.split('|') {
            value |= 1 << bit(name).map_err(|_| unknown(text))?;
        }
        return Ok((value, all));
    }
    let (mut value, mut mask) = (0, 0);
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        let end = rest[1..].find(['+', '-']).map_or(rest.len(), |at| at + 1);
        let name = &rest[1..end];
        let flag = 1_u128 << bit(name)?;
        if mask & flag != 0 {
            return Err(TextError::FlagTwice {
                text: name.to_string(),
                what,
            });
        }
        mask |= flag;
        if sign == '+' {
            value |= flag;
        }
        rest = &rest[end..];
    }
    Ok((value, mask))
}

/// Prints flags. Where all count, those that are set; else a sign for each that counts.
pub(super) fn print(out: &mut String, format: Format, value: u128, mask: u128) {
    let (names, _) = flags(format);
    let all = (1_u128 << names.len()) - 1;
    let set = |bits: u128| names.iter().enumerate().filter(move |(n, _)| bits >> n & 1 != 0);
    if mask & all == all && format != Format::TunFlags {
        if value == 0 {
            out.push('0');
        }
        for (n, (_, name)) in set(value).enumerate() {
            if n > 0 {
                out.push('|');
            }
            out.push_str(name);
        }
        return;
    }
    for (n, name) in set(mask) {
        out.push(if value >> n & 1 != 0 { '+' } else { '-' });
        out.push_str(name);
    }
}
