//! Returns memory to the system after much of it was freed.
//!
//! The C library keeps freed memory for later allocations, so a daemon would stay at its peak size.
//! Code that frees much reports it with [`freed`]; the daemon runs [`run`], which waits for a quiet
//! moment and returns the memory. It does not wake up if nothing is freed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Bytes freed before `malloc_trim` is called.
pub const WORTH: usize = 8 << 20;

/// Memory is returned when nothing more has been freed for this time.
const QUIET: Duration = Duration::from_secs(1);

/// Memory is returned after this many times [`QUIET`] even if more is freed meanwhile.
const MOST_WAITS: u32 = 10;

telemetry::counters! {
    /// Times that freed memory was returned to the system.
    GIVEN_BACK = "memory_given_back";
}

static FREED: AtomicUsize = AtomicUsize::new(0);
static DUE: Notify = Notify::const_new();

/// Reports that about this many bytes were freed.
pub fn freed(bytes: usize) {
    let before = FREED.fetch_add(bytes, Ordering::Relaxed);
    if before.saturating_add(bytes) >= WORTH {
        DUE.notify_one();
    }
}

/// Returns memory whenever much was freed, until it is dropped. One such task is enough for a
/// process.
pub async fn run() {
    loop {
        DUE.notified().await;
        if FREED.load(Ordering::Relaxed) < WORTH {
            continue;
        }
        for _ in 0..MOST_WAITS {
            let before = FREED.load(Ordering::Relaxed);
            tokio::time::sleep(QUIET).await;
            if FREED.load(Ordering::Relaxed) == before {
                break;
            }
        }
        FREED.store(0, Ordering::Relaxed);
        GIVEN_BACK.inc();
        // The result, whether there was memory to return, does not matter.
        let _ = tokio::task::spawn_blocking(sys::memory::give_back).await;
    }
}
