//! Flows that a process before has left in force.

use crate::connections::{self, CONNECTION_WORDS};
use crate::shared::SharedArray;
use aya::maps::MapData;
use conntrack::{Bypass, Numbers, Passed};
use dp::offload::{MAX_CONNECTIONS, MAX_EPOCHS, connection_epoch};
use netdev::IngressPrograms;
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use sys::Error;

/// The programs of a process before, and the memory that its flows depend on.
///
/// Its connections can be bypassed by way of it, with the numbers that they had there.
pub struct Left {
    filter: OwnedFd,
    redirect: OwnedFd,
    connections: SharedArray,
    epochs: SharedArray,
    ended: AtomicBool,
}

impl Left {
    /// What [`FlowOffload::leave`](dp::offload::FlowOffload::leave) has returned in a process of
    /// the same version.
    ///
    /// # Errors
    /// `EINVAL` if it is something else.
    pub fn new(left: Vec<OwnedFd>) -> sys::Result<Left> {
        const CALL: &str = "bpf(BPF_OBJ_GET_INFO_BY_FD)";
        let [filter, redirect, connections, epochs] =
            <[OwnedFd; 4]>::try_from(left).map_err(|_| Error::of(CALL)(Errno::INVAL))?;
        let array = |fd, rows: u32, words| {
            let map = MapData::from_fd(fd).map_err(Error::behind(CALL))?;
            SharedArray::new(map, rows as usize, words)
        };
        Ok(Left {
            filter,
            redirect,
            connections: array(connections, MAX_CONNECTIONS, CONNECTION_WORDS)?,
            epochs: array(epochs, 1, MAX_EPOCHS as usize)?,
            ended: AtomicBool::new(false),
        })
    }

    /// Ends all its flows at once: their packets go to the queues of their devices.
    pub fn end(&self) {
        self.ended.store(true, Release);
        self.advance(0);
    }

    /// Whether [`Left::end`] was called.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Acquire)
    }

    /// Whether this can be the number of a connection.
    pub fn has_connection(&self, number: u32) -> bool {
        number < MAX_CONNECTIONS
    }

    pub(crate) fn programs(&self) -> IngressPrograms<'_> {
        IngressPrograms {
            filter: self.filter.as_fd(),
            redirect: self.redirect.as_fd(),
        }
    }

    fn advance(&self, epoch: u32) {
        self.epochs.row(0)[epoch as usize].fetch_add(1, Release);
    }
}

impl Bypass for Left {
    fn passed(&self, number: u32) -> Passed {
        connections::passed(&self.connections, number)
    }

    /// The flows know the numbers of the packets that they have forwarded.
    fn note(&self, _: u32, _: [Numbers; 2]) {}

    fn suspend(&self, number: u32) {
        self.advance(connection_epoch(number));
    }

    fn free(&self, _: u32) {}

    fn is_shared(&self) -> bool {
        false
    }
}
