//! Commands on bridges.

use ovsdb::rows::{bridge, interface, open_vswitch, port};
use ovsdb::{Atom, Uuid};

use super::Stop;
use super::context::Context;
use super::grammar::{Command, Prepare};
use super::model::{Bridge, Model};

/// The columns that [`Model`] reads.
pub(super) fn prepare(prepare: &mut Prepare<'_>, _: &Command) -> Result<(), Stop> {
    use {bridge::columns as b, interface::columns as i, port::columns as p};
    prepare
        .selection
        .columns(open_vswitch::TABLE, &[open_vswitch::columns::BRIDGES]);
    prepare
        .selection
        .columns(bridge::TABLE, &[b::NAME, b::PORTS, b::EXTERNAL_IDS]);
    prepare.selection.columns(
        port::TABLE,
        &[p::NAME, p::FAKE_BRIDGE, p::TAG, p::INTERFACES, p::EXTERNAL_IDS],
    );
    prepare
        .selection
        .columns(interface::TABLE, &[i::NAME, i::OFPORT, i::ERROR]);
    Ok(())
}

pub(super) fn add(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let name = command.arg(0);
    if name.is_empty() {
        return Stop::fatal("bridge name must not be empty string");
    }
    let place = match command.args.len() {
        1 => None,
        3 => {
            let vlan = command.arg(2).parse().ok().filter(|vlan| (0..=4095).contains(vlan));
            let vlan: i64 = vlan.ok_or_else(|| Stop::Fatal("add-br: vlan must be between 0 and 4095".to_owned()))?;
            Some((command.arg(1), vlan))
        }
        _ => return Stop::fatal("'add-br' command takes exactly 1 or 3 arguments"),
    };
    let model = context.model();
    if let Some(existing) = model.bridges.get(name).filter(|_| command.has("--may-exist")) {
        return check_existing(existing, place, &command.text());
    }
    model.check_name_is_free(name, &format!("a bridge named {name}"))?;
    match place {
        None => add_real(context, name),
        Some((parent, vlan)) => add_fake(context, &model, name, parent, vlan)?,
    }
    context.new_interfaces.push(name.to_owned());
    Ok(())
}

fn check_existing(existing: &Bridge, place: Option<(&str, i64)>, command: &str) -> Result<(), Stop> {
    let name = &existing.name;
    let but = |what: String| Stop::fatal(format!("\"{command}\" but {name} {what}"));
    match (place, &existing.fake) {
        (None, None) => Ok(()),
        (None, Some(fake)) => but(format!("is a VLAN bridge for VLAN {}", fake.vlan)),
        (Some(_), None) => but("is not a VLAN bridge".to_owned()),
        (Some((parent, _)), Some(fake)) if fake.parent != parent => {
            but(format!("has the wrong parent {}", fake.parent))
        }
        (Some((_, vlan)), Some(fake)) if fake.vlan != vlan => {
            but(format!("is a VLAN bridge for the wrong VLAN {}", fake.vlan))
        }
        (Some(_), Some(_)) => Ok(()),
    }
}

fn add_real(context: &mut Context<'_>, name: &str) {
    let port = insert_local_port(context, name);
    let root = context.root;
    let txn = context.txn();
    let row = txn.insert(bridge::TABLE);
    txn.set(bridge::TABLE, row, bridge::columns::NAME, name);
    txn.set(bridge::TABLE, row, bridge::columns::PORTS, port);
    txn.set_insert(open_vswitch::TABLE, root, open_vswitch::columns::BRIDGES, row);
}

fn add_fake(context: &mut Context<'_>, model: &Model, name: &str, parent: &str, vlan: i64) -> Result<(), Stop> {
    let Some(bridge) = model.bridges.get(parent) else {
        return Stop::fatal(format!("parent bridge {parent} does not exist"));
    };
    if bridge.fake.is_some() {
        return Stop::fatal("cannot create bridge with fake bridge as parent");
    }
    if let Some(other) = model.fake_of_vlan(parent, vlan) {
        let other = &other.name;
        return Stop::fatal(format!(
            "bridge {parent} already has a child VLAN bridge {other} on VLAN {vlan}"
        ));
    }
    let port = insert_local_port(context, name);
    let txn = context.txn();
    txn.set(port::TABLE, port, port::columns::FAKE_BRIDGE, true);
    txn.set(port::TABLE, port, port::columns::TAG, vlan);
    txn.set_insert(bridge::TABLE, bridge.row, bridge::columns::PORTS, port);
    context.verify(bridge::TABLE, bridge.row, bridge::columns::PORTS);
    Ok(())
}

