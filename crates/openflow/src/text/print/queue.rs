//! Queues.

use super::meter::{duration, tells_duration};
use super::{Printer, counter};
use crate::Version;
use crate::model::{ALL_QUEUES, Port, QueueConfig, QueueStats};
use std::fmt::Write;

impl Printer<'_> {
    pub(super) fn queue_request(&mut self, port: Port, queue: u32) {
        self.out.push_str(" port=");
        // OpenFlow 1.0 has one number for both.
        self.port(if port == Port::ALL { Port::ANY } else { port });
        let _ = match queue {
            ALL_QUEUES => write!(self.out, " queue=ALL"),
            queue => write!(self.out, " queue={queue}"),
        };
    }

    pub(super) fn queue_config_request(&mut self, port: Port) {
        self.out.push_str(" port=");
        self.port(port);
    }

    pub(super) fn queue_config_reply(&mut self, port: Port, queues: &[QueueConfig]) {
        if queues.is_empty() {
            // Without queues it prints nothing, not even the port.
            return self.out.push('\n');
        }
        self.out.push(' ');
        if port != Port(0) {
            self.out.push_str("port=");
            self.port(port);
            self.out.push('\n');
        }
        for queue in queues {
            self.queue_config(queue);
        }
    }

    pub(super) fn queue_descs(&mut self, queues: &[(Port, QueueConfig)]) {
        if queues.is_empty() {
            return self.out.push('\n');
        }
        let mut last = None;
        self.out.push(' ');
        let mut sorted: Vec<_> = queues.to_vec();
        sorted.sort_by_key(|(port, queue)| (port.0, queue.queue));
        for (port, queue) in &sorted {
            if last != Some(*port) {
                self.out.push_str("port=");
                self.port(*port);
                self.out.push('\n');
                last = Some(*port);
            }
            self.queue_config(queue);
        }
    }

    fn queue_config(&mut self, queue: &QueueConfig) {
        let _ = write!(self.out, "queue {}:", queue.queue);
        for (name, rate) in [("min_rate", queue.min_rate), ("max_rate", queue.max_rate)] {
            if let Some(rate) = rate {
                let _ = match rate {
                    0..=1000 => write!(self.out, " {name}:{}.{}%", rate / 10, rate % 10),
                    _ => write!(self.out, " {name}:(disabled)"),
                };
            }
        }
        self.out.push('\n');
    }

    pub(super) fn queue_stats(&mut self, queues: &[QueueStats]) {
        let _ = writeln!(self.out, " {} queues", queues.len());
        if self.verbosity < 1 {
            return;
        }
        for queue in queues {
            self.out.push_str("  port ");
            self.port(queue.port);
            let _ = match queue.queue {
                ALL_QUEUES => write!(self.out, " queue ALL: "),
                number => write!(self.out, " queue {number}: "),
            };
            for (name, count) in [
                ("bytes=", queue.tx_bytes),
                (", pkts=", queue.tx_packets),
                (", errors=", queue.tx_errors),
            ] {
                self.out.push_str(name);
                counter(self.out, count);
            }
            self.out.push_str(", duration=");
            match tells_duration(self.version) && self.version > Version::V12 && queue.duration.sec != u32::MAX {
                true => self.out.push_str(&duration(queue.duration)),
                false => self.out.push('?'),
            }
            self.out.push('\n');
        }
    }
}
