//! The control connection of a stream: lines of JSON, each within a time.

use super::Kind;
use crate::traffic::clock::now;
use crate::traffic::task::LOOK;
use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

/// The longest line, in bytes.
const LONGEST: usize = 4096;

/// A client's request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    pub(super) kind: Kind,
    /// Of the socket at the server.
    pub(super) buffer: Option<u32>,
    pub(super) congestion: Option<String>,
    /// Bytes of request and response.
    pub(super) message: Option<u32>,
    /// Nanoseconds from the first byte of a TCP_STREAM on whose bytes do not count.
    #[serde(default)]
    pub(super) warmup: u64,
}

/// The server's data address and its number of the stream, or its error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Arranged {
    At { port: u16, number: u32 },
    Refused(String),
}

/// The client has sent all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Finished {}

/// The server's results of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Got {
    /// Messages: datagrams or requests.
    pub(super) messages: u64,
    pub(super) bytes: u64,
    /// Responses sent.
    pub(super) answers: u64,
    /// From the first to the last of them.
    pub(super) nanos: u64,
}

/// A control connection at either end.
pub(super) struct Line {
    stream: TcpStream,
    /// Received bytes not yet read.
    rest: Vec<u8>,
}

impl Line {
    pub(super) fn new(stream: TcpStream) -> Result<Line> {
        stream.set_nodelay(true).context("TCP_NODELAY")?;
        Ok(Line {
            stream,
            rest: Vec::new(),
        })
    }

    pub(super) fn send(&mut self, what: &impl Serialize, patience: Duration) -> Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        self.stream.set_write_timeout(Some(patience))?;
        self.stream.write_all(&line).context("the control connection broke")
    }

    /// The peer's next line, if it arrives in time.
    pub(super) fn receive<T: DeserializeOwned>(&mut self, patience: Duration) -> Result<T> {
        self.receive_while(patience, &|| true)?.with_context(|| {
            format!(
                "nothing came over the control connection for {:.1} s",
                patience.as_secs_f64()
            )
        })
    }

    /// The same; none when the time is over or `wanted` says no.
    pub(super) fn receive_while<T: DeserializeOwned>(
        &mut self,
        patience: Duration,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Option<T>> {
        let end = now().saturating_add(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX));
        loop {
            if let Some(what) = self.take()? {
                return Ok(Some(what));
            }
            let left = Duration::from_nanos(end.saturating_sub(now()));
            if left.is_zero() || !wanted() {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left.min(LOOK)))?;
            self.read(RecvFlags::empty())?;
        }
    }

    /// The peer's next line, if it has arrived.
    pub(super) fn poll<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        if let Some(what) = self.take()? {
            return Ok(Some(what));
        }
        self.read(RecvFlags::DONTWAIT)?;
        self.take()
    }

    fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let Some(at) = self.rest.iter().position(|&b| b == b'\n') else {
            if self.rest.len() > LONGEST {
                bail!("the control connection carries something else");
            }
            return Ok(None);
        };
        let line: Vec<u8> = self.rest.drain(..=at).collect();
        let what = serde_json::from_slice(&line).context("the control connection carries something else")?;
        Ok(Some(what))
    }

    fn read(&mut self, flags: RecvFlags) -> Result<()> {
        let mut buffer = [0; 512];
        match rustix::net::recv(&self.stream, &mut buffer[..], flags) {
            Ok((0, _)) => bail!("the control connection was closed"),
            Ok((len, _)) => self.rest.extend_from_slice(&buffer[..len]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error).context("the control connection broke"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Line, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Line::new(listener.accept().unwrap().0).unwrap(), there)
    }

    #[test]
    fn lines_are_taken_one_by_one_however_they_arrive() {
        let (mut line, mut there) = pair();
        assert!(line.poll::<Finished>().unwrap().is_none());
        there.write_all(b"{}\n{}\n{\"at\":{\"port\":7,").unwrap();
        let patience = Duration::from_secs(20);
        line.receive::<Finished>(patience).unwrap();
        line.receive::<Finished>(patience).unwrap();
        there.write_all(b"\"number\":2}}\n").unwrap();
        let arranged = Arranged::At { port: 7, number: 2 };
        assert_eq!(line.receive::<Arranged>(patience).unwrap(), arranged);
        drop(there);
        let error = line.receive::<Finished>(patience).unwrap_err();
        assert!(error.to_string().contains("closed"), "{error}");
    }

    #[test]
    fn a_stranger_on_the_control_connection_is_an_error() {
        for hostile in [&b"GET / HTTP/1.1\n"[..], &[b'x'; 9000], b"\xff\n"] {
            let (mut line, mut there) = pair();
            there.write_all(hostile).unwrap();
            let error = line.receive::<Wanted>(Duration::from_secs(20)).unwrap_err();
            assert!(error.to_string().contains("something else"), "{error}");
        }
    }

    #[test]
    fn patience_ends() {
        let (mut line, _there) = pair();
        let error = line.receive::<Finished>(Duration::from_millis(5)).unwrap_err();
        assert!(error.to_string().contains("nothing came"), "{error}");
    }
}
