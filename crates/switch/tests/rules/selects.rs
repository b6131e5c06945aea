//! Select groups: the datapath hashes a packet, and each value of the hash, a slot, has a megaflow.

use crate::ask::Ask;
use crate::frozen::{bridge, udp};
use crate::model::Topology;
use dp::{Action as Step, Carried, Change, Key, Translation};
use flow::{Field, RecircId};
use nanos::Nanos;
use openflow::model::{FlowCommand, GroupCommand};
use openflow::text::{Names, parse_flow, parse_group_mod};
use std::collections::BTreeMap;
use switch::Switch;
use switch::tables::Patience;
use switch::trace::Request;
use testkit::Rng;

/// The megaflows of a datapath.
#[derive(Default)]
struct Cache {
    flows: Vec<(Key, Translation)>,
    upcalls: usize,
}

impl Cache {
    /// The megaflow of a packet.
    fn find(&mut self, switch: &mut Switch, key: &Key) -> Translation {
        if let Some((_, known)) = self.flows.iter().find(|(other, flow)| flow.mask.eq_key(other, key)) {
            return known.clone();
        }
        self.upcalls += 1;
        let translated = switch.ask(key);
        switch.accept(&translated, Nanos::ZERO).unwrap();
        self.flows.push((*key, translated.translation.clone()));
        translated.translation
    }

    fn apply(&mut self, changes: &[Change]) {
        let is_stale = |flow: &Translation| changes.iter().any(|change| flow.depends_on(change));
        self.flows.retain(|(_, flow)| !is_stale(flow));
    }

    /// The ports that a packet leaves by.
    fn send(&mut self, switch: &mut Switch, key: &Key) -> Vec<u32> {
        let (mut packet, mut ports) = (*key, Vec::new());
        for step in self.find(switch, key).actions.iter() {
            match step {
                Step::Output(port) => ports.push(port.0),
                Step::SetField(set) => {
                    packet.set(set.field(), packet.get(set.field()) & !set.mask() | set.value());
                }
                Step::RecircByHash { id, hash } => {
                    let mut again = packet;
                    again.set(Field::RecircId, id.with_hash(hash.short(&packet)).0.into());
                    ports.extend(self.send(switch, &again));
                }
                other => panic!("{other:?}"),
            }
        }
        ports
    }
}

fn group_mod(switch: &mut Switch, command: GroupCommand, text: &str) -> Vec<Change> {
    let (change, _) =
        parse_group_mod(command, text, &Names::default()).unwrap_or_else(|error| panic!("{text}: {error}"));
    switch.group_mod("br0", &change, Nanos::ZERO).unwrap()
}

const TWO: &str =
    "group_id=1,type=select,bucket=bucket_id=0,weight=1,actions=output:2,bucket=bucket_id=1,weight=3,actions=output:3";
const TO_GROUP: &str = "udp,actions=group:1";

#[test]
fn connections_share_the_megaflow_before_the_choice_and_one_for_each_slot() {
    let (mut switch, mut cache) = (bridge(&[TWO], &[TO_GROUP]), Cache::default());
    let mut counts = BTreeMap::new();
    for port in 0..4000 {
        let sent = cache.send(&mut switch, &udp(port));
        let [port] = sent[..] else { panic!("{sent:?}") };
        *counts.entry(port).or_insert(0) += 1;
    }
    assert_eq!(cache.upcalls, 1 + 16);
    assert!(counts.len() == 2 && (850..1150).contains(&counts[&2]), "{counts:?}");
}

