//! Outer headers of tunnels, as packets from the network.

use dp::geneve;
use flow::{MappedOption, OptionMap};
use tunnel::format::geneve::Options;
use tunnel::format::{Checksums, Details, Format, Inner, Payload, decapsulate, ecn, inner_ip};
use wire::EtherType;

/// The first byte chooses what kind of port receives the packet, the others are the packet from the
/// outer IP header on. What is read lies within the packet, and the mark of the outer header leaves
/// the rest of the inner packet as it is.
pub fn tunnels(data: &[u8]) {
    let Some((what, packet)) = data.split_first() else {
        return;
    };
    let format = format(*what);
    let Ok(read) = decapsulate(format, packet, Checksums::Good) else {
        assert!(decapsulate(format, packet, Checksums::Verify).is_err());
        return;
    };
    if let Ok(same) = decapsulate(format, packet, Checksums::Verify) {
        assert_eq!(same, read);
    }
    assert!(read.start <= read.end && read.end <= packet.len());
    if let Details::Geneve(options) = read.details {
        let len: usize = options.iter().map(|option| 4 + option.data.len()).sum();
        assert_eq!(len, options.bytes().len());
        mapped(options);
    }
    let mut inner = packet[read.start..read.end].to_vec();
    let before = inner_ip(&inner, read.inner);
    let marked = ecn::apply(&mut inner, read.inner, read.tos);
    let after = inner_ip(&inner, read.inner);
    match (before, after) {
        (Some(before), Some(after)) => {
            assert_eq!((before.tos ^ after.tos) & !ecn::MASK, 0);
            assert_eq!((before.ttl, before.label), (after.ttl, after.label));
            assert!(marked.is_ok() || before == after);
        }
        (before, after) => assert_eq!((before, marked), (after, Ok(()))),
    }
    assert!(read.inner != Inner::Message || read.start == 0);
}

/// Options that a controller has mapped come back from the metadata.
fn mapped(options: Options<'_>) {
    let option = |class, kind, present, units: &[usize]| MappedOption {
        class,
        kind,
        present,
        units: units.to_vec(),
    };
    let map = OptionMap::new([
        option(0x102, 0x80, 3, &[4]),
        option(1, 5, 0, &[0, 2]),
        option(0x103, 2, 31, &[]),
    ]);
    if let Ok(words) = geneve::receive(&map, options) {
        let sent = geneve::send(&map, &words).expect("there is room for all that are mapped");
        assert_eq!(geneve::receive(&map, sent.options()), Ok(words));
        assert!(words.is_empty() == sent.options().bytes().is_empty());
    }
}

fn format(what: u8) -> Format {
    match what & 15 {
        0..=3 => Format::Vxlan {
            gbp: what & 1 != 0,
            gpe: what & 2 != 0,
        },
        4 | 5 => Format::Geneve,
        6..=8 => Format::Gre,
        9 | 10 => Format::Gtpu,
        11 => Format::Bareudp(Payload::Ip),
        12 => Format::Bareudp(Payload::Mpls),
        13 => Format::Bareudp(Payload::Type(EtherType(0x6558))),
        _ => Format::Srv6,
    }
}
