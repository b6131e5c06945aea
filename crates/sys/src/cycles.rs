//! The processor's time stamp: the cheapest clock there is, in units of its own.

/// Cycles of the processor's clock at its nominal rate, since some time; nanoseconds where the
/// processor has no such counter.
#[inline(always)]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction reads a register; every processor of this architecture has it, and
    // Linux lets processes use it.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn time_goes_on() {
        let before = super::now();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(super::now() > before);
    }
}
