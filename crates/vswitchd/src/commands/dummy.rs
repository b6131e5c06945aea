//! `netdev-dummy/*`, `dpif-dummy/*` and `time/*`: commands of test benches for devices of memory
//! and the clock. They exist only with `--enable-dummy`.

use super::{Answer, leading_number};
use crate::show;
use crate::state::State;
use dp::PortNo;
use netdev::{Dummy, Netdev};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

pub(super) fn register(add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Answer)) {
    add(
        "netdev-dummy/receive",
        "name [--qid queue_id] packet|flow [--len packet_len]",
        2,
        usize::MAX,
        receive,
    );
    add(
        "netdev-dummy/set-admin-state",
        "[netdev] up|down",
        1,
        2,
        set_admin_state,
    );
    add("netdev-dummy/conn-state", "[netdev]", 0, 1, conn_state);
    add(
        "netdev-dummy/ip4addr",
        "[netdev] ipaddr/mask-prefix-len",
        2,
        2,
        |state, args| set_address(state, args, |text| prefix::<Ipv4Addr>(text, 32, "IPv4", "IP")),
    );
    add("netdev-dummy/ip6addr", "[netdev] ip6addr", 2, 2, |state, args| {
        set_address(state, args, |text| prefix::<Ipv6Addr>(text, 128, "IPv6", "IPv6"))
    });
    add(
        "dpif-dummy/change-port-number",
        "dp port new-number",
        3,
        3,
        change_port_number,
    );
    add("time/stop", "", 0, 0, |state, _| {
        state.shared.clock.stop();
        Ok(String::new())
    });
    add("time/warp", "[large_msecs] msecs", 1, 2, warp);
}

/// Steps of one `time/warp`, at most: later timers wait for it.
const MOST_STEPS: u64 = 1000;

fn warp(state: &State, args: &[String]) -> Answer {
    let total = milliseconds(args.first())?;
    let step = milliseconds(args.last())?.max(total / MOST_STEPS).min(total);
    // Timers fire in their order, as far as the steps tell them apart.
    let mut left = total;
    while left > 0 {
        let step = step.min(left);
        state.shared.clock.warp(Duration::from_millis(step));
        state.tick();
        state.protocols.step();
        left -= step;
    }
    state.recheck.notify_one();
    Ok("warped".to_owned())
}

fn milliseconds(text: Option<&String>) -> Result<u64, String> {
    let number = text.and_then(|text| i32::try_from(leading_number(text)).ok());
    let number = number.and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0);
    number.ok_or_else(|| "invalid MSECS".to_owned())
}

/// Runs `run` for a dummy; `None` if there is none of that name.
fn with_dummy<R>(state: &State, name: &str, run: impl FnOnce(&Dummy) -> R) -> Option<R> {
    let bridges = state.bridges.borrow();
    let device = bridges.interface(name)?.device.clone()?;
    device.as_dummy().map(run)
}

fn shown(dummy: Option<&Dummy>) -> &'static str {
    match dummy.and_then(Dummy::is_connected) {
        Some(true) => "connected",
        Some(false) => "disconnected",
        None => "unknown",
    }
}

fn conn_state(state: &State, args: &[String]) -> Answer {
    if let [name] = args {
        let text = with_dummy(state, name, |dummy| shown(Some(dummy))).unwrap_or(shown(None));
        return Ok(format!("{name}: {text}\n"));
    }
    let bridges = state.bridges.borrow();
    let mut out = String::new();
    for (_, name, interface) in bridges.interfaces() {
        let dummy = interface.device.as_ref().and_then(|device| device.as_dummy());
        if let Some(dummy) = dummy.filter(|dummy| dummy.is_connected().is_some()) {
            out += &format!("{name}: {}\n", shown(Some(dummy)));
        }
    }
    Ok(out)
}

/// Gives a dummy an address, which routes have as their source.
fn set_address(state: &State, args: &[String], read: fn(&str) -> Result<(IpAddr, u8), String>) -> Answer {
    with_dummy(state, &args[0], |_| ()).ok_or("Unknown Dummy Interface")?;
    let (address, len) = read(&args[1])?;
    with_dummy(state, &args[0], |dummy| dummy.add_address(address, len));
    let _ = state.settle_underlay();
    Ok("OK".to_owned())
}

