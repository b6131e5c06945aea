//! Devices of the kernel, through AF_XDP sockets: `type=afxdp`.
//!
//! An XDP program (`bpf/xsk.c`) passes the packets that the device receives to one socket for each
//! of its queues, before the host's stack sees them; the program goes away with the port, and with
//! the process, however that ends. Packets are copied between the sockets' memory and frames: a
//! frame may live for as long as a scheduler holds it, and the kernel gets its buffers back at
//! once.
//!
//! Limits of AF_XDP
//! - Segments of more than the MTU do not exist: a veth's peer loses its segmentation offload, and
//!   may have an MTU of 3506 at most (Linux before 6.6; 73 138 after). Frames from other ports are
//!   cut in software.
//! - Packets have no metadata. A checksum that the host behind a virtual device has left to it is
//!   recognised by its value ([`pending`]); a VLAN tag that it has left to the device is lost, so
//!   that hosts must not do that (`ethtool -K DEVICE txvlan off`).

use crate::claim::Claim;
use crate::kernel::{KernelDevice, contenders};
use crate::programs::Sockets;
use crate::{DeviceDrops, Error, Kind, Netdev, Rx, State, Tx};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use sys::PacketSocket;
use sys::bpf::Link;
use sys::xsk::{self, Counts, Lost};
use tx::SharedSender;
use wire::MacAddr;

mod config;
mod pending;
mod refusal;
mod rx;
mod tx;

pub use config::{AfxdpConfig, XdpMode};
use refusal::Refusal;

/// Entries of each ring, and buffers in each direction.
const RING: u32 = 2048;
/// Bytes before a received packet that XDP programs may use.
const XDP_HEADROOM: u32 = 256;
/// Ethernet header and two tags.
const HEADERS: u32 = 14 + 8;
/// How often, and at what interval, to retry when a resource is in use and its user may be ending:
/// a process that ends, a socket that the kernel releases later.
const RETRIES: u32 = 20;
const RETRY: Duration = Duration::from_millis(5);

/// A device of the kernel that exists on its own, through AF_XDP sockets. Only threads of the
/// network namespace that it was found in may open its queues.
pub struct Afxdp {
    device: KernelDevice,
    config: AfxdpConfig,
    /// The driver's kind of a virtual device; empty for hardware.
    kind: String,
    mtu: Arc<AtomicU32>,
    truncated: Arc<AtomicU64>,
    opened: Mutex<Opened>,
    claim: Mutex<Weak<Claim>>,
    /// The sending half for the next transmit queue that is opened.
    next: AtomicUsize,
}

/// The open sockets and program, or the last ones.
#[derive(Default)]
struct Opened {
    mode: Option<XdpMode>,
    senders: Vec<Weak<SharedSender>>,
    counts: Vec<Counts>,
    /// Packets lost by each socket at the last query, and by all closed ones.
    lost: Vec<u64>,
    lost_before: u64,
}

/// The claim on the device, while a receive queue is open.
struct Attachment {
    /// The host behind it may leave checksums to the device.
    virtual_device: bool,
    _link: Link,
    _sockets: Sockets,
    _promiscuous: PacketSocket,
    _claim: Option<Arc<Claim>>,
}

impl Afxdp {
    /// Finds a device in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::BadName`], or the kernel's.
    pub fn open(name: &str, config: AfxdpConfig) -> Result<Afxdp, Error> {
        let device = KernelDevice::find(name)?;
        let link = device.link().map_err(|source| Error::System {
            name: name.to_owned(),
            call: "RTM_GETLINK",
            source,
        })?;
        Ok(Afxdp {
            device,
            config,
            kind: link.kind,
            mtu: Arc::new(AtomicU32::new(link.mtu)),
            truncated: Arc::default(),
            opened: Mutex::default(),
            claim: Mutex::default(),
            next: AtomicUsize::new(0),
        })
    }

    /// The mode in which it is open.
    pub fn mode_in_use(&self) -> Option<XdpMode> {
        self.opened.lock().mode
    }

