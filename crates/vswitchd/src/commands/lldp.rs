//! `lldp/show` and `autoattach/*`.

use super::Answer;
use crate::protocols::lldp::Interfaces;
use crate::state::State;
use serde_json::Value;

type Documented = Result<(String, Value), String>;

pub(super) fn register(add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Answer)) {
    add("autoattach/status", "[bridge]", 0, 1, |state, args| {
        show(state, args, Interfaces::auto_attach_status)
    });
    add("autoattach/show-isid", "[bridge]", 0, 1, |state, args| {
        show(state, args, Interfaces::auto_attach_isids)
    });
    add("autoattach/statistics", "[bridge]", 0, 1, |state, args| {
        show(state, args, Interfaces::auto_attach_statistics)
    });
}

/// The command that answers in JSON too.
pub(super) fn register_documents(add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Documented)) {
    add("lldp/show", "[interface]", 0, 1, |state, args| {
        state.protocols.step();
        let now = state.shared.clock.now();
        let name = args.first().map(String::as_str);
        state.protocols.look(|services| services.lldp.show(name, now))
    });
}

fn show(state: &State, args: &[String], show: fn(&Interfaces, Option<&str>) -> String) -> Answer {
    let bridge = args.first().map(String::as_str);
    if let Some(name) = bridge
        && state.shared.switch.read().bridge(name).is_none()
    {
        return Err("no such bridge".to_owned());
    }
    // What workers have handed over before is in the answer.
    state.protocols.step();
    Ok(state.protocols.look(|services| show(&services.lldp, bridge)))
}
