//! How a port comes to its role and to forwarding: the port role transition machine
//! (IEEE 802.1D-2004 §17.29).

use super::machine::Rstp;
use super::port::{Port, Role};
use super::timers::{MIGRATE_TIME, Timer};
use super::wire::Times;
use core::time::Duration;
use nanos::Nanos;

impl Rstp {
    /// One step of the machine of a port's role.
    pub(super) fn run_role_transitions(&mut self, number: u32, now: Nanos) -> bool {
        let port = &self.ports[&number];
        if !port.settled() {
            return false;
        }
        if port.role != port.selected_role {
            self.change_role(number, now);
            return true;
        }
        match port.role {
            Role::Disabled => self.port(number).run_disabled(),
            Role::Root => self.run_root(number, now),
            Role::Designated => self.run_designated(number, now),
            Role::Alternate | Role::Backup => self.run_alternate(number),
        }
    }

    /// The states DISABLE_PORT, ROOT_PORT, DESIGNATED_PORT and BLOCK_PORT.
    fn change_role(&mut self, number: u32, now: Nanos) {
        let port = self.port(number);
        let (max_age, fwd_delay, hello) = (port.max_age(), port.fwd_delay(), port.hello_time());
        let forward_delay = port.forward_delay();
        match port.role {
            Role::Disabled => port.fd_while.release(max_age, now),
            Role::Root => port.rr_while.release(fwd_delay, now),
            Role::Alternate | Role::Backup => port.fd_while.release(forward_delay, now),
            Role::Designated => {}
        }
        port.rb_while.release(hello * 2, now);
        port.role = port.selected_role;
        port.since = now;
        match port.role {
            Role::Root => port.rr_while = Timer::Held,
            Role::Designated => {}
            Role::Disabled | Role::Alternate | Role::Backup => (port.learn, port.forward) = (false, false),
        }
    }

    fn run_root(&mut self, number: u32, now: Nanos) -> bool {
        let all_synced = self.all_synced();
        let re_rooted = self.re_rooted(number, now);
        let rstp = !self.force_stp;
        let port = self.port(number);
        if port.proposed && !port.agree {
            port.proposed = false;
            self.set_sync_tree();
            return true;
        }
        if (all_synced && !port.agree) || (port.proposed && port.agree) {
            (port.proposed, port.sync) = (false, false);
            port.agree = true;
            port.new_info = true;
            return true;
        }
        if (port.agreed && !port.synced) || (port.sync && port.synced) {
            port.synced = true;
            port.sync = false;
            return true;
        }
        if port.re_root && port.forward {
            port.re_root = false;
            return true;
        }
        if !port.forward && !port.re_root {
            for port in self.ports.values_mut() {
                port.re_root = true;
            }
            return true;
        }
        let ready = port.fd_while.expired(now) || (re_rooted && port.rb_while.expired(now) && rstp);
        port.go_on(ready, now)
    }

    fn run_designated(&mut self, number: u32, now: Nanos) -> bool {
        let port = self.port(number);
        let blocks = port.gate.blocks();
        let (rr_over, fd_over) = (port.rr_while.expired(now), port.fd_while.expired(now));
        if !port.forward && !port.agreed && !port.proposing && !port.oper_edge {
            port.proposing = true;
            let delay = if port.config.is_point_to_point() {
                MIGRATE_TIME
            } else {
                port.max_age()
            };
            port.edge_delay_while = Timer::start(delay, now);
            port.new_info = true;
            return true;
        }
        let quiet = !port.learning && !port.forwarding;
        if ((quiet || port.agreed || port.oper_edge) && !port.synced) || (port.sync && port.synced) {
            port.rr_while = Timer::Expired;
            port.synced = true;
            port.sync = false;
            return true;
        }
        if rr_over && port.re_root {
            port.re_root = false;
            return true;
        }
        let must_stop = (port.sync && !port.synced) || (port.re_root && !rr_over) || port.disputed;
        if (must_stop && !port.oper_edge || blocks) && (port.learn || port.forward) {
            (port.learn, port.forward, port.disputed) = (false, false, false);
            port.fd_while = Timer::start(port.forward_delay(), now);
            return true;
        }
        let ready = (fd_over || port.agreed || port.oper_edge) && (rr_over || !port.re_root) && !port.sync && !blocks;
        let forwarded = port.forward;
        let moved = port.go_on(ready, now);
        if port.forward && !forwarded {
            // Without a proposal in flight, an old bridge at the other end agrees to nothing.
            port.agreed = port.send_rstp;
        }
        moved
    }

    fn run_alternate(&mut self, number: u32) -> bool {
        let all_synced = self.all_synced();
        let port = self.port(number);
        if port.learning || port.forwarding {
            return false;
        }
        if port.proposed && !port.agree {
            port.proposed = false;
            self.set_sync_tree();
            return true;
        }
        if (all_synced && !port.agree) || (port.proposed && port.agree) {
            port.proposed = false;
            port.agree = true;
            port.new_info = true;
            return true;
        }
        if port.role == Role::Backup {
            port.rb_while = Timer::Held;
        }
        let moved = port.sync || port.re_root || !port.synced || port.fd_while != Timer::Held;
        port.fd_while = Timer::Held;
        port.rr_while = Timer::Expired;
        port.synced = true;
        (port.sync, port.re_root) = (false, false);
        moved
    }

    /// §17.20.3, allSynced.
    fn all_synced(&self) -> bool {
        self.ports
            .values()
            .all(|port| port.selected && port.role == port.selected_role && (port.synced || port.role == Role::Root))
    }

    /// §17.20.10, reRooted.
    fn re_rooted(&self, root: u32, now: Nanos) -> bool {
        self.ports
            .iter()
            .all(|(&number, port)| number == root || port.rr_while.expired(now))
    }

    /// §17.21.15.
    fn set_sync_tree(&mut self) {
        for port in self.ports.values_mut() {
            port.sync = true;
        }
    }
}

impl Port {
    fn run_disabled(&mut self) -> bool {
        if self.learning || self.forwarding {
            return false;
        }
        let moved = self.sync || self.re_root || !self.synced || self.fd_while != Timer::Held;
        self.fd_while = Timer::Held;
        self.synced = true;
        self.rr_while = Timer::Expired;
        (self.sync, self.re_root) = (false, false);
        moved
    }

    /// The states LEARN and FORWARD of a root or designated port that is ready for them.
    fn go_on(&mut self, ready: bool, now: Nanos) -> bool {
        if !ready || self.forward {
            return false;
        }
        if self.learn {
            self.forward = true;
            self.fd_while = Timer::Expired;
        } else {
            self.learn = true;
            self.fd_while = Timer::start(self.forward_delay(), now);
        }
        true
    }

    fn max_age(&self) -> Duration {
        Times::duration(self.designated_times.max_age)
    }

    fn fwd_delay(&self) -> Duration {
        Times::duration(self.designated_times.forward_delay)
    }

    pub(super) fn hello_time(&self) -> Duration {
        Times::duration(self.designated_times.hello_time)
    }

    /// §17.20.5: beside a bridge that speaks RSTP, a hello time is enough.
    fn forward_delay(&self) -> Duration {
        if self.send_rstp {
            self.hello_time()
        } else {
            self.fwd_delay()
        }
    }
}
