//! What the handles of actions and effects mean: kept as long as megaflows that have them are used, and no longer.

use super::translated::Memo;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use wire::Nanos;

/// Most that is kept. Who makes more of it loses what was used longest ago, and the megaflows that have it.
const MAX: usize = 65_536;

/// How long something is kept that nobody uses: longer than any megaflow is without packets.
const UNUSED: Duration = Duration::from_secs(120);

/// How exactly it is known when something was used.
const GRAIN: Duration = Duration::from_secs(1);

/// Meanings by handle.
#[derive(Debug, Default)]
pub(crate) struct Memos {
    known: HashMap<u32, (Arc<Memo>, Nanos)>,
    by_use: BTreeSet<(Nanos, u32)>,
}

impl Memos {
    pub(crate) fn get(&self, handle: u32) -> Option<&Arc<Memo>> {
        self.known.get(&handle).map(|(memo, _)| memo)
    }

    /// Keeps something. Appends the handles that had to go for it.
    pub(crate) fn keep(&mut self, handle: u32, memo: &Arc<Memo>, now: Nanos, gone: &mut Vec<u32>) {
        if self.touch(handle, now) {
            return;
        }
        while self.known.len() >= MAX
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.known.remove(&oldest);
            gone.push(oldest);
        }
        self.known.insert(handle, (memo.clone(), now));
        self.by_use.insert((now, handle));
    }

    /// Notes that something is used. Whether it is known.
    pub(crate) fn touch(&mut self, handle: u32, now: Nanos) -> bool {
        let Some((_, used)) = self.known.get_mut(&handle) else {
            return false;
        };
        if now.since(*used) >= GRAIN {
            self.by_use.remove(&(*used, handle));
            self.by_use.insert((now, handle));
            *used = now;
        }
        true
    }

    /// Forgets what nobody has used for long, and appends its handles.
    pub(crate) fn tick(&mut self, now: Nanos, gone: &mut Vec<u32>) {
        while let Some((used, handle)) = self.by_use.first().copied()
            && now.since(used) >= UNUSED
        {
            self.by_use.pop_first();
            self.known.remove(&handle);
            gone.push(handle);
        }
    }

    /// When [`Memos::tick`] has something to do.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        self.by_use.first().map(|(used, _)| *used + UNUSED)
    }
}

#[cfg(test)]
mod tests {
    use super::super::translated::BridgeRule;
    use super::*;
    use crate::tables::{FlowTables, RuleRef};

    fn memo(idle: u16) -> Arc<Memo> {
        let mut tables = FlowTables::new(crate::FailMode::Secure, 1, Nanos::ZERO);
        let at: RuleRef = tables.flow_mod(&Default::default(), Nanos::ZERO).unwrap().added[0];
        let rule = BridgeRule { bridge: 1, rule: at };
        Arc::new(Memo::Closing { rule, idle, hard: 0 })
    }

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let mut memos = Memos::default();
        let mut gone = Vec::new();
        memos.keep(1, &memo(1), Nanos::ZERO, &mut gone);
        memos.keep(2, &memo(2), Nanos::ZERO, &mut gone);
        assert!(memos.touch(2, Nanos::from_secs(60)) && !memos.touch(3, Nanos::ZERO));
        assert_eq!(memos.next_event(), Some(Nanos::from_secs(120)));
        memos.tick(Nanos::from_secs(130), &mut gone);
        assert_eq!(gone, [1]);
        assert!(memos.get(1).is_none() && memos.get(2).is_some());
        memos.tick(Nanos::from_secs(180), &mut gone);
        assert_eq!((gone, memos.next_event()), (vec![1, 2], None));
    }

    #[test]
    fn there_is_a_bound_and_the_oldest_gives_way() {
        let mut memos = Memos::default();
        let mut gone = Vec::new();
        let one = memo(1);
        for handle in 0..MAX as u32 + 3 {
            memos.keep(handle, &one, Nanos::from_secs(u64::from(handle)), &mut gone);
        }
        assert_eq!(gone, [0, 1, 2]);
        assert_eq!(memos.known.len(), MAX);
    }
}
