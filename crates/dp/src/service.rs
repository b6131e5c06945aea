//! Network service headers in actions (RFC 8300).

use std::fmt::{self, Write};
use wire::nsh::{CONTEXT, FIXED, Nsh};

/// The header that [`Action::PushNsh`](crate::Action::PushNsh) puts before packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NshPush {
    /// The bits O and U.
    pub flags: u8,
    /// Time to live, 6 bits.
    pub ttl: u8,
    /// Metadata type, 1 or 2.
    pub md_type: u8,
    /// The protocol behind the header.
    pub protocol: u8,
    /// Service path identifier, 24 bits.
    pub path: u32,
    /// Service index.
    pub index: u8,
    /// The four context headers of metadata type 1, or those of variable length of type 2, which
    /// have at most [`wire::nsh::MAX_METADATA`] bytes, in whole words.
    pub metadata: Vec<u8>,
}

impl NshPush {
    /// The header as it stands in packets.
    pub fn header(&self) -> Nsh<'_> {
        Nsh {
            flags: self.flags,
            ttl: self.ttl,
            md_type: self.md_type,
            protocol: self.protocol,
            path: self.path,
            index: self.index,
            metadata: &self.metadata,
        }
    }

    /// Sets the four context headers, if the header has them.
    pub fn set_context(&mut self, context: [u32; 4]) {
        if self.md_type == FIXED {
            self.metadata = context.map(u32::to_be_bytes).concat();
        }
    }
}

impl fmt::Display for NshPush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "push_nsh(flags={},ttl={},mdtype={},",
            self.flags, self.ttl, self.md_type
        )?;
        write!(f, "np={},spi=0x{:x},si={}", self.protocol, self.path, self.index)?;
        if self.md_type == FIXED {
            for (number, word) in self.header().context().enumerate() {
                write!(f, ",c{}=0x{word:x}", number + 1)?;
            }
        } else {
            f.write_str(",md2=0x")?;
            self.metadata.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        f.write_char(')')
    }
}

/// `flags=0,ttl=63,mdtype=1,np=3,spi=0x1234,si=255,c1=0x0,c2=0x0,c3=0x0,c4=0x0`; what is left out
/// is what Open vSwitch takes for it.
impl std::str::FromStr for NshPush {
    type Err = crate::ParseActionsError;

    fn from_str(text: &str) -> Result<NshPush, Self::Err> {
        let mut push = NshPush {
            flags: 0,
            ttl: 63,
            md_type: FIXED,
            protocol: wire::nsh::protocol::ETHERNET,
            path: 0,
            index: 255,
            metadata: Vec::new(),
        };
        let mut context = [0u32; 4];
        let mut variable = None;
        for item in crate::parse::parts(text) {
            let (name, value) = item.split_once('=').ok_or(crate::ParseActionsError)?;
            if name == "md2" {
                variable = Some(bytes(value).ok_or(crate::ParseActionsError)?);
                continue;
            }
            let number = crate::parse::number(value, u32::MAX.into())? as u32;
            let byte = |most: u32| match number <= most {
                true => Ok(number as u8),
                false => Err(crate::ParseActionsError),
            };
            match name {
                "flags" => push.flags = byte(3)?,
                "ttl" => push.ttl = byte(63)?,
                "mdtype" => push.md_type = byte(2)?,
                "np" => push.protocol = byte(255)?,
                "spi" if number <= 0xff_ffff => push.path = number,
                "si" => push.index = byte(255)?,
                "c1" => context[0] = number,
                "c2" => context[1] = number,
                "c3" => context[2] = number,
                "c4" => context[3] = number,
                _ => return Err(crate::ParseActionsError),
            }
        }
        match (push.md_type, variable) {
            (FIXED, None) => push.set_context(context),
            (2, data) => push.metadata = data.unwrap_or_default(),
            _ => return Err(crate::ParseActionsError),
        }
        debug_assert!(push.md_type != FIXED || push.metadata.len() == CONTEXT);
        Ok(push)
    }
}

/// Whole words in hexadecimal digits, as many as a header has room for.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    if !digits.len().is_multiple_of(8) || digits.len() > 2 * wire::nsh::MAX_METADATA {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = digits.as_chunks::<2>().0.iter();
    pairs
        .map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8))
        .collect()
}
