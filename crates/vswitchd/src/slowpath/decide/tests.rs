//! Long translations, and the packets that wait for them.

use super::GIVES_WAY;
use crate::slowpath::long::Done;
use crate::slowpath::tests::bridge_of;
use crate::slowpath::{PATIENCE, Reported, Shared, Wait};
use dp::{Answer, Change, DropCause, Key, PortNo, Slowpath, Upcall};
use dp_user::pipeline::{Budget, Pipeline, RxQueue};
use flow::Field;
use nanos::Nanos;
use netdev::{Dummy, Netdev};
use openflow::model::{FlowCommand, GroupCommand};
use openflow::text::{Names, parse_flow, parse_group_mod};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use switch::FailMode;
use switch::tables::Patience;

/// A bridge of two ports with these rules; groups 1 to 12 are a chain, each with two buckets that
/// name the next.
fn shared(rules: &[&str]) -> Arc<Shared> {
    let shared = Shared::new(1);
    shared.update(|switch, now| switch.configure(bridge_of(2, FailMode::Secure), now));
    let names = Names::default();
    for level in 1..=12 {
        let text = match level {
            12 => "group_id=12,type=all,bucket=output:2".to_owned(),
            _ => format!("group_id={level},type=all,bucket=group:{0},bucket=group:{0}", level + 1),
        };
        let (change, _) = parse_group_mod(GroupCommand::Add, &text, &names).unwrap();
        shared.update(|switch, now| switch.group_mod("br0", &change, now).unwrap());
    }
    rules.iter().for_each(|rule| add(&shared, rule));
    shared
}

fn add(shared: &Shared, rule: &str) {
    let change = parse_flow(FlowCommand::Add, rule, &Names::default()).unwrap();
    shared.update(|switch, now| switch.flow_mod("br0", &change, now).unwrap());
}

fn key(station: u64) -> Key {
    let mut key = Key::ZERO;
    key.set(Field::InPort, 1);
    key.set(Field::EthDst, station.into());
    key.set(Field::EthSrc, 0x0200_0000_0000 + u128::from(station));
    key
}

fn ask(shared: &Shared, key: &Key) -> Answer {
    shared.try_upcall(&Upcall::new(key, &[]), Nanos::ZERO)
}

