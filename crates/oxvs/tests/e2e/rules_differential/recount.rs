//! Finds the packet that the switches count differently although the output is the same.

use super::counters::Counters;
use super::{Cause, Pair, TOGETHER, allowed};
use testkit::random::RuleSet;

impl Pair {
    /// Programs both again and sends `packets` once more to find the one that makes the difference.
    pub(super) fn recount(&mut self, set: &RuleSet, packets: &[(&'static str, Vec<u8>)]) -> Cause {
        let cause = self.recount_by(set, packets, false);
        if set.learning && matches!(cause, Cause::Fault(_)) {
            // A packet can meet another state than it leaves behind. A trace before sending changes
            // counters in Open vSwitch (meters, for example), so only an allowed difference counts.
            if let Cause::Allowed = self.recount_by(set, packets, true) {
                return Cause::Allowed;
            }
        }
        cause
    }

    /// The same; with `foretell`, Open vSwitch traces each packet before it is sent.
    fn recount_by(&mut self, set: &RuleSet, packets: &[(&'static str, Vec<u8>)], foretell: bool) -> Cause {
        let mut cause = Cause::Unknown;
        let mut before = None;
        for part in packets.chunks(if set.learning { 1 } else { TOGETHER }) {
            let unlearned = (foretell && before.is_some()).then(|| {
                let trace = self.oracle_trace(part[0].0, &part[0].1);
                // The marks that go with it are counted.
                self.mine.exchange_marks();
                trace
            });
            let whole = match self.count(set, part, &mut before) {
                Ok(()) => continue,
                Err(difference) if part.len() == 1 => self.judge(set, &part[0], &difference, unlearned.as_deref()),
                Err(_) => Cause::Unknown,
            };
            before = None;
            if let Cause::Fault(_) = whole {
                return whole;
            }
            if let Cause::Allowed = whole {
                cause = Cause::Allowed;
                continue;
            }
            for packet in part {
                let Err(difference) = self.count(set, std::slice::from_ref(packet), &mut before) else {
                    continue;
                };
                before = None;
                match self.judge(set, packet, &difference, None) {
                    Cause::Allowed => cause = Cause::Allowed,
                    other => return other,
                }
            }
        }
        cause
    }

    /// Sends some packets without megaflows in either switch, and compares the counters since both
    /// were programmed; programs them if `before` is none.
    fn count(
        &mut self,
        set: &RuleSet,
        part: &[(&'static str, Vec<u8>)],
        before: &mut Option<[Counters; 2]>,
    ) -> Result<(), String> {
        if before.is_none() {
            self.oracle.program(set)?;
            self.mine.program(set)?;
            *before = Some([self.oracle.counted(), self.mine.counted()]);
        }
        self.forget_flows();
        self.exchange(part);
        self.compare_rules(set)?;
        before
            .as_ref()
            .map_or(Ok(()), |before| self.compare_counters(set, before))
    }

    /// Whether a packet may be counted differently; `unlearned` is Open vSwitch's trace before it
    /// was sent.
    fn judge(
        &mut self,
        set: &RuleSet,
        (port, frame): &(&'static str, Vec<u8>),
        difference: &str,
        unlearned: Option<&str>,
    ) -> Cause {
        let theirs = self.oracle.trace(port, frame);
        let mine = self.mine.trace(port, frame);
        self.oracle.exchange_marks();
        self.counted = None;
        let unlearned = unlearned.and_then(|trace| allowed::reason(set, frame, trace));
        match unlearned.or_else(|| allowed::reason(set, frame, &theirs)) {
            Some(reason) => {
                *self.tally.reasons.entry(reason).or_default() += 1;
                Cause::Allowed
            }
            None => Cause::Fault(format!(
                "{difference}packet into {port}: {}\nOpen vSwitch's trace:\n{theirs}\nhere:\n{mine}",
                testkit::to_hex(frame)
            )),
        }
    }
}
