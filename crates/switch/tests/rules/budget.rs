//! The cost of one packet: every kind of step spends one budget, whichever way the translation was
//! requested.

use crate::ask::Ask;
use crate::frozen::bridge;
use dp::{DropCause, Key, PortNo, Upcall};
use flow::{FlowState, extract};
use nanos::Nanos;
use openflow::model::{FlowCommand, FlowMod};
use openflow::text::{Names, parse_actions, parse_flow};
use switch::Switch;
use switch::tables::{Limit, Patience, Translated};
use switch::trace::Request;
use testkit::{Packet, mac};

/// The budget, and the most that one step can exceed it by.
const MOST_WORK: u32 = (1 << 20) + (1 << 17);
/// Datapath actions that 64 kB have room for, and those of one more group.
const MOST_ACTIONS: usize = 8192 + 1500;

fn key() -> Key {
    let packet = Packet::new(mac(1), mac(2)).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    extract(&packet.udp(1000, 80, b"data").bytes(), &PortNo(1).into()).unwrap()
}

fn change(rule: &str) -> FlowMod {
    parse_flow(FlowCommand::Add, rule, &Names::default()).unwrap()
}

/// Group 1 of a chain in which each group has two buckets that name the next; the last has these.
fn chain(levels: u32, last: &str) -> Vec<String> {
    let link = |n: u32| format!("group_id={n},type=all,bucket=group:{0},bucket=group:{0}", n + 1);
    let end = format!("group_id={levels},type=all,{last}");
    (1..levels).map(link).chain([end]).collect()
}

fn with_groups(groups: &[String], rules: &[&str]) -> Switch {
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    bridge(&groups, rules)
}

fn is_dropped_for_its_cost(translated: &Translated) {
    let reached = translated.ran_out.map(|reached| reached.limit);
    assert_eq!(reached, Some(Limit::Work));
    assert_eq!(translated.translation.drop, Some(DropCause::TranslationLimit));
    assert!(translated.translation.actions.is_empty());
    assert!(translated.work <= MOST_WORK, "{}", translated.work);
}

#[test]
fn a_group_of_1500_buckets_that_each_name_another_of_1500_ends_with_64_kb_of_actions() {
    let inner = format!("group_id=2,type=all{}", ",bucket=output:2".repeat(1500));
    let outer = format!("group_id=1,type=all{}", ",bucket=group:2".repeat(1500));
    let switch = bridge(&[&inner, &outer], &["actions=group:1"]);
    let translated = switch.ask(&key());
    // As in Open vSwitch, the actions so far are executed.
    let actions = translated.translation.actions.len();
    assert!((8192..MOST_ACTIONS).contains(&actions), "{actions}");
    assert!(translated.work <= MOST_WORK, "{}", translated.work);
    assert_eq!(translated.ran_out.map(|reached| reached.limit), Some(Limit::Actions));
}

#[test]
fn a_chain_of_41_groups_with_two_buckets_each_ends_within_the_budget() {
    let sends = with_groups(&chain(41, "bucket=output:2"), &["actions=group:1"]);
    let translated = sends.ask(&key());
    assert!(translated.translation.actions.len() < MOST_ACTIONS);
    assert!(translated.work <= MOST_WORK, "{}", translated.work);
    let silent = with_groups(&chain(41, "bucket=load:1->NXM_NX_REG0[]"), &["actions=group:1"]);
    is_dropped_for_its_cost(&silent.ask(&key()));
}

#[test]
fn packet_outs_traces_and_packets_that_go_on_have_the_same_budget() {
    let groups = chain(41, "bucket=load:1->NXM_NX_REG0[]");
    let rules = [
        "actions=group:1",
        "udp,priority=40000,actions=controller(pause),group:1",
    ];
    let mut switch = with_groups(&groups, &rules);
    let state = FlowState::new(key(), 1);
    let actions = parse_actions("group:1", &Names::default()).unwrap();
    let out = switch
        .packet_out("br0", &state, &actions, Nanos::ZERO, Patience::Whole)
        .unwrap();
    is_dropped_for_its_cost(&out.unwrap());

    let paused = switch.ask(&key());
    switch.accept(&paused, Nanos::ZERO).unwrap();
    let handle = paused.controllers[0].1.continuation.unwrap();
    let resumed = switch.resume(handle, &state, Nanos::ZERO, Patience::Whole).unwrap();
    is_dropped_for_its_cost(&resumed.unwrap());

    let mut request = Request::new("br0", key(), 1);
    request.actions = Some(&actions);
    let traced = switch.trace(&request, Nanos::ZERO, Patience::Whole).unwrap().unwrap();
    is_dropped_for_its_cost(&traced.translated);
    assert!(traced.text.contains("the report ends here"));
    assert!(
        traced.text.ends_with("packet is dropped.\n"),
        "{}",
        &traced.text[traced.text.len() - 200..]
    );
    assert!(traced.text.len() < 64 << 20, "{}", traced.text.len());
}

