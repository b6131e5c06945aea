use super::*;
use crate::{Connection, PortNo, Tunnel, TunnelDetails, TunnelOptionBytes};
use etherparse::PacketBuilder;
use proptest::prelude::*;
use std::hash::RandomState;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The key that a packet must have.
fn fields(key: &Key, fields: &[Field]) -> Vec<u128> {
    fields.iter().map(|field| key.get(*field)).collect()
}

const TCP_FIELDS: [Field; 8] = [
    Field::EthType,
    Field::IpProto,
    Field::IpTtl,
    Field::IpFrag,
    Field::TpSrc,
    Field::TpDst,
    Field::TcpFlags,
    Field::VlanTci0,
];

fn tcp4(ttl: u8, src: u16, dst: u16) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], ttl);
    let mut data = Vec::new();
    builder
        .tcp(src, dst, 1, 1000)
        .syn()
        .ack(2)
        .write(&mut data, b"hello")
        .unwrap();
    data
}

#[test]
fn what_has_a_key_is_known_without_reading_it() {
    for kind in [0x0800u16, 0x8100, 0x88a8, 0x9100, 0, 0xffff] {
        let mut packet = [0; 30];
        packet[12..14].copy_from_slice(&kind.to_be_bytes());
        for len in 0..packet.len() {
            let packet = &packet[..len];
            assert_eq!(
                has_key(packet),
                extract(packet, &PortNo(1).into()).is_some(),
                "{kind:x} {len}"
            );
        }
    }
}

const KINDS: usize = 8;

/// A packet of each of some kinds.
fn of_kind(kind: usize) -> Vec<u8> {
    let ethernet = || PacketBuilder::ethernet2([2; 6], [4; 6]);
    let mut data = Vec::new();
    match kind {
        0 => return tcp4(64, 1, 2),
        1 => return neighbour_solicitation(&[1, 1, 2, 2, 2, 2, 2, 2]),
        2 => ethernet()
            .double_vlan(1.try_into().unwrap(), 2.try_into().unwrap())
            .ipv6([1; 16], [2; 16], 3)
            .udp(5, 6)
            .write(&mut data, b"x"),
        3 => return [&[0xff; 6][..], &[2; 6], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &[3; 20]].concat(),
        4 => ethernet()
            .ipv6([1; 16], [2; 16], 3)
            .tcp(5, 6, 7, 8)
            .write(&mut data, b"xy"),
        5 => ethernet()
            .single_vlan(3.try_into().unwrap())
            .ipv4([1; 4], [2; 4], 9)
            .udp(5, 6)
            .write(&mut data, &[7; 20]),
        6 => ethernet().ipv4([1; 4], [2; 4], 9).udp(5, 6).write(&mut data, &[7; 20]),
        _ => {
            return [
                &[0xff; 6][..],
                &[2; 6],
                &[0, 60, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0],
                &[0x45; 40],
            ]
            .concat();
        }
    }
    .unwrap();
    data
}

const META_FIELDS: [Field; 4] = [Field::InPort, Field::RecircId, Field::PktMark, Field::SkbPriority];

/// Metadata that is mostly as on received packets.
fn any_meta() -> impl Strategy<Value = PacketMeta> {
    let rarely = || prop_oneof![9 => Just(0u32), 1 => any::<u32>()];
    (0..8usize, rarely(), rarely()).prop_map(|(part, value, state)| {
        let mut meta = PacketMeta::received(PortNo(1));
        match part {
            0 => meta.in_port.0 ^= value,
            1 => meta.recirc_id = value,
            2 => meta.mark = value,
            3 => meta.priority = value,
            _ => {
                let connection = Connection {
                    state,
                    ..Connection::default()
                };
                if state != 0 {
                    meta.extra_mut().connection = Some(connection);
                }
                if let Some(tunnel) = any_tunnel(part, value) {
                    meta.extra_mut().tunnel = Some(tunnel);
                }
            }
        }
        meta
    })
}

/// A tunnel of either family, or none.
fn any_tunnel(kind: usize, value: u32) -> Option<Tunnel> {
    let address: IpAddr = match kind {
        5 => Ipv4Addr::from_bits(value | 1).into(),
        6 => Ipv6Addr::from_bits(u128::from(value | 1) << 90).into(),
        _ => return None,
    };
    Some(Tunnel {
        id: value.into(),
        src: address,
        dst: address,
        tp_src: 1,
        tp_dst: 2,
        tos: value as u8,
        ttl: 64,
        flags: Tunnel::KEY,
        details: TunnelDetails::Gbp {
            id: value as u16,
            flags: 8,
        },
        options: TunnelOptionBytes::new(&value.to_be_bytes(), &RandomState::new())?,
    })
}

