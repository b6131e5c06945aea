//! Proxy reports (RFC 4541 §2.1.1): the switch reports to routers for all hosts of a VLAN, as one
//! host would (RFC 2236 §3, RFC 2710 §4, RFC 3376 §5, RFC 3810 §6).
//!
//! It speaks the version of the querier. A change is reported [`ROBUSTNESS`] times.

use super::membership::{MOST_SOURCES, SourceFilter};
use super::report;
use super::timers::{LAST_MEMBER, LAST_MEMBER_QUERIES, OLDER_QUERIER, ROBUSTNESS, UNSOLICITED};
use super::wire::{Query, Record, RecordKind, Version};
use crate::random::Random;
use nanos::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use wire::{MacAddr, Vid};

/// The settings of proxy reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyConfig {
    /// The IPv4 source of reports; 0.0.0.0 is a switch's (RFC 4541 §2.1.1).
    pub address: Ipv4Addr,
    /// The Ethernet source; the link-local source of MLD reports is made of it.
    pub mac: MacAddr,
}

/// Groups that are reported or asked for at once.
const BATCH: usize = 256;
/// The time between two batches.
const PACE: Duration = Duration::from_millis(10);

type Key = (Vid, IpAddr);

/// A change that routers may not know yet.
#[derive(Debug)]
struct Pending {
    /// What routers knew before.
    base: Option<SourceFilter>,
    /// Whether something was sent since.
    sent: bool,
    /// Reports to send.
    left: u32,
    due: Nanos,
}

/// Queriers of a VLAN, of IGMP or MLD.
#[derive(Debug, Default)]
struct Network {
    /// Until when a querier of version 1 is there, and of version 2.
    older: [Nanos; 2],
    /// When the answer to a general query is due.
    answer: Option<Nanos>,
}

/// The proxy.
#[derive(Debug, Default)]
pub(super) struct Proxy {
    config: Option<ProxyConfig>,
    /// What all hosts want together, by group.
    wanted: BTreeMap<Key, SourceFilter>,
    pending: BTreeMap<Key, Pending>,
    due: BTreeSet<(Nanos, Key)>,
    /// Groups whose state a querier has asked for.
    asked: BTreeSet<Key>,
    /// Groups whose hosts are asked whether they stay: queries left, and when the next is due.
    leaving: BTreeMap<Key, (u32, Nanos)>,
    networks: BTreeMap<(Vid, bool), Network>,
    /// When the next batch may go.
    open: Nanos,
    random: Random,
}

impl Proxy {
    pub(super) fn configure(&mut self, config: Option<&ProxyConfig>) {
        match config {
            Some(config) if self.config.is_none() => self.random = Random(config.mac.to_u64()),
            Some(_) => {}
            None => *self = Proxy::default(),
        }
        self.config = config.cloned();
    }

    pub(super) fn is_on(&self) -> bool {
        self.config.is_some()
    }

    /// Hears a querier.
    pub(super) fn hear(&mut self, vlan: Vid, query: &Query, now: Nanos) {
        if !self.is_on() {
            return;
        }
        let network = self.networks.entry((vlan, query.src.is_ipv6())).or_default();
        match query.version {
            Version::V1 => network.older[0] = now + OLDER_QUERIER,
            Version::V2 => network.older[1] = now + OLDER_QUERIER,
            Version::V3 => {}
        }
        match query.group {
            Some(group) if self.wanted.contains_key(&(vlan, group)) => _ = self.asked.insert((vlan, group)),
            Some(_) => {}
            None => {
                let most = u64::try_from(query.response.as_nanos()).unwrap_or(u64::MAX).max(1);
                let answer = now + Duration::from_nanos(self.random.next() % most);
                network.answer = Some(network.answer.map_or(answer, |before| before.min(answer)));
            }
        }
    }

    /// Follows the members of a group; none if it is gone.
    pub(super) fn follow(&mut self, key: Key, members: &[(u32, SourceFilter)]) {
        if !self.is_on() {
            return;
        }
        let new = merge(members.iter().map(|(_, filter)| filter));
        let old = match &new {
            Some(filter) => self.wanted.insert(key, filter.clone()),
            None => self.wanted.remove(&key),
        };
        if old == new {
            return;
        }
        let pending = self.pending.entry(key).or_insert(Pending {
            base: old,
            sent: false,
            left: 0,
            due: Nanos::ZERO,
        });
        self.due.remove(&(pending.due, key));
        (pending.left, pending.due) = (ROBUSTNESS, Nanos::ZERO);
        self.due.insert((Nanos::ZERO, key));
    }

