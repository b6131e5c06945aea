//! A device of memory, for tests: `type=dummy` as Open vSwitch's tests use it.
//!
//! Packets are received when a test [injects](Dummy::inject) them; packets sent are written to the
//! capture files of the options and kept for [`take_sent`](Dummy::take_sent), the last 4096 of
//! them. The options `stream` and `pstream` join two devices by a socket. It supports no offloads:
//! segments are cut and checksums filled in before.

use crate::pcap::PcapWriter;
use crate::{DeviceDrops, Error, Frame, Kind, Netdev, Offload, Rx, State, Tx, TxReport, gso};
use cable::{Cable, End, Receiver};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use wire::MacAddr;

/// Number of sent packets that a device keeps.
const KEPT: usize = 4096;
/// Maximum number of injected packets that wait in each queue.
const QUEUE: usize = 4096;
/// Most receive queues.
const MOST_QUEUES: usize = 64;
/// Most addresses.
const MOST_ADDRESSES: usize = 64;

/// What a dummy stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DummyKind {
    /// `dummy`.
    #[default]
    Plain,
    /// `dummy-internal`: a bridge's own port.
    Internal,
    /// `dummy-pmd`: it has several queues and a NUMA node, and counts as served by workers.
    Pmd,
    /// A device of another type (`--enable-dummy=override` or `system`).
    Instead(&'static str),
}

impl DummyKind {
    /// The type's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            DummyKind::Plain => "dummy",
            DummyKind::Internal => "dummy-internal",
            DummyKind::Pmd => "dummy-pmd",
            DummyKind::Instead(kind) => kind,
        }
    }
}

/// A device of memory.
pub struct Dummy {
    name: String,
    kind: DummyKind,
    /// Its NUMA node and send queues, if it is a [`DummyKind::Pmd`]. The number of send queues is
    /// only shown: each worker sends by a queue of its own.
    numa_node: Option<usize>,
    tx_queues: usize,
    shared: Arc<Shared>,
}

struct Shared {
    /// To another dummy.
    cable: OnceLock<Cable>,
    inner: Mutex<Inner>,
    /// For each receive queue; non-zero while packets wait there.
    events: Vec<OwnedFd>,
}

struct Inner {
    state: State,
    /// By receive queue.
    received: Vec<VecDeque<(Vec<u8>, Offload)>>,
    sent: VecDeque<Vec<u8>>,
    /// Frames that it takes before it is full; any number where `None`.
    room: Option<usize>,
    drops: DeviceDrops,
    captures: Captures,
    /// With the lengths of their prefixes.
    addresses: Vec<(IpAddr, u8)>,
}

/// The capture files: of both directions into one, or one each.
struct Captures {
    writers: Vec<PcapWriter>,
    rx: Option<usize>,
    tx: Option<usize>,
}

impl Dummy {
    /// Creates a device, up, with an MTU of 1500. Options: `tx_pcap`, `rxq_pcap`, `pcap` (files
    /// that packets are written to), `stream`, `pstream` (a cable), and those of
    /// [`DummyKind::Pmd`].
    ///
    /// # Errors
    /// [`Error::File`] where a capture file cannot be made.
    pub fn open(name: &str, options: &BTreeMap<String, String>) -> Result<Dummy, Error> {
        Dummy::open_as(name, DummyKind::Pmd, options)
    }

