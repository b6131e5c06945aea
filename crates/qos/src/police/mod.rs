//! Policers: they pass or drop packets, and queue none.
//!
//! A bucket holds tokens (bytes, or packets) and is filled at a rate up to its depth; a packet that
//! finds enough takes them. [`EgressPolicer`] has one bucket, [`TrTcm`] two, [`IngressPolicer`] one
//! for bytes and one for packets.

mod bucket;
mod egress;
mod ingress;
mod trtcm;

pub use egress::{EgressPolicer, EgressPolicerConfig};
pub use ingress::{IngressPolicer, IngressPolicerConfig};
pub use trtcm::{Color, TrTcm, TrTcmConfig};