/// The answer that arrives later.
fn wait_for(shared: &Shared, key: &Key) -> Answer {
    let begun = Instant::now();
    loop {
        match ask(shared, key) {
            Answer::Later => assert!(begun.elapsed() < Duration::from_secs(60), "there is no answer"),
            answer => return answer,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

const LONG: &str = "priority=1,actions=group:1";
const SHORT: &str = "priority=2,dl_dst=00:00:00:00:00:07,actions=output:2";

#[test]
fn a_long_translation_is_made_elsewhere_and_is_the_same() {
    let shared = shared(&[LONG, SHORT]);
    shared.serve_long().unwrap();
    let own = key(1);
    let upcall = Upcall::new(&own, &[]);
    let whole = shared.switch.read().translate(&upcall, Nanos::ZERO, Patience::Whole);
    let whole = whole.unwrap().translation;
    assert_eq!(whole.actions.len(), 2048);
    assert!(matches!(ask(&shared, &key(1)), Answer::Later));
    match wait_for(&shared, &key(1)) {
        Answer::Cache(translation) => assert_eq!((translation.actions, translation.mask), (whole.actions, whole.mask)),
        other => panic!("{other:?}"),
    }
    // A short translation is answered at once.
    assert!(matches!(ask(&shared, &key(7)), Answer::Cache(_)));
}

#[test]
fn a_long_translation_that_a_change_has_overtaken_is_for_one_packet_only() {
    let shared = shared(&[LONG]);
    shared.serve_long().unwrap();
    let first = match wait_for(&shared, &key(1)) {
        Answer::Cache(translation) => translation,
        other => panic!("{other:?}"),
    };
    let done = Done {
        translation: first,
        epoch: shared.changes.epoch(),
    };
    add(&shared, "table=7,actions=drop");
    let done = match shared.answer_of(&key(1), done) {
        Answer::Cache(translation) => Done {
            translation,
            epoch: shared.changes.epoch(),
        },
        other => panic!("the change is of another table: {other:?}"),
    };
    add(&shared, "priority=9,actions=drop");
    assert!(matches!(shared.answer_of(&key(1), done), Answer::Once(_)));
}

#[test]
fn a_long_translation_gives_way_to_whoever_changes_the_tables_but_not_for_ever() {
    let shared = shared(&[LONG]);
    let asked = RefCell::new(Vec::new());
    let key = key(1);
    let upcall = Upcall::new(&key, &[]);
    let translate = |switch: &switch::Switch, now, patience: Patience<'_>| {
        asked.borrow_mut().push(matches!(patience, Patience::Whole));
        Some(switch.translate(&upcall, now, patience))
    };
    assert!(shared.decide(translate).is_some());
    assert_eq!(asked.take(), [false]);
    shared.writers.store(1, Ordering::Relaxed);
    assert!(shared.look_patiently(translate).is_some());
    let asked = asked.take();
    assert_eq!((asked.len(), asked.last()), (GIVES_WAY as usize + 1, Some(&true)));
    shared.writers.store(0, Ordering::Relaxed);
}

#[test]
fn a_full_table_of_handles_costs_the_megaflows_of_others_nothing() {
    let rule = "priority=1,actions=move:NXM_OF_ETH_SRC[]->NXM_NX_XXREG0[0..47],controller";
    let shared = shared(&[rule, SHORT]);
    shared.update(|switch, _| {
        switch.limit_handles(100, 50);
        Vec::new()
    });
    let answer = |station| match ask(&shared, &key(station)) {
        Answer::Cache(translation) => translation,
        other => panic!("{other:?}"),
    };
    let short = answer(7);
    let known = answer(1000);
    let epoch = shared.changes.epoch();
    let handle = |translation: &dp::Translation| match translation.actions[..] {
        [dp::Action::Punt { handle, .. }] => handle,
        ref other => panic!("{other:?}"),
    };
    let refused = (1001..2000).filter(|station| handle(&answer(*station)) == 0).count();
    assert_eq!(refused, 999 - 49);
    let mut changes = Vec::new();
    shared.changes.since(epoch, &mut changes);
    let is_stale = |change: &Change| short.depends_on(change) || known.depends_on(change);
    assert!(!changes.iter().any(is_stale), "{changes:?}");
    let punt = |handle| dp::Punt {
        reason: dp::PuntReason::Controller,
        handle,
        in_port: PortNo(1),
        packet: b"packet",
        total_len: 60,
        mark: 0,
        tunnel: None,
    };
    assert!(shared.punt(&punt(handle(&known)), Nanos::ZERO));
    assert!(!shared.punt(&punt(0), Nanos::ZERO));
}

#[test]
fn a_packet_that_is_too_dear_is_dropped_for_that() {
    let shared = shared(&["actions=resubmit(,0)"]);
    match ask(&shared, &key(1)) {
        Answer::Cache(translation) => assert_eq!(translation.drop, Some(DropCause::TranslationLimit)),
        other => panic!("{other:?}"),
    }
}

/// A datapath's worker with two ports, which the test runs.
struct Ports {
    pipeline: Pipeline,
    devices: Vec<Arc<Dummy>>,
    rx_queues: Vec<RxQueue>,
    now: Nanos,
}

impl Ports {
    fn new(shared: &Arc<Shared>) -> Ports {
        let mut pipeline = Pipeline::new(1000, Duration::from_secs(10), shared.clone(), shared.changes.clone());
        let (mut devices, mut rx_queues) = (Vec::new(), Vec::new());
        for port in 1..=2 {
            let device = Arc::new(Dummy::open(&format!("p{port}"), &BTreeMap::new()).unwrap());
            pipeline.add_port(PortNo(port), device.clone());
            let rx = device.open_rx().unwrap().remove(0);
            rx_queues.push(Pipeline::rx_queue(PortNo(port), rx, Budget::new(8, 256)));
            devices.push(device);
        }
        Ports {
            pipeline,
            devices,
            rx_queues,
            now: Nanos::from_secs(1),
        }
    }

    /// Number of packets that leave through port 2 after a packet for a station was received on
    /// port 1.
    fn send(&mut self, station: u64) -> usize {
        let packet = testkit::Packet::new(testkit::mac(1), wire::MacAddr::from_u64(station).0);
        assert!(self.devices[0].inject(&packet.payload(0x88b5, b"data").bytes()));
        self.turn()
    }

    fn turn(&mut self) -> usize {
        self.now += Duration::from_millis(1);
        while self.pipeline.receive(&mut self.rx_queues[0], false, self.now).unwrap() > 0 {}
        self.devices[1].take_sent().len()
    }
}

#[test]
fn a_worker_sends_other_packets_while_a_long_translation_is_made() {
    let shared = shared(&[LONG, SHORT]);
    let mut ports = Ports::new(&shared);
    // The thread is not started: the test takes its place once the packet waits.
    let _serving = shared.long.begin();
    assert_eq!(ports.send(1), 0);
    assert!(ports.rx_queues[0].has_pending());
    assert_eq!((ports.send(7), ports.send(7)), (1, 1));
    assert_eq!(ports.send(1), 0);
    shared.serve_long().unwrap();
    let begun = Instant::now();
    let mut sent = 0;
    while sent < 2 * 2048 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{sent} sent");
        sent += ports.turn();
    }
    // The megaflow is there.
    let upcalls = ports.pipeline.cache_stats().upcalls;
    assert_eq!((ports.send(1), ports.pipeline.cache_stats().upcalls), (2048, upcalls));
}

#[test]
fn a_translation_of_very_many_actions_is_for_one_packet_only() {
    let shared = shared(&["actions=group:1,group:1"]);
    match ask(&shared, &key(1)) {
        Answer::Once(translation) => assert_eq!(translation.actions.len(), 4096),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_packet_whose_copies_have_no_room_together_has_no_handle_that_nobody_knows() {
    let two = "priority=1,actions=move:NXM_OF_ETH_SRC[]->NXM_NX_XXREG0[0..47],controller(userdata=01),controller(userdata=02)";
    let one = "priority=2,dl_dst=00:00:00:00:00:07,actions=controller";
    let shared = shared(&[two, one]);
    shared.update(|switch, _| {
        switch.limit_handles(100, 4);
        Vec::new()
    });
    let mut known = Vec::new();
    for station in [7, 1, 2, 2, 3] {
        let translation = match ask(&shared, &key(station)) {
            Answer::Cache(translation) => translation,
            other => panic!("{other:?}"),
        };
        let handles = translation.actions.iter().map(|action| match action {
            dp::Action::Punt { handle, .. } => *handle,
            other => panic!("{other:?}"),
        });
        let is_taken = |handle: u32| {
            let packet = dp::Punt {
                reason: dp::PuntReason::Controller,
                handle,
                in_port: PortNo(1),
                packet: b"packet",
                total_len: 60,
                mark: 0,
                tunnel: None,
            };
            (handle != 0, shared.punt(&packet, Nanos::ZERO))
        };
        known.push(handles.map(is_taken).collect::<Vec<_>>());
    }
    let (yes, no) = ((true, true), (false, false));
    assert_eq!(known, [vec![yes], vec![yes; 2], vec![no; 2], vec![no; 2], vec![no; 2]]);
}

#[test]
fn a_worker_leaves_reports_that_wait_where_their_order_does_not_matter() {
    let carried = dp::Carried {
        packets: 1,
        bytes: 60,
        used: Nanos::ZERO,
    };
    let shared = shared(&[
        "priority=1,actions=normal",
        "priority=2,dl_dst=00:00:00:00:00:07,actions=learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])",
    ]);
    shared.reports.keep_credits(&[(dp::Credit(7), carried)]);
    assert!(matches!(ask(&shared, &key(1)), Answer::Cache(_)));
    shared.credit(&[(dp::Credit(8), carried)], Nanos::ZERO);
    assert!(shared.reports.any());
    // Packets change rules in the order in which they arrived.
    shared.refresh(&[dp::Effect::Context(9)], Nanos::ZERO);
    assert!(shared.reports.any());
    assert!(matches!(ask(&shared, &key(7)), Answer::Cache(_)));
    assert!(!shared.reports.any());
    shared.reports.keep_credits(&[(dp::Credit(7), carried)]);
    shared.catch_up();
    assert!(!shared.reports.any());
}

#[test]
fn all_that_a_worker_does_for_a_packet_has_one_patience() {
    let shared = shared(&[SHORT]);
    let mut left = PATIENCE;
    assert!(shared.read_within(&mut left).is_some());
    assert_eq!(left, PATIENCE);
    let changing = shared.switch.write();
    assert!(shared.read_within(&mut left).is_none());
    assert_eq!(left, Duration::ZERO);
    let update = |left: &mut Duration| shared.update_within(Wait::Within(left), Reported::Waits, |_, _| Vec::new());
    assert!(!update(&mut left));
    drop(changing);
    // A free lock needs no patience.
    assert!(update(&mut left) && shared.read_within(&mut left).is_some());
}
