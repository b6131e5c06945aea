//! Learning, ageing, flooding.

use crate::lab::{Lab, tags, vid};
use dp::{Change, DropCause};
use flow::{Field, PortNo};
use nanos::Nanos;
use std::time::Duration;
use switch::{Attach, FailMode, FdbError, InterfaceConfig, PortConfig, VlanMode};
use testkit::Packet;
use wire::MacAddr;

fn out(ports: &str) -> Result<Vec<String>, DropCause> {
    Ok(ports.split_whitespace().map(str::to_owned).collect())
}

fn mac(n: u32) -> MacAddr {
    MacAddr(testkit::mac(n))
}

#[test]
fn a_packet_is_flooded_until_its_destination_has_spoken() {
    let mut lab = Lab::with_ports(&["a", "b", "c"]);
    assert_eq!(lab.send("a", 1, 2), out("b c"));
    assert_eq!(lab.send("b", 2, 1), out("a"));
    assert_eq!(lab.send("a", 1, 2), out("b"));
    assert_eq!(lab.send("c", 3, 0xff), out("a b"));
    assert_eq!(lab.stations("br0"), ["b 0 2", "a 0 1", "c 0 3"]);
}

#[test]
fn a_station_is_known_in_the_vlan_in_which_it_spoke() {
    let mut lab = Lab::with_ports(&["a", "b", "c"]);
    let packet = |src, dst| Packet::new(testkit::mac(src), testkit::mac(dst));
    lab.send_packet("b", packet(2, 9), &tags("10")).unwrap();
    assert_eq!(
        lab.send_packet("a", packet(1, 2), &tags("10")),
        Ok(vec!["b 10".to_owned()])
    );
    assert_eq!(
        lab.send_packet("a", packet(1, 2), &tags("20")),
        Ok(vec!["b 20".to_owned(), "c 20".to_owned()])
    );
}

#[test]
fn a_station_that_moves_is_followed_and_what_depended_on_its_place_is_stale() {
    let mut lab = Lab::with_ports(&["a", "b", "c"]);
    lab.send("b", 2, 9).unwrap();
    let to_b = lab.translate("a", Packet::new(testkit::mac(1), testkit::mac(2)).payload(0x88b5, b""));
    assert_eq!(lab.send("c", 2, 9), out("a b"));
    assert!(lab.changes.iter().any(|change| to_b.depends_on(change)));
    assert_eq!(lab.send("a", 1, 2), out("c"));
    assert_eq!(lab.switch.bridge("br0").unwrap().fdb_stats().moved, 1);
    // Nothing new in the same packet again.
    lab.send("a", 1, 2).unwrap();
    assert_eq!(lab.changes, []);
}

#[test]
fn a_packet_does_not_return_to_the_port_of_its_source() {
    let mut lab = Lab::with_ports(&["a", "b"]);
    lab.send("a", 1, 9).unwrap();
    lab.send("a", 2, 9).unwrap();
    assert_eq!(lab.send("a", 1, 2), Err(DropCause::Loop));
    assert_eq!(
        lab.send("b", 3, 3),
        Err(DropCause::Loop),
        "to itself, before it was learned"
    );
}

#[test]
fn an_address_is_forgotten_after_the_ageing_time_without_traffic() {
    let mut lab = Lab::with_ports(&["a", "b", "c"]);
    lab.bridge("br0").mac_aging = Duration::from_secs(60);
    lab.configure();
    lab.send("b", 2, 9).unwrap();
    lab.wait(59);
    assert_eq!(lab.send("a", 1, 2), out("b"));
    lab.send("b", 2, 1).unwrap();
    lab.wait(59);
    assert_eq!(lab.send("a", 1, 2), out("b"));
    let to_b = lab.translate("a", Packet::new(testkit::mac(1), testkit::mac(2)).payload(0x88b5, b""));
    lab.wait(2);
    assert!(lab.changes.iter().any(|change| to_b.depends_on(change)));
    assert_eq!(lab.send("a", 1, 2), out("b c"));
    assert_eq!(lab.switch.bridge("br0").unwrap().fdb_stats().expired, 1);
    assert_eq!(lab.switch.next_event(), Some(lab.now + Duration::from_secs(60)));
}

