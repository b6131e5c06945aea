//! A packet in a pooled buffer, owned by the handle.

use crate::pool::{self, CAPACITY, HEADROOM, SMALL};
use crate::{Csum, Offload, checksum, vnet};
use flow::{PacketMeta, PortNo};
use sys::Buffer;
use wire::{EtherType, VlanTag};

/// A packet from its Ethernet header to its end, without FCS, with headroom, pending offloads and
/// metadata.
///
/// The handle owns its buffer and cannot be copied; dropping it gives the buffer to the dropping
/// thread's free list. A frame whose [`offload`](Frame::offload) says GSO may be up to 64 KB long.
pub struct Frame {
    /// Checksum and segmentation still to be done.
    pub offload: Offload,
    /// The packet's metadata.
    pub meta: PacketMeta,
    buffer: Buffer,
    start: u32,
    len: u32,
}

/// Why a frame could not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame is shorter than the headers to be changed.
    #[error("the frame is too short")]
    Short,
    /// The buffer has no room left before the packet.
    #[error("the frame has no room for another header")]
    NoRoom,
    /// A pending checksum covers a part of the bytes to remove.
    #[error("a checksum is pending on the part to be removed")]
    ChecksumPending,
}

/// Length of the two MAC addresses, which VLAN tags follow.
const MACS: usize = 12;
/// Length of a VLAN tag.
const TAG: usize = VlanTag::LEN;

impl Frame {
    /// Bytes of the longest packet that fits in a small buffer.
    pub(crate) const SMALL: usize = SMALL - HEADROOM;

    /// A frame with a copy of a packet.
    pub fn from_slice(packet: &[u8]) -> Frame {
        let mut frame = Frame::with_len(packet.len());
        frame.data_mut().copy_from_slice(packet);
        frame
    }

