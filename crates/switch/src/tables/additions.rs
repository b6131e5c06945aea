//! Rules to add together, stored compactly.
//!
//! Most of very many rules differ only in priority, cookie and the values of their matches. Their
//! common part, the *form*, is stored once, so each rule takes less memory than its message, and
//! adding it takes little work.

use super::words::WORDS;
use super::{TunnelOptions, condition};
use classifier::Match;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use openflow::model::{self, FlowCommand, FlowMod};
use std::hash::BuildHasher;

/// Rules to add, in order.
#[derive(Debug, Default)]
pub struct Additions {
    forms: Vec<Form>,
    /// Numbers of forms, by their hashes.
    known: HashTable<u32>,
    rules: Vec<Addition>,
    /// For each rule, the words of its match's value for which the mask has bits.
    values: Vec<u64>,
}

/// The common part of rules.
#[derive(Debug)]
struct Form {
    /// Without match, priority and cookie.
    change: FlowMod,
    hash: u64,
    mask: [u64; WORDS],
}

#[derive(Debug)]
struct Addition {
    cookie: u64,
    form: u32,
    /// The index of the first word of its value.
    values: u32,
    priority: u16,
}

/// A rule to add.
pub(super) struct Wanted<'a> {
    /// The flow-mod; the other fields here override it.
    pub(super) change: &'a FlowMod,
    pub(super) matching: &'a Match<WORDS>,
    pub(super) priority: u16,
    pub(super) cookie: u64,
}

impl<'a> Wanted<'a> {
    pub(super) fn new(change: &'a FlowMod, matching: &'a Match<WORDS>) -> Wanted<'a> {
        Wanted {
            change,
            matching,
            priority: change.priority,
            cookie: change.new_cookie.unwrap_or(0),
        }
    }
}

/// Number of forms that are kept.
const MOST_FORMS: usize = 1024;

impl Additions {
    /// Stores a rule to add. Refuses flow-mods that are no additions or that match tunnel options,
    /// and those with a new form when there is no room for it.
    ///
    /// # Errors
    /// The flow-mod, unchanged.
    pub fn push(&mut self, mut change: Box<FlowMod>) -> Result<(), Box<FlowMod>> {
        let values = u32::try_from(self.values.len());
        let (FlowCommand::Add, Ok(values)) = (change.command, values) else {
            return Err(change);
        };
        // The words of tunnel options can still change.
        if !change.matching.tun_metadata().is_empty() {
            return Err(change);
        }
        let Ok(matching) = condition::accepted(&change.matching, &TunnelOptions::default()) else {
            return Err(change);
        };
        let own = std::mem::replace(&mut change.matching, model::Match::ANY);
        let priority = std::mem::take(&mut change.priority);
        let cookie = change.new_cookie.take();
        let Some(form) = self.form(&change, matching.mask()) else {
            (change.matching, change.priority, change.new_cookie) = (own, priority, cookie);
            return Err(change);
        };
        let counting = matching.value().iter().zip(matching.mask());
        let counting = counting.filter(|(_, mask)| **mask != 0).map(|(value, _)| *value);
        self.values.extend(counting);
        self.rules.push(Addition {
            cookie: cookie.unwrap_or(0),
            form,
            values,
            priority,
        });
        Ok(())
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The index of a form, which is added if it is new and there is room.
    fn form(&mut self, change: &FlowMod, mask: &[u64; WORDS]) -> Option<u32> {
        let hash = FixedState::with_seed(0).hash_one((change.table, &change.instructions, mask));
        let same = |form: &Form| form.mask == *mask && form.change == *change;
        let forms = &self.forms;
        if let Some(known) = self.known.find(hash, |form| same(&forms[*form as usize])) {
            return Some(*known);
        }
        if self.forms.len() >= MOST_FORMS {
            return None;
        }
        let number = self.forms.len() as u32;
        self.forms.push(Form {
            change: change.clone(),
            hash,
            mask: *mask,
        });
        let forms = &self.forms;
        self.known
            .insert_unique(hash, number, |form| forms[*form as usize].hash);
        Some(number)
    }

    /// The flow-mod of a rule.
    pub fn flow_mod(&self, at: usize) -> Option<FlowMod> {
        let (_, words) = self.place(at)?;
        let wanted = self.wanted(at, &words)?;
        Some(FlowMod {
            matching: super::words::match_of(&words),
            priority: wanted.priority,
            new_cookie: Some(wanted.cookie),
            ..wanted.change.clone()
        })
    }

    /// The table and the match of a rule.
    pub(super) fn place(&self, at: usize) -> Option<(u8, Match<WORDS>)> {
        let rule = self.rules.get(at)?;
        let form = self.forms.get(rule.form as usize)?;
        let mut values = self.values.get(rule.values as usize..)?.iter();
        let value = form.mask.map(|mask| match mask {
            0 => 0,
            _ => values.next().copied().unwrap_or(0),
        });
        Some((form.change.table.unwrap_or(0), Match::new(&value, &form.mask)))
    }

    /// A rule with its match.
    pub(super) fn wanted<'a>(&'a self, at: usize, matching: &'a Match<WORDS>) -> Option<Wanted<'a>> {
        let rule = self.rules.get(at)?;
        Some(Wanted {
            change: &self.forms.get(rule.form as usize)?.change,
            matching,
            priority: rule.priority,
            cookie: rule.cookie,
        })
    }
}
