//! The allowed differences and their reasons.

use testkit::random::RuleSet;

/// Why the packet `frame`, with Open vSwitch's `trace`, may come out differently; `None` if it must
/// not.
pub(super) fn reason(set: &RuleSet, frame: &[u8], trace: &str) -> Option<&'static str> {
    let tags = tags(frame);
    let mut pushed = trace.matches("push_vlan:").count();
    let mut pushed_label = trace.contains("push_mpls:");
    let mut cut = trace.contains("max_len=");
    let (mut missed, mut measured, mut rewritten) = (false, false, false);
    if trace.contains("hash(") {
        // Open vSwitch's trace ends before the bucket chosen by a hash.
        let all = [&set.groups[..], &set.rules[..]].concat().concat();
        pushed += all.matches("push_vlan:").count();
        pushed_label |= all.contains("push_mpls:");
        cut |= all.contains("output(port=") && pushed > 0;
        let of_miss = set.rules.iter().filter(|rule| rule.contains("priority=0,actions="));
        measured = all.contains("check_pkt_larger");
        rewritten = TRANSPORT.iter().any(|word| all.contains(word));
        missed = of_miss.into_iter().any(|rule| has_controller(rule)) && set.telling.is_some();
    }
    let malformed_arp = trace.contains("arp_op=0") && trace.contains("arp_spa=0.0.0.0,arp_tpa=0.0.0.0");
    let has = |fields: &[&str]| fields.iter().any(|field| trace.contains(field));
    // A clone in which Open vSwitch recirculates the packet.
    let cloned = |line: &str| {
        let part = ["pop_mpls:", "group:", "resubmit("];
        line.starts_with("clone(") && part.iter().any(|part| line.contains(part))
    };
    let nested_set = |line: &str| line.starts_with(' ') && line.trim_start() == "--. Executing action set:";
    let looks_anew = has(&["hash(", "pop_mpls:"]) && has(&["clone("]);
    let looks_anew = looks_anew && trace.lines().any(|line| nested_set(line) || cloned(line.trim_start()));
    let flow = trace.lines().next().unwrap_or_default();
    let told = |field: &str| flow.contains(field) && !flow.contains(&format!("{field}00:00:00:00:00:00"));
    let other = if frame[13 + 4 * tags] == 0x47 {
        "_mpls:0x8848"
    } else {
        "_mpls:0x8847"
    };
    let relabelled = !is_labelled(frame) || has(&[other]);
    let drop_eligible = (0..tags).any(|tag| frame.get(14 + 4 * tag).is_some_and(|byte| byte & 0x10 != 0));
    // Any port, because rules can have changed it.
    let silent = set.ports.iter().filter(|(_, word)| *word == "no-packet-in");
    let silent = silent.map(|(port, _)| format!("in_port={},", &port[1..]));
    let mut silent = silent.filter(|port| trace.contains(port.as_str()));
    let rules: [(bool, &str); 26] = [
        (
            has(&["\"packet-in\" is called for"]) && silent.next().is_some(),
            "of packets that no rule is for, Open vSwitch tells controllers though their port has no-packet-in",
        ),
        (
            pushed > 0 && tags + pushed > 2,
            "Open vSwitch takes the inner tag off where a third is put on; here it stays, as OpenFlow says",
        ),
        (
            malformed_arp && has(&["set(arp(", "->arp_", "_ARP_"]),
            "of what is no ARP for IPv4 over Ethernet, Open vSwitch writes all fields that rules looked at, or none",
        ),
        (
            trace.contains("nw_proto=0,") && !trace.contains("set(ip"),
            "Open vSwitch does not write to IP packets of protocol 0 (CVE-2023-1668)",
        ),
        (
            trace.contains("NORMAL") && tags + pushed > 1 && has(&["dl_vlan=0,", "dl_vlan1=0,"]),
            "NORMAL there takes a second tag off with, or for being of, VLAN 0; here a packet keeps what is behind the first",
        ),
        (
            (pushed_label || has(&["set(mpls(", "push_mpls(", "pop_mpls(", "pop_mpls:"]))
                && no_labels(&frame[14 + 4 * tags..]),
            "a label whose bits are all zero, as those that are not there are, is none to Open vSwitch",
        ),
        (
            u16::from_be_bytes([frame[12 + 4 * tags], frame[13 + 4 * tags]]) < 0x600 && pushed_label,
            "where a label goes into an 802.3 frame, Open vSwitch takes its length for its type, and the packet is neither",
        ),
        (
            has(&["nd_target=::,"]) && has(&["->nd_", "->NXM_NX_ND"]),
            "Open vSwitch writes a target into neighbor messages that it takes for malformed",
        ),
        (
            drop_eligible && has(&["pop_vlan"]) && has(&["clone(", "group:"]),
            "a tag that only a clone or a bucket changes is put back without its DEI there",
        ),
        (has(&["Limit exceeded"]), LIMIT),
        (
            pushed_label && is_labelled(frame) && has(&["hash("]),
            "a packet that gets too many labels is dropped; what was done before a select group is done by then there",
        ),
        (
            told("nd_sll=") && told("nd_tll=") && has(&["set(nd("]),
            "of a neighbor message with both link-layer addresses, Open vSwitch writes no more than the first",
        ),
        (
            cut && (pushed > 0 || has(&["pop_vlan", "strip_vlan", "push_mpls", "pop_mpls"])),
            "a packet that is cut off for a port is as long as asked for here; there what is put on or taken off is not counted",
        ),
        (
            trace.contains("nw_frag=later") && (rewritten || has(&["set(ipv4(src=", "set(ipv4(dst=", "set(icmp"])),
            "Open vSwitch writes to a transport's header, and corrects its checksum, in the midst of a later fragment's data",
        ),
        (
            frame[12 + 4 * tags..].starts_with(&[0x86, 0xdd])
                && frame
                    .get(20 + 4 * tags)
                    .is_some_and(|next| [0, 43, 44, 51, 60].contains(next))
                && has(&["set(ipv6(src=", "set(ipv6(dst="]),
            "Open vSwitch leaves a transport's checksum behind IPv6 extension headers as it was, wrong",
        ),
        (
            has(&[" exit\n"]) && has(&["write_actions("]),
            "by the manual the action set is run behind an exit; Open vSwitch does not do so",
        ),
        (
            has(&["mpls_bos=1"]) && has(&["pop_mpls:0x884"]),
            "behind the last label, where a rule says that there is another, Open vSwitch takes it for zero without looking",
        ),
        (
            pushed_label && relabelled && has(&["pop_mpls:"]),
            "a label that is put on and taken off again leaves the type in Open vSwitch as it was before, whatever it shall be",
        ),
        (
            measured || has(&["check_pkt_larger"]) && has(&["resubmit(", "group:", "clone(", "Executing action set:"]),
            "what a table, a bucket or a clone does behind check_pkt_larger is undone there for who had it run, or for the action set",
        ),
        (
            has(&["MPLS pop action can't be performed"]),
            "of more labels than it looks at, Open vSwitch takes none off and drops the packet",
        ),
        (
            has(&["MPLS push action can't be performed"]) && has(&["pop_mpls:"]),
            "a packet that gets too many labels is dropped; what was done before a label was taken off is done by then here",
        ),
        (
            tags > 2 && pushed_label,
            "a label goes behind all tags here; Open vSwitch puts it behind two, in the midst of a third",
        ),
        (
            has(&["nw_frag=first"]) && has(&["set(sctp("]),
            "the checksum of an SCTP packet of which only a part is there stays as it is here; there it becomes another wrong one",
        ),
        (
            has(&["tp_src=0,tp_dst=0", "icmp_type=0,icmp_code=0"]) && has(&["set(ip"]),
            "Open vSwitch corrects the checksum of a transport header that it takes for malformed",
        ),
        (
            missed && trace.lines().any(|line| line.ends_with(". priority 0")),
            "behind a select group, Open vSwitch does not know any more that it was a table-miss rule that told controllers",
        ),
        (
            looks_anew,
            "where a clone, or the action set that it runs, has a select group or needs what is behind a label that it takes off, Open vSwitch leaves out what is behind the clone",
        ),
    ];
    rules.iter().find(|(applies, _)| *applies).map(|(_, reason)| *reason)
}

