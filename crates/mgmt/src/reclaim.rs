//! Gives memory back to the system after much of it was freed.
//!
//! The C library keeps what is freed for allocations to come. After a storm of rows or flows a
//! daemon would be as large as it ever was. Whoever frees much says so with [`freed`]; the daemon
//! runs [`run`], which waits for a quiet moment and gives the memory back. A daemon where nothing
//! is freed does not wake up for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Bytes freed before `malloc_trim` is called.
pub const WORTH: usize = 8 << 20;

/// Nothing more may be freed for so long before memory is given back.
const QUIET: Duration = Duration::from_secs(1);

/// Memory is given back after so many times [`QUIET`] even if it does not become quiet.
const MOST_WAITS: u32 = 10;

telemetry::counters! {
    /// Times that freed memory was given back to the system.
    GIVEN_BACK = "memory_given_back";
}

static FREED: AtomicUsize = AtomicUsize::new(0);
static DUE: Notify = Notify::const_new();

/// Says that about so many bytes were freed.
pub fn freed(bytes: usize) {
    let before = FREED.fetch_add(bytes, Ordering::Relaxed);
    if before.saturating_add(bytes) >= WORTH {
        DUE.notify_one();
    }
}

/// Gives memory back whenever much was freed, until it is dropped. One such task is enough for a
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
        // Whether there was anything to give back is the C library's affair.
        let _ = tokio::task::spawn_blocking(sys::memory::give_back).await;
    }
}
