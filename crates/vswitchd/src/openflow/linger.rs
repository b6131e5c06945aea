//! Polling a socket for a moment before the thread sleeps.
//!
//! Tools such as `ovs-ofctl add-flows` wait for the answer to each request before they send the
//! next one. To sleep in between and to be woken up takes longer than most requests. So a
//! connection that has just been read polls its socket for up to [`PATIENCE`]. When that was in
//! vain, it does not poll after the next read, after the next three if it was in vain again, and
//! so on: what polling costs is bounded, and an idle switch does not poll.

use mgmt::stream::ReadHalf;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::time::{Duration, Instant};

/// How long to poll.
const PATIENCE: Duration = Duration::from_micros(60);
/// Reads in a row after which other tasks run.
const MOST_ALONE: u32 = 4;
/// Vain attempts in a row after which the pauses grow no more.
const MOST_FAILURES: u32 = 8;

/// When to poll a connection's socket.
#[derive(Debug, Default)]
pub(super) struct Linger {
    /// Reads after which not to poll.
    pause: u32,
    /// Vain attempts in a row.
    failures: u32,
    /// Reads in a row that other tasks did not run between.
    alone: u32,
}

impl Linger {
    /// Polls a socket that was just read for its next bytes, which are put into `buffer`. Other tasks
    /// run meanwhile. How many bytes there are; `None` where to wait for them in the usual way.
    pub(super) async fn read(&mut self, socket: &ReadHalf, buffer: &mut [u8]) -> Option<usize> {
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        self.alone += 1;
        if self.alone >= MOST_ALONE {
            self.alone = 0;
            tokio::task::yield_now().await;
        }
        let started = Instant::now();
        loop {
            match recv(socket.raw()?, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((_, n @ 1..)) => {
                    self.tried(true);
                    return Some(n);
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                // The end and errors are found by the next read.
                _ => return None,
            }
            self.alone = 0;
            // Other tasks may have something to do, or the peer may wait for this very processor.
            tokio::task::yield_now().await;
            if started.elapsed() > PATIENCE {
                self.tried(false);
                return None;
            }
            std::thread::yield_now();
        }
    }

    fn tried(&mut self, has_read: bool) {
        if has_read {
            self.failures = 0;
        } else {
            self.failures = (self.failures + 1).min(MOST_FAILURES);
            self.pause = (1 << self.failures) - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgmt::stream::Stream;
    use tokio::io::AsyncWriteExt;

    #[test]
    fn polling_in_vain_is_paused_for_longer_each_time_until_it_pays() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let (ours, mut theirs) = tokio::net::UnixStream::pair().expect("sockets");
            let (reader, _writer) = Stream::Unix(ours).into_split();
            let (mut linger, mut buffer) = (Linger::default(), [0; 8]);
            let mut pauses = Vec::new();
            for _ in 0..10 {
                assert_eq!(linger.read(&reader, &mut buffer).await, None);
                pauses.push(linger.pause);
                while linger.pause > 0 {
                    assert_eq!(linger.read(&reader, &mut buffer).await, None);
                }
            }
            assert_eq!(pauses, [1, 3, 7, 15, 31, 63, 127, 255, 255, 255]);
            theirs.write_all(b"hello").await.expect("a peer");
            assert_eq!(linger.read(&reader, &mut buffer).await, Some(5));
            assert_eq!(linger.failures, 0);
        });
    }
}
