//! What a port knows of its segment: the port information machine (IEEE 802.1D-2004 §17.27).

use super::machine::Rstp;
use super::port::{InfoIs, Port, Received};
use super::timers::Timer;
use super::wire::{Times, Vector, WireRole};
use core::time::Duration;
use nanos::Nanos;

/// What a received message is beside what the port knows (§17.21.8).
enum Info {
    SuperiorDesignated,
    RepeatedDesignated,
    InferiorDesignated,
    InferiorRootAlternate,
    Other,
}

impl Rstp {
    /// The states DISABLED, AGED, UPDATE and CURRENT.
    pub(super) fn run_information(&mut self, number: u32, now: Nanos) -> bool {
        let port = self.port(number);
        if !port.enabled() {
            if port.info_is == InfoIs::Disabled {
                return false;
            }
            (port.proposing, port.proposed, port.agree, port.agreed) = (false, false, false, false);
            port.disputed = false;
            port.rcvd_info_while = Timer::Expired;
            port.info_is = InfoIs::Disabled;
            (port.reselect, port.selected) = (true, false);
            return true;
        }
        if port.info_is == InfoIs::Disabled {
            port.age();
            return true;
        }
        if port.selected && port.updt_info {
            (port.proposing, port.proposed) = (false, false);
            let worse = port.designated_priority > port.port_priority;
            // Whoever agreed may lead to the root by another way now, and this bridge by that one:
            // until it agrees again, nothing passes.
            port.sync |= port.agreed && worse && !port.oper_edge;
            port.agreed = port.agreed && port.info_is == InfoIs::Mine && !worse;
            port.synced = port.synced && port.agreed;
            port.port_priority = port.designated_priority;
            port.port_times = port.designated_times;
            port.updt_info = false;
            port.info_is = InfoIs::Mine;
            port.new_info = true;
            return true;
        }
        if port.info_is == InfoIs::Received && port.rcvd_info_while.expired(now) && !port.updt_info {
            port.age();
            return true;
        }
        false
    }

    /// The state RECEIVE and those behind it.
    pub(super) fn receive_information(&mut self, number: u32, received: &Received, now: Nanos) {
        let own = self.id;
        let rstp = !self.force_stp;
        let port = self.port(number);
        if port.updt_info {
            return;
        }
        let vector = Vector::of(&received.message);
        let times = received.message.times.bounded();
        match port.compare(received, &vector, &times) {
            Info::SuperiorDesignated => {
                (port.agreed, port.proposing) = (false, false);
                port.record_proposal(received);
                port.set_tc_flags(received);
                port.agree = port.agree && port.info_is == InfoIs::Received && vector <= port.port_priority;
                port.record_agreement(received, rstp);
                port.synced = port.synced && port.agreed;
                port.port_priority = vector;
                port.port_times = times;
                port.update_info_while(now);
                port.info_is = InfoIs::Received;
                (port.reselect, port.selected) = (true, false);
            }
            Info::RepeatedDesignated => {
                port.record_proposal(received);
                port.set_tc_flags(received);
                port.record_agreement(received, rstp);
                port.update_info_while(now);
            }
            Info::InferiorDesignated => {
                // 802.1D-2004 §17.21.10 sets agreed; 802.1Q since 2008 sees a dispute, which also
                // finds links that carry frames in one direction only.
                if received.rst.is_some_and(|flags| flags.learning) && vector.bridge != own {
                    (port.disputed, port.agreed) = (true, false);
                }
            }
            Info::InferiorRootAlternate => {
                port.record_agreement(received, rstp);
                port.set_tc_flags(received);
            }
            Info::Other => {}
        }
    }
}

impl Port {
    /// The state AGED.
    fn age(&mut self) {
        self.info_is = InfoIs::Aged;
        (self.reselect, self.selected) = (true, false);
    }

    fn compare(&self, received: &Received, vector: &Vector, times: &Times) -> Info {
        let known = &self.port_priority;
        let designated = match received.rst {
            None => true,
            Some(flags) => matches!(flags.role, WireRole::Designated | WireRole::Unknown),
        };
        if designated {
            let same = vector == known && *times == self.port_times;
            if same && self.info_is == InfoIs::Received {
                Info::RepeatedDesignated
            } else if !same && vector.supersedes(known) {
                Info::SuperiorDesignated
            } else {
                Info::InferiorDesignated
            }
        } else if vector >= known {
            Info::InferiorRootAlternate
        } else {
            Info::Other
        }
    }

    /// §17.21.11.
    fn record_proposal(&mut self, received: &Received) {
        self.proposed |= received.rst.is_some_and(|flags| flags.proposal);
    }

    /// §17.21.9; but an agreement that comes before this port has sent its new information is one
    /// to the old information.
    fn record_agreement(&mut self, received: &Received, rstp: bool) {
        let agrees = received.rst.is_some_and(|flags| flags.agreement);
        self.agreed = rstp && self.config.is_point_to_point() && agrees && !self.new_info;
        if self.agreed {
            self.proposing = false;
        }
    }

    /// §17.21.17.
    fn set_tc_flags(&mut self, received: &Received) {
        self.rcvd_tc |= received.message.topology_change;
        self.rcvd_tc_ack |= received.ack;
    }

    /// §17.21.23.
    fn update_info_while(&mut self, now: Nanos) {
        let age = Times::duration(self.port_times.message_age) + Duration::from_secs(1);
        let rounded = Duration::from_secs((age + Duration::from_millis(500)).as_secs());
        self.rcvd_info_while = if rounded <= Times::duration(self.port_times.max_age) {
            Timer::start(Times::duration(self.port_times.hello_time) * 3, now)
        } else {
            Timer::Expired
        };
    }
}
