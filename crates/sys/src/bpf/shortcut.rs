//! Programs that forward known packets from device to device inside the kernel.
//!
//! A packet that a device receives meets two programs on its way, one right after the other on the
//! same processor:
//! - The *filter* of the device's packet socket looks for the packet's key among the ways. Where
//!   there is one in force, it counts the packet, notes where it goes, and keeps it from the
//!   socket.
//! - The *redirect* on the device's ingress sends what was noted on its way, and drops what was
//!   not, which the socket has.
//!
//! So whether a packet goes through the process is decided once.
//!
//! A way depends on epochs, which are numbers that only grow. It is in force while their sum is the
//! one that was stored with it. To [advance](Ways::advance) an epoch suspends all ways that depend
//! on it, at once, until each is [renewed](Ways::renew). Neither needs a system call: epochs and
//! sums lie in memory that is shared with the kernel.

use super::assembler::{Alu, Assembler, FP, If, R0, R1, R2, R3, R4, R6, R7, R8, R9, Size};
use super::map::{Kind, Map, NO_PREALLOC, SharedArray};
use super::{BPF_PROG_TYPE_SCHED_CLS, Instruction, TC_ACT_SHOT, TcxLink, link_tcx, load};
use crate::error::{Error, Result};
use crate::packet_socket::PacketSocket;
use key::{AT_KEY, AT_NUMBER, put_key_together};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

mod key;
mod probe;

pub use probe::Probe;

/// The programs' names, as `bpftool prog` prints them.
pub const FILTER: &str = "oxvs_shortcut";
const REDIRECT: &str = "oxvs_redirect";

/// Ways that there can be.
pub const WAYS: u32 = 8192;
/// Ports that there can be; number 0 is nobody's.
pub const PORTS: u32 = 1024;
/// Number of epochs, a power of two. All ways depend on number 0. The last one never advances.
pub const EPOCHS: u32 = 1 << 16;
const NO_EPOCH: u32 = EPOCHS - 1;
/// Most epochs that a way depends on, number 0 not counted.
pub const EPOCHS_OF_WAY: usize = 32;
/// The program checks whether the list of epochs ends after every so many.
const EPOCHS_AT_ONCE: usize = 4;
/// Bytes of a key; what is in them is said at [`Key`].
pub const KEY: usize = 72;

/// What a packet must have in common with another to go the same way, as the filter puts it
/// together:
/// - bytes 0 to 3: the port that it came in by, in the machine's order;
/// - bytes 4 to 7: the VLAN tag that the kernel took out of it, its TCI, and the TPID in the
///   network's order above it; 0 without one;
/// - from byte 8 on: its headers, with zeros in the place of the lengths, the identification and
///   the checksum of an IPv4 header, of the length in an IPv6 header, of an ICMP checksum; up to
///   the ports or the type and code.
pub type Key = [u8; KEY];

const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;
const MAP_LOOKUP: i32 = 1;
const REDIRECT_TO: i32 = 23;
const REDIRECT_TO_PEER: i32 = 155;
const PUSH_TAG: i32 = 18;
const POP_TAG: i32 = 19;
const COARSE_TIME: i32 = 160;

/// Its offset in `struct __sk_buff`.
const GSO_SIZE: i16 = 176;

/// No sum of epochs.
const NEVER: u64 = u64::MAX;

/// Words of a row of `counters`.
const ROW: usize = 8;
const SUM: usize = 0;
const TICKET: usize = 1;
const PACKETS: usize = 2;
const BYTES: usize = 3;
const USED: usize = 4;

/// Words of a row of `ports`.
const RX_PACKETS: usize = 0;
const RX_BYTES: usize = 1;
const TX_PACKETS: usize = 2;
const TX_BYTES: usize = 3;

/// Offsets in a value of `ways`.
const OF_WAY: i16 = 0;
const OF_TICKET: i16 = 4;
const OF_DEVICE: i16 = 8;
const OF_LONGEST: i16 = 12;
const OF_PORT: i16 = 16;
const OF_PEER: i16 = 20;
/// A tag to be put on, as in a [`Key`], or [`POPPED`]; 0 for neither.
const OF_TAG: i16 = 24;
/// How many epochs the way depends on, rounded up to a multiple of [`EPOCHS_AT_ONCE`].
const OF_EPOCH_COUNT: i16 = 28;
/// Their numbers; [`NO_EPOCH`] behind the last one.
const OF_EPOCHS: i16 = 32;
const VALUE: usize = OF_EPOCHS as usize + 4 * EPOCHS_OF_WAY;

