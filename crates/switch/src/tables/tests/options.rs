use super::*;
use openflow::model::{Subfield, TlvMap};
use openflow::text::{Names, Style, matching, parse_flow, parse_tlv_maps};

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
    tables.change_options(ADD, &maps(all)).unwrap();
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
            "{class=1,type=1,len=12}->tun_metadata1,{class=1,type=2,len=8}->tun_metadata2",
            NxTtmfcTableFull,
        ),
    ] {
        assert_eq!(tables.change_options(ADD, &maps(text)), Err(error), "{text}");
    }
    assert_eq!(tables.change_options(3, &[]), Err(NxTtmfcBadCommand));
    let there: Vec<_> = tables.options().table().maps.iter().map(|map| map.index).collect();
    assert_eq!(there, [0, 5, 63]);
    tables
        .change_options(DELETE, &maps("{class=0xffff,type=0,len=4}->tun_metadata0"))
        .unwrap();
    // There was room between the others, and after them.
    tables
        .change_options(ADD, &maps("{class=7,type=7,len=20}->tun_metadata0"))
        .unwrap();
    assert_eq!(
        tables.change_options(ADD, &maps("{class=7,type=8,len=4}->tun_metadata1")),
        Err(NxTtmfcTableFull)
    );
    tables.change_options(CLEAR, &[]).unwrap();
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
            let refused = tables.change_options(command, which);
            assert_eq!(refused, Err(OfError::NxTtmfcInvalidTlvDel), "{text}");
        }
        let other = maps("{class=0xffff,type=1,len=12}->tun_metadata5");
        tables.change_options(DELETE, &other).unwrap();
        assert_eq!(tables.options().table().maps.len(), 2);
        let delete = FlowMod {
            command: FlowCommand::Delete,
            ..FlowMod::default()
        };
        tables.flow_mod(&delete, T1).unwrap();
        tables.change_options(CLEAR, &[]).unwrap();
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
