//! Topology changes: detection, propagation, and which addresses they make stale (IEEE
//! 802.1D-2004 §17.30).
//!
//! A port that begins to forward tells all other ports; a port that is told by its segment passes
//! it on to all other ports. Each of these flushes the addresses of its own port. Edge ports keep
//! theirs.

use super::machine::Rstp;
use super::port::{Change, Role};
use super::timers::Timer;
use super::wire::Times;
use crate::stp::Event;
use core::time::Duration;
use nanos::Nanos;

impl Rstp {
    /// The topology change machine.
    pub(super) fn run_topology_change(&mut self, number: u32, now: Nanos) -> bool {
        let port = self.port(number);
        let active = matches!(port.role, Role::Root | Role::Designated);
        match port.change {
            Change::Inactive => {
                if !port.learn {
                    port.forget_changes();
                    return false;
                }
                port.forget_changes();
                port.change = Change::Learning;
                true
            }
            Change::Learning => {
                port.forget_changes();
                if active && port.forward && !port.oper_edge {
                    port.change = Change::Active;
                    self.detect_topology_change(number, now);
                    return true;
                }
                if !active && !port.learn && !port.learning {
                    port.change = Change::Inactive;
                    port.tc_while = Timer::Expired;
                    port.tc_ack = false;
                    self.events.push_back(Event::Flush { port: number });
                    return true;
                }
                false
            }
            Change::Active => {
                if !active || port.oper_edge {
                    port.change = Change::Learning;
                    return true;
                }
                if port.rcvd_tcn || port.rcvd_tc {
                    let notified = std::mem::take(&mut port.rcvd_tcn);
                    port.rcvd_tc = false;
                    port.tc_ack |= notified && port.role == Role::Designated;
                    if notified {
                        self.new_tc_while(number, now);
                    }
                    self.topology_changes += 1;
                    self.set_tc_prop_tree(number);
                    return true;
                }
                if port.tc_prop {
                    port.tc_prop = false;
                    self.new_tc_while(number, now);
                    self.events.push_back(Event::Flush { port: number });
                    return true;
                }
                if port.rcvd_tc_ack {
                    port.tc_while = Timer::Expired;
                    port.rcvd_tc_ack = false;
                    return true;
                }
                false
            }
        }
    }

    /// The state DETECTED.
    pub(super) fn detect_topology_change(&mut self, number: u32, now: Nanos) {
        self.new_tc_while(number, now);
        self.topology_changes += 1;
        self.set_tc_prop_tree(number);
        self.port(number).new_info = true;
    }

    /// §17.21.7.
    fn new_tc_while(&mut self, number: u32, now: Nanos) {
        let times = self.root_times;
        let port = self.port(number);
        if !port.tc_while.expired(now) {
            return;
        }
        let time = if port.send_rstp {
            port.new_info = true;
            port.hello_time() + Duration::from_secs(1)
        } else {
            Times::duration(times.max_age) + Times::duration(times.forward_delay)
        };
        port.tc_while = Timer::start(time, now);
    }

    /// §17.21.18.
    fn set_tc_prop_tree(&mut self, from: u32) {
        for (&number, port) in &mut self.ports {
            port.tc_prop |= number != from;
        }
    }
}

impl super::port::Port {
    /// A port that does not forward knows of no change.
    fn forget_changes(&mut self) {
        (self.rcvd_tc, self.rcvd_tcn, self.rcvd_tc_ack, self.tc_prop) = (false, false, false, false);
    }
}