proptest! {
    #[test]
    fn what_is_called_the_same_has_the_same_key(
        kind in 0..KINDS,
        both in proptest::collection::vec((0usize..70, any::<u8>()), 0..3),
        one in proptest::collection::vec((0usize..70, any::<u8>()), 0..2),
        cuts in proptest::array::uniform2(proptest::option::weighted(0.2, 14usize..90)),
        metas in proptest::array::uniform2(any_meta()),
    ) {
        let mut packets = [of_kind(kind), of_kind(kind)];
        for (at, byte) in both {
            packets.iter_mut().filter_map(|packet| packet.get_mut(at)).for_each(|own| *own = byte);
        }
        for (at, byte) in one {
            packets[1].get_mut(at).into_iter().for_each(|own| *own = byte);
        }
        packets.iter_mut().zip(cuts).for_each(|(packet, cut)| packet.truncate(cut.unwrap_or(usize::MAX)));
        let keys: [_; 2] = std::array::from_fn(|n| extract(&packets[n], &metas[n]));
        let alike = keys[0].is_some() && keys[0] == keys[1] && metas[0] == metas[1];
        let (mut before, mut slot) = (KeySlot::default(), KeySlot::default());
        before.read(&packets[0], &metas[0], None);
        let same = slot.read(&packets[1], &metas[1], Some(&before)) == Reading::Same;
        prop_assert!(!same || alike);
        let again = slot.read(&packets[0], &metas[0], Some(&before)) == Reading::Same;
        let repeats = again && repeats((&packets[1], &metas[1]), (&packets[0], &metas[0]));
        prop_assert!(!repeats || alike);
    }

    #[test]
    fn what_was_read_before_leaves_nothing_in_a_slot(
        packets in proptest::collection::vec(
            (0..KINDS, proptest::collection::vec((12usize..70, any::<u8>()), 0..2), any_meta()),
            1..6,
        ),
    ) {
        let mut slot = KeySlot::default();
        for (kind, damage, meta) in packets {
            let mut data = of_kind(kind);
            for (at, byte) in damage {
                data.get_mut(at).into_iter().for_each(|own| *own = byte);
            }
            let key = extract(&data, &meta);
            if let Some(key) = key {
                prop_assert_eq!(fields(&key, &META_FIELDS), [meta.in_port.0, meta.recirc_id, meta.mark, meta.priority].map(u128::from));
            }
            prop_assert_eq!((slot.read(&data, &meta, None) == Reading::Key).then(|| *slot), key);
        }
    }

    #[test]
    fn the_reader_of_plain_packets_gives_the_key_of_the_walk(
        udp: bool,
        damage in proptest::collection::vec((12usize..60, any::<u8>()), 0..3),
        cut in proptest::option::weighted(0.2, 14usize..90),
        meta in any_meta(),
    ) {
        let mut data = of_kind(if udp { 6 } else { 0 });
        for (at, byte) in damage {
            data.get_mut(at).into_iter().for_each(|own| *own = byte);
        }
        data.truncate(cut.unwrap_or(usize::MAX));
        let mut walk = KeySlot::default();
        let walked = (walk.read_any(&data, &meta) == Reading::Key).then(|| *walk);
        prop_assert_eq!(extract(&data, &meta), walked);
    }

    #[test]
    fn no_bytes_make_it_panic(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        let key = extract(&data, &PortNo(1).into());
        prop_assert_eq!(key.is_some(), has_key(&data));
        prop_assert_eq!(key.is_none(), data.len() < 14 || (data[12..14] == [0x81, 0] || data[12..14] == [0x88, 0xa8]) && data.len() < 18);
    }

    #[test]
    fn no_damage_to_a_real_packet_makes_it_panic(
        cut in 0usize..120,
        damage in proptest::collection::vec((0usize..120, any::<u8>()), 0..4),
        kind in 0..KINDS,
    ) {
        let mut data = of_kind(kind);
        for (at, byte) in damage {
            if let Some(slot) = data.get_mut(at) {
                *slot = byte;
            }
        }
        data.truncate(cut);
        extract(&data, &PortNo(1).into());
    }

    #[test]
    fn what_etherparse_writes_is_read_back(ttl: u8, src: u16, dst: u16, vid in 0u16..4096, udp: bool, v6: bool) {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).single_vlan(vid.try_into().unwrap());
        let mut data = Vec::new();
        let builder = if v6 { builder.ipv6([1; 16], [2; 16], ttl) } else { builder.ipv4([1; 4], [2; 4], ttl) };
        if udp {
            builder.udp(src, dst).write(&mut data, &[]).unwrap();
        } else {
            builder.tcp(src, dst, 9, 9).fin().write(&mut data, &[]).unwrap();
        }
        let key = extract(&data, &PortNo(3).into()).unwrap();
        let expected = [
            if v6 { 0x86dd } else { 0x800 },
            if udp { 17 } else { 6 },
            ttl.into(),
            0,
            src.into(),
            dst.into(),
            if udp { 0 } else { 1 },
            (vid | TAG_PRESENT).into(),
        ];
        prop_assert_eq!(fields(&key, &TCP_FIELDS), expected);
        prop_assert_eq!(key.in_port(), PortNo(3));
    }

    #[test]
    fn padding_behind_the_ip_length_changes_no_key(
        padding in proptest::collection::vec(any::<u8>(), 0..30),
        len in 20u16..46,
    ) {
        let mut data = tcp4(64, 1, 2);
        data[16..18].copy_from_slice(&len.to_be_bytes());
        data.truncate(14 + usize::from(len));
        let key = extract(&data, &PortNo(1).into());
        data.extend(padding);
        prop_assert_eq!(key, extract(&data, &PortNo(1).into()));
    }
}

