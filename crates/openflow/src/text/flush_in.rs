//! Reading which connections to flush, as `ovs-ofctl ct-flush` and `dpctl/flush-conntrack` have it.

use super::{ParseError, number};
use crate::model::CtFlush;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Protocol numbers of ICMP and ICMPv6.
const ICMP: [u8; 2] = [1, 58];

/// Reads `[zone=N] [mark=X[/M]] [labels=X[/M]] [ORIGINAL] [REPLY]`: what to flush, and how many
/// words that takes. More words are left over.
///
/// # Errors
/// What is wrong with a word. [`FlushError::Tuple`] has the reason.
pub fn parse_ct_flush(words: &[&str]) -> Result<(CtFlush, usize), FlushError> {
    let mut flush = CtFlush::default();
    let mut taken = 0;
    for word in words {
        match word.split_once('=') {
            Some(("zone", value)) if flush.zone.is_none() => {
                flush.zone = Some(leading(value).ok_or(FlushError::Zone)?);
            }
            Some(("mark", value)) if flush.mark.is_none() => {
                let narrow = |number| u32::try_from(number).ok();
                let (value, mask) = masked(value, u32::MAX.into()).ok_or(FlushError::Mark)?;
                flush.mark = Some(narrow(value).zip(narrow(mask)).ok_or(FlushError::Mark)?);
            }
            Some(("labels", value)) if flush.label.is_none() => {
                flush.label = Some(masked(value, u128::MAX).ok_or(FlushError::Labels)?);
            }
            _ => break,
        }
        taken += 1;
    }
    for (n, text) in words[taken..].iter().take(2).enumerate() {
        read_tuple(text, &mut flush, n == 1).map_err(FlushError::Tuple)?;
        taken += 1;
    }
    let ports = [flush.orig, flush.reply].map(|tuple| [tuple.src_port, tuple.dst_port]);
    if flush.proto == 0 && ports.as_flattened().iter().flatten().any(|port| *port != 0) {
        return Err(FlushError::Tuple(ParseError::new("port is set without protocol")));
    }
    if ICMP.contains(&flush.proto) {
        // All fields of ICMP count, in both directions.
        for tuple in [&mut flush.orig, &mut flush.reply] {
            tuple.icmp_id.get_or_insert(0);
            tuple.icmp_type.get_or_insert(0);
            tuple.icmp_code.get_or_insert(0);
        }
    }
    Ok((flush, taken))
}

/// Which word makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum FlushError {
    #[error("parse zone")]
    Zone,
    #[error("parse mark")]
    Mark,
    #[error("parse labels")]
    Labels,
    #[error("parse ct-tuple: {0}")]
    Tuple(ParseError),
}

/// The number that a text begins with, as C reads it, modulo 65536.
fn leading(text: &str) -> Option<u16> {
    let text = text.trim_start();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = digits.bytes().map_while(|byte| char::from(byte).to_digit(10));
    let number = digits.fold(None, |number: Option<u16>, digit| {
        Some(number.unwrap_or(0).wrapping_mul(10).wrapping_add(digit as u16))
    })?;
    Some(if negative { number.wrapping_neg() } else { number })
}

fn masked(text: &str, all: u128) -> Option<(u128, u128)> {
    match text.split_once('/') {
        None => Some((number::wide(text)?, all)),
        Some((value, mask)) => Some((number::wide(value)?, number::wide(mask)?)),
    }
}

