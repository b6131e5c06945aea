//! Samples: actions for some packets, chosen at random.

use super::Context;
use crate::edit::edit_each;
use dp::{Action, PuntReason};
use netdev::{Frame, Gso, gso};

impl Context<'_> {
    /// Runs the samples and the changes that actions with an [`Ending`](crate::edit::Ending) have
    /// before it. A packet without room for another header is left without a byte; returns whether
    /// there is such a packet.
    pub(crate) fn edit_and_sample(&mut self, actions: &[Action], frames: &mut [Frame]) -> bool {
        let [edits @ .., _] = actions else { return false };
        let mut lost = false;
        let mut rest = edits;
        while let [first, behind @ ..] = rest {
            if let (
                Action::Sample { probability, .. },
                [
                    Action::Punt {
                        reason,
                        handle,
                        max_len,
                    },
                    behind @ ..,
                ],
            ) = (first, behind)
            {
                self.sample_all(*probability, (*reason, *handle), *max_len, frames, lost);
                rest = behind;
                continue;
            }
            let changes = rest.iter().position(|action| matches!(action, Action::Sample { .. }));
            let (changes, behind) = rest.split_at(changes.unwrap_or(rest.len()));
            lost |= edit_each(changes, frames);
            rest = behind;
        }
        lost
    }

    /// Punts some of the packets of frames. Most batches have none, and are not looked at one by
    /// one. `lost` says that a frame may be without a byte.
    #[inline]
    fn sample_all(&mut self, probability: u32, to: (PuntReason, u32), max_len: u16, frames: &[Frame], lost: bool) {
        // Every frame is looked at, so that a comparison for each would cost more than the rest.
        let kind = |frame: &Frame| frame.offload.gso as u8;
        let (fours, others) = frames.as_chunks::<4>();
        let kinds = fours
            .iter()
            .fold(0, |kinds, [a, b, c, d]| kinds | kind(a) | kind(b) | kind(c) | kind(d));
        let kinds = others.iter().fold(kinds, |kinds, frame| kinds | kind(frame));
        if lost || kinds != Gso::None as u8 {
            return self.sample_segments(probability, to, max_len, frames);
        }
        let mut rest = frames;
        while let Some(first) = self.sampler.first(probability, rest.len() as u64)
            && let Some((frame, behind)) = rest[first as usize..].split_first()
        {
            self.punt(to, max_len, frame);
            rest = behind;
        }
    }

    /// The same, where a frame makes several packets on the wire, or none.
    #[cold]
    fn sample_segments(&mut self, probability: u32, to: (PuntReason, u32), max_len: u16, frames: &[Frame]) {
        let real = frames.iter().filter(|frame| !frame.is_empty());
        let packets: u64 = real.map(|frame| gso::segment_count(frame) as u64).sum();
        if packets > 0 && !self.sampler.skips(probability, packets) {
            self.sample_some(probability, to, max_len, frames);
        }
    }

    #[cold]
    fn sample_some(&mut self, probability: u32, (reason, handle): (PuntReason, u32), max_len: u16, frames: &[Frame]) {
        let punt = [Action::Punt {
            reason,
            handle,
            max_len,
        }];
        for frame in frames {
            if !frame.is_empty() {
                self.sample(probability, &punt, frame);
            }
        }
    }

    /// Runs actions on copies of some of the packets that a frame makes on the wire. Each is chosen
    /// by itself, with (`probability` + 1) / 2^32.
    #[inline]
    pub(super) fn sample(&mut self, probability: u32, actions: &[Action], frame: &Frame) {
        let mut chosen = (0..gso::segment_count(frame)).filter(|_| self.sampler.chooses(probability));
        if let Some(first) = chosen.next() {
            self.sample_from(first, probability, actions, frame);
        }
    }

    /// The same, when the first packet that is chosen is known.
    #[cold]
    fn sample_from(&mut self, first: usize, probability: u32, actions: &[Action], frame: &Frame) {
        if frame.offload.gso != Gso::None {
            for (number, packet) in self.completed(frame.duplicate()).into_iter().enumerate() {
                if number == first || number > first && self.sampler.chooses(probability) {
                    self.steps(actions, packet, None);
                }
            }
            return;
        }
        match actions {
            // The usual case: no copy but the one that the control plane gets.
            [
                Action::Punt {
                    reason,
                    handle,
                    max_len,
                },
            ] => self.punt((*reason, *handle), *max_len, frame),
            _ => self.steps(actions, frame.duplicate(), None),
        }
    }
}
