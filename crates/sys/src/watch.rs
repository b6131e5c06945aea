//! Registration of a descriptor with tokio's runtime, for the crates that may await (feature
//! `tokio`). Nothing here waits.

use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor that the runtime watches as long as the value lives. It is lent, never given back
/// or exchanged.
#[derive(Debug)]
pub struct Watched(AsyncFd<OwnedFd>);

impl Watched {
    /// Watches a descriptor for the events of `interest`. Call it inside a runtime.
    ///
    /// # Errors
    /// The kernel's: `EPERM` for a descriptor that cannot be polled, such as a regular file.
    ///
    /// # Panics
    /// Outside a runtime.
    pub fn new(fd: OwnedFd, interest: Interest) -> io::Result<Watched> {
        // SAFETY: an `OwnedFd` keeps its descriptor open and the same as long as it lives. The
        // `AsyncFd` owns it, and this type gives out shared references only, through which it can
        // be neither taken out nor exchanged.
        let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
        Ok(Watched(watched?))
    }
}

impl Deref for Watched {
    type Target = AsyncFd<OwnedFd>;

    fn deref(&self) -> &AsyncFd<OwnedFd> {
        &self.0
    }
}
