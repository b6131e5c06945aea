//! Conversations through the tracker and through the kernel's connection tracking (nftables). Over
//! a network that changes nothing they have the same states. Over one that loses, repeats, reorders
//! and spoils packets every difference has an explanation.

use crate::packets::*;
use conntrack::State;
use std::collections::BTreeMap;
use testkit::{Capture, Netns, Rng, eventually, send_frames, skip};

/// What the kernel writes into a packet's DSCP by its state.
const STATES: [(&str, u8); 5] = [
    ("ct state invalid", 1),
    ("ct state new", 2),
    ("ct state established ct direction original", 3),
    ("ct state established ct direction reply", 4),
    ("ct state related", 5),
];
const CONVERSATIONS: u16 = 600;

/// Our state as the kernel's number of it.
fn number(state: State) -> u8 {
    let known = [INVALID, NEW, EST, EST_REPLY].iter().position(|known| *known == state);
    known.map_or(5, |at| at as u8 + 1)
}

#[derive(Clone, Debug)]
struct Sent {
    conversation: u16,
    from_server: bool,
    fields: Option<Tcp>,
    bytes: Vec<u8>,
}

/// What two hosts say with TCP, as if nothing were lost. `small`: they have small windows too, and
/// send more than those.
fn conversation(rng: &mut Rng, small: bool) -> Vec<(bool, Tcp)> {
    let windows: &[u16] = if small { &[500, 4000, 0xffff] } else { &[4000, 0xffff] };
    let mut said = Vec::new();
    let mut isn = [rng.number() as u32, rng.number() as u32];
    for round in 0..2 {
        let mut next = isn;
        let window = [0, 1].map(|_| *rng.pick(windows));
        let shift = *rng.pick(&[None, Some(0), Some(2), Some(7)]);
        let mut say = |said: &mut Vec<(bool, Tcp)>, side: usize, flags: u8, len: usize| {
            let syn = flags & SYN != 0;
            said.push((
                side == 1,
                Tcp {
                    flags,
                    seq: next[side],
                    ack: if flags & ACK != 0 { next[1 - side] } else { 0 },
                    window: window[side],
                    len,
                    shift: shift.filter(|_| syn),
                },
            ));
            let beyond = len as u32 + u32::from(syn) + u32::from(flags & FIN != 0);
            next[side] = next[side].wrapping_add(beyond);
        };
        say(&mut said, 0, SYN, 0);
        say(&mut said, 1, SYN | ACK, 0);
        say(&mut said, 0, ACK, 0);
        for _ in 0..rng.below(12) {
            let side = rng.below(2);
            say(&mut said, side, ACK, *rng.pick(&[0, 1, 100, 400]));
            if rng.chance(60) {
                say(&mut said, 1 - side, ACK, 0);
            }
        }
        let side = rng.below(2);
        match rng.below(5) {
            0 => return said,
            1 => {
                say(&mut said, side, RST, 0);
                return said;
            }
            2 => {
                say(&mut said, side, FIN | ACK, 0);
                say(&mut said, 1 - side, RST | ACK, 0);
                return said;
            }
            3 => {
                say(&mut said, side, FIN | ACK, 0);
                say(&mut said, 1 - side, ACK, 100);
                say(&mut said, 1 - side, FIN | ACK, 0);
                say(&mut said, side, ACK, 0);
            }
            _ => {
                say(&mut said, side, FIN | ACK, 0);
                say(&mut said, 1 - side, FIN | ACK, 0);
                say(&mut said, side, ACK, 0);
            }
        }
        if round == 1 || rng.chance(50) {
            return said;
        }
        // The same ports again, while the client waits.
        isn = next.map(|next| next.wrapping_add(100_000));
    }
    said
}

/// What of it a network hands on, in its order.
fn impaired<T: Clone>(rng: &mut Rng, said: &[T]) -> Vec<(T, bool)> {
    let mut at = Vec::new();
    for (number, packet) in said.iter().enumerate() {
        let place = |rng: &mut Rng| number * 10 + if rng.chance(10) { 10 * (1 + rng.below(3)) + 5 } else { 0 };
        if rng.chance(92) {
            at.push((place(rng), packet.clone(), rng.chance(2)));
        } else {
            // Lost, and sent again later.
            at.push((number * 10 + 25, packet.clone(), false));
        }
        if rng.chance(6) {
            at.push((place(rng), packet.clone(), false));
        }
    }
    at.sort_by_key(|(place, ..)| *place);
    at.into_iter().map(|(_, packet, spoiled)| (packet, spoiled)).collect()
}

