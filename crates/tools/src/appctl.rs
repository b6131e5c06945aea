//! `appctl`: sends a command to a running daemon and prints its answer (ovs-appctl(8)).

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use mgmt::cli::{COMMON, Item, Opt, Order, Parser, Takes};
use mgmt::{daemon, os_text, unixctl};

use serde_json::Value;

use crate::common::{Failure, finish, parse_timeout, print, run};

const PROGRAM: &str = "ovs-appctl";

const OPTIONS: &[Opt] = &[
    Opt::value("target", Some('t')),
    // Accepted and without effect, as in Open vSwitch.
    Opt::flag("execute", Some('e')),
    Opt::flag("option", Some('o')),
    Opt::value("format", Some('f')),
    Opt::flag("pretty", None),
    Opt::value("timeout", Some('T')),
];

/// Runs the tool with `args`, which do not hold its name. Exit status 2: the daemon answered with
/// an error; 1: anything else went wrong.
pub fn main<I>(args: I) -> ExitCode
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    telemetry::vlog::init(PROGRAM);
    finish(
        PROGRAM,
        execute(Parser::new(
            args,
            vec![OPTIONS, daemon::LOG_OPTIONS, COMMON],
            Order::OptionsFirst,
        )),
    )
}

fn execute(mut parser: Parser) -> Result<(), Failure> {
    let mut target = String::from("ovs-vswitchd");
    let mut timeout: Option<Duration> = None;
    let (mut json, mut pretty) = (false, false);
    let mut words: Vec<String> = Vec::new();
    while let Some(item) = parser.next()? {
        match item {
            Item::Opt("target", value) => target = value.unwrap_or_default(),
            Item::Opt("execute", _) => {}
            Item::Opt("option", _) => return print(&option_list()),
            Item::Opt("format", value) => json = is_json(&value.unwrap_or_default())?,
            Item::Opt("pretty", _) => pretty = true,
            Item::Opt("timeout", value) => {
                timeout = Some(parse_timeout("-T or --timeout", value.as_deref())?);
            }
            Item::Opt("help", _) => return print(&help()),
            Item::Opt("version", _) => {
                return print(&format!("{}\n", telemetry::version::text(PROGRAM)));
            }
            Item::Opt(name, value) => {
                daemon::accept_tool_log(PROGRAM, name, value.as_deref())?;
            }
            Item::Arg(word) => words.push(word),
        }
    }
    let Some((command, args)) = words.split_first() else {
        return Err(Failure::new(
            "at least one non-option argument is required (use --help for help)",
        ));
    };
    if pretty && !json {
        return Err(Failure::new("--pretty is supported with --format json only"));
    }
    let path = unixctl::target_path(&target).map_err(|e| Failure::new(e.to_string()))?;
    let answer = run(timeout, async {
        let answer = match json {
            false => unixctl::call(&path, command, args).await,
            true => unixctl::call_json(&path, command, args)
                .await
                .map(|answer| answer.map(|document| document_text(&document, pretty))),
        };
        answer.map_err(|e| {
            let what = match e.kind() {
                std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData => {
                    format!("{}: transaction error", path.display())
                }
                _ => format!("cannot connect to \"{}\"", path.display()),
            };
            Failure::new(format!("{what} ({})", os_text(&e)))
        })
    })?;
    match answer {
        Ok(text) => print(&text),
        Err(text) => {
            eprint!("{text}");
            let message = format!("{target}: server returned an error");
            Err(Failure { message, status: 2 })
        }
    }
}

fn is_json(format: &str) -> Result<bool, Failure> {
    match format {
        "text" => Ok(false),
        "json" => Ok(true),
        other => Err(Failure::new(format!("value {other} on -f or --format is invalid"))),
    }
}

/// A JSON document on one line, or indented by two spaces as Open vSwitch writes it.
fn document_text(document: &Value, pretty: bool) -> String {
    match pretty {
        false => format!("{document}\n"),
        true => crate::table::pretty(document) + "\n",
    }
}

/// The answer to `--option`: every option, for the completion of shells.
fn option_list() -> String {
    let mut text = String::new();
    for option in [OPTIONS, COMMON, daemon::LOG_OPTIONS].into_iter().flatten() {
        let (long, short) = match option.takes {
            Takes::Nothing => ("", ""),
            Takes::Value => ("=ARG", "ARG"),
            Takes::Maybe => ("=[ARG]", "[ARG]"),
        };
        text += &format!("--{}{long}\n", option.long);
        if let Some(letter) = option.short {
            text += &format!("-{letter} {short}\n");
        }
    }
    text
}

fn help() -> String {
    format!(
        "\
{PROGRAM}, for querying and controlling a running daemon of the switch
usage: {PROGRAM} [TARGET] COMMAND [ARG...]

Targets:
  -t, --target=TARGET  name of the daemon, as its pidfile has it (default: ovs-vswitchd),
                       or the path of its control socket

Commands that every daemon has:
  list-commands        all commands of the daemon, with their arguments
  version              its version
  exit                 end it
  vlog/list            log levels by module and destination
  vlog/list-pattern    patterns of log lines by destination
  vlog/set [SPEC]      set log levels: MODULE:DESTINATION:LEVEL, each may be left out
      MODULE is one that vlog/list shows (default: all)
      DESTINATION is 'syslog', 'console' or 'file' (default: all)
      LEVEL is 'off', 'emer', 'err', 'warn', 'info' or 'dbg' (default: dbg)
  vlog/reopen          open the log file again, after it was renamed
  coverage/show        how often events happened
  memory/show          what takes memory

Commands of ovs-vswitchd, for instance:
  fdb/show BRIDGE      addresses that a bridge has learned
  dpif/show            datapaths, bridges and their ports
  dpctl/dump-flows     cached flows of a datapath

Other options:
  -T, --timeout=SECS   give up after SECS seconds
  -f, --format=FORMAT  print the answer as 'text' (default) or 'json'
  --pretty             print JSON on several lines, indented
  -h, --help           show this text
  -V, --version        show the version of this program
{}",
        daemon::log_help(PROGRAM)
    )
}