#[test]
fn times_and_sizes_out_of_range_are_forced_into_it() {
    let mut lab = Lab::with_ports(&["a", "b"]);
    lab.bridge("br0").mac_aging = Duration::from_secs(1);
    lab.bridge("br0").mac_table_size = 1;
    lab.configure();
    for n in 0..20 {
        lab.send("a", n, 99).unwrap();
    }
    let stats = lab.switch.bridge("br0").unwrap().fdb_stats();
    assert_eq!((stats.current, stats.max, stats.evicted), (10, 10, 10));
    assert_eq!(lab.switch.next_event(), Some(lab.now + Duration::from_secs(15)));
}

#[test]
fn a_port_that_invents_addresses_displaces_only_its_own() {
    let mut lab = Lab::with_ports(&["honest", "liar", "c"]);
    lab.bridge("br0").mac_table_size = 100;
    lab.configure();
    for n in 0..20 {
        lab.send("honest", n, 99).unwrap();
    }
    for n in 1000..3000 {
        lab.send("liar", n, 99).unwrap();
    }
    let honest = lab
        .stations("br0")
        .iter()
        .filter(|station| station.starts_with("honest"))
        .count();
    assert_eq!(honest, 20);
    assert_eq!(lab.send("c", 50, 3), out("honest"));
}

#[test]
fn a_static_entry_stays_where_it_was_put() {
    let mut lab = Lab::with_ports(&["a", "b", "c"]);
    lab.switch.fdb_add("br0", "b", vid(0), mac(2)).unwrap();
    assert_eq!(lab.send("c", 2, 9), out("a b"));
    assert_eq!(lab.send("a", 1, 2), out("b"));
    lab.wait(5000);
    lab.switch.fdb_flush("br0", None).unwrap();
    assert_eq!(lab.stations("br0"), ["b 0 2"]);
    assert_eq!(
        lab.switch.fdb_add("br0", "b", vid(0), mac(2)),
        Ok(vec![]),
        "again, and nothing changes"
    );
    assert_ne!(lab.switch.fdb_add("br0", "c", vid(0), mac(2)), Ok(vec![]));
    assert_eq!(lab.send("a", 1, 2), out("c"));
    assert_ne!(lab.switch.fdb_del("br0", vid(0), mac(2)), Ok(vec![]));
    assert_eq!(lab.send("a", 1, 2), out("b c"));
    assert_eq!(lab.switch.fdb_del("br0", vid(0), mac(2)), Err(FdbError::NoEntry));
    assert_eq!(lab.switch.fdb_add("br0", "x", vid(0), mac(2)), Err(FdbError::NoPort));
    assert_eq!(lab.switch.fdb_add("br9", "a", vid(0), mac(2)), Err(FdbError::NoBridge));
    assert_eq!(lab.switch.fdb_flush("br9", None), Err(FdbError::NoBridge));
}

#[test]
fn a_flush_makes_stale_what_depended_on_learned_addresses() {
    let mut lab = Lab::with_ports(&["a", "b", "c"]);
    lab.send("b", 2, 9).unwrap();
    let to_b = lab.translate("a", Packet::new(testkit::mac(1), testkit::mac(2)).payload(0x88b5, b""));
    assert_eq!(
        lab.switch.fdb_flush("br0", Some("a")),
        Ok(vec![]),
        "nothing was learned there"
    );
    let changes = lab.switch.fdb_flush("br0", Some("b")).unwrap();
    assert!(changes.iter().any(|change| to_b.depends_on(change)));
    assert_eq!(lab.stations("br0"), [""; 0]);
}

#[test]
fn nothing_is_learned_from_group_addresses_nor_in_flood_vlans() {
    let mut lab = Lab::with_ports(&["a", "b", "c"]);
    lab.bridge("br0").flood_vlans = [vid(7)].into_iter().collect();
    lab.configure();
    let packet = Packet::new([3, 0, 0, 0, 0, 1], testkit::mac(2));
    assert_eq!(lab.send_packet("a", packet, &[]), out("b c"));
    let packet = |src, dst| Packet::new(testkit::mac(src), testkit::mac(dst));
    lab.send_packet("b", packet(2, 1), &tags("7")).unwrap();
    assert_eq!(
        lab.send_packet("a", packet(1, 2), &tags("7")),
        Ok(vec!["b 7".to_owned(), "c 7".to_owned()])
    );
    assert_eq!(lab.stations("br0"), [""; 0]);
    // Where nothing is learned, all sources share a megaflow.
    let flooded = lab.translate("a", packet(1, 2).vlan(7).payload(0x88b5, b""));
    assert_eq!(flooded.mask.get(Field::EthSrc), 0);
}

