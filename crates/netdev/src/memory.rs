//! Devices without hardware, for benchmarks: one that receives the packets of a capture file
//! (`type=pcap`), and one that receives nothing (`type=null`). Both discard sent packets.
//!
//! The options are those of DPDK's devices of the same kind, so that both take the same
//! configuration: `rx_pcap` names the file; with `infinite_rx` its packets repeat as fast as they
//! are received. Each packet is copied into a new frame, as a network card would write it. The
//! first packets arrive when the queue is opened, which may be before the switch has rules. Sent
//! packets are discarded as they are: segments are not cut, checksums not filled in.

use crate::dummy::next_mac;
use crate::pcap::Capture;
use crate::{DeviceDrops, Error, Frame, Kind, Netdev, Rx, State, Tx, TxReport};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::MacAddr;

/// A device without hardware.
pub struct Memory {
    name: String,
    kind: Kind,
    /// The packets that it receives.
    capture: Option<Arc<Capture>>,
    again: bool,
    state: Mutex<State>,
    shared: Arc<Shared>,
}

/// State shared by the device's ends.
struct Shared {
    up: AtomicBool,
    /// Readable while there are packets to be received.
    event: OwnedFd,
    /// Whether it is.
    rung: AtomicBool,
}

impl Shared {
    /// Makes the event readable: there are packets. It fails only if the event is readable already.
    fn ring(&self) {
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        // Last: a clear in between finds the flag unset, and the event stays readable once more.
        self.rung.store(true, Ordering::Release);
    }

    /// Clears the event.
    fn hush(&self) {
        if self.rung.swap(false, Ordering::Acquire) {
            let _ = rustix::io::read(&self.event, &mut [0_u8; 8]);
        }
    }
}

impl Memory {
    /// A device that discards sent packets, and receives nothing.
    ///
    /// # Errors
    /// [`Error::System`]: the process has no descriptor left.
    pub fn null(name: &str) -> Result<Memory, Error> {
        Memory::new(name, Kind::Null, None, false)
    }

    /// A device that receives the packets of the file that the option `rx_pcap` names: once, or
    /// again and again where `infinite_rx` is `1` or `true`. The file is read now, whole.
    ///
    /// # Errors
    /// [`Error::Option`]: an option is missing or wrong. [`Error::Read`]: the file cannot be read,
    /// or is no capture of Ethernet packets.
    pub fn pcap(name: &str, options: &BTreeMap<String, String>) -> Result<Memory, Error> {
        let option = |reason: &str| Error::Option {
            name: name.to_owned(),
            reason: reason.to_owned(),
        };
        let path = options
            .get("rx_pcap")
            .ok_or_else(|| option("type pcap requires 'rx_pcap', a file"))?;
        let again = match options.get("infinite_rx").map(String::as_str) {
            Some("1" | "true") => true,
            Some("0" | "false") | None => false,
            Some(_) => return Err(option("'infinite_rx' is neither true nor false")),
        };
        let capture = std::fs::read(path)
            .and_then(Capture::new)
            .map_err(|source| Error::Read {
                name: name.to_owned(),
                path: path.clone(),
                source,
            })?;
        Memory::new(name, Kind::Pcap, Some(Arc::new(capture)), again)
    }

    fn new(name: &str, kind: Kind, capture: Option<Arc<Capture>>, again: bool) -> Result<Memory, Error> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(|errno| Error::System {
            name: name.to_owned(),
            call: "eventfd",
            source: errno.into(),
        })?;
        let state = State {
            mac: next_mac(),
            mtu: 1500,
            admin_up: true,
            carrier: true,
            ..State::default()
        };
        Ok(Memory {
            name: name.to_owned(),
            kind,
            capture: capture.filter(|capture| !capture.is_empty()),
            again,
            state: Mutex::new(state),
            shared: Arc::new(Shared {
                up: AtomicBool::new(true),
                event,
                rung: AtomicBool::new(false),
            }),
        })
    }
}

impl Netdev for Memory {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn state(&self) -> io::Result<State> {
        Ok(self.state.lock().clone())
    }

    fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        if !(68..=65535).contains(&mtu) {
            return Err(rustix::io::Errno::INVAL.into());
        }
        self.state.lock().mtu = mtu;
        Ok(())
    }

    fn set_mac(&self, mac: MacAddr) -> io::Result<()> {
        self.state.lock().mac = mac;
        Ok(())
    }

    fn set_up(&self, up: bool) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.admin_up != up {
            state.admin_up = up;
            state.carrier = up;
            state.link_resets += 1;
            self.shared.up.store(up, Ordering::Relaxed);
            match up {
                true => self.shared.ring(),
                false => self.shared.hush(),
            }
        }
        Ok(())
    }

    /// One queue. It begins at the file's beginning.
    fn open_rx(&self) -> io::Result<Vec<Box<dyn Rx>>> {
        let next = self.capture.is_some().then_some(0);
        if next.is_some() && self.shared.up.load(Ordering::Relaxed) {
            self.shared.ring();
        }
        Ok(vec![Box::new(MemoryRx {
            shared: self.shared.clone(),
            capture: self.capture.clone(),
            again: self.again,
            next,
        })])
    }

    fn open_tx(&self) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(MemoryTx {
            shared: self.shared.clone(),
        }))
    }

    fn drops(&self) -> DeviceDrops {
        DeviceDrops::default()
    }

    fn status(&self) -> BTreeMap<String, String> {
        let driver = format!("net_{}", self.kind.as_str());
        BTreeMap::from([("driver_name".to_owned(), driver)])
    }
}

