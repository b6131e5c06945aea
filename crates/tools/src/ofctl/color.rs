//! Colours of flows, as `OVS_COLORS` has them.

use std::sync::OnceLock;

/// Escape sequences by their use.
struct Colors {
    actions: String,
    drop: String,
    learn: String,
    param: String,
    paren: String,
    special: String,
    value: String,
}

fn colors() -> &'static Colors {
    static COLORS: OnceLock<Colors> = OnceLock::new();
    COLORS.get_or_init(|| {
        let set = std::env::var("OVS_COLORS").unwrap_or_default();
        let of = |name: &str, default: &str| {
            let own = set
                .split(':')
                .find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
            format!("\x1b[{}m\x1b[K", own.unwrap_or(default))
        };
        Colors {
            actions: of("ac", "1;31"),
            drop: of("dr", "34"),
            learn: of("le", "31"),
            param: of("pm", "36"),
            paren: of("pr", "35"),
            special: of("sp", "33"),
            value: of("vl", "32"),
        }
    })
}

const END: &str = "\x1b[m\x1b[K";

/// Actions whose names, with the colon, are highlighted more than others.
const SPECIAL: [&str; 6] = ["output", "load", "move", "group", "set_field", "resubmit"];

/// The attributes of a flow beside its match.
const FLAGS: [&str; 5] = [
    "send_flow_rem",
    "check_overlap",
    "reset_counts",
    "no_packet_counts",
    "no_byte_counts",
];

/// Single words that are actions. Ports and arguments are not.
const WORDS: [&str; 12] = [
    "pop_vlan",
    "strip_vlan",
    "dec_mpls_ttl",
    "pop_queue",
    "clear_actions",
    "ct_clear",
    "pause",
    "commit",
    "force",
    "random",
    "send_flow_rem",
    "delete_learned",
];

/// Prints a flow in colours: its keys, and the names of its actions.
pub(super) fn flow(out: &mut String, text: &str) {
    let c = colors();
    let (head, actions) = match text.split_once("actions=") {
        Some((head, actions)) => (head, Some(actions)),
        None => (text, None),
    };
    conditions(out, head);
    if let Some(actions) = actions {
        paint(out, &c.actions, "actions=");
        list(out, actions);
    }
}

/// Prints the part before the actions.
pub(super) fn conditions(out: &mut String, head: &str) {
    let c = colors();
    for pair in head.split_inclusive([',', ' ']) {
        let end = pair.find([',', ' ']).unwrap_or(pair.len());
        let (word, separator) = pair.split_at(end);
        match word.find('=') {
            Some(sign) => key(out, word, sign),
            // The rule's flags are no part of its match.
            None if word.is_empty() || FLAGS.contains(&word) => out.push_str(word),
            None => paint(out, &c.value, word),
        }
        out.push_str(separator);
    }
}

/// A key with the sign behind it, and its value.
fn key(out: &mut String, word: &str, sign: usize) {
    let c = colors();
    let (key, value) = word.split_at(sign + 1);
    let special = matches!(key, "table=" | "priority=");
    paint(out, if special { &c.special } else { &c.param }, key);
    out.push_str(value);
}

/// Actions and their arguments in parentheses.
pub(super) fn list(out: &mut String, actions: &str) {
    let c = colors();
    // The names of actions with open parentheses.
    let mut open: Vec<&str> = Vec::new();
    let mut rest = actions;
    while !rest.is_empty() {
        let end = rest.find([',', '(', ')']).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        let (sign, after) = behind.split_at(behind.len().min(1));
        rest = after;
        match (sign, word) {
            ("(", "learn") => paint(out, &c.learn, "learn("),
            ("(", "check_pkt_larger") => paint(out, &c.param, "check_pkt_larger("),
            ("(", "output") => {
                paint(out, &c.special, word);
                out.push('(');
            }
            ("(", "nat" | "dec_ttl") => {
                paint(out, &c.paren, word);
                paint(out, &c.paren, sign);
            }
            ("(", _) => paint(out, &c.paren, &format!("{word}(")),
            _ => {
                argument(out, word, open.last().copied());
                match (sign, open.last().copied()) {
                    (")", Some("learn")) => paint(out, &c.learn, sign),
                    (")", Some("output" | "check_pkt_larger")) => out.push(')'),
                    (")", Some("exec")) if rest.starts_with(',') || rest.starts_with(')') => {
                        // The end has the following comma, whether there is one or not.
                        paint(out, &c.paren, "),");
                        rest = rest.strip_prefix(',').unwrap_or(rest);
                    }
                    (")", Some(_)) => paint(out, &c.paren, sign),
                    (",", Some("learn")) if rest.starts_with("priority=") => {
                        paint(out, &c.special, ",priority=");
                        rest = rest.strip_prefix("priority=").unwrap_or(rest);
                    }
                    _ => out.push_str(sign),
                }
            }
        }
        match sign {
            "(" => open.push(word),
            ")" => drop(open.pop()),
            _ => {}
        }
    }
}

/// An action without parentheses, or an argument of one whose parentheses are open.
fn argument(out: &mut String, word: &str, of: Option<&str>) {
    let c = colors();
    let colon = word.find(':').filter(|_| !word.starts_with("CONTROLLER"));
    match (word, of) {
        (_, Some("output" | "multipath" | "conjunction")) => out.push_str(word),
        ("drop", _) => paint(out, &c.drop, word),
        ("exit", _) => paint(out, &c.special, word),
        ("dec_ttl", _) => paint(out, &c.paren, word),
        _ if word.contains('=') && (of == Some("nat") || of == Some("learn") && word.contains("]=")) => {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            paint(out, &c.param, key);
            paint(out, &c.param, "=");
            out.push_str(value);
        }
        (_, Some("learn")) if colon.is_none() && word.ends_with(']') => paint(out, &c.param, word),
        _ if WORDS.contains(&word) => paint(out, &c.value, word),
        _ if word
            .find('=')
            .is_some_and(|sign| colon.is_none_or(|colon| sign < colon)) =>
        {
            key(out, word, word.find('=').unwrap_or(0));
        }
        _ => match colon {
            Some(at) => {
                let special = SPECIAL.contains(&&word[..at]);
                paint(out, if special { &c.special } else { &c.param }, &word[..=at]);
                match word[at + 1..].rsplit_once("->") {
                    Some((value, field)) => {
                        out.push_str(value);
                        paint(out, &c.special, "->");
                        out.push_str(field);
                    }
                    None => out.push_str(&word[at + 1..]),
                }
            }
            None => out.push_str(word),
        },
    }
}

fn paint(out: &mut String, color: &str, text: &str) {
    out.push_str(color);
    out.push_str(text);
    out.push_str(END);
}
