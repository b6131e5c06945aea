//! The membership of one port in one group: the state table of a router (RFC 3376 §6.4, RFC 3810
//! §7.4), kept for a port instead of a network.

use super::wire::RecordKind;
use nanos::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// Sources of a membership at most. A port that names more gets the group from every source.
pub(super) const MOST_SOURCES: usize = 64;

/// The sources whose packets a port wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceFilter {
    /// All but these.
    Except(BTreeSet<IpAddr>),
    /// Only these.
    Only(BTreeSet<IpAddr>),
}

impl SourceFilter {
    /// Every source.
    pub const ALL: SourceFilter = SourceFilter::Except(BTreeSet::new());

    /// Whether the port wants the packets of a source.
    pub fn accepts(&self, source: IpAddr) -> bool {
        match self {
            SourceFilter::Except(sources) => !sources.contains(&source),
            SourceFilter::Only(sources) => sources.contains(&source),
        }
    }

    /// Whether the source matters.
    pub fn reads_source(&self) -> bool {
        *self != SourceFilter::ALL
    }
}

/// What happens to a timer where a router would ask whether another host still wants a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// It ends at once (fast leave).
    Now,
    /// It ends after this time: the querier asks meanwhile.
    After(Duration),
    /// It stays as it is.
    Never,
}

/// When a record comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) now: Nanos,
    /// The group membership interval.
    pub(super) aging: Duration,
    pub(super) leave: Leave,
}

impl Timing {
    fn lower(&self, until: &mut Nanos) {
        match self.leave {
            Leave::Now => *until = (*until).min(self.now),
            Leave::After(wait) => *until = (*until).min(self.now + wait),
            Leave::Never => {}
        }
    }
}

/// A membership.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Membership {
    /// The group timer; `None` in INCLUDE mode.
    pub(super) exclude: Option<Nanos>,
    /// The source timers. In EXCLUDE mode zero means that the source is excluded.
    sources: BTreeMap<IpAddr, Nanos>,
    /// Until when hosts of older versions are members: their records have no sources, so those of
    /// other hosts must not take sources away (RFC 3376 §7.3.2).
    older: Nanos,
}

impl Membership {
    /// Applies a record. The membership then has to be settled.
    pub(super) fn apply(&mut self, kind: RecordKind, older: bool, sources: &[IpAddr], timing: &Timing) {
        let until = timing.now + timing.aging;
        if older && kind == RecordKind::IsExclude {
            self.older = until;
        }
        let named: BTreeSet<IpAddr> = sources.iter().copied().collect();
        match kind {
            RecordKind::IsInclude | RecordKind::Allow => {}
            RecordKind::ToInclude => {
                for (_, timer) in self.sources.iter_mut().filter(|(source, _)| !named.contains(source)) {
                    timing.lower(timer);
                }
                if let Some(timer) = &mut self.exclude {
                    timing.lower(timer);
                }
            }
            RecordKind::Block => return self.block(&named, timing),
            RecordKind::IsExclude | RecordKind::ToExclude => return self.exclude(kind, named, timing),
        }
        self.sources.extend(named.into_iter().map(|source| (source, until)));
        self.bound(until);
    }

    fn block(&mut self, named: &BTreeSet<IpAddr>, timing: &Timing) {
        if self.older > timing.now {
            return;
        }
        for source in named {
            let timer = match self.exclude {
                Some(group) => self.sources.entry(*source).or_insert(group),
                None => match self.sources.get_mut(source) {
                    Some(timer) => timer,
                    None => continue,
                },
            };
            timing.lower(timer);
        }
        self.bound(timing.now + timing.aging);
    }

    fn exclude(&mut self, kind: RecordKind, mut named: BTreeSet<IpAddr>, timing: &Timing) {
        if self.older > timing.now {
            named.clear();
        }
        let until = timing.now + timing.aging;
        let new = match (self.exclude, kind) {
            (None, _) => Nanos::ZERO,
            (Some(group), RecordKind::ToExclude) => group,
            (Some(_), _) => until,
        };
        self.sources.retain(|source, _| named.contains(source));
        for source in named {
            let timer = self.sources.entry(source).or_insert(new);
            if kind == RecordKind::ToExclude {
                timing.lower(timer);
            }
        }
        self.exclude = Some(until);
        self.bound(until);
    }

    /// A membership of too many sources becomes one of all sources.
    fn bound(&mut self, until: Nanos) {
        if self.sources.len() > MOST_SOURCES {
            self.sources.clear();
            (self.exclude, self.older) = (Some(until), until);
        }
    }

    /// Ends the timers that are due. `false` if nothing is left.
    pub(super) fn settle(&mut self, now: Nanos) -> bool {
        if self.exclude.is_some_and(|until| until <= now) {
            self.exclude = None;
        }
        match self.exclude {
            Some(_) => {
                let due = self.sources.values_mut().filter(|until| **until <= now);
                due.for_each(|until| *until = Nanos::ZERO);
            }
            None => self.sources.retain(|_, until| *until > now),
        }
        self.exclude.is_some() || !self.sources.is_empty()
    }

    /// When [`Membership::settle`] has something to do.
    pub(super) fn next_event(&self) -> Nanos {
        let sources = self.sources.values().filter(|until| **until > Nanos::ZERO);
        sources.chain(&self.exclude).min().copied().unwrap_or(Nanos::MAX)
    }

    /// Moves all timers as if the membership interval had always been longer or shorter.
    pub(super) fn change_aging(&mut self, from: Duration, to: Duration) {
        let sources = self.sources.values_mut().filter(|until| **until > Nanos::ZERO);
        for until in sources.chain(&mut self.exclude) {
            *until = (*until - from.min(Duration::from_nanos(until.0))) + to;
        }
    }

    /// The sources that the port wants.
    pub(super) fn filter(&self) -> SourceFilter {
        match self.exclude {
            Some(_) => {
                let excluded = self.sources.iter().filter(|(_, until)| **until == Nanos::ZERO);
                SourceFilter::Except(excluded.map(|(source, _)| *source).collect())
            }
            None => SourceFilter::Only(self.sources.keys().copied().collect()),
        }
    }
}
