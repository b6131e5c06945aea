//! Which file descriptors are ready, as epoll says it.

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Ready descriptors taken at once; the rest are ready the next time too, and the kernel turns its
/// list round.
const EVENTS: usize = 64;

/// A set of descriptors, each with a number chosen by who added it.
pub(crate) struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Poller> {
        Ok(Poller {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        })
    }

    /// Watches a descriptor for input, level-triggered.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(number);
        Ok(epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN)?)
    }

    /// Watches a descriptor until it is writable, once; that it is being watched already does not
    /// matter.
    pub(crate) fn once_writable(&self, fd: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(number);
        let flags = epoll::EventFlags::OUT | epoll::EventFlags::ONESHOT;
        match epoll::add(&self.epoll, fd, data, flags) {
            Err(Errno::EXIST) => Ok(epoll::modify(&self.epoll, fd, data, flags)?),
            added => Ok(added?),
        }
    }

    /// Stops to watch a descriptor.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        // A parked descriptor is not in the set; no other error can occur.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Waits until a descriptor is ready or `timeout` (`None`: for ever) is over; puts the numbers
    /// of ready ones into `ready`.
    pub(crate) fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<u64>) {
        ready.clear();
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((events, _)) => ready.extend(events.iter().map(|event| event.data.u64())),
            // A signal: the caller looks round and comes back.
            Err(Errno::INTR) => {}
            Err(_) => debug_assert!(false, "epoll_wait refused its own descriptor"),
        }
    }
}
