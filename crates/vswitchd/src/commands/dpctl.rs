//! `dpctl/*`: the datapath and its ports. `flows` has the commands about megaflows, `connections`,
//! `limits` and `fragments` those about connection tracking.

mod connections;
mod flows;
mod fragments;
mod limits;
mod normalize;

use super::Answer;
use crate::show;
use crate::state::State;
use dp::{PutFlow, parse_actions};
use flow::Key;
use std::fmt::Write;

type Run = fn(&State, &[String]) -> Answer;

/// Name, arguments, fewest and most of them, and what runs.
type Entry = (&'static str, &'static str, usize, usize, Run);

/// In the order of `dpctl/list-commands`.
const COMMANDS: &[Entry] = &[
    ("add-dp", "dp [iface...]", 1, usize::MAX, add_dp),
    ("del-dp", "dp", 1, 1, del_dp),
    ("add-if", "dp iface...", 2, usize::MAX, add_if),
    ("del-if", "dp iface...", 2, usize::MAX, del_if),
    ("set-if", "dp iface...", 2, usize::MAX, set_if),
    ("dump-dps", "", 0, 0, |state, _| {
        let datapaths = show::datapaths(&state.bridges.borrow());
        Ok(datapaths.into_iter().map(|name| name + "\n").collect())
    }),
    ("show", "[-s] [dp...]", 0, usize::MAX, show_datapaths),
    (
        "dump-flows",
        "[-m] [--names] [dp] [filter=..] [type=..] [pmd=..]",
        0,
        6,
        flows::dump,
    ),
    ("add-flow", "[dp] flow actions", 2, 3, |state, args| {
        flows::put(state, args, PutFlow::Add)
    }),
    ("mod-flow", "[dp] flow actions", 2, 3, |state, args| {
        flows::put(state, args, PutFlow::Modify)
    }),
    ("get-flow", "[dp] ufid", 1, 2, flows::get),
    ("del-flow", "[dp] flow", 1, 2, flows::del),
    ("add-flows", "[dp] file", 1, 2, |state, args| {
        flows::put_file(state, args, PutFlow::Add)
    }),
    ("mod-flows", "[dp] file", 1, 2, |state, args| {
        flows::put_file(state, args, PutFlow::Modify)
    }),
    ("del-flows", "[dp] [file]", 0, 2, flows::del_all),
    ("offload-stats-show", "[dp]", 0, 1, |state, args| {
        open_default(state, &Asked::read(args)?.words)?;
        fail("retrieving offload statistics", "Operation not supported")
    }),
    ("dump-conntrack", "[-m] [-s] [dp] [zone=N]", 0, 4, connections::dump),
    (
        "flush-conntrack",
        "[dp] [zone=N] [ct-orig-tuple] [ct-reply-tuple]",
        0,
        6,
        connections::flush,
    ),
    ("cache-get-size", "[dp]", 0, 1, cache_get_size),
    ("cache-set-size", "dp cache <size>", 3, 3, |state, args| {
        open(state, &args[0]).map_err(|error| text("Opening datapath failed", error))?;
        fail("Setting caches not supported", "Operation not supported")
    }),
    ("ct-stats-show", "[dp] [zone=N]", 0, 3, connections::show_counts),
    ("ct-bkts", "[dp] [gt=N]", 0, 2, connections::show_buckets),
    ("ct-set-maxconns", "[dp] maxconns", 1, 2, connections::set_max),
    ("ct-get-maxconns", "[dp]", 0, 1, connections::get_max),
    ("ct-get-nconns", "[dp]", 0, 1, connections::get_count),
    ("ct-enable-tcp-seq-chk", "[dp]", 0, 1, |state, args| {
        connections::set_check(state, args, true)
    }),
    ("ct-disable-tcp-seq-chk", "[dp]", 0, 1, |state, args| {
        connections::set_check(state, args, false)
    }),
    ("ct-get-tcp-seq-chk", "[dp]", 0, 1, connections::get_check),
    (
        "ct-set-sweep-interval",
        "[dp] ms",
        1,
        2,
        connections::set_sweep_interval,
    ),
    ("ct-get-sweep-interval", "[dp]", 0, 1, connections::get_sweep_interval),
    (
        "ct-set-limits",
        "[dp] [default=L] [zone=N,limit=L]...",
        1,
        usize::MAX,
        limits::set,
    ),
    ("ct-del-limits", "[dp] zone=N1[,N2]...", 1, 3, limits::delete),
    ("ct-get-limits", "[dp] [zone=N1[,N2]...]", 0, 2, limits::get),
    ("ipf-set-enabled", "[dp] v4|v6", 1, 2, |state, args| {
        fragments::set_enabled(state, args, true)
    }),
    ("ipf-set-disabled", "[dp] v4|v6", 1, 2, |state, args| {
        fragments::set_enabled(state, args, false)
    }),
    (
        "ipf-set-min-frag",
        "[dp] v4|v6 minfragment",
        2,
        3,
        fragments::set_min_size,
    ),
    ("ipf-set-max-nfrags", "[dp] maxfrags", 1, 2, fragments::set_max),
    ("ipf-get-status", "[dp]", 0, 1, fragments::show_status),
    ("list-commands", "", 0, usize::MAX, |_, _| Ok(list_commands())),
    ("normalize-actions", "actions", 2, usize::MAX, normalize::run),
    ("parse-actions", "actions", 1, usize::MAX, parse),
];

