//! Tracks a received flow: number, missing, reordered and duplicate datagrams, and jitter.

use crate::traffic::histogram::Durations;

/// The window in which duplicates are detected. Older datagrams count as duplicates.
const WINDOW: u64 = 1 << 16;

/// Accounts of the datagrams of one flow, by their numbers and times. Numbers begin at 0 and wrap
/// after 2^32.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// One past the highest number so far, unwrapped.
    next: u64,
    /// For each of the last [`WINDOW`] numbers, by its low bits: it has come.
    seen: Vec<u64>,
    /// Different datagrams.
    pub(crate) received: u64,
    /// Bytes of their payloads.
    pub(crate) bytes: u64,
    /// Duplicates.
    pub(crate) duplicates: u64,
    /// Reordered datagrams.
    pub(crate) reordered: u64,
    /// Numbers skipped at an arrival, whether or not they arrived later.
    pub(crate) gaps: u64,
    /// The most numbers left out at once.
    pub(crate) longest_gap: u64,
    /// The longest time between two arrivals, in nanoseconds.
    pub(crate) silence: u64,
    /// When the first and the last of them arrived.
    pub(crate) span: Option<(u64, u64)>,
    /// Jitter.
    pub(crate) jitter: Jitter,
}

impl Tracker {
    pub(crate) fn new() -> Tracker {
        Tracker {
            next: 0,
            seen: vec![0; (WINDOW / 64) as usize],
            received: 0,
            bytes: 0,
            duplicates: 0,
            reordered: 0,
            gaps: 0,
            longest_gap: 0,
            silence: 0,
            span: None,
            jitter: Jitter::new(),
        }
    }

    /// A datagram has arrived: its number, its times by the two ends' clocks in nanoseconds, and
    /// the length of its payload.
    pub(crate) fn arrived(&mut self, sequence: u32, sent: u64, at: u64, len: usize) {
        let number = self.unwrap(sequence);
        if number >= self.next {
            let left_out = number - self.next;
            if left_out > 0 {
                self.gaps += 1;
                self.longest_gap = self.longest_gap.max(left_out);
            }
            // Of a gap longer than the window nothing that was seen remains.
            for skipped in self.next.max(number.saturating_sub(WINDOW))..number {
                self.mark(skipped, false);
            }
            self.next = number + 1;
        } else if self.next - number > WINDOW || self.has(number) {
            self.duplicates += 1;
            return;
        } else {
            self.reordered += 1;
        }
        self.mark(number, true);
        self.received += 1;
        self.bytes += len as u64;
        self.silence = self
            .silence
            .max(self.span.map_or(0, |(_, last)| at.saturating_sub(last)));
        self.span = Some((self.span.map_or(at, |(first, _)| first), at));
        self.jitter.arrived(sent, at);
    }

    /// Numbers up to the highest that never arrived.
    pub(crate) fn missing(&self) -> u64 {
        self.next.saturating_sub(self.received)
    }

    /// The number with these low bits that is nearest to the next one.
    fn unwrap(&self, sequence: u32) -> u64 {
        let ahead = sequence.wrapping_sub(self.next as u32).cast_signed();
        self.next
            .checked_add_signed(i64::from(ahead))
            .unwrap_or(u64::from(sequence))
    }

    fn has(&self, number: u64) -> bool {
        self.seen[(number % WINDOW / 64) as usize] & (1 << (number % 64)) != 0
    }

    fn mark(&mut self, number: u64, came: bool) {
        let word = &mut self.seen[(number % WINDOW / 64) as usize];
        if came {
            *word |= 1 << (number % 64);
        } else {
            *word &= !(1 << (number % 64));
        }
    }
}

/// Interarrival jitter as RFC 3550 section 6.4.1 estimates it, J += (|D| - J)/16, where D is the
/// change of the spacing of two datagrams in the order of arrival; and the distribution of |D|
/// itself.
#[derive(Debug)]
pub(crate) struct Jitter {
    /// When the last was sent, and when it arrived.
    last: Option<(u64, u64)>,
    /// J in nanoseconds.
    estimate: f64,
    /// Of J after each arrival but the first, to take its mean.
    sum: f64,
    /// |D|.
    pub(crate) changes: Durations,
}

impl Jitter {
    pub(crate) fn new() -> Jitter {
        Jitter {
            last: None,
            estimate: 0.0,
            sum: 0.0,
            changes: Durations::new(),
        }
    }

    /// Adds an arrival with its send and arrival times, each by its own clock, in nanoseconds.
    pub(crate) fn arrived(&mut self, sent: u64, at: u64) {
        if let Some((sent_before, at_before)) = self.last {
            let spacing = i128::from(at) - i128::from(at_before) - (i128::from(sent) - i128::from(sent_before));
            let change = u64::try_from(spacing.unsigned_abs()).unwrap_or(u64::MAX);
            self.estimate += (change as f64 - self.estimate) / 16.0;
            self.sum += self.estimate;
            self.changes.record(change);
        }
        self.last = Some((sent, at));
    }

