use super::*;
use nanos::Nanos;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use wire::checksum::pseudo_ipv6;
use wire::{EtherType, MacAddr};

const OURS: MacAddr = MacAddr([0xaa, 0x55, 0xaa, 0x55, 0, 0]);
const THEIRS: MacAddr = MacAddr([0xf8, 0xbc, 0x12, 0x44, 0x34, 0xb6]);
const OTHERS: MacAddr = MacAddr([0xf8, 0xbc, 0x12, 0x44, 0x34, 0xb7]);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn br0() -> BridgeName {
    BridgeName::new("br0")
}

fn secs(secs: u64) -> Nanos {
    Nanos::from_secs(1000 + secs)
}

fn ethernet(kind: EtherType, packet: &[u8]) -> Vec<u8> {
    [&OURS.0[..], &THEIRS.0, &kind.0.to_be_bytes(), packet].concat()
}

/// An ARP packet from `THEIRS`.
fn arp(operation: u8, sender: &str, target: &str) -> Vec<u8> {
    let address = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
    let head = [0, 1, 8, 0, 6, 4, 0, operation];
    let packet = [
        &head[..],
        &THEIRS.0,
        &address(sender),
        &OURS.0,
        &address(target),
        &[0; 18],
    ]
    .concat();
    ethernet(EtherType::ARP, &packet)
}

/// An advertisement of fd00::2 to `to` with these flags and options.
fn advertisement(to: &str, flags: u8, options: &[u8]) -> Vec<u8> {
    let (source, target): (Ipv6Addr, Ipv6Addr) = ("fe80::2".parse().unwrap(), "fd00::2".parse().unwrap());
    let to: Ipv6Addr = to.parse().unwrap();
    let mut message = [&[136, 0, 0, 0, flags, 0, 0, 0][..], &target.octets(), options].concat();
    let sum = pseudo_ipv6(source, to, 58, message.len() as u32)
        .bytes(&message)
        .finish();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let header = [0x60, 0, 0, 0, 0, message.len() as u8, 58, 255];
    ethernet(
        EtherType::IPV6,
        &[&header[..], &source.octets(), &to.octets(), &message].concat(),
    )
}

fn with_mac() -> Vec<u8> {
    [&[2, 1][..], &THEIRS.0].concat()
}

fn heard(address: &str, mac: MacAddr, by: HeardBy) -> Heard {
    Heard {
        address: ip(address),
        mac,
        by,
        replaces: true,
    }
}

#[test]
fn arp_packets_say_who_a_neighbour_is() {
    let to_us = HeardBy::Host(ip("1.1.2.88"));
    for (operation, sender, target, by) in [
        (2, "1.1.2.92", "1.1.2.88", Some(to_us)),
        (2, "1.1.2.92", "1.1.2.92", Some(HeardBy::All)),
        (1, "1.1.2.92", "1.1.2.92", Some(HeardBy::All)),
        (1, "1.1.2.92", "1.1.2.88", Some(to_us)),
        (1, "0.0.0.0", "1.1.2.88", None),
        (3, "1.1.2.92", "1.1.2.92", None),
        (2, "0.0.0.0", "1.1.2.88", None),
        (2, "224.0.0.1", "1.1.2.88", None),
        (2, "255.255.255.255", "1.1.2.88", None),
        (2, "127.0.0.1", "1.1.2.88", None),
    ] {
        let read = Heard::from_frame(&arp(operation, sender, target));
        let expected = by.map(|by| heard(sender, THEIRS, by));
        assert_eq!(read, expected, "{operation} {sender} {target}");
    }
}

#[test]
fn senders_without_a_unicast_ethernet_address_are_ignored() {
    for mac in [MacAddr::ZERO, MacAddr::BROADCAST, MacAddr([1, 0, 0, 0, 0, 1])] {
        let mut frame = arp(2, "1.1.2.92", "1.1.2.88");
        frame[22..28].copy_from_slice(&mac.0);
        assert_eq!(Heard::from_frame(&frame), None, "{mac}");
        let frame = advertisement("fd00::1", 0x60, &[&[2, 1][..], &mac.0].concat());
        assert_eq!(Heard::from_frame(&frame), None, "{mac}");
    }
}

