//! The contexts that handles of actions and effects stand for, kept as long as megaflows use them.
//!
//! A translation changes nothing. It *proposes* a handle for a context ([`Contexts::handle_of`]):
//! the handle that the context has, or a free one. [`Contexts::keep`] refuses the proposal if
//! another context has taken the handle since, or the context has another; the caller then
//! translates again. So a handle never stands for two contexts, even if their hashes collide.
//!
//! There are bounds per bridge and in total, in number and in bytes. A bridge at its bound gets no
//! new handles: translations leave out what needs one, until the bridge has not used some of its
//! handles for a while. Known handles stay valid. If all bridges together are at the bound, the
//! bridge with the most handles gives some to a bridge with less than its share.

use super::translated::Context;
use nanos::Nanos;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// How long an unused context is kept: longer than a megaflow without packets.
const UNUSED: Duration = Duration::from_secs(120);
/// The same in a bridge at its bound.
const UNUSED_IN_FULL: Duration = Duration::from_secs(15);
/// How long a freed handle is not used again: packets in flight may carry it.
const REST: Duration = Duration::from_secs(5);
/// The resolution of the time of last use.
const GRAIN: Duration = Duration::from_secs(1);
/// Freed handles that one tick makes available at most.
const RESTED: usize = 4096;

/// The bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Handles in all.
    pub(crate) total: usize,
    /// Handles of one bridge.
    pub(crate) per_bridge: usize,
    /// Bytes in all.
    pub(crate) bytes: usize,
    /// Bytes of one bridge.
    pub(crate) bytes_per_bridge: usize,
    /// The highest handle; one less than a power of two.
    pub(crate) highest: u32,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            total: 65_536,
            per_bridge: 32_768,
            bytes: 128 << 20,
            bytes_per_bridge: 64 << 20,
            highest: u32::MAX,
        }
    }
}

/// There is no free handle for a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoHandle;

/// Why a proposal is refused. A caller that translates again gets another handle, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The handle stands for another context by now.
    Taken,
    /// Its bridge is at its bound by now.
    Full,
}

/// Contexts by handle.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    bounds: Bounds,
    known: HashMap<u32, Kept>,
    handles: HashMap<Arc<Context>, u32>,
    bridges: BTreeMap<u32, OfBridge>,
    bytes: usize,
    /// Handles freed lately, the oldest first.
    resting: VecDeque<(Nanos, u32)>,
    rests: HashSet<u32>,
    /// Handles freed since [`Contexts::take_gone`].
    gone: Vec<u32>,
    /// How many numbered handles translations have proposed.
    counted: AtomicU32,
}

#[derive(Debug)]
struct Kept {
    context: Arc<Context>,
    used: Nanos,
    bytes: usize,
}

/// A bridge's contexts.
#[derive(Debug, Default)]
struct OfBridge {
    by_use: BTreeSet<(Nanos, u32)>,
    bytes: usize,
    /// The bridge was at its bound when it last needed a handle, and has stayed there since.
    full: bool,
}

/// Stale things: removed handles, and bridges that have room again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) handles: Vec<u32>,
    pub(crate) bridges: Vec<u32>,
}

impl Contexts {
    pub(crate) fn get(&self, handle: u32) -> Option<&Arc<Context>> {
        self.known.get(&handle).map(|kept| &kept.context)
    }

    /// The handle of a context, or a free one for it; never 0. `own` are the contexts that the
    /// translation has proposed before.
    pub(crate) fn handle_of(&self, context: &Context, seed: u64, own: &[(u32, Arc<Context>)]) -> Result<u32, NoHandle> {
        if let Some(handle) = self.handles.get(context) {
            return Ok(*handle);
        }
        if let Some((handle, _)) = own.iter().find(|(_, other)| **other == *context) {
            return Ok(*handle);
        }
        if self.is_full(context.bridge()) {
            return Err(NoHandle);
        }
        let mut tries = context
            .handles(seed, &self.counted)
            .map(|handle| handle & self.bounds.highest);
        let is_free = |handle: &u32| {
            *handle != 0
                && !self.known.contains_key(handle)
                && !self.rests.contains(handle)
                && !own.iter().any(|(other, _)| other == handle)
        };
        tries.find(is_free).ok_or(NoHandle)
    }