/// Most options of a command.
const MOST_OPTIONS: usize = 6;

pub(super) fn register(add: &impl Fn(&str, &str, usize, usize, Run)) {
    for (name, usage, min, max, run) in COMMANDS {
        add(&format!("dpctl/{name}"), usage, *min, *max, *run);
    }
}

/// The same for `ovs-dpctl`, which counts a command's arguments without its options.
pub(super) fn register_for_tool(add: &impl Fn(&str, usize, usize, Run)) {
    for (name, _, min, max, run) in COMMANDS {
        add(
            &format!("ovs-dpctl/{name}"),
            *min,
            max.saturating_add(MOST_OPTIONS),
            *run,
        );
    }
}

fn list_commands() -> String {
    let mut out = String::from("The available commands are:\n");
    for (name, usage, ..) in COMMANDS {
        let _ = writeln!(out, "  dpctl/{name:<23} {usage}");
    }
    out
}

/// The options and the other words of a command.
#[derive(Default)]
struct Asked<'a> {
    more: bool,
    statistics: bool,
    may_create: bool,
    clear: bool,
    /// `--names` or `--no-names`.
    names: Option<bool>,
    words: Vec<&'a str>,
}

impl Asked<'_> {
    fn read(args: &[String]) -> Result<Asked<'_>, String> {
        let mut asked = Asked::default();
        for arg in args {
            match arg.as_str() {
                "-m" | "--more" => asked.more = true,
                "-s" | "--statistics" => asked.statistics = true,
                "--may-create" => asked.may_create = true,
                "--clear" => asked.clear = true,
                "--names" => asked.names = Some(true),
                "--no-names" => asked.names = Some(false),
                option if option.starts_with('-') => return Err(format!("Unrecognized option {option}")),
                word => asked.words.push(word),
            }
        }
        Ok(asked)
    }
}

/// An error's text as Open vSwitch's `dpctl` writes it.
fn text(what: &str, why: &str) -> String {
    format!("ovs-vswitchd: {what} ({why})\n")
}

fn fail<T>(what: &str, why: &str) -> Result<T, String> {
    Err(text(what, why))
}

/// Finds a datapath; returns its whole name. The error is the system's text.
fn open(state: &State, name: &str) -> Result<String, &'static str> {
    let datapaths = show::datapaths(&state.bridges.borrow());
    let (kind, own) = name.split_once('@').unwrap_or(("system", name));
    let whole = format!("{kind}@{own}");
    let others = datapaths.iter().any(|other| other.split('@').next_back() == Some(own));
    match kind {
        _ if datapaths.contains(&whole) => Ok(whole),
        _ if others && name.contains('@') => Err("Invalid argument"),
        "system" | "netdev" | "dummy" => Err("No such device"),
        _ => Err("Address family not supported by protocol"),
    }
}

/// The datapath that commands name first or not at all.
fn open_default(state: &State, words: &[&str]) -> Result<String, String> {
    if let [name, ..] = words {
        return open(state, name).map_err(|_| text("datapath not found", "Invalid argument"));
    }
    let datapaths = show::datapaths(&state.bridges.borrow());
    let mut datapaths = datapaths.into_iter();
    match (datapaths.next(), datapaths.next()) {
        (Some(one), None) => Ok(one),
        (first, _) => {
            let why = match first {
                None => "no datapaths exist",
                Some(_) => "multiple datapaths, specify one",
            };
            let failed = text("datapath not found", "Invalid argument");
            Err(format!("ovs-vswitchd: {why}\n{failed}"))
        }
    }
}

/// Refuses more arguments than Open vSwitch's release takes, unless some are of later releases.
fn at_most(most: usize, words: &[&str], is_later: impl Fn(&str) -> bool, command: &str) -> Result<(), String> {
    match words.iter().filter(|word| !is_later(word)).count() > most {
        true => Err(format!("\"dpctl/{command}\" command takes at most {most} arguments")),
        false => Ok(()),
    }
}

/// The words behind the datapath, if the first word is one. Otherwise the one datapath is meant,
/// unless there are `most` words.
fn without_datapath<'a, 'b>(state: &State, words: &'b [&'a str], most: usize) -> Result<&'b [&'a str], String> {
    match words {
        [name, rest @ ..] if open(state, name).is_ok() => Ok(rest),
        words if words.len() == most => fail("datapath not found", "Invalid argument"),
        words => open_default(state, &[]).map(|_| words),
    }
}

