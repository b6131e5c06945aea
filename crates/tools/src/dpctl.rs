//! `dpctl`: shows and changes the datapath of the running switch (ovs-dpctl(8)).
//!
//! Open vSwitch's `ovs-dpctl` asks its kernel module. oxvs has none, so this tool sends the
//! switch's own `dpctl/*` commands and prints the answers.

use crate::common::{Failure, command, finish, list_commands, parse_timeout, print, run};
use mgmt::cli::{COMMON, Item, Opt, Order, Parser};
use mgmt::{daemon, os_text, unixctl};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

const PROGRAM: &str = "ovs-dpctl";

/// The daemon that is asked.
const DAEMON: &str = "ovs-vswitchd";

const OPTIONS: &[Opt] = &[
    Opt::flag("statistics", Some('s')),
    Opt::flag("more", Some('m')),
    Opt::flag("names", None),
    Opt::flag("no-names", None),
    Opt::flag("may-create", None),
    Opt::flag("read-only", None),
    Opt::flag("clear", None),
    Opt::value("timeout", Some('t')),
];

/// A command: its name, its arguments as `list-commands` prints them, fewest and most of them, and
/// whether it changes anything.
type Command = (&'static str, &'static str, usize, usize, bool);

const ANY: usize = usize::MAX;

const COMMANDS: &[Command] = &[
    ("add-dp", "dp [iface...]", 1, ANY, true),
    ("del-dp", "dp", 1, 1, true),
    ("add-if", "dp iface...", 2, ANY, true),
    ("del-if", "dp iface...", 2, ANY, true),
    ("set-if", "dp iface...", 2, ANY, true),
    ("dump-dps", "", 0, 0, false),
    ("show", "[-s] [dp...]", 0, ANY, false),
    (
        "dump-flows",
        "[-m] [--names] [dp] [filter=..] [type=..] [pmd=..]",
        0,
        6,
        false,
    ),
    ("add-flow", "[dp] flow actions", 2, 3, true),
    ("mod-flow", "[dp] flow actions", 2, 3, true),
    ("get-flow", "[dp] ufid", 1, 2, false),
    ("del-flow", "[dp] flow", 1, 2, true),
    ("add-flows", "[dp] file", 1, 2, true),
    ("mod-flows", "[dp] file", 1, 2, true),
    ("del-flows", "[dp] [file]", 0, 2, true),
    ("offload-stats-show", "[dp]", 0, 1, false),
    ("dump-conntrack", "[-m] [-s] [dp] [zone=N]", 0, 4, false),
    (
        "flush-conntrack",
        "[dp] [zone=N] [ct-orig-tuple] [ct-reply-tuple]",
        0,
        6,
        true,
    ),
    ("cache-get-size", "[dp]", 0, 1, false),
    ("cache-set-size", "dp cache <size>", 3, 3, true),
    ("ct-stats-show", "[dp] [zone=N]", 0, 3, false),
    ("ct-bkts", "[dp] [gt=N]", 0, 2, false),
    ("ct-set-maxconns", "[dp] maxconns", 1, 2, true),
    ("ct-get-maxconns", "[dp]", 0, 1, false),
    ("ct-get-nconns", "[dp]", 0, 1, false),
    ("ct-enable-tcp-seq-chk", "[dp]", 0, 1, true),
    ("ct-disable-tcp-seq-chk", "[dp]", 0, 1, true),
    ("ct-get-tcp-seq-chk", "[dp]", 0, 1, false),
    ("ct-set-sweep-interval", "[dp] ms", 1, 2, true),
    ("ct-get-sweep-interval", "[dp]", 0, 1, false),
    ("ct-set-limits", "[dp] [default=L] [zone=N,limit=L]...", 1, ANY, true),
    ("ct-del-limits", "[dp] zone=N1[,N2]...", 1, 3, true),
    ("ct-get-limits", "[dp] [zone=N1[,N2]...]", 0, 2, false),
    ("ipf-set-enabled", "[dp] v4|v6", 1, 2, true),
    ("ipf-set-disabled", "[dp] v4|v6", 1, 2, true),
    ("ipf-set-min-frag", "[dp] v4|v6 minfragment", 2, 3, true),
    ("ipf-set-max-nfrags", "[dp] maxfrags", 1, 2, true),
    ("ipf-get-status", "[dp]", 0, 1, false),
    ("help", "", 0, ANY, false),
    ("list-commands", "", 0, ANY, false),
    ("parse-actions", "actions", 1, ANY, false),
    ("normalize-actions", "actions", 2, ANY, false),
];

