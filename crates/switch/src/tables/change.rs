//! Flow-mods (OpenFlow 1.3.5 §6.4).

use super::{FlowTables, Learned, Reason, Removed, Rule, RuleRef, TABLES, check, words};
use crate::tables::WORDS;
use classifier::Match;
use openflow::OfError;
use openflow::model::{ANY_GROUP, Action, FlowCommand, FlowFlags, FlowMod, Instructions, Port};
use std::sync::Arc;
use wire::Nanos;

/// What a flow-mod did.
#[derive(Debug, Default)]
pub struct Changed {
    /// The tables whose answers may have changed, ascending.
    pub tables: Vec<u8>,
    /// The rules that came.
    pub added: Vec<RuleRef>,
    /// The rules whose instructions, or cookies, changed.
    pub modified: Vec<RuleRef>,
    /// The rules that went, but for those that gave their place to another of the same match and priority.
    pub removed: Vec<Removed>,
}

/// Which rules are meant.
#[derive(Clone, Debug)]
pub struct Condition {
    pub(super) matching: Match<WORDS>,
    cookie: u64,
    cookie_mask: u64,
    out_port: Port,
    out_group: u32,
}

impl Condition {
    /// Every rule.
    pub const ANY: Condition = Condition {
        matching: Match::ANY,
        cookie: 0,
        cookie_mask: 0,
        out_port: Port::ANY,
        out_group: ANY_GROUP,
    };

    /// The rules that a request for statistics is about.
    ///
    /// # Errors
    /// [`OfError::BmcBadField`] where the match is of fields that no rule can be of.
    pub fn of_request(request: &openflow::model::FlowStatsRequest) -> Result<Condition, OfError> {
        Ok(Condition {
            matching: match_words(&request.matching)?,
            cookie: request.cookie,
            cookie_mask: request.cookie_mask,
            out_port: request.out_port,
            out_group: request.out_group,
        })
    }

    fn of_change(change: &FlowMod, matching: Match<WORDS>) -> Condition {
        let deletes = matches!(change.command, FlowCommand::Delete | FlowCommand::DeleteStrict);
        Condition {
            matching,
            cookie: change.cookie,
            cookie_mask: change.cookie_mask,
            out_port: if deletes { change.out_port } else { Port::ANY },
            out_group: if deletes { change.out_group } else { ANY_GROUP },
        }
    }

    pub(super) fn is_any_match(&self) -> bool {
        self.matching == Match::ANY
    }

    /// Whether a rule meets what is not about its match.
    pub(super) fn accepts(&self, rule: &Rule) -> bool {
        let sends = |to: &dyn Fn(&Action) -> bool| {
            let lists = [&rule.instructions.apply, &rule.instructions.write];
            lists.into_iter().any(|list| any_action(list, to))
        };
        (rule.cookie ^ self.cookie) & self.cookie_mask == 0
            && (self.out_port == Port::ANY || sends(&|action| outputs_to(action, self.out_port)))
            && (self.out_group == ANY_GROUP || sends(&|action| *action == Action::Group(self.out_group)))
    }
}

impl FlowTables {
    /// Does what a controller asks.
    ///
    /// # Errors
    /// The error that the specification has for it; nothing is changed then.
    pub fn flow_mod(&mut self, change: &FlowMod, now: Nanos) -> Result<Changed, OfError> {
        if change.table.is_some_and(|table| table >= TABLES) {
            return Err(OfError::FmfcBadTableId);
        }
        let matching = match_words(&change.matching)?;
        let mut changed = Changed::default();
        match change.command {
            FlowCommand::Add => self.add(change, &matching, now, &mut changed)?,
            FlowCommand::Modify | FlowCommand::ModifyStrict => self.modify(change, &matching, now, &mut changed)?,
            FlowCommand::Delete | FlowCommand::DeleteStrict => {
                for at in self.meant(change, &matching) {
                    changed.removed.extend(self.take(at, Reason::Delete, now));
                }
            }
        }
        let gone = changed.removed.iter().map(|removed| removed.at.table);
        let rest = changed.added.iter().chain(&changed.modified).map(|at| at.table);
        changed.tables = gone.chain(rest).collect();
        changed.tables.sort_unstable();
        changed.tables.dedup();
        self.builtin &= changed.tables.is_empty();
        Ok(changed)
    }

    /// Makes a rule that packets ask for. One that is there as it shall be begins its hard timeout anew, and nothing has changed.
    pub(crate) fn learn(&mut self, learned: &Learned, now: Nanos) -> Result<Changed, OfError> {
        let change = &learned.change;
        let matching = match_words(&change.matching)?;
        let number = change.table.unwrap_or(0);
        let known = self
            .table(number)
            .and_then(|table| table.rules.find_strict(&matching, change.priority.into()));
        let Some(id) = known else {
            let cookie = change.new_cookie.unwrap_or(0);
            let limit = learned.limit as usize;
            if limit != 0 && self.count_cookie(number, cookie, limit) >= limit {
                return Ok(Changed::default());
            }
            return self.flow_mod(change, now);
        };
        if let Some(rule) = self.table_mut(number).rules.get_mut(id)
            && *rule.instructions == change.instructions
            && Some(rule.cookie) == change.new_cookie
        {
            rule.modified = rule.modified.max(now);
            return Ok(Changed::default());
        }
        self.flow_mod(change, now)
    }

