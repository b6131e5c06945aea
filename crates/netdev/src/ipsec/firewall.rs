//! A table of the kernel's firewall with the same rules as the policies that block: other programs
//! remove all policies of a host at once (Debian's Libreswan does when it ends), and until they are
//! back, the table is what keeps unencrypted packets from passing. The program `nft` writes it.

use crate::netlink::{Netlink, nftables, parse};
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write as _};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tunnel::vport::IpsecPeer;

const UDP: u8 = 17;

/// How long `nft` may take; it takes some ms.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long what has failed is not tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// Where `nft` is looked for where the environment says nothing.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The table of one owner.
pub(super) struct Firewall {
    table: String,
    /// The other ends that it blocks, as far as is known.
    blocked: BTreeSet<IpsecPeer>,
    /// Whether the table is there; it may be one of a process before.
    is_there: bool,
    /// When it could not be written, and why.
    failed: Option<(Instant, ErrorKind, String)>,
    /// What the counters last said, and all that they have counted: received and sent packets.
    counters: Cell<([u64; 2], [u64; 2])>,
    events: Netlink,
}

impl Firewall {
    /// For the owner with this number.
    ///
    /// # Errors
    /// The kernel's; it may have no such firewall.
    pub(super) fn open(owner: u32) -> io::Result<Firewall> {
        let events = nftables::subscribe()?;
        let table = format!("oxvs-ipsec-{owner:04x}");
        Ok(Firewall {
            is_there: nftables::exists(&table),
            table,
            blocked: BTreeSet::new(),
            failed: None,
            counters: Cell::default(),
            events,
        })
    }

    /// Blocks unencrypted packets to and from these other ends, and no others.
    ///
    /// # Errors
    /// There is no `nft`, or what it says; the table is as before.
    pub(super) fn set(&mut self, peers: &BTreeSet<IpsecPeer>) -> io::Result<()> {
        if self.blocked == *peers {
            return Ok(());
        }
        self.write(&rules(&self.table, peers))?;
        self.blocked.clone_from(peers);
        self.is_there = true;
        Ok(())
    }

    /// The same, and those that it blocks already.
    ///
    /// # Errors
    /// As [`Firewall::set`].
    pub(super) fn add(&mut self, peers: &BTreeSet<IpsecPeer>) -> io::Result<()> {
        self.set(&self.blocked.union(peers).copied().collect())
    }

    /// Removes the table, also one of a process before.
    ///
    /// # Errors
    /// As [`Firewall::set`].
    pub(super) fn remove(&mut self) -> io::Result<()> {
        // What is not there cannot be deleted.
        let table = &self.table;
        let text = format!("add table inet {table}\ndelete table inet {table}\n");
        self.dropped();
        self.write(&text)?;
        self.is_there = false;
        self.blocked.clear();
        Ok(())
    }

    /// Whether the table is there, as far as is known.
    pub(super) fn is_there(&self) -> bool {
        self.is_there
    }

    /// Readable when somebody has removed tables.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Whether the table may have gone since the last call. Never waits.
    pub(super) fn may_be_gone(&mut self) -> bool {
        let mut gone = false;
        let mut buffer = vec![0; 32 * 1024];
        loop {
            match self.events.receive(&mut buffer) {
                Ok(n @ 1..) => {
                    gone |= parse(&buffer[..n]).any(|part| nftables::deletes(part.kind, part.payload, &self.table));
                }
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => gone = true,
                Ok(0) | Err(_) => break,
            }
        }
        let gone = gone && self.is_there;
        if gone {
            self.blocked.clear();
            self.is_there = false;
        }
        gone
    }

    /// How many packets it has dropped since the start, received and sent ones, as far as is known.
    pub(super) fn dropped(&self) -> [u64; 2] {
        let (last, mut all) = self.counters.get();
        if !self.is_there {
            return all;
        }
        let Ok(said) = nft(&["list", "counters", "table", "inet", &self.table], "") else {
            return all;
        };
        let now = ["in", "out"].map(|counter| packets(&said, counter));
        for ((all, now), last) in all.iter_mut().zip(now).zip(last) {
            // A table that was made again counts from 0.
            *all += if now >= last { now - last } else { now };
        }
        self.counters.set((now, all));
        all
    }

    /// Has `nft` carry out commands, unless the last ones have just failed.
    fn write(&mut self, commands: &str) -> io::Result<()> {
        if let Some((since, kind, error)) = &self.failed
            && since.elapsed() < AGAIN
        {
            return Err(io::Error::new(*kind, error.clone()));
        }
        let written = nft(&["-f", "-"], commands);
        let failure = written.as_ref().err();
        self.failed = failure.map(|error| (Instant::now(), error.kind(), error.to_string()));
        written.map(drop)
    }
}

