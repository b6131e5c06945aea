//! Standard output, in large pieces.

use crate::common::{Failure, print};

/// How much is collected before it is written.
const ENOUGH: usize = 256 << 10;

/// Text that goes to standard output as it grows.
#[derive(Debug, Default)]
pub(crate) struct Out {
    /// What has not been written.
    pub(crate) text: String,
}

impl Out {
    /// Writes what there is, if it is enough.
    pub(crate) fn flow(&mut self) -> Result<(), Failure> {
        match self.text.len() >= ENOUGH {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Writes what there is.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        if self.text.is_empty() {
            return Ok(());
        }
        let result = print(&self.text);
        self.text.clear();
        result
    }
}
