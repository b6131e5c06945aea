use super::*;
use crate::tables::options::number;
use flow::{FlowState, MatchField};
use openflow::model::{Subfield, TlvMap, Value};
use openflow::text::{Names, Style, matching, parse_flow, parse_tlv_maps};
use proptest::prelude::*;

const ADD: u16 = 0;
const DELETE: u16 = 1;
const CLEAR: u16 = 2;

fn maps(text: &str) -> Vec<TlvMap> {
    parse_tlv_maps(text).unwrap()
}

fn mapped() -> FlowTables {
    let mut tables = tables();
    let all = "{class=0xffff,type=0,len=4}->tun_metadata0,{class=0xffff,type=1,len=12}->tun_metadata5,\
               {class=2,type=1,len=0}->tun_metadata63";
    tables.change_options(ADD, &maps(all), 0).unwrap();
    tables
}

fn flow(tables: &mut FlowTables, text: &str) -> Result<String, OfError> {
    let change = parse_flow(FlowCommand::Add, text, &Names::default()).unwrap();
    let at = tables.flow_mod(&change, T1)?.added[0];
    Ok(matching(&tables.describe(at).unwrap().1, Style::PLAIN))
}

#[test]
fn options_are_mapped_all_or_none_and_as_far_as_there_is_room() {
    use OfError::*;
    let mut tables = mapped();
    for (text, error) in [
        ("{class=1,type=1,len=4}->tun_metadata0", NxTtmfcAlreadyMapped),
        ("{class=0xffff,type=0,len=4}->tun_metadata1", NxTtmfcDupEntry),
        (
            "{class=1,type=1,len=4}->tun_metadata1,{class=1,type=2,len=4}->tun_metadata1",
            NxTtmfcAlreadyMapped,
        ),
        (
            "{class=1,type=1,len=120}->tun_metadata1,{class=1,type=2,len=124}->tun_metadata2",
            NxTtmfcTableFull,
        ),
    ] {
        assert_eq!(tables.change_options(ADD, &maps(text), 0), Err(error), "{text}");
    }
    assert_eq!(tables.change_options(3, &[], 0), Err(NxTtmfcBadCommand));
    let there: Vec<_> = tables.options().table().maps.iter().map(|map| map.index).collect();
    assert_eq!(there, [0, 5, 63]);
    tables
        .change_options(DELETE, &maps("{class=0xffff,type=0,len=4}->tun_metadata0"), 0)
        .unwrap();
    // There was room between the others, and after them.
    let rest = "{class=7,type=7,len=124}->tun_metadata0,{class=7,type=9,len=120}->tun_metadata2";
    tables.change_options(ADD, &maps(rest), 0).unwrap();
    assert_eq!(
        tables.change_options(ADD, &maps("{class=7,type=8,len=4}->tun_metadata1"), 0),
        Err(NxTtmfcTableFull)
    );
    tables.change_options(CLEAR, &[], 0).unwrap();
    assert!(tables.options().table().maps.is_empty());
}

#[test]
fn a_match_comes_back_with_the_bits_that_it_asked_for() {
    let mut tables = mapped();
    for (text, told) in [
        ("tun_metadata0=0x12", "tun_metadata0=0x12"),
        ("tun_metadata0", "tun_metadata0"),
        ("tun_metadata0=0", "tun_metadata0=0"),
        ("tun_metadata63", "tun_metadata63"),
        ("tun_metadata5=0x10/0xfff0", "tun_metadata5=0x10/0xfff0"),
        (
            "tun_metadata5=0x123456789abcdef012345678,reg0=7",
            "reg0=0x7,tun_metadata5=0x123456789abcdef012345678",
        ),
    ] {
        assert_eq!(
            flow(&mut tables, &format!("{text},actions=output:1")).as_deref(),
            Ok(told)
        );
    }
    assert_eq!(tables.len(), 6);
    for (text, error) in [
        ("tun_metadata1=1,actions=output:1", OfError::NxFmfcInvalidTlvField),
        ("tun_metadata0=0x123456789,actions=output:1", OfError::BmcBadValue),
        ("actions=set_field:1->tun_metadata1", OfError::NxFmfcInvalidTlvField),
        ("actions=set_field:0x123456789->tun_metadata0", OfError::BacBadSetLen),
        ("actions=push:tun_metadata0[8..39]", OfError::BacBadSetLen),
        (
            "actions=clone(delete_field:tun_metadata1)",
            OfError::NxFmfcInvalidTlvField,
        ),
        (
            "actions=learn(table=1,tun_metadata0[0..31]=tun_metadata1[0..31])",
            OfError::NxFmfcInvalidTlvField,
        ),
    ] {
        assert_eq!(flow(&mut tables, text), Err(error), "{text}");
    }
}

#[test]
fn a_field_that_rules_use_keeps_its_option() {
    for text in [
        "tun_metadata0=1,actions=output:1",
        "actions=set_field:1->tun_metadata0",
        "actions=clone(move:tun_metadata0[0..7]->reg0[0..7])",
        "actions=learn(table=1,tun_metadata0[0..31]=reg0[])",
    ] {
        let mut tables = mapped();
        flow(&mut tables, text).unwrap();
        let used = maps("{class=0xffff,type=0,len=4}->tun_metadata0");
        for (command, which) in [(DELETE, &used[..]), (CLEAR, &[])] {
            let refused = tables.change_options(command, which, 0);
            assert_eq!(refused, Err(OfError::NxTtmfcInvalidTlvDel), "{text}");
        }
        let other = maps("{class=0xffff,type=1,len=12}->tun_metadata5");
        tables.change_options(DELETE, &other, 0).unwrap();
        assert_eq!(tables.options().table().maps.len(), 2);
        let delete = FlowMod {
            command: FlowCommand::Delete,
            ..FlowMod::default()
        };
        tables.flow_mod(&delete, T1).unwrap();
        tables.change_options(CLEAR, &[], 0).unwrap();
    }
}

