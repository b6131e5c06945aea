//! Netlink messages: building requests, and reading replies without trusting their lengths.

use std::io;

const HEADER: usize = 16;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;

pub(crate) const NLM_F_DUMP: u16 = 0x300;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
pub(crate) const NLM_F_CREATE: u16 = 0x400;

/// A request being built.
pub(crate) struct Message {
    kind: u16,
    flags: u16,
    bytes: Vec<u8>,
}

impl Message {
    /// A message with its fixed part.
    pub(crate) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Message {
        let mut bytes = vec![0; HEADER];
        bytes.extend_from_slice(fixed);
        Message {
            kind,
            flags: flags | NLM_F_REQUEST,
            bytes,
        }
    }

    /// Adds an attribute.
    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Message {
        self.put(kind, value);
        self
    }

    /// Adds an attribute whose value is a text with a zero byte at its end.
    pub(crate) fn text(self, kind: u16, value: &str) -> Message {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes)
    }

    /// Adds an attribute that is made of attributes.
    pub(crate) fn nest(mut self, kind: u16, build: impl FnOnce(Message) -> Message) -> Message {
        let inner = build(Message {
            kind: 0,
            flags: 0,
            bytes: Vec::new(),
        });
        self.put(kind, &inner.bytes);
        self
    }

    pub(crate) fn acknowledged(mut self) -> Message {
        self.flags |= NLM_F_ACK;
        self
    }

    pub(crate) fn finish(mut self, sequence: u32) -> Vec<u8> {
        let len = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[4..6].copy_from_slice(&self.kind.to_ne_bytes());
        self.bytes[6..8].copy_from_slice(&self.flags.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }

    fn put(&mut self, kind: u16, value: &[u8]) {
        let len = (4 + value.len()) as u16;
        self.bytes.extend(len.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// One message of a datagram.
pub(crate) struct Part<'a> {
    pub(crate) kind: u16,
    pub(crate) sequence: u32,
    pub(crate) payload: &'a [u8],
}

impl Part<'_> {
    /// The error of an `NLMSG_ERROR`; zero is the acknowledgement.
    pub(crate) fn error(&self) -> io::Result<()> {
        match read_i32(self.payload, 0) {
            Some(0) => Ok(()),
            Some(code) => Err(io::Error::from_raw_os_error(code.wrapping_neg())),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// The messages of a datagram; ends at the first that does not fit.
pub(crate) fn parse(mut datagram: &[u8]) -> impl Iterator<Item = Part<'_>> {
    std::iter::from_fn(move || {
        let len = read_u32(datagram, 0)? as usize;
        let message = datagram.get(..len)?;
        let part = Part {
            kind: read_u16(message, 4)?,
            sequence: read_u32(message, 8)?,
            payload: message.get(HEADER..)?,
        };
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(part)
    })
}

/// The attributes of a message; ends at the first that does not fit.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// The attributes behind a fixed part of `fixed` bytes.
    pub(crate) fn after(payload: &'a [u8], fixed: usize) -> Attributes<'a> {
        Attributes(payload.get(fixed..).unwrap_or_default())
    }

    /// The value of the first attribute of a kind.
    pub(crate) fn get(mut self, kind: u16) -> Option<&'a [u8]> {
        self.find_map(|(found, value)| (found == kind).then_some(value))
    }

    /// The value of a 32-bit attribute.
    pub(crate) fn u32(self, kind: u16) -> Option<u32> {
        read_u32(self.get(kind)?, 0)
    }

    /// The value of a text attribute.
    pub(crate) fn text(self, kind: u16) -> Option<&'a str> {
        let value = self.get(kind)?;
        std::str::from_utf8(value.strip_suffix(&[0]).unwrap_or(value)).ok()
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        const KIND: u16 = 0x3fff;
        let len = usize::from(read_u16(self.0, 0)?);
        let kind = read_u16(self.0, 2)? & KIND;
        let value = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

pub(crate) fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(crate) fn read_i32(bytes: &[u8], at: usize) -> Option<i32> {
    read_u32(bytes, at).map(u32::cast_signed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_built_is_read_back() {
        let bytes = Message::new(16, 0, &[1, 2, 3, 4])
            .text(3, "eth0")
            .nest(18, |inner| inner.text(1, "veth"))
            .attribute(4, &1500_u32.to_ne_bytes())
            .finish(7);
        let parts: Vec<_> = parse(&bytes).collect();
        assert_eq!(parts.len(), 1);
        assert_eq!((parts[0].kind, parts[0].sequence), (16, 7));
        let attributes = Attributes::after(parts[0].payload, 4);
        assert_eq!(attributes.text(3), Some("eth0"));
        assert_eq!(attributes.u32(4), Some(1500));
        assert_eq!(Attributes::after(attributes.get(18).unwrap(), 0).text(1), Some("veth"));
        assert_eq!(attributes.get(99), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_readers_panic_or_loop(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(parse(&bytes).take(1000).count() < 1000);
            prop_assert!(Attributes(&bytes).take(1000).count() < 1000);
        }
    }
}
