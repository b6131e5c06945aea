//! The table of a bridge: members of groups and ports of routers.
//!
//! A full table takes the oldest membership of the port that has the most, so a port that invents
//! groups displaces its own. A budget limits how fast a port may add memberships.

use super::membership::{Leave, Membership, SourceFilter, Timing};
use super::proxy::{Proxy, ProxyConfig};
use super::querier::{Querier, QuerierConfig};
use super::timers::{AGING, LAST_MEMBER, ROUTER};
use super::wire::{Message, Query, Record, RecordKind, Report, parse};
use nanos::Nanos;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;
use wire::Vid;

/// Most groups: the default and the legal values of `mcast-snooping-table-size`.
pub const TABLE_SIZE: (usize, usize, usize) = (2048, 10, 1_000_000);
/// New memberships of a port at once, beside the table's size, and in a second.
const BURST: u64 = 512;
const RATE: u64 = 512;
/// VLANs behind a port in which queriers are noted.
const ROUTERS_OF_PORT: usize = 4096;

/// The configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long a membership lasts without a report, in the bounds of [`AGING`].
    pub aging: Duration,
    /// Most groups, in the bounds of [`TABLE_SIZE`].
    pub table_size: usize,
    /// Whether a leave message ends a membership at once, as in Open vSwitch. Otherwise it lasts
    /// until the querier has asked whether there are other members.
    pub fast_leave: bool,
    /// The querier of our own.
    pub querier: Option<QuerierConfig>,
    /// Reports of our own in place of the hosts'.
    pub proxy: Option<ProxyConfig>,
    /// The ports, by number. Frames from others are ignored.
    pub ports: BTreeMap<u32, PortConfig>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            aging: AGING.0,
            table_size: TABLE_SIZE.0,
            fast_leave: true,
            querier: None,
            proxy: None,
            ports: BTreeMap::new(),
        }
    }
}

/// What a port is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortConfig {
    /// It gets all multicast packets, so nothing is learned there.
    pub flood: bool,
    /// It gets reports. There are several hosts behind it, so leave messages are ignored.
    pub flood_reports: bool,
}

/// What the bridge's tables need to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The members of a group, in the order of their last reports; none if the group is gone.
    Group {
        /// The VLAN.
        vlan: Vid,
        /// The group.
        group: IpAddr,
        /// The ports, and the sources that they want.
        members: Vec<(u32, SourceFilter)>,
    },
    /// The ports of a VLAN behind which routers are, in the order of their last queries.
    Routers {
        /// The VLAN.
        vlan: Vid,
        /// The ports.
        ports: Vec<u32>,
    },
}

/// A membership, for `mdb/show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupEntry {
    /// The port.
    pub port: u32,
    /// The VLAN.
    pub vlan: Vid,
    /// The group.
    pub group: IpAddr,
    /// Time since the last report.
    pub age: Duration,
}

/// A port of a router, for `mdb/show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterEntry {
    /// The port.
    pub port: u32,
    /// The VLAN.
    pub vlan: Vid,
    /// Time since the last query.
    pub age: Duration,
}

/// What has come from a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Reports and leave messages.
    pub reports: u64,
    /// Queries.
    pub queries: u64,
    /// Frames that were not well-formed.
    pub malformed: u64,
    /// Memberships that were not noted because the port had spent its budget.
    pub refused: u64,
    /// Memberships that made room for others.
    pub evicted: u64,
    /// Memberships now.
    pub memberships: u64,
}

type Key = (Vid, IpAddr);

#[derive(Debug)]
struct Member {
    membership: Membership,
    seen: Nanos,
    /// When it was last reported, among all memberships.
    order: u64,
}

#[derive(Debug)]
struct Group {
    /// When it was last reported, among all memberships.
    order: u64,
    members: BTreeMap<u32, Member>,
}

#[derive(Debug)]
struct Router {
    seen: Nanos,
    order: u64,
}

