//! The offload metadata of a packet: work on it that the kernel left pending.

/// The state of a packet's transport checksum and segmentation, and what the kernel may know of it
/// when it is sent. The default is an ordinary packet
/// with an unverified checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The transport checksum.
    pub csum: Csum,
    /// How to cut the packet into segments; [`Gso::None`] for a packet that goes out as it is.
    pub gso: Gso,
    /// TCP segmentation has to keep Congestion Window Reduced on the first segment only (RFC 3168
    /// §6.1.2).
    pub ecn: bool,
    /// Payload bytes per segment; meaningless for [`Gso::None`].
    pub gso_size: u16,
    /// Length in bytes of all headers from the Ethernet header to the transport header; a hint,
    /// meaningless for [`Gso::None`].
    pub hdr_len: u16,
    /// The packet was put into a tunnel here. A packet socket gives the kernel several of them at
    /// once if their outer headers are the same; other devices do not look at it.
    pub encapsulated: bool,
}

/// The state of a packet's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Csum {
    /// In the packet, not verified.
    #[default]
    Unknown,
    /// In the packet, verified by the sender's device or not needed because the packet never left
    /// this machine.
    Valid,
    /// Still to be filled in: the field holds the pseudo header's sum.
    Partial {
        /// Offset from the Ethernet header at which summing starts.
        start: u16,
        /// Offset of the 16-bit field from `start`.
        offset: u16,
    },
}

/// The kind of a segment larger than the wire's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Gso {
    /// An ordinary packet.
    #[default]
    None,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// Datagrams of one UDP flow over IPv4 or IPv6, to be cut at `gso_size` (not IP fragments).
    Udp,
}

impl Offload {
    /// The default, as a constant: the compiler writes it in one piece, so that reading a new frame
    /// does not wait for several smaller writes.
    pub const NONE: Offload = Offload {
        csum: Csum::Unknown,
        gso: Gso::None,
        ecn: false,
        gso_size: 0,
        hdr_len: 0,
        encapsulated: false,
    };

    /// An ordinary packet that was put into a tunnel.
    pub const ENCAPSULATED: Offload = Offload {
        encapsulated: true,
        ..Offload::NONE
    };

    /// The same work after `n` bytes were put in before the headers it refers to.
    pub(crate) fn shifted_back(mut self, n: u16) -> Offload {
        if let Csum::Partial { start, .. } = &mut self.csum {
            *start = start.saturating_add(n);
        }
        if self.gso != Gso::None {
            self.hdr_len = self.hdr_len.saturating_add(n);
        }
        self
    }

    /// The same work after `n` bytes before the headers it refers to were removed; `None` if those
    /// bytes hold data that the checksum covers.
    pub(crate) fn shifted_on(mut self, n: u16) -> Option<Offload> {
        if let Csum::Partial { start, .. } = &mut self.csum {
            *start = start.checked_sub(n)?;
        }
        if self.gso != Gso::None {
            self.hdr_len = self.hdr_len.saturating_sub(n);
        }
        Some(self)
    }
}
