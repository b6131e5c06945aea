//! What rules may ask for: what a switch says it can, is what it does not refuse.

use super::{TunnelOptions, check, options};
use flow::MatchField;
use openflow::OfError;
use openflow::model::{Action, Instructions};

/// Whether rules can match a field, whatever tunnels' options are mapped to.
pub fn matches_field(field: MatchField) -> bool {
    check::is_seen(field)
}

/// Whether actions can set a field, whatever tunnels' options are mapped to.
pub fn sets_field(field: MatchField) -> bool {
    check::written(field, &TunnelOptions::default()).is_ok()
}

/// Whether a field is there for rules and actions once an option of tunnels is mapped to it.
pub fn has_options(field: MatchField) -> bool {
    options::number(field).is_some()
}

/// Whether rules can have an action, where what it speaks of is there.
pub fn does(action: &Action) -> bool {
    let refused = check::instructions(&Instructions::apply(vec![action.clone()]), 0, &TunnelOptions::default()).err();
    refused.is_none_or(|error| error == OfError::BacBadOutGroup)
}

/// Whether rules can have meters.
pub fn meters() -> bool {
    let instructions = Instructions {
        meter: Some(1),
        ..Instructions::default()
    };
    check::instructions(&instructions, 0, &TunnelOptions::default()).err() != Some(OfError::BicUnsupInst)
}
