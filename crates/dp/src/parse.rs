//! Reading actions in the syntax of `ovs-dpctl`: the reverse of [`ActionList`](crate::ActionList).

use crate::{Action, FlowHash, SetField};
use flow::{Field, Key, Mask, PortNo, RecircId, parse_odp};
use std::sync::Arc;
use wire::{EtherType, VlanTag};

/// Actions that cannot be read, or that the datapath does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not actions of the datapath")]
pub struct ParseActionsError;

/// Most actions inside actions.
const MAX_DEPTH: usize = 16;

type Result<T> = std::result::Result<T, ParseActionsError>;

/// Parses a list of actions: `push_vlan(vid=3,pcp=0),2` or `drop`, which is an empty list.
///
/// # Errors
/// [`ParseActionsError`].
pub fn parse_actions(text: &str) -> Result<Vec<Action>> {
    let mut actions = Vec::new();
    match text.trim() {
        "drop" => {}
        text => list(text, &mut actions, 0)?,
    }
    Ok(actions)
}

fn list(text: &str, actions: &mut Vec<Action>, depth: usize) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(ParseActionsError);
    }
    let mut hash = None;
    for part in parts(text) {
        let is_hash = part.strip_prefix("hash(").and_then(|part| part.strip_suffix(')'));
        match (hash.take(), is_hash) {
            (None, Some(inner)) => hash = Some(flow_hash(inner)?),
            (None, None) => one(part, actions, depth)?,
            (Some(hash), _) => actions.push(recirc_by(hash, part)?),
        }
    }
    // Nothing else reads a hash.
    hash.map_or(Ok(()), |_| Err(ParseActionsError))
}

/// `l4(BASIS)` or `sym_l4(BASIS)`.
fn flow_hash(text: &str) -> Result<FlowHash> {
    let (name, basis) = text
        .strip_suffix(')')
        .and_then(|text| text.split_once('('))
        .ok_or(ParseActionsError)?;
    let basis = number(basis, u32::MAX.into())? as u32;
    match name {
        "l4" => Ok(FlowHash::L4 { basis }),
        "sym_l4" => Ok(FlowHash::SymmetricL4 { basis }),
        _ => Err(ParseActionsError),
    }
}

/// `recirc(ID)`.
fn recirc_by(hash: FlowHash, text: &str) -> Result<Action> {
    let inner = text.strip_prefix("recirc(").and_then(|text| text.strip_suffix(')'));
    let id = number(inner.ok_or(ParseActionsError)?, RecircId::MAX_HASHED.into())? as u32;
    match id {
        0 => Err(ParseActionsError),
        id => Ok(Action::RecircByHash {
            id: RecircId::hashed(id),
            hash,
        }),
    }
}

/// The parts between commas or white space that are in no parentheses.
pub(crate) fn parts(text: &str) -> Vec<&str> {
    let mut depth = 0usize;
    let outside = |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && (c == ',' || c.is_whitespace())
    };
    text.split(outside).filter(|part| !part.is_empty()).collect()
}

