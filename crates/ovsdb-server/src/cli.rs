//! `oxvs ovsdb-server`: the server as a daemon of its own, with the command line of
//! ovsdb-server(1).

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use mgmt::cli::{COMMON, Item, Opt, Order, Parser};
use mgmt::os_text;
use mgmt::stream::tls;
use mgmt::{daemon, paths, unixctl};
use telemetry::{version, vlog};
use tokio::task::{LocalSet, spawn_blocking, spawn_local};

use crate::{Options, Server};

const PROGRAM: &str = "ovsdb-server";

const OPTIONS: &[Opt] = &[
    Opt::value("remote", None),
    Opt::value("run", None),
    Opt::value("config-file", None),
    Opt::flag("no-dbs", None),
    Opt::flag("disable-file-column-diff", None),
    Opt::value("sync-from", None),
    Opt::value("sync-exclude-tables", None),
    Opt::flag("active", None),
];

/// The options of the command line.
struct Wanted {
    server: Options,
    daemon: daemon::Options,
    /// A command; the server ends when it ends.
    run: Option<String>,
}

/// The daemon's `main`: `args` are what follows the program's name.
pub fn main(args: &mut dyn Iterator<Item = OsString>) -> ExitCode {
    vlog::init(PROGRAM);
    match parse(args) {
        Ok(Some(wanted)) => match serve(wanted) {
            Ok(code) => code,
            Err(why) => {
                // A daemon's user may see its log only.
                vlog::fatal("ovsdb_server", &why);
                fail(&why)
            }
        },
        Ok(None) => ExitCode::SUCCESS,
        Err(why) => fail(&why),
    }
}

fn fail(why: &str) -> ExitCode {
    eprintln!("{PROGRAM}: {why}");
    ExitCode::FAILURE
}

/// Reads the command line; `None` after `--help` and `--version`.
fn parse(args: &mut dyn Iterator<Item = OsString>) -> Result<Option<Wanted>, String> {
    let tables = vec![OPTIONS, tls::OPTIONS, daemon::OPTIONS, daemon::LOG_OPTIONS, COMMON];
    let mut parser = Parser::new(args, tables, Order::Mixed);
    let mut server = Options::default();
    let mut daemon = daemon::Options::new(PROGRAM);
    let (mut run, mut no_dbs) = (None, false);
    while let Some(item) = parser.next().map_err(|error| error.to_string())? {
        let (name, value) = match item {
            Item::Arg(database) => {
                server.databases.push(PathBuf::from(database));
                continue;
            }
            Item::Opt(name, value) => (name, value),
        };
        if daemon
            .accept(name, value.as_deref())
            .map_err(|error| error.to_string())?
            || tls::accept_column(&mut server.tls_settings, name, value.as_deref())
            || tls::accept(&mut server.tls_settings, name, value.as_deref()).map_err(|error| error.to_string())?
        {
            continue;
        }
        match name {
            "remote" => server.remotes.extend(value),
            "run" => run = value,
            "config-file" => server.config_file = value.map(|file| paths::dbdir().join(file)),
            "no-dbs" => no_dbs = true,
            "help" => {
                mgmt::out!("{}", help());
                return Ok(None);
            }
            "version" => {
                mgmt::outln!("{}", version::text(PROGRAM));
                return Ok(None);
            }
            "sync-from" => server.sync.source = value,
            "sync-exclude-tables" => server.sync.exclude = value,
            "active" => server.sync.active = true,
            // We always write column diffs.
            _ => {}
        }
    }
    if server.config_file.is_some() {
        refuse_beside_config_file(&server)?;
    } else if server.databases.is_empty() && !no_dbs {
        server.databases.push(paths::default_db_file());
    }
    Ok(Some(Wanted { server, daemon, run }))
}

/// Refuses options for what the configuration file says.
fn refuse_beside_config_file(options: &Options) -> Result<(), String> {
    let sync = &options.sync;
    if sync.source.is_some() || sync.exclude.is_some() || sync.active {
        return Err("--config-file is mutually exclusive with --sync-from, --sync-exclude and --active".to_owned());
    }
    if !options.remotes.is_empty() {
        return Err("--config-file is mutually exclusive with --remote".to_owned());
    }
    if !options.databases.is_empty() {
        return Err("Databases should be specified in a config file".to_owned());
    }
    Ok(())
}

