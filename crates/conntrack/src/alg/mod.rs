//! Helpers: what control connections of FTP (RFC 959, RFC 2428) and TFTP (RFC 1350) say about
//! connections to come.
//!
//! A control connection announces a data connection; the tracker expects it, and its first packet
//! is related (`rel`). An expectation names both addresses and the destination port, so that a
//! control connection opens a way between its own two ends only. An address in a line that is not
//! the sender's own is ignored (RFC 2577 §3).
//!
//! NAT: a data connection is translated like its control connection. Where a line has an address or
//! a port that the other side must not see, the line is changed, and the numbers of TCP behind it
//! in both directions (the module `shift`). A line is changed only if one segment has all of it;
//! else it stays, and is counted. A segment that comes again with a part only of what was changed
//! is invalid.

mod expect;
mod ftp;
mod lines;
mod shift;

pub(crate) use expect::{Alg, Control, Expected, Helped};

/// A helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Helper {
    /// FTP over TCP.
    Ftp,
    /// TFTP over UDP.
    Tftp,
}

impl Helper {
    /// The name, as in `alg=` and in dumps.
    pub const fn name(self) -> &'static str {
        match self {
            Helper::Ftp => "ftp",
            Helper::Tftp => "tftp",
        }
    }

    /// The helper of this name.
    pub fn by_name(name: &str) -> Option<Helper> {
        [Helper::Ftp, Helper::Tftp]
            .into_iter()
            .find(|helper| helper.name() == name)
    }
}

/// Reads FTP lines that arrive in these segments, for fuzzers and tests: the ports that it found.
#[doc(hidden)]
pub fn read_ftp(segments: &[(u32, &[u8])], from_server: bool) -> Vec<u16> {
    let mut lines = lines::Lines::default();
    if let Some((first, _)) = segments.first() {
        lines.begin(*first);
    }
    let mut found = Vec::new();
    for (seq, data) in segments {
        lines.take(*seq, data, |line, _| {
            found.extend(ftp::announced(line, from_server).map(|data| data.port))
        });
    }
    found
}
