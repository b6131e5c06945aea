//! Start and end of the daemon's process.

use crate::captures;
use crate::commands;
use crate::daemon::Daemon;
use crate::embedded;
use crate::exports::Exports;
use crate::keys::Keys;
use crate::left_flows;
use crate::openflow::OpenFlow;
use crate::options::{self, Asked, Options, Program};
use crate::rows::Dummies;
use crate::selection;
use crate::state::State;
use anyhow::{Context, anyhow};
use mgmt::daemon as process;
use mgmt::idl::IdlConnection;
use mgmt::pidfile::Pidfile;
use mgmt::stream::{Listener, Remote, Tls, tls};
use mgmt::unixctl;
use std::cell::RefCell;
use std::ffi::OsString;
use std::pin::pin;
use std::process::ExitCode;
use std::rc::Rc;
use tokio::task::LocalSet;

/// `oxvs run`: the whole switch in one process.
pub fn run(args: &mut dyn Iterator<Item = OsString>) -> ExitCode {
    start(Program::Run, args)
}

/// `oxvs vswitchd`: the switch alone.
pub fn main(args: &mut dyn Iterator<Item = OsString>) -> ExitCode {
    start(Program::Vswitchd, args)
}

fn start(program: Program, args: &mut dyn Iterator<Item = OsString>) -> ExitCode {
    telemetry::vlog::init(Program::NAME);
    let called = match program {
        Program::Run => "oxvs run",
        Program::Vswitchd => Program::NAME,
    };
    let options = match options::parse(program, args) {
        Ok(Asked::Print(text)) => {
            mgmt::out!("{text}");
            return ExitCode::SUCCESS;
        }
        Ok(Asked::Serve(options)) => *options,
        Err(error) => {
            eprintln!("{called}: {error}");
            return ExitCode::FAILURE;
        }
    };
    match serve(program, options) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(signal)) => process::exit_by_signal(signal),
        Err(error) => {
            // A daemon's user may see its log only.
            telemetry::vlog::fatal("daemon", &format!("{error:#}"));
            eprintln!("{called}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The nice value of all threads, if the process may set it; they inherit it from this one. Packets
/// go before other work, and so does this thread, since workers can wait for its changes of the
/// tables. At -10 a worker preempts the sender at each packet and carries packets one by one, which
/// gives TCP three quarters of the throughput.
const NICE: i32 = -5;

/// Serves until a command or signal ends it. Returns the signal's number, if any.
fn serve(program: Program, mut options: Options) -> anyhow::Result<Option<i32>> {
    if program == Program::Run && options.daemon.pidfile.is_none() {
        // Tools find the control socket by the pidfile.
        options.daemon.accept("pidfile", None)?;
    }
    if program == Program::Run {
        embedded::make_directories(&options)?;
    }
    let process = process::start(options.daemon.clone()).map_err(|error| anyhow!("{error}"))?;
    let pidfile = match program {
        Program::Run => Some(embedded::pidfile(&options)?),
        Program::Vswitchd => None,
    };
    let life = Rc::new(Life {
        process: RefCell::new(process),
        pidfile,
    });
    // Without the nice value the switch only has more latency.
    let _ = sys::thread::set_nice(NICE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    let ended = local.block_on(&runtime, async {
        let signals = process::Signals::receive().context("receiving signals")?;
        let mut switching = pin!(switch(program, &options, &life));
        let ended = tokio::select! {
            signal = signals.end() => Ok(Some(signal)),
            result = &mut switching => result.map(|()| None),
        };
        life.announce_end();
        ended
    });
    // In this order, so that sockets and devices are released before the pidfiles go.
    drop(local);
    drop(runtime);
    drop(life);
    ended
}

/// The files and sockets that identify the daemon.
struct Life {
    process: RefCell<process::Daemon>,
    /// That of the embedded database's server.
    pidfile: Option<Pidfile>,
}

impl Life {
    fn announce_end(&self) {
        self.process.borrow().announce_end();
        if let Some(pidfile) = &self.pidfile {
            pidfile.announce_end();
        }
    }
}

async fn switch(program: Program, options: &Options, life: &Life) -> anyhow::Result<()> {
    let seed = uuid::Uuid::new_v4().as_u128();
    let idl = selection::idl(seed);
    let tls = Tls::default();
    let state = State::start(seed as u64, tls.clone(), options);
    let state = Rc::new(state.context("starting the datapath")?);
    tokio::task::spawn_local(OpenFlow::deliver(state.clone()));
    tokio::task::spawn_local(OpenFlow::watch(state.clone()));
    tokio::task::spawn_local(Exports::run(state.clone()));
    tokio::task::spawn_local(left_flows::watch(state.clone()));
    tokio::task::spawn_local(mgmt::reclaim::run());
    let control = unixctl::Server::new(Program::NAME);
    commands::register(&control, &state);

    let database = match program {
        Program::Run => Some(embedded::start(options, &tls).await?),
        Program::Vswitchd => None,
    };
    // The embedded database manages keys from its own options, perhaps from its columns.
    let keys = match program {
        Program::Run if options.tls != tls::Settings::default() => None,
        _ => Some(Keys::new(tls.clone(), options.tls.clone())),
    };
    let db = match &database {
        Some(database) => IdlConnection::over(idl, database.server.connect_in_memory()?),
        None => {
            let remote = options
                .args
                .first()
                .cloned()
                .unwrap_or_else(mgmt::paths::default_remote);
            IdlConnection::to(
                idl,
                remote.parse::<Remote>().map_err(|error| anyhow!("{remote}: {error}"))?,
                tls.clone(),
            )
        }
    };
    if let Some(path) = options.daemon.unixctl_path() {
        let listener = unixctl::Server::bind(&path).await;
        let listener: Listener = listener.with_context(|| format!("cannot listen on {}", path.display()))?;
        tokio::task::spawn_local(control.serve(listener));
        let captures = unixctl::Server::bind(&path.with_extension("capture")).await;
        let captures = captures.with_context(|| format!("cannot listen beside {}", path.display()))?;
        tokio::task::spawn_local(captures::serve(state.clone(), captures));
    }
    let version = telemetry::version::line(Program::NAME);
    tracing::info!(target: "bridge", "{}", version.lines().next().unwrap_or_default());

    if options.dummies != Dummies::Off {
        openflow::accept_test_actions();
    }
    let home = database.as_ref().map(|database| database.home.clone());
    let daemon = Daemon::new(state, db, home, keys)?;
    let mut switching = pin!(daemon.run(|| life.process.borrow_mut().ready()));
    let ended = match &database {
        Some(database) => tokio::select! {
            result = &mut switching => result,
            () = database.server.exit_requested() => Ok(()),
        },
        None => switching.as_mut().await,
    };
    life.announce_end();
    ended
}
