//! Groups, meters, packets and requests beside Debian's `ovs-ofctl`: each text is put to the tool,
//! which sends what it makes of it to a switch that only listens, and to the parser here. What was
//! sent, and the words of errors, are compared.

use openflow::model::{Body, GroupCommand, Message, MeterCommand, StatsRequest};
use openflow::text::{
    Names, ParseError, Protocols, parse_flow_stats_request, parse_group_mod, parse_meter_mod, parse_packet_out,
    parse_tlv_maps,
};
use openflow::{Codec, Framer, Hello, Version};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A command of the tool and its argument, with a tab between.
const CASES: &str = include_str!("text_commands.txt");

/// Cases that differ, each below its reason.
const DIFFERENCES: &str = include_str!("text_commands_differences.txt");

type Sent = Arc<Mutex<Vec<Vec<u8>>>>;

/// Answers what must be answered, and keeps the rest.
fn listen(mut stream: UnixStream, version: Version, sent: &Sent) -> Option<()> {
    let codec = Codec::new(version);
    let mut framer = Framer::new();
    let hello = Body::Hello(Hello {
        version: version.number(),
        bitmap: None,
    });
    stream.write_all(&codec.encode(&Message { xid: 1, body: hello })).ok()?;
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).ok().filter(|n| *n > 0)?;
        framer.push(&buffer[..read]);
        while let Some(message) = framer.next().ok()? {
            let message = message.to_vec();
            let barrier = if version == Version::V10 { 18 } else { 20 };
            let stats = if version == Version::V10 { 16 } else { 18 };
            match message[1] {
                0 => {}
                kind if kind == barrier => {
                    let xid = u32::from_be_bytes(message[4..8].try_into().ok()?);
                    let body = Body::BarrierReply;
                    stream.write_all(&codec.encode(&Message { xid, body })).ok()?;
                }
                kind => {
                    if kind == stats {
                        // An empty answer: the header of the request, with the type of the reply.
                        let mut reply =
                            message[..message.len().min(if version == Version::V10 { 12 } else { 16 })].to_vec();
                        reply[1] += 1;
                        if reply.get(9) == Some(&2) {
                            // The sums of no rules.
                            reply.extend([0; 24]);
                        }
                        reply[3] = reply.len() as u8;
                        stream.write_all(&reply).ok()?;
                    }
                    sent.lock().ok()?.push(message);
                }
            }
        }
    }
}

fn version(command: &str) -> Version {
    match command {
        "dump-flows" | "dump-aggregate" => Version::V14,
        "add-meter" | "mod-meter" | "del-meters" => Version::V13,
        "add-tlv-map" | "del-tlv-map" => Version::V13,
        _ => Version::V15,
    }
}

/// What the text means, and the flow formats that it can be sent in.
fn ours(command: &str, text: &str) -> Result<(Body, Protocols), ParseError> {
    let names = Names::default();
    let group = |command| parse_group_mod(command, text, &names).map(|(m, usable)| (Body::GroupMod(m), usable));
    let meter = |command| parse_meter_mod(command, text).map(|m| (Body::MeterMod(m), Protocols::ANY));
    let ask = |request| Body::StatsRequest { more: false, request };
    let tlv = |command| {
        let maps = parse_tlv_maps(text)?;
        Ok((Body::TlvTableMod { command, maps }, Protocols::ANY))
    };
    match command {
        "add-group" => group(GroupCommand::Add),
        "mod-group" => group(GroupCommand::Modify),
        "del-groups" => group(GroupCommand::Delete),
        "insert-buckets" => group(GroupCommand::InsertBucket),
        "remove-buckets" => group(GroupCommand::RemoveBucket),
        "add-meter" => meter(MeterCommand::Add),
        "mod-meter" => meter(MeterCommand::Modify),
        "del-meters" => meter(MeterCommand::Delete),
        "packet-out" => parse_packet_out(text, &names).map(|(m, usable)| (Body::PacketOut(Box::new(m)), usable)),
        "add-tlv-map" => tlv(0),
        "del-tlv-map" => tlv(1),
        "dump-aggregate" => {
            parse_flow_stats_request(text, &names).map(|(r, usable)| (ask(StatsRequest::Aggregate(r)), usable))
        }
        _ => parse_flow_stats_request(text, &names).map(|(r, usable)| (ask(StatsRequest::Flow(r)), usable)),
    }
}

/// The message after it was sent over the wire.
fn read(version: Version, bytes: &[u8]) -> String {
    format!("{:?}", Codec::new(version).decode(bytes).map(|m| m.body))
}

#[test]
fn what_is_read_is_what_ovs_ofctl_sends() {
    let dir = tempfile::tempdir().expect("a directory");
    let sent = Sent::default();
    // Connections that are heard: a message of the tool before must not come among those of the
    // next.
    let heard = Arc::new(AtomicUsize::new(0));
    for version in [Version::V13, Version::V14, Version::V15] {
        let listener = UnixListener::bind(dir.path().join(version.number().to_string())).expect("a socket");
        let (sent, heard) = (Arc::clone(&sent), Arc::clone(&heard));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (sent, heard) = (Arc::clone(&sent), Arc::clone(&heard));
                heard.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    listen(stream, version, &sent);
                    heard.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
    }
    let known: Vec<_> = DIFFERENCES.lines().filter(|line| !line.starts_with('#')).collect();
    let (mut count, mut found) = (0, Vec::new());
    for case in CASES.lines().filter(|line| !line.starts_with('#')) {
        let (command, text) = case.split_once('\t').expect("a command and its argument");
        let version = version(command);
        let target = format!("unix:{}", dir.path().join(version.number().to_string()).display());
        let flag = format!("OpenFlow1{}", version.number() - 1);
        sent.lock().expect("what was sent").clear();
        let run = Command::new("ovs-ofctl")
            .args(["--no-names", "-O", &flag, command, &target, text])
            .output();
        let Ok(output) = run else {
            println!("skipped: there is no ovs-ofctl");
            return;
        };
        while heard.load(Ordering::SeqCst) > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let error = errors.lines().find_map(|l| l.strip_prefix("ovs-ofctl: "));
        let theirs = match error {
            Some(error) => Err(error.to_string()),
            None => Ok(sent
                .lock()
                .expect("what was sent")
                .last()
                .map(|bytes| read(version, bytes))),
        };
        let ours = match ours(command, text) {
            Err(e) => Err(e.to_string()),
            Ok((_, usable)) if (usable & Protocols::of(version)).is_empty() => Err(format!(
                "none of the usable flow formats ({usable}) is among the allowed flow formats ({})",
                Protocols::of(version)
            )),
            Ok((body, _)) => Ok(Some(read(
                version,
                &Codec::new(version).encode(&Message { xid: 1, body }),
            ))),
        };
        count += 1;
        if ours != theirs {
            found.push((case, format!("{case}\n  ours   {ours:?}\n  theirs {theirs:?}")));
        }
    }
    let unknown: Vec<_> = found
        .iter()
        .filter(|(case, _)| !known.contains(case))
        .map(|(_, what)| what.as_str())
        .collect();
    assert!(count > 200, "{count}");
    assert!(unknown.is_empty(), "{} differ:\n{}", unknown.len(), unknown.join("\n"));
    for known in known {
        assert!(
            found.iter().any(|(case, _)| *case == known),
            "written down as a difference, and is none: {known}"
        );
    }
}
