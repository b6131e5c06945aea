use super::*;
use flow::Field;
use proptest::prelude::*;
use testkit::{Packet, mac};

fn packet(kind: usize) -> Vec<u8> {
    let packet = Packet::new(mac(1), mac(2));
    let packet = if kind.is_multiple_of(2) { packet } else { packet.vlan(5) };
    let packet = match kind / 2 % 2 {
        0 => packet.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        _ => packet.ipv6(1.into(), 2.into()),
    };
    let packet = match kind / 4 {
        0 => packet.udp(1000, 2000, b"some payload"),
        1 => packet.tcp(1000, 2000, 0x10, b"some payload"),
        _ => packet.echo(7, 1, b"some payload"),
    };
    packet.bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Packets of one kind have the same key, except for TCP's flags: a megaflow that does not
    /// match these and covers one packet covers both.
    #[test]
    fn packets_of_one_kind_read_the_same(
        kind in 0..12_usize,
        changes in prop::collection::vec((0..90_usize, any::<u8>(), any::<bool>()), 0..4),
        cut in prop::option::of(14..110_usize),
        more in 0..30_usize,
    ) {
        let one = packet(kind);
        let mut other = one.clone();
        other.resize(other.len() + more, 0);
        for (at, value, low) in changes {
            if let Some(byte) = other.get_mut(at) {
                *byte = if low { byte.wrapping_add(value % 3) } else { value };
            }
        }
        other.truncate(cut.unwrap_or(usize::MAX));
        let key = PacketKind::of(1, &one);
        prop_assert!(key.is_some());
        if PacketKind::of(1, &other) == key {
            let read = |packet: &[u8]| {
                let mut key = flow::extract(packet, &PortNo(3).into()).unwrap();
                key.set(Field::TcpFlags, 0);
                key
            };
            prop_assert_eq!(read(&one), read(&other), "{:02x?}", other);
        }
    }
}

mod flows;
mod simulated;
