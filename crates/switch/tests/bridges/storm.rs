//! Storm control.

use crate::lab::Lab;
use dp::{Action, DropCause, MAX_METERS, MeterUnit};
use flow::{Field, PortNo};
use openflow::model::FlowCommand;
use openflow::text::{Names, parse_flow};
use switch::tables::MeterChange;
use switch::{Storm, StormControl};
use testkit::Packet;

/// Limits port `a` to these rates of broadcast, multicast and unknown unicast.
fn lab(limits: [Option<u32>; 3]) -> Lab {
    let mut lab = Lab::with_ports(&["a", "b"]);
    limit(&mut lab, limits);
    lab
}

fn limit(lab: &mut Lab, limits: [Option<u32>; 3]) {
    lab.port_mut("a").storm = StormControl {
        unit: MeterUnit::Pktps,
        limits,
    };
    lab.configure();
}

fn packet(dst: [u8; 6]) -> Packet {
    Packet::new(testkit::mac(1), dst).payload(0x88b5, b"data")
}

const BROADCAST: [u8; 6] = [0xff; 6];
const MULTICAST: [u8; 6] = [1, 0, 0x5e, 1, 2, 3];

/// The actions on a packet from `a`.
fn actions(lab: &Lab, dst: [u8; 6]) -> Vec<Action> {
    lab.translate("a", packet(dst)).actions.to_vec()
}

/// The meters that the datapath gets, by number and rate.
fn new_meters(lab: &mut Lab) -> Vec<(u32, u32)> {
    let told = lab.switch.take_new_meters();
    let one = |change| match change {
        MeterChange::Set { number, config } => {
            assert_eq!(config.cause, DropCause::StormControl);
            (number, config.bands[0].rate)
        }
        MeterChange::Delete { .. } => panic!("a deletion comes later"),
    };
    told.into_iter().map(one).collect()
}

#[test]
fn each_kind_of_traffic_passes_its_meter_before_it_is_sent() {
    let mut lab = lab([Some(10), Some(20), Some(30)]);
    let b = PortNo(lab.ports["b"]);
    let out = || Action::Output(b);
    let meters = new_meters(&mut lab);
    assert_eq!(meters.iter().map(|(_, rate)| *rate).collect::<Vec<_>>(), [10, 20, 30]);
    let [broadcast, multicast, unicast] = [0, 1, 2].map(|at| Action::Meter(meters[at].0));
    assert_eq!(actions(&lab, BROADCAST), [broadcast, out()]);
    assert_eq!(actions(&lab, MULTICAST), [multicast, out()]);
    assert_eq!(actions(&lab, testkit::mac(2)), [Action::Clone(2), unicast, out()]);
    // Known stations and other ports have no limit.
    assert_eq!(lab.send("b", 2, 1).unwrap(), ["a"]);
    assert_eq!(actions(&lab, testkit::mac(2)), [out()]);
    assert!(matches!(
        lab.translate("b", packet(BROADCAST)).actions[..],
        [Action::Output(_)]
    ));
}

#[test]
fn a_megaflow_of_unicast_reads_no_more_than_without_a_limit_of_multicast() {
    let lab = lab([Some(10), None, None]);
    let unicast = lab.translate("a", packet(testkit::mac(2)));
    assert!(!unicast.actions.iter().any(|action| matches!(action, Action::Meter(_))));
    let group = |dst| lab.translate("a", packet(dst)).actions.len();
    assert_eq!((group(BROADCAST), group(MULTICAST)), (2, 1));
    assert_eq!(unicast.mask.get(Field::TpDst), 0);
}

#[test]
fn rules_do_not_avoid_the_limit() {
    let mut lab = lab([Some(10), None, Some(30)]);
    let meters = new_meters(&mut lab);
    let rule = parse_flow(FlowCommand::Add, "actions=output:2,normal,output:2", &Names::default());
    lab.switch.flow_mod("br0", &rule.unwrap(), lab.now).unwrap();
    let b = PortNo(lab.ports["b"]);
    let out = || Action::Output(b);
    let (broadcast, unicast) = (Action::Meter(meters[0].0), Action::Meter(meters[1].0));
    assert_eq!(actions(&lab, BROADCAST), [broadcast, out(), out(), out()]);
    // What the limit drops are NORMAL's copies only.
    assert_eq!(
        actions(&lab, testkit::mac(2)),
        [out(), Action::Clone(2), unicast, out(), out()]
    );
}

#[test]
fn meters_follow_the_configuration_and_their_numbers_are_reused() {
    let mut lab = lab([Some(10), None, None]);
    let first = new_meters(&mut lab);
    assert_eq!(first, [(MAX_METERS, 10)]);
    lab.configure();
    assert!(lab.changes.is_empty());
    assert_eq!(new_meters(&mut lab), []);
    // A new rate changes the meter, and no megaflow.
    limit(&mut lab, [Some(11), None, None]);
    assert!(lab.changes.is_empty());
    assert_eq!(new_meters(&mut lab), [(MAX_METERS, 11)]);
    assert!(lab.switch.take_meter_changes().is_empty());
    limit(&mut lab, [None, Some(5), None]);
    assert!(!lab.changes.is_empty());
    assert_eq!(new_meters(&mut lab), [(MAX_METERS + 1, 5)]);
    let gone = lab.switch.take_meter_changes();
    assert_eq!(gone, [MeterChange::Delete { number: MAX_METERS }]);
    lab.switch.meters_deleted(&gone);
    limit(&mut lab, [Some(7), Some(5), None]);
    assert_eq!(new_meters(&mut lab), [(MAX_METERS, 7)]);
    let limits: Vec<_> = lab
        .switch
        .bridge("br0")
        .unwrap()
        .storm_limits()
        .map(|limit| (limit.port.to_owned(), limit.storm, limit.rate))
        .collect();
    assert_eq!(
        limits,
        [
            ("a".to_owned(), Storm::Broadcast, 7),
            ("a".to_owned(), Storm::Multicast, 5)
        ]
    );
    lab.port_mut("a").storm = StormControl::default();
    lab.configure();
    assert_eq!(lab.switch.take_meter_changes().len(), 2);
    assert_eq!(actions(&lab, BROADCAST).len(), 1);
}
