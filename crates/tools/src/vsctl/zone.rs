//! Timeout policies and limits of conntrack zones, datapath capabilities, and Auto-Attach mappings.

use ovsdb::rows::{autoattach, bridge, ct_timeout_policy, ct_zone, datapath, open_vswitch};
use ovsdb::{Atom, Datum, Uuid};

use super::Stop;
use super::context::Context;
use super::grammar::{Command, Prepare};

pub(super) fn prepare(context: &mut Prepare<'_>, _: &Command) -> Result<(), Stop> {
    context
        .selection
        .columns(open_vswitch::TABLE, &[open_vswitch::columns::DATAPATHS]);
    context.selection.columns(
        datapath::TABLE,
        &[
            datapath::columns::CT_ZONES,
            datapath::columns::CAPABILITIES,
            datapath::columns::CT_ZONE_DEFAULT_LIMIT,
        ],
    );
    context.selection.columns(
        ct_zone::TABLE,
        &[ct_zone::columns::TIMEOUT_POLICY, ct_zone::columns::LIMIT],
    );
    context
        .selection
        .columns(ct_timeout_policy::TABLE, &[ct_timeout_policy::columns::TIMEOUTS]);
    Ok(())
}

fn find_datapath(context: &Context<'_>, name: &str) -> Option<Uuid> {
    let all = context.get(open_vswitch::TABLE, context.root, open_vswitch::columns::DATAPATHS);
    all.get(&Atom::string(name)).and_then(Atom::as_uuid)
}

fn the_datapath(context: &Context<'_>, name: &str) -> Result<Uuid, Stop> {
    find_datapath(context, name).ok_or_else(|| Stop::Fatal(format!("datapath {name} does not exist")))
}

fn zones(context: &Context<'_>, datapath: Uuid) -> Datum {
    context.get(datapath::TABLE, datapath, datapath::columns::CT_ZONES)
}

fn zone_number(arg: &str) -> Result<i64, Stop> {
    match arg.strip_prefix("zone=").and_then(|number| number.parse().ok()) {
        Some(zone) => Ok(zone),
        None => Stop::fatal(format!("{arg}: expected zone=ZONE with a number from 0 to 65535")),
    }
}

pub(super) fn add(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let datapath = the_datapath(context, command.arg(0))?;
    let zone = zone_number(command.arg(1))?;
    let mut timeouts = Vec::new();
    for arg in &command.args[2..] {
        let pair = arg
            .split_once('=')
            .and_then(|(key, seconds)| Some((key, seconds.parse::<i64>().ok()?)));
        match pair {
            Some(pair) => timeouts.push(pair),
            None => return Stop::fatal(format!("{arg}: expected POLICY=SECONDS")),
        }
    }
    let existing = zones(context, datapath)
        .get(&Atom::Integer(zone))
        .and_then(Atom::as_uuid);
    let has_policy = |row| {
        !context
            .references(ct_zone::TABLE, row, ct_zone::columns::TIMEOUT_POLICY)
            .is_empty()
    };
    // A zone may have a limit only.
    let is_taken = existing.is_some_and(|row| has_policy(row) || limit_of(context, row).is_none());
    if is_taken && !command.has("--may-exist") {
        return Stop::fatal(format!("zone id {zone} already exists"));
    }
    let row = zone_row(context, datapath, zone);
    let txn = context.txn();
    let policy = txn.insert(ct_timeout_policy::TABLE);
    txn.set(
        ct_timeout_policy::TABLE,
        policy,
        ct_timeout_policy::columns::TIMEOUTS,
        Datum::map(timeouts),
    );
    txn.set(ct_zone::TABLE, row, ct_zone::columns::TIMEOUT_POLICY, policy);
    Ok(())
}

/// The row of a zone, a new one if it has none.
fn zone_row(context: &mut Context<'_>, datapath: Uuid, zone: i64) -> Uuid {
    let known = zones(context, datapath)
        .get(&Atom::Integer(zone))
        .and_then(Atom::as_uuid);
    known.unwrap_or_else(|| {
        let txn = context.txn();
        let row = txn.insert(ct_zone::TABLE);
        txn.map_put(datapath::TABLE, datapath, datapath::columns::CT_ZONES, zone, row);
        context.verify(datapath::TABLE, datapath, datapath::columns::CT_ZONES);
        row
    })
}

