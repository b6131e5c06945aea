//! A connection to a switch: sends and receives messages, and collects refusals.

use anyhow::{Context, Result, bail};
use mgmt::vconn::{Stream, Vconn};
use openflow::model::{Body, FlowCommand, FlowMod, Message, Port, PortStats, StatsReply, StatsRequest};
use openflow::text::{Names, parse_flow};
use openflow::{Codec, ErrorBody, ErrorKind, OfError, Version};
use std::time::{Duration, Instant};

/// How long a switch may take to answer. The largest tables take it tens of seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// How much is written at once.
const CHUNK: usize = 1 << 16;

/// A connection to a switch.
pub struct Connection {
    vconn: Vconn,
    codec: Codec,
    out: Vec<u8>,
    xid: u32,
}

/// A refused request.
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
    /// Exchanges hellos.
    ///
    /// # Errors
    /// The switch does not greet, or does not speak OpenFlow 1.0.
    pub fn open(stream: impl Into<Stream>) -> Result<Connection> {
        let mut connection = Connection {
            vconn: Vconn::new(stream),
            codec: Codec::new(Version::V10),
            out: Vec::new(),
            xid: 1,
        };
        let ours = [Version::V10].into_iter().collect();
        let agreed = connection.vconn.agree("switch", connection.xid, ours);
        agreed.context("greeting the switch")?;
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

    /// Sends the buffered messages.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn flush(&mut self) -> Result<()> {
        self.vconn.send(&self.out).context("writing to the switch")?;
        self.out.clear();
        Ok(())
    }

    /// The next message other than echo requests, which are answered.
    ///
    /// # Errors
    /// No message, a broken connection, or a message that is not OpenFlow 1.0.
    pub fn receive(&mut self) -> Result<Message> {
        let message = self.receive_until(Instant::now() + PATIENCE)?;
        message.context("the switch does not answer")
    }

    /// The next message that comes before `until`; none if there is none.
    ///
    /// # Errors
    /// The connection is broken, or what comes is not OpenFlow 1.0.
    pub(crate) fn receive_until(&mut self, until: Instant) -> Result<Option<Message>> {
        let received = self.vconn.recv_before(Some(until)).context("reading from the switch")?;
        match received.map(|bytes| self.codec.decode(bytes)) {
            Some(Err(error)) => bail!("the switch sends what cannot be read: {}", error.name()),
            Some(Ok(message)) => Ok(Some(message)),
            None => Ok(None),
        }
    }

    /// Has a rule added, changed or deleted, as `ovs-ofctl` writes it.
    ///
    /// # Errors
    /// The text is wrong, or the connection broken.
    pub fn rule(&mut self, command: FlowCommand, text: &str) -> Result<u32> {
        let rule: FlowMod = parse_flow(command, text, &Names::default()).with_context(|| text.to_owned())?;
        self.send(Body::FlowMod(Box::new(rule)))
    }

    /// Waits until all requests are done. Returns the refused ones.
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

    /// Requests statistics. Returns the time until the last part of the answer.
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
}
