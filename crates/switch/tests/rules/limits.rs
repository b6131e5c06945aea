//! Cases that random rules do not reach: loops of rules, changes of rules, statistics.

use crate::ask::Ask;
use crate::model::{Topology, random_rules};
use crate::{frozen, packet};
use dp::{Action as Step, DropCause, Translation};
use flow::{Field, Key, Mask, MatchField, PortNo, extract};
use nanos::Nanos;
use openflow::model::{Action, Controller, FlowCommand, FlowFlags, FlowMod, Instructions, Port};
use std::time::Duration;
use switch::Switch;
use switch::tables::Patience;
use switch::trace::Request;
use testkit::{Packet, Rng, mac};

fn bridge() -> (Switch, Topology) {
    let topology = Topology::fixed();
    let mut switch = Switch::new(5);
    switch.configure(topology.config(), Nanos::ZERO);
    (switch, topology)
}

fn key() -> Key {
    let packet = Packet::new(mac(1), mac(2)).payload(0x88b5, b"data");
    extract(&packet.bytes(), &PortNo(1).into()).unwrap()
}

fn rule(table: u8, actions: Vec<Action>) -> FlowMod {
    FlowMod {
        table: Some(table),
        instructions: Instructions::apply(actions),
        ..FlowMod::default()
    }
}

fn output(port: u32) -> Action {
    Action::Output {
        port: Port(port),
        max_len: 0,
    }
}

fn resubmit(table: u8) -> Action {
    Action::Resubmit {
        in_port: Port::IN_PORT,
        table,
        ct: false,
    }
}

#[test]
fn a_rule_that_looks_itself_up_for_ever_drops_its_packets() {
    let (mut switch, _) = bridge();
    let endless = rule(0, vec![output(2), resubmit(0)]);
    switch.flow_mod("br0", &endless, Nanos::ZERO).unwrap();
    let translation = switch.ask(&key()).translation;
    assert_eq!(
        (translation.actions.len(), translation.drop),
        (0, Some(DropCause::TranslationLimit))
    );
}

#[test]
fn a_packet_dropped_at_a_limit_depends_on_no_context_but_the_one_that_it_continues_from() {
    let rules = [
        "mpls,actions=pop_mpls:0x0800,resubmit(,1)",
        "table=1,actions=controller,output:2,resubmit(,1)",
        "priority=1,actions=controller,output:2,resubmit(,0)",
    ];
    let mut switch = frozen::bridge(&[], &rules);
    let dropped = |switch: &Switch, key: &Key| {
        let translated = switch.ask(key);
        assert!(translated.contexts.is_empty(), "{:?}", translated.contexts);
        assert_eq!(translated.translation.drop, Some(DropCause::TranslationLimit));
        translated.translation
    };
    // A controller's handle would be another one each time.
    assert_eq!(dropped(&switch, &key()).deps, dropped(&switch, &key()).deps);

    let labelled = Packet::new(mac(1), mac(2)).payload(0x8847, &[0, 0, 0x51, 64, 0x45]);
    let labelled = extract(&labelled.bytes(), &PortNo(1).into()).unwrap();
    let first = switch.ask(&labelled);
    switch.accept(&first, Nanos::ZERO).unwrap();
    let Some(Step::Recirc(id)) = first.translation.actions.last() else {
        panic!("{:?}", first.translation.actions);
    };
    let mut again = frozen::udp(1);
    again.set(Field::RecircId, (*id).into());
    let translation = dropped(&switch, &again);
    assert_eq!(translation.deps, dropped(&switch, &again).deps);
    let forgotten = switch.tick(Nanos::from_secs(1000));
    assert!(forgotten.iter().any(|change| translation.depends_on(change)));
}

/// Number of rules that a packet matches, and number of ports that it leaves through.
fn met(groups: &[&str], rules: &[String]) -> (usize, usize) {
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let translated = frozen::bridge(groups, &rules).ask(&key());
    let drop = translated.translation.drop;
    let left = translated.translation.actions.len();
    assert_eq!(drop, (left == 0).then_some(DropCause::TranslationLimit));
    (translated.rules.len(), left)
}

