//! Reading matches and flows.

use super::action_in::parse_instructions;
use super::flow_out::flag;
use super::match_out::PROTOCOLS;
use super::{Names, ParseError, field, number, parse_port, parse_table, token};
use crate::model::*;
use flow::{Home, MatchField as F};

/// Reads a flow, for a command: its match, its properties, and behind `actions=` what it does. Conditions that speak of what the packets need not
/// have are left out.
///
/// # Errors
/// What is wrong, in the words of `ovs-ofctl`.
pub fn parse_flow(command: FlowCommand, text: &str, names: &Names) -> Result<FlowMod, ParseError> {
    let changes = (command as u8) < 3;
    let (fields, actions) = split_actions(text);
    if changes && actions.is_none() {
        return Err(ParseError::new("must specify an action"));
    }
    let mut m = FlowMod {
        command,
        ..FlowMod::default()
    };
    let mut conditions = Conditions::default();
    let mut rest = fields;
    while let Some(pair) = token::next(&mut rest) {
        if conditions.take(&pair, names)? {
            continue;
        }
        if let Some(set) = flag(pair.key).filter(|_| changes) {
            m.flags = m.flags.with(set);
            continue;
        }
        if !pair.given {
            return Err(ParseError::new(format!("field {} missing value", pair.key)));
        }
        let value = pair.value;
        match pair.key {
            "table" => m.table = Some(parse_table(value, names)?),
            "priority" => m.priority = number::named(value, "priority")?,
            "idle_timeout" if changes => m.idle_timeout = number::named(value, "idle_timeout")?,
            "hard_timeout" if changes => m.hard_timeout = number::named(value, "hard_timeout")?,
            "importance" if changes => m.importance = number::named(value, "importance")?,
            "cookie" => cookie(&mut m, value)?,
            "out_port" if !changes => {
                let found = parse_port(value, names);
                m.out_port = found.ok_or_else(|| ParseError::new(format!("{value} is not a valid OpenFlow port")))?;
            }
            "out_group" if !changes => {
                m.out_group = match value {
                    "any" | "ANY" => ANY_GROUP,
                    _ => number::u32(value)?,
                }
            }
            "check_overlap" | "send_flow_rem" | "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age" => {}
            key => return Err(ParseError::new(format!("unknown keyword {key}"))),
        }
    }
    m.matching = conditions.finish();
    if let Some(actions) = actions.filter(|_| changes) {
        m.instructions = parse_instructions(actions, names)?;
    }
    Ok(m)
}

/// Reads a match alone.
///
/// # Errors
/// What is wrong, in the words of `ovs-ofctl`.
pub fn parse_match(text: &str, names: &Names) -> Result<Match, ParseError> {
    let mut conditions = Conditions::default();
    let mut rest = text;
    while let Some(pair) = token::next(&mut rest) {
        if conditions.take(&pair, names)? {
            continue;
        }
        return Err(ParseError::new(match pair.given {
            false => format!("field {} missing value", pair.key),
            true => format!("unknown keyword {}", pair.key),
        }));
    }
    Ok(conditions.finish())
}

/// The text before the actions, and theirs.
fn split_actions(text: &str) -> (&str, Option<&str>) {
    for word in ["actions", "action"] {
        let mut from = 0;
        while let Some(at) = text[from..].find(word) {
            let at = from + at;
            let behind = &text[at + word.len()..];
            let begins = at == 0 || text[..at].ends_with([',', ' ', '\t']);
            if begins && let Some(actions) = behind.strip_prefix('=') {
                return (&text[..at], Some(actions));
            }
            from = at + word.len();
        }
    }
    (text, None)
}

/// A cookie, which with a mask asks for rules, and without is the new one; commands that add no rule ask with both.
fn cookie(m: &mut FlowMod, text: &str) -> Result<(), ParseError> {
    match text.split_once('/') {
        Some(_) if m.command == FlowCommand::Add => {
            return Err(ParseError::new("cannot set cookie with mask on new flows"));
        }
        Some((value, mask)) => {
            m.cookie_mask = number::u64(mask)?;
            m.cookie = number::u64(value)? & m.cookie_mask;
        }
        None if matches!(m.command, FlowCommand::Delete | FlowCommand::DeleteStrict) => {
            return Err(ParseError::new("cannot set cookie (use cookie/-1 to match on cookie)"));
        }
        None => m.new_cookie = Some(number::u64(text)?),
    }
    Ok(())
}

/// A match as far as it is read.
#[derive(Default)]
struct Conditions {
    matching: Match,
    /// Addresses and numbers of IPv4 or ARP, which only the Ethernet type tells apart; in the order in which they came.
    later: Vec<(Later, u128, u128)>,
}

#[derive(Clone, Copy)]
enum Later {
    NwSrc,
    NwDst,
    NwProto,
    TpSrc,
    TpDst,
    Type,
    Code,
}