/// The packets of all conversations, whose identification is their number.
fn packets(rng: &mut Rng, impairs: bool) -> Vec<Sent> {
    let mut all = Vec::new();
    for conversation_number in 0..CONVERSATIONS {
        let (client, server) = ((host(false, 1), 10_000 + conversation_number), (host(false, 7), 80));
        let ends = |from_server| {
            if from_server {
                (server, client)
            } else {
                (client, server)
            }
        };
        let kind = rng.below(10);
        let said: Vec<(bool, Option<Tcp>)> = match kind {
            0 | 1 => (0..1 + rng.below(6)).map(|_| (rng.chance(50), None)).collect(),
            _ => conversation(rng, impairs)
                .into_iter()
                .map(|(side, fields)| (side, Some(fields)))
                .collect(),
        };
        let handed_on = match impairs {
            true => impaired(rng, &said),
            false => said.into_iter().map(|packet| (packet, false)).collect(),
        };
        for ((from_server, fields), spoiled) in handed_on {
            let (src, dst) = ends(from_server);
            let mut bytes = match (fields, kind) {
                (Some(fields), _) => tcp(src, dst, fields),
                (None, 0) => udp(src, dst, b"hello"),
                (None, _) => echo(src.0, dst.0, from_server, client.1),
            };
            bytes[4..6].copy_from_slice(&(all.len() as u16).to_be_bytes());
            bytes[10..12].fill(0);
            let sum = testkit::checksum(&bytes[..20]);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            if spoiled {
                let at = bytes.len() - 1;
                bytes[at] ^= 0x10;
            }
            all.push(Sent {
                conversation: conversation_number,
                from_server,
                fields,
                bytes,
            });
        }
    }
    all
}

/// The states that the kernel gives them.
fn of_kernel(packets: &[Sent]) -> BTreeMap<u16, u8> {
    let (sender, kernel, receiver) = (Netns::new("sender"), Netns::new("kernel"), Netns::new("receiver"));
    kernel.veth("in0", &sender, "eth0");
    kernel.veth("out0", &receiver, "eth0");
    let settings = "for s in conf.all.rp_filter=0 conf.in0.rp_filter=0 ip_forward=1; do sysctl -qw net.ipv4.$s; done";
    kernel.run(&["sh", "-c", settings]);
    kernel.ip("route add 10.0.0.0/8 dev out0");
    for last in [1, 7] {
        kernel.ip(&format!(
            "neigh replace 10.0.0.{last} lladdr 02:00:00:00:00:09 dev out0"
        ));
    }
    let mut rules = "table ip t {\nchain c {\ntype filter hook prerouting priority 0\n".to_owned();
    for (state, number) in STATES {
        rules += &format!("{state} ip dscp set {number}\n");
    }
    kernel.run(&["nft", &(rules + "}\n}")]);
    let to = kernel.mac_of("in0");
    let to: Vec<u8> = testkit::from_hex(&to);
    let frames: Vec<Vec<u8>> = packets
        .iter()
        .map(|packet| [&to[..], &[2, 0, 0, 0, 0, 1, 8, 0], &packet.bytes].concat())
        .collect();
    let capture = Capture::start_large(&receiver, "eth0", "ip");
    send_frames(&sender, "eth0", &frames);
    eventually("all packets are there", || {
        let states: BTreeMap<u16, u8> = capture
            .frames()
            .iter()
            .map(|frame| (u16::from_be_bytes([frame[18], frame[19]]), frame[15] >> 2))
            .collect();
        (states.len() == packets.len()).then_some(states)
    })
}

/// A packet that passed, with the kernel's number of its state.
type Passed<'a> = (&'a Sent, u8);

const DISORDER: &str = "the beginning is not seen in order";

