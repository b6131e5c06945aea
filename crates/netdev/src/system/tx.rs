//! Sending by a packet socket.

use super::errno;
use super::joined::{self, Head};
use crate::{Frame, Tx, TxReport};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use sys::PacketSocket;
use sys::mmsg::{self, BATCH};

/// Sends what the device is to send.
pub(super) struct SystemTx {
    socket: PacketSocket,
    /// The socket's buffer was full at the last call.
    full: bool,
    /// The kernel takes several packets of a tunnel as one (Linux 6.2).
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
            match self.batch(rest, &mut report) {
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
            match self.batch(&mut frames[done..], &mut report) {
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
    /// One system call. Returns how many of the frames were sent.
    fn batch(&mut self, frames: &mut [Frame], report: &mut TxReport) -> io::Result<usize> {
        let n = if self.joins && frames.iter().any(|frame| frame.offload.encapsulated) {
            self.join(frames)?
        } else {
            let packets = frames.iter_mut().map(|frame| frame.with_vnet_header());
            mmsg::send(self.socket.as_fd(), packets)?.min(frames.len())
        };
        report.packets += n as u64;
        report.bytes += frames[..n].iter().map(|frame| frame.len() as u64).sum::<u64>();
        Ok(n)
    }

    /// As [`SystemTx::batch`], but packets of a tunnel with the same outer headers leave as one.
    /// The first of them leaves alone: the kernel refuses it if it is longer than the device's MTU,
    /// and then those behind it are not sent either.
    #[inline(never)]
    fn join(&mut self, frames: &mut [Frame]) -> io::Result<usize> {
        let most = frames.len().min(BATCH);
        let frames = &mut frames[..most];
        let (mut heads, mut runs, mut messages, mut at) = ([Head::NONE; BATCH], [0; BATCH], 0, 0);
        while at < frames.len() {
            runs[messages] = 1;
            frames[at].with_vnet_header();
            let rest = &frames[at + 1..];
            if joined::run(&frames[at..]) > 2 {
                let run = joined::run(rest);
                if let Some(head) = Head::of(rest[0].data(), run) {
                    messages += 1;
                    (heads[messages], runs[messages]) = (head, run);
                    at += run;
                }
            }
            at += 1;
            messages += 1;
        }
        let mut pieces: [&[u8]; 2 * BATCH] = [&[]; 2 * BATCH];
        let (mut counts, mut used, mut at) = ([0; BATCH], 0, 0);
        for ((head, run), count) in heads.iter().zip(runs).zip(&mut counts).take(messages) {
            let begin = used;
            if run == 1 {
                pieces[used] = frames[at].behind_vnet_header();
                used += 1;
            } else {
                pieces[used] = head.as_bytes();
                for (piece, frame) in pieces[used + 1..].iter_mut().zip(&frames[at..at + run]) {
                    *piece = &frame.data()[head.payload()..];
                }
                used += 1 + run;
            }
            at += run;
            *count = used - begin;
        }
        let sent = mmsg::send_pieces(self.socket.as_fd(), &pieces[..used], &counts[..messages])?.min(messages);
        let mut n = runs[..sent].iter().sum();
        if sent < messages && runs[sent] > 1 {
            // Only of the first packet does the kernel say why it does not take it.
            let begin = counts[..sent].iter().sum();
            match mmsg::send_pieces(self.socket.as_fd(), &pieces[begin..used], &counts[sent..=sent]) {
                Ok(_) => n += runs[sent],
                Err(error) => self.joins = errno(&error) != Some(Errno::INVAL),
            }
        }
        Ok(n)
    }
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
