//! The action set (OpenFlow 1.3.5 §5.10): actions that are kept for the end of the pipeline, at
//! most one of most kinds.

use super::packet::Owner;
use super::pipeline::Pipeline;
use super::report::Kind;
use flow::{MatchField, PORT_UNSET};
use openflow::model::Action;

/// When an action of a set is run; those of one step, which set fields, in the order in which they
/// came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    CopyTtlIn,
    PopVlan,
    PopMpls,
    PopPbb,
    PushMpls,
    PushPbb,
    PushVlan,
    CopyTtlOut,
    DecTtl,
    DecMplsTtl,
    Set,
    Meter,
    Ct,
    Resubmit,
    Output,
    Group,
}

impl Pipeline<'_> {
    /// Keeps actions for the end of the pipeline.
    pub(super) fn write_actions(&mut self, list: &[Action]) {
        self.line(Kind::Action, |p| format!("write_actions({})", p.text_of_actions(list)));
        if !self.spend(2 * list.len() + self.packet.place.action_set.len() / 4) {
            return;
        }
        self.packet.place.action_set.extend_from_slice(list);
        if self.report.is_some() {
            self.detail(|p| match &ordered(&p.packet.place.action_set)[..] {
                [] => String::from("action set is empty"),
                list => format!("action set is: {}", p.text_of_set(list)),
            });
        }
        self.note_output();
    }

    /// Forgets them.
    pub(super) fn clear_actions(&mut self) {
        self.line(Kind::Action, |_| String::from("clear_actions"));
        self.detail(|p| match &ordered(&p.packet.place.action_set)[..] {
            [] => String::from("action set was empty"),
            list => format!("action set was: {}", p.text_of_set(list)),
        });
        self.packet.place.action_set.clear();
        self.packet.state.set(MatchField::ActsetOutput, PORT_UNSET.into());
    }

    /// Runs the action set.
    pub(super) fn run_action_set(&mut self) {
        if self.packet.place.action_set.is_empty() || self.failed {
            return;
        }
        if !self.spend(4 * self.packet.place.action_set.len()) {
            return;
        }
        let list = ordered(&std::mem::take(&mut self.packet.place.action_set));
        if list.is_empty() {
            return;
        }
        self.open(Kind::Table, |_| String::from("--. Executing action set:"));
        if self.packet.place.of == Owner::Rule {
            self.packet.place.of = Owner::Set;
        }
        self.run_rest(&list, None);
        self.close(1);
    }

    /// `actset_output`: where the set would send the packet.
    fn note_output(&mut self) {
        let set = &self.packet.place.action_set;
        let grouped = set.iter().any(|action| matches!(action, Action::Group(_)));
        let output = set.iter().rev().find_map(|action| match action {
            Action::Output { port, .. } => Some(port.0),
            Action::Controller(_) => Some(openflow::model::Port::CONTROLLER.0),
            _ => None,
        });
        let port = output.filter(|_| !grouped).unwrap_or(PORT_UNSET);
        self.packet.state.set(MatchField::ActsetOutput, port.into());
    }
}

/// A set's actions in the order in which they are run: none if they send the packet nowhere.
pub(super) fn ordered(set: &[Action]) -> Vec<Action> {
    let last = |wanted: Step| set.iter().rev().find(|action| step(action) == Some(wanted));
    let Some(end) = [Step::Group, Step::Output, Step::Resubmit, Step::Ct]
        .into_iter()
        .find_map(last)
    else {
        return Vec::new();
    };
    let first = [
        Step::CopyTtlIn,
        Step::PopVlan,
        Step::PopMpls,
        Step::PopPbb,
        Step::PushMpls,
        Step::PushPbb,
        Step::PushVlan,
        Step::CopyTtlOut,
        Step::DecTtl,
        Step::DecMplsTtl,
    ];
    let first = first.into_iter().filter_map(last);
    let sets = set.iter().filter(|action| step(action) == Some(Step::Set));
    let all = first.chain(sets).chain(last(Step::Meter)).chain([end]);
    all.cloned().collect()
}

fn step(action: &Action) -> Option<Step> {
    Some(match action {
        Action::CopyTtlIn => Step::CopyTtlIn,
        Action::PopVlan | Action::StripVlan => Step::PopVlan,
        Action::PopMpls(_) => Step::PopMpls,
        Action::PopPbb => Step::PopPbb,
        Action::PushMpls(_) => Step::PushMpls,
        Action::PushPbb(_) => Step::PushPbb,
        Action::PushVlan(_) => Step::PushVlan,
        Action::CopyTtlOut => Step::CopyTtlOut,
        Action::DecTtl(_) => Step::DecTtl,
        Action::DecMplsTtl => Step::DecMplsTtl,
        Action::SetVlanVid(_)
        | Action::SetVlanPcp(_)
        | Action::SetEthSrc(_)
        | Action::SetEthDst(_)
        | Action::SetIpv4Src(_)
        | Action::SetIpv4Dst(_)
        | Action::SetTos(_)
        | Action::SetEcn(_)
        | Action::SetTtl(_)
        | Action::SetTpSrc(_)
        | Action::SetTpDst(_)
        | Action::SetMplsLabel(_)
        | Action::SetMplsTc(_)
        | Action::SetMplsTtl(_)
        | Action::SetQueue(_)
        | Action::SetTunnel { .. }
        | Action::Move { .. }
        | Action::Load { .. }
        | Action::SetField { .. } => Step::Set,
        Action::Meter(_) => Step::Meter,
        Action::Resubmit { .. } => Step::Resubmit,
        Action::Ct(_) => Step::Ct,
        Action::Output { .. } | Action::Controller(_) => Step::Output,
        Action::Group(_) => Step::Group,
        _ => return None,
    })
}