/// Why rules may have been learned differently.
const LIMIT: &str = "by the manual no rule is added beyond a limit; there none is changed either, once it is reached";

/// Why packets may come out differently after the switches have learned different rules: `rules`
/// are Open vSwitch's and ours.
pub(super) fn learned(set: &RuleSet, rules: &[Vec<String>; 2]) -> Option<&'static str> {
    let limited = set.rules.iter().any(|rule| rule.contains("limit="));
    (limited && rules[0] != rules[1]).then_some(LIMIT)
}

/// Statistics of a rule set that may differ.
#[derive(Debug, Default)]
pub(super) struct Uncounted {
    packets: bool,
    bytes: bool,
}

impl Uncounted {
    /// All counts.
    pub(super) const ALL: Uncounted = Uncounted {
        packets: true,
        bytes: true,
    };

    pub(super) fn of(set: &RuleSet) -> Uncounted {
        // In Open vSwitch rules count the packets of a port with `no-receive` before it drops them.
        let unheard = set.ports.iter().any(|(_, word)| *word == "no-receive");
        // Actions after check_pkt_larger run and count for either result; in Open vSwitch not after
        // the return from a table, a bucket or a clone.
        let returns = |rule: &String| !rule.starts_with("table=0,") || rule.contains("clone(");
        let twice = |rule: &String| rule.contains("check_pkt_larger") && returns(rule);
        // Open vSwitch recirculates after a pop of a label pushed by the same rules, and for select
        // groups; then it counts with the packet's present tags and labels, and for
        // check_pkt_larger only the right result.
        let select = set.groups.iter().any(|group| group.contains("type=select"));
        let answered = |rule: &String| twice(rule) || select && rule.contains("check_pkt_larger");
        let packets = unheard || set.rules.iter().chain(&set.groups).any(answered);
        let bytes = packets || select || set.rules.iter().any(|rule| rule.contains("pop_mpls"));
        Uncounted { packets, bytes }
    }

