//! `ovsdb-tool`: creates, changes and reads database files that no server has open (ovsdb-tool(1)).
//!
//! Standalone files only: clustered ones are recognized and refused.

mod file;
mod show_log;

use std::cmp::Ordering;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use mgmt::cli::{COMMON, Item, Opt, Order, Parser};
use mgmt::{daemon, paths};
use ovsdb::log::{commit_record, schema_record, snapshot_record};
use ovsdb::{Database, DatabaseSchema, Outcome, Rbac, TxnCtx, schemas};
use serde_json::{Value, json};
use telemetry::version;

use crate::common::{Failure, command, finish, list_commands, parse_json, print, read_schema};
use file::{Kind, Locked};

const PROGRAM: &str = "ovsdb-tool";

const OPTIONS: &[Opt] = &[
    Opt::flag("more", Some('m')),
    Opt::value("rbac-role", None),
    Opt::value("cid", None),
    Opt::value("election-timer", None),
];

/// The commands: their arguments as `list-commands` prints them, fewest and most of them.
const COMMANDS: &[(&str, &str, usize, usize)] = &[
    ("create", "[db [schema]]", 0, 2),
    ("create-cluster", "db contents local", 3, 3),
    ("join-cluster", "db name local remote...", 4, usize::MAX),
    ("compact", "[db [dst]]", 0, 2),
    ("convert", "[db [schema [dst]]]", 0, 3),
    ("needs-conversion", "", 0, 2),
    ("db-name", "[db]", 0, 1),
    ("db-version", "[db]", 0, 1),
    ("db-cksum", "[db]", 0, 1),
    ("db-cid", "db", 1, 1),
    ("db-sid", "db", 1, 1),
    ("db-local-address", "db", 1, 1),
    ("db-is-clustered", "db", 1, 1),
    ("db-is-standalone", "db", 1, 1),
    ("schema-name", "[schema]", 0, 1),
    ("schema-version", "[schema]", 0, 1),
    ("schema-cksum", "[schema]", 0, 1),
    ("query", "[db] trns", 1, 2),
    ("transact", "[db] trns", 1, 2),
    ("show-log", "[db]", 0, 1),
    ("check-cluster", "db...", 1, usize::MAX),
    ("compare-versions", "a op b", 3, 3),
    ("help", "", 0, usize::MAX),
    ("list-commands", "", 0, usize::MAX),
    ("cluster-to-standalone", "db clusterdb", 2, 2),
];

/// Runs the tool with `args`, which do not hold its name. Exit status 2: the answer is no.
pub fn main<I>(args: I) -> ExitCode
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    telemetry::vlog::init(PROGRAM);
    let tables = vec![OPTIONS, daemon::LOG_OPTIONS, COMMON];
    finish(PROGRAM, execute(Parser::new(args, tables, Order::Mixed)))
}

fn execute(mut parser: Parser) -> Result<(), Failure> {
    let (mut detail, mut role) = (0, None);
    let mut words: Vec<String> = Vec::new();
    while let Some(item) = parser.next()? {
        match item {
            Item::Arg(word) => words.push(word),
            Item::Opt("more", _) => detail += 1,
            Item::Opt("help", _) => return print(&help()),
            Item::Opt("version", _) => return print(&format!("{}\n", version::text(PROGRAM))),
            Item::Opt("rbac-role", value) => role = value,
            Item::Opt("cid" | "election-timer", _) => {}
            Item::Opt(name, value) => {
                daemon::accept_tool_log(PROGRAM, name, value.as_deref())?;
            }
        }
    }
    let ((name, ..), args) = command(COMMANDS, &words, |(name, _, fewest, most)| (name, *fewest, *most))?;
    run(name, args, detail, role.as_deref())
}