    /// Opens all queues in one mode, with packets in several buffers where the kernel has that.
    fn attach(&self, mode: XdpMode, claim: &Option<Arc<Claim>>) -> Result<Vec<Box<dyn Rx>>, Refusal> {
        let with = self.attach_with(mode, true, claim);
        match with {
            Err(refusal) if refusal.may_be_fragments() => self.attach_with(mode, false, claim),
            result => result,
        }
    }

    fn attach_with(
        &self,
        mode: XdpMode,
        fragments: bool,
        claim: &Option<Arc<Claim>>,
    ) -> Result<Vec<Box<dyn Rx>>, Refusal> {
        let AfxdpConfig {
            queues, first_queue, ..
        } = self.config;
        let end = first_queue + queues;
        let ifindex = self.device.ifindex;
        let mut sockets = Sockets::new(end, fragments).map_err(Refusal::Call)?;
        let link = patiently(|| sockets.attach(ifindex, mode.hook())).map_err(Refusal::Attach)?;
        let promiscuous = PacketSocket::new().map_err(Refusal::Call)?;
        promiscuous.join_promiscuous(ifindex).map_err(Refusal::Call)?;
        let mut halves = Vec::new();
        for queue in first_queue..end {
            let (receiver, sender) = self
                .socket(queue, mode, fragments)
                .map_err(|error| Refusal::Queue(queue, error))?;
            sockets.set(queue, receiver.as_fd()).map_err(Refusal::Call)?;
            halves.push((receiver, Arc::new(SharedSender::new(sender))));
        }
        let attachment = Arc::new(Attachment {
            virtual_device: !self.kind.is_empty(),
            _link: link,
            _sockets: sockets,
            _promiscuous: promiscuous,
            _claim: claim.clone(),
        });
        let mut opened = self.opened.lock();
        opened.lost_before += opened.lost.drain(..).sum::<u64>();
        opened.mode = Some(mode);
        opened.senders = halves.iter().map(|(_, sender)| Arc::downgrade(sender)).collect();
        opened.counts = halves.iter().map(|(receiver, _)| receiver.counts()).collect();
        opened.lost = vec![0; halves.len()];
        let open = |(receiver, sender)| -> Box<dyn Rx> {
            Box::new(rx::AfxdpRx::new(
                receiver,
                sender,
                self.truncated.clone(),
                attachment.clone(),
            ))
        };
        Ok(halves.into_iter().map(open).collect())
    }

    fn socket(&self, queue: u32, mode: XdpMode, fragments: bool) -> sys::Result<(xsk::Receiver, xsk::Sender)> {
        let fits = self.mtu.load(Ordering::Relaxed).saturating_add(HEADERS + XDP_HEADROOM) <= 2048;
        let config = xsk::Config {
            ring: RING,
            chunk: if fits { 2048 } else { 4096 },
            zero_copy: mode == XdpMode::NativeZeroCopy,
            need_wakeup: self.config.need_wakeup,
            fragments,
        };
        patiently(|| xsk::open(self.device.ifindex, queue, &config))
    }

    /// Warnings about limitations in force.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.kind == "veth" {
            let warning = "AF_XDP takes segmentation offload from the host behind it, and VLAN tags that the host leaves to its device are \
                           lost; type=system is several times faster for TCP";
            warnings.push(warning.to_owned());
        }
        let AfxdpConfig {
            queues, first_queue, ..
        } = self.config;
        if let Some(all) = self.device.receive_queues().filter(|all| *all > queues) {
            warnings.push(format!(
                "it receives by {all} queues, and only {queues} from number {first_queue} are used: what comes in by the others is dropped \
                 (options:n_rxq={all} uses all)"
            ));
        }
        warnings
    }
}

/// Retries for a while if the resource is in use.
fn patiently<T>(mut call: impl FnMut() -> sys::Result<T>) -> sys::Result<T> {
    let taken = [Errno::BUSY, Errno::EXIST].map(|errno| Some(errno.raw_os_error()));
    for _ in 0..RETRIES {
        match call() {
            Err(error) if taken.contains(&error.errno()) => std::thread::sleep(RETRY),
            result => return result,
        }
    }
    call()
}