    /// Whether a word of a statistics line or of a controller's message is left out.
    pub(super) fn word(&self, word: &str) -> bool {
        let begins = |names: &[&str]| names.iter().any(|name| word.starts_with(name));
        self.packets && begins(&["n_packets", "packet_count", "bucket0:packet_count", "pkts"])
            || self.bytes && begins(&["n_bytes", "byte_count", "bytes"])
    }

    /// Whether a counter is left out.
    pub(super) fn counter(&self, set: &RuleSet, name: &str) -> bool {
        // Open vSwitch counts dropped fragments as lookups and matches, without a rule. Packets
        // without a rule also have another number of lookups.
        let table = name.contains("lookup") || name.contains("table") && (self.packets || set.frags == "drop");
        // Open vSwitch's dummies do not count packets sent by a device that is down.
        let down = set.ports.iter().filter(|(_, word)| *word == "down");
        let down = down.map(|(port, _)| port.replace('p', "port ") + ":");
        // Open vSwitch pushes and pops labels and tags at the output, so a meter before counts the
        // old size.
        let sizes = ["_mpls", "_vlan", "vlan_vid", "vlan_pcp", "vlan_tci", "VLAN_TCI"];
        let labelled = set
            .rules
            .iter()
            .chain(&set.groups)
            .any(|rule| sizes.iter().any(|word| rule.contains(word)));
        let metered = name.contains("meter:") && name.contains("byte") && labelled;
        table || metered || down.into_iter().any(|port| name.contains(&port))
    }
}

/// The kind of frames with an allowed difference: their tags, or type, protocol and fragmentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Tagged,
    Other {
        tags: usize,
        ether_type: [u8; 2],
        protocol: u8,
        fragment: bool,
    },
}

pub(super) fn kind(frame: &[u8]) -> Kind {
    let tags = tags(frame);
    if tags > 1 {
        return Kind::Tagged;
    }
    let at = |at: usize| frame.get(14 + 4 * tags + at).copied().unwrap_or_default();
    let ether_type = [frame[12 + 4 * tags], frame[13 + 4 * tags]];
    let (protocol, fragment) = match ether_type {
        [0x08, 0] => (at(9), at(6) & 0x3f != 0 || at(7) != 0),
        [0x86, 0xdd] => (at(6), false),
        [0x88, 0x47 | 0x48] => (at(2) & 1, false),
        _ => (0, false),
    };
    Kind::Other {
        tags,
        ether_type,
        protocol,
        fragment,
    }
}

/// Actions that write to a transport header or to fields of its checksum.
const TRANSPORT: [&str; 8] = [
    "mod_nw_src",
    "mod_nw_dst",
    "mod_tp_",
    "->icmp",
    "->ip_src",
    "->ip_dst",
    "IP_SRC",
    "IP_DST",
];

/// Whether a rule sends to controllers.
fn has_controller(rule: &str) -> bool {
    rule.contains("controller(") || rule.contains("CONTROLLER")
}

/// Whether any of the matched labels is zero or truncated.
fn no_labels(stack: &[u8]) -> bool {
    for at in [0, 4, 8] {
        match stack.get(at..at + 4) {
            None | Some([0, 0, 0, 0]) => return true,
            Some(label) if label[2] & 1 == 1 => return false,
            Some(_) => {}
        }
    }
    false
}

/// Whether packets after `frame` may be uncounted: for a truncated or zero label Open vSwitch
/// cannot parse its own megaflow's key, and no rule counts that megaflow's packets until it is
/// removed.
pub(super) fn loses_count(frame: &[u8]) -> bool {
    is_labelled(frame) && no_labels(frame.get(14 + 4 * tags(frame)..).unwrap_or_default())
}

/// Whether a frame has an MPLS EtherType.
fn is_labelled(frame: &[u8]) -> bool {
    let rest = &frame[12 + 4 * tags(frame)..];
    rest.starts_with(&[0x88, 0x47]) || rest.starts_with(&[0x88, 0x48])
}

/// The number of a frame's tags, with a truncated one.
fn tags(frame: &[u8]) -> usize {
    let types = frame[12..].chunks(4);
    types
        .take_while(|t| t.starts_with(&[0x81, 0]) || t.starts_with(&[0x88, 0xa8]))
        .count()
}