    /// Whether a bridge is at its bound: it gets no new handles.
    pub(super) fn is_full(&self, bridge: u32) -> bool {
        self.bridges.get(&bridge).is_some_and(|bridge| bridge.full)
    }

    /// Whether all contexts that a translation proposes are known by the proposed handles.
    pub(crate) fn has_all(&self, proposed: &[(u32, Arc<Context>)]) -> bool {
        let is_known =
            |(handle, context): &(u32, Arc<Context>)| self.get(*handle).is_some_and(|known| known == context);
        proposed.iter().all(is_known)
    }

    /// Keeps all contexts that a translation proposes, or none of the new ones. Appends what was
    /// removed to make room.
    pub(crate) fn keep_all(
        &mut self,
        proposed: &[(u32, Arc<Context>)],
        now: Nanos,
        gone: &mut Gone,
    ) -> Result<(), Refusal> {
        let mut fresh = Vec::new();
        let kept = proposed.iter().try_for_each(|(handle, context)| {
            let is_new = !self.known.contains_key(handle);
            self.keep(*handle, context, now, gone)?;
            if is_new {
                fresh.push(*handle);
            }
            Ok(())
        });
        // One may have had to go to make room for another.
        let kept = match kept {
            Ok(()) if !self.has_all(proposed) => Err(Refusal::Full),
            kept => kept,
        };
        if kept.is_err() {
            // Nobody has seen them yet, so they need no rest.
            for handle in fresh {
                self.remove(handle);
            }
        }
        kept
    }

    /// Keeps a context by its proposed handle. Appends what was removed to make room.
    fn keep(&mut self, handle: u32, context: &Arc<Context>, now: Nanos, gone: &mut Gone) -> Result<(), Refusal> {
        match self.get(handle) {
            Some(known) if known == context => {
                self.touch(handle, now);
                return Ok(());
            }
            Some(_) => return Err(Refusal::Taken),
            None if self.rests.contains(&handle) || self.handles.contains_key(context) => return Err(Refusal::Taken),
            None => {}
        }
        let (id, bytes) = (context.bridge(), context.bytes());
        if !self.makes_room(id, bytes, now, gone) {
            self.bridges.entry(id).or_default().full = true;
            return Err(Refusal::Full);
        }
        self.handles.insert(context.clone(), handle);
        let kept = Kept {
            context: context.clone(),
            used: now,
            bytes,
        };
        self.known.insert(handle, kept);
        self.bytes += bytes;
        let bridge = self.bridges.entry(id).or_default();
        bridge.by_use.insert((now, handle));
        bridge.bytes += bytes;
        Ok(())
    }

    /// Whether there is room for a context of a bridge. Takes from other bridges what it may.
    fn makes_room(&mut self, id: u32, bytes: usize, now: Nanos, gone: &mut Gone) -> bool {
        let bounds = self.bounds;
        let of_bridge = self.bridges.entry(id).or_default();
        if of_bridge.full
            || of_bridge.by_use.len() >= bounds.per_bridge
            || of_bridge.bytes + bytes > bounds.bytes_per_bridge
        {
            return false;
        }
        while self.known.len() >= bounds.total || self.bytes + bytes > bounds.bytes {
            let users = self
                .bridges
                .values()
                .filter(|bridge| !bridge.by_use.is_empty() || bridge.full);
            let share = users.count().max(1);
            let own = self.bridges.get(&id);
            let (handles, used) = own.map_or((0, 0), |own| (own.by_use.len(), own.bytes));
            let by_number = self.known.len() >= bounds.total;
            let has_less = if by_number {
                (handles + 1) * share <= bounds.total
            } else {
                (used + bytes) * share <= bounds.bytes
            };
            let others = self.bridges.iter().filter(|(other, _)| **other != id);
            let most = others.max_by_key(|(_, other)| if by_number { other.by_use.len() } else { other.bytes });
            let victim = most.and_then(|(_, other)| other.by_use.first().copied());
            match victim.filter(|_| has_less) {
                Some((_, handle)) => self.forget(handle, now, gone),
                None => return false,
            }
        }
        true
    }