#[test]
fn an_advertisement_is_valid_by_rfc_4861_or_ignored() {
    let (us, all) = (HeardBy::Host(ip("fd00::1")), HeardBy::All);
    let read = |frame: &[u8]| Heard::from_frame(frame).map(|heard| (heard.by, heard.replaces));
    let good = advertisement("fd00::1", 0x60, &with_mac());
    assert_eq!(read(&good), Some((us, true)));
    assert_eq!(Heard::from_frame(&good), Some(heard("fd00::2", THEIRS, us)));
    assert_eq!(read(&advertisement("fd00::1", 0x40, &with_mac())), Some((us, false)));
    assert_eq!(read(&advertisement("ff02::1", 0x20, &with_mac())), Some((all, true)));
    // A solicited one to everybody.
    assert_eq!(read(&advertisement("ff02::1", 0x60, &with_mac())), None);
    // Options: another one before, none, one without a length, one that is cut.
    let two = [&[14, 1, 0, 0, 0, 0, 0, 0][..], &with_mac()].concat();
    assert_eq!(read(&advertisement("fd00::1", 0x60, &two)), Some((us, true)));
    for options in [&[][..], &[2, 0, 0, 0, 0, 0, 0, 0], &[2, 2, 0, 0, 0, 0, 0, 1], &[9]] {
        assert_eq!(read(&advertisement("fd00::1", 0x60, options)), None, "{options:?}");
    }
    // Each byte of the message counts, and so does the hop limit.
    for at in (54..good.len()).chain([14 + 7]) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert_eq!(read(&bad), None, "byte {at}");
    }
    for len in 0..good.len() {
        assert_eq!(read(&good[..len]), None, "{len} bytes");
    }
}

#[test]
fn tagged_frames_are_of_other_networks() {
    for frame in [
        arp(2, "1.1.2.92", "1.1.2.88"),
        advertisement("fd00::1", 0x60, &with_mac()),
    ] {
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert!(Heard::from_frame(&frame).is_some());
        assert_eq!(Heard::from_frame(&tagged), None);
    }
}

#[test]
fn a_request_is_answered_once_a_second_until_the_neighbour_is_known() {
    let mut table = Table::default();
    let (own, address) = ([ip("1.1.2.88")], ip("1.1.2.92"));
    let request = Request { bridge: br0(), address };
    assert_eq!(table.resolve(br0(), address, secs(0)), Resolution::Ask(request));
    assert_eq!(table.resolve(br0(), address, secs(0)), Resolution::Wait);
    let almost = secs(1) - Duration::from_nanos(1);
    assert_eq!(table.resolve(br0(), address, almost), Resolution::Wait);
    assert_eq!(table.resolve(br0(), address, secs(1)), Resolution::Ask(request));
    assert_eq!((table.counters().requests, table.counters().requests_limited), (2, 2));
    let version = table.neighbours().version();
    let reply = Heard::from_frame(&arp(2, "1.1.2.92", "1.1.2.88")).unwrap();
    assert_eq!(table.learn(br0(), &reply, &own, secs(1)), Ok(true));
    assert_eq!(table.resolve(br0(), address, secs(1)), Resolution::Known(THEIRS));
    assert_eq!(table.neighbours().get(br0(), address), Some(THEIRS));
    assert!(table.neighbours().version() > version);
    assert_eq!(table.neighbours().get(BridgeName::new("br1"), address), None);
}

#[test]
fn nobody_is_asked_for_a_group_or_for_no_address() {
    let mut table = Table::default();
    for address in [
        "224.0.0.5",
        "0.0.0.0",
        "255.255.255.255",
        "127.0.0.1",
        "::",
        "ff02::1",
        "::1",
    ] {
        assert_eq!(
            table.resolve(br0(), ip(address), secs(0)),
            Resolution::Never,
            "{address}"
        );
    }
    assert_eq!(table.check(), 0);
}

