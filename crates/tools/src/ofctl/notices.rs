//! Says what is left out of matches, as what packets need for it is not asked for.

use openflow::text::{LeftOut, Names, Notices};
use telemetry::ratelimit::RateLimit;

/// The module that logs.
const MODULE: &str = "ofp_match";

/// No names, and somebody to hear of what is left out.
pub(super) fn heard() -> Names {
    Names {
        notices: Notices::heard(),
        ..Names::default()
    }
}

/// Logs what was left out, but of many matches not all.
pub(super) fn log(list: Vec<LeftOut>) {
    static LIMIT: RateLimit = RateLimit::new(60, 5);
    for left_out in list {
        let Some(dropped) = LIMIT.admit(MODULE) else { continue };
        if let Some(dropped) = dropped {
            tracing::info!(target: MODULE, "{dropped}");
        }
        tracing::info!(target: MODULE, "normalization changed ofp_match, details:");
        tracing::info!(target: MODULE, " pre: {}", left_out.pre);
        tracing::info!(target: MODULE, "post: {}", left_out.post);
    }
}
