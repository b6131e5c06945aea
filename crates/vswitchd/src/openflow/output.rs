//! Bytes on their way to a peer.

use std::io;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Bytes to write, and whether the stream still buffers some: TLS accepts bytes that its socket has
/// no room for.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    written: usize,
    is_held: bool,
}

impl Output {
    /// Whether the stream has accepted every byte, so that new bytes can follow.
    pub(super) fn is_written(&self) -> bool {
        self.written == self.bytes.len()
    }

    /// Whether [`Output::send`] has something to do.
    pub(super) fn is_pending(&self) -> bool {
        !self.is_written() || self.is_held
    }

    /// Replaces written bytes by new ones.
    pub(super) fn put(&mut self, bytes: Vec<u8>) {
        debug_assert!(self.is_written(), "bytes that are not written would be lost");
        (self.bytes, self.written) = (bytes, 0);
    }

    /// Writes all bytes and flushes the stream. Cancel safe.
    ///
    /// # Errors
    /// The stream's errors; `WriteZero` when it accepts no more bytes.
    pub(super) async fn send(&mut self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        while !self.is_written() {
            match stream.write(&self.bytes[self.written..]).await? {
                0 => return Err(io::Error::new(io::ErrorKind::WriteZero, "the peer does not read")),
                n => self.written += n,
            }
            self.is_held = true;
        }
        if self.is_held {
            stream.flush().await?;
            self.is_held = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, BufWriter};

    #[test]
    fn bytes_that_the_stream_holds_back_are_flushed() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(async {
            let (ours, mut theirs) = tokio::io::duplex(512);
            // Like TLS, it accepts more than its socket.
            let mut stream = BufWriter::with_capacity(4 << 10, ours);
            let mut output = Output::default();
            let sent: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
            output.put(sent.clone());
            let mut received: Vec<u8> = Vec::new();
            while received.len() < sent.len() {
                let mut buffer = [0; 100];
                tokio::select! {
                    biased;
                    done = output.send(&mut stream), if output.is_pending() => done.expect("the peer reads"),
                    read = theirs.read(&mut buffer) => received.extend(&buffer[..read.expect("bytes")]),
                    else => panic!("{} of {} bytes", received.len(), sent.len()),
                }
            }
            assert_eq!(received, sent);
            assert!(output.is_written() && !output.is_pending());
        });
    }
}