/// Rules by which a packet is looked up again in the first table so many times, and the last of
/// these does something.
fn again(times: u32, last: &str) -> Vec<String> {
    let next = |n: u32| format!("reg0={n},actions=load:{}->NXM_NX_REG0[],resubmit(,0)", n + 1);
    let end = format!("reg0={times},actions={last}");
    (0..times)
        .map(next)
        .chain([end, "table=9,actions=output:2".to_owned()])
        .collect()
}

#[test]
fn a_packet_goes_as_deep_as_in_open_vswitch_and_no_deeper() {
    let endless = |rules: &[&str]| met(&[], &rules.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>());
    assert_eq!(endless(&["actions=resubmit(,0)"]), (65, 0));
    // Later tables are no deeper, but at the limit there are no more lookups.
    assert_eq!(
        endless(&["actions=resubmit(,1),output:2", "table=1,actions=resubmit(,0)"]),
        (129, 0)
    );
    for (last, most) in [
        ("output:2", 64),
        ("resubmit(,9)", 63),
        ("goto_table:9", 63),
        ("group:1", 63),
        ("group:2", 62),
    ] {
        let groups = [
            "group_id=1,type=all,bucket=output:2",
            "group_id=2,type=all,bucket=resubmit(,9)",
        ];
        assert_eq!(met(&groups, &again(most, last)).1, 1, "{last}");
        assert_eq!(met(&groups, &again(most + 1, last)).1, 0, "{last}");
    }
}

#[test]
fn a_packet_is_looked_up_as_often_as_in_open_vswitch_and_no_oftener() {
    let twice = |table: u32| format!("table={table},actions=resubmit(,{0}),resubmit(,{0})", table + 1);
    let tree = |levels: u32, leaf: &str| -> Vec<String> {
        let leaf = format!("table={levels},actions={leaf}");
        (0..levels).map(twice).chain([leaf]).collect()
    };
    assert_eq!(met(&[], &tree(11, "output:2")), (4095, 2048));
    assert_eq!(met(&[], &tree(12, "output:2")), (4097, 0));
    let many = "output:2,output:3,".repeat(80);
    let mut rules = tree(6, many.trim_end_matches(','));
    rules.push("table=0,actions=resubmit(,1),output:4,resubmit(,1),output:4".to_owned());
    // The limit is Open vSwitch's room for actions; the actions so far are executed.
    let (_, left) = met(&[], &rules);
    assert_eq!(left, 52 * 160 + 1);
}

#[test]
fn what_goes_too_far_in_another_bridge_ends_there() {
    let mut switch = frozen::bridge(&[], &["actions=output:2,output:5,output:3"]);
    let endless = |rule: &str| openflow::text::parse_flow(FlowCommand::Add, rule, &openflow::text::Names::default());
    let change = endless("actions=output:7,resubmit(,0)").unwrap();
    switch.flow_mod("br1", &change, Nanos::ZERO).unwrap();
    let translation = switch.ask(&key()).translation;
    let out = |port| Step::Output(PortNo(port));
    let (first, last) = (translation.actions.first(), translation.actions.last());
    assert_eq!((first, last), (Some(&out(2)), Some(&out(3))));
    assert_eq!(translation.actions.len(), 2 + 64, "{:?}", translation.actions);
}

#[test]
fn lookups_end_before_the_stack_does() {
    let (mut switch, _) = bridge();
    for table in 0..254 {
        let next = if table == 253 { 0 } else { table + 1 };
        let copy = Action::Clone(vec![Action::Clone(vec![resubmit(next)])]);
        let both = rule(table, vec![copy, resubmit(next)]);
        switch.flow_mod("br0", &both, Nanos::ZERO).unwrap();
    }
    let translation = switch.ask(&key()).translation;
    assert_eq!(translation.drop, Some(DropCause::TranslationLimit));
}

#[test]
fn two_hundred_and_fifty_four_tables_are_within_the_limits() {
    let (mut switch, _) = bridge();
    for table in 0..253 {
        let mut change = rule(table, Vec::new());
        change.instructions.goto = Some(table + 1);
        switch.flow_mod("br0", &change, Nanos::ZERO).unwrap();
    }
    switch
        .flow_mod("br0", &rule(253, vec![output(2)]), Nanos::ZERO)
        .unwrap();
    let translated = switch.ask(&key());
    assert_eq!(translated.translation.actions[..], [Step::Output(PortNo(2))]);
    assert_eq!(translated.rules.len(), 254);
}