    /// The same, for a kind. Only a [`DummyKind::Pmd`] has the options `n_rxq` and `n_txq` (1 to
    /// 64 queues) and `numa_id`.
    ///
    /// # Errors
    /// As those of [`Dummy::open`].
    pub fn open_as(name: &str, kind: DummyKind, options: &BTreeMap<String, String>) -> Result<Dummy, Error> {
        let number = |key: &str| options.get(key).and_then(|text| text.parse::<usize>().ok());
        let number = |key: &str| number(key).filter(|_| kind == DummyKind::Pmd);
        let queues = |key: &str| number(key).unwrap_or(1).clamp(1, MOST_QUEUES);
        let event = |_| eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let events = (0..queues("n_rxq")).map(event).collect::<Result<Vec<_>, _>>();
        let events = events.map_err(|errno| Error::System {
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
        let inner = Inner {
            state,
            received: events.iter().map(|_| VecDeque::new()).collect(),
            sent: VecDeque::new(),
            room: None,
            drops: DeviceDrops::default(),
            captures: Captures::create(name, options)?,
            addresses: Vec::new(),
        };
        let shared = Arc::new(Shared {
            cable: OnceLock::new(),
            inner: Mutex::new(inner),
            events,
        });
        let end = ["stream", "pstream"]
            .iter()
            .find_map(|key| Some((key, options.get(*key)?)));
        if let Some((key, text)) = end {
            let cable = End::parse(key, text).and_then(|end| Cable::begin(&end, Arc::downgrade(&shared)));
            let cable = cable.map_err(|source| Error::File {
                name: name.to_owned(),
                path: text.clone(),
                source,
            })?;
            let _ = shared.cable.set(cable);
        }
        Ok(Dummy {
            name: name.to_owned(),
            kind,
            numa_node: (kind == DummyKind::Pmd).then(|| number("numa_id").unwrap_or(0)),
            tx_queues: queues("n_txq"),
            shared,
        })
    }

    /// What it stands for.
    pub fn dummy_kind(&self) -> DummyKind {
        self.kind
    }

    /// Whether its cable is connected; `None` if it has none, or accepts connections.
    pub fn is_connected(&self) -> Option<bool> {
        self.shared.cable.get()?.is_connected()
    }

    /// Receives a packet. Returns whether it was queued: a device that is down, or whose queue is
    /// full, loses it.
    pub fn inject(&self, packet: &[u8]) -> bool {
        self.inject_with(packet, Offload::default())
    }

    /// Receives a packet with pending offloads, as from a kernel device.
    pub fn inject_with(&self, packet: &[u8], offload: Offload) -> bool {
        self.inject_at(0, packet, offload)
    }

    /// The queues that it receives by.
    pub fn queues(&self) -> usize {
        self.shared.events.len()
    }

    /// Receives a packet by a queue. A queue that does not exist drops it.
    pub fn inject_at(&self, queue: usize, packet: &[u8], offload: Offload) -> bool {
        self.shared.inject_at(queue, packet, offload)
    }

    /// Takes the packets that were sent since the last call, oldest first.
    pub fn take_sent(&self) -> Vec<Vec<u8>> {
        self.shared.inner.lock().sent.drain(..).collect()
    }

    /// Accepts `room` more frames, then is full; `None` accepts any number.
    pub fn set_room(&self, frames: Option<usize>) {
        self.shared.inner.lock().room = frames;
    }

    /// Gives the device an address in a network with a prefix of `len` bits. The device does not
    /// answer at it: routes take their source address from it. The oldest of 64 addresses goes.
    pub fn add_address(&self, address: IpAddr, len: u8) {
        let mut inner = self.shared.inner.lock();
        inner.addresses.retain(|known| *known != (address, len));
        if inner.addresses.len() >= MOST_ADDRESSES {
            inner.addresses.remove(0);
        }
        inner.addresses.push((address, len));
    }

    /// Its addresses with the lengths of their prefixes.
    pub fn addresses(&self) -> Vec<(IpAddr, u8)> {
        self.shared.inner.lock().addresses.clone()
    }

    /// Number of injected packets not received yet.
    pub fn pending(&self) -> usize {
        self.shared.inner.lock().received.iter().map(VecDeque::len).sum()
    }
}

impl Shared {
    fn inject_at(&self, queue: usize, packet: &[u8], offload: Offload) -> bool {
        let Some(event) = self.events.get(queue) else {
            return false;
        };
        let mut inner = self.inner.lock();
        if !inner.state.admin_up {
            return false;
        }
        if inner.received[queue].len() >= QUEUE {
            inner.drops.queue_full += 1;
            return false;
        }
        inner.captures.write_rx(packet);
        inner.received[queue].push_back((packet.to_vec(), offload));
        drop(inner);
        // It fails only where the count would overflow, and then the event is pending anyway.
        let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
        true
    }
}

impl Receiver for Shared {
    fn receive(&self, frame: &[u8]) {
        // A device that is down, or whose queue is full, loses it.
        self.inject_at(0, frame, Offload::default());
    }
}

/// A locally administered address, different for each device of the process, as Open vSwitch's
/// dummy devices have it.
pub(crate) fn next_mac() -> MacAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let [_, a, b, c] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    MacAddr([0xaa, 0x55, 0xaa, 0x55 ^ a, b, c])
}

impl Netdev for Dummy {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        Kind::Dummy
    }

    fn state(&self) -> io::Result<State> {
        Ok(self.shared.inner.lock().state.clone())
    }

    fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        if !(68..=65535).contains(&mtu) {
            return Err(rustix::io::Errno::INVAL.into());
        }
        self.shared.inner.lock().state.mtu = mtu;
        Ok(())
    }

    fn set_mac(&self, mac: MacAddr) -> io::Result<()> {
        self.shared.inner.lock().state.mac = mac;
        Ok(())
    }

    fn set_up(&self, up: bool) -> io::Result<()> {
        let mut inner = self.shared.inner.lock();
        if inner.state.admin_up != up {
            inner.state.admin_up = up;
            inner.state.carrier = up;
            inner.state.link_resets += 1;
        }
        Ok(())
    }

    fn open_rx(&self) -> io::Result<Vec<Box<dyn Rx>>> {
        let open = |queue| -> Box<dyn Rx> {
            Box::new(DummyRx {
                shared: self.shared.clone(),
                queue,
            })
        };
        Ok((0..self.shared.events.len()).map(open).collect())
    }

    fn open_tx(&self) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(DummyTx {
            shared: self.shared.clone(),
        }))
    }

    fn drops(&self) -> DeviceDrops {
        self.shared.inner.lock().drops
    }

    fn status(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn config(&self) -> BTreeMap<String, String> {
        if self.kind != DummyKind::Pmd {
            return BTreeMap::new();
        }
        let (rx, tx) = (self.queues().to_string(), self.tx_queues.to_string());
        let of = |key: &str, value: &String| (key.to_owned(), value.clone());
        BTreeMap::from([
            of("configured_rx_queues", &rx),
            of("configured_tx_queues", &tx),
            of("requested_rx_queues", &rx),
            of("requested_tx_queues", &tx),
        ])
    }

    fn numa_node(&self) -> Option<usize> {
        self.numa_node
    }

    fn as_dummy(&self) -> Option<&Dummy> {
        Some(self)
    }
}

struct DummyRx {
    shared: Arc<Shared>,
    queue: usize,
}

impl Rx for DummyRx {
    fn fd(&self) -> BorrowedFd<'_> {
        self.shared.events[self.queue].as_fd()
    }

    fn recv(&mut self, out: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        let mut inner = self.shared.inner.lock();
        let received = &mut inner.received[self.queue];
        let n = max.min(received.len());
        out.extend(received.drain(..n).map(|(packet, offload)| {
            let mut frame = Frame::from_slice(&packet);
            frame.offload = offload;
            frame
        }));
        if received.is_empty() {
            // Under the lock, so that no packet comes between; it fails only where the count is
            // zero already.
            let _ = rustix::io::read(&self.shared.events[self.queue], &mut [0_u8; 8]);
        }
        Ok(n)
    }
}

struct DummyTx {
    shared: Arc<Shared>,
}

impl Tx for DummyTx {
    fn send(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        let mut report = self.offer(frames);
        report.dropped += frames.drain(..).count() as u64;
        report
    }

    fn offer(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        let mut report = TxReport::default();
        let mut inner = self.shared.inner.lock();
        let taken = frames.iter().take_while(|_| inner.has_room()).count();
        for frame in frames.drain(..taken) {
            inner.send(frame, self.shared.cable.get(), &mut report);
        }
        report
    }
}

impl Inner {
    /// Takes the room of a frame, if there is some. A device that is down loses every frame.
    fn has_room(&mut self) -> bool {
        match &mut self.room {
            _ if !self.state.admin_up => true,
            None => true,
            Some(0) => false,
            Some(room) => {
                *room -= 1;
                true
            }
        }
    }

    fn send(&mut self, frame: Frame, cable: Option<&Cable>, report: &mut TxReport) {
        if !self.state.admin_up {
            report.down += 1;
            return;
        }
        let len = frame.len();
        let Ok(segments) = gso::segment(frame) else {
            report.errors += 1;
            return;
        };
        for segment in segments {
            self.captures.write_tx(segment.data());
            if let Some(cable) = cable {
                cable.send(segment.data());
            }
            if self.sent.len() >= KEPT {
                self.sent.pop_front();
            }
            self.sent.push_back(segment.data().to_vec());
        }
        report.packets += 1;
        report.bytes += len as u64;
    }
}

