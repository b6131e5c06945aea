//! RSTP against the standard: its examples, and bridges in simulated networks.

mod examples;
mod networks;
