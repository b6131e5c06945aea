//! TLS for callers that poll the socket themselves.

use std::cell::RefCell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use rustls::Connection;

/// A non-blocking socket under TLS: calls that would wait return `WouldBlock`.
#[derive(Debug)]
pub struct Session {
    tcp: TcpStream,
    tls: RefCell<Connection>,
}

impl Session {
    pub(super) fn new(tcp: TcpStream, tls: Connection) -> Session {
        Session {
            tcp,
            tls: RefCell::new(tls),
        }
    }

    /// The socket, to be watched.
    pub fn socket(&self) -> &TcpStream {
        &self.tcp
    }

    /// Reads what there is. Less than fits into the buffer means that the socket is empty too, or
    /// at its end.
    ///
    /// # Errors
    /// The system's, `WouldBlock` among them; a peer that breaks the protocol.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut tls = self.tls.borrow_mut();
        let mut filled = 0;
        while filled < buffer.len() {
            match tls.reader().read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => match self.receive(&mut tls) {
                    Ok(()) => {}
                    Err(_) if filled > 0 => break,
                    Err(error) => return Err(error),
                },
                // The peer disconnected without a close notification.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(_) if filled > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Takes bytes off the socket.
    fn receive(&self, tls: &mut Connection) -> io::Result<()> {
        tls.read_tls(&mut &self.tcp)?;
        if let Err(error) = tls.process_new_packets() {
            // Sends the peer an alert.
            let _ = tls.write_tls(&mut &self.tcp);
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        if tls.wants_write() {
            match send(tls, &self.tcp) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Buffers as many bytes as it can. [`Session::flush`] sends them.
    ///
    /// # Errors
    /// The system's; `WouldBlock` while bytes taken before are not on their way.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut tls = self.tls.borrow_mut();
        send(&mut tls, &self.tcp)?;
        let taken = tls.writer().write(bytes)?;
        match send(&mut tls, &self.tcp) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Sends the buffered bytes.
    ///
    /// # Errors
    /// The system's; `WouldBlock` when something is left.
    pub fn flush(&self) -> io::Result<()> {
        send(&mut self.tls.borrow_mut(), &self.tcp)
    }
}

fn send(tls: &mut Connection, mut tcp: &TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        if tls.write_tls(&mut tcp)? == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

impl Drop for Session {
    fn drop(&mut self) {
        let tls = self.tls.get_mut();
        tls.send_close_notify();
        let _ = tls.write_tls(&mut &self.tcp);
    }
}
