//! Frozen packets that continue: behind a label, by their length, after a controller; and select
//! groups.

use crate::ask::Ask;
use crate::model::Topology;
use dp::{Action as Step, DropCause};
use flow::{Field, FlowState, Key, MatchField, PortNo, extract};
use nanos::Nanos;
use openflow::model::{Action, FlowCommand, GroupCommand};
use openflow::text::{Names, parse_flow, parse_group_mod};
use std::collections::BTreeMap;
use switch::Switch;
use switch::tables::{ForController, Patience, Translated};
use switch::trace::Request;
use testkit::{Packet, mac};

/// A switch with two bridges. The first has these groups and rules.
pub(crate) fn bridge(groups: &[&str], rules: &[&str]) -> Switch {
    let mut switch = Switch::new(5);
    switch.configure(Topology::fixed().config(), Nanos::ZERO);
    for group in groups {
        let (change, _) = parse_group_mod(GroupCommand::Add, group, &Names::default()).unwrap();
        switch.group_mod("br0", &change, Nanos::ZERO).unwrap();
    }
    for rule in rules {
        let change = parse_flow(FlowCommand::Add, rule, &Names::default()).unwrap();
        switch.flow_mod("br0", &change, Nanos::ZERO).unwrap();
    }
    switch
}

fn answer(switch: &mut Switch, key: &Key) -> Translated {
    let translated = switch.ask(key);
    switch.accept(&translated, Nanos::ZERO).unwrap();
    translated
}

fn resume(switch: &Switch, handle: u32, state: &FlowState) -> Option<Translated> {
    switch.resume(handle, state, Nanos::ZERO, Patience::Whole)?
}

fn packet_out(switch: &Switch, state: &FlowState, actions: &[Action]) -> Translated {
    let translated = switch.packet_out("br0", state, actions, Nanos::ZERO, Patience::Whole);
    translated.flatten().unwrap()
}

pub(crate) fn udp(src: u16) -> Key {
    let packet = Packet::new(mac(1), mac(2)).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    extract(&packet.udp(src, 80, b"data").bytes(), &PortNo(1).into()).unwrap()
}

/// A label on the packet.
fn labelled() -> Key {
    let packet = Packet::new(mac(1), mac(2)).payload(0x8847, &[0, 0, 0x51, 64, 0x45, 0, 0, 20]);
    extract(&packet.bytes(), &PortNo(1).into()).unwrap()
}

fn out(port: u32) -> Step {
    Step::Output(PortNo(port))
}

#[test]
fn what_is_behind_a_label_is_looked_at_when_the_packet_comes_again() {
    let rules = [
        "mpls,actions=set_field:3->reg3,pop_mpls:0x0800,resubmit(,1),output:3",
        "table=1,reg3=3,udp,udp_dst=80,actions=dec_ttl,output:2",
        "table=1,priority=1,actions=output:4",
    ];
    let mut switch = bridge(&[], &rules);
    let first = answer(&mut switch, &labelled());
    let [Step::PopMpls { ethertype: 0x800 }, Step::Recirc(id)] = first.translation.actions[..] else {
        panic!("{:?}", first.translation.actions);
    };
    let mut behind = udp(1);
    behind.set(Field::RecircId, id.into());
    let second = answer(&mut switch, &behind);
    assert!(
        matches!(
            second.translation.actions[..],
            [Step::SetField(_), Step::Output(PortNo(2)), Step::Output(PortNo(3))]
        ),
        "{:?}",
        second.translation.actions
    );
    // A packet with an unknown recirculation id is dropped.
    behind.set(Field::RecircId, 77);
    assert_eq!(switch.ask(&behind).translation.drop, Some(DropCause::NoRule));
    // Unused contexts are removed, and the contexts that lead to them too.
    let changes = switch.tick(Nanos::from_secs(1000));
    for translation in [&first.translation, &second.translation] {
        assert!(changes.iter().any(|change| translation.depends_on(change)));
    }
}

