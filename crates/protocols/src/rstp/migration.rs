//! Which protocol the other end speaks, and whether there is a bridge at all: the port protocol
//! migration machine (IEEE 802.1D-2004 §17.24) and the bridge detection machine (§17.25).

use super::machine::Rstp;
use super::port::Migration;
use super::timers::{MIGRATE_TIME, Timer};
use nanos::Nanos;

impl Rstp {
    /// The port protocol migration machine.
    pub(super) fn run_migration(&mut self, number: u32, now: Nanos) -> bool {
        let rstp = !self.force_stp;
        let port = self.port(number);
        let enabled = port.enabled();
        let sensing = port.migration == Migration::Sensing;
        let checks = sensing && (!enabled || port.mcheck || (rstp && !port.send_rstp && port.rcvd_rstp));
        if checks || (!enabled && port.migration == Migration::SelectingStp) {
            port.migration = Migration::CheckingRstp;
            port.mcheck = false;
            port.send_rstp = rstp;
            port.mdelay_while = Timer::start(MIGRATE_TIME, now);
            return true;
        }
        match port.migration {
            // Without a link the delay does not run.
            Migration::CheckingRstp if !enabled => {
                port.mdelay_while = Timer::Held;
                port.send_rstp = rstp;
                port.mcheck = false;
                false
            }
            Migration::CheckingRstp | Migration::SelectingStp => {
                port.mdelay_while.release(MIGRATE_TIME, now);
                let over = port.mdelay_while.expired(now) || (port.migration == Migration::SelectingStp && port.mcheck);
                if over {
                    port.migration = Migration::Sensing;
                    (port.rcvd_rstp, port.rcvd_stp) = (false, false);
                }
                over
            }
            Migration::Sensing if port.send_rstp && port.rcvd_stp => {
                port.migration = Migration::SelectingStp;
                port.send_rstp = false;
                port.mdelay_while = Timer::start(MIGRATE_TIME, now);
                true
            }
            Migration::Sensing => {
                (port.rcvd_rstp, port.rcvd_stp) = (false, false);
                false
            }
        }
    }

    /// The bridge detection machine.
    pub(super) fn run_edge(&mut self, number: u32, now: Nanos) -> bool {
        let port = self.port(number);
        let edge = if port.enabled() {
            let alone = port.edge_delay_while.expired(now) && port.config.auto_edge;
            port.oper_edge || (alone && port.send_rstp && port.proposing && !port.gate.blocks())
        } else {
            port.config.admin_edge
        };
        let moved = port.oper_edge != edge;
        port.oper_edge = edge;
        moved
    }
}
