//! Filling in a checksum that was left to a device.

use crate::{Csum, Frame};
use wire::checksum::Sum;
use wire::crc32c;

/// The offset of SCTP's checksum, a CRC of four bytes. Protocols with the Internet checksum have it
/// at other offsets.
pub(crate) const SCTP: u16 = 8;

/// The pending checksum lies outside of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pending checksum lies outside of the packet")]
pub struct ChecksumError;

/// Computes a pending checksum and writes it into the packet; does nothing if none is pending. Not
/// for segments to be cut: their parts have checksums of their own
/// ([`gso::segment`](crate::gso::segment)).
///
/// # Errors
/// [`ChecksumError`]; the frame is unchanged then.
pub fn fill(frame: &mut Frame) -> Result<(), ChecksumError> {
    let Csum::Partial { start, offset } = frame.offload.csum else {
        return Ok(());
    };
    let covered = frame.data_mut().get_mut(usize::from(start)..).ok_or(ChecksumError)?;
    let field = usize::from(offset)..usize::from(offset) + 2;
    if covered.len() < field.end {
        return Err(ChecksumError);
    }
    if offset == SCTP {
        let sum = crc32c::sctp(covered).ok_or(ChecksumError)?;
        covered[8..12].copy_from_slice(&sum.to_le_bytes());
        frame.offload.csum = Csum::Valid;
        return Ok(());
    }
    // The field holds the pseudo header's sum, which thereby enters. A result of zero is sent as
    // its other form: zero means "none" in UDP, and the two are equal elsewhere.
    let sum = Sum::ZERO.bytes(covered).finish_udp();
    covered[field].copy_from_slice(&sum.to_be_bytes());
    frame.offload.csum = Csum::Valid;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_outside_of_the_packet_is_refused() {
        for (start, offset) in [(60, 0), (59, 0), (58, 1), (u16::MAX, u16::MAX)] {
            let mut frame = Frame::from_slice(&[1; 60]);
            frame.offload.csum = Csum::Partial { start, offset };
            assert_eq!(fill(&mut frame), Err(ChecksumError));
            assert_eq!(frame.data(), [1; 60]);
        }
    }

    #[test]
    fn the_checksum_of_sctp_is_a_crc() {
        let mut frame = Frame::from_slice(&[1; 60]);
        frame.offload.csum = Csum::Partial { start: 34, offset: 8 };
        fill(&mut frame).unwrap();
        let mut packet = [1; 26];
        packet[8..12].fill(0);
        assert_eq!(frame.data()[42..46], crc32c::crc32c(&packet).to_le_bytes());
        frame.offload.csum = Csum::Partial { start: 49, offset: 8 };
        assert_eq!(fill(&mut frame), Err(ChecksumError));
    }

    #[test]
    fn a_frame_without_a_pending_checksum_stays_as_it_is() {
        let mut frame = Frame::from_slice(&[1; 60]);
        assert_eq!(fill(&mut frame), Ok(()));
        assert_eq!(frame.data(), [1; 60]);
        assert_eq!(frame.offload.csum, Csum::Unknown);
    }
}
