use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use testkit::{Packet, mac, skip};

const LONG: Exit = Exit {
    longest: 1514,
    to_peer: false,
    tag: TagChange::None,
};

fn v4() -> Packet {
    Packet::new(mac(1), mac(2)).ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))
}

fn v6() -> Packet {
    let address = |n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
    Packet::new(mac(1), mac(2)).ipv6(address(1), address(2))
}

/// One packet of each kind that can have a shortcut.
fn packets() -> Vec<Vec<u8>> {
    [v4, v6]
        .into_iter()
        .flat_map(|ip| {
            [
                ip().udp(1000, 2000, b"some payload"),
                ip().tcp(1000, 2000, 0x10, b"some payload"),
                ip().echo(7, 1, b"some payload"),
            ]
        })
        .map(Packet::bytes)
        .collect()
}

/// Shortcuts, and what they are in the kernel.
fn shortcuts() -> Option<(Arc<Shortcuts>, Arc<Ways>)> {
    let ways = Arc::new(Ways::new().ok()?);
    Some((Shortcuts::over(ways.clone()), ways))
}

#[test]
fn what_cannot_have_a_shortcut_has_no_key() {
    let fragment = |mut packet: Vec<u8>, at: usize, bits: u8| {
        packet[at] |= bits;
        packet
    };
    for packet in packets() {
        assert!(ShortcutKey::of(1, &packet).is_some(), "{packet:02x?}");
        assert!(ShortcutKey::of(1, &packet[..packet.len() - 1]).is_none(), "cut short");
    }
    let udp = packets().remove(0);
    assert!(ShortcutKey::of(1, &fragment(udp.clone(), 20, 0x20)).is_none());
    assert!(ShortcutKey::of(1, &fragment(udp.clone(), 21, 1)).is_none());
    assert!(
        ShortcutKey::of(1, &fragment(udp.clone(), 20, 0x40)).is_some(),
        "not to be cut is no fragment"
    );
    let twice = Packet::new(mac(1), mac(2)).tag(0x88a8, 5).vlan(6);
    let twice = twice.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).udp(1, 2, b"");
    assert!(ShortcutKey::of(1, &twice.bytes()).is_none());
    let mut solicitation = v6().echo(0, 0, &[0; 24]).bytes();
    solicitation[54] = 135;
    assert!(ShortcutKey::of(1, &solicitation).is_none());
}

#[test]
fn a_key_has_the_port_and_the_tag_and_not_what_differs_within_a_flow() {
    let udp = v4().udp(1000, 2000, b"x").bytes();
    let longer = v4().udp(1000, 2000, b"another length and checksum").bytes();
    assert_eq!(ShortcutKey::of(1, &udp), ShortcutKey::of(1, &longer));
    assert_ne!(ShortcutKey::of(1, &udp), ShortcutKey::of(2, &udp));
    let tagged = |tpid, tci| {
        let packet = Packet::new(mac(1), mac(2)).tag(tpid, tci);
        let packet = packet.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        ShortcutKey::of(1, &packet.udp(1000, 2000, b"x").bytes())
    };
    let keys = [(0x8100, 0), (0x8100, 5), (0x88a8, 5), (0x8100, 0x2005)].map(|(tpid, tci)| tagged(tpid, tci));
    for (n, key) in keys.iter().enumerate() {
        assert!(key.is_some() && *key != ShortcutKey::of(1, &udp));
        assert!(!keys[..n].contains(key));
    }
}

proptest! {
    /// The kernel's program puts the same key together, from whatever packets: it takes those that
    /// have the key of a shortcut, and no others.
    #[test]
    fn the_kernel_takes_packets_of_the_same_key(
        kind in 0..6_usize,
        changes in prop::collection::vec((0..90_usize, any::<u8>(), any::<bool>()), 0..4),
        cut in prop::option::of(14..100_usize),
        more in 0..30_usize,
    ) {
        let Some((shortcuts, ways)) = shortcuts() else {
            testkit::say_skipped(module_path!(), "needs the right to load BPF programs");
            return Ok(());
        };
        let (port, exit) = (shortcuts.port(1).unwrap(), shortcuts.port(2).unwrap());
        let packet = packets().remove(kind);
        let key = port.key(&packet).unwrap();
        let shortcut = exit.open(&port, key, LONG, &[], 0).unwrap();
        let probe = ways.probe(port.number).unwrap();
        let mut other = packet.clone();
        other.resize(other.len() + more, 0);
        for (at, value, low) in changes {
            if let Some(byte) = other.get_mut(at) {
                *byte = if low { byte.wrapping_add(value % 3) } else { value };
            }
        }
        other.truncate(cut.unwrap_or(usize::MAX).max(14));
        let is_same = port.key(&other) == Some(key);
        match probe.takes(&other) {
            Ok(takes) => prop_assert_eq!(takes, is_same, "{:02x?}", other),
            // The kernel does not try packets without a whole IP header.
            Err(_) => prop_assert!(!is_same && other.len() < 54),
        }
        prop_assert_eq!(shortcut.carried().packets, u64::from(is_same));
        prop_assert_eq!(exit.carried().tx_bytes, if is_same { other.len() as u64 } else { 0 });
        prop_assert_eq!(port.carried().rx_packets, u64::from(is_same));
    }
}

