//! A growing array that never moves its items.
//!
//! Items of `stride` elements lie in chunks of 8, 8, 16, 32 … 512 and then always 1024 items: a
//! small array is small, a large one grows by one allocation of bounded size, so that no insertion
//! copies the whole table.

const SMALLEST: usize = 8;
const LARGEST: usize = 1024;

#[derive(Debug)]
pub(crate) struct Chunks<T> {
    chunks: Vec<Vec<T>>,
    stride: usize,
    len: usize,
}

impl<T> Chunks<T> {
    pub(crate) fn new(stride: usize) -> Chunks<T> {
        Chunks {
            chunks: Vec::new(),
            stride,
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds an item of exactly `stride` elements at the end.
    pub(crate) fn push(&mut self, item: impl Iterator<Item = T>) {
        let (chunk, _) = locate(self.len);
        if chunk == self.chunks.len() {
            self.chunks.push(Vec::with_capacity(capacity(chunk) * self.stride));
        }
        self.chunks[chunk].extend(item);
        self.len += 1;
        debug_assert!(self.chunks[chunk].len().is_multiple_of(self.stride.max(1)));
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> &[T] {
        let (chunk, offset) = locate(index);
        &self.chunks[chunk][offset * self.stride..][..self.stride]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> &mut [T] {
        let (chunk, offset) = locate(index);
        &mut self.chunks[chunk][offset * self.stride..][..self.stride]
    }

    /// Removes all items and frees the memory.
    pub(crate) fn clear(&mut self) {
        self.chunks = Vec::new();
        self.len = 0;
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Vec<T>>()
            + self
                .chunks
                .iter()
                .map(|chunk| chunk.capacity() * size_of::<T>())
                .sum::<usize>()
    }
}

/// The chunk of an item and its place there.
#[inline]
fn locate(index: usize) -> (usize, usize) {
    if index >= LARGEST {
        (index / LARGEST + 7, index % LARGEST)
    } else if index >= SMALLEST {
        let log = index.ilog2() as usize;
        (log - 2, index - (1 << log))
    } else {
        (0, index)
    }
}

fn capacity(chunk: usize) -> usize {
    match chunk {
        0 => SMALLEST,
        1..8 => SMALLEST << (chunk - 1),
        _ => LARGEST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_stay_where_they_were_pushed_across_all_chunk_sizes() {
        let mut chunks = Chunks::new(3);
        for n in 0..5000u64 {
            chunks.push([n, n + 1, n + 2].into_iter());
        }
        for n in 0..5000u64 {
            assert_eq!(chunks.get(n as usize), [n, n + 1, n + 2]);
        }
        assert_eq!(chunks.len(), 5000);
    }

    #[test]
    fn chunks_hold_exactly_what_locate_sends_to_them() {
        let mut counts = [0usize; 12];
        for index in 0..4 * LARGEST {
            let (chunk, offset) = locate(index);
            assert_eq!(offset, counts[chunk]);
            counts[chunk] += 1;
        }
        for (chunk, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            assert_eq!(count, capacity(chunk));
        }
    }

    #[test]
    fn items_of_no_elements_take_no_memory() {
        let mut chunks: Chunks<u64> = Chunks::new(0);
        chunks.push(std::iter::empty());
        assert_eq!(chunks.get(0), [0u64; 0]);
    }
}
