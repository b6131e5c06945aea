//! The commands of `ovs-appctl`.

use crate::rows::Dummies;
use crate::state::State;
use dp::DropCause;
use mgmt::unixctl::Server;
use std::fmt::Write;
use std::rc::Rc;

mod bonds;
mod dpctl;
mod dpif;
mod dummy;
mod fdb;
mod implementations;
mod json;
mod liveness;
mod lldp;
mod mdb;
mod openflow;
mod pmd;
mod qos;
mod route;
mod security;
mod trace;
mod trees;
mod tunnels;

pub(crate) use dpif::capabilities;

type Answer = Result<String, String>;

/// Registers every command of the switch.
pub(crate) fn register(server: &Server, state: &Rc<State>) {
    let add = |name: &str, usage: &str, min: usize, max: usize, run: fn(&State, &[String]) -> Answer| {
        let state = state.clone();
        server.register(name, usage, min, max, Box::new(move |args| run(&state, args)));
    };
    add("exit", "[--cleanup]", 0, 1, |state, args| {
        state.leaves_connections.set(args.is_empty());
        state.exit.notify_one();
        Ok(String::new())
    });

    add("ofproto/list", "", 0, 0, |state, _| {
        let bridges = state.bridges.borrow();
        Ok(bridges
            .state()
            .keys()
            .fold(String::new(), |out, name| out + name + "\n"))
    });
    bonds::register(&add);
    let add_hidden = |name: &str, min: usize, max: usize, run: fn(&State, &[String]) -> Answer| {
        let state = state.clone();
        server.register_hidden(name, min, max, Box::new(move |args| run(&state, args)));
    };
    bonds::register_old_names(&add_hidden);
    dpctl::register_for_tool(&add_hidden);
    dpctl::register(&add);
    dpif::register(&add);
    fdb::register(&add);
    security::register(&add);
    implementations::register(&add, matches!(state.dummies, Dummies::Off | Dummies::Allowed));
    lldp::register(&add);
    lldp::register_documents(&|name, usage, min, max, run| {
        let state = state.clone();
        server.register_document(name, usage, min, max, Box::new(move |args| run(&state, args)));
    });
    liveness::register(&add);
    mdb::register(&add);
    pmd::register(&add);
    qos::register(&add);
    route::register(&add);
    trace::register(&add);
    trees::register(&add);
    tunnels::register(&add);
    openflow::register(&add);
    json::register(server, state);

    if state.dummies != Dummies::Off {
        dummy::register(&add);
    }

    let counted = state.clone();
    server.register_memory(move |usage| {
        let bridges = counted.bridges.borrow();
        usage.insert(
            "ports",
            bridges.interfaces().filter(|(_, _, i)| i.port.is_some()).count() as u64,
        );
        let stats = counted.dp().cache_stats();
        usage.insert("udpif keys", stats.flows);
        let conntrack = counted.dp().conntrack();
        let connections = [
            ("connections", conntrack.len() as u64),
            ("connections-expected", conntrack.expected() as u64),
            ("connections-kB", conntrack.bytes() as u64 / 1024),
            ("fragments", conntrack.fragments().len() as u64),
        ];
        usage.extend(connections.into_iter().filter(|(_, count)| *count != 0));
        if let Some(workers) = counted.dp().workers() {
            usage.insert("workers", workers.count() as u64);
        }
        counted.openflow.count_memory(usage);
    });
    coverage(server, state);
}

/// The counters of tracked connections and of fragments, with their names.
fn connection_events(state: &State) -> Vec<(&'static str, u64)> {
    let conntrack = state.dp().conntrack();
    let [v4, v6] = [false, true].map(|v6| conntrack.fragments().counts(v6));
    let fragments = [
        ("ipf_frags_duplicate", v4.duplicate + v6.duplicate),
        ("ipf_frags_malformed", v4.malformed + v6.malformed),
        ("ipf_frags_full", v4.full + v6.full),
    ];
    conntrack.statistics().named().chain(fragments).collect()
}

/// What workers and the kernel count of events, with their names; `wanted`: only that one is looked
/// at.
fn counted_events(state: &State, wanted: Option<&str>) -> Vec<(&'static str, u64)> {
    let mut events = state.dp().offload_events();
    events.extend(connection_events(state));
    if wanted.is_none_or(|name| name.starts_with("ipsec_")) {
        events.extend(state.bridges.borrow().blocked_by_kernel());
    }
    events
}

/// `coverage/show` and `coverage/read-counter` also show the drops, offloaded flows and connections
/// that workers count, and what the kernel's policies of IPsec drop.
fn coverage(server: &Server, state: &Rc<State>) {
    let counted = state.clone();
    let show = move |_: &[String]| {
        let mut out = telemetry::coverage::show();
        if !out.ends_with('\n') {
            out.push('\n');
        }
        let drops = counted.dp().drops();
        let drops = drops.into_iter().map(|(cause, packets)| (cause.name(), packets));
        for (name, count) in drops.chain(counted_events(&counted, None)) {
            if count > 0 {
                let _ = writeln!(out, "{name:<24} total: {count}");
            }
        }
        Ok(out)
    };
    server.register("coverage/show", "", 0, 0, Box::new(show));
    let counted = state.clone();
    let read = move |args: &[String]| {
        let name = args.first().map(String::as_str).unwrap_or_default();
        let cause = DropCause::ALL.iter().position(|cause| cause.name() == name);
        let drops = cause.map(|at| counted.dp().drops()[at].1);
        let mut events = counted_events(&counted, Some(name)).into_iter();
        let event = events.find(|(known, _)| *known == name).map(|(_, count)| count);
        match drops.or(event).or_else(|| telemetry::coverage::read(name)) {
            Some(total) => Ok(format!("{total}\n")),
            None => Err("No such counter".to_owned()),
        }
    };
    server.register("coverage/read-counter", "COUNTER", 1, 1, Box::new(read));
}

/// The number that a text begins with, as C reads it: modulo 2^32; `None` if there is none.
fn scanned_number(text: &str) -> Option<u32> {
    let text = text.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    digits
        .starts_with(|c: char| c.is_ascii_digit())
        .then(|| leading_number(text))
}

/// The number that a text begins with, as C reads it: 0 if there is none, modulo 2^32.
fn leading_number(text: &str) -> u32 {
    let text = text.trim_start();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let number = digits.chars().map_while(|c| c.to_digit(10));
    let number = number.fold(0i64, |sum, digit| sum.saturating_mul(10).saturating_add(digit.into()));
    let number = if negative { -number } else { number };
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        let numbers = ["12", "10x", "x", "-1", " +7", "", "200000"].map(leading_number);
        assert_eq!(numbers, [12, 10, 0, u32::MAX, 7, 0, 200_000]);
    }
}