#[test]
fn every_kind_of_step_draws_from_the_budget() {
    let many = |step: &str, times: usize| vec![step; times].join(",");
    let members: Vec<String> = (1..1000).map(|port| (port % 8).to_string()).collect();
    let leaves = [
        many("load:1->NXM_NX_REG0[]", 400),
        many("clone(load:1->NXM_NX_REG0[])", 100),
        many("push:NXM_NX_REG0[]", 400),
        many("learn(table=9,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])", 10),
        format!(
            "bundle_load(symmetric_l4,0,hrw,ofport,NXM_NX_REG0[],slaves:{})",
            members.join(",")
        ),
        "multipath(symmetric_l4,0,hrw,65536,0,NXM_NX_REG0[])".to_owned(),
        many("push_vlan:0x8100,pop_vlan", 200),
        many("check_pkt_larger(100)->NXM_NX_REG0[0]", 8),
        many("controller(userdata=01.02)", 20),
        many("group:7", 3),
        many("clone(pop_mpls:0x0800,load:1->NXM_NX_REG0[])", 20),
        // To the other bridge, which has rules of the same kind.
        many("output:5", 50),
    ];
    for leaf in leaves {
        let mut groups = chain(
            2,
            &format!("bucket=drop{}", ",bucket=load:1->NXM_NX_REG0[]".repeat(100)),
        );
        groups.push(format!(
            // Its weights differ by too much for slots: the translation selects.
            "group_id=7,type=select{},bucket=weight=60000,drop",
            ",bucket=weight=1,watch_port:2,actions=load:1->NXM_NX_REG0[]".repeat(200)
        ));
        let groups: Vec<String> = groups
            .into_iter()
            .map(|group| group.replace("bucket=drop,", ""))
            .collect();
        let twice = |table: u32| format!("table={table},actions=resubmit(,{0}),resubmit(,{0})", table + 1);
        let mut rules: Vec<String> = (0..11).map(twice).collect();
        rules.push(format!("table=11,actions={leaf}"));
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let mut switch = with_groups(&groups, &rules);
        for rule in [
            "table=0,actions=resubmit(,1),resubmit(,1)",
            "table=1,actions=load:1->NXM_NX_REG0[]",
        ] {
            switch.flow_mod("br1", &change(rule), Nanos::ZERO).unwrap();
        }
        let packet = Packet::new(mac(1), mac(2)).payload(0x8847, &[0, 0, 0x51, 64, 0x45, 0, 0, 20]);
        for key in [key(), extract(&packet.clone().bytes(), &PortNo(1).into()).unwrap()] {
            let translated = switch.ask(&key);
            assert!(translated.work <= MOST_WORK, "{leaf}: {}", translated.work);
            assert!(translated.translation.actions.len() < MOST_ACTIONS, "{leaf}");
        }
        let label = leaf.contains("pop_mpls") as usize;
        let keys = [key(), extract(&packet.bytes(), &PortNo(1).into()).unwrap()];
        assert!(
            switch.ask(&keys[label]).ran_out.is_some(),
            "{leaf}: {}",
            switch.ask(&keys[label]).work
        );
    }
}

#[test]
fn a_lookup_costs_more_where_a_table_has_more_masks() {
    let work = |masks: u32| {
        let rules: Vec<String> = (0..masks)
            .map(|n| format!("priority={},reg1={:#x}/{:#x},actions=drop", 1 + n, n + 1, n + 1))
            .collect();
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        bridge(&[], &rules).ask(&key()).work
    };
    let (few, many) = (work(10), work(1010));
    assert!(many >= few + 100, "{few} {many}");
}

#[test]
fn who_has_little_patience_gets_nothing_and_later_the_same() {
    let groups = chain(8, "bucket=output:2");
    let switch = with_groups(&groups, &["actions=group:1"]);
    let whole = switch.ask(&key());
    assert!(whole.work > 1000);
    let key = key();
    let upcall = Upcall::new(&key, &[]);
    let translate = |patience: Patience<'_>| switch.translate(&upcall, Nanos::ZERO, patience);
    for work in [0, 100, whole.work - 1] {
        assert!(translate(Patience::Work(work)).is_none());
    }
    let same = |translated: Option<Translated>| {
        let translated = translated.unwrap();
        assert_eq!(translated.translation.actions, whole.translation.actions);
        assert_eq!((translated.work, translated.ran_out), (whole.work, None));
    };
    same(translate(Patience::Work(whole.work)));
    same(translate(Patience::Until(&|| false)));
    assert!(translate(Patience::Until(&|| true)).is_none());
}

#[test]
fn a_packet_with_too_much_on_its_stack_is_dropped_for_that() {
    let pushes = |times: usize| vec!["push:NXM_NX_REG0[]"; times].join(",");
    let table = |times| {
        let first = format!("table=0,actions={},resubmit(,1),resubmit(,1)", pushes(2000));
        let second = format!("table=1,actions={},output:2", pushes(times));
        with_groups(&[], &[&first, &second]).ask(&key())
    };
    let (most, more) = (table(1048), table(1049));
    assert_eq!((most.ran_out, most.translation.actions.len()), (None, 2));
    assert_eq!(more.ran_out.map(|reached| reached.limit), Some(Limit::Stack));
    assert_eq!(more.translation.drop, Some(DropCause::TranslationLimit));
}

#[test]
fn copies_of_a_packet_with_much_on_its_stack_cost_more() {
    let sends = |pushes: usize, send: &str| {
        let pushes = "push:NXM_NX_REG0[],".repeat(pushes);
        let actions = vec![send; 100].join(",");
        let work = |actions: &str| {
            let rule = format!("actions={pushes}{actions}");
            with_groups(&[], &[&rule]).ask(&key()).work
        };
        work(&actions) - work("output:2")
    };
    for send in [
        "enqueue:2:1",
        "output(port=2,max_len=100)",
        "output:5",
        "clone(output:2)",
    ] {
        let (without, with) = (sends(0, send), sends(500, send));
        assert!(with >= without + 100 * 2 * 500, "{send}: {without} and {with}");
    }
}