#[test]
fn frames_to_reserved_addresses_stay_on_their_link_unless_told_otherwise() {
    let mut lab = Lab::with_ports(&["a", "b"]);
    let bpdu = || Packet::new(testkit::mac(1), [1, 0x80, 0xc2, 0, 0, 0]);
    assert_eq!(lab.send_packet("a", bpdu(), &[]), Err(DropCause::ReservedMulticast));
    assert_eq!(lab.stations("br0"), [""; 0]);
    lab.bridge("br0").forward_bpdu = true;
    lab.configure();
    assert_eq!(lab.send_packet("a", bpdu(), &[]), out("b"));
}

#[test]
fn a_bridge_that_fails_secure_forwards_nothing() {
    let mut lab = Lab::with_ports(&["a", "b"]);
    lab.bridge("br0").fail_mode = FailMode::Secure;
    lab.configure();
    assert_eq!(lab.send("a", 1, 2), Err(DropCause::NoRule));
    assert_eq!(lab.stations("br0"), [""; 0]);
}

#[test]
fn protected_ports_talk_to_others_but_not_to_each_other() {
    let mut lab = Lab::new();
    for (name, protected) in [("p1", true), ("p2", true), ("open", false)] {
        lab.port(
            "br0",
            name,
            PortConfig {
                protected,
                ..PortConfig::default()
            },
        );
    }
    lab.configure();
    assert_eq!(lab.send("p1", 1, 9), out("open"));
    assert_eq!(lab.send("open", 3, 9), out("p1 p2"));
    lab.send("p2", 2, 9).unwrap();
    assert_eq!(lab.send("p1", 1, 2), Err(DropCause::NoDestination));
    assert_eq!(lab.send("p1", 1, 3), out("open"));
}

#[test]
fn a_port_without_flooding_still_gets_what_is_addressed_to_it() {
    let mut lab = Lab::with_ports(&["a", "b", "quiet"]);
    lab.port_mut("quiet").no_flood = true;
    lab.configure();
    assert_eq!(lab.send("a", 1, 9), out("b"));
    lab.send("quiet", 2, 9).unwrap();
    assert_eq!(lab.send("a", 1, 2), out("quiet"));
}

#[test]
fn what_was_learned_on_a_port_goes_with_it_or_with_its_vlans_and_stays_otherwise() {
    let mut lab = Lab::with_ports(&["a", "b", "c"]);
    for (port, station) in [("a", 1), ("b", 2), ("c", 3)] {
        lab.send(port, station, 9).unwrap();
    }
    lab.configure();
    assert_eq!(lab.changes, [], "the same again");
    lab.bridge("br0").ports.remove("a");
    lab.port_mut("b").vlan_mode = VlanMode::Access;
    lab.port_mut("b").tag = Some(vid(10));
    lab.port_mut("c").protected = true;
    lab.configure();
    assert!(!lab.changes.is_empty() && !lab.changes.contains(&Change::All));
    assert_eq!(lab.stations("br0"), ["c 0 3"]);
    lab.port_mut("c").interfaces[0].link.up = false;
    lab.configure();
    assert_eq!(lab.stations("br0"), ["c 0 3"], "without a link it is still there");
}

#[test]
fn an_effect_of_a_port_or_bridge_that_is_gone_does_nothing() {
    let mut lab = Lab::with_ports(&["a", "b"]);
    let before = lab.translate("a", Packet::new(testkit::mac(1), testkit::mac(2)).payload(0x88b5, b""));
    let a = lab.bridge("br0").ports.remove("a").unwrap();
    lab.configure();
    assert_eq!(lab.switch.apply(&before.effects, lab.now), []);
    lab.bridge("br0").ports.insert("a".to_owned(), a);
    lab.configure();
    assert_eq!(
        lab.switch.apply(&before.effects, lab.now),
        [],
        "a new port of the same name is another port"
    );
    lab.config.bridges.clear();
    lab.configure();
    assert_eq!(lab.switch.apply(&before.effects, lab.now), []);
    assert!(lab.switch.bridge("br0").is_none());
}

#[test]
fn a_packet_of_a_port_of_no_bridge_is_dropped_until_the_port_is_added() {
    let mut lab = Lab::with_ports(&["a", "b"]);
    let port = lab.bridge("br0").ports.remove("b").unwrap();
    lab.configure();
    let packet = || Packet::new(testkit::mac(1), testkit::mac(2)).payload(0x88b5, b"");
    let stray = lab.translate("b", packet());
    assert_eq!(
        (stray.drop, stray.mask.count_bits()),
        (Some(DropCause::NoDestination), 64)
    );
    lab.bridge("br0").ports.insert("b".to_owned(), port);
    lab.configure();
    assert!(lab.changes.iter().any(|change| stray.depends_on(change)));
    assert_eq!(lab.send("b", 1, 2), out("a"));
}

