//! Keeps the machine's processors awake while packets take shortcuts, where a user asks workers to
//! spin.
//!
//! What takes a shortcut is forwarded by the processor that its sender runs on. If that slept, its
//! waking is most of the round trip, and no worker that spins elsewhere makes it shorter. The
//! kernel's own idle loop can spin instead: it does as long as somebody asks for a latency of
//! nothing at [`DEVICE`], and gives way to whatever becomes ready. The request ends with the
//! process that holds it, however that ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::time::Duration;
use wire::Nanos;

/// Where the kernel takes requests for a latency: 32 bits of the host's order, in microseconds, in
/// force until the file is closed.
const DEVICE: &str = "/dev/cpu_dma_latency";

/// For shorter times it is not kept: looking that often would cost more than it saves.
pub(crate) const SHORTEST: Duration = Duration::from_millis(1);

/// A worker's part of it.
#[derive(Default)]
pub(crate) struct LatencyRequest {
    request: Option<File>,
    /// Packets that had taken shortcuts when it last looked.
    carried: u64,
    /// When it looks again; as soon as may be where none.
    next: Option<Nanos>,
}

impl LatencyRequest {
    /// Asks for awake processors where packets have taken shortcuts since it looked, `spin` ago,
    /// and for nothing where none have. `carried` counts them, as long as there are shortcuts. To
    /// be called at every turn.
    #[inline]
    pub(crate) fn keep(&mut self, now: Nanos, spin: Duration, carried: impl FnOnce() -> Option<u64>) {
        if spin < SHORTEST && self.request.is_none() || self.next.is_some_and(|next| now < next) {
            return;
        }
        self.look(now, spin, carried().filter(|_| spin >= SHORTEST));
    }

    fn look(&mut self, now: Nanos, spin: Duration, carried: Option<u64>) {
        let Some(carried) = carried else {
            *self = LatencyRequest::default();
            return;
        };
        if carried == self.carried {
            self.request = None;
        } else if self.request.is_none() {
            // Whoever asked for it was told if it cannot be had.
            self.request = request().ok();
        }
        self.carried = carried;
        self.next = Some(now + spin);
    }

    /// When it is to be called again at the latest.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.next
    }
}

/// Keeps all processors awake until it is dropped.
///
/// # Errors
/// The kernel's, with the device's name: without the right to, or where the machine or the
/// container has no such device.
pub(crate) fn request() -> io::Result<File> {
    let ask = || {
        let mut file = OpenOptions::new().write(true).open(DEVICE)?;
        file.write_all(&0_i32.to_ne_bytes())?;
        Ok(file)
    };
    ask().map_err(|error: io::Error| io::Error::new(error.kind(), format!("{DEVICE}: {}", sys::strerror(&error))))
}