impl Conditions {
    /// Takes a pair if it is about the match.
    fn take(&mut self, pair: &token::Pair<'_>, names: &Names) -> Result<bool, ParseError> {
        let key = pair.key;
        if key == "eth" {
            self.matching.set(F::PacketType, 0, u128::from(u32::MAX));
            return Ok(true);
        }
        if let Some((kind, proto, _)) = PROTOCOLS.iter().find(|(.., name)| *name == key) {
            self.matching.set(F::EthType, *kind, 0xffff);
            if let Some(proto) = proto {
                self.matching.set(F::NwProto, *proto, 0xff);
            }
            return Ok(true);
        }
        let Some(of) = F::from_name(key).or_else(|| self.other_name(key)) else {
            return Ok(false);
        };
        if !pair.given && of.info().home != Home::Elsewhere {
            // As any value: nothing is said of a field.
            return Ok(true);
        }
        if key == "dl_vlan" && number::unsigned(pair.value) == Some(0xffff) {
            self.matching.set(F::VlanTci, 0, 0xffff);
            return Ok(true);
        }
        let Some((value, mask)) = field::parse(of, pair.value, names)? else {
            return Ok(true);
        };
        match (value, mask) {
            (Value::Word(value), mask) => {
                let mask = match mask {
                    Some(Value::Word(mask)) => mask,
                    _ => of.info().valid,
                };
                self.set(of, key, value & mask & of.info().valid, mask);
            }
            (Value::Wide(value), mask) => {
                let number = of as u8 - F::TunMetadata0 as u8;
                let mask = match &mask {
                    Some(Value::Wide(mask)) => Some(&mask[..]),
                    _ => None,
                };
                let value: Vec<u8> = match mask {
                    Some(mask) => value.iter().zip(mask).map(|(v, m)| v & m).collect(),
                    None => value,
                };
                self.matching.clear_tun_metadata(number);
                self.matching
                    .add_tun_metadata(number, &value, mask)
                    .map_err(|e| ParseError::new(format!("{}: {e}", pair.value)))?;
            }
        }
        Ok(true)
    }

    /// Names that are no field's: those of tunnels in printed matches.
    fn other_name(&self, key: &str) -> Option<F> {
        match key {
            "gtpu_flags" => Some(F::TunGtpuFlags),
            "gtpu_msgtype" => Some(F::TunGtpuMsgtype),
            _ => None,
        }
    }

    fn set(&mut self, of: F, key: &str, value: u128, mask: u128) {
        let later = match (of, key) {
            (F::IpSrc, _) => Later::NwSrc,
            (F::IpDst, _) => Later::NwDst,
            (F::NwProto, _) => Later::NwProto,
            (F::TcpSrc | F::UdpSrc | F::SctpSrc, _) => Later::TpSrc,
            (F::TcpDst | F::UdpDst | F::SctpDst, _) => Later::TpDst,
            (F::IcmpType | F::Icmpv6Type, _) => Later::Type,
            (F::IcmpCode | F::Icmpv6Code, _) => Later::Code,
            _ => {
                self.matching.set(of, value, mask);
                return;
            }
        };
        self.later.push((later, value, mask));
    }

    /// The match, in which every condition is about the field of the packets' protocol.
    fn finish(mut self) -> Match {
        // The protocol comes first: the others go by it.
        self.later.sort_by_key(|(later, ..)| !matches!(later, Later::NwProto));
        for (later, value, mask) in self.later {
            let kind = self.matching.eth_type();
            let arp = matches!(kind, Some(0x0806 | 0x8035));
            let proto = self.matching.exact(F::NwProto);
            let six = kind == Some(0x86dd);
            let field = match later {
                Later::NwSrc if arp => F::ArpSpa,
                Later::NwSrc => F::IpSrc,
                Later::NwDst if arp => F::ArpTpa,
                Later::NwDst => F::IpDst,
                Later::NwProto if arp => F::ArpOp,
                Later::NwProto => F::NwProto,
                Later::TpSrc => match proto {
                    Some(17) => F::UdpSrc,
                    Some(132) => F::SctpSrc,
                    Some(1) => F::IcmpType,
                    Some(58) => F::Icmpv6Type,
                    _ => F::TcpSrc,
                },
                Later::TpDst => match proto {
                    Some(17) => F::UdpDst,
                    Some(132) => F::SctpDst,
                    Some(1) => F::IcmpCode,
                    Some(58) => F::Icmpv6Code,
                    _ => F::TcpDst,
                },
                Later::Type if six => F::Icmpv6Type,
                Later::Type => F::IcmpType,
                Later::Code if six => F::Icmpv6Code,
                Later::Code => F::IcmpCode,
            };
            let mask = if field == F::ArpOp { 0xffff } else { mask };
            self.matching.set(field, value, mask);
        }
        let mut matching = self.matching.normalized();
        if matching.get(F::PacketType) == Some((0, u128::from(u32::MAX))) {
            // Ethernet goes without saying.
            matching.clear(F::PacketType);
        }
        matching
    }
}