/// The actions for a labelled packet, and those for the recirculated UDP packet behind the label.
fn behind_a_label(rules: &[&str], tos: u128) -> (Vec<Step>, Vec<Step>) {
    let mut switch = bridge(&["group_id=1,type=select,bucket=output:2"], rules);
    let first = answer(&mut switch, &labelled()).translation.actions.to_vec();
    let mut behind = udp(7);
    behind.set(Field::IpTos, tos);
    match first.last() {
        Some(Step::Recirc(id)) => behind.set(Field::RecircId, (*id).into()),
        _ => return (first, Vec::new()),
    }
    let second = answer(&mut switch, &behind).translation.actions.to_vec();
    (first, second)
}

#[test]
fn a_later_table_sees_what_is_behind_a_label() {
    let conditions = [
        "ip,nw_tos=32",
        "ip,nw_ecn=1",
        "udp,udp_src=7",
        "ip,nw_src=10.0.0.1",
        "ip,nw_ttl=64",
    ];
    for condition in conditions {
        let later = format!("table=1,{condition},actions=output:2");
        let rules = ["mpls,actions=pop_mpls:0x0800,goto_table:1", &later];
        let (first, second) = behind_a_label(&rules, 33);
        let pop = Step::PopMpls { ethertype: 0x0800 };
        assert!(
            matches!(&first[..], [step, Step::Recirc(_)] if *step == pop),
            "{condition}: {first:?}"
        );
        assert_eq!(second, [out(2)], "{condition}");
    }
}

#[test]
fn what_comes_before_a_later_table_is_kept_until_the_packet_is_there() {
    let rules = [
        "mpls,actions=pop_mpls:0x0800,write_actions(set_field:2->nw_ecn,output:2),write_metadata:5,goto_table:1",
        "table=1,udp,metadata=5,actions=output:3",
    ];
    let (_, second) = behind_a_label(&rules, 0);
    let ecn = dp::SetField::new(Field::IpTos, 2, 3).unwrap();
    assert_eq!(second, [out(3), Step::SetField(ecn), out(2)]);
}

#[test]
fn actions_see_and_change_what_is_behind_a_label() {
    let ecn = dp::SetField::new(Field::IpTos, 2, 3).unwrap();
    let udp_src = dp::SetField::new(Field::TpSrc, 9, 0xffff).unwrap();
    for (actions, expected) in [
        ("set_field:2->nw_ecn,output:2", vec![Step::SetField(ecn), out(2)]),
        ("resubmit(,1)", vec![Step::SetField(udp_src), out(2)]),
        ("load:0xfff9->NXM_NX_REG0[],output:NXM_NX_REG0[]", vec![out(4)]),
        ("group:1", vec![out(2)]),
        ("goto_table:1", vec![Step::SetField(udp_src), out(2)]),
    ] {
        let first = format!("mpls,actions=pop_mpls:0x0800,{actions}");
        let rules = [
            &first,
            "udp,udp_src=7,actions=output:4",
            "table=1,udp,actions=set_field:9->udp_src,output:2",
        ];
        assert_eq!(behind_a_label(&rules, 0).1, expected, "{actions}");
    }
    // A packet that is forwarded unchanged needs no recirculation.
    let rules = ["mpls,actions=set_tunnel:5,pop_mpls:0x0800,set_tunnel:6,mod_vlan_vid:9,output:2"];
    let (first, _) = behind_a_label(&rules, 0);
    assert_eq!(first.last(), Some(&out(2)));
}

#[test]
fn what_is_left_of_a_known_stack_is_known() {
    let stack = [0, 0, 0x10, 9, 0, 0, 0x20, 8, 0, 0, 0x31, 7, 0x45, 0, 0, 20];
    let packet = Packet::new(mac(1), mac(2)).payload(0x8847, &stack);
    let key = extract(&packet.bytes(), &PortNo(1).into()).unwrap();
    let rules = [
        "mpls,mpls_label=1,actions=pop_mpls:0x8847,goto_table:1",
        "table=1,mpls,mpls_label=2,actions=output:2",
    ];
    let actions = answer(&mut bridge(&[], &rules), &key).translation.actions;
    assert_eq!(actions[..], [Step::PopMpls { ethertype: 0x8847 }, out(2)]);
}

