//! The contract of a device: the interface that every kind of port implements.

use crate::{Dummy, Frame, LeftDevice};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use tunnel::format::Format;
use wire::MacAddr;

/// A device that sends and receives packets.
///
/// Calls here are control-plane calls and may come from any thread; packets go through the [`Rx`]
/// and [`Tx`] that a worker opens for itself. Errors of the kernel keep their number
/// ([`io::Error::raw_os_error`]): `ENODEV` where the device has vanished.
pub trait Netdev: Send + Sync {
    /// The device's name.
    fn name(&self) -> &str;

    /// The kind of device.
    fn kind(&self) -> Kind;

    /// The device's present state. Cheap enough for every statistics interval (one exchange with
    /// the kernel).
    ///
    /// # Errors
    /// The kernel's; `ENODEV` if the device has vanished.
    fn state(&self) -> io::Result<State>;

    /// Sets the MTU: the largest packet, in bytes without the Ethernet header.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` if the device does not support that MTU.
    fn set_mtu(&self, mtu: u32) -> io::Result<()>;

    /// Sets the device's own address.
    ///
    /// # Errors
    /// The kernel's.
    fn set_mac(&self, mac: MacAddr) -> io::Result<()>;

    /// Sets the administrative state.
    ///
    /// # Errors
    /// The kernel's.
    fn set_up(&self, up: bool) -> io::Result<()>;

    /// Opens the device's receive queues. As long as one of them exists, the device belongs to the
    /// switch: the host's stack gets no packets of a [`Kind::System`] device.
    ///
    /// # Errors
    /// The kernel's; `EBUSY` if the queues are open already and cannot be opened twice;
    /// `AddrInUse`, with the other switch's name, if another switch has the device.
    fn open_rx(&self) -> io::Result<Vec<Box<dyn Rx>>>;

    /// Opens a transmit handle; each worker needs one.
    ///
    /// # Errors
    /// The kernel's.
    fn open_tx(&self) -> io::Result<Box<dyn Tx>>;

    /// Packets that the device lost since it was opened.
    fn drops(&self) -> DeviceDrops;

    /// Keys of `Interface.status`: `driver_name`, `driver_version`, `firmware_version`, if the
    /// device has them, and `warning` if it works with a limitation.
    fn status(&self) -> BTreeMap<String, String>;

    /// Other switches that use the device too, or have asked for it since the last call, in words
    /// for the log. Cheap enough for every statistics interval.
    fn contenders(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether the device has a link as its PHY says, or its driver if it shows no PHY; `None` if
    /// neither answers. May take milliseconds.
    fn link_by_mii(&self) -> Option<bool> {
        None
    }

    /// Whether the device has a carrier, as its driver told the kernel last; `None` for a device
    /// that is none of the kernel's. Asks no hardware.
    fn carrier(&self) -> Option<bool> {
        None
    }

    /// The NUMA node that the device is attached to, if it is known.
    fn numa_node(&self) -> Option<usize> {
        None
    }

    /// The device's options for `dpctl/show`, and how it applies them.
    fn config(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// How to read the outer headers of the packets that it receives, if it is a [`Kind::Tunnel`]:
    /// whoever receives takes them off first.
    fn tunnel_format(&self) -> Option<Format> {
        None
    }

    /// The device's interface for tests, if it is a [`Kind::Dummy`].
    fn as_dummy(&self) -> Option<&Dummy> {
        None
    }
}

/// Programs that forward some of the packets that a device receives, before the receive queue has
/// them. The queue does not count these packets.
pub struct IngressPrograms<'a> {
    /// A socket filter: how many bytes of a packet the queue gets, none or all.
    pub filter: BorrowedFd<'a>,
    /// For the device's ingress, next on the same processor: forwards the packets that the filter
    /// kept from the queue, and drops the others, which the host's stack must not see.
    pub redirect: BorrowedFd<'a>,
}

/// The socket and the links that keep a queue's programs running after the queue is closed.
pub struct Kept {
    /// A socket with the filter, which nobody reads.
    pub socket: OwnedFd,
    /// The rest.
    pub device: LeftDevice,
}

/// A receive queue.
pub trait Rx: Send {
    /// Readable when there may be packets; for `poll` and `epoll`, level-triggered.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Appends up to `max` received packets to `out` and returns how many; 0 if there are none now.
    /// Never waits.
    ///
    /// # Errors
    /// The kernel's. The descriptor may stay readable, so a caller that keeps getting errors must
    /// pause between attempts. A queue whose device has vanished brings nothing any more, one whose
    /// device is down brings packets again when it is up.
    fn recv(&mut self, out: &mut Vec<Frame>, max: usize) -> io::Result<usize>;

