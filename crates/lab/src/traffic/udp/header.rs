//! The header of each datagram of a flow.

/// Bytes of the header, and so the least payload of a flow.
pub(crate) const LEN: usize = 16;

/// The magic number that marks our datagrams.
const MAGIC: u8 = 0xc5;

/// The header of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// It belongs to the time before measuring, and is not counted with the others.
    pub(crate) warmup: bool,
    /// Which flow of the run.
    pub(crate) flow: u16,
    /// Number of the datagram in its flow and phase, from 0; wraps.
    pub(crate) sequence: u32,
    /// When it was sent, by the sender's clock, in nanoseconds.
    pub(crate) sent: u64,
}

impl Header {
    /// Writes it into the first [`LEN`] bytes; a shorter payload is left as it is.
    pub(crate) fn write(&self, payload: &mut [u8]) {
        let Some(out) = payload.first_chunk_mut::<LEN>() else {
            return;
        };
        out[0] = MAGIC;
        out[1] = u8::from(self.warmup);
        out[2..4].copy_from_slice(&self.flow.to_be_bytes());
        out[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        out[8..].copy_from_slice(&self.sent.to_be_bytes());
    }

    /// The header of a datagram of ours; none of a stranger's.
    pub(crate) fn read(payload: &[u8]) -> Option<Header> {
        let &[MAGIC, warmup @ (0 | 1), f0, f1, s0, s1, s2, s3, ref sent @ ..] = payload.first_chunk::<LEN>()? else {
            return None;
        };
        Some(Header {
            warmup: warmup == 1,
            flow: u16::from_be_bytes([f0, f1]),
            sequence: u32::from_be_bytes([s0, s1, s2, s3]),
            sent: u64::from_be_bytes(*sent.first_chunk()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_strangers_are_not_ours() {
        let header = Header {
            warmup: true,
            flow: 515,
            sequence: 0xfedc_ba98,
            sent: 0x0123_4567_89ab_cdef,
        };
        let mut payload = [0_u8; 40];
        header.write(&mut payload);
        assert_eq!(Header::read(&payload), Some(header));
        assert_eq!(Header::read(&payload[..15]), None);
        payload[1] = 2;
        assert_eq!(Header::read(&payload), None);
        assert_eq!(Header::read(&[0; 40]), None);
        header.write(&mut [0; 3]);
    }
}