#[test]
fn tags_behind_a_label_are_the_packets_own() {
    let rules = ["mpls,actions=pop_mpls:0x8100,pop_vlan,output:2"];
    let mut switch = bridge(&[], &rules);
    let first = answer(&mut switch, &labelled()).translation.actions;
    let Some(&Step::Recirc(id)) = first.last() else {
        panic!("{first:?}");
    };
    let mut behind = udp(7);
    behind.set_tag(0, Some(wire::VlanTag { tpid: 0x8100, tci: 5 }));
    behind.set(Field::RecircId, id.into());
    assert_eq!(
        answer(&mut switch, &behind).translation.actions[..],
        [Step::PopVlan, out(2)]
    );
}

#[test]
fn a_label_that_comes_off_under_another_type_takes_the_labels_behind_it_with_it() {
    let stack = [0, 0, 0x10, 9, 0, 0, 0x21, 8, 0x45, 0, 0, 20];
    let packet = Packet::new(mac(1), mac(2)).payload(0x8847, &stack);
    let key = extract(&packet.bytes(), &PortNo(1).into()).unwrap();
    let rules = ["mpls,actions=pop_mpls:0x88e7,goto_table:1", "table=1,actions=output:2"];
    let actions = answer(&mut bridge(&[], &rules), &key).translation.actions;
    assert!(
        matches!(
            actions[..],
            [
                Step::PopMpls { ethertype: 0x8847 },
                Step::PopMpls { ethertype: 0x88e7 },
                Step::Recirc(_)
            ]
        ),
        "{actions:?}"
    );
}

#[test]
fn times_to_live_are_copied_between_a_label_and_what_no_key_shows() {
    let two = [0, 0, 0x10, 9, 0, 0, 0x21, 8, 0x45, 0, 0, 20];
    let packet = Packet::new(mac(1), mac(2)).payload(0x8847, &two);
    let two_labels = extract(&packet.bytes(), &PortNo(1).into()).unwrap();
    let steps = |key: &Key, actions: &str| {
        let rule = format!("mpls,actions={actions}");
        answer(&mut bridge(&[], &[&rule]), key).translation.actions.to_vec()
    };
    let one_label = labelled();
    assert_eq!(steps(&one_label, "copy_ttl_out,output:2"), [Step::CopyTtlOut, out(2)]);
    assert_eq!(steps(&one_label, "copy_ttl_in,output:2"), [Step::CopyTtlIn, out(2)]);
    let changed = steps(&one_label, "set_mpls_ttl:7,copy_ttl_in,output:2");
    assert!(
        matches!(changed[..], [Step::SetMpls { .. }, Step::CopyTtlIn, _]),
        "{changed:?}"
    );
    // Reading the label's time to live recirculates the packet.
    let again = steps(&one_label, "copy_ttl_out,dec_mpls_ttl,output:2");
    assert!(matches!(again[..], [Step::CopyTtlOut, Step::Recirc(_)]), "{again:?}");
    // The translator itself copies fields that the key shows.
    assert_eq!(
        steps(&two_labels, "copy_ttl_out,output:2"),
        [Step::SetMpls { lse: 0, mask: 1 }, out(2)]
    );
    let inner = Step::PopMpls { ethertype: 0x8847 };
    let dec = Step::SetMpls { lse: 0, mask: 1 };
    assert_eq!(
        steps(&two_labels, "copy_ttl_in,pop_mpls:0x8847,dec_mpls_ttl,output:2"),
        [Step::CopyTtlIn, inner, dec, out(2)]
    );
}

#[test]
fn a_later_table_sees_what_is_behind_a_backbone_header() {
    let rules = [
        "dl_type=0x88e7,actions=pop_pbb,goto_table:1",
        "table=1,udp,udp_src=7,actions=output:2",
    ];
    let mut switch = bridge(&[], &rules);
    let packet = Packet::new(mac(1), mac(2)).payload(0x88e7, &[0; 40]);
    let key = extract(&packet.bytes(), &PortNo(1).into()).unwrap();
    let first = answer(&mut switch, &key).translation.actions;
    let Some(&Step::Recirc(id)) = first.last() else {
        panic!("{first:?}");
    };
    let mut behind = udp(7);
    behind.set(Field::RecircId, id.into());
    assert_eq!(answer(&mut switch, &behind).translation.actions[..], [out(2)]);
}

