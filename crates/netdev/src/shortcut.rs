//! Shortcuts through the kernel, for packets of which a worker knows where they go.
//!
//! A worker that has decided where packets of one kind go can open a *shortcut*. From then on the
//! kernel sends such packets from device to device by itself, and counts them. Packets are of one
//! kind where everything is the same that a switch can read of them, but TCP's flags
//! ([`ShortcutKey`]). So a shortcut is never wider than the decision behind it.
//!
//! A shortcut depends on [epochs](Epoch): one of the datapath, one of each of its two ports, and
//! those that its owner names. To advance an epoch suspends every shortcut that depends on it, at
//! once and without a system call. Packets of a suspended shortcut go to their worker, which renews
//! it.
//!
//! All ports share one pool of shortcuts, fairly: see [`Refused`].

use crate::isolation::Guard;
use pool::Pool;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use sys::PacketSocket;
use sys::bpf::TcxLink;
use sys::bpf::shortcut::{self as bpf, EPOCHS, EPOCHS_OF_WAY, Key, PORTS, Programs, Way, Ways};

use parking_lot::Mutex;

mod key;
mod pool;
mod simulated;

pub use key::ShortcutKey;
pub use simulated::{Calls, Simulated};
pub use sys::bpf::shortcut::{Carried, PortCarried, TagChange};

/// Shortcuts that there can be.
pub const MOST: u32 = bpf::WAYS;

/// Epochs that the owner of a shortcut can name for it.
pub const MOST_EPOCHS: usize = EPOCHS_OF_WAY - 2;

/// What forwards packets: the kernel's programs ([`Ways`]), or [`Simulated`] in tests. Ways are
/// those of [`Ways`], by number.
pub trait Kernel: Send + Sync {
    /// As [`Ways::advance`].
    fn advance(&self, epoch: u32);
    /// As [`Ways::epoch`].
    fn epoch(&self, number: u32) -> u64;
    /// As [`Ways::open`].
    ///
    /// # Errors
    /// As those of [`Ways::open`].
    fn open(&self, number: u32, key: &Key, way: Way, epochs: &[u32], sum: u64) -> io::Result<()>;
    /// As [`Ways::renew`].
    fn renew(&self, number: u32, sum: u64);
    /// As [`Ways::stop`].
    fn stop(&self, number: u32);
    /// As [`Ways::close`].
    ///
    /// # Errors
    /// As those of [`Ways::close`].
    fn close(&self, key: &Key) -> io::Result<()>;
    /// As [`Ways::carried`].
    fn carried(&self, number: u32) -> Carried;
    /// As [`Ways::carried_by`].
    fn carried_by(&self, port: u32) -> PortCarried;
    /// As [`Ways::reset`].
    fn reset(&self, port: u32);
    /// As [`Ways::programs`].
    ///
    /// # Errors
    /// As those of [`Ways::programs`].
    fn programs(&self, port: u32) -> io::Result<Programs>;
}

/// All shortcuts of a datapath. Needs Linux 5.11 and the right to load programs.
pub struct Shortcuts {
    kernel: Arc<dyn Kernel>,
    pool: Pool,
    /// Numbers of ports that nobody has, those that nobody has had for longest first.
    free_ports: Mutex<VecDeque<u32>>,
    /// Numbers of epochs that nobody has. Number 0 is for all shortcuts, those up to [`PORTS`] are
    /// the ports'.
    free_epochs: Mutex<Vec<u32>>,
}

/// A port in the eyes of the kernel.
pub struct ShortcutPort {
    shortcuts: Arc<Shortcuts>,
    number: u32,
    ifindex: u32,
}

/// A number that shortcuts depend on: they are suspended when it [advances](Epoch::advance).
pub struct Epoch {
    shortcuts: Arc<Shortcuts>,
    number: u32,
}

/// How packets leave by a shortcut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The longest that do, in bytes from the Ethernet header on without a tag; longer ones go
    /// through their worker, but for segments that the device cuts.
    pub longest: u32,
    /// They leave by the device's other end at once, as
    /// [`State::far_end_elsewhere`](crate::State::far_end_elsewhere) has to say that they can:
    /// sooner, and not seen by the device's qdisc, captures and counters.
    pub to_peer: bool,
    /// What becomes of their VLAN tag.
    pub tag: TagChange,
}

