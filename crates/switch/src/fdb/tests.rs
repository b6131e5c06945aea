use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

fn mac(n: u64) -> MacAddr {
    MacAddr::from_u64(0x0200_0000_0000 + n)
}

fn vlan(n: u16) -> Vid {
    Vid::from_tci(n)
}

fn secs(n: u64) -> Nanos {
    Nanos::from_secs(n)
}

#[test]
fn a_station_is_found_in_its_own_vlan_only() {
    let mut fdb = Fdb::new(1);
    assert_eq!(fdb.learn(vlan(1), mac(1), 7, secs(0)), Learned::New { evicted: None });
    assert_eq!(fdb.lookup(vlan(1), mac(1)), Some((7, false)));
    assert_eq!(fdb.lookup(vlan(2), mac(1)), None);
    assert_eq!(fdb.learn(vlan(1), mac(1), 7, secs(1)), Learned::Nothing);
    assert_eq!(fdb.learn(vlan(1), mac(1), 8, secs(1)), Learned::Moved);
    assert_eq!(
        fdb.stats(),
        FdbStats {
            current: 1,
            max: 8192,
            learned: 1,
            moved: 1,
            ..FdbStats::default()
        }
    );
}

#[test]
fn entries_expire_in_the_order_in_which_they_were_last_seen() {
    let mut fdb = Fdb::new(1);
    fdb.set_aging(Duration::from_secs(100));
    fdb.learn(vlan(0), mac(1), 1, secs(0));
    fdb.learn(vlan(0), mac(2), 1, secs(10));
    fdb.learn(vlan(0), mac(1), 1, secs(20));
    assert_eq!(fdb.next_expiry(), Some(secs(110)));
    assert_eq!(fdb.expire(secs(109)), None);
    assert_eq!(fdb.expire(secs(110)), Some((vlan(0), mac(2))));
    assert_eq!(fdb.expire(secs(110)), None);
    assert_eq!(fdb.expire(secs(1000)), Some((vlan(0), mac(1))));
    assert_eq!(fdb.next_expiry(), None);
    assert_eq!(fdb.stats().expired, 2);
}

#[test]
fn a_full_table_takes_room_from_the_port_with_the_most_entries() {
    let mut fdb = Fdb::new(1);
    fdb.set_max(10);
    fdb.learn(vlan(0), mac(100), 1, secs(0));
    for n in 0..9 {
        fdb.learn(vlan(0), mac(n), 2, secs(1 + n));
    }
    assert_eq!(
        fdb.learn(vlan(0), mac(50), 2, secs(20)),
        Learned::New {
            evicted: Some((vlan(0), mac(0)))
        }
    );
    assert_eq!(
        fdb.learn(vlan(0), mac(101), 1, secs(21)),
        Learned::New {
            evicted: Some((vlan(0), mac(1)))
        }
    );
    assert_eq!(
        fdb.lookup(vlan(0), mac(100)),
        Some((1, false)),
        "older, but of a port with few"
    );
    assert_eq!((fdb.stats().evicted, fdb.stats().current), (2, 10));
    assert!(fdb.set_max(5));
    assert_eq!(fdb.stats().current, 5);
    assert_eq!(fdb.lookup(vlan(0), mac(100)), Some((1, false)));
}

#[test]
fn static_entries_neither_age_nor_move_nor_make_room() {
    let mut fdb = Fdb::new(1);
    fdb.set_max(10);
    fdb.learn(vlan(3), mac(1), 1, secs(0));
    fdb.add_static(vlan(3), mac(1), 2);
    assert_eq!(fdb.lookup(vlan(3), mac(1)), Some((2, true)));
    assert_eq!(fdb.learn(vlan(3), mac(1), 1, secs(1)), Learned::Nothing);
    assert_eq!(fdb.expire(Nanos::MAX), None);
    for n in 2..30 {
        fdb.learn(vlan(3), mac(n), 2, secs(2));
    }
    assert!(fdb.flush(None) && !fdb.flush(None));
    assert_eq!(fdb.lookup(vlan(3), mac(1)), Some((2, true)));
    assert_eq!(fdb.stats().static_current, 1);
    assert!(!fdb.del_static(vlan(3), mac(2)) && fdb.del_static(vlan(3), mac(1)));
    assert_eq!(fdb.stats().current, 0);
}

