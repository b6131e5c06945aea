//! Processors and threads.

use crate::error::{Error, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that this thread may run on, lowest number first.
///
/// # Errors
/// The kernel's.
pub fn allowed_cpus() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).map_err(Error::of("sched_getaffinity"))?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Keeps this thread on one processor.
///
/// # Errors
/// `EINVAL` where there is no such processor, or the process may not use it.
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

#[cfg(test)]
mod tests {
    use super::*;

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
