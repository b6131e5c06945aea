//! Reading matches and flows.

use super::action_args::{fits, subfield, wide_load};
use super::action_in::{Reader, Usable};
use super::flow_out::flag;
use super::match_out::PROTOCOLS;
use super::{Names, ParseError, Protocols, field, names, number, parse_port, parse_table, token};
use crate::buf::Writer;
use crate::check::{self, Lacking, Limits};
use crate::model::*;
use crate::{MAX_LEN, OfError, Version};
use flow::{Home, MatchField as F, MatchPrerequisite as P};

/// Allowed contents of a flow's text beside its match.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Fields(u8);

impl Fields {
    const ACTIONS: u8 = 1;
    const TIMEOUT: u8 = 2;
    const PRIORITY: u8 = 4;
    const FLAGS: u8 = 8;
    const OUT: u8 = 16;
    const IMPORTANCE: u8 = 32;
    /// It asks; in every format, requests say the table.
    const ASKS: u8 = 64;

    /// Of requests for statistics.
    pub(super) const REQUEST: Fields = Fields(Fields::OUT | Fields::ASKS);

    const fn of(command: FlowCommand) -> Fields {
        const CHANGE: u8 = Fields::ACTIONS | Fields::TIMEOUT | Fields::PRIORITY | Fields::FLAGS;
        match command {
            FlowCommand::Add => Fields(CHANGE | Fields::IMPORTANCE),
            FlowCommand::Modify | FlowCommand::ModifyStrict => Fields(CHANGE),
            FlowCommand::Delete => Fields(Fields::OUT),
            FlowCommand::DeleteStrict => Fields(Fields::OUT | Fields::PRIORITY),
        }
    }

    const fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }
}

/// Parses a flow for a command: its match, its properties, and behind `actions=` its actions.
/// Leaves out conditions whose prerequisites the match lacks.
///
/// # Errors
/// Error texts are those of `ovs-ofctl`.
pub fn parse_flow(command: FlowCommand, text: &str, names: &Names) -> Result<FlowMod, ParseError> {
    Ok(read(command, Fields::of(command), text, names)?.0)
}

/// Parses a flow as [`parse_flow`] does, checks that its actions suit its match, and returns the
/// flow formats that can carry it.
///
/// # Errors
/// Error texts are those of `ovs-ofctl`.
pub fn parse_flow_usable(command: FlowCommand, text: &str, names: &Names) -> Result<(FlowMod, Protocols), ParseError> {
    let (m, mut usable) = read(command, Fields::of(command), text, names)?;
    if usable.is_empty() {
        return Err(inconsistent_actions());
    }
    let limits = Limits {
        tables: 255,
        ..Limits::default()
    };
    let check = |version| check::explained(version, m.table, &m.matching, &m.instructions, &limits);
    let wrong = |(e, lacking): (OfError, Option<Lacking>)| {
        if let Some(lacking) = lacking {
            names.notices.lacking(lacking);
        }
        let name = e.name();
        ParseError::new(format!("actions are invalid with specified match ({name})"))
    };
    match check(Version::V13) {
        Ok(()) => {}
        Err((OfError::BacMatchInconsistent, _)) if !(usable & Protocols::LENIENT).is_empty() => {
            // Actions of OpenFlow 1.0 are without effect on packets that lack the field.
            check(Version::V10).map_err(wrong)?;
            usable &= Protocols::LENIENT;
        }
        Err(e) => return Err(wrong(e)),
    }
    Ok((m, usable))
}

/// Whether a message cannot hold a rule's actions. An output takes 16 bytes, as in OpenFlow 1.1 and
/// later and in Open vSwitch itself.
fn too_big(m: &FlowMod) -> bool {
    /// Fewer actions are not measured.
    const FEW: usize = 256;
    if m.instructions.apply.len() + m.instructions.write.len() < FEW {
        return false;
    }
    let mut out = Writer::new();
    crate::instruction::encode(&mut out, Version::V13, &m.instructions, &m.matching);
    out.len() > MAX_LEN
}

