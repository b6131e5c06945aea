//! The data connection of each of the five tests.

use super::Stream;
use super::client::One;
use super::server::is_timeout;
use crate::traffic::clock::{MILLI, nanos, now, seconds};
use crate::traffic::histogram::Durations;
use crate::traffic::task::LOOK;
use anyhow::{Context, Result, bail};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpStream};
use std::time::Duration;

/// The times of a stream's data that counts.
struct Times<'a> {
    one: &'a One<'a>,
    begin: u64,
    end: u64,
}

impl<'a> Times<'a> {
    fn begin(one: &'a One<'a>) -> Times<'a> {
        let begin = now().saturating_add(nanos(one.client.warmup));
        Times {
            one,
            begin,
            end: begin.saturating_add(nanos(one.client.seconds)),
        }
    }

    fn over(&self) -> bool {
        now() >= self.end || self.one.control.stopped()
    }

    /// The final timeout of waits.
    fn patience_over(&self) -> bool {
        let patience = u64::try_from(self.one.patience().as_nanos()).unwrap_or(u64::MAX);
        now() >= self.end.saturating_add(patience) || self.one.control.stopped()
    }

    fn seconds(&self) -> f64 {
        seconds(now().saturating_sub(self.begin))
    }
}

pub(super) fn tcp_stream(one: &One<'_>, to: SocketAddrV4, result: &mut Stream) -> Result<()> {
    let mut stream = one.connect(to)?;
    stream.set_write_timeout(Some(LOOK))?;
    let message = vec![0; one.message];
    let times = Times::begin(one);
    let mut at = 0;
    while !times.over() {
        // Sends the rest of a partial message first; with room a message is one call.
        match stream.write(&message[at..]) {
            Ok(len) => {
                if now() >= times.begin {
                    result.sent += len as u64;
                }
                at = if at + len == message.len() { 0 } else { at + len };
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) => {
                result.seconds = times.seconds();
                result.retransmissions = retransmissions(&stream);
                return Err(error).context("the data connection broke");
            }
        }
    }
    stream.shutdown(Shutdown::Write).context("the data connection broke")?;
    stream.set_read_timeout(Some(LOOK))?;
    // The server closes when it has all.
    let closed = loop {
        match stream.read(&mut [0]) {
            Ok(_) => break Ok(()),
            Err(error) if is_timeout(&error) && !times.patience_over() => {}
            Err(error) if is_timeout(&error) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    result.seconds = times.seconds();
    result.retransmissions = retransmissions(&stream);
    closed.context("the data connection broke")
}

/// 0 if the kernel does not report them.
fn retransmissions(stream: &TcpStream) -> u64 {
    sys::tcp::info(stream).map_or(0, |info| u64::from(info.retransmissions))
}

pub(super) fn udp_stream(one: &One<'_>, to: SocketAddrV4, result: &mut Stream) -> Result<()> {
    let socket = one.datagrams(to)?;
    socket.set_write_timeout(Some(LOOK))?;
    let message = vec![0; one.message];
    let times = Times::begin(one);
    while !times.over() {
        match socket.send(&message) {
            Ok(len) => {
                result.sent += len as u64;
                result.datagrams_sent += 1;
            }
            // An ICMP error for an earlier datagram: no listener at the receiver.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error)
                if is_timeout(&error) || error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) =>
            {
                result.full += 1;
            }
            Err(error) => return Err(error).context("send"),
        }
    }
    result.seconds = times.seconds();
    Ok(())
}

pub(super) fn tcp_rr(one: &One<'_>, to: SocketAddrV4, result: &mut Stream, latency: &mut Durations) -> Result<()> {
    let mut stream = one.connect(to)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(one.patience()))?;
    let mut message = vec![0; one.message];
    let times = Times::begin(one);
    let mut done = Ok(());
    while !times.over() {
        let begin = now();
        done = stream.write_all(&message).context("the data connection broke");
        if done.is_err() {
            break;
        }
        match read_whole(&mut stream, &mut message, &|| !times.over()) {
            Ok(true) => {
                result.transactions += 1;
                latency.record(now() - begin);
            }
            // The time is over.
            Ok(false) => break,
            Err(error) => {
                done = Err(error);
                break;
            }
        }
    }
    result.seconds = times.seconds();
    result.retransmissions = retransmissions(&stream);
    // The peer knows the end of this direction already.
    drop(stream);
    done
}

