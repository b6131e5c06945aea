//! The network service header (RFC 8300 §2).

/// Length of a header without metadata.
pub const BASE: usize = 8;

/// Most bytes of metadata: a length has six bits and counts words.
pub const MAX_METADATA: usize = 63 * 4 - BASE;

/// Metadata of fixed length: four context headers.
pub const FIXED: u8 = 1;

/// Metadata of variable length.
pub const VARIABLE: u8 = 2;

/// Length of the metadata of type [`FIXED`].
pub const CONTEXT: usize = 16;

/// Protocols behind the header (RFC 8300 §2.2).
pub mod protocol {
    /// IPv4.
    pub const IPV4: u8 = 1;
    /// IPv6.
    pub const IPV6: u8 = 2;
    /// Ethernet.
    pub const ETHERNET: u8 = 3;
    /// Another network service header.
    pub const NSH: u8 = 4;
}

/// A header of version 0 whose length suits its metadata type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nsh<'a> {
    /// The bits O and U, 2 bits.
    pub flags: u8,
    /// Time to live, 6 bits.
    pub ttl: u8,
    /// Metadata type: [`FIXED`] or [`VARIABLE`].
    pub md_type: u8,
    /// The protocol behind it.
    pub protocol: u8,
    /// Service path identifier, 24 bits.
    pub path: u32,
    /// Service index.
    pub index: u8,
    /// The context headers.
    pub metadata: &'a [u8],
}

impl<'a> Nsh<'a> {
    /// Reads a header; `None` where it is cut short, of another version, or of a length that its
    /// metadata type does not have.
    pub fn parse(data: &'a [u8]) -> Option<Nsh<'a>> {
        let base: &[u8; BASE] = data.first_chunk()?;
        let first = u16::from_be_bytes([base[0], base[1]]);
        let metadata = data.get(BASE..usize::from(first & 0x3f) * 4)?;
        let md_type = base[2] & 0xf;
        let suits = match md_type {
            FIXED => metadata.len() == CONTEXT,
            VARIABLE => true,
            _ => false,
        };
        if first >> 14 != 0 || !suits {
            return None;
        }
        Some(Nsh {
            flags: (first >> 12 & 3) as u8,
            ttl: (first >> 6 & 0x3f) as u8,
            md_type,
            protocol: base[3],
            path: u32::from_be_bytes([0, base[4], base[5], base[6]]),
            index: base[7],
            metadata,
        })
    }

    /// The four context headers of fixed length; none of another metadata type.
    pub fn context(&self) -> impl Iterator<Item = u32> {
        let fixed = if self.md_type == FIXED { self.metadata } else { &[] };
        fixed.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word))
    }

    /// Length of the header in bytes.
    pub fn header_len(&self) -> usize {
        BASE + self.metadata.len()
    }

    /// Writes the header; `None` where `out` is not of its length, or the length is none that a
    /// header can have.
    pub fn write(&self, out: &mut [u8]) -> Option<()> {
        let len = self.header_len();
        if out.len() != len || !len.is_multiple_of(4) || len > BASE + MAX_METADATA {
            return None;
        }
        let first = u16::from(self.flags & 3) << 12 | u16::from(self.ttl & 0x3f) << 6 | (len / 4) as u16;
        let (base, metadata) = out.split_at_mut(BASE);
        base[..2].copy_from_slice(&first.to_be_bytes());
        (base[2], base[3]) = (self.md_type & 0xf, self.protocol);
        base[4..].copy_from_slice(&(self.path << 8 | u32::from(self.index)).to_be_bytes());
        metadata.copy_from_slice(self.metadata);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    fn header(md_type: u8, metadata: &[u8]) -> std::vec::Vec<u8> {
        let nsh = Nsh {
            flags: 2,
            ttl: 63,
            md_type,
            protocol: protocol::ETHERNET,
            path: 0x12_3456,
            index: 255,
            metadata,
        };
        let mut bytes = std::vec![0; nsh.header_len()];
        nsh.write(&mut bytes).unwrap();
        assert_eq!(Nsh::parse(&bytes), Some(nsh));
        bytes
    }

    #[test]
    fn a_header_is_written_as_the_rfc_draws_it() {
        let bytes = header(FIXED, &[7; 16]);
        assert_eq!(bytes[..8], [0x2f, 0xc6, 1, 3, 0x12, 0x34, 0x56, 255]);
        assert!(Nsh::parse(&bytes).unwrap().context().eq([0x0707_0707; 4]));
        let bytes = header(VARIABLE, &[7; 16]);
        assert_eq!(Nsh::parse(&bytes).unwrap().context().count(), 0);
        header(VARIABLE, &[]);
        header(VARIABLE, &[1; MAX_METADATA]);
    }

    #[test]
    fn a_header_cut_at_any_byte_or_of_a_wrong_length_is_none() {
        for (md_type, metadata) in [(FIXED, &[7u8; 16][..]), (VARIABLE, &[7; 28])] {
            let whole = header(md_type, metadata);
            for cut in 0..whole.len() {
                assert_eq!(Nsh::parse(&whole[..cut]), None, "{md_type} {cut}");
            }
            for words in 0..64 {
                let mut wrong = whole.clone();
                wrong[1] = wrong[1] & 0xc0 | words;
                let fits = match md_type {
                    FIXED => words == 6,
                    _ => (2..=whole.len() / 4).contains(&usize::from(words)),
                };
                assert_eq!(Nsh::parse(&wrong).is_some(), fits, "{md_type} {words}");
            }
            for (at, value) in [(0, 0x40), (0, 0x80), (2, 0), (2, 3), (2, 0xf)] {
                let mut wrong = whole.clone();
                wrong[at] = wrong[at] & 0x30 | value;
                assert_eq!(Nsh::parse(&wrong), None);
            }
        }
    }
}
