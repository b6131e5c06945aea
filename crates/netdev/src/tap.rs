//! TAP devices, and internal ports, which are TAP devices with the host's stack at the other end.
//!
//! The device exists as long as it is open. Vnet headers go both ways: the host's stack leaves
//! checksums and segmentation pending, and takes packets that have them pending.

use crate::kernel::{KernelDevice, check_name};
use crate::{DeviceDrops, Error, Frame, Kind, Netdev, Rx, State, Tx, TxReport};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use sys::tap::TapOffloads;
use wire::MacAddr;

/// A TAP device made by the switch.
pub struct Tap {
    kind: Kind,
    device: KernelDevice,
    offloads: TapOffloads,
    fd: Arc<OwnedFd>,
    rx_errors: Arc<AtomicU64>,
}

impl Tap {
    /// Creates an internal port. Takes over a TAP device of that name that no process has open:
    /// Open vSwitch leaves its own when it ends.
    ///
    /// # Errors
    /// [`Error::BadName`], or the kernel's: `EBUSY` where the name is taken.
    pub fn internal(name: &str, mac: Option<MacAddr>, mtu: u32) -> Result<Tap, Error> {
        let tap = Tap::make(name, Kind::Internal)?;
        tap.device.set(Some(mtu), mac, None).map_err(|source| Error::System {
            name: name.to_owned(),
            call: "RTM_SETLINK",
            source,
        })?;
        Ok(tap)
    }

    /// Creates a TAP device, or opens a persistent one.
    ///
    /// # Errors
    /// [`Error::BadName`], or the kernel's: `EBUSY` where another process has it.
    pub fn open(name: &str) -> Result<Tap, Error> {
        Tap::make(name, Kind::Tap)
    }

    fn make(name: &str, kind: Kind) -> Result<Tap, Error> {
        check_name(name)?;
        let failed = |error: sys::Error| Error::System {
            name: name.to_owned(),
            call: error.call,
            source: error.source,
        };
        let fd = match kind {
            Kind::Internal => open_internal(name),
            _ => sys::tap::open(name, false),
        };
        let fd = fd.map_err(failed)?;
        let offloads = sys::tap::set_offloads(fd.as_fd()).map_err(failed)?;
        let device = KernelDevice::find(name)?;
        Ok(Tap {
            kind,
            device,
            offloads,
            fd: Arc::new(fd),
            rx_errors: Arc::default(),
        })
    }
}

/// Creates a device, or takes over one that no process has open; the device then ends with this
/// process.
fn open_internal(name: &str) -> sys::Result<OwnedFd> {
    match sys::tap::open(name, true) {
        Err(busy) if busy.errno() == Some(Errno::BUSY.raw_os_error()) => {
            // The name may belong to another kind of device: the first error is clearer.
            let fd = sys::tap::open(name, false).map_err(|_| busy)?;
            sys::tap::unset_persistent(fd.as_fd())?;
            Ok(fd)
        }
        result => result,
    }
}

impl Netdev for Tap {
    fn name(&self) -> &str {
        &self.device.name
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn state(&self) -> io::Result<State> {
        self.device.state()
    }

    fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        self.device.set(Some(mtu), None, None)
    }

    fn set_mac(&self, mac: MacAddr) -> io::Result<()> {
        self.device.set(None, Some(mac), None)
    }

    fn set_up(&self, up: bool) -> io::Result<()> {
        self.device.set(None, None, Some(up))
    }

    fn open_rx(&self) -> io::Result<Vec<Box<dyn Rx>>> {
        Ok(vec![Box::new(TapRx {
            fd: self.fd.clone(),
            rx_errors: self.rx_errors.clone(),
        })])
    }