    /// Notes that a context is used. Whether the handle is known.
    pub(crate) fn touch(&mut self, handle: u32, now: Nanos) -> bool {
        let Some(kept) = self.known.get_mut(&handle) else {
            return false;
        };
        if now.since(kept.used) >= GRAIN
            && let Some(bridge) = self.bridges.get_mut(&kept.context.bridge())
        {
            bridge.by_use.remove(&(kept.used, handle));
            bridge.by_use.insert((now, handle));
            kept.used = now;
        }
        true
    }

    /// Removes a context. Whether there was one.
    fn remove(&mut self, handle: u32) -> bool {
        let Some(kept) = self.known.remove(&handle) else {
            return false;
        };
        self.handles.remove(&kept.context);
        self.bytes -= kept.bytes;
        if let Some(bridge) = self.bridges.get_mut(&kept.context.bridge()) {
            bridge.by_use.remove(&(kept.used, handle));
            bridge.bytes -= kept.bytes;
        }
        true
    }

    fn forget(&mut self, handle: u32, now: Nanos, gone: &mut Gone) {
        if !self.remove(handle) {
            return;
        }
        if self.resting.len() >= self.bounds.total
            && let Some((_, oldest)) = self.resting.pop_front()
        {
            self.rests.remove(&oldest);
        }
        self.resting.push_back((now, handle));
        self.rests.insert(handle);
        self.gone.push(handle);
        gone.handles.push(handle);
    }

    /// Removes contexts that have not been used for long, at most `left` of them, and appends what
    /// became stale. While more are due, [`Contexts::next_event`] is not in the future.
    pub(crate) fn tick(&mut self, now: Nanos, left: &mut usize, gone: &mut Gone) {
        for _ in 0..RESTED {
            let Some((since, handle)) = self.resting.front().copied() else {
                break;
            };
            if now.since(since) < REST {
                break;
            }
            self.resting.pop_front();
            self.rests.remove(&handle);
        }
        let ids: Vec<u32> = self.bridges.keys().copied().collect();
        for id in ids {
            while *left > 0
                && let Some(bridge) = self.bridges.get(&id)
                && let Some(handle) = bridge.unused(now)
            {
                self.forget(handle, now, gone);
                *left -= 1;
            }
        }
        // Not at the first handle that goes: each time, all packets that were refused ask again.
        let (bounds, total, bytes) = (self.bounds, self.known.len(), self.bytes);
        let below = |used: usize, bound: usize| used < bound - bound / 8;
        for (id, bridge) in &mut self.bridges {
            let has_room = below(bridge.by_use.len(), bounds.per_bridge)
                && below(bridge.bytes, bounds.bytes_per_bridge)
                && below(total, bounds.total)
                && below(bytes, bounds.bytes)
                // What is unused goes first.
                && bridge.unused(now).is_none();
            if bridge.full && has_room {
                bridge.full = false;
                gone.bridges.push(*id);
            }
        }
        self.bridges
            .retain(|_, bridge| bridge.full || !bridge.by_use.is_empty());
    }

    /// Handles freed since the last call.
    pub(crate) fn take_gone(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.gone)
    }

    /// When [`Contexts::tick`] is due.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        let unused = self.bridges.values().filter_map(|bridge| {
            let (used, _) = bridge.by_use.first()?;
            Some(*used + bridge.keeps_for())
        });
        let rested = self.resting.front().map(|(since, _)| *since + REST);
        unused.chain(rested).min()
    }

    /// Sets the bounds.
    pub(crate) fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }
}

