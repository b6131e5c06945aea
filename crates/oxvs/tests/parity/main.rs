//! The same command lines through Debian's Open vSwitch and oxvs: their outputs must be the same.
//!
//! `run.rs` says how to add a row. `PARITY=TEXT` runs the rows that contain TEXT, and the set-up
//! steps of their groups. `exceptions.rs` has the allowed differences.

/// Rows of `ovs-ofctl` with these words, in every version of OpenFlow. Lines may come in any order.
macro_rules! versions {
    ($($line:literal),* $(,)?) => {
        &[$(
            $crate::run::row(concat!("ovs-ofctl -O OpenFlow10 ", $line)).unordered(),
            $crate::run::row(concat!("ovs-ofctl -O OpenFlow11 ", $line)).unordered(),
            $crate::run::row(concat!("ovs-ofctl -O OpenFlow12 ", $line)).unordered(),
            $crate::run::row(concat!("ovs-ofctl -O OpenFlow13 ", $line)).unordered(),
            $crate::run::row(concat!("ovs-ofctl -O OpenFlow14 ", $line)).unordered(),
            $crate::run::row(concat!("ovs-ofctl -O OpenFlow15 ", $line)).unordered(),
        )*]
    };
}

mod appctl;
mod bonds;
mod both;
mod connection_lines;
mod connections;
mod dpctl;
mod dummy;
mod exceptions;
mod liveness;
mod lldp;
mod logs;
mod monitor;
mod noise;
mod ofctl;
mod ofctl_action_sets;
mod ofctl_answers;
mod ofctl_mutations;
mod ofctl_options;
mod ofctl_switch;
mod options;
mod ovsdb;
mod patches;
mod port_status;
mod routes;
mod run;
mod snooping;
mod sockets;
mod trace;
mod trace_connections;
mod trace_links;
mod trace_packet_types;
mod trace_selects;
mod trees;
mod tunnels;
mod vsctl;
