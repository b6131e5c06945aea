//! The database in the switch's own process.
//!
//! It is served as if it were a process of its own, pidfile and control socket included, so that
//! `ovs-appctl -t ovsdb-server` and scripts find it.

use crate::options::Options;
use anyhow::{Context, anyhow};
use mgmt::os_text;
use mgmt::paths;
use mgmt::pidfile::{Pidfile, PidfileError};
use mgmt::stream::Tls;
use mgmt::unixctl;
use ovsdb_server::Server;
use std::path::{Path, PathBuf};

const PROGRAM: &str = "ovsdb-server";

/// The remotes that users set with `set-manager`.
const MANAGERS: &str = "db:Open_vSwitch,Open_vSwitch,manager_options";

/// The served database. Dropping it syncs the file and ends the server.
pub(crate) struct Embedded {
    pub(crate) server: Server,
    /// The directory of the first database's file, as an absolute path, because a daemon changes
    /// its working directory.
    pub(crate) home: PathBuf,
    control: PathBuf,
}

/// The pidfile of the database's server. Waits for a server that is ending.
///
/// # Errors
/// As those of [`Pidfile::create`].
pub(crate) fn pidfile(options: &Options) -> Result<Pidfile, PidfileError> {
    let path = paths::in_rundir(format!("{PROGRAM}.pid"));
    Pidfile::create(&path, options.daemon.overwrite_pidfile)
}

/// Makes the directories for sockets, pidfiles, databases and the log, which do not exist on a new
/// machine.
///
/// # Errors
/// The directory that cannot be made, and why.
pub(crate) fn make_directories(options: &Options) -> anyhow::Result<()> {
    let mut files = databases(options);
    files.push(socket());
    files.extend(options.daemon.pidfile.clone());
    files.extend(options.daemon.log_file.clone());
    files.iter().try_for_each(|file| make_parent(file))
}

fn databases(options: &Options) -> Vec<PathBuf> {
    match options.args.is_empty() {
        true => vec![paths::default_db_file()],
        false => options.args.iter().map(PathBuf::from).collect(),
    }
}

fn socket() -> PathBuf {
    paths::in_rundir("db.sock")
}

/// Opens the databases, and serves them where clients look for them.
pub(crate) async fn start(options: &Options, tls: &Tls) -> anyhow::Result<Embedded> {
    let databases = databases(options);
    let first = std::path::absolute(&databases[0]).context("the current directory")?;
    let home = first.parent().map(Path::to_owned).unwrap_or_default();
    let socket = socket();
    let mut remotes = vec![format!("punix:{}", socket.display()), MANAGERS.to_owned()];
    for remote in &options.remotes {
        if !remotes.contains(remote) {
            remotes.push(remote.clone());
        }
    }
    let server = Server::open(ovsdb_server::Options {
        databases,
        remotes,
        schema: Some(ovsdb::schemas::OPEN_VSWITCH.to_owned()),
        max_sessions: 0,
        memory_budget: 0,
        config_file: None,
        sync: ovsdb_server::SyncOptions::default(),
        tls_settings: options.tls.clone(),
        tls: tls.clone(),
    })?;
    server.run_local().await?;

    let control = paths::in_rundir(format!("{PROGRAM}.{}.ctl", std::process::id()));
    let commands = unixctl::Server::new(PROGRAM);
    server.register_unixctl(&commands);
    let exiting = server.clone();
    commands.register(
        "exit",
        "",
        0,
        0,
        Box::new(move |_| {
            exiting.request_exit();
            Ok(String::new())
        }),
    );
    let listener = unixctl::Server::bind(&control).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", control.display()))?;
    tokio::task::spawn_local(commands.serve(listener));
    Ok(Embedded { server, home, control })
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.server.shut_down();
        // Nobody can connect to a socket that is already gone, so the error does not matter.
        let _ = std::fs::remove_file(&self.control);
    }
}

fn make_parent(file: &Path) -> anyhow::Result<()> {
    match file.parent() {
        Some(dir) => std::fs::create_dir_all(dir)
            .map_err(|error| anyhow!("cannot make the directory {}: {}", dir.display(), os_text(&error))),
        None => Ok(()),
    }
}
