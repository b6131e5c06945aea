//! The scheduler's interface to packets, and the priorities of packets.

/// A packet of a scheduler. The scheduler owns it until it returns it as sent or as dropped.
pub trait Packet {
    /// Bytes of all its frames, from the destination address to the end of the payload. For a
    /// packet that is segmented later, with the headers of every segment. At most 2^20.
    fn bytes(&self) -> u32;

    /// Frames that it will be on the link, at least 1.
    fn segments(&self) -> u32 {
        1
    }

    /// A hash of the addresses, protocol and ports of the flow, the same for each of its packets,
    /// not foreseeable from outside.
    fn flow_hash(&self) -> u64;

    /// The number of the queue that it was put in (`set_queue`, `enqueue`); 0 is the default queue.
    fn queue(&self) -> u32 {
        0
    }

    /// Its priority.
    fn priority(&self) -> Priority {
        Priority::BEST_EFFORT
    }

    /// Sets Congestion Experienced (RFC 3168) if the packet is ECN-capable. Returns whether it is
    /// set now.
    fn mark_ecn(&mut self) -> bool;

    /// Bytes of memory that it holds, for limits of memory.
    fn memory(&self) -> u32 {
        self.bytes()
    }
}

/// A priority of 0 to 15, as Linux's `skb->priority` of a packet without a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority(u8);

impl Priority {
    /// Ordinary traffic.
    pub const BEST_EFFORT: Priority = Priority(0);
    /// Traffic of the lowest priority.
    pub const BULK: Priority = Priority(2);
    /// Interactive traffic.
    pub const INTERACTIVE: Priority = Priority(6);
    /// Network control.
    pub const CONTROL: Priority = Priority(7);

    /// The low four bits.
    pub const fn new(n: u8) -> Priority {
        Priority(n & 15)
    }

    /// Of a DSCP (RFC 2474, 4594): CS6 and CS7 are control; EF, VOICE-ADMIT and CS5 interactive;
    /// CS1 and LE (RFC 8622) bulk; all else best effort.
    pub const fn of_dscp(dscp: u8) -> Priority {
        match dscp & 63 {
            48 | 56 => Priority::CONTROL,
            46 | 44 | 40 => Priority::INTERACTIVE,
            8 | 1 => Priority::BULK,
            _ => Priority::BEST_EFFORT,
        }
    }

    /// Of an 802.1Q priority code point (annex I): 6 and 7 are control, 4 and 5 (video, voice)
    /// interactive, 1 (background) bulk.
    pub const fn of_pcp(pcp: u8) -> Priority {
        match pcp & 7 {
            6 | 7 => Priority::CONTROL,
            4 | 5 => Priority::INTERACTIVE,
            1 => Priority::BULK,
            _ => Priority::BEST_EFFORT,
        }
    }

    /// The band of `pfifo_fast`, 0 (first) to 2.
    #[inline]
    pub const fn band(self) -> usize {
        const MAP: [u8; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];
        MAP[(self.0 & 15) as usize] as usize
    }
}
