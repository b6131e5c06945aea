//! An array over all 16-bit numbers whose parts are made on first use.

use std::sync::OnceLock;

const PART: usize = 256;

/// Values by a 16-bit number: a zone or a timeout policy.
pub(crate) struct Sparse<T>(Box<[OnceLock<Box<[T]>>]>);

impl<T: Default> Sparse<T> {
    pub(crate) fn new() -> Sparse<T> {
        Sparse((0..PART).map(|_| OnceLock::new()).collect())
    }

    /// The value; `None` if nobody has used this one or a neighbour.
    #[inline]
    pub(crate) fn get(&self, number: u16) -> Option<&T> {
        let part = self.0[usize::from(number) / PART].get()?;
        Some(&part[usize::from(number) % PART])
    }

    /// The value, made if need be.
    pub(crate) fn get_or_make(&self, number: u16) -> &T {
        let part = self.0[usize::from(number) / PART].get_or_init(|| (0..PART).map(|_| T::default()).collect());
        &part[usize::from(number) % PART]
    }

    /// All values that somebody has used, and their neighbours.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &T)> {
        let parts = self.0.iter().enumerate();
        parts.flat_map(|(n, part)| {
            let values = part.get().into_iter().flatten().enumerate();
            values.map(move |(m, value)| ((n * PART + m) as u16, value))
        })
    }
}