/// Reads a flow that may say what `allowed` has.
pub(super) fn read(
    command: FlowCommand,
    allowed: Fields,
    text: &str,
    names: &Names,
) -> Result<(FlowMod, Protocols), ParseError> {
    let (fields, actions) = match allowed.has(Fields::ACTIONS) {
        true => split_actions(text),
        false => (text, None),
    };
    if allowed.has(Fields::ACTIONS) && actions.is_none() {
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
        if let Some(set) = flag(pair.key).filter(|_| allowed.has(Fields::FLAGS)) {
            m.flags = m.flags.with(set);
            match set {
                FlowFlags::RESET_COUNTS => conditions.usable.only(Protocols::since(Version::V12)),
                FlowFlags::NO_PACKET_COUNTS | FlowFlags::NO_BYTE_COUNTS => {
                    conditions.usable.only(Protocols::since(Version::V13));
                }
                _ => {}
            }
            continue;
        }
        let value = pair.value;
        match pair.key {
            // Of a switch's own, for its tests.
            "no_readonly_table" | "allow_hidden_fields" => {}
            key if value.is_empty() => return Err(ParseError::new(format!("field {key} missing value"))),
            "table" => m.table = Some(parse_table(value, names)?).filter(|t| *t != 255),
            "priority" if allowed.has(Fields::PRIORITY) => m.priority = number::named(value, "priority")?,
            "idle_timeout" if allowed.has(Fields::TIMEOUT) => m.idle_timeout = number::named(value, "idle_timeout")?,
            "hard_timeout" if allowed.has(Fields::TIMEOUT) => m.hard_timeout = number::named(value, "hard_timeout")?,
            "importance" if allowed.has(Fields::IMPORTANCE) => m.importance = number::named(value, "importance")?,
            "cookie" => cookie(&mut m, allowed, value)?,
            "out_port" if allowed.has(Fields::OUT) => {
                let found = parse_port(value, names);
                m.out_port = found.ok_or_else(|| ParseError::new(format!("{value} is not a valid OpenFlow port")))?;
            }
            "out_group" if allowed.has(Fields::OUT) => {
                m.out_group = out_group(value)?;
                conditions.usable.only(Protocols::since(Version::V11));
            }
            "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age" => {}
            key => return Err(ParseError::new(format!("unknown keyword {key}"))),
        }
    }
    let usable = std::mem::take(&mut conditions.usable);
    let (matching, asked) = conditions.finish(names);
    m.matching = matching;
    if m.table.is_some() && !allowed.has(Fields::ASKS) {
        usable.only(Protocols::TABLE);
    }
    if m.cookie_mask != 0 {
        usable.only(Protocols::METADATA);
    }
    if let Some(actions) = actions {
        m.instructions = Reader::new(names, &usable).instructions(actions)?;
        if too_big(&m) {
            return Err(ParseError::new("input too big"));
        }
    }
    restrict(&usable, &m.matching);
    names.notices.tell(asked, &m.matching);
    Ok((m, usable.get()))
}

/// No flow format can carry the match, or none can carry both the match and the actions.
fn inconsistent_actions() -> ParseError {
    ParseError::new("actions are invalid with specified match (OFPBAC_MATCH_INCONSISTENT)")
}

/// Removes the flow formats that cannot carry the whole match, or the actions on it.
fn restrict(usable: &Usable, matching: &Match) {
    if matching.eth_type() == Some(0x86dd) {
        // OpenFlow 1.0 and 1.1 know IPv6 by its type only.
        let beyond = [F::NwProto, F::NwTos, F::NwEcn];
        if beyond.into_iter().any(|field| matching.get(field).is_some()) {
            usable.only(Protocols::EXTENSIBLE);
        }
    }
    if usable.tagged() && !matching.meets(flow::MatchPrerequisite::VlanVid) {
        usable.only(Protocols::LENIENT);
    }
}

/// Parses a match alone.
///
/// # Errors
/// Error texts are those of `ovs-ofctl`.
pub fn parse_match(text: &str, names: &Names) -> Result<Match, ParseError> {
    let mut conditions = Conditions::default();
    let mut rest = text;
    while let Some(pair) = token::next(&mut rest) {
        if conditions.take(&pair, names)? {
            continue;
        }
        return Err(ParseError::new(match pair.value.is_empty() {
            true => format!("field {} missing value", pair.key),
            false => format!("unknown keyword {}", pair.key),
        }));
    }
    let (matching, asked) = conditions.finish(names);
    names.notices.tell(asked, &matching);
    Ok(matching)
}

/// The text before the first `action`, and the text behind the next `=`.
pub(super) fn split_actions(text: &str) -> (&str, Option<&str>) {
    let starts = |at: &usize| text.as_bytes()[*at..].starts_with(b"action");
    match (0..text.len()).filter(|at| text.as_bytes()[*at] == b'a').find(starts) {
        Some(at) => (&text[..at], text[at..].split_once('=').map(|(_, actions)| actions)),
        None => (text, None),
    }
}