fn run(command: &str, words: &[String], detail: u32, role: Option<&str>) -> Result<(), Failure> {
    let default_db = paths::default_db_file().display().to_string();
    let db = words.first().unwrap_or(&default_db);
    match command {
        "list-commands" => print(&list_commands(COMMANDS.iter().map(|(name, usage, ..)| (*name, *usage)))),
        "create" => create(db, &schema(words.get(1))?),
        "compact" => compact(db, words.get(1)),
        "convert" => convert(db, &schema(words.get(1))?, words.get(2)),
        "needs-conversion" => {
            let differs = schema(words.get(1))? != file::read_schema(db)?;
            print(if differs { "yes\n" } else { "no\n" })
        }
        "db-name" => print(&format!("{}\n", file::read_schema(db)?.name())),
        "db-version" => print(&format!("{}\n", file::read_schema(db)?.version())),
        "db-cksum" => print(&format!("{}\n", file::read_schema(db)?.cksum())),
        "schema-name" => print(&format!("{}\n", schema(words.first())?.name())),
        "schema-version" => print(&format!("{}\n", schema(words.first())?.version())),
        "schema-cksum" => print(&format!("{}\n", schema(words.first())?.cksum())),
        "db-is-clustered" => answer(file::kind(db)? == Kind::Clustered),
        "db-is-standalone" => answer(file::kind(db)? == Kind::Standalone),
        "compare-versions" => answer(compare_versions(&words[0], &words[1], &words[2])?),
        "query" | "transact" => {
            let db = if words.len() > 1 { db } else { &default_db };
            let transaction = parse_json(&words[words.len() - 1])?;
            if command == "query" {
                query(db, &transaction, role)
            } else {
                transact(db, &transaction, role)
            }
        }
        "show-log" => show_log::show_log(db, detail),
        "db-cid" | "db-sid" | "db-local-address" => match file::kind(db)? {
            Kind::Standalone => Err(Failure::new(format!("{db}: not a clustered database"))),
            Kind::Clustered => Err(clusters_unsupported()),
        },
        "cluster-to-standalone" if file::kind(&words[1])? == Kind::Standalone => {
            Err(Failure::new("Database is not clustered db.\n"))
        }
        "help" => print(&help()),
        _ => Err(clusters_unsupported()),
    }
}

fn create(db: &str, schema: &DatabaseSchema) -> Result<(), Failure> {
    Locked::new(db)?.create(&schema_record(schema))
}

fn compact(db: &str, target: Option<&String>) -> Result<(), Failure> {
    file::check_standalone(db)?;
    rewrite(db, target, "compacted", Ok)
}

fn convert(db: &str, schema: &DatabaseSchema, target: Option<&String>) -> Result<(), Failure> {
    file::check_standalone(db)?;
    rewrite(db, target, "converted", |database| {
        let seed = uuid::Uuid::new_v4().as_u128();
        database
            .convert(schema.clone(), seed)
            .map_err(|e| Failure::new(e.to_string()))
    })
}

/// Writes what `change` makes of the database as one transaction, over the file or as another.
fn rewrite(
    db: &str,
    target: Option<&String>,
    what: &str,
    change: impl FnOnce(Database) -> Result<Database, Failure>,
) -> Result<(), Failure> {
    let source = Locked::try_new(db)?;
    let target = target.map(|name| Locked::try_new(name)).transpose()?;
    let database = change(file::load(db)?.database)?;
    let comment = format!("{what} by {PROGRAM} {}", version::COMPATIBLE);
    let mut bytes = schema_record(database.schema());
    bytes.extend(snapshot_record(&database, Some(&comment), now()).unwrap_or_default());
    target.as_ref().unwrap_or(&source).replace(&bytes)
}

fn query(db: &str, transaction: &Value, role: Option<&str>) -> Result<(), Failure> {
    let mut database = file::load(db)?.database;
    // Changes stay in this copy.
    let (reply, _) = apply(&mut database, transaction, role);
    print(&format!("{reply}\n"))
}

fn transact(db: &str, transaction: &Value, role: Option<&str>) -> Result<(), Failure> {
    let locked = Locked::new(db)?;
    let mut loaded = file::load(db)?;
    let (reply, commit) = apply(&mut loaded.database, transaction, role);
    if let Some(commit) = commit
        && let Some(record) = commit_record(loaded.database.schema(), &commit, now())
    {
        locked.append(loaded.good_length, &record)?;
    }
    print(&format!("{reply}\n"))
}

/// Executes a transaction, for a client with `role` that has no name of its own.
fn apply(
    database: &mut Database,
    transaction: &Value,
    role: Option<&str>,
) -> (Value, Option<std::sync::Arc<ovsdb::Commit>>) {
    let name = database.schema().name();
    let operations = match transaction.as_array().map(Vec::as_slice) {
        Some([first, operations @ ..]) if first == name => operations,
        _ => {
            let error = json!({
                "error": "syntax error",
                "details": "database name expected as first parameter",
                "syntax": transaction.to_string(),
            });
            return (error, None);
        }
    };
    let context = TxnCtx {
        rbac: role.map(|role| Rbac { role, client: None }),
        ..TxnCtx::PLAIN
    };
    match database.transact(operations, &context) {
        Outcome::Done { reply, commit } => (reply, commit),
        // Nothing will change the file meanwhile.
        Outcome::Blocked { .. } => (
            json!([{"error": "not supported", "details": "triggers not supported"}]),
            None,
        ),
    }
}