fn help() -> String {
    format!(
        "{PROGRAM}: Open vSwitch database server\n\
         usage: {PROGRAM} [OPTIONS] [DATABASE...]\n\
         where each DATABASE is a database file in OVSDB format\n\
         (default: {}), or relay:NAME:REMOTE[,REMOTE]...\n\
         \n\
         Remotes:\n\
         \x20 --remote=REMOTE         listen or connect: punix:FILE, ptcp:PORT[:IP], pssl:PORT[:IP],\n\
         \x20                         unix:FILE, tcp:HOST:PORT, ssl:HOST:PORT, or\n\
         \x20                         db:DB,TABLE,COLUMN for those that the database itself names\n\
         \x20 --no-dbs                serve no database at first\n\
         \x20 --config-file=FILE      take databases and remotes from a JSON file, instead of all\n\
         \x20                         other options for them\n\
         \x20 --run=COMMAND           serve for as long as COMMAND runs\n\
         \n\
         Active-backup replication:\n\
         \x20 --sync-from=SERVER      be a backup of SERVER: unix:FILE, tcp:HOST:PORT, ssl:HOST:PORT\n\
         \x20 --sync-exclude-tables=DB:TABLE[,DB:TABLE]...  do not replicate these tables\n\
         \x20 --active                with --sync-from, start in the active role\n\
         {}{}\n\
         Other options:\n\
         \x20 -h, --help              print this help\n\
         \x20 -V, --version           print the version\n",
        paths::default_db_file().display(),
        tls::help(),
        daemon::help(PROGRAM),
    )
}

/// Serves until somebody requests the end.
fn serve(wanted: Wanted) -> Result<ExitCode, String> {
    let mut daemon = daemon::start(wanted.daemon).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start the runtime ({})", os_text(&error)))?;
    let local = LocalSet::new();
    let ended = local.block_on(&runtime, async {
        let signals = daemon::Signals::receive();
        let signals = signals.map_err(|error| format!("cannot receive signals ({})", os_text(&error)))?;
        let server = Server::open(wanted.server).map_err(|error| error.to_string())?;
        let control = unixctl::Server::new(PROGRAM);
        server.register_unixctl(&control);
        let asked = server.clone();
        control.register(
            "exit",
            "",
            0,
            0,
            Box::new(move |_| {
                asked.request_exit();
                Ok(String::new())
            }),
        );
        if let Some(path) = daemon.options().unixctl_path() {
            let listener = unixctl::Server::bind(&path).await;
            let failed = |error| {
                format!(
                    "could not initialize control socket {} ({})",
                    path.display(),
                    os_text(&error)
                )
            };
            spawn_local(control.serve(listener.map_err(failed)?));
        }
        server.run_local().await.map_err(|error| error.to_string())?;
        spawn_local(mgmt::reclaim::run());
        // With `--run` it is a command, not a daemon.
        if wanted.run.is_none() {
            tracing::info!(target: "ovsdb_server", "{}", version::line(PROGRAM));
        }
        daemon.ready();
        // In a task of its own: the runtime polls the future that it blocks on at every event, and
        // this one is large.
        let serving = server.clone();
        let ended = spawn_local(async move {
            tokio::select! {
                () = serving.exit_requested() => Ended::Done(ExitCode::SUCCESS),
                number = signals.end() => Ended::Signal(number),
                result = run_command(wanted.run) => Ended::Command(result),
            }
        });
        let ended = ended.await.map_err(|error| error.to_string())?;
        daemon.announce_end();
        server.shut_down();
        Ok::<Ended, String>(ended)
    })?;
    drop(local);
    drop(runtime);
    drop(daemon);
    match ended {
        Ended::Done(code) => Ok(code),
        Ended::Command(result) => result.map(|()| ExitCode::SUCCESS),
        Ended::Signal(number) => daemon::exit_by_signal(number),
    }
}

enum Ended {
    Done(ExitCode),
    /// The command of `--run` has ended, well or not.
    Command(Result<(), String>),
    Signal(i32),
}

/// Runs the command of `--run`; without one it waits forever.
///
/// # Errors
/// The command did not end with status 0.
async fn run_command(command: Option<String>) -> Result<(), String> {
    let Some(command) = command else {
        return std::future::pending().await;
    };
    let shell = command.clone();
    let status = spawn_blocking(move || Command::new("/bin/sh").arg("-c").arg(shell).status()).await;
    match status.map_err(|error| error.to_string())? {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command}: child exited, {}", daemon::describe_exit(status))),
        Err(error) => Err(format!("{command}: {}", os_text(&error))),
    }
}
