//! `bfd/*` and `cfm/*`: the protocols that watch the other end of a link.

use super::Answer;
use crate::state::State;

pub(super) fn register(add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Answer)) {
    add("bfd/show", "[interface]", 0, 1, |state, args| {
        let now = state.shared.clock.now();
        state.protocols.look(|services| services.bfd.show(args.first(), now))
    });
    add(
        "bfd/set-forwarding",
        "[interface] normal|false|true",
        1,
        2,
        |state, args| {
            let (forced, interface) = forced(args)?;
            state
                .protocols
                .command(|services, world| services.bfd.force(interface, forced, world))?;
            Ok("OK".to_owned())
        },
    );
    add("cfm/show", "[interface]", 0, 1, |state, args| {
        let now = state.shared.clock.now();
        state.protocols.look(|services| services.cfm.show(args.first(), now))
    });
    add("cfm/set-fault", "[interface] normal|false|true", 1, 2, |state, args| {
        let (forced, interface) = forced(args)?;
        state
            .protocols
            .command(|services, world| services.cfm.force(interface, forced, world))?;
        Ok("OK".to_owned())
    });
}

/// The last argument, `None` for `normal`, and the interface before it, if there is one.
fn forced(args: &[String]) -> Result<(Option<bool>, Option<&String>), String> {
    let (value, interface) = match args {
        [value] => (value, None),
        [interface, value] => (value, Some(interface)),
        _ => return Err("wrong number of arguments".to_owned()),
    };
    let forced = match value.to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        "normal" => None,
        _ => return Err("unknown fault string".to_owned()),
    };
    Ok((forced, interface))
}
