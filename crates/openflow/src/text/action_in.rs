//! Reading actions and instructions.

use super::action_args::{
    check_pkt_larger, conjunction, decap, encap, ethertype, fin_timeout, ipv4, load, mac, metadata, movement,
    multipath, note, subfield, value_arrow, writable,
};
use super::field;
use super::port_args::{bad_out_port, never_a_port};
use super::token::{self, Pair};
use super::{Names, ParseError, Protocols, ct_in, learn_in, number, parse_port, parse_table};
use crate::Version;
use crate::model::*;
use flow::{Home, MatchField as F};
use std::cell::Cell;
use wire::EtherType;

/// Maximum nesting of actions.
const MAX_DEPTH: u8 = 16;

pub(super) type Parsed<T> = Result<T, ParseError>;

pub(super) fn error<T>(message: impl Into<String>) -> Parsed<T> {
    Err(ParseError::new(message))
}

/// Parses a list of actions; `drop` and an empty text are the empty list.
///
/// # Errors
/// Error texts are those of `ovs-ofctl`.
pub fn parse_actions(text: &str, names: &Names) -> Result<Vec<Action>, ParseError> {
    Reader::new(names, &Usable::default()).actions(text)
}

/// Parses a rule's actions and, in their order, instructions.
///
/// # Errors
/// Error texts are those of `ovs-ofctl`.
pub fn parse_instructions(text: &str, names: &Names) -> Result<Instructions, ParseError> {
    Reader::new(names, &Usable::default()).instructions(text)
}

/// The flow formats that can carry the parsed actions.
pub(super) struct Usable {
    protocols: Cell<Protocols>,
    /// Whether an action changes a tag that the packet must have.
    tagged: Cell<bool>,
}

impl Default for Usable {
    fn default() -> Usable {
        Usable {
            protocols: Cell::new(Protocols::ANY),
            tagged: Cell::new(false),
        }
    }
}

impl Usable {
    /// Only these can.
    pub(super) fn only(&self, protocols: Protocols) {
        self.protocols.set(self.protocols.get() & protocols);
    }

    pub(super) fn get(&self) -> Protocols {
        self.protocols.get()
    }

    /// Whether the actions need packets with a tag.
    pub(super) fn tagged(&self) -> bool {
        self.tagged.get()
    }
}

/// Context for parsing actions.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) names: &'a Names,
    pub(super) usable: &'a Usable,
    /// Whether this is the action list of a `ct` action.
    in_ct: bool,
    depth: u8,
}

/// The instructions, in the order that OpenFlow carries them out.
const ORDER: [&str; 6] = [
    "meter",
    "apply_actions",
    "clear_actions",
    "write_actions",
    "write_metadata",
    "goto_table",
];

