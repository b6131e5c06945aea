//! The switch: features, configuration, description.

use super::lists::action_names;
use super::{Printer, bits, port_desc};
use crate::Version;
use crate::model::{Config, Features, SwitchDesc};
use std::fmt::Write;

impl Printer<'_> {
    pub(super) fn features(&mut self, features: &Features) {
        let _ = write!(
            self.out,
            " dpid:{:016x}\nn_tables:{}, n_buffers:{}",
            features.datapath_id, features.n_tables, features.n_buffers
        );
        if features.auxiliary_id != 0 {
            let _ = write!(self.out, ", auxiliary_id:{}", features.auxiliary_id);
        }
        self.out.push_str("\ncapabilities: ");
        let old = self.version == Version::V10;
        let known = match self.version {
            Version::V10 | Version::V11 => 0x0ef,
            Version::V12 | Version::V13 => 0x16f,
            _ => 0x76f,
        };
        bits(self.out, features.capabilities & known, ' ', |n| match n {
            0 => Some("FLOW_STATS"),
            1 => Some("TABLE_STATS"),
            2 => Some("PORT_STATS"),
            3 if old => Some("STP"),
            3 => Some("GROUP_STATS"),
            5 => Some("IP_REASM"),
            6 => Some("QUEUE_STATS"),
            7 => Some("ARP_MATCH_IP"),
            8 => Some("PORT_BLOCKED"),
            9 => Some("BUNDLES"),
            10 => Some("FLOW_MONITORING"),
            _ => None,
        });
        self.out.push('\n');
        if old {
            let mut names = String::new();
            action_names(&mut names, features.actions, self.version);
            if !names.is_empty() {
                let _ = writeln!(self.out, "actions: {names}");
            }
        }
        let mut ports: Vec<_> = features.ports.iter().collect();
        ports.sort_by_key(|port| port.port.0);
        for port in ports {
            port_desc(self.out, port, self.version);
        }
    }

    pub(super) fn config(&mut self, config: Config) {
        self.out.push_str(" frags=");
        self.out.push_str(fragments(config.flags & 3));
        if config.flags & 4 != 0 && self.version < Version::V13 {
            self.out.push_str(" invalid_ttl_to_controller");
        }
        let _ = writeln!(self.out, " miss_send_len={}", config.miss_send_len);
    }

    pub(super) fn desc(&mut self, desc: &SwitchDesc) {
        let _ = writeln!(
            self.out,
            "\nManufacturer: {}\nHardware: {}\nSoftware: {}\nSerial Num: {}\nDP Description: {}",
            desc.manufacturer, desc.hardware, desc.software, desc.serial, desc.datapath
        );
    }
}

/// The name of a mode for fragments.
pub(super) fn fragments(mode: u16) -> &'static str {
    ["normal", "drop", "reassemble", "nx-match"][usize::from(mode & 3)]
}
