//! `dpctl/*conntrack` and `dpctl/ct-*`: tracked connections, and settings of the tracker.

use super::{Answer, Asked, at_most, fail, text, without_datapath};
use crate::commands::scanned_number;
use crate::connections;
use crate::state::State;
use conntrack::{Connection, Cursor, Style, TcpState};
use openflow::text::{FlushError, parse_ct_flush};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Entries of the table that are read at a time.
const STEP: usize = 4096;

/// `dump-conntrack`.
pub(super) fn dump(state: &State, args: &[String]) -> Answer {
    let mut asked = Asked::read(args)?;
    let zone = last_number(&mut asked.words, "zone=");
    without_datapath(state, &asked.words, 1)?;
    let style = Style {
        verbose: asked.more,
        statistics: asked.statistics,
        // Open vSwitch's userspace datapath does not count them.
        counters: asked.more,
    };
    let mut out = String::new();
    visit(state, zone.map(|zone| zone as u16), |connection| {
        _ = writeln!(out, "{}", connection.line(style));
    });
    Ok(out)
}

/// Takes the last word if it has this name and a number.
fn last_number(words: &mut Vec<&str>, name: &str) -> Option<u32> {
    let number = scanned_number(words.last()?.strip_prefix(name)?)?;
    words.pop();
    Some(number)
}

/// Visits the connections, those of a zone if one is given.
fn visit(state: &State, zone: Option<u16>, mut visit: impl FnMut(&Connection)) {
    let datapath = state.dp();
    let mut tracker = datapath.conntrack().tracker();
    let (mut found, mut next) = (Vec::new(), Some(Cursor::default()));
    while let Some(from) = next {
        next = tracker.connections(from, STEP, datapath.now(), &mut found);
        let fits = |connection: &Connection| zone.is_none_or(|zone| connection.zone == zone);
        found.drain(..).filter(fits).for_each(|connection| visit(&connection));
    }
}

/// `flush-conntrack`.
pub(super) fn flush(state: &State, args: &[String]) -> Answer {
    let asked = Asked::read(args)?;
    let is_later = |word: &str| word.starts_with("mark=") || word.starts_with("labels=");
    at_most(4, &asked.words, is_later, "flush-conntrack")?;
    let words = match asked.words.first() {
        Some(name) if super::open(state, name).is_ok() => &asked.words[1..],
        _ => &asked.words[..],
    };
    let (wanted, taken) = parse_ct_flush(words).map_err(|error| match error {
        FlushError::Tuple(why) => text(&why.to_string(), "Invalid argument"),
        error => text(&format!("failed to {error}"), "Invalid argument"),
    })?;
    // What is left over can only be a datapath.
    let most = if taken == words.len() {
        usize::MAX
    } else {
        asked.words.len()
    };
    without_datapath(state, &asked.words, most)
        .map_err(|error| error + &text("Cannot open dpif", "Invalid argument"))?;
    let datapath = state.dp();
    match connections::flush(datapath.conntrack(), &wanted, datapath.now()) {
        true => Ok(String::new()),
        false => fail("failed to flush conntrack", "No such file or directory"),
    }
}

/// Numbers of protocols, with the names in `ct-stats-show`. As in Open vSwitch, those of ICMPv6 are
/// only in the total.
const PROTOCOLS: [(&str, Option<u8>); 8] = [
    ("TCP", Some(6)),
    ("UDP", Some(17)),
    ("UDPLITE", Some(136)),
    ("SCTP", Some(132)),
    ("ICMP", Some(1)),
    ("DCCP", Some(33)),
    ("IGMP", Some(2)),
    ("Other", None),
];
const ICMPV6: u8 = 58;