fn one(text: &str, actions: &mut Vec<Action>, depth: usize) -> Result<()> {
    if let Ok(port) = text.parse() {
        actions.push(Action::Output(PortNo(port)));
        return Ok(());
    }
    let Some((name, inner)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) else {
        actions.push(match text {
            "ct" => Action::Ct(Arc::default()),
            "ct_clear" => Action::CtClear,
            "pop_vlan" => Action::PopVlan,
            "pop_pbb" => Action::PopPbb,
            "pop_eth" => Action::PopEth,
            "copy_ttl_in" => Action::CopyTtlIn,
            "copy_ttl_out" => Action::CopyTtlOut,
            _ => return Err(ParseActionsError),
        });
        return Ok(());
    };
    match name {
        "set" => return set(inner, actions),
        "clone" => {
            let place = actions.len();
            actions.push(Action::Clone(0));
            list(inner, actions, depth + 1)?;
            actions[place] = Action::Clone(count(actions.len() - place - 1));
            return Ok(());
        }
        "sample" => return sample(inner, actions, depth),
        "check_pkt_len" => return check_len(inner, actions, depth),
        "ct" => {
            actions.push(Action::Ct(Arc::new(inner.parse()?)));
            return Ok(());
        }
        "pop_nsh" if inner.is_empty() => {
            actions.push(Action::PopNsh);
            return Ok(());
        }
        "push_nsh" => {
            actions.push(Action::PushNsh(Arc::new(inner.parse()?)));
            return Ok(());
        }
        "push_eth" => {
            let (key, mask) = parse_odp(&format!("eth({inner})"), &|_| None).map_err(|_| ParseActionsError)?;
            if [Field::EthSrc, Field::EthDst]
                .iter()
                .any(|field| mask.get(*field) != field.max_value())
            {
                return Err(ParseActionsError);
            }
            actions.push(Action::PushEth {
                src: key.eth_src(),
                dst: key.eth_dst(),
            });
            return Ok(());
        }
        _ => {}
    }
    let values = Values::read(inner)?;
    actions.push(match name {
        "push_vlan" => {
            values.only(&["vid", "pcp", "tpid", "cfi"])?;
            let tpid = values.up_to("tpid", 0xffff)?.unwrap_or(EtherType::VLAN.0.into());
            let vid = values.up_to("vid", 0xfff)?.ok_or(ParseActionsError)?;
            let pcp = values.up_to("pcp", 7)?.ok_or(ParseActionsError)?;
            // The bit says that there is a tag: it is not a part of the packet here.
            values.up_to("cfi", 1)?;
            Action::PushVlan(VlanTag {
                tpid: tpid as u16,
                tci: (vid | pcp << 13) as u16,
            })
        }
        "push_mpls" | "add_mpls" => {
            values.only(&["label", "tc", "ttl", "bos", "eth_type"])?;
            let part = |name, most| values.up_to(name, most).map(Option::unwrap_or_default);
            let (label, tc) = (part("label", 0xf_ffff)?, part("tc", 7)?);
            let (bos, ttl) = (part("bos", 1)?, part("ttl", 0xff)?);
            let ethertype = values.ether_type()?;
            let lse = (label << 12 | tc << 9 | bos << 8 | ttl) as u32;
            match name {
                "add_mpls" => Action::AddMpls { ethertype, lse },
                _ => Action::PushMpls { ethertype, lse },
            }
        }
        "pop_mpls" => {
            values.only(&["eth_type"])?;
            Action::PopMpls {
                ethertype: values.ether_type()?,
            }
        }
        "trunc" => Action::Trunc(values.alone()?),
        "meter" => Action::Meter(values.alone()?),
        "lb_output" => Action::OutputBond(values.alone()?),
        "recirc" => Action::Recirc(values.alone().ok().filter(|id| *id != 0).ok_or(ParseActionsError)?),
        _ => return Err(ParseActionsError),
    });
    Ok(())
}

fn count(actions: usize) -> u32 {
    u32::try_from(actions).unwrap_or(u32::MAX)
}

/// `sample=PERCENT%,actions(ACTIONS)`.
fn sample(text: &str, actions: &mut Vec<Action>, depth: usize) -> Result<()> {
    let (percent, inner) = text
        .strip_prefix("sample=")
        .and_then(|text| text.strip_suffix(')'))
        .and_then(|text| text.split_once("%,actions("))
        .ok_or(ParseActionsError)?;
    let percent: f64 = percent.parse().map_err(|_| ParseActionsError)?;
    if !(0.0..=100.0).contains(&percent) {
        return Err(ParseActionsError);
    }
    let place = actions.len();
    let probability = (percent / 100.0 * f64::from(u32::MAX)) as u32;
    actions.push(Action::Sample { probability, steps: 0 });
    list(inner, actions, depth + 1)?;
    let steps = count(actions.len() - place - 1);
    actions[place] = Action::Sample { probability, steps };
    Ok(())
}

/// `size=N,gt(ACTIONS),le(ACTIONS)`.
fn check_len(text: &str, actions: &mut Vec<Action>, depth: usize) -> Result<()> {
    let parts = parts(text);
    let [size, greater, other] = parts[..] else {
        return Err(ParseActionsError);
    };
    let branch = |text: &str, name: &str| {
        let text = text.strip_prefix(name).and_then(|text| text.strip_suffix(')'));
        let mut actions = Vec::new();
        match text.ok_or(ParseActionsError)? {
            "drop" => {}
            text => list(text, &mut actions, depth + 1)?,
        }
        Ok(actions)
    };
    let len = size.strip_prefix("size=").and_then(|text| text.parse().ok());
    let (then, otherwise) = (branch(greater, "gt(")?, branch(other, "le(")?);
    actions.push(Action::IfLonger {
        len: len.ok_or(ParseActionsError)?,
        then: count(then.len()),
        otherwise: count(otherwise.len()),
    });
    actions.extend(then);
    actions.extend(otherwise);
    Ok(())
}

/// The fields of a header, as a match has them.
fn set(text: &str, actions: &mut Vec<Action>) -> Result<()> {
    let (key, mask): (Key, Mask) = parse_odp(text, &|_| None).map_err(|_| ParseActionsError)?;
    let before = actions.len();
    for field in Field::ALL.iter().copied().filter(|field| mask.get(*field) != 0) {
        let (value, bits) = (key.get(field), mask.get(field));
        actions.push(match field {
            Field::SkbPriority if bits == field.max_value() => Action::SetQueue(value as u32),
            Field::MplsLse0 => Action::SetMpls {
                lse: value as u32,
                mask: bits as u32,
            },
            _ => Action::SetField(SetField::new(field, value, bits).ok_or(ParseActionsError)?),
        });
    }
    match actions.len() > before {
        true => Ok(()),
        false => Err(ParseActionsError),
    }
}