#[test]
fn a_tcp_packet_has_its_addresses_ports_and_flags() {
    let key = extract(&tcp4(63, 80, 1234), &PortNo(7).into()).unwrap();
    assert_eq!(fields(&key, &TCP_FIELDS), [0x800, 6, 63, 0, 80, 1234, 0x12, 0]);
    assert_eq!(
        fields(&key, &[Field::Ipv4Src, Field::Ipv4Dst]),
        [0x0a00_0001, 0x0a00_0002]
    );
    assert_eq!(
        (key.eth_src().to_string(), key.eth_dst().to_string()),
        ("02:02:02:02:02:02".into(), "04:04:04:04:04:04".into())
    );
}

#[test]
fn packets_of_a_connection_are_called_the_same() {
    let tcp = tcp4(64, 80, 1234);
    let mut next = tcp.clone();
    // Identification and sequence numbers.
    next[18..20].copy_from_slice(&[1, 2]);
    next[38..46].copy_from_slice(&[9; 8]);
    let (mut before, mut slot) = (KeySlot::default(), KeySlot::default());
    assert_eq!(before.read(&tcp, &PortNo(1).into(), None), Reading::Key);
    assert_eq!(slot.read(&next, &PortNo(1).into(), Some(&before)), Reading::Same);
    let (meta, mut marked) = (PacketMeta::received(PortNo(1)), PacketMeta::received(PortNo(1)));
    assert!(repeats((&next, &meta), (&tcp, &meta)) && !repeats((&next[..next.len() - 1], &meta), (&tcp, &meta)));
    assert!(!repeats((&next, &PortNo(2).into()), (&tcp, &meta)));
    marked.mark = 1;
    let mut tracked = meta.clone();
    tracked.extra_mut().connection = Some(Connection::default());
    for other in [&marked, &tracked] {
        assert!(!repeats((&next, other), (&tcp, &meta)));
        assert_eq!(slot.read(&next, other, Some(&before)), Reading::Key);
    }
    assert_eq!(slot.read(&next, &PortNo(2).into(), Some(&before)), Reading::Key);
    // A flag, a port.
    for at in [47, 34] {
        let mut other = next.clone();
        other[at] ^= 1;
        assert_eq!(slot.read(&other, &PortNo(1).into(), Some(&before)), Reading::Key);
        assert!(!repeats((&other, &meta), (&tcp, &meta)));
        assert_eq!(Some(*slot), extract(&other, &PortNo(1).into()));
    }
}

#[test]
fn a_later_fragment_has_no_ports() {
    let mut data = tcp4(64, 80, 443);
    data[20..22].copy_from_slice(&0x2000u16.to_be_bytes());
    assert_eq!(
        fields(&extract(&data, &PortNo(1).into()).unwrap(), &TCP_FIELDS),
        [0x800, 6, 64, 1, 80, 443, 0x12, 0]
    );
    data[20..22].copy_from_slice(&0x2001u16.to_be_bytes());
    assert_eq!(
        fields(&extract(&data, &PortNo(1).into()).unwrap(), &TCP_FIELDS),
        [0x800, 6, 64, 3, 0, 0, 0, 0]
    );
}

#[test]
fn an_ip_header_that_claims_more_than_there_is_has_no_fields() {
    let mut data = tcp4(64, 80, 443);
    data[16..18].copy_from_slice(&500u16.to_be_bytes());
    assert_eq!(
        fields(&extract(&data, &PortNo(1).into()).unwrap(), &TCP_FIELDS),
        [0x800, 0, 0, 0, 0, 0, 0, 0]
    );
}

