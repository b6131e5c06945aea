//! The switch daemon: follows the configuration database, applies it to bridges, ports and devices,
//! and writes statuses back.
//!
//! A change's way through the files: [`daemon`] gets the change, [`rows`] reads typed rows into
//! [`desired`], [`bridges`] compares it with the present state and changes devices, datapath and
//! the switch's tables, [`status`] writes the result back. A packet's way touches this crate only
//! in [`slowpath`], which answers a worker's upcall from the switch's tables. [`protocols`] runs
//! the control protocols. [`openflow`] has the bridges' sockets for controllers and tools.
//! [`commands`] and [`show`] answer `ovs-appctl`.
//!
//! Invariants
//! - The daemon is always a client of a database, its own process's ([`run`]) or another's
//!   ([`main`]): configuration has one code path.
//! - `cur_cfg` changes in the transaction that also reports the result of each interface.
//! - A setting without effect is named in its row and in the log.

#![cfg_attr(not(test), warn(clippy::print_stdout))]

mod bridges;
mod captures;
mod carriers;
mod clock;
mod commands;
mod connections;
mod controllers;
mod daemon;
mod desired;
mod dummy_port;
mod embedded;
mod exports;
mod fair_queue;
mod guard;
mod ipsec;
mod keys;
mod left_flows;
mod mirrors;
mod numa;
mod ofport;
mod openflow;
mod options;
mod own_changes;
mod packets;
mod path_mtus;
mod protocols;
mod qos;
mod reports;
mod retries;
mod routes;
mod rows;
mod selection;
mod serve;
mod show;
mod slowpath;
mod state;
mod status;
mod storm;
mod system_ids;
mod tunnels;
mod unsupported;
mod workers;

pub use left_flows::keeper::{COMMAND as KEEP_FLOWS, main as keep_flows};
pub use serve::{main, run};
