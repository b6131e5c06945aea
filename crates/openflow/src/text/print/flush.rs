//! Connections to flush.

use super::Printer;
use crate::model::{CtFlush, CtTuple};
use std::fmt::Write;
use std::net::Ipv6Addr;

impl Printer<'_> {
    pub(super) fn ct_flush(&mut self, flush: &CtFlush) {
        let _ = write!(self.out, " zone={} ", flush.zone.unwrap_or(0));
        let masked = |name, value: u128, mask: u128, all| match mask == all {
            true => format!("{name}={value:#x} "),
            false => format!("{name}={value:#x}/{mask:#x} "),
        };
        if let Some((value, mask)) = flush.mark {
            self.out
                .push_str(&masked("mark", value.into(), mask.into(), u32::MAX.into()));
        }
        if let Some((value, mask)) = flush.label {
            self.out.push_str(&masked("labels", value, mask, u128::MAX));
        }
        self.out.push('\'');
        let addresses = [flush.orig.src, flush.orig.dst, flush.reply.src, flush.reply.dst];
        let four = |address: &Ipv6Addr| address.to_ipv4_mapped().is_some();
        let family = if addresses.iter().flatten().any(four) {
            "nw"
        } else {
            "ipv6"
        };
        self.tuple(family, flush.proto, &flush.orig);
        // The protocol is that of both directions.
        let _ = write!(self.out, ",ct_nw_proto={}' '", flush.proto);
        self.tuple(family, flush.proto, &flush.reply);
        self.out.push('\'');
    }

    /// All fields of a direction's tuple; absent ones print as zero.
    fn tuple(&mut self, family: &str, proto: u8, tuple: &CtTuple) {
        for (end, separator, address) in [("src", "", tuple.src), ("dst", ",", tuple.dst)] {
            let address = address.unwrap_or(Ipv6Addr::UNSPECIFIED);
            let _ = match address.to_ipv4_mapped() {
                Some(four) => write!(self.out, "{separator}ct_{family}_{end}={four}"),
                None => write!(self.out, "{separator}ct_{family}_{end}={address}"),
            };
        }
        let _ = match proto {
            1 | 58 => write!(
                self.out,
                ",icmp_id={},icmp_type={},icmp_code={}",
                tuple.icmp_id.unwrap_or(0),
                tuple.icmp_type.unwrap_or(0),
                tuple.icmp_code.unwrap_or(0)
            ),
            _ => write!(
                self.out,
                ",ct_tp_src={},ct_tp_dst={}",
                tuple.src_port.unwrap_or(0),
                tuple.dst_port.unwrap_or(0)
            ),
        };
    }
}
