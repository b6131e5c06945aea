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

/// Its priority, above all others of the laboratory.
const PRIORITY: u32 = 90;

/// The threads. Dropping it ends them.
pub(crate) struct Watch {
    stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Option<Duration>>>,
}

impl Watch {
    /// Looks for processors that are away for `least` or longer.
    ///
    /// # Errors
    /// Threads may not run before others here.
    pub(crate) fn begin(least: Duration) -> Result<Watch> {
        let mut watch = Watch {
            stopped: Arc::default(),
            threads: Vec::new(),
        };
        for cpu in sys::thread::allowed_cpus().context("the processors")? {
            let (ready, is_ready) = mpsc::channel();
            let stopped = watch.stopped.clone();
            watch.threads.push(std::thread::spawn(move || {
                let first = sys::thread::pin_to_cpu(cpu).and_then(|()| sys::thread::set_first(PRIORITY));
                let works = first.is_ok();
                // The other end waits for it.
                let _ = ready.send(first);
                works.then(|| longest(cpu, least, &stopped)).flatten()
            }));
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

impl Drop for Watch {
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
        let away = now - last;
        if away >= least && cpu::stolen(cpu) > stolen {
            longest = longest.max(Some(away));
        }
        if now - read >= READ {
            (stolen, read) = (cpu::stolen(cpu), now);
        }
        last = now;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_that_nobody_steals_are_not_away() {
        testkit::skip!(unless root);
        let watch = Watch::begin(Duration::from_secs(3600)).unwrap();
        assert_eq!(watch.threads.len(), sys::thread::allowed_cpus().unwrap().len());
        assert_eq!(watch.end(), None);
    }
}
