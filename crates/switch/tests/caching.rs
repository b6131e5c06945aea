//! Random rules of many kinds, and the megaflows of their translations: every packet that a
//! megaflow covers has the same actions as the packet that made it. Padding, protocol 0 and
//! neighbour discovery options have broken this in other switches.
//!
//! `OXVS_SOAK` in the environment multiplies the number of rules, `OXVS_SEED` selects others.

#[path = "support/ask.rs"]
mod ask;
#[path = "rules/model.rs"]
#[allow(dead_code)]
mod model;
#[path = "traces/packets.rs"]
mod packets;
#[path = "traces/programs.rs"]
mod programs;
#[path = "caching/tunnels.rs"]
mod tunnels;

use ask::Ask;
use dp::Action;
use flow::{Field, Key, PortNo, extract};
use model::{BRIDGES, Topology};
use nanos::Nanos;
use openflow::model::{FlowCommand, GroupCommand, MeterCommand};
use openflow::text::{Names, parse_flow, parse_group_mod, parse_meter_mod};
use switch::Switch;
use switch::tables::Translated;
use testkit::Rng;

/// The effect of a translation on a packet. The mask may differ: there is more than one proof of a
/// result. A set-field may also write fewer bits if the mask proves the others; only the result
/// counts.
fn parts(t: &Translated, packet: &Key) -> impl PartialEq + std::fmt::Debug + use<> {
    #[derive(Debug, PartialEq)]
    enum Does {
        Field(Field, u128),
        Other(Action),
    }
    let of = &t.translation;
    let (mut packet, mut as_received) = (*packet, true);
    let does = |action: &Action| match action.clone() {
        Action::SetField(set) if as_received => {
            packet.set(set.field(), packet.get(set.field()) & !set.mask() | set.value());
            Does::Field(set.field(), packet.get(set.field()))
        }
        other => {
            // Behind another tag or label a field is elsewhere.
            as_received &= matches!(other, Action::Output(_));
            Does::Other(other)
        }
    };
    let told: Vec<_> = t.controllers.iter().map(|(handle, _)| *handle).collect();
    let noted: Vec<_> = t.contexts.iter().map(|(handle, _)| *handle).collect();
    (
        of.actions.iter().map(does).collect::<Vec<_>>(),
        of.deps.to_vec(),
        of.effects.to_vec(),
        of.credits.to_vec(),
        of.drop,
        (told, noted),
    )
}

/// The translation of a packet when its handles and all that it teaches are known: until then, a
/// translation proposes another handle each time.
fn settled(switch: &mut Switch, key: &Key) -> Translated {
    let mut before = switch.ask(key);
    for _ in 0..8 {
        switch.accept(&before, Nanos::ZERO).unwrap();
        let translated = switch.ask(key);
        if parts(&before, key) == parts(&translated, key) {
            return translated;
        }
        before = translated;
    }
    panic!("each translation differs: {}", key.display(&flow::Mask::full()));
}

/// Rules, groups and a meter in two bridges. Returns the rules as text.
fn install(switch: &mut Switch, rng: &mut Rng, topology: &Topology) -> Vec<String> {
    let mut all = Vec::new();
    for bridge in BRIDGES {
        let meter = parse_meter_mod(MeterCommand::Add, "meter=1,kbps,band=type=drop,rate=100").unwrap();
        switch.meter_mod(bridge, &meter, Nanos::ZERO).unwrap();
        for group in programs::groups(rng, topology, bridge) {
            let (change, _) = parse_group_mod(GroupCommand::Add, &group, &Names::default()).unwrap();
            switch.group_mod(bridge, &change, Nanos::ZERO).unwrap();
            all.push(format!("{bridge} {group}"));
        }
        let select =
            "group_id=5,type=select,bucket=weight=3,output:1,bucket=weight=1,output:2,bucket=weight=1,resubmit(,3)";
        let (change, _) = parse_group_mod(GroupCommand::Add, select, &Names::default()).unwrap();
        switch.group_mod(bridge, &change, Nanos::ZERO).unwrap();
        let pops = [
            "mpls,in_port=1,actions=pop_mpls:0x0800",
            "mpls,in_port=2,actions=learn(table=6,idle_timeout=9),pop_mpls:0x86dd",
        ];
        let pops = pops.map(|rule| format!("table=0,priority=60100,{rule},resubmit(,1),resubmit(,2)"));
        let rules = programs::rules(rng, topology, bridge).into_iter();
        for rule in rules.chain(programs::dimensions(rng)).chain(pops) {
            let rule = if rng.chance(10) { rule + ",group:5" } else { rule };
            let Ok(change) = parse_flow(FlowCommand::Add, &rule, &Names::default()) else {
                continue;
            };
            if switch.flow_mod(bridge, &change, Nanos::ZERO).is_ok() {
                all.push(format!("{bridge} {rule}"));
            }
        }
    }
    all
}

/// The packet with other bytes: some changed, cut off, or more behind it.
fn another(rng: &mut Rng, bytes: &[u8]) -> Vec<u8> {
    let mut other = bytes.to_vec();
    match rng.below(4) {
        0 => other.truncate(14 + rng.below(other.len() - 13)),
        1 => other.extend((0..rng.below(40)).map(|_| rng.number() as u8).collect::<Vec<_>>()),
        _ => {}
    }
    for _ in 0..rng.below(3) {
        let at = rng.below(other.len());
        other[at] = *rng.pick(&[0, 1, 0xff, 6, 17, 58]);
    }
    other
}

