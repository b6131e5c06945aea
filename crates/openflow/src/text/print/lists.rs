//! Lists of actions and fields, in an order of their own.

use crate::Version;
use crate::field_order::field_place;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Actions, in the order in which they are listed: their names, and their bits in OpenFlow 1.0, 1.1
/// and later.
const ACTIONS: [(&str, u8, u8, u8); 25] = [
    ("output", 0, 0, 0),
    ("group", NONE, 22, 22),
    ("enqueue", 11, NONE, NONE),
    ("set_field", NONE, NONE, 25),
    ("set_vlan_vid", 1, 1, NONE),
    ("set_vlan_pcp", 2, 2, NONE),
    ("strip_vlan", 3, 18, 18),
    ("push_vlan", NONE, 17, 17),
    ("mod_dl_src", 4, 3, NONE),
    ("mod_dl_dst", 5, 4, NONE),
    ("mod_nw_src", 6, 5, NONE),
    ("mod_nw_dst", 7, 6, NONE),
    ("mod_nw_tos", 8, 7, NONE),
    ("mod_nw_ecn", NONE, 8, NONE),
    ("mod_nw_ttl", NONE, 23, 23),
    ("mod_tp_src", 9, 9, NONE),
    ("mod_tp_dst", 10, 10, NONE),
    ("dec_ttl", NONE, 24, 24),
    ("set_mpls_label", NONE, 13, NONE),
    ("set_mpls_tc", NONE, 14, NONE),
    ("set_mpls_ttl", NONE, 15, 15),
    ("dec_mpls_ttl", NONE, 16, 16),
    ("push_mpls", NONE, 19, 19),
    ("pop_mpls", NONE, 20, 20),
    ("set_queue", NONE, 21, 21),
];

/// The bit of an action that a version does not have.
const NONE: u8 = 255;

/// The names of the actions whose bits are set, as a version numbers them.
pub(super) fn action_names(out: &mut String, bits: u32, version: Version) {
    let names = ACTIONS.iter().filter(|(_, v10, v11, v12)| {
        let bit = match version {
            Version::V10 => *v10,
            Version::V11 => *v11,
            _ => *v12,
        };
        bit != NONE && bits & 1 << bit != 0
    });
    let names: Vec<_> = names.map(|(name, ..)| *name).collect();
    out.push_str(&names.join(" "));
}

/// Which fields a table has for a purpose.
pub(super) type Fields = BTreeSet<&'static str>;

/// The names of fields; those with the same prefix share it.
pub(super) fn field_names(out: &mut String, fields: &Fields) {
    let mut names: Vec<&str> = fields.iter().copied().collect();
    names.sort_by_key(|name| field_place(name));
    grouped(out, &names, ' ');
}

fn grouped(out: &mut String, names: &[&str], separator: char) {
    let mut n = 0;
    while n < names.len() {
        if n > 0 {
            out.push(separator);
        }
        let name = names[n];
        let prefix = name.find('_').map(|at| &name[..=at]);
        let run = |same: &dyn Fn(&str, usize) -> bool| {
            let rest = &names[n + 1..];
            1 + rest.iter().enumerate().take_while(|(k, other)| same(other, *k)).count()
        };
        if let Some(prefix) = prefix {
            let len = run(&|other, _| other.starts_with(prefix));
            if len > 1 {
                let stripped: Vec<&str> = names[n..n + len].iter().map(|name| &name[prefix.len()..]).collect();
                out.push_str(prefix);
                out.push('{');
                grouped(out, &stripped, ',');
                out.push('}');
                n += len;
                continue;
            }
        }
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        if let Ok(first) = name[stem.len()..].parse::<usize>() {
            let len = run(&|other, k| other.strip_prefix(stem) == Some(&(first + k + 1).to_string()));
            if len > 1 {
                let _ = write!(out, "{name}...{}", names[n + len - 1]);
                n += len;
                continue;
            }
        }
        out.push_str(name);
        n += 1;
    }
}

#[cfg(test)]
pub(super) fn field_names_for_tests(out: &mut String, names: &[&'static str]) {
    field_names(out, &names.iter().copied().collect());
}