#[test]
fn conditions_on_parts_of_a_field_are_all_asked_for() {
    let tables = mapped();
    let mut wanted = openflow::model::Match::ANY;
    for (ofs, bits) in [(0, 0x28), (16, 0x29), (4, 0xf)] {
        let part = Subfield::new(F::TunMetadata0, ofs, 8).unwrap();
        tables.options().require(&mut wanted, &part, bits);
    }
    assert_eq!(matching(&wanted, Style::PLAIN), "tun_metadata0=0x2900f8/0xff0fff");
}

/// A state with the fields of a match's text.
fn state_with(tables: &FlowTables, text: &str) -> FlowState {
    let change = parse_flow(FlowCommand::Add, &format!("{text},actions=drop"), &Names::default()).unwrap();
    let mut state = FlowState::ZERO;
    tables.options().give(&change.matching, &mut state);
    state
}

#[test]
fn set_fields_are_options_in_the_order_of_their_numbers() {
    let tables = mapped();
    let packets = tables.options().packets();
    let all = "tun_metadata63,tun_metadata5=0x0102030405060708090a0b0c,tun_metadata0=0xabcd";
    for (text, bytes) in [
        ("tun_metadata0=0xabcd", &[0xff, 0xff, 0, 1, 0, 0, 0xab, 0xcd][..]),
        ("tun_metadata0=0", &[0xff, 0xff, 0, 1, 0, 0, 0, 0]),
        ("tun_metadata63", &[0, 2, 1, 0]),
        ("reg0=1", &[]),
        (
            all,
            &[
                0xff, 0xff, 0, 1, 0, 0, 0xab, 0xcd, // tun_metadata0
                0xff, 0xff, 1, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, // tun_metadata5
                0, 2, 1, 0, // tun_metadata63
            ],
        ),
    ] {
        let state = state_with(&tables, text);
        let sent = dp::geneve::send(packets, &state.tunnel_options()).unwrap();
        assert_eq!(sent.options().bytes(), bytes, "{text}");
        let mut received = FlowState::ZERO;
        received.set_tunnel_options(&dp::geneve::receive(packets, sent.options()).unwrap());
        assert_eq!(received, state, "{text}");
    }
}

#[test]
fn options_of_received_packets_are_fields_as_far_as_they_are_mapped() {
    use tunnel::format::Refusal;
    use tunnel::format::geneve::Options;
    let mut tables = mapped();
    let read = |tables: &FlowTables, bytes: &[u8]| {
        let options = Options::new(bytes).unwrap();
        let words = dp::geneve::receive(tables.options().packets(), options)?;
        let mut state = FlowState::ZERO;
        state.set_tunnel_options(&words);
        let mut told = openflow::model::Match::ANY;
        tables.options().tell(&state, &mut told);
        Ok(matching(&told, Style::PLAIN))
    };
    let one = [0xff, 0xff, 0, 1, 0, 0, 0xab, 0xcd];
    let unknown = [9, 9, 9, 1, 1, 1, 1, 1];
    assert_eq!(read(&tables, &one).as_deref(), Ok("tun_metadata0=0xabcd"));
    assert_eq!(
        read(&tables, &[unknown, one].concat()).as_deref(),
        Ok("tun_metadata0=0xabcd")
    );
    assert_eq!(read(&tables, &[0xff, 0xff, 0, 0]), Err(Refusal::GeneveOptionLength));
    assert_eq!(read(&tables, &[9, 9, 0x89, 0]), Err(Refusal::GeneveCritical));
    tables.change_options(CLEAR, &[], 0).unwrap();
    assert_eq!(read(&tables, &one), read(&tables, &[]));
}

proptest! {
    #[test]
    fn a_field_comes_back_from_the_wire_whatever_was_mapped_before(
        lengths in proptest::collection::vec(0u8..4, 1..5),
        removed in 0usize..5,
        again in 0u8..4,
        values in proptest::collection::vec(any::<[u8; 16]>(), 6),
        present in 0u8..64,
    ) {
        let map = |index: usize, units: u8| TlvMap { class: 7, kind: index as u8, len: units * 4, index: index as u16 };
        let mut tables = tables();
        for (index, units) in lengths.iter().enumerate() {
            let _ = tables.change_options(ADD, &[map(index, *units)], 0);
        }
        // A mapping that is gone leaves room between others.
        let _ = tables.change_options(DELETE, &[map(removed, 0)], 0);
        let _ = tables.change_options(ADD, &[map(5, again)], 0);
        let mapped = tables.options().table().maps;
        let mut state = FlowState::ZERO;
        let mut expected = Vec::new();
        for map in mapped.iter().filter(|map| present >> map.index & 1 != 0) {
            let data = &values[usize::from(map.index)][..usize::from(map.len)];
            let field = MatchField::ALL.iter().copied().find(|field| number(*field) == Some(map.index as u8)).unwrap();
            tables.options().set(&mut state, field, &Value::Wide(data.into()), None);
            expected.extend([0, 7, map.kind, map.len / 4]);
            expected.extend(data);
        }
        let packets = tables.options().packets();
        let sent = dp::geneve::send(packets, &state.tunnel_options()).unwrap();
        prop_assert_eq!(sent.options().bytes(), &expected[..]);
        let mut received = FlowState::ZERO;
        received.set_tunnel_options(&dp::geneve::receive(packets, sent.options()).unwrap());
        prop_assert_eq!(received, state);
    }
}
