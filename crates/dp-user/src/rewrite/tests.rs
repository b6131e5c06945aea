use super::model::{L4, Model, Net, Sums, any_model, any_write};
use super::*;
use crate::layers::Layers;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use netdev::{Gso, Offload, checksum, gso};
use proptest::prelude::*;

/// Writes to a frame, and to the model that it was made of.
fn write_all(frame: &mut Frame, model: &mut Model, writes: &[(Field, u128, u128)]) {
    let mut layers = Layers::UNKNOWN;
    for (field, value, mask) in writes {
        if let Some(set) = SetField::new(*field, *value, *mask) {
            set_field(frame, &mut layers, &set);
            model.set(*field, *value, *mask);
        }
    }
}

/// Whether a device may be left to fill in the checksum.
fn can_be_pending(model: &Model) -> bool {
    let filled = match model.shape.l4 {
        L4::Unknown | L4::Udp(false) => false,
        // Not that of ICMP, which has no pseudo header.
        L4::Icmp => matches!(model.shape.net, Net::V6(_)),
        _ => true,
    };
    filled && model.is_whole()
}

/// Checks the checksums with an independent parser.
fn check(bytes: &[u8], model: &Model) {
    let Ok(packet) = SlicedPacket::from_ethernet(bytes) else {
        return;
    };
    let udp = |sum: u16, right: u16| assert!(sum == 0 || sum == right, "{sum:x} {right:x}");
    // It does not keep the reserved ones of TCP's flags.
    let reserved = model.values.get(Field::TcpFlags) & 0xe00 != 0;
    match (&packet.net, &packet.transport) {
        (Some(NetSlice::Ipv4(ip)), transport) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            match transport {
                Some(TransportSlice::Tcp(tcp)) if !reserved => {
                    let right = tcp.to_header().calc_checksum_ipv4(&header, tcp.payload());
                    assert_eq!(Ok(tcp.checksum()), right);
                }
                Some(TransportSlice::Udp(slice)) => {
                    let right = slice.to_header().calc_checksum_ipv4(&header, slice.payload());
                    udp(slice.checksum(), right.unwrap());
                }
                _ => {}
            }
        }
        (Some(NetSlice::Ipv6(ip)), transport) if model.final_destination() => {
            let header = ip.header().to_header();
            let (src, dst) = (header.source, header.destination);
            match transport {
                Some(TransportSlice::Tcp(tcp)) if !reserved => {
                    let right = tcp.to_header().calc_checksum_ipv6(&header, tcp.payload());
                    assert_eq!(Ok(tcp.checksum()), right);
                }
                Some(TransportSlice::Udp(slice)) => {
                    let right = slice.to_header().calc_checksum_ipv6(&header, slice.payload());
                    udp(slice.checksum(), right.unwrap());
                }
                Some(TransportSlice::Icmpv6(icmp)) => assert!(icmp.is_checksum_valid(src, dst)),
                _ => {}
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases * 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_rewritten_packet_is_the_packet_of_the_new_values(
        mut model in any_model(), writes in prop::collection::vec(any_write(), 1..12), valid: bool,
    ) {
        let before = model.bytes(Sums::Whole);
        let mut frame = Frame::from_slice(&before);
        frame.offload.csum = if valid { Csum::Valid } else { Csum::Unknown };
        let offload = frame.offload;
        write_all(&mut frame, &mut model, &writes);
        prop_assert_eq!(frame.data(), model.bytes(Sums::Whole), "{:?}", model);
        prop_assert_eq!(frame.offload, offload);
        if model.is_whole() {
            check(frame.data(), &model);
        }
    }

    #[test]
    fn a_pending_checksum_stays_pending_and_comes_out_right(
        mut model in any_model().prop_filter("something is pending", can_be_pending),
        writes in prop::collection::vec(any_write(), 1..12),
    ) {
        let (start, offset) = model.checksum();
        let mut frame = Frame::from_slice(&model.bytes(Sums::Partial));
        // Ethernet padding is no part of a packet that is still to be completed.
        let padding = model.shape.remove_padding();
        frame.truncate(frame.len() - padding);
        let csum = Csum::Partial { start: start as u16, offset: offset as u16 };
        frame.offload.csum = csum;
        write_all(&mut frame, &mut model, &writes);
        prop_assert_eq!(frame.offload.csum, csum);
        checksum::fill(&mut frame).unwrap();
        prop_assert_eq!(frame.data(), model.bytes(Sums::Filled), "{:?}", model);
    }

    #[test]
    fn a_segment_is_a_template_for_its_packets(
        v6: bool, udp: bool, pending: bool, payload in 0..9000usize, size in 1..3000u16,
        writes in prop::collection::vec(any_write(), 1..8),
    ) {
        let mut model = Model::segment(v6, udp, payload);
        let (start, offset) = model.checksum();
        let offload = Offload {
            csum: if pending {
                Csum::Partial { start: start as u16, offset: offset as u16 }
            } else {
                Csum::Unknown
            },
            gso: match (udp, v6) {
                (true, _) => Gso::Udp,
                (_, true) => Gso::Tcp6,
                _ => Gso::Tcp4,
            },
            ecn: false,
            gso_size: size,
            hdr_len: (start + if udp { 8 } else { 20 }) as u16,
            ..Offload::default()
        };
        let sums = if pending { Sums::Partial } else { Sums::Whole };
        let mut frame = Frame::from_slice(&model.bytes(sums));
        frame.offload = offload;
        write_all(&mut frame, &mut model, &writes);
        let mut expected = Frame::from_slice(&model.bytes(sums));
        expected.offload = offload;
        let (segments, expected) = (gso::segment(frame).unwrap(), gso::segment(expected).unwrap());
        prop_assert_eq!(segments.len(), expected.len());
        for (segment, expected) in segments.iter().zip(&expected) {
            prop_assert_eq!(segment.data(), expected.data());
            check(segment.data(), &model);
        }
    }

    #[test]
    fn headers_are_found_where_a_key_has_them_in_damaged_packets_too(
        model in any_model(), cut in 0..100usize, at in 0..200usize, byte: u8, writes in prop::collection::vec(any_write(), 1..12),
    ) {
        let mut bytes = model.bytes(Sums::Whole);
        if let Some(damaged) = bytes.get_mut(at) {
            *damaged = byte;
        }
        bytes.truncate(bytes.len().saturating_sub(if cut < 50 { 0 } else { cut }));
        let mut frame = Frame::from_slice(&bytes);
        let Some(mut key) = flow::extract(&bytes, &flow::PortNo(1).into()) else {
            let mut layers = Layers::UNKNOWN;
            for (field, value, mask) in writes {
                if let Some(set) = SetField::new(field, value, mask) {
                    set_field(&mut frame, &mut layers, &set);
                }
            }
            return Ok(());
        };
        let mut layers = Layers::UNKNOWN;
        for (field, value, mask) in writes {
            let Some(set) = SetField::new(field, value, mask) else { continue };
            let third_tag = matches!(key.get(Field::EthType), 0x8100 | 0x88a8);
            let ends_stack = field == Field::MplsLse0 && set.mask() & 0x100 != 0;
            if third_tag || ends_stack || matches!(field, Field::IcmpType | Field::IcmpCode) {
                // Steps over more tags than a key has; makes another packet of it.
                continue;
            }
            if matches!(field, Field::PktMark | Field::SkbPriority) {
                continue;
            }
            set_field(&mut frame, &mut layers, &set);
            let after = flow::extract(frame.data(), &flow::PortNo(1).into()).unwrap();
            let zero = |field: Field| key.get(field) == 0;
            let there = match field.info().prerequisite {
                flow::Prerequisite::None => true,
                flow::Prerequisite::Tag0 => !zero(Field::VlanTci0),
                _ => Place::find(field, frame.data(), layers.locate(frame.data())).is_some(),
            };
            if there {
                let value = key.get(field) & !set.mask() | set.value();
                key.set(field, value);
            }
            prop_assert_eq!(after, key, "{:?}", field);
        }
    }

    #[test]
    fn no_bytes_make_a_write_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0..6usize, proto in 0..7usize,
        pending: Option<(u8, u8)>, writes in prop::collection::vec(any_write(), 1..8), lse: u32,
    ) {
        let kinds = [0x0800u16, 0x86dd, 0x0806, 0x8847, 0x8100, 0x0010];
        if let Some(field) = bytes.get_mut(12..14) {
            field.copy_from_slice(&kinds[kind].to_be_bytes());
        }
        if let Some(first) = bytes.get_mut(14) {
            *first = if kind == 1 { 0x60 } else { *first & 0xf | 0x40 };
        }
        if let Some(protocol) = bytes.get_mut(if kind == 1 { 20 } else { 23 }) {
            *protocol = [6, 17, 132, 1, 58, 44, 43][proto];
        }
        let len = bytes.len() as u8;
        if let Some(total) = bytes.get_mut(if kind == 1 { 18..20 } else { 16..18 }) {
            total[0] = 0;
            total[1] %= len.max(1);
        }
        let mut frame = Frame::from_slice(&bytes);
        if let Some((start, offset)) = pending {
            frame.offload.csum = Csum::Partial { start: u16::from(start % 130), offset: u16::from(offset) };
        }
        let mut layers = Layers::UNKNOWN;
        for (field, value, mask) in writes {
            if let Some(set) = SetField::new(field, value, mask) {
                set_field(&mut frame, &mut layers, &set);
            }
            set_mpls(&mut frame, &mut layers, lse, mask as u32);
            tos(&frame, &mut layers);
        }
        prop_assert_eq!(frame.len(), bytes.len());
    }
}

#[test]
fn the_kind_of_an_option_is_written_where_there_is_one() {
    let mut data = [&[0x33; 6][..], &[2; 6], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, 58, 255]].concat();
    data.extend([1; 32]);
    data.extend([[135, 0, 0, 0, 0, 0, 0, 0], [5; 8], [5; 8], [14, 1, 0, 0, 0, 0, 0, 0]].concat());
    data.extend([1, 1, 7, 7, 7, 7, 7, 7]);
    let before = data.clone();
    let mut frame = Frame::from_slice(&data);
    let set = |field, value| SetField::new(field, value, u128::MAX).unwrap();
    let mut layers = Layers::UNKNOWN;
    set_field(&mut frame, &mut layers, &set(Field::NdOptionsType, 2));
    let key = flow::extract(frame.data(), &flow::PortNo(1).into()).unwrap();
    assert_eq!(key.get(Field::NdOptionsType), 2);
    assert_eq!((key.get(Field::NdSll), key.get(Field::NdTll)), (0, 0x0707_0707_0707));
    // The checksum changed by the same difference as the option.
    let sum = |data: &[u8]| Sum::ZERO.bytes(&data[54..]).fold();
    assert_eq!(sum(frame.data()), sum(&before));
    set_field(&mut frame, &mut layers, &set(Field::NdOptionsType, 1));
    assert_eq!(frame.data(), before);
}

