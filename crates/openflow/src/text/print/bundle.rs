//! Bundles and roles.

use super::asynchronous::ROLE_REASONS;
use super::{Printer, bits, message_to};
use crate::model::{BundleAdd, BundleControl, Role, RoleMsg, RoleStatus};
use std::fmt::Write;

impl Printer<'_> {
    pub(super) fn bundle_control(&mut self, control: BundleControl) {
        const KINDS: [&str; 8] = [
            "OPEN_REQUEST",
            "OPEN_REPLY",
            "CLOSE_REQUEST",
            "CLOSE_REPLY",
            "COMMIT_REQUEST",
            "COMMIT_REPLY",
            "DISCARD_REQUEST",
            "DISCARD_REPLY",
        ];
        let _ = write!(self.out, "\n bundle_id={} type=", hash_hex(control.bundle));
        self.out.push_str(KINDS.get(usize::from(control.kind)).unwrap_or(&""));
        self.bundle_flags(control.flags);
    }

    pub(super) fn bundle_add(&mut self, add: &BundleAdd) {
        let _ = write!(self.out, "\n bundle_id={}", hash_hex(add.bundle));
        self.bundle_flags(add.flags);
        self.out.push('\n');
        message_to(self.out, &add.message, self.style.names, self.verbosity);
    }

    fn bundle_flags(&mut self, flags: u16) {
        self.out.push_str(" flags=");
        bits(self.out, flags.into(), ' ', |n| match n {
            0 => Some("atomic"),
            1 => Some("ordered"),
            _ => None,
        });
    }

    pub(super) fn role(&mut self, role: RoleMsg) {
        self.role_of(role.role, role.generation);
    }

    pub(super) fn role_status(&mut self, status: &RoleStatus) {
        self.role_of(status.role, status.generation);
        self.out.push_str(" reason=");
        self.out
            .push_str(ROLE_REASONS.get(usize::from(status.reason)).unwrap_or(&"(unknown)"));
    }

    fn role_of(&mut self, role: Role, generation: Option<u64>) {
        let name = match role {
            Role::NoChange => "nochange",
            Role::Equal => "equal",
            Role::Master => "primary",
            Role::Slave => "secondary",
        };
        let _ = write!(self.out, " role={name}");
        if let Some(generation) = generation.filter(|g| *g != u64::MAX) {
            let _ = write!(self.out, " generation_id={generation}");
        }
    }
}

/// As C's `%#x`: a zero has no `0x`.
pub(super) fn hash_hex(n: u32) -> String {
    match n {
        0 => "0".into(),
        n => format!("{n:#x}"),
    }
}
