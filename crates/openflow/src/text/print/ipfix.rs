//! Statistics of IPFIX.

use super::Printer;
use crate::model::IpfixStats;
use std::fmt::Write;

impl Printer<'_> {
    pub(super) fn ipfix_bridge(&mut self, stats: &IpfixStats) {
        self.out.push_str("\n  bridge ipfix: ");
        self.ipfix(stats, 16);
    }

    pub(super) fn ipfix_flows(&mut self, all: &[IpfixStats]) {
        let _ = writeln!(self.out, " {} ids", all.len());
        for stats in all {
            let _ = write!(self.out, "  id {:3}: ", stats.collector_set_id);
            self.ipfix(stats, 10);
        }
    }

    /// The counters, in two lines.
    fn ipfix(&mut self, stats: &IpfixStats, indent: usize) {
        let _ = writeln!(
            self.out,
            "flows={}, current flows={}, sampled pkts={}, ipv4 ok={}, ipv6 ok={}, tx pkts={}\n\
             {:indent$}pkts errs={}, ipv4 errs={}, ipv6 errs={}, tx errs={}",
            stats.total_flows,
            stats.current_flows,
            stats.packets,
            stats.ipv4_packets,
            stats.ipv6_packets,
            stats.tx_packets,
            "",
            stats.error_packets,
            stats.ipv4_error_packets,
            stats.ipv6_error_packets,
            stats.tx_errors
        );
    }
}
