//! The five tests of netperf, by many streams at a time.
//!
//! As in netperf, each stream has its own control connection across the same ports as its data,
//! which sets up the stream and fetches its result. A stream is lost when its control connection or
//! its data connection cannot be made or breaks, or when the result does not arrive before the
//! client's timeout; its reason is kept.
//!
//! Differences from netperf: all streams of a test are threads of one process at each end; the
//! server allocates no message buffer without need; in TCP_CRR the server closes first, so that the
//! client does not run out of ports. In UDP_RR a request or a response that is lost stalls its
//! stream until the end of the test, as in netperf: nothing is sent again.

mod client;
mod control;
mod kinds;
mod server;
#[cfg(test)]
mod tests;

use crate::results::Distribution;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::net::SocketAddrV4;

/// Serves any number of streams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamServer {
    /// The port for control connections; 0: any.
    #[serde(default)]
    pub port: u16,
}

/// Which test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Bytes over a connection, as fast as they go.
    TcpStream,
    /// Datagrams, as fast as they go.
    UdpStream,
    /// A request and a response after the other over a connection.
    TcpRr,
    /// A connection for each request and response.
    TcpCrr,
    /// A request and a response after the other in datagrams.
    UdpRr,
}

/// Runs streams to a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamClient {
    /// The server's control port.
    pub to: SocketAddrV4,
    /// Which test.
    pub kind: Kind,
    /// How many at a time, 1 to 1000.
    pub streams: u32,
    /// Bytes of a message, of request and response for the RR tests; none: the size of the send
    /// buffer, 1 for the RR tests. At most 65507 in datagrams.
    pub message: Option<u32>,
    /// Bytes of the send and receive buffers at both ends; none: the system's.
    pub buffer: Option<u32>,
    /// TCP congestion control at both ends; none: the system's.
    pub congestion: Option<String>,
    /// Seconds for each stream, from when its data connection is there.
    pub seconds: f64,
    /// Seconds before these on the same connection, in which TCP_STREAM sends and nothing counts:
    /// its slow start is over then. Other tests have no such time.
    #[serde(default)]
    pub warmup: f64,
    /// Seconds that a stream waits for a connection, and for its result.
    pub patience: f64,
}

/// What a server has of its streams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServedStreams {
    /// Datagrams or requests that arrived, by the numbers of their streams; of TCP_STREAM, how
    /// often data was read. The client of a lost stream does not hear of them.
    pub messages: Vec<u64>,
}

/// The results of streams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streamed {
    /// Each of them.
    pub streams: Vec<Stream>,
    /// Of the RR tests: time of a transaction, µs.
    pub latency: Option<Distribution>,
    /// Bytes of a message.
    pub message: u32,
}

impl Streamed {
    /// Of lost streams of UDP_STREAM, the datagrams that arrived, as the server says.
    ///
    /// # Errors
    /// The server does not know a stream that it has numbered.
    pub(crate) fn take_arrived(&mut self, served: &ServedStreams) -> Result<()> {
        for stream in self.streams.iter_mut().filter(|stream| stream.lost.is_some()) {
            if let Some(number) = stream.number {
                let arrived = served.messages.get(number as usize);
                stream.datagrams_received = *arrived.context("a stream that its server does not know")?;
            }
        }
        Ok(())
    }
}

/// The result of one stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Why it is lost; none if it is not. The other figures of a lost stream are partial.
    pub lost: Option<String>,
    /// The server's number of it, if it has told.
    pub number: Option<u32>,
    /// Seconds of its data: until all was acknowledged in TCP_STREAM.
    pub seconds: f64,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes that arrived at the server, as it says.
    pub received: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams that arrived: at the server, and here for UDP_RR.
    pub datagrams_received: u64,
    /// Datagrams that the server sent, for UDP_RR.
    pub datagrams_answered: u64,
    /// Datagrams that were refused, as a buffer was full.
    pub full: u64,
    /// Transactions completed.
    pub transactions: u64,
    /// For UDP_RR: its last request was not answered before the end.
    pub stalled: bool,
    /// TCP segments sent again by this side.
    pub retransmissions: u64,
}
