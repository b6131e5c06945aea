//! `bond/*` and `lacp/*`.

use super::Answer;
use crate::state::State;
use protocols::bond::{BUCKETS, hash_of_source};
use wire::MacAddr;

pub(super) fn register(add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Answer)) {
    add("bond/list", "", 0, 0, |state, _| {
        Ok(state.protocols.look(|services| services.aggregations.list_bonds()))
    });
    add("bond/show", "[port]", 0, 1, |state, args| {
        let now = state.shared.clock.now();
        state
            .protocols
            .look(|services| services.aggregations.show_bonds(args.first(), now))
    });
    add("bond/hash", "mac [vlan] [basis]", 1, 3, hash);
    add("bond/migrate", "port hash member", 3, 3, migrate);
    add("bond/set-active-member", "port member", 2, 2, set_active);
    add("bond/enable-member", "port member", 2, 2, enable);
    add("bond/disable-member", "port member", 2, 2, disable);
    add("lacp/show", "[port]", 0, 1, |state, args| {
        state
            .protocols
            .look(|services| services.aggregations.show_lacp(args.first()))
    });
    add("lacp/show-stats", "[port]", 0, 1, |state, args| {
        state
            .protocols
            .look(|services| services.aggregations.show_lacp_stats(args.first()))
    });
}

/// The names that members had before Open vSwitch 2.16.
pub(super) fn register_old_names(add: &impl Fn(&str, usize, usize, fn(&State, &[String]) -> Answer)) {
    add("bond/set-active-slave", 2, 2, set_active);
    add("bond/enable-slave", 2, 2, enable);
    add("bond/disable-slave", 2, 2, disable);
}

fn hash(_: &State, args: &[String]) -> Answer {
    let mac: MacAddr = args[0].parse().map_err(|_| "invalid mac")?;
    let vlan = args
        .get(1)
        .map_or(Ok(0), |vlan| vlan.parse())
        .map_err(|_| "invalid vlan")?;
    let basis = args
        .get(2)
        .map_or(Ok(0), |basis| basis.parse())
        .map_err(|_| "invalid basis")?;
    Ok(format!("{}\n", hash_of_source(mac, vlan, basis)))
}

fn migrate(state: &State, args: &[String]) -> Answer {
    let [port, hash, member] = args else {
        return Err("wrong number of arguments".to_owned());
    };
    // The bond is looked for before the hash is read, as in Open vSwitch.
    let bucket = hash.parse::<u64>().map(|hash| (hash % BUCKETS as u64) as u8);
    state.protocols.command(|services, world| {
        let bonds = &mut services.aggregations;
        let mut bad = false;
        let moved = bonds.change_bond(port, world, |bond| match (bucket, bond.migrates()) {
            (Ok(bucket), _) => bond.migrate(bucket, member),
            (Err(_), Err(refused)) => Err(refused),
            (Err(_), Ok(())) => {
                bad = true;
                Ok(())
            }
        });
        match bad {
            true => Err("bad hash".to_owned()),
            false => moved.map(|()| "migrated".to_owned()),
        }
    })
}

fn set_active(state: &State, args: &[String]) -> Answer {
    let changed = state.protocols.command(|services, world| {
        services
            .aggregations
            .change_bond(&args[0], world, |bond| bond.set_active(&args[1]))
    })?;
    Ok(if changed { "done" } else { "no change" }.to_owned())
}

fn enable(state: &State, args: &[String]) -> Answer {
    set_enabled(state, args, true)
}

fn disable(state: &State, args: &[String]) -> Answer {
    set_enabled(state, args, false)
}

fn set_enabled(state: &State, args: &[String], enabled: bool) -> Answer {
    state.protocols.command(|services, world| {
        services
            .aggregations
            .change_bond(&args[0], world, |bond| bond.set_enabled(&args[1], enabled))
    })?;
    Ok(if enabled { "enabled" } else { "disabled" }.to_owned())
}
