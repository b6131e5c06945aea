//! Checks of rules. The switch refuses what it cannot carry out when a rule is added, not when
//! packets match it.

use super::condition::each_action;
use super::ct::is_own;
use super::{FlowTables, TABLES, TunnelOptions};
use flow::{Home, MatchField};
use openflow::OfError;
use openflow::model::{Action, Ct, Instructions, Learn, LearnDst, LearnSrc, Match, Port, Subfield, Zone};
use wire::EtherType;

/// Checks that a match uses supported fields only.
pub(super) fn matching(matching: &Match, options: &TunnelOptions) -> Result<(), OfError> {
    options.check_match(matching)?;
    if matching.entries().iter().any(|entry| !is_seen(entry.field)) {
        return Err(OfError::BmcBadField);
    }
    Ok(())
}

/// Checks that the instructions of a rule in `table` can be carried out.
pub(super) fn instructions(instructions: &Instructions, table: u8, options: &TunnelOptions) -> Result<(), OfError> {
    if instructions.goto.is_some_and(|to| to <= table || to >= TABLES) {
        return Err(OfError::BicBadTableId);
    }
    actions(&instructions.apply, 0, options)?;
    actions(&instructions.write, 0, options)
}

/// Checks that the groups and meters that instructions refer to exist.
pub(super) fn references(instructions: &Instructions, tables: &FlowTables) -> Result<(), OfError> {
    if instructions.meter.is_some_and(|meter| tables.meter(meter).is_none()) {
        return Err(OfError::MmfcInvalidMeter);
    }
    lists_references(&instructions.apply, tables)?;
    lists_references(&instructions.write, tables)
}

/// Checks that the groups and meters that actions refer to exist.
pub(super) fn lists_references(list: &[Action], tables: &FlowTables) -> Result<(), OfError> {
    let mut result = Ok(());
    each_action(list, &mut |action| {
        let wrong = match action {
            Action::Group(group) if tables.groups.latest(*group).is_none() => OfError::BacBadOutGroup,
            Action::Meter(meter) if tables.meter(*meter).is_none() => OfError::MmfcInvalidMeter,
            _ => return,
        };
        result = result.and(Err(wrong));
    });
    result
}

/// Checks that actions can be carried out.
pub(super) fn actions_of(list: &[Action], options: &TunnelOptions) -> Result<(), OfError> {
    actions(list, 0, options)
}

/// Depth of actions within actions. It is enough in practice, and fits the stack.
const MAX_WITHIN: u32 = 8;

fn actions(list: &[Action], within: u32, options: &TunnelOptions) -> Result<(), OfError> {
    list.iter().try_for_each(|one| action(one, within, options))
}

fn action(action: &Action, within: u32, options: &TunnelOptions) -> Result<(), OfError> {
    let reads = |part: &Subfield| read(part, options);
    let writes = |part: &Subfield| written_part(part, options);
    match action {
        Action::Output { port, .. } => output(*port),
        Action::Resubmit { table, .. } if *table == 254 => Err(OfError::BicBadTableId),
        Action::Move { src, dst } => reads(src).and(writes(dst)),
        Action::Load { dst, .. } => writes(dst),
        Action::SetField { field, value, mask } if field.info().home == Home::Elsewhere => {
            options.check_value(*field, Some((value, mask.as_ref())))
        }
        Action::SetField { field, .. } => written(*field, options),
        Action::DeleteField(field) if field.info().home == Home::Elsewhere => options.check_value(*field, None),
        Action::OutputReg { src, .. } => reads(src),
        Action::Push(part) => reads(part).and(narrow(part)),
        Action::Pop(part) => writes(part).and(narrow(part)),
        Action::Ct(ct) => self::ct(ct, options),
        Action::Clone(_) if within == MAX_WITHIN => Err(OfError::BacTooMany),
        Action::Clone(inner) => actions(inner, within + 1, options),
        Action::PushVlan(tpid) if EtherType(*tpid).is_vlan() => Ok(()),
        Action::PushVlan(_) => Err(OfError::BacBadArgument),
        Action::PushMpls(0x8847 | 0x8848) | Action::PushPbb(0x88e7) => Ok(()),
        Action::PushMpls(_) | Action::PushPbb(_) => Err(OfError::BacBadArgument),
        Action::Encap {
            packet_type: 0 | 0x1_8847 | 0x1_8848 | 0x1_894f,
            ..
        } => Ok(()),
        Action::OutputTrunc { port, .. } | Action::Enqueue { port, .. } => output(*port),
        Action::Bundle(bundle) => bundle.dst.map_or(Ok(()), |dst| writes(&dst)),
        Action::Multipath(multipath) => writes(&multipath.dst),
        Action::CheckPktLarger { dst, .. } => writes(dst),
        Action::Learn(learn) => self::learn(learn, options),
        Action::Controller(_)
        | Action::Group(_)
        | Action::Meter(_)
        | Action::Sample(_)
        | Action::SetVlanVid(_)
        | Action::SetVlanPcp(_)
        | Action::PopVlan
        | Action::StripVlan
        | Action::SetEthSrc(_)
        | Action::SetEthDst(_)
        | Action::SetIpv4Src(_)
        | Action::SetIpv4Dst(_)
        | Action::SetTos(_)
        | Action::SetEcn(_)
        | Action::SetTtl(_)
        | Action::SetTpSrc(_)
        | Action::SetTpDst(_)
        | Action::DecTtl(_)
        | Action::Resubmit { .. }
        | Action::Note(_)
        | Action::SetMplsLabel(_)
        | Action::SetMplsTc(_)
        | Action::SetMplsTtl(_)
        | Action::DecMplsTtl
        | Action::PopMpls(_)
        | Action::PopPbb
        | Action::Decap(_)
        | Action::DecNshTtl
        | Action::CopyTtlOut
        | Action::CopyTtlIn
        | Action::SetQueue(_)
        | Action::SetTunnel { .. }
        | Action::PopQueue
        | Action::FinTimeout { .. }
        | Action::Conjunction { .. }
        | Action::CtClear
        | Action::Exit
        | Action::DebugRecirc
        | Action::DebugSlow
        | Action::WriteMetadata { .. } => Ok(()),
        _ => Err(OfError::BacBadType),
    }
}