/// A cookie, which with a mask asks for rules, and without is the new one; commands that add no
/// rule ask with both.
fn cookie(m: &mut FlowMod, allowed: Fields, text: &str) -> Result<(), ParseError> {
    match text.split_once('/') {
        Some(_) if m.command == FlowCommand::Add => {
            return Err(ParseError::new("flow additions cannot use a cookie mask"));
        }
        Some((value, mask)) => {
            m.cookie_mask = number::u64(mask)?;
            m.cookie = number::u64(value)? & m.cookie_mask;
        }
        None if !allowed.has(Fields::ACTIONS) => {
            return Err(ParseError::new(format!(
                "cannot set cookie (to match on a cookie, specify a mask, e.g. cookie={text}/-1)"
            )));
        }
        // All ones leave that of a rule that there is.
        None => {
            let added = m.command == FlowCommand::Add;
            m.new_cookie = Some(number::u64(text)?).filter(|cookie| added || *cookie != u64::MAX);
        }
    }
    Ok(())
}

/// A group that rules send to: a number, `any` or `all`.
fn out_group(text: &str) -> Result<u32, ParseError> {
    if text.eq_ignore_ascii_case("any") {
        return Ok(ANY_GROUP);
    }
    if text.eq_ignore_ascii_case("all") {
        return Ok(ALL_GROUPS);
    }
    let number = number::u32(text);
    number.map_err(|_| ParseError::new(format!("{text} is not a valid OpenFlow group")))
}

/// A match as far as it is read.
#[derive(Default)]
pub(super) struct Conditions {
    matching: Match,
    /// In which flow formats it can be said.
    pub(super) usable: Usable,
    /// Addresses and numbers of IPv4 or ARP, which only the Ethernet type distinguishes, in the
    /// order of the text.
    later: [Option<Condition>; 7],
    /// Number of such conditions.
    came: u8,
}

/// A condition's position in the text, its value and its mask.
type Condition = (u8, u128, u128);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Later {
    NwSrc,
    NwDst,
    NwProto,
    TpSrc,
    TpDst,
    Type,
    Code,
}

/// All of them.
const KINDS: [Later; 7] = [
    Later::NwSrc,
    Later::NwDst,
    Later::NwProto,
    Later::TpSrc,
    Later::TpDst,
    Later::Type,
    Later::Code,
];

impl Conditions {
    /// Takes a pair if it is about the match.
    pub(super) fn take(&mut self, pair: &token::Pair<'_>, names: &Names) -> Result<bool, ParseError> {
        let key = pair.key;
        if key == "eth" {
            self.matching.set(F::PacketType, 0, u128::from(u32::MAX));
            return Ok(true);
        }
        if key == "pbb" {
            self.matching.set(F::EthType, 0x88e7, 0xffff);
            return Ok(true);
        }
        if let Some((kind, proto, _)) = PROTOCOLS.iter().find(|(.., name)| *name == key) {
            self.matching.set(F::EthType, *kind, 0xffff);
            if let Some(proto) = proto {
                self.matching.set(F::NwProto, *proto, 0xff);
            }
            return Ok(true);
        }
        // Identifiers in capitals are names of parts of fields only.
        let named = || names::field(key);
        let Some(of) = named().or_else(|| self.other_name(key)) else {
            return match key.contains('[') {
                true => self.part(key, pair.value),
                false => Ok(false),
            };
        };
        // Without a value, no bit counts.
        let any = pair.value.is_empty() || pair.value == "*" && of.info().home == Home::Elsewhere;
        let text = if any { "0/0" } else { pair.value };
        if key == "dl_vlan" && number::unsigned(text) == Some(0xffff) {
            self.matching.set(F::VlanTci, 0, 0xffff);
            return Ok(true);
        }
        let parsed = field::parse(of, text, names)?;
        let Some((value, mask)) = parsed else {
            return Ok(true);
        };
        match (value, mask) {
            (Value::Word(value), mask) => {
                let mask = match mask {
                    Some(Value::Word(mask)) => mask,
                    _ => of.info().valid,
                };
                if mask != 0 {
                    self.sayable(of, mask)?;
                }
                self.set(of, key, value & mask & of.info().valid, mask);
            }
            (value, mask) => self.take_wide(of, &value, mask.as_ref(), text)?,
        }
        Ok(true)
    }