#[test]
fn an_unanswered_request_leaves_nothing_behind() {
    let mut table = Table::default();
    table.resolve(br0(), ip("1.1.2.92"), secs(0));
    assert_eq!((table.check(), table.entries().count()), (1, 0));
    let version = table.neighbours().version();
    assert_eq!(table.next_event(), Some(secs(5)));
    assert_eq!(table.tick(secs(5)), []);
    assert_eq!((table.check(), table.neighbours().version()), (0, version));
}

#[test]
fn packets_for_others_and_about_the_bridge_itself_change_nothing() {
    let mut table = Table::default();
    let own = [ip("1.1.2.88"), ip("fd00::1")];
    for (what, why) in [
        (
            heard("1.1.2.92", THEIRS, HeardBy::Host(ip("1.1.2.77"))),
            Ignored::NotForUs,
        ),
        (heard("1.1.2.88", THEIRS, HeardBy::All), Ignored::Own),
        (heard("fd00::1", THEIRS, HeardBy::All), Ignored::Own),
        (heard("1.1.2.88", THEIRS, HeardBy::Host(own[0])), Ignored::Own),
    ] {
        assert_eq!(table.learn(br0(), &what, &own, secs(0)), Err(why), "{what:?}");
    }
    assert_eq!((table.check(), table.counters().ignored), (0, 4));
}

#[test]
fn a_request_says_the_address_of_the_neighbour_that_asks() {
    let mut table = Table::default();
    let own = [ip("1.1.2.88")];
    let v4 = |text: &str| text.parse().unwrap();
    let asks = |mac| Heard::from_arp(1, v4("1.1.2.92"), mac, v4("1.1.2.88")).unwrap();
    assert_eq!(table.learn(br0(), &asks(THEIRS), &own, secs(0)), Ok(true));
    assert_eq!(table.resolve(br0(), ip("1.1.2.92"), secs(0)), Resolution::Known(THEIRS));
    assert_eq!(table.learn(br0(), &asks(THEIRS), &own, secs(1)), Ok(false));
    assert_eq!(table.learn(br0(), &asks(OTHERS), &own, secs(1)), Ok(true));
    assert_eq!(table.neighbours().get(br0(), ip("1.1.2.92")), Some(OTHERS));
    // A solicitation of IPv6 says the same, if it has the address.
    let v6 = |text: &str| text.parse().unwrap();
    let asks = |mac| Heard::from_solicitation(v6("fd00::2"), mac, v6("fd00::1"));
    assert_eq!(
        asks(OTHERS),
        Some(heard("fd00::2", OTHERS, HeardBy::Host(ip("fd00::1"))))
    );
    assert_eq!(asks(MacAddr::ZERO), None);
    assert_eq!(Heard::from_solicitation(v6("::"), OTHERS, v6("fd00::1")), None);
    // Also of one that has not answered so far.
    table.resolve(br0(), ip("1.1.2.93"), secs(1));
    let asks = heard("1.1.2.93", THEIRS, HeardBy::Host(own[0]));
    assert_eq!(table.learn(br0(), &asks, &own, secs(2)), Ok(true));
}

#[test]
fn an_advertisement_without_override_keeps_the_known_address() {
    let mut table = Table::default();
    let first = heard("fd00::2", THEIRS, HeardBy::All);
    let polite = Heard {
        mac: OTHERS,
        replaces: false,
        ..first
    };
    assert_eq!(table.learn(br0(), &first, &[], secs(0)), Ok(true));
    assert_eq!(table.learn(br0(), &polite, &[], secs(1)), Err(Ignored::Kept));
    assert_eq!(table.neighbours().get(br0(), ip("fd00::2")), Some(THEIRS));
    let replacing = Heard {
        replaces: true,
        ..polite
    };
    assert_eq!(table.learn(br0(), &replacing, &[], secs(2)), Ok(true));
    assert_eq!(table.learn(br0(), &replacing, &[], secs(2)), Ok(false));
    assert_eq!(table.neighbours().get(br0(), ip("fd00::2")), Some(OTHERS));
}

