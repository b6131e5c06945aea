use super::*;
use crate::bonds::Bonds;
use crate::meters::Meters;
use crate::pipeline::Pipeline;
use crate::rx_queue::{Budget, RxQueue};
use dp::{Band, BandEffect, BondTable, Effect, MeterConfig, MeterUnit, Translation, Upcall};
use netdev::{Dummy, Netdev};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use testkit::Packet;
use wire::VlanTag;

mod connections;
mod random;
#[path = "../../tests/models/actions.rs"]
mod reference;
mod too_big;

/// Handle, port, bytes, length of the whole.
type Taken = (u32, PortNo, Vec<u8>, usize);

/// A slowpath whose queue has room for so many.
struct Controllers {
    room: usize,
    taken: Mutex<Vec<Taken>>,
}

impl Slowpath for Controllers {
    fn upcall(&self, _: &Upcall<'_>, _: Nanos) -> Translation {
        unreachable!("nothing misses here")
    }

    fn refresh(&self, _: &[Effect], _: Nanos) {}

    fn port_failed(&self, _: PortNo) {}

    fn punt(&self, packet: &Punt<'_>, _: Nanos) -> bool {
        let mut taken = self.taken.lock();
        let room = taken.len() < self.room;
        if room {
            taken.push((packet.handle, packet.in_port, packet.packet.to_vec(), packet.total_len));
        }
        room
    }
}

/// Actions with ports 1 to 3.
struct Fixture {
    actor: Actor,
    devices: Vec<Arc<Dummy>>,
    controllers: Arc<Controllers>,
    meters: Arc<Meters>,
    rx_queue: RxQueue,
}

impl Fixture {
    fn new() -> Fixture {
        let controllers = Arc::new(Controllers {
            room: 100,
            taken: Mutex::default(),
        });
        let meters = Arc::<Meters>::default();
        let bonds = Arc::<Bonds>::default();
        bonds.set(1, Some(bond()));
        let shared = Shared {
            bonds,
            meters: meters.clone(),
            ..Shared::default()
        };
        let mut actor = Actor::new(shared, controllers.clone(), Arc::default());
        let devices: Vec<_> = (0..3)
            .map(|_| Arc::new(Dummy::open("p", &BTreeMap::new()).unwrap()))
            .collect();
        for (number, device) in (1..).zip(&devices) {
            let tx = device.open_tx().ok();
            actor
                .egress
                .add(PortNo(number), device.clone(), None, tx, Arc::default());
        }
        let rx = devices[0].open_rx().unwrap().remove(0);
        let mut rx_queue = Pipeline::rx_queue(PortNo(9), rx, Budget::new(2, 4));
        rx_queue.source.punts.as_mut().unwrap().begin(true);
        Fixture {
            actor,
            devices,
            controllers,
            meters,
            rx_queue,
        }
    }

    /// Runs actions on a frame; what came out of ports 1 to 3.
    fn run(&mut self, mut frame: Frame, actions: &[Action]) -> [Vec<Vec<u8>>; 3] {
        frame.meta.in_port = self.rx_queue.port;
        self.actor
            .context(&mut self.rx_queue.source, 0, Nanos(1))
            .run(actions, None, frame);
        self.actor.flush(Nanos(1));
        [0, 1, 2].map(|n| self.devices[n].take_sent())
    }

    fn dropped(&self, cause: DropCause) -> u64 {
        self.actor.stats.dropped(cause)
    }
}

/// Packets of some buckets leave by ports 2 and 3, those of others are dropped.
fn bond() -> BondTable {
    BondTable {
        basis: 5,
        members: std::array::from_fn(|bucket| [Some(PortNo(2)), Some(PortNo(3)), None][bucket % 3]),
    }
}

fn output(port: u32) -> Action {
    Action::Output(PortNo(port))
}

fn set(field: Field, value: u128) -> Action {
    Action::SetField(SetField::new(field, value, u128::MAX).unwrap())
}

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn udp(src: [u8; 4], port: u16) -> Packet {
    let (src, dst) = (Ipv4Addr::from(src), Ipv4Addr::new(10, 0, 0, 2));
    Packet::new(A, B).ipv4(src, dst).udp(port, 53, b"some payload")
}