/// Why the two judge a packet of TCP differently, which they did not for any packet before it. The
/// tracker follows Open vSwitch's.
fn explanation(history: &[Passed], packet: &Sent, ours: u8, theirs: u8) -> Option<&'static str> {
    let fields = packet.fields?;
    let after = |a: u32, b: u32| (a.wrapping_sub(b) as i32) > 0;
    let end = |tcp: &Tcp| {
        let beyond = u32::from(tcp.flags & SYN != 0) + u32::from(tcp.flags & FIN != 0);
        tcp.seq.wrapping_add(tcp.len as u32 + beyond)
    };
    let is_fin = |(sent, state): &Passed| *state != 1 && sent.fields.is_some_and(|tcp| tcp.flags & FIN != 0);
    let closed = [false, true].map(|side| {
        let of_side = |passed: &Passed| passed.0.from_server == side && is_fin(passed);
        history.iter().position(of_side)
    });
    if let [Some(one), Some(other)] = closed {
        let behind = history[one.max(other)..].iter().map(|(sent, _)| *sent);
        let is_syn = |sent: &Sent| sent.fields.is_some_and(|tcp| tcp.flags & SYN != 0);
        if behind.chain([packet]).any(is_syn) {
            // The kernel lets a SYN begin a connection behind both FINs, the tracker one behind the
            // acknowledgments of both.
            return Some("ports are used again before the end is acknowledged");
        }
    }
    let is_first = |(sent, state): &Passed| sent.fields.is_some_and(|tcp| tcp.flags == SYN) && *state == 2;
    let begin = history.iter().rposition(is_first);
    let round = &history[begin.unwrap_or(0)..];
    let of = |from_server: bool| -> Vec<Tcp> {
        let passed = round
            .iter()
            .filter(|(sent, state)| sent.from_server == from_server && *state != 1);
        passed.filter_map(|(sent, _)| sent.fields).collect()
    };
    let (heard, own) = (of(!packet.from_server), of(packet.from_server));
    let answer = of(true).first().map(|tcp| tcp.flags);
    if begin.is_none() || answer != Some(SYN | ACK) {
        // The kernel wants SYN, SYN|ACK and ACK in this order, the tracker numbers that fit.
        let tolerated = ours != 1 && theirs <= 2;
        return tolerated.then_some(DISORDER);
    }
    let (before, _) = history.split_at(begin.unwrap_or(0));
    let has = |flags: u8| {
        let passed = before.iter().filter(|(_, state)| *state != 1);
        passed
            .filter_map(|(sent, _)| sent.fields)
            .any(|tcp| tcp.flags & flags != 0)
    };
    // A packet of the middle was before the SYN, and no end of another connection.
    if ours != 1 && theirs <= 2 && has(ACK) && !has(FIN | RST) {
        return Some(DISORDER);
    }
    if ours >= 3 && theirs == 1 && heard.iter().all(|tcp| after(fields.ack, end(tcp))) {
        // The tracker has a margin.
        return Some("acknowledges what has not passed");
    }
    if ours == 1 && theirs >= 3 {
        // The tracker takes for a repetition what is at most a window back, and lets no sender go
        // beyond the window.
        let repeats = own.iter().any(|tcp| after(end(tcp), fields.seq));
        let room = |tcp: &Tcp| tcp.ack.wrapping_add(u32::from(tcp.window));
        let beyond = heard.iter().all(|tcp| after(end(&fields), room(tcp)));
        return (repeats || beyond).then_some("is outside of the window");
    }
    None
}

/// The explanations of the first difference of each conversation.
fn differences(seed: u64, impairs: bool) -> BTreeMap<&'static str, u32> {
    let packets = packets(&mut Rng::new(seed), impairs);
    let states = of_kernel(&packets);
    let mut bench = Bench::new();
    let mut explained = BTreeMap::new();
    let mut history: Vec<Passed> = Vec::new();
    let mut differs = None;
    for (at, packet) in packets.iter().enumerate() {
        if history
            .last()
            .is_some_and(|(last, _)| last.conversation != packet.conversation)
        {
            history.clear();
        }
        let ours = number(bench.pass(&commit(1), &mut packet.bytes.clone()).state);
        let theirs = states[&(at as u16)];
        if ours != theirs && differs != Some(packet.conversation) {
            differs = Some(packet.conversation);
            let Some(why) = explanation(&history, packet, ours, theirs) else {
                let said: Vec<_> = history
                    .iter()
                    .map(|(sent, state)| (sent.from_server, sent.fields, state))
                    .collect();
                panic!("seed {seed}: {ours}, the kernel {theirs}: {packet:?} behind {said:#?}");
            };
            *explained.entry(why).or_insert(0) += 1;
        }
        history.push((packet, theirs));
    }
    explained
}

#[test]
fn conversations_have_the_states_that_the_kernel_gives_them() {
    skip!(unless root, "nft", "ip", "tcpdump", "python3", "sysctl");
    if !testkit::try_run(&["nft", "list", "tables"], &[]).ok() {
        skip!("the kernel has no nftables");
    }
    assert_eq!(differences(1, false), BTreeMap::new());
    let explained = differences(2, true);
    println!("{CONVERSATIONS} conversations, differences: {explained:?}");
    assert!(
        explained.values().sum::<u32>() < u32::from(CONVERSATIONS) * 2 / 3,
        "{explained:?}"
    );
}
