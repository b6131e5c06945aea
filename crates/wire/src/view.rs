//! What all views share.

use core::fmt;

/// Bytes are not the header that they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Shorter than the header, or than a length in it says.
    Truncated,
    /// A field has a value that the standard forbids.
    Malformed,
    /// A checksum does not fit the data.
    Checksum,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Truncated => "truncated",
            Error::Malformed => "malformed",
            Error::Checksum => "wrong checksum",
        })
    }
}

impl core::error::Error for Error {}

/// Defines a view: its type, `new_unchecked`, `new_checked`, `into_inner`, and how to reach its
/// bytes. The caller defines `check`.
macro_rules! view {
    ($(#[$doc:meta])*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct View<T: AsRef<[u8]>> {
            buffer: T,
        }

        impl<T: AsRef<[u8]>> View<T> {
            /// A view of bytes that are long enough; getters panic where they are not.
            pub const fn new_unchecked(buffer: T) -> View<T> {
                View { buffer }
            }

            /// A view of bytes after a check.
            ///
            /// # Errors
            /// [`Error::Truncated`](crate::Error::Truncated) where the bytes are fewer than the
            /// header (or a length in it) says, [`Error::Malformed`](crate::Error::Malformed) where
            /// that length is impossible.
            pub fn new_checked(buffer: T) -> Result<View<T>, $crate::Error> {
                let view = View { buffer };
                view.check()?;
                Ok(view)
            }

            /// The bytes.
            pub fn into_inner(self) -> T {
                self.buffer
            }

            fn data(&self) -> &[u8] {
                self.buffer.as_ref()
            }
        }
    };
}
pub(crate) use view;

pub(crate) fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([data[at], data[at + 1]])
}

pub(crate) fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]])
}

pub(crate) fn array_at<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&data[at..at + N]);
    array
}