#[test]
fn ipv6_extension_headers_are_stepped_over() {
    let mut data = [&[4; 6][..], &[2; 6], &[0x86, 0xdd]].concat();
    // Hop-by-hop options, a first fragment, then UDP.
    data.extend([0x60, 0x12, 0x34, 0x56, 0, 24, 0, 64]);
    data.extend([1; 32]);
    data.extend([44, 0, 1, 4, 0, 0, 0, 0]);
    data.extend([17, 0, 0, 1, 0, 0, 0, 9]);
    data.extend([0, 5, 0, 6, 0, 8, 0, 0]);
    let key = extract(&data, &PortNo(1).into()).unwrap();
    let read = fields(
        &key,
        &[
            Field::IpProto,
            Field::IpFrag,
            Field::TpSrc,
            Field::TpDst,
            Field::Ipv6Label,
            Field::IpTos,
        ],
    );
    assert_eq!(read, [17, 1, 5, 6, 0x23456, 1]);
}

#[test]
fn tags_beyond_the_second_are_payload() {
    let mut data = [&[4; 6][..], &[2; 6]].concat();
    data.extend([0x88, 0xa8, 0xf0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 8, 0]);
    let key = extract(&data, &PortNo(1).into()).unwrap();
    assert_eq!(
        key.tag(0),
        Some(wire::VlanTag {
            tpid: 0x88a8,
            tci: 0xe001
        })
    );
    assert_eq!(key.tag(1), Some(wire::VlanTag { tpid: 0x8100, tci: 2 }));
    assert_eq!(key.get(Field::EthType), 0x8100);
}

#[test]
fn a_packet_that_ends_inside_its_tag_is_malformed() {
    let data = [&[4; 6][..], &[2; 6], &[0x81, 0, 0, 1, 8, 0]].concat();
    assert!(extract(&data, &PortNo(1).into()).is_some());
    for len in 0..data.len() {
        assert_eq!(extract(&data[..len], &PortNo(1).into()), None, "{len}");
    }
}

#[test]
fn a_frame_with_a_length_is_of_its_snap_type_or_of_none() {
    let mut data = [
        &[1, 0x80, 0xc2, 0, 0, 0][..],
        &[2; 6],
        &[0, 38, 0x42, 0x42, 3],
        &[0; 35],
    ]
    .concat();
    assert_eq!(extract(&data, &PortNo(1).into()).unwrap().get(Field::EthType), 0x5ff);
    data[14..22].copy_from_slice(&[0xaa, 0xaa, 3, 0, 0, 0, 0x88, 0xcc]);
    assert_eq!(extract(&data, &PortNo(1).into()).unwrap().get(Field::EthType), 0x88cc);
}

#[test]
fn an_arp_request_has_its_addresses() {
    let mut data = [&[0xff; 6][..], &[2; 6], &[8, 6]].concat();
    data.extend([
        0, 1, 8, 0, 6, 4, 0, 1, 2, 2, 2, 2, 2, 2, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2,
    ]);
    let key = extract(&data, &PortNo(1).into()).unwrap();
    let read = fields(
        &key,
        &[Field::ArpOp, Field::ArpSpa, Field::ArpTpa, Field::ArpSha, Field::ArpTha],
    );
    assert_eq!(read, [1, 0x0a00_0001, 0x0a00_0002, 0x0202_0202_0202, 0]);
    data[18] = 7; // not an Ethernet address
    assert_eq!(extract(&data, &PortNo(1).into()).unwrap().get(Field::ArpOp), 0);
}

/// With these options behind the target.
fn neighbour_solicitation(options: &[u8]) -> Vec<u8> {
    let mut data = [&[0x33; 6][..], &[2; 6], &[0x86, 0xdd, 0x60, 0, 0, 0, 0]].concat();
    data.extend([24 + options.len() as u8, 58, 255]);
    data.extend([1; 32]);
    data.extend([135, 0, 0, 0, 0, 0, 0, 0]);
    data.extend([5; 16]);
    data.extend(options);
    data
}

#[test]
fn a_neighbour_solicitation_has_its_target_and_option() {
    let read = |options: &[u8]| {
        let key = extract(&neighbour_solicitation(options), &PortNo(1).into()).unwrap();
        fields(&key, &[Field::IcmpType, Field::NdTarget, Field::NdSll])
    };
    let target = u128::from_be_bytes([5; 16]);
    assert_eq!(read(&[]), [135, target, 0]);
    assert_eq!(read(&[1, 1, 2, 2, 2, 2, 2, 2]), [135, target, 0x0202_0202_0202]);
    assert_eq!(
        read(&[1, 1, 2, 2, 2, 2, 2, 2, 1, 1, 2, 2, 2, 2, 2, 2]),
        [135, 0, 0],
        "twice"
    );
    for last in [0, 9] {
        let options = [1, 1, 2, 2, 2, 2, 2, 2, 1, last, 3, 3, 3, 3, 3, 3];
        assert_eq!(
            read(&options),
            [135, target, 0x0202_0202_0202],
            "an option of no length, or cut short, is the last"
        );
    }
}