fn tcp(port: u16, payload: &[u8]) -> Vec<u8> {
    let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    Packet::new(A, B).ipv4(src, dst).tcp(port, 80, 16, payload).bytes()
}

/// A segment of 3 000 bytes to be cut to parts of 1 000.
fn segment(port: u16) -> Frame {
    let mut frame = Frame::from_slice(&tcp(port, &[7; 3000]));
    frame.offload = Offload {
        csum: Csum::Unknown,
        gso: Gso::Tcp4,
        ecn: false,
        gso_size: 1000,
        hdr_len: 54,
        ..Offload::default()
    };
    frame
}

#[test]
fn each_output_sends_the_packet_as_it_is_at_that_point() {
    let mut fixture = Fixture::new();
    let actions = [
        output(1),
        set(Field::Ipv4Src, u128::from(u32::from_be_bytes([10, 9, 9, 9]))),
        output(2),
        set(Field::TpSrc, 77),
        output(3),
        set(Field::TpSrc, 78),
    ];
    let [one, two, three] = fixture.run(Frame::from_slice(&udp([10, 0, 0, 1], 7).bytes()), &actions);
    assert_eq!(one, [udp([10, 0, 0, 1], 7).bytes()]);
    assert_eq!(two, [udp([10, 9, 9, 9], 7).bytes()]);
    assert_eq!(three, [udp([10, 9, 9, 9], 77).bytes()]);
    assert_eq!(fixture.dropped(DropCause::NoDestination), 0);
}

#[test]
fn a_clone_leaves_the_packet_as_it_was() {
    let mut fixture = Fixture::new();
    let packet = udp([10, 0, 0, 1], 7).bytes();
    let actions = [
        Action::Clone(4),
        set(Field::TpSrc, 8),
        Action::Clone(1),
        output(1),
        output(2),
        output(2),
        Action::Clone(2),
        set(Field::TpSrc, 9),
        output(3),
    ];
    let [one, two, three] = fixture.run(Frame::from_slice(&packet), &actions);
    assert_eq!(one, [udp([10, 0, 0, 1], 8).bytes()]);
    assert_eq!(two, [udp([10, 0, 0, 1], 8).bytes(), packet]);
    assert_eq!(three, [udp([10, 0, 0, 1], 9).bytes()]);
}

#[test]
fn a_clone_of_more_than_follows_takes_what_there_is() {
    let mut fixture = Fixture::new();
    let packet = udp([10, 0, 0, 1], 7).bytes();
    let [one, ..] = fixture.run(Frame::from_slice(&packet), &[Action::Clone(u32::MAX), output(1)]);
    assert_eq!(one, [packet]);
}

#[test]
fn what_only_changes_a_packet_sends_it_nowhere_and_that_is_counted() {
    let mut fixture = Fixture::new();
    let packet = udp([10, 0, 0, 1], 7).bytes();
    fixture.run(Frame::from_slice(&packet), &[set(Field::TpSrc, 8), Action::PopVlan]);
    fixture.run(Frame::from_slice(&packet), &[Action::Meter(5)]);
    assert_eq!(fixture.dropped(DropCause::NoDestination), 2);
}

