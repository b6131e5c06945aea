//! Statistics of a TCP connection.

use crate::error::{Result, check};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// Part of `TCP_INFO` (`tcp(7)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Segments that were sent again since the connection began.
    pub retransmissions: u32,
    /// Smoothed round trip time, µs.
    pub rtt: u32,
    /// Congestion window, in segments.
    pub congestion_window: u32,
    /// Bytes of the largest segment that is sent.
    pub segment: u32,
}

/// Of a TCP socket.
///
/// # Errors
/// The kernel's, as `EOPNOTSUPP` for another kind of socket.
pub fn info(socket: impl AsFd) -> Result<TcpInfo> {
    // SAFETY: all-zero bytes are a valid value of this structure of integers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `info`, and the length; both live
    // through the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut len,
        )
    };
    check("getsockopt(TCP_INFO)", result)?;
    Ok(TcpInfo {
        retransmissions: info.tcpi_total_retrans,
        rtt: info.tcpi_rtt,
        congestion_window: info.tcpi_snd_cwnd,
        segment: info.tcpi_snd_mss,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn a_connection_tells_its_segments_and_another_socket_an_error() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = info(&client).unwrap();
        assert!(info.segment > 500 && info.congestion_window > 0, "{info:?}");
        assert_eq!(info.retransmissions, 0);
        assert!(super::info(UdpSocket::bind(("127.0.0.1", 0)).unwrap()).is_err());
    }
}
