//! `monitor`, `monitor-cond`, `monitor-cond-since`: tables of what changes (RFC 7047 §4.1.5 and
//! ovsdb-server(7) for the later methods).

use std::cell::{Cell as StdCell, RefCell};
use std::rc::Rc;

use mgmt::daemon;
use mgmt::jsonrpc::{Connection, Message, RecvError};
use mgmt::unixctl::Server;
use ovsdb::{DatabaseSchema, Datum, TableSchema, Uuid, no_names};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc};

use super::{Client, PROGRAM, lock};
use crate::common::{Failure, parse_json, print};
use crate::table::{Cell, Format, Table};

/// The kinds of change that `!KIND` leaves out.
const KINDS: [&str; 4] = ["initial", "insert", "delete", "modify"];

/// The three monitor methods; they differ in their requests, notifications and rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
    V3,
}

/// A table that is watched.
struct Watched<'a> {
    table: &'a TableSchema,
    /// Numbers of the columns to print, in order.
    columns: Vec<usize>,
    /// The `<monitor-request>`s.
    requests: Vec<Value>,
}

/// Control of a running monitor from its socket.
#[derive(Default)]
struct Control {
    blocked: StdCell<bool>,
    unblocked: Notify,
    conditions: RefCell<Option<mpsc::UnboundedSender<(String, Value)>>>,
}

pub(super) async fn run(client: &mut Client, mut rpc: Connection, database: &str) -> Result<(), Failure> {
    let version = match client.command.as_str() {
        "monitor" => Version::V1,
        "monitor-cond" => Version::V2,
        _ => Version::V3,
    };
    let mut args = client.args.clone();
    let mut last_id = Uuid::ZERO;
    if version == Version::V3
        && let Ok(uuid) = args[0].parse()
    {
        last_id = uuid;
        args.remove(0);
    }
    let conditions = match version {
        Version::V1 => None,
        _ => Some(parse_json(&args.remove(0))?),
    };
    let name = args
        .first()
        .cloned()
        .ok_or_else(|| Failure::new(format!("invalid syntax for '{}' (use --help for help)", client.command)))?;

    let schema = client.fetch_schema(&mut rpc, database).await?;
    let watched = if name == "ALL" && version == Version::V1 {
        let all = |table| Watched::new(client, &schema, table, &[], &conditions);
        schema.tables().iter().map(all).collect::<Result<Vec<_>, _>>()?
    } else {
        let table = schema.table(&name).ok_or_else(|| {
            let (server, database) = (&client.server, schema.name());
            Failure::new(format!("{server}: {database} does not have a table named \"{name}\""))
        })?;
        vec![Watched::new(client, &schema, table, &args[1..], &conditions)?]
    };

    let requests: Map<String, Value> = watched
        .iter()
        .map(|w| (w.table.name().to_owned(), Value::from(w.requests.clone())))
        .collect();
    let id = json!(["monid", database]);
    let mut params = vec![json!(database), id.clone(), Value::Object(requests)];
    let method = match version {
        Version::V1 => "monitor",
        Version::V2 => "monitor_cond",
        Version::V3 => {
            params.push(json!(last_id.to_string()));
            "monitor_cond_since"
        }
    };
    let reply = client.call(&mut rpc, method, params).await?;
    let initial = if version == Version::V3 {
        let found = reply.get(0).is_some_and(|f| f == true);
        let last = reply.get(1).and_then(Value::as_str).unwrap_or_default();
        print(&format!("found: {found}, last_id: {last}\n"))?;
        reply.get(2).cloned().unwrap_or_default()
    } else {
        reply
    };
    print_updates(client, &watched, version, &initial, true)?;
    follow(client, rpc, &watched, version, id).await
}

