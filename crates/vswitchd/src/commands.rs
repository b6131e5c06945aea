//! The commands of `ovs-appctl`.

use crate::state::State;
use dp::{DropCause, PortNo};
use mgmt::unixctl::Server;
use std::fmt::Write;
use std::rc::Rc;
use std::time::Duration;

mod dpctl;
mod dpif;
mod fdb;
mod implementations;
mod later;
mod openflow;
mod pmd;
mod qos;
mod trace;

type Answer = Result<String, String>;

/// Registers every command of the switch.
pub(crate) fn register(server: &Server, state: &Rc<State>) {
    let add = |name: &str, usage: &str, min: usize, max: usize, run: fn(&State, &[String]) -> Answer| {
        let state = state.clone();
        server.register(name, usage, min, max, Box::new(move |args| run(&state, args)));
    };
    add("exit", "[--cleanup]", 0, 1, |state, _| {
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
    dpctl::register(&add);
    dpif::register(&add);
    fdb::register(&add);
    implementations::register(&add);
    later::register(&add);
    pmd::register(&add);
    qos::register(&add);
    trace::register(&add);
    openflow::register(&add);

    add("time/stop", "", 0, 0, |state, _| {
        state.shared.clock.stop();
        Ok(String::new())
    });
    add("time/warp", "[large_msecs] msecs", 1, 2, |state, args| {
        let total = milliseconds(args.first())?;
        state.shared.clock.warp(Duration::from_millis(total));
        state.tick();
        state.recheck.notify_one();
        Ok("warped".to_owned())
    });
    add(
        "netdev-dummy/receive",
        "name [--qid queue_id] packet|flow [--len packet_len]",
        2,
        usize::MAX,
        dummy_receive,
    );
    add(
        "netdev-dummy/set-admin-state",
        "[netdev] up|down",
        1,
        2,
        dummy_admin_state,
    );

    let counted = state.clone();
    server.register_memory(move |usage| {
        let bridges = counted.bridges.borrow();
        usage.insert(
            "ports",
            bridges.interfaces().filter(|(_, _, i)| i.port.is_some()).count() as u64,
        );
        let stats = counted.dp().cache_stats();
        usage.insert("udpif keys", stats.flows);
        if let Some(workers) = counted.dp().workers() {
            usage.insert("workers", workers.count() as u64);
        }
        counted.openflow.count_memory(usage);
    });
    coverage(server, state);
}

/// `coverage/show` and `coverage/read-counter` also show the drops and offloaded flows that workers
/// count.
fn coverage(server: &Server, state: &Rc<State>) {
    let counted = state.clone();
    let show = move |_: &[String]| {
        let mut out = telemetry::coverage::show();
        if !out.ends_with('\n') {
            out.push('\n');
        }
        let drops = counted.dp().drops();
        let drops = drops.into_iter().map(|(cause, packets)| (cause.name(), packets));
        for (name, count) in drops.chain(counted.dp().offload_events()) {
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
        let events = counted.dp().offload_events();
        let event = events.iter().find(|(known, _)| *known == name).map(|(_, count)| *count);
        match drops.or(event).or_else(|| telemetry::coverage::read(name)) {
            Some(total) => Ok(format!("{total}\n")),
            None => Err("No such counter".to_owned()),
        }
    };
    server.register("coverage/read-counter", "COUNTER", 1, 1, Box::new(read));
}

fn milliseconds(text: Option<&String>) -> Result<u64, String> {
    let number = text.and_then(|text| text.parse().ok()).filter(|ms| *ms > 0);
    number.ok_or_else(|| "invalid MSECS".to_owned())
}

fn dummy_receive(state: &State, args: &[String]) -> Answer {
    let (name, mut packets) = args.split_first().ok_or("a device and packets are needed")?;
    let mut queue = 0;
    if let [option, number, rest @ ..] = packets
        && option == "--qid"
    {
        queue = number.parse().map_err(|_| format!("{number}: not a queue's number"))?;
        packets = rest;
    }
    let bridges = state.bridges.borrow();
    let device = bridges.interfaces().find(|(_, interface, _)| interface == name);
    let device = device.and_then(|(_, _, interface)| interface.device.clone());
    let Some(dummy) = device.as_ref().and_then(|device| device.as_dummy()) else {
        return Err("no such dummy netdev".to_owned());
    };
    if queue >= dummy.queues() {
        return Err("bad rx queue id.".to_owned());
    }
    let port_of = |name: &str| bridges.interface(name).and_then(|interface| interface.port);
    for packet in dummy_packets(packets, &port_of)? {
        if !dummy.inject_at(queue, &packet, netdev::Offload::default()) {
            return Err(format!("{name}: receive queue is full"));
        }
    }
    Ok(String::new())
}

/// Packets as hexadecimal digits, or as flows in the syntax of `ovs-dpctl` with an optional
/// `--len`.
fn dummy_packets(words: &[String], port_of: &dyn Fn(&str) -> Option<PortNo>) -> Result<Vec<Vec<u8>>, String> {
    let mut packets = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        if let Ok(packet) = from_hex(word) {
            packets.push(packet);
            continue;
        }
        let syntax = || format!("syntax error at {word}");
        let (key, _) = flow::parse_odp(word, port_of).map_err(|_| syntax())?;
        if !word.contains('(') {
            return Err(syntax());
        }
        let mut len = None;
        if words.next_if(|word| *word == "--len").is_some() {
            let text = words.next().ok_or("--len needs a length in bytes")?;
            let number = text.parse().ok().filter(|len| (SHORTEST..=LONGEST).contains(len));
            len = Some(number.ok_or_else(|| format!("{text}: bad packet length ({SHORTEST} to {LONGEST} bytes)"))?);
        }
        packets.push(flow::compose(&key, len));
    }
    Ok(packets)
}

/// The shortest packet made from a flow with `--len`: the shortest Ethernet frame.
const SHORTEST: usize = 60;

/// The longest packet made from a flow: an Ethernet header and the longest IP packet.
const LONGEST: usize = 14 + u16::MAX as usize;

/// A packet as hex digits; white space is ignored.
fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(text, 16).ok()
    };
    let bytes: Option<Vec<u8>> = digits
        .chunks(2)
        .map(|two| pair(two).filter(|_| two.len() == 2))
        .collect();
    bytes.ok_or_else(|| format!("{text}: bad packet (hex digits, two a byte, are needed)"))
}

fn dummy_admin_state(state: &State, args: &[String]) -> Answer {
    let (name, word) = match args {
        [word] => (None, word),
        [name, word] => (Some(name), word),
        _ => return Err("up or down?".to_owned()),
    };
    let up = match word.as_str() {
        "up" => true,
        "down" => false,
        _ => return Err("Invalid Admin State".to_owned()),
    };
    let bridges = state.bridges.borrow();
    let mut found = false;
    for (_, interface, status) in bridges.interfaces() {
        let Some(device) = status.device.as_ref().filter(|device| device.as_dummy().is_some()) else {
            continue;
        };
        if name.is_none_or(|name| name == interface) {
            device.set_up(up).map_err(|error| error.to_string())?;
            found = true;
        }
    }
    match (found, name) {
        (false, Some(_)) => Err("Unknown Dummy Interface".to_owned()),
        _ => {
            state.recheck.notify_one();
            Ok("OK".to_owned())
        }
    }
}
