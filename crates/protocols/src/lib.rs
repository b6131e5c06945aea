//! The control protocols of links and bridges, without I/O and without a clock.
//!
//! Every protocol is a folder with the same files: `wire` reads and writes its frames, `machine`
//! holds its state, `timers` its intervals, `tests` compares it with the standard. A machine
//! works like this:
//!
//! - `configure(config, now)` applies a configuration; what stays the same keeps its state.
//! - `receive(port, frame, now)` takes a frame from the Ethernet header on. A frame that is not
//!   well-formed changes nothing but a counter.
//! - `tick(now)` runs the timers that are due; `next_event()` says when the next one is.
//! - `take_frame()` and `take_event()` return what the machine has to send and to tell; the caller
//!   empties both after each of the calls above.
//!
//! Invariants
//! - Machines read no clock and open nothing: time is an argument, randomness comes from a seed.
//! - Parsers never panic, and reject a frame as a whole.
//! - What a peer can make a machine keep is bounded per port and in total.

pub mod bfd;
pub mod bond;
pub mod cfm;
pub mod lacp;
pub mod lldp;
pub mod random;
pub mod rstp;
pub mod snooping;
pub mod stp;
