//! Keeps the host's stack out of a device that belongs to the switch.
//!
//! Packet sockets see the packets that a device receives first; then a program on the device's
//! ingress drops them, so that the host's stack does not handle the same packets a second time (it
//! would answer TCP segments for others with resets, and route between ports). Two ways to attach
//! it:
//!
//! - a TCX link (Linux 6.6): the kernel removes it with the process, however that ends;
//! - a filter in a `clsact` qdisc: removed when the device is closed. A process that is killed
//!   leaves it behind. The next one that opens the device takes it over, with a program of its own;
//!   [`remove_leftovers`] removes it from other devices. The empty qdisc stays, as it may be
//!   another program's; it does nothing to packets.
//!
//! A process that ends can leave its TCX links to another one ([`LeftDevice`]); the next that opens
//! the device takes them over ([`take_over`]), in the place among other programs that they have.
//!
//! Qdiscs and programs of others stay, and run after ours. An `ingress` or `clsact` qdisc that
//! exists is used.

use crate::claim;
use crate::monitor::list_links;
use crate::netlink::{Netlink, tc};
use crate::programs;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use sys::bpf::{Hook, Link};

/// How the host's stack is kept out of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// By a TCX link, or where the kernel has none, by a filter.
    #[default]
    Auto,
    /// By a TCX link only (Linux 6.6).
    Tcx,
    /// By a filter in a `clsact` qdisc only.
    Filter,
    /// Not at all: the host's stack sees the packets too.
    Off,
}

/// Keeps the host's stack out as long as it lives.
pub(crate) enum Guard {
    Tcx(TcxGuard),
    Filter(FilterGuard),
    Off,
}

/// Links, removed with their descriptors.
pub(crate) struct TcxGuard {
    ifindex: u32,
    /// Comes before the other.
    first: Option<Link>,
    drop_all: Link,
}

/// The links of a device whose flows stay in force when a process ends.
pub struct LeftDevice {
    /// The device.
    pub ifindex: u32,
    /// The link of the program that forwards.
    pub first: OwnedFd,
    /// The link of the one behind it, which drops all.
    pub drop_all: OwnedFd,
}

/// The links that a process before has left, by device.
static LEFT: Mutex<BTreeMap<u32, LeftDevice>> = Mutex::new(BTreeMap::new());

/// Lets those who open these devices next, in the calling process, take over their links. Devices
/// of one network namespace.
pub fn take_over(devices: Vec<LeftDevice>) {
    LEFT.lock()
        .extend(devices.into_iter().map(|device| (device.ifindex, device)));
}

/// Whether there are links that nobody has taken over.
pub fn has_left() -> bool {
    !LEFT.lock().is_empty()
}

/// Gives the links up that nobody has taken over.
pub fn forget_left() {
    LEFT.lock().clear();
}

/// A filter, removed on drop.
pub(crate) struct FilterGuard {
    netlink: Netlink,
    ifindex: u32,
    filter: tc::Filter,
    made_qdisc: bool,
}

/// Set where the kernel turned out to be without TCX.
static NO_TCX: AtomicBool = AtomicBool::new(false);

impl Guard {
    /// Attaches the program.
    pub(crate) fn attach(ifindex: u32, how: Isolation) -> io::Result<Guard> {
        match how {
            Isolation::Off => Ok(Guard::Off),
            Isolation::Tcx => Ok(Guard::Tcx(TcxGuard::attach(ifindex)?)),
            Isolation::Filter => Ok(Guard::Filter(FilterGuard::attach(ifindex)?)),
            Isolation::Auto => {
                if !NO_TCX.load(Ordering::Relaxed) {
                    match TcxGuard::attach(ifindex) {
                        Ok(guard) => {
                            remove_leftover(ifindex);
                            return Ok(Guard::Tcx(guard));
                        }
                        Err(error) => NO_TCX.store(means_unsupported(&error), Ordering::Relaxed),
                    }
                }
                Ok(Guard::Filter(FilterGuard::attach(ifindex)?))
            }
        }
    }

    /// Runs a program, which keeps the host's stack out as well, before the one that drops all, or
    /// instead of it. Returns `false`, and does nothing, if the host's stack is not kept out.
    pub(crate) fn put_first(&mut self, program: BorrowedFd<'_>) -> io::Result<bool> {
        match self {
            Guard::Tcx(guard) => {
                if let Some(first) = &guard.first {
                    first.update(program)?;
                } else {
                    guard.first = Some(Link::attach(program, guard.ifindex, Hook::Ingress)?);
                }
            }
            Guard::Filter(guard) => guard.replace(program)?,
            Guard::Off => return Ok(false),
        }
        Ok(true)
    }