/// In the place of a tag that is put on: one is taken off. No tag has the TPID 0.
const POPPED: i32 = 1;

/// Offsets in a note.
const WHERE_TO: i16 = 0;
const ITS_TAG: i16 = 8;

/// What programs and the process share.
pub struct Ways {
    /// By key: a row of `counters`, its ticket, and where to.
    ways: Map,
    /// By way: the sum of epochs with which it is in force, and what has gone it.
    counters: SharedArray,
    /// By port: what has come in and gone out.
    ports: SharedArray,
    /// Epochs by number, in one row.
    epochs: SharedArray,
    /// Of each processor, between the two programs: the port that a packet came in by, the device
    /// that it goes out by, and what becomes of its tag.
    noted: Map,
}

/// Where packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The port, below [`PORTS`].
    pub port: u32,
    /// The kernel's number of its device.
    pub ifindex: u32,
    /// The longest packet, in bytes from the Ethernet header on without a tag that the kernel took
    /// out; what is longer goes through the process, but for what the device cuts.
    pub longest: u32,
    /// Packets go to the other end of the device, a veth in another network namespace, as if it had
    /// received them: that is sooner, and passes by the device's qdisc, captures and counters. To
    /// other devices they are lost.
    pub to_peer: bool,
    /// What becomes of their VLAN tag.
    pub tag: TagChange,
}

/// What becomes of a packet's VLAN tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagChange {
    /// It goes as it came.
    #[default]
    None,
    /// One without a tag gets this.
    Push {
        /// 0x8100 or 0x88a8.
        tpid: u16,
        /// Priority, drop eligibility and number of the VLAN.
        tci: u16,
    },
    /// It loses its only one.
    Pop,
}

impl TagChange {
    /// As [`OF_TAG`] has it.
    fn number(self) -> u32 {
        match self {
            TagChange::None => 0,
            TagChange::Push { tpid, tci } => u32::from(tpid.to_be()) << 16 | u32::from(tci),
            TagChange::Pop => POPPED.cast_unsigned(),
        }
    }
}

/// What has gone a way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets.
    pub packets: u64,
    /// Their bytes, with tags.
    pub bytes: u64,
    /// When the last one did, in nanoseconds of the monotonic clock, some milliseconds early; 0
    /// where none has.
    pub used: u64,
}

/// What has come in and gone out by a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCarried {
    /// Packets that came in.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Packets that went out.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
}

/// The two programs of a device.
pub struct Programs {
    filter: OwnedFd,
    redirect: OwnedFd,
}

impl Ways {
    /// No ways. Needs `CAP_BPF` and `CAP_NET_ADMIN`, or `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    /// The kernel's: `EPERM`, `ENOSYS` without BPF.
    pub fn new() -> Result<Ways> {
        Ok(Ways {
            ways: Map::new("oxvs_ways", Kind::Hash, (KEY, VALUE), WAYS, NO_PREALLOC)?,
            counters: SharedArray::new("oxvs_counters", WAYS, ROW)?,
            ports: SharedArray::new("oxvs_ports", PORTS, ROW)?,
            epochs: SharedArray::new("oxvs_epochs", 1, EPOCHS as usize)?,
            noted: Map::new("oxvs_noted", Kind::PerCpuArray, (4, 16), 1, 0)?,
        })
    }

    /// Suspends all ways that depend on an epoch.
    pub fn advance(&self, epoch: u32) {
        self.epochs.row(0)[epoch as usize].fetch_add(1, Release);
    }

    /// An epoch.
    pub fn epoch(&self, number: u32) -> u64 {
        self.epochs.row(0)[number as usize].load(Acquire)
    }

