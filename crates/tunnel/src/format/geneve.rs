//! Geneve (RFC 8926) and its options.

use super::inner::Inner;
use super::template::EncapsulateError;
use super::{Details, Found, Kind, Refusal, be16, be32};

/// Length of the header without options.
pub(super) const LEN: usize = 8;
/// Bytes of options at most: 63 units of four.
pub const MAX_OPTIONS: usize = 252;
/// Bytes of the data of one option at most: 31 units of four.
pub const MAX_OPTION_DATA: usize = 124;
/// The bit of an option's type that tells receivers to drop packets if they do not know the option.
pub const CRITICAL: u8 = 0x80;

/// The packet is a control packet.
pub(super) const O: u8 = 0x80;
/// There are critical options.
const C: u8 = 0x40;
/// Length of the header of an option.
const OPTION: usize = 4;

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneveOption<'a> {
    /// The class: who defines the type.
    pub class: u16,
    /// The type, with the bit [`CRITICAL`].
    pub kind: u8,
    /// The data, a multiple of four bytes.
    pub data: &'a [u8],
}

/// Well-formed options: each is whole, and they fill their space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options<'a>(&'a [u8]);

impl<'a> Options<'a> {
    /// No options.
    pub const NONE: Options<'static> = Options(&[]);

    /// Options from their bytes.
    ///
    /// # Errors
    /// [`Refusal::GeneveOptions`] if they do not fill the bytes, or are more than
    /// [`MAX_OPTIONS`] bytes.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Options<'a>, Refusal> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let len = OPTION + rest.get(3).map_or(0, |byte| usize::from(byte & 0x1f) * 4);
            rest = rest.get(len..).ok_or(Refusal::GeneveOptions)?;
        }
        if bytes.len() > MAX_OPTIONS {
            return Err(Refusal::GeneveOptions);
        }
        Ok(Options(bytes))
    }

    /// The bytes.
    pub const fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// The options in the order of the packet.
    pub fn iter(&self) -> impl Iterator<Item = GeneveOption<'a>> + use<'a> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let header = rest.get(..OPTION)?;
            let (option, behind) = rest.split_at_checked(OPTION + usize::from(header[3] & 0x1f) * 4)?;
            rest = behind;
            Some(GeneveOption {
                class: be16(header, 0),
                kind: header[2],
                data: &option[OPTION..],
            })
        })
    }
}

/// Options to send, in a buffer of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionsBuffer {
    bytes: [u8; MAX_OPTIONS],
    len: u8,
}

impl Default for OptionsBuffer {
    fn default() -> OptionsBuffer {
        OptionsBuffer {
            bytes: [0; MAX_OPTIONS],
            len: 0,
        }
    }
}

impl OptionsBuffer {
    /// Adds an option.
    ///
    /// # Errors
    /// [`EncapsulateError::Options`] if its data is no multiple of four bytes, or longer than
    /// [`MAX_OPTION_DATA`], or there is no room.
    pub fn push(&mut self, class: u16, kind: u8, data: &[u8]) -> Result<(), EncapsulateError> {
        let start = usize::from(self.len);
        let end = start + OPTION + data.len();
        if !data.len().is_multiple_of(4) || data.len() > MAX_OPTION_DATA || end > MAX_OPTIONS {
            return Err(EncapsulateError::Options);
        }
        let option = &mut self.bytes[start..end];
        option[..2].copy_from_slice(&class.to_be_bytes());
        option[2] = kind;
        option[3] = (data.len() / 4) as u8;
        option[OPTION..].copy_from_slice(data);
        self.len = end as u8;
        Ok(())
    }

    /// The options.
    pub fn options(&self) -> Options<'_> {
        Options(&self.bytes[..usize::from(self.len)])
    }
}

#[inline]
pub(super) fn parse(data: &[u8]) -> Result<Found<'_>, Refusal> {
    let header: &[u8; LEN] = data.first_chunk().ok_or(Refusal::Truncated)?;
    if header[0] >> 6 != 0 {
        return Err(Refusal::GeneveVersion);
    }
    let start = LEN + usize::from(header[0] & 0x3f) * 4;
    let options = data.get(LEN..start).ok_or(Refusal::Truncated)?;
    let options = Options::new(options)?;
    let inner = Inner::of_protocol_type(be16(header, 2)).ok_or(Refusal::GeneveProtocol)?;
    let id = u64::from(be32(header, 4) >> 8);
    let found = Found::new(Kind::Geneve, Some(id), inner, start, data.len());
    Ok(Found {
        oam: header[1] & O != 0,
        details: Details::Geneve(options),
        ..found
    })
}

/// The header before the options.
pub(super) fn build(vni: u32, oam: bool, options: Options<'_>, inner: Inner) -> Result<[u8; LEN], EncapsulateError> {
    let mut header = [0; LEN];
    header[0] = (options.bytes().len() / 4) as u8;
    let critical = options.iter().any(|option| option.kind & CRITICAL != 0);
    header[1] = if oam { O } else { 0 } | if critical { C } else { 0 };
    let kind = inner.protocol_type().ok_or(EncapsulateError::Inner)?;
    header[2..4].copy_from_slice(&kind.to_be_bytes());
    header[4..].copy_from_slice(&(vni << 8).to_be_bytes());
    Ok(header)
}