/// The limit of a zone.
fn limit_of(context: &Context<'_>, row: Uuid) -> Option<Atom> {
    let limit = context.get(ct_zone::TABLE, row, ct_zone::columns::LIMIT);
    limit.atoms().first().cloned()
}

pub(super) fn delete(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let datapath = the_datapath(context, command.arg(0))?;
    let zone = zone_number(command.arg(1))?;
    let Some(row) = zones(context, datapath)
        .get(&Atom::Integer(zone))
        .and_then(Atom::as_uuid)
    else {
        return if command.has("--if-exists") {
            Ok(())
        } else {
            Stop::fatal(format!("zone id {zone} does not exist"))
        };
    };
    let txn = context.txn();
    txn.map_delete(datapath::TABLE, datapath, datapath::columns::CT_ZONES, zone);
    txn.delete(ct_zone::TABLE, row);
    Ok(())
}

/// A zone, or the default of all zones.
fn zone_or_default(arg: &str) -> Result<Option<i64>, Stop> {
    match arg {
        "default" => Ok(None),
        zone => zone_number(zone).map(Some),
    }
}

pub(super) fn set_limit(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let datapath = the_datapath(context, command.arg(0))?;
    let zone = zone_or_default(command.arg(1))?;
    let text = command.arg(2);
    let Ok(limit) = text.parse::<i64>() else {
        return Stop::fatal(format!("{text}: expected a number of connections"));
    };
    match zone {
        None => {
            let txn = context.txn();
            txn.set(
                datapath::TABLE,
                datapath,
                datapath::columns::CT_ZONE_DEFAULT_LIMIT,
                limit,
            );
        }
        Some(zone) => {
            let row = zone_row(context, datapath, zone);
            context.txn().set(ct_zone::TABLE, row, ct_zone::columns::LIMIT, limit);
        }
    }
    Ok(())
}

pub(super) fn delete_limit(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let datapath = the_datapath(context, command.arg(0))?;
    let empty = Datum::default;
    let Some(zone) = zone_or_default(command.arg(1))? else {
        let txn = context.txn();
        txn.set(
            datapath::TABLE,
            datapath,
            datapath::columns::CT_ZONE_DEFAULT_LIMIT,
            empty(),
        );
        return Ok(());
    };
    let row = zones(context, datapath)
        .get(&Atom::Integer(zone))
        .and_then(Atom::as_uuid);
    let Some(row) = row.filter(|row| limit_of(context, *row).is_some()) else {
        return match command.has("--if-exists") {
            true => Ok(()),
            false => Stop::fatal(format!("zone_id {zone} does not have limit")),
        };
    };
    context.txn().set(ct_zone::TABLE, row, ct_zone::columns::LIMIT, empty());
    let policies = context.references(ct_zone::TABLE, row, ct_zone::columns::TIMEOUT_POLICY);
    if policies.is_empty() {
        let txn = context.txn();
        txn.map_delete(datapath::TABLE, datapath, datapath::columns::CT_ZONES, zone);
        txn.delete(ct_zone::TABLE, row);
    }
    Ok(())
}

pub(super) fn list_limits(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let name = command.arg(0);
    let Some(datapath) = find_datapath(context, name) else {
        return Stop::fatal(format!("datapath {name} does not exist"));
    };
    let default = context.get(datapath::TABLE, datapath, datapath::columns::CT_ZONE_DEFAULT_LIMIT);
    if let Some(limit) = default.atoms().first() {
        context.line(format_args!("Default limit: {}", limit.to_text()));
    }
    for (zone, row) in zones(context, datapath).pairs() {
        if let Some(limit) = row.as_uuid().and_then(|row| limit_of(context, row)) {
            context.line(format_args!("Zone: {}, Limit: {}", zone.to_text(), limit.to_text()));
        }
    }
    Ok(())
}