/// A key with some of the bits changed that a mask leaves out.
fn covered(rng: &mut Rng, key: &Key, mask: &flow::Mask) -> Key {
    let mut other = *key;
    // Ports receive Ethernet packets only.
    for field in Field::ALL.iter().filter(|field| **field != Field::PacketType) {
        let noise = u128::from(rng.number()) << 64 | u128::from(rng.number());
        let few = if rng.chance(50) {
            u128::from(rng.number())
        } else {
            u128::MAX
        };
        other.set(*field, key.get(*field) ^ noise & !mask.get(*field) & few);
    }
    other
}

#[test]
fn every_packet_that_a_megaflow_covers_has_the_same_actions() {
    let topology = Topology::fixed();
    let soak = std::env::var("OXVS_SOAK").ok().and_then(|times| times.parse().ok());
    let first = std::env::var("OXVS_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(0);
    let (mut same, mut recirculated) = (0, 0);
    for round in first..first + 60 * soak.unwrap_or(1) {
        let mut rng = Rng::new(round);
        let mut switch = Switch::new(round);
        switch.configure(topology.config(), Nanos::ZERO);
        let rules = install(&mut switch, &mut rng, &topology);
        for _ in 0..15 {
            let (port, bytes) = packets::random(&mut rng, &topology);
            let mut key = extract(&bytes, &PortNo(port).into()).unwrap();
            let mut translated = settled(&mut switch, &key);
            // A frozen packet continues unchanged, or behind its label.
            let again = translated.translation.actions.iter().find_map(|action| match action {
                Action::Recirc(id) => Some(*id),
                Action::RecircByHash { id, hash } => Some(id.with_hash(hash.short(&key)).0),
                _ => None,
            });
            if let Some(id) = again {
                recirculated += 1;
                key.set(Field::RecircId, id.into());
                translated = settled(&mut switch, &key);
            }
            let mask = translated.translation.mask;
            let others = (0..15).map(|_| covered(&mut rng, &key, &mask)).collect::<Vec<_>>();
            let mutated = (0..15).filter_map(|_| extract(&another(&mut rng, &bytes), &PortNo(port).into()));
            let mutated = mutated.map(|mut other| {
                other.set(Field::RecircId, key.get(Field::RecircId));
                other
            });
            let mutated: Vec<Key> = mutated.filter(|other| mask.eq_key(&key, other)).collect();
            same += mutated.len();
            for other in others.iter().chain(&mutated) {
                assert_eq!(
                    parts(&translated, other),
                    parts(&switch.ask(other), other),
                    "round {round}: {} and {}\n{}",
                    key.display(&flow::Mask::full()),
                    other.display(&flow::Mask::full()),
                    rules.join("\n")
                );
            }
        }
    }
    assert!(same > 1000, "hardly any changed packet is covered: {same}");
    assert!(recirculated > 3, "hardly any packet is looked at again: {recirculated}");
}

#[test]
fn labels_are_put_on_and_taken_off_every_stack_that_a_megaflow_covers_in_the_same_way() {
    let topology = Topology::fixed();
    let (push, pop) = ("push_mpls:0x8847,set_mpls_label:16", "pop_mpls:0x8847");
    let lists = [
        vec![push],
        vec![push, push],
        vec![push, push, push],
        vec![pop, push],
        vec![push, pop],
        vec![push, push, pop, pop],
        vec![push, push, pop, "set_mpls_tc:3"],
        vec![pop, pop],
        vec![push, pop, pop, "set_mpls_tc:3"],
        vec![push, push, pop, pop, "resubmit(,1)"],
    ];
    // None, one that is not the last, and the last.
    let entries = [0_u128, 0x40, 0x140];
    let at = |index: usize, place: u32| entries[index / 3_usize.pow(place) % 3];
    let keys: Vec<Key> = (0..27)
        .map(|index| {
            let mut key = extract(&[0; 60], &PortNo(1).into()).unwrap();
            key.set(Field::EthType, 0x8847);
            let stack = [Field::MplsLse0, Field::MplsLse1, Field::MplsLse2];
            (0..)
                .zip(stack)
                .for_each(|(place, field)| key.set(field, at(index, place)));
            key
        })
        .collect();
    let (mut dropped, mut shared) = (0, 0);
    for list in lists {
        let mut switch = Switch::new(1);
        switch.configure(topology.config(), Nanos::ZERO);
        let rules = [
            format!("actions={},output:2", list.join(",")),
            String::from("table=1,mpls,mpls_label=0,actions=output:3"),
        ];
        for rule in &rules {
            let change = parse_flow(FlowCommand::Add, rule, &Names::default()).unwrap();
            switch.flow_mod("br0", &change, Nanos::ZERO).unwrap();
        }
        for key in &keys {
            let translated = switch.ask(key);
            // Its contexts keep their handles.
            switch.accept(&translated, Nanos::ZERO).unwrap();
            dropped += usize::from(translated.translation.drop.is_some());
            let mask = translated.translation.mask;
            for other in keys.iter().filter(|other| mask.eq_key(key, other)) {
                shared += 1;
                let shown = [key, other].map(|key| key.display(&flow::Mask::full()).to_string());
                assert_eq!(
                    parts(&translated, other),
                    parts(&switch.ask(other), other),
                    "{} {shown:#?}",
                    rules[0]
                );
            }
        }
    }
    assert!(dropped > 20 && shared > 27 * 10, "{dropped} dropped, {shared} covered");
}
