//! A connection in memory: two cache lines of atomics. The first one has what a lookup compares and
//! the protocol's state, the second one what every packet adds to. IPv6 addresses and the tuple of
//! a control connection are in an [`Extension`].

use crate::alg::Helper;
use crate::tuple::Tuple;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A connection. Fields that identify it change only while no reader can find it.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Entry {
    /// How often the entry began or ended a life; it is in use where the number is odd.
    life: AtomicU32,
    /// Index of the [`Extension`]; 0 if it has none.
    extension: AtomicU32,
    /// See [`Kind`].
    kind: AtomicU64,
    /// Ports of both directions: original source and destination, reply source and destination.
    ports: AtomicU64,
    /// First word of the addresses of each direction.
    original: AtomicU64,
    reply: AtomicU64,
    /// Sequence numbers of each side; of SCTP the verification tags.
    pub(crate) sides: [AtomicU64; 2],
    /// The state of the protocol, see [`crate::tcp`], [`crate::datagram`] and [`crate::sctp`].
    pub(crate) stage: AtomicU64,

    /// When the connection times out.
    pub(crate) expires: AtomicU64,
    /// Packets and bytes of each direction.
    pub(crate) packets: [AtomicU64; 2],
    pub(crate) bytes: [AtomicU64; 2],
    mark: AtomicU32,
    in_port: AtomicU32,
    label: [AtomicU64; 2],
}

/// The rest of a connection of IPv6 or of a helper.
#[derive(Default)]
pub(crate) struct Extension {
    original: [AtomicU64; 3],
    reply: [AtomicU64; 3],
    parent_addresses: [AtomicU64; 4],
    parent_ports: AtomicU64,
}

/// What identifies a connection besides its tuples, and flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kind(u64);

impl Kind {
    const ZONE: u64 = 0xffff;
    const V6: u64 = 1 << 24;
    /// What a lookup compares: zone, protocol, family.
    const COMPARED: u64 = Kind::V6 | 0xff_ffff;
    /// The source is translated.
    pub(crate) const SNAT: Kind = Kind(1 << 25);
    /// The destination is translated.
    pub(crate) const DNAT: Kind = Kind(1 << 26);
    /// A control connection announced it.
    pub(crate) const RELATED: Kind = Kind(1 << 27);
    /// The helper of a control connection.
    const FTP: Kind = Kind(1 << 28);
    const TFTP: Kind = Kind(1 << 29);
    const LASTING: u64 = Kind::COMPARED | 0x1f << 25;
    /// The label is not zero, or changes.
    const LABEL: u64 = 1 << 30;
    /// Where the number of the timeout policy begins.
    const POLICY: u32 = 32;
    /// Counts the changes of the label; odd while it changes.
    const VERSION: u64 = 1 << 48;

    #[inline]
    pub(crate) fn new(tuple: &Tuple, zone: u16, policy: u16) -> Kind {
        let family = if tuple.is_ipv6() { Kind::V6 } else { 0 };
        Kind(u64::from(zone) | u64::from(tuple.protocol()) << 16 | family | u64::from(policy) << Kind::POLICY)
    }
    #[inline]
    pub(crate) const fn zone(self) -> u16 {
        (self.0 & Kind::ZONE) as u16
    }
    #[inline]
    pub(crate) const fn protocol(self) -> u8 {
        (self.0 >> 16) as u8
    }
    #[inline]
    pub(crate) const fn policy(self) -> u16 {
        (self.0 >> Kind::POLICY) as u16
    }
    #[inline]
    pub(crate) const fn is_v6(self) -> bool {
        self.0 & Kind::V6 != 0
    }
    #[inline]
    pub(crate) const fn has(self, flag: Kind) -> bool {
        self.0 & flag.0 != 0
    }
    pub(crate) const fn with(self, flag: Kind) -> Kind {
        Kind(self.0 | flag.0)
    }
    /// With the helper of a control connection.
    pub(crate) fn with_helper(self, helper: Option<Helper>) -> Kind {
        match helper.filter(|helper| helper.fits(self.protocol())) {
            None => self,
            Some(Helper::Ftp) => self.with(Kind::FTP),
            Some(Helper::Tftp) => self.with(Kind::TFTP),
        }
    }
    /// The helper of a control connection.
    #[inline]
    pub(crate) fn helper(self) -> Option<Helper> {
        match (self.0 >> 28) & 3 {
            0 => None,
            1 => Some(Helper::Ftp),
            _ => Some(Helper::Tftp),
        }
    }
    /// What of it a process hands over to the next one: not its timeout policy, nor whether it has
    /// a label.
    pub(crate) const fn lasting(self) -> u64 {
        self.0 & Kind::LASTING
    }
    /// The reverse of [`Kind::lasting`].
    pub(crate) const fn of_lasting(bits: u64) -> Kind {
        Kind(bits & Kind::LASTING)
    }
    /// Whether its helper reads packets of its protocol.
    pub(crate) fn is_legal(self) -> bool {
        self.helper().is_none_or(|helper| helper.fits(self.protocol()))
    }
    /// With a timeout policy; it had none.
    pub(crate) const fn with_policy(self, policy: u16) -> Kind {
        Kind(self.0 | (policy as u64) << Kind::POLICY)
    }
    /// Whether a side is translated.
    #[inline]
    pub(crate) const fn is_translated(self) -> bool {
        self.0 & (Kind::SNAT.0 | Kind::DNAT.0) != 0
    }
}

