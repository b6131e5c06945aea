use super::*;
use crate::lldp::timers;
use nanos::Nanos;
use std::time::Duration;

fn switch(interfaces: usize) -> (Lldp, Config) {
    let config = |n: usize| PortConfig {
        mac: mac(n as u8),
        chassis: mac(0),
        up: true,
        ..PortConfig::default()
    };
    let ports = (0..interfaces).map(|n| (format!("p{n}"), config(n))).collect();
    let config = Config { ports };
    let mut lldp = Lldp::default();
    lldp.configure(config.clone(), Nanos::ZERO);
    while lldp.take_frame().is_some() {}
    (lldp, config)
}

fn claim(number: u32) -> Vec<u8> {
    let chassis = MacAddr::from_u64(0x0200_0000_0000 + u64::from(number));
    Lldpdu::new(Id::chassis(chassis), Id::port("x"), 65535).emit(chassis)
}

#[test]
fn a_flood_of_neighbors_takes_only_its_own_interfaces_room() {
    let (mut lldp, _) = switch(2);
    lldp.receive("p1", &full(9).emit(mac(9)), Nanos::ZERO);
    for n in 0..100_000 {
        lldp.receive("p0", &claim(n), Nanos::ZERO);
    }
    assert_eq!(lldp.neighbors("p0").count(), MOST_OF_PORT);
    assert_eq!(
        lldp.counters("p0").map(|c| c.drops),
        Some(100_000 - MOST_OF_PORT as u64)
    );
    assert_eq!(lldp.neighbors("p1").count(), 1);
    assert!(lldp.take_frame().is_none(), "a flood is not answered");
}

#[test]
fn floods_at_all_interfaces_leave_room_for_an_honest_one() {
    let interfaces = MOST / MOST_OF_PORT + 2;
    let (mut lldp, _) = switch(interfaces);
    for port in 0..interfaces - 1 {
        for n in 0..MOST_OF_PORT as u32 {
            lldp.receive(&format!("p{port}"), &claim(n), Nanos::ZERO);
        }
    }
    let total = |lldp: &Lldp| lldp.ports().map(|name| lldp.neighbors(name).count()).sum::<usize>();
    assert_eq!(total(&lldp), MOST);
    let last = format!("p{}", interfaces - 1);
    lldp.receive(&last, &full(9).emit(mac(9)), Nanos::from_secs(1));
    assert_eq!((lldp.neighbors(&last).count(), total(&lldp)), (1, MOST));
}

#[test]
fn changes_of_the_configuration_do_not_send_more_than_the_credit() {
    let (mut lldp, mut config) = switch(1);
    let mut sent = 1;
    for n in 0..1000 {
        config.ports.get_mut("p0").unwrap().system_name = format!("name {n}");
        lldp.configure(config.clone(), Nanos::from_millis(n));
        sent += std::iter::from_fn(|| lldp.take_frame()).count();
    }
    assert!(sent <= timers::TX_CREDIT as usize + 1, "{sent}");
    // The machine tells the last change as soon as there is credit.
    let due = lldp.next_event().unwrap();
    lldp.tick(due);
    let (_, frame) = lldp.take_frame().expect("it is due");
    assert_eq!(Lldpdu::parse(&frame).unwrap().system_name, b"name 999");
    assert_eq!(lldp.next_event(), Some(due + timers::TX_INTERVAL));
}

#[test]
fn malformed_frames_change_nothing_but_a_counter() {
    let (mut lldp, _) = switch(1);
    let frame = full(9).emit(mac(9));
    lldp.receive("p0", &frame, Nanos::ZERO);
    let before: Vec<Neighbor> = lldp.neighbors("p0").cloned().collect();
    for len in 0..frame.len() {
        lldp.receive("p0", &frame[..len], Nanos::from_secs(1));
    }
    lldp.receive("nope", &frame, Nanos::from_secs(1));
    assert_eq!(lldp.neighbors("p0").cloned().collect::<Vec<_>>(), before);
    let counters = lldp.counters("p0").unwrap();
    assert_eq!(
        (counters.rx, counters.discarded),
        (frame.len() as u64 + 1, frame.len() as u64)
    );
    assert_eq!(
        lldp.next_event().unwrap().min(Nanos::ZERO + Duration::from_secs(5)),
        Nanos::from_secs(5)
    );
}
