//! Statistics of ports.

use super::meter::{duration, tells_duration};
use super::{Printer, counter};
use crate::model::{PortStats, RFC2819};
use std::fmt::Write;

impl Printer<'_> {
    pub(super) fn port_stats(&mut self, ports: &[PortStats]) {
        let _ = writeln!(self.out, " {} ports", ports.len());
        if self.verbosity < 1 {
            return;
        }
        for port in ports {
            self.out.push_str("  port ");
            if port.port.0 < 10 {
                self.out.push(' ');
            }
            self.port(port.port);
            self.counters(&[
                (": rx pkts=", port.rx_packets),
                (", bytes=", port.rx_bytes),
                (", drop=", port.rx_dropped),
                (", errs=", port.rx_errors),
                (", frame=", port.rx_frame_errors),
                (", over=", port.rx_over_errors),
                (", crc=", port.rx_crc_errors),
            ]);
            self.out.push_str("\n           ");
            self.counters(&[
                ("tx pkts=", port.tx_packets),
                (", bytes=", port.tx_bytes),
                (", drop=", port.tx_dropped),
                (", errs=", port.tx_errors),
                (", coll=", port.collisions),
            ]);
            self.out.push('\n');
            if tells_duration(self.version) && port.duration.sec != u32::MAX {
                let _ = writeln!(self.out, "           duration={}", duration(port.duration));
            }
            if let Some(counters) = &port.rfc2819 {
                self.rfc2819("rx", &counters[..]);
                self.rfc2819("tx", &counters[..]);
            }
            self.custom(&port.custom);
        }
    }

    /// The counters of RFC 2819 in a direction, without those that are not known.
    fn rfc2819(&mut self, direction: &str, counters: &[u64]) {
        let mut text = String::new();
        for (name, count) in RFC2819.iter().zip(counters) {
            let Some(rest) = name.strip_prefix(direction) else {
                continue;
            };
            if *count == u64::MAX {
                continue;
            }
            // Two names keep their direction.
            let name = match *name {
                "rx_fragmented_errors" | "rx_jabber_errors" => name,
                _ => &rest[1..],
            };
            let _ = write!(text, "{name}={count}, ");
        }
        if !text.is_empty() {
            let _ = writeln!(self.out, "           {direction} rfc2819 {text}");
        }
    }

    /// Counters that one switch has, three a line.
    fn custom(&mut self, counters: &[(String, u64)]) {
        if counters.is_empty() {
            return;
        }
        self.out.push_str("           CUSTOM Statistics");
        for (n, (name, count)) in counters.iter().enumerate() {
            self.out.push_str(match n % 3 {
                0 => "\n                      ",
                _ => " ",
            });
            let _ = write!(self.out, "{name}={count},");
        }
        self.out.push('\n');
    }

    fn counters(&mut self, counters: &[(&str, u64)]) {
        for (name, count) in counters {
            self.out.push_str(name);
            counter(self.out, *count);
        }
    }
}