#[test]
fn labels_go_behind_tags_and_come_off_again() {
    let mut fixture = Fixture::new();
    let actions = [
        Action::PushMpls {
            ethertype: 0x8847,
            lse: 0x0001_0140,
        },
        Action::PushMpls {
            ethertype: 0x8848,
            lse: 0x0002_0040,
        },
        Action::SetMpls {
            lse: 0x0003_3013,
            mask: 0xffff_f0ff,
        },
        output(1),
        Action::PopMpls { ethertype: 0x8847 },
        Action::SetMpls { lse: 63, mask: 0xff },
        output(2),
        Action::PopMpls { ethertype: 0x0800 },
        set(Field::TpSrc, 8),
        output(3),
    ];
    for tags in 0..3 {
        let packet = |port| {
            let packet = udp([10, 0, 0, 1], port).bytes();
            let mut frame = Frame::from_slice(&packet);
            (0..tags).for_each(|n| frame.push_vlan(VlanTag { tpid: 0x88a8, tci: n }).unwrap());
            frame
        };
        let [one, two, three] = fixture.run(packet(7), &actions);
        let start = 14 + 4 * usize::from(tags);
        let whole = packet(7);
        let labelled = |kind: [u8; 2], stack: &[u32]| {
            let mut bytes = whole.data()[..start - 2].to_vec();
            bytes.extend(kind);
            stack.iter().for_each(|lse| bytes.extend(lse.to_be_bytes()));
            bytes.extend(&whole.data()[start..]);
            bytes
        };
        assert_eq!(one, [labelled([0x88, 0x48], &[0x0003_3013, 0x0001_0140])]);
        assert_eq!(two, [labelled([0x88, 0x47], &[0x0001_013f])]);
        assert_eq!(three, [packet(8).data()]);
    }
}

#[test]
fn a_frame_without_a_type_gets_no_label_and_what_has_none_loses_none() {
    let mut fixture = Fixture::new();
    let llc = Packet::new(A, B).payload(20, &[0x42, 0x42, 3, 0, 0, 0, 0, 0]).bytes();
    let actions = [
        Action::PushMpls {
            ethertype: 0x8847,
            lse: 1,
        },
        Action::PopMpls { ethertype: 0x0800 },
        Action::SetMpls { lse: 1, mask: 1 },
        output(1),
    ];
    let [one, ..] = fixture.run(Frame::from_slice(&llc), &actions);
    assert_eq!(one, [llc]);
}

#[test]
fn a_segment_is_cut_before_it_gets_a_label() {
    let mut fixture = Fixture::new();
    let actions = [
        set(Field::TpSrc, 9),
        output(3),
        Action::PushMpls {
            ethertype: 0x8847,
            lse: 0x140,
        },
        output(1),
        Action::PopMpls { ethertype: 0x0800 },
        output(2),
    ];
    let [one, two, three] = fixture.run(segment(7), &actions);
    assert_eq!((one.len(), two.len()), (3, 3));
    assert!(one.iter().all(|packet| packet[12..18] == [0x88, 0x47, 0, 0, 1, 0x40]));
    // Dummy devices cut what is whole.
    assert_eq!(two, three);
    assert_eq!(two[0][34..36], [0, 9]);
}

#[test]
fn a_pending_checksum_is_filled_in_before_a_label_and_before_a_cut() {
    let mut fixture = Fixture::new();
    let whole = tcp(7, &[3; 100]);
    let mut frame = Frame::from_slice(&whole);
    let mut pseudo = wire::checksum::pseudo_ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 6, 120);
    pseudo = pseudo.word(0);
    frame.data_mut()[50..52].copy_from_slice(&pseudo.fold().to_be_bytes());
    frame.offload.csum = Csum::Partial { start: 34, offset: 16 };
    let actions = [
        Action::Trunc(60),
        output(1),
        output(2),
        Action::Punt {
            reason: PuntReason::Controller,
            handle: 1,
            max_len: 1000,
        },
        Action::PushMpls {
            ethertype: 0x8847,
            lse: 0,
        },
        output(3),
    ];
    let [one, two, three] = fixture.run(frame, &actions);
    assert_eq!(one, [&whole[..60]]);
    assert_eq!(two, [&whole[..]]);
    assert_eq!(three[0][18..], whole[14..]);
    assert_eq!(fixture.controllers.taken.lock()[0].2, whole);
}