#[derive(Debug, Default)]
struct Port {
    config: PortConfig,
    /// Memberships, the one reported longest ago first.
    oldest: BTreeMap<u64, Key>,
    counters: PortCounters,
    /// New memberships taken from the budget, and when it was looked at.
    spent: u64,
    since: Nanos,
}

/// The machine of a bridge.
#[derive(Debug, Default)]
pub struct Snooping {
    config: Config,
    groups: BTreeMap<Key, Group>,
    routers: BTreeMap<(Vid, u32), Router>,
    ports: BTreeMap<u32, Port>,
    /// Ports by their number of memberships.
    busiest: BTreeSet<(usize, u32)>,
    /// When memberships change by themselves.
    due: BTreeSet<(Nanos, Key, u32)>,
    querier: Querier,
    proxy: Proxy,
    frames: VecDeque<(Vid, Vec<u8>)>,
    stale_groups: BTreeSet<Key>,
    stale_routers: BTreeSet<Vid>,
    order: u64,
}

impl Snooping {
    /// Applies a configuration. Memberships of ports that are gone end.
    pub fn configure(&mut self, mut config: Config, now: Nanos) {
        config.aging = config.aging.clamp(AGING.1, AGING.2);
        config.table_size = config.table_size.clamp(TABLE_SIZE.1, TABLE_SIZE.2);
        let gone: Vec<u32> = self.ports.keys().copied().collect();
        for port in gone {
            if !config.ports.contains_key(&port) {
                self.forget(port, true);
            }
        }
        for (port, settings) in &config.ports {
            self.ports.entry(*port).or_default().config = *settings;
        }
        self.change_aging(config.aging);
        self.querier.configure(config.querier.clone(), now);
        self.proxy.configure(config.proxy.as_ref());
        self.config = config;
        while self.groups.len() > self.config.table_size && self.evict() {}
        self.tick(now);
    }

    fn change_aging(&mut self, aging: Duration) {
        if aging == self.config.aging {
            return;
        }
        self.due.clear();
        for (key, group) in &mut self.groups {
            for (port, member) in &mut group.members {
                member.membership.change_aging(self.config.aging, aging);
                self.due.insert((member.membership.next_event(), *key, *port));
            }
        }
    }

    /// Forgets what was learned on a port.
    fn forget(&mut self, port: u32, gone: bool) {
        let Some(entry) = self.ports.get(&port) else { return };
        let keys: Vec<Key> = entry.oldest.values().copied().collect();
        for key in keys {
            self.remove(key, port);
        }
        let stale = &mut self.stale_routers;
        self.routers.retain(|(vlan, at), _| {
            if *at == port {
                stale.insert(*vlan);
            }
            *at != port
        });
        if gone {
            self.ports.remove(&port);
        }
    }

    /// Takes a frame that came from a port in a VLAN.
    pub fn receive(&mut self, port: u32, vlan: Vid, frame: &[u8], now: Nanos) {
        let Some(entry) = self.ports.get_mut(&port) else { return };
        let message = parse(frame);
        let counter = match &message {
            Ok(Message::Query(_)) => &mut entry.counters.queries,
            Ok(Message::Report(_)) => &mut entry.counters.reports,
            Err(_) => &mut entry.counters.malformed,
        };
        *counter += 1;
        if entry.config.flood {
            return;
        }
        match message {
            Ok(Message::Query(query)) => self.hear(port, vlan, &query, now),
            Ok(Message::Report(report)) => self.report(port, vlan, &report, now),
            Err(_) => {}
        }
    }

    /// A querier is behind a port, unless it says by its address that it is a switch
    /// (RFC 4541 §2.1.1).
    fn hear(&mut self, port: u32, vlan: Vid, query: &Query, now: Nanos) {
        if query.src.is_unspecified() {
            return;
        }
        self.querier.hear(vlan, query.src, now);
        self.proxy.hear(vlan, query, now);
        let (known, order) = (self.routers.contains_key(&(vlan, port)), self.next_order());
        let of_port = || self.routers.keys().filter(|(_, at)| *at == port).count();
        if known || of_port() < ROUTERS_OF_PORT {
            self.routers.insert((vlan, port), Router { seen: now, order });
            if !known {
                self.stale_routers.insert(vlan);
            }
        }
    }

