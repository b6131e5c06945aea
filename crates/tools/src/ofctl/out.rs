//! Standard output, in large pieces.

use crate::common::{Failure, print};

/// How much is collected before it is written.
const ENOUGH: usize = 256 << 10;

/// A buffer in front of standard output.
#[derive(Debug, Default)]
pub(crate) struct Out {
    /// Text not yet written.
    pub(crate) text: String,
}

impl Out {
    /// Writes the buffer if it is large enough.
    pub(crate) fn flow(&mut self) -> Result<(), Failure> {
        match self.text.len() >= ENOUGH {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Writes the buffer.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        if self.text.is_empty() {
            return Ok(());
        }
        let result = print(&self.text);
        self.text.clear();
        result
    }
}