/// What a new connection is made of.
pub(crate) struct Birth {
    pub(crate) kind: Kind,
    pub(crate) original: Tuple,
    pub(crate) reply: Tuple,
    pub(crate) sides: [u64; 2],
    pub(crate) stage: u64,
    pub(crate) expires: u64,
    pub(crate) mark: u32,
    pub(crate) label: u128,
    pub(crate) in_port: u32,
    pub(crate) parent: Option<Tuple>,
}

impl Birth {
    /// Whether the entry needs an extension.
    pub(crate) fn is_wide(&self) -> bool {
        self.kind.is_v6() || self.parent.is_some()
    }
}

impl Entry {
    /// The number of its life; odd while it is in use.
    #[inline]
    pub(crate) fn life(&self) -> u32 {
        self.life.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.life() & 1 == 1
    }

    pub(crate) fn extension(&self) -> u32 {
        self.extension.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        Kind(self.kind.load(Ordering::Relaxed))
    }

    /// Port of the switch on which its first packet came in.
    pub(crate) fn in_port(&self) -> u32 {
        self.in_port.load(Ordering::Relaxed)
    }

    /// Begins a life. The caller has the only way to the entry.
    pub(crate) fn begin(&self, extension: Option<(u32, &Extension)>, birth: &Birth) {
        // Who sees one of the new words also sees that the last life has ended.
        fence(Ordering::Release);
        let (original, original_ports) = birth.original.words();
        let (reply, reply_ports) = birth.reply.words();
        if let Some((_, rest)) = extension {
            for n in 0..3 {
                rest.original[n].store(original[n + 1], Ordering::Relaxed);
                rest.reply[n].store(reply[n + 1], Ordering::Relaxed);
            }
            if let Some(parent) = &birth.parent {
                let (addresses, ports) = parent.words();
                let protocol = u64::from(parent.protocol()) << 32;
                (0..4).for_each(|n| rest.parent_addresses[n].store(addresses[n], Ordering::Relaxed));
                rest.parent_ports.store(protocol | u64::from(ports), Ordering::Relaxed);
            } else {
                rest.parent_ports.store(0, Ordering::Relaxed);
            }
        }
        self.extension
            .store(extension.map_or(0, |(index, _)| index), Ordering::Relaxed);
        let label = if birth.label == 0 { 0 } else { Kind::LABEL };
        self.kind.store(birth.kind.0 | label, Ordering::Relaxed);
        let ports = u64::from(original_ports) << 32 | u64::from(reply_ports);
        self.ports.store(ports, Ordering::Relaxed);
        self.original.store(original[0], Ordering::Relaxed);
        self.reply.store(reply[0], Ordering::Relaxed);
        self.sides[0].store(birth.sides[0], Ordering::Relaxed);
        self.sides[1].store(birth.sides[1], Ordering::Relaxed);
        self.stage.store(birth.stage, Ordering::Relaxed);
        self.expires.store(birth.expires, Ordering::Relaxed);
        for counter in self.packets.iter().chain(&self.bytes) {
            counter.store(0, Ordering::Relaxed);
        }
        self.mark.store(birth.mark, Ordering::Relaxed);
        self.in_port.store(birth.in_port, Ordering::Relaxed);
        self.label[0].store((birth.label >> 64) as u64, Ordering::Relaxed);
        self.label[1].store(birth.label as u64, Ordering::Relaxed);
        self.life.fetch_add(1, Ordering::Release);
    }

    /// Ends its life. The words stay until the next one begins.
    pub(crate) fn end(&self) {
        self.life.fetch_add(1, Ordering::Release);
    }

