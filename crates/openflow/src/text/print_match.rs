//! Printing matches.

use super::field::{c_hex, print_word};
use super::matches::PROTOCOLS;
use super::{Names, field};
use crate::model::{Match, Value};
use flow::MatchField;
use std::fmt::Write;

/// Prints a match in the form of `ovs-ofctl dump-flows`: conditions with commas between them, and first the name of the protocol.
pub fn print_match(out: &mut String, matching: &Match, names: &dyn Names) {
    let start = out.len();
    let mut printer = Printer { out, names, matching };
    printer.metadata();
    let (named_type, named_proto) = printer.protocol();
    printer.registers();
    printer.packet(named_type, named_proto);
    if out.len() > start {
        // Each condition ends with a comma.
        out.pop();
    }
}

struct Printer<'a> {
    out: &'a mut String,
    names: &'a dyn Names,
    matching: &'a Match,
}

impl Printer<'_> {
    /// Prints the condition on a field by the name that matches are printed with.
    fn field(&mut self, field: MatchField, name: &str) {
        if let Some((value, mask)) = self.matching.get(field) {
            let _ = write!(self.out, "{name}=");
            match (field.info().format, mask == field.info().valid) {
                (flow::Format::Hex, true) => self.out.push_str(&c_hex(value)),
                (flow::Format::Hex | flow::Format::Decimal, false) => {
                    let _ = write!(self.out, "{}/{}", c_hex(value), c_hex(mask));
                }
                _ => print_word(self.out, field, value, mask, self.names),
            }
            self.out.push(',');
        }
    }

    fn own(&mut self, fields: &[MatchField]) {
        fields.iter().for_each(|f| self.field(*f, f.name()));
    }

    fn metadata(&mut self) {
        use MatchField as F;
        self.own(&[F::PktMark]);
        self.field(F::RecircId, "recirc_id");
        if let Some((value, _)) = self.matching.get(F::RecircId) {
            let len = format!("{value},").len();
            self.out.truncate(self.out.len() - len);
            let _ = write!(self.out, "{},", c_hex(value));
        }
        self.own(&[F::DpHash, F::ConjId, F::SkbPriority, F::ActsetOutput, F::CtState]);
        if let Some((value, _)) = self.matching.get(F::CtZone) {
            let _ = write!(self.out, "ct_zone={value},");
        }
        self.own(&[F::CtMark, F::CtLabel]);
        self.own(&[F::CtNwSrc, F::CtIpv6Src, F::CtNwDst, F::CtIpv6Dst, F::CtNwProto, F::CtTpSrc, F::CtTpDst]);
        self.own(&[F::PacketType]);
    }

    /// Prints the name of the protocol; says whether it tells the Ethernet type and the IP protocol.
    fn protocol(&mut self) -> (bool, bool) {
        let Some(eth_type) = self.matching.exact(MatchField::EthType) else {
            return (false, false);
        };
        let proto = self.matching.exact(MatchField::NwProto);
        let named = |proto: Option<u128>| PROTOCOLS.iter().find(|(_, e, p)| (*e, *p) == (eth_type, proto));
        match (named(proto), named(None)) {
            (Some((name, ..)), _) => {
                let _ = write!(self.out, "{name},");
                (true, true)
            }
            (None, Some((name, ..))) => {
                let _ = write!(self.out, "{name},");
                (true, false)
            }
            (None, None) => (false, false),
        }
    }

    fn registers(&mut self) {
        use MatchField as F;
        for number in 0..16 {
            self.own(F::reg(number).as_slice());
        }
        self.own(&[F::TunId, F::TunSrc, F::TunDst, F::TunIpv6Src, F::TunIpv6Dst, F::TunGbpId, F::TunGbpFlags]);
        self.own(&[F::TunErspanVer, F::TunErspanIdx, F::TunErspanDir, F::TunErspanHwid]);
        self.own(&[F::TunTos, F::TunTtl]);
        self.field(F::TunGtpuFlags, "gtpu_flags");
        self.field(F::TunGtpuMsgtype, "gtpu_msgtype");
        self.own(&[F::TunFlags]);
        for tun in self.matching.tun_metadata() {
            let Some(field) = F::tun_metadata(tun.number) else {
                continue;
            };
            let exact = tun.mask.iter().all(|b| *b == 0xff);
            let mask = Value::Wide(tun.mask.clone());
            let _ = write!(self.out, "{}=", field.name());
            let value = Value::Wide(tun.value.clone());
            field::print(self.out, field, &value, (!exact).then_some(&mask), self.names);
            self.out.push(',');
        }
        self.own(&[F::Metadata]);
        self.field(F::InPortOxm, "in_port");
        self.own(&[F::InPhyPort]);
    }

    fn packet(&mut self, named_type: bool, named_proto: bool) {
        use MatchField as F;
        self.vlan();
        self.field(F::EthSrc, "dl_src");
        self.field(F::EthDst, "dl_dst");
        if let Some(eth_type) = self.matching.exact(F::EthType)
            && !named_type
        {
            let _ = write!(self.out, "dl_type=0x{eth_type:04x},");
        }
        self.own(&[F::PbbIsid, F::PbbUca, F::Ipv6Src, F::Ipv6Dst]);
        if let Some((label, mask)) = self.matching.get(F::Ipv6Label) {
            let _ = match mask {
                0xf_ffff => write!(self.out, "ipv6_label=0x{label:05x},"),
                _ => write!(self.out, "ipv6_label=0x{label:05x}/0x{mask:05x},"),
            };
        }
        self.own(&[F::Ipv6Exthdr, F::ArpSpa, F::ArpTpa]);
        self.own(&[F::NshFlags, F::NshTtl, F::NshMdtype, F::NshNp, F::NshSpi, F::NshSi]);
        self.own(&[F::NshC1, F::NshC2, F::NshC3, F::NshC4]);
        self.field(F::IpSrc, "nw_src");
        self.field(F::IpDst, "nw_dst");
        if !named_proto {
            self.own(&[F::NwProto]);
        }
        self.own(&[F::ArpOp, F::ArpSha, F::ArpTha, F::NwTos, F::NwEcn, F::NwTtl]);
        self.own(&[F::MplsLabel, F::MplsTc, F::MplsTtl, F::MplsBos]);
        self.field(F::IpFrag, "nw_frag");
        for field in [F::TcpSrc, F::UdpSrc, F::SctpSrc] {
            self.field(field, "tp_src");
        }
        for field in [F::TcpDst, F::UdpDst, F::SctpDst] {
            self.field(field, "tp_dst");
        }
        self.field(F::IcmpType, "icmp_type");
        self.field(F::IcmpCode, "icmp_code");
        self.field(F::Icmpv6Type, "icmp_type");
        self.field(F::Icmpv6Code, "icmp_code");
        self.own(&[F::NdTarget, F::NdSll, F::NdTll, F::NdReserved, F::NdOptionsType, F::TcpFlags]);
    }

    fn vlan(&mut self) {
        const PRESENT: u128 = 0x1000;
        let Some((tci, mask)) = self.matching.get(MatchField::VlanTci) else {
            return;
        };
        let whole = |bits: u128| mask & bits == bits;
        let tagged = tci & PRESENT != 0 && mask & PRESENT != 0;
        let known = [0x1fff, 0xf000, 0xffff].contains(&mask);
        let _ = if tagged && known {
            let vid = whole(0xfff).then(|| format!("dl_vlan={},", tci & 0xfff));
            let pcp = whole(0xe000).then(|| format!("dl_vlan_pcp={},", tci >> 13));
            write!(self.out, "{}{}", vid.unwrap_or_default(), pcp.unwrap_or_default())
        } else if mask == 0xffff {
            write!(self.out, "vlan_tci=0x{tci:04x},")
        } else {
            write!(self.out, "vlan_tci=0x{tci:04x}/0x{mask:04x},")
        };
    }
}
