use super::*;
use nanos::Nanos;
use std::collections::BTreeMap;
use std::time::Duration;

/// A switch with one interface.
struct Switch {
    lldp: Lldp,
    config: Config,
}

impl Switch {
    fn new(last: u8) -> Switch {
        let port = PortConfig {
            mac: mac(last),
            chassis: mac(last),
            up: true,
            system_name: format!("s{last}"),
            ..PortConfig::default()
        };
        Switch {
            lldp: Lldp::default(),
            config: Config {
                ports: BTreeMap::from([("p".to_owned(), port)]),
            },
        }
    }

    fn configure(&mut self, now: Nanos) {
        self.lldp.configure(self.config.clone(), now);
    }

    fn port(&mut self) -> &mut PortConfig {
        self.config.ports.get_mut("p").unwrap()
    }
}

/// Runs two switches that are connected.
fn run(a: &mut Switch, b: &mut Switch, from: u64, to: u64) {
    for now in from..to {
        let now = Nanos::from_secs(now);
        for switch in [&mut *a, &mut *b] {
            if switch.lldp.next_event().is_some_and(|due| due <= now) {
                switch.lldp.tick(now);
            }
        }
        exchange(a, b, now);
    }
}

fn exchange(a: &mut Switch, b: &mut Switch, now: Nanos) {
    while let Some((_, frame)) = a.lldp.take_frame() {
        b.lldp.receive("p", &frame, now);
    }
    while let Some((_, frame)) = b.lldp.take_frame() {
        a.lldp.receive("p", &frame, now);
    }
}

#[test]
fn two_switches_know_each_other_until_one_falls_silent() {
    let (mut a, mut b) = (Switch::new(1), Switch::new(2));
    a.configure(Nanos::ZERO);
    b.configure(Nanos::ZERO);
    run(&mut a, &mut b, 0, 100);
    let names = |switch: &Switch| -> Vec<Vec<u8>> {
        let neighbors = switch.lldp.neighbors("p");
        neighbors.map(|neighbor| neighbor.pdu.system_name.clone()).collect()
    };
    assert_eq!((names(&a), names(&b)), (vec![b"s2".to_vec()], vec![b"s1".to_vec()]));
    let counters = a.lldp.counters("p").unwrap();
    assert_eq!((counters.tx, counters.rx, counters.inserts), (20, 20, 1));
    // Its link is down: it says nothing, and is forgotten after its time to live.
    b.port().up = false;
    b.configure(Nanos::from_secs(100));
    run(&mut a, &mut b, 100, 95 + 120);
    assert_eq!(names(&a).len(), 1);
    run(&mut a, &mut b, 95 + 120, 95 + 122);
    assert!(names(&a).is_empty());
    assert_eq!(a.lldp.counters("p").unwrap().ageouts, 1);
}

#[test]
fn a_switch_that_ends_lldp_is_forgotten_at_once() {
    let (mut a, mut b) = (Switch::new(1), Switch::new(2));
    a.configure(Nanos::ZERO);
    b.configure(Nanos::ZERO);
    run(&mut a, &mut b, 0, 10);
    b.lldp.configure(Config::default(), Nanos::from_secs(10));
    exchange(&mut a, &mut b, Nanos::from_secs(10));
    assert_eq!(a.lldp.neighbors("p").count(), 0);
    assert_eq!(a.lldp.counters("p").unwrap().deletes, 1);
    assert_eq!((b.lldp.next_event(), b.lldp.counters("p")), (None, None));
}

#[test]
fn a_neighbor_that_says_something_new_stays_one_neighbor() {
    let (mut a, mut b) = (Switch::new(1), Switch::new(2));
    a.configure(Nanos::ZERO);
    b.configure(Nanos::ZERO);
    exchange(&mut a, &mut b, Nanos::ZERO);
    b.port().system_name = "other".to_owned();
    b.configure(Nanos::from_secs(1));
    exchange(&mut a, &mut b, Nanos::from_secs(1));
    let neighbors: Vec<_> = a.lldp.neighbors("p").collect();
    assert_eq!(neighbors[0].pdu.system_name, b"other");
    assert_eq!(
        (neighbors.len(), neighbors[0].since, neighbors[0].heard),
        (1, Nanos::ZERO, Nanos::from_secs(1))
    );
    assert_eq!(neighbors[0].expires(), Nanos::from_secs(1) + Duration::from_secs(120));
}

#[test]
fn mappings_are_pending_until_a_server_answers_and_after_it_is_gone() {
    let mut a = Switch::new(1);
    let (isid, vlan) = (Isid::new(200).unwrap(), Vid::new(20).unwrap());
    a.port().mappings.insert(isid, vlan);
    a.configure(Nanos::ZERO);
    let (_, frame) = a.lldp.take_frame().unwrap();
    assert_eq!(Lldpdu::parse(&frame).unwrap().assignments, [assignment(200, 20)]);
    let shown = |lldp: &Lldp| lldp.assignments("p").map(|a| a.status.to_string()).collect::<Vec<_>>();
    assert_eq!(shown(&a.lldp), ["Pending"]);
    let mut answer = full(9);
    let frame = answer.emit(mac(9));
    // The status is in the first four bits of an assignment.
    let at = frame.windows(5).position(|bytes| bytes == [0, 20, 0, 0, 200]).unwrap();
    for (status, text) in [
        (0, "Undefined"),
        (2, "Active"),
        (3, "Reject (Generic)"),
        (4, "Reject (AA resources unavailable)"),
        (6, "Reject (Invalid)"),
        (8, "Reject (VLAN resources unavailable)"),
        (9, "Reject (Application interaction issue)"),
        (15, "Undefined"),
    ] {
        let mut frame = frame.clone();
        frame[at] |= status << 4;
        a.lldp.receive("p", &frame, Nanos::from_secs(1));
        assert_eq!(shown(&a.lldp), [text]);
    }
    answer.ttl = 0;
    a.lldp.receive("p", &answer.emit(mac(9)), Nanos::from_secs(2));
    assert_eq!(shown(&a.lldp), ["Pending"]);
}