    fn report(&mut self, port: u32, vlan: Vid, report: &Report, now: Nanos) {
        for record in &report.records {
            self.record(port, (vlan, record.group), record, report.older, now);
        }
    }

    fn record(&mut self, port: u32, key: Key, record: &Record, older: bool, now: Nanos) {
        let Some(entry) = self.ports.get_mut(&port) else { return };
        let has_no_sources = record.sources.is_empty();
        let kind = match record.kind {
            // As Open vSwitch: a host that includes nothing has left.
            RecordKind::IsInclude if has_no_sources => RecordKind::ToInclude,
            kind => kind,
        };
        let leaves = kind == RecordKind::ToInclude && has_no_sources;
        let known = self
            .groups
            .get(&key)
            .is_some_and(|group| group.members.contains_key(&port));
        if !known && (leaves || kind == RecordKind::Block) {
            return;
        }
        // Routers get all packets already, as in Open vSwitch.
        if self.routers.contains_key(&(key.0, port)) && !leaves {
            return;
        }
        if !known && !entry.spend(self.config.table_size as u64, now) {
            entry.counters.refused += 1;
            return;
        }
        let timing = Timing {
            now,
            aging: self.config.aging,
            leave: match (entry.config.flood_reports, self.config.fast_leave) {
                (true, _) => Leave::Never,
                (false, true) => Leave::Now,
                (false, false) => Leave::After(LAST_MEMBER),
            },
        };
        let asks = matches!(kind, RecordKind::ToInclude | RecordKind::ToExclude | RecordKind::Block);
        if known && asks && matches!(timing.leave, Leave::After(_)) {
            self.proxy.ask(key, now);
        }
        let mut membership = Membership::default();
        let (mut before, mut seen, mut orders) = (None, now, None);
        let group_order = self.groups.get(&key).map_or(0, |group| group.order);
        if let Some(member) = self.detach(key, port) {
            before = Some(member.membership.filter());
            membership = member.membership;
            if leaves {
                seen = member.seen;
                orders = Some((member.order, group_order));
            }
        } else if !self.groups.contains_key(&key) {
            while self.groups.len() >= self.config.table_size && self.evict() {}
        }
        membership.apply(kind, older, &record.sources, &timing);
        if !membership.settle(now) {
            self.stale_groups.insert(key);
            return self.drop_if_empty(key);
        }
        if before.is_none_or(|before| before != membership.filter()) {
            self.stale_groups.insert(key);
        }
        self.attach(key, port, membership, seen);
        if let Some((order, group_order)) = orders {
            self.keep_order(key, port, order, group_order);
        }
    }

    fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// Adds a membership as the one reported last.
    fn attach(&mut self, key: Key, port: u32, membership: Membership, seen: Nanos) {
        let order = self.next_order();
        self.due.insert((membership.next_event(), key, port));
        let group = self.groups.entry(key).or_insert_with(|| Group {
            order,
            members: BTreeMap::new(),
        });
        group.order = order;
        let member = Member {
            membership,
            seen,
            order,
        };
        group.members.insert(port, member);
        if let Some(entry) = self.ports.get_mut(&port) {
            self.busiest.remove(&(entry.oldest.len(), port));
            entry.oldest.insert(order, key);
            self.busiest.insert((entry.oldest.len(), port));
        }
    }

