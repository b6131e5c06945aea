//! Bundles: what is seen of them and when, and what is wrong with some.

use crate::world::{Lab, errors, rule};
use nanos::Nanos;
use ofproto::{Kind, Run};
use openflow::model::*;
use openflow::{Codec, OfError, Version};

fn flow(change: FlowMod) -> Body {
    Body::FlowMod(Box::new(change))
}

#[test]
fn a_bundle_in_pieces_is_unseen_until_its_commit_and_gone_with_its_connection() {
    let version = Version::V14;
    let mut lab = Lab::new();
    let other = lab.open(Kind::Service, version);
    let id = lab.open(Kind::Service, version);
    let control = |kind| {
        Body::BundleControl(BundleControl {
            bundle: 5,
            kind,
            flags: 3,
        })
    };
    let add = |xid: u32| {
        let message = Message {
            xid,
            body: flow(rule(xid as u16)),
        };
        Body::BundleAdd(BundleAdd {
            bundle: 5,
            flags: 3,
            message: Codec::new(version).encode(&message),
        })
    };
    for commit in [false, true] {
        lab.say(id, version, 1, control(0));
        for xid in 1..=300 {
            lab.say(id, version, xid, add(xid));
        }
        assert_eq!(lab.rules(), 1);
        if commit {
            lab.say(id, version, 900, control(2));
            lab.say(id, version, 901, control(4));
            assert_eq!(lab.rules(), 301);
        } else {
            lab.say(id, version, 900, control(6));
        }
    }
    let heard = lab.hear(id, version);
    let replies: Vec<u32> = heard.iter().map(|m| m.xid).collect();
    assert_eq!(replies, [1, 900, 1, 900, 901], "{heard:?}");

    lab.say(id, version, 1, control(0));
    lab.say(id, version, 400, add(400));
    // The commit begins, and the connection ends before it is done.
    let commit = Codec::new(version).encode(&Message {
        xid: 2,
        body: control(4),
    });
    lab.agent.receive(id, &commit);
    lab.agent.run(id, &lab.world, Nanos(1), 2);
    let late = lab.open(Kind::Service, version);
    let request = StatsRequest::Aggregate(FlowStatsRequest::default());
    let asked = Body::StatsRequest { more: false, request };
    let said = [
        (3, Body::EchoRequest(vec![7])),
        (4, asked),
        (5, flow(rule(500))),
        (6, Body::BarrierRequest),
    ];
    let said = said.map(|(xid, body)| Codec::new(version).encode(&Message { xid, body }));
    assert_eq!(lab.say_bytes(other, &said.concat()), Run::Wait);
    let heard = lab.hear(other, version);
    assert_eq!(heard.iter().map(|m| m.xid).collect::<Vec<_>>(), [3, 4]);
    let Body::StatsReply {
        reply: StatsReply::Aggregate { stats, .. },
        ..
    } = &heard[1].body
    else {
        panic!("{heard:?}");
    };
    assert_eq!(stats.flows, 301);
    lab.say(late, version, 7, Body::FeaturesRequest);
    assert_eq!(lab.hear(late, version).len(), 1);
    lab.disconnect(id);
    let slices = lab.background();
    assert!(slices >= 1, "{slices} slices");
    assert_eq!(lab.rules(), 301);
    assert!(lab.ready().contains(&other));
    lab.work(other);
    assert_eq!(lab.rules(), 302);
    assert_eq!(lab.hear(other, version).len(), 1);
}

#[test]
fn a_commit_whose_connection_closes_is_undone_in_slices() {
    let version = Version::V14;
    let mut lab = Lab::new();
    let id = lab.open(Kind::Service, version);
    let control = |kind| {
        Body::BundleControl(BundleControl {
            bundle: 5,
            kind,
            flags: 3,
        })
    };
    lab.say(id, version, 1, control(0));
    for n in 1..=2000 {
        let body = Body::FlowMod(Box::new(rule(n)));
        let message = Codec::new(version).encode(&Message { xid: n.into(), body });
        let add = BundleAdd {
            bundle: 5,
            flags: 3,
            message,
        };
        lab.say(id, version, n.into(), Body::BundleAdd(add));
    }
    let commit = Codec::new(version).encode(&Message {
        xid: 3,
        body: control(4),
    });
    lab.agent.receive(id, &commit);
    for _ in 0..14 {
        assert_eq!(lab.agent.run(id, &lab.world, Nanos(1), 1), Run::Busy);
    }
    lab.disconnect(id);
    let slices = lab.background();
    // 128 rules a part were added, 256 a part are taken away.
    assert!(slices >= 5, "{slices} slices");
    assert_eq!(lab.rules(), 1);
    let other = lab.open(Kind::Service, version);
    lab.say(other, version, 4, Body::FlowMod(Box::new(rule(5))));
    assert_eq!(lab.rules(), 2);
}