#[test]
fn readers_keep_what_they_have_read() {
    let mut table = Table::default();
    let before = table.neighbours();
    table.set(br0(), ip("1.1.2.92"), THEIRS, secs(0)).unwrap();
    let after = table.neighbours();
    table.flush();
    assert_eq!(before.get(br0(), ip("1.1.2.92")), None);
    assert_eq!(after.get(br0(), ip("1.1.2.92")), Some(THEIRS));
    assert_eq!(table.neighbours().get(br0(), ip("1.1.2.92")), None);
    assert!(before.version() < after.version() && after.version() < table.neighbours().version());
}

#[test]
fn entries_expire_unless_they_are_used_or_heard_of() {
    let mut table = Table::default();
    let address = |n: u8| IpAddr::from([10, 0, 0, n]);
    for n in 1..=4 {
        table.set(br0(), address(n), THEIRS, secs(0)).unwrap();
    }
    table.used(br0(), address(1), secs(100));
    let again = Heard {
        address: address(2),
        ..heard("10.0.0.2", THEIRS, HeardBy::All)
    };
    assert_eq!(table.learn(br0(), &again, &[], secs(200)), Ok(false));
    table.set(br0(), address(3), THEIRS, secs(300)).unwrap();
    assert_eq!(table.tick(secs(899)), []);
    assert_eq!(table.tick(secs(900)), [(br0(), address(4))]);
    assert_eq!(table.tick(secs(1000)), [(br0(), address(1))]);
    assert_eq!(table.next_event(), Some(secs(1100)));
    assert_eq!(table.tick(secs(2000)), [(br0(), address(2)), (br0(), address(3))]);
    assert_eq!(table.next_event(), None);
}

#[test]
fn a_shorter_aging_counts_for_old_entries_and_a_longer_one_does_not() {
    let mut table = Table::default();
    let seconds = Duration::from_secs;
    for bad in [Duration::ZERO, seconds(3601), Duration::from_millis(999)] {
        assert_eq!(table.set_aging(bad, secs(0)), Err(BadAging));
    }
    assert_eq!(table.aging(), seconds(900));
    table.set_aging(seconds(30), secs(0)).unwrap();
    table.set(br0(), ip("1.1.1.1"), THEIRS, secs(0)).unwrap();
    table.set_aging(seconds(3600), secs(1)).unwrap();
    assert_eq!(table.next_event(), Some(secs(30)));
    table.set_aging(seconds(5), secs(2)).unwrap();
    assert_eq!(table.next_event(), Some(secs(7)));
    assert_eq!(table.tick(secs(7)).len(), 1);
}

#[test]
fn a_neighbour_in_use_is_asked_for_again_unless_a_user_has_set_it() {
    let mut table = Table::default();
    let learned = heard("1.1.1.1", THEIRS, HeardBy::All);
    table.learn(br0(), &learned, &[], secs(0)).unwrap();
    table.set(br0(), ip("1.1.1.2"), THEIRS, secs(0)).unwrap();
    let request = Request {
        bridge: br0(),
        address: learned.address,
    };
    assert_eq!(table.used(br0(), learned.address, secs(449)), None);
    assert_eq!(table.used(br0(), learned.address, secs(450)), Some(request));
    assert_eq!(table.used(br0(), learned.address, secs(451)), None);
    assert_eq!(table.used(br0(), learned.address, secs(900)), Some(request));
    assert_eq!(table.used(br0(), ip("1.1.1.2"), secs(450)), None);
    assert_eq!(table.used(br0(), ip("1.1.1.3"), secs(450)), None);
    assert_eq!(table.check(), 2);
}