#[test]
fn a_changed_bucket_or_port_moves_its_own_slots_only() {
    let group = |second: &str| TWO.replace("actions=output:3", second);
    let (mut switch, mut cache) = (bridge(&[TWO], &[TO_GROUP]), Cache::default());
    let send_all = |cache: &mut Cache, switch: &mut Switch| {
        let before = cache.upcalls;
        let sent: Vec<Vec<u32>> = (0..400).map(|port| cache.send(switch, &udp(port))).collect();
        (sent, cache.upcalls - before)
    };
    let (first, upcalls) = send_all(&mut cache, &mut switch);
    assert_eq!(upcalls, 17);
    // Twelve of the sixteen slots are the second bucket's.
    let changes = group_mod(&mut switch, GroupCommand::Modify, &group("actions=output:4"));
    cache.apply(&changes);
    let (second, upcalls) = send_all(&mut cache, &mut switch);
    assert_eq!(upcalls, 12);
    for (before, after) in first.iter().zip(&second) {
        assert_eq!(after[..], [if before[..] == [2] { 2 } else { 4 }]);
    }
    // The same group again, and weights in the same proportion.
    for same in [
        group("actions=output:4"),
        group("actions=output:4").replace("weight=", "weight=2"),
    ] {
        let same = same.replace("weight=21", "weight=20").replace("weight=23", "weight=60");
        cache.apply(&group_mod(&mut switch, GroupCommand::Modify, &same));
        assert_eq!(send_all(&mut cache, &mut switch), (second.clone(), 0), "{same}");
    }
    // A hash of its own moves all.
    let other = group("actions=output:4").replace("select,", "select,selection_method=dp_hash,");
    cache.apply(&group_mod(&mut switch, GroupCommand::Modify, &other));
    assert_eq!(send_all(&mut cache, &mut switch).1, 17);
    // A port that goes down moves the slots of its bucket, and they come back.
    let watched = group("watch_port:4,actions=output:4");
    cache.apply(&group_mod(&mut switch, GroupCommand::Modify, &watched));
    let (first, _) = send_all(&mut cache, &mut switch);
    for (up, port) in [(false, 2), (true, 4)] {
        let mut config = Topology::fixed().config();
        let ports = &mut config.bridges.get_mut("br0").unwrap().ports;
        let mut interfaces = ports.values_mut().flat_map(|port| &mut port.interfaces);
        interfaces.find(|interface| interface.ofport == 4).unwrap().link.up = up;
        cache.apply(&switch.configure(config, Nanos::ZERO));
        let (sent, upcalls) = send_all(&mut cache, &mut switch);
        assert_eq!(upcalls, 12);
        for (before, after) in first.iter().zip(&sent) {
            assert_eq!(after[..], [if before[..] == [2] { 2 } else { port }]);
        }
    }
    // Without the group there is no rule.
    cache.apply(&group_mod(&mut switch, GroupCommand::Delete, "group_id=1"));
    assert!(cache.flows.is_empty());
}

#[test]
fn counters_follow_a_bucket_through_changes() {
    let (mut switch, mut cache) = (bridge(&[TWO], &[TO_GROUP]), Cache::default());
    (0..400).for_each(|port| drop(cache.send(&mut switch, &udp(port))));
    let insert = "group_id=1,command_bucket_id=first,bucket=bucket_id=7,weight=4,actions=output:4";
    let changes = group_mod(&mut switch, GroupCommand::InsertBucket, insert);
    let stays = |flow: &Translation| !changes.iter().any(|change| flow.depends_on(change));
    let kept = cache.flows.iter().filter(|(_, flow)| stays(flow)).count();
    assert!(kept > 1 && kept < 17, "{kept}");
    let one = Carried {
        packets: 1,
        bytes: 100,
        used: Nanos::ZERO,
    };
    let slots = cache.flows.iter().filter(|(key, _)| key.get(Field::RecircId) != 0);
    for (_, flow) in slots.filter(|(_, flow)| stays(flow)) {
        let credits: Vec<_> = flow.credits.iter().map(|credit| (*credit, one)).collect();
        switch.credit_all(&credits);
    }
    let stats = switch
        .bridge("br0")
        .unwrap()
        .tables()
        .group_stats(1..=1, 1, Nanos::ZERO);
    let buckets: Vec<u64> = stats[0].buckets.iter().map(|(packets, _)| *packets).collect();
    assert_eq!(buckets[0], 0);
    assert_eq!(
        (stats[0].packets, buckets.iter().sum::<u64>()),
        (kept as u64 - 1, kept as u64 - 1)
    );
}

/// A group with random buckets.
fn random_group(rng: &mut Rng) -> String {
    let method = match rng.below(6) {
        0 => ",selection_method=dp_hash",
        1 => ",selection_method=hash,fields(ip_src,udp_src)",
        2 => ",selection_method=hash,selection_method_param=5,fields(udp_src=0xff,reg0)",
        _ => "",
    };
    let mut text = format!("group_id=1,type=select{method}");
    for id in 0..rng.below(5) {
        text += &bucket(rng, id);
    }
    text
}

fn bucket(rng: &mut Rng, id: usize) -> String {
    let weight = rng.pick(&[0, 1, 1, 1, 2, 3, 100, 400]);
    let watch = match rng.below(3) {
        0 => format!("watch_port:{},", 2 + rng.below(3)),
        _ => String::new(),
    };
    let actions = match rng.below(4) {
        0 => "group:2".to_owned(),
        1 => "set_field:02:00:00:00:00:09->eth_dst,output:3".to_owned(),
        _ => format!("output:{}", 2 + rng.below(3)),
    };
    format!(",bucket=bucket_id={id},weight={weight},{watch}actions={actions}")
}