#[test]
fn one_interface_of_a_port_with_several_carries_the_traffic() {
    let mut lab = Lab::with_ports(&["a", "one"]);
    lab.port("br0", "two", PortConfig::default());
    let two = lab.bridge("br0").ports.remove("two").unwrap().interfaces.remove(0);
    lab.port_mut("one")
        .interfaces
        .push(InterfaceConfig { ofport: 7, ..two });
    lab.configure();
    assert_eq!(lab.send("a", 1, 9), out("one"));
    assert_eq!(lab.send("two", 2, 9), Err(DropCause::Loop));
    lab.port_mut("one").interfaces[0].link.up = false;
    lab.configure();
    assert_eq!(lab.send("a", 1, 9), out("two"));
    assert_eq!(lab.send("two", 2, 9), out("a"));
    assert_eq!(lab.stations("br0"), ["a 0 1", "one 0 2"]);
}

#[test]
fn what_a_storm_has_taught_ages_a_few_addresses_at_a_time_and_costs_other_stations_nothing() {
    let mut lab = Lab::with_ports(&["a", "b", "c"]);
    lab.send("b", 2, 9).unwrap();
    lab.send("c", 3, 9).unwrap();
    for n in 1_000..6_000 {
        lab.send("a", n, 2).unwrap();
    }
    lab.wait(10);
    let packet = Packet::new(testkit::mac(2), testkit::mac(3)).payload(0x88b5, b"");
    let known = lab.translate("b", packet);
    lab.switch.apply(&known.effects, lab.now);
    lab.send("c", 3, 2).unwrap();
    lab.now += Duration::from_secs(290);
    let mut ticks = 0;
    while lab.switch.next_event().is_some_and(|due| due <= lab.now) {
        let changes = lab.switch.tick(lab.now);
        assert!(changes.len() <= 512);
        assert!(!changes.iter().any(|change| known.depends_on(change)));
        ticks += 1;
    }
    assert_eq!(ticks, 20);
    assert_eq!(lab.stations("br0"), ["b 0 2", "c 0 3"]);
}

/// Lets stations be seen on two ports in turn; how often one of them changed its port.
fn flap(lab: &mut Lab, ports: [&str; 2], stations: u32, times: u32) -> usize {
    let mut moves = 0;
    for n in 0..times {
        for station in 100..100 + stations {
            lab.send(ports[n as usize % 2], station, 9).unwrap();
            moves += usize::from(!lab.changes.is_empty());
        }
    }
    moves
}

#[test]
fn a_storm_of_moves_changes_nothing_more_once_its_ports_have_spent_their_budgets() {
    let mut lab = Lab::with_ports(&["a", "b", "c", "d"]);
    flap(&mut lab, ["a", "a"], 10, 1);
    assert_eq!(flap(&mut lab, ["b", "a"], 10, 2_000), 2 * 4_096);
    let ignored = lab.switch.take_ignored();
    assert!(ignored.moves > 5_000 && ignored.new == 0, "{ignored:?}");
    let before = lab.switch.bridge("br0").unwrap().fdb_stats();
    let packet = || Packet::new(testkit::mac(101), testkit::mac(9)).payload(0x88b5, b"");
    assert!(!lab.translated("a", packet()).news.changes);
    assert!(!lab.translated("b", packet()).news.changes);
    assert_eq!(flap(&mut lab, ["b", "a"], 10, 100), 0);
    assert_eq!(lab.switch.bridge("br0").unwrap().fdb_stats(), before);
    // Another port's stations move at once.
    lab.send("c", 50, 9).unwrap();
    lab.send("d", 50, 9).unwrap();
    assert!(lab.stations("br0").contains(&"d 0 50".to_owned()));
    // After some time the budget allows more.
    lab.now += Duration::from_secs(1);
    assert_eq!(flap(&mut lab, ["b", "a"], 10, 1_000), 2 * 512);
}

