//! Connects, runs the commands in a transaction until it commits, prints, and waits for the switch.

use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use mgmt::idl::{ConnectionError, IdlConnection};
use mgmt::paths;
use mgmt::stream::{Remote, RemoteError, Tls};
use ovsdb::idl::{Event, Idl, Selection, TxnStatus};
use ovsdb::rows::{interface, open_vswitch};
use ovsdb::{Atom, DatabaseSchema, Uuid, schemas};
use rustix::process::{Signal, getpid, kill_process};

use super::comment::{command_line, comment};
use super::complaints::{self, Complaints};
use super::context::{Context, Output};
use super::grammar::{Command, Prepare};
use super::options::Options;
use super::{PROGRAM, Stop};
use crate::table::Printer;

/// The lock that the switch's daemon holds as long as it runs.
const SWITCH_LOCK: &str = "ovs_vswitchd";
/// How long to wait for the switch before telling the user.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn run(args: &[OsString], options: &Options, commands: &[Command]) -> Result<(), Stop> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Stop::Fatal(format!("cannot start: {error}")))?;
    runtime.block_on(async {
        let work = work(args, options, commands);
        match options.timeout {
            None => work.await,
            Some(limit) => match tokio::time::timeout(limit, work).await {
                Ok(result) => result,
                Err(_) => die_of_alarm(),
            },
        }
    })
}

/// Ends like a process killed by SIGALRM: scripts check the exit status.
fn die_of_alarm() -> Result<(), Stop> {
    tracing::warn!(target: "fatal_signal", "terminating with signal 14 (Alarm clock)");
    let _ = kill_process(getpid(), Signal::ALARM);
    Err(Stop::Exit(142))
}

async fn work(args: &[OsString], options: &Options, commands: &[Command]) -> Result<(), Stop> {
    match commands.iter().any(|command| command.spec.writes()) {
        true => tracing::info!(target: "vsctl", "Called as {}", command_line(args)),
        false => tracing::debug!(target: "vsctl", "Called as {}", command_line(args)),
    }
    let schema = DatabaseSchema::from_text(schemas::OPEN_VSWITCH)?;
    let mut selection = Selection::new();
    selection.table(open_vswitch::TABLE);
    if options.wait {
        selection.column(open_vswitch::TABLE, open_vswitch::columns::CUR_CFG);
        selection.columns(interface::TABLE, &[interface::columns::OFPORT]);
        complaints::select(&mut selection);
    }
    for command in commands {
        (command.spec.prepare)(
            &mut Prepare {
                schema: &schema,
                selection: &mut selection,
            },
            command,
        )?;
    }
    let mut connection = connect(options, schema.name(), selection).await?;
    while !connection.idl().is_synced() {
        changed(&mut connection, options).await?;
    }
    let done = transact(&mut connection, &schema, args, options, commands).await?;
    print(options, &done)?;
    match done.awaited {
        Some(generation) if options.wait => await_switch(&mut connection, options, generation, &done).await,
        _ => Ok(()),
    }
}

async fn connect(options: &Options, db: &str, selection: Selection) -> Result<IdlConnection, Stop> {
    let tls = Tls::new(options.tls.clone());
    let mut failure = String::new();
    for name in options.db.split(',') {
        let remote: Remote = name
            .parse()
            .map_err(|error: RemoteError| Stop::Fatal(error.to_string()))?;
        let idl = Idl::new(db, selection.clone(), seed());
        if options.retry || remote.is_passive() {
            return Ok(IdlConnection::to(idl, remote, tls));
        }
        match IdlConnection::once(idl, &remote, &tls).await {
            Ok(connection) => return Ok(connection),
            Err(error) => failure = connection_failed(name, &error),
        }
    }
    Stop::fatal(failure)
}

fn connection_failed(db: &str, error: &ConnectionError) -> String {
    format!("{db}: database connection failed ({error})")
}

/// A seed for row names, different in each process. It need not be secret.
fn seed() -> u128 {
    let random = || u128::from(RandomState::new().hash_one(std::process::id()));
    random() << 64 | random()
}

async fn changed(connection: &mut IdlConnection, options: &Options) -> Result<(), Stop> {
    connection
        .changed()
        .await
        .map_err(|error| Stop::Fatal(connection_failed(&options.db, &error)))
}

/// The result of a committed transaction.
struct Done {
    outputs: Vec<Vec<Output>>,
    status: TxnStatus,
    /// The number that `cur_cfg` reaches when the switch has applied the change.
    awaited: Option<i64>,
    new_interfaces: Vec<String>,
    /// Rows that the transaction set.
    set: Vec<Uuid>,
    /// The complaints of the switch before the transaction.
    complaints: Complaints,
}

