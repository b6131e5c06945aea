//! Translations for a caller that waits until they are done.

use dp::{Key, Upcall};
use nanos::Nanos;
use switch::Switch;
use switch::tables::{Patience, Translated};

pub(crate) trait Ask {
    /// The translation of a packet.
    fn ask(&self, key: &Key) -> Translated;
}

impl Ask for Switch {
    fn ask(&self, key: &Key) -> Translated {
        self.translate(&Upcall::new(key, &[]), Nanos::ZERO, Patience::Whole)
            .unwrap()
    }
}