    /// J after the last arrival, in microseconds; none before the second.
    pub(crate) fn last(&self) -> Option<f64> {
        (self.changes.count() > 0).then_some(self.estimate / 1e3)
    }

    /// Mean of J over the arrivals, in microseconds; none before the second.
    pub(crate) fn mean(&self) -> Option<f64> {
        let n = self.changes.count();
        (n > 0).then(|| self.sum / n as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracker(sequences: &[u32]) -> Tracker {
        let mut tracker = Tracker::new();
        for (i, &sequence) in sequences.iter().enumerate() {
            tracker.arrived(sequence, 0, i as u64, 10);
        }
        tracker
    }

    #[test]
    fn what_arrives_in_order_has_no_faults() {
        let t = tracker(&[0, 1, 2, 3]);
        assert_eq!(
            (t.received, t.bytes, t.missing(), t.gaps, t.reordered, t.duplicates),
            (4, 40, 0, 0, 0, 0)
        );
        assert_eq!((t.span, t.silence), (Some((0, 3)), 1));
        let mut t = tracker(&[0]);
        t.arrived(1, 0, 50, 1);
        t.arrived(2, 0, 60, 1);
        assert_eq!(t.silence, 50);
    }

    #[test]
    fn what_is_left_out_is_missing_until_it_comes_late() {
        let t = tracker(&[2, 3, 7]);
        assert_eq!((t.received, t.missing(), t.gaps, t.longest_gap), (3, 5, 2, 3));
        let t = tracker(&[2, 3, 7, 5, 0]);
        assert_eq!(
            (t.received, t.missing(), t.gaps, t.reordered, t.duplicates),
            (5, 3, 2, 2, 0)
        );
    }

    #[test]
    fn what_comes_twice_counts_once() {
        let t = tracker(&[0, 1, 1, 3, 0, 2, 2]);
        assert_eq!(
            (t.received, t.bytes, t.duplicates, t.reordered, t.missing()),
            (4, 40, 3, 1, 0)
        );
    }

    #[test]
    fn numbers_go_on_after_they_wrap() {
        let mut t = Tracker::new();
        t.next = u64::from(u32::MAX) - 1;
        t.received = t.next;
        for sequence in [u32::MAX - 1, 0, u32::MAX, 2, 1] {
            t.arrived(sequence, 0, 0, 1);
        }
        assert_eq!(t.next, (1 << 32) + 3);
        assert_eq!((t.missing(), t.reordered, t.duplicates, t.gaps), (0, 2, 0, 2));
    }

    #[test]
    fn a_gap_longer_than_the_window_forgets_all_that_was_seen() {
        let far = 200_000;
        let mut t = tracker(&[0, 1, far]);
        assert_eq!(
            (t.received, t.missing(), t.longest_gap),
            (3, u64::from(far) - 2, u64::from(far) - 2)
        );
        t.arrived(1, 0, 9, 1);
        assert_eq!(t.duplicates, 1, "too old to be told from a duplicate");
        t.arrived(far - 65_000, 0, 9, 1);
        assert_eq!((t.reordered, t.duplicates), (1, 1));
        t.arrived(far - 65_000, 0, 9, 1);
        assert_eq!((t.reordered, t.duplicates), (1, 2));
    }

    #[test]
    fn jitter_is_as_computed_by_hand_from_rfc_3550() {
        let mut jitter = Jitter::new();
        assert_eq!((jitter.last(), jitter.mean()), (None, None));
        // Sent every 20 ms; the way takes 5, 6, 4, 4 ms: D = 1, -2, 0 ms. J = 1/16 = 0.0625; 0.0625
        // + (2 - 0.0625)/16 = 0.18359375; 0.18359375 * 15/16 = 0.172119140625 ms.
        for (i, transit) in [5_u64, 6, 4, 4].into_iter().enumerate() {
            let sent = i as u64 * 20_000_000;
            jitter.arrived(sent, 1_000_000_000 + sent + transit * 1_000_000);
        }
        assert!((jitter.last().unwrap() - 172.119_140_625).abs() < 1e-9);
        assert!((jitter.mean().unwrap() - (62.5 + 183.593_75 + 172.119_140_625) / 3.0).abs() < 1e-9);
        assert_eq!(jitter.changes.count(), 3);
        assert!((jitter.changes.mean().unwrap() - 1000.0).abs() < 1e-9);
    }

    #[test]
    fn clocks_of_the_two_ends_need_not_agree() {
        let mut jitter = Jitter::new();
        jitter.arrived(u64::MAX - 10, 5);
        jitter.arrived(u64::MAX, 15);
        assert_eq!(jitter.last(), Some(0.0));
    }
}
