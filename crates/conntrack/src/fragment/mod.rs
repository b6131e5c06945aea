//! Fragments: reassembly before tracking, and the same fragments again behind it (RFC 815,
//! RFC 8200 §4.5).
//!
//! [`Reassembly::receive`] holds the fragments of a datagram until all are there, and returns it as
//! a whole. [`Whole::split`] makes the fragments again, with the sizes and headers that they had,
//! and the addresses and data that the whole packet has by then.
//!
//! Invariants
//! - A datagram with two fragments that overlap is dropped, with all that follow of it (RFC 5722).
//!   An exact copy of a fragment is dropped alone.
//! - The number of fragments and their bytes are bounded in total. When there is no room, the
//!   oldest datagram of the switch's port with the most fragments goes.
//! - A datagram that is not whole after [`TIMEOUT`] is dropped.
//! - Fragments of different zones never meet.
//!
//! One lock protects all fragments; packets that are not fragments do not pass here.

mod header;
mod store;

pub use store::{Counts, Reassembly};

use header::Header;
use std::time::Duration;

/// How long an incomplete datagram is held, as in Open vSwitch.
pub const TIMEOUT: Duration = Duration::from_secs(15);
/// Fragments of a datagram at most.
pub const MOST_OF_ONE: usize = 256;
/// Bytes of all fragments at most.
pub const MOST_BYTES: usize = 16 << 20;

/// What became of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// It waits for others.
    Held,
    /// It was the last one of its datagram.
    Whole(Whole),
    /// It was dropped.
    Dropped(Drop),
}

/// Why a fragment was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Drop {
    /// It is no fragment, is cut short, has a length that is not a multiple of eight, or ends
    /// beyond the longest packet.
    Malformed,
    /// It is smaller than the least size, and not the last one.
    TooSmall,
    /// It overlaps with another one, or contradicts it, or one before did.
    Overlap,
    /// It is a copy of one that is there.
    Duplicate,
    /// Its datagram has too many fragments, or there is no room.
    Full,
}

/// A reassembled datagram.
#[derive(Debug, PartialEq, Eq)]
pub struct Whole {
    /// The packet from the IP header on, without fragment header.
    pub packet: Vec<u8>,
    /// What is needed to make the fragments again.
    pieces: Vec<Piece>,
}

/// A fragment without its data.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    header: Vec<u8>,
    start: usize,
    len: usize,
}

impl Whole {
    /// How many fragments it has.
    pub fn fragments(&self) -> usize {
        self.pieces.len()
    }

    /// The fragments, in the order of their offsets, with addresses and data from the whole packet.
    /// `None` if the packet has another length than before.
    pub fn split(&self) -> Option<Vec<Vec<u8>>> {
        let len: usize = self.pieces.iter().map(|piece| piece.len).sum();
        let (head, data) = self.packet.split_at_checked(self.packet.len().checked_sub(len)?)?;
        let v6 = head.first()? >> 4 == 6;
        let addresses = if v6 { 8..40 } else { 12..20 };
        // The whole has the header of the first fragment.
        let expected = self.pieces.first()?.header.len() - if v6 { header::FRAGMENT } else { 0 };
        if head.len() != expected {
            return None;
        }
        let mut fragments = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            let mut fragment = Vec::with_capacity(piece.header.len() + piece.len);
            fragment.extend_from_slice(&piece.header);
            fragment
                .get_mut(addresses.clone())?
                .copy_from_slice(head.get(addresses.clone())?);
            if !v6 {
                header::fix_checksum(&mut fragment);
            }
            fragment.extend_from_slice(data.get(piece.start..piece.start + piece.len)?);
            fragments.push(fragment);
        }
        Some(fragments)
    }
}

/// Joins all fragments of a datagram; they are in order and without gaps.
fn join(parts: Vec<(Header, Vec<u8>)>) -> Option<Whole> {
    let len = parts.iter().map(|(header, _)| header.data.len()).sum();
    let mut packet = parts.first()?.0.whole(&parts.first()?.1, len)?;
    let mut pieces = Vec::with_capacity(parts.len());
    for (header, bytes) in parts {
        packet.extend_from_slice(bytes.get(header.data.clone())?);
        pieces.push(Piece {
            header: bytes.get(..header.data.start)?.to_vec(),
            start: header.offset,
            len: header.data.len(),
        });
    }
    Some(Whole { packet, pieces })
}
