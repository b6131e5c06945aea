//! `init`, `show` and `emer-reset`: the switch as a whole.

use std::collections::BTreeSet;

use ovsdb::rows::{bridge, controller, interface, manager, mirror, open_vswitch, port, ssl};
use ovsdb::rows::{ipfix, netflow, sflow};
use ovsdb::{Atom, Datum, Uuid};

use super::Stop;
use super::complaints;
use super::context::Context;
use super::controller::clear_references;
use super::grammar::{Command, Prepare};

/// For commands that do only what every invocation does: make a root row, add a comment.
pub(super) fn prepare_init(_: &mut Prepare<'_>, _: &Command) -> Result<(), Stop> {
    Ok(())
}

pub(super) fn init(_: &mut Context<'_>, _: &Command) -> Result<(), Stop> {
    Ok(())
}

/// How `show` prints rows of a table.
struct Shape {
    table: &'static str,
    name: Option<&'static str>,
    columns: &'static [&'static str],
}

const SHAPES: &[Shape] = &[
    Shape {
        table: open_vswitch::TABLE,
        name: None,
        columns: &[
            open_vswitch::columns::MANAGER_OPTIONS,
            open_vswitch::columns::BRIDGES,
            open_vswitch::columns::OVS_VERSION,
        ],
    },
    Shape {
        table: bridge::TABLE,
        name: Some(bridge::columns::NAME),
        columns: &[
            bridge::columns::CONTROLLER,
            bridge::columns::FAIL_MODE,
            bridge::columns::DATAPATH_TYPE,
            bridge::columns::STATUS,
            bridge::columns::PORTS,
        ],
    },
    Shape {
        table: port::TABLE,
        name: Some(port::columns::NAME),
        columns: &[
            port::columns::TAG,
            port::columns::TRUNKS,
            port::columns::STATUS,
            port::columns::INTERFACES,
        ],
    },
    Shape {
        table: interface::TABLE,
        name: Some(interface::columns::NAME),
        columns: &[
            interface::columns::TYPE,
            interface::columns::OPTIONS,
            interface::columns::ERROR,
        ],
    },
    Shape {
        table: controller::TABLE,
        name: Some(controller::columns::TARGET),
        columns: &[controller::columns::IS_CONNECTED],
    },
    Shape {
        table: manager::TABLE,
        name: Some(manager::columns::TARGET),
        columns: &[manager::columns::IS_CONNECTED],
    },
];

pub(super) fn prepare_show(context: &mut Prepare<'_>, _: &Command) -> Result<(), Stop> {
    for shape in SHAPES {
        context.selection.columns(shape.table, shape.columns);
        context.selection.columns(shape.table, shape.name.as_slice());
    }
    Ok(())
}

pub(super) fn show(context: &mut Context<'_>, _: &Command) -> Result<(), Stop> {
    let mut shown = BTreeSet::new();
    for row in context.rows(open_vswitch::TABLE) {
        show_row(context, &SHAPES[0], row, 0, &mut shown);
    }
    Ok(())
}

/// Prints a row and those that it refers to, by name, each once.
fn show_row(context: &mut Context<'_>, shape: &Shape, row: Uuid, level: usize, shown: &mut BTreeSet<Uuid>) {
    let indent = "    ".repeat(level);
    match shape.name {
        None => context.line(row),
        Some(name) => {
            let name = context
                .get(shape.table, row, name)
                .as_one()
                .map(Atom::to_text)
                .unwrap_or_default();
            context.line(format_args!("{indent}{} {name}", shape.table));
        }
    }
    if !shown.insert(row) {
        return;
    }
    let schema = context.schema;
    for name in shape.columns {
        let Some(column) = schema.table(shape.table).and_then(|table| table.column(name)) else {
            continue;
        };
        let referred = column.kind.key.reference().map(|reference| reference.table.as_str());
        let below = referred.and_then(|table| SHAPES.iter().find(|shape| shape.table == table));
        let Some(below) = below else {
            let value = context.get(shape.table, row, name);
            if *name == bridge::columns::STATUS {
                // Of a status column, only errors.
                for key in complaints::KEYS {
                    if let Some(text) = complaints::value(&value, key) {
                        context.line(format_args!("{indent}    {key}: {}", Atom::string(text).to_text()));
                    }
                }
                continue;
            }
            if !value.is_default(&column.kind) {
                context.line(format_args!("{indent}    {name}: {}", value.to_text(&column.kind)));
            }
            continue;
        };
        let mut rows = context.references(shape.table, row, name);
        rows.sort_by_cached_key(|row| below.name.map(|name| context.text(below.table, *row, name)));
        for row in rows {
            show_row(context, below, row, level + 1, shown);
        }
    }
}