#[test]
fn of_a_bundle_that_fails_the_message_is_quoted_that_could_not_be_carried_out() {
    let version = Version::V14;
    let mut lab = Lab::new();
    let id = lab.open(Kind::Service, version);
    let codec = Codec::new(version);
    let mut twice = rule(3);
    twice.flags = FlowFlags::CHECK_OVERLAP;
    twice.new_cookie = Some(77);
    let mut changed = rule(1);
    changed.command = FlowCommand::ModifyStrict;
    let mut nowhere = rule(4);
    nowhere.command = FlowCommand::ModifyStrict;
    nowhere.table = Some(254);
    for (bad, error) in [(&twice, OfError::FmfcOverlap), (&nowhere, OfError::BrcEperm)] {
        let all = [&rule(1), &rule(2), &changed, &rule(3), bad, &rule(5)];
        let messages: Vec<Vec<u8>> = (10..)
            .zip(all)
            .map(|(xid, change)| {
                let body = flow(change.clone());
                codec.encode(&Message { xid, body })
            })
            .collect();
        for (xid, message) in (10..).zip(&messages) {
            let add = BundleAdd {
                bundle: 1,
                flags: 3,
                message: message.clone(),
            };
            lab.say(id, version, xid, Body::BundleAdd(add));
        }
        let commit = BundleControl {
            bundle: 1,
            kind: 4,
            flags: 3,
        };
        lab.say(id, version, 2, Body::BundleControl(commit));
        let heard = lab.hear(id, version);
        assert_eq!(errors(&heard), [(14, error), (2, OfError::BfcMsgFailed)]);
        let Body::Error(told) = &heard[0].body else {
            panic!("{heard:?}")
        };
        assert_eq!(told.data, messages[4]);
        assert_eq!(lab.rules(), 1);
    }
}

#[test]
fn bundles_that_make_no_sense_are_refused() {
    let version = Version::V15;
    let mut lab = Lab::new();
    let id = lab.open(Kind::Service, version);
    let control = |bundle, kind, flags| Body::BundleControl(BundleControl { bundle, kind, flags });
    let steps = [
        (control(1, 2, 0), Some(OfError::BfcBadId)),
        (control(1, 4, 0), Some(OfError::BfcBadId)),
        (control(1, 6, 0), Some(OfError::BfcBadId)),
        (control(1, 0, 1), None),
        (control(1, 0, 1), Some(OfError::BfcBadId)),
        (control(2, 0, 1), None),
        (control(2, 2, 2), Some(OfError::BfcBadFlags)),
        (control(3, 0, 1), None),
        (control(3, 2, 1), None),
        (control(3, 2, 1), Some(OfError::BfcBundleClosed)),
    ];
    for (n, (body, error)) in steps.into_iter().enumerate() {
        lab.say(id, version, n as u32, body);
        let heard = lab.hear(id, version);
        let got = errors(&heard).first().map(|(_, error)| *error);
        assert_eq!(got, error, "step {n}");
    }
    lab.say(id, version, 50, control(9, 0, 1));
    let idle = lab.agent.deadline(id).unwrap();
    lab.agent.tick(id, idle);
    let heard = lab.hear(id, version);
    assert_eq!(errors(&heard), [(50, OfError::BfcTimeout)]);
}

#[test]
fn options_of_tunnels_keep_their_fields_while_open_bundles_of_other_connections_use_them() {
    let version = Version::V13;
    let mut lab = Lab::new();
    let (one, other) = (lab.open(Kind::Service, version), lab.open(Kind::Service, version));
    let control = |kind| {
        Body::BundleControl(BundleControl {
            bundle: 5,
            kind,
            flags: 3,
        })
    };
    let map = |kind, index| TlvMap {
        class: 0x102,
        kind,
        len: 4,
        index,
    };
    let change = |command, maps| Body::TlvTableMod { command, maps };
    let add = |xid, command| {
        let mut change = rule(1);
        change.command = command;
        change.matching.add_tun_metadata(3, &[1, 2, 3, 4], None).unwrap();
        let body = flow(change);
        let message = Codec::new(version).encode(&Message { xid, body });
        Body::BundleAdd(BundleAdd {
            bundle: 5,
            flags: 3,
            message,
        })
    };
    // A field that is not mapped yet is refused at once.
    lab.say(one, version, 1, control(0));
    lab.say(one, version, 2, add(2, FlowCommand::Add));
    assert_eq!(errors(&lab.hear(one, version)), [(2, OfError::NxFmfcInvalidTlvField)]);
    lab.say(other, version, 1, change(0, vec![map(0, 3), map(1, 4)]));
    // What deletes rules holds no mapping, as in Open vSwitch.
    lab.say(one, version, 3, add(3, FlowCommand::Delete));
    lab.say(other, version, 2, change(1, vec![map(0, 3)]));
    lab.say(other, version, 3, change(0, vec![map(0, 3)]));
    lab.say(one, version, 4, control(6));
    lab.say(one, version, 5, control(0));
    lab.say(one, version, 6, add(6, FlowCommand::Add));
    lab.say(other, version, 4, change(1, vec![map(0, 3)]));
    lab.say(other, version, 5, change(2, Vec::new()));
    lab.say(other, version, 6, change(1, vec![map(1, 4)]));
    assert_eq!(
        errors(&lab.hear(other, version)),
        [(4, OfError::NxTtmfcInvalidTlvDel), (5, OfError::NxTtmfcInvalidTlvDel)]
    );
    // Neither a bundle that is discarded nor one of a connection that is gone holds anything.
    lab.say(one, version, 7, control(6));
    lab.say(other, version, 7, change(2, Vec::new()));
    lab.say(other, version, 8, change(0, vec![map(0, 3)]));
    lab.say(one, version, 8, control(0));
    lab.say(one, version, 9, add(9, FlowCommand::Add));
    lab.say(other, version, 9, change(2, Vec::new()));
    assert_eq!(errors(&lab.hear(other, version)), [(9, OfError::NxTtmfcInvalidTlvDel)]);
    assert_eq!(errors(&lab.hear(one, version)), []);
    lab.disconnect(one);
    lab.say(other, version, 10, change(2, Vec::new()));
    assert_eq!(errors(&lab.hear(other, version)), []);
}