/// An open shortcut. Dropped, it is closed, by a call of the kernel.
pub struct Shortcut {
    from: Arc<ShortcutPort>,
    to: Arc<ShortcutPort>,
    number: u32,
    key: ShortcutKey,
    stopped: bool,
}

/// Why a shortcut was not opened.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The pool is nearly empty, and the port that the packets come in by has its share of it: an
    /// equal part for each port that has shortcuts, and one for a port that has none yet.
    #[error("the port has its share of shortcuts, and few are left")]
    OverShare,
    /// The pool is empty.
    #[error("there are {MOST} shortcuts")]
    Full,
    /// Another worker has one for the same packets and has not closed it yet.
    #[error("packets of the same key have a shortcut")]
    Taken,
    /// The kernel's answer: `ENOMEM`.
    #[error(transparent)]
    Kernel(#[from] io::Error),
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
        Ok(Shortcuts::over(Arc::new(Ways::new()?)))
    }

    /// No shortcuts, over a kernel that has none.
    pub fn over(kernel: Arc<dyn Kernel>) -> Arc<Shortcuts> {
        Arc::new(Shortcuts {
            kernel,
            pool: Pool::new(bpf::WAYS, PORTS),
            free_ports: Mutex::new((1..PORTS).collect()),
            // The last one is nobody's.
            free_epochs: Mutex::new((PORTS..EPOCHS - 1).rev().collect()),
        })
    }

    /// A port that sends by a device of the kernel, and receives by it where
    /// [`Rx::guide`](crate::Rx::guide) is told; `None` where there are too many.
    pub fn port(self: &Arc<Shortcuts>, ifindex: u32) -> Option<Arc<ShortcutPort>> {
        let number = self.free_ports.lock().pop_front()?;
        self.kernel.reset(number);
        Some(Arc::new(ShortcutPort {
            shortcuts: self.clone(),
            number,
            ifindex,
        }))
    }

    /// A new epoch; `None` where there are too many.
    pub fn epoch(self: &Arc<Shortcuts>) -> Option<Epoch> {
        let number = self.free_epochs.lock().pop()?;
        Some(Epoch {
            shortcuts: self.clone(),
            number,
        })
    }

    /// Suspends all shortcuts.
    pub fn suspend_all(&self) {
        self.kernel.advance(0);
    }

    /// How many shortcuts are left.
    pub fn left(&self) -> u32 {
        self.pool.left()
    }

    /// Whether so few shortcuts are left that ports with more than their share have to close some:
    /// see [`ShortcutPort::surplus`].
    pub fn are_short(&self) -> bool {
        self.pool.is_short()
    }
}

impl Epoch {
    /// Suspends every shortcut that depends on it.
    pub fn advance(&self) {
        self.shortcuts.kernel.advance(self.number);
    }

    /// Its number, for [`ShortcutPort::open`].
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.shortcuts.free_epochs.lock().push(self.number);
    }
}

impl ShortcutPort {
    /// The sum of the epochs of a shortcut from `from` to this port whose owner names `epochs`. The
    /// owner reads it before it checks that its decision still holds.
    pub fn sum(&self, from: &ShortcutPort, epochs: &[u32]) -> u64 {
        let kernel = &self.shortcuts.kernel;
        let all = self.epochs(from, epochs).chain([0]);
        all.fold(0, |sum, number| sum.wrapping_add(kernel.epoch(number)))
    }

    fn epochs(&self, from: &ShortcutPort, epochs: &[u32]) -> impl Iterator<Item = u32> {
        [from.number, self.number].into_iter().chain(epochs.iter().copied())
    }

