//! Commands on ports, bonds and interfaces.

use std::collections::BTreeSet;

use ovsdb::rows::{bridge, interface, port};

use super::Stop;
use super::bridge::{delete_port, prepare};
use super::context::Context;
use super::grammar::{Command, Prepare};
use super::names;
use super::values;

pub(super) fn list(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let model = context.model();
    let bridge = model.bridge(command.arg(0))?;
    for port in model.ports_of(&bridge.name) {
        context.line(&port.name);
    }
    Ok(())
}

pub(super) fn list_ifaces(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let model = context.model();
    let bridge = model.bridge(command.arg(0))?;
    for interface in model.interfaces_of(&bridge.name) {
        context.line(interface);
    }
    Ok(())
}

pub(super) fn to_bridge(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let model = context.model();
    context.line(&model.port(command.arg(0))?.bridge);
    Ok(())
}

pub(super) fn iface_to_bridge(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let model = context.model();
    context.line(&model.interface(command.arg(0))?.bridge);
    Ok(())
}

pub(super) fn prepare_add(context: &mut Prepare<'_>, command: &Command) -> Result<(), Stop> {
    prepare_settings(context, command, 2)
}

pub(super) fn prepare_add_bond(context: &mut Prepare<'_>, command: &Command) -> Result<(), Stop> {
    prepare_settings(context, command, first_setting(command))
}

fn prepare_settings(context: &mut Prepare<'_>, command: &Command, from: usize) -> Result<(), Stop> {
    prepare(context, command)?;
    let table = names::table(context.schema, port::TABLE)?;
    for setting in &command.args[from..] {
        if let Some(column) = values::leading_column(table, setting)? {
            context.selection.column(table.name(), &column.name);
        }
    }
    Ok(())
}

/// The first argument of `add-bond` that is not an interface.
fn first_setting(command: &Command) -> usize {
    let after = command.args.iter().skip(2).position(|arg| arg.contains('='));
    after.map_or(command.args.len(), |at| at + 2)
}

pub(super) fn add(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let port = command.arg(1);
    if port.is_empty() {
        return Stop::fatal("port name must not be empty string");
    }
    add_port(
        context,
        command,
        std::slice::from_ref(&command.args[1]),
        &command.args[2..],
    )
}

pub(super) fn add_bond(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let settings = first_setting(command);
    let interfaces = &command.args[2..settings];
    if interfaces.len() < 2 {
        let given = interfaces.len();
        return Stop::fatal(format!(
            "add-bond requires at least 2 interfaces, but only {given} were specified"
        ));
    }
    add_port(context, command, interfaces, &command.args[settings..])
}

fn add_port(
    context: &mut Context<'_>,
    command: &Command,
    interfaces: &[String],
    settings: &[String],
) -> Result<(), Stop> {
    let (bridge, port) = (command.arg(0), command.arg(1));
    if bridge.is_empty() || port.is_empty() || interfaces.iter().any(String::is_empty) {
        let what = if bridge.is_empty() {
            "bridge"
        } else if port.is_empty() {
            "port"
        } else {
            "interface"
        };
        return Stop::fatal(format!("{what} name must not be empty string"));
    }
    let model = context.model();
    if let Some(existing) = model.find_port(port).filter(|_| command.has("--may-exist")) {
        let but = |what: String| Stop::fatal(format!("\"{}\" but {port} {what}", command.text()));
        if existing.bridge != bridge {
            return but(format!("is actually attached to bridge {}", existing.bridge));
        }
        let wanted: BTreeSet<&String> = interfaces.iter().collect();
        if !wanted.into_iter().eq(&existing.interfaces) {
            return but(format!("actually has interface(s) {}", existing.interfaces.join(", ")));
        }
        return Ok(());
    }
    model.check_name_is_free(port, &format!("a port named {port}"))?;
    for name in interfaces {
        model.check_name_is_free(name, &format!("an interface named {name}"))?;
    }
    let owner = model.bridge(bridge)?;
    let mut rows = Vec::new();
    for name in interfaces {
        let row = context.txn().insert(interface::TABLE);
        context.txn().set(interface::TABLE, row, interface::columns::NAME, name);
        context.new_interfaces.push(name.clone());
        rows.push(row);
    }
    let txn = context.txn();
    let row = txn.insert(port::TABLE);
    txn.set(port::TABLE, row, port::columns::NAME, port);
    txn.set(port::TABLE, row, port::columns::INTERFACES, rows);
    if command.has("--fake-iface") {
        txn.set(port::TABLE, row, port::columns::BOND_FAKE_IFACE, true);
    }
    if let Some(fake) = &owner.fake {
        txn.set(port::TABLE, row, port::columns::TAG, fake.vlan);
    }
    for setting in settings {
        values::assign(context, port::TABLE, row, setting)?;
    }
    context
        .txn()
        .set_insert(bridge::TABLE, owner.row, bridge::columns::PORTS, row);
    // Verifies that the bridge still exists. Ports that other clients add meanwhile do no harm.
    context.verify(bridge::TABLE, owner.row, bridge::columns::NAME);
    Ok(())
}

