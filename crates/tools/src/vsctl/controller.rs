//! OpenFlow controllers, fail modes, database managers and TLS.

use ovsdb::rows::{ToDatum, bridge, controller, manager, open_vswitch, ssl};
use ovsdb::{Datum, Uuid};

use super::Stop;
use super::context::Context;
use super::grammar::{Command, Prepare};

pub(super) fn prepare(context: &mut Prepare<'_>, command: &Command) -> Result<(), Stop> {
    super::bridge::prepare(context, command)?;
    context.selection.columns(
        bridge::TABLE,
        &[bridge::columns::CONTROLLER, bridge::columns::FAIL_MODE],
    );
    context
        .selection
        .columns(controller::TABLE, &[controller::columns::TARGET]);
    Ok(())
}

pub(super) fn prepare_managers(context: &mut Prepare<'_>, _: &Command) -> Result<(), Stop> {
    context
        .selection
        .columns(open_vswitch::TABLE, &[open_vswitch::columns::MANAGER_OPTIONS]);
    context.selection.columns(manager::TABLE, &[manager::columns::TARGET]);
    Ok(())
}

pub(super) fn prepare_ssl(context: &mut Prepare<'_>, _: &Command) -> Result<(), Stop> {
    use ssl::columns as c;
    context
        .selection
        .columns(open_vswitch::TABLE, &[open_vswitch::columns::SSL]);
    context.selection.columns(
        ssl::TABLE,
        &[c::PRIVATE_KEY, c::CERTIFICATE, c::CA_CERT, c::BOOTSTRAP_CA_CERT],
    );
    Ok(())
}

pub(super) fn get(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let row = context.model().bridge(command.arg(0))?.row;
    let rows = context.references(bridge::TABLE, row, bridge::columns::CONTROLLER);
    print_targets(context, controller::TABLE, controller::columns::TARGET, &rows);
    Ok(())
}

pub(super) fn delete(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let row = context.model().real_bridge(command.arg(0))?.row;
    clear_references(
        context,
        bridge::TABLE,
        row,
        bridge::columns::CONTROLLER,
        controller::TABLE,
    );
    Ok(())
}

pub(super) fn set(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let row = context.model().real_bridge(command.arg(0))?.row;
    clear_references(
        context,
        bridge::TABLE,
        row,
        bridge::columns::CONTROLLER,
        controller::TABLE,
    );
    let names = Names {
        table: controller::TABLE,
        target: controller::columns::TARGET,
        probe: controller::columns::INACTIVITY_PROBE,
    };
    let rows = insert_targets(context, command, &command.args[1..], &names)?;
    context.txn().set(bridge::TABLE, row, bridge::columns::CONTROLLER, rows);
    Ok(())
}

pub(super) fn get_managers(context: &mut Context<'_>, _: &Command) -> Result<(), Stop> {
    let rows = context.references(
        open_vswitch::TABLE,
        context.root,
        open_vswitch::columns::MANAGER_OPTIONS,
    );
    print_targets(context, manager::TABLE, manager::columns::TARGET, &rows);
    Ok(())
}

pub(super) fn del_managers(context: &mut Context<'_>, _: &Command) -> Result<(), Stop> {
    let root = context.root;
    clear_references(
        context,
        open_vswitch::TABLE,
        root,
        open_vswitch::columns::MANAGER_OPTIONS,
        manager::TABLE,
    );
    Ok(())
}

pub(super) fn set_managers(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    del_managers(context, command)?;
    let names = Names {
        table: manager::TABLE,
        target: manager::columns::TARGET,
        probe: manager::columns::INACTIVITY_PROBE,
    };
    let rows = insert_targets(context, command, &command.args, &names)?;
    let root = context.root;
    context
        .txn()
        .set(open_vswitch::TABLE, root, open_vswitch::columns::MANAGER_OPTIONS, rows);
    Ok(())
}

/// The column that holds targets.
struct Names {
    table: &'static str,
    target: &'static str,
    probe: &'static str,
}

