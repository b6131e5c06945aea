//! Actions and instructions in text.

use super::field::{format, format_value, ipv6, put_value};
use super::number::{hex, put_decimal, put_hex};
use super::{Style, port, put_port, table};
use crate::Version;
use crate::model::*;
use flow::MatchField;
use std::fmt::Write;

/// Names of the reasons for which packets go to controllers, by number.
pub(super) const REASONS: [&str; 6] = ["no_match", "action", "invalid_ttl", "action_set", "group", "packet_out"];

/// A list of actions as text: `drop` for an empty one.
pub fn actions(actions: &[Action], style: Style<'_>) -> String {
    let mut out = String::new();
    match actions {
        [] => out.push_str("drop"),
        _ => put_list(&mut out, actions, style),
    }
    out
}

/// A rule's instructions as text: `drop` if there are none.
pub fn instructions(instructions: &Instructions, style: Style<'_>) -> String {
    let mut out = String::new();
    put_instructions(&mut out, instructions, style);
    out
}

/// Appends a rule's instructions.
pub(super) fn put_instructions(out: &mut String, instructions: &Instructions, style: Style<'_>) {
    let before = out.len();
    let next = |out: &mut String| {
        if out.len() > before {
            out.push(',');
        }
    };
    if let Some(meter) = instructions.meter {
        out.push_str("meter:");
        put_decimal(out, meter.into());
    }
    if !instructions.apply.is_empty() {
        next(out);
        put_list(out, &instructions.apply, style);
    }
    if instructions.clear {
        next(out);
        out.push_str("clear_actions");
    }
    if !instructions.write.is_empty() {
        next(out);
        out.push_str("write_actions(");
        put_list(out, &instructions.write, style);
        out.push(')');
    }
    if let Some((value, mask)) = instructions.metadata {
        next(out);
        out.push_str(&write_metadata(value, mask));
    }
    if let Some(number) = instructions.goto {
        next(out);
        out.push_str("goto_table:");
        out.push_str(&table(number, style));
    }
    if out.len() == before {
        out.push_str("drop");
    }
}

fn write_metadata(value: u64, mask: u64) -> String {
    match mask {
        u64::MAX => format!("write_metadata:{}", hex(value.into())),
        _ => format!("write_metadata:{}/{}", hex(value.into()), hex(mask.into())),
    }
}

fn put_list(out: &mut String, actions: &[Action], style: Style<'_>) {
    for (n, action) in actions.iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        put(out, action, style);
    }
}

/// Appends one action. Those that most rules have go straight there.
fn put(out: &mut String, action: &Action, style: Style<'_>) {
    match action {
        Action::Output { port: to, .. } if to.0 < 0xff00 => {
            out.push_str("output:");
            put_port(out, *to, style);
        }
        Action::Output { port: to, .. } if *to != Port::CONTROLLER => put_port(out, *to, style),
        Action::Group(group) => {
            out.push_str("group:");
            put_decimal(out, (*group).into());
        }
        Action::Load { dst, value } => {
            out.push_str("load:");
            put_hex(out, (*value).into());
            let _ = write!(out, "->{dst}");
        }
        Action::SetField {
            field,
            value: Value::Word(value),
            mask: None,
        } => {
            out.push_str("set_field:");
            match field {
                // Without the sign that a match has.
                MatchField::TunFlags => out.push_str(if *value == 0 { "0" } else { "oam" }),
                _ => put_value(out, *field, *value, field.info().valid, style),
            }
            out.push_str("->");
            out.push_str(field.name());
        }
        _ => out.push_str(&self::action(action, style)),
    }
}

