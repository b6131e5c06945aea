//! Limits of addresses by port, and sticky addresses.

use crate::lab::Lab;
use dp::DropCause;
use switch::{MacLimit, Security};
use testkit::Packet;
use wire::{MacAddr, Vid};

const REFUSED: Result<Vec<String>, DropCause> = Err(DropCause::MacLimit);

fn lab(shuts: bool, sticky: bool) -> Lab {
    let mut lab = Lab::with_ports(&["a", "b"]);
    lab.port_mut("a").mac_limit = Some(MacLimit { most: 2, shuts, sticky });
    lab.configure();
    lab
}

fn reaches(port: &str) -> Result<Vec<String>, DropCause> {
    Ok(vec![port.to_owned()])
}

#[test]
fn a_port_at_its_limit_drops_what_further_stations_send() {
    let mut lab = lab(false, false);
    assert_eq!(lab.send("a", 1, 9), reaches("b"));
    assert_eq!(lab.send("a", 2, 9), reaches("b"));
    assert_eq!(lab.send("a", 3, 9), REFUSED);
    assert_eq!(lab.send("a", 1, 9), reaches("b"), "known stations go on");
    assert_eq!(lab.send("b", 3, 1), reaches("a"), "other ports have no limit");
    assert_eq!(lab.send("a", 3, 9), REFUSED, "a station does not move to a full port");
    assert_eq!(lab.stations("br0"), ["a 0 2", "a 0 1", "b 0 3"]);
}

#[test]
fn a_refused_station_is_learned_when_there_is_room() {
    let mut lab = lab(false, false);
    for station in [1, 2] {
        assert_eq!(lab.send("a", station, 9), reaches("b"));
    }
    let packet = || Packet::new(testkit::mac(3), testkit::mac(9)).payload(0x88b5, b"data");
    let refused = lab.translate("a", packet());
    assert_eq!(refused.drop, Some(DropCause::MacLimit));
    // The megaflow reports its station while it carries packets.
    lab.wait(299);
    assert!(
        lab.switch
            .apply(&refused.effects, lab.now)
            .iter()
            .all(|change| !stale(&lab, &refused, change))
    );
    lab.wait(2);
    let changes = lab.switch.apply(&refused.effects, lab.now);
    assert!(changes.iter().any(|change| stale(&lab, &refused, change)));
    assert_eq!(lab.send("a", 3, 9), reaches("b"));
}

fn stale(lab: &Lab, translation: &dp::Translation, change: &dp::Change) -> bool {
    let packet = Packet::new(testkit::mac(3), testkit::mac(9))
        .payload(0x88b5, b"data")
        .bytes();
    let key = flow::extract(&packet, &flow::PortNo(lab.ports["a"]).into()).unwrap();
    translation.is_stale_for(&key, change)
}

#[test]
fn of_two_translations_that_see_room_for_one_station_the_second_is_stale() {
    let mut lab = lab(false, false);
    assert_eq!(lab.send("a", 1, 9), reaches("b"));
    let packet = |n| Packet::new(testkit::mac(n), testkit::mac(9)).payload(0x88b5, b"data");
    let (second, third) = (lab.translate("a", packet(2)), lab.translate("a", packet(3)));
    assert_eq!((second.drop, third.drop), (None, None));
    lab.switch.apply(&second.effects, lab.now);
    let changes = lab.switch.apply(&third.effects, lab.now);
    assert!(changes.iter().any(|change| stale(&lab, &third, change)));
    assert_eq!(lab.send("a", 3, 9), REFUSED);
}

#[test]
fn one_station_too_many_shuts_the_port_until_it_is_opened() {
    let mut lab = lab(true, false);
    for station in [1, 2] {
        assert_eq!(lab.send("a", station, 9), reaches("b"));
    }
    let packet = Packet::new(testkit::mac(3), testkit::mac(9));
    let translated = lab.translated("a", packet.payload(0x88b5, b"data"));
    assert!(translated.news.changes, "the caller must apply it at once");
    assert_eq!(lab.send("a", 3, 9), REFUSED);
    assert_eq!(lab.send("a", 1, 9), REFUSED);
    assert_eq!(lab.send("b", 7, 1), Err(DropCause::NoDestination));
    let done = lab.switch.take_secured();
    assert_eq!(
        (done.len(), done[0].what, done[0].mac),
        (1, Security::Shut, MacAddr(testkit::mac(3)))
    );
    lab.configure();
    assert_eq!(lab.send("a", 1, 9), REFUSED, "the same configuration leaves it shut");
    lab.switch.open_port("br0", "a").unwrap();
    assert_eq!(lab.send("a", 1, 9), reaches("b"));
}

#[test]
fn sticky_stations_stay_and_are_refused_elsewhere() {
    let mut lab = lab(false, true);
    assert_eq!(lab.send("a", 1, 9), reaches("b"));
    let done = lab.switch.take_secured();
    assert_eq!((done[0].port.as_str(), done[0].what), ("a", Security::Sticky));
    lab.wait(4000);
    assert_eq!(lab.stations("br0"), ["a 0 1"]);
    assert_eq!(lab.send("b", 1, 9), REFUSED);
    // The database has it, and a restart brings it back.
    let station = (Vid::NONE, MacAddr(testkit::mac(1)));
    lab.port_mut("a").sticky.insert(station);
    lab.configure();
    assert_eq!(lab.stations("br0"), ["a 0 1"]);
    let mut again = self::lab(false, true);
    again.port_mut("a").sticky.insert(station);
    again.configure();
    assert_eq!(again.stations("br0"), ["a 0 1"]);
    assert_eq!(again.send("b", 1, 9), REFUSED);
    // What is removed from the configuration may move again.
    again.port_mut("a").sticky.clear();
    again.configure();
    assert_eq!(again.send("b", 1, 9), reaches("a"));
    // `fdb/del` says so.
    lab.switch.fdb_del("br0", station.0, station.1).unwrap();
    assert_eq!(lab.switch.take_secured()[0].what, Security::Released);
}
