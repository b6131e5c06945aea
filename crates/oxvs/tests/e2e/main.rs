//! The binary as its users meet it: unmodified clients, traffic between namespaces, crashes, and
//! Debian's Open vSwitch beside it.
//!
//! With `E2E_SWITCH=debian` the tests run against Debian's Open vSwitch instead: they expect its
//! behaviour, which is how to check a new test.

mod afxdp;
mod applications;
mod bonds;
mod broken_pipe;
mod captures;
mod captures_on_devices;
mod clients;
mod connection_commands;
mod connections;
mod connections_offloaded;
mod controllers;
mod counter_samples;
mod differential;
mod exports;
mod exports_agent;
mod exports_collectors;
mod exports_headers;
mod exports_load;
mod exports_tunnels;
mod fixture;
mod floods;
mod frr;
mod host_tunnels;
mod ipsec;
mod lab_controller;
mod liveness;
mod liveness_frr;
mod liveness_tunnels;
mod lldp;
mod memory;
mod mirror_captures;
mod mirrors;
mod mirrors_configured;
mod mirrors_of_own;
mod offload;
mod openflow;
mod other_tools;
mod ovn;
mod path_mtus;
mod pipelines;
mod port_security;
mod python_idl;
mod qos;
mod qos_config;
mod restart;
mod rules_differential;
mod sharing;
mod snooping;
mod traffic;
mod trees;
mod tunnels;
mod tunnels_changes;
mod tunnels_offloaded;
mod tunnels_packet_types;
mod tunnels_underlay;
mod tunnels_wired;
mod vtep;
mod workers;