    /// Forgets groups that are not there.
    pub(super) fn retain(&mut self, is_there: impl Fn(&Key) -> bool) {
        let gone: Vec<Key> = self.wanted.keys().filter(|key| !is_there(key)).copied().collect();
        for key in gone {
            self.follow(key, &[]);
        }
    }

    /// Asks the hosts of a group whether they stay, in place of the querier, which hears of the
    /// leave message only when the last host has left.
    pub(super) fn ask(&mut self, key: Key, now: Nanos) {
        if self.is_on() {
            self.leaving.entry(key).or_insert((LAST_MEMBER_QUERIES, now));
        }
    }

    /// The frames that are due.
    pub(super) fn tick(&mut self, now: Nanos) -> Vec<(Vid, Vec<u8>)> {
        let Some(config) = self.config.clone() else {
            return Vec::new();
        };
        self.note_answers(now);
        if self.open > now {
            return Vec::new();
        }
        let mut batch = Batch {
            sender: config,
            records: BTreeMap::new(),
            frames: Vec::new(),
        };
        let mut room = BATCH;
        while room > 0
            && let Some((_, key)) = self.due.first().copied().filter(|(due, _)| *due <= now)
        {
            room -= 1;
            self.report_change(key, now, &mut batch);
        }
        while room > 0
            && let Some(key) = self.asked.pop_first()
        {
            room -= 1;
            if let Some(filter) = self.wanted.get(&key) {
                let version = self.version(key, now);
                batch.report(key, version, vec![state_of(filter)], false);
            }
        }
        self.ask_leaving(now, room, &mut batch);
        if self.is_due(now) {
            self.open = now + PACE;
        }
        batch.finish()
    }

    /// Answers general queries that are due.
    fn note_answers(&mut self, now: Nanos) {
        for ((vlan, is_v6), network) in &mut self.networks {
            if network.answer.take_if(|due| *due <= now).is_some() {
                let (first, last) = bounds(*vlan, *is_v6);
                self.asked.extend(self.wanted.range(first..=last).map(|(key, _)| *key));
            }
        }
    }

    /// Reports a change, and says when to report it again.
    fn report_change(&mut self, key: Key, now: Nanos, batch: &mut Batch) {
        let version = self.version(key, now);
        let Some(pending) = self.pending.get_mut(&key) else {
            self.due.pop_first();
            return;
        };
        self.due.remove(&(pending.due, key));
        let new = self.wanted.get(&key);
        let mut records = changes(pending.base.as_ref(), new);
        if records.is_empty() && pending.sent {
            // It is as it was before, and routers may have heard otherwise.
            records.push(whole_change(new));
        }
        if version < Version::V3 && !pending.sent && pending.base.is_some() == new.is_some() {
            // Older versions know no sources.
            records.clear();
        }
        if !records.is_empty() {
            batch.report(key, version, records, new.is_none());
            pending.sent = true;
        }
        pending.left -= 1;
        if pending.left == 0 || !pending.sent {
            self.pending.remove(&key);
            return;
        }
        let most = UNSOLICITED.as_nanos() as u64;
        pending.due = now + Duration::from_nanos(self.random.next() % most + 1);
        self.due.insert((pending.due, key));
    }

    /// Sends the queries to hosts that are due.
    fn ask_leaving(&mut self, now: Nanos, room: usize, batch: &mut Batch) {
        let due = self.leaving.iter().filter(|(_, (_, due))| *due <= now);
        let keys: Vec<Key> = due.map(|(key, _)| *key).take(room).collect();
        for key in keys {
            let Some((left, due)) = self.leaving.get_mut(&key) else {
                continue;
            };
            if *left == 0 {
                self.leaving.remove(&key);
                continue;
            }
            *left -= 1;
            *due = now + LAST_MEMBER / LAST_MEMBER_QUERIES;
            let frame = report::group_query(&batch.sender, key.0, key.1, LAST_MEMBER / LAST_MEMBER_QUERIES);
            batch.frames.push((key.0, frame));
        }
    }

    fn is_due(&self, now: Nanos) -> bool {
        let leaving = || self.leaving.values().any(|(_, due)| *due <= now);
        !self.asked.is_empty() || self.due.first().is_some_and(|(due, _)| *due <= now) || leaving()
    }

    /// The version of the queriers that a group's reports go to.
    fn version(&self, (vlan, group): Key, now: Nanos) -> Version {
        match self.networks.get(&(vlan, group.is_ipv6())).map(|network| network.older) {
            Some([first, _]) if first > now => Version::V1,
            Some([_, second]) if second > now => Version::V2,
            _ => Version::V3,
        }
    }