/// The columns that `emer-reset` clears in every bridge, with the tables of the deleted rows.
const RESET: &[(&str, &str)] = &[
    (bridge::columns::CONTROLLER, controller::TABLE),
    (bridge::columns::MIRRORS, mirror::TABLE),
    (bridge::columns::NETFLOW, netflow::TABLE),
    (bridge::columns::SFLOW, sflow::TABLE),
    (bridge::columns::IPFIX, ipfix::TABLE),
];

pub(super) fn prepare_reset(context: &mut Prepare<'_>, _: &Command) -> Result<(), Stop> {
    use {bridge::columns as b, interface::columns as i, open_vswitch::columns as o};
    context
        .selection
        .columns(open_vswitch::TABLE, &[o::BRIDGES, o::MANAGER_OPTIONS, o::SSL]);
    context
        .selection
        .columns(bridge::TABLE, &[b::FAIL_MODE, b::FLOOD_VLANS, b::OTHER_CONFIG]);
    for (column, table) in RESET {
        context.selection.column(bridge::TABLE, column).table(table);
    }
    context.selection.columns(port::TABLE, &[port::columns::OTHER_CONFIG]);
    context
        .selection
        .columns(interface::TABLE, &[i::INGRESS_POLICING_RATE, i::INGRESS_POLICING_BURST]);
    context.selection.table(manager::TABLE).table(ssl::TABLE);
    Ok(())
}

pub(super) fn emer_reset(context: &mut Context<'_>, _: &Command) -> Result<(), Stop> {
    let root = context.root;
    clear_references(
        context,
        open_vswitch::TABLE,
        root,
        open_vswitch::columns::MANAGER_OPTIONS,
        manager::TABLE,
    );
    clear_references(
        context,
        open_vswitch::TABLE,
        root,
        open_vswitch::columns::SSL,
        ssl::TABLE,
    );
    for row in context.rows(bridge::TABLE) {
        for (column, table) in RESET {
            clear_references(context, bridge::TABLE, row, column, table);
        }
        let config = context.get(bridge::TABLE, row, bridge::columns::OTHER_CONFIG);
        let kept = config
            .pairs()
            .iter()
            .filter(|(key, _)| key.as_str() == Some("hwaddr"))
            .cloned();
        reset(
            context,
            bridge::TABLE,
            row,
            bridge::columns::OTHER_CONFIG,
            Datum::map(kept),
        );
        reset(context, bridge::TABLE, row, bridge::columns::FAIL_MODE, Datum::EMPTY);
        reset(context, bridge::TABLE, row, bridge::columns::FLOOD_VLANS, Datum::EMPTY);
    }
    for row in context.rows(port::TABLE) {
        reset(context, port::TABLE, row, port::columns::OTHER_CONFIG, Datum::EMPTY);
    }
    for row in context.rows(interface::TABLE) {
        reset(
            context,
            interface::TABLE,
            row,
            interface::columns::INGRESS_POLICING_RATE,
            Datum::one(0i64),
        );
        reset(
            context,
            interface::TABLE,
            row,
            interface::columns::INGRESS_POLICING_BURST,
            Datum::one(0i64),
        );
    }
    Ok(())
}

/// Sets a column if its value differs.
fn reset(context: &mut Context<'_>, table: &str, row: Uuid, column: &str, value: Datum) {
    if context.get(table, row, column) != value {
        context.txn().set(table, row, column, value);
    }
}