/// The datapath comes and goes with the bridges; there is no second one.
fn add_dp(state: &State, args: &[String]) -> Answer {
    match open(state, &args[0]) {
        Ok(_) => fail("add_dp", "File exists"),
        Err("No such device") => fail("add_dp", "Operation not supported"),
        Err(error) => fail("add_dp", error),
    }
}

fn del_dp(state: &State, args: &[String]) -> Answer {
    open(state, &args[0]).map_err(|error| text("opening datapath", error))?;
    fail("del_dp", "Operation not supported")
}

/// A port's specification: `NAME[,KEY=VALUE]…`.
fn name_of(port: &str) -> &str {
    port.split(',').next().unwrap_or_default()
}

/// The ports are those of the bridges.
fn add_if(state: &State, args: &[String]) -> Answer {
    open(state, &args[0]).map_err(|error| text("opening datapath", error))?;
    let (name, bridges) = (name_of(&args[1]), state.bridges.borrow());
    let taken = bridges
        .interface(name)
        .is_some_and(|interface| interface.port.is_some());
    let why = if taken {
        "File exists"
    } else {
        "Operation not supported"
    };
    fail(&format!("adding {name} to {} failed", args[0]), why)
}

fn del_if(state: &State, args: &[String]) -> Answer {
    open(state, &args[0]).map_err(|error| text("opening datapath", error))?;
    let (name, bridges) = (name_of(&args[1]), state.bridges.borrow());
    match bridges.interface(name).and_then(|interface| interface.port) {
        None => Err(format!("ovs-vswitchd: no port named {name}\n")),
        Some(_) => fail(
            &format!("deleting port {name} from {} failed", args[0]),
            "Operation not supported",
        ),
    }
}

/// Accepts what a port has already. Options are those of the `Interface` table.
fn set_if(state: &State, args: &[String]) -> Answer {
    open(state, &args[0]).map_err(|error| text("opening datapath", error))?;
    let bridges = state.bridges.borrow();
    for port in &args[1..] {
        let name = name_of(port);
        let interface = bridges.interface(name).filter(|interface| interface.port.is_some());
        let Some((interface, number)) = interface.and_then(|found| Some((found, found.port?.0))) else {
            return fail(
                &format!("{name}: failed to query port in {}", args[0]),
                "No such device",
            );
        };
        for option in port.split(',').skip(1) {
            match option.split_once('=').unwrap_or((option, "")) {
                ("type", kind) if kind == interface.kind => {}
                ("type", kind) => {
                    let old = interface.kind;
                    return Err(format!(
                        "ovs-vswitchd: {name}: can't change type from {old} to {kind}\n"
                    ));
                }
                ("port_no", other) if other == number.to_string() => {}
                ("port_no", other) => {
                    return Err(format!(
                        "ovs-vswitchd: {name}: can't change port number from {number} to {other}\n"
                    ));
                }
                _ => return fail(&format!("{name}: failed to set config"), "Operation not supported"),
            }
        }
    }
    Ok(String::new())
}

fn show_datapaths(state: &State, args: &[String]) -> Answer {
    let asked = Asked::read(args)?;
    let bridges = state.bridges.borrow();
    let show = |name: &str| show::dpctl_show(state, &bridges, name, asked.statistics);
    if asked.words.is_empty() {
        return Ok(show::datapaths(&bridges).iter().map(|name| show(name)).collect());
    }
    let mut out = String::new();
    for name in &asked.words {
        match open(state, name) {
            Ok(whole) => out += &show(&whole),
            Err(error) => return Err(out + &text(&format!("opening datapath {name} failed"), error)),
        }
    }
    Ok(out)
}

/// The caches have no sizes to show, as in Open vSwitch's userspace datapath.
fn cache_get_size(state: &State, args: &[String]) -> Answer {
    if let Some(name) = args.first() {
        let name = open(state, name).map_err(|error| text(&format!("Opening datapath {name} failed"), error))?;
        return Ok(name + ":\n");
    }
    let datapaths = show::datapaths(&state.bridges.borrow());
    Ok(datapaths.into_iter().map(|name| name + ":\n").collect())
}

fn parse(_: &State, args: &[String]) -> Answer {
    let mut out = String::new();
    for arg in Asked::read(args)?.words {
        match parse_actions(arg) {
            Ok(actions) if actions.is_empty() => out.push_str("drop\n"),
            Ok(actions) => _ = writeln!(out, "{}", dp::ActionList::new(&actions, &Key::ZERO)),
            Err(_) => return Err(out + &text("odp_actions_from_string", "Invalid argument")),
        }
    }
    Ok(out)
}
