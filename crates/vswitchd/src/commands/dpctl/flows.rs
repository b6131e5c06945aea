//! `dpctl/*-flow` and `dpctl/*-flows`: megaflows, shown and changed by hand.

use super::{Answer, Asked, fail, open, open_default, text};
use crate::show::{self, FlowFormat, Ports};
use crate::state::State;
use dp::{FlowDump, PortNo, PutFlow, PutFlowError, parse_actions};
use flow::{Field, FlowState, Key, Mask, parse_odp};
use openflow::model::Match;
use openflow::text::{Names, parse_match, parse_packet};

/// `dump-flows`.
pub(super) fn dump(state: &State, args: &[String]) -> Answer {
    let mut asked = Asked::read(args)?;
    let mut chosen = Chosen::default();
    while let Some(word) = asked.words.last()
        && chosen.take(word, state)?
    {
        asked.words.pop();
    }
    let datapath = open_default(state, &asked.words)?;
    let format = FlowFormat {
        names: asked.names.unwrap_or(asked.more),
        more: asked.more,
    };
    let flows = state.dp().dump_flows();
    let bridges = state.bridges.borrow();
    let ports = show::by_port(&bridges);
    let mut out = String::new();
    let mut last = None;
    for flow in &flows {
        let thread = thread_of(flow, &ports);
        let bridge = ports.get(&flow.key.in_port()).map(|(bridge, ..)| *bridge);
        let elsewhere = bridge.is_some_and(|bridge| !show::is_of(&bridges, bridge, &datapath));
        if elsewhere || !chosen.has(flow, thread) {
            continue;
        }
        if chosen.pmd.is_none() && last != Some(thread) {
            last = Some(thread);
            out += &match thread {
                MAIN_THREAD => "flow-dump from the main thread:\n".to_owned(),
                worker => format!("flow-dump from pmd on cpu core: {worker}\n"),
            };
        }
        out += &show::dpctl_flow(state, flow, &ports, format);
    }
    Ok(out)
}

/// The number of the main thread for `pmd=`.
const MAIN_THREAD: i64 = -1;

/// The thread that a megaflow is listed under: its worker, or the main thread if it is from a
/// dummy that no worker would serve, as in Open vSwitch.
fn thread_of(flow: &FlowDump, ports: &Ports<'_>) -> i64 {
    let port = ports.get(&flow.key.in_port());
    let device = port.and_then(|(_, _, interface)| interface.device.as_ref());
    match device.is_some_and(|device| show::is_main_threads(&**device)) {
        true => MAIN_THREAD,
        false => i64::try_from(flow.worker).unwrap_or(i64::MAX),
    }
}

/// The megaflows to show.
#[derive(Default)]
struct Chosen {
    filter: Option<Match>,
    kinds: Vec<Kind>,
    /// A thread's number.
    pmd: Option<i64>,
}

/// Megaflows by who forwards their packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    All,
    Workers,
    Offloaded,
    /// Of other offloads: there are none.
    Elsewhere,
}

