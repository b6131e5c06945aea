//! Sending by a packet socket.

use super::errno;
use super::joined::{self, Head};
use crate::{Frame, Tx, TxReport};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use sys::PacketSocket;
use sys::mmsg::{self, BATCH};

/// Sends what the device is to send.
pub(super) struct SystemTx {
    socket: PacketSocket,
    /// The socket's buffer was full at the last call.
    full: bool,
    /// The kernel takes several packets of a tunnel as one (Linux 6.2). It says so only when it
    /// gets some.
    joins: bool,
}

impl SystemTx {
    pub(super) fn new(socket: PacketSocket) -> SystemTx {
        SystemTx {
            socket,
            full: false,
            joins: true,
        }
    }
}

impl Tx for SystemTx {
    fn send(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        let mut report = TxReport::default();
        let mut rest = &mut frames[..];
        while !rest.is_empty() {
            match self.joined(rest, &mut report) {
                Ok(n) => rest = &mut rest[n..],
                Err(error) => {
                    let lost = refused(&error, rest.len() as u64, &mut report);
                    rest = &mut rest[lost..];
                }
            }
        }
        Frame::drop_first(frames.len(), frames);
        report
    }

    fn offer(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        let mut report = TxReport::default();
        let mut done = 0;
        self.full = false;
        while done < frames.len() {
            match self.joined(&mut frames[done..], &mut report) {
                Ok(n) => done += n,
                // The device's queue is full, and no descriptor signals when it has room; or the
                // socket's buffer is full, and the socket does.
                Err(error) if matches!(errno(&error), Some(Errno::NOBUFS | Errno::NOMEM)) => break,
                Err(error) if errno(&error) == Some(Errno::AGAIN) => {
                    self.full = true;
                    break;
                }
                Err(error) => done += refused(&error, (frames.len() - done) as u64, &mut report),
            }
        }
        Frame::drop_first(done, frames);
        report
    }

    fn limit(&mut self, bytes: usize) {
        // A failure has no other effect than that more bytes wait in the device.
        let _ = self.socket.set_send_buffer(i32::try_from(bytes).unwrap_or(i32::MAX));
    }

    fn under_way(&self) -> Option<usize> {
        self.socket.under_way().ok()
    }

    fn room(&self) -> Option<BorrowedFd<'_>> {
        self.full.then(|| self.socket.as_fd())
    }
}

impl SystemTx {
    /// Sends the first frames, with one system call. Returns how many were sent.
    fn batch(&mut self, frames: &mut [Frame], report: &mut TxReport) -> io::Result<usize> {
        let packets = frames.iter_mut().map(|frame| frame.with_vnet_header());
        let n = mmsg::send(self.socket.as_fd(), packets)?.min(frames.len());
        report.packets += n as u64;
        report.bytes += bytes(&frames[..n]);
        Ok(n)
    }

    /// As [`SystemTx::batch`], but packets of a tunnel with the same outer headers leave as one,
    /// with a system call of their own. Returns how many were sent or dropped.
    fn joined(&mut self, frames: &mut [Frame], report: &mut TxReport) -> io::Result<usize> {
        let most = frames.len().min(BATCH);
        let frames = &mut frames[..most];
        let Some((first, run)) = self.joins.then(|| joined::find(frames)).flatten() else {
            return self.batch(frames, report);
        };
        // The kernel refuses a packet that is longer than the device's MTU, but not one that is to
        // be cut. So the first of the run leaves by itself: if it is refused, so are the others.
        let alone = self.batch(&mut frames[..=first], report)?;
        if alone <= first {
            return Ok(alone);
        }
        let together = &frames[alone..first + run];
        match self.together(together) {
            Ok(()) => {
                report.packets += together.len() as u64;
                report.bytes += bytes(together);
                Ok(first + run)
            }
            // The device's queue is full. Where it has none, some may have left: none may leave
            // again.
            Err(error) if matches!(errno(&error), Some(Errno::NOBUFS | Errno::NOMEM)) => {
                report.dropped += together.len() as u64;
                Ok(first + run)
            }
            // None has left. The next one leaves by itself, and gets the same error.
            Err(error) => {
                self.joins = errno(&error) != Some(Errno::INVAL);
                Ok(alone)
            }
        }
    }

    /// Sends packets that [`joined::find`] has found, as one.
    fn together(&self, frames: &[Frame]) -> io::Result<()> {
        let head = Head::of(frames[0].data(), frames.len()).ok_or(Errno::INVAL)?;
        let mut pieces = [IoSlice::new(&[]); BATCH + 1];
        pieces[0] = IoSlice::new(head.as_bytes());
        for (piece, frame) in pieces[1..].iter_mut().zip(frames) {
            *piece = IoSlice::new(&frame.data()[head.payload()..]);
        }
        let pieces = &pieces[..=frames.len()];
        sendmsg(
            &self.socket,
            pieces,
            &mut SendAncillaryBuffer::default(),
            SendFlags::DONTWAIT,
        )?;
        Ok(())
    }
}

fn bytes(frames: &[Frame]) -> u64 {
    frames.iter().map(|frame| frame.len() as u64).sum()
}

/// Counts a send error; returns how many of the `left` frames it concerns.
fn refused(error: &io::Error, left: u64, report: &mut TxReport) -> usize {
    let (count, n) = match errno(error) {
        Some(Errno::INTR) => return 0,
        // The socket's buffer is full: the next ones will not fit either.
        Some(Errno::AGAIN) => (&mut report.dropped, left),
        Some(Errno::NOBUFS | Errno::NOMEM) => (&mut report.dropped, 1),
        Some(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => (&mut report.down, left),
        Some(Errno::MSGSIZE) => (&mut report.too_big, 1),
        _ => (&mut report.errors, 1),
    };
    *count += n;
    n as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_being_refused_has_its_count() {
        let mut report = TxReport::default();
        let mut refuse = |errno: Errno| refused(&errno.into(), 5, &mut report);
        assert_eq!(refuse(Errno::INTR), 0);
        assert_eq!(refuse(Errno::AGAIN), 5);
        assert_eq!(refuse(Errno::NOBUFS), 1);
        assert_eq!(refuse(Errno::NETDOWN), 5);
        assert_eq!(refuse(Errno::MSGSIZE), 1);
        assert_eq!(refuse(Errno::INVAL), 1);
        assert_eq!(
            report,
            TxReport {
                dropped: 6,
                down: 5,
                too_big: 1,
                errors: 1,
                ..TxReport::default()
            }
        );
    }
}
