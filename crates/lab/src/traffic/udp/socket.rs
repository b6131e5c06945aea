//! Sockets for datagrams.

use anyhow::{Context, Result, bail};
use rustix::net::sockopt;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

/// A socket on all of the host's IPv4 addresses; port 0 is any. A task before this one may still be
/// about to leave the port: it is given a second.
pub(super) fn bind(port: u16) -> Result<UdpSocket> {
    bind_at(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
}

/// The same on all addresses of a protocol.
pub(super) fn bind_at(address: SocketAddr) -> Result<UdpSocket> {
    for _ in 0..100 {
        match UdpSocket::bind(address) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            done => return done.with_context(|| format!("bind UDP {address}")),
        }
    }
    bail!("bind UDP {address}: in use")
}

/// Sets the sizes of a socket's buffers, in bytes as `SO_SNDBUF` and `SO_RCVBUF` take them: Linux
/// doubles them for its bookkeeping. Beyond the system's limit only with `CAP_NET_ADMIN`.
///
/// # Errors
/// The kernel's, and a buffer smaller than was asked for.
pub(crate) fn set_buffers(socket: impl AsFd, send: Option<u32>, receive: Option<u32>) -> Result<()> {
    let socket = socket.as_fd();
    if let Some(bytes) = send {
        let wanted = bytes as usize;
        sockopt::set_socket_send_buffer_size_force(socket, wanted)
            .or_else(|_| sockopt::set_socket_send_buffer_size(socket, wanted))
            .with_context(|| format!("SO_SNDBUF {bytes}"))?;
        let got = sockopt::socket_send_buffer_size(socket)?;
        if got < wanted {
            bail!("SO_SNDBUF {bytes}: the system grants {got}");
        }
    }
    if let Some(bytes) = receive {
        let wanted = bytes as usize;
        sockopt::set_socket_recv_buffer_size_force(socket, wanted)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, wanted))
            .with_context(|| format!("SO_RCVBUF {bytes}"))?;
        let got = sockopt::socket_recv_buffer_size(socket)?;
        if got < wanted {
            bail!("SO_RCVBUF {bytes}: the system grants {got}");
        }
    }
    Ok(())
}

/// Datagrams that the kernel has dropped at the sockets of this port since they were made, from
/// `/proc/net/udp`; `None` if unknown.
pub(super) fn drops(port: u16) -> Option<u64> {
    drops_in(&std::fs::read_to_string("/proc/thread-self/net/udp").ok()?, port)
}

fn drops_in(table: &str, port: u16) -> Option<u64> {
    let mut drops = None;
    for line in table.lines().skip(1) {
        let mut fields = line.split_ascii_whitespace();
        let local = fields.nth(1).and_then(|local| local.rsplit_once(':'));
        if local.is_some_and(|(_, p)| u16::from_str_radix(p, 16) == Ok(port)) {
            let dropped: u64 = fields.next_back()?.parse().ok()?;
            drops = Some(drops.unwrap_or(0) + dropped);
        }
    }
    drops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_those_of_the_sockets_of_the_port() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
             102: 00000000:4E20 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 9 2 0000000000000000 17\n\
             103: 0100007F:4E20 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 9 2 0000000000000000 4\n\
             104: 00000000:4E21 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 9 2 0000000000000000 1\n";
        assert_eq!(drops_in(table, 20_000), Some(21));
        assert_eq!(drops_in(table, 20_001), Some(1));
        assert_eq!(drops_in(table, 7), None);
        assert_eq!(drops_in("", 7), None);
        assert_eq!(drops_in("x\n1: 0:7 what\n1: 0:0007", 7), None);
    }

    #[test]
    fn what_a_full_socket_drops_is_counted() {
        let receiver = bind(0).unwrap();
        set_buffers(&receiver, None, Some(4096)).unwrap();
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, receiver.local_addr().unwrap().port()));
        let sender = bind(0).unwrap();
        for _ in 0..100 {
            sender.send_to(&[0; 1000], to).unwrap();
        }
        receiver.set_nonblocking(true).unwrap();
        let received = std::iter::repeat_with(|| receiver.recv(&mut [0; 1000]))
            .take_while(Result::is_ok)
            .count();
        assert!(received < 100);
        assert_eq!(drops(to.port()), Some(100 - received as u64));
    }
}