/// Checks that a `ct` action can be carried out.
fn ct(ct: &Ct, options: &TunnelOptions) -> Result<(), OfError> {
    if ct.table.is_some_and(|table| table >= TABLES) {
        return Err(OfError::BacBadArgument);
    }
    if let Zone::Field(part) = &ct.zone {
        read(part, options)?;
    }
    ct.actions.iter().try_for_each(|action| {
        let field = match action {
            Action::Nat(_) => return Ok(()),
            Action::Move { src, dst } => {
                read(src, options).and(narrow(src))?;
                dst.field()
            }
            Action::Load { dst, .. } => dst.field(),
            Action::SetField { field, .. } => *field,
            _ => return Err(OfError::BacBadType),
        };
        match is_own(field) {
            true => Ok(()),
            false => Err(OfError::BacBadSetArgument),
        }
    })
}

/// Checks that the rules of a `learn` action can be added.
fn learn(learn: &Learn, options: &TunnelOptions) -> Result<(), OfError> {
    if learn.table >= TABLES {
        return Err(OfError::BacBadArgument);
    }
    for spec in &learn.specs {
        if let LearnSrc::Field(src) = &spec.src {
            read(src, options).and(narrow(src))?;
        }
        match &spec.dst {
            LearnDst::Match(dst) => read(dst, options).and(narrow(dst))?,
            LearnDst::Load(dst) => written_part(dst, options).and(narrow(dst))?,
            LearnDst::Output => {}
        }
    }
    learn.result.map_or(Ok(()), |result| written_part(&result, options))
}

fn output(port: Port) -> Result<(), OfError> {
    match port {
        // Port 0 is allowed, although no port has it: a rule learned from a packet whose ingress
        // port was cleared sends there, so it drops.
        Port::ANY | Port::TABLE | Port::UNSET => Err(OfError::BacBadOutPort),
        _ => Ok(()),
    }
}

/// Checks that a part fits the 128 bits of an intermediate value.
fn narrow(part: &Subfield) -> Result<(), OfError> {
    match part.n_bits() {
        ..=128 => Ok(()),
        _ => Err(OfError::BacBadArgument),
    }
}

/// Checks that a part of a field can be read.
fn read(part: &Subfield, options: &TunnelOptions) -> Result<(), OfError> {
    match part.field().info().home {
        Home::Elsewhere => options.check_part(part),
        _ if is_seen(part.field()) => Ok(()),
        _ => Err(OfError::BacBadSetType),
    }
}

/// Checks that a part of a field can be written.
fn written_part(part: &Subfield, options: &TunnelOptions) -> Result<(), OfError> {
    match part.field().info().home {
        Home::Elsewhere => options.check_part(part),
        _ => written(part.field(), options),
    }
}

pub(super) fn written(which: MatchField, options: &TunnelOptions) -> Result<(), OfError> {
    let can = match which.info().home {
        // Those of a tunnel are for the outer headers of its output.
        Home::Key { field, .. } => dp::SetField::writable(field) || field.is_of_tunnel(),
        Home::Meta { .. } => true,
        Home::Elsewhere => return options.check_value(which, None),
    };
    match can && which.writable() && is_seen(which) {
        true => Ok(()),
        false => Err(OfError::BacBadSetType),
    }
}

pub(super) fn is_seen(field: MatchField) -> bool {
    SEEN[field as usize]
}

/// By field, whether tables can match it.
static SEEN: [bool; MatchField::ALL.len()] = {
    let mut seen = [false; MatchField::ALL.len()];
    let mut n = 0;
    while n < seen.len() {
        let field = MatchField::ALL[n];
        seen[n] = match (field, field.info().names[0].as_bytes()) {
            (MatchField::DpHash | MatchField::RecircId, _) => false,
            // Ports are what they are attached to: none stands for others.
            (MatchField::InPhyPort, _) => false,
            _ => !matches!(field.info().home, Home::Elsewhere),
        };
        n += 1;
    }
    seen
};
