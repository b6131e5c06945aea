//! The command lines of `oxvs run` and `oxvs vswitchd`.

use crate::rows::Dummies;
use mgmt::cli::{COMMON, Error, Item, Opt, Order, Parser};
use mgmt::daemon;
use mgmt::stream::tls;
use std::ffi::OsString;

/// Which of the two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// Database and switch in one process.
    Run,
    /// The switch alone.
    Vswitchd,
}

impl Program {
    /// The name in the paths of sockets, pidfiles and logs, where tools expect it.
    pub(crate) const NAME: &str = "ovs-vswitchd";
}

/// The parsed command line.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) daemon: daemon::Options,
    pub(crate) dummies: Dummies,
    /// The NUMA nodes of invented cores (`--dummy-numa`).
    pub(crate) dummy_numa: Option<String>,
    /// Whether the kernel's routes are in the routing table.
    pub(crate) system_routes: bool,
    /// `run`: database files; `vswitchd`: at most one remote.
    pub(crate) args: Vec<String>,
    /// `run`: where else the database listens.
    pub(crate) remotes: Vec<String>,
    /// The keys of connections under TLS, unless the database names others.
    pub(crate) tls: tls::Settings,
}

/// The parsed action.
#[derive(Debug)]
pub(crate) enum Asked {
    Serve(Box<Options>),
    /// Print this and exit.
    Print(String),
}

const OPTIONS: &[Opt] = &[
    Opt::maybe("enable-dummy", None),
    Opt::value("dummy-numa", None),
    Opt::flag("disable-system", None),
    Opt::flag("dpdk", None),
    Opt::flag("disable-system-route", None),
];

const RUN_OPTIONS: &[Opt] = &[Opt::value("remote", None)];

pub(crate) fn parse(program: Program, args: &mut dyn Iterator<Item = OsString>) -> Result<Asked, Error> {
    let mut tables = vec![COMMON, OPTIONS, tls::OPTIONS, daemon::OPTIONS, daemon::LOG_OPTIONS];
    if program == Program::Run {
        tables.push(RUN_OPTIONS);
    }
    let mut parser = Parser::new(args, tables, Order::Mixed);
    let mut options = Options {
        daemon: daemon::Options::with_devices(Program::NAME),
        dummies: Dummies::Off,
        dummy_numa: None,
        system_routes: true,
        args: Vec::new(),
        remotes: Vec::new(),
        tls: tls::Settings::default(),
    };
    while let Some(item) = parser.next()? {
        match item {
            Item::Arg(arg) => options.args.push(arg),
            Item::Opt("help", _) => return Ok(Asked::Print(help(program))),
            Item::Opt("version", _) => {
                return Ok(Asked::Print(format!("{}\n", telemetry::version::text(Program::NAME))));
            }
            Item::Opt("enable-dummy", value) => options.dummies = dummies(value.as_deref())?,
            Item::Opt("dpdk", _) => {
                return Err(Error("Using --dpdk to configure DPDK is not supported.".to_owned()));
            }
            Item::Opt("dummy-numa", value) => options.dummy_numa = value,
            Item::Opt("disable-system-route", _) => options.system_routes = false,
            Item::Opt("remote", value) => options.remotes.extend(value),
            Item::Opt(name, value)
                if program == Program::Run && tls::accept_column(&mut options.tls, name, value.as_deref()) => {}
            Item::Opt(name, value) => {
                if !tls::accept(&mut options.tls, name, value.as_deref())? {
                    options.daemon.accept(name, value.as_deref())?;
                }
            }
        }
    }
    let most = if program == Program::Run { usize::MAX } else { 1 };
    if options.args.len() > most {
        return Err(Error(
            "at most one non-option argument accepted; use --help for usage".to_owned(),
        ));
    }
    Ok(Asked::Serve(Box::new(options)))
}

fn dummies(value: Option<&str>) -> Result<Dummies, Error> {
    match value {
        None | Some("") => Ok(Dummies::Allowed),
        Some("override") => Ok(Dummies::Override),
        Some("system") => Ok(Dummies::System),
        Some(other) => Err(Error(format!("{other}: unknown dummy level"))),
    }
}

fn help(program: Program) -> String {
    let usage = match program {
        Program::Run => format!(
            "oxvs run: the whole switch in one process, database and datapath\n\
             usage: oxvs run [OPTIONS] [DATABASE]\n\
             DATABASE is created if it does not exist (default: {db}).\n\n\
             Options:\n  \
               --remote=REMOTE         listen for clients at REMOTE too: punix:FILE, ptcp:[PORT][:IP],\n                          \
                                       pssl:[PORT][:IP], … (always: punix:{sock}\n                          \
                                       and the managers that the database names)\n",
            db = mgmt::paths::default_db_file().display(),
            sock = mgmt::paths::in_rundir("db.sock").display(),
        ),
        Program::Vswitchd => format!(
            "oxvs vswitchd: the switch alone, configured by a separate database server\n\
             usage: oxvs vswitchd [OPTIONS] [DATABASE]\n\
             DATABASE is a socket on which ovsdb-server is listening\n\
             (default: \"{remote}\").\n\n\
             Options:\n",
            remote = mgmt::paths::default_remote(),
        ),
    };
    format!(
        "{usage}  --enable-dummy[=system|override]\n                          test devices beside the kernel's, or instead of them\n  \
           --dummy-numa=NODES      the NUMA nodes of invented cores, for tests\n  \
           -h, --help              this text\n  \
           -V, --version           versions\n{}{}",
        tls::help(),
        daemon::help(Program::NAME)
    )
}
