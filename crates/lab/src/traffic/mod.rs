//! What is sent across a testbed, and what is measured of it.
//!
//! - [`agent`]: the program that sends and receives, in a host's namespace or in a guest; [`protocol`]: what is said with it.
//! - [`Agent`]: the lab's side of it.
//! - [`capture`]: what arrives at a host, as evidence.
//! - [`udp`]: round trips, and flows of datagrams; [`streams`]: the five tests of netperf.
//! - [`ping`]: who answers; [`iperf`]: a second witness.
//! - [`run`]: all of that together, between the hosts of a testbed ([`Ends`]); [`observe`]: what is no flow from one host to another.

pub mod agent;
pub mod capture;
mod client;
pub(crate) mod clock;
mod ends;
mod histogram;
pub mod iperf;
mod measured;
pub mod observe;
pub mod ping;
pub mod protocol;
mod run;
pub mod streams;
mod task;
#[cfg(test)]
mod tests;
pub mod udp;

pub use client::{Agent, Remote};
pub use ends::Ends;
pub use measured::{Account, Measured};
pub use run::{MOST_FLOWS, NEW_FLOW_PORTS, new_flow_ports, ports, run};

use serde::{Deserialize, Serialize};

/// Traffic from one host to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Its name in results; unique in the scenario.
    pub name: String,
    /// The host that sends, or asks.
    pub from: String,
    /// The host that receives, or answers.
    pub to: String,
    /// What is sent.
    #[serde(flatten)]
    pub test: Test,
}

/// What is sent, and so what is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "test", rename_all = "snake_case", deny_unknown_fields)]
pub enum Test {
    /// A datagram goes and comes back, both timestamps on the host that asks. Metrics `rtt` (mean over the exchanges, µs), distribution `rtt`.
    Rtt {
        /// UDP payload in bytes.
        payload: u32,
        /// How many; none: as many as the run's time allows.
        exchanges: Option<u32>,
        /// Between the beginnings of two exchanges, µs; 0: the next begins when the last has ended.
        #[serde(default)]
        interval: u64,
    },
    /// UDP at a constant bit rate, each datagram with its number and its time. Metrics `rate` (received, bit/s of UDP payload), `share` (received/sent),
    /// `jitter` (RFC 3550 section 6.4.1, µs), `loss` (share of the sent that was not received, 0 to 1); distributions `jitter`, `pacing` (error of sending).
    Cbr {
        /// UDP payload in bytes.
        payload: u32,
        /// In bit/s of UDP payload.
        rate: u64,
        /// The receiver's socket buffer in bytes; none: the system's.
        buffer: Option<u32>,
    },
    /// netperf's TCP_STREAM. Metrics `throughput` (bit/s, mean of a stream), `total`, `transfer` (bytes), `lost` (streams), `retransmissions`.
    TcpStream(Streams),
    /// netperf's UDP_STREAM: as fast as it goes. Metrics as TCP_STREAM, of what was received, and `sent`.
    UdpStream(Streams),
    /// netperf's TCP_RR. Metrics `rate` (transactions/s, mean of a stream), `latency` (1/rate, µs), `lost`; distribution `latency`.
    TcpRr(Streams),
    /// netperf's TCP_CRR: a connection for each transaction. Metrics as TCP_RR.
    TcpCrr(Streams),
    /// netperf's UDP_RR. Metrics as TCP_RR.
    UdpRr(Streams),
    /// Datagrams, each from a port that was not used before. Metrics `rate` (new flows received/s), `share`.
    NewFlows {
        /// New flows a second; none: as fast as it goes.
        rate: Option<u64>,
        /// UDP payload in bytes.
        payload: u32,
    },
}

/// Options of the netperf tests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    /// How many at a time; each with a control connection of its own across the same ports.
    #[serde(default = "one")]
    pub streams: u32,
    /// Bytes of a message (request and response for the RR tests); none: the socket buffer's size (1 for the RR tests).
    pub message: Option<u32>,
    /// Bytes of the send and receive socket buffers at both ends; none: the system's (autotuned).
    pub buffer: Option<u32>,
    /// TCP congestion control; none: the system's.
    pub congestion: Option<String>,
}

fn one() -> u32 {
    1
}