/// Prints changes until the server or the user ends it.
async fn follow(
    client: &mut Client,
    mut rpc: Connection,
    watched: &[Watched<'_>],
    version: Version,
    id: Value,
) -> Result<(), Failure> {
    let control = Rc::new(Control::default());
    let (sender, mut conditions) = mpsc::unbounded_channel();
    let mut exit = Rc::new(Notify::new());
    if client.daemon.options().detach {
        *control.conditions.borrow_mut() = Some(sender);
        exit = lock::serve_exit(client, control_server(&control)).await?;
        client.daemon.ready();
    }
    let detached = client.daemon.options().detach;
    let mut terminated = std::pin::pin!(async {
        match detached {
            true => drop(daemon::terminated().await),
            false => std::future::pending().await,
        }
    });
    loop {
        tokio::select! {
            message = receive(&mut rpc, &control) => {
                let message = message.map_err(|e| client.lost(&e))?;
                let message = message.ok_or_else(|| client.lost(&"End of file"))?;
                if let Some(reply) = message.echo_reply() {
                    rpc.send(reply).await.map_err(|e| client.lost(&e))?;
                } else if let Message::Notification { method, params } = message {
                    notified(client, watched, version, &id, &method, &params)?;
                }
            }
            Some((table, condition)) = conditions.recv() => {
                let mut changes = Map::new();
                changes.insert(table, json!([{"where": condition}]));
                let params = vec![id.clone(), id.clone(), Value::Object(changes)];
                rpc.request("monitor_cond_change", params).await.map_err(|e| client.lost(&e))?;
            }
            () = exit.notified() => return Ok(()),
            () = &mut terminated => return Ok(()),
        }
    }
}

/// The next message, not before the control socket allows.
async fn receive(rpc: &mut Connection, control: &Control) -> Result<Option<Message>, RecvError> {
    while control.blocked.get() {
        control.unblocked.notified().await;
    }
    rpc.recv().await
}

fn control_server(control: &Rc<Control>) -> Server {
    let server = Server::new(PROGRAM);
    for (name, blocked) in [("ovsdb-client/block", true), ("ovsdb-client/unblock", false)] {
        let control = control.clone();
        let handler = move |_: &[String]| {
            if control.blocked.replace(blocked) == blocked {
                let state = if blocked { "blocked" } else { "unblocked" };
                return Err(format!("already {state}"));
            }
            control.unblocked.notify_one();
            Ok(String::new())
        };
        server.register(name, "", 0, 0, Box::new(handler));
    }
    let control = control.clone();
    let handler = move |args: &[String]| {
        let condition = ovsdb::parse_json(args[1].as_bytes()).map_err(|e| e.to_string())?;
        if let Some(sender) = control.conditions.borrow().as_ref() {
            let _ = sender.send((args[0].clone(), condition));
        }
        Ok(String::new())
    };
    server.register("ovsdb-client/cond_change", "TABLE COND", 2, 2, Box::new(handler));
    server
}

fn notified(
    client: &mut Client,
    watched: &[Watched<'_>],
    version: Version,
    id: &Value,
    method: &str,
    params: &[Value],
) -> Result<(), Failure> {
    let expected = match version {
        Version::V1 => "update",
        Version::V2 => "update2",
        Version::V3 => "update3",
    };
    if method != expected || params.first() != Some(id) {
        return Ok(());
    }
    if version == Version::V3 {
        let last = params.get(1).and_then(Value::as_str).unwrap_or_default();
        // The separator between tables goes before this line.
        let apart = matches!(client.style.format, Format::Table | Format::List | Format::Csv);
        print(&format!("{}last_id: {last}\n", if apart { "\n" } else { "" }))?;
        client.printer = crate::table::Printer::new(client.style);
    }
    match params.last() {
        Some(updates) => print_updates(client, watched, version, updates, false),
        None => Ok(()),
    }
}

/// Prints a table for each monitored table in the `<table-updates>`.
fn print_updates(
    client: &mut Client,
    watched: &[Watched<'_>],
    version: Version,
    updates: &Value,
    initial: bool,
) -> Result<(), Failure> {
    for w in watched {
        let Some(rows) = updates.get(w.table.name()).and_then(Value::as_object) else {
            continue;
        };
        let mut table = Table::new(["row", "action"]);
        for c in &w.columns {
            table.add_column(w.table.columns()[*c].name.clone());
        }
        if watched.len() > 1 {
            table.caption = Some(w.table.name().to_owned());
        }
        if client.style.timestamp {
            table.timestamp = Some(telemetry::timestamp("%Y-%m-%d %H:%M:%S.###"));
        }
        for (uuid, update) in rows {
            for (name, action, row) in actions(version, uuid, update, initial) {
                table.add_row(w.cells(name, action, row)?);
            }
        }
        if !table.rows.is_empty() {
            client.print_table(&table)?;
        }
    }
    Ok(())
}

/// The lines of one row's update: the row's UUID, the action, the columns.
fn actions<'a>(
    version: Version,
    uuid: &'a str,
    update: &'a Value,
    initial: bool,
) -> Vec<(&'a str, &'a str, &'a Value)> {
    if version != Version::V1 {
        return KINDS
            .iter()
            .filter_map(|kind| update.get(kind).map(|row| (uuid, *kind, row)))
            .collect();
    }
    match (update.get("old"), update.get("new")) {
        (None, Some(new)) if initial => vec![(uuid, "initial", new)],
        (None, Some(new)) => vec![(uuid, "insert", new)],
        (Some(old), None) => vec![(uuid, "delete", old)],
        (Some(old), Some(new)) => vec![(uuid, "old", old), ("", "new", new)],
        (None, None) => Vec::new(),
    }
}

impl<'a> Watched<'a> {
    /// The columns and requests that `groups`, the words after the table's name, mean.
    fn new(
        client: &Client,
        schema: &DatabaseSchema,
        table: &'a TableSchema,
        groups: &[String],
        conditions: &Option<Value>,
    ) -> Result<Watched<'a>, Failure> {
        let mut watched = Watched {
            table,
            columns: Vec::new(),
            requests: Vec::new(),
        };
        let none = [String::new()];
        for group in if groups.is_empty() { &none } else { groups } {
            let mut select: Map<String, Value> = KINDS.iter().map(|kind| ((*kind).to_owned(), json!(true))).collect();
            let mut columns = Vec::new();
            for word in group.split(',').filter(|w| !w.is_empty()) {
                if let Some(kind) = word.strip_prefix('!').filter(|k| KINDS.contains(k)) {
                    select.insert(kind.to_owned(), json!(false));
                    continue;
                }
                columns.push(table.column_index(word).ok_or_else(|| {
                    Failure::new(format!(
                        "{}: table \"{}\" in {} does not have a column named \"{word}\"",
                        client.server,
                        table.name(),
                        schema.name()
                    ))
                })?);
            }
            if columns.is_empty() {
                columns = all_columns(table);
            }
            for (i, c) in columns.iter().enumerate() {
                if watched.columns.contains(c) || columns[..i].contains(c) {
                    return Err(Failure::new(format!(
                        "{}: column \"{}\" mentioned multiple times",
                        client.server,
                        table.columns()[*c].name
                    )));
                }
            }
            let names: Vec<&str> = columns.iter().map(|c| table.columns()[*c].name.as_str()).collect();
            let mut request = json!({"columns": names, "select": select});
            if let Some(conditions) = conditions {
                request["where"] = conditions.clone();
            }
            watched.requests.push(request);
            watched.columns.extend(columns);
        }
        Ok(watched)
    }

    fn cells(&self, name: &str, action: &str, row: &Value) -> Result<Vec<Cell>, Failure> {
        let mut cells = vec![Cell::Text(name.to_owned()), Cell::Text(action.to_owned())];
        for c in &self.columns {
            let column = &self.table.columns()[*c];
            cells.push(match row.get(&column.name) {
                None => Cell::Empty,
                Some(json) => {
                    let datum = Datum::from_json_relaxed(json, &column.kind, &mut no_names)
                        .map_err(|e| Failure::new(e.to_string()))?;
                    Cell::Datum(datum, column.kind.clone())
                }
            });
        }
        Ok(cells)
    }
}

/// The columns of a table by name, and last the row's version.
fn all_columns(table: &TableSchema) -> Vec<usize> {
    let mut columns: Vec<usize> = table.user_columns().map(|(c, _)| c).collect();
    columns.sort_by_key(|c| &table.columns()[*c].name);
    columns.push(ovsdb::COL_VERSION);
    columns
}
