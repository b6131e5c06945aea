//! A TLS connection, presented as a plain socket.

use mgmt::stream::tls::Settings;
use mgmt::stream::{self, Remote, Tls};
use std::io;
use std::os::unix::net::UnixStream;
use tokio::io::{AsyncWriteExt, copy_bidirectional};

/// Connects to a remote under TLS. A thread copies between the network and the socket. A command
/// that waits for a reply, as every command does that changes something, knows that all was sent.
pub(super) fn connect(remote: &Remote, settings: &Settings) -> io::Result<UnixStream> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tls = Tls::new(settings.clone());
    let mut secure = runtime.block_on(stream::connect(remote, &tls))?;
    let (near, far) = UnixStream::pair()?;
    far.set_nonblocking(true)?;
    let relay = move || {
        runtime.block_on(async {
            if let Ok(mut far) = tokio::net::UnixStream::from_std(far) {
                // The socket closes with it; the reader sees the end of file.
                let _ = copy_bidirectional(&mut secure, &mut far).await;
                let _ = secure.shutdown().await;
            }
        });
    };
    std::thread::Builder::new().name("tls".to_owned()).spawn(relay)?;
    Ok(near)
}
