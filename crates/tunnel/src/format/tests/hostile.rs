//! Headers that are cut, wrong or forbidden.

use super::*;

/// Makes the lengths of the outer IP and UDP headers agree with the bytes.
fn settle(packet: &mut [u8]) {
    let (len, start) = (packet.len() as u16, if packet[0] >> 4 == 4 { 20 } else { 40 });
    if packet.len() < start {
        return;
    }
    let (at, len) = if start == 20 { (2, len) } else { (4, len - 40) };
    packet[at..at + 2].copy_from_slice(&len.to_be_bytes());
    let protocol = if start == 20 { packet[9] } else { packet[6] };
    let udp = packet.len() - start;
    if protocol == 17 && udp >= 8 {
        packet[start + 4..start + 6].copy_from_slice(&(udp as u16).to_be_bytes());
    }
}

fn sample(template: &Encapsulation, inner: Inner) -> Vec<u8> {
    written(template, &payload_of(inner), &Packet::default())
}

#[test]
fn headers_cut_at_every_byte_are_refused() {
    for (format, template, inner) in templates() {
        let whole = sample(&template, inner);
        for len in 0..whole.len() {
            let mut cut = whole[..len].to_vec();
            assert!(
                decapsulate(format, &cut, Checksums::Verify).is_err(),
                "{format:?} {len}"
            );
            assert!(decapsulate(format, &cut, Checksums::Good).is_err());
            if len > 0 {
                // The same where the outer lengths are right.
                settle(&mut cut);
                if len < template.len() + 4 {
                    assert!(decapsulate(format, &cut, Checksums::Good).is_err(), "{format:?} {len}");
                }
            }
        }
    }
}

#[test]
fn a_changed_byte_never_makes_offsets_leave_the_packet() {
    for (format, template, inner) in templates() {
        let whole = sample(&template, inner);
        for at in 0..whole.len() {
            for value in 0..=255 {
                let mut packet = whole.clone();
                packet[at] = value;
                for checksums in [Checksums::Good, Checksums::Verify] {
                    let read = decapsulate(format, &packet, checksums);
                    assert_eq!(read, walk(format, &packet, checksums), "{format:?} {at} {value}");
                }
                if let Ok(read) = decapsulate(format, &packet, Checksums::Good) {
                    assert!(read.start <= read.end && read.end <= packet.len());
                    if let Details::Geneve(options) = read.details {
                        let len: usize = options.iter().map(|option| 4 + option.data.len()).sum();
                        assert_eq!(len, options.bytes().len());
                    }
                }
            }
        }
    }
}

#[test]
fn a_changed_byte_under_a_checksum_is_noticed() {
    for (format, template, inner) in templates() {
        let whole = sample(&template, inner);
        let read = decapsulate(format, &whole, Checksums::Verify).unwrap();
        // GRE sums no addresses of IPv6.
        let from = match read.kind {
            _ if !read.csum => whole.len(),
            Kind::Gre if read.src.is_ipv6() => 40,
            _ => 0,
        };
        for at in from..whole.len() {
            let mut packet = whole.clone();
            packet[at] ^= 0x10;
            // IPv6 sums neither class, label nor hop limit.
            let summed = packet[0] >> 4 == 4 || !(0..4).contains(&at) && at != 7;
            let read = decapsulate(format, &packet, Checksums::Verify);
            assert!(!summed || read.is_err(), "{format:?} {at}");
        }
    }
}

/// A packet with these bytes changed, read without checksums.
fn changed(which: usize, v6: bool, changes: &[(usize, u8)]) -> Result<Inner, Refusal> {
    let (body, inner) = bodies()[which];
    let template = Encapsulation::new(&outer(v6), &body, inner).unwrap();
    let mut packet = sample(&template, inner);
    for (at, value) in changes {
        packet[*at] = *value;
    }
    decapsulate(format_of(&body), &packet, Checksums::Good).map(|read| read.inner)
}

