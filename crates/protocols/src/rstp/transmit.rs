//! What a port sends: the port transmit machine (IEEE 802.1D-2004 §17.31).

use super::machine::Rstp;
use super::port::Role;
use super::timers::{TRANSMIT_TICK, Timer};
use super::wire::{Bpdu, Message, RstFlags, WireRole};
use nanos::Nanos;

impl Rstp {
    /// The port transmit machine. It runs after the others, so that a BPDU tells where they ended.
    pub(super) fn run_transmit(&mut self, number: u32, now: Nanos) {
        let hold_count = self.hold_count;
        let port = self.port(number);
        if !port.enabled() || port.role == Role::Disabled {
            port.hello_when = Timer::Held;
            port.tx_tick = Timer::Expired;
            port.tx_count = 0;
            return;
        }
        port.count_down(now);
        if !port.settled() {
            return;
        }
        let hello = port.hello_time();
        if port.hello_when == Timer::Held {
            port.new_info = true;
            port.hello_when = Timer::start(hello, now);
        }
        if port.hello_when.expired(now) {
            let tells = port.role == Role::Root && !port.tc_while.expired(now);
            port.new_info |= port.role == Role::Designated || tells;
            port.hello_when = Timer::start(hello, now);
        }
        if !port.new_info || port.tx_count >= hold_count {
            return;
        }
        let bpdu = port.bpdu(now);
        if let Some(bpdu) = bpdu {
            port.new_info = false;
            if port.gate.guards.bpdu_filter {
                return;
            }
            port.tx_count += 1;
            port.tx += 1;
            if port.tx_tick == Timer::Expired {
                port.tx_tick = Timer::start(TRANSMIT_TICK, now);
            }
            if bpdu != Bpdu::Tcn {
                port.tc_ack = false;
            }
            let frame = bpdu.emit(port.config.mac);
            self.frames.push_back((number, frame));
        }
    }
}

impl super::port::Port {
    /// Lowers the number of sent BPDUs by one a second.
    fn count_down(&mut self, now: Nanos) {
        while let Timer::Running(due) = self.tx_tick
            && due <= now
        {
            self.tx_count = self.tx_count.saturating_sub(1);
            self.tx_tick = match self.tx_count {
                0 => Timer::Expired,
                _ => Timer::Running(due + TRANSMIT_TICK),
            };
        }
    }

    /// What there is to send (§17.21.19 to 21); of an old bridge, only the root port and designated
    /// ports send.
    fn bpdu(&self, now: Nanos) -> Option<Bpdu> {
        let vector = &self.designated_priority;
        let message = Message {
            root: vector.root,
            cost: vector.cost,
            bridge: vector.bridge,
            port: vector.port,
            times: self.designated_times,
            topology_change: !self.tc_while.expired(now),
        };
        if self.send_rstp {
            let role = match self.role {
                Role::Root => WireRole::Root,
                Role::Designated => WireRole::Designated,
                Role::Alternate | Role::Backup => WireRole::Alternate,
                Role::Disabled => return None,
            };
            let flags = RstFlags {
                role,
                proposal: self.proposing,
                agreement: self.agree,
                learning: self.learning,
                forwarding: self.forwarding,
            };
            return Some(Bpdu::Rst(message, flags));
        }
        match self.role {
            Role::Root => Some(Bpdu::Tcn),
            Role::Designated => Some(Bpdu::Config(message, self.tc_ack)),
            _ => None,
        }
    }
}
