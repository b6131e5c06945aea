//! Features that refused requests asked for and this switch lacks.
//!
//! An error message has a number only. The log says what the number means here.

use crate::env::Env;
use openflow::model::{Action, Body, Match};
use openflow::{Codec, OfError};

const NSH: &str = "network service headers (encap, decap, nsh) are not supported";

/// Reports a refused request to the environment if it asked for an unsupported feature.
pub(crate) fn report(codec: Option<Codec>, error: OfError, request: &[u8], bridge: &str, env: &impl Env) {
    use OfError::{BacBadSetType, BacBadType, BmcBadField};
    if !matches!(error, BacBadSetType | BacBadType | BmcBadField) {
        return;
    }
    let decoded = codec.and_then(|codec| codec.decode(request).ok());
    if let Some(feature) = decoded.and_then(|message| of_body(&message.body)) {
        env.unsupported(bridge, feature);
    }
}

fn of_body(body: &Body) -> Option<&'static str> {
    match body {
        Body::FlowMod(change) => of_match(&change.matching)
            .or_else(|| of_actions(&change.instructions.apply))
            .or_else(|| of_actions(&change.instructions.write)),
        Body::GroupMod(change) => change.buckets.iter().find_map(|bucket| of_actions(&bucket.actions)),
        Body::PacketOut(packet) => of_actions(&packet.actions),
        _ => None,
    }
}

fn of_match(matching: &Match) -> Option<&'static str> {
    matching
        .entries()
        .iter()
        .find_map(|entry| of_field(entry.field.info().names[0]))
}

fn of_field(name: &str) -> Option<&'static str> {
    match name.split_once('_')? {
        ("nsh", _) => Some(NSH),
        _ => None,
    }
}

fn of_actions(actions: &[Action]) -> Option<&'static str> {
    actions.iter().find_map(|action| match action {
        Action::Encap { .. } | Action::Decap(_) | Action::DecNshTtl => Some(NSH),
        Action::SetField { field, .. } => of_field(field.info().names[0]),
        Action::Load { dst, .. } => of_field(dst.field().info().names[0]),
        Action::Move { src, dst } => {
            of_field(src.field().info().names[0]).or_else(|| of_field(dst.field().info().names[0]))
        }
        Action::Clone(inner) => of_actions(inner),
        _ => None,
    })
}
