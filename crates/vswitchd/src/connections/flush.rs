//! Which connections a flush removes, by the rules of Open vSwitch's userspace datapath.

use conntrack::{Conntrack, Filter, Nanos, Part, Tuple};
use openflow::model::{CtFlush, CtTuple};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Removes connections. A whole tuple without a reply tuple, a mark or a label is that of one
/// connection, in either direction and in zone 0 if no other is given; false if there is none.
pub(crate) fn flush(conntrack: &Arc<Conntrack>, flush: &CtFlush, now: Nanos) -> bool {
    let mut tracker = conntrack.tracker();
    if let Some(tuple) = whole(flush) {
        return tracker.flush_tuple(flush.zone.unwrap_or(0), &tuple, now);
    }
    let filter = filter(flush);
    // OVN flushes each zone before it uses it.
    let nothing = filter.zone.is_some_and(|zone| conntrack.zone_limit(zone).count == 0);
    if !nothing && !conntrack.is_empty() {
        tracker.flush(&filter);
    }
    true
}

fn whole(flush: &CtFlush) -> Option<Tuple> {
    let (original, reply) = (part(&flush.orig, flush.proto), part(&flush.reply, flush.proto));
    let (src, dst, protocol) = (original.src?, original.dst?, original.protocol?);
    let other = reply.src.is_some() || reply.dst.is_some() || flush.mark.is_some() || flush.label.is_some();
    let (src_port, dst_port) = match is_icmp(flush.proto) {
        true => {
            let numbers = [reply.src_port?, reply.icmp_type?.into(), reply.icmp_code?.into()];
            if other || numbers != [0; 3] {
                return None;
            }
            return Tuple::icmp(src, dst, original.src_port?, original.icmp_type?, original.icmp_code?);
        }
        false => (original.src_port?, original.dst_port?),
    };
    if other || reply.src_port.or(reply.dst_port).is_some() {
        return None;
    }
    Tuple::new(src, dst, protocol, src_port, dst_port)
}

fn filter(flush: &CtFlush) -> Filter {
    Filter {
        zone: flush.zone,
        original: part(&flush.orig, flush.proto),
        reply: part(&flush.reply, flush.proto),
        mark: flush.mark,
        label: flush.label,
    }
}

/// Fields of 0 fit all connections; but for those of ICMP, which count always.
fn part(tuple: &CtTuple, proto: u8) -> Part {
    let address = |address: Option<Ipv6Addr>| {
        let address = address.filter(|address| !address.is_unspecified())?;
        Some(address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4))
    };
    let port = |port: Option<u16>| port.filter(|port| *port != 0);
    let part = Part {
        src: address(tuple.src),
        dst: address(tuple.dst),
        protocol: (proto != 0).then_some(proto),
        ..Part::default()
    };
    match is_icmp(proto) {
        true => Part {
            src_port: Some(tuple.icmp_id.unwrap_or(0)),
            icmp_type: Some(tuple.icmp_type.unwrap_or(0)),
            icmp_code: Some(tuple.icmp_code.unwrap_or(0)),
            ..part
        },
        false => Part {
            src_port: port(tuple.src_port),
            dst_port: port(tuple.dst_port),
            ..part
        },
    }
}

/// Whether a protocol is ICMP or ICMPv6.
fn is_icmp(proto: u8) -> bool {
    matches!(proto, 1 | 58)
}