impl<'a> Reader<'a> {
    pub(super) fn new(names: &'a Names, usable: &'a Usable) -> Reader<'a> {
        Reader {
            names,
            usable,
            in_ct: false,
            depth: 0,
        }
    }

    /// For a list within an action.
    pub(super) fn deeper(&self) -> Parsed<Reader<'a>> {
        match self.depth < MAX_DEPTH {
            true => Ok(Reader {
                depth: self.depth + 1,
                ..*self
            }),
            false => error("Action nested too deeply"),
        }
    }

    /// The list within an action, in which no meter may be.
    fn nested(&self, outer: &str, text: &str) -> Parsed<Vec<Action>> {
        let actions = self.deeper()?.actions(text)?;
        if actions.iter().any(|a| matches!(a, Action::WriteMetadata { .. })) {
            return error("write_metadata instruction not allowed here");
        }
        match actions.iter().any(|a| matches!(a, Action::Meter(_))) {
            true => error(format!("{outer} action doesn't support nested action meter")),
            false => Ok(actions),
        }
    }

    /// For the action list of a `ct` action.
    pub(super) fn of_connection(&self) -> Parsed<Reader<'a>> {
        Ok(Reader {
            in_ct: true,
            ..self.deeper()?
        })
    }

    pub(super) fn actions(&self, text: &str) -> Parsed<Vec<Action>> {
        let mut actions = Vec::new();
        let mut dropped = false;
        let mut rest = text;
        while let Some(pair) = token::next(&mut rest) {
            if pair.key == "drop" {
                dropped = true;
                continue;
            }
            if let Some(name) = ORDER
                .iter()
                .find(|n| **n == pair.key && !matches!(**n, "meter" | "write_metadata"))
            {
                return error(format!("{name} instruction not allowed here"));
            }
            let action = self.checked(&pair)?;
            match &action {
                Action::Meter(_) => self.usable.only(Protocols::OF15),
                _ => self.tag(&pair, &action, &actions),
            }
            actions.push(action);
        }
        match dropped && !actions.is_empty() {
            true => error("\"drop\" must not be accompanied by any other action or instruction"),
            false => Ok(actions),
        }
    }

    pub(super) fn instructions(&self, text: &str) -> Parsed<Instructions> {
        let mut result = Instructions::default();
        let (mut dropped, mut any) = (false, false);
        let mut last = 0;
        let mut rest = text;
        while let Some(pair) = token::next(&mut rest) {
            if pair.key == "drop" {
                dropped = true;
                continue;
            }
            any = true;
            let name = ORDER.iter().position(|name| *name == pair.key).unwrap_or(1);
            if name < last {
                return error(format!(
                    "invalid instruction ordering: {} must appear before {}, for OpenFlow 1.1+ compatibility",
                    ORDER[name], ORDER[last]
                ));
            }
            if name == last && name != 1 && (name != 0 || result.meter.is_some()) {
                return error(format!(
                    "duplicate {} instruction not allowed, for OpenFlow 1.1+ compatibility",
                    pair.key
                ));
            }
            last = name;
            match (name, pair.key) {
                (0, _) => {
                    result.meter = Some(number::u32(pair.value)?);
                    self.usable.only(Protocols::since(Version::V13));
                }
                (1, "apply_actions") => return error("apply_actions is the default instruction"),
                (1, _) => {
                    let action = self.checked(&pair)?;
                    self.tag(&pair, &action, &result.apply);
                    result.apply.push(action);
                }
                (2, _) => result.clear = true,
                (3, _) => result.write = self.nested("write_actions", pair.value)?,
                (4, _) => {
                    result.metadata = Some(metadata(pair.value)?);
                    self.usable.only(Protocols::METADATA);
                }
                _ => result.goto = Some(parse_table(pair.value, self.names)?),
            }
        }
        if let Some(name) = result.beside_conjunction() {
            return error(format!(
                "\"conjunction\" actions may be used along with \"note\" but not any other kind of action (such as the \"{name}\" \
                 action used here)"
            ));
        }
        match dropped && any {
            true => error("\"drop\" must not be accompanied by any other action or instruction"),
            false => Ok(result),
        }
    }

    /// Notes that an action of OpenFlow 1.1 changes a tag, which no action before it has put on.
    fn tag(&self, pair: &Pair<'_>, action: &Action, before: &[Action]) {
        if matches!(action, Action::SetVlanVid(_) | Action::SetVlanPcp(_)) && pair.key.starts_with("set_vlan") {
            let puts = |a: &Action| matches!(a, Action::PushVlan(_) | Action::SetVlanVid(_) | Action::SetVlanPcp(_));
            if !before.iter().any(puts) {
                self.usable.tagged.set(true);
            }
        }
    }

    /// An action that is allowed at its place.
    fn checked(&self, pair: &Pair<'_>) -> Parsed<Action> {
        let action = self.action(pair)?;
        let set = match &action {
            _ if self.in_ct => None,
            Action::Nat(_) => return error("Cannot have NAT action outside of \"ct\" action"),
            Action::SetField { field, .. } => Some(*field),
            Action::Load { dst, .. } | Action::Move { dst, .. } => Some(dst.field()),
            _ => None,
        };
        match set {
            Some(F::CtMark | F::CtLabel) => error("cannot set CT fields outside of ct action"),
            _ => Ok(action),
        }
    }

    fn action(&self, pair: &Pair<'_>) -> Parsed<Action> {
        let value = pair.value;
        Ok(match pair.key {
            "output" => return self.output(value),
            "controller" | "CONTROLLER" => Action::Controller(self.controller(value)?).simple(),
            "enqueue" => return self.enqueue(value),
            "bundle" => return self.bundle(value, false),
            "bundle_load" => return self.bundle(value, true),
            "group" => Action::Group(number::u32(value)?),
            "strip_vlan" => Action::StripVlan,
            "pop_vlan" => Action::PopVlan,
            "push_vlan" => {
                self.usable.only(Protocols::since(Version::V11));
                Action::PushVlan(ethertype(value, &[EtherType::VLAN.0, EtherType::QINQ.0], "VLAN")?)
            }
            "push_mpls" => Action::PushMpls(number::named(value, "push_mpls")?),
            "pop_mpls" => Action::PopMpls(number::named(value, "pop_mpls")?),
            "push_pbb" | "pop_pbb" => {
                self.usable.only(Protocols::since(Version::V13));
                match pair.key {
                    "push_pbb" => Action::PushPbb(ethertype(value, &[0x88e7], "PBB")?),
                    _ => Action::PopPbb,
                }
            }
            "mod_vlan_vid" | "set_vlan_vid" => match number::named(value, "VLAN VID")? {
                vid @ 0..=0xfff => Action::SetVlanVid(vid),
                _ => return error(format!("{value}: not a valid VLAN VID")),
            },
            "mod_vlan_pcp" | "set_vlan_pcp" => match number::named(value, "VLAN PCP")? {
                pcp @ 0..=7 => Action::SetVlanPcp(pcp),
                _ => return error(format!("{value}: not a valid VLAN PCP")),
            },
            "mod_dl_src" => Action::SetEthSrc(mac(value)?),
            "mod_dl_dst" => Action::SetEthDst(mac(value)?),
            "mod_nw_src" => Action::SetIpv4Src(ipv4(value)?),
            "mod_nw_dst" => Action::SetIpv4Dst(ipv4(value)?),
            "mod_nw_tos" => match number::named::<u8>(value, "TOS")? {
                tos if tos & 3 == 0 => Action::SetTos(tos),
                _ => return error(format!("{value}: not a valid TOS")),
            },
            "mod_nw_ecn" => match number::named(value, "ECN")? {
                ecn @ 0..=3 => Action::SetEcn(ecn),
                _ => return error(format!("{value}: not a valid ECN")),
            },
            "mod_nw_ttl" => Action::SetTtl(number::named(value, "TTL")?),
            "mod_tp_src" => Action::SetTpSrc(number::named(value, "source port")?),
            "mod_tp_dst" => Action::SetTpDst(number::named(value, "destination port")?),
            "dec_ttl" if !pair.given || value.is_empty() => Action::DecTtl(vec![0]),
            "dec_ttl" => {
                let ids = token::parts(value).into_iter();
                Action::DecTtl(
                    ids.map(|id| number::named(id, "controller id"))
                        .collect::<Result<_, _>>()?,
                )
            }
            "set_mpls_label" => match number::u32(value)? {
                label @ 0..=0xf_ffff => Action::SetMplsLabel(label),
                _ => return error(format!("{value}: not a valid MPLS label")),
            },
            "set_mpls_tc" => match number::named(value, "MPLS TC")? {
                tc @ 0..=7 => Action::SetMplsTc(tc),
                _ => return error(format!("{value}: not a valid MPLS TC")),
            },
            "set_mpls_ttl" => Action::SetMplsTtl(number::named(value, "MPLS TTL")?),
            "dec_mpls_ttl" => Action::DecMplsTtl,
            "copy_ttl_in" | "copy_ttl_out" => {
                self.usable.only(Protocols::since(Version::V11));
                match pair.key {
                    "copy_ttl_in" => Action::CopyTtlIn,
                    _ => Action::CopyTtlOut,
                }
            }
            "dec_nsh_ttl" => Action::DecNshTtl,
            "debug_recirc" => Action::DebugRecirc,
            "debug_slow" => Action::DebugSlow,
            "move" => return movement(value),
            "load" => return load(value),
            "set_field" => return self.set_field(value),
            "push" => Action::Push(subfield(value)?),
            "pop" => Action::Pop(writable(subfield(value)?)?),
            "delete_field" => match F::from_name(value) {
                Some(f) if f.info().home == Home::Elsewhere => Action::DeleteField(f),
                Some(_) => return error("actions are invalid with specified match (OFPBAC_BAD_ARGUMENT)"),
                None => return error(format!("unknown field `{value}'")),
            },
            "set_tunnel" => {
                let id = number::u64(value)?;
                let wide = id > u64::from(u32::MAX);
                Action::SetTunnel { id, wide }
            }
            "set_tunnel64" => Action::SetTunnel {
                id: number::u64(value)?,
                wide: true,
            },
            "set_queue" => Action::SetQueue(number::u32(value)?),
            "pop_queue" => Action::PopQueue,
            "fin_timeout" => return fin_timeout(value),
            "resubmit" => return self.resubmit(value),
            "learn" => Action::Learn(Box::new(learn_in::parse(self, value)?)),
            "conjunction" => return conjunction(value),
            "multipath" => return multipath(value),
            "note" => Action::Note(note(value)?),
            "exit" => Action::Exit,
            "sample" => return self.sample(value),
            "ct" => Action::Ct(Box::new(ct_in::parse(self, value)?)),
            "nat" => Action::Nat(ct_in::parse_nat(pair.given.then_some(value))?),
            "ct_clear" => Action::CtClear,
            "clone" => Action::Clone(self.nested("clone", value)?),
            "check_pkt_larger" => return check_pkt_larger(value, pair.tail),
            "encap" => {
                self.usable.only(Protocols::since(Version::V13));
                return encap(value);
            }
            "decap" => Action::Decap(decap(value)?),
            "meter" => Action::Meter(number::u32(value)?),
            "write_metadata" => {
                let (value, mask) = metadata(value)?;
                self.usable.only(Protocols::METADATA);
                Action::WriteMetadata { value, mask }
            }
            key => match parse_port(key, self.names) {
                Some(Port::CONTROLLER) => Action::Controller(self.controller(value)?).simple(),
                Some(port) => output(port),
                None if never_a_port(key) => return Err(bad_out_port()),
                None => return error(format!("unknown action {key}")),
            },
        })
    }

    pub(super) fn port(&self, text: &str) -> Option<Port> {
        parse_port(text, self.names)
    }

    fn resubmit(&self, text: &str) -> Parsed<Action> {
        let mut parts = text.split(',').map(str::trim);
        let (in_port, number, ct) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""), parts.next());
        let ct = match ct {
            None => false,
            Some("ct") => true,
            Some(other) => return error(format!("{other}: unknown parameter")),
        };
        let in_port = match in_port {
            "" => Port::IN_PORT,
            name => match self.port(name) {
                Some(port) => port,
                None => return error(format!("{name}: resubmit to unknown port")),
            },
        };
        let table = match number {
            "" => 255,
            number => match parse_table(number, self.names) {
                Ok(table) => table,
                Err(_) => return error(format!("{number}: resubmit to unknown table")),
            },
        };
        if in_port == Port::IN_PORT && table == 255 {
            return error("at least one \"in_port\" or \"table\" must be specified on resubmit");
        }
        Ok(Action::Resubmit { in_port, table, ct })
    }

    fn sample(&self, text: &str) -> Parsed<Action> {
        let mut s = Sample {
            probability: 0,
            collector_set_id: 0,
            obs_domain_id: 0,
            obs_point_id: 0,
            sampling_port: Port::ANY,
            direction: SampleDirection::Default,
        };
        let mut rest = text;
        while let Some(pair) = token::next(&mut rest) {
            let value = pair.value;
            match pair.key {
                "probability" => match number::named(value, "probability")? {
                    0 => return error("invalid probability value \"0\""),
                    probability => s.probability = probability,
                },
                "collector_set_id" => s.collector_set_id = number::u32(value)?,
                "obs_domain_id" => s.obs_domain_id = number::u32(value)?,
                "obs_point_id" => s.obs_point_id = number::u32(value)?,
                "sampling_port" => match self.port(value) {
                    Some(port) => s.sampling_port = port,
                    None => return error(format!("{value}: unknown port")),
                },
                "ingress" => s.direction = SampleDirection::Ingress,
                "egress" => s.direction = SampleDirection::Egress,
                key => return error(format!("invalid key \"{key}\" in \"sample\" argument")),
            }
        }
        match s.probability {
            0 => error("non-zero \"probability\" must be specified on sample"),
            _ => Ok(Action::Sample(s)),
        }
    }

    /// `value[/mask]->field`.
    pub(super) fn set_field(&self, text: &str) -> Parsed<Action> {
        let (value, name) = value_arrow(text)?;
        let Some(of) = F::from_name(name) else {
            return error(format!("{name} is not a valid OXM field name"));
        };
        if !of.writable() {
            return error(format!("{name} is read-only"));
        }
        let Some((value, mask)) = field::parse(of, value, self.names)? else {
            return error(format!("{text}: cannot set field to any value"));
        };
        self.usable.only(Protocols::matching(of, None));
        let mask = match (&value, mask) {
            (Value::Word(value), _) if value & !of.info().valid != 0 => {
                let value = text.split_once("->").map_or(text, |(value, _)| value);
                return error(format!("{value} is not a valid value for field {name}"));
            }
            (_, mask) => mask,
        };
        let value = match (value, &mask) {
            (Value::Word(value), Some(Value::Word(mask))) => Value::Word(value & mask),
            (value, _) => value,
        };
        Ok(Action::SetField { field: of, value, mask })
    }
}

impl Action {
    /// Sending to the controller, where that says no more than an output.
    fn simple(self) -> Action {
        match self {
            Action::Controller(c) if c.is_plain() && c.reason == 1 && c.id == 0 => Action::Output {
                port: Port::CONTROLLER,
                max_len: c.max_len,
            },
            action => action,
        }
    }
}

pub(super) fn output(port: Port) -> Action {
    let max_len = if port == Port::CONTROLLER { MAX_LEN_WHOLE } else { 0 };
    Action::Output { port, max_len }
}