impl OfBridge {
    /// The least recently used handle, if it has been unused long enough to be removed.
    fn unused(&self, now: Nanos) -> Option<u32> {
        let (used, handle) = *self.by_use.first()?;
        (now.since(used) >= self.keeps_for()).then_some(handle)
    }

    fn keeps_for(&self) -> Duration {
        if self.full { UNUSED_IN_FULL } else { UNUSED }
    }
}

#[cfg(test)]
mod tests {
    use super::super::translated::BridgeRule;
    use super::*;
    use crate::tables::{FlowTables, RuleRef};

    fn context(bridge: u32, idle: u16) -> Arc<Context> {
        let mut tables = FlowTables::new(crate::FailMode::Secure, 1, Nanos::ZERO);
        let at: RuleRef = tables.flow_mod(&Default::default(), Nanos::ZERO).unwrap().added[0];
        let rule = BridgeRule { bridge, rule: at };
        Arc::new(Context::Closing { rule, idle, hard: 0 })
    }

    fn keep(contexts: &mut Contexts, context: &Arc<Context>, now: Nanos) -> Result<u32, Option<Refusal>> {
        let handle = contexts.handle_of(context, 7, &[]).map_err(|NoHandle| None)?;
        contexts
            .keep(handle, context, now, &mut Gone::default())
            .map_err(Some)?;
        Ok(handle)
    }

