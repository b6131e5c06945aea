//! A random rule set: rules, groups and meters as files for `ovs-ofctl`.

use super::actions::{Scope, instructions, port};
use super::matches;
use super::pools::{MACS, PORTS, VIDS, ip, ip6};
use crate::Rng;

/// Frames of this type mark the end of a batch: they go to a port of their own before any other
/// rule applies.
pub const MARK: u16 = 0x88b6;
/// Where they go.
pub const MARK_PORT: u16 = 9;

/// A rule set, for a bridge with the ports 1 to 5, [`MARK_PORT`] and LOCAL.
#[derive(Debug, Clone)]
pub struct RuleSet {
    /// The version that `ovs-ofctl` speaks for it, as its option `-O` names it.
    pub version: &'static str,
    /// Rules, for `ovs-ofctl add-flow`.
    pub rules: Vec<String>,
    /// Groups, for `ovs-ofctl add-group`.
    pub groups: Vec<String>,
    /// Whether packets affect later ones.
    pub learning: bool,
    /// The packet-in format for `ovs-ofctl monitor -P` if a controller gets packets and removed
    /// rules.
    pub telling: Option<&'static str>,
    /// Changes of ports, for `ovs-ofctl mod-port`: the port and the word.
    pub ports: Vec<(&'static str, &'static str)>,
    /// Handling of fragments, for `ovs-ofctl set-frags`.
    pub frags: &'static str,
}

impl RuleSet {
    /// The meters that rules use, for `ovs-ofctl add-meter`: so fast that they never drop anything.
    pub const METERS: [&'static str; 2] = [
        "meter=1,kbps,burst,stats,bands=type=drop,rate=40000000,burst_size=40000000",
        "meter=2,pktps,stats,bands=type=drop,rate=10000000",
    ];

    /// Any rule set.
    pub fn random(rng: &mut Rng) -> RuleSet {
        let version = *rng.pick(&["OpenFlow10", "OpenFlow13", "OpenFlow13", "OpenFlow14", "OpenFlow15"]);
        let oldest = version == "OpenFlow10";
        let (learning, telling) = (rng.chance(15), rng.chance(20));
        let groups = if oldest { Vec::new() } else { groups(rng, version) };
        let scope = Scope {
            table: 0,
            groups: groups.len() as u32,
            meters: if oldest { 0 } else { RuleSet::METERS.len() as u32 },
            learning,
            telling,
        };
        let form = *rng.pick(&["nxt_packet_in2", "nxt_packet_in2", "nxt_packet_in", "standard"]);
        let told = if telling {
            ",controller".to_owned()
        } else {
            String::new()
        };
        let mut rules = vec![format!(
            "priority=65535,dl_type=0x{MARK:x},actions=output:{MARK_PORT}{told}"
        )];
        for table in 0..5 {
            let scope = Scope { table, ..scope };
            for _ in 0..if table == 0 { 8 } else { 5 } {
                let (matched, known) = matches::random(rng, table, oldest);
                let comma = if matched.is_empty() { "" } else { "," };
                let settings = settings(rng, telling, oldest);
                rules.push(format!(
                    "table={table},priority={},{settings}{matched}{comma}actions={}",
                    1 + rng.below(60000),
                    instructions(rng, known, scope)
                ));
            }
            if rng.chance(60) {
                let (_, mut known) = matches::random(rng, 0, oldest);
                known.network = matches::Network::Any;
                known.transport = matches::Transport::Any;
                known.tagged = false;
                rules.push(format!(
                    "table={table},priority=0,actions={}",
                    instructions(rng, known, scope)
                ));
            }
        }
        for id in 1..=rng.below(3) {
            conjunction(rng, id, &mut rules);
        }
        RuleSet {
            version,
            rules,
            groups,
            learning,
            telling: telling.then_some(form),
            ports: ports(rng),
            frags: if rng.chance(6) {
                rng.pick::<&str>(&["drop", "nx-match"])
            } else {
                "normal"
            },
        }
    }

    /// All of it, for a report.
    pub fn text(&self) -> String {
        let lines = [&self.groups[..], &self.rules].concat();
        let ports = &self.ports;
        format!("{} frags={} {ports:?}\n{}", self.version, self.frags, lines.join("\n"))
    }
}

/// The parts of a rule beside match and instructions.
fn settings(rng: &mut Rng, telling: bool, oldest: bool) -> String {
    let mut text = String::new();
    if telling && rng.chance(40) {
        text += "send_flow_rem,";
    }
    if rng.chance(10) {
        text += &format!("cookie=0x{:x},", 1 + rng.below(0xffff));
    }
    if rng.chance(6) {
        text += "idle_timeout=5000,";
    }
    if rng.chance(4) {
        text += "hard_timeout=6000,";
    }
    if !oldest && rng.chance(3) {
        text += rng.pick::<&str>(&["no_packet_counts,", "no_byte_counts,", "reset_counts,"]);
    }
    text
}