    /// Opens a shortcut to this port for packets with `key`, which come in by `from`. It is in
    /// force while the sum of its epochs is [`sum`](Self::sum).
    ///
    /// # Errors
    /// [`Refused`].
    pub fn open(
        self: &Arc<ShortcutPort>,
        from: &Arc<ShortcutPort>,
        key: ShortcutKey,
        exit: Exit,
        epochs: &[u32],
        sum: u64,
    ) -> Result<Shortcut, Refused> {
        let Shortcuts { kernel, pool, .. } = &*self.shortcuts;
        let number = pool.take(from.number)?;
        let way = Way {
            port: self.number,
            ifindex: self.ifindex,
            longest: exit.longest,
            to_peer: exit.to_peer,
            tag: exit.tag,
        };
        let all: Vec<u32> = self.epochs(from, epochs).collect();
        if let Err(error) = kernel.open(number, key.bytes(), way, &all, sum) {
            pool.leave(from.number);
            pool.give_back(number);
            return Err(match error.kind() {
                io::ErrorKind::AlreadyExists => Refused::Taken,
                _ => error.into(),
            });
        }
        Ok(Shortcut {
            from: from.clone(),
            to: self.clone(),
            number,
            key,
            stopped: false,
        })
    }

    /// Suspends every shortcut from and to this port, whoever has it.
    pub fn suspend(&self) {
        self.shortcuts.kernel.advance(self.number);
    }

    /// Number of shortcuts from this port that its workers have to close, because few are left and
    /// it has more than its share.
    pub fn surplus(&self) -> u32 {
        self.shortcuts.pool.surplus(self.number)
    }

    /// All shortcuts of the datapath.
    pub fn shortcuts(&self) -> &Arc<Shortcuts> {
        &self.shortcuts
    }

    /// What shortcuts have let in and out.
    pub fn carried(&self) -> PortCarried {
        self.shortcuts.kernel.carried_by(self.number)
    }

    /// The key of a packet that came in by this port; `None` for one that cannot have a shortcut.
    pub fn key(&self, packet: &[u8]) -> Option<ShortcutKey> {
        ShortcutKey::of(self.number, packet)
    }

    /// Lets packets that a socket's device receives take their shortcuts, where the host's stack is
    /// kept out by `guard`; `None` where it is not.
    pub(crate) fn guide(
        self: &Arc<ShortcutPort>,
        socket: &PacketSocket,
        guard: &mut Guard,
    ) -> io::Result<Option<Guide>> {
        let programs = self.shortcuts.kernel.programs(self.number)?;
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
    /// Puts it in force while its epochs have this [sum](ShortcutPort::sum).
    pub fn renew(&self, sum: u64) {
        self.to.shortcuts.kernel.renew(self.number, sum);
    }

    /// Stops forwarding by it. It no longer counts for its port. The kernel may count a packet that
    /// is on its way at this moment a little later.
    pub fn stop(&mut self) {
        if !std::mem::replace(&mut self.stopped, true) {
            self.to.shortcuts.kernel.stop(self.number);
            self.to.shortcuts.pool.leave(self.from.number);
        }
    }

    /// What has gone by it.
    pub fn carried(&self) -> Carried {
        self.to.shortcuts.kernel.carried(self.number)
    }

    /// Of which packets it is.
    pub fn key(&self) -> &ShortcutKey {
        &self.key
    }
}

impl Drop for Shortcut {
    fn drop(&mut self) {
        self.stop();
        let Shortcuts { kernel, pool, .. } = &*self.to.shortcuts;
        // There is one.
        let _ = kernel.close(self.key.bytes());
        pool.give_back(self.number);
    }
}

impl Kernel for Ways {
    fn advance(&self, epoch: u32) {
        self.advance(epoch);
    }

    fn epoch(&self, number: u32) -> u64 {
        self.epoch(number)
    }

    fn open(&self, number: u32, key: &Key, way: Way, epochs: &[u32], sum: u64) -> io::Result<()> {
        Ok(self.open(number, key, way, epochs, sum)?)
    }

    fn renew(&self, number: u32, sum: u64) {
        self.renew(number, sum);
    }

    fn stop(&self, number: u32) {
        self.stop(number);
    }

    fn close(&self, key: &Key) -> io::Result<()> {
        Ok(self.close(key)?)
    }

    fn carried(&self, number: u32) -> Carried {
        self.carried(number)
    }

    fn carried_by(&self, port: u32) -> PortCarried {
        self.carried_by(port)
    }

    fn reset(&self, port: u32) {
        self.reset(port);
    }

    fn programs(&self, port: u32) -> io::Result<Programs> {
        Ok(self.programs(port)?)
    }
}

#[cfg(test)]
mod tests;