#[test]
fn a_label_that_is_put_on_and_taken_off_hides_nothing() {
    let rules = [
        "udp,actions=push_mpls:0x8847,output:2,pop_mpls:0x0800,resubmit(,1)",
        "table=1,udp,udp_src=7,actions=output:3",
    ];
    let mut switch = bridge(&[], &rules);
    let actions = answer(&mut switch, &udp(7)).translation.actions;
    let [Step::PushMpls { lse, .. }, two, Step::PopMpls { .. }, three] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!((*lse, two, three), (0x140, &out(2), &out(3)));
}

#[test]
fn the_length_of_a_packet_decides_for_all_that_follows() {
    let rules = [
        "actions=resubmit(,1),resubmit(,2)",
        "table=1,actions=check_pkt_larger(100)->NXM_NX_REG0[0],output:2",
        "table=2,reg0=1,actions=output:3",
        "table=2,reg0=0,actions=output:4",
    ];
    let mut switch = bridge(&[], &rules);
    let actions = answer(&mut switch, &udp(1)).translation.actions;
    let branches = Step::IfLonger {
        len: 100,
        then: 2,
        otherwise: 2,
    };
    assert_eq!(actions[..], [branches, out(2), out(3), out(2), out(4)]);
}

#[test]
fn a_packet_that_waits_for_a_controller_goes_on_as_it_was() {
    let rules = [
        "actions=set_field:7->reg1,controller(pause,userdata=01),resubmit(,1)",
        "table=1,reg1=7,actions=output:3",
    ];
    let mut switch = bridge(&[], &rules);
    let translated = answer(&mut switch, &udp(1));
    assert!(matches!(translated.translation.actions[..], [Step::Punt { .. }]));
    let continuation = translated.controllers[0].1.continuation.unwrap();
    let mut state = FlowState::new(udp(9), 1);
    state.set(MatchField::Reg1, 7);
    let resumed = resume(&switch, continuation, &state).unwrap();
    assert_eq!(resumed.translation.actions[..], [out(3)]);
    assert!(resume(&switch, continuation + 100, &state).is_none());
}

#[test]
fn a_trace_of_a_packet_that_recirculated_goes_on_where_its_context_says() {
    let mut switch = bridge(&[], &["mpls,actions=pop_mpls:0x0800,dec_ttl,output:3"]);
    let packet = Packet::new(mac(1), mac(2)).payload(0x8847, &[0, 0, 0x51, 64, 0x45, 0, 0, 20]);
    let first = answer(&mut switch, &extract(&packet.bytes(), &PortNo(1).into()).unwrap());
    let Some(&Step::Recirc(handle)) = first.translation.actions.last() else {
        panic!("{first:?}");
    };
    let trace = |id: u32| {
        let mut key = udp(1);
        key.set(Field::RecircId, id.into());
        let traced = switch.trace(&Request::new("br0", key, 1), Nanos::ZERO, Patience::Whole);
        let traced = traced.flatten().unwrap();
        assert_eq!(
            traced.translated.translation.actions,
            switch.ask(&key).translation.actions
        );
        traced.text
    };
    let known = trace(handle);
    assert!(known.contains("thaw\n            Resuming from table 0\n"), "{known}");
    assert!(known.contains(&format!("Megaflow: recirc_id={handle:#x},")), "{known}");
    assert!(known.contains("Datapath actions: set(ipv4(ttl=63)),3\n"), "{known}");
    let unknown = trace(handle + 100);
    assert!(
        unknown.ends_with("Translation failed (No recirculation context), packet is dropped.\n"),
        "{unknown}"
    );
}

