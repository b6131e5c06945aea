//! Memory advice and prefetching.

/// Prefetches the cache line in which a value begins, for a read or write soon. Costs a few
/// instructions and waits for nothing; does nothing if the processor has no such hint.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    let at = std::ptr::from_ref(value);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is a hint, which reads nothing into a register and never faults; the
    // address is that of a reference anyway.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Asks the kernel to back these words by huge pages, as far as they fill any: memory that is read
/// at random then needs fewer steps of address translation. Has no effect on kernels without them.
pub fn prefer_huge_pages(words: &mut [u32]) {
    const HUGE: usize = 2 << 20;
    let whole = words.as_mut_ptr_range();
    let (start, end) = (
        (whole.start as usize).next_multiple_of(HUGE),
        whole.end as usize / HUGE * HUGE,
    );
    if start < end {
        let skipped = start - whole.start as usize;
        // SAFETY: the range lies within the slice, which this call borrows mutably, and the advice
        // does not change its contents.
        let _ = unsafe {
            libc::madvise(
                whole.start.cast::<u8>().add(skipped).cast(),
                end - start,
                libc::MADV_HUGEPAGE,
            )
        };
    }
}

/// Returns freed memory of this process to the system, which the C library would keep for later
/// allocations. Returns whether there was any; false if the C library has no such call.
///
/// Takes milliseconds for each hundred MiB, and threads that allocate meanwhile may wait that long.
/// Call it on a thread of the control plane after freeing much memory, never on one that carries
/// packets.
pub fn give_back() -> bool {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes the allocator's own locks and changes only memory that is not
    // allocated; any thread may make it.
    let given = unsafe { libc::malloc_trim(0) } != 0;
    #[cfg(not(target_env = "gnu"))]
    let given = false;
    given
}

#[cfg(test)]
mod tests {
    #[test]
    fn wishes_change_nothing() {
        let mut words = vec![7u32; 3 << 20];
        super::prefer_huge_pages(&mut words);
        super::prefer_huge_pages(&mut []);
        super::prefetch(&words[1 << 20]);
        assert!(words.iter().all(|word| *word == 7));
    }

    #[test]
    fn memory_in_use_survives_that_the_rest_is_given_back() {
        let mut pieces: Vec<Box<[u8; 4096]>> = (0..1000).map(|n| Box::new([n as u8; 4096])).collect();
        let mut n = 0;
        pieces.retain(|_| {
            n += 1;
            n % 10 == 0
        });
        super::give_back();
        assert!(
            pieces
                .iter()
                .enumerate()
                .all(|(at, piece)| piece[4095] == (at * 10 + 9) as u8)
        );
    }
}
