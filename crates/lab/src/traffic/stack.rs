//! Counters of a host's network stack: dropped packets and fragments.

use super::protocol::Outcome;
use super::task::Control;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;

/// Reads the counts, once, of a host that has a kernel of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {}

/// Since the host began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// Packets that were to be sent and were dropped.
    pub sent: u64,
    /// Packets received and dropped: full socket buffer, no listener, or malformed.
    pub received: u64,
    /// Received fragments kept for reassembly.
    pub fragments: u64,
    /// Reassembled datagrams.
    pub whole: u64,
    /// Datagrams that are not whole now. They take room from others until their time is over, half
    /// a minute.
    pub incomplete: u64,
}

impl Count {
    pub(crate) fn run(&self, control: &Control) -> Result<Outcome> {
        control.ready(Vec::new());
        control.await_go();
        let mut stack = Stack::here()?;
        // It counts for all namespaces of a kernel: of a guest's, which has no other, it is the
        // host's.
        stack.sent += unknown_neighbours();
        Ok(Outcome::Counted(stack))
    }
}

impl Stack {
    /// Of the namespace that this thread is in.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub(crate) fn here() -> Result<Stack> {
        let mut counts = BTreeMap::new();
        for path in ["/proc/thread-self/net/snmp", "/proc/thread-self/net/netstat"] {
            counts.extend(named_counts(&fs::read_to_string(path).context(path)?));
        }
        let path = "/proc/thread-self/net/sockstat";
        let incomplete = incomplete(&fs::read_to_string(path).context(path)?);
        Ok(Stack {
            incomplete,
            ..Stack::of(&counts)
        })
    }

    fn of(counts: &BTreeMap<String, u64>) -> Stack {
        let sum = |names: &[&str]| names.iter().filter_map(|name| counts.get(*name)).sum();
        Stack {
            sent: sum(&["Udp.SndbufErrors", "Ip.OutDiscards", "Ip.OutNoRoutes"]),
            received: sum(&[
                "Ip.InHdrErrors",
                "Ip.InAddrErrors",
                "Ip.InDiscards",
                // Full receive buffers and wrong checksums.
                "Udp.InErrors",
                "Udp.NoPorts",
                "TcpExt.ListenDrops",
                "TcpExt.TCPBacklogDrop",
                "TcpExt.TCPRcvQDrop",
            ]),
            fragments: sum(&["Ip.ReasmReqds"]),
            whole: sum(&["Ip.ReasmOKs"]),
            incomplete: 0,
        }
    }
}

/// Of `/proc/net/sockstat`: `FRAG: inuse 3 memory 9216`.
fn incomplete(text: &str) -> u64 {
    let words = text.lines().find_map(|line| line.strip_prefix("FRAG: inuse "));
    let number = words.and_then(|words| words.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Packets that this kernel dropped in any namespace because too many waited for ARP. 0 if it does
/// not count them; only its first network namespace has the file.
pub(crate) fn unknown_neighbours() -> u64 {
    discards(&fs::read_to_string("/proc/net/stat/arp_cache").unwrap_or_default())
}

/// Of `/proc/net/stat/arp_cache`: a line of names, then for each processor one of hexadecimal
/// numbers.
fn discards(table: &str) -> u64 {
    let mut lines = table.lines();
    let names = lines.next().unwrap_or_default();
    let Some(column) = names.split_whitespace().position(|name| name == "unresolved_discards") else {
        return 0;
    };
    let numbers = lines.filter_map(|line| u64::from_str_radix(line.split_whitespace().nth(column)?, 16).ok());
    numbers.sum()
}

/// `/proc/net/snmp`: a line of names, then one of numbers, both after the same prefix.
fn named_counts(text: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks(2) {
        let [names, numbers] = pair else {
            continue;
        };
        let (Some((prefix, names)), Some((_, numbers))) = (names.split_once(':'), numbers.split_once(':')) else {
            continue;
        };
        for (name, number) in names.split_whitespace().zip(numbers.split_whitespace()) {
            // A few settings among the counters are negative.
            counts.insert(format!("{prefix}.{name}"), number.parse().unwrap_or(0));
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_the_stack_have_their_protocols_names() {
        let text = "Ip: Forwarding InDiscards ReasmReqds ReasmOKs\nIp: 1 7 30 10\nUdp: InErrors NoPorts SndbufErrors\nUdp: 8 9 -2\n";
        let counts = named_counts(text);
        assert_eq!(counts["Ip.InDiscards"], 7);
        assert_eq!(counts["Udp.NoPorts"], 9);
        let expected = Stack {
            sent: 0,
            received: 24,
            fragments: 30,
            whole: 10,
            incomplete: 0,
        };
        assert_eq!(Stack::of(&counts), expected);
    }

    #[test]
    fn datagrams_that_are_not_whole_are_known() {
        let text = "sockets: used 12\nUDP: inuse 1 mem 0\nRAW: inuse 0\nFRAG: inuse 3 memory 9216\n";
        assert_eq!(incomplete(text), 3);
        assert_eq!(incomplete("sockets: used 12\n"), 0);
    }

    #[test]
    fn what_waited_in_vain_for_a_neighbours_address_is_added_up_over_processors() {
        let table = "entries  lookups unresolved_discards table_fulls\n00000002 000073ac 00000f0b 00000000\n\
                     00000002 00007591 0000000e 00000000\n";
        assert_eq!(discards(table), 0xf0b + 0xe);
        assert_eq!(discards(""), 0);
        assert_eq!(discards("entries\n00000002\n"), 0);
    }

    #[test]
    fn an_agent_tells_what_its_host_has_counted() {
        let agent = crate::traffic::Agent::here("here").unwrap();
        let counted = agent.counts().unwrap();
        // Others of this machine go on meanwhile.
        assert!(Stack::here().unwrap().received >= counted.received);
    }
}
