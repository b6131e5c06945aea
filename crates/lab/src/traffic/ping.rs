//! Ping (RFC 792, echo).

use super::clock::{MICRO, now};
use super::protocol::Outcome;
use super::task::Control;
use anyhow::{Context, Result, bail};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recv, sendto, socket_with, sockopt,
};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Pings addresses in turn until each has answered or the number of attempts is reached. Needs
/// `CAP_NET_RAW`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {
    /// Whom, at most 65535 of them.
    pub to: Vec<Ipv4Addr>,
    /// How many times at most, 1 or more.
    pub times: u16,
    /// How long to wait for each answer, µs, 1 or more.
    pub timeout: u64,
}

/// The results of a ping.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pinged {
    /// In the order asked: it answered.
    pub answered: Vec<bool>,
}

impl Ping {
    pub(crate) fn run(&self, control: &Control) -> Result<Outcome> {
        if self.times == 0 || self.timeout == 0 || self.to.len() > usize::from(u16::MAX) {
            bail!("at least one ping of at least 1 µs, to at most 65535 addresses");
        }
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(ipproto::ICMP),
        );
        let socket = socket.context("raw socket (ICMP)")?;
        let timeout = Some(Duration::from_micros(self.timeout));
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, timeout).context("SO_RCVTIMEO")?;
        control.ready(Vec::new());
        let mut answered = Vec::new();
        if control.await_go() {
            // Of this process and moment, to tell its answers from others'.
            let ident = (std::process::id() as u16) ^ (now() >> 12) as u16;
            for (number, &to) in self.to.iter().enumerate() {
                let mut tries = 0..self.times;
                answered.push(tries.any(|_| !control.stopped() && self.ask(&socket, to, ident, number as u16)));
            }
        }
        Ok(Outcome::Pinged(Pinged { answered }))
    }

    /// Pings once. An unsendable request, as without a route, counts as unanswered.
    fn ask(&self, socket: &OwnedFd, to: Ipv4Addr, ident: u16, number: u16) -> bool {
        let request = echo_request(ident, number);
        let end = now() + self.timeout * MICRO;
        if sendto(socket, &request, SendFlags::empty(), &SocketAddrV4::new(to, 0)).is_err() {
            return false;
        }
        let mut packet = [0_u8; 256];
        while now() < end {
            let Ok((len, _)) = recv(socket, &mut packet[..], RecvFlags::empty()) else {
                continue;
            };
            if is_reply(&packet[..len.min(256)], to, ident, number) {
                return true;
            }
        }
        false
    }
}

fn echo_request(ident: u16, number: u16) -> [u8; 8] {
    let [i0, i1] = ident.to_be_bytes();
    let [n0, n1] = number.to_be_bytes();
    // The ones' complement sum of three words, the first being 0x0800.
    let sum = 0x0800_u32 + u32::from(ident) + u32::from(number);
    let folded = (sum & 0xffff) + (sum >> 16);
    let [c0, c1] = (!(((folded & 0xffff) + (folded >> 16)) as u16)).to_be_bytes();
    [8, 0, c0, c1, i0, i1, n0, n1]
}

/// A packet, with its IP header, that answers such a request.
fn is_reply(packet: &[u8], from: Ipv4Addr, ident: u16, number: u16) -> bool {
    let Some(header) = packet.first_chunk::<20>() else {
        return false;
    };
    let Some(icmp) = packet.get(usize::from(header[0] & 0xf) * 4..) else {
        return false;
    };
    let [i0, i1] = ident.to_be_bytes();
    let [n0, n1] = number.to_be_bytes();
    let echoed = matches!(icmp, [0, 0, _, _, a, b, c, d, ..] if [*a, *b, *c, *d] == [i0, i1, n0, n1]);
    header[12..16] == from.octets() && echoed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_checksum_of_rfc_1071() {
        for (ident, number) in [(0, 0), (0xffff, 0xffff), (0x1234, 7), (0xf7ff, 1)] {
            let words = echo_request(ident, number);
            let sum: u32 = words
                .chunks(2)
                .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
                .sum();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "{ident} {number}");
        }
    }

    #[test]
    fn only_the_answer_to_the_request_counts() {
        let from = Ipv4Addr::new(10, 0, 0, 2);
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1];
        packet.extend([0, 0, 0, 0, 0x12, 0x34, 0, 7]);
        assert!(is_reply(&packet, from, 0x1234, 7));
        assert!(!is_reply(&packet, from, 0x1234, 8));
        assert!(!is_reply(&packet, Ipv4Addr::new(10, 0, 0, 3), 0x1234, 7));
        packet[20] = 3;
        assert!(!is_reply(&packet, from, 0x1234, 7), "unreachable");
        for len in 0..28 {
            assert!(!is_reply(&packet[..len], from, 0x1234, 7));
        }
    }
}