fn insert_targets(
    context: &mut Context<'_>,
    command: &Command,
    targets: &[String],
    names: &Names,
) -> Result<Vec<Uuid>, Stop> {
    let probe = match command.value("--inactivity-probe") {
        None => None,
        Some(text) => match text.parse::<i64>() {
            Ok(probe) => Some(probe),
            Err(_) => return Stop::fatal(format!("value {text} on --inactivity-probe is invalid")),
        },
    };
    let mut rows = Vec::new();
    for target in targets {
        let kind = target.split(':').next().unwrap_or_default();
        let known = ["tcp", "ssl", "unix", "ptcp", "pssl", "punix"].contains(&kind) && target.contains(':');
        if !known {
            tracing::warn!(target: "vsctl", "target type \"{target}\" is possibly erroneous");
        }
        let txn = context.txn();
        let row = txn.insert(names.table);
        txn.set(names.table, row, names.target, target);
        if probe.is_some() {
            txn.set(names.table, row, names.probe, probe);
        }
        rows.push(row);
    }
    Ok(rows)
}

fn print_targets(context: &mut Context<'_>, table: &str, target: &str, rows: &[Uuid]) {
    let mut targets: Vec<String> = rows.iter().map(|row| context.text(table, *row, target)).collect();
    targets.sort_unstable();
    for target in targets {
        context.line(target);
    }
}

/// Empties a column, and deletes the rows that it refers to.
pub(super) fn clear_references(context: &mut Context<'_>, table: &str, row: Uuid, column: &str, other: &str) {
    let rows = context.references(table, row, column);
    if rows.is_empty() {
        return;
    }
    for row in rows {
        context.txn().delete(other, row);
    }
    context.replace(table, row, column, Datum::EMPTY);
}

pub(super) fn get_fail_mode(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let row = context.model().bridge(command.arg(0))?.row;
    let mode = context.text(bridge::TABLE, row, bridge::columns::FAIL_MODE);
    if !mode.is_empty() {
        context.line(mode);
    }
    Ok(())
}

pub(super) fn del_fail_mode(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let row = context.model().real_bridge(command.arg(0))?.row;
    context
        .txn()
        .set(bridge::TABLE, row, bridge::columns::FAIL_MODE, Datum::EMPTY);
    Ok(())
}

pub(super) fn set_fail_mode(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let row = context.model().real_bridge(command.arg(0))?.row;
    let mode = command.arg(1);
    if mode != "standalone" && mode != "secure" {
        return Stop::fatal("fail-mode must be \"standalone\" or \"secure\"");
    }
    context.txn().set(bridge::TABLE, row, bridge::columns::FAIL_MODE, mode);
    Ok(())
}

fn ssl_row(context: &Context<'_>) -> Option<Uuid> {
    context
        .references(open_vswitch::TABLE, context.root, open_vswitch::columns::SSL)
        .first()
        .copied()
}

pub(super) fn get_ssl(context: &mut Context<'_>, _: &Command) -> Result<(), Stop> {
    use ssl::columns as c;
    let Some(row) = ssl_row(context) else { return Ok(()) };
    let lines = [
        ("Private key", c::PRIVATE_KEY),
        ("Certificate", c::CERTIFICATE),
        ("CA Certificate", c::CA_CERT),
        ("Bootstrap", c::BOOTSTRAP_CA_CERT),
    ];
    for (label, column) in lines {
        let text = context.text(ssl::TABLE, row, column);
        context.line(format_args!("{label}: {text}"));
    }
    Ok(())
}

pub(super) fn del_ssl(context: &mut Context<'_>, _: &Command) -> Result<(), Stop> {
    let root = context.root;
    clear_references(
        context,
        open_vswitch::TABLE,
        root,
        open_vswitch::columns::SSL,
        ssl::TABLE,
    );
    Ok(())
}

pub(super) fn set_ssl(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    use ssl::columns as c;
    del_ssl(context, command)?;
    let root = context.root;
    let bootstrap = command.has("--bootstrap");
    let txn = context.txn();
    let row = txn.insert(ssl::TABLE);
    for (at, column) in [c::PRIVATE_KEY, c::CERTIFICATE, c::CA_CERT].into_iter().enumerate() {
        txn.set(ssl::TABLE, row, column, command.arg(at));
    }
    txn.set(ssl::TABLE, row, c::BOOTSTRAP_CA_CERT, bootstrap);
    txn.set(
        open_vswitch::TABLE,
        root,
        open_vswitch::columns::SSL,
        Some(row).to_datum(),
    );
    Ok(())
}