    fn add(
        &mut self,
        change: &FlowMod,
        matching: &Match<WORDS>,
        now: Nanos,
        changed: &mut Changed,
    ) -> Result<(), OfError> {
        let number = change.table.unwrap_or(0);
        check::instructions(&change.instructions, number)?;
        let mut rule = Rule::new(change, FlowTables::share(change.instructions.clone()), now);
        let table = self.table(number);
        let priority = u32::from(change.priority);
        if change.flags.has(FlowFlags::CHECK_OVERLAP)
            && table.is_some_and(|table| table.rules.overlapping_at(matching, priority).is_some())
        {
            return Err(OfError::FmfcOverlap);
        }
        match table.and_then(|table| table.rules.find_strict(matching, priority)) {
            Some(id) => {
                let old = self.take(RuleRef { table: number, id }, Reason::Delete, now);
                if let Some(old) = old.filter(|_| !change.flags.has(FlowFlags::RESET_COUNTS)) {
                    rule.packets = old.rule.packets;
                    rule.bytes = old.rule.bytes;
                }
            }
            None => self.make_room(number, now, &mut changed.removed)?,
        }
        changed.added.push(self.put(number, matching, change.priority, rule)?);
        Ok(())
    }

    fn modify(
        &mut self,
        change: &FlowMod,
        matching: &Match<WORDS>,
        now: Nanos,
        changed: &mut Changed,
    ) -> Result<(), OfError> {
        let meant = self.meant(change, matching);
        if meant.is_empty() {
            // A rule is asked for by what it does and by no other rule's cookie.
            return match change.new_cookie {
                Some(_) if change.cookie_mask == 0 => self.add(change, matching, now, changed),
                _ => check::instructions(&change.instructions, change.table.unwrap_or(0)),
            };
        }
        let last = meant.iter().map(|at| at.table).max().unwrap_or(0);
        check::instructions(&change.instructions, last)?;
        let instructions = FlowTables::share(change.instructions.clone());
        for at in meant {
            self.change_rule(at, change, &instructions, now);
            changed.modified.push(at);
        }
        Ok(())
    }

    fn change_rule(&mut self, at: RuleRef, change: &FlowMod, instructions: &Arc<Instructions>, now: Nanos) {
        let Some(rule) = self.table_mut(at.table).rules.get_mut(at.id) else {
            return;
        };
        rule.instructions = instructions.clone();
        rule.cookie = change.new_cookie.unwrap_or(rule.cookie);
        // The hard timeout begins anew; the place in the queue is early, which is no harm.
        rule.modified = now;
        rule.used = rule.used.max(now);
        if change.flags.has(FlowFlags::RESET_COUNTS) {
            (rule.packets, rule.bytes) = (0, 0);
        }
    }

    /// The rules that a change or deletion is about.
    fn meant(&self, change: &FlowMod, matching: &Match<WORDS>) -> Vec<RuleRef> {
        let condition = Condition::of_change(change, *matching);
        let strict = matches!(change.command, FlowCommand::ModifyStrict | FlowCommand::DeleteStrict);
        let mut meant = Vec::new();
        for (number, table) in self.chosen(change.table) {
            let found = if strict {
                table
                    .rules
                    .find_strict(matching, change.priority.into())
                    .into_iter()
                    .collect()
            } else {
                table.rules.covered_by(matching)
            };
            let accepted = |id: &_| table.rules.get(*id).is_some_and(|rule| condition.accepts(rule));
            let found = found.into_iter().filter(accepted);
            meant.extend(found.map(|id| RuleRef { table: number, id }));
        }
        meant
    }
}

fn match_words(matching: &openflow::model::Match) -> Result<Match<WORDS>, OfError> {
    check::matching(matching)?;
    let state = matching.normalized().to_state().ok_or(OfError::BmcBadField)?;
    Ok(words::match_words(&state))
}

/// Whether one of the actions, or of those within, is so.
fn any_action(list: &[Action], is: &dyn Fn(&Action) -> bool) -> bool {
    list.iter().any(|action| {
        is(action)
            || match action {
                Action::Clone(inner) => any_action(inner, is),
                _ => false,
            }
    })
}

fn outputs_to(action: &Action, to: Port) -> bool {
    match action {
        Action::Output { port, .. } | Action::Enqueue { port, .. } | Action::OutputTrunc { port, .. } => *port == to,
        Action::Controller(_) => to == Port::CONTROLLER,
        _ => false,
    }
}
