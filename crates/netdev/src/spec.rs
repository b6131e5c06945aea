//! Which device to open, and the errors of opening it.

use crate::{Afxdp, AfxdpConfig, Dummy, DummyKind, Isolation, Memory, Netdev, System, Tap};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use wire::MacAddr;

/// A device to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// A device of the kernel that exists.
    System {
        /// Its name.
        name: String,
    },
    /// The same, through AF_XDP sockets.
    Afxdp {
        /// Its name.
        name: String,
        /// Its settings.
        config: AfxdpConfig,
    },
    /// A device to be made for the host's stack.
    Internal {
        /// Its name.
        name: String,
        /// Its address; without one the kernel chooses.
        mac: Option<MacAddr>,
        /// Largest packet in bytes.
        mtu: u32,
    },
    /// A TAP device to be made.
    Tap {
        /// Its name.
        name: String,
    },
    /// A device of memory.
    Dummy {
        /// Its name.
        name: String,
        /// The type that it is shown with.
        kind: DummyKind,
        /// See [`Dummy::open`].
        options: BTreeMap<String, String>,
    },
    /// A device that receives the packets of a file.
    Pcap {
        /// Its name.
        name: String,
        /// `rx_pcap`, `infinite_rx`: see [`Memory::pcap`].
        options: BTreeMap<String, String>,
    },
    /// A device without receive traffic that discards sent packets.
    Null {
        /// Its name.
        name: String,
    },
}

impl Spec {
    /// The device's name.
    pub fn name(&self) -> &str {
        match self {
            Spec::System { name }
            | Spec::Afxdp { name, .. }
            | Spec::Internal { name, .. }
            | Spec::Tap { name }
            | Spec::Dummy { name, .. }
            | Spec::Pcap { name, .. }
            | Spec::Null { name } => name,
        }
    }

    /// Whether it is a device of the kernel with this name. The others exist in memory only.
    pub fn is_kernels(&self) -> bool {
        match self {
            Spec::System { .. } | Spec::Afxdp { .. } | Spec::Internal { .. } | Spec::Tap { .. } => true,
            Spec::Dummy { .. } | Spec::Pcap { .. } | Spec::Null { .. } => false,
        }
    }
}

/// Opens a device.
///
/// # Errors
/// See [`Error`].
pub fn open(spec: &Spec) -> Result<Arc<dyn Netdev>, Error> {
    Ok(match spec {
        Spec::System { name } => Arc::new(System::open(name, Isolation::Auto)?),
        Spec::Afxdp { name, config } => Arc::new(Afxdp::open(name, *config)?),
        Spec::Internal { name, mac, mtu } => Arc::new(Tap::internal(name, *mac, *mtu)?),
        Spec::Tap { name } => Arc::new(Tap::open(name)?),
        Spec::Dummy { name, kind, options } => Arc::new(Dummy::open_as(name, *kind, options)?),
        Spec::Pcap { name, options } => Arc::new(Memory::pcap(name, options)?),
        Spec::Null { name } => Arc::new(Memory::null(name)?),
    })
}

/// Why a device could not be opened. The texts are Open vSwitch's in `Interface.error`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no device of that name.
    #[error("could not open network device {0} (No such device)")]
    NoDevice(String),
    /// Longer than 15 bytes, empty, `.`, `..`, or with a slash, a colon or white space in it.
    #[error("could not open network device {0} (Invalid argument)")]
    BadName(String),
    /// The kernel refused one of the steps.
    #[error("could not open network device {name} ({})", sys::strerror(.source))]
    System {
        /// The device's name.
        name: String,
        /// The refused system call, or its purpose.
        call: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file named in the options could not be made.
    #[error("{name}: {path}: could not create ({})", sys::strerror(.source))]
    File {
        /// The device's name.
        name: String,
        /// The file.
        path: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file named in the options could not be read.
    #[error("{name}: {path}: could not read ({})", sys::strerror(.source))]
    Read {
        /// The device's name.
        name: String,
        /// The file.
        path: String,
        /// The kernel's error, or what is wrong with the file.
        source: io::Error,
    },
    /// An option is missing or wrong.
    #[error("{name}: {reason}")]
    Option {
        /// The device's name.
        name: String,
        /// Which one, and what it should be.
        reason: String,
    },
}

impl Error {
    /// Whether a retry may succeed without a change of the device: another program uses it now, or
    /// the system is short of a resource.
    pub fn may_pass(&self) -> bool {
        match self {
            Error::System { source, .. } => may_pass(source),
            Error::NoDevice(_) | Error::BadName(_) | Error::File { .. } | Error::Read { .. } | Error::Option { .. } => {
                false
            }
        }
    }
}

/// Whether a retry may succeed: another program uses the device now, or the system is short of a
/// resource.
pub fn may_pass(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrInUse, AlreadyExists, OutOfMemory, ResourceBusy};
    let short = [Errno::NFILE, Errno::MFILE, Errno::NOBUFS, Errno::AGAIN];
    matches!(error.kind(), AddrInUse | AlreadyExists | OutOfMemory | ResourceBusy)
        || short
            .iter()
            .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
