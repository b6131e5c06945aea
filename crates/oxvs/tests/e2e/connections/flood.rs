//! A flood of SYNs from one port, as fast as two senders are, beside connections of other ports.

use super::{Lab, NEIGHBOURS};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use testkit::{Daemon, Netns, Tier, skip};

/// Connections that are established before the flood.
const ESTABLISHED: usize = 200;
/// The most connections that the switch has.
const LIMIT: u64 = 20_000;

/// Only a SYN begins a connection: one that the tracker forgets comes to an end.
const RULES: [&str; 5] = [
    "priority=5,ip,actions=ct(table=1)",
    "table=1,in_port=1,ct_state=+trk+new,tcp,tcp_flags=+syn-ack,actions=ct(commit),2",
    "table=1,in_port=3,ct_state=+trk+new,tcp,actions=ct(commit)",
    "table=1,in_port=1,ct_state=+trk+est-inv,tcp,actions=2",
    "table=1,in_port=2,ct_state=+trk+est-inv,tcp,actions=1",
];

/// Answers every connection with what it says.
fn echo(host: &Netns) {
    let listener = host.enter(|| TcpListener::bind("10.9.0.2:7").unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let answer = move || {
                let mut buffer = [0; 64];
                while let Ok(len @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..len]).is_err() {
                        return;
                    }
                }
            };
            // Small stacks: there are hundreds.
            let _ = std::thread::Builder::new().stack_size(64 << 10).spawn(answer);
        }
    });
}

fn connect(host: &Netns, limit: Duration) -> std::io::Result<TcpStream> {
    let stream = host.enter(|| TcpStream::connect_timeout(&"10.9.0.2:7".parse().unwrap(), limit))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Whether the other side answers with the same.
fn answers(stream: &mut TcpStream, number: usize) -> bool {
    let said = (number as u64).to_be_bytes();
    let mut heard = [0; 8];
    stream.write_all(&said).is_ok() && stream.read_exact(&mut heard).is_ok() && said == heard
}

/// The number behind these words in a text.
fn number_behind(text: &str, words: &str) -> u64 {
    let rest = text.split_once(words).map_or("", |(_, rest)| rest);
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().unwrap_or_else(|e| panic!("{words} in {text}: {e}"))
}

/// Segments that hosts have sent again.
fn sent_again(hosts: &[&Netns]) -> u64 {
    let of_host = |host: &&Netns| {
        let text = host.run(&["cat", "/proc/net/snmp"]);
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("Tcp:")).collect();
        let column = lines[0].split(' ').position(|name| name == "RetransSegs").unwrap();
        lines[1].split(' ').nth(column).unwrap().parse::<u64>().unwrap()
    };
    hosts.iter().map(of_host).sum()
}

#[test]
fn a_flood_of_one_port_ends_no_connection_and_others_begin() {
    skip!(unless root, "ip", "ethtool", "python3", "ovs-vsctl", "ovs-ofctl");
    let seconds = match Tier::of_this_run() {
        Tier::Long => 60,
        _ => 4,
    };
    let lab = Lab::new(&[&NEIGHBOURS[..], &RULES].concat());
    let attacker = Netns::new("cta");
    lab.ns.veth("h3", &attacker, "eth0");
    lab.switch.vsctl("add-port br0 h3 -- set interface h3 ofport_request=3");
    lab.ovs_appctl(&["dpctl/ct-set-maxconns", &LIMIT.to_string()]);
    echo(&lab.outside);
    let limit = Duration::from_secs(10);
    let mut streams: Vec<TcpStream> = (0..ESTABLISHED).map(|_| connect(&lab.inside, limit).unwrap()).collect();
    for (number, stream) in streams.iter_mut().enumerate() {
        assert!(answers(stream, number));
    }

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/connections/syns.py");
    let mut command = attacker.prefix();
    command.extend(["python3", script, "eth0", "10.9.0.2"].map(str::to_owned));
    let mut floods = ["syns0", "syns1"].map(|name| Daemon::start(name, &command, &lab.switch.sandbox));
    for (flood, name) in floods.iter_mut().zip(["syns0.out", "syns1.out"]) {
        flood.wait_until(|| lab.switch.sandbox.read(name).contains("ready"));
    }
    let again = sent_again(&[&lab.inside, &lab.outside]);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut rounds, mut begun, mut most) = (0, 0, 0);
    while Instant::now() < end {
        for (number, stream) in streams.iter_mut().enumerate() {
            assert!(answers(stream, number + rounds), "round {rounds}: connection {number}");
        }
        rounds += 1;
        let mut new = connect(&lab.inside, limit).expect("a new connection of another port");
        assert!(answers(&mut new, rounds));
        begun += 1;
        let shown = lab.ovs_appctl(&["dpctl/ct-get-nconns"]);
        most = most.max(shown.trim().parse::<u64>().unwrap());
    }
    let again = sent_again(&[&lab.inside, &lab.outside]) - again;
    for flood in &mut floods {
        assert!(flood.is_running());
        flood.kill();
    }
    let counted = lab.switch.tool("ovs-ofctl", &["dump-ports", "br0", "3"]).expect_ok();
    let syns = number_behind(&counted, "rx pkts=");
    println!(
        "{syns} SYNs in {seconds} s, {rounds} rounds of {ESTABLISHED} connections, {again} segments sent again, \
         {begun} new connections, at most {most} at once"
    );
    assert!(syns > LIMIT && most <= LIMIT && begun > 0, "{syns} {most} {begun}");
    let shown = lab.ovs_appctl(&["dpctl/dump-conntrack"]);
    let kept = shown
        .lines()
        .filter(|line| line.contains("state=ESTABLISHED") && line.contains("dport=7"));
    assert!(kept.count() >= ESTABLISHED);
}
