//! `ovsdb-client`: queries, changes and monitors a database server (ovsdb-client(1)).
//!
//! Every command is `COMMAND [SERVER] [DATABASE] ARG…`. The first words are parsed as Open
//! vSwitch's tool does: a word with a colon is a server while more words remain than the command
//! needs, and the next is a database if the server has one of that name.

mod data;
mod help;
mod lock;
mod monitor;
mod restore;
mod schema;
mod wait;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use mgmt::cli::{COMMON, Item, Opt, Order, Parser};
use mgmt::daemon::{self, Daemon, Options};
use mgmt::jsonrpc::{CallError, Connection, Limits};
use mgmt::stream::{Remote, RemoteError, Tls, connect_or_accept, tls};
use mgmt::{os_text, paths};
use serde_json::Value;

use crate::common::{Failure, finish, has_file, parse_timeout, print, run};
use crate::table::{self, Format, Printer, Style, Table};

const PROGRAM: &str = "ovsdb-client";

/// The default database: the switch's.
const DEFAULT_DATABASE: &str = "Open_vSwitch";

/// The server is trusted to send databases of any size that fits.
const LIMITS: Limits = Limits {
    max_bytes: 2 << 30,
    max_depth: 1000,
};

const OPTIONS: &[Opt] = &[
    Opt::value("timeout", Some('t')),
    Opt::flag("force", None),
    Opt::flag("db-change-aware", None),
    Opt::flag("no-db-change-aware", None),
    Opt::flag("leader-only", None),
    Opt::flag("no-leader-only", None),
];

/// Requirements of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// A server's name.
    Server,
    /// A connection.
    Connection,
    /// A connection, and a database of that server.
    Database,
}

/// A command, and how many words it takes after server and database.
struct Command {
    name: &'static str,
    need: Need,
    min: usize,
    max: usize,
}

const fn command(name: &'static str, need: Need, min: usize, max: usize) -> Command {
    Command { name, need, min, max }
}

const COMMANDS: &[Command] = &[
    command("list-dbs", Need::Connection, 0, 0),
    command("get-schema", Need::Database, 0, 0),
    command("get-schema-version", Need::Database, 0, 0),
    command("get-schema-cksum", Need::Database, 0, 0),
    command("list-tables", Need::Database, 0, 0),
    command("list-columns", Need::Database, 0, 1),
    command("transact", Need::Connection, 1, 1),
    command("query", Need::Connection, 1, 1),
    command("dump", Need::Database, 0, usize::MAX),
    command("backup", Need::Database, 0, 0),
    command("restore", Need::Database, 0, 0),
    command("monitor", Need::Database, 1, usize::MAX),
    command("monitor-cond", Need::Database, 2, usize::MAX),
    command("monitor-cond-since", Need::Database, 2, usize::MAX),
    command("convert", Need::Connection, 1, 1),
    command("needs-conversion", Need::Connection, 1, 1),
    command("wait", Need::Server, 2, 2),
    command("lock", Need::Connection, 1, 1),
    command("steal", Need::Connection, 1, 1),
    command("unlock", Need::Connection, 1, 1),
];

/// The parsed command line, and the printer.
struct Client {
    command: String,
    server: String,
    args: Vec<String>,
    style: Style,
    force: bool,
    tls: Tls,
    daemon: Daemon,
    printer: Printer,
}

/// Runs the tool with `args`, which do not hold its name.
pub fn main<I>(args: I) -> ExitCode
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    telemetry::vlog::init(PROGRAM);
    let tables = vec![
        OPTIONS,
        tls::OPTIONS,
        daemon::OPTIONS,
        table::OPTIONS,
        daemon::LOG_OPTIONS,
        COMMON,
    ];
    finish(PROGRAM, execute(Parser::new(args, tables, Order::Mixed)))
}

fn execute(mut parser: Parser) -> Result<(), Failure> {
    let mut options = Options::new(PROGRAM);
    options.keep_stdout = true;
    let mut style = Style::new(Format::Table);
    let mut timeout: Option<Duration> = None;
    let mut force = false;
    let mut keys = tls::Settings::default();
    let mut words: Vec<String> = Vec::new();
    while let Some(item) = parser.next()? {
        match item {
            Item::Arg(word) => words.push(word),
            Item::Opt("timeout", value) => {
                timeout = Some(parse_timeout("-t or --timeout", value.as_deref())?);
            }
            Item::Opt("force", _) => force = true,
            Item::Opt("help", _) => return print(&help::text()),
            Item::Opt("version", _) => {
                return print(&format!("{}\n", telemetry::version::text(PROGRAM)));
            }
            // Databases here are not clustered, so every server leads.
            Item::Opt(name, _) if OPTIONS.iter().any(|o| o.long == name) => {}
            Item::Opt(name, value) => {
                let value = value.as_deref();
                if !has_file(name, value.unwrap_or_default()) {
                    continue;
                }
                if !style.accept(name, value)? && !tls::accept(&mut keys, name, value)? {
                    options.accept(name, value)?;
                }
            }
        }
    }
    if words.is_empty() {
        return Err(Failure::new("missing command name; use --help for help"));
    }
    let name = words.remove(0);
    if name == "help" {
        return print(&help::text());
    }
    let Some(command) = COMMANDS.iter().find(|c| c.name == name) else {
        return Err(Failure::new(format!("unknown command '{name}'; use --help for help")));
    };
    let mut server = paths::default_remote();
    if words.len() > command.min && looks_like_server(&words[0]) {
        server = words.remove(0);
    }
    let detaches = [
        "monitor",
        "monitor-cond",
        "monitor-cond-since",
        "lock",
        "steal",
        "unlock",
    ];
    if !detaches.contains(&command.name) {
        // Other commands are no daemons.
        (options.detach, options.monitor, options.pidfile) = (false, false, None);
    }
    let daemon = daemon::start(options).map_err(|e| Failure::new(e.to_string()))?;
    let mut client = Client {
        command: name,
        server,
        args: words,
        style,
        force,
        tls: Tls::new(keys),
        daemon,
        printer: Printer::new(style),
    };
    run(timeout, client.run(command))
}