/// Runs `nft`, and gives what it prints.
fn nft(args: &[&str], input: &str) -> io::Result<String> {
    // Daemons may be started without the directories of root's programs.
    let path = std::env::var("PATH").map_or_else(|_| PATH.to_owned(), |path| format!("{path}:{PATH}"));
    let mut child = Command::new("nft")
        .args(args)
        .env("PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("nft: {error}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.to_owned();
        // It says itself why it does not read to the end.
        std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    }
    let end = Instant::now() + PATIENCE;
    while child.try_wait()?.is_none() {
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::new(ErrorKind::TimedOut, "nft: it does not end"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or_default();
    Err(io::Error::other(format!("nft: {said}")))
}

/// Commands that give the table these rules, in one transaction. A table that is there keeps its
/// counters, and is in force all the time.
fn rules(table: &str, peers: &BTreeSet<IpsecPeer>) -> String {
    let mut text = format!("add table inet {table}\n");
    for name in ["in", "out"] {
        // Ends of the host's own filters: what these change is known there.
        let (hook, priority) = if name == "in" { ("input", -300) } else { ("output", 300) };
        let _ = writeln!(text, "add counter inet {table} {name}");
        let _ = writeln!(
            text,
            "add chain inet {table} {name} {{ type filter hook {hook} priority {priority}; }}"
        );
        let _ = writeln!(text, "flush chain inet {table} {name}");
    }
    for (version, ip, icmp, code) in [(4, "ip", "icmp", 3), (6, "ip6", "icmpv6", 4)] {
        let sets = [
            ("udp", format!("ipv{version}_addr . inet_service")),
            ("other", format!("ipv{version}_addr . inet_proto")),
            ("end", format!("ipv{version}_addr")),
        ];
        for (set, kind) in sets {
            let name = format!("{set}{version}");
            let _ = writeln!(text, "add set inet {table} {name} {{ type {kind}; }}");
            let _ = writeln!(text, "flush set inet {table} {name}");
            let of_version = peers
                .iter()
                .filter(|peer| matches!(peer.address, IpAddr::V4(_)) == (version == 4));
            let elements: BTreeSet<String> = of_version.filter_map(|peer| element(set, peer)).collect();
            if !elements.is_empty() {
                let elements: Vec<String> = elements.into_iter().collect();
                let _ = writeln!(text, "add element inet {table} {name} {{ {} }}", elements.join(", "));
            }
        }
        let unreachable = if version == 4 { 3 } else { 1 };
        for (chain, encrypted, address) in [("in", "meta ipsec", "saddr"), ("out", "rt ipsec", "daddr")] {
            let rule = format!("add rule inet {table} {chain} {encrypted} missing {ip} {address}");
            let drop = format!("counter name {chain} drop");
            let _ = writeln!(text, "{rule} . udp dport @udp{version} {drop}");
            let _ = writeln!(text, "{rule} . meta l4proto @other{version} {drop}");
            if chain == "out" {
                // "Port unreachable" quotes packets that the kernel has decrypted.
                let _ = writeln!(
                    text,
                    "{rule} @end{version} {icmp} type {unreachable} {icmp} code {code} {drop}"
                );
            }
        }
    }
    text
}

/// The element of a set for an other end; none if it does not belong there.
fn element(set: &str, peer: &IpsecPeer) -> Option<String> {
    let IpsecPeer {
        address,
        protocol,
        port,
    } = peer;
    match (set, *protocol) {
        ("end", _) => Some(address.to_string()),
        ("udp", UDP) => Some(format!("{address} . {port}")),
        ("other", other) if other != UDP => Some(format!("{address} . {other}")),
        _ => None,
    }
}

/// The packets of a counter in what `nft list counters` prints.
fn packets(said: &str, counter: &str) -> u64 {
    let named = said.split_once(&format!("counter {counter} {{"));
    let number = named.and_then(|(_, rest)| rest.split_once("packets ")?.1.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_other_end_is_in_the_sets_of_its_version_and_protocol() {
        let peer = |address: &str, protocol, port| IpsecPeer {
            address: address.parse().unwrap(),
            protocol,
            port,
        };
        let peers = BTreeSet::from([
            peer("192.0.2.7", UDP, 4789),
            peer("192.0.2.7", 47, 0),
            peer("2001:db8::7", UDP, 6081),
        ]);
        let text = rules("t", &peers);
        let added: Vec<&str> = text.lines().filter(|line| line.starts_with("add element")).collect();
        assert_eq!(
            added,
            [
                "add element inet t udp4 { 192.0.2.7 . 4789 }",
                "add element inet t other4 { 192.0.2.7 . 47 }",
                "add element inet t end4 { 192.0.2.7 }",
                "add element inet t udp6 { 2001:db8::7 . 6081 }",
                "add element inet t end6 { 2001:db8::7 }",
            ]
        );
        assert_eq!(text.matches("add rule").count(), 10);
    }

    #[test]
    fn the_packets_of_counters_are_read() {
        let said = "table inet t {\n\tcounter in {\n\t\tpackets 3 bytes 90\n\t}\n\n\tcounter out {\n\t\tpackets 5 bytes 1\n\t}\n}\n";
        assert_eq!(
            (packets(said, "in"), packets(said, "out"), packets("", "in")),
            (3, 5, 0)
        );
    }
}