/// Runs the tool with `args`, which do not hold its name. Exit status 1 for every error.
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
    let mut timeout: Option<Duration> = None;
    let mut read_only = false;
    let (mut passed, mut words) = (Vec::new(), Vec::new());
    while let Some(item) = parser.next()? {
        match item {
            Item::Opt("read-only", _) => read_only = true,
            Item::Opt("timeout", value) => {
                timeout = Some(parse_timeout("-t or --timeout", value.as_deref())?);
            }
            Item::Opt(name @ ("statistics" | "more" | "names" | "no-names" | "may-create" | "clear"), _) => {
                passed.push(format!("--{name}"))
            }
            Item::Opt("help", _) => return print(&help()),
            Item::Opt("version", _) => return print(&format!("{}\n", telemetry::version::text(PROGRAM))),
            Item::Opt(name, value) => {
                daemon::accept_tool_log(PROGRAM, name, value.as_deref())?;
            }
            Item::Arg(word) => words.push(word),
        }
    }
    let ((name, .., writes), args) = command(COMMANDS, &words, |(name, _, fewest, most, _)| (name, *fewest, *most))?;
    if read_only && *writes {
        return Err(Failure::new(format!(
            "'{name}' command does not work in read only mode"
        )));
    }
    match *name {
        "help" => return print(&help()),
        "list-commands" => return print(&list_commands(COMMANDS.iter().map(|(name, usage, ..)| (*name, *usage)))),
        _ => {}
    }
    let arguments = [&passed[..], args].concat();
    match ask(timeout, name, &arguments)? {
        Ok(text) => print(&text),
        Err(text) => {
            eprint!("{}", text.replace(&format!("{DAEMON}: "), &format!("{PROGRAM}: ")));
            Err(Failure {
                message: String::new(),
                status: 1,
            })
        }
    }
}

/// Sends a command to the switch. Returns its answer or its error.
fn ask(timeout: Option<Duration>, command: &str, args: &[String]) -> Result<Result<String, String>, Failure> {
    let path = unixctl::target_path(DAEMON).map_err(|error| Failure::new(error.to_string()))?;
    let command = format!("ovs-dpctl/{command}");
    run(timeout, async {
        let answer = unixctl::call(&path, &command, args).await;
        answer.map_err(|error| {
            Failure::new(format!(
                "cannot connect to \"{}\" ({})",
                path.display(),
                os_text(&error)
            ))
        })
    })
}

fn help() -> String {
    let mut out = format!(
        "{PROGRAM}, for the datapath of the running switch\n\
         usage: {PROGRAM} [OPTIONS] COMMAND [ARG...]\n\n"
    );
    for (name, args, ..) in COMMANDS {
        out += &format!("  {name:<23} {args}\n");
    }
    out + &format!(
        "\nA dp is one that dump-dps shows. Where it may be left out there must be one only.\n\n\
         Options:\n  \
         -s, --statistics     show ports with their counters, deleted flows with theirs\n  \
         -m, --more           show all of a flow\n  \
         --names, --no-names  show ports by name or number\n  \
         --may-create         mod-flow adds a flow that does not exist\n  \
         --clear              mod-flow sets the flow's counters to zero\n  \
         --read-only          refuse commands that change anything\n  \
         -t, --timeout=SECS   give up after SECS seconds\n  \
         -h, --help           show this text\n  \
         -V, --version        show the version of this program\n{}",
        daemon::log_help(PROGRAM)
    )
}
