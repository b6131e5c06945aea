//! What the underlay of tunnels sends to a bridge's LOCAL port: ARP, neighbour advertisements, and
//! ICMP errors about packets that are too big.

use nanos::Nanos;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use tunnel::format::SourcePorts;
use tunnel::neighbour::{BridgeName, Heard, Table};
use tunnel::path_mtu::{self, MIN_IPV4, MIN_IPV6, NotTooBig, TooBig, answer, fragments, sent};
use tunnel::vport::{Type, parse};
use wire::EtherType;
use wire::checksum::{checksum, pseudo_ipv6};

/// Length of an Ethernet header.
const ETHERNET: usize = 14;

/// A frame, as it is and with correct checksums.
pub fn underlay(data: &[u8]) {
    frame(data);
    let mut repaired = data.to_vec();
    if repair(&mut repaired).is_some() {
        frame(&repaired);
    }
}

/// A neighbour can be learned if it has unicast addresses, and only then; a size is within bounds
/// and smaller than the packet that it is about.
fn frame(data: &[u8]) {
    let now = Nanos::from_secs(1000);
    if let Some(heard) = Heard::from_frame(data) {
        assert!(!heard.mac.is_multicast() && !heard.mac.is_zero());
        assert!(!heard.address.is_multicast() && !heard.address.is_unspecified());
        let (mut table, bridge) = (Table::default(), BridgeName::new("br0"));
        let own = [Ipv4Addr::new(1, 1, 2, 88).into(), Ipv6Addr::LOCALHOST.into()];
        let learned = table.learn(bridge, &heard, &own, now);
        let known = table.neighbours().get(bridge, heard.address);
        assert_eq!(known, learned.ok().map(|_| heard.mac));
    }
    let Some(packet) = data.get(ETHERNET..) else { return };
    answers(packet);
    let Ok(error) = TooBig::parse(packet) else { return };
    let quoted = error.quoted;
    let least = if quoted.dst.is_ipv4() { MIN_IPV4 } else { MIN_IPV6 };
    assert!(error.mtu >= least && u32::from(error.mtu) < quoted.len);
    for kind in Type::ALL {
        let options = BTreeMap::from([("remote_ip", "flow"), ("key", "7")].map(|(k, v)| (k.to_owned(), v.to_owned())));
        let Some(config) = parse("t", kind, &options).config else {
            continue;
        };
        if let Some(destination) = sent(&config, SourcePorts::default(), &quoted) {
            assert_eq!((destination, quoted.protocol), (quoted.dst, kind.protocol()));
            let mut table = path_mtu::Table::default();
            assert_eq!(table.learn(destination, error.mtu, now), [destination]);
            assert_eq!(table.get(destination), Some(error.mtu));
        }
    }
}

/// An error about an inner packet is one that its sender can read; fragments have room for it.
fn answers(packet: &[u8]) {
    for (kind, longest) in [(EtherType::IPV4, 576), (EtherType::IPV6, 1280)] {
        if let Some(error) = answer(kind, packet, 68) {
            assert!(error.len() <= longest);
            let wrong = [NotTooBig::Other, NotTooBig::Checksum, NotTooBig::NotOurs];
            assert!(TooBig::parse(&error).map_or_else(|why| !wrong.contains(&why), |_| true));
        }
    }
    assert!(fragments(packet, 68).all(|fragment| fragment.len() <= 68));
}

/// Corrects the checksums of the IPv4 header and of ICMP, so that what is behind them is read.
fn repair(frame: &mut [u8]) -> Option<()> {
    let packet = frame.get_mut(ETHERNET..)?;
    match packet.first()? >> 4 {
        4 => {
            let start = usize::from(packet[0] & 0xf) * 4;
            let end = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?])).min(packet.len());
            let header = packet.get_mut(..start).filter(|header| header.len() >= 20)?;
            write(header, 10, checksum)?;
            write(packet.get_mut(start..end)?, 2, checksum)
        }
        6 => {
            let (header, message) = packet.split_first_chunk_mut::<40>()?;
            let end = usize::from(u16::from_be_bytes([header[4], header[5]])).min(message.len());
            let address = |at: usize| Some(Ipv6Addr::from(*header.get(at..)?.first_chunk::<16>()?));
            let (source, destination) = (address(8)?, address(24)?);
            write(&mut message[..end], 2, |message| {
                pseudo_ipv6(source, destination, 58, message.len() as u32)
                    .bytes(message)
                    .finish()
            })
        }
        _ => None,
    }
}

/// Writes a checksum of the bytes, which has its place among them.
fn write(bytes: &mut [u8], at: usize, sum: impl Fn(&[u8]) -> u16) -> Option<()> {
    bytes.get_mut(at..at + 2)?.fill(0);
    let sum = sum(bytes).to_be_bytes();
    bytes.get_mut(at..at + 2)?.copy_from_slice(&sum);
    Some(())
}
