//! The eBPF programs of devices, from the objects of the files in `bpf/` (`cargo xtask bpf`), and
//! what others need to load theirs.

use aya::maps::{MapData, XskMap};
use aya::programs::{Program, ProgramError, ProgramFd, SchedClassifier, Xdp};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{LazyLock, OnceLock};
use sys::bpf::{Hook, Link};
use sys::{Error, Result};

/// The name of [`drop_all`], as `bpftool prog` and `tc filter show` print it.
pub(crate) const DROP: &str = "oxvs_drop";

const LOAD: &str = "bpf(BPF_PROG_LOAD)";

/// Loads objects. The programs need no types of the running kernel, which would take a tenth of a
/// second to read each time.
pub fn loader() -> MutexGuard<'static, EbpfLoader<'static>> {
    static LOADER: LazyLock<Mutex<EbpfLoader<'static>>> = LazyLock::new(|| {
        let mut loader = EbpfLoader::new();
        loader.btf(None);
        Mutex::new(loader)
    });
    LOADER.lock()
}

/// The program that keeps a device's packets from the host's stack. Needs `CAP_BPF` and
/// `CAP_NET_ADMIN`, or `CAP_SYS_ADMIN`.
///
/// # Errors
/// The kernel's: `EPERM`, `ENOSYS` without BPF.
pub(crate) fn drop_all() -> Result<BorrowedFd<'static>> {
    static LOADED: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(program) = LOADED.get() {
        return Ok(program.as_fd());
    }
    let object = loader().load(include_bytes_aligned!("../bpf/isolate.o"));
    let mut object = object.map_err(Error::behind(LOAD))?;
    let program: &mut SchedClassifier = program(&mut object, DROP)?;
    program.load().map_err(Error::behind(LOAD))?;
    let own = own(program.fd())?;
    Ok(LOADED.get_or_init(|| own).as_fd())
}

/// AF_XDP sockets by the number of a queue, and the program that hands them their packets.
pub(crate) struct Sockets {
    map: XskMap<MapData>,
    program: OwnedFd,
}

impl Sockets {
    /// An empty map of sockets, for queues of numbers below `queues`. With `fragments`, packets may
    /// be in several buffers (Linux 5.18).
    ///
    /// # Errors
    /// The kernel's: `EPERM`, `ENOSYS` without BPF, `EINVAL` without AF_XDP, if `queues` is zero,
    /// or if the kernel does not support `fragments`.
    pub(crate) fn new(queues: u32, fragments: bool) -> Result<Sockets> {
        let mut object = loader()
            .map_max_entries("oxvs_sockets", queues)
            .load(include_bytes_aligned!("../bpf/xsk.o"))
            .map_err(Error::behind("bpf(BPF_MAP_CREATE)"))?;
        let map = object.take_map("oxvs_sockets").ok_or_else(|| missing("oxvs_sockets"))?;
        let name = if fragments { "oxvs_xsk_frags" } else { "oxvs_xsk" };
        let program: &mut Xdp = program(&mut object, name)?;
        program.load().map_err(Error::behind(LOAD))?;
        Ok(Sockets {
            map: XskMap::try_from(map).map_err(Error::behind(LOAD))?,
            program: own(program.fd())?,
        })
    }

    /// Lets a queue's packets go to a socket that is bound to that queue.
    ///
    /// # Errors
    /// `E2BIG` where the queue's number is too large, `EINVAL` or `EOPNOTSUPP` where the descriptor
    /// is not an AF_XDP socket's.
    pub(crate) fn set(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<()> {
        let set = self.map.set(queue, socket.as_raw_fd(), 0);
        set.map_err(Error::behind("bpf(BPF_MAP_UPDATE_ELEM)"))
    }

    /// Attaches the program to the ingress of a device.
    ///
    /// # Errors
    /// As those of [`Link::attach`].
    pub(crate) fn attach(&self, ifindex: u32, hook: Hook) -> Result<Link> {
        Link::attach(self.program.as_fd(), ifindex, hook)
    }
}

/// A program of an object.
///
/// # Errors
/// The object has none of the name, or of another type.
pub fn program<'a, P>(object: &'a mut Ebpf, name: &str) -> Result<&'a mut P>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let program = object.program_mut(name).ok_or_else(|| missing(name))?;
    program.try_into().map_err(Error::behind(LOAD))
}

/// The program stays loaded as long as this descriptor is open.
///
/// # Errors
/// The program is not loaded, or the kernel's.
pub fn own(program: std::result::Result<&ProgramFd, ProgramError>) -> Result<OwnedFd> {
    let program = program.map_err(Error::behind(LOAD))?.as_fd();
    program
        .try_clone_to_owned()
        .map_err(Error::of("fcntl(F_DUPFD_CLOEXEC)"))
}

/// The error of an object without a program or a map.
pub fn missing(name: &str) -> Error {
    Error::of(LOAD)(io::Error::new(
        io::ErrorKind::NotFound,
        format!("the object has no {name}"),
    ))
}
