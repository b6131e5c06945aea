//! Changes of very many rules at once.

use crate::world::{Lab, rule};
use nanos::Nanos;
use ofproto::{ConnId, Kind, Run};
use openflow::model::*;
use openflow::{Codec, Version};

const VERSION: Version = Version::V14;
const RULES: u16 = 1500;

fn flow(change: FlowMod) -> Body {
    Body::FlowMod(Box::new(change))
}

fn delete_all() -> FlowMod {
    FlowMod {
        command: FlowCommand::Delete,
        table: None,
        ..rule(0)
    }
}

fn bytes(xid: u32, body: Body) -> Vec<u8> {
    Codec::new(VERSION).encode(&Message { xid, body })
}

fn lab() -> (Lab, ConnId) {
    let mut lab = Lab::new();
    let id = lab.open(Kind::Service, VERSION);
    let said: Vec<u8> = (1..=RULES).flat_map(|n| bytes(n.into(), flow(rule(n)))).collect();
    lab.say_bytes(id, &said);
    assert_eq!(lab.rules(), 1 + usize::from(RULES));
    (lab, id)
}

/// Gives the agent what it is to do, and has it take the first steps.
fn begin(lab: &mut Lab, id: ConnId, said: &[u8]) {
    lab.agent.receive(id, said);
    for _ in 0..5 {
        assert_eq!(lab.agent.run(id, &lab.world, Nanos(1), 1), Run::Busy);
    }
}

#[test]
fn a_deletion_of_all_rules_is_seen_as_a_whole_while_changes_of_others_wait() {
    let (mut lab, id) = lab();
    let other = lab.open(Kind::Service, VERSION);
    let said = [bytes(1, flow(delete_all())), bytes(2, Body::BarrierRequest)].concat();
    begin(&mut lab, id, &said);
    assert_eq!(lab.say_bytes(other, &bytes(3, flow(rule(9)))), Run::Wait);
    let all = lab.rules();
    let mut counts = vec![all];
    while lab.agent.run(id, &lab.world, Nanos(1), 1) == Run::Busy {
        counts.push(lab.rules());
    }
    counts.dedup();
    assert_eq!(counts, [all, 0]);
    let heard = lab.hear(id, VERSION);
    assert!(
        matches!(
            heard[..],
            [Message {
                xid: 2,
                body: Body::BarrierReply
            }]
        ),
        "{heard:?}"
    );
    assert!(lab.ready().contains(&other));
    lab.work(other);
    assert_eq!(lab.rules(), 1);
}

#[test]
fn a_deletion_goes_on_in_slices_after_its_connection_has_closed() {
    let (mut lab, id) = lab();
    begin(&mut lab, id, &bytes(1, flow(delete_all())));
    let all = lab.rules();
    lab.disconnect(id);
    assert_eq!(lab.rules(), all, "nothing is done at once");
    let other = lab.open(Kind::Service, VERSION);
    assert_eq!(lab.say_bytes(other, &bytes(3, flow(rule(9)))), Run::Wait);
    let slices = lab.background();
    // Rules are changed, and then settled.
    let least = 2 * (usize::from(RULES) / 256);
    assert!(slices >= least, "{slices} slices, at least {least} expected");
    assert_eq!(lab.rules(), 0);
    assert!(lab.ready().contains(&other));
    lab.work(other);
    assert_eq!(lab.rules(), 1);
}

#[test]
fn a_change_that_cannot_be_made_changes_nothing() {
    let (mut lab, id) = lab();
    let modify = FlowMod {
        command: FlowCommand::Modify,
        table: None,
        instructions: Instructions::apply(vec![Action::Group(77)]),
        ..rule(0)
    };
    lab.say(id, VERSION, 5, flow(modify));
    let heard = lab.hear(id, VERSION);
    assert!(
        matches!(
            heard[..],
            [Message {
                xid: 5,
                body: Body::Error(_)
            }]
        ),
        "{heard:?}"
    );
    assert_eq!(lab.rules(), 1 + usize::from(RULES));
    lab.say(id, VERSION, 6, flow(delete_all()));
    assert_eq!(lab.rules(), 0);
}

#[test]
fn in_a_bundle_it_comes_between_what_was_said_before_it_and_after() {
    let (mut lab, id) = lab();
    let control = |kind| {
        Body::BundleControl(BundleControl {
            bundle: 5,
            kind,
            flags: 3,
        })
    };
    let add = |change: FlowMod| {
        let message = bytes(2, flow(change));
        Body::BundleAdd(BundleAdd {
            bundle: 5,
            flags: 3,
            message,
        })
    };
    lab.say(id, VERSION, 1, control(0));
    for change in [
        rule(2000),
        delete_all(),
        rule(2001),
        rule(2002),
        delete_all(),
        rule(2003),
    ] {
        lab.say(id, VERSION, 2, add(change));
    }
    assert_eq!(lab.rules(), 1 + usize::from(RULES));
    lab.say(id, VERSION, 3, control(4));
    let heard: Vec<u32> = lab.hear(id, VERSION).iter().map(|message| message.xid).collect();
    assert_eq!(heard, [1, 3]);
    assert_eq!(lab.rules(), 1);
}
