//! Ports.

use super::{Printer, bits};
use crate::Version;
use crate::model::{PortDesc, PortMod, PortStatus, state};
use crate::text::Style;
use std::fmt::Write;

const CONFIG: [&str; 7] = [
    "PORT_DOWN",
    "NO_STP",
    "NO_RECV",
    "NO_RECV_STP",
    "NO_FLOOD",
    "NO_FWD",
    "NO_PACKET_IN",
];

const FEATURES: [&str; 16] = [
    "10MB-HD",
    "10MB-FD",
    "100MB-HD",
    "100MB-FD",
    "1GB-HD",
    "1GB-FD",
    "10GB-FD",
    "40GB-FD",
    "100GB-FD",
    "1TB-FD",
    "OTHER",
    "COPPER",
    "FIBER",
    "AUTO_NEG",
    "AUTO_PAUSE",
    "AUTO_PAUSE_ASYM",
];

/// Speeds in Mbit/s by pairs of feature bits, the fastest first.
const SPEEDS: [(u32, u32); 7] = [
    (1 << 9, 1_000_000),
    (1 << 8, 100_000),
    (1 << 7, 40_000),
    (1 << 6, 10_000),
    (3 << 4, 1_000),
    (3 << 2, 100),
    (3, 10),
];

fn config(out: &mut String, config: u32) {
    bits(out, config, ' ', |n| CONFIG.get(n as usize).copied());
}

fn features(out: &mut String, features: u32) {
    bits(out, features, ' ', |n| FEATURES.get(n as usize).copied());
}

/// The speed that features tell, in Mbit/s.
fn speed(features: u32) -> u32 {
    let found = SPEEDS.iter().find(|(bits, _)| features & bits != 0);
    found.map_or(0, |(_, speed)| *speed)
}

/// A port, in several lines.
pub fn port_desc(out: &mut String, port: &PortDesc, version: Version) {
    let number = crate::text::port(port.port, Style::of(version));
    let _ = write!(out, " {number}");
    // A name ends before its first unprintable character.
    let printable = |c: char| c == ' ' || c.is_ascii_graphic();
    let end = port.name.find(|c| !printable(c)).unwrap_or(port.name.len());
    let _ = write!(out, "({})", &port.name[..end]);
    let _ = write!(out, ": addr:{}\n     config:     ", port.hw_addr);
    config(out, port.config);
    out.push_str("\n     state:      ");
    port_state(out, port.state);
    out.push('\n');
    for (name, value) in [
        ("current:    ", port.current),
        ("advertised: ", port.advertised),
        ("supported:  ", port.supported),
        ("peer:       ", port.peer),
    ] {
        if value != 0 {
            let _ = write!(out, "     {name}");
            features(out, value);
            out.push('\n');
        }
    }
    let (now, max) = match version {
        Version::V10 => (speed(port.current), speed(port.supported)),
        _ => (port.current_speed / 1000, port.max_speed / 1000),
    };
    let _ = writeln!(out, "     speed: {now} Mbps now, {max} Mbps max");
}

fn port_state(out: &mut String, value: u32) {
    const STP: [&str; 4] = ["STP_LISTEN", "STP_LEARN", "STP_FORWARD", "STP_BLOCK"];
    let stp = (value & state::STP_MASK) >> 8;
    let rest = value & !state::STP_MASK;
    // As Open vSwitch prints them, without a space between the two.
    if stp != 0 {
        out.push_str(STP[stp as usize]);
    }
    if rest != 0 || stp == 0 {
        bits(out, rest, ' ', |n| {
            ["LINK_DOWN", "BLOCKED", "LIVE"].get(n as usize).copied()
        });
    }
}

impl Printer<'_> {
    pub(super) fn port_status(&mut self, status: &PortStatus) {
        let _ = match status.reason {
            0 => write!(self.out, " ADD:"),
            1 => write!(self.out, " DEL:"),
            2 => write!(self.out, " MOD:"),
            _ => Ok(()),
        };
        port_desc(self.out, &status.desc, self.version);
    }

    pub(super) fn port_mod(&mut self, m: &PortMod) {
        self.out.push_str(" port: ");
        self.port(m.port);
        let _ = write!(self.out, ": addr:{}\n     config: ", m.hw_addr);
        config(self.out, m.config & m.mask);
        self.out.push_str("\n     mask:   ");
        config(self.out, m.mask);
        self.out.push_str("\n     advertise: ");
        match m.advertise {
            0 => self.out.push_str("UNCHANGED"),
            bits => features(self.out, bits),
        }
        self.out.push('\n');
    }
}