pub(super) fn list(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let name = command.arg(0);
    let Some(datapath) = find_datapath(context, name) else {
        return Stop::fatal(format!("datapath: {name} record not found"));
    };
    for (zone, row) in zones(context, datapath).pairs() {
        let Some(row) = row.as_uuid() else { continue };
        let policies = context.references(ct_zone::TABLE, row, ct_zone::columns::TIMEOUT_POLICY);
        let text = match policies.first() {
            Some(policy) => {
                let timeouts = context.get(ct_timeout_policy::TABLE, *policy, ct_timeout_policy::columns::TIMEOUTS);
                format!("Timeout Policies: {}", pairs(&timeouts))
            }
            None => "Timeout Policies: system default".to_owned(),
        };
        context.line(format_args!("Zone:{}, {text}", zone.to_text()));
    }
    Ok(())
}

pub(super) fn capabilities(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let name = command.arg(0);
    let Some(datapath) = find_datapath(context, name) else {
        return Stop::fatal(format!("datapath \"{name}\" record not found"));
    };
    let capabilities = context.get(datapath::TABLE, datapath, datapath::columns::CAPABILITIES);
    context.line(pairs(&capabilities));
    Ok(())
}

fn pairs(map: &Datum) -> String {
    let pair = |(key, value): &(Atom, Atom)| format!("{}={}", key.to_bare_text(), value.to_bare_text());
    map.pairs().iter().map(pair).collect::<Vec<_>>().join(" ")
}

pub(super) fn prepare_mappings(context: &mut Prepare<'_>, command: &Command) -> Result<(), Stop> {
    super::bridge::prepare(context, command)?;
    context
        .selection
        .columns(bridge::TABLE, &[bridge::columns::AUTO_ATTACH]);
    context
        .selection
        .columns(autoattach::TABLE, &[autoattach::columns::MAPPINGS]);
    Ok(())
}

/// The bridge, and its Auto-Attach row if it has one.
fn auto_attach(context: &mut Context<'_>, command: &Command) -> Result<(Uuid, Option<Uuid>), Stop> {
    let bridge = context.model().bridge(command.arg(0))?.row;
    let rows = context.references(bridge::TABLE, bridge, bridge::columns::AUTO_ATTACH);
    Ok((bridge, rows.first().copied()))
}

/// I-SID and VLAN of the command line.
fn mapping(command: &Command) -> Result<(i64, i64), Stop> {
    let number = |at| {
        let arg = command.arg(at);
        arg.parse().map_err(|_| Stop::Fatal(format!("Invalid argument {arg}")))
    };
    Ok((number(1)?, number(2)?))
}

pub(super) fn add_mapping(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let (isid, vlan) = mapping(command)?;
    let (bridge, row) = auto_attach(context, command)?;
    let row = match row {
        Some(row) => row,
        None => {
            let row = context.txn().insert(autoattach::TABLE);
            context.replace(bridge::TABLE, bridge, bridge::columns::AUTO_ATTACH, row);
            row
        }
    };
    let known = context.get(autoattach::TABLE, row, autoattach::columns::MAPPINGS);
    if known.get(&Atom::Integer(isid)).is_none() {
        context
            .txn()
            .map_put(autoattach::TABLE, row, autoattach::columns::MAPPINGS, isid, vlan);
    }
    Ok(())
}

pub(super) fn del_mapping(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let (isid, vlan) = mapping(command)?;
    let (_, row) = auto_attach(context, command)?;
    let Some(row) = row else { return Ok(()) };
    let known = context.get(autoattach::TABLE, row, autoattach::columns::MAPPINGS);
    if known.get(&Atom::Integer(isid)) == Some(&Atom::Integer(vlan)) {
        context.verify(autoattach::TABLE, row, autoattach::columns::MAPPINGS);
        context
            .txn()
            .map_delete(autoattach::TABLE, row, autoattach::columns::MAPPINGS, isid);
    }
    Ok(())
}

pub(super) fn get_mappings(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let (_, row) = auto_attach(context, command)?;
    let Some(row) = row else { return Ok(()) };
    for (isid, vlan) in context
        .get(autoattach::TABLE, row, autoattach::columns::MAPPINGS)
        .pairs()
    {
        context.line(format_args!("{} {}", isid.to_text(), vlan.to_text()));
    }
    Ok(())
}
