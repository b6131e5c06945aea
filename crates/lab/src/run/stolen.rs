//! Processors that the host of this guest takes for others ("steal" in `proc_stat(5)`).
//!
//! A thread of nothing but a timer runs on each processor, before all others. Where it wakes late
//! and the kernel says that time was stolen meanwhile, no program could have run there. A thread
//! that wakes late for another reason proves nothing: the kernel may have worked for the switch.

use super::cpu;
use anyhow::{Context as _, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a thread sleeps.
const SLEEP: Duration = Duration::from_millis(1);

/// How often it reads what was stolen so far.
const READ: Duration = Duration::from_millis(100);

/// What the kernel's number of stolen time is exact to.
const TICK: Duration = Duration::from_millis(10);

/// Its priority, above all others of the laboratory.
const PRIORITY: u32 = 90;

/// The threads. Dropping it ends them.
pub(crate) struct StealWatch {
    stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Option<Duration>>>,
}

impl StealWatch {
    /// Looks for processors that are away for `least` or longer.
    ///
    /// # Errors
    /// The kernel starts no threads that run before others: `EPERM` without `CAP_SYS_NICE`.
    pub(crate) fn begin(least: Duration) -> Result<StealWatch> {
        let mut watch = StealWatch {
            stopped: Arc::default(),
            threads: Vec::new(),
        };
        for cpu in sys::thread::allowed_cpus().context("the processors")? {
            let (ready, is_ready) = mpsc::channel();
            let stopped = watch.stopped.clone();
            let thread = std::thread::Builder::new().name(format!("steal {cpu}")).spawn(move || {
                let first = sys::thread::pin_to_cpu(cpu).and_then(|()| sys::thread::set_fifo(PRIORITY));
                let works = first.is_ok();
                // The other end waits for it.
                let _ = ready.send(first);
                works.then(|| longest(cpu, least, &stopped)).flatten()
            });
            watch.threads.push(thread.context("a thread")?);
            is_ready
                .recv()?
                .with_context(|| format!("a thread that runs before all others on processor {cpu}"))?;
        }
        Ok(watch)
    }

    /// The longest time that a processor was away; `None` if none was away for long.
    pub(crate) fn end(mut self) -> Option<Duration> {
        self.stopped.store(true, Ordering::Relaxed);
        let threads = std::mem::take(&mut self.threads).into_iter();
        let each = threads.filter_map(|thread| match thread.join() {
            Ok(longest) => longest,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        each.max()
    }
}

impl Drop for StealWatch {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// The longest time that a processor was away until `stopped`.
fn longest(cpu: usize, least: Duration, stopped: &AtomicBool) -> Option<Duration> {
    let mut last = Instant::now();
    let (mut stolen, mut read) = (cpu::stolen(cpu), last);
    let mut longest = None;
    while !stopped.load(Ordering::Relaxed) {
        std::thread::sleep(SLEEP);
        let now = Instant::now();
        let late = now - last >= least;
        if late || now - read >= READ {
            let more = cpu::stolen(cpu);
            if late && is_stolen(least, more.saturating_sub(stolen)) {
                longest = longest.max(Some(now - last));
            }
            (stolen, read) = (more, now);
        }
        last = Instant::now();
    }
    longest
}

/// Whether `stolen` explains that a thread woke `least` late: all of it, as far as the kernel's
/// number tells.
fn is_stolen(least: Duration, stolen: Duration) -> bool {
    stolen + TICK > least && !stolen.is_zero()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_has_a_thread_on_each_processor_and_ends() {
        testkit::skip!(unless root);
        let watch = StealWatch::begin(Duration::from_secs(3600)).unwrap();
        assert_eq!(watch.threads.len(), sys::thread::allowed_cpus().unwrap().len());
        assert_eq!(watch.end(), None);
    }

    #[test]
    fn only_stolen_time_explains_a_late_thread() {
        let is_stolen = |least, stolen| is_stolen(Duration::from_millis(least), Duration::from_millis(stolen));
        assert!(!is_stolen(20, 0), "the kernel worked for somebody here");
        assert!(!is_stolen(20, 10), "half of it");
        assert!(is_stolen(20, 20) && is_stolen(25, 20) && is_stolen(20, 40));
        assert!(!is_stolen(5, 0), "nothing is no reason");
    }
}
