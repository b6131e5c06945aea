//! What rules can use. A switch offers in its feature replies exactly what it accepts in rules.

use super::{TunnelOptions, check, options};
use flow::MatchField;
use openflow::OfError;
use openflow::model::{Action, Instructions};

/// Whether rules can match a field, without regard to the mapping of tunnel options.
pub fn matches_field(field: MatchField) -> bool {
    check::is_seen(field)
}

/// Whether actions can set a field, without regard to the mapping of tunnel options.
pub fn sets_field(field: MatchField) -> bool {
    check::written(field, &TunnelOptions::default()).is_ok()
}

/// Whether rules and actions can use a field once a tunnel option is mapped to it.
pub fn has_options(field: MatchField) -> bool {
    options::number(field).is_some()
}

/// Whether rules can have an action, if the objects that it refers to exist.
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
