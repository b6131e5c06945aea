//! A controller's settings for asynchronous messages.

use super::Printer;
use crate::model::AsyncConfig;
use std::fmt::Write;

/// The reasons of a change of role.
pub(super) const ROLE_REASONS: [&str; 3] = ["primary_request", "configuration_changed", "experimenter_data_changed"];

/// Kinds of events: name, and the names of their reasons by number.
const KINDS: [(&str, &[&str]); 6] = [
    (
        "PACKET_IN",
        &["no_match", "action", "invalid_ttl", "action_set", "group", "packet_out"],
    ),
    ("PORT_STATUS", &["add", "delete", "modify"]),
    (
        "FLOW_REMOVED",
        &["idle", "hard", "delete", "group_delete", "meter_delete", "eviction"],
    ),
    ("ROLE_STATUS", &ROLE_REASONS),
    ("TABLE_STATUS", &["?", "?", "?", "vacancy_down", "vacancy_up"]),
    ("REQUESTFORWARD", &["group_mod_request", "meter_mod_request"]),
];

impl Printer<'_> {
    /// Prints the enabled reasons of each asynchronous message, for primaries and secondaries.
    /// Reasons that the version does not have are left out.
    pub(super) fn asynchronous(&mut self, config: &AsyncConfig) {
        let masks = config.masks();
        for (role, title) in ["primary", "secondary"].into_iter().enumerate() {
            let _ = writeln!(self.out, "\n {title}:");
            for (n, ((kind, reasons), masks)) in KINDS.iter().zip(masks).enumerate() {
                let _ = write!(self.out, "{kind:>16}:");
                let mask = masks[role] & crate::async_reasons(self.version, n);
                for n in (0..32).filter(|n| mask & 1 << n != 0) {
                    let name = reasons.get(n).filter(|r| **r != "?");
                    let _ = match name {
                        Some(name) => write!(self.out, " {name}"),
                        None => write!(self.out, " {n}"),
                    };
                }
                if mask == 0 {
                    self.out.push_str(" (off)");
                }
                self.out.push('\n');
            }
        }
    }
}
