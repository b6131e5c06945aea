//! The state of a bond: which members are enabled, which one is active, and which one each bucket
//! uses.

use super::{BUCKETS, Event};
use core::fmt;
use core::time::Duration;
use nanos::Nanos;
use std::collections::{BTreeMap, VecDeque};
use wire::MacAddr;

/// How a bond shares traffic among its members (`Port.bond_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One member carries all.
    #[default]
    ActiveBackup,
    /// By source address and VLAN.
    Slb,
    /// By layers 2 to 4.
    Tcp,
}

impl Mode {
    /// The name in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::ActiveBackup => "active-backup",
            Mode::Slb => "balance-slb",
            Mode::Tcp => "balance-tcp",
        }
    }
}

/// What LACP says of the bond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LacpStatus {
    /// It is not configured.
    #[default]
    Off,
    /// There is no partner.
    Configured,
    /// There is a partner.
    Negotiated,
}

impl LacpStatus {
    /// The name in `bond/show`.
    pub const fn name(self) -> &'static str {
        match self {
            LacpStatus::Off => "off",
            LacpStatus::Configured => "configured",
            LacpStatus::Negotiated => "negotiated",
        }
    }
}

/// A bond.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// How it shares traffic.
    pub mode: Mode,
    /// How long a link stays up before its member is used.
    pub updelay: Duration,
    /// How long a link stays down before its member is given up.
    pub downdelay: Duration,
    /// Changes the hash.
    pub basis: u32,
    /// How often load is balanced; `None` for never.
    pub rebalance: Option<Duration>,
    /// Whether the bond works as active-backup where LACP finds no partner.
    pub fallback: bool,
    /// Whether multicast is accepted on all members of balance-slb.
    pub all_members_active: bool,
    /// `lb-output-action`, for `bond/show`: the datapath selects members of [`Mode::Tcp`] anyway.
    pub lb_output: bool,
    /// The bond's number, of balance-tcp; otherwise 0.
    pub id: u32,
    /// The member that is active whenever it is enabled.
    pub primary: Option<String>,
    /// The address of the member that was active before a restart.
    pub was_active: Option<MacAddr>,
    /// Members by name.
    pub members: BTreeMap<String, MemberConfig>,
}

/// A member of a bond.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberConfig {
    /// Its address.
    pub mac: MacAddr,
    /// Whether its device has a link.
    pub up: bool,
    /// Whether LACP, BFD and CFM let it carry traffic.
    pub may_enable: bool,
}

/// Why a command was refused. Displays as Open vSwitch answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Buckets of other modes are not moved by hand.
    NotSlb,
    /// The bond has no such member.
    NoMember,
    /// Traffic does not move to a disabled member.
    MigrateToDisabled,
    /// A disabled member does not become active.
    DisabledActive,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::NotSlb => "not an SLB bond",
            Refused::NoMember => "no such member",
            Refused::MigrateToDisabled => "cannot migrate to disabled member",
            Refused::DisabledActive => "cannot make disabled member active",
        })
    }
}

impl core::error::Error for Refused {}

/// Where packets leave a bond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// Nowhere.
    Nothing,
    /// By the active member.
    Active,
    /// By the member of the bucket of their source.
    Slb,
    /// By the member of the bucket of their flow.
    Tcp,
}

/// A bond.
#[derive(Debug)]
pub struct Bond {
    pub(super) config: Config,
    pub(super) members: BTreeMap<String, Member>,
    pub(super) active: Option<String>,
    pub(super) active_mac: Option<MacAddr>,
    pub(super) lacp: LacpStatus,
    pub(super) buckets: [Bucket; BUCKETS],
    pub(super) rebalance_at: Nanos,
    events: VecDeque<Event>,
    changed: bool,
    learning: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    pub(super) up: bool,
    pub(super) may_enable: bool,
    pub(super) mac: MacAddr,
    pub(super) enabled: bool,
    /// When the member follows its link.
    pub(super) follows: Option<Nanos>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Bucket {
    pub(super) member: Option<String>,
    /// Bytes, of which half go at each rebalancing.
    pub(super) load: u64,
}

impl Bond {
    /// A bond whose members follow their links at once.
    pub fn new(config: &Config, lacp: LacpStatus, now: Nanos) -> Bond {
        let mut bond = Bond {
            config: Config::default(),
            members: BTreeMap::new(),
            active: None,
            active_mac: config.was_active,
            lacp,
            buckets: std::array::from_fn(|_| Bucket::default()),
            rebalance_at: Nanos::MAX,
            events: VecDeque::new(),
            changed: true,
            learning: false,
        };
        bond.configure(config, lacp, now);
        bond
    }