#[test]
fn a_table_full_of_static_entries_learns_nothing() {
    let mut fdb = Fdb::new(1);
    fdb.set_max(2);
    for n in 0..3 {
        fdb.add_static(vlan(0), mac(n), 1);
    }
    assert_eq!(fdb.learn(vlan(0), mac(9), 1, secs(0)), Learned::Nothing);
    assert_eq!(fdb.stats().current, 3);
}

#[test]
fn a_port_is_forgotten_with_everything_on_it() {
    let mut fdb = Fdb::new(1);
    fdb.add_static(vlan(0), mac(1), 1);
    fdb.add_static(vlan(0), mac(2), 2);
    fdb.learn(vlan(0), mac(3), 1, secs(0));
    fdb.learn(vlan(0), mac(4), 2, secs(0));
    fdb.forget_port(1);
    let left: Vec<_> = fdb
        .entries()
        .map(|((_, mac), port, seen)| (mac, port, seen.is_some()))
        .collect();
    assert_eq!(left, [(mac(2), 2, false), (mac(4), 2, true)]);
}

proptest! {
    /// Compares the table with one that is searched linearly.
    #[test]
    fn it_agrees_with_a_simple_table(steps in proptest::collection::vec((0u8..10, 0u64..12, 0u32..3), 0..300)) {
        let mut fdb = Fdb::new(3);
        fdb.set_max(8);
        fdb.set_aging(Duration::from_secs(20));
        // Station to port, time last seen, order of refreshes, and whether it is static.
        let mut model: HashMap<u64, (u32, u64, usize, bool)> = HashMap::new();
        for (now, (step, n, port)) in steps.into_iter().enumerate() {
            let time = now as u64;
            match step {
                0 => {
                    prop_assert_eq!(fdb.flush(Some(port)), model.values().any(|e| e.0 == port && !e.3));
                    model.retain(|_, e| e.0 != port || e.3);
                }
                1 => {
                    let found = matches!(model.get(&n), Some((.., true)));
                    prop_assert_eq!(fdb.del_static(vlan(1), mac(n)), found);
                    if found {
                        model.remove(&n);
                    }
                }
                2 if model.values().filter(|e| e.3).count() < 3 => {
                    model.remove(&n);
                    let evicted = (model.len() >= 8).then(|| simple_evict(&mut model)).flatten();
                    prop_assert_eq!(fdb.add_static(vlan(1), mac(n), port).map(|s| s.1), evicted.map(mac));
                    model.insert(n, (port, time, now, true));
                }
                3 => while let Some((_, gone)) = fdb.expire(secs(time)) {
                    let gone = gone.to_u64() - 0x0200_0000_0000;
                    let entry = model.remove(&gone).unwrap();
                    prop_assert!(!entry.3 && entry.1 + 20 <= time);
                },
                _ => {
                    let expected = match model.get_mut(&n) {
                        Some((.., true)) => Learned::Nothing,
                        Some(entry) => {
                            let moved = entry.0 != port;
                            *entry = (port, time, now, false);
                            if moved { Learned::Moved } else { Learned::Nothing }
                        }
                        None => {
                            let evicted = (model.len() >= 8).then(|| simple_evict(&mut model)).flatten();
                            model.insert(n, (port, time, now, false));
                            Learned::New { evicted: evicted.map(|n| (vlan(1), mac(n))) }
                        }
                    };
                    prop_assert_eq!(fdb.learn(vlan(1), mac(n), port, secs(time)), expected);
                }
            }
            if step == 3 {
                prop_assert!(model.values().all(|e| e.3 || e.1 + 20 > time));
            }
            prop_assert_eq!(fdb.stats().current, model.len());
            for n in 0..12 {
                prop_assert_eq!(fdb.lookup(vlan(1), mac(n)), model.get(&n).map(|e| (e.0, e.3)));
            }
            prop_assert_eq!(fdb.entries().count(), model.len());
        }
    }
}

fn simple_evict(model: &mut HashMap<u64, (u32, u64, usize, bool)>) -> Option<u64> {
    let count = |port: u32| model.values().filter(|e| !e.3 && e.0 == port).count();
    let port = (0..3).max_by_key(|port| (count(*port), *port))?;
    let oldest = model
        .iter()
        .filter(|(_, e)| !e.3 && e.0 == port)
        .min_by_key(|(_, e)| e.2)
        .map(|(n, _)| *n)?;
    model.remove(&oldest);
    Some(oldest)
}