    /// Adds frames with copies of packets of at most [`Frame::SMALL`] bytes; faster than
    /// [`Frame::from_slice`] for each.
    ///
    /// # Panics
    /// A packet is longer.
    #[inline]
    pub(crate) fn copy_small<'a>(packets: impl ExactSizeIterator<Item = &'a [u8]>, to: &mut Vec<Frame>) {
        pool::with_small(packets.len(), |buffers| {
            to.extend(buffers.zip(packets).map(|(mut buffer, packet)| {
                buffer[HEADROOM..HEADROOM + packet.len()].copy_from_slice(packet);
                Frame::in_buffer(buffer, packet.len())
            }));
        });
    }

    /// Drops the first `count` frames of a vector; faster than one by one.
    #[inline]
    pub fn drop_first(count: usize, frames: &mut Vec<Frame>) {
        let dropped = frames.drain(..count);
        pool::give_all(dropped.map(Frame::into_buffer));
    }

    /// The frame's buffer.
    #[inline(always)]
    fn into_buffer(mut self) -> Buffer {
        #[cold]
        fn cold_drop<T>(_: T) {}
        let (buffer, extra) = (std::mem::take(&mut self.buffer), self.meta.take_extra());
        // Nothing is left to drop. A drop would make the compiler copy the frame, 20 instructions.
        std::mem::forget(self);
        if extra.is_some() {
            cold_drop(extra);
        }
        buffer
    }

    /// A frame with a copy of a packet, in a buffer of the packet's size. For threads whose frames
    /// other threads drop: their pool stays empty, and a pooled buffer would be a new allocation of
    /// the largest size.
    pub fn unpooled(packet: &[u8]) -> Frame {
        let mut buffer = Vec::with_capacity(HEADROOM + packet.len());
        buffer.resize(HEADROOM, 0);
        buffer.extend_from_slice(packet);
        Frame::in_buffer(buffer.into_boxed_slice().into(), packet.len())
    }

    /// A frame of `len` bytes of unspecified content, with the usual headroom, in a buffer of the
    /// smallest size that it fits in.
    pub(crate) fn with_len(len: usize) -> Frame {
        let buffer = if HEADROOM + len <= SMALL {
            pool::take_small()
        } else if HEADROOM + len <= CAPACITY {
            pool::take()
        } else {
            vec![0; HEADROOM + len].into_boxed_slice().into()
        };
        Frame::in_buffer(buffer, len)
    }

    /// A frame of `before` bytes, which `write` writes, and a copy of the pieces of a packet of
    /// `len` bytes.
    pub(crate) fn of_pieces<'a>(
        before: usize,
        len: usize,
        pieces: impl Iterator<Item = &'a [u8]>,
        write: impl FnOnce(&mut [u8]),
    ) -> Frame {
        let mut frame = Frame::with_len(before + len);
        let data = frame.data_mut();
        write(&mut data[..before]);
        let mut at = before;
        for piece in pieces {
            let end = (at + piece.len()).min(data.len());
            data[at..end].copy_from_slice(&piece[..end - at]);
            at = end;
        }
        frame
    }

    /// An empty frame in a buffer for the largest packet, to be received into.
    pub(crate) fn for_any() -> Frame {
        Frame::in_buffer(pool::take(), 0)
    }

    /// A frame of a packet that lies in a buffer at `start`; `None` if the buffer is too short, or
    /// has no headroom for a vnet header.
    #[inline]
    pub(crate) fn in_place(buffer: Buffer, start: usize, len: usize) -> Option<Frame> {
        let end = start.checked_add(len)?;
        (start >= vnet::LEN && end <= buffer.len()).then(|| {
            let mut frame = Frame::in_buffer(buffer, len);
            frame.start = start as u32;
            frame
        })
    }

    #[inline(always)]
    fn in_buffer(buffer: Buffer, len: usize) -> Frame {
        Frame {
            offload: Offload::NONE,
            meta: PacketMeta::received(PortNo(0)),
            buffer,
            start: HEADROOM as u32,
            len: len as u32,
        }
    }

    /// Prepares a frame for waiting: moves a short packet out of a large buffer, and any packet out
    /// of a device's buffer. It then has the usual headroom.
    pub fn compact(&mut self) {
        if self.buffer.len() > SMALL && HEADROOM + self.len() <= SMALL {
            self.move_out();
        } else {
            self.detach();
        }
    }

    /// Moves the packet out of a device's buffer, for a frame that may outlive its batch: devices
    /// have few buffers and need them back.
    #[inline]
    pub fn detach(&mut self) {
        if self.buffer.is_lent() {
            self.move_out();
        }
    }

    #[cold]
    fn move_out(&mut self) {
        let mut other = Frame::with_len(self.len());
        other.data_mut().copy_from_slice(self.data());
        std::mem::swap(&mut self.buffer, &mut other.buffer);
        self.start = other.start;
    }

    /// Bytes of memory that the frame holds.
    pub fn memory(&self) -> usize {
        self.buffer.len()
    }

    /// The packet's bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let start = self.start as usize;
        &self.buffer[start..start + self.len as usize]
    }

    /// The packet's bytes, to be changed in place.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let start = self.start as usize;
        &mut self.buffer[start..start + self.len as usize]
    }

    /// Length of the packet in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the packet has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes room for `n` bytes before the packet and returns them; their content is unspecified.
    /// Pending work keeps referring to the same headers.
    ///
    /// # Errors
    /// [`FrameError::NoRoom`] where the headroom (at least 118 bytes on a received frame) is used
    /// up.
    #[inline]
    pub fn prepend(&mut self, n: usize) -> Result<&mut [u8], FrameError> {
        // The room of the vnet header stays free, so that a frame can always be sent.
        if n + vnet::LEN > self.start as usize {
            return Err(FrameError::NoRoom);
        }
        self.start -= n as u32;
        self.len += n as u32;
        self.offload = self.offload.shifted_back(n as u16);
        Ok(&mut self.data_mut()[..n])
    }

    /// Removes `n` bytes from the packet's beginning.
    ///
    /// # Errors
    /// [`FrameError::Short`] if there are fewer, [`FrameError::ChecksumPending`] if a pending
    /// checksum covers them.
    #[inline]
    pub fn advance(&mut self, n: usize) -> Result<(), FrameError> {
        if n > self.len() {
            return Err(FrameError::Short);
        }
        let shift = u16::try_from(n).map_err(|_| FrameError::Short)?;
        self.offload = self.offload.shifted_on(shift).ok_or(FrameError::ChecksumPending)?;
        self.start += n as u32;
        self.len -= n as u32;
        Ok(())
    }

    /// Inserts `n` bytes of unspecified content behind the packet's first `at`, and returns them.
    /// Meant for headers near the front: the bytes before the gap move.
    ///
    /// # Errors
    /// [`FrameError::Short`] if there are fewer than `at` bytes, [`FrameError::NoRoom`] if the
    /// headroom is used up, [`FrameError::ChecksumPending`] if a pending checksum covers the place.
    pub fn insert(&mut self, at: usize, n: usize) -> Result<&mut [u8], FrameError> {
        if at > self.len() {
            return Err(FrameError::Short);
        }
        if matches!(self.offload.csum, Csum::Partial { start, .. } if usize::from(start) < at) {
            return Err(FrameError::ChecksumPending);
        }
        self.prepend(n)?;
        let data = self.data_mut();
        data.copy_within(n..n + at, 0);
        Ok(&mut data[at..at + n])
    }

    /// Removes the `n` bytes behind the packet's first `at`.
    ///
    /// # Errors
    /// [`FrameError::Short`] if there are fewer, [`FrameError::ChecksumPending`] if a pending
    /// checksum covers some of them.
    pub fn remove(&mut self, at: usize, n: usize) -> Result<(), FrameError> {
        let end = at
            .checked_add(n)
            .filter(|end| *end <= self.len())
            .ok_or(FrameError::Short)?;
        if matches!(self.offload.csum, Csum::Partial { start, .. } if usize::from(start) < end) {
            return Err(FrameError::ChecksumPending);
        }
        self.data_mut().copy_within(..at, n);
        self.advance(n)
    }

    /// Cuts the packet to at most `n` bytes.
    #[inline]
    pub fn truncate(&mut self, n: usize) {
        self.len = self.len.min(u32::try_from(n).unwrap_or(u32::MAX));
    }

    /// A frame with a copy of the packet, the same pending work and the same metadata.
    pub fn duplicate(&self) -> Frame {
        let mut copy = Frame::from_slice(self.data());
        copy.offload = self.offload;
        copy.meta = self.meta.clone();
        copy
    }

    /// Inserts a VLAN tag behind the MAC addresses, before other tags (IEEE 802.1Q §9).
    ///
    /// # Errors
    /// [`FrameError::Short`] without two MAC addresses, [`FrameError::NoRoom`] where the headroom
    /// is used up.
    pub fn push_vlan(&mut self, tag: VlanTag) -> Result<(), FrameError> {
        if self.len() < MACS {
            return Err(FrameError::Short);
        }
        self.prepend(TAG)?;
        let data = self.data_mut();
        data.copy_within(TAG..TAG + MACS, 0);
        data[MACS..MACS + TAG].copy_from_slice(&tag.to_bytes());
        Ok(())
    }

    /// Removes the outermost VLAN tag ([`EtherType::is_vlan`]); `None` where the packet has none,
    /// or a pending checksum covers it.
    pub fn pop_vlan(&mut self) -> Option<VlanTag> {
        let bytes = self.data().get(MACS..MACS + TAG + 2)?;
        let tag = VlanTag::from_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if !EtherType(tag.tpid).is_vlan() {
            return None;
        }
        self.data_mut().copy_within(..MACS, TAG);
        if self.advance(TAG).is_err() {
            // No sensible checksum covers the tag itself. Undo the move.
            self.data_mut().copy_within(TAG..TAG + MACS, 0);
            self.data_mut()[MACS..MACS + TAG].copy_from_slice(&tag.to_bytes());
            return None;
        }
        Some(tag)
    }

    /// The buffer from the vnet header before the packet to its end: a device reads into it.
    pub(crate) fn receive_area(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start as usize - vnet::LEN..]
    }

    /// Makes a packet of the `received` bytes, vnet header first, that a device wrote into
    /// [`receive_area`](Frame::receive_area), and returns its pending offloads; `None` if they are
    /// unknown, or the bytes are too few for a packet.
    pub(crate) fn take_vnet_header(&mut self, received: usize) -> Option<Offload> {
        self.take_vnet_header_of(received.checked_sub(vnet::LEN)?)
    }

    /// The same for a packet of `len` bytes with its vnet header before it.
    pub(crate) fn take_vnet_header_of(&mut self, len: usize) -> Option<Offload> {
        let start = self.start as usize;
        let header = self.buffer.get(start - vnet::LEN..start)?.try_into().ok()?;
        if len < MACS + 2 || start + len > self.buffer.len() {
            return None;
        }
        self.len = len as u32;
        vnet::decode(header)
    }

    /// Writes the vnet header for the pending work before the packet, and returns both.
    pub(crate) fn with_vnet_header(&mut self) -> &[u8] {
        // The vnet header does not say that a checksum is SCTP's: the kernel would compute the
        // wrong kind.
        if matches!(
            self.offload.csum,
            Csum::Partial {
                offset: checksum::SCTP,
                ..
            }
        ) {
            // It fails where the checksum lies outside of the packet, which the kernel refuses too.
            let _ = checksum::fill(self);
        }
        let header = vnet::encode(&self.offload);
        let start = self.start as usize - vnet::LEN;
        self.buffer[start..start + vnet::LEN].copy_from_slice(&header);
        &self.buffer[start..start + vnet::LEN + self.len as usize]
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        // The buffer is empty if it was given back already.
        if !self.buffer.is_empty() {
            pool::give(std::mem::take(&mut self.buffer));
        }
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frame")
            .field("len", &self.len)
            .field("offload", &self.offload)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gso;

    const PACKET: &[u8] = b"DDDDDDSSSSSS\x08\x00payload-of-the-packet";

    fn tag(tci: u16) -> VlanTag {
        VlanTag { tpid: 0x8100, tci }
    }

    #[test]
    fn a_header_of_type_0x9100_is_no_vlan_tag() {
        let mut frame = Frame::from_slice(b"DDDDDDSSSSSS\x91\x00\x00\x0a\x08\x00payload");
        assert_eq!(frame.pop_vlan(), None);
    }

    #[test]
    fn a_pushed_tag_is_popped_and_leaves_the_packet_as_it_was() {
        let mut frame = Frame::from_slice(PACKET);
        frame.push_vlan(tag(10)).unwrap();
        assert_eq!(&frame.data()[..18], b"DDDDDDSSSSSS\x81\x00\x00\x0a\x08\x00");
        assert_eq!(frame.len(), PACKET.len() + 4);
        assert_eq!(frame.pop_vlan(), Some(tag(10)));
        assert_eq!(frame.data(), PACKET);
        assert_eq!(frame.pop_vlan(), None);
    }

    #[test]
    fn pending_work_follows_its_headers_when_a_tag_is_pushed_or_popped() {
        let mut frame = Frame::from_slice(PACKET);
        frame.offload = Offload {
            csum: Csum::Partial { start: 34, offset: 16 },
            gso: Gso::Tcp4,
            gso_size: 1448,
            hdr_len: 66,
            ecn: false,
            ..Offload::default()
        };
        let before = frame.offload;
        frame.push_vlan(tag(1)).unwrap();
        assert_eq!(frame.offload.csum, Csum::Partial { start: 38, offset: 16 });
        assert_eq!(frame.offload.hdr_len, 70);
        frame.pop_vlan().unwrap();
        assert_eq!(frame.offload, before);
    }

    #[test]
    fn a_duplicate_is_equal_and_apart() {
        let mut frame = Frame::from_slice(PACKET);
        frame.offload.csum = Csum::Valid;
        let copy = frame.duplicate();
        frame.data_mut()[0] = 0;
        assert_eq!(copy.data(), PACKET);
        assert_eq!(copy.offload.csum, Csum::Valid);
    }

    #[test]
    fn a_header_is_put_in_and_taken_out_and_pending_work_follows() {
        let mut frame = Frame::from_slice(PACKET);
        frame.offload.csum = Csum::Partial { start: 14, offset: 2 };
        frame.insert(14, 4).unwrap().copy_from_slice(b"MPLS");
        assert_eq!(&frame.data()[..22], b"DDDDDDSSSSSS\x08\x00MPLSpayl");
        assert_eq!(frame.offload.csum, Csum::Partial { start: 18, offset: 2 });
        assert_eq!(frame.insert(19, 1).err(), Some(FrameError::ChecksumPending));
        assert_eq!(frame.remove(15, 4), Err(FrameError::ChecksumPending));
        assert_eq!(frame.insert(1000, 1).err(), Some(FrameError::Short));
        assert_eq!(frame.remove(usize::MAX, 4), Err(FrameError::Short));
        frame.remove(14, 4).unwrap();
        assert_eq!(frame.data(), PACKET);
        assert_eq!(frame.offload.csum, Csum::Partial { start: 14, offset: 2 });
    }

    #[test]
    fn a_pending_checksum_of_sctp_is_filled_in_before_a_kernel_gets_it() {
        let mut frame = Frame::from_slice(PACKET);
        frame.offload.csum = Csum::Partial { start: 14, offset: 8 };
        let sum = wire::crc32c::sctp(&PACKET[14..]).unwrap();
        assert_eq!(frame.with_vnet_header()[0] & 1, 0);
        assert_eq!(frame.data()[22..26], sum.to_le_bytes());
    }

    #[test]
    fn headroom_ends_in_an_error_and_never_in_a_panic() {
        let mut frame = Frame::from_slice(PACKET);
        let pushed = (0..100).take_while(|_| frame.push_vlan(tag(1)).is_ok()).count();
        assert_eq!(pushed, (HEADROOM - vnet::LEN) / 4);
        assert_eq!(frame.push_vlan(tag(1)), Err(FrameError::NoRoom));
        assert_eq!(frame.with_vnet_header().len(), vnet::LEN + PACKET.len() + 4 * pushed);
    }

    #[test]
    fn short_frames_are_refused() {
        let mut frame = Frame::from_slice(b"short");
        assert_eq!(frame.push_vlan(tag(1)), Err(FrameError::Short));
        assert_eq!(frame.pop_vlan(), None);
        assert_eq!(frame.advance(6), Err(FrameError::Short));
        frame.advance(5).unwrap();
        assert!(frame.is_empty());
        assert_eq!(Frame::from_slice(b"DDDDDDSSSSSS\x81\x00\x00").pop_vlan(), None);
    }

    #[test]
    fn a_short_packet_can_be_moved_out_of_a_large_buffer() {
        let mut frame = Frame::for_any();
        frame.len = PACKET.len() as u32;
        frame.data_mut().copy_from_slice(PACKET);
        frame.push_vlan(tag(7)).unwrap();
        frame.meta.priority = 3;
        let packet = frame.data().to_vec();
        assert_eq!(frame.memory(), CAPACITY);
        frame.compact();
        assert_eq!(
            (frame.memory(), frame.data(), frame.meta.priority),
            (SMALL, &packet[..], 3)
        );
        assert!(frame.push_vlan(tag(8)).is_ok());
        let mut long = Frame::from_slice(&vec![1; SMALL]);
        long.compact();
        assert_eq!(long.memory(), CAPACITY);
    }

    #[test]
    fn a_tag_inside_a_pending_checksum_stays() {
        let mut frame = Frame::from_slice(b"DDDDDDSSSSSS\x81\x00\x00\x01\x08\x00rest");
        frame.offload.csum = Csum::Partial { start: 2, offset: 0 };
        let before = frame.data().to_vec();
        assert_eq!(frame.pop_vlan(), None);
        assert_eq!(frame.data(), before);
    }

    #[test]
    fn a_packet_larger_than_a_pooled_buffer_is_held_whole() {
        let packet = vec![7; CAPACITY * 2];
        assert_eq!(Frame::from_slice(&packet).data(), packet);
    }
}
