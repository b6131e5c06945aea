//! `stp/*` and `rstp/*`.

use super::Answer;
use crate::protocols::trees::rows::Protocol;
use crate::state::State;

pub(super) fn register(add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Answer)) {
    add("stp/show", "[bridge]", 0, 1, |state, args| {
        show(state, Protocol::Stp, args)
    });
    add("stp/tcn", "[bridge]", 0, 1, |state, args| {
        tcn(state, Protocol::Stp, args)
    });
    add("rstp/show", "[bridge]", 0, 1, |state, args| {
        show(state, Protocol::Rstp, args)
    });
    add("rstp/tcn", "[bridge]", 0, 1, |state, args| {
        tcn(state, Protocol::Rstp, args)
    });
}

const fn no_tree(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Stp => "no such stp object",
        Protocol::Rstp => "No such RSTP object",
    }
}

fn show(state: &State, protocol: Protocol, args: &[String]) -> Answer {
    // What workers have handed over before is in the answer.
    state.protocols.step();
    let now = state.shared.clock.now();
    let bridge = args.first().map(String::as_str);
    let shown = state
        .protocols
        .look(|services| services.trees.show(protocol, bridge, now));
    shown.ok_or_else(|| no_tree(protocol).to_owned())
}

fn tcn(state: &State, protocol: Protocol, args: &[String]) -> Answer {
    let bridge = args.first().map(String::as_str);
    let forced = state
        .protocols
        .command(|services, world| services.trees.force_topology_change(protocol, bridge, world));
    match forced {
        true => Ok("OK".to_owned()),
        false => Err(no_tree(protocol).to_owned()),
    }
}