    /// Takes a membership out of all lists. Its group stays, maybe without members.
    fn detach(&mut self, key: Key, port: u32) -> Option<Member> {
        let member = self.groups.get_mut(&key)?.members.remove(&port)?;
        self.due.remove(&(member.membership.next_event(), key, port));
        if let Some(entry) = self.ports.get_mut(&port) {
            self.busiest.remove(&(entry.oldest.len(), port));
            entry.oldest.remove(&member.order);
            if !entry.oldest.is_empty() {
                self.busiest.insert((entry.oldest.len(), port));
            }
        }
        Some(member)
    }

    fn remove(&mut self, key: Key, port: u32) {
        if self.detach(key, port).is_some() {
            self.stale_groups.insert(key);
            self.drop_if_empty(key);
        }
    }

    fn drop_if_empty(&mut self, key: Key) {
        if self.groups.get(&key).is_some_and(|group| group.members.is_empty()) {
            self.groups.remove(&key);
        }
    }

    /// Removes the oldest membership of the port that has the most; `false` if there is none.
    fn evict(&mut self) -> bool {
        let Some((_, port)) = self.busiest.last().copied() else {
            return false;
        };
        let Some(entry) = self.ports.get_mut(&port) else {
            return false;
        };
        let Some(key) = entry.oldest.values().next().copied() else {
            return false;
        };
        entry.counters.evicted += 1;
        self.remove(key, port);
        true
    }

    /// Ends memberships and router ports that are due, and lets the querier ask.
    pub fn tick(&mut self, now: Nanos) {
        while let Some((due, key, port)) = self.due.first().copied()
            && due <= now
        {
            let (order, group_order) = match self.groups.get(&key) {
                Some(group) => (group.members.get(&port).map(|member| member.order), group.order),
                None => (None, 0),
            };
            let Some(mut member) = self.detach(key, port) else {
                self.due.remove(&(due, key, port));
                continue;
            };
            self.stale_groups.insert(key);
            if member.membership.settle(now) {
                self.attach(key, port, member.membership, member.seen);
                self.keep_order(key, port, order.unwrap_or_default(), group_order);
            } else {
                self.drop_if_empty(key);
            }
        }
        let stale = &mut self.stale_routers;
        self.routers.retain(|(vlan, _), router| {
            let stays = router.seen + ROUTER > now;
            if !stays {
                stale.insert(*vlan);
            }
            stays
        });
        self.frames.extend(self.querier.tick(now));
        self.frames.extend(self.proxy.tick(now));
    }

    /// Gives a membership back its place: only reports make it younger.
    fn keep_order(&mut self, key: Key, port: u32, order: u64, group_order: u64) {
        let (Some(group), Some(entry)) = (self.groups.get_mut(&key), self.ports.get_mut(&port)) else {
            return;
        };
        group.order = group_order;
        if let Some(member) = group.members.get_mut(&port) {
            entry.oldest.remove(&member.order);
            member.order = order;
            entry.oldest.insert(order, key);
        }
    }

