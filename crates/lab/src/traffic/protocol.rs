//! The protocol between the lab and an agent: requests and answers, a line of JSON each.
//!
//! A task begins with [`Ask::Start`]. When its sockets are there the agent answers [`Said::Ready`].
//! A server (echo, receive, netperf's, capture) then works until [`Ask::Stop`]; any other waits for
//! [`Ask::Go`], so that many can start at the same time, and ends by itself or, earlier, at
//! [`Ask::Stop`]. Its last answer is [`Said::Done`] or [`Said::Error`]. The end of the agent's
//! input ends all its tasks.

use super::capture::{Capture, Captured};
use super::iperf::{IperfClient, IperfServer, Witnessed};
use super::ping::{Ping, Pinged};
use super::replay::{Replay, Replayed};
use super::speed::Speed;
use super::stack::{Count, Stack};
use super::streams::{ServedStreams, StreamClient, StreamServer, Streamed};
use super::udp::{Echo, Flood, Flooded, Probe, Probed, Receive, Received, Send, Sent, Sink, Sunk};
use serde::{Deserialize, Serialize};

/// The longest line that an agent reads, in bytes.
pub const LONGEST_LINE: usize = 1 << 20;

/// A line to the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Which task, by a number that the lab chooses; not one that is running.
    pub id: u64,
    /// The content.
    pub ask: Ask,
}

/// A request to an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Prepare a task, and begin it if it is a server.
    Start(Task),
    /// Start the prepared task.
    Go,
    /// Stop it and return the results.
    Stop,
}

/// Work of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Sends datagrams back.
    Echo(Echo),
    /// Measures round trips.
    Probe(Probe),
    /// Sends datagrams by a schedule.
    Send(Send),
    /// Counts datagrams.
    Receive(Receive),
    /// Sends datagrams as fast as they go.
    Flood(Flood),
    /// Counts datagrams, and leaves them to the kernel to drop.
    Sink(Sink),
    /// Counts what arrives at a device, by kind of frame.
    Capture(Capture),
    /// Serves netperf's tests.
    StreamServer(StreamServer),
    /// Runs one of netperf's tests.
    StreamClient(StreamClient),
    /// Pings hosts.
    Ping(Ping),
    /// Serves `iperf3`.
    IperfServer(IperfServer),
    /// Runs `iperf3`.
    IperfClient(IperfClient),
    /// Reads the counters of the host's stack.
    Count(Count),
    /// Sends the frames of a capture file.
    Replay(Replay),
    /// Measures the speed of the host's processor.
    Speed(Speed),
}

/// A line from the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The task; none if the request was malformed.
    pub id: Option<u64>,
    /// The content.
    pub said: Said,
}

/// An agent's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// The task is prepared.
    Ready(Ready),
    /// The task has ended.
    Done(Box<Outcome>),
    /// The task failed or does not exist: the reason.
    Error(String),
}

/// Information about a prepared task for others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// Its ports, in the order that the task named their uses in.
    pub ports: Vec<u16>,
}

/// The results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Nothing: it only served.
    Served,
    /// Of [`Task::Probe`].
    Probed(Probed),
    /// Of [`Task::Send`].
    Sent(Sent),
    /// Of [`Task::Receive`].
    Received(Received),
    /// Of [`Task::Flood`].
    Flooded(Flooded),
    /// Of [`Task::Sink`].
    Sunk(Sunk),
    /// Of [`Task::Capture`].
    Captured(Captured),
    /// Of [`Task::StreamServer`].
    ServedStreams(ServedStreams),
    /// Of [`Task::StreamClient`].
    Streamed(Streamed),
    /// Of [`Task::Ping`].
    Pinged(Pinged),
    /// Of [`Task::IperfClient`].
    Witnessed(Witnessed),
    /// Of [`Task::Count`].
    Counted(Stack),
    /// Of [`Task::Replay`].
    Replayed(Replayed),
    /// Of [`Task::Speed`]: steps of its loop a second.
    Speed(f64),
}