/// One action as text.
fn action(action: &Action, style: Style<'_>) -> String {
    match action {
        Action::Output { port: to, max_len } => output(*to, *max_len, style),
        Action::Enqueue { port: to, queue } => format!("enqueue:{}:{queue}", port(*to, style)),
        Action::OutputReg { src, .. } => format!("output:{src}"),
        Action::OutputTrunc { port: to, max_len } => {
            format!("output(port={},max_len={max_len})", port(*to, style))
        }
        Action::Controller(c) => controller(c),
        Action::Group(group) => format!("group:{group}"),
        Action::Bundle(b) => bundle(b, style),
        Action::SetVlanVid(vid) => format!("{}_vlan_vid:{vid}", tag_verb(style)),
        Action::SetVlanPcp(pcp) => format!("{}_vlan_pcp:{pcp}", tag_verb(style)),
        Action::PopVlan => "pop_vlan".into(),
        Action::StripVlan => "strip_vlan".into(),
        Action::PushVlan(tpid) => format!("push_vlan:{tpid:#06x}"),
        Action::SetEthSrc(mac) => format!("mod_dl_src:{mac}"),
        Action::SetEthDst(mac) => format!("mod_dl_dst:{mac}"),
        Action::SetIpv4Src(ip) => format!("mod_nw_src:{ip}"),
        Action::SetIpv4Dst(ip) => format!("mod_nw_dst:{ip}"),
        Action::SetTos(tos) => format!("mod_nw_tos:{tos}"),
        Action::SetEcn(ecn) => format!("mod_nw_ecn:{ecn}"),
        Action::SetTtl(ttl) => format!("mod_nw_ttl:{ttl}"),
        Action::SetTpSrc(port) => format!("mod_tp_src:{port}"),
        Action::SetTpDst(port) => format!("mod_tp_dst:{port}"),
        Action::Move { src, dst } => format!("move:{src}->{dst}"),
        Action::Load { dst, value } => format!("load:{}->{dst}", hex((*value).into())),
        Action::SetField { field, value, mask } => {
            format!(
                "set_field:{}->{field}",
                format_value(*field, value, mask.as_ref(), style)
            )
        }
        Action::Push(part) => format!("push:{part}"),
        Action::Pop(part) => format!("pop:{part}"),
        Action::DecTtl(ids) => match ids[..] {
            [0] => "dec_ttl".into(),
            _ => format!("dec_ttl({})", joined(ids)),
        },
        Action::SetMplsLabel(label) => format!("set_mpls_label({label})"),
        Action::SetMplsTc(tc) => format!("set_mpls_tc({tc})"),
        Action::SetMplsTtl(ttl) => format!("set_mpls_ttl({ttl})"),
        Action::DecMplsTtl => "dec_mpls_ttl".into(),
        Action::PushMpls(ethertype) => format!("push_mpls:{ethertype:#06x}"),
        Action::PopMpls(ethertype) => format!("pop_mpls:{ethertype:#06x}"),
        Action::CopyTtlOut => "copy_ttl_out".into(),
        Action::CopyTtlIn => "copy_ttl_in".into(),
        Action::PushPbb(ethertype) => format!("push_pbb:{ethertype:#06x}"),
        Action::PopPbb => "pop_pbb".into(),
        Action::SetTunnel { id, wide } => {
            let wide = *wide || *id > u64::from(u32::MAX);
            format!("set_tunnel{}:{}", if wide { "64" } else { "" }, hex((*id).into()))
        }
        Action::SetQueue(queue) => format!("set_queue:{queue}"),
        Action::PopQueue => "pop_queue".into(),
        Action::FinTimeout { idle, hard } => {
            let timeouts = [("idle_timeout", idle), ("hard_timeout", hard)];
            let set = timeouts.iter().filter(|(_, seconds)| **seconds != 0);
            let set: Vec<_> = set.map(|(name, seconds)| format!("{name}={seconds}")).collect();
            format!("fin_timeout({})", set.join(","))
        }
        Action::Resubmit {
            in_port,
            table: number,
            ct,
        } => resubmit(*in_port, *number, *ct, style),
        Action::Learn(l) => learn(l, style),
        Action::Conjunction { id, clause, n_clauses } => {
            format!("conjunction({id},{}/{n_clauses})", u16::from(*clause) + 1)
        }
        Action::Multipath(m) => multipath(m),
        Action::Note(bytes) => format!("note:{}", dotted(bytes)),
        Action::Exit => "exit".into(),
        Action::Sample(s) => sample(s, style),
        Action::Ct(c) => ct(c, style),
        Action::Nat(n) => nat(n),
        Action::CtClear => "ct_clear".into(),
        Action::Clone(actions) => format!("clone({})", self::actions(actions, style)),
        Action::CheckPktLarger { pkt_len, dst } => format!("check_pkt_larger({pkt_len})->{dst}"),
        Action::Encap {
            packet_type,
            properties,
            ..
        } => encap(*packet_type, properties),
        Action::Decap(0xfffe) => "decap()".into(),
        Action::Decap(kind) => format!(
            "decap(packet_type(ns={},type={}))",
            kind >> 16,
            hex((kind & 0xffff).into())
        ),
        Action::DecNshTtl => "dec_nsh_ttl".into(),
        Action::DebugRecirc => "debug_recirc".into(),
        Action::DebugSlow => "debug_slow".into(),
        Action::DeleteField(field) => format!("delete_field:{field}"),
        Action::Meter(meter) => format!("meter:{meter}"),
        Action::WriteMetadata { value, mask } => write_metadata(*value, *mask),
    }
}