#[test]
fn the_search_with_conj_id_ignores_dimensions_and_no_other_rule() {
    let rules = [
        "priority=9,in_port=1,actions=conjunction(8,1/2)",
        "priority=9,dl_src=02:00:00:00:00:01,actions=conjunction(8,2/2)",
        "priority=5,conj_id=8,actions=output:2",
    ];
    let sent = |rules: &[&str]| frozen::bridge(&[], rules).ask(&key()).translation.actions.to_vec();
    let out = |port| Step::Output(PortNo(port));
    assert_eq!(sent(&rules), [out(2)]);
    // Open vSwitch finds the rule of priority 5 in both cases, but 6 is higher.
    for same in ["in_port=1", "dl_src=02:00:00:00:00:01"] {
        let higher = format!("priority=6,{same},actions=output:3");
        assert_eq!(sent(&[&rules[..], &[&higher]].concat()), [out(3)], "{same}");
    }
}

#[test]
fn what_a_datapath_carries_is_credited_to_the_rules_and_keeps_them() {
    let (mut switch, _) = bridge();
    let mut change = rule(0, vec![output(2)]);
    change.idle_timeout = 10;
    change.flags = FlowFlags::SEND_FLOW_REM;
    switch.flow_mod("br0", &change, Nanos::ZERO).unwrap();
    let used = switch.ask(&key());
    switch.credit(&used.rules, 3, 180, Nanos::from_secs(6));
    assert!(switch.tick(Nanos::from_secs(10)).is_empty());
    let changes = switch.tick(Nanos::from_secs(16));
    assert!(changes.iter().any(|change| used.translation.depends_on(change)));
    let removed = switch.take_removed("br0");
    let message = removed[0].message().unwrap();
    assert_eq!((message.reason, message.packets, message.bytes), (0, 3, 180));
    assert_eq!(switch.ask(&key()).translation.drop, Some(DropCause::NoRule));
}

#[test]
fn a_controller_gets_the_packet_as_it_is_where_the_action_stands() {
    let (mut switch, _) = bridge();
    let to = |id| {
        Action::Controller(Controller {
            id,
            max_len: 99,
            ..Controller::default()
        })
    };
    let mut change = rule(0, vec![to(1), Action::SetVlanVid(7), to(2), output(2)]);
    change.new_cookie = Some(42);
    switch.flow_mod("br0", &change, Nanos::ZERO).unwrap();
    let translated = switch.ask(&key());
    let handles: Vec<u32> = translated.controllers.iter().map(|(handle, _)| *handle).collect();
    // The packet is sent whole; the message reports the requested length.
    let step = |n: usize| Step::Punt {
        reason: dp::PuntReason::Controller,
        handle: handles[n],
        max_len: u16::MAX,
    };
    let actions = &translated.translation.actions;
    assert_eq!((&actions[0], &actions[2]), (&step(0), &step(1)));
    assert!(matches!(actions[1], Step::PushVlan(_)));
    let told: Vec<_> = translated
        .controllers
        .iter()
        .map(|(_, to)| (to.controller, to.cookie, to.max_len))
        .collect();
    assert_eq!(told, [(1, 42, 99), (2, 42, 99)]);
}

#[test]
fn an_action_set_belongs_to_the_first_rule() {
    let rules = [
        "cookie=1,actions=resubmit(,5),goto_table:1",
        "table=1,cookie=2,actions=write_actions(output:CONTROLLER),goto_table:2",
        "table=2,cookie=3,actions=controller(id=7)",
        "table=5,cookie=5,actions=resubmit(,6)",
        "table=6,cookie=6,actions=set_field:1->reg0",
    ];
    let translated = frozen::bridge(&[], &rules).ask(&key());
    let told = translated.controllers.iter();
    let told: Vec<_> = told.map(|(_, to)| (to.reason, to.table, to.cookie)).collect();
    // "apply action" and "action set".
    assert_eq!(told, [(1, 2, 3), (3, 0, 1)]);
}