    /// Copies of the links, if there are two.
    pub(crate) fn left(&self) -> io::Result<Option<LeftDevice>> {
        match self {
            Guard::Tcx(TcxGuard {
                ifindex,
                first: Some(first),
                drop_all,
            }) => Ok(Some(LeftDevice {
                ifindex: *ifindex,
                first: first.copy_fd()?,
                drop_all: drop_all.copy_fd()?,
            })),
            _ => Ok(None),
        }
    }

    /// The method in use.
    pub(crate) fn method(&self) -> Isolation {
        match self {
            Guard::Tcx(_) => Isolation::Tcx,
            Guard::Filter(_) => Isolation::Filter,
            Guard::Off => Isolation::Off,
        }
    }
}

impl TcxGuard {
    fn attach(ifindex: u32) -> io::Result<TcxGuard> {
        let program = programs::drop_all()?;
        let left = LEFT.lock().remove(&ifindex);
        if let Some(left) = left {
            let drop_all = Link::from_fd(left.drop_all);
            // It fails if that device has gone and another one has its number.
            if drop_all.update(program).is_ok() {
                return Ok(TcxGuard {
                    ifindex,
                    first: Some(Link::from_fd(left.first)),
                    drop_all,
                });
            }
        }
        Ok(TcxGuard {
            ifindex,
            first: None,
            drop_all: Link::attach(program, ifindex, Hook::Ingress)?,
        })
    }
}

/// Older kernels do not know the attach type, or the command.
fn means_unsupported(error: &io::Error) -> bool {
    let errnos = [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP];
    errnos
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Removes the filter of a process that was killed. A failure is harmless: until the device is
/// closed, its packets are dropped anyway.
fn remove_leftover(ifindex: u32) {
    let _ = Netlink::open().and_then(|mut netlink| match tc::find_filter(&mut netlink, ifindex)? {
        Some(filter) => tc::remove_filter(&mut netlink, ifindex, filter),
        None => Ok(()),
    });
}

/// Removes the filters that killed processes, of any version, have left on devices, which gives
/// those devices back to the host's stack: all of the calling thread's network namespace, so call
/// it before opening any. Returns the devices' names. Filters of devices that a running switch
/// claims stay.
///
/// # Errors
/// The kernel's.
pub fn remove_leftovers() -> io::Result<Vec<String>> {
    let mut netlink = Netlink::open()?;
    let mut freed = Vec::new();
    for link in list_links()? {
        // It fails where the device has gone meanwhile, or can have no filters.
        if let Ok(Some(filter)) = tc::find_filter(&mut netlink, link.ifindex)
            && let Some(_claim) = claim::if_free(link.ifindex)
            && tc::remove_filter(&mut netlink, link.ifindex, filter).is_ok()
        {
            freed.push(link.name);
        }
    }
    Ok(freed)
}

impl FilterGuard {
    fn attach(ifindex: u32) -> io::Result<FilterGuard> {
        let mut netlink = Netlink::open()?;
        let made_qdisc = tc::ensure_clsact(&mut netlink, ifindex)?;
        let attached = match tc::find_filter(&mut netlink, ifindex) {
            Ok(Some(leftover)) => programs::drop_all().map_err(io::Error::from).and_then(|program| {
                tc::replace_filter(&mut netlink, ifindex, leftover, program)?;
                Ok(leftover)
            }),
            Ok(None) => programs::drop_all()
                .map_err(io::Error::from)
                .and_then(|program| tc::add_filter(&mut netlink, ifindex, program)),
            Err(error) => Err(error),
        };
        if attached.is_err() && made_qdisc {
            let _ = tc::remove_empty_clsact(&mut netlink, ifindex);
        }
        Ok(FilterGuard {
            filter: attached?,
            netlink,
            ifindex,
            made_qdisc,
        })
    }

    fn replace(&mut self, program: BorrowedFd<'_>) -> io::Result<()> {
        tc::replace_filter(&mut self.netlink, self.ifindex, self.filter, program)
    }
}

impl Drop for FilterGuard {
    fn drop(&mut self) {
        // It fails where the device is gone, and the filter with it.
        let removed = tc::remove_filter(&mut self.netlink, self.ifindex, self.filter);
        if removed.is_ok() && self.made_qdisc {
            let _ = tc::remove_empty_clsact(&mut self.netlink, self.ifindex);
        }
    }
}