/// The verb for a change of a tag. Only OpenFlow 1.1 has one that adds no tag (`set_vlan_vid`).
fn tag_verb(style: Style<'_>) -> &'static str {
    if style.version == Version::V11 { "set" } else { "mod" }
}

fn output(to: Port, max_len: u16, style: Style<'_>) -> String {
    match to {
        Port::CONTROLLER => format!("CONTROLLER:{max_len}"),
        Port(number) if number < 0xff00 => format!("output:{}", port(to, style)),
        _ => port(to, style),
    }
}

fn joined<T: ToString>(parts: &[T]) -> String {
    parts.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

fn dotted(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(".")
}

fn controller(c: &Controller) -> String {
    let default = Controller::default();
    if c.is_plain() && c.reason == default.reason && c.id == default.id {
        return format!("CONTROLLER:{}", c.max_len);
    }
    let mut parts = Vec::new();
    if c.reason != default.reason {
        let name = REASONS.get(usize::from(c.reason));
        parts.push(match name {
            Some(name) => format!("reason={name}"),
            None => format!("reason={}", c.reason),
        });
    }
    if c.max_len != default.max_len {
        parts.push(format!("max_len={}", c.max_len));
    }
    if c.id != default.id {
        parts.push(format!("id={}", c.id));
    }
    if !c.userdata.is_empty() {
        parts.push(format!("userdata={}", dotted(&c.userdata)));
    }
    if c.pause {
        parts.push("pause".into());
    }
    if let Some(meter) = c.meter {
        parts.push(format!("meter_id={meter}"));
    }
    format!("controller({})", parts.join(","))
}

fn hash_fields(fields: HashFields) -> &'static str {
    HashFields::ALL
        .iter()
        .find(|(f, _)| *f == fields)
        .map_or("", |(_, name)| name)
}

fn bundle(b: &Bundle, style: Style<'_>) -> String {
    let algorithm = match b.algorithm {
        BundleAlgorithm::ActiveBackup => "active_backup",
        BundleAlgorithm::Hrw => "hrw",
    };
    let members: Vec<_> = b.members.iter().map(|p| port(*p, style)).collect();
    let (name, dst) = match &b.dst {
        Some(dst) => ("bundle_load", format!("{dst},")),
        None => ("bundle", String::new()),
    };
    format!(
        "{name}({},{},{algorithm},ofport,{dst}members:{})",
        hash_fields(b.fields),
        b.basis,
        members.join(",")
    )
}

fn multipath(m: &Multipath) -> String {
    let algorithm = MultipathAlgorithm::ALL.iter().find(|(a, _)| *a == m.algorithm);
    format!(
        "multipath({},{},{},{},{},{})",
        hash_fields(m.fields),
        m.basis,
        algorithm.map_or("", |(_, name)| name),
        u32::from(m.max_link) + 1,
        m.arg,
        m.dst
    )
}

fn resubmit(in_port: Port, number: u8, ct: bool, style: Style<'_>) -> String {
    let here = in_port != Port::IN_PORT;
    if here && number == 255 && !ct {
        return format!("resubmit:{}", port(in_port, style));
    }
    let port = if here { port(in_port, style) } else { String::new() };
    let number = if number == 255 {
        String::new()
    } else {
        table(number, style)
    };
    format!("resubmit({port},{number}{})", if ct { ",ct" } else { "" })
}

fn learn(l: &Learn, style: Style<'_>) -> String {
    let mut parts = vec![format!("table={}", table(l.table, style))];
    for (name, seconds) in [
        ("idle_timeout", l.idle_timeout),
        ("hard_timeout", l.hard_timeout),
        ("fin_idle_timeout", l.fin_idle_timeout),
        ("fin_hard_timeout", l.fin_hard_timeout),
    ] {
        if seconds != 0 {
            parts.push(format!("{name}={seconds}"));
        }
    }
    if l.priority != 0x8000 {
        parts.push(format!("priority={}", l.priority));
    }
    if l.send_flow_rem {
        parts.push("send_flow_rem".into());
    }
    if l.delete_learned {
        parts.push("delete_learned".into());
    }
    if l.cookie != 0 {
        parts.push(format!("cookie={}", hex(l.cookie.into())));
    }
    if l.limit != 0 {
        parts.push(format!("limit={}", l.limit));
    }
    if let Some(result) = l.result {
        parts.push(format!("result_dst={result}"));
    }
    parts.extend(l.specs.iter().map(|s| spec(s, style)));
    format!("learn({})", parts.join(","))
}

fn spec(s: &LearnSpec, style: Style<'_>) -> String {
    match (&s.src, &s.dst) {
        (LearnSrc::Immediate { value, .. }, LearnDst::Match(dst)) if dst.is_whole() => {
            let field = dst.field();
            format!("{field}={}", format(field, *value, field.info().valid, style))
        }
        (LearnSrc::Immediate { value, .. }, LearnDst::Match(dst)) => format!("{dst}={}", hex(*value)),
        (LearnSrc::Field(src), LearnDst::Match(dst)) if src == dst => src.to_string(),
        (LearnSrc::Field(src), LearnDst::Match(dst)) => format!("{dst}={src}"),
        (LearnSrc::Immediate { value, .. }, LearnDst::Load(dst)) => format!("load:{}->{dst}", hex(*value)),
        (LearnSrc::Field(src), LearnDst::Load(dst)) => format!("load:{src}->{dst}"),
        (LearnSrc::Immediate { value, .. }, LearnDst::Output) => format!("output:{}", hex(*value)),
        (LearnSrc::Field(src), LearnDst::Output) => format!("output:{src}"),
    }
}

fn sample(s: &Sample, style: Style<'_>) -> String {
    let mut out = format!(
        "sample(probability={},collector_set_id={},obs_domain_id={},obs_point_id={}",
        s.probability, s.collector_set_id, s.obs_domain_id, s.obs_point_id
    );
    if s.sampling_port != Port::ANY {
        out += &format!(",sampling_port={}", port(s.sampling_port, style));
    }
    out += match s.direction {
        SampleDirection::Default => "",
        SampleDirection::Ingress => ",ingress",
        SampleDirection::Egress => ",egress",
    };
    out + ")"
}

fn ct(c: &Ct, style: Style<'_>) -> String {
    let mut parts = Vec::new();
    if c.commit {
        parts.push("commit".into());
    }
    if c.force {
        parts.push("force".into());
    }
    if let Some(number) = c.table {
        parts.push(format!("table={}", table(number, style)));
    }
    match c.zone {
        Zone::Immediate(0) => {}
        Zone::Immediate(zone) => parts.push(format!("zone={zone}")),
        Zone::Field(part) => parts.push(format!("zone={part}")),
    }
    // As in Open vSwitch, a translation stands by itself only where it comes first.
    let (first, rest) = match &c.actions[..] {
        [Action::Nat(first), rest @ ..] => (Some(first), rest),
        all => (None, all),
    };
    parts.extend(first.map(nat));
    if !rest.is_empty() {
        let list: Vec<_> = rest.iter().map(|a| action(a, style)).collect();
        parts.push(format!("exec({})", list.join(",")));
    }
    match c.alg {
        0 => {}
        21 => parts.push("alg=ftp".into()),
        69 => parts.push("alg=tftp".into()),
        port => parts.push(format!("alg={port}")),
    }
    format!("ct({})", parts.join(","))
}

fn nat(n: &Nat) -> String {
    let kind = match n.kind {
        NatKind::None => return "nat".into(),
        NatKind::Src => "src",
        NatKind::Dst => "dst",
    };
    let ports = n.ports.map(|(first, last)| match last {
        Some(last) => format!("{first}-{last}"),
        None => first.to_string(),
    });
    let addrs = match n.addrs {
        NatAddrs::None => String::new(),
        NatAddrs::Ipv4(first, None) => first.to_string(),
        NatAddrs::Ipv4(first, Some(last)) => format!("{first}-{last}"),
        NatAddrs::Ipv6(first, None) if ports.is_some() => format!("[{}]", ipv6(first.into())),
        NatAddrs::Ipv6(first, None) => ipv6(first.into()),
        NatAddrs::Ipv6(first, Some(last)) if ports.is_some() => {
            format!("[{}]-[{}]", ipv6(first.into()), ipv6(last.into()))
        }
        NatAddrs::Ipv6(first, Some(last)) => format!("{}-{}", ipv6(first.into()), ipv6(last.into())),
    };
    let range = match (addrs.is_empty(), ports) {
        (true, None) => String::new(),
        (_, None) => format!("={addrs}"),
        (_, Some(ports)) => format!("={addrs}:{ports}"),
    };
    let mut parts = vec![format!("{kind}{range}")];
    for (set, name) in [(n.persistent, "persistent"), (n.hash, "hash"), (n.random, "random")] {
        if set {
            parts.push(name.into());
        }
    }
    format!("nat({})", parts.join(","))
}

/// Packet types that `encap` has names for.
pub(super) const HEADERS: [(u32, &str); 4] = [
    (0, "ethernet"),
    (0x1_894f, "nsh"),
    (0x1_8847, "mpls"),
    (0x1_8848, "mpls_mc"),
];

fn encap(packet_type: u32, properties: &[EncapProperty]) -> String {
    let name = HEADERS.iter().find(|(t, _)| *t == packet_type);
    let name = name.map_or_else(
        || {
            format!(
                "packet_type({},{})",
                packet_type >> 16,
                hex((packet_type & 0xffff).into())
            )
        },
        |(_, name)| (*name).to_string(),
    );
    let texts: Vec<_> = properties
        .iter()
        .map(|p| match p {
            EncapProperty::NshMdType(kind) => format!("md_type={kind}"),
            EncapProperty::NshTlv { class, kind, data } => {
                let digits: String = data.iter().map(|b| format!("{b:02x}")).collect();
                format!("tlv({class:#06x},{kind},0x{digits})")
            }
        })
        .collect();
    match texts.is_empty() {
        true => format!("encap({name})"),
        false => format!("encap({name}({}))", texts.join(",")),
    }
}
