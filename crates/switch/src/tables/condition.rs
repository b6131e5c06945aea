//! The rules that a request covers.

use super::{FlowTables, Rule, TunnelOptions, WORDS, check};
use classifier::Match;
use openflow::OfError;
use openflow::model::{self, ANY_GROUP, Action, FlowCommand, FlowMod, Port};
use std::sync::Arc;

/// A condition on rules.
#[derive(Clone, Debug)]
pub struct Condition {
    pub(super) matching: Match<WORDS>,
    cookie: u64,
    cookie_mask: u64,
    out_port: Port,
    out_group: u32,
    /// The mapping of tunnel options at the time of the request.
    pub(super) options: Option<Arc<TunnelOptions>>,
}

impl Condition {
    /// Every rule.
    pub const ANY: Condition = Condition {
        matching: Match::ANY,
        cookie: 0,
        cookie_mask: 0,
        out_port: Port::ANY,
        out_group: ANY_GROUP,
        options: None,
    };

    /// The condition of a request for statistics of these tables.
    ///
    /// # Errors
    /// [`OfError::BmcBadField`] if no rule can have the fields of the match.
    pub fn of_request(request: &model::FlowStatsRequest, tables: &FlowTables) -> Result<Condition, OfError> {
        Ok(Condition {
            matching: accepted(&request.matching, &tables.options)?,
            cookie: request.cookie,
            cookie_mask: request.cookie_mask,
            out_port: request.out_port,
            out_group: request.out_group,
            options: Some(tables.options.clone()),
        })
    }

    pub(super) fn of_change(change: &FlowMod, matching: Match<WORDS>) -> Condition {
        let deletes = matches!(change.command, FlowCommand::Delete | FlowCommand::DeleteStrict);
        Condition {
            matching,
            cookie: change.cookie,
            cookie_mask: change.cookie_mask,
            out_port: if deletes { change.out_port } else { Port::ANY },
            out_group: if deletes { change.out_group } else { ANY_GROUP },
            options: None,
        }
    }

    pub(super) fn is_any_match(&self) -> bool {
        self.matching == Match::ANY
    }

    /// As [`Condition::accepts`], for a rule as it was at one time.
    pub(super) fn accepts_image(&self, image: &super::RuleImage) -> bool {
        (image.cookie ^ self.cookie) & self.cookie_mask == 0
            && [Some(&image.instructions), image.before.as_ref()]
                .into_iter()
                .flatten()
                .any(|instructions| sends_to(instructions, self.out_port, self.out_group))
    }

    /// Whether a rule meets the conditions other than the match.
    pub(super) fn accepts(&self, rule: &Rule) -> bool {
        (rule.cookie ^ self.cookie) & self.cookie_mask == 0
            && sends_to(&rule.instructions, self.out_port, self.out_group)
    }
}

/// Whether instructions send to a port and a group; [`Port::ANY`] and [`ANY_GROUP`] accept any.
pub(super) fn sends_to(instructions: &model::Instructions, port: Port, group: u32) -> bool {
    let sends = |to: &dyn Fn(&Action) -> bool| {
        let lists = [&instructions.apply, &instructions.write];
        lists.into_iter().any(|list| any_action(list, to))
    };
    (port == Port::ANY || sends(&|action| outputs_to(action, port)))
        && (group == ANY_GROUP || sends(&|action| *action == Action::Group(group)))
}

/// The match of a message in the words of the tables.
///
/// # Errors
/// [`OfError::BmcBadField`] if no rule can have the fields of the match.
pub(super) fn accepted(matching: &model::Match, options: &TunnelOptions) -> Result<Match<WORDS>, OfError> {
    check::matching(matching, options)?;
    Ok(match matching.is_normal() {
        true => options.match_words(matching),
        false => options.match_words(&matching.normalized()),
    })
}

/// Calls `show` for actions, and for the actions within them.
pub(super) fn each_action(list: &[Action], show: &mut impl FnMut(&Action)) {
    for action in list {
        show(action);
        if let Action::Clone(inner) = action {
            each_action(inner, show);
        }
    }
}

/// Whether a predicate holds for an action, or for one within.
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
