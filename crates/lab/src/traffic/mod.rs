//! Traffic across a testbed and its measurement.
//!
//! - [`agent`]: the program that sends and receives, in a host's namespace or in a guest;
//!   [`protocol`]: the messages with it.
//! - [`Agent`]: the lab's side of it.
//! - [`capture`]: frames that arrive at a host, as evidence.
//! - [`udp`]: round trips, and flows of datagrams; [`streams`]: the five tests of netperf.
//! - [`ping`]: reachability; [`iperf`]: an independent measurement.
//! - [`run`]: all of that together, between the hosts of a testbed ([`Ends`]); [`observe`]:
//!   everything except flows between hosts.

pub mod agent;
pub mod capture;
mod client;
pub(crate) mod clock;
mod coverage;
mod ends;
mod histogram;
pub(crate) mod http3;
pub mod iperf;
mod measured;
pub mod observe;
pub mod ping;
pub mod protocol;
pub mod replay;
pub mod rfc2544;
mod run;
pub mod speed;
pub mod stack;
pub mod streams;
mod task;
#[cfg(test)]
mod tests;
pub mod udp;

pub use client::{Agent, Remote};
pub use ends::Ends;
pub(crate) use measured::may_be_loaded;
pub use measured::{Account, Measured};
pub(crate) use run::LOOKS;
pub use run::{MOST_FLOWS, NEW_FLOW_PORTS, new_flow_ports, ports, run};

use serde::{Deserialize, Serialize};

/// Traffic from one host to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Its name in results; unique in the scenario.
    pub name: String,
    /// The sending or requesting host.
    pub from: String,
    /// The host that receives, or answers.
    pub to: String,
    /// The traffic.
    #[serde(flatten)]
    pub test: Test,
}

/// The kind of traffic, which decides the metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "test", rename_all = "snake_case", deny_unknown_fields)]
pub enum Test {
    /// A datagram makes a round trip, with both timestamps on the requesting host. Metrics `rtt`
    /// (mean over the exchanges, µs), `one_way` (half of that), `deviation` (the round trips'
    /// standard deviation), `median`, `p99`,
    /// `jitter` (mean difference between an exchange and the one before), all in µs, `exchanges`
    /// (answered), `loss` (share of the sent that was not answered in a second, 0 to 1);
    /// distributions `rtt`, `jitter`, and with an interval `pacing` (by how much exchanges began
    /// late, µs).
    Rtt {
        /// UDP payload in bytes.
        payload: u32,
        /// How many; none: as many as the run's time allows.
        exchanges: Option<u32>,
        /// Between the beginnings of two exchanges, µs; 0: the next begins when the last has ended.
        #[serde(default)]
        interval: u64,
        /// Whether each exchange comes from a port of its own, and so is a new flow.
        #[serde(default)]
        new: bool,
        /// Whether the datagrams are of IPv6.
        #[serde(default)]
        ip6: bool,
    },
    /// UDP at a constant bit rate, each datagram with its number and its time; with a small
    /// random offset, the same in every run, so that senders of one rate do not keep step.
    /// Metrics `rate` (received, bit/s of UDP payload), `of_asked` (the same, as a share of the
    /// rate asked for), `offered` (attempted rate, bit/s), `share` (received/sent), `loss` (share
    /// of the sent that was not received, 0 to 1), `jitter` (RFC 3550 section 6.4.1, the mean of
    /// the estimate over the arrivals, µs), `jitter_last` (the estimate at the end, as `iperf`
    /// prints it), `silence` (longest time without a datagram, ms), `reordered`, `duplicates`
    /// (datagrams); distributions `jitter` (by how much the spacing of two datagrams changed on
    /// the way, µs), `pacing` (by how much datagrams were sent late, µs).
    Cbr {
        /// UDP payload in bytes.
        payload: u32,
        /// In bit/s of UDP payload.
        rate: u64,
        /// The receiver's socket buffer in bytes; none: the system's.
        buffer: Option<u32>,
        /// Whether the sender stays on the first processor. Of one that moves, the kernel has
        /// datagrams in the queues of both processors, where they overtake each other.
        #[serde(default)]
        pinned: bool,
        /// Datagrams of three lengths instead of `payload`, seven short, four medium and one long
        /// (IMIX): frames of 66, 594 and 1518 bytes with their FCS.
        #[serde(default)]
        imix: bool,
    },
    /// netperf's TCP_STREAM. Metrics `throughput` (bit/s received, mean of a stream), `total` (of
    /// all streams), `transfer` (bytes received, mean of a stream), `lost` (streams; the other
    /// figures are of those that are not), `retransmissions` (segments, of all streams). A stream
    /// is lost when its control or data connection cannot be made or breaks; the reason is in the
    /// sample's remarks.
    TcpStream(Streams),
    /// netperf's UDP_STREAM: as fast as it goes. Metrics as TCP_STREAM without `retransmissions`,
    /// and `sent` (bit/s, mean of a stream), `loss` (share of the sent that was not received, 0 to
    /// 1).
    UdpStream(Streams),
    /// netperf's TCP_RR. Metrics `rate` (transactions/s, mean of a stream), `latency` (1/rate, µs),
    /// `lost` (streams), `retransmissions`; distribution `latency` (of each transaction, µs).
    TcpRr(Streams),
    /// netperf's TCP_CRR: a connection for each transaction. Metrics as TCP_RR.
    TcpCrr(Streams),
    /// netperf's UDP_RR: a stream that loses a datagram waits until the end. Metrics as TCP_RR,
    /// with `stalled` (streams that did) instead of `retransmissions`.
    UdpRr(Streams),
    /// Datagrams, each from a port that was not used before. Metrics `rate` (new flows received/s),
    /// `offered` (tried to send/s), `share` (received/sent), `loss`.
    NewFlows {
        /// New flows a second; none: as fast as it goes.
        rate: Option<u64>,
        /// UDP payload in bytes.
        payload: u32,
    },
    /// Datagrams as fast as they go: the sender's kernel cuts them from longer messages, and the
    /// receiver's kernel drops them, so that neither program is the limit. Metrics `rate`
    /// (arrived/s), `offered` (sent/s), `share` (arrived/sent), `loss`.
    Flood {
        /// UDP payload in bytes, 1 to 1472; default: that of the shortest Ethernet frame.
        #[serde(default = "shortest")]
        payload: u16,
        /// Datagrams a second; none: as many as possible.
        rate: Option<u64>,
        /// Instead of a rate: this share of the highest one, which is measured just before.
        of_most: Option<f64>,
    },
}

