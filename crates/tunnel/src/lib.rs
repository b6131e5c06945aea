//! Where encapsulated packets go: the underlay of tunnels as data, without I/O.
//!
//! - [`route`] has the routes: those of the kernel and those that users added.
//!
//! Invariants
//! - Nothing here opens a socket or reads a clock. The daemon asks the kernel and calls in.

pub mod route;