    /// Applies a configuration with the members' links, and what LACP says.
    pub fn configure(&mut self, config: &Config, lacp: LacpStatus, now: Nanos) {
        if self.config.rebalance != config.rebalance || self.config.mode != config.mode {
            self.rebalance_at = config.rebalance.map_or(Nanos::MAX, |interval| now + interval);
        }
        let forgets = self.config.mode != config.mode || self.config.basis != config.basis;
        let mut primary = self.config.primary != config.primary;
        let relevant = |config: &Config| Config {
            members: BTreeMap::new(),
            was_active: None,
            ..config.clone()
        };
        self.changed |= relevant(&self.config) != relevant(config) || self.lacp != lacp;
        self.lacp = lacp;
        self.config = config.clone();
        let before = self.members.len();
        self.members.retain(|name, _| config.members.contains_key(name));
        self.changed |= before != self.members.len();
        for (name, wanted) in &config.members {
            let member = self.members.entry(name.clone()).or_insert_with(|| {
                self.changed = true;
                primary |= config.primary.as_ref() == Some(name);
                // As in Open vSwitch: a new member is enabled until its link says otherwise.
                self.events.push_back(Event::Enabled {
                    member: name.clone(),
                    enabled: true,
                });
                Member {
                    enabled: true,
                    ..Member::default()
                }
            });
            member.mac = wanted.mac;
            (member.up, member.may_enable) = (wanted.up, wanted.may_enable);
        }
        if forgets {
            self.buckets.fill(Bucket::default());
        }
        if self
            .active
            .as_ref()
            .is_some_and(|name| !self.members.contains_key(name))
        {
            self.active = None;
        }
        if primary {
            self.return_to_primary();
        }
        self.settle(now);
    }

    /// Runs the timers that are due.
    pub fn tick(&mut self, now: Nanos) {
        self.settle(now);
        if now >= self.rebalance_at {
            self.rebalance(now);
        }
    }

    /// When [`Bond::tick`] is due.
    pub fn next_event(&self) -> Option<Nanos> {
        let rebalance = self.is_balanced().then_some(self.rebalance_at);
        let rebalance = rebalance.filter(|at| *at != Nanos::MAX);
        let follows = self.members.values().filter_map(|member| member.follows);
        follows.chain(rebalance).min()
    }