pub(super) fn delete(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let must_exist = !command.has("--if-exists");
    let name = command.args.last().map_or("", String::as_str);
    let model = context.model();
    if model.bridges.contains_key(name) {
        if !must_exist {
            return Ok(());
        }
        return Stop::fatal(format!(
            "cannot delete port {name} because it is the local port for bridge {name} (deleting this port requires \
             deleting the entire bridge)"
        ));
    }
    let found = match command.has("--with-iface") {
        false => model.find_port(name),
        true => model
            .find_port(name)
            .or_else(|| model.find_port(&model.find_interface(name)?.port)),
    };
    let Some(port) = found else {
        let what = if command.has("--with-iface") {
            "port or interface"
        } else {
            "port"
        };
        return if must_exist {
            Stop::fatal(format!("no {what} named {name}"))
        } else {
            Ok(())
        };
    };
    let owner = model.bridge(&port.bridge)?;
    if command.args.len() == 2 {
        let bridge = model.bridge(command.arg(0))?;
        if bridge.name != owner.name {
            let hint = match &owner.fake {
                Some(fake) if fake.parent == bridge.name => format!(" (although its child bridge {} does)", owner.name),
                _ => String::new(),
            };
            return Stop::fatal(format!("bridge {} does not have a port {name}{hint}", bridge.name));
        }
    }
    delete_port(context, owner.row, port.row);
    Ok(())
}

pub(super) fn add_bond_iface(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let (bond, name) = (command.arg(0), command.arg(1));
    if name.is_empty() {
        return Stop::fatal("interface name must not be empty string");
    }
    let model = context.model();
    if let Some(existing) = model.find_interface(name).filter(|_| command.has("--may-exist")) {
        if existing.port == bond {
            return Ok(());
        }
        let (text, port) = (command.text(), &existing.port);
        return Stop::fatal(format!("\"{text}\" but {name} is actually attached to port {port}"));
    }
    let port = model.port(bond)?;
    model.check_name_is_free(name, &format!("an interface named {name}"))?;
    let txn = context.txn();
    let row = txn.insert(interface::TABLE);
    txn.set(interface::TABLE, row, interface::columns::NAME, name);
    txn.set_insert(port::TABLE, port.row, port::columns::INTERFACES, row);
    context.verify(port::TABLE, port.row, port::columns::NAME);
    context.new_interfaces.push(name.to_owned());
    Ok(())
}

pub(super) fn del_bond_iface(context: &mut Context<'_>, command: &Command) -> Result<(), Stop> {
    let name = command.args.last().map_or("", String::as_str);
    let model = context.model();
    if model.find_interface(name).is_none() && command.has("--if-exists") {
        return Ok(());
    }
    let interface = model.interface(name)?;
    if command.args.len() == 2 {
        let port = model.port(command.arg(0))?;
        if port.name != interface.port {
            return Stop::fatal(format!("port {} does not have an interface {name}", port.name));
        }
    }
    let port = model.port(&interface.port)?;
    if port.interfaces.len() < 2 {
        return Stop::fatal(format!("cannot delete last interface from port {}", port.name));
    }
    context.verify(port::TABLE, port.row, port::columns::INTERFACES);
    let txn = context.txn();
    txn.set_delete(port::TABLE, port.row, port::columns::INTERFACES, interface.row);
    txn.delete(interface::TABLE, interface.row);
    Ok(())
}