    fn open_tx(&self) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(TapTx {
            fd: self.fd.clone(),
            limited: false,
            full: None,
        }))
    }

    fn drops(&self) -> DeviceDrops {
        DeviceDrops {
            rx_errors: self.rx_errors.load(Ordering::Relaxed),
            ..DeviceDrops::default()
        }
    }

    fn status(&self) -> BTreeMap<String, String> {
        let mut status = self.device.status();
        let missing = match self.offloads {
            TapOffloads::ChecksumTcpUdp => return status,
            TapOffloads::ChecksumTcp => "UDP segmentation",
            TapOffloads::None => "checksum and segmentation",
        };
        status.insert(
            "warning".to_owned(),
            format!("the kernel has no {missing} offload for TAP devices"),
        );
        status
    }
}

struct TapRx {
    fd: Arc<OwnedFd>,
    rx_errors: Arc<AtomicU64>,
}

impl Rx for TapRx {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn recv(&mut self, out: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        let before = out.len();
        for _ in 0..max {
            let mut frame = Frame::for_any();
            let n = match sys::tap::read(&self.fd, frame.receive_area()) {
                Ok(n) => n,
                Err(error) if matches!(errno(&error), Some(Errno::AGAIN | Errno::INTR)) => break,
                Err(error) if errno(&error) == Some(Errno::INVAL) => {
                    self.rx_errors.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                // Packets received before go out first; the next call returns the error again.
                Err(_) if out.len() > before => break,
                Err(error) => return Err(error),
            };
            match frame.take_vnet_header(n) {
                Some(offload) => {
                    frame.offload = offload;
                    out.push(frame);
                }
                None => {
                    self.rx_errors.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Ok(out.len() - before)
    }
}

struct TapTx {
    fd: Arc<OwnedFd>,
    limited: bool,
    /// A descriptor to wait for room with, once it was needed: the receive queue's is watched
    /// already.
    full: Option<OwnedFd>,
}

/// The result of writing a frame.
enum Written {
    Sent,
    NoRoom,
    Refused,
}

impl Tx for TapTx {
    fn send(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        let mut report = TxReport::default();
        for mut frame in frames.drain(..) {
            if let Written::NoRoom = self.write(&mut frame, &mut report) {
                report.dropped += 1;
            }
        }
        report
    }

    fn offer(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        let mut report = TxReport::default();
        let mut write = |frame: &mut Frame| matches!(self.write(frame, &mut report), Written::NoRoom);
        let full = frames.iter_mut().position(&mut write);
        frames.drain(..full.unwrap_or(frames.len()));
        self.full = match (full, self.full.take()) {
            (None, _) => None,
            (_, Some(fd)) => Some(fd),
            (_, None) => rustix::io::fcntl_dupfd_cloexec(&*self.fd, 0).ok(),
        };
        report
    }

    fn limit(&mut self, bytes: usize) {
        self.limited = sys::tap::set_send_buffer(self.fd.as_fd(), bytes).is_ok();
    }

    fn room(&self) -> Option<BorrowedFd<'_>> {
        self.full.as_ref().map(AsFd::as_fd)
    }
}

impl TapTx {
    fn write(&self, frame: &mut Frame, report: &mut TxReport) -> Written {
        let len = frame.len() as u64;
        let result = loop {
            match sys::tap::write(&self.fd, frame.with_vnet_header()) {
                Err(error) if errno(&error) == Some(Errno::INTR) => {}
                result => break result,
            }
        };
        match result.map_err(|error| errno(&error)) {
            Ok(_) => {
                report.packets += 1;
                report.bytes += len;
                return Written::Sent;
            }
            Err(Some(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM)) => return Written::NoRoom,
            // EIO: the device is down; EBADFD: it is gone.
            Err(Some(Errno::IO | Errno::BADFD | Errno::NODEV)) => report.down += 1,
            Err(Some(Errno::MSGSIZE)) => report.too_big += 1,
            Err(_) => report.errors += 1,
        }
        Written::Refused
    }
}

impl Drop for TapTx {
    fn drop(&mut self) {
        if self.limited {
            // The limit is the device's, not this handle's.
            let _ = sys::tap::set_send_buffer(self.fd.as_fd(), i32::MAX as usize);
        }
    }
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}
