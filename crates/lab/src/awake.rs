//! Keeps processors awake.
//!
//! An idle processor halts and takes tens of microseconds to wake (more in a virtual machine, whose
//! host uses the processor meanwhile). The time depends on other work, so a path with more work can
//! even seem faster. While processors are kept awake, a wake-up costs the same few microseconds
//! everywhere.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The prefix of its threads' names.
pub(crate) const NAME: &str = "awake ";

/// Keeps all processors busy with nothing, by threads that yield to everything else at once
/// (`SCHED_IDLE`, `sched(7)`). Dropping it ends them.
pub struct Awake {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Starts a thread for each processor of this process.
    ///
    /// # Errors
    /// The kernel's: no thread, or none of that kind.
    pub fn begin() -> anyhow::Result<Awake> {
        let mut awake = Awake {
            end: Arc::default(),
            threads: Vec::new(),
        };
        for cpu in sys::thread::allowed_cpus()? {
            let end = Arc::clone(&awake.end);
            let (tell, told) = std::sync::mpsc::channel();
            let thread = std::thread::Builder::new().name(format!("{NAME}{cpu}"));
            awake.threads.push(thread.spawn(move || {
                let ready = sys::thread::set_idle().and_then(|()| sys::thread::pin_to_cpu(cpu));
                let spin = ready.is_ok();
                let _ = tell.send(ready);
                while spin && !end.load(Ordering::Relaxed) {
                    if RESTS.load(Ordering::Relaxed) {
                        wait_for_the_end_of_the_rest();
                    }
                    std::hint::spin_loop();
                }
            })?);
            told.recv()??;
        }
        Ok(awake)
    }
}

/// Lets processors sleep until it is dropped, although an [`Awake`] exists. There is one at a time.
pub(crate) struct Rest(());

static RESTS: AtomicBool = AtomicBool::new(false);
static OVER: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());

impl Rest {
    pub(crate) fn begin() -> Rest {
        RESTS.store(true, Ordering::Relaxed);
        Rest(())
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        let _lock = OVER.0.lock().unwrap_or_else(PoisonError::into_inner);
        RESTS.store(false, Ordering::Relaxed);
        OVER.1.notify_all();
    }
}

fn wait_for_the_end_of_the_rest() {
    let lock = OVER.0.lock().unwrap_or_else(PoisonError::into_inner);
    let rests = |(): &mut ()| RESTS.load(Ordering::Relaxed);
    drop(OVER.1.wait_while(lock, rests).unwrap_or_else(PoisonError::into_inner));
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_sleep_during_a_rest_and_go_on_after_it() {
        let states = || {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
            let states = stats.filter_map(|stat| {
                let (before, after) = stat.rsplit_once(") ")?;
                before.contains(NAME).then(|| after.chars().next()).flatten()
            });
            states.collect::<String>()
        };
        let await_that = |holds: &dyn Fn(&str) -> bool| {
            let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while !holds(&states()) {
                assert!(std::time::Instant::now() < end, "{}", states());
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        };
        let awake = Awake::begin().unwrap();
        let rest = Rest::begin();
        await_that(&|states| !states.is_empty() && states.chars().all(|state| state == 'S'));
        drop(rest);
        await_that(&|states| states.contains('R'));
        drop(awake);
    }

    #[test]
    fn processors_are_kept_awake_until_it_is_dropped() {
        let threads = || {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
            names.filter(|name| name.starts_with(NAME)).count()
        };
        let awake = Awake::begin().unwrap();
        let begun = threads();
        assert!(begun >= sys::thread::allowed_cpus().unwrap().len());
        drop(awake);
        // A thread that has ended is listed for a moment still, and other tests keep processors
        // awake too.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while threads() >= begun {
            assert!(std::time::Instant::now() < end, "{begun} threads go on");
            std::thread::yield_now();
        }
    }
}
