//! A controller's settings for asynchronous messages.

use super::Printer;
use super::name::Name;
use crate::buf::Reader;
use crate::{OfError, Version};
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
    pub(super) fn asynchronous(&mut self, name: &Name) -> Result<(), OfError> {
        let mut body = Reader::new(self.data.get(name.body..).unwrap_or_default(), OfError::BrcBadLen);
        // Of each kind, for primaries and for secondaries.
        let mut masks = [[0u32; 2]; 6];
        let properties = match name.text() {
            "NXT_SET_ASYNC_CONFIG" => false,
            "NXT_SET_ASYNC_CONFIG2" => true,
            _ => self.version >= Version::V14,
        };
        if properties {
            while !body.is_empty() {
                let (kind, len) = (usize::from(body.u16()?), usize::from(body.u16()?));
                let mut property = body.sub(len.checked_sub(4).ok_or(OfError::BpcBadLen)?, OfError::BpcBadLen)?;
                body.skip((len.next_multiple_of(8) - len).min(body.len()))?;
                let Some(masks) = masks.get_mut(kind / 2) else {
                    return Err(OfError::BpcBadType);
                };
                // The first of each pair is for secondaries.
                masks[1 - kind % 2] = property.u32()?;
            }
        } else {
            for masks in &mut masks[..3] {
                *masks = [body.u32()?, body.u32()?];
            }
            body.end()?;
        }
        for (role, title) in ["primary", "secondary"].into_iter().enumerate() {
            let _ = writeln!(self.out, "\n {title}:");
            for ((kind, reasons), masks) in KINDS.iter().zip(masks) {
                let _ = write!(self.out, "{kind:>16}:");
                let mask = masks[role];
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
        Ok(())
    }
}