#[test]
fn what_nobody_needs_leaves_room_for_what_tunnels_need() {
    let limits = Limits { bridge: 8, total: 12 };
    let mut table = Table::new(limits);
    let announce = |table: &mut Table, bridge: &str, n: u8| {
        let what = Heard {
            address: IpAddr::from([10, 0, 0, n]),
            ..heard("10.0.0.0", THEIRS, HeardBy::All)
        };
        table.learn(BridgeName::new(bridge), &what, &[], secs(0)).is_ok()
    };
    let resolve = |table: &mut Table, bridge: &str, n: u8| {
        table.resolve(BridgeName::new(bridge), IpAddr::from([10, 0, 0, n]), secs(0)) != Resolution::Never
    };
    let accepted = (0..20).filter(|n| announce(&mut table, "br0", *n)).count();
    assert_eq!(accepted, 4, "half of the bridge's share");
    let accepted = (0..20).filter(|n| announce(&mut table, "br1", *n)).count();
    assert_eq!(accepted, 2, "half of all");
    assert_eq!(table.counters().full, 16 + 18);
    // What a tunnel asks for does not count as announced any more.
    assert!(resolve(&mut table, "br0", 0) && announce(&mut table, "br0", 40));
    let accepted = (50..80).filter(|n| resolve(&mut table, "br0", *n)).count();
    assert_eq!(accepted, 3, "the rest of the bridge's share");
    let accepted = (50..80).filter(|n| resolve(&mut table, "br2", *n)).count();
    assert_eq!((accepted, table.check()), (2, 12), "the rest of all");
    assert_eq!(
        table.set(BridgeName::new("br3"), ip("1.1.1.1"), THEIRS, secs(0)),
        Err(Ignored::Full)
    );
    table.flush_bridge(BridgeName::new("br0"));
    assert_eq!(
        table.set(BridgeName::new("br3"), ip("1.1.1.1"), THEIRS, secs(0)),
        Ok(())
    );
}

#[test]
fn a_line_is_open_vswitchs() {
    let mut table = Table::default();
    let long = "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff";
    table
        .set(BridgeName::new("averyveryverylongname"), ip(long), THEIRS, secs(0))
        .unwrap();
    table.set(br0(), ip("1.1.1.1"), OTHERS, secs(0)).unwrap();
    let lines: Vec<String> = table.entries().map(|entry| entry.to_string()).collect();
    assert_eq!(
        lines,
        [
            "1.1.1.1                                       f8:bc:12:44:34:b7   br0",
            "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff        f8:bc:12:44:34:b6   averyveryverylo",
        ]
    );
}

#[test]
fn requests_are_what_rfc_826_and_rfc_4861_say() {
    let request = |address| Request {
        bridge: br0(),
        address: ip(address),
    };
    let frame = request("1.1.2.92").frame(OURS, ip("1.1.2.88")).unwrap();
    let expected = [
        &[0xff; 6][..],
        &OURS.0,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
        &OURS.0,
        &[1, 1, 2, 88, 0, 0, 0, 0, 0, 0, 1, 1, 2, 92],
    ];
    assert_eq!(frame, expected.concat());

    let frame = request("fd00::12:3456").frame(OURS, ip("fd00::1")).unwrap();
    assert_eq!(
        frame[..14],
        [&[0x33, 0x33, 0xff, 0x12, 0x34, 0x56][..], &OURS.0, &[0x86, 0xdd]].concat()
    );
    assert_eq!(frame[14..22], [0x60, 0, 0, 0, 0, 32, 58, 255]);
    let (source, group): (Ipv6Addr, Ipv6Addr) = ("fd00::1".parse().unwrap(), "ff02::1:ff12:3456".parse().unwrap());
    assert_eq!(frame[22..54], [source.octets(), group.octets()].concat());
    assert_eq!(frame[54..56], [135, 0]);
    assert_eq!(frame[58..62], [0; 4]);
    assert_eq!(frame[62..78], "fd00::12:3456".parse::<Ipv6Addr>().unwrap().octets());
    assert_eq!(frame[78..], [&[1, 1][..], &OURS.0].concat());
    assert_eq!(pseudo_ipv6(source, group, 58, 32).bytes(&frame[54..]).finish(), 0);

    assert_eq!(request("fd00::2").frame(OURS, ip("1.1.2.88")), None);
    assert_eq!(request("1.1.2.92").frame(OURS, ip("fd00::1")), None);
}