    /// Notes in which flow formats a field can be matched so.
    fn sayable(&self, of: F, mask: u128) -> Result<(), ParseError> {
        let protocols = Protocols::matching(of, Some(mask));
        self.usable.only(protocols);
        match protocols.is_empty() {
            true => Err(inconsistent_actions()),
            false => Ok(()),
        }
    }

    /// Takes a condition on a tunnel metadata field.
    fn take_wide(&mut self, of: F, value: &Value, mask: Option<&Value>, text: &str) -> Result<(), ParseError> {
        let (Value::Wide(value), number) = (value, of as u8 - F::TunMetadata0 as u8) else {
            return Ok(());
        };
        self.usable.only(Protocols::EXTENSIBLE);
        let mask = match mask {
            Some(Value::Wide(mask)) => Some(&mask[..]),
            _ => None,
        };
        let value: Vec<u8> = match mask {
            Some(mask) => value.iter().zip(mask).map(|(v, m)| v & m).collect(),
            None => value.clone(),
        };
        self.matching.clear_tun_metadata(number);
        let added = self.matching.add_tun_metadata(number, &value, mask);
        added.map_err(|e| ParseError::new(format!("{text}: {e}")))
    }

    /// Takes a condition on some bits of a field.
    fn part(&mut self, key: &str, text: &str) -> Result<bool, ParseError> {
        let part = subfield(key)?;
        let whole = part.field().bytes() * 8;
        let Some(number) = number::wide(text).filter(|n| fits(*n, whole)) else {
            return Err(ParseError::new(format!("{key}: cannot parse integer value: {text}")));
        };
        let bits = u32::from(part.n_bits());
        if !fits(number, bits as usize) {
            return Err(ParseError::new(format!(
                "{key}: value {number:#x} does not fit into {bits} bits"
            )));
        }
        let of = part.field();
        if of.info().home == Home::Elsewhere && part.is_whole() {
            let Some((value, _)) = field::parse(of, text, &Names::default())? else {
                return Ok(true);
            };
            self.take_wide(of, &value, None, text)?;
            return Ok(true);
        }
        if of.info().home == Home::Elsewhere {
            let Action::SetField { value, mask, .. } = wide_load(part, number) else {
                return Ok(true);
            };
            self.take_wide(of, &value, mask.as_ref(), text)?;
            return Ok(true);
        }
        let mask = u128::MAX >> (128 - bits);
        let (old_value, old_mask) = self.matching.get(of).unwrap_or((0, 0));
        let (value, mask) = (number << part.ofs(), mask << part.ofs());
        self.sayable(of, mask)?;
        self.set(of, key, old_value & !mask | value, old_mask | mask);
        Ok(true)
    }

    /// Names that belong to no field: those of tunnels in printed matches.
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
        self.later[later as usize] = Some((self.came, value, mask));
        self.came = self.came.saturating_add(1);
    }

    /// The match, with each condition on the field of the packets' protocol, and the requested
    /// match if that may have had more.
    pub(super) fn finish(mut self, names: &Names) -> (Match, Option<Match>) {
        // The protocol comes first: the others go by it.
        let first = self.later[Later::NwProto as usize].map(|(order, ..)| order);
        let rest = (0..self.came).filter(|order| Some(*order) != first);
        for order in first.into_iter().chain(rest) {
            let found = KINDS.iter().find_map(|kind| match self.later[*kind as usize] {
                Some((came, value, mask)) if came == order => Some((*kind, value, mask)),
                _ => None,
            });
            let Some((later, value, mask)) = found else { continue };
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
        let mut matching = self.matching;
        let asked = names.notices.before(&matching);
        // Conditions without their prerequisites are left out if OpenFlow 1.0 had the field; the
        // switch refuses the others.
        let newer = |entry: &&Entry| {
            let needs = entry.field.info().prerequisite;
            matches!(needs, P::Ct | P::CtIpv4 | P::CtIpv6 | P::Nsh | P::Pbb)
        };
        let newer: Vec<Entry> = matching.entries().iter().filter(newer).copied().collect();
        matching.normalize();
        for entry in newer {
            matching.set(entry.field, entry.value, entry.mask);
        }
        if matching.get(F::PacketType) == Some((0, u128::from(u32::MAX))) {
            // Ethernet goes without saying.
            matching.clear(F::PacketType);
        }
        (matching, asked)
    }
}
