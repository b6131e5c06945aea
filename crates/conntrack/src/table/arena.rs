//! Memory of connections: segments that are added on demand and never move.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Entries of a segment.
pub(crate) const SEGMENT: usize = 256;
/// Segments of a group.
const GROUP: usize = 256;
/// Segments at most: 2²⁴ entries.
pub(crate) const MAX_SEGMENTS: usize = 256 * GROUP;

type Segment<T> = OnceLock<Box<[T; SEGMENT]>>;
type Group<T> = OnceLock<Box<[Segment<T>]>>;

/// Entries by index. Indices begin at [`SEGMENT`], so that 0 is none.
pub(crate) struct Arena<T> {
    groups: Box<[Group<T>]>,
    claimed: AtomicU32,
}

impl<T: Default> Arena<T> {
    pub(crate) fn new() -> Arena<T> {
        Arena {
            groups: (0..MAX_SEGMENTS / GROUP).map(|_| OnceLock::new()).collect(),
            claimed: AtomicU32::new(1),
        }
    }

    /// The entry of an index that [`Arena::claim`] gave.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let (index, number) = (index as usize, index as usize / SEGMENT);
        let group = self.groups.get(number / GROUP)?.get()?;
        let segment = group.get(number % GROUP)?.get()?;
        Some(&segment[index % SEGMENT])
    }

    /// Adds a segment and returns its first index; `None` if there are [`MAX_SEGMENTS`].
    pub(crate) fn claim(&self) -> Option<u32> {
        let next = |number: u32| ((number as usize) < MAX_SEGMENTS).then(|| number + 1);
        let claimed = self.claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let number = claimed.ok()? as usize;
        let group = self.groups[number / GROUP].get_or_init(|| (0..GROUP).map(|_| OnceLock::new()).collect());
        group[number % GROUP].get_or_init(|| {
            let entries: Box<[T]> = (0..SEGMENT).map(|_| T::default()).collect();
            entries
                .try_into()
                .unwrap_or_else(|_| unreachable!("it has SEGMENT entries"))
        });
        Some((number * SEGMENT) as u32)
    }

    /// The index behind the last claimed one.
    pub(crate) fn end(&self) -> u32 {
        self.claimed.load(Ordering::Acquire) * SEGMENT as u32
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> usize {
        (self.end() as usize - SEGMENT) * size_of::<T>()
    }
}
