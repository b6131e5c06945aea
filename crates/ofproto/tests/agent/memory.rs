//! The memory that connections hold together.

use crate::world::{Lab, errors, rule};
use nanos::Nanos;
use ofproto::{Closed, ConnId, Kind, Options, Run};
use openflow::model::{Body, BundleAdd, BundleControl, Message};
use openflow::{Codec, OfError, Version};
use std::time::Duration;
use telemetry::budget::Budget;

const VERSION: Version = Version::V14;
const LIMIT: usize = 1 << 20;
const RESERVED: usize = 4 << 10;

fn control(kind: u16) -> Body {
    Body::BundleControl(BundleControl {
        bundle: 5,
        kind,
        flags: 3,
    })
}

/// Adds messages to a bundle until one is refused. How many were taken.
fn fill(lab: &mut Lab, id: ConnId) -> usize {
    for n in 1..u16::MAX {
        let body = Body::FlowMod(Box::new(rule(n)));
        let message = Codec::new(VERSION).encode(&Message { xid: n.into(), body });
        let add = BundleAdd {
            bundle: 5,
            flags: 3,
            message,
        };
        lab.say(id, VERSION, n.into(), Body::BundleAdd(add));
        if let [refused] = errors(&lab.hear(id, VERSION))[..] {
            assert_eq!(refused, (n.into(), OfError::BfcMsgTooMany));
            return usize::from(n) - 1;
        }
    }
    panic!("nothing is refused");
}

#[test]
fn bundles_of_all_peers_share_a_budget_and_are_refused_with_an_error() {
    let budget = Budget::new(LIMIT, RESERVED);
    let mut lab = Lab::with_budget(budget.clone());
    let peers: Vec<ConnId> = (0..20).map(|_| lab.open(Kind::Service, VERSION)).collect();
    for id in &peers {
        lab.say(*id, VERSION, 1, control(0));
        assert_eq!(errors(&lab.hear(*id, VERSION)), []);
        assert!(fill(&mut lab, *id) > 40, "each peer has its reserved bytes");
        assert!(budget.held() <= LIMIT + peers.len() * RESERVED, "{}", budget.held());
        // The connection stays.
        lab.say(*id, VERSION, 9, Body::BarrierRequest);
        assert_eq!(lab.hear(*id, VERSION).len(), 1);
    }
    assert!(budget.held() > LIMIT / 2);
    // What one peer gives back, another may have.
    lab.say(peers[0], VERSION, 9, control(6));
    let last = peers[19];
    assert!(fill(&mut lab, last) > 1000);
    lab.say(last, VERSION, 9, control(4));
    assert!(errors(&lab.hear(last, VERSION)).is_empty());
    for id in peers {
        lab.disconnect(id);
    }
    assert_eq!(budget.held(), 0);
}

#[test]
fn a_peer_that_sends_no_hello_in_time_is_closed() {
    let mut lab = Lab::new();
    let patience = Duration::from_secs(10);
    let options = Options {
        hello: Some(patience),
        ..Options::new(Kind::Snoop, "peer".to_owned())
    };
    let silent = lab.agent.connect(options, Nanos(1));
    let due = Nanos(1) + patience;
    assert_eq!(lab.agent.deadline(silent), Some(due));
    lab.agent.tick(silent, Nanos(due.0 - 1));
    assert_eq!(lab.agent.run(silent, &lab.world, Nanos(due.0 - 1), 1), Run::Idle);
    lab.agent.tick(silent, due);
    let run = lab.agent.run(silent, &lab.world, due, 1);
    assert_eq!(run, Run::Close(Closed::HelloTimeout));
    let greeted = lab.open(Kind::Service, VERSION);
    assert_eq!(lab.agent.deadline(greeted), None);
}
