//! The commands of the server's control socket (ovsdb-server(1), "Runtime management commands").

use std::path::Path;
use std::rc::Rc;

use mgmt::unixctl;
use mgmt::{os_text, reclaim};

use crate::core::Close;
use crate::server::{Inner, Server};
use crate::source::SourceOptions;

/// Commands that change what a configuration file says; refused beside one.
const CONFIGURATION: &[&str] = &[
    "ovsdb-server/add-db",
    "ovsdb-server/add-remote",
    "ovsdb-server/connect-active-ovsdb-server",
    "ovsdb-server/disconnect-active-ovsdb-server",
    "ovsdb-server/remove-db",
    "ovsdb-server/remove-remote",
    "ovsdb-server/set-active-ovsdb-server",
    "ovsdb-server/set-active-ovsdb-server-probe-interval",
    "ovsdb-server/set-relay-source-probe-interval",
    "ovsdb-server/set-sync-exclude-tables",
];

impl Server {
    /// Adds the server's commands to a control socket, and its figures to `memory/show`. The daemon
    /// adds `exit`.
    pub fn register_unixctl(&self, control: &unixctl::Server) {
        let add = |name: &str,
                   usage: &str,
                   args: (usize, usize),
                   run: fn(&Rc<Inner>, &[String]) -> Result<String, String>| {
            let inner = self.inner.clone();
            let fixed = CONFIGURATION.contains(&name);
            let run = move |args: &[String]| {
                if fixed {
                    inner.refuse_beside_config_file()?;
                }
                run(&inner, args)
            };
            control.register(name, usage, args.0, args.1, Box::new(run));
        };
        add("ovsdb-server/reload", "", (0, 0), |inner, _| {
            inner.reload().map(|()| String::new())
        });
        add("ovsdb-server/list-dbs", "", (0, 0), |inner, _| {
            Ok(lines(inner.core.borrow().database_names()))
        });
        add("ovsdb-server/add-db", "DB", (1, 1), |inner, args| {
            let added = match args[0].strip_prefix("relay:") {
                Some(relay) => inner.add_relay(relay, SourceOptions::default()),
                None => inner.add_database(Path::new(&args[0]), None),
            };
            added.map(|_| String::new()).map_err(|error| error.to_string())
        });
        add("ovsdb-server/remove-db", "DB", (1, 1), |inner, args| {
            remove_db(inner, &args[0])
        });
        add("ovsdb-server/add-remote", "REMOTE", (1, 1), |inner, args| {
            inner.add_remote(&args[0]).map(|()| String::new())
        });
        add(
            "ovsdb-server/remove-remote",
            "REMOTE",
            (1, 1),
            |inner, args| match inner.remove_remote(&args[0]) {
                true => Ok(String::new()),
                false => Err("no such remote".to_owned()),
            },
        );
        add("ovsdb-server/list-remotes", "", (0, 0), |inner, _| {
            Ok(lines(inner.remotes.borrow().configured()))
        });
        add("ovsdb-server/reconnect", "", (0, 0), |inner, _| {
            let reason = Close::Info("disconnecting (user ran ovsdb-server/reconnect)".into());
            inner
                .core
                .borrow_mut()
                .close_all(&reason, |options| !options.remote.is_empty());
            inner.flush_soon();
            Ok(String::new())
        });
        add("ovsdb-server/sync-status", "", (0, 0), |inner, _| {
            Ok(inner.sync_status())
        });
        add("ovsdb-server/set-active-ovsdb-server", "", (1, 1), |inner, args| {
            inner.set_active_server(&args[0]);
            Ok(String::new())
        });
        add("ovsdb-server/get-active-ovsdb-server", "", (0, 0), |inner, _| {
            Ok(inner.active_server())
        });
        add("ovsdb-server/connect-active-ovsdb-server", "", (0, 0), |inner, _| {
            inner.become_backup()
        });
        add("ovsdb-server/disconnect-active-ovsdb-server", "", (0, 0), |inner, _| {
            inner.become_active();
            Ok(String::new())
        });
        add(
            "ovsdb-server/set-active-ovsdb-server-probe-interval",
            "",
            (1, 1),
            |inner, args| inner.set_active_server_probe(&args[0]),
        );
        add(
            "ovsdb-server/set-relay-source-probe-interval",
            "",
            (1, 1),
            |inner, args| inner.set_relay_probe(&args[0]),
        );
        add("ovsdb-server/set-sync-exclude-tables", "", (1, 1), |inner, args| {
            inner.set_excluded(&args[0]);
            Ok(String::new())
        });
        add("ovsdb-server/get-sync-exclude-tables", "", (0, 0), |inner, _| {
            Ok(inner.excluded())
        });
        add("ovsdb-server/get-db-storage-status", "DB", (1, 1), |inner, args| {
            let known = inner.core.borrow().database(&args[0]).is_some();
            if known {
                Ok("status: ok".to_owned())
            } else {
                Err("Failed to find the database.".to_owned())
            }
        });
        add("ovsdb-server/tlog-set", "DB:TABLE on|off", (2, 2), |inner, args| {
            inner
                .core
                .borrow_mut()
                .set_tlog(&args[0], &args[1])
                .map(|()| String::new())
        });
        add("ovsdb-server/tlog-list", "", (0, 0), |inner, _| {
            Ok(inner.core.borrow().tlog_list())
        });
        add("ovsdb-server/disable-monitor-cond", "", (0, 0), |inner, _| {
            inner.core.borrow_mut().disable_monitor_cond();
            inner.flush_soon();
            Ok(String::new())
        });
        add(
            "ovsdb-server/memory-trim-on-compaction",
            "on|off",
            (1, 1),
            |inner, args| {
                let on = match args[0].as_str() {
                    "on" => true,
                    "off" => false,
                    _ => return Err("invalid argument".to_owned()),
                };
                inner.trim_on_compaction.set(on);
                let state = if on { "enabled" } else { "disabled" };
                tracing::info!(target: "ovsdb_server", "memory trimming after compaction {state}.");
                Ok(String::new())
            },
        );
        // Open vSwitch's answer where the kernel does not let it count instructions.
        add("ovsdb-server/perf-counters-show", "", (0, 0), |_, _| {
            Ok("performance counter is not supported on this platform\n".to_owned())
        });
        add("ovsdb-server/perf-counters-clear", "", (0, 0), |_, _| Ok(String::new()));
        let inner = self.inner.clone();
        let compact = move |args: &[String]| -> std::pin::Pin<Box<dyn Future<Output = Result<String, String>>>> {
            Box::pin(compact(inner.clone(), args.first().cloned()))
        };
        control.register_deferred("ovsdb-server/compact", "", 0, 1, Box::new(compact));
        let inner = self.inner.clone();
        control.register_memory(move |figures| {
            let usage = inner.core.borrow().usage();
            let all = [
                ("atoms", usage.atoms),
                ("backlog", usage.backlog),
                ("cells", usage.cells),
                ("monitors", usage.monitors),
                ("session-bytes", usage.budget.0),
                ("session-bytes-limit", usage.budget.1),
                ("sessions", usage.sessions),
                ("triggers", usage.triggers),
            ];
            let always = ["atoms", "cells", "monitors", "session-bytes", "sessions"];
            for (name, count) in all
                .into_iter()
                .filter(|(name, count)| *count > 0 || always.contains(name))
            {
                *figures.entry(name).or_default() += count as u64;
            }
        });
    }
}