/// The schema in the file named, else in the installed one, else the one built in.
fn schema(name: Option<&String>) -> Result<DatabaseSchema, Failure> {
    let default = paths::default_schema_file();
    match name {
        Some(name) => read_schema(name),
        None if default.exists() => read_schema(&default.display().to_string()),
        None => DatabaseSchema::from_text(schemas::OPEN_VSWITCH).map_err(|e| Failure::new(e.to_string())),
    }
}

fn compare_versions(a: &str, operator: &str, b: &str) -> Result<bool, Failure> {
    let (a, b) = (parse_version(a)?, parse_version(b)?);
    let order = a.cmp(&b);
    match operator {
        "<" => Ok(order == Ordering::Less),
        "<=" => Ok(order != Ordering::Greater),
        "==" => Ok(order == Ordering::Equal),
        ">=" => Ok(order != Ordering::Less),
        ">" => Ok(order == Ordering::Greater),
        "!=" => Ok(order != Ordering::Equal),
        _ => Err(Failure::new(format!("{operator}: not a relational operator"))),
    }
}

fn parse_version(text: &str) -> Result<Vec<u64>, Failure> {
    let parts: Result<Vec<u64>, _> = text.split('.').map(str::parse).collect();
    parts
        .ok()
        .filter(|p| p.len() == 3)
        .ok_or_else(|| Failure::new(format!("{text}: not an OVSDB version number in format x.y.z")))
}

/// Yes is status 0, no is status 2.
fn answer(yes: bool) -> Result<(), Failure> {
    if yes {
        Ok(())
    } else {
        Err(Failure {
            message: String::new(),
            status: 2,
        })
    }
}

fn clusters_unsupported() -> Failure {
    Failure::new("clustered databases are not supported yet (\"create\" makes a standalone database)")
}

/// Milliseconds since the epoch.
fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis() as i64
}

fn help() -> String {
    format!(
        "\
{PROGRAM}: looks after database files that no server has open
usage: {PROGRAM} [OPTIONS] COMMAND [ARG...]

Making and rewriting:
  create [DB [SCHEMA]]          make a file DB with SCHEMA and nothing in it
  compact [DB [TARGET]]         leave out the past, in DB or in the new file TARGET
  convert [DB [SCHEMA [TARGET]]]  convert to SCHEMA, in DB or in the new file TARGET

Reading and changing:
  show-log [DB]                 the transactions in DB; -m: what rows they changed, -mm: how
  query [DB] TRANSACTION        run a transaction (JSON, as for \"transact\"), keeping nothing
  transact [DB] TRANSACTION     run it and keep what it changes

Questions:
  needs-conversion [DB [SCHEMA]]  does DB's schema differ from SCHEMA? yes or no
  db-name [DB]                  the name of DB's schema
  db-version [DB]               its version
  db-cksum [DB]                 its checksum
  schema-name [SCHEMA]          the name in a schema file
  schema-version [SCHEMA]       its version
  schema-cksum [SCHEMA]         its checksum
  db-is-standalone DB           is DB the file of one server? status 0 for yes, 2 for no
  db-is-clustered DB            is DB the file of a cluster's server?
  compare-versions A OP B       OP is < <= == >= > or !=: status 0 for yes, 2 for no

The default DB is {db}.
The default SCHEMA is {schema}, or where that is missing the one built in.

Clustered databases are not supported yet. These commands end with an error:
  create-cluster DB CONTENTS LOCAL
  join-cluster DB NAME LOCAL REMOTE...
  db-cid DB
  db-sid DB
  db-local-address DB
  cluster-to-standalone DB DB
and these options have no effect: --cid=UUID, --election-timer=MS.

  --rbac-role=ROLE              query and transact as a client with that role
{log}
Other options:
  -m, --more                    more about each transaction (show-log)
  -h, --help                    show this text
  -V, --version                 show the version of this program
",
        db = paths::default_db_file().display(),
        schema = paths::default_schema_file().display(),
        log = daemon::log_help(PROGRAM),
    )
}