    /// When [`Proxy::tick`] has something to do.
    pub(super) fn next_event(&self) -> Option<Nanos> {
        let batch = [
            self.due.first().map(|(due, _)| *due),
            self.asked.first().map(|_| Nanos::ZERO),
            self.leaving.values().map(|(_, due)| *due).min(),
        ];
        let batch = batch.into_iter().flatten().min().map(|due| due.max(self.open));
        let answers = self.networks.values().filter_map(|network| network.answer).min();
        batch.into_iter().chain(answers).min()
    }
}

/// Frames that leave at once.
struct Batch {
    sender: ProxyConfig,
    /// Records by VLAN and protocol.
    records: BTreeMap<(Vid, bool), Vec<Record>>,
    frames: Vec<(Vid, Vec<u8>)>,
}

impl Batch {
    /// Adds what a querier of a version gets of a group.
    fn report(
        &mut self,
        (vlan, group): Key,
        version: Version,
        records: Vec<(RecordKind, BTreeSet<IpAddr>)>,
        leaves: bool,
    ) {
        if version < Version::V3 {
            let frame = report::older(&self.sender, vlan, group, version, leaves);
            return self.frames.extend(frame.map(|frame| (vlan, frame)));
        }
        let records = records.into_iter().map(|(kind, sources)| Record {
            kind,
            group,
            sources: sources.into_iter().collect(),
        });
        self.records.entry((vlan, group.is_ipv6())).or_default().extend(records);
    }

    fn finish(mut self) -> Vec<(Vid, Vec<u8>)> {
        for ((vlan, is_v6), records) in self.records {
            let frames = report::with_records(&self.sender, vlan, is_v6, &records);
            self.frames.extend(frames.into_iter().map(|frame| (vlan, frame)));
        }
        self.frames
    }
}

/// What all members of a group want together (RFC 3376 §3.2); `None` without members.
fn merge<'a>(members: impl Iterator<Item = &'a SourceFilter>) -> Option<SourceFilter> {
    let (mut except, mut only, mut any): (Option<BTreeSet<IpAddr>>, BTreeSet<IpAddr>, bool) = Default::default();
    for filter in members {
        any = true;
        match filter {
            SourceFilter::Only(sources) => only.extend(sources),
            SourceFilter::Except(sources) => {
                except = Some(match except {
                    None => sources.clone(),
                    Some(before) => &before & sources,
                });
            }
        }
    }
    let merged = match except {
        Some(except) => SourceFilter::Except(&except - &only),
        None if only.len() > MOST_SOURCES => SourceFilter::ALL,
        None => SourceFilter::Only(only),
    };
    any.then_some(merged)
}

/// The records that tell of a change (RFC 3376 §5.1); none if nothing has changed.
fn changes(old: Option<&SourceFilter>, new: Option<&SourceFilter>) -> Vec<(RecordKind, BTreeSet<IpAddr>)> {
    let nothing = SourceFilter::Only(BTreeSet::new());
    let (old, new) = (old.unwrap_or(&nothing), new.unwrap_or(&nothing));
    let (allowed, blocked) = match (old, new) {
        (SourceFilter::Only(old), SourceFilter::Only(new)) => (new - old, old - new),
        (SourceFilter::Except(old), SourceFilter::Except(new)) => (old - new, new - old),
        (_, new) => return vec![whole_change(Some(new))],
    };
    let both = [(RecordKind::Allow, allowed), (RecordKind::Block, blocked)];
    both.into_iter().filter(|(_, sources)| !sources.is_empty()).collect()
}

/// The record of a filter whose mode has changed.
fn whole_change(new: Option<&SourceFilter>) -> (RecordKind, BTreeSet<IpAddr>) {
    match new {
        None => (RecordKind::ToInclude, BTreeSet::new()),
        Some(SourceFilter::Only(sources)) => (RecordKind::ToInclude, sources.clone()),
        Some(SourceFilter::Except(sources)) => (RecordKind::ToExclude, sources.clone()),
    }
}

/// The record that answers a query.
fn state_of(filter: &SourceFilter) -> (RecordKind, BTreeSet<IpAddr>) {
    match filter {
        SourceFilter::Only(sources) => (RecordKind::IsInclude, sources.clone()),
        SourceFilter::Except(sources) => (RecordKind::IsExclude, sources.clone()),
    }
}

/// The first and the last group of a VLAN and protocol.
fn bounds(vlan: Vid, is_v6: bool) -> (Key, Key) {
    let (first, last): (IpAddr, IpAddr) = match is_v6 {
        true => ([0; 16].into(), [0xff; 16].into()),
        false => ([0; 4].into(), [0xff; 4].into()),
    };
    ((vlan, first), (vlan, last))
}
