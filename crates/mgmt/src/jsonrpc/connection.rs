//! A JSON-RPC session over a stream.

use std::collections::VecDeque;
use std::io;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{FrameError, Framer, Limits, Message, MessageError};
use crate::stream::{ReadHalf, Stream, WriteHalf};

/// A session: what is sent and what is received, in one place. Servers that do both at once
/// [`split`](Connection::into_split) it.
#[derive(Debug)]
pub struct Connection {
    receiver: Receiver,
    sender: Sender,
    /// Messages that arrived while a [`Connection::call`] waited for its reply.
    early: VecDeque<Message>,
    next_id: u64,
}

/// Why nothing more can be received.
#[derive(Debug, thiserror::Error)]
pub enum RecvError {
    /// The stream failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer closed the stream in the middle of a message.
    #[error("connection closed in the middle of a message")]
    Truncated,
    /// The peer's bytes are not JSON values.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer's JSON is not JSON-RPC.
    #[error(transparent)]
    Message(#[from] MessageError),
}

/// Why a [`Connection::call`] has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The stream failed or the peer broke the protocol.
    #[error(transparent)]
    Recv(#[from] RecvError),
    /// The peer closed the connection before it replied.
    #[error("End of file")]
    Closed,
    /// The peer replied with an error.
    #[error("{0}")]
    Remote(Value),
}

impl From<io::Error> for CallError {
    fn from(e: io::Error) -> CallError {
        CallError::Recv(e.into())
    }
}

impl Connection {
    /// A session over `stream` with the default limits.
    pub fn new(stream: Stream) -> Connection {
        Connection::with_limits(stream, Limits::default())
    }

    /// A session over `stream` that refuses what exceeds `limits`.
    pub fn with_limits(stream: Stream, limits: Limits) -> Connection {
        let (reader, writer) = stream.into_split();
        Connection {
            receiver: Receiver {
                reader,
                framer: Framer::with_limits(limits),
            },
            sender: Sender { writer },
            early: VecDeque::new(),
            next_id: 0,
        }
    }

    /// Sends one message.
    ///
    /// # Errors
    /// The stream's.
    pub async fn send(&mut self, message: Message) -> io::Result<()> {
        self.sender.send(message).await
    }

    /// The next message, `None` at the end of the stream. Cancelling it loses nothing.
    ///
    /// # Errors
    /// [`RecvError`]; the session is over.
    pub async fn recv(&mut self) -> Result<Option<Message>, RecvError> {
        if let Some(message) = self.early.pop_front() {
            return Ok(Some(message));
        }
        self.receiver.recv().await
    }

    /// Sends a request and waits for its result, answering the peer's `echo` meanwhile; other
    /// messages that come first stay for [`Connection::recv`].
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn call(&mut self, method: &str, params: Vec<Value>) -> Result<Value, CallError> {
        let wanted = self.request(method, params).await?;
        loop {
            let message = self.receiver.recv().await?.ok_or(CallError::Closed)?;
            if let Some(reply) = message.echo_reply() {
                self.send(reply).await?;
                continue;
            }
            match message {
                Message::Reply { result, id } if id == wanted => return Ok(result),
                Message::Error { error, id } if id == wanted => {
                    return Err(CallError::Remote(error));
                }
                other => self.early.push_back(other),
            }
        }
    }

    /// Sends a request and returns the `id` its reply will have.
    ///
    /// # Errors
    /// The stream's.
    pub async fn request(&mut self, method: &str, params: Vec<Value>) -> io::Result<Value> {
        let id = Value::from(self.next_id);
        self.next_id += 1;
        self.send(Message::request(method, params, id.clone())).await?;
        Ok(id)
    }

    /// The two directions apart. Messages set aside by [`Connection::call`] are dropped.
    pub fn into_split(self) -> (Receiver, Sender) {
        (self.receiver, self.sender)
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct Receiver {
    reader: ReadHalf,
    framer: Framer,
}

impl Receiver {
    /// The next message, `None` at the end of the stream. Cancelling it loses nothing.
    ///
    /// # Errors
    /// [`RecvError`]; the session is over.
    pub async fn recv(&mut self) -> Result<Option<Message>, RecvError> {
        loop {
            if let Some(message) = self.try_recv()? {
                return Ok(Some(message));
            }
            if !self.fill().await? {
                return match self.framer.pending() {
                    0 => Ok(None),
                    _ => Err(RecvError::Truncated),
                };
            }
        }
    }

    /// A message that has arrived whole already.
    ///
    /// # Errors
    /// As [`Receiver::recv`].
    pub fn try_recv(&mut self) -> Result<Option<Message>, RecvError> {
        match self.framer.next()? {
            Some(frame) => Ok(Some(Message::parse(frame)?)),
            None => Ok(None),
        }
    }

    /// Reads once; false at the end of the stream.
    async fn fill(&mut self) -> io::Result<bool> {
        let buffer = self.framer.buffer();
        buffer.reserve(16 << 10);
        Ok(self.reader.read_buf(buffer).await? > 0)
    }
}

/// The sending half.
#[derive(Debug)]
pub struct Sender {
    writer: WriteHalf,
}

impl Sender {
    /// Sends one message.
    ///
    /// # Errors
    /// The stream's.
    pub async fn send(&mut self, message: Message) -> io::Result<()> {
        self.send_bytes(&message.to_bytes()).await
    }

    /// Sends messages that are serialized already.
    ///
    /// # Errors
    /// The stream's.
    async fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes).await?;
        self.writer.flush().await
    }
}