#[test]
fn what_is_forbidden_is_refused_with_its_reason() {
    use Refusal::*;
    const VXLAN: usize = 0;
    const GBP: usize = 1;
    const GPE: usize = 2;
    const GENEVE: usize = 5;
    const GRE: usize = 6;
    const KEYED: usize = 7;
    const ERSPAN1: usize = 10;
    const ERSPAN2: usize = 11;
    const GTPU: usize = 12;
    const IP_IN_UDP: usize = 14;
    for (which, changes, refusal) in [
        (VXLAN, &[(0, 0x55)][..], IpVersion),
        (VXLAN, &[(0, 0x44)], IpLength),
        (VXLAN, &[(2, 0xff)], IpLength),
        (VXLAN, &[(6, 0x20)], Fragment),
        (VXLAN, &[(7, 1)], Fragment),
        (VXLAN, &[(9, 6)], Protocol),
        (VXLAN, &[(12, 224)], Source),
        (VXLAN, &[(12, 0), (13, 0), (14, 0), (15, 0)], Source),
        (VXLAN, &[(12, 255), (13, 255), (14, 255), (15, 255)], Source),
        (VXLAN, &[(25, 7)], UdpLength),
        (VXLAN, &[(24, 0xff)], UdpLength),
        (VXLAN, &[(25, 12)], Truncated),
        (VXLAN, &[(25, 20)], InnerPacket),
        (VXLAN, &[(28, 0)], VxlanFlags),
        (VXLAN, &[(28, 0x88)], VxlanFlags),
        (VXLAN, &[(28, 0x0c)], VxlanFlags),
        (VXLAN, &[(31, 1)], VxlanFlags),
        (VXLAN, &[(35, 1)], VxlanReserved),
        (GBP, &[(28, 0x0c)], VxlanFlags),
        (GPE, &[(28, 0x0d)], VxlanOam),
        (GPE, &[(31, 9)], VxlanNextProtocol),
        (GPE, &[(31, 1)], InnerPacket),
        (GENEVE, &[(28, 0x44)], GeneveVersion),
        (GENEVE, &[(28, 63)], Truncated),
        (GENEVE, &[(28, 3)], GeneveOptions),
        (GENEVE, &[(39, 31)], GeneveOptions),
        (GENEVE, &[(30, 0), (31, 1)], GeneveProtocol),
        (GENEVE, &[(30, 8), (31, 0)], InnerPacket),
        (GRE, &[(20, 0x40)], GreFlags),
        (GRE, &[(21, 1)], GreFlags),
        (GRE, &[(22, 0), (23, 0)], GreProtocol),
        (GRE, &[(22, 0x88), (23, 0xbe)], ErspanFlags),
        (KEYED, &[(9, 17)], Protocol),
        (ERSPAN1, &[(20, 0x30)], ErspanFlags),
        (ERSPAN1, &[(28, 0x20)], ErspanVersion),
        (ERSPAN1, &[(28, 0x30)], ErspanVersion),
        (ERSPAN2, &[(38, 4)], ErspanFrameType),
        (GTPU, &[(28, 0x50)], GtpuVersion),
        (GTPU, &[(28, 0x20)], GtpuVersion),
        (GTPU, &[(30, 1)], GtpuLength),
        (GTPU, &[(30, 0), (31, 0)], InnerPacket),
        (GTPU, &[(28, 0x32), (30, 0), (31, 3)], GtpuLength),
        (GTPU, &[(28, 0x34), (39, 1), (40, 0)], GtpuLength),
        (GTPU, &[(28, 0x34), (39, 1), (40, 99)], GtpuLength),
        (GTPU, &[(36, 0x55)], InnerPacket),
        (IP_IN_UDP, &[(28, 0x50)], InnerPacket),
    ] {
        let read = changed(which, false, changes);
        assert_eq!(read, Err(refusal), "{which} {changes:?}");
        assert!(!refusal.to_string().is_empty());
    }
    const SRV6: usize = 17;
    for (changes, refusal) in [
        (&[(6, 17)][..], Srv6Missing),
        (&[(42, 2)], Srv6Missing),
        (&[(43, 1)], Srv6SegmentsLeft),
        (&[(44, 1)], Srv6Length),
        (&[(40, 6)], Srv6NextHeader),
        (&[(8, 0xff)], Source),
    ] {
        assert_eq!(changed(SRV6, true, changes), Err(refusal), "{changes:?}");
    }
}

#[test]
fn checksums_of_zero_are_accepted_over_both_families() {
    for v6 in [false, true] {
        let template = Encapsulation::new(&outer(v6), &bodies()[0].0, Inner::Ethernet).unwrap();
        let mut packet = sample(&template, Inner::Ethernet);
        let at = packet.len() - payload_of(Inner::Ethernet).len() - 10;
        packet[at..at + 2].copy_from_slice(&[0, 0]);
        let format = Format::Vxlan { gbp: false, gpe: false };
        let read = decapsulate(format, &packet, Checksums::Verify).unwrap();
        assert!(!read.csum);
    }
}

#[test]
fn gtp_messages_keep_their_headers_and_extension_headers_go() {
    assert_eq!(changed(12, false, &[(29, 1)]), Ok(Inner::Message));
    // An extension header of four bytes before the inner packet.
    let (body, inner) = bodies()[12];
    let template = Encapsulation::new(&outer(false), &body, inner).unwrap();
    let extension = [&[0, 0, 0, 0x85, 1, 0, 9, 0][..], &ipv4(0)].concat();
    let mut packet = written(&template, &extension, &Packet::default());
    packet[28] = 0x34;
    let read = decapsulate(Format::Gtpu, &packet, Checksums::Good).unwrap();
    assert_eq!(packet[read.start..read.end], ipv4(0));
}

#[test]
fn vxlan_extensions_are_optional_where_they_are_allowed() {
    let both = Format::Vxlan { gbp: true, gpe: true };
    for which in [0, 1, 2, 3] {
        let (body, inner) = bodies()[which];
        let template = Encapsulation::new(&outer(true), &body, inner).unwrap();
        let packet = sample(&template, inner);
        assert_eq!(decapsulate(both, &packet, Checksums::Verify).unwrap().inner, inner);
        let plain = Format::Vxlan { gbp: false, gpe: false };
        assert_eq!(decapsulate(plain, &packet, Checksums::Verify).is_ok(), which == 0);
    }
}