impl Netdev for Afxdp {
    fn name(&self) -> &str {
        &self.device.name
    }

    fn kind(&self) -> Kind {
        Kind::Afxdp
    }

    fn state(&self) -> io::Result<State> {
        let state = self.device.state()?;
        self.mtu.store(state.mtu, Ordering::Relaxed);
        Ok(state)
    }

    fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        self.device.set(Some(mtu), None, None)?;
        self.mtu.store(mtu, Ordering::Relaxed);
        Ok(())
    }

    fn set_mac(&self, mac: MacAddr) -> io::Result<()> {
        self.device.set(None, Some(mac), None)
    }

    fn set_up(&self, up: bool) -> io::Result<()> {
        self.device.set(None, None, Some(up))
    }

    fn open_rx(&self) -> io::Result<Vec<Box<dyn Rx>>> {
        let claim = self.device.claim(&self.claim)?;
        let mut refused = None;
        for mode in self.config.mode.attempts() {
            match self.attach(*mode, &claim) {
                Ok(queues) => return Ok(queues),
                Err(refusal) => {
                    refused = Some(refusal.explain(*mode, &self.config, self.device.receive_queues()));
                    if refusal.is_taken() {
                        break;
                    }
                }
            }
        }
        Err(refused.unwrap_or_else(|| io::ErrorKind::Unsupported.into()))
    }

    fn open_tx(&self) -> io::Result<Box<dyn Tx>> {
        let opened = self.opened.lock();
        let count = opened.senders.len().max(1);
        let sender = opened.senders.get(self.next.fetch_add(1, Ordering::Relaxed) % count);
        let sender = sender.and_then(Weak::upgrade).ok_or(Errno::NODEV)?;
        Ok(Box::new(tx::AfxdpTx::new(sender, self.mtu.clone())))
    }

    fn drops(&self) -> DeviceDrops {
        let mut opened = self.opened.lock();
        let Opened { counts, lost, .. } = &mut *opened;
        for (counts, lost) in counts.iter().zip(lost) {
            if let Some(Lost { ring_full, dropped, .. }) = counts.lost() {
                // The ring has as many places as there are buffers: the kernel finds no buffer when
                // the ring is full.
                *lost = ring_full + dropped;
            }
        }
        DeviceDrops {
            queue_full: opened.lost_before + opened.lost.iter().sum::<u64>(),
            truncated: self.truncated.load(Ordering::Relaxed),
            rx_errors: 0,
        }
    }

    fn contenders(&self) -> Vec<String> {
        contenders(&self.device, &self.claim)
    }

    fn carrier(&self) -> Option<bool> {
        self.device.carrier()
    }

    fn link_by_mii(&self) -> Option<bool> {
        self.device.link_by_mii()
    }

    fn numa_node(&self) -> Option<usize> {
        self.device.numa_node()
    }

    fn status(&self) -> BTreeMap<String, String> {
        let mut status = self.device.status();
        if let Some(mode) = self.mode_in_use() {
            status.insert("xdp-mode".to_owned(), mode.to_string());
        }
        let warnings = self.warnings();
        if !warnings.is_empty() {
            status.insert("warning".to_owned(), warnings.join("; "));
        }
        status
    }

    fn config(&self) -> BTreeMap<String, String> {
        let mut config = BTreeMap::from([
            ("n_rxq".to_owned(), self.config.queues.to_string()),
            ("use-need-wakeup".to_owned(), self.config.need_wakeup.to_string()),
            ("xdp-mode".to_owned(), self.config.mode.to_string()),
        ]);
        if self.config.first_queue > 0 {
            config.insert("start-qid".to_owned(), self.config.first_queue.to_string());
        }
        if let Some(mode) = self.mode_in_use() {
            config.insert("xdp-mode-in-use".to_owned(), mode.to_string());
        }
        config
    }
}
