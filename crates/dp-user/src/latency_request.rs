//! Keeps the machine's processors awake while offloaded flows carry packets, where a user asks for
//! it.
//!
//! The processor on which a sender runs forwards the packets of offloaded flows. If it sleeps, its
//! wake-up is most of the round trip, and a worker that spins on another processor does not help.
//! The kernel's idle loop can spin instead: it does while a process holds a request for zero
//! latency at [`DEVICE`], and it gives way to every thread that becomes ready. The kernel drops the
//! request when the process that holds it ends.

use dp::SHORTEST_LATENCY_HOLD;
use nanos::Nanos;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::time::Duration;

/// The kernel's file for latency requests: 32 bits in the host's byte order, in microseconds, in
/// force until the file is closed.
const DEVICE: &str = "/dev/cpu_dma_latency";

/// A worker's part of it.
#[derive(Default)]
pub(crate) struct LatencyRequest {
    request: Option<File>,
    /// Number of packets of offloaded flows at the last check.
    carried: u64,
    /// Time of the next check; as soon as possible if `None`.
    next: Option<Nanos>,
}

impl LatencyRequest {
    /// Holds the request while offloaded flows carry packets, and drops it when none has come for
    /// `hold`. A `hold` below [`SHORTEST_LATENCY_HOLD`] means never. `carried` counts the packets;
    /// `None` without offloaded flows. The worker calls this in every turn.
    #[inline]
    pub(crate) fn keep(&mut self, now: Nanos, hold: Duration, carried: impl FnOnce() -> Option<u64>) {
        let is_off = hold < SHORTEST_LATENCY_HOLD && self.request.is_none() && self.next.is_none();
        if is_off || self.next.is_some_and(|next| now < next) {
            return;
        }
        self.look(now, hold, carried().filter(|_| hold >= SHORTEST_LATENCY_HOLD));
    }

    fn look(&mut self, now: Nanos, hold: Duration, carried: Option<u64>) {
        let Some(carried) = carried else {
            *self = LatencyRequest::default();
            return;
        };
        if carried == self.carried {
            self.request = None;
        } else if self.request.is_none() {
            // `DpUser::set_latency_hold` has reported an error to the user.
            self.request = request().ok();
        }
        self.carried = carried;
        self.next = Some(now + hold);
    }

    /// The latest time for the next call.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_whose_user_takes_the_request_back_has_nothing_to_wake_up_for() {
        let mut request = LatencyRequest::default();
        request.keep(Nanos::from_secs(1), Duration::from_millis(20), || Some(0));
        assert!(request.next().is_some());
        request.keep(Nanos::from_secs(2), Duration::ZERO, || Some(0));
        assert_eq!(request.next(), None);
    }
}
