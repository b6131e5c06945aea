//! Every field and every action in every version: what the registry has and is acted upon is taken
//! and comes back as it was sent, and the rest is refused with the error that the specification has
//! for it.

use crate::world::{BRIDGE, Lab, errors, rule};
use flow::{MatchField as F, MatchPrerequisite as P};
use ofproto::{Env, Kind};
use openflow::model::*;
use openflow::text::{Names, parse_flow};
use openflow::{Codec, OfError, Version};
use switch::tables::Condition;

/// Fields that matches cannot have: of tunnels' options, of what only the switch knows.
fn is_refused(field: F) -> bool {
    let name = field.name();
    name.starts_with("tun_metadata") || ["recirc_id", "dp_hash", "in_phy_port"].contains(&name)
}

/// A connection that is tracked and not invalid.
const VALID: (F, u128, u128) = (F::CtState, 0x20, 0x30);

/// What a match has to say before it may speak of a field.
fn prerequisites(field: F) -> Vec<(F, u128, u128)> {
    let eth_type = |value| (F::EthType, value, 0xffff);
    let ip = |proto| vec![eth_type(0x0800), (F::NwProto, proto, 0xff)];
    let discovery = |kind| {
        let code = (F::Icmpv6Code, 0, 0xff);
        vec![
            eth_type(0x86dd),
            (F::NwProto, 58, 0xff),
            (F::Icmpv6Type, kind, 0xff),
            code,
        ]
    };
    match field.info().prerequisite {
        P::None | P::Ethernet => Vec::new(),
        P::VlanVid => vec![(F::VlanTci, 0x1000, 0x1000)],
        P::Arp => vec![eth_type(0x0806)],
        P::Ipv4 | P::Ip => vec![eth_type(0x0800)],
        P::Ipv6 => vec![eth_type(0x86dd)],
        P::Mpls => vec![eth_type(0x8847)],
        P::Pbb => vec![eth_type(0x88e7)],
        P::Nsh => vec![eth_type(0x894f)],
        P::Tcp => ip(6),
        P::Udp => ip(17),
        P::Sctp => ip(132),
        P::Icmpv4 => ip(1),
        P::Icmpv6 => vec![eth_type(0x86dd), (F::NwProto, 58, 0xff)],
        P::Nd | P::NdSolicit => discovery(135),
        P::NdAdvert => discovery(136),
        P::Ct | P::CtIpv4 => vec![eth_type(0x0800), VALID],
        P::CtIpv6 => vec![eth_type(0x86dd), VALID],
        P::CtPorts => vec![eth_type(0x0800), VALID, (F::CtNwProto, 6, 0xff)],
    }
}

/// A rule for packets that have a field.
fn rule_for(field: F) -> FlowMod {
    let mut change = rule(9);
    for (field, value, mask) in prerequisites(field) {
        change.matching.set(field, value, mask);
    }
    change
}

/// What becomes of a rule: the match and the instructions that the table has, or the error; nothing
/// where a version cannot say it.
fn outcome(version: Version, change: &FlowMod) -> Option<Result<(Match, Instructions), OfError>> {
    let mut lab = Lab::new();
    let id = lab.open(Kind::Service, version);
    lab.say(id, version, 1, Body::SetFlowFormat { nxm: true });
    let everything = FlowMod {
        command: FlowCommand::Delete,
        ..FlowMod::default()
    };
    lab.say(id, version, 2, Body::FlowMod(Box::new(everything)));
    lab.say(id, version, 3, Body::FlowModTableId(true));
    lab.hear(id, version);
    let mut codec = Codec::new(version);
    codec.table_id = version == Version::V10;
    let body = Body::FlowMod(Box::new(change.clone()));
    let bytes = codec.encode(&Message { xid: 4, body });
    // What the version has no words for is not in the message.
    if let Ok(Message {
        body: Body::FlowMod(sent),
        ..
    }) = codec.decode(&bytes)
        && sent.matching.normalized() != change.matching.normalized()
    {
        return None;
    }
    lab.say_bytes(id, &bytes);
    if let Some((_, error)) = errors(&lab.hear(id, version)).first() {
        return Some(Err(*error));
    }
    lab.world.look(|switch| {
        let tables = switch.bridge(BRIDGE).unwrap().tables();
        let mut found = None;
        tables.for_each(None, &Condition::ANY, |at, _, rule| {
            assert!(found.is_none());
            found = Some((tables.describe(at).unwrap().1, Instructions::clone(&rule.instructions)));
        });
        Some(Ok(found.expect("the rule is there")))
    })
}