    /// Opens a way with a number that nobody else uses. It is in force while the sum of these
    /// epochs and of number 0 is `sum`.
    ///
    /// # Errors
    /// `EEXIST` where the key has a way, `E2BIG` where there are too many ways or epochs, `ENOMEM`.
    pub fn open(&self, number: u32, key: &Key, way: Way, epochs: &[u32], sum: u64) -> Result<()> {
        let mut value = [0; VALUE];
        let row = self.counters.row(number);
        let ticket = row[TICKET].load(Relaxed).wrapping_add(1) & u64::from(u32::MAX);
        let count = epochs.len().next_multiple_of(EPOCHS_AT_ONCE);
        if count > EPOCHS_OF_WAY {
            return Err(Error::of("epochs of a way")(rustix::io::Errno::TOOBIG));
        }
        let fields = [
            (OF_WAY, number),
            (OF_TICKET, ticket as u32),
            (OF_DEVICE, way.ifindex),
            (OF_LONGEST, way.longest),
            (OF_PORT, way.port),
            (OF_PEER, way.to_peer.into()),
            (OF_TAG, way.tag.number()),
            (OF_EPOCH_COUNT, count as u32),
        ];
        for (offset, field) in fields {
            value[offset as usize..][..4].copy_from_slice(&field.to_ne_bytes());
        }
        let padded = epochs.iter().chain(std::iter::repeat(&NO_EPOCH));
        for (place, epoch) in value[OF_EPOCHS as usize..].chunks_exact_mut(4).zip(padded) {
            place.copy_from_slice(&epoch.to_ne_bytes());
        }
        row[SUM].store(NEVER, Release);
        row[TICKET].store(ticket, Release);
        for word in [PACKETS, BYTES, USED] {
            row[word].store(0, Relaxed);
        }
        self.renew(number, sum);
        self.ways.add(key, &value)
    }

    /// Puts an open way in force while the sum of its epochs and of number 0 is `sum`.
    pub fn renew(&self, number: u32, sum: u64) {
        self.counters.row(number)[SUM].store(sum, Release);
    }

    /// Lets nothing go a way any more.
    pub fn stop(&self, number: u32) {
        self.counters.row(number)[SUM].store(NEVER, Release);
    }

    /// Forgets a way that was stopped.
    ///
    /// # Errors
    /// `ENOENT` where there is none.
    pub fn close(&self, key: &Key) -> Result<()> {
        self.ways.remove(key)
    }

    /// What has gone a way since it was opened.
    pub fn carried(&self, number: u32) -> Carried {
        let row = self.counters.row(number);
        Carried {
            packets: row[PACKETS].load(Acquire),
            bytes: row[BYTES].load(Relaxed),
            used: row[USED].load(Relaxed),
        }
    }

    /// What has come in and gone out by a port.
    pub fn carried_by(&self, port: u32) -> PortCarried {
        let row = self.ports.row(port);
        PortCarried {
            rx_packets: row[RX_PACKETS].load(Relaxed),
            rx_bytes: row[RX_BYTES].load(Relaxed),
            tx_packets: row[TX_PACKETS].load(Relaxed),
            tx_bytes: row[TX_BYTES].load(Relaxed),
        }
    }

    /// Forgets what has come in and gone out by a port.
    pub fn reset(&self, port: u32) {
        for word in self.ports.row(port) {
            word.store(0, Relaxed);
        }
    }

    /// Loads the programs for what comes in by a port. To be attached first is the redirect:
    /// without the filter it drops all, which the socket has; what the filter keeps from the socket
    /// is lost without it.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` before Linux 5.11, which has no coarse time for programs.
    pub fn programs(&self, port: u32) -> Result<Programs> {
        Ok(Programs {
            filter: load(FILTER, BPF_PROG_TYPE_SOCKET_FILTER, 0, 0, &self.filter(port))?,
            redirect: load(REDIRECT, BPF_PROG_TYPE_SCHED_CLS, 0, 0, &self.redirect(port))?,
        })
    }

    /// The filter: returns how many bytes of the packet the socket gets, none or all.
    fn filter(&self, port: u32) -> Vec<Instruction> {
        let mut p = Assembler::default();
        p.alu_reg(Alu::Mov, R6, R1);
        put_key_together(&mut p, port);
        self.find_way(&mut p);
        self.count_and_note(&mut p, port);
        p.alu(Alu::Mov, R0, 0);
        p.exit();

        p.place("through the process");
        note(&mut p, &self.noted, "whole");
        p.alu(Alu::Mov, R1, 0);
        p.store(Size::U64, R0, WHERE_TO, R1);
        p.place("whole");
        p.alu(Alu::Mov, R0, -1);
        p.exit();
        p.finish()
    }

