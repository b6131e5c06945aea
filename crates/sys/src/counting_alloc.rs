//! A counting allocator, for tests that a code path does not allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator with a count of each thread's allocations. For a test's
/// `#[global_allocator]`.
pub struct CountingAlloc;

impl CountingAlloc {
    /// The number of the calling thread's allocations.
    pub fn allocations() -> u64 {
        ALLOCATIONS.with(Cell::get)
    }
}

fn count() {
    // A thread that ends may allocate after its locals have gone; nobody asks for its count then.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call goes to `System`, which keeps the contract, with the same arguments. The
// counter is a `Cell` of plain data with a constant initialiser and no destructor: an access to it
// allocates nothing and so does not recurse.
unsafe impl GlobalAlloc for CountingAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`; `block` came from `System`.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`; `block` came from `System`.
        unsafe { System.dealloc(block, layout) }
    }
}