#[test]
fn a_cut_is_for_one_output_and_of_each_packet_of_a_segment() {
    let mut fixture = Fixture::new();
    let packet = udp([10, 0, 0, 1], 7).bytes();
    let actions = [
        Action::Trunc(20),
        set(Field::TpSrc, 8),
        output(1),
        output(2),
        Action::Trunc(1500),
        output(3),
    ];
    let [one, two, three] = fixture.run(Frame::from_slice(&packet), &actions);
    let after = udp([10, 0, 0, 1], 8).bytes();
    assert_eq!(
        (one, two, three),
        (vec![after[..20].to_vec()], vec![after.clone()], vec![after])
    );
    let [one, two, three] = fixture.run(segment(8), &actions);
    assert_eq!(one, two.iter().map(|packet| packet[..20].to_vec()).collect::<Vec<_>>());
    assert_eq!(three, two);
    let [one, ..] = fixture.run(Frame::from_slice(&packet), &[Action::Trunc(0), output(1)]);
    assert_eq!(one[0].len(), 14);
}

#[test]
fn a_controller_gets_a_copy_of_the_packet_as_it_is() {
    let mut fixture = Fixture::new();
    let packet = udp([10, 0, 0, 1], 7).bytes();
    let actions = [
        set(Field::TpSrc, 8),
        Action::Punt {
            reason: PuntReason::Controller,
            handle: 5,
            max_len: 40,
        },
        set(Field::TpSrc, 9),
        output(1),
        Action::Punt {
            reason: PuntReason::Controller,
            handle: 6,
            max_len: 0xffff,
        },
    ];
    let [one, ..] = fixture.run(Frame::from_slice(&packet), &actions);
    let changed = |port| udp([10, 0, 0, 1], port).bytes();
    assert_eq!(one, [changed(9)]);
    let taken = std::mem::take(&mut *fixture.controllers.taken.lock());
    let first = (5, PortNo(9), changed(8)[..40].to_vec(), packet.len());
    assert_eq!(taken, [first, (6, PortNo(9), changed(9), packet.len())]);
}

#[test]
fn a_controller_gets_the_packets_of_a_segment() {
    let mut fixture = Fixture::new();
    fixture.run(
        segment(7),
        &[Action::Punt {
            reason: PuntReason::Controller,
            handle: 1,
            max_len: 54,
        }],
    );
    let taken = fixture.controllers.taken.lock();
    assert_eq!(taken.iter().map(|packet| packet.3).collect::<Vec<_>>(), [1054; 3]);
    assert_eq!(fixture.dropped(DropCause::NoDestination), 0);
}

#[test]
fn copies_for_controllers_are_bounded_by_a_budget_and_by_their_queue() {
    let mut fixture = Fixture::new();
    let packet = udp([10, 0, 0, 1], 7).bytes();
    let action = [Action::Punt {
        reason: PuntReason::Controller,
        handle: 1,
        max_len: 10,
    }];
    let send = |fixture: &mut Fixture, packets: usize| {
        (0..packets).for_each(|_| drop(fixture.run(Frame::from_slice(&packet), &action)));
        fixture.controllers.taken.lock().len()
    };
    assert_eq!(send(&mut fixture, 10), 4);
    assert_eq!(fixture.dropped(DropCause::ControllerBudget), 6);
    fixture.rx_queue.source.punts.as_mut().unwrap().begin(true);
    assert_eq!(send(&mut fixture, 10), 6);
    // A port that is alone has as many as a batch may need; then the queue is full.
    (0..5).for_each(|_| {
        fixture.rx_queue.source.punts.as_mut().unwrap().begin(false);
        send(&mut fixture, 32);
    });
    assert_eq!(send(&mut fixture, 0), 100);
    // The control plane's own packets are bounded by the queue only.
    let mut control = Source::control();
    fixture.controllers.taken.lock().clear();
    for _ in 0..50 {
        let mut frame = Frame::from_slice(&packet);
        frame.meta.in_port = PortNo(3);
        fixture
            .actor
            .context(&mut control, 0, Nanos(1))
            .run(&action, None, frame);
    }
    assert_eq!(send(&mut fixture, 0), 50);
    assert_eq!(fixture.controllers.taken.lock()[0].1, PortNo(3));
}