#[test]
fn a_few_moves_a_second_take_effect_at_once_however_long_they_last() {
    let mut lab = Lab::with_ports(&["a", "b"]);
    for n in 0..40_000u32 {
        let port = ["a", "b"][n as usize % 2];
        lab.send(port, 1, 9).unwrap();
        assert_eq!(lab.stations("br0"), [format!("{port} 0 1")]);
        lab.now += Duration::from_millis(100);
    }
    assert_eq!(lab.switch.take_ignored(), switch::Ignored::default());
}

#[test]
fn a_move_that_was_ignored_takes_effect_when_its_megaflow_reports_the_station_again() {
    let mut lab = Lab::with_ports(&["a", "b"]);
    flap(&mut lab, ["a", "a"], 10, 1);
    flap(&mut lab, ["b", "a"], 10, 2_000);
    let packet = Packet::new(testkit::mac(101), testkit::mac(9)).payload(0x88b5, b"");
    let elsewhere = match &*lab.stations("br0").into_iter().find(|s| s.ends_with(" 101")).unwrap() {
        "a 0 101" => "b",
        _ => "a",
    };
    let ignored = lab.translate(elsewhere, packet);
    assert_eq!(lab.switch.apply(&ignored.effects, lab.now), []);
    lab.now += Duration::from_secs(1);
    assert!(!lab.switch.apply(&ignored.effects, lab.now).is_empty());
    assert!(lab.stations("br0").contains(&format!("{elsewhere} 0 101")));
}

#[test]
fn a_storm_of_new_stations_changes_nothing_more_once_its_port_has_filled_the_table() {
    let mut lab = Lab::with_ports(&["a", "b"]);
    let mut learned = 0;
    for station in 1_000..21_000 {
        lab.send("a", station, 9).unwrap();
        learned += usize::from(!lab.changes.is_empty());
    }
    assert_eq!(learned, 8_192);
    let ignored = lab.switch.take_ignored();
    assert_eq!((ignored.new, ignored.moves), (20_000 - 8_192, 0));
    lab.send("b", 1, 9).unwrap();
    assert!(lab.stations("br0").contains(&"b 0 1".to_owned()));
}

#[test]
fn a_move_makes_only_what_depends_on_the_station_stale() {
    let mut lab = Lab::with_ports(&["a", "b", "c"]);
    for (port, station) in [("a", 1), ("b", 2), ("c", 3)] {
        lab.send(port, station, 9).unwrap();
    }
    let translate = |lab: &Lab, port, src, dst| {
        let packet = Packet::new(testkit::mac(src), testkit::mac(dst)).payload(0x88b5, b"");
        lab.translate(port, packet)
    };
    let (from, to) = (translate(&lab, "a", 1, 3), translate(&lab, "b", 2, 1));
    let others = [
        translate(&lab, "b", 2, 3),
        translate(&lab, "c", 3, 2),
        translate(&lab, "a", 4, 3),
    ];
    lab.send("c", 1, 9).unwrap();
    let stale = |translation: &dp::Translation| lab.changes.iter().any(|change| translation.depends_on(change));
    assert!(stale(&from) && stale(&to));
    assert!(!others.iter().any(stale));
}

#[test]
fn a_device_may_change_its_datapath_port() {
    let mut lab = Lab::with_ports(&["a", "b"]);
    lab.send("b", 2, 9).unwrap();
    lab.port_mut("b").interfaces[0].attach = Attach::Device(PortNo(77));
    lab.configure();
    let packet = Packet::new(testkit::mac(1), testkit::mac(2)).payload(0x88b5, b"");
    assert_eq!(*lab.translate("a", packet).actions, [dp::Action::Output(PortNo(77))]);
    assert_eq!(lab.switch.bridge("br0").unwrap().entries(Nanos::MAX).count(), 1);
}

#[test]
fn a_station_that_moves_away_and_back_is_learned_again_by_its_old_packets() {
    let mut lab = Lab::with_ports(&["a", "b", "c"]);
    lab.send("a", 1, 9).unwrap();
    let at_home = lab.translate("a", Packet::new(testkit::mac(1), testkit::mac(9)).payload(0x88b5, b""));
    lab.send("b", 1, 9).unwrap();
    assert!(lab.changes.iter().any(|change| at_home.depends_on(change)));
}

#[test]
fn the_megaflow_that_taught_a_new_station_is_not_stale_for_that() {
    let mut lab = Lab::with_ports(&["a", "b", "c"]);
    let first = lab.translate("a", Packet::new(testkit::mac(1), testkit::mac(9)).payload(0x88b5, b""));
    lab.send("a", 1, 9).unwrap();
    assert!(!lab.changes.iter().any(|change| first.depends_on(change)));
}
