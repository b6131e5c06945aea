//! Errors: the replies to requests that the switch refuses.

#[path = "error_table.rs"]
mod table;

use crate::Version;
use crate::buf::{Reader, Writer};
use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;
pub use table::OfError;

/// The party that defines an error's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// The specification.
    OpenFlow,
    /// Nicira (0x00002320).
    Nicira,
    /// The Open Networking Foundation (0x4f4e4600).
    Onf,
}

impl Vendor {
    /// The experimenter's number; 0 for the specification's own.
    pub const fn number(self) -> u32 {
        match self {
            Vendor::OpenFlow => 0,
            Vendor::Nicira => 0x0000_2320,
            Vendor::Onf => 0x4f4e_4600,
        }
    }
}

/// An error's number in one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code {
    /// The party that defines it.
    pub vendor: Vendor,
    /// The type.
    pub kind: u16,
    /// The code; unused by extensions in OpenFlow 1.2 and later, which have a type only.
    pub code: u16,
}

/// The type of experimenter errors, OpenFlow 1.2 and later.
const EXPERIMENTER: u16 = 0xffff;
/// The type and code of Nicira's errors, before that.
const NICIRA_VENDOR_ERROR: (u16, u16) = (0xb0c2, 0);
/// The least bytes of the request that an error quotes, if it is that long (OpenFlow 1.0 §5.4.4).
const QUOTED: usize = 64;

impl OfError {
    /// Its number in a version; `None` where that has none.
    pub fn code(self, version: Version) -> Option<Code> {
        let number = version.number();
        self.codes().iter().rev().find(|s| s.version <= number)?.code
    }

    /// The error with a number in a version.
    pub(crate) fn from_code(version: Version, vendor: u32, kind: u16, code: u16) -> Option<OfError> {
        type Key = (Version, u32, u16, u16);
        static CODES: OnceLock<HashMap<Key, OfError>> = OnceLock::new();
        let codes = CODES.get_or_init(|| {
            let mut codes = HashMap::new();
            for version in Version::ALL {
                for error in OfError::ALL {
                    if let Some(c) = error.code(version) {
                        let key = (version, c.vendor.number(), c.kind, c.code);
                        codes.entry(key).or_insert(*error);
                    }
                }
            }
            codes
        });
        codes.get(&(version, vendor, kind, code)).copied()
    }
}

impl fmt::Display for OfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for OfError {}

/// An error message's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorBody {
    /// The error.
    pub kind: ErrorKind,
    /// The request's first bytes; of a failed hello, a text.
    pub data: Vec<u8>,
}

/// The error, known or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// An error of the table.
    Known(OfError),
    /// An unknown error.
    Unknown {
        /// The experimenter's number, 0 for none.
        vendor: u32,
        /// The type.
        kind: u16,
        /// The code.
        code: u16,
    },
}

impl ErrorBody {
    /// An error that quotes a request: the whole of it up to 64 bytes.
    pub fn of(error: OfError, request: &[u8]) -> ErrorBody {
        ErrorBody {
            kind: ErrorKind::Known(error),
            data: request[..request.len().min(QUOTED)].to_vec(),
        }
    }

    /// Reads what follows the header.
    pub(crate) fn decode(version: Version, mut body: Reader<'_>) -> Result<ErrorBody, OfError> {
        let (mut kind, mut code) = (body.u16()?, body.u16()?);
        let mut vendor = 0;
        if version >= Version::V12 && kind == EXPERIMENTER {
            (kind, code) = (code, 0);
            vendor = body.u32()?;
        } else if version < Version::V12 && (kind, code) == NICIRA_VENDOR_ERROR {
            vendor = body.u32()?;
            (kind, code) = (body.u16()?, body.u16()?);
        }
        let kind = match OfError::from_code(version, vendor, kind, code) {
            Some(error) => ErrorKind::Known(error),
            None => ErrorKind::Unknown { vendor, kind, code },
        };
        Ok(ErrorBody {
            kind,
            data: body.rest().to_vec(),
        })
    }

    /// Writes what follows the header. An error that the version has no number for becomes
    /// `NXBRC_UNENCODABLE_ERROR`.
    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        let (vendor, kind, code) = match self.kind {
            ErrorKind::Unknown { vendor, kind, code } => (vendor, kind, code),
            ErrorKind::Known(error) => {
                let known = error.code(version);
                let other = || OfError::NxBrcUnencodableError.code(version);
                match known.or_else(other) {
                    Some(c) => (c.vendor.number(), c.kind, c.code),
                    None => (0, 1, 0),
                }
            }
        };
        if vendor == 0 {
            out.u16(kind);
            out.u16(code);
        } else if version >= Version::V12 {
            out.u16(EXPERIMENTER);
            out.u16(kind);
            out.u32(vendor);
        } else {
            out.u16(NICIRA_VENDOR_ERROR.0);
            out.u16(NICIRA_VENDOR_ERROR.1);
            out.u32(vendor);
            out.u16(kind);
            out.u16(code);
        }
        out.bytes(&self.data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_number_in_some_version_and_survives_the_wire() {
        for error in OfError::ALL {
            let versions = Version::ALL.into_iter().filter(|v| error.code(*v).is_some());
            let mut numbered = 0;
            for version in versions {
                numbered += 1;
                let body = ErrorBody::of(*error, b"request");
                let mut out = Writer::new();
                body.encode(version, &mut out);
                let read = ErrorBody::decode(version, Reader::new(&out.0, OfError::BrcBadLen)).unwrap();
                assert_eq!(read.data, body.data);
                match read.kind {
                    ErrorKind::Known(other) => assert_eq!(other.code(version), error.code(version)),
                    ErrorKind::Unknown { .. } => panic!("{error} in {version}"),
                }
            }
            assert!(numbered > 0, "{error}");
        }
    }

    #[test]
    fn a_code_may_differ_between_versions() {
        let code = |error: OfError, version| error.code(version).map(|c| (c.vendor, c.kind, c.code));
        let e = OfError::FmfcOverlap;
        assert_eq!(code(e, Version::V10), Some((Vendor::OpenFlow, 3, 1)));
        assert_eq!(code(e, Version::V13), Some((Vendor::OpenFlow, 5, 3)));
        assert_eq!(
            code(OfError::BmcBadPrereq, Version::V10),
            Some((Vendor::Nicira, 1, 260))
        );
        assert_eq!(code(OfError::BfcUnknown, Version::V13), Some((Vendor::Onf, 2300, 0)));
        assert_eq!(code(OfError::BfcUnknown, Version::V12), None);
    }

    #[test]
    fn an_error_without_a_number_is_still_an_error() {
        let mut out = Writer::new();
        ErrorBody::of(OfError::MmfcUnknownMeter, &[]).encode(Version::V10, &mut out);
        let read = ErrorBody::decode(Version::V10, Reader::new(&out.0, OfError::BrcBadLen)).unwrap();
        assert_eq!(read.kind, ErrorKind::Known(OfError::NxBrcUnencodableError));
    }
}
