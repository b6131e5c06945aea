//! Ethernet addresses (IEEE 802, EUI-48).

use core::fmt;
use core::str::FromStr;

/// An Ethernet address. Prints and parses as `aa:bb:cc:dd:ee:ff`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All bits zero.
    pub const ZERO: MacAddr = MacAddr([0; 6]);
    /// All bits one.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);

    /// The address whose bits are the low 48 of `bits`, in the order in which they are written.
    pub const fn from_u64(bits: u64) -> MacAddr {
        let b = bits.to_be_bytes();
        MacAddr([b[2], b[3], b[4], b[5], b[6], b[7]])
    }

    /// The address as the low 48 bits of a number.
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// A group address, broadcast included (the first octet's lowest bit).
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// The address of all stations.
    pub const fn is_broadcast(self) -> bool {
        self.to_u64() == 0xffff_ffff_ffff
    }

    /// Whether all bits are zero.
    pub const fn is_zero(self) -> bool {
        self.to_u64() == 0
    }

    /// Locally administered (the first octet's second lowest bit).
    pub const fn is_local(self) -> bool {
        self.0[0] & 2 != 0
    }

    /// 01:80:c2:00:00:00 to 01:80:c2:00:00:0f, which bridges do not forward (IEEE 802.1Q table
    /// 8-1).
    pub const fn is_reserved(self) -> bool {
        self.to_u64() & !0xf == 0x0180_c200_0000
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The text is not six hexadecimal octets with colons between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseMacError;

impl fmt::Display for ParseMacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an Ethernet address of the form aa:bb:cc:dd:ee:ff")
    }
}

impl core::error::Error for ParseMacError {}

impl FromStr for MacAddr {
    type Err = ParseMacError;

    /// Accepts one or two hexadecimal digits an octet.
    fn from_str(text: &str) -> Result<MacAddr, ParseMacError> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().ok_or(ParseMacError)?;
            if part.is_empty() || part.len() > 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(ParseMacError);
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| ParseMacError)?;
        }
        if parts.next().is_some() {
            Err(ParseMacError)
        } else {
            Ok(MacAddr(octets))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    proptest! {
        #[test]
        fn what_is_printed_parses_to_the_same_address(octets: [u8; 6]) {
            let mac = MacAddr(octets);
            prop_assert_eq!(mac.to_string().parse(), Ok(mac));
            prop_assert_eq!(MacAddr::from_u64(mac.to_u64()), mac);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,24}") {
            let _ = text.parse::<MacAddr>();
        }
    }

    #[test]
    fn texts_that_are_no_addresses_are_refused() {
        for text in [
            "",
            "1:2:3:4:5",
            "1:2:3:4:5:6:7",
            "g0:0:0:0:0:0",
            "001:2:3:4:5:6",
            "+1:2:3:4:5:6",
            "1:2:3:4:5:",
        ] {
            assert_eq!(text.parse::<MacAddr>(), Err(ParseMacError), "{text}");
        }
    }

    #[test]
    fn only_the_sixteen_bridge_addresses_are_reserved() {
        assert!(MacAddr([0x01, 0x80, 0xc2, 0, 0, 0]).is_reserved());
        assert!(MacAddr([0x01, 0x80, 0xc2, 0, 0, 0xf]).is_reserved());
        assert!(!MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x10]).is_reserved());
        assert!(!MacAddr::BROADCAST.is_reserved());
        assert!(MacAddr::BROADCAST.is_multicast() && MacAddr::BROADCAST.is_broadcast());
    }
}
