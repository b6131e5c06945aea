//! Errors that take more than a few messages.

use super::wire::*;
use super::{Lab, code};
use crate::world;
use ofproto::{Kind, Run};
use openflow::model::*;
use openflow::{OfError as E, Version};
use std::time::Duration;

/// The errors that are provoked here.
pub(super) const ALL: &[E] = &[
    E::HfcIncompatible,
    E::PmfcEperm,
    E::MmfcOutOfMeters,
    E::MofcUnknown,
    E::BfcMsgFailed,
    E::BfcMsgTooMany,
    E::BfcOutOfBundles,
    E::BfcTimeout,
    E::BrcMultipartRequestTimeout,
];

fn errors(lab: &mut Lab, id: ofproto::ConnId, version: Version) -> Vec<E> {
    let heard = world::errors(&lab.hear(id, version)).into_iter();
    heard.map(|(_, error)| error).collect()
}

#[track_caller]
fn is_refused(lab: &mut Lab, id: ofproto::ConnId, version: Version, error: E) {
    let all = errors(lab, id, version);
    let last = all.last().and_then(|last| code(*last, version));
    assert_eq!(last, code(error, version), "{version}: {all:?}");
}

#[test]
fn a_peer_without_a_version_in_common_hears_so() {
    let mut lab = Lab::new();
    let id = lab.connect(Kind::Primary);
    // A hello whose bitmap has a version that there is not.
    let hello = [&[9, 0, 0, 16, 0, 0, 0, 1][..], &[0, 1, 0, 8, 0, 0, 2, 0]].concat();
    assert!(matches!(lab.say_bytes(id, &hello), Run::Close(_)));
    is_refused(&mut lab, id, Version::V15, E::HfcIncompatible);
}

#[test]
fn a_port_that_cannot_be_taken_up_or_down_is_refused() {
    for version in [Version::V12, Version::V13, Version::V14, Version::V15] {
        let mut lab = Lab::new();
        lab.world.stubborn.set(true);
        let id = lab.open(Kind::Service, version);
        let change = PortMod {
            port: Port(1),
            hw_addr: wire_mac(1),
            config: 1,
            mask: 1,
            advertise: 0,
        };
        lab.say(id, version, XID, Body::PortMod(change));
        is_refused(&mut lab, id, version, E::PmfcEperm);
    }
}

fn wire_mac(n: u8) -> ::wire::MacAddr {
    ::wire::MacAddr([2, 0, 0, 0, 0, n])
}

#[test]
fn there_are_as_many_meters_as_the_datapath_has_and_no_more() {
    let version = Version::V13;
    let mut lab = Lab::new();
    let id = lab.open(Kind::Service, version);
    let most = switch::tables::meter_features().max_meters;
    for n in 1..=most {
        lab.say_bytes(id, &meter(version, 0, 1, n, &[(1, 10, 0)]));
    }
    assert_eq!(errors(&mut lab, id, version), []);
    lab.say_bytes(id, &meter(version, 0, 1, most + 1, &[(1, 10, 0)]));
    is_refused(&mut lab, id, version, E::MmfcOutOfMeters);
}

#[test]
fn a_connection_has_so_many_monitors_and_no_more() {
    for version in [Version::V14, Version::V15] {
        let mut lab = Lab::new();
        let id = lab.open(Kind::Service, version);
        for n in 0..100_000 {
            lab.say_bytes(id, &monitor(version, n, 0x0f, 0));
            let refused = errors(&mut lab, id, version);
            if !refused.is_empty() {
                assert_eq!(refused, [E::MofcUnknown]);
                break;
            }
            assert!(n < 99_999);
        }
    }
}

#[test]
fn bundles_that_fail_grow_too_large_or_are_too_many_are_refused() {
    for version in [Version::V13, Version::V14, Version::V15] {
        let mut lab = Lab::new();
        let id = lab.open(Kind::Service, version);
        // A rule that has to be the only one of its kind, twice.
        let strict = flow(version, |rule| rule.flags = FlowFlags::CHECK_OVERLAP);
        let other = flow(version, |rule| {
            rule.flags = FlowFlags::CHECK_OVERLAP;
            rule.matching.set(flow::MatchField::EthType, 0x0800, 0xffff);
        });
        for message in [
            bundle(version, 1, 0, 3),
            bundled(version, 1, 3, &strict),
            bundled(version, 1, 3, &other),
        ] {
            lab.say_bytes(id, &message);
        }
        assert_eq!(errors(&mut lab, id, version), []);
        lab.say_bytes(id, &bundle(version, 1, 4, 3));
        let told = errors(&mut lab, id, version);
        assert_eq!(told, [E::FmfcOverlap, E::BfcMsgFailed], "{version}");

        let open: Vec<E> = (10..100_000)
            .find_map(|n| {
                lab.say_bytes(id, &bundle(version, n, 0, 3));
                Some(errors(&mut lab, id, version)).filter(|told| !told.is_empty())
            })
            .unwrap();
        assert_eq!(open, [E::BfcOutOfBundles], "{version}");
    }
    let version = Version::V14;
    let mut lab = Lab::new();
    let id = lab.open(Kind::Service, version);
    lab.say_bytes(id, &bundle(version, 1, 0, 3));
    let large = packet_out(version, |packet| packet.data = vec![0; 60_000]);
    let told = (0..100_000).find_map(|_| {
        lab.say_bytes(id, &bundled(version, 1, 3, &large));
        Some(errors(&mut lab, id, version)).filter(|told| !told.is_empty())
    });
    assert_eq!(told, Some(vec![E::BfcMsgTooMany]));
}

#[test]
fn what_is_begun_and_not_ended_is_given_up_in_time() {
    for version in [Version::V13, Version::V14, Version::V15] {
        let mut lab = Lab::new();
        let id = lab.open(Kind::Service, version);
        lab.say_bytes(id, &bundle(version, 1, 0, 3));
        let (due, began) = (lab.agent.deadline(id).unwrap(), lab.world.now.get());
        assert_eq!(due, began + Duration::from_secs(10));
        lab.agent.tick(id, due);
        is_refused(&mut lab, id, version, E::BfcTimeout);
        assert_eq!(lab.agent.deadline(id), None);

        let request = StatsRequest::TableFeatures(Vec::new());
        lab.say(id, version, XID, Body::StatsRequest { more: true, request });
        let due = lab.agent.deadline(id).unwrap();
        lab.agent.tick(id, due);
        is_refused(&mut lab, id, version, E::BrcMultipartRequestTimeout);
        assert_eq!(lab.agent.deadline(id), None);
    }
}
