//! A connection to a switch: messages out, messages in, and what the switch refused.

use anyhow::{Context, Result, bail};
use openflow::model::{Body, FlowCommand, FlowMod, Message, Port, PortStats, StatsReply, StatsRequest};
use openflow::text::{Names, parse_flow};
use openflow::{Codec, ErrorBody, ErrorKind, Framer, Hello, OfError, Version};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const VERSION: Version = Version::V10;

/// How long a switch may take to answer. The largest tables take it tens of seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// How much is written at once.
const CHUNK: usize = 1 << 16;

/// What a connection goes over.
pub trait Stream: Read + Write + Send {
    /// How long to wait for something to read; none: for ever.
    ///
    /// # Errors
    /// The system's.
    fn set_patience(&self, patience: Option<Duration>) -> std::io::Result<()>;
}

impl Stream for UnixStream {
    fn set_patience(&self, patience: Option<Duration>) -> std::io::Result<()> {
        self.set_read_timeout(patience)
    }
}

impl Stream for TcpStream {
    fn set_patience(&self, patience: Option<Duration>) -> std::io::Result<()> {
        self.set_read_timeout(patience)
    }
}

/// A connection to a switch.
pub struct Connection {
    stream: Box<dyn Stream>,
    codec: Codec,
    framer: Framer,
    out: Vec<u8>,
    xid: u32,
}

/// What a switch did not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The request.
    pub xid: u32,
    /// Why.
    pub reason: ErrorKind,
}

impl Refused {
    /// Its table has no room.
    pub fn is_full(self) -> bool {
        self.reason == ErrorKind::Known(OfError::FmfcTableFull)
    }
}

impl Connection {
    /// Greets, and waits for the switch's greeting.
    ///
    /// # Errors
    /// It says nothing, or does not take OpenFlow 1.0.
    pub fn open(stream: impl Stream + 'static) -> Result<Connection> {
        stream.set_patience(Some(PATIENCE))?;
        let mut connection = Connection {
            stream: Box::new(stream),
            codec: Codec::new(VERSION),
            framer: Framer::new(),
            out: Vec::new(),
            xid: 0,
        };
        let hello = Hello {
            version: VERSION.number(),
            bitmap: None,
        };
        connection.send(Body::Hello(hello))?;
        connection.flush()?;
        match connection.receive()?.body {
            Body::Hello(_) => {}
            other => bail!("the switch begins with {other:?} and no hello"),
        }
        connection.barrier()?;
        Ok(connection)
    }