    /// With the key at its place: leaves the way in force in `R8`, and its row in `R7`.
    fn find_way(&self, p: &mut Assembler) {
        p.map(R1, self.ways.as_fd());
        p.alu_reg(Alu::Mov, R2, FP);
        p.alu(Alu::Add, R2, AT_KEY.into());
        p.call(MAP_LOOKUP);
        p.jump_if(If::Eq, R0, 0, "through the process");
        p.alu_reg(Alu::Mov, R8, R0);
        p.load(Size::U32, R1, R8, OF_WAY);
        row_of(p, &self.counters);
        p.jump_if(If::Eq, R0, 0, "through the process");
        p.alu_reg(Alu::Mov, R7, R0);
        self.sum_epochs(p);
        p.load(Size::U64, R1, R7, word(SUM));
        p.jump_if_reg(If::Ne, R1, R2, "through the process");
        // After the sum: a way that has another's number has another ticket.
        p.load(Size::U32, R1, R7, word(TICKET));
        p.load(Size::U32, R2, R8, OF_TICKET);
        p.jump_if_reg(If::Ne, R1, R2, "through the process");
        p.load(Size::U32, R1, R8, OF_LONGEST);
        p.jump_if_reg(If::Less, R9, R1, "fits");
        p.jump_if_reg(If::Eq, R9, R1, "fits");
        p.load(Size::U32, R1, R6, GSO_SIZE);
        p.jump_if(If::Eq, R1, 0, "through the process");
        p.place("fits");
    }

    /// With the way in `R8`: `R2` = the sum of its epochs.
    fn sum_epochs(&self, p: &mut Assembler) {
        p.only_value(R3, self.epochs.as_fd());
        p.load(Size::U64, R2, R3, 0);
        p.load(Size::U32, R4, R8, OF_EPOCH_COUNT);
        for n in 0..EPOCHS_OF_WAY {
            if n % EPOCHS_AT_ONCE == 0 {
                p.jump_if(If::Eq, R4, n as i32, "all epochs");
            }
            p.load(Size::U32, R1, R8, OF_EPOCHS + 4 * n as i16);
            p.alu(Alu::And, R1, (EPOCHS - 1).cast_signed());
            p.alu(Alu::Shl, R1, 3);
            p.alu_reg(Alu::Add, R1, R3);
            p.load(Size::U64, R1, R1, 0);
            p.alu_reg(Alu::Add, R2, R1);
        }
        p.place("all epochs");
    }

    /// With `R7`, `R8` and the length in `R9`: counts the packet, and notes where it goes.
    fn count_and_note(&self, p: &mut Assembler, port: u32) {
        note(p, &self.noted, "through the process");
        p.alu(Alu::Mov, R1, port.cast_signed());
        p.alu(Alu::Shl, R1, 32);
        p.load(Size::U32, R2, R8, OF_DEVICE);
        p.alu_reg(Alu::Or, R1, R2);
        p.load(Size::U32, R2, R8, OF_PEER);
        p.alu(Alu::Shl, R2, PEER_BIT);
        p.alu_reg(Alu::Or, R1, R2);
        p.store(Size::U64, R0, WHERE_TO, R1);
        p.load(Size::U32, R1, R8, OF_TAG);
        p.store(Size::U64, R0, ITS_TAG, R1);

        p.load(Size::U32, R1, FP, AT_KEY + 4);
        p.jump_if(If::Eq, R1, 0, "untagged");
        p.alu(Alu::Add, R9, 4);
        p.place("untagged");
        add(p, R7, PACKETS, BYTES);
        p.call(COARSE_TIME);
        p.store(Size::U64, R7, word(USED), R0);

        p.alu(Alu::Mov, R1, port.cast_signed());
        row_of(p, &self.ports);
        p.jump_if(If::Eq, R0, 0, "received");
        add(p, R0, RX_PACKETS, RX_BYTES);
        p.place("received");
        p.load(Size::U32, R1, R8, OF_PORT);
        row_of(p, &self.ports);
        p.jump_if(If::Eq, R0, 0, "sent");
        p.load(Size::U32, R1, R8, OF_TAG);
        p.jump_if(If::Eq, R1, 0, "as long as it came");
        p.alu(Alu::Add, R9, 4);
        p.jump_if(If::Ne, R1, POPPED, "as long as it came");
        p.alu(Alu::Sub, R9, 8);
        p.place("as long as it came");
        add(p, R0, TX_PACKETS, TX_BYTES);
        p.place("sent");
    }

