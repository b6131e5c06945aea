//! Ways through the kernel for packets of which it is known where they go.
//!
//! A worker that has decided where a device's packets of one kind go can open a *shortcut*: from then on the kernel sends the like of them from
//! device to device by itself, and counts them. What is alike is decided by all that a switch can read of a packet but TCP's flags
//! ([`ShortcutKey`]), so a shortcut is never wider than the decision that it is made of.
//!
//! Shortcuts are opened with an epoch, and in force only as long as that is the present one: a change that may be about any of them makes all of
//! them wait at once ([`Shortcuts::set_epoch`]), and packets go through their workers, until these renew them.

use crate::isolation::Guard;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use sys::PacketSocket;
use sys::bpf::TcxLink;
use sys::bpf::shortcut::{self as bpf, PORTS, Way, Ways};

use parking_lot::Mutex;

mod key;

pub use key::ShortcutKey;
pub use sys::bpf::shortcut::{Carried, PortCarried, TagChange};

/// Shortcuts that there can be.
pub const MOST: u32 = bpf::WAYS;

/// All shortcuts of a datapath. Needs Linux 5.11 and the right to load programs.
pub struct Shortcuts {
    ways: Ways,
    /// Numbers of ways that nobody has, those that nobody has had for longest first.
    free: Mutex<VecDeque<u32>>,
    /// The same of ports.
    free_ports: Mutex<VecDeque<u32>>,
}

/// A port in the eyes of the kernel.
pub struct ShortcutPort {
    shortcuts: Arc<Shortcuts>,
    number: u32,
    ifindex: u32,
}

/// How packets leave by a shortcut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The longest that do, in bytes from the Ethernet header on without a tag; longer ones go through their worker, but for segments that the
    /// device cuts.
    pub longest: u32,
    /// They leave by the device's other end at once, as [`State::far_end_elsewhere`](crate::State::far_end_elsewhere) has to say that they can:
    /// sooner, and not seen by the device's qdisc, captures and counters.
    pub to_peer: bool,
    /// What becomes of their VLAN tag.
    pub tag: TagChange,
}

/// An open shortcut. Dropped, it is closed, by a call of the kernel.
pub struct Shortcut {
    shortcuts: Arc<Shortcuts>,
    number: u32,
    key: ShortcutKey,
}

/// What keeps a device's packets to their shortcuts, as long as it lives.
pub(crate) struct Guide {
    _redirect: Option<TcxLink>,
    /// Its number is in the programs.
    _port: Arc<ShortcutPort>,
}

impl Shortcuts {
    /// No shortcuts.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without the right to make maps, `ENOSYS` without BPF.
    pub fn new() -> io::Result<Arc<Shortcuts>> {
        Ok(Arc::new(Shortcuts {
            ways: Ways::new()?,
            free: Mutex::new((0..bpf::WAYS).collect()),
            free_ports: Mutex::new((1..PORTS).collect()),
        }))
    }

    /// A port that sends by a device of the kernel, and receives by it where [`Rx::guide`](crate::Rx::guide) is told; `None` where there are too
    /// many.
    pub fn port(self: &Arc<Shortcuts>, ifindex: u32) -> Option<Arc<ShortcutPort>> {
        let number = self.free_ports.lock().pop_front()?;
        self.ways.reset(number);
        Some(Arc::new(ShortcutPort {
            shortcuts: self.clone(),
            number,
            ifindex,
        }))
    }

    /// Makes shortcuts of other epochs wait.
    pub fn set_epoch(&self, epoch: u64) {
        self.ways.set_epoch(epoch);
    }
}

impl ShortcutPort {
    /// Opens a shortcut for packets of a key, which came in by the port that it was made for, to this one; `None` where there are too many.
    ///
    /// # Errors
    /// The kernel's: `ENOMEM`.
    pub fn open(&self, key: ShortcutKey, exit: Exit, epoch: u64) -> io::Result<Option<Shortcut>> {
        let Some(number) = self.shortcuts.free.lock().pop_front() else {
            return Ok(None);
        };
        let way = Way {
            port: self.number,
            ifindex: self.ifindex,
            longest: exit.longest,
            to_peer: exit.to_peer,
            tag: exit.tag,
        };
        // From here on it is closed when it is dropped.
        let shortcut = Shortcut {
            shortcuts: self.shortcuts.clone(),
            number,
            key,
        };
        self.shortcuts.ways.open(number, shortcut.key.bytes(), way, epoch)?;
        Ok(Some(shortcut))
    }

    /// What shortcuts have let in and out.
    pub fn carried(&self) -> PortCarried {
        self.shortcuts.ways.carried_by(self.number)
    }

    /// The key of a packet that came in by this port; `None` for one that cannot have a shortcut.
    pub fn key(&self, packet: &[u8]) -> Option<ShortcutKey> {
        ShortcutKey::of(self.number, packet)
    }

    /// Lets packets that a socket's device receives take their shortcuts, where the host's stack is kept out by `guard`; `None` where it is not.
    pub(crate) fn guide(
        self: &Arc<ShortcutPort>,
        socket: &PacketSocket,
        guard: &mut Guard,
    ) -> io::Result<Option<Guide>> {
        let programs = self.shortcuts.ways.programs(self.number)?;
        let redirect = match guard {
            Guard::Tcx { .. } => Some(programs.link_tcx(self.ifindex)?),
            Guard::Filter { filter } => {
                filter.replace(programs.redirect())?;
                None
            }
            Guard::Off => return Ok(None),
        };
        programs.filter(socket)?;
        Ok(Some(Guide {
            _redirect: redirect,
            _port: self.clone(),
        }))
    }
}

impl Drop for ShortcutPort {
    fn drop(&mut self) {
        self.shortcuts.free_ports.lock().push_back(self.number);
    }
}

impl Shortcut {
    /// Puts it in force in an epoch.
    pub fn renew(&self, epoch: u64) {
        self.shortcuts.ways.renew(self.number, epoch);
    }

    /// Lets nothing go by it any more.
    pub fn stop(&self) {
        self.shortcuts.ways.stop(self.number);
    }

    /// What has gone by it.
    pub fn carried(&self) -> Carried {
        self.shortcuts.ways.carried(self.number)
    }

    /// Of which packets it is.
    pub fn key(&self) -> &ShortcutKey {
        &self.key
    }
}

impl Drop for Shortcut {
    fn drop(&mut self) {
        self.stop();
        // It fails where opening it has.
        let _ = self.shortcuts.ways.close(self.key.bytes());
        self.shortcuts.free.lock().push_back(self.number);
    }
}

#[cfg(test)]
mod tests;
