//! Counters of the processor, of one thread.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};

/// The counted event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Cycles of the processor that the thread had.
    Cycles,
    /// Instructions that it executed.
    Instructions,
}

/// A counter of a thread: in user mode and in the kernel, from its opening on.
#[derive(Debug)]
pub struct Counter(File);

/// The beginning of `struct perf_event_attr`, which is a version of its own
/// (`PERF_ATTR_SIZE_VER0`).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

/// `PERF_TYPE_HARDWARE`.
const HARDWARE: u32 = 0;

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: libc::c_ulong = 8;

/// `PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING`.
const TIMES: u64 = 3;

impl Counter {
    /// Begins to count for a thread, by its number from `gettid(2)`.
    ///
    /// # Errors
    /// `ENOENT` if the processor, as in most virtual machines, has no such counter; `EACCES` or
    /// `EPERM` if the process may not; `ESRCH` if the thread does not exist.
    pub fn of_thread(thread: u32, event: Event) -> Result<Counter> {
        let attributes = Attributes {
            kind: HARDWARE,
            size: size_of::<Attributes>() as u32,
            config: match event {
                Event::Cycles => 0,
                Event::Instructions => 1,
            },
            read_format: TIMES,
            ..Attributes::default()
        };
        // SAFETY: the kernel reads `size` bytes of the structure, all of them initialised, and
        // keeps no reference to it. -1 and -1: on any processor, in no group.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                thread.cast_signed(),
                -1,
                -1,
                CLOEXEC,
            )
        };
        let fd = i32::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            return Err(Error::last("perf_event_open"));
        }
        // SAFETY: the kernel has just returned this descriptor; it has no other owner.
        Ok(Counter(unsafe { OwnedFd::from_raw_fd(fd) }.into()))
    }

    /// The count up to now. If the processor has too few counters and the kernel multiplexes them,
    /// the count is scaled by the time that this one was active.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self) -> Result<u64> {
        let mut words = [0; 24];
        (&self.0)
            .read_exact(&mut words)
            .map_err(Error::of("read(perf_event)"))?;
        let word = |n: usize| {
            words[n * 8..]
                .first_chunk()
                .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        let (count, enabled, running) = (word(0), word(1), word(2));
        Ok(match running {
            0 => 0,
            _ => (u128::from(count) * u128::from(enabled) / u128::from(running)) as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_counted_or_the_kernel_says_why_not() {
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        match Counter::of_thread(own, Event::Instructions) {
            Ok(counter) => {
                let before = counter.read().unwrap();
                std::hint::black_box((0..100_000_u64).fold(0, |sum, n| std::hint::black_box(sum + n)));
                assert!(counter.read().unwrap() > before + 100_000);
            }
            Err(error) => assert!(error.to_string().starts_with("perf_event_open: "), "{error}"),
        }
    }

    #[test]
    fn a_thread_that_is_not_there_has_no_counters() {
        assert!(Counter::of_thread(i32::MAX.cast_unsigned(), Event::Cycles).is_err());
    }
}