/// Ports with changed settings.
fn ports(rng: &mut Rng) -> Vec<(&'static str, &'static str)> {
    let mut changes = Vec::new();
    if rng.chance(25) {
        for _ in 0..1 + rng.below(2) {
            let word = *rng.pick(&["down", "no-flood", "no-forward", "no-receive", "no-packet-in", "down"]);
            changes.push((*rng.pick(&["p1", "p2", "p3", "p4", "p5"]), word));
        }
    }
    changes
}

fn conjunction(rng: &mut Rng, id: usize, rules: &mut Vec<String>) {
    let table = rng.below(3);
    let (priority, protocol) = (60001 + id, *rng.pick(&["tcp", "udp", "tcp6"]));
    let prefix = format!("table={table},priority={priority}");
    let clauses = 2 + rng.below(2);
    for _ in 0..1 + rng.below(3) {
        let way = *rng.pick(&["src", "dst"]);
        let address = match protocol {
            "tcp6" => format!("ipv6_{way}={}", ip6(rng)),
            _ => format!("nw_{way}={}", ip(rng)),
        };
        rules.push(format!(
            "{prefix},{protocol},{address},actions=conjunction({id},1/{clauses})"
        ));
    }
    for _ in 0..1 + rng.below(2) {
        let port = rng.pick(&PORTS);
        // Some have other conjunctions too.
        let more = if rng.chance(20) {
            format!(",conjunction({},1/2)", id + 1)
        } else {
            String::new()
        };
        rules.push(format!(
            "{prefix},{protocol},tp_dst={port},actions=conjunction({id},2/{clauses}){more}"
        ));
    }
    if clauses == 3 {
        for _ in 0..2 {
            let port = rng.pick(&["1", "2", "3", "4", "LOCAL"]);
            rules.push(format!("{prefix},in_port={port},actions=conjunction({id},3/3)"));
        }
    }
    rules.push(format!("{prefix},conj_id={id},actions=output:{}", port(rng)));
}

/// Groups. Later ones may use earlier ones.
fn groups(rng: &mut Rng, version: &str) -> Vec<String> {
    let mut groups: Vec<String> = Vec::new();
    for id in 1..=rng.below(6) {
        let kind = *rng.pick(&["all", "indirect", "fast_failover", "all", "fast_failover", "select"]);
        let mut text = format!("group_id={id},type={kind}");
        let buckets = match kind {
            // The choice among several buckets depends on hashes, which differ between the
            // switches.
            "indirect" | "select" => 1,
            _ => rng.below(4),
        };
        if kind == "select" && version == "OpenFlow15" && rng.chance(50) {
            text += rng.pick::<&str>(&[
                ",selection_method=dp_hash",
                ",selection_method=hash,fields(eth_src,eth_dst)",
                ",selection_method=hash,fields(ip_dst=255.255.0.0)",
            ]);
        }
        for _ in 0..buckets {
            let mut actions = Vec::new();
            for _ in 0..rng.below(3) {
                actions.push(match rng.below(5) {
                    0 => format!("set_field:{}->eth_{}", rng.pick(&MACS), rng.pick(&["src", "dst"])),
                    1 => format!(
                        "push_vlan:0x8100,set_field:{}->vlan_vid,set_field:3->vlan_pcp",
                        0x1000 | rng.pick(&VIDS)
                    ),
                    2 => format!("load:0x{:x}->NXM_NX_REG1[]", rng.below(4)),
                    3 => format!("resubmit(,{})", 1 + rng.below(4)),
                    _ => "push:NXM_OF_ETH_SRC[],pop:NXM_OF_ETH_DST[]".to_owned(),
                });
            }
            actions.push(match rng.below(6) {
                0 if id > 1 => format!("group:{}", 1 + rng.below(id - 1)),
                1 => "IN_PORT".to_owned(),
                _ => format!("output:{}", port(rng)),
            });
            let watch = match kind {
                "fast_failover" if id > 1 && rng.chance(30) => format!("watch_group:{},", 1 + rng.below(id - 1)),
                "fast_failover" => format!("watch_port:{},", 1 + rng.below(5)),
                _ => String::new(),
            };
            text += &format!(",bucket={watch}actions={}", actions.join(","));
        }
        groups.push(text);
    }
    groups
}