/// A step of a random history of two bridges with eight possible neighbours.
#[derive(Clone, Copy, Debug)]
enum Step {
    Set(u8, u8),
    Learn(u8, u8),
    Resolve(u8),
    Used(u8),
    Wait(u16),
    Aging(u16),
    FlushBridge(bool),
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0u8..16, 2u8..5).prop_map(|(who, mac)| Step::Set(who, mac)),
        6 => (0u8..16, 2u8..5).prop_map(|(who, mac)| Step::Learn(who, mac)),
        6 => (0u8..16).prop_map(Step::Resolve),
        4 => (0u8..16).prop_map(Step::Used),
        4 => (0u16..400).prop_map(Step::Wait),
        1 => (0u16..4000).prop_map(Step::Aging),
        1 => any::<bool>().prop_map(Step::FlushBridge),
        1 => Just(Step::Flush),
    ]
}

proptest! {
    #[test]
    fn every_change_is_told_and_bounds_hold(steps in proptest::collection::vec(step(), 0..120)) {
        let limits = Limits { bridge: 5, total: 8 };
        let mut table = Table::new(limits);
        let (mut now, mut asked) = (secs(0), BTreeMap::new());
        let name = |second: bool| BridgeName::new(if second { "br1" } else { "br0" });
        let key = |who: u8| (name(who & 8 != 0), IpAddr::from([10, 0, 0, 1 + (who & 7)]));
        let mac = |n: u8| MacAddr([n * 2, 0, 0, 0, 0, n]);
        for step in steps {
            let before = table.neighbours();
            let mut told = Vec::new();
            let request = match step {
                Step::Set(who, n) => {
                    let (bridge, address) = key(who);
                    if table.set(bridge, address, mac(n), now).is_ok() {
                        prop_assert_eq!(table.neighbours().get(bridge, address), Some(mac(n)));
                        told.push(key(who));
                    }
                    None
                }
                Step::Learn(who, n) => {
                    let (bridge, address) = key(who);
                    let what = Heard { address, mac: mac(n), by: HeardBy::All, replaces: true };
                    if table.learn(bridge, &what, &[], now) == Ok(true) {
                        told.push(key(who));
                    }
                    None
                }
                Step::Resolve(who) => match table.resolve(key(who).0, key(who).1, now) {
                    Resolution::Ask(request) => Some(request),
                    _ => None,
                },
                Step::Used(who) => table.used(key(who).0, key(who).1, now),
                Step::Wait(secs) => {
                    now += Duration::from_secs(secs.into());
                    told = table.tick(now);
                    prop_assert!(table.next_event().is_none_or(|next| next > now));
                    None
                }
                Step::Aging(secs) => {
                    let aging = Duration::from_secs(secs.into());
                    prop_assert_eq!(table.set_aging(aging, now).is_ok(), AGING.contains(&aging));
                    None
                }
                Step::FlushBridge(second) => {
                    told = table.flush_bridge(name(second));
                    None
                }
                Step::Flush => {
                    told = table.flush();
                    prop_assert_eq!(table.check(), 0);
                    None
                }
            };
            match step {
                Step::FlushBridge(second) => asked.retain(|(bridge, _), _| *bridge != name(second)),
                Step::Flush => asked.clear(),
                _ => {}
            }
            if let Some(request) = request {
                let last = asked.insert((request.bridge, request.address), now);
                prop_assert!(last.is_none_or(|last| now >= last + Duration::from_secs(1)));
            }
            let after = table.neighbours();
            for who in 0..16 {
                let (bridge, address) = key(who);
                let same = before.get(bridge, address) == after.get(bridge, address);
                prop_assert!(same || told.contains(&key(who)), "{step:?} did not tell of {address}");
                prop_assert!(same || before.version() < after.version());
            }
            prop_assert!(table.check() <= limits.total);
            for bridge in [false, true] {
                let of_bridge = table.entries().filter(|entry| entry.bridge == name(bridge)).count();
                prop_assert!(of_bridge <= limits.bridge);
            }
        }
    }

    #[test]
    fn no_frame_makes_the_parser_panic(frame in proptest::collection::vec(any::<u8>(), 0..120), v6: bool) {
        let kind = if v6 { EtherType::IPV6 } else { EtherType::ARP };
        let _ = Heard::from_frame(&frame);
        let _ = Heard::from_frame(&ethernet(kind, &frame));
    }
}
