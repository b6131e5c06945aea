//! The agent beside a switch without datapath, on virtual time.

mod bundles;
mod conformance;
mod ends;
mod errors;
mod hostile;
mod mass;
mod memory;
mod ovn;
mod protocol;
mod queues;
mod tables;
mod world;
