//! Samples: actions for some packets, chosen at random.

use super::Context;
use dp::Action;
use netdev::{Frame, Gso, gso};

impl Context<'_> {
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