    /// The next event for the log.
    pub fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether something of the bond's outputs or admission has changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Whether the other ends must learn the bond's stations again, since the last call.
    pub fn take_learning(&mut self) -> bool {
        std::mem::take(&mut self.learning) && self.outputs() != Outputs::Tcp
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What LACP says.
    pub fn lacp(&self) -> LacpStatus {
        self.lacp
    }

    /// The active member.
    pub fn active(&self) -> Option<&str> {
        self.active.as_deref()
    }

    /// The address of the active member, or of the last one (`Port.bond_active_slave`).
    pub fn active_mac(&self) -> Option<MacAddr> {
        self.active_mac
    }

    /// Whether a member is enabled.
    pub fn is_enabled(&self, member: &str) -> bool {
        self.members.get(member).is_some_and(|member| member.enabled)
    }

    /// Whether load is to be balanced now: by then the caller has [credited](Bond::credit) it.
    pub fn rebalances(&self, now: Nanos) -> bool {
        self.is_balanced() && now >= self.rebalance_at
    }

    /// Whether buckets are moved by hand.
    ///
    /// # Errors
    /// [`Refused::NotSlb`].
    pub fn migrates(&self) -> Result<(), Refused> {
        match self.config.mode {
            Mode::Slb => Ok(()),
            _ => Err(Refused::NotSlb),
        }
    }

    /// Where packets leave.
    pub fn outputs(&self) -> Outputs {
        match (self.lacp, self.config.mode) {
            (LacpStatus::Configured, _) if self.config.fallback => Outputs::Active,
            (LacpStatus::Configured, _) => Outputs::Nothing,
            (_, Mode::ActiveBackup) => Outputs::Active,
            (_, Mode::Slb) => Outputs::Slb,
            (LacpStatus::Negotiated, Mode::Tcp) => Outputs::Tcp,
            (LacpStatus::Off, Mode::Tcp) => Outputs::Nothing,
        }
    }

    /// Whether the bond shares its traffic by load.
    pub fn is_balanced(&self) -> bool {
        matches!(self.outputs(), Outputs::Slb | Outputs::Tcp)
    }

    /// The member of each bucket; `None` where no member is enabled.
    pub fn buckets(&self) -> impl Iterator<Item = Option<&str>> {
        self.buckets.iter().map(|bucket| bucket.member.as_deref())
    }

    /// Adds what buckets have carried, in bytes.
    pub fn credit(&mut self, loads: &[u64; BUCKETS]) {
        for (bucket, load) in self.buckets.iter_mut().zip(loads) {
            bucket.load += load;
        }
    }

    /// Moves a bucket to a member (`bond/migrate`).
    ///
    /// # Errors
    /// [`Refused`].
    pub fn migrate(&mut self, bucket: u8, member: &str) -> Result<(), Refused> {
        self.migrates()?;
        let known = self.members.get(member).ok_or(Refused::NoMember)?;
        if !known.enabled {
            return Err(Refused::MigrateToDisabled);
        }
        self.buckets[usize::from(bucket)].member = Some(member.to_owned());
        self.changed = true;
        self.learning = true;
        Ok(())
    }

    /// Makes a member active (`bond/set-active-member`); `false` if it is already.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn set_active(&mut self, member: &str) -> Result<bool, Refused> {
        let known = self.members.get(member).ok_or(Refused::NoMember)?;
        if !known.enabled {
            return Err(Refused::DisabledActive);
        }
        let changes = self.active.as_deref() != Some(member);
        if changes {
            self.make_active(Some(member.to_owned()), None);
        }
        Ok(changes)
    }

    /// Enables or disables a member, until its link says otherwise (`bond/enable-member`).
    ///
    /// # Errors
    /// [`Refused`].
    pub fn set_enabled(&mut self, member: &str, enabled: bool) -> Result<(), Refused> {
        if !self.members.contains_key(member) {
            return Err(Refused::NoMember);
        }
        self.enable(member, enabled);
        Ok(())
    }

    /// Lets members follow their links, and chooses the active one.
    fn settle(&mut self, now: Nanos) {
        let names: Vec<String> = self.members.keys().cloned().collect();
        for name in &names {
            self.follow_link(name, now);
        }
        let active = self.active.as_ref().and_then(|name| self.members.get(name));
        if active.is_none_or(|active| !active.enabled) {
            self.choose_active(now);
        }
        self.fill_buckets();
    }

    fn follow_link(&mut self, name: &str, now: Nanos) {
        let Some(member) = self.members.get_mut(name) else {
            return;
        };
        let up = member.up && member.may_enable;
        if (up == member.enabled) != member.follows.is_none() {
            let owned = || name.to_owned();
            self.events.push_back(Event::Link { member: owned(), up });
            if up == member.enabled {
                member.follows = None;
                self.events.push_back(Event::Kept {
                    member: owned(),
                    enabled: up,
                });
            } else {
                let delay = match (self.lacp, up) {
                    (LacpStatus::Negotiated, _) => Duration::ZERO,
                    (_, true) => self.config.updelay,
                    (_, false) => self.config.downdelay,
                };
                member.follows = Some(now + delay);
                if !delay.is_zero() {
                    self.events.push_back(Event::Delay {
                        member: owned(),
                        up,
                        delay,
                    });
                }
            }
        }
        if member.follows.is_some_and(|at| at <= now) {
            self.enable(name, up);
        }
    }