fn lines<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("{name}\n")).collect()
}

fn remove_db(inner: &Rc<Inner>, name: &str) -> Result<String, String> {
    if Inner::is_reserved(name) {
        return Err("Cannot remove reserved database.".to_owned());
    }
    if inner.remove_database(name) {
        Ok(String::new())
    } else {
        Err("Failed to find the database.".to_owned())
    }
}

/// Compacts one database or all.
async fn compact(inner: Rc<Inner>, db: Option<String>) -> Result<String, String> {
    let names: Vec<String> = inner
        .stores
        .borrow()
        .keys()
        .filter(|name| db.as_ref().is_none_or(|db| db == *name))
        .cloned()
        .collect();
    if let Some(name) = db.filter(|_| names.is_empty()) {
        if inner.core.borrow().is_relay(&name) {
            return Ok(String::new());
        }
        let why = match Inner::is_reserved(&name) {
            true => "cannot compact built-in databases",
            false => "no database by that name",
        };
        return Err(why.to_owned());
    }
    let mut failures = String::new();
    for name in names {
        tracing::info!(target: "ovsdb_server", "compacting {name} database by user request");
        match inner.compact(&name, "compacting database online").await {
            Ok(true) if inner.trim_on_compaction.get() => reclaim::freed(reclaim::WORTH),
            Ok(true) => {}
            Ok(false) => failures += &format!("{name}: a compaction is under way already\n"),
            Err(error) => failures += &format!("{name}: {}\n", os_text(&error)),
        }
    }
    if failures.is_empty() {
        Ok(String::new())
    } else {
        Err(failures)
    }
}
