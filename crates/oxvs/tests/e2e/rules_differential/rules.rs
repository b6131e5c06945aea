//! A random rule set: rules, groups and meters as files for `ovs-ofctl`.

use super::actions::{Scope, instructions, port};
use super::matches;
use super::pools::{MACS, PORTS, VIDS, ip};
use testkit::Rng;

/// Frames of this type mark the end of a batch: they go to a port of their own before any other rule is looked at.
pub(super) const MARK: u16 = 0x88b6;
/// Where they go.
pub(super) const MARK_PORT: u16 = 9;

/// A rule set.
#[derive(Debug, Clone)]
pub(super) struct RuleSet {
    /// The version that `ovs-ofctl` speaks for it.
    pub(super) version: &'static str,
    pub(super) rules: Vec<String>,
    pub(super) groups: Vec<String>,
    pub(super) meters: Vec<String>,
    /// Whether packets change what happens to later ones.
    pub(super) learning: bool,
}

impl RuleSet {
    pub(super) fn random(rng: &mut Rng) -> RuleSet {
        let version = *rng.pick(&["OpenFlow10", "OpenFlow13", "OpenFlow13", "OpenFlow14", "OpenFlow15"]);
        let oldest = version == "OpenFlow10";
        let learning = rng.chance(15);
        let groups = if oldest { Vec::new() } else { groups(rng) };
        let meters: Vec<String> = match oldest {
            true => Vec::new(),
            false => vec![
                "meter=1,kbps,burst,stats,bands=type=drop,rate=40000000,burst_size=40000000".to_owned(),
                "meter=2,pktps,stats,bands=type=drop,rate=10000000".to_owned(),
            ],
        };
        let scope = Scope {
            table: 0,
            groups: groups.len() as u32,
            meters: meters.len() as u32,
            learning,
        };
        let mut rules = vec![format!("priority=65535,dl_type=0x{MARK:x},actions=output:{MARK_PORT}")];
        for table in 0..5 {
            let scope = Scope { table, ..scope };
            for _ in 0..if table == 0 { 8 } else { 5 } {
                let (matched, known) = matches::random(rng, table, oldest);
                let comma = if matched.is_empty() { "" } else { "," };
                rules.push(format!(
                    "table={table},priority={},{matched}{comma}actions={}",
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
            meters,
            learning,
        }
    }

    /// All of it, for a report.
    pub(super) fn text(&self) -> String {
        let lines = [&self.meters[..], &self.groups, &self.rules].concat();
        format!("{}\n{}", self.version, lines.join("\n"))
    }
}

fn conjunction(rng: &mut Rng, id: usize, rules: &mut Vec<String>) {
    let table = rng.below(3);
    let (priority, protocol) = (60001 + id, *rng.pick(&["tcp", "udp"]));
    let prefix = format!("table={table},priority={priority}");
    for _ in 0..1 + rng.below(3) {
        let side = *rng.pick(&["nw_src", "nw_dst"]);
        rules.push(format!(
            "{prefix},{protocol},{side}={},actions=conjunction({id},1/2)",
            ip(rng)
        ));
    }
    for _ in 0..1 + rng.below(2) {
        rules.push(format!(
            "{prefix},{protocol},tp_dst={},actions=conjunction({id},2/2)",
            rng.pick(&PORTS)
        ));
    }
    rules.push(format!("{prefix},conj_id={id},actions=output:{}", port(rng)));
}

/// Groups, of which later ones may use earlier ones.
fn groups(rng: &mut Rng) -> Vec<String> {
    let mut groups: Vec<String> = Vec::new();
    for id in 1..=rng.below(5) {
        let kind = *rng.pick(&["all", "indirect", "fast_failover", "all"]);
        let mut text = format!("group_id={id},type={kind}");
        let buckets = if kind == "indirect" { 1 } else { rng.below(4) };
        for _ in 0..buckets {
            let mut actions = Vec::new();
            for _ in 0..rng.below(3) {
                actions.push(match rng.below(4) {
                    0 => format!("set_field:{}->eth_{}", rng.pick(&MACS), rng.pick(&["src", "dst"])),
                    1 => format!(
                        "push_vlan:0x8100,set_field:{}->vlan_vid,set_field:3->vlan_pcp",
                        0x1000 | rng.pick(&VIDS)
                    ),
                    2 => format!("load:0x{:x}->NXM_NX_REG1[]", rng.below(4)),
                    _ => "push:NXM_OF_ETH_SRC[],pop:NXM_OF_ETH_DST[]".to_owned(),
                });
            }
            actions.push(match rng.below(6) {
                0 if id > 1 => format!("group:{}", 1 + rng.below(id - 1)),
                1 => "IN_PORT".to_owned(),
                _ => format!("output:{}", port(rng)),
            });
            let watch = match kind {
                "fast_failover" => format!("watch_port:{},", 1 + rng.below(5)),
                _ => String::new(),
            };
            text += &format!(",bucket={watch}actions={}", actions.join(","));
        }
        groups.push(text);
    }
    groups
}
