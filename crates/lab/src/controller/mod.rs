//! The lab's controller: rules before a run (study S3), what a switch's OpenFlow costs, and a
//! learning controller for reactive networks (study S1).
//!
//! It speaks OpenFlow 1.0, which the study measured and every switch has.

mod connection;
mod fill;
mod measure;
mod reactive;
mod rules;

pub use connection::{Connection, Refused};
pub(crate) use fill::drain;
pub use fill::{Filled, MASKS, Shape, fill};
pub use measure::{Measured, barrier, packet_out, port_statistics, rates, rule_statistics};
pub use reactive::{Learning, Policy};
pub use rules::{Conversation, Endpoint, Transport, conversation_rules};