impl Test {
    /// Whether its result is the time that an exchange takes.
    pub(crate) fn is_latency(&self) -> bool {
        matches!(
            self,
            Test::Rtt { .. } | Test::TcpRr(_) | Test::TcpCrr(_) | Test::UdpRr(_)
        )
    }

    /// The metric of what arrives a second, and its factor to bytes, or to datagrams where these
    /// are counted; none of an exchange.
    pub(crate) fn arrives(&self) -> Option<(&'static str, f64)> {
        match self {
            Test::TcpStream(_) | Test::UdpStream(_) => Some(("total", 1.0 / 8.0)),
            Test::Cbr { .. } => Some(("rate", 1.0 / 8.0)),
            Test::Flood { .. } | Test::NewFlows { .. } => Some(("rate", 1.0)),
            Test::Rtt { .. } | Test::TcpRr(_) | Test::TcpCrr(_) | Test::UdpRr(_) => None,
        }
    }

    /// Of one of netperf's tests: which, and its options.
    pub(crate) fn streams(&self) -> Option<(streams::Kind, &Streams)> {
        use streams::Kind;
        match self {
            Test::TcpStream(streams) => Some((Kind::TcpStream, streams)),
            Test::UdpStream(streams) => Some((Kind::UdpStream, streams)),
            Test::TcpRr(streams) => Some((Kind::TcpRr, streams)),
            Test::TcpCrr(streams) => Some((Kind::TcpCrr, streams)),
            Test::UdpRr(streams) => Some((Kind::UdpRr, streams)),
            Test::Rtt { .. } | Test::Cbr { .. } | Test::NewFlows { .. } | Test::Flood { .. } => None,
        }
    }
}

/// Options of the netperf tests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    /// How many at a time; each with a control connection of its own across the same ports.
    #[serde(default = "one")]
    pub streams: u32,
    /// Bytes of a message (request and response for the RR tests); none: the socket buffer's size
    /// (1 for the RR tests).
    pub message: Option<u32>,
    /// Bytes of the send and receive socket buffers at both ends; none: the system's (autotuned).
    pub buffer: Option<u32>,
    /// TCP congestion control; none: the host's.
    pub congestion: Option<String>,
}

fn one() -> u32 {
    1
}

/// A frame of 64 bytes has 46 between Ethernet's header and the FCS, 28 of them IP's and UDP's
/// headers.
fn shortest() -> u16 {
    18
}