#[test]
fn controllers_collectors_and_control_protocols_have_budgets_of_their_own() {
    let mut fixture = Fixture::new();
    let packet = udp([10, 0, 0, 1], 7).bytes();
    let mut taken = |reason| {
        let punt = [Action::Punt {
            reason,
            handle: 1,
            max_len: 10,
        }];
        (0..10).for_each(|_| drop(fixture.run(Frame::from_slice(&packet), &punt)));
        let causes = [
            DropCause::ControllerBudget,
            DropCause::ProtocolBudget,
            DropCause::SampleBudget,
        ];
        let taken = std::mem::take(&mut *fixture.controllers.taken.lock()).len();
        (taken, causes.map(|cause| fixture.dropped(cause)))
    };
    assert_eq!(taken(PuntReason::Controller), (4, [6, 0, 0]));
    assert_eq!(taken(PuntReason::Sample), (4, [6, 0, 6]));
    assert_eq!(taken(PuntReason::Lacp), (4, [6, 6, 6]));
}

#[test]
fn a_sample_is_a_copy_of_the_packet_as_it_was_and_not_where_the_packet_went() {
    let mut fixture = Fixture::new();
    let packet = udp([10, 0, 0, 1], 7).bytes();
    let sample = |probability| Action::Sample { probability, steps: 1 };
    let punt = Action::Punt {
        reason: PuntReason::Sample,
        handle: 1,
        max_len: 20,
    };
    let push = Action::PushVlan(VlanTag { tpid: 0x8100, tci: 5 });
    let sent = fixture.run(
        Frame::from_slice(&packet),
        &[sample(u32::MAX), punt.clone(), push, output(1)],
    );
    assert_eq!(sent[0].len(), 1);
    {
        let taken = fixture.controllers.taken.lock();
        assert_eq!((taken.len(), &taken[0].2[..]), (1, &packet[..20]));
    }
    assert_eq!(fixture.dropped(DropCause::NoDestination), 0);
    // What is sent nowhere is dropped, sampled or not.
    for probability in [0, u32::MAX] {
        let sent = fixture.run(Frame::from_slice(&packet), &[sample(probability), punt.clone()]);
        assert_eq!(sent.concat(), Vec::<Vec<u8>>::new());
    }
    assert_eq!(fixture.controllers.taken.lock().len(), 2);
    assert_eq!(fixture.dropped(DropCause::NoDestination), 2);
}

#[test]
fn the_packets_of_a_segment_are_sampled_one_by_one() {
    let mut fixture = Fixture::new();
    let actions = [
        Action::Sample {
            probability: u32::MAX,
            steps: 1,
        },
        Action::Punt {
            reason: PuntReason::Sample,
            handle: 1,
            max_len: 64,
        },
        output(1),
    ];
    fixture.run(segment(1), &actions);
    let lengths: Vec<_> = fixture
        .controllers
        .taken
        .lock()
        .iter()
        .map(|taken| (taken.2.len(), taken.3))
        .collect();
    assert_eq!(lengths, [(64, 1054); 3]);
}

#[test]
fn a_meter_drops_or_marks_what_is_too_much() {
    let mut fixture = Fixture::new();
    let config = |effect| MeterConfig {
        unit: MeterUnit::Pktps,
        bands: vec![Band {
            rate: 3,
            burst: 3,
            effect,
        }],
        cause: DropCause::Meter,
    };
    let src = Ipv6Addr::LOCALHOST;
    let packet = |tos: u8| {
        let mut packet = Packet::new(A, B).ipv6(src, src).udp(1, 2, b"x").bytes();
        packet[14] |= tos >> 4;
        packet[15] |= tos << 4;
        packet
    };
    fixture.meters.set(1, &config(BandEffect::Drop)).unwrap();
    let actions = [output(2), Action::Meter(1), output(1)];
    for _ in 0..5 {
        fixture.run(Frame::from_slice(&packet(0x29)), &[Action::Meter(1)]);
    }
    assert_eq!(fixture.dropped(DropCause::Meter), 2);
    assert_eq!(fixture.dropped(DropCause::NoDestination), 3);
    let [one, two, _] = fixture.run(Frame::from_slice(&packet(0x29)), &actions);
    assert_eq!((one.len(), two.len()), (0, 1));
    fixture.meters.set(1, &config(BandEffect::DscpRemark(1))).unwrap();
    let sent: Vec<_> = (0..5)
        .flat_map(|_| fixture.run(Frame::from_slice(&packet(0x29)), &actions)[0].clone())
        .collect();
    assert_eq!(
        sent,
        [packet(0x29), packet(0x29), packet(0x29), packet(0x31), packet(0x31)]
    );
    assert_eq!(fixture.meters.stats(1).unwrap().bands[0].packets, 2);
}

