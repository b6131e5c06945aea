//! Errors that name the call.

use std::io;

/// A system call that failed.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {}", strerror(.source))]
pub struct Error {
    /// The call and its purpose, as `setsockopt(PACKET_VNET_HDR)`.
    pub call: &'static str,
    /// The kernel's error.
    pub source: io::Error,
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The error of the system call that has just failed in this thread.
    pub(crate) fn last(call: &'static str) -> Error {
        Error {
            call,
            source: io::Error::last_os_error(),
        }
    }

    /// The kernel's number of the error (`errno`).
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }

    /// The kernel's error among an error's causes, for `map_err` on results of libraries that make
    /// the call.
    pub fn behind<E: std::error::Error + 'static>(call: &'static str) -> impl FnOnce(E) -> Error {
        move |error| {
            let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
            while let Some(this) = cause {
                if let Some(errno) = this.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
                    return Error::of(call)(io::Error::from_raw_os_error(errno));
                }
                cause = this.source();
            }
            Error::of(call)(io::Error::other(error.to_string()))
        }
    }

    /// For `map_err` on results of `rustix`.
    pub fn of<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error {
            call,
            source: source.into(),
        }
    }
}

/// Keeps the kernel's number and loses the name of the call.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        error.source
    }
}

/// The kernel's text for an error, without the number that [`io::Error`] adds: `No such device`.
pub fn strerror(error: &io::Error) -> String {
    let text = error.to_string();
    match (error.raw_os_error(), text.rfind(" (os error ")) {
        (Some(_), Some(end)) => text[..end].to_owned(),
        _ => text,
    }
}

/// Turns the `-1` of a call into its error.
pub(crate) fn check(call: &'static str, result: libc::c_int) -> Result<libc::c_int> {
    if result < 0 { Err(Error::last(call)) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_call_and_the_kernels_reason() {
        let error = Error {
            call: "ioctl(TUNSETIFF)",
            source: io::Error::from_raw_os_error(libc::EBUSY),
        };
        assert_eq!(error.to_string(), "ioctl(TUNSETIFF): Device or resource busy");
        assert_eq!(error.errno(), Some(libc::EBUSY));
    }
}
