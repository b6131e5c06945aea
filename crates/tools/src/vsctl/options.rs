//! Global options: where the database is, how to wait, how output looks.

use std::ffi::OsString;
use std::time::Duration;

use mgmt::cli::{COMMON, Item, Opt, Order, Parser};
use mgmt::daemon::{LOG_OPTIONS, accept_tool_log};
use mgmt::paths;
use mgmt::stream::tls;
use telemetry::vlog::{self, Destination, Level};

use super::grammar::{self, Command};
use super::{PROGRAM, Stop, help};
use crate::common::has_file;
use crate::table::{self, Style};

/// The values of the global options.
pub(super) struct Options {
    pub(super) db: String,
    /// Whether to wait until the switch has applied the change.
    pub(super) wait: bool,
    pub(super) dry_run: bool,
    pub(super) oneline: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) retry: bool,
    pub(super) style: Style,
    pub(super) tls: tls::Settings,
}

/// The action to take.
pub(super) enum Action {
    Print(String),
    Run(Box<Options>, Vec<Command>),
}

const GLOBAL: &[Opt] = &[
    Opt::value("db", None),
    Opt::flag("no-syslog", None),
    Opt::flag("no-wait", None),
    Opt::flag("dry-run", None),
    Opt::flag("oneline", None),
    Opt::value("timeout", Some('t')),
    Opt::flag("retry", None),
    Opt::flag("commands", None),
    Opt::flag("options", None),
    Opt::flag("leader-only", None),
    Opt::flag("no-leader-only", None),
    Opt::flag("shuffle-remotes", None),
    Opt::flag("no-shuffle-remotes", None),
];

pub(super) fn parse(args: &[OsString]) -> Result<Action, Stop> {
    vlog::init(PROGRAM);
    vlog::set_all(Some(Destination::Console), Level::Warn);
    let _ = vlog::set("reconnect:console:err");
    let tables = vec![
        GLOBAL,
        COMMON,
        LOG_OPTIONS,
        table::OPTIONS,
        tls::OPTIONS,
        grammar::local_options(),
    ];
    let mut parser = Parser::new(args.iter().cloned(), tables.clone(), Order::OptionsFirst);
    let mut options = Options {
        db: paths::default_remote(),
        wait: true,
        dry_run: false,
        oneline: false,
        timeout: None,
        retry: false,
        style: Style::new(table::Format::List),
        tls: tls::Settings::default(),
    };
    let mut leading = Vec::new();
    let mut words = Vec::new();
    while let Some(item) = parser.next().map_err(mistake)? {
        let (name, value) = match item {
            Item::Arg(word) => {
                words.push(word);
                words.extend(parser.rest());
                break;
            }
            Item::Opt(name, value) => (name, value),
        };
        let text = value.as_deref().unwrap_or_default();
        match name {
            "db" => options.db = text.to_owned(),
            "no-syslog" => drop(vlog::set("vsctl:syslog:warn")),
            "no-wait" => options.wait = false,
            "dry-run" => options.dry_run = true,
            "oneline" => options.oneline = true,
            "timeout" => options.timeout = Some(timeout(text)?),
            "retry" => options.retry = true,
            "commands" => return Ok(Action::Print(list_commands())),
            "options" => return Ok(Action::Print(list_options(&tables[..5]))),
            "help" => return Ok(Action::Print(help::text())),
            "version" => return Ok(Action::Print(format!("{}\n", telemetry::version::with_schema(PROGRAM)))),
            "leader-only" | "no-leader-only" | "shuffle-remotes" | "no-shuffle-remotes" => {}
            _ if tls::OPTIONS.iter().any(|known| known.long == name) => {
                if !has_file(name, text) {
                    continue;
                }
                tls::accept(&mut options.tls, name, value.as_deref()).map_err(mistake)?;
            }
            _ if grammar::local_options().iter().any(|known| known.long == name) => leading.push(match value {
                Some(value) => format!("--{name}={value}"),
                None => format!("--{name}"),
            }),
            _ => {
                let value = value.as_deref();
                if !accept_tool_log(PROGRAM, name, value).map_err(mistake)? {
                    options.style.accept(name, value).map_err(mistake)?;
                }
            }
        }
    }
    Ok(Action::Run(Box::new(options), grammar::parse(leading, &words)?))
}

fn mistake(error: mgmt::cli::Error) -> Stop {
    match error.to_string() {
        // The log has the reason.
        text if text.is_empty() => Stop::Exit(1),
        text => Stop::Fatal(text),
    }
}

fn timeout(text: &str) -> Result<Duration, Stop> {
    match text.parse::<u32>() {
        Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds.into())),
        _ => Stop::fatal(format!("value {text} on -t or --timeout is invalid")),
    }
}

fn list_commands() -> String {
    let lines = super::commands::COMMANDS.iter().map(|spec| {
        let options: String = spec.options.iter().map(|option| format!("[{option}] ")).collect();
        format!("{options},{},{}\n", spec.name, spec.usage)
    });
    lines.collect()
}

fn list_options(tables: &[&'static [Opt]]) -> String {
    use mgmt::cli::Takes;
    let mut text = String::new();
    for option in tables.iter().flat_map(|table| table.iter()) {
        let value = option.takes != Takes::Nothing;
        text += &format!("--{}{}\n", option.long, if value { "=ARG" } else { "" });
        if let Some(short) = option.short {
            text += &format!("-{short}{}\n", if value { " ARG" } else { "" });
        }
    }
    text
}