    /// Whether a packet with this tuple belongs to the connection, and if so whether it goes in the
    /// reply direction.
    #[inline(always)]
    pub(crate) fn matches(
        &self,
        tuple: &Tuple,
        kind: Kind,
        extension: impl FnOnce(u32) -> Option<(u64, u64)>,
    ) -> Option<bool> {
        let own = self.kind.load(Ordering::Relaxed);
        if (own ^ kind.0) & Kind::COMPARED != 0 {
            return None;
        }
        let (addresses, ports) = tuple.words();
        let own = self.ports.load(Ordering::Relaxed);
        let first = (
            self.original.load(Ordering::Relaxed),
            self.reply.load(Ordering::Relaxed),
        );
        let mut original = first.0 == addresses[0] && (own >> 32) as u32 == ports;
        let mut reply = first.1 == addresses[0] && own as u32 == ports;
        if kind.is_v6() && (original || reply) {
            let (same_original, same_reply) = extension(self.extension())?;
            original &= same_original == 0;
            reply &= same_reply == 0;
        }
        match (original, reply) {
            (true, _) => Some(false),
            (false, true) => Some(true),
            _ => None,
        }
    }

    /// Both tuples, original direction first.
    pub(crate) fn tuples(&self, extension: Option<&Extension>) -> (Tuple, Tuple) {
        let kind = self.kind();
        let ports = self.ports.load(Ordering::Relaxed);
        let mut words = [[0; 4]; 2];
        words[0][0] = self.original.load(Ordering::Relaxed);
        words[1][0] = self.reply.load(Ordering::Relaxed);
        if kind.is_v6()
            && let Some(rest) = extension
        {
            for n in 0..3 {
                words[0][n + 1] = rest.original[n].load(Ordering::Relaxed);
                words[1][n + 1] = rest.reply[n].load(Ordering::Relaxed);
            }
        }
        let tuple = |words, ports| Tuple::from_words(words, ports, kind.protocol(), kind.is_v6());
        (tuple(words[0], (ports >> 32) as u32), tuple(words[1], ports as u32))
    }

    /// The original tuple of the control connection that announced this one.
    pub(crate) fn parent(&self, extension: Option<&Extension>) -> Option<Tuple> {
        let rest = extension.filter(|_| self.kind().has(Kind::RELATED))?;
        let mut addresses = [0; 4];
        (0..4).for_each(|n| addresses[n] = rest.parent_addresses[n].load(Ordering::Relaxed));
        let ports = rest.parent_ports.load(Ordering::Relaxed);
        Some(Tuple::from_words(
            addresses,
            ports as u32,
            (ports >> 32) as u8,
            self.kind().is_v6(),
        ))
    }

    #[inline]
    pub(crate) fn mark(&self) -> u32 {
        self.mark.load(Ordering::Relaxed)
    }

    pub(crate) fn set_mark(&self, value: u32, mask: u32) {
        let _ = self.mark.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
            Some(old & !mask | value & mask)
        });
    }

    /// The label; never a mixture of two.
    #[inline]
    pub(crate) fn label(&self) -> u128 {
        let mut before = self.kind.load(Ordering::Acquire);
        if before & Kind::LABEL == 0 {
            return 0;
        }
        loop {
            let high = self.label[0].load(Ordering::Acquire);
            let low = self.label[1].load(Ordering::Acquire);
            let after = self.kind.load(Ordering::Acquire);
            if before == after && before & Kind::VERSION == 0 {
                return u128::from(high) << 64 | u128::from(low);
            }
            before = after;
            std::hint::spin_loop();
        }
    }

    /// Changes the masked bits of the label. One caller at a time.
    pub(crate) fn set_label(&self, value: u128, mask: u128) {
        let old = self.label();
        let new = old & !mask | value & mask;
        if new == old {
            return;
        }
        let flagged = self.kind.load(Ordering::Relaxed) | Kind::LABEL;
        self.kind.store(flagged.wrapping_add(Kind::VERSION), Ordering::Relaxed);
        fence(Ordering::Release);
        self.label[0].store((new >> 64) as u64, Ordering::Release);
        self.label[1].store(new as u64, Ordering::Release);
        self.kind
            .store(flagged.wrapping_add(2 * Kind::VERSION), Ordering::Release);
    }
}

impl Extension {
    /// The differences of its addresses from these, original and reply direction: 0 where equal.
    #[inline]
    pub(crate) fn difference(&self, addresses: &[u64; 4]) -> (u64, u64) {
        let of =
            |own: &[AtomicU64; 3]| (0..3).fold(0, |sum, n| sum | own[n].load(Ordering::Relaxed) ^ addresses[n + 1]);
        (of(&self.original), of(&self.reply))
    }
}

const _: () = assert!(size_of::<Entry>() == 128);
