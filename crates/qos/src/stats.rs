//! Counters of a queue or class.

use crate::Nanos;

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cause {
    /// The queue was full.
    Full,
    /// Its flow's part of the queue was full.
    FlowFull,
    /// The packets queued held as much memory as they may.
    Memory,
    /// CoDel: it had stood in the queue too long.
    Sojourn,
    /// A policer found no tokens for it.
    Policed,
    /// Lost as configured (netem).
    Loss,
}

impl Cause {
    /// All, in the order of [`Stats::drops`].
    pub const ALL: [Cause; 6] = [
        Cause::Full,
        Cause::FlowFull,
        Cause::Memory,
        Cause::Sojourn,
        Cause::Policed,
        Cause::Loss,
    ];

    /// A word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Full => "full",
            Cause::FlowFull => "flow_full",
            Cause::Memory => "memory",
            Cause::Sojourn => "sojourn",
            Cause::Policed => "policed",
            Cause::Loss => "loss",
        }
    }
}

/// Counters of a queue, a class or a whole scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets in the queue.
    pub backlog_packets: u64,
    /// Bytes in the queue.
    pub backlog_bytes: u64,
    /// Packets given out.
    pub packets: u64,
    /// Bytes given out, of frames.
    pub bytes: u64,
    /// How long the packets given out had been queued.
    pub sojourn: Histogram,
    /// Packets dropped, by [`Cause`].
    pub drops: [u64; Cause::ALL.len()],
    /// Packets that were given the mark Congestion Experienced instead of being dropped.
    pub marks: u64,
}

impl Stats {
    /// Packets dropped for a cause.
    pub fn dropped(&self, cause: Cause) -> u64 {
        self.drops[cause as usize]
    }

    /// Packets dropped, all told.
    pub fn all_dropped(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Stats) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        for (mine, theirs) in self.drops.iter_mut().zip(other.drops) {
            *mine += theirs;
        }
        self.marks += other.marks;
        self.backlog_packets += other.backlog_packets;
        self.backlog_bytes += other.backlog_bytes;
        for (mine, theirs) in self.sojourn.counts.iter_mut().zip(other.sojourn.counts) {
            *mine += theirs;
        }
    }
}

/// What a queue counts while it works: [`Stats`] are made of it. What each packet changes comes
/// first.
///
/// What changes when a packet comes and what when it goes have no word in common, and lie side by
/// side: so each is changed at once, and none is read in a width in which it was not written just
/// before, for which a processor has to wait.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct Counters {
    /// Packets and bytes enqueued, without those dropped since.
    came: [u64; 2],
    /// Packets and bytes given out.
    went: [u64; 2],
    pub(crate) sojourn: Histogram,
    drops: [u64; Cause::ALL.len()],
    pub(crate) marks: u64,
}

impl Counters {
    /// Packets in the queue.
    #[inline]
    pub(crate) fn backlog_packets(&self) -> u64 {
        self.came[0] - self.went[0]
    }

    /// Bytes in the queue.
    #[inline]
    pub(crate) fn backlog_bytes(&self) -> u64 {
        self.came[1] - self.went[1]
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.came[0] == self.went[0]
    }

    /// Counters with the same backlog and nothing else.
    pub(crate) fn backlog(&self) -> Counters {
        Counters {
            came: [self.backlog_packets(), self.backlog_bytes()],
            ..Counters::default()
        }
    }

    /// A packet came into the queue.
    #[inline]
    pub(crate) fn queued(&mut self, bytes: u32) {
        self.came[0] += 1;
        self.came[1] += u64::from(bytes);
    }

    /// Removes a packet from the queue as if it had never been enqueued.
    #[inline]
    pub(crate) fn unqueued(&mut self, bytes: u32) {
        self.came[0] -= 1;
        self.came[1] -= u64::from(bytes);
    }

    /// A queued packet was dropped.
    pub(crate) fn lost(&mut self, bytes: u32, cause: Cause) {
        self.unqueued(bytes);
        self.drops[cause as usize] += 1;
    }

    /// A queued packet was given out. Where in the histogram it was counted.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: u32, sojourn: Nanos) -> usize {
        self.went[0] += 1;
        self.went[1] += u64::from(bytes);
        self.sojourn.add(sojourn)
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            backlog_packets: self.backlog_packets(),
            backlog_bytes: self.backlog_bytes(),
            packets: self.went[0],
            bytes: self.went[1],
            sojourn: self.sojourn.clone(),
            drops: self.drops,
            marks: self.marks,
        }
    }
}

/// Counts of times by powers of two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; Histogram::BUCKETS],
}

impl Histogram {
    /// Buckets: the first counts what is under 1.024 µs, each further one twice as far, the last
    /// all from 4.3 s.
    pub const BUCKETS: usize = 24;

    /// The counts.
    pub fn counts(&self) -> &[u64; Histogram::BUCKETS] {
        &self.counts
    }

    /// Below what the bucket's times are; `None` for the last.
    pub fn below(bucket: usize) -> Option<Nanos> {
        (bucket + 1 < Histogram::BUCKETS).then(|| Nanos(1_024 << bucket))
    }

    /// The `fraction` quantile (0 to 1) of the times, rounded up to a power of two; `None` without
    /// times, or if it is in the last bucket.
    pub fn quantile(&self, fraction: f64) -> Option<Nanos> {
        let all: u64 = self.counts.iter().sum();
        let wanted = (all as f64 * fraction).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Histogram::below(bucket)
    }

    #[inline]
    fn add(&mut self, time: Nanos) -> usize {
        let bucket = (time.0 >> 9 | 1).ilog2() as usize;
        let bucket = bucket.min(Histogram::BUCKETS - 1);
        self.counts[bucket] += 1;
        bucket
    }

    /// A time of this bucket will be counted soon.
    #[inline]
    pub(crate) fn expect(&self, bucket: usize) {
        if let Some(count) = self.counts.get(bucket) {
            sys::memory::prefetch(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_tells_quantiles_to_a_power_of_two() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        for n in 0..100 {
            histogram.add(Nanos::from_micros(n));
        }
        assert_eq!(histogram.quantile(0.5), Some(Nanos(65_536)));
        assert_eq!(histogram.quantile(0.01), Some(Nanos(1_024)));
        histogram.add(Nanos::from_secs(100));
        assert_eq!(histogram.quantile(1.0), None);
    }
}