/// What leaves port 1 for a frame with these labels before `payload`.
fn labelled(labels: &[u32], payload: &[u8], action: Action) -> Vec<u8> {
    let stack: Vec<u8> = labels.iter().flat_map(|label| label.to_be_bytes()).collect();
    let bytes = [&[1; 12][..], &[0x88, 0x47], &stack, payload].concat();
    let mut sent = Fixture::new().run(Frame::from_slice(&bytes), &[action, output(1)]);
    sent[0].remove(0).split_off(14)
}

#[test]
fn times_to_live_are_copied_between_a_label_and_the_header_behind_it() {
    let ip = udp([10, 0, 0, 1], 5).bytes()[14..].to_vec();
    let ttl = ip[8];
    assert_eq!(labelled(&[0x2107], &ip, Action::CopyTtlOut)[3], ttl);
    let sent = labelled(&[0x2107], &ip, Action::CopyTtlIn);
    assert_eq!((sent[3], sent[12]), (7, 7));
    assert_eq!(testkit::checksum(&sent[4..24]), 0);
    assert_eq!(
        labelled(&[0x2007, 0x2109], &ip, Action::CopyTtlOut)[..8],
        [0, 0, 0x20, 9, 0, 0, 0x21, 9]
    );
    assert_eq!(
        labelled(&[0x2007, 0x2109], &ip, Action::CopyTtlIn)[..8],
        [0, 0, 0x20, 7, 0, 0, 0x21, 7]
    );
    let mut six = [0; 48];
    (six[0], six[5], six[7]) = (0x60, 8, 33);
    assert_eq!(labelled(&[0x2107], &six, Action::CopyTtlOut)[3], 33);
    assert_eq!(labelled(&[0x2107], &six, Action::CopyTtlIn)[11], 7);
}

#[test]
fn what_is_no_ip_header_behind_a_label_has_no_time_to_live() {
    let ip = udp([10, 0, 0, 1], 5).bytes()[14..].to_vec();
    let mut wrong_sum = ip.clone();
    wrong_sum[10] ^= 1;
    let mut long = [0; 48];
    (long[0], long[5]) = (0x60, 9);
    for payload in [&wrong_sum[..], &long, &ip[..19], &[0x44; 40], b"", &[0x60; 39]] {
        for action in [Action::CopyTtlOut, Action::CopyTtlIn] {
            let sent = labelled(&[0x2107], payload, action);
            assert_eq!(sent, [&[0, 0, 0x21, 7], payload].concat(), "{payload:x?}");
        }
    }
}

#[test]
fn what_a_frame_is_filled_up_with_is_told_from_its_data() {
    let packet = udp([10, 0, 0, 1], 5).bytes();
    assert_eq!(padding(&packet), 0);
    let filled = [&packet[..], &[0; 9]].concat();
    assert_eq!(padding(&filled), 9);
    let mut tagged = filled.clone();
    tagged.splice(12..12, [0x88, 0xa8, 0, 1, 0x81, 0, 0, 2]);
    assert_eq!(padding(&tagged), 9);
    assert_eq!(padding(&[&packet[..], &[0; 256]].concat()), 0);
    assert_eq!(padding(&packet[..20]), 0);
    let mut six = vec![0; 14 + 40 + 3];
    (six[12], six[13], six[14]) = (0x86, 0xdd, 0x60);
    assert_eq!(padding(&six), 3);
    six[19] = 3;
    assert_eq!(padding(&six), 0);
    assert_eq!(padding(&[0; 64]), 0);
}