#[test]
fn every_field_is_matched_or_refused_in_every_version() {
    let mut taken = [0; 7];
    let mut wrong = Vec::new();
    for field in F::ALL.iter().copied().filter(|field| !field.info().ids.is_empty()) {
        let mut change = rule_for(field);
        if field.info().bits > 128 {
            let number = field as u8 - F::TunMetadata0 as u8;
            change.matching.add_tun_metadata(number, &[1, 2, 3, 4], None).unwrap();
        } else {
            let value = u128::from(field != F::PacketType);
            // Of a tag, that it is there.
            let value = if matches!(field, F::VlanTci | F::VlanVid) {
                0x1001
            } else {
                value
            };
            change.matching.set(field, value, field.info().valid);
        }
        for version in Version::ALL {
            match outcome(version, &change) {
                // OpenFlow 1.1 has a match of its own, of few fields.
                None => assert_eq!(version, Version::V11, "{field}"),
                Some(Ok((there, _))) if !is_refused(field) && there == change.matching.normalized() => {
                    taken[usize::from(version.number())] += 1;
                }
                Some(Err(OfError::BmcBadField | OfError::BmcBadPrereq)) if is_refused(field) => {}
                Some(Err(OfError::NxFmfcInvalidTlvField)) if field.info().bits > 128 => {}
                other => wrong.push(format!("{field} in {version}: {other:?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        taken[1] > 90 && taken[2] > 10 && taken[4..].iter().all(|one| *one == taken[4]),
        "{taken:?}"
    );
}

#[test]
fn every_field_is_set_loaded_and_moved_or_refused_in_every_version() {
    let mut wrong = Vec::new();
    for field in F::ALL.iter().copied().filter(|field| !field.info().ids.is_empty()) {
        if field.info().bits > 128 {
            continue;
        }
        let bits = field.part_bits().min(32) as u16;
        let part = Subfield::new(field, 0, bits).unwrap();
        let register = Subfield::new(F::Reg0, 0, bits).unwrap();
        let set = Action::SetField {
            field,
            value: Value::Word(if matches!(field, F::VlanTci | F::VlanVid) {
                0x1000
            } else {
                0
            }),
            mask: None,
        };
        let load = Action::Load { dst: part, value: 0 };
        let from = Action::Move {
            src: part,
            dst: register,
        };
        let to = Action::Move {
            src: register,
            dst: part,
        };
        // A connection's mark and label are set within `ct`.
        let may_be_set = field.writable() && !is_refused(field) && !field.name().starts_with("ct_");
        for (action, may) in [
            (set, may_be_set),
            (load, may_be_set),
            (to, may_be_set),
            (from, !is_refused(field)),
        ] {
            let mut change = rule_for(field);
            if field == F::VlanVid {
                change.matching.set(F::VlanTci, 0x1000, 0x1000);
            }
            if is_refused(field) {
                // Nothing but the action is to be at fault.
                change.matching = Match::ANY;
            }
            change.instructions = Instructions::apply(vec![action.clone()]);
            for version in Version::ALL {
                match outcome(version, &change) {
                    None => assert_eq!(version, Version::V11, "{field}"),
                    Some(Ok(_)) if may => {}
                    Some(Err(
                        OfError::BacBadSetArgument
                        | OfError::BacBadSetType
                        | OfError::BacBadArgument
                        | OfError::BacMatchInconsistent,
                    )) if !may => {}
                    other => wrong.push(format!("{action:?} in {version}: {other:?}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Rules, one for each action and instruction; the first version that has it; the error that it is
/// refused with.
const ACTIONS: &[(&str, Version, Option<OfError>)] = {
    use OfError as E;
    use Version::{V10, V11, V13};
    &[
        ("actions=output:2", V10, None),
        ("actions=in_port,local,flood,all,normal,controller", V10, None),
        ("actions=enqueue:2:1", V10, None),
        ("actions=output:NXM_NX_REG0[0..15]", V10, None),
        ("actions=output(port=2,max_len=100)", V10, None),
        (
            "actions=controller(max_len=10,reason=invalid_ttl,id=3,userdata=01.02)",
            V10,
            None,
        ),
        ("actions=controller(pause)", V10, None),
        ("actions=group:1", V11, Some(E::BacBadOutGroup)),
        ("actions=bundle(eth_src,0,hrw,ofport,members:1,2)", V10, None),
        (
            "actions=bundle_load(eth_src,0,hrw,ofport,NXM_NX_REG0[0..15],members:1,2)",
            V10,
            None,
        ),
        ("vlan_tci=0x1000/0x1000,actions=mod_vlan_vid:5", V10, None),
        ("vlan_tci=0x1000/0x1000,actions=mod_vlan_pcp:5", V10, None),
        ("vlan_tci=0x1000/0x1000,actions=strip_vlan", V10, None),
        ("actions=push_vlan:0x8100", V11, None),
        ("actions=push_vlan:0x88a8", V11, None),
        ("actions=mod_dl_src:02:00:00:00:00:01", V10, None),
        ("actions=mod_dl_dst:02:00:00:00:00:01", V10, None),
        (
            "ip,actions=mod_nw_src:1.2.3.4,mod_nw_dst:1.2.3.4,mod_nw_tos:4",
            V10,
            None,
        ),
        ("ip,actions=mod_nw_ecn:1,mod_nw_ttl:5", V11, None),
        ("tcp,actions=mod_tp_src:1,mod_tp_dst:2", V10, None),
        ("ip,actions=dec_ttl", V10, None),
        ("ip,actions=dec_ttl(1,2)", V10, None),
        (
            "mpls,actions=set_mpls_label:5,set_mpls_tc:3,set_mpls_ttl:9,dec_mpls_ttl",
            V10,
            None,
        ),
        ("ip,actions=push_mpls:0x8847", V10, None),
        ("mpls,actions=pop_mpls:0x0800", V10, None),
        ("actions=push:NXM_NX_REG0[],pop:NXM_NX_REG1[]", V10, None),
        ("actions=set_tunnel:5", V10, None),
        ("actions=set_tunnel64:0x123456789", V10, None),
        ("actions=set_queue:3,pop_queue", V10, None),
        ("tcp,actions=fin_timeout(idle_timeout=5,hard_timeout=6)", V10, None),
        ("actions=resubmit:1", V10, None),
        ("actions=resubmit(1,2)", V10, None),
        ("ip,actions=resubmit(1,2,ct)", V10, Some(E::BacMatchInconsistent)),
        (
            "actions=learn(table=1,idle_timeout=5,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])",
            V10,
            None,
        ),
        ("ip,actions=conjunction(1,1/2)", V10, None),
        ("actions=multipath(eth_src,0,hrw,4,0,NXM_NX_REG0[])", V10, None),
        ("actions=note:01.02", V10, None),
        ("actions=exit", V10, None),
        ("actions=clone(output:2)", V10, None),
        ("actions=check_pkt_larger(100)->NXM_NX_REG0[0]", V10, None),
        ("actions=sample(probability=1)", V10, None),
        ("ip,actions=ct(commit)", V10, None),
        ("ip,actions=ct_clear", V10, None),
        ("actions=encap(nsh(md_type=1))", V13, None),
        ("actions=decap()", V13, None),
        ("eth_type=0x894f,actions=dec_nsh_ttl", V13, None),
        (
            "actions=delete_field:tun_metadata0",
            V10,
            Some(E::NxFmfcInvalidTlvField),
        ),
        (
            "actions=set_field:1->tun_metadata0",
            V10,
            Some(E::NxFmfcInvalidTlvField),
        ),
        ("actions=push:tun_metadata0[0..7]", V10, Some(E::NxFmfcInvalidTlvField)),
        ("actions=meter:1", V13, Some(E::MmfcInvalidMeter)),
        ("actions=write_metadata:0x5/0xf", V10, None),
        ("actions=goto_table:2", V11, None),
        ("actions=write_actions(output:2)", V11, None),
        ("actions=clear_actions", V11, None),
    ]
};

#[test]
fn every_action_is_taken_or_refused_in_every_version() {
    let mut wrong = Vec::new();
    for (text, first, refused) in ACTIONS {
        let change = parse_flow(FlowCommand::Add, text, &Names::default()).unwrap_or_else(|e| panic!("{text}: {e}"));
        for version in Version::ALL.into_iter().filter(|version| version >= first) {
            let change = FlowMod {
                table: Some(0),
                ..change.clone()
            };
            let event = outcome(version, &change);
            let Some(event) = event else {
                assert_eq!(version, Version::V11, "{text}");
                continue;
            };
            if event.as_ref().err() != refused.as_ref() {
                wrong.push(format!("{text} in {version}: {event:?}"));
                continue;
            }
            if let Ok((_, instructions)) = event {
                let lists = [&instructions.apply, &instructions.write];
                let there = lists.iter().map(|list| list.len()).sum::<usize>();
                let given = change.instructions.apply.len() + change.instructions.write.len();
                let others = |of: &Instructions| (of.goto, of.clear, of.metadata);
                assert_eq!(
                    others(&instructions),
                    others(&change.instructions),
                    "{text} in {version}"
                );
                assert!(there >= given, "{text} in {version}: {instructions:?}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_instructions_that_tables_are_said_to_have_are_those_that_are_taken() {
    for version in [Version::V13, Version::V14, Version::V15] {
        let mut lab = Lab::new();
        let id = lab.open(Kind::Service, version);
        let request = StatsRequest::TableFeatures(Vec::new());
        lab.say(id, version, 1, Body::StatsRequest { more: false, request });
        let heard = lab.hear(id, version);
        let Body::StatsReply {
            reply: StatsReply::TableFeatures(tables),
            ..
        } = &heard[0].body
        else {
            panic!("{heard:?}");
        };
        let said = tables[0].properties.iter().find_map(|property| match property {
            TableProperty::Instructions { miss: false, ids } => Some(ids.clone()),
            _ => None,
        });
        let metered = said.unwrap().contains(&FeatureId::new(6));
        let mut change = rule(9);
        change.instructions.meter = Some(1);
        let bytes = Codec::new(version).encode(&Message {
            xid: 2,
            body: Body::FlowMod(Box::new(change)),
        });
        // The instruction, where the version has it, stands behind the match.
        assert_eq!(bytes.get(56..58) == Some(&[0, 6]), metered, "{version}");
    }
}