#[test]
fn a_shortcut_is_in_force_while_no_epoch_that_it_depends_on_changes_until_it_is_stopped_or_dropped() {
    let Some((shortcuts, ways)) = shortcuts() else {
        skip!("needs the right to load BPF programs");
    };
    let (port, exit) = (shortcuts.port(1).unwrap(), shortcuts.port(2).unwrap());
    let packet = packets().remove(0);
    let key = port.key(&packet).unwrap();
    let probe = ways.probe(port.number).unwrap();
    let takes = || probe.takes(&packet).unwrap();
    assert!(!takes());
    let own: Vec<Epoch> = (0..MOST_EPOCHS).map(|_| shortcuts.epoch().unwrap()).collect();
    let numbers: Vec<u32> = own.iter().map(Epoch::number).collect();
    for count in [0, 1, 3, 4, 5, 13, MOST_EPOCHS] {
        let (own, numbers) = (&own[..count], &numbers[..count]);
        let sum = || exit.sum(&port, numbers);
        let shortcut = exit.open(&port, key, LONG, numbers, sum()).unwrap();
        let suspends = |change: &dyn Fn(), what: &str| {
            assert!(takes(), "{what}");
            change();
            assert!(!takes(), "a change of {what} suspends it");
            shortcut.renew(sum());
            assert!(takes(), "{what}");
        };
        suspends(&|| shortcuts.suspend_all(), "everything");
        suspends(&|| port.suspend(), "the port that it comes from");
        suspends(&|| exit.suspend(), "the port that it leads to");
        for epoch in own {
            suspends(&|| epoch.advance(), "what it depends on");
        }
        shortcuts.epoch().unwrap().advance();
        shortcuts.port(3).unwrap().suspend();
        assert!(takes(), "others' changes do not");
    }
    let more: Vec<u32> = numbers.iter().copied().chain([PORTS]).collect();
    assert!(matches!(exit.open(&port, key, LONG, &more, 0), Err(Refused::Kernel(_))));

    let mut shortcut = exit.open(&port, key, LONG, &[], exit.sum(&port, &[])).unwrap();
    assert!(takes() && takes());
    assert!(matches!(
        exit.open(&port, key, LONG, &[], exit.sum(&port, &[])),
        Err(Refused::Taken)
    ));
    assert!(takes());
    shortcut.stop();
    assert!(!takes());
    assert_eq!(
        (shortcut.carried().packets, shortcut.carried().bytes),
        (3, 3 * packet.len() as u64)
    );
    assert!(shortcut.carried().used > 0);
    drop(shortcut);
    assert!(!takes());

    let short = Exit {
        longest: packet.len() as u32 - 1,
        ..LONG
    };
    let shortcut = exit.open(&port, key, short, &[], exit.sum(&port, &[])).unwrap();
    assert!(!takes(), "too long for its device");
    assert_eq!(shortcut.carried(), Carried::default(), "the number begins anew");
}

#[test]
fn ports_share_the_pool_and_what_is_closed_can_be_opened_again() {
    let Some((shortcuts, _)) = shortcuts() else {
        skip!("needs the right to load BPF programs");
    };
    let (port, exit) = (shortcuts.port(1).unwrap(), shortcuts.port(2).unwrap());
    let key = |n: u32| {
        let packet = v4().udp(n as u16, (n >> 16) as u16, b"").bytes();
        port.key(&packet).unwrap()
    };
    let other = shortcuts.port(3).unwrap();
    let open = |port: &Arc<ShortcutPort>, n| exit.open(port, key(n), LONG, &[], 0);
    let all: Vec<Shortcut> = (0..bpf::WAYS).map_while(|n| open(&port, n).ok()).collect();
    assert_eq!(all.len(), bpf::WAYS as usize / 8 * 7);
    assert!(matches!(open(&port, bpf::WAYS), Err(Refused::OverShare)));
    let others: Vec<Shortcut> = (bpf::WAYS..).map_while(|n| open(&other, n).ok()).collect();
    assert_eq!(all.len() + others.len(), bpf::WAYS as usize);
    assert!(matches!(open(&other, 0), Err(Refused::Full)));
    drop((all, others));
    assert!(open(&port, 0).is_ok());
    drop(other);
    let ports: Vec<_> = std::iter::from_fn(|| shortcuts.port(1)).collect();
    assert_eq!(ports.len() as u32, PORTS - 3);
    drop(ports);
    assert!(shortcuts.port(1).is_some());
}