pub(super) fn tcp_crr(one: &One<'_>, to: SocketAddrV4, result: &mut Stream, latency: &mut Durations) -> Result<()> {
    let mut message = vec![0; one.message];
    let times = Times::begin(one);
    while !times.over() {
        let begin = now();
        let mut stream = one.connect(to)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.write_all(&message).context("a data connection broke")?;
        if !read_whole(&mut stream, &mut message, &|| !times.over())? {
            break;
        }
        // The server closes first: the port is free again here, and waits there.
        while let Err(error) = stream.read(&mut [0]) {
            if !is_timeout(&error) {
                bail!("a data connection broke: {error}");
            }
            if times.over() {
                break;
            }
        }
        result.transactions += 1;
        result.retransmissions += retransmissions(&stream);
        latency.record(now() - begin);
    }
    result.seconds = times.seconds();
    Ok(())
}

/// Reads a whole response. Returns false if it did not arrive in time.
fn read_whole(stream: &mut TcpStream, buffer: &mut [u8], wanted: &dyn Fn() -> bool) -> Result<bool> {
    let mut have = 0;
    while have < buffer.len() {
        match stream.read(&mut buffer[have..]) {
            Ok(0) => bail!("the server closed the data connection"),
            Ok(len) => have += len,
            Err(error) if !is_timeout(&error) => return Err(error).context("the data connection broke"),
            Err(_) if !wanted() => return Ok(false),
            Err(_) => {}
        }
    }
    Ok(true)
}

/// The wait at the end of a test after which a request or its response counts as lost, in
/// nanoseconds.
const STALLED: u64 = 200 * MILLI;

pub(super) fn udp_rr(one: &One<'_>, to: SocketAddrV4, result: &mut Stream, latency: &mut Durations) -> Result<()> {
    let socket = one.datagrams(to)?;
    let mut message = vec![0; one.message];
    let mut number = 0_u64;
    let times = Times::begin(one);
    // A message too short for its number cannot be distinguished from a late answer to an abandoned
    // one, so such answers count as they arrive.
    let tagged = message.len().min(8);
    while !times.over() {
        number += 1;
        let begin = now();
        message[..tagged].copy_from_slice(&number.to_be_bytes()[8 - tagged..]);
        match socket.send(&message) {
            Ok(len) => {
                result.sent += len as u64;
                result.datagrams_sent += 1;
            }
            // It tells of an earlier one, and this one was not sent.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(error).context("send"),
        }
        if answer(&socket, &mut message, number, &times, result)? {
            result.transactions += 1;
            latency.record(now() - begin);
        } else {
            // In the last moments a request is under way, which no one misses.
            result.stalled = now() - begin > STALLED;
        }
    }
    result.seconds = times.seconds();
    Ok(())
}

/// Waits for the answer to a request, at most until the end of the test.
fn answer(
    socket: &std::net::UdpSocket,
    message: &mut [u8],
    number: u64,
    times: &Times<'_>,
    result: &mut Stream,
) -> Result<bool> {
    let tagged = message.len().min(8);
    while !times.over() {
        let left = Duration::from_nanos(times.end.saturating_sub(now())).min(LOOK);
        socket.set_read_timeout(Some(left.max(Duration::from_micros(1))))?;
        match socket.recv(message) {
            Ok(len) => {
                result.datagrams_received += 1;
                if len == message.len() && message[..tagged] == number.to_be_bytes()[8 - tagged..] {
                    return Ok(true);
                }
            }
            Err(error) if is_timeout(&error) || error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error).context("receive"),
        }
    }
    Ok(false)
}