impl Chosen {
    /// Reads a word; whether it chooses megaflows.
    fn take(&mut self, word: &str, state: &State) -> Result<bool, String> {
        if let Some(filter) = word.strip_prefix("filter=") {
            let parsed = parse_match(filter, &port_names(state));
            // Open vSwitch reads the fields of one packet: its errors have other words.
            let parsed = parsed.map_err(|why| {
                let why = parse_packet(filter, &port_names(state)).err().unwrap_or(why);
                format!("ovs-vswitchd: Failed to parse filter ({filter}: {why})\n")
            })?;
            self.filter = Some(parsed);
        } else if let Some(kinds) = word.strip_prefix("type=") {
            let kind = |name: &str| match name {
                "all" => Some(Kind::All),
                "ovs" | "non-offloaded" => Some(Kind::Workers),
                "offloaded" => Some(Kind::Offloaded),
                "tc" | "dpdk" | "partially-offloaded" => Some(Kind::Elsewhere),
                _ => None,
            };
            self.kinds = kinds
                .split(',')
                .map(|name| {
                    kind(name).ok_or_else(|| text(&format!("Failed to parse type ({name})"), "Invalid argument"))
                })
                .collect::<Result<_, _>>()?;
        } else if let Some(number) = word.strip_prefix("pmd=") {
            self.pmd = Some(number.parse().map_err(|_| String::new())?);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn has(&self, flow: &FlowDump, thread: i64) -> bool {
        let of_kind = |kind: &Kind| match kind {
            Kind::All => true,
            Kind::Workers => flow.offloaded == 0,
            Kind::Offloaded => flow.offloaded > 0,
            Kind::Elsewhere => false,
        };
        (self.kinds.is_empty() || self.kinds.iter().any(of_kind))
            && self.pmd.is_none_or(|pmd| pmd == thread)
            && self.filter.as_ref().is_none_or(|filter| may_match(filter, flow))
    }
}

/// Whether packets of a megaflow may match; the bits that the megaflow does not compare may have
/// any value.
fn may_match(filter: &Match, flow: &FlowDump) -> bool {
    let bits = Key::from_words(flow.mask.words());
    let value = FlowState::new(flow.key, flow.key.in_port().0);
    let port = if bits.get(Field::InPort) == 0 { 0 } else { u32::MAX };
    let compared = FlowState::new(bits, port);
    filter.entries().iter().all(|entry| {
        let differs = (value.get(entry.field) ^ entry.value) & entry.mask;
        differs & compared.get(entry.field) == 0
    })
}

fn port_names(state: &State) -> Names {
    let mut names = Names::default();
    for (_, name, interface) in state.bridges.borrow().interfaces() {
        if let Some(PortNo(port)) = interface.port {
            names.ports.insert(port, name.to_owned());
        }
    }
    names
}

/// A megaflow's key and mask, read from text.
fn parse_flow(state: &State, flow: &str) -> Result<(Key, Mask), String> {
    let bridges = state.bridges.borrow();
    let port_of = |name: &str| bridges.interface(name).and_then(|interface| interface.port);
    let (key, mut mask) = parse_odp(flow, &port_of).map_err(|_| format!("syntax error at {flow}"))?;
    if mask == Mask::EMPTY && !flow.contains('(') {
        return Err(format!("syntax error at {flow}"));
    }
    // As in dumps, a flow without tags is one of packets without tags.
    if mask.get(Field::EthType) != 0 && mask.get(Field::VlanTci0) == 0 {
        mask.add(Field::VlanTci0);
    }
    // With a hash, it has the bits of the hash that count.
    if mask.get(Field::RecircId) == 0 {
        mask.add(Field::RecircId);
    }
    Ok((key.masked(&mask), mask))
}

/// The datapath, if named, and the other words.
fn split<'a, 'b>(state: &State, words: &'b [&'a str], count: usize) -> Result<&'b [&'a str], String> {
    match words {
        [name, rest @ ..] if rest.len() == count => {
            open_default(state, &[name])?;
            Ok(rest)
        }
        _ => Ok(words),
    }
}

/// `add-flow` and `mod-flow`.
pub(super) fn put(state: &State, args: &[String], how: PutFlow) -> Answer {
    let asked = Asked::read(args)?;
    let words = split(state, &asked.words, 2)?;
    let [flow, actions] = words else {
        return fail("datapath not found", "Invalid argument");
    };
    put_one(state, flow, actions, how, &asked)
}

fn put_one(state: &State, flow: &str, actions: &str, how: PutFlow, asked: &Asked<'_>) -> Answer {
    let (key, mask) =
        parse_flow(state, flow).map_err(|why| text(&format!("parsing flow key ({why})"), "Invalid argument"))?;
    let actions = parse_actions(actions).map_err(|_| text("parsing actions", "Invalid argument"))?;
    let same = |flow: &FlowDump| flow.key == key && flow.mask == mask;
    // A change shows the counters until now.
    let before = match asked.statistics || asked.clear {
        true => find(state, same),
        false => None,
    };
    if asked.clear && how == PutFlow::Modify && before.is_some() {
        // Its rules keep what it has counted.
        state.dp().del_flow(&key, &mask);
    }
    let modify = how == PutFlow::Modify;
    let may_create = modify && (asked.may_create || asked.clear && before.is_some());
    let mut done = state.dp().put_flow(&key, &mask, &actions, how);
    if may_create && done == Err(PutFlowError::Missing) {
        done = state.dp().put_flow(&key, &mask, &actions, PutFlow::Add);
    }
    done.map_err(|error| text("updating flow table", &error.to_string()))?;
    if !asked.statistics {
        return Ok(String::new());
    }
    let shown = before.or_else(|| find(state, same));
    Ok(shown.map_or(String::new(), |flow| show::flow_use(&flow) + "\n"))
}

fn find(state: &State, is_it: impl Fn(&FlowDump) -> bool) -> Option<FlowDump> {
    state.dp().dump_flows().into_iter().find(is_it)
}

/// The megaflow whose number a text begins with; `None` if it begins with no number.
fn by_ufid(state: &State, word: &str) -> Option<Option<FlowDump>> {
    let number = word.strip_prefix("ufid:")?.split(',').next()?;
    let number: ovsdb::Uuid = number.parse().ok()?;
    Some(find(state, |flow| {
        dp::ufid(&flow.key, &flow.mask) == number.to_string()
    }))
}

