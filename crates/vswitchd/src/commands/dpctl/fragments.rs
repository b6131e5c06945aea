//! `dpctl/ipf-*`: fragments that wait for the rest of their datagrams.

use super::{Answer, Asked, fail, text, without_datapath};
use crate::commands::scanned_number;
use crate::state::State;
use std::fmt::Write;

/// `v4` or `v6`: whether it is the latter.
fn family(word: Option<&&str>) -> Option<bool> {
    match word {
        Some(&"v4") => Some(false),
        Some(&"v6") => Some(true),
        _ => None,
    }
}

/// `ipf-set-enabled` and `ipf-set-disabled`. As in Open vSwitch, a first word that is no datapath
/// is ignored.
pub(super) fn set_enabled(state: &State, args: &[String], enabled: bool) -> Answer {
    let asked = Asked::read(args)?;
    without_datapath(state, &asked.words, usize::MAX)?;
    let Some(v6) = family(asked.words.last()) else {
        return fail("parameter missing: 'v4' for IPv4 or 'v6' for IPv6", "Invalid argument");
    };
    state.dp().conntrack().fragments().set_enabled(v6, enabled);
    let verb = if enabled { "enabling" } else { "disabling" };
    Ok(format!("{verb} fragmentation reassembly successful\n"))
}

/// `ipf-set-min-frag`.
pub(super) fn set_min_size(state: &State, args: &[String]) -> Answer {
    let asked = Asked::read(args)?;
    without_datapath(state, &asked.words, 3)?;
    let [.., version, size] = asked.words[..] else {
        return fail("parameter missing for minimum fragment size", "Invalid argument");
    };
    let Some(v6) = family(Some(&version)) else {
        return fail("parameter missing: v4 for IPv4 or v6 for IPv6", "Invalid argument");
    };
    let Some(size) = scanned_number(size) else {
        return fail("parameter missing for minimum fragment size", "Invalid argument");
    };
    match state.dp().conntrack().fragments().set_min_size(v6, size as usize) {
        true => Ok("setting minimum fragment size successful\n".to_owned()),
        false => fail(
            "requested minimum fragment size too small; see documentation",
            "Operation not permitted",
        ),
    }
}

/// `ipf-set-max-nfrags`.
pub(super) fn set_max(state: &State, args: &[String]) -> Answer {
    let asked = Asked::read(args)?;
    without_datapath(state, &asked.words, 2)?;
    let max = asked.words.last().and_then(|word| scanned_number(word));
    let max = max.ok_or_else(|| text("parameter missing for maximum fragments", "Invalid argument"))?;
    match state.dp().conntrack().fragments().set_max(max as usize) {
        true => Ok("setting maximum fragments successful\n".to_owned()),
        false => fail("setting maximum fragments failed", "Operation not permitted"),
    }
}

/// `ipf-get-status`.
pub(super) fn show_status(state: &State, args: &[String]) -> Answer {
    let asked = Asked::read(args)?;
    without_datapath(state, &asked.words, 1)?;
    let fragments = state.dp().conntrack().fragments();
    let mut out = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| _ = writeln!(out, "        {name}{value}");
    line("Fragmentation Module Status", &"");
    line("---------------------------", &"");
    line("v4 enabled: ", &u8::from(fragments.is_enabled(false)));
    line("v6 enabled: ", &u8::from(fragments.is_enabled(true)));
    line("max num frags (v4/v6): ", &fragments.max());
    line("num frag: ", &fragments.len());
    for (version, v6) in [("v4", false), ("v6", true)] {
        let counts = fragments.counts(v6);
        line(&format!("min {version} frag size: "), &fragments.min_size(v6));
        let counts = [
            ("accepted", counts.accepted),
            ("completed", counts.completed),
            ("expired", counts.expired),
            ("too small", counts.too_small),
            ("overlapped", counts.overlapped),
            ("purged", counts.purged),
        ];
        for (what, count) in counts {
            line(&format!("{version} frags {what}: "), &count);
        }
    }
    if asked.more {
        out += "\n        Fragment Lists:\n\n";
        for (src, dst, count) in fragments.waiting() {
            let _ = writeln!(out, "        (src={src},dst={dst},frags={count})");
        }
    }
    Ok(out)
}
