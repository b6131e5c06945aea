//! STP against the standard: frames, guards, and bridges in simulated networks.

mod frames;
mod hostile;
pub(crate) mod lab;
mod networks;