/// `get-flow`. Open vSwitch prints wrong numbers as an answer, not as an error.
pub(super) fn get(state: &State, args: &[String]) -> Answer {
    let asked = Asked::read(args)?;
    let [ufid] = split(state, &asked.words, 1)? else {
        return fail("datapath not found", "Invalid argument");
    };
    let Some(found) = by_ufid(state, ufid) else {
        return Ok(match ufid.starts_with("ufid:") {
            true => text("parsing flow ufid", "Invalid argument"),
            false => "ovs-vswitchd: parsing flow ufid\n".to_owned(),
        });
    };
    let Some(flow) = found else {
        return fail("getting flow", "No such file or directory");
    };
    let bridges = state.bridges.borrow();
    let format = FlowFormat {
        names: asked.names.unwrap_or(asked.more),
        more: asked.more,
    };
    Ok(show::dpctl_flow(state, &flow, &show::by_port(&bridges), format))
}

/// `del-flow`.
pub(super) fn del(state: &State, args: &[String]) -> Answer {
    let asked = Asked::read(args)?;
    let [flow] = split(state, &asked.words, 1)? else {
        return fail("datapath not found", "Invalid argument");
    };
    del_one(state, flow, asked.statistics)
}

fn del_one(state: &State, flow: &str, statistics: bool) -> Answer {
    let missing = || text("deleting flow", "No such file or directory") + "Perhaps you need to specify a UFID?\n";
    let found = match by_ufid(state, flow) {
        Some(found) => found,
        None => {
            let (key, mask) = parse_flow(state, flow).map_err(|why| text(&why, "Invalid argument"))?;
            if !statistics {
                return match state.dp().del_flow(&key, &mask) {
                    true => Ok(String::new()),
                    false => Err(missing()),
                };
            }
            find(state, |flow| flow.key == key && flow.mask == mask)
        }
    };
    let Some(flow) = found else {
        return Err(missing());
    };
    state.dp().del_flow(&flow.key, &flow.mask);
    match statistics {
        true => Ok(show::flow_use(&flow) + "\n"),
        false => Ok(String::new()),
    }
}

/// `add-flows` and `mod-flows`.
pub(super) fn put_file(state: &State, args: &[String], how: PutFlow) -> Answer {
    let asked = Asked::read(args)?;
    let [file] = split(state, &asked.words, 1)? else {
        return fail("datapath not found", "Invalid argument");
    };
    run_file(state, file, Change::Put(how))
}

/// `del-flows`: all megaflows, or those of a file.
pub(super) fn del_all(state: &State, args: &[String]) -> Answer {
    let asked = Asked::read(args)?;
    match asked.words[..] {
        [] => {}
        [name] if open(state, name).is_ok() => {}
        [file] => return run_file(state, file, Change::Delete),
        [name, file, ..] => {
            open_default(state, &[name])?;
            return run_file(state, file, Change::Delete);
        }
    }
    state.dp().flush_flows();
    Ok(String::new())
}

/// A line's change of a file of flows.
#[derive(Clone, Copy)]
enum Change {
    Put(PutFlow),
    Delete,
}

/// Makes the changes of a file's lines, `[add|modify|delete] FLOW [ACTIONS]`, up to the first
/// error. Open vSwitch prints a file's errors as an answer.
fn run_file(state: &State, file: &str, default: Change) -> Answer {
    /// Far more than anybody writes by hand.
    const LONGEST: u64 = 64 << 20;
    let read = || {
        use std::io::Read;
        let mut lines = String::new();
        std::fs::File::open(file)?.take(LONGEST).read_to_string(&mut lines)?;
        Ok::<_, std::io::Error>(lines)
    };
    let lines = match read() {
        Ok(lines) => lines,
        Err(error) => {
            let why = mgmt::os_text(&error);
            return Ok(text(&format!("Opening file \"{file}\" failed"), &why));
        }
    };
    Ok(lines
        .lines()
        .try_for_each(|line| run_line(state, line, default))
        .err()
        .unwrap_or_default())
}

fn run_line(state: &State, line: &str, default: Change) -> Result<(), String> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let verbs = [
        ("add", Change::Put(PutFlow::Add)),
        ("modify", Change::Put(PutFlow::Modify)),
        ("delete", Change::Delete),
    ];
    let verb = verbs.into_iter().find_map(|(verb, change)| {
        let rest = line.strip_prefix(verb)?;
        rest.starts_with(char::is_whitespace)
            .then(|| (change, rest.trim_start()))
    });
    let (change, rest) = verb.unwrap_or((default, line));
    if rest.is_empty() {
        return Ok(());
    }
    match change {
        Change::Put(how) => {
            let (flow, actions) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            put_one(state, flow, actions.trim(), how, &Asked::default()).map(drop)
        }
        Change::Delete => {
            let flow = rest.split_whitespace().next().unwrap_or_default();
            del_one(state, flow, false).map(drop)
        }
    }
}
