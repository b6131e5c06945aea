//! Receiving from one queue.

use super::Attachment;
use super::pending::recognise;
use super::tx::SharedSender;
use crate::{Frame, Rx};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use sys::xsk::Receiver;

/// The longest packet that is assembled from parts: the capacity of the largest pooled buffer.
const LONGEST: usize = 65_535 + 14 + 8;

pub(super) struct AfxdpRx {
    receiver: Receiver,
    /// A packet whose other parts are still to come.
    partial: Vec<u8>,
    /// The rest of that packet is thrown away.
    skip: bool,
    truncated: Arc<AtomicU64>,
    /// The sending half of the same queue.
    sender: Arc<SharedSender>,
    /// Dropped last: the sockets are closed before the device returns to the host's stack.
    attachment: Arc<Attachment>,
}

impl AfxdpRx {
    pub(super) fn new(
        receiver: Receiver,
        sender: Arc<SharedSender>,
        truncated: Arc<AtomicU64>,
        attachment: Arc<Attachment>,
    ) -> AfxdpRx {
        AfxdpRx {
            receiver,
            partial: Vec::new(),
            skip: false,
            truncated,
            sender,
            attachment,
        }
    }
}

impl Rx for AfxdpRx {
    fn fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }

    fn is_free_to_ask(&self) -> bool {
        true
    }

    fn recv(&mut self, out: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        self.sender.push_on();
        let before = out.len();
        let virtual_device = self.attachment.virtual_device;
        let (partial, skip, truncated) = (&mut self.partial, &mut self.skip, &self.truncated);
        let mut take = |part: &[u8], more: bool| {
            if !more && partial.is_empty() && !*skip {
                out.push(frame(part, virtual_device));
                return;
            }
            if partial.len() + part.len() > LONGEST {
                *skip = true;
            }
            if !*skip {
                partial.extend_from_slice(part);
            }
            if !more {
                if *skip {
                    truncated.fetch_add(1, Ordering::Relaxed);
                } else {
                    out.push(frame(partial, virtual_device));
                }
                partial.clear();
                *skip = false;
            }
        };
        self.receiver.receive(u32::try_from(max).unwrap_or(u32::MAX), &mut take);
        Ok(out.len() - before)
    }
}

#[inline]
fn frame(packet: &[u8], virtual_device: bool) -> Frame {
    let mut frame = Frame::from_slice(packet);
    if virtual_device {
        frame.offload.csum = recognise(packet);
    }
    frame
}
