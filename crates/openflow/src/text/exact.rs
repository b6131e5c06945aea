//! Reading one packet's fields, as `ofproto/trace` is given them.

use super::{Names, ParseError, field, match_out::PROTOCOLS, names, token};
use crate::model::{Match, Value};
use flow::MatchField as F;

/// Parses the fields of one packet, with the rules of a match: each field once, without a mask, and
/// behind its prerequisites. Fields that the text lacks are not in the match.
///
/// # Errors
/// Error texts are those of Open vSwitch.
pub fn parse_packet(text: &str, names: &Names) -> Result<Match, ParseError> {
    let mut packet = Match::ANY;
    let mut rest = text;
    while let Some(pair) = token::next(&mut rest) {
        let key = pair.key;
        let proto = PROTOCOLS.iter().find(|(.., name)| *name == key);
        if let Some((eth_type, proto, _)) = proto {
            put(&mut packet, F::EthType, "eth_type", *eth_type)?;
            if let Some(proto) = proto {
                put(&mut packet, F::NwProto, "nw_proto", *proto)?;
            }
            continue;
        }
        match key {
            "eth" => put(&mut packet, F::PacketType, "packet_type", 0)?,
            "pbb" => put(&mut packet, F::EthType, "eth_type", 0x88e7)?,
            _ => {
                let of = names::field(key).ok_or_else(|| ParseError::new(format!("unknown field {key}")))?;
                take(&mut packet, of, &pair, names)?;
            }
        }
    }
    Ok(packet)
}

/// Sets a field from its text; `key` is one of its names.
fn take(packet: &mut Match, of: F, pair: &token::Pair<'_>, names: &Names) -> Result<(), ParseError> {
    let (key, text) = (pair.key, pair.value);
    let bad = |why: &dyn std::fmt::Display| ParseError::new(format!("bad value for {key} ({why})"));
    let masked = || bad(&format_args!("{text}: wildcards not allowed here"));
    let parsed = field::parse(of, text, names).map_err(|error| bad(&error))?;
    match parsed.ok_or_else(masked)? {
        (Value::Word(value), mask) => {
            let all = of.info().valid;
            match mask {
                Some(Value::Word(mask)) if mask & all == all => {}
                None => {}
                Some(_) => return Err(masked()),
            }
            put(packet, of, key, value & all)
        }
        (Value::Wide(value), None) => {
            let number = of as u8 - F::TunMetadata0 as u8;
            let added = packet.add_tun_metadata(number, &value, None);
            added.map_err(|_| ParseError::new(format!("field {key} set multiple times")))
        }
        (Value::Wide(_), Some(_)) => Err(masked()),
    }
}

/// Sets a field that is not set yet.
fn put(packet: &mut Match, of: F, key: &str, value: u128) -> Result<(), ParseError> {
    if !packet.meets(of.info().prerequisite) {
        return Err(ParseError::new(format!("prerequisites not met for setting {key}")));
    }
    // The text may have the parts of a tag one by one. Each of them implies the tag, so that the
    // text need not say that there is one.
    let part_of_tag = matches!(of, F::DlVlan | F::DlVlanPcp | F::VlanPcp);
    let said = packet.get(of).is_some_and(|(_, mask)| match part_of_tag {
        true => mask & of.info().valid != 0,
        false => true,
    });
    if said {
        return Err(ParseError::new(format!("field {key} set multiple times")));
    }
    packet.set(of, value, of.info().valid);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse_packet(text, &Names::default()).unwrap_err().to_string()
    }

    #[test]
    fn a_packets_fields_come_behind_what_they_need() {
        for (text, wrong) in [
            ("nw_src=1.2.3.4", "prerequisites not met for setting nw_src"),
            ("arp,nw_src=1.2.3.4", "prerequisites not met for setting nw_src"),
            ("udp,tp_src=5", "prerequisites not met for setting tp_src"),
            ("udp,tcp_src=5", "prerequisites not met for setting tcp_src"),
            ("ip,udp_src=5,nw_proto=17", "prerequisites not met for setting udp_src"),
            (
                "ip,nw_frag=later,nw_proto=6,tcp_src=4",
                "prerequisites not met for setting tcp_src",
            ),
            ("ipv6,nd_target=::1", "prerequisites not met for setting nd_target"),
            ("mpls_label=4", "prerequisites not met for setting mpls_label"),
            ("ip,eth_type=0x800", "field eth_type set multiple times"),
            ("dl_vlan=4,dl_vlan=4", "field dl_vlan set multiple times"),
            (
                "tun_metadata3=4,tun_metadata3=4",
                "field tun_metadata3 set multiple times",
            ),
            ("foo=3", "unknown field foo"),
            ("priority=3", "unknown field priority"),
            (
                "ip,nw_src=1.2.3.0/24",
                "bad value for nw_src (1.2.3.0/24: wildcards not allowed here)",
            ),
            (
                "tcp,tcp_flags=+syn",
                "bad value for tcp_flags (+syn: wildcards not allowed here)",
            ),
            ("in_port=*", "bad value for in_port (*: wildcards not allowed here)"),
        ] {
            assert_eq!(error(text), wrong, "{text}");
        }
    }

    #[test]
    fn what_is_said_of_a_packet_is_in_its_match() {
        let packet = |text| parse_packet(text, &Names::default()).unwrap();
        let get = |text, field| packet(text).get(field).map(|(value, _)| value);
        assert_eq!(get("tcp,tp_src=5,in_port=3", F::TcpSrc), Some(5));
        assert_eq!(get("tcp,tp_src=5,in_port=3", F::InPortOxm), Some(3));
        assert_eq!(get("icmp6 icmpv6_type=135 nd_target=::1", F::NdTarget), Some(1));
        assert_eq!(get("dl_vlan=5,dl_vlan_pcp=3", F::VlanTci), Some(0x7005));
        assert_eq!(get("dl_vlan_pcp=3", F::VlanTci), Some(0x7000));
        assert_eq!(get("reg0=7,ip,nw_proto=17,udp_dst=0x35", F::UdpDst), Some(53));
        assert_eq!(packet("tun_metadata0=0x102").tun_metadata()[0].value, [1, 2]);
    }
}