    fn enable(&mut self, name: &str, enabled: bool) {
        let Some(member) = self.members.get_mut(name) else {
            return;
        };
        member.follows = None;
        if member.enabled == enabled {
            return;
        }
        member.enabled = enabled;
        self.changed = true;
        self.events.push_back(Event::Enabled {
            member: name.to_owned(),
            enabled,
        });
        if enabled {
            self.return_to_primary();
        }
    }

    /// Makes the primary member active, if it is enabled.
    fn return_to_primary(&mut self) {
        let primary = self.config.primary.clone();
        if let Some(primary) = primary.filter(|name| self.is_enabled(name))
            && self.active.as_ref() != Some(&primary)
        {
            self.active = None;
        }
    }

    fn choose_active(&mut self, now: Nanos) {
        let enabled = |name: &&String| self.members.get(*name).is_some_and(|member| member.enabled);
        let primary = self.config.primary.as_ref().filter(enabled);
        let before = || {
            self.members
                .iter()
                .find(|(_, m)| Some(m.mac) == self.active_mac && m.enabled)
        };
        let any = || self.members.iter().find(|(_, member)| member.enabled);
        let chosen = primary.or_else(|| before().or_else(any).map(|(name, _)| name)).cloned();
        if chosen.is_some() {
            return self.make_active(chosen, None);
        }
        // The member whose delay is over first is used at once.
        let waiting = self.members.iter().filter(|(_, member)| member.up && member.may_enable);
        let soonest = waiting
            .filter_map(|(name, member)| Some((member.follows?, name.clone())))
            .min();
        let Some((at, name)) = soonest else {
            if self.active.take().is_some() {
                self.changed = true;
                self.events.push_back(Event::AllDisabled);
            }
            return;
        };
        self.enable(&name, true);
        self.make_active(Some(name), Some(at.since(now)));
    }

    fn make_active(&mut self, member: Option<String>, skipped: Option<Duration>) {
        self.active = member;
        self.changed = true;
        if let Some(name) = &self.active {
            self.active_mac = self.members.get(name).map(|member| member.mac);
            self.learning = true;
            self.events.push_back(Event::Active {
                member: name.clone(),
                skipped,
            });
        }
    }

    /// Gives buckets of members that are not enabled to others, evenly. A member that has come gets
    /// its share of the buckets that carry nothing: load moves later ([`Bond::rebalances`]).
    fn fill_buckets(&mut self) {
        if !self.is_balanced() {
            return;
        }
        let enabled: Vec<&String> = self
            .members
            .iter()
            .filter(|(_, m)| m.enabled)
            .map(|(name, _)| name)
            .collect();
        let mut counts: BTreeMap<&String, usize> = enabled.iter().map(|name| (*name, 0)).collect();
        for bucket in &self.buckets {
            if let Some(count) = bucket.member.as_ref().and_then(|name| counts.get_mut(name)) {
                *count += 1;
            }
        }
        let share = BUCKETS.div_ceil(enabled.len().max(1));
        for bucket in &mut self.buckets {
            if let Some(count) = bucket.member.as_ref().and_then(|name| counts.get_mut(name)) {
                if bucket.load > 0 || *count <= share {
                    continue;
                }
                *count -= 1;
            }
            let fewest = enabled.iter().min_by_key(|name| counts[*name]).copied();
            let new = fewest.cloned();
            self.changed |= bucket.member != new;
            bucket.member = new;
            if let Some(count) = fewest.and_then(|name| counts.get_mut(name)) {
                *count += 1;
            }
        }
    }

    pub(super) fn note(&mut self, event: Event) {
        self.changed = true;
        self.events.push_back(event);
    }
}