async fn transact(
    connection: &mut IdlConnection,
    schema: &DatabaseSchema,
    args: &[OsString],
    options: &Options,
    commands: &[Command],
) -> Result<Done, Stop> {
    loop {
        let txn = connection.idl_mut().txn();
        let mut context = Context::new(schema, connection.idl(), txn);
        let (mut outputs, mut unmet) = (Vec::new(), false);
        for command in commands {
            match (command.spec.run)(&mut context, command) {
                Ok(()) => outputs.push(context.take_output()),
                Err(Stop::Again) => {
                    unmet = true;
                    break;
                }
                Err(stop) => return Err(stop),
            }
        }
        if unmet {
            changed(connection, options).await?;
            continue;
        }
        let (root, new_interfaces) = (context.root, std::mem::take(&mut context.new_interfaces));
        let mut txn = context.finish()?;
        let set = txn.rows_set().map(|(_, row)| row).collect();
        let complaints = complaints::of(connection.idl().tables());
        txn.comment(comment(args));
        if options.wait {
            txn.increment(open_vswitch::TABLE, root, open_vswitch::columns::NEXT_CFG);
        }
        if options.dry_run {
            return Ok(Done {
                outputs,
                status: TxnStatus::Unchanged,
                awaited: None,
                new_interfaces,
                set,
                complaints,
            });
        }
        let seqno = connection.idl().seqno();
        let status = connection.commit(txn).await;
        match status.map_err(|error| Stop::Fatal(connection_failed(&options.db, &error)))? {
            TxnStatus::Success { inserted, increment } => {
                let status = TxnStatus::Success { inserted, increment };
                return Ok(Done {
                    outputs,
                    status,
                    awaited: increment,
                    new_interfaces,
                    set,
                    complaints,
                });
            }
            TxnStatus::Unchanged => {
                return Ok(Done {
                    outputs,
                    status: TxnStatus::Unchanged,
                    awaited: None,
                    new_interfaces,
                    set,
                    complaints,
                });
            }
            TxnStatus::Error(error) => {
                tracing::warn!(target: "ovsdb_idl", "transaction error: {error}");
                return Stop::fatal(format!("transaction error: {error}"));
            }
            TxnStatus::TryAgain | TxnStatus::NotLocked | TxnStatus::Incomplete => {
                while connection.idl().seqno() == seqno || !connection.idl().is_synced() {
                    changed(connection, options).await?;
                }
            }
        }
    }
}

fn print(options: &Options, done: &Done) -> Result<(), Stop> {
    let mut printer = Printer::new(options.style);
    let mut text = String::new();
    for output in &done.outputs {
        let mut lines = String::new();
        let mut tables = false;
        for piece in output {
            match piece {
                Output::Text(line) => lines.push_str(line),
                Output::Inserted(row) => lines.push_str(&format!("{}\n", real_uuid(done, *row))),
                Output::Table(table) => {
                    tables = true;
                    text.push_str(&printer.print(table));
                }
            }
        }
        match options.oneline && !tables {
            true => text.push_str(&one_line(&lines)),
            false => text.push_str(&lines),
        }
    }
    crate::common::print(&text).map_err(|failure| match failure.message.is_empty() {
        true => Stop::Exit(failure.status),
        false => Stop::Fatal(failure.message),
    })
}

fn real_uuid(done: &Done, row: Uuid) -> Uuid {
    match &done.status {
        TxnStatus::Success { inserted, .. } => inserted.get(&row).copied().unwrap_or(row),
        _ => row,
    }
}

/// The output of a command in one line, for `--oneline`.
fn one_line(lines: &str) -> String {
    let text = lines.strip_suffix('\n').unwrap_or(lines);
    format!("{}\n", text.replace('\\', "\\\\").replace('\n', "\\n"))
}

/// Waits until the switch has applied the change, then reports what failed.
async fn await_switch(
    connection: &mut IdlConnection,
    options: &Options,
    generation: i64,
    done: &Done,
) -> Result<(), Stop> {
    let applied = |connection: &IdlConnection| {
        let column = open_vswitch::columns::CUR_CFG;
        let mut rows = connection.idl().tables().rows(open_vswitch::TABLE);
        let current = |row: &ovsdb::idl::Row| row.get(column)?.as_one()?.as_integer();
        rows.next()
            .is_some_and(|(_, row)| current(row).is_some_and(|current| current >= generation))
    };
    let mut hint = Hint::Unsaid;
    while !applied(connection) {
        if hint == Hint::Unsaid {
            match tokio::time::timeout(PATIENCE, changed(connection, options)).await {
                Ok(result) => result?,
                Err(_) => {
                    connection.idl_mut().ask_for_holder(SWITCH_LOCK);
                    hint = Hint::Asked;
                }
            }
            continue;
        }
        let event = connection.event().await;
        if let Event::Holder(held) = event.map_err(|error| Stop::Fatal(connection_failed(&options.db, &error)))? {
            give_hint(held);
            hint = Hint::Said;
        }
    }
    report_failures(connection, &done.new_interfaces);
    let set: Vec<Uuid> = done.set.iter().map(|row| real_uuid(done, *row)).collect();
    complaints::warn(&done.complaints, connection.idl().tables(), &set, &done.new_interfaces);
    Ok(())
}

/// Whether the user was told about the wait.
#[derive(PartialEq, Eq)]
enum Hint {
    Unsaid,
    Asked,
    Said,
}

fn give_hint(switch_runs: bool) {
    let what = match switch_runs {
        true => "the switch (ovs-vswitchd) has not applied it yet",
        false => "no switch (ovs-vswitchd) is running to apply it",
    };
    tracing::warn!(
        target: "vsctl",
        "the change is in the database, but {what}: still waiting (--no-wait does not wait, --timeout limits it)"
    );
}

fn report_failures(connection: &IdlConnection, names: &[String]) {
    let mut failed = false;
    for name in names {
        let Some((_, row)) = connection
            .idl()
            .tables()
            .find(interface::TABLE, interface::columns::NAME, name)
        else {
            continue;
        };
        let one = |column: &str| row.get(column).and_then(|value| value.as_one());
        let detail = match one(interface::columns::ERROR).and_then(Atom::as_str) {
            Some(error) => format!(": {error}"),
            None if one(interface::columns::OFPORT).and_then(Atom::as_integer) == Some(-1) => String::new(),
            None => continue,
        };
        eprintln!("{PROGRAM}: Error detected while setting up '{name}'{detail}.  See ovs-vswitchd log for details.");
        failed = true;
    }
    if failed {
        eprintln!(
            "{PROGRAM}: The default log directory is \"{}\".",
            paths::logdir().display()
        );
    }
}