#[test]
fn after_random_changes_every_slot_goes_where_a_new_translation_says() {
    let soak = std::env::var("OXVS_SOAK").ok().and_then(|times| times.parse().ok());
    let (mut kept, mut stale) = (0, 0);
    for seed in 0..60 * soak.unwrap_or(1) {
        let mut rng = Rng::new(seed);
        let nested = "group_id=2,type=select,bucket=weight=1,actions=output:2,bucket=weight=1,actions=output:4";
        let rules = [
            "udp,actions=load:7->NXM_NX_REG0[],group:1,output:4",
            "ip,actions=group:1",
        ];
        let mut switch = bridge(&[nested, &random_group(&mut rng)], &rules);
        let mut cache = Cache::default();
        let mut text = String::new();
        for _ in 0..12 {
            let before = cache.flows.len();
            let changes = match rng.below(5) {
                0 => {
                    let mut config = Topology::fixed().config();
                    let ports = &mut config.bridges.get_mut("br0").unwrap().ports;
                    for interface in ports.values_mut().flat_map(|port| &mut port.interfaces) {
                        interface.link.up = rng.chance(70);
                    }
                    switch.configure(config, Nanos::ZERO)
                }
                1 => {
                    let id = 10 + rng.below(1000);
                    let at = rng.pick(&["first", "last"]);
                    let insert = format!("group_id=1,command_bucket_id={at}{}", bucket(&mut rng, id));
                    match parse_group_mod(GroupCommand::InsertBucket, &insert, &Names::default()) {
                        // A bucket's number may be taken.
                        Ok((change, _)) => switch.group_mod("br0", &change, Nanos::ZERO).unwrap_or_default(),
                        Err(error) => panic!("{insert}: {error}"),
                    }
                }
                2 => {
                    let at = rng.pick(&["first", "last"]);
                    let remove = format!("group_id=1,command_bucket_id={at}");
                    group_mod(&mut switch, GroupCommand::RemoveBucket, &remove)
                }
                _ => {
                    text = match text.is_empty() || rng.chance(30) {
                        true => random_group(&mut rng),
                        // Something of it only.
                        false => text.replacen(
                            *rng.pick(&["output:2", "weight=1,"]),
                            "output:4",
                            usize::from(rng.chance(50)),
                        ),
                    };
                    let text = text
                        .replace("output:4watch", "watch")
                        .replace("output:4actions", "actions");
                    group_mod(&mut switch, GroupCommand::Modify, &text)
                }
            };
            cache.apply(&changes);
            kept += cache.flows.len();
            stale += before - cache.flows.len();
            let mut fresh = Cache::default();
            for port in 0..100 {
                let key = udp(port);
                let (ours, theirs) = (cache.send(&mut switch, &key), fresh.send(&mut switch, &key));
                assert_eq!(ours, theirs, "seed {seed}, port {port}");
            }
            assert!(fresh.upcalls <= 1 + 256, "{}", fresh.upcalls);
        }
    }
    assert!(kept > 1000 && stale > 1000, "{kept} kept, {stale} stale");
}

#[test]
fn a_trace_ends_with_the_hash_and_goes_on_from_a_slot() {
    let mut switch = bridge(&[TWO], &[TO_GROUP]);
    let key = udp(7);
    let mut cache = Cache::default();
    cache.send(&mut switch, &key);
    let trace = |switch: &Switch, key: Key| {
        let traced = switch.trace(&Request::new("br0", key, 1), Nanos::ZERO, Patience::Whole);
        traced.flatten().unwrap().text
    };
    let text = trace(&switch, key);
    assert!(text.contains("\n    group:1\n     -> no live bucket\n\n"), "{text}");
    assert!(
        text.ends_with("Datapath actions: hash(sym_l4(0)),recirc(0x1)\n"),
        "{text}"
    );
    let mut slot = key;
    slot.set(Field::RecircId, RecircId::hashed(1).with_hash(0x25).0.into());
    let text = trace(&switch, slot);
    for part in [
        "Flow: recirc_id=0x1,dp_hash=0x25,eth,udp,",
        "        Restoring actions: unroll_xlate(table=0, cookie=0),group:1\n",
        "     -> using bucket ",
        "Final flow: unchanged\nMegaflow: recirc_id=0x1,dp_hash=0x5/0xf,eth,ip,in_port=1,nw_frag=no\n",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}

#[test]
fn the_translation_selects_where_netflow_tells_the_output() {
    let mut switch = bridge(&[TWO], &[TO_GROUP]);
    let mut config = Topology::fixed().config();
    config.bridges.get_mut("br0").unwrap().export.netflow = true;
    switch.configure(config, Nanos::ZERO);
    let change = parse_flow(
        FlowCommand::Add,
        "priority=9,udp,udp_src=1,actions=group:1",
        &Names::default(),
    )
    .unwrap();
    switch.flow_mod("br0", &change, Nanos::ZERO).unwrap();
    let mut cache = Cache::default();
    let ports: Vec<Vec<u32>> = (0..100).map(|port| cache.send(&mut switch, &udp(port))).collect();
    assert_eq!(cache.upcalls, 100);
    // The bucket is the one that the datapath would select.
    let mut other = bridge(&[TWO], &[TO_GROUP]);
    let mut cache = Cache::default();
    let expected: Vec<Vec<u32>> = (0..100).map(|port| cache.send(&mut other, &udp(port))).collect();
    assert_eq!(ports, expected);
}