/// `ct-stats-show`.
pub(super) fn show_counts(state: &State, args: &[String]) -> Answer {
    let mut asked = Asked::read(args)?;
    let (mut zone, mut verbose) = (None, asked.more);
    loop {
        if asked.words.last() == Some(&"verbose") {
            verbose = true;
            asked.words.pop();
        } else if let Some(number) = last_number(&mut asked.words, "zone=") {
            zone = Some(number as u16);
        } else {
            break;
        }
    }
    without_datapath(state, &asked.words, 1)?;
    let (mut total, mut protocols, mut states) = (0u64, [0u64; PROTOCOLS.len()], BTreeMap::new());
    visit(state, zone, |connection| {
        total += 1;
        let number = connection.original.protocol();
        let known = PROTOCOLS.iter().position(|(_, own)| *own == Some(number));
        if let Some(protocol) = known.or((number != ICMPV6).then_some(PROTOCOLS.len() - 1)) {
            protocols[protocol] += 1;
        }
        if let Some(state) = connection.tcp_state() {
            *states.entry(state).or_insert(0u64) += 1;
        }
    });
    let mut out = format!("Connections Stats:\n    Total: {total}\n");
    for ((name, number), count) in PROTOCOLS.iter().zip(protocols).filter(|(_, count)| *count != 0) {
        let _ = writeln!(out, "  {name}: {count}");
        if *number == Some(6) && verbose {
            out += "    Conn per TCP states:\n";
            for (state, count) in &states {
                let _ = writeln!(out, "\t  [{}]={count}", TcpState::name(*state));
            }
        }
    }
    Ok(out)
}

/// `ct-bkts`: all connections are in one bucket, as in Open vSwitch's userspace datapath.
pub(super) fn show_buckets(state: &State, args: &[String]) -> Answer {
    let mut asked = Asked::read(args)?;
    let above = last_number(&mut asked.words, "gt=");
    without_datapath(state, &asked.words, 1)?;
    let count = state.dp().conntrack().len();
    let mut out = format!("Total Buckets: 1\nCurrent Connections: {count}\n\n");
    if count != 0 {
        let line = "+-----------+-----------------------------------------+\n";
        out += line;
        out += "|  Buckets  |         Connections per Buckets         |\n";
        out += line;
        let shown = above.is_none_or(|above| count > above as usize);
        let shown = if shown { count.to_string() } else { ".".to_owned() };
        let _ = writeln!(out, "   0..  7   | {shown:>5}\n");
    }
    Ok(out)
}

/// `ct-set-maxconns`.
pub(super) fn set_max(state: &State, args: &[String]) -> Answer {
    let max = only_number(state, args, "maxconns missing or malformed")?;
    state.dp().conntrack().set_max(max);
    Ok("setting maxconns successful\n".to_owned())
}

/// `ct-set-sweep-interval`.
pub(super) fn set_sweep_interval(state: &State, args: &[String]) -> Answer {
    let ms = only_number(state, args, "invalid sweep value")?;
    state.dp().conntrack().set_sweep_interval(ms);
    Ok("setting sweep interval successful\n".to_owned())
}

/// The number behind the datapath.
fn only_number(state: &State, args: &[String], missing: &str) -> Result<u32, String> {
    let asked = Asked::read(args)?;
    without_datapath(state, &asked.words, 2)?;
    let number = asked.words.last().and_then(|word| scanned_number(word));
    number.ok_or_else(|| text(missing, "Invalid argument"))
}

/// Checks that only a datapath is named, or nothing.
fn nothing_else(state: &State, args: &[String]) -> Result<(), String> {
    without_datapath(state, &Asked::read(args)?.words, 1).map(|_| ())
}

/// `ct-get-maxconns`.
pub(super) fn get_max(state: &State, args: &[String]) -> Answer {
    nothing_else(state, args)?;
    Ok(format!("{}\n", state.dp().conntrack().max()))
}

/// `ct-get-nconns`.
pub(super) fn get_count(state: &State, args: &[String]) -> Answer {
    nothing_else(state, args)?;
    Ok(format!("{}\n", state.dp().conntrack().len()))
}

/// `ct-get-sweep-interval`.
pub(super) fn get_sweep_interval(state: &State, args: &[String]) -> Answer {
    nothing_else(state, args)?;
    Ok(format!("{}\n", state.dp().conntrack().sweep_interval().as_millis()))
}

/// `ct-get-tcp-seq-chk`.
pub(super) fn get_check(state: &State, args: &[String]) -> Answer {
    nothing_else(state, args)?;
    let check = state.dp().conntrack().checks_sequence();
    Ok(format!(
        "TCP sequence checking: {}\n",
        if check { "enabled" } else { "disabled" }
    ))
}

/// `ct-enable-tcp-seq-chk` and `ct-disable-tcp-seq-chk`. As in Open vSwitch, a word that is no
/// datapath is ignored.
pub(super) fn set_check(state: &State, args: &[String], check: bool) -> Answer {
    without_datapath(state, &Asked::read(args)?.words, usize::MAX)?;
    state.dp().conntrack().set_check_sequence(check);
    let verb = if check { "enabling" } else { "disabling" };
    Ok(format!("{verb} TCP sequence checking successful\n"))
}