#[test]
fn a_controller_may_change_the_metadata_of_a_packet_that_waits_for_it() {
    let rules = [
        "actions=set_field:7->reg1,set_tunnel:5,controller(pause),resubmit(,1)",
        "table=1,reg1=7,tun_id=5,actions=output:3",
        "table=1,reg1=8,tun_id=5,pkt_mark=2,actions=output:4",
    ];
    let mut switch = bridge(&[], &rules);
    let translated = answer(&mut switch, &udp(1));
    let told = &translated.controllers[0].1;
    let mut state = FlowState::new(udp(1), 1);
    for condition in told.metadata.entries() {
        state.set(condition.field, condition.value);
    }
    assert_eq!((state.get(MatchField::Reg1), state.get(MatchField::TunId)), (7, 5));
    let resume = |state: &FlowState| {
        let resumed = resume(&switch, told.continuation.unwrap(), state).unwrap();
        resumed.translation.actions
    };
    assert_eq!(resume(&state)[..], [out(3)]);
    state.set(MatchField::Reg1, 8);
    assert_eq!(resume(&state)[..], []);
    // The datapath gets it without the mark.
    state.set(MatchField::PktMark, 2);
    let mark = dp::SetField::new(Field::PktMark, 2, u32::MAX.into()).unwrap();
    assert_eq!(resume(&state)[..], [Step::SetField(mark), out(4)]);
}

#[test]
fn a_packet_of_a_controller_has_the_metadata_that_it_is_given() {
    let rules = ["tun_id=5,reg3=1,actions=output:3", "pkt_mark=9,actions=output:4"];
    let switch = bridge(&[], &rules);
    let table = parse_flow(FlowCommand::Add, "actions=output:TABLE", &Names::default()).unwrap();
    let mut state = FlowState::new(udp(1), 1);
    let send = |state: &FlowState| {
        packet_out(&switch, state, &table.instructions.apply)
            .translation
            .actions
    };
    assert_eq!(send(&state)[..], []);
    state.set(MatchField::TunId, 5);
    state.set(MatchField::Reg3, 1);
    assert_eq!(send(&state)[..], [out(3)]);
    state.set(MatchField::Reg3, 0);
    state.set(MatchField::PktMark, 9);
    let mark = dp::SetField::new(Field::PktMark, 9, u32::MAX.into()).unwrap();
    assert_eq!(send(&state)[..], [Step::SetField(mark), out(4)]);
}

#[test]
fn a_mark_and_a_tunnels_key_are_kept_while_a_packet_goes_through_the_datapath_again() {
    let rules = [
        "mpls,actions=set_tunnel:5,set_field:3->pkt_mark,pop_mpls:0x0800,resubmit(,1)",
        "table=1,tun_id=5,pkt_mark=3/7,udp,actions=output:2",
    ];
    let mut switch = bridge(&[], &rules);
    let first = answer(&mut switch, &labelled());
    let Some(&Step::Recirc(id)) = first.translation.actions.last() else {
        panic!("{:?}", first.translation.actions);
    };
    let mark = dp::SetField::new(Field::PktMark, 3, u32::MAX.into()).unwrap();
    assert!(first.translation.actions.contains(&Step::SetField(mark)));
    let mut again = udp(1);
    again.set(Field::RecircId, id.into());
    again.set(Field::PktMark, 3);
    assert_eq!(answer(&mut switch, &again).translation.actions[..], [out(2)]);
    again.set(Field::PktMark, 4);
    assert_eq!(answer(&mut switch, &again).translation.actions[..], []);
}

#[test]
fn backbone_headers_go_on_and_off() {
    let mut switch = bridge(
        &[],
        &[
            "udp,actions=push_pbb:0x88e7,output:2",
            "dl_type=0x88e7,actions=pop_pbb,resubmit(,1)",
        ],
    );
    let actions = answer(&mut switch, &udp(1)).translation.actions;
    assert!(
        matches!(actions[..], [Step::PushPbb { tci: 0 }, Step::Output(PortNo(2))]),
        "{actions:?}"
    );
    let packet = Packet::new(mac(1), mac(2)).payload(0x88e7, &[0; 40]);
    let key = extract(&packet.bytes(), &PortNo(1).into()).unwrap();
    let actions = answer(&mut switch, &key).translation.actions;
    assert!(matches!(actions[..], [Step::PopPbb, Step::Recirc(_)]), "{actions:?}");
}

