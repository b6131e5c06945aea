//! Colours of flows, as `OVS_COLORS` has them.

use std::sync::OnceLock;

/// Escape sequences by what they are for.
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
            format!("\x1b[{}m", own.unwrap_or(default))
        };
        Colors {
            actions: of("ac", "01;31"),
            drop: of("dr", "34"),
            learn: of("le", "31"),
            param: of("pm", "36"),
            paren: of("pr", "35"),
            special: of("sp", "33"),
            value: of("vl", "32"),
        }
    })
}

const END: &str = "\x1b[m";

/// Words in a flow that stand out, each with the separator behind it.
const SPECIAL: [&str; 8] = [
    "output:",
    "load:",
    "move:",
    "group:",
    "CONTROLLER:",
    "set_field:",
    "resubmit:",
    "goto_table:",
];

/// Prints a flow in colours: its keys, and the names of its actions.
pub(super) fn flow(out: &mut String, text: &str) {
    let c = colors();
    let (head, actions) = text.split_once("actions=").unwrap_or((text, ""));
    for pair in head.split_inclusive([',', ' ']) {
        let end = pair.find([',', ' ']).unwrap_or(pair.len());
        let (word, separator) = pair.split_at(end);
        match word.split_once('=') {
            Some((key, value)) => {
                let color = if matches!(key, "table" | "priority") {
                    &c.special
                } else {
                    &c.param
                };
                paint(out, color, key);
                // The sign belongs to its key.
                out.push('=');
                out.push_str(value);
            }
            None if word.is_empty() => {}
            None => paint(out, &c.value, word),
        }
        out.push_str(separator);
    }
    if text.len() == head.len() {
        return;
    }
    paint(out, &c.actions, "actions=");
    let mut rest = actions;
    while !rest.is_empty() {
        let end = rest.find([',', '(', ')']).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        let special = SPECIAL.iter().find(|s| word.starts_with(**s));
        match (word, special) {
            ("drop", _) => paint(out, &c.drop, word),
            ("learn", _) => paint(out, &c.learn, word),
            ("exit", _) => paint(out, &c.special, word),
            (_, Some(name)) => {
                paint(out, &c.special, name);
                out.push_str(&word[name.len()..]);
            }
            ("", _) => {}
            _ if behind.starts_with('(') => paint(out, &c.paren, word),
            _ => out.push_str(word),
        }
        let mut chars = behind.chars();
        if let Some(sign) = chars.next() {
            match sign {
                '(' | ')' => paint(out, &c.paren, if sign == '(' { "(" } else { ")" }),
                sign => out.push(sign),
            }
        }
        rest = chars.as_str();
    }
}

fn paint(out: &mut String, color: &str, text: &str) {
    out.push_str(color);
    out.push_str(text);
    out.push_str(END);
}