    /// Whether [`Rx::recv`] makes no system call if there are no packets.
    fn is_free_to_ask(&self) -> bool {
        false
    }

    /// Runs programs on received packets, as long as the queue is open. Call it on a thread of the
    /// device's network namespace. Returns `false`, and does nothing, if the device does not
    /// support them.
    ///
    /// # Errors
    /// The kernel's.
    fn attach_programs(&mut self, _programs: IngressPrograms<'_>) -> io::Result<bool> {
        Ok(false)
    }

    /// Keeps the programs of [`Rx::attach_programs`] running after the queue is closed; `None` if
    /// that cannot be. Call it on a thread of the device's network namespace.
    ///
    /// # Errors
    /// The kernel's.
    fn keep(&self, _filter: BorrowedFd<'_>) -> io::Result<Option<Kept>> {
        Ok(None)
    }

    /// Call it when a descriptor was readable and there was no packet: takes the event that made it
    /// readable, if [`Rx::recv`] does not.
    ///
    /// # Errors
    /// As those of [`Rx::recv`].
    fn woken_in_vain(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A way to send.
pub trait Tx: Send {
    /// Sends all frames, in order, and leaves the vector empty. Never waits: drops and reports the
    /// frames that the device does not take.
    fn send(&mut self, frames: &mut Vec<Frame>) -> TxReport;

    /// Sends the first frames, in order, as far as the device has room for them; the others stay in
    /// the vector and are not in the report. Never waits. A device that cannot tell whether it has
    /// room sends as [`Tx::send`] does.
    fn offer(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        self.send(frames)
    }

    /// Limits the bytes under way in the device to about this many from now on; [`Tx::offer`]
    /// leaves the rest. A device that does not know its bytes under way does nothing.
    fn limit(&mut self, _bytes: usize) {}

    /// Bytes under way in the device, in the unit of [`Tx::limit`]; `None` if that is not known.
    fn under_way(&self) -> Option<usize> {
        None
    }

    /// Writable when a device that left frames at the last [`Tx::offer`] has room again; `None`
    /// where it did not, or cannot be waited for.
    fn room(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Results of one or more [`Tx::send`]s. Every frame is counted once, in `packets` or in one of
/// `dropped`, `errors`, `too_big` and `down`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxReport {
    /// Frames that the device took.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that the device had no room for.
    pub dropped: u64,
    /// Frames that the device refused with another error.
    pub errors: u64,
    /// Frames longer than the device takes.
    pub too_big: u64,
    /// Frames not sent because the device is down or gone.
    pub down: u64,
    /// Of the errors, frames that a policy of the host refused.
    pub refused: u64,
}

impl std::ops::AddAssign for TxReport {
    fn add_assign(&mut self, other: TxReport) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.dropped += other.dropped;
        self.errors += other.errors;
        self.too_big += other.too_big;
        self.down += other.down;
        self.refused += other.refused;
    }
}

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A device of the kernel that exists on its own: veth, a network card.
    System,
    /// The same, through AF_XDP sockets.
    Afxdp,
    /// A device made by the switch through which the host's stack takes part: a bridge's own port.
    Internal,
    /// A TAP device made by the switch.
    Tap,
    /// A device of memory, for tests.
    Dummy,
    /// A device that receives the packets of a file.
    Pcap,
    /// A device without receive traffic.
    Null,
    /// Sockets of the host's stack for the packets of tunnels.
    Tunnel,
}

impl Kind {
    /// The name in `Interface.type`; a [`Kind::System`] device has an empty or this type there.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::System => "system",
            Kind::Afxdp => "afxdp",
            Kind::Internal => "internal",
            Kind::Tap => "tap",
            Kind::Dummy => "dummy",
            Kind::Pcap => "pcap",
            Kind::Null => "null",
            Kind::Tunnel => "tunnel",
        }
    }
}

/// The state of a device at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Its own address.
    pub mac: MacAddr,
    /// Largest packet in bytes, without the Ethernet header.
    pub mtu: u32,
    /// The kernel's number of the device; 0 if it is not a kernel's device.
    pub ifindex: u32,
    /// The administrative state is up.
    pub admin_up: bool,
    /// Whether there is a link.
    pub carrier: bool,
    /// Number of carrier changes.
    pub link_resets: u64,
    /// Speed in bit/s, where the device knows it.
    pub speed: Option<u64>,
    /// Whether the link is full duplex, if the device knows it.
    pub full_duplex: Option<bool>,
}

/// Packets that a device lost before the switch saw them, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceDrops {
    /// Dropped because the receive queue was full.
    pub queue_full: u64,
    /// Longer than a frame can hold, and dropped.
    pub truncated: u64,
    /// Received with an error, or in a form that cannot be forwarded.
    pub rx_errors: u64,
}
