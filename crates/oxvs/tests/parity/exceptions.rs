//! The differences from Open vSwitch that are allowed. Each says where it is documented, and fails
//! when no row of its table needs it.

use crate::run::Said;

/// A difference that rows of a table may show.
pub(crate) struct Exception {
    /// The table's name.
    pub(crate) table: &'static str,
    /// Text that the command lines of these rows contain.
    pub(crate) rows: &'static str,
    /// How the outputs differ.
    pub(crate) change: Change,
    /// Where the difference is documented.
    #[allow(dead_code, reason = "a test reads it only when there are exceptions")]
    pub(crate) cites: Cite,
}

/// How two outputs differ.
#[derive(Debug, Clone, Copy)]
#[allow(dead_code, reason = "the vocabulary of all tables")]
pub(crate) enum Change {
    /// Where theirs has the first text, ours has the second.
    Reads(&'static str, &'static str),
    /// Our lines that contain this text are additional.
    OurLine(&'static str),
    /// Ours does not have their lines that contain this text.
    TheirLine(&'static str),
    /// Other words in the standard output; the exit status is the same.
    Output,
    /// Other words in the standard error; the exit status is the same.
    Error,
    /// Ours refuses what theirs accepts silently.
    Refusal,
}

/// Where a difference is documented.
#[derive(Debug, Clone, Copy)]
#[allow(dead_code, reason = "the vocabulary of all tables")]
pub(crate) enum Cite {
    /// A sentence of docs/compatibility.md.
    Page(&'static str),
    /// A manual page or release note of Open vSwitch, with its section.
    Manual(&'static str),
}

/// Most exceptions there may be.
const MOST: usize = 40;

/// All exceptions.
pub(crate) const EXCEPTIONS: &[Exception] = &[
    Exception {
        table: "ofctl answers",
        rows: "dump-desc br0",
        change: Change::Output,
        cites: Cite::Page("names oxvs as the manufacturer"),
    },
    Exception {
        table: "ofctl answers",
        rows: "dump-table",
        change: Change::Output,
        cites: Cite::Page("lists what each version supports"),
    },
    Exception {
        table: "ofctl answers",
        rows: "meter-features br0",
        change: Change::Reads("band_types: drop", "band_types: drop dscp_remark"),
        cites: Cite::Page("meters of dummies remark too"),
    },
    Exception {
        table: "vsctl",
        rows: "ovs-vsctl --version",
        change: Change::Reads("DB Schema 8.3.1", "DB Schema 8.8.0"),
        cites: Cite::Page("schema 8.8.0"),
    },
    Exception {
        table: "appctl",
        rows: "vlog/list-pattern",
        change: Change::Reads(
            "<%B> %D{%h %e %T} %E %A:          ",
            "<%B>%A:                           ",
        ),
        cites: Cite::Page("Lines to the system's log have no time and host"),
    },
    Exception {
        table: "appctl",
        rows: "fdb/add br0 p9",
        change: Change::Error,
        cites: Cite::Page("`fdb/add` refuses a port or VLAN that does not exist with a message"),
    },
    Exception {
        table: "appctl",
        rows: "fdb/add br0 p1",
        change: Change::Refusal,
        cites: Cite::Page("`fdb/add` refuses a port or VLAN that does not exist with a message"),
    },
    Exception {
        table: "appctl",
        rows: "bridge/dump-flows",
        change: Change::TheirLine("table_id=254, "),
        cites: Cite::Page("no hidden table 254"),
    },
    Exception {
        table: "appctl",
        rows: "/dump-flows",
        change: Change::Reads(",eth_type(0x0800),ipv4(frag=no)", ""),
        cites: Cite::Page("A megaflow compares only fields that the decision read"),
    },
    Exception {
        table: "appctl",
        rows: "dpctl/dump-flows",
        change: Change::Reads(",eth(),", ",packet_type(ns=0,id=0),"),
        cites: Cite::Page("All packets are Ethernet packets"),
    },
    Exception {
        table: "appctl",
        rows: "dpif/dump-flows",
        change: Change::Reads(
            "ct_state(-new-est-rel-rpl-inv-trk-snat-dnat),ct_zone(0),ct_mark(0),ct_label(0),recirc_id(0),dp_hash(0),",
            "ct_state(0),ct_zone(0),ct_mark(0),ct_label(0),recirc_id(0),",
        ),
        cites: Cite::Page("by the names of the bits that are set, and no fields of hashes"),
    },
    Exception {
        table: "connections",
        rows: "ct-stats-show zone=0",
        change: Change::Output,
        cites: Cite::Page("`dpctl/ct-stats-show zone=0` counts the connections of zone 0"),
    },
    Exception {
        table: "ovsdb",
        rows: " noise",
        change: Change::Error,
        cites: Cite::Page("**Syntax errors of JSON**"),
    },
    Exception {
        table: "ovsdb",
        rows: " '['",
        change: Change::Error,
        cites: Cite::Page("**Syntax errors of JSON**"),
    },
    Exception {
        table: "ovsdb",
        rows: "ovsdb-client --help",
        change: Change::TheirLine("replay files"),
        cites: Cite::Page("**`--record` and `--replay`**"),
    },
    Exception {
        table: "dpctl",
        rows: "list-commands",
        change: Change::OurLine("-sweep-interval"),
        cites: Cite::Page("the pause between two sweeps over all connections"),
    },
    Exception {
        table: "options",
        rows: "--ssl-protocols=x",
        change: Change::Refusal,
        cites: Cite::Page("refuse protocols and ciphers of TLS that they do not know"),
    },
    Exception {
        table: "trace",
        rows: "tp_dst=23",
        change: Change::Output,
        cites: Cite::Page("of a group with one bucket it goes on at once"),
    },
    Exception {
        table: "vsctl",
        rows: "add-br br0.6 br0 x",
        change: Change::Refusal,
        cites: Cite::Page("`add-br` with a VLAN that is not a number"),
    },
];

impl Exception {
    /// Removes the difference from the outputs; whether it was there.
    pub(crate) fn apply(&self, theirs: &mut Said, ours: &mut Said) -> bool {
        let without = |text: &str, mark: &str| -> String {
            text.split_inclusive('\n').filter(|line| !line.contains(mark)).collect()
        };
        let before = (theirs.clone(), ours.clone());
        match self.change {
            Change::Reads(from, to) => {
                theirs.out = theirs.out.replace(from, to);
                theirs.err = theirs.err.replace(from, to);
            }
            Change::OurLine(mark) => {
                ours.out = without(&ours.out, mark);
                ours.err = without(&ours.err, mark);
            }
            Change::TheirLine(mark) => {
                theirs.out = without(&theirs.out, mark);
                theirs.err = without(&theirs.err, mark);
            }
            Change::Output => ours.out.clone_from(&theirs.out),
            Change::Error => ours.err.clone_from(&theirs.err),
            Change::Refusal if theirs.succeeded() && !ours.succeeded() => ours.clone_from(theirs),
            Change::Refusal => {}
        }
        (&*theirs, &*ours) != (&before.0, &before.1)
    }
}

#[test]
fn exceptions_are_few_and_documented() {
    assert!(EXCEPTIONS.len() <= MOST, "{} exceptions", EXCEPTIONS.len());
    let page = include_str!("../../../../docs/compatibility.md");
    for exception in EXCEPTIONS {
        match exception.cites {
            Cite::Page(sentence) => assert!(page.contains(sentence), "not in docs/compatibility.md: {sentence}"),
            Cite::Manual(place) => assert!(place.contains('('), "{place}: which section of which page?"),
        }
    }
}