#[test]
fn what_becomes_a_neighbour_message_has_its_reserved_bits_though_it_has_no_target() {
    let mut data = [&[0x33; 6][..], &[2; 6], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 58, 255]].concat();
    data.extend([1; 32]);
    data.extend([128, 0, 0, 0, 0, 1, 0, 2]);
    let sum = |data: &[u8]| Sum::ZERO.bytes(&data[54..]).fold();
    let before = sum(&data);
    let mut frame = Frame::from_slice(&data);
    let mut layers = Layers::UNKNOWN;
    for (field, value) in [
        (Field::IcmpType, 135),
        (Field::NdReserved, 0x0a0b_0c0d),
        (Field::NdTarget, 5),
    ] {
        set_field(
            &mut frame,
            &mut layers,
            &SetField::new(field, value, u128::MAX).unwrap(),
        );
    }
    assert_eq!(frame.data()[58..], [10, 11, 12, 13]);
    let key = flow::extract(frame.data(), &flow::PortNo(1).into()).unwrap();
    assert_eq!((key.get(Field::NdReserved), key.get(Field::NdTarget)), (0x0a0b_0c0d, 0));
    assert_eq!(sum(frame.data()), before);
}

#[test]
fn marks_are_written_to_what_goes_with_the_packet() {
    let mut frame = Frame::from_slice(&[0; 60]);
    frame.meta.mark = 0xff00;
    let mut layers = Layers::UNKNOWN;
    for (field, value, mask) in [(Field::PktMark, 0x12, 0xff), (Field::SkbPriority, 7, u128::MAX)] {
        set_field(&mut frame, &mut layers, &SetField::new(field, value, mask).unwrap());
    }
    assert_eq!((frame.meta.mark, frame.meta.priority), (0xff12, 7));
    let copy = frame.duplicate();
    assert_eq!(
        (copy.meta.mark, copy.meta.priority, copy.data()),
        (0xff12, 7, &[0; 60][..])
    );
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let mut model = Model::segment(false, true, 40);
    let mut frame = Frame::from_slice(&model.bytes(Sums::Whole));
    frame.data_mut()[50] ^= 0x10;
    write_all(
        &mut frame,
        &mut model,
        &[(Field::TpDst, 9, u128::MAX), (Field::Ipv4Dst, 5, u128::MAX)],
    );
    let mut right = model.bytes(Sums::Whole);
    right[50] ^= 0x10;
    assert_eq!(frame.data(), right);
}

#[test]
fn an_outer_checksum_is_kept_while_an_inner_one_is_pending() {
    let mut model = Model::segment(false, true, 100);
    let mut frame = Frame::from_slice(&model.bytes(Sums::Whole));
    frame.offload.csum = Csum::Partial { start: 92, offset: 16 };
    write_all(
        &mut frame,
        &mut model,
        &[(Field::TpSrc, 9, u128::MAX), (Field::Ipv4Src, 5, u128::MAX)],
    );
    assert_eq!(frame.data(), model.bytes(Sums::Whole));
}