    /// When [`Snooping::tick`] is due.
    pub fn next_event(&self) -> Option<Nanos> {
        let members = self.due.first().map(|(due, ..)| *due);
        let routers = self.routers.values().map(|router| router.seen + ROUTER).min();
        [members, routers, self.querier.next_event(), self.proxy.next_event()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The next frame to send, in a VLAN, to all its ports.
    pub fn take_frame(&mut self) -> Option<(Vid, Vec<u8>)> {
        self.frames.pop_front()
    }

    /// The next change of the bridge's tables.
    pub fn take_event(&mut self) -> Option<Event> {
        if let Some(key) = self.stale_groups.pop_first() {
            return Some(self.tell_group(key));
        }
        self.stale_routers.pop_first().map(|vlan| self.router_event(vlan))
    }

    /// All that the bridge's tables need to know, in place of the pending changes.
    pub fn take_all(&mut self) -> Vec<Event> {
        self.stale_groups.clear();
        self.stale_routers.clear();
        let vlans: BTreeSet<Vid> = self.routers.keys().map(|(vlan, _)| *vlan).collect();
        let groups = &self.groups;
        self.proxy.retain(|key| groups.contains_key(key));
        let keys: Vec<Key> = self.groups.keys().copied().collect();
        let mut events: Vec<Event> = keys.into_iter().map(|key| self.tell_group(key)).collect();
        events.extend(vlans.into_iter().map(|vlan| self.router_event(vlan)));
        events
    }

    /// The event of a group, which the proxy follows too.
    fn tell_group(&mut self, (vlan, group): Key) -> Event {
        let mut members: Vec<(u64, u32, SourceFilter)> = Vec::new();
        if let Some(group) = self.groups.get(&(vlan, group)) {
            let of = |(port, member): (&u32, &Member)| (member.order, *port, member.membership.filter());
            members.extend(group.members.iter().map(of));
        }
        members.sort_by_key(|(order, ..)| *order);
        let members: Vec<_> = members.into_iter().map(|(_, port, filter)| (port, filter)).collect();
        self.proxy.follow((vlan, group), &members);
        Event::Group { vlan, group, members }
    }

    fn router_event(&self, vlan: Vid) -> Event {
        let routers = self.routers.range((vlan, 0)..=(vlan, u32::MAX));
        let mut ports: Vec<(u64, u32)> = routers.map(|((_, port), router)| (router.order, *port)).collect();
        ports.sort_unstable();
        Event::Routers {
            vlan,
            ports: ports.into_iter().map(|(_, port)| port).collect(),
        }
    }

    /// Forgets what was learned on a port, whose VLANs have changed.
    pub fn flush_port(&mut self, port: u32) {
        self.forget(port, false);
    }

    /// Forgets all groups and router ports.
    pub fn flush(&mut self) {
        let ports: Vec<u32> = self.ports.keys().copied().collect();
        ports.into_iter().for_each(|port| self.forget(port, false));
    }

    /// The memberships: groups and their members in the order of their last reports.
    pub fn groups(&self, now: Nanos) -> Vec<GroupEntry> {
        let mut list = Vec::new();
        for ((vlan, group), entry) in &self.groups {
            for (port, member) in &entry.members {
                let shown = GroupEntry {
                    port: *port,
                    vlan: *vlan,
                    group: *group,
                    age: now.since(member.seen),
                };
                list.push((entry.order, member.order, shown));
            }
        }
        list.sort_by_key(|(group, member, _)| (*group, *member));
        list.into_iter().map(|(.., shown)| shown).collect()
    }

    /// The sources that a port wants of a group; `None` if it is no member.
    pub fn filter(&self, port: u32, vlan: Vid, group: IpAddr) -> Option<SourceFilter> {
        let member = self.groups.get(&(vlan, group))?.members.get(&port)?;
        Some(member.membership.filter())
    }

    /// The ports of routers, in the order of their last queries.
    pub fn routers(&self, now: Nanos) -> Vec<RouterEntry> {
        let mut list: Vec<_> = self.routers.iter().collect();
        list.sort_by_key(|(_, router)| router.order);
        let shown = |((vlan, port), router): (&(Vid, u32), &Router)| RouterEntry {
            port: *port,
            vlan: *vlan,
            age: now.since(router.seen),
        };
        list.into_iter().map(shown).collect()
    }

    /// What has come from each port.
    pub fn counters(&self) -> impl Iterator<Item = (u32, PortCounters)> + '_ {
        self.ports.iter().map(|(port, entry)| {
            let memberships = entry.oldest.len() as u64;
            let counters = PortCounters {
                memberships,
                ..entry.counters
            };
            (*port, counters)
        })
    }
}

impl Port {
    /// Takes a new membership from the budget; `false` if it is spent.
    fn spend(&mut self, table: u64, now: Nanos) -> bool {
        let back = (now.since(self.since).as_millis() as u64).saturating_mul(RATE) / 1000;
        if back > 0 {
            self.spent = self.spent.saturating_sub(back);
            self.since = now;
        }
        let allowed = self.spent < BURST + table;
        self.spent += u64::from(allowed);
        allowed
    }
}