/// A decimal number, or a hexadecimal one with `0x` before it, up to `most`.
pub(crate) fn number(text: &str, most: u128) -> Result<u128> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u128::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.ok().filter(|number| *number <= most).ok_or(ParseActionsError)
}

/// `name=value` pairs, or one value.
struct Values<'a>(Vec<(&'a str, u64)>);

impl<'a> Values<'a> {
    fn read(text: &'a str) -> Result<Values<'a>> {
        let pairs = parts(text).into_iter().map(|part| {
            let (name, value) = part.split_once('=').unwrap_or(("", part));
            Ok((name, number(value, u64::MAX.into())? as u64))
        });
        Ok(Values(pairs.collect::<Result<_>>()?))
    }

    fn get(&self, name: &str) -> Option<u64> {
        let found = self.0.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| *value)
    }

    /// The value of a name, which is `most` at most.
    fn up_to(&self, name: &str, most: u64) -> Result<Option<u64>> {
        match self.get(name) {
            Some(value) if value > most => Err(ParseActionsError),
            value => Ok(value),
        }
    }

    /// Fails if there are other names, or one twice.
    fn only(&self, names: &[&str]) -> Result<()> {
        let once = |at: usize| self.0[..at].iter().all(|(name, _)| *name != self.0[at].0);
        let all = (0..self.0.len()).all(|at| names.contains(&self.0[at].0) && once(at));
        match all {
            true => Ok(()),
            false => Err(ParseActionsError),
        }
    }

    fn alone(&self) -> Result<u32> {
        match self.0[..] {
            [("", value)] => u32::try_from(value).map_err(|_| ParseActionsError),
            _ => Err(ParseActionsError),
        }
    }

    fn ether_type(&self) -> Result<u16> {
        let value = self.get("eth_type").ok_or(ParseActionsError)?;
        u16::try_from(value).map_err(|_| ParseActionsError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ActionList;

    #[test]
    fn actions_read_as_they_print() {
        for text in [
            "1,2",
            "push_vlan(vid=3,pcp=5),4,pop_vlan,4",
            "push_vlan(tpid=0x88a8,vid=3,pcp=0),4",
            "set(eth(src=00:00:00:00:00:01)),1",
            "set(skb_priority(0x2)),1",
            "push_mpls(label=16,tc=1,ttl=64,bos=1,eth_type=0x8847),1",
            "pop_mpls(eth_type=0x800),1",
            "trunc(100),1",
            "meter(7),recirc(0x5)",
            "clone(pop_vlan,1),2",
            "check_pkt_len(size=200,gt(pop_vlan,1),le(drop)),2",
            "ct,recirc(0x1)",
            "1,hash(l4(5)),recirc(0x7)",
            "clone(hash(sym_l4(0)),recirc(0x7)),2",
            "ct_clear,ct(commit,zone=5,mark=0x1/0xff,label=0x2/0x2,helper=ftp,timeout=3,nat(src=10.0.0.1-10.0.0.9:100-200,persistent,random)),1",
            "ct(force_commit,nat(dst=[fc00::1]:80)),ct(zone=1,nat),ct(commit,nat(src)),1",
        ] {
            let actions = parse_actions(text).unwrap_or_else(|_| panic!("{text}"));
            assert_eq!(ActionList::new(&actions, &Key::ZERO).to_string(), text);
        }
        assert_eq!(parse_actions("drop"), Ok(Vec::new()));
    }

    #[test]
    fn anything_else_is_refused() {
        let deep = "clone(".repeat(40) + "1" + &")".repeat(40);
        for text in [
            "xx",
            "1,xx",
            "push_vlan(vid=x)",
            "push_vlan()",
            "push_vlan(vid=4096,pcp=0)",
            "push_vlan(vid=1,pcp=8)",
            "push_vlan(vid=1,vid=2,pcp=0)",
            "push_mpls(label=1048576,tc=0,ttl=1,bos=1,eth_type=0x8847)",
            "push_mpls(label=1,tc=8,ttl=1,bos=1,eth_type=0x8847)",
            "push_mpls(label=1,tc=0,ttl=256,bos=1,eth_type=0x8847)",
            "push_vlan(foo=1)",
            "set(eth())",
            "set(eth_type(0x800))",
            "recirc(0)",
            "hash(l4(0))",
            "hash(l4(0)),1",
            "hash(l4(0)),recirc(0)",
            "hash(l2(0)),recirc(1)",
            "hash(),recirc(1)",
            "trunc(1",
            "check_pkt_len(size=1,gt(1))",
            "ct(zone=65536)",
            "ct(commit,helper=sip)",
            "ct(nat(src=1.1.1.1-fc00::1))",
            "ct(nat(src=1.1.1.2-1.1.1.1))",
            "ct(nat(up=1.1.1.1))",
            &deep,
        ] {
            assert_eq!(parse_actions(text), Err(ParseActionsError), "{text}");
        }
    }
}