/// The port that a select group sends a packet to.
fn selected(switch: &mut Switch, key: &Key) -> u32 {
    let first = answer(switch, key).translation.actions;
    let [Step::RecircByHash { id, hash }] = &first[..] else {
        panic!("{first:?}")
    };
    let mut again = *key;
    again.set(Field::RecircId, id.with_hash(hash.short(key)).0.into());
    let actions = answer(switch, &again).translation.actions;
    let [Step::Output(PortNo(port))] = actions[..] else {
        panic!("{actions:?}")
    };
    port
}

#[test]
fn a_group_selects_by_weight_and_few_flows_move_when_a_bucket_goes() {
    let select = "group_id=1,type=select,bucket=weight:1,output:2,bucket=weight:3,output:3,bucket=weight:0,output:4";
    let less = "group_id=2,type=select,bucket=weight:1,output:2,bucket=weight:3,watch_port:99,output:3,bucket=weight:0,output:4";
    let rules = ["udp,actions=group:1", "priority=1,actions=group:2"];
    let mut switch = bridge(&[select, less], &rules);
    let mut send = |key: &Key| selected(&mut switch, key);
    let mut count = BTreeMap::new();
    for port in 0..4000 {
        *count.entry(send(&udp(port))).or_insert(0) += 1;
    }
    assert!(count.len() == 2 && (800..1200).contains(&count[&2]), "{count:?}");
    let other = Packet::new(mac(1), mac(2)).payload(0x88b5, b"data");
    let key = extract(&other.bytes(), &PortNo(1).into()).unwrap();
    assert_eq!(send(&key), 2);
}

#[test]
fn both_directions_of_a_connection_have_one_bucket_by_the_symmetric_hash() {
    let buckets = "bucket=output:2,bucket=output:3,bucket=output:4";
    let differing = |parameter: &str| {
        let group = format!("group_id=1,type=select,selection_method=dp_hash,{parameter}{buckets}");
        let mut switch = bridge(&[&group], &["udp,actions=group:1"]);
        let (near, far) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let different = (1..200).filter(|port| {
            let there = Packet::new(mac(1), mac(2)).ipv4(near, far).udp(*port, 53, b"");
            let back = Packet::new(mac(2), mac(1)).ipv4(far, near).udp(53, *port, b"");
            let [there, back] = [there, back].map(|packet| {
                let key = extract(&packet.bytes(), &PortNo(1).into()).unwrap();
                selected(&mut switch, &key)
            });
            there != back
        });
        different.count()
    };
    assert_eq!(differing("selection_method_param=0x100000007,"), 0);
    assert!(differing("selection_method_param=7,") > 100);
}

#[test]
fn controllers_are_told_what_handed_a_packet_to_them() {
    const MISS: u8 = ForController::TABLE_MISS;
    let group = "group_id=1,type=all,bucket=actions=controller";
    let reasons = |rules: &[&str]| -> Vec<u8> {
        let translated = answer(&mut bridge(&[group], rules), &udp(7));
        translated.controllers.iter().map(|(_, told)| told.reason).collect()
    };
    assert_eq!(reasons(&["priority=1,actions=controller"]), [1]);
    assert_eq!(reasons(&["priority=0,actions=controller"]), [MISS]);
    assert_eq!(reasons(&["priority=0,actions=controller(userdata=01)"]), [MISS]);
    assert_eq!(reasons(&["priority=0,actions=controller(reason=invalid_ttl)"]), [2]);
    assert_eq!(reasons(&["priority=0,udp,actions=controller"]), [1]);
    assert_eq!(reasons(&["priority=0,actions=controller(pause)"]), [1]);
    assert_eq!(reasons(&["priority=0,actions=clone(controller)"]), [MISS]);
    assert_eq!(reasons(&["priority=0,actions=write_actions(output:controller)"]), [3]);
    assert_eq!(reasons(&["priority=0,actions=group:1"]), [4]);
    assert_eq!(reasons(&["priority=0,actions=write_actions(group:1)"]), [4]);
    let later = [
        "actions=resubmit(,1),controller(userdata=02)",
        "table=1,priority=0,actions=controller",
    ];
    assert_eq!(reasons(&later), [MISS, 1]);
    let behind_a_group = "priority=0,actions=group:1,controller";
    assert_eq!(reasons(&[behind_a_group]), [4, MISS]);
    let by_register = "priority=0,actions=load:0xfffd->NXM_NX_REG0[],output:NXM_NX_REG0[]";
    assert_eq!(reasons(&[by_register]), [MISS]);

    let switch = bridge(&[group], &["priority=0,actions=controller"]);
    let actions = parse_flow(FlowCommand::Add, "actions=output:TABLE,controller", &Names::default()).unwrap();
    let key = udp(7);
    let translated = packet_out(&switch, &FlowState::new(key, 1), &actions.instructions.apply);
    let told: Vec<(u8, u64)> = translated
        .controllers
        .iter()
        .map(|(_, told)| (told.reason, told.cookie))
        .collect();
    assert_eq!(told, [(5, 0), (5, u64::MAX)]);
}

