//! The variables of a port (IEEE 802.1D-2004 §17.19).

use super::machine::PortConfig;
use super::timers::Timer;
use super::wire::{Message, RstFlags, Times, Vector};
use crate::stp::Gate;
use nanos::Nanos;

/// The role of a port (§17.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes no part.
    Disabled,
    /// The way to the root.
    Root,
    /// The way to the root for its segment.
    Designated,
    /// Another way to the root.
    Alternate,
    /// A second port at a segment for which this bridge is the way to the root.
    Backup,
}

/// What a port does with data (§17.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It takes no part.
    Disabled,
    /// It neither learns nor forwards.
    Discarding,
    /// It learns and does not forward yet.
    Learning,
    /// It learns and forwards.
    Forwarding,
}

/// Where a port's priority vector comes from (§17.19.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InfoIs {
    Disabled,
    Aged,
    Mine,
    Received,
}

/// The state of the topology change machine (§17.30).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Inactive,
    Learning,
    Active,
}

/// The state of the protocol migration machine (§17.24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Migration {
    CheckingRstp,
    SelectingStp,
    Sensing,
}

/// A received BPDU that conveys a port's priority vector.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) message: Message,
    /// `None` for a Configuration BPDU.
    pub(super) rst: Option<RstFlags>,
    /// A Configuration BPDU acknowledges a notification.
    pub(super) ack: bool,
}

#[derive(Debug)]
pub(super) struct Port {
    pub(super) config: PortConfig,
    pub(super) gate: Gate,
    pub(super) tx: u64,
    pub(super) rx: u64,
    /// The time at which it took its role.
    pub(super) since: Nanos,
    pub(super) created: Nanos,

    // Priority vectors and timers of them.
    pub(super) port_priority: Vector,
    pub(super) port_times: Times,
    pub(super) designated_priority: Vector,
    pub(super) designated_times: Times,
    pub(super) info_is: InfoIs,

    // Roles.
    pub(super) role: Role,
    pub(super) selected_role: Role,
    pub(super) selected: bool,
    pub(super) reselect: bool,
    pub(super) updt_info: bool,

    // Agreements.
    pub(super) agree: bool,
    pub(super) agreed: bool,
    pub(super) proposed: bool,
    pub(super) proposing: bool,
    pub(super) disputed: bool,
    pub(super) sync: bool,
    pub(super) synced: bool,
    pub(super) re_root: bool,

    // States.
    pub(super) learn: bool,
    pub(super) forward: bool,
    pub(super) learning: bool,
    pub(super) forwarding: bool,

    // Edges and versions.
    pub(super) oper_edge: bool,
    pub(super) send_rstp: bool,
    pub(super) mcheck: bool,
    pub(super) rcvd_rstp: bool,
    pub(super) rcvd_stp: bool,
    pub(super) migration: Migration,

    // Topology changes.
    pub(super) change: Change,
    pub(super) rcvd_tc: bool,
    pub(super) rcvd_tcn: bool,
    pub(super) rcvd_tc_ack: bool,
    pub(super) tc_prop: bool,
    pub(super) tc_ack: bool,

    // Transmission.
    pub(super) new_info: bool,
    pub(super) tx_count: u32,
    pub(super) tx_tick: Timer,

    // Timers (§17.17).
    pub(super) edge_delay_while: Timer,
    pub(super) fd_while: Timer,
    pub(super) hello_when: Timer,
    pub(super) mdelay_while: Timer,
    pub(super) rb_while: Timer,
    pub(super) rcvd_info_while: Timer,
    pub(super) rr_while: Timer,
    pub(super) tc_while: Timer,
}

impl Port {
    /// A port at the begin: no link, no role.
    pub(super) fn new(config: &PortConfig, now: Nanos) -> Port {
        let mut gate = Gate::default();
        gate.set_guards(&config.guards);
        Port {
            config: config.clone(),
            gate,
            tx: 0,
            rx: 0,
            since: now,
            created: now,
            port_priority: Vector::default(),
            port_times: Times::default(),
            designated_priority: Vector::default(),
            designated_times: Times::default(),
            info_is: InfoIs::Disabled,
            role: Role::Disabled,
            selected_role: Role::Disabled,
            selected: false,
            reselect: true,
            updt_info: false,
            agree: false,
            agreed: false,
            proposed: false,
            proposing: false,
            disputed: false,
            sync: false,
            synced: true,
            re_root: false,
            learn: false,
            forward: false,
            learning: false,
            forwarding: false,
            oper_edge: config.admin_edge,
            send_rstp: true,
            mcheck: false,
            rcvd_rstp: false,
            rcvd_stp: false,
            migration: Migration::CheckingRstp,
            change: Change::Inactive,
            rcvd_tc: false,
            rcvd_tcn: false,
            rcvd_tc_ack: false,
            tc_prop: false,
            tc_ack: false,
            new_info: false,
            tx_count: 0,
            tx_tick: Timer::Expired,
            edge_delay_while: Timer::Held,
            fd_while: Timer::Held,
            hello_when: Timer::Held,
            mdelay_while: Timer::Held,
            rb_while: Timer::Expired,
            rcvd_info_while: Timer::Expired,
            rr_while: Timer::Expired,
            tc_while: Timer::Expired,
        }
    }

    /// Whether the link works (§17.19.18, portEnabled) and no guard has disabled the port.
    pub(super) fn enabled(&self) -> bool {
        self.config.up && !self.gate.disabled
    }

    /// The role is selected and what the port knows is the newest.
    pub(super) fn settled(&self) -> bool {
        self.selected && !self.updt_info
    }

    pub(super) fn timers(&self) -> [Timer; 9] {
        [
            self.edge_delay_while,
            self.fd_while,
            self.hello_when,
            self.mdelay_while,
            self.rb_while,
            self.rcvd_info_while,
            self.rr_while,
            self.tc_while,
            self.tx_tick,
        ]
    }
}
