//! Processors and threads.

use crate::error::{Error, Result, check};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that this thread may run on, lowest number first.
///
/// # Errors
/// The kernel's.
pub fn allowed_cpus() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).map_err(Error::of("sched_getaffinity"))?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Pins this thread to one processor.
///
/// # Errors
/// `EINVAL` if the processor does not exist, or the process may not use it.
pub fn pin_to_cpu(cpu: usize) -> Result<()> {
    let invalid = || Error {
        call: "sched_setaffinity",
        source: std::io::Error::from_raw_os_error(libc::EINVAL),
    };
    if cpu >= CpuSet::MAX_CPU {
        return Err(invalid());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(Error::of("sched_setaffinity"))
}

/// Requests time slices of this length for this thread (0.1 to 100 ms; the kernel rounds into that
/// range). Its share of the processor stays the same, but a thread with short slices runs sooner
/// after a wake-up when others keep the processor busy.
///
/// # Errors
/// The kernel's. Before Linux 6.12 the request succeeds without an effect.
pub fn set_slice(slice: std::time::Duration) -> Result<()> {
    set_attributes(
        libc::SCHED_OTHER,
        0,
        u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX),
    )
}

/// Makes this thread run only on processors that are otherwise idle; any thread that wakes preempts
/// it (`SCHED_IDLE`).
///
/// # Errors
/// The kernel's.
pub fn set_idle() -> Result<()> {
    set_attributes(libc::SCHED_IDLE, 0, 0)
}

/// Makes this thread run before all others but those of a higher priority, until it blocks
/// (`SCHED_FIFO`; 1 to 99).
///
/// # Errors
/// The kernel's: `EPERM` where the process may not, `EINVAL` for other priorities.
pub fn set_fifo(priority: u32) -> Result<()> {
    set_attributes(libc::SCHED_FIFO, priority, 0)
}

fn set_attributes(policy: i32, priority: u32, runtime: u64) -> Result<()> {
    // SAFETY: all of the structure may be zero: the normal policy, no flags.
    let mut wish: libc::sched_attr = unsafe { std::mem::zeroed() };
    wish.size = size_of::<libc::sched_attr>() as u32;
    wish.sched_policy = policy.cast_unsigned();
    wish.sched_nice = nice()?;
    wish.sched_priority = priority;
    wish.sched_runtime = runtime;
    // SAFETY: the kernel reads `size` bytes of the structure and keeps no reference to it; 0 is the
    // calling thread, and no flags are given.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wish, 0) };
    check("sched_setattr", done as i32).map(drop)
}

/// This thread's nice value.
fn nice() -> Result<i32> {
    rustix::process::getpriority_process(None).map_err(Error::of("getpriority"))
}

/// Lowers this thread's nice value to `most` (-20 first, 19 last), unless it is lower already. With
/// equal weights, a thread that has just run waits until the other has run as long, which the
/// kernel may notice only at its next tick.
///
/// # Errors
/// The kernel's: `EACCES` or `EPERM` where the process may not.
pub fn set_nice(most: i32) -> Result<()> {
    if nice()? <= most {
        return Ok(());
    }
    rustix::process::setpriority_process(None, most).map_err(Error::of("setpriority"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_wish_for_short_slices() {
        std::thread::spawn(|| set_slice(std::time::Duration::from_micros(100)).unwrap())
            .join()
            .unwrap();
    }

    #[test]
    fn a_thread_may_give_way_to_all_others_or_run_before_them() {
        let policy = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // Field 41 of proc_pid_stat(5), counted behind the name.
            stat.rsplit_once(')')
                .unwrap()
                .1
                .split_whitespace()
                .nth(38)
                .unwrap()
                .to_owned()
        };
        std::thread::spawn(move || {
            set_idle().unwrap();
            assert_eq!(policy(), libc::SCHED_IDLE.to_string());
            match set_fifo(1) {
                Ok(()) => {
                    assert_eq!(policy(), libc::SCHED_FIFO.to_string());
                    let error = set_fifo(100).unwrap_err();
                    assert_eq!(error.source.raw_os_error(), Some(libc::EINVAL));
                }
                Err(error) => assert_eq!(error.source.raw_os_error(), Some(libc::EPERM), "only root may"),
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_keeps_its_nice_value_with_its_slices_and_its_neighbours_keep_theirs() {
        let before = nice().unwrap();
        std::thread::spawn(move || {
            set_nice((before + 3).min(19)).unwrap();
            assert_eq!(nice().unwrap(), before);
            rustix::process::setpriority_process(None, before + 1).unwrap();
            set_slice(std::time::Duration::from_micros(100)).unwrap();
            assert_eq!(nice().unwrap(), before + 1);
        })
        .join()
        .unwrap();
        assert_eq!(nice().unwrap(), before);
    }

    #[test]
    fn a_thread_pinned_to_a_processor_may_run_only_there() {
        std::thread::spawn(|| {
            let first = allowed_cpus().unwrap()[0];
            pin_to_cpu(first).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [first]);
            assert!(pin_to_cpu(usize::MAX).is_err());
        })
        .join()
        .unwrap();
    }
}
