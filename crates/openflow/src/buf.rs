//! Reading and writing of big-endian bytes.

use crate::OfError;

/// Reads a part of a message. What is too short is the error the reader was made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    data: &'a [u8],
    short: OfError,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(data: &'a [u8], short: OfError) -> Reader<'a> {
        Reader { data, short }
    }

    pub(crate) fn len(&self) -> usize {
        self.data.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.data)
    }

    pub(crate) fn peek(&self) -> &'a [u8] {
        self.data
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], OfError> {
        let (taken, rest) = self.data.split_at_checked(n).ok_or(self.short)?;
        self.data = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], OfError> {
        let (taken, rest) = self.data.split_first_chunk().ok_or(self.short)?;
        self.data = rest;
        Ok(*taken)
    }

    pub(crate) fn skip(&mut self, n: usize) -> Result<(), OfError> {
        self.take(n).map(|_| ())
    }

    /// Bytes that must be zero, or else the error given.
    pub(crate) fn zeros(&mut self, n: usize, error: OfError) -> Result<(), OfError> {
        match self.take(n)?.iter().all(|b| *b == 0) {
            true => Ok(()),
            false => Err(error),
        }
    }

    pub(crate) fn u8(&mut self) -> Result<u8, OfError> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, OfError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, OfError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, OfError> {
        self.array().map(u64::from_be_bytes)
    }

    /// A reader of the next `n` bytes, which says `short` where they do not suffice.
    pub(crate) fn sub(&mut self, n: usize, short: OfError) -> Result<Reader<'a>, OfError> {
        Ok(Reader::new(self.take(n)?, short))
    }

    /// A zero-terminated string in `n` bytes; bytes that are no UTF-8 are replaced.
    pub(crate) fn text(&mut self, n: usize) -> Result<String, OfError> {
        let bytes = self.take(n)?;
        let len = bytes.iter().position(|b| *b == 0).unwrap_or(n);
        Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
    }

    /// An error where bytes are left.
    pub(crate) fn end(&self) -> Result<(), OfError> {
        match self.is_empty() {
            true => Ok(()),
            false => Err(self.short),
        }
    }
}

/// Collects the bytes of a message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    /// With room for a short message.
    pub(crate) fn new() -> Writer {
        Writer(Vec::with_capacity(192))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn u8(&mut self, n: u8) {
        self.0.push(n);
    }

    pub(crate) fn u16(&mut self, n: u16) {
        self.0.extend_from_slice(&n.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, n: u32) {
        self.0.extend_from_slice(&n.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_be_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn zeros(&mut self, n: usize) {
        self.0.resize(self.0.len() + n, 0);
    }

    /// The low `bytes` bytes of a number.
    pub(crate) fn low(&mut self, n: u128, bytes: usize) {
        self.0.extend_from_slice(&n.to_be_bytes()[16 - bytes..]);
    }

    /// Text in `n` bytes, cut off so that a zero ends it.
    pub(crate) fn text(&mut self, text: &str, n: usize) {
        let bytes = text.as_bytes();
        let len = bytes.len().min(n - 1);
        self.bytes(&bytes[..len]);
        self.zeros(n - len);
    }

    /// Zeros up to a multiple of 8 bytes from `start`.
    pub(crate) fn pad8(&mut self, start: usize) {
        let len = self.len() - start;
        self.zeros(len.next_multiple_of(8) - len);
    }

    /// Writes the number of bytes since `start` to the two bytes at `at`; at most 65 535, which
    /// callers that take data from outside check.
    pub(crate) fn patch_len(&mut self, at: usize, start: usize) {
        let len = u16::try_from(self.len() - start).unwrap_or(u16::MAX);
        self.0[at..at + 2].copy_from_slice(&len.to_be_bytes());
    }
}
