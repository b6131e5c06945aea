//! System calls that no safe library offers, each behind a safe function.

use std::io;

/// The kernel's words for an error, without the number that [`io::Error`] adds: `No such device`.
pub fn strerror(error: &io::Error) -> String {
    let text = error.to_string();
    match (error.raw_os_error(), text.rfind(" (os error ")) {
        (Some(_), Some(end)) => text[..end].to_owned(),
        _ => text,
    }
}