    fn small(total: usize, per_bridge: usize) -> Contexts {
        let mut contexts = Contexts::default();
        contexts.set_bounds(Bounds {
            total,
            per_bridge,
            ..Bounds::default()
        });
        contexts
    }

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let mut contexts = Contexts::default();
        let one = keep(&mut contexts, &context(1, 1), Nanos::ZERO).unwrap();
        let two = keep(&mut contexts, &context(1, 2), Nanos::ZERO).unwrap();
        assert!(contexts.touch(two, Nanos::from_secs(60)) && !contexts.touch(one ^ two, Nanos::ZERO));
        assert_eq!(contexts.next_event(), Some(Nanos::from_secs(120)));
        let mut gone = Gone::default();
        contexts.tick(Nanos::from_secs(130), &mut 256, &mut gone);
        assert_eq!(gone.handles, [one]);
        assert!(contexts.get(one).is_none() && contexts.get(two).is_some());
        contexts.tick(Nanos::from_secs(180), &mut 256, &mut gone);
        assert_eq!((gone.handles, contexts.take_gone()), (vec![one, two], vec![one, two]));
        contexts.tick(Nanos::from_secs(200), &mut 256, &mut Gone::default());
        assert_eq!(contexts.next_event(), None);
    }

    #[test]
    fn meanings_whose_hashes_collide_have_different_handles() {
        let mut contexts = Contexts::default();
        contexts.set_bounds(Bounds {
            highest: 15,
            ..Bounds::default()
        });
        let all: Vec<_> = (0..20).map(|idle| context(1, idle)).collect();
        let mut handles = BTreeMap::new();
        for context in &all {
            match keep(&mut contexts, context, Nanos::ZERO) {
                Ok(handle) => assert!(handles.insert(handle, context.clone()).is_none()),
                Err(refused) => assert_eq!(refused, None),
            }
        }
        assert!(handles.len() > 10 && !handles.contains_key(&0), "{handles:?}");
        for (handle, context) in &handles {
            assert_eq!(contexts.get(*handle), Some(context));
            assert_eq!(contexts.handle_of(context, 7, &[]), Ok(*handle));
        }
    }

    #[test]
    fn of_two_proposals_of_one_handle_the_later_is_refused() {
        let mut contexts = Contexts::default();
        contexts.set_bounds(Bounds {
            highest: 1,
            ..Bounds::default()
        });
        let (one, two) = (context(1, 1), context(1, 2));
        assert_eq!(
            (contexts.handle_of(&one, 7, &[]), contexts.handle_of(&two, 7, &[])),
            (Ok(1), Ok(1))
        );
        let mut gone = Gone::default();
        assert_eq!(contexts.keep(1, &one, Nanos::ZERO, &mut gone), Ok(()));
        assert_eq!(contexts.keep(1, &two, Nanos::ZERO, &mut gone), Err(Refusal::Taken));
        assert_eq!(contexts.handle_of(&two, 7, &[]), Err(NoHandle));
        // In one translation too.
        assert_eq!(contexts.handle_of(&one, 7, &[]), Ok(1));
        assert_eq!(
            Contexts::default()
                .handle_of(&two, 7, &[(1, one.clone())])
                .map(|handle| handle != 1),
            Ok(true)
        );
        // It rests before it means something else.
        contexts.tick(Nanos::from_secs(120), &mut 256, &mut gone);
        assert_eq!(contexts.handle_of(&two, 7, &[]), Err(NoHandle));
        contexts.tick(Nanos::from_secs(125), &mut 256, &mut gone);
        assert_eq!(contexts.handle_of(&two, 7, &[]), Ok(1));
    }

    #[test]
    fn a_full_bridge_refuses_its_own_and_keeps_what_it_has_until_that_is_unused() {
        let mut contexts = small(1000, 8);
        let second = Nanos::from_secs;
        let known: Vec<u32> = (0..8)
            .map(|idle| keep(&mut contexts, &context(1, idle), second(0)).unwrap())
            .collect();
        assert_eq!(keep(&mut contexts, &context(1, 8), second(0)), Err(Some(Refusal::Full)));
        // From now on it is not even proposed; what is known is, and others have room.
        assert_eq!(keep(&mut contexts, &context(1, 9), second(0)), Err(None));
        assert_eq!(keep(&mut contexts, &context(1, 3), second(0)), Ok(known[3]));
        keep(&mut contexts, &context(2, 1), second(0)).unwrap();
        known
            .iter()
            .skip(1)
            .for_each(|handle| assert!(contexts.touch(*handle, second(10))));
        let mut gone = Gone::default();
        contexts.tick(second(15), &mut 256, &mut gone);
        assert_eq!((&gone.handles[..], &gone.bridges[..]), (&known[..1], &[][..]));
        contexts.tick(second(25), &mut 256, &mut gone);
        assert_eq!((gone.handles.len(), &gone.bridges[..]), (8, &[1][..]));
        keep(&mut contexts, &context(1, 8), second(25)).unwrap();
        assert!(
            contexts
                .get(contexts.handle_of(&context(2, 1), 7, &[]).unwrap())
                .is_some()
        );
    }

    #[test]
    fn a_bridge_with_less_than_its_share_gets_room_from_the_one_with_the_most() {
        let mut contexts = small(12, 12);
        for idle in 0..12 {
            keep(&mut contexts, &context(1, idle), Nanos::from_secs(u64::from(idle))).unwrap();
        }
        assert_eq!(
            keep(&mut contexts, &context(1, 99), Nanos::ZERO),
            Err(Some(Refusal::Full))
        );
        let got = (0..12).filter(|idle| keep(&mut contexts, &context(2, *idle), Nanos::from_secs(20)).is_ok());
        assert_eq!(got.count(), 6);
        assert_eq!(contexts.known.len(), 12);
        // The oldest went.
        assert!(
            contexts
                .get(contexts.handle_of(&context(1, 11), 7, &[]).unwrap())
                .is_some()
        );
        assert_eq!(contexts.take_gone().len(), 6);
    }

    #[test]
    fn bytes_are_bounded_too() {
        let mut contexts = small(1000, 1000);
        let each = context(1, 0).bytes();
        contexts.set_bounds(Bounds {
            bytes_per_bridge: 5 * each,
            ..Bounds::default()
        });
        let got = (0..10).filter(|idle| keep(&mut contexts, &context(1, *idle), Nanos::ZERO).is_ok());
        assert_eq!(got.count(), 5);
    }

    #[test]
    fn of_meanings_that_cannot_all_be_kept_none_is() {
        let mut contexts = small(1000, 8);
        let known = keep(&mut contexts, &context(1, 0), Nanos::ZERO).unwrap();
        let propose = |contexts: &Contexts, bridge: u32, range: std::ops::Range<u16>| {
            let mut all = Vec::new();
            for idle in range {
                let context = context(bridge, idle);
                all.push((contexts.handle_of(&context, 7, &all).unwrap(), context));
            }
            all
        };
        let (mut gone, before) = (Gone::default(), contexts.bytes);
        let nine = propose(&contexts, 1, 0..9);
        assert_eq!(nine[0].0, known);
        assert_eq!(contexts.keep_all(&nine, Nanos::ZERO, &mut gone), Err(Refusal::Full));
        assert_eq!((gone, contexts.take_gone()), (Gone::default(), vec![]));
        assert_eq!(
            (contexts.known.len(), contexts.handles.len(), contexts.bytes),
            (1, 1, before)
        );
        assert!(contexts.has_all(&nine[..1]) && !contexts.has_all(&nine[1..2]));
        // Those of another bridge are kept, all of them and at once.
        let others = propose(&contexts, 2, 0..8);
        assert_eq!(contexts.keep_all(&others, Nanos::ZERO, &mut Gone::default()), Ok(()));
        assert!(contexts.has_all(&others));
    }

    #[test]
    fn a_translation_does_not_take_the_room_of_its_own_meanings() {
        let mut contexts = small(2, 2);
        let one = contexts.handle_of(&context(1, 1), 7, &[]).unwrap();
        let two = contexts.handle_of(&context(1, 2), 7, &[]).unwrap();
        let three = contexts.handle_of(&context(2, 3), 7, &[]).unwrap();
        let all = [(one, context(1, 1)), (two, context(1, 2)), (three, context(2, 3))];
        let kept = contexts.keep_all(&all, Nanos::ZERO, &mut Gone::default());
        assert_eq!((kept, contexts.known.len()), (Err(Refusal::Full), 0));
    }

    #[test]
    fn a_tick_forgets_no_more_than_it_may_and_comes_back_for_the_rest() {
        let mut contexts = Contexts::default();
        for idle in 0..1000 {
            keep(&mut contexts, &context(1, idle), Nanos::ZERO).unwrap();
        }
        let now = Nanos::from_secs(120);
        let mut ticks = 0;
        while contexts.next_event() <= Some(now) {
            let (mut left, mut gone) = (256, Gone::default());
            contexts.tick(now, &mut left, &mut gone);
            assert_eq!(gone.handles.len(), 256 - left);
            ticks += 1;
        }
        assert_eq!((ticks, contexts.known.len()), (4, 0));
    }

    #[test]
    fn a_full_bridge_gets_room_when_all_that_is_unused_has_gone() {
        let mut contexts = small(1000, 100);
        for idle in 0..100 {
            keep(&mut contexts, &context(1, idle), Nanos::ZERO).unwrap();
        }
        assert_eq!(
            keep(&mut contexts, &context(1, 100), Nanos::ZERO),
            Err(Some(Refusal::Full))
        );
        let mut bridges = Vec::new();
        for _ in 0..4 {
            let mut gone = Gone::default();
            contexts.tick(Nanos::from_secs(15), &mut 30, &mut gone);
            bridges.push((gone.handles.len(), gone.bridges));
        }
        assert_eq!(bridges, [(30, vec![]), (30, vec![]), (30, vec![]), (10, vec![1])]);
    }
}
