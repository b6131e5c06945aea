//! A TCP connection under TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::session::Session;
use super::tls::{self, Loaded};

/// A handshake that takes longer has failed.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A TCP connection after the handshake. Dropping it sends a close notification.
#[derive(Debug)]
pub struct Secure(Option<TlsStream<TcpStream>>);

impl Secure {
    /// Does the handshake as the side that connected to `host`.
    pub(super) async fn connect(tcp: TcpStream, host: &str, loaded: &Loaded) -> io::Result<Secure> {
        // The name only lets the server choose a certificate; an address has no such use.
        let nobody = ServerName::from(std::net::IpAddr::from([0, 0, 0, 0]));
        let name = ServerName::try_from(host.to_owned()).unwrap_or(nobody);
        let connector = TlsConnector::from(loaded.client.clone());
        let stream = within(connector.connect(name, tcp)).await?;
        loaded.learn(host, stream.get_ref().1.peer_certificates())?;
        Ok(Secure(Some(stream.into())))
    }

    /// Does the handshake as the side that listens.
    pub(super) async fn accept(tcp: TcpStream, peer: &str, loaded: &Loaded) -> io::Result<Secure> {
        let acceptor = TlsAcceptor::from(loaded.server.clone());
        let stream = within(acceptor.accept(tcp)).await?;
        loaded.learn(peer, stream.get_ref().1.peer_certificates())?;
        Ok(Secure(Some(stream.into())))
    }

    /// The common name in the peer's certificate.
    pub(super) fn peer_name(&self) -> Option<String> {
        let certificates = self.0.as_ref()?.get_ref().1.peer_certificates()?;
        let certificate = webpki::EndEntityCert::try_from(certificates.first()?).ok()?;
        common_name(certificate.subject())
    }

    /// For those that watch sockets themselves.
    ///
    /// # Errors
    /// The system's.
    pub fn into_session(mut self) -> io::Result<Session> {
        let stream = self.0.take().ok_or(io::ErrorKind::NotConnected)?;
        let (tcp, session) = match stream {
            TlsStream::Client(stream) => {
                let (tcp, session) = stream.into_inner();
                (tcp, Connection::from(session))
            }
            TlsStream::Server(stream) => {
                let (tcp, session) = stream.into_inner();
                (tcp, Connection::from(session))
            }
        };
        Ok(Session::new(tcp.into_std()?, session))
    }

    /// The socket.
    pub(super) fn socket(&self) -> Option<&TcpStream> {
        Some(self.0.as_ref()?.get_ref().0)
    }

    fn stream(&mut self) -> Result<Pin<&mut TlsStream<TcpStream>>, io::Error> {
        let stream = self.0.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        Ok(Pin::new(stream))
    }
}

async fn within<T>(handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout(HANDSHAKE, handshake).await {
        Ok(result) => result.map_err(tls::explain),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "TLS handshake timed out")),
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        match &mut self.0 {
            Some(TlsStream::Client(stream)) => {
                let (tcp, session): (_, &mut ClientConnection) = stream.get_mut();
                session.send_close_notify();
                let _ = session.write_tls(&mut AtOnce(tcp));
            }
            Some(TlsStream::Server(stream)) => {
                let (tcp, session): (_, &mut ServerConnection) = stream.get_mut();
                session.send_close_notify();
                let _ = session.write_tls(&mut AtOnce(tcp));
            }
            None => {}
        }
    }
}

/// Writes what the socket takes at once.
struct AtOnce<'a>(&'a TcpStream);

impl io::Write for AtOnce<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for Secure {
    /// The messages have frames of their own, so a stream without a close notification has
    /// ended.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match ready!(self.get_mut().stream()?.poll_read(cx, buf)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }
}

impl AsyncWrite for Secure {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().stream()?.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream()?.poll_shutdown(cx)
    }
}

/// The handshakes in progress at a listener. If there are too many, the oldest is aborted: a normal
/// handshake takes milliseconds.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    tasks: tokio::task::JoinSet<(io::Result<Secure>, String)>,
    oldest: std::collections::VecDeque<tokio::task::AbortHandle>,
}

/// Handshakes under way at once, at one listener.
const MAX_HANDSHAKES: usize = 64;

impl Handshakes {
    pub(super) fn start(&mut self, tcp: TcpStream, peer: String, loaded: Loaded) {
        self.oldest.retain(|task| !task.is_finished());
        if self.oldest.len() >= MAX_HANDSHAKES
            && let Some(oldest) = self.oldest.pop_front()
        {
            oldest.abort();
        }
        let task = self.tasks.spawn(async move {
            let result = Secure::accept(tcp, &peer, &loaded).await;
            (result, peer)
        });
        self.oldest.push_back(task);
    }

    /// The next stream whose handshake succeeded; those that did not are logged. Waits for ever
    /// while there are none.
    pub(super) async fn next(&mut self) -> (Secure, String) {
        loop {
            match self.tasks.join_next().await {
                None => std::future::pending().await,
                Some(Ok((Ok(stream), peer))) => return (stream, peer),
                Some(Ok((Err(error), peer))) => {
                    telemetry::warn_limited!(target: "stream_ssl", "{peer}: {}", crate::os_text(&error));
                }
                Some(Err(_)) => {
                    telemetry::warn_limited!(target: "stream_ssl", "too many TLS handshakes at once, the oldest was given up");
                }
            }
        }
    }
}

/// The common name in the contents of a DER `Name` (RFC 5280 §4.1.2.4): the first attribute of type
/// 2.5.4.3 that is text.
fn common_name(mut name: &[u8]) -> Option<String> {
    const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
    while let Some((_, mut set)) = element(&mut name) {
        while let Some((_, mut attribute)) = element(&mut set) {
            let (_, kind) = element(&mut attribute)?;
            let (_, value) = element(&mut attribute)?;
            if kind == COMMON_NAME {
                return String::from_utf8(value.to_owned()).ok();
            }
        }
    }
    None
}

/// Takes the next DER element: its tag and its contents.
fn element<'a>(from: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, rest) = from.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let (bytes, after) = rest.split_at_checked(usize::from(first & 0x7f).min(4))?;
        length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        rest = after;
    }
    let (contents, after) = rest.split_at_checked(length)?;
    *from = after;
    Some((tag, contents))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_name_is_found_and_cut_off_names_have_none() {
        // O=org, CN=host
        let name = b"\x31\x0c\x30\x0a\x06\x03\x55\x04\x0a\x0c\x03org\x31\x0d\x30\x0b\x06\x03\x55\x04\x03\x0c\x04host";
        assert_eq!(common_name(name).as_deref(), Some("host"));
        for end in 0..name.len() {
            assert_eq!(common_name(&name[..end]), None);
        }
        assert_eq!(common_name(b"\x31\x8f\xff\xff\xff\xff"), None);
    }
}
