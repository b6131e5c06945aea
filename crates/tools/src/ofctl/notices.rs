//! Logs what is left out of matches that lack its prerequisites, and warnings about numbers.

use openflow::text::{Names, Notice, Notices};
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

/// Logs notices, but of many not all.
pub(super) fn log(list: Vec<Notice>) {
    static LIMIT: RateLimit = RateLimit::new(60, 5);
    for notice in list {
        let left_out = match notice {
            Notice::LeftOut(left_out) => left_out,
            Notice::Warning { module, text } => {
                of_module(module, &text);
                continue;
            }
        };
        let Some(dropped) = LIMIT.admit(MODULE) else { continue };
        if let Some(dropped) = dropped {
            tracing::info!(target: MODULE, "{dropped}");
        }
        tracing::info!(target: MODULE, "normalization changed ofp_match, details:");
        tracing::info!(target: MODULE, " pre: {}", left_out.pre);
        tracing::info!(target: MODULE, "post: {}", left_out.post);
    }
}

/// Logs what Open vSwitch logs about a message that is going to be printed.
pub(super) fn warn(message: &[u8]) {
    log(openflow::text::print::warnings(message));
}

fn of_module(module: &str, text: &str) {
    static LIMIT: RateLimit = RateLimit::new(1, 5);
    if LIMIT.admit(MODULE).is_none() {
        return;
    }
    match module {
        "ofp_port" => tracing::warn!(target: "ofp_port", "{text}"),
        "ofp_actions" => tracing::warn!(target: "ofp_actions", lines = true, "{text}"),
        "meta_flow" => tracing::warn!(target: "meta_flow", "{text}"),
        _ => tracing::warn!(target: "ofp_table", "{text}"),
    }
}