    /// The program on the ingress: what the filter has just noted goes its way, all else ends here.
    fn redirect(&self, port: u32) -> Vec<Instruction> {
        let mut p = Assembler::default();
        p.alu_reg(Alu::Mov, R6, R1);
        note(&mut p, &self.noted, "drop");
        p.load(Size::U64, R9, R0, WHERE_TO);
        p.load(Size::U64, R7, R0, ITS_TAG);
        p.alu(Alu::Mov, R1, 0);
        p.store(Size::U64, R0, WHERE_TO, R1);
        p.low_half(R8, R9);
        p.alu(Alu::Shr, R9, 32);
        p.alu_reg(Alu::Mov, R1, R9);
        p.alu(Alu::And, R1, 0xffff);
        p.jump_if(If::Ne, R1, port.cast_signed(), "drop");
        change_tag(&mut p);
        p.alu_reg(Alu::Mov, R1, R8);
        p.alu(Alu::Mov, R2, 0);
        p.alu(Alu::Shr, R9, PEER_BIT - 32);
        p.jump_if(If::Ne, R9, 0, "to its peer");
        p.call(REDIRECT_TO);
        p.exit();
        p.place("to its peer");
        p.call(REDIRECT_TO_PEER);
        p.exit();
        p.place("drop");
        p.alu(Alu::Mov, R0, TC_ACT_SHOT);
        p.exit();
        p.finish()
    }
}

/// In what is noted between the programs: the bit that says that the packet goes to the device's
/// peer, above the numbers of ports.
const PEER_BIT: i32 = 48;

impl Programs {
    /// Attaches the redirect to what a device receives, before other programs there.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` before Linux 6.6.
    pub fn link_tcx(&self, ifindex: u32) -> Result<TcxLink> {
        link_tcx(self.redirect(), ifindex)
    }

    /// The redirect, to be attached otherwise.
    pub fn redirect(&self) -> BorrowedFd<'_> {
        self.redirect.as_fd()
    }

    /// Attaches the filter.
    ///
    /// # Errors
    /// The kernel's.
    pub fn filter(&self, socket: &PacketSocket) -> Result<()> {
        socket.attach_filter(self.filter.as_fd())
    }
}

/// With the packet in `R6`: does to its tag what `R7` says.
fn change_tag(p: &mut Assembler) {
    p.jump_if(If::Eq, R7, 0, "as it is");
    p.alu_reg(Alu::Mov, R1, R6);
    p.jump_if(If::Eq, R7, POPPED, "without its tag");
    p.alu_reg(Alu::Mov, R2, R7);
    p.alu(Alu::Shr, R2, 16);
    p.alu_reg(Alu::Mov, R3, R7);
    p.alu(Alu::And, R3, 0xffff);
    p.call(PUSH_TAG);
    p.jump_if(If::Ne, R0, 0, "drop");
    p.jump("as it is");
    p.place("without its tag");
    p.call(POP_TAG);
    p.jump_if(If::Ne, R0, 0, "drop");
    p.place("as it is");
}

fn word(number: usize) -> i16 {
    (number * 8) as i16
}

/// `R0 = &array[R1]`
fn row_of(p: &mut Assembler, array: &SharedArray) {
    p.store(Size::U32, FP, AT_NUMBER, R1);
    p.map(R1, array.as_fd());
    look_up_number(p);
}

fn look_up_number(p: &mut Assembler) {
    p.alu_reg(Alu::Mov, R2, FP);
    p.alu(Alu::Add, R2, AT_NUMBER.into());
    p.call(MAP_LOOKUP);
}

/// `R0` = this processor's note; jumps where there is none, which cannot be.
fn note(p: &mut Assembler, noted: &Map, otherwise: &'static str) {
    p.store_value(Size::U32, FP, AT_NUMBER, 0);
    p.map(R1, noted.as_fd());
    look_up_number(p);
    p.jump_if(If::Eq, R0, 0, otherwise);
}

/// Counts one packet and the bytes in `R9`.
fn add(p: &mut Assembler, row: super::assembler::R, packets: usize, bytes: usize) {
    p.alu(Alu::Mov, R1, 1);
    p.atomic_add(row, word(packets), R1);
    p.atomic_add(row, word(bytes), R9);
}
