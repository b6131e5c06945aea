//! JSON-RPC 1.0 over a byte stream, as RFC 7047 §4 and the control sockets use it: messages are
//! JSON objects that follow one another without a separator.
//!
//! [`Framer`] finds the end of each message without parsing it, [`Message`] is a parsed message,
//! and [`Connection`] reads and writes messages on a [`Stream`](crate::stream::Stream).

mod connection;
mod framer;
mod message;
mod skim;

pub use connection::{CallError, Connection, Receiver, RecvError, Sender};
pub use framer::{FrameError, Framer, Limits};
pub use message::{Message, MessageError};
