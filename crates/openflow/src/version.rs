//! Protocol versions and their negotiation (OpenFlow 1.3.1 §6.3.1).

use std::fmt;
use std::str::FromStr;

/// A version of the protocol. The value is the number in message headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Version {
    /// OpenFlow 1.0.
    V10 = 1,
    /// OpenFlow 1.1.
    V11 = 2,
    /// OpenFlow 1.2.
    V12 = 3,
    /// OpenFlow 1.3.
    V13 = 4,
    /// OpenFlow 1.4.
    V14 = 5,
    /// OpenFlow 1.5.
    V15 = 6,
}

impl Version {
    /// All versions, the oldest first.
    pub const ALL: [Version; 6] = [
        Version::V10,
        Version::V11,
        Version::V12,
        Version::V13,
        Version::V14,
        Version::V15,
    ];

    /// The number in message headers.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The version of a header's number.
    pub fn from_number(number: u8) -> Option<Version> {
        Version::ALL.into_iter().find(|v| v.number() == number)
    }
}

impl fmt::Display for Version {
    /// As in `Bridge.protocols`: `OpenFlow13`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenFlow1{}", self.number() - 1)
    }
}

/// An unknown version name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}: unknown OpenFlow version")]
pub struct UnknownVersion(String);

impl FromStr for Version {
    type Err = UnknownVersion;

    /// Takes `OpenFlow13`, `OpenFlow1.3`, in any case.
    fn from_str(text: &str) -> Result<Version, UnknownVersion> {
        let lower = text.to_ascii_lowercase();
        let minor = lower
            .strip_prefix("openflow1")
            .map(|m| m.strip_prefix('.').unwrap_or(m));
        let found = Version::ALL
            .into_iter()
            .find(|v| minor == Some(&(v.number() - 1).to_string()));
        found.ok_or_else(|| UnknownVersion(text.to_string()))
    }
}

/// A set of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Versions(u32);

impl Versions {
    /// All known versions.
    pub const ALL: Versions = Versions(0x7e);
    /// None.
    pub const NONE: Versions = Versions(0);

    /// The set whose bit `1 << n` says that header number n is in it; numbers not known here stay
    /// in it.
    pub const fn from_bitmap(bitmap: u32) -> Versions {
        Versions(bitmap)
    }

    /// The set's bitmap.
    pub const fn bitmap(self) -> u32 {
        self.0
    }

    /// Whether a version is in it.
    pub const fn contains(self, version: Version) -> bool {
        self.0 & 1 << version.number() != 0
    }

    /// The newest known version in it.
    pub fn newest(self) -> Option<Version> {
        Version::ALL.into_iter().rev().find(|v| self.contains(*v))
    }
}

impl FromIterator<Version> for Versions {
    fn from_iter<I: IntoIterator<Item = Version>>(versions: I) -> Versions {
        Versions(versions.into_iter().fold(0, |set, v| set | 1 << v.number()))
    }
}

/// A hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hello {
    /// The version of the message's header: the peer's newest, as a number that may be unknown
    /// here.
    pub version: u8,
    /// The versions of its bitmap, if it sent one.
    pub bitmap: Option<Versions>,
}

/// The version that a connection uses: the newest that both bitmaps have; without a bitmap of the
/// peer, the smaller of the two newest, if we have it. `None` where there is none: the connection
/// ends with a `HELLO_FAILED` error.
pub fn negotiate(ours: Versions, theirs: Hello) -> Option<Version> {
    match theirs.bitmap {
        Some(bitmap) if bitmap.0 != 0 => Versions(ours.0 & bitmap.0).newest(),
        _ => {
            let newest = ours.newest()?;
            if theirs.version >= newest.number() {
                Some(newest)
            } else {
                Version::from_number(theirs.version).filter(|v| ours.contains(*v))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_both_bitmaps_is_used() {
        let ours: Versions = [Version::V10, Version::V13].into_iter().collect();
        let hello = |version, bitmap: Option<u32>| Hello {
            version,
            bitmap: bitmap.map(Versions::from_bitmap),
        };
        assert_eq!(negotiate(ours, hello(6, Some(0x7e))), Some(Version::V13));
        assert_eq!(negotiate(ours, hello(6, Some(0x06))), Some(Version::V10));
        assert_eq!(negotiate(ours, hello(6, Some(0x64))), None);
    }

    #[test]
    fn without_a_bitmap_the_smaller_of_the_newest_is_used() {
        let ours: Versions = [Version::V10, Version::V13].into_iter().collect();
        let hello = |version| Hello { version, bitmap: None };
        assert_eq!(negotiate(ours, hello(6)), Some(Version::V13));
        assert_eq!(negotiate(ours, hello(4)), Some(Version::V13));
        assert_eq!(negotiate(ours, hello(3)), None);
        assert_eq!(negotiate(ours, hello(1)), Some(Version::V10));
        assert_eq!(negotiate(Versions::NONE, hello(1)), None);
    }

    #[test]
    fn a_version_reads_as_it_is_written() {
        for version in Version::ALL {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        assert_eq!("openflow1.3".parse(), Ok(Version::V13));
        assert!("OpenFlow16".parse::<Version>().is_err());
    }
}