impl Client {
    async fn run(&mut self, command: &Command) -> Result<(), Failure> {
        if command.need == Need::Server {
            self.check_words(command)?;
            return wait::run(self).await;
        }
        let mut rpc = self.connect().await?;
        let database = match command.need {
            Need::Database => self.take_database(command, &mut rpc).await?,
            _ => String::new(),
        };
        self.check_words(command)?;
        match command.name {
            "list-dbs" => self.list_dbs(&mut rpc).await,
            "get-schema" => self.get_schema(&mut rpc, &database).await,
            "get-schema-version" => self.get_schema_version(&mut rpc, &database).await,
            "get-schema-cksum" => self.get_schema_cksum(&mut rpc, &database).await,
            "list-tables" => self.list_tables(&mut rpc, &database).await,
            "list-columns" => self.list_columns(&mut rpc, &database).await,
            "transact" => self.transact(&mut rpc).await,
            "query" => self.query(&mut rpc).await,
            "dump" => self.dump(&mut rpc, &database).await,
            "backup" => self.backup(&mut rpc, &database).await,
            "restore" => self.restore(&mut rpc, &database).await,
            "convert" => self.convert(&mut rpc).await,
            "needs-conversion" => self.needs_conversion(&mut rpc).await,
            "lock" | "steal" | "unlock" => lock::run(self, rpc).await,
            _ => monitor::run(self, rpc, &database).await,
        }
    }

    /// A connection to the server, or to the first that answers of a list set apart by commas.
    async fn connect(&self) -> Result<Connection, Failure> {
        let names = split_servers(&self.server);
        let mut failure = Failure::new("no server");
        for name in names {
            match connect(name, &self.tls).await {
                Ok(rpc) => return Ok(rpc),
                Err(e) => failure = e,
            }
        }
        Err(failure)
    }

    /// The database named next, if the server has it, or the default one.
    async fn take_database(&mut self, command: &Command, rpc: &mut Connection) -> Result<String, Failure> {
        let databases = self.fetch_databases(rpc).await?;
        if self.args.len() > command.min && databases.contains(&self.args[0]) {
            return Ok(self.args.remove(0));
        }
        if databases.iter().any(|db| db == DEFAULT_DATABASE) {
            return Ok(DEFAULT_DATABASE.to_owned());
        }
        // A server with one database of its own means that one.
        let mut own = databases.iter().filter(|db| !db.starts_with('_'));
        match (own.next(), own.next()) {
            (Some(only), None) => Ok(only.clone()),
            _ => Err(Failure::new(
                "no default database for remote server, please specify a database name",
            )),
        }
    }

    fn check_words(&self, command: &Command) -> Result<(), Failure> {
        if (command.min..=command.max).contains(&self.args.len()) {
            return Ok(());
        }
        let name = command.name;
        Err(Failure::new(format!(
            "invalid syntax for '{name}' (use --help for help)"
        )))
    }

    /// The result of a request. An error reply ends the tool.
    async fn call(&self, rpc: &mut Connection, method: &str, params: Vec<Value>) -> Result<Value, Failure> {
        rpc.call(method, params).await.map_err(|e| self.call_failure(e))
    }

    fn call_failure(&self, error: CallError) -> Failure {
        match error {
            CallError::Remote(error) => {
                Failure::new(format!("transaction returned error: {}", self.style.json(&error)))
            }
            other => Failure::new(format!("transaction failed ({})", bare_text(&other))),
        }
    }

    /// The connection is over.
    fn lost(&self, error: &dyn std::fmt::Display) -> Failure {
        let text = bare_text(error);
        Failure::new(format!("{}: receive failed ({text})", self.server))
    }

    fn print_table(&mut self, table: &Table) -> Result<(), Failure> {
        print(&self.printer.print(table))
    }

    fn print_json(&self, value: &Value) -> Result<(), Failure> {
        print(&format!("{}\n", self.style.json(value)))
    }
}

/// An error without the system's number behind it.
fn bare_text(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

async fn connect(name: &str, tls: &Tls) -> Result<Connection, Failure> {
    let what = if name.starts_with('p') {
        "connect or listen to"
    } else {
        "connect to"
    };
    let remote: Remote = name.parse().map_err(|e: RemoteError| {
        // As with Open vSwitch's tool, the log has the details; the error is the system's.
        tracing::error!(target: "stream", "{e}");
        Failure::new(format!(
            "failed to connect or listen to \"{name}\" (Address family not supported by protocol)"
        ))
    })?;
    match connect_or_accept(&remote, tls).await {
        Ok(stream) => Ok(Connection::with_limits(stream, LIMITS)),
        Err(e) => Err(Failure::new(format!("failed to {what} \"{name}\" ({})", os_text(&e)))),
    }
}

fn looks_like_server(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.contains(':')
}

/// The servers of a list. A comma belongs to a name unless a connection method follows it.
fn split_servers(list: &str) -> Vec<&str> {
    let mut servers = Vec::new();
    let mut from = 0;
    for (at, _) in list.match_indices(',') {
        if Remote::looks_like(&list[at + 1..]) {
            servers.push(&list[from..at]);
            from = at + 1;
        }
    }
    servers.push(&list[from..]);
    servers
}