#[test]
fn a_new_tag_is_empty_whatever_is_under_it() {
    let frame = Packet::new(mac(1), mac(2))
        .tag(0x8100, 0x6007)
        .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let key = extract(&frame.udp(7, 80, b"data").bytes(), &PortNo(1).into()).unwrap();
    let mut switch = bridge(&[], &["actions=push_vlan:0x88a8,output:2"]);
    let steps = answer(&mut switch, &key).translation.actions;
    let empty = wire::VlanTag { tpid: 0x88a8, tci: 0 };
    assert_eq!(steps[..], [Step::PushVlan(empty), out(2)]);
}

#[test]
fn a_port_without_a_link_is_chosen_no_more_but_is_sent_to_all_the_same() {
    let groups = ["group_id=1,type=ff,bucket=watch_port:2,output:2,bucket=watch_port:3,output:3"];
    let rules = [
        "in_port=1,udp,tp_src=1,actions=group:1",
        "in_port=1,udp,tp_src=2,actions=bundle(eth_src,0,active_backup,ofport,members:2,3)",
        "in_port=1,udp,tp_src=3,actions=output:2",
    ];
    let mut switch = bridge(&groups, &rules);
    let mut before: Vec<Translated> = Vec::new();
    for (up, chosen) in [(true, 2), (false, 3), (true, 2)] {
        let mut config = Topology::fixed().config();
        let ports = &mut config.bridges.get_mut("br0").unwrap().ports;
        let mut interfaces = ports.values_mut().flat_map(|port| &mut port.interfaces);
        interfaces.find(|interface| interface.ofport == 2).unwrap().link.up = up;
        let changes = switch.configure(config, Nanos::ZERO);
        let is_stale = |old: &Translated| changes.iter().any(|change| old.translation.depends_on(change));
        assert!(before.iter().all(is_stale), "{changes:?}");
        before = (1..4).map(|src| answer(&mut switch, &udp(src))).collect();
        let sent = before.iter().map(|one| one.translation.actions.to_vec());
        let expected = [vec![out(chosen)], vec![out(chosen)], vec![out(2)]];
        assert_eq!(sent.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_group_counts_packets_for_which_it_has_a_bucket() {
    let buckets = ["bucket=watch_port:99,output:2", "bucket=watch_port:2,output:2"];
    for (kind, counted) in [("ff", [0, 2]), ("select", [0, 2]), ("all", [2, 2])] {
        for (bucket, counted) in buckets.iter().zip(counted) {
            let bucket = if kind == "all" { "bucket=output:2" } else { bucket };
            let switch = bridge(&[&format!("group_id=1,type={kind},{bucket}")], &["actions=group:1"]);
            let credits = switch.ask(&udp(1)).translation.credits;
            // The lookup and the rule are counted too.
            assert_eq!(credits.len(), 2 + counted, "{kind} {bucket}");
        }
    }
}

#[test]
fn what_a_copy_makes_of_a_label_is_not_what_others_get() {
    let rules = ["actions=push_mpls:0x8847,clone(set_mpls_ttl(255),push_mpls:0x8847),output:2"];
    let actions = answer(&mut bridge(&[], &rules), &udp(1)).translation.actions;
    let [Step::PushMpls { lse, .. }, Step::Output(PortNo(2))] = actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(lse & 0xff, 64);
}
