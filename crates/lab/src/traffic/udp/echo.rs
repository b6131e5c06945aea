//! A server that sends every datagram back.

use super::socket::bind_at;
use crate::traffic::clock::{MICRO, be_punctual, now, wait_until};
use crate::traffic::protocol::Outcome;
use crate::traffic::task::{Control, LOOK};
use anyhow::{Context, Result};
use rustix::net::RecvFlags;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Echoes datagrams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Echo {
    /// Its port; 0: any.
    #[serde(default)]
    pub port: u16,
    /// It is reached by IPv6, not by IPv4.
    #[serde(default)]
    pub ip6: bool,
    /// For how long after a datagram it looks for the next one without sleeping, in µs. It then has
    /// a processor for itself, which the switch cannot use.
    #[serde(default)]
    pub spin: u64,
    /// How long each datagram is kept before it goes back, in ns; the others wait. For the last
    /// moment the server has a processor for itself.
    #[serde(default)]
    pub hold: u64,
}

/// For how long before it answers a server that has held a datagram has a processor for itself, in
/// nanoseconds.
const LAST_MOMENT: u64 = 60 * MICRO;

impl Echo {
    pub(crate) fn run(&self, control: &Control) -> Result<Outcome> {
        let all = if self.ip6 {
            IpAddr::from(Ipv6Addr::UNSPECIFIED)
        } else {
            IpAddr::from(Ipv4Addr::UNSPECIFIED)
        };
        let socket = bind_at(SocketAddr::new(all, self.port))?;
        socket.set_read_timeout(Some(LOOK)).context("SO_RCVTIMEO")?;
        control.ready(vec![socket.local_addr()?.port()]);
        be_punctual();
        let mut buffer = vec![0; super::MOST_PAYLOAD as usize];
        while !control.stopped() {
            // A time that is out, or news of an answer that could not be delivered: nothing to send
            // back.
            let Ok((len, from)) = socket.recv_from(&mut buffer) else {
                continue;
            };
            if self.hold > 0 {
                wait_until(now() + self.hold, LAST_MOMENT);
            }
            let _ = socket.send_to(&buffer[..len], from);
            let mut until = now() + self.spin * MICRO;
            while self.spin > 0 && now() < until {
                if let Ok((len, _, Some(from))) = rustix::net::recvfrom(&socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                    let _ = rustix::net::sendto(&socket, &buffer[..len], rustix::net::SendFlags::empty(), &from);
                    until = now() + self.spin * MICRO;
                }
            }
        }
        Ok(Outcome::Served)
    }
}
