//! Names of bridges.

use std::fmt;

/// Bytes of the name of a network device at most (`IFNAMSIZ` of Linux without the zero at the end).
const MAX: usize = 15;

/// The name of a bridge, which is also that of its LOCAL port. Longer names are cut to 15 bytes, as
/// in Open vSwitch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BridgeName {
    bytes: [u8; MAX],
    len: u8,
}

impl BridgeName {
    /// The name of a bridge.
    pub fn new(name: &str) -> BridgeName {
        let mut end = name.len().min(MAX);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = [0; MAX];
        bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
        BridgeName { bytes, len: end as u8 }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        // The bytes are a part of a text.
        str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Display for BridgeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for BridgeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_is_the_first_fifteen_bytes_at_most(name in ".{0,20}") {
            let short = BridgeName::new(&name);
            prop_assert!(name.starts_with(short.as_str()));
            prop_assert!(short.as_str().len() <= MAX);
            prop_assert!(short.as_str() == name || short.as_str().len() + 4 > MAX);
        }
    }
}