    /// Takes a message to be sent; its number.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send(&mut self, body: Body) -> Result<u32> {
        self.xid += 1;
        let message = Message { xid: self.xid, body };
        self.codec.append(&mut self.out, &message);
        if self.out.len() > CHUNK {
            self.flush()?;
        }
        Ok(self.xid)
    }

    /// Sends what was taken.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn flush(&mut self) -> Result<()> {
        self.stream.write_all(&self.out).context("writing to the switch")?;
        self.out.clear();
        Ok(())
    }

    /// The next message that is no echo request; those are answered.
    ///
    /// # Errors
    /// Nothing comes, the connection is broken, or what comes is not OpenFlow 1.0.
    pub fn receive(&mut self) -> Result<Message> {
        loop {
            if let Some(message) = self.next()? {
                return Ok(message);
            }
            self.read()?;
        }
    }

    /// The next message that is here already.
    fn next(&mut self) -> Result<Option<Message>> {
        while let Some(bytes) = self.framer.next()? {
            // The switch may greet in a newer version.
            let version = bytes.first().copied().and_then(Version::from_number).unwrap_or(VERSION);
            let message = match Codec::new(version).decode(bytes) {
                Ok(message) => message,
                Err(error) => bail!("the switch sends what cannot be read: {}", error.name()),
            };
            if let Body::EchoRequest(data) = message.body {
                let reply = Message {
                    xid: message.xid,
                    body: Body::EchoReply(data),
                };
                self.codec.append(&mut self.out, &reply);
                self.flush()?;
                continue;
            }
            return Ok(Some(message));
        }
        Ok(None)
    }

    fn read(&mut self) -> Result<()> {
        let mut buffer = [0; CHUNK];
        match self.stream.read(&mut buffer).context("reading from the switch")? {
            0 => bail!("the switch has closed the connection"),
            n => self.framer.push(&buffer[..n]),
        }
        Ok(())
    }

    /// Has a rule added, changed or deleted, as `ovs-ofctl` writes it.
    ///
    /// # Errors
    /// The text is wrong, or the connection broken.
    pub fn rule(&mut self, command: FlowCommand, text: &str) -> Result<u32> {
        let rule: FlowMod = parse_flow(command, text, &Names::default()).with_context(|| text.to_owned())?;
        self.send(Body::FlowMod(Box::new(rule)))
    }

    /// Waits until all that was sent is done; what of it was refused.
    ///
    /// # Errors
    /// The connection is broken, or no answer comes.
    pub fn barrier(&mut self) -> Result<Vec<Refused>> {
        let mut refused = Vec::new();
        self.await_reply(Body::BarrierRequest, &mut refused, |body| {
            matches!(body, Body::BarrierReply)
        })?;
        Ok(refused)
    }

    /// Waits for the answer to an echo request.
    ///
    /// # Errors
    /// The connection is broken, or no answer comes.
    pub fn echo(&mut self) -> Result<Duration> {
        let request = Body::EchoRequest(b"oxvs".to_vec());
        self.await_reply(request, &mut Vec::new(), |body| matches!(body, Body::EchoReply(_)))
    }

    /// Asks for statistics; how long it is until the last part of the answer has come.
    ///
    /// # Errors
    /// The connection is broken, the switch refuses, or no answer comes.
    pub fn statistics(&mut self, request: StatsRequest) -> Result<Duration> {
        let request = Body::StatsRequest { more: false, request };
        let mut refused = Vec::new();
        let took = self.await_reply(request, &mut refused, |body| {
            matches!(body, Body::StatsReply { more: false, .. })
        })?;
        match refused.first() {
            Some(refused) => bail!("the switch refuses statistics: {:?}", refused.reason),
            None => Ok(took),
        }
    }

    /// The counters of all ports, and when they were read.
    ///
    /// # Errors
    /// The connection is broken, the switch refuses, or no answer comes.
    pub fn ports(&mut self) -> Result<(Instant, Vec<PortStats>)> {
        let request = StatsRequest::Port(Port::ANY);
        let body = Body::StatsRequest { more: false, request };
        let (mut ports, mut refused) = (Vec::new(), Vec::new());
        let began = Instant::now();
        let took = self.await_reply(body, &mut refused, |body| match body {
            Body::StatsReply {
                more,
                reply: StatsReply::Port(part),
            } => {
                ports.extend_from_slice(part);
                !more
            }
            _ => false,
        })?;
        match refused.first() {
            Some(refused) => bail!("the switch refuses statistics: {:?}", refused.reason),
            None => Ok((began + took, ports)),
        }
    }

    /// Sends a request and waits for the reply with its number that is the last one; an error with
    /// that number is an answer as well.
    fn await_reply(
        &mut self,
        request: Body,
        refused: &mut Vec<Refused>,
        mut is_last: impl FnMut(&Body) -> bool,
    ) -> Result<Duration> {
        let xid = self.send(request)?;
        let began = Instant::now();
        self.flush()?;
        loop {
            let message = self.receive()?;
            match message.body {
                Body::Error(ErrorBody { kind: reason, .. }) => {
                    refused.push(Refused {
                        xid: message.xid,
                        reason,
                    });
                    if message.xid == xid {
                        return Ok(began.elapsed());
                    }
                }
                body if message.xid == xid && is_last(&body) => return Ok(began.elapsed()),
                // Packets, removed rules and ports are for others.
                _ => {}
            }
        }
    }

    /// The next message that comes before `until`; none if there is none.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn receive_until(&mut self, until: Instant) -> Result<Option<Message>> {
        loop {
            if let Some(message) = self.next()? {
                return Ok(Some(message));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.set_patience(Some(left))?;
            let read = self.read();
            self.stream.set_patience(Some(PATIENCE))?;
            match read {
                Err(error) if !waits(&error) => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
    }
}

/// Nothing has come within the time set.
fn waits(error: &anyhow::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    matches!(kind, Some(WouldBlock | TimedOut | Interrupted))
}