/// Reads `ADDRESS[/BITS]`.
fn prefix<A: std::str::FromStr + Into<IpAddr>>(
    text: &str,
    width: u8,
    family: &str,
    short: &str,
) -> Result<(IpAddr, u8), String> {
    let (address, bits) = text
        .split_once('/')
        .map_or((text, None), |(address, bits)| (address, Some(bits)));
    let Ok(address) = address.parse::<A>() else {
        return Err(format!("{text}: invalid {short} address"));
    };
    match bits.map(str::parse::<u8>) {
        None => Ok((address.into(), width)),
        Some(Ok(bits)) if bits <= width => Ok((address.into(), bits)),
        Some(_) => Err(format!(
            "{text}: {family} network prefix bits not between 0 and {width}, inclusive"
        )),
    }
}

/// Gives a port of a dummy datapath another number.
fn change_port_number(state: &State, args: &[String]) -> Answer {
    let [datapath, port, number] = args else {
        return Err("three arguments are needed".to_owned());
    };
    let mut bridges = state.bridges.borrow_mut();
    let mut names = show::datapaths(&bridges).into_iter().filter(|name| {
        let (kind, own) = name.split_once('@').unwrap_or_default();
        own == datapath && state.dummies.is_dummy_datapath(kind)
    });
    let Some(datapath) = names.next() else {
        return Err("unknown datapath or not a dummy".to_owned());
    };
    let is_there = bridges.interfaces().any(|(bridge, name, interface)| {
        name == port && interface.port.is_some() && show::is_of(&bridges, bridge, &datapath)
    });
    if !is_there {
        return Err("unknown port".to_owned());
    }
    // As C reads it: 0, which no port may have, for other text.
    let number = PortNo(number.parse().unwrap_or(0));
    if number.0 == 0 {
        return Err("bad port number".to_owned());
    }
    bridges.renumber(port, number)?;
    drop(bridges);
    state.recheck.notify_one();
    Ok(String::new())
}

fn receive(state: &State, args: &[String]) -> Answer {
    let (name, mut packets) = args.split_first().ok_or("a device and packets are needed")?;
    let mut queue = 0;
    if let [option, number, rest @ ..] = packets
        && option == "--qid"
    {
        queue = leading_number(number) as usize;
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
    for packet in read_packets(packets, &port_of)? {
        // A device that is down loses it, as every device does.
        let is_up = || dummy.state().is_ok_and(|state| state.admin_up);
        if !dummy.inject_at(queue, &packet, netdev::Offload::default()) && is_up() {
            return Err(format!("{name}: receive queue is full"));
        }
    }
    Ok(String::new())
}

/// Packets as hexadecimal digits, or as flows in the syntax of `ovs-dpctl` with an optional
/// `--len`.
fn read_packets(words: &[String], port_of: &dyn Fn(&str) -> Option<PortNo>) -> Result<Vec<Vec<u8>>, String> {
    let mut packets = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        if let Ok(packet) = from_hex(word)
            && packet.len() >= ETHERNET_HEADER
        {
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
            let number = leading_number(text) as usize;
            if number < SHORTEST {
                return Err("too small packet len".to_owned());
            }
            if number > LONGEST {
                return Err(format!("{text}: bad packet length ({SHORTEST} to {LONGEST} bytes)"));
            }
            len = Some(number);
        }
        packets.push(flow::compose(&key, len));
    }
    Ok(packets)
}

/// The shortest packet made from a flow with `--len`: the shortest Ethernet frame.
const SHORTEST: usize = 60;

/// Bytes of an Ethernet header, the shortest packet in hexadecimal digits.
const ETHERNET_HEADER: usize = 14;

/// The longest packet made from a flow: an Ethernet header and the longest IP packet.
const LONGEST: usize = ETHERNET_HEADER + u16::MAX as usize;

/// A packet as hex digits; white space is ignored.
pub(super) fn from_hex(text: &str) -> Result<Vec<u8>, String> {
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

fn set_admin_state(state: &State, args: &[String]) -> Answer {
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
