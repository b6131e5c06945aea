//! Memory of connections: segments that are added on demand and never move.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Entries of a segment.
pub(crate) const SEGMENT: usize = 256;
/// Segments at most: 2²⁴ entries.
pub(crate) const MAX_SEGMENTS: usize = 1 << 16;

/// Entries by index. Indices begin at [`SEGMENT`], so that 0 is none.
pub(crate) struct Arena<T> {
    segments: Box<[OnceLock<Box<[T; SEGMENT]>>]>,
    claimed: AtomicU32,
}

impl<T: Default> Arena<T> {
    pub(crate) fn new() -> Arena<T> {
        Arena {
            segments: (0..MAX_SEGMENTS).map(|_| OnceLock::new()).collect(),
            claimed: AtomicU32::new(1),
        }
    }

    /// The entry of an index that [`Arena::claim`] gave.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let index = index as usize;
        let segment = self.segments.get(index / SEGMENT)?.get()?;
        Some(&segment[index % SEGMENT])
    }

    /// Adds a segment and returns its first index; `None` if there are [`MAX_SEGMENTS`].
    pub(crate) fn claim(&self) -> Option<u32> {
        let number = self.claimed.fetch_add(1, Ordering::Relaxed);
        let Some(place) = self.segments.get(number as usize) else {
            self.claimed.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        place.get_or_init(|| {
            let entries: Box<[T]> = (0..SEGMENT).map(|_| T::default()).collect();
            entries
                .try_into()
                .unwrap_or_else(|_| unreachable!("it has SEGMENT entries"))
        });
        Some(number * SEGMENT as u32)
    }

    /// The index behind the last claimed one.
    pub(crate) fn end(&self) -> u32 {
        self.claimed.load(Ordering::Acquire).min(MAX_SEGMENTS as u32) * SEGMENT as u32
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> usize {
        (self.end() as usize - SEGMENT) * size_of::<T>()
    }
}