impl Captures {
    fn create(name: &str, options: &BTreeMap<String, String>) -> Result<Captures, Error> {
        let mut captures = Captures {
            writers: Vec::new(),
            rx: None,
            tx: None,
        };
        let mut add = |key: &str| -> Result<Option<usize>, Error> {
            let Some(path) = options.get(key) else {
                return Ok(None);
            };
            let writer = PcapWriter::create(Path::new(path)).map_err(|source| Error::File {
                name: name.to_owned(),
                path: path.clone(),
                source,
            })?;
            captures.writers.push(writer);
            Ok(Some(captures.writers.len() - 1))
        };
        let (both, rx, tx) = (add("pcap")?, add("rxq_pcap")?, add("tx_pcap")?);
        (captures.rx, captures.tx) = (rx.or(both), tx.or(both));
        Ok(captures)
    }

    fn write_rx(&mut self, packet: &[u8]) {
        Self::write(&mut self.writers, &mut self.rx, packet);
    }

    fn write_tx(&mut self, packet: &[u8]) {
        Self::write(&mut self.writers, &mut self.tx, packet);
    }

    /// If a capture cannot be written (the disk is full), it ends; packets go on.
    fn write(writers: &mut [PcapWriter], which: &mut Option<usize>, packet: &[u8]) {
        let writer = which.and_then(|index| writers.get_mut(index));
        if writer.is_some_and(|writer| writer.write(packet).is_err()) {
            *which = None;
        }
    }
}

mod cable;
#[cfg(test)]
mod tests {
    use super::*;

    fn dummy() -> Dummy {
        Dummy::open("p0", &BTreeMap::new()).unwrap()
    }

    #[test]
    fn injected_packets_are_received_in_order_and_the_event_tells() {
        let dummy = dummy();
        let mut rx = dummy.open_rx().unwrap().remove(0);
        let readable = |rx: &dyn Rx| {
            let mut fds = [rustix::event::PollFd::from_borrowed_fd(
                rx.fd(),
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
        };
        assert!(!readable(&*rx));
        for i in 0..3_u8 {
            assert!(dummy.inject(&[i; 60]));
        }
        let mut frames = Vec::new();
        assert_eq!(rx.recv(&mut frames, 2).unwrap(), 2);
        assert!(readable(&*rx), "one packet is left");
        assert_eq!(rx.recv(&mut frames, 32).unwrap(), 1);
        assert!(!readable(&*rx));
        assert_eq!(rx.recv(&mut frames, 32).unwrap(), 0);
        assert_eq!(
            frames.iter().map(|frame| frame.data()[0]).collect::<Vec<_>>(),
            [0, 1, 2]
        );
    }

    #[test]
    fn sent_packets_can_be_taken() {
        let dummy = dummy();
        let mut tx = dummy.open_tx().unwrap();
        let mut frames = vec![Frame::from_slice(&[1; 60]), Frame::from_slice(&[2; 70])];
        let report = tx.send(&mut frames);
        assert_eq!((report.packets, report.bytes), (2, 130));
        assert!(frames.is_empty());
        assert_eq!(dummy.take_sent(), [vec![1; 60], vec![2; 70]]);
        assert!(dummy.take_sent().is_empty());
    }

    #[test]
    fn a_device_without_room_leaves_what_it_is_offered_and_drops_what_it_is_sent() {
        let dummy = dummy();
        let mut tx = dummy.open_tx().unwrap();
        let mut frames: Vec<Frame> = (0..5_u8).map(|n| Frame::from_slice(&[n; 60])).collect();
        dummy.set_room(Some(2));
        assert_eq!(tx.offer(&mut frames).packets, 2);
        assert_eq!(
            frames.iter().map(|frame| frame.data()[0]).collect::<Vec<_>>(),
            [2, 3, 4]
        );
        dummy.set_room(Some(1));
        let report = tx.send(&mut frames);
        assert_eq!((report.packets, report.dropped, frames.len()), (1, 2, 0));
        dummy.set_room(None);
        assert_eq!(tx.offer(&mut vec![Frame::from_slice(&[9; 60])]).packets, 1);
        let sent: Vec<u8> = dummy.take_sent().iter().map(|packet| packet[0]).collect();
        assert_eq!(sent, [0, 1, 2, 9]);
    }

    #[test]
    fn a_device_that_is_down_neither_receives_nor_sends() {
        let dummy = dummy();
        dummy.set_up(false).unwrap();
        assert!(!dummy.inject(&[0; 60]));
        let report = dummy.open_tx().unwrap().send(&mut vec![Frame::from_slice(&[0; 60])]);
        assert_eq!(
            report,
            TxReport {
                down: 1,
                ..TxReport::default()
            }
        );
        assert!(!dummy.state().unwrap().carrier);
    }
}
