//! The client's side of streams: threads, control connections and results.

use super::control::{Arranged, Finished, Got, Line, Wanted};
use super::server::set_congestion;
use super::{Kind, Stream, StreamClient, Streamed, kinds};
use crate::traffic::clock::nanos;
use crate::traffic::histogram::Durations;
use crate::traffic::protocol::Outcome;
use crate::traffic::task::Control;
use crate::traffic::udp::{MOST_PAYLOAD, set_buffers};
use anyhow::{Context, Result, bail};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The most streams of a task.
const MOST_STREAMS: u32 = 1000;

/// The longest message over TCP, in bytes.
const LONGEST: u32 = 1 << 24;

impl StreamClient {
    pub(crate) fn run(&self, control: &Control) -> Result<Outcome> {
        let message = self.check()?;
        control.ready(Vec::new());
        if !control.await_go() {
            return Ok(Outcome::Streamed(Streamed::default()));
        }
        let (streams, latencies): (Vec<Stream>, Vec<Durations>) = std::thread::scope(|scope| {
            let started: Vec<_> = (0..self.streams)
                .map(|number| {
                    let one = One {
                        client: self,
                        control,
                        message: message as usize,
                    };
                    let thread = std::thread::Builder::new()
                        .name(format!("stream {number}"))
                        .stack_size(1 << 18);
                    thread.spawn_scoped(scope, move || one.run())
                })
                .collect();
            let ended = started.into_iter().map(|thread| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|_| lost("its thread failed".to_owned())),
                Err(error) => lost(format!("no thread: {error}")),
            });
            ended.unzip()
        });
        let mut latency = Durations::new();
        for of_stream in &latencies {
            latency.add(of_stream);
        }
        Ok(Outcome::Streamed(Streamed {
            streams,
            latency: latency.distribution(),
            message,
        }))
    }

    /// Refuses impossible requests. Returns the message size.
    fn check(&self) -> Result<u32> {
        if !(1..=MOST_STREAMS).contains(&self.streams) {
            bail!("{} streams: 1 to {MOST_STREAMS}", self.streams);
        }
        if !self.patience.is_finite() || self.patience < 0.001 {
            bail!("patience {}: at least 0.001 s", self.patience);
        }
        let datagrams = matches!(self.kind, Kind::UdpStream | Kind::UdpRr);
        let message = match (self.message, self.kind) {
            (Some(message), _) => message,
            (None, Kind::TcpRr | Kind::TcpCrr | Kind::UdpRr) => 1,
            (None, Kind::TcpStream) => buffer_size(&self.tcp()?)?,
            (None, Kind::UdpStream) => buffer_size(&self.udp()?)?.min(MOST_PAYLOAD),
        };
        let most = match self.kind {
            Kind::TcpStream => LONGEST,
            _ => MOST_PAYLOAD,
        };
        if !(1..=most).contains(&message) {
            bail!(
                "message {message}: 1 to {most} bytes{}",
                if datagrams { " in a datagram" } else { "" }
            );
        }
        // Before any stream is lost for it.
        set_congestion(&self.tcp()?, self.congestion.as_deref())?;
        Ok(message)
    }

    fn tcp(&self) -> Result<OwnedFd> {
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).context("socket")?;
        set_buffers(&socket, self.buffer, self.buffer)?;
        Ok(socket)
    }

    fn udp(&self) -> Result<OwnedFd> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("bind UDP")?;
        set_buffers(&socket, self.buffer, self.buffer)?;
        Ok(socket.into())
    }
}

fn buffer_size(socket: &OwnedFd) -> Result<u32> {
    Ok(u32::try_from(sockopt::socket_send_buffer_size(socket)?).unwrap_or(u32::MAX))
}

fn lost(reason: String) -> (Stream, Durations) {
    let stream = Stream {
        lost: Some(reason),
        ..Stream::default()
    };
    (stream, Durations::new())
}

/// One stream.
pub(super) struct One<'a> {
    pub(super) client: &'a StreamClient,
    pub(super) control: &'a Control,
    /// Bytes of a message.
    pub(super) message: usize,
}

impl One<'_> {
    fn run(&self) -> (Stream, Durations) {
        let (mut stream, mut latency) = (Stream::default(), Durations::new());
        if let Err(error) = self.through(&mut stream, &mut latency) {
            stream.lost = Some(format!("{error:#}"));
        }
        (stream, latency)
    }

    fn through(&self, stream: &mut Stream, latency: &mut Durations) -> Result<()> {
        let patience = self.patience();
        let client = self.client;
        let control = TcpStream::connect_timeout(&client.to.into(), patience);
        let mut line = Line::new(control.context("the control connection cannot be made")?)?;
        line.send(
            &Wanted {
                kind: client.kind,
                buffer: client.buffer,
                congestion: client.congestion.clone(),
                message: Some(self.message as u32),
                warmup: nanos(client.warmup),
            },
            patience,
        )?;
        let port = match line.receive(patience)? {
            Arranged::At { port, number } => {
                stream.number = Some(number);
                port
            }
            Arranged::Refused(reason) => bail!("the server refused: {reason}"),
        };
        let to = SocketAddrV4::new(*client.to.ip(), port);
        match client.kind {
            Kind::TcpStream => kinds::tcp_stream(self, to, stream)?,
            Kind::UdpStream => kinds::udp_stream(self, to, stream)?,
            Kind::TcpRr => kinds::tcp_rr(self, to, stream, latency)?,
            Kind::TcpCrr => kinds::tcp_crr(self, to, stream, latency)?,
            Kind::UdpRr => kinds::udp_rr(self, to, stream, latency)?,
        }
        line.send(&Finished {}, patience)?;
        let got: Got = line.receive(patience)?;
        stream.received = got.bytes;
        if client.kind == Kind::UdpStream {
            stream.datagrams_received = got.messages;
            // Queued packets arrive after the last one was sent.
            stream.seconds = stream.seconds.max(got.nanos as f64 / 1e9);
        }
        if client.kind == Kind::UdpRr {
            stream.datagrams_answered = got.answers;
            stream.received = stream.transactions * self.message as u64;
        }
        Ok(())
    }

    pub(super) fn patience(&self) -> Duration {
        Duration::try_from_secs_f64(self.client.patience).unwrap_or(Duration::MAX)
    }

    /// A data connection.
    pub(super) fn connect(&self, to: SocketAddrV4) -> Result<TcpStream> {
        let socket = socket2::Socket::from(self.client.tcp()?);
        set_congestion_of(&socket, self.client.congestion.as_deref())?;
        socket
            .connect_timeout(&to.into(), self.patience())
            .context("the data connection cannot be made")?;
        Ok(socket.into())
    }

    /// A data socket.
    pub(super) fn datagrams(&self, to: SocketAddrV4) -> Result<UdpSocket> {
        let socket = UdpSocket::from(self.client.udp()?);
        socket.connect(to).context("connect")?;
        Ok(socket)
    }
}

fn set_congestion_of(socket: &socket2::Socket, congestion: Option<&str>) -> Result<()> {
    let Some(name) = congestion else { return Ok(()) };
    sockopt::set_tcp_congestion(socket, name).with_context(|| format!("congestion control {name}"))
}