/// Reads one direction of a connection.
fn read_tuple(text: &str, flush: &mut CtFlush, reply: bool) -> Result<(), ParseError> {
    for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        if value.is_empty() {
            return Err(ParseError::new(format!("field {key} missing value")));
        }
        let bad = || ParseError::new(format!("failed to parse field {key}"));
        let short = || number::unsigned(value).and_then(|number| u16::try_from(number).ok());
        let byte = || short().and_then(|number| u8::try_from(number).ok());
        if let Some(four) = family(key)
            && addresses(flush).any(|known| known.to_ipv4_mapped().is_some() != four)
        {
            return Err(ParseError::new(format!("the L3 protocol does not match {value}")));
        }
        let tuple = if reply { &mut flush.reply } else { &mut flush.orig };
        match key {
            "ct_nw_src" | "ct_ipv6_src" if tuple.src.is_some() => return repeated(key),
            "ct_nw_dst" | "ct_ipv6_dst" if tuple.dst.is_some() => return repeated(key),
            "ct_nw_src" => tuple.src = Some(value.parse::<Ipv4Addr>().map_err(|_| bad())?.to_ipv6_mapped()),
            "ct_nw_dst" => tuple.dst = Some(value.parse::<Ipv4Addr>().map_err(|_| bad())?.to_ipv6_mapped()),
            "ct_ipv6_src" => tuple.src = Some(value.parse().map_err(|_| bad())?),
            "ct_ipv6_dst" => tuple.dst = Some(value.parse().map_err(|_| bad())?),
            "ct_nw_proto" => flush.proto = byte().ok_or_else(bad)?,
            "ct_tp_src" => tuple.src_port = Some(short().ok_or_else(bad)?),
            "ct_tp_dst" => tuple.dst_port = Some(short().ok_or_else(bad)?),
            "icmp_type" => tuple.icmp_type = Some(byte().ok_or_else(bad)?),
            "icmp_code" => tuple.icmp_code = Some(byte().ok_or_else(bad)?),
            "icmp_id" => tuple.icmp_id = Some(short().ok_or_else(bad)?),
            key => return Err(ParseError::new(format!("invalid conntrack tuple field: {key}"))),
        }
        if key.starts_with("icmp_") && !ICMP.contains(&flush.proto) {
            return Err(ParseError::new("invalid L4 fields"));
        }
    }
    Ok(())
}

/// The addresses of both directions.
fn addresses(flush: &CtFlush) -> impl Iterator<Item = Ipv6Addr> {
    [flush.orig.src, flush.orig.dst, flush.reply.src, flush.reply.dst]
        .into_iter()
        .flatten()
}

/// Whether an address is of IPv4, by its name; `None` of other fields.
fn family(key: &str) -> Option<bool> {
    match key {
        "ct_nw_src" | "ct_nw_dst" => Some(true),
        "ct_ipv6_src" | "ct_ipv6_dst" => Some(false),
        _ => None,
    }
}

fn repeated(key: &str) -> Result<(), ParseError> {
    Err(ParseError::new(format!("{key} is set multiple times")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<CtFlush, String> {
        parse_ct_flush(words)
            .map(|(flush, _)| flush)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn words_are_read_in_their_order_and_more_of_them_are_left_over() {
        let words = [
            "zone=70000",
            "mark=5/7",
            "labels=0x1",
            "ct_nw_proto=17,ct_tp_src=0x10",
            "",
            "x",
        ];
        let (flush, taken) = parse_ct_flush(&words).unwrap();
        assert_eq!((flush.zone, flush.mark, taken), (Some(4464), Some((5, 7)), 5));
        assert_eq!((flush.label, flush.orig.src_port), (Some((1, u128::MAX)), Some(16)));
    }

    #[test]
    fn icmp_counts_with_all_of_its_fields() {
        let flush = read(&["ct_nw_proto=1,icmp_type=8"]).unwrap();
        assert_eq!((flush.orig.icmp_type, flush.reply.icmp_type), (Some(8), Some(0)));
    }

    #[test]
    fn wrong_words_are_named() {
        let cases = [
            ("zone=x", "parse zone"),
            ("mark=x", "parse mark"),
            ("mark=1/0x100000000", "parse mark"),
            ("labels=1/", "parse labels"),
            ("foo", "parse ct-tuple: field foo missing value"),
            ("ct_tp_src=1", "parse ct-tuple: port is set without protocol"),
            ("icmp_type=1,ct_nw_proto=1", "parse ct-tuple: invalid L4 fields"),
            (
                "ct_nw_src=1.2.3.4,ct_ipv6_src=::1",
                "parse ct-tuple: the L3 protocol does not match ::1",
            ),
            (
                "ct_nw_src=1.2.3.4,ct_ipv6_dst=::1",
                "parse ct-tuple: the L3 protocol does not match ::1",
            ),
            (
                "ct_nw_src=1.2.3.4,ct_nw_src=x",
                "parse ct-tuple: ct_nw_src is set multiple times",
            ),
            ("ct_nw_proto=300", "parse ct-tuple: failed to parse field ct_nw_proto"),
        ];
        for (word, error) in cases {
            assert_eq!(read(&[word]), Err(error.to_owned()));
        }
    }
}