/// The local port of the bridge `name`.
fn insert_local_port(context: &mut Context<'_>, name: &str) -> Uuid {
    let txn = context.txn();
    let interface = txn.insert(interface::TABLE);
    txn.set(interface::TABLE, interface, interface::columns::NAME, name);
    txn.set(interface::TABLE, interface, interface::columns::TYPE, "internal");
    let port = txn.insert(port::TABLE);
    txn.set(port::TABLE, port, port::columns::NAME, name);
    txn.set(port::TABLE, port, port::columns::INTERFACES, interface);
    port
}

pub(super) fn delete(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let name = command.arg(0);
    let model = context.model();
    if !model.bridges.contains_key(name) && command.has("--if-exists") {
        return Ok(());
    }
    let bridge = model.bridge(name)?;
    match &bridge.fake {
        Some(fake) => {
            for port in model.ports_of(name) {
                delete_port(context, bridge.row, port.row);
            }
            delete_port(context, bridge.row, fake.port);
        }
        None => {
            for port in context.references(bridge::TABLE, bridge.row, bridge::columns::PORTS) {
                delete_port(context, bridge.row, port);
            }
            let root = context.root;
            let txn = context.txn();
            txn.set_delete(open_vswitch::TABLE, root, open_vswitch::columns::BRIDGES, bridge.row);
            txn.delete(bridge::TABLE, bridge.row);
        }
    }
    Ok(())
}

/// Removes a port and its interfaces from its bridge.
pub(super) fn delete_port(context: &mut Context<'_>, bridge: Uuid, port: Uuid) {
    let interfaces = context.references(port::TABLE, port, port::columns::INTERFACES);
    let txn = context.txn();
    for interface in interfaces {
        txn.delete(interface::TABLE, interface);
    }
    txn.set_delete(bridge::TABLE, bridge, bridge::columns::PORTS, port);
    txn.delete(port::TABLE, port);
}

pub(super) fn list(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let (real, fake) = (command.has("--real"), command.has("--fake"));
    let both = real == fake;
    for bridge in context.model().bridges.values() {
        if both || bridge.fake.is_some() == fake {
            context.line(&bridge.name);
        }
    }
    Ok(())
}

pub(super) fn exists(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    match context.model().bridges.contains_key(command.arg(0)) {
        true => Ok(()),
        false => Err(Stop::Exit(2)),
    }
}

pub(super) fn to_vlan(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let vlan = context
        .model()
        .bridge(command.arg(0))?
        .fake
        .as_ref()
        .map_or(0, |fake| fake.vlan);
    context.line(vlan);
    Ok(())
}

pub(super) fn to_parent(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let model = context.model();
    let bridge = model.bridge(command.arg(0))?;
    context.line(bridge.fake.as_ref().map_or(&bridge.name, |fake| &fake.parent));
    Ok(())
}

/// The place of a bridge's external IDs: table, row, and prefix of keys.
fn external_ids(bridge: &Bridge) -> (&'static str, Uuid, &'static str) {
    match &bridge.fake {
        None => (bridge::TABLE, bridge.row, ""),
        Some(fake) => (port::TABLE, fake.port, "fake-bridge-"),
    }
}

pub(super) fn set_external_id(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let model = context.model();
    let (table, row, prefix) = external_ids(model.bridge(command.arg(0))?);
    let key = format!("{prefix}{}", command.arg(1));
    match command.args.get(2) {
        Some(value) => context
            .txn()
            .map_put(table, row, bridge::columns::EXTERNAL_IDS, key, value.as_str()),
        None => context.txn().map_delete(table, row, bridge::columns::EXTERNAL_IDS, key),
    }
    Ok(())
}

pub(super) fn get_external_id(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let model = context.model();
    let (table, row, prefix) = external_ids(model.bridge(command.arg(0))?);
    let ids = context.get(table, row, bridge::columns::EXTERNAL_IDS);
    if let Some(key) = command.args.get(1) {
        if let Some(value) = ids.get_str(&format!("{prefix}{key}")) {
            context.line(value);
        }
        return Ok(());
    }
    for (key, value) in ids.pairs() {
        if let (Some(key), Some(value)) = (
            key.as_str().and_then(|key| key.strip_prefix(prefix)),
            Atom::as_str(value),
        ) {
            context.line(format_args!("{key}={value}"));
        }
    }
    Ok(())
}