struct MemoryRx {
    shared: Arc<Shared>,
    capture: Option<Arc<Capture>>,
    again: bool,
    /// The packet that comes next; none after the last.
    next: Option<usize>,
}

impl Rx for MemoryRx {
    fn fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }

    fn recv(&mut self, out: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        let (Some(capture), Some(next)) = (&self.capture, self.next) else {
            self.shared.hush();
            return Ok(0);
        };
        if !self.shared.up.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let count = if self.again { max } else { max.min(capture.len() - next) };
        let next = capture.copy(next, count, out);
        self.next = (self.again || next != 0).then_some(next);
        Ok(count)
    }
}

struct MemoryTx {
    shared: Arc<Shared>,
}

impl Tx for MemoryTx {
    fn send(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        let mut report = TxReport::default();
        if self.shared.up.load(Ordering::Relaxed) {
            report.packets = frames.len() as u64;
            report.bytes = frames.iter().map(|frame| frame.len() as u64).sum();
        } else {
            report.down = frames.len() as u64;
        }
        Frame::drop_first(frames.len(), frames);
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcap::PcapWriter;
    use std::path::Path;

    fn options(path: &Path, infinite: &str) -> BTreeMap<String, String> {
        let path = path.to_string_lossy().into_owned();
        BTreeMap::from([
            ("rx_pcap".to_owned(), path),
            ("infinite_rx".to_owned(), infinite.to_owned()),
        ])
    }

    fn capture(directory: &Path, packets: u8) -> std::path::PathBuf {
        let path = directory.join("packets.pcap");
        let mut writer = PcapWriter::create(&path).unwrap();
        (0..packets).for_each(|n| writer.write(&[n; 60]).unwrap());
        path
    }

    fn first_bytes(rx: &mut dyn Rx, max: usize) -> Vec<u8> {
        let mut frames = Vec::new();
        assert_eq!(rx.recv(&mut frames, max).unwrap(), frames.len());
        frames.iter().map(|frame| frame.data()[0]).collect()
    }

    fn readable(rx: &dyn Rx) -> bool {
        let fd = rx.fd();
        let mut polled = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    }

    #[test]
    fn packets_of_a_file_come_once_and_then_the_queue_is_silent() {
        let directory = tempfile::tempdir().unwrap();
        let device = Memory::pcap("p", &options(&capture(directory.path(), 3), "false")).unwrap();
        let mut rx = device.open_rx().unwrap().remove(0);
        assert!(readable(&*rx));
        assert_eq!(first_bytes(&mut *rx, 2), [0, 1]);
        assert_eq!(first_bytes(&mut *rx, 2), [2]);
        assert_eq!(first_bytes(&mut *rx, 2), [0; 0]);
        assert!(!readable(&*rx));
    }

    #[test]
    fn packets_come_again_and_again_where_that_is_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let device = Memory::pcap("p", &options(&capture(directory.path(), 3), "1")).unwrap();
        let mut rx = device.open_rx().unwrap().remove(0);
        assert_eq!(first_bytes(&mut *rx, 8), [0, 1, 2, 0, 1, 2, 0, 1]);
        assert_eq!(first_bytes(&mut *rx, 1), [2]);
        assert!(readable(&*rx));
    }

    #[test]
    fn a_device_that_is_down_receives_nothing_and_takes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let device = Memory::pcap("p", &options(&capture(directory.path(), 3), "true")).unwrap();
        let mut rx = device.open_rx().unwrap().remove(0);
        device.set_up(false).unwrap();
        assert_eq!(first_bytes(&mut *rx, 2), [0; 0]);
        assert!(!readable(&*rx) && !device.state().unwrap().carrier);
        let report = device.open_tx().unwrap().send(&mut vec![Frame::from_slice(&[0; 60])]);
        assert_eq!((report.packets, report.down), (0, 1));
        device.set_up(true).unwrap();
        assert!(readable(&*rx));
        assert_eq!(first_bytes(&mut *rx, 2), [0, 1]);
    }

    #[test]
    fn a_null_device_receives_nothing_and_swallows_everything() {
        let device = Memory::null("n").unwrap();
        let mut rx = device.open_rx().unwrap().remove(0);
        assert!(!readable(&*rx));
        assert_eq!(first_bytes(&mut *rx, 2), [0; 0]);
        let mut frames = vec![Frame::from_slice(&[0; 60]), Frame::from_slice(&[0; 100])];
        let report = device.open_tx().unwrap().send(&mut frames);
        assert_eq!((report.packets, report.bytes, frames.len()), (2, 160, 0));
    }

    #[test]
    fn options_that_are_missing_or_wrong_are_named() {
        let failed = |options: &BTreeMap<String, String>| Memory::pcap("p", options).err().unwrap().to_string();
        assert!(failed(&BTreeMap::new()).contains("rx_pcap"));
        let directory = tempfile::tempdir().unwrap();
        assert!(failed(&options(&capture(directory.path(), 1), "often")).contains("infinite_rx"));
        let missing = directory.path().join("missing");
        assert!(failed(&options(&missing, "1")).ends_with("missing: could not read (No such file or directory)"));
    }
}