#[test]
fn a_trace_says_that_a_packet_has_too_many_labels() {
    let labels = [0, 0, 0x60, 64, 0, 0, 0x60, 64, 0, 0, 0x51, 64];
    let packet = Packet::new(mac(1), mac(2)).payload(0x8847, &labels);
    let labelled = extract(&packet.bytes(), &PortNo(1).into()).unwrap();
    let switch = frozen::bridge(&[], &["mpls,actions=output:2,push_mpls:0x8847"]);
    let traced = switch.trace(&Request::new("br0", labelled, 1), Nanos::ZERO, Patience::Whole);
    let traced = traced.flatten().unwrap();
    assert_eq!(traced.translated.translation.drop, Some(DropCause::Malformed));
    let end = "Datapath actions: drop\nTranslation failed (Too many MPLS labels), packet is dropped.\n";
    assert!(traced.text.ends_with(end), "{}", traced.text);
}

#[test]
fn a_cached_translation_is_right_until_a_change_of_rules_says_otherwise() {
    let mut survived = 0;
    for round in 0..40 {
        let mut rng = Rng::new(round);
        let (mut switch, topology) = bridge();
        let mut now = Nanos::ZERO;
        let mut cache: Vec<(Key, Translation)> = Vec::new();
        let mut rules = random_rules(&mut rng, &topology);
        for _ in 0..60 {
            let (port, bytes) = packet::random(&mut rng, &topology);
            let key = extract(&bytes, &PortNo(port).into()).unwrap();
            let translation = switch.ask(&key).translation;
            cache.push((key, translation.clone()));
            if rules.is_empty() {
                rules = random_rules(&mut rng, &topology);
            }
            let (bridge, _, mut change) = rules.swap_remove(0);
            let changes = match rng.below(6) {
                0 => {
                    change.hard_timeout = 1 + rng.below(9) as u16;
                    switch.flow_mod(bridge, &change, now).unwrap()
                }
                1 => {
                    change.command = FlowCommand::Delete;
                    switch.flow_mod(bridge, &change, now).unwrap()
                }
                2 => {
                    now += Duration::from_secs(rng.below(5) as u64);
                    switch.tick(now)
                }
                3 => switch.apply(&translation.effects, now),
                _ => switch.flow_mod(bridge, &change, now).unwrap(),
            };
            cache.retain(|(key, cached)| !changes.iter().any(|change| cached.is_stale_for(key, change)));
            for (key, cached) in &cache {
                // The dependencies may differ by now, because another mask needs another proof.
                let again = switch.ask(key).translation;
                assert_eq!(
                    (&cached.actions, &cached.effects, cached.drop),
                    (&again.actions, &again.effects, again.drop),
                    "round {round}: {changes:?}"
                );
            }
        }
        survived += cache.len();
    }
    assert!(survived > 40, "nearly everything is thrown away: {survived}");
}

#[test]
fn where_rules_ask_for_nothing_but_the_port_one_megaflow_covers_all_of_it() {
    let (mut switch, _) = bridge();
    switch.flow_mod("br0", &rule(0, vec![output(2)]), Nanos::ZERO).unwrap();
    let plain = Packet::new(mac(1), mac(2));
    let tagged = plain.clone().tag(0x8100, 10);
    let twice = plain.clone().tag(0x88a8, 20).tag(0x8100, 10);
    let keys = [plain, tagged, twice]
        .map(|packet| extract(&packet.payload(0x0800, &[0x45]).bytes(), &PortNo(1).into()).unwrap());
    let mut port = Mask::exact(Field::InPort);
    port.add(Field::RecircId);
    for key in &keys {
        assert_eq!(switch.ask(key).translation.mask, port);
    }
    let mut other = rule(0, vec![output(3)]);
    other.priority = 40_000;
    other.matching.set(MatchField::EthType, 0x8100, 0xffff);
    let before = keys.map(|key| (key, switch.ask(&key).translation));
    let changes = switch.flow_mod("br0", &other, Nanos::ZERO).unwrap();
    // Of the second tag's type, where one tag counts.
    let sent = |key: &Key| switch.ask(key).translation.actions.to_vec();
    assert_eq!(
        keys.each_ref().map(sent),
        [2, 2, 3].map(|n| vec![Step::Output(PortNo(n))])
    );
    for (key, cached) in &before {
        assert!(changes.iter().any(|change| cached.is_stale_for(key, change)));
    }
}
