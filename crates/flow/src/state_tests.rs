use super::*;
use proptest::prelude::*;

fn stored() -> impl Iterator<Item = MatchField> {
    MatchField::ALL
        .iter()
        .copied()
        .filter(|f| f.info().home != Home::Elsewhere)
}

/// Fields that share bits by design: a packet has one of their protocols.
fn exclusive(field: MatchField) -> bool {
    use MatchField::*;
    matches!(field, UdpSrc | UdpDst | SctpSrc | SctpDst | Icmpv6Type | Icmpv6Code)
}

#[test]
fn canonical_fields_share_no_bits() {
    let mut taken = FlowState::ZERO;
    for field in stored().filter(|f| f.info().canonical && !exclusive(*f)) {
        assert_eq!(taken.get(field), 0, "{field}");
        taken.set(field, u128::MAX);
    }
}

#[test]
fn a_field_reads_as_it_was_set_and_leaves_other_bits_alone() {
    for field in stored() {
        for background in [0, u128::MAX] {
            let mut state = FlowState::ZERO;
            for other in stored() {
                state.set(other, background);
            }
            let mut changed = state;
            changed.set(field, !background);
            assert_eq!(changed.get(field), !background & field.info().valid, "{field}");
            changed.set(field, background);
            assert_eq!(changed, state, "{field}");
        }
    }
}

#[test]
fn extended_registers_are_views_of_the_registers() {
    let mut state = FlowState::ZERO;
    state.set(MatchField::Xxreg1, 0x1111_1111_2222_2222_3333_3333_4444_4444);
    assert_eq!(state.get(MatchField::Reg4), 0x1111_1111);
    assert_eq!(state.get(MatchField::Reg7), 0x4444_4444);
    assert_eq!(state.get(MatchField::Xreg2), 0x1111_1111_2222_2222);
    assert_eq!(state.get(MatchField::Xreg3), 0x3333_3333_4444_4444);
}

#[test]
fn both_ingress_port_fields_show_the_same_port() {
    let mut state = FlowState::new(Key::ZERO, 0xffff_fffe);
    assert_eq!(state.get(MatchField::InPort), 0xfffe);
    state.set(MatchField::InPort, 0xfffd);
    assert_eq!(state.get(MatchField::InPortOxm), 0xffff_fffd);
    state.set(MatchField::InPort, 7);
    assert_eq!(state.get(MatchField::InPortOxm), 7);

    let mut local = StateMatch::ANY;
    local.require(MatchField::InPort, 0xfffe, 0xffff);
    assert!(local.matches(&FlowState::new(Key::ZERO, 0xffff_fffe)));
    assert!(!local.matches(&FlowState::new(Key::ZERO, 0xfffe)));
}

#[test]
fn views_of_a_tag_and_of_the_type_of_service_read_their_bits() {
    let mut state = FlowState::ZERO;
    state.set(MatchField::VlanTci, 0xf009);
    assert_eq!(state.get(MatchField::VlanVid), 0x1009);
    assert_eq!(state.get(MatchField::DlVlan), 9);
    assert_eq!(state.get(MatchField::VlanPcp), 7);
    state.set(MatchField::IpDscp, 46);
    state.set(MatchField::NwEcn, 1);
    assert_eq!(state.get(MatchField::NwTos), 184);
    assert_eq!(state.get(MatchField::NwEcn), 1);
}

proptest! {
    #[test]
    fn a_condition_is_met_exactly_where_all_its_bits_agree(
        fields in proptest::collection::vec((any::<usize>(), any::<u128>(), any::<u128>()), 1..5),
        values in proptest::collection::vec((any::<usize>(), any::<u128>()), 0..8),
    ) {
        let all: Vec<_> = stored().filter(|f| *f != MatchField::InPort).collect();
        let mut condition = StateMatch::ANY;
        for (n, value, mask) in &fields {
            condition.require(all[n % all.len()], *value, *mask);
        }
        let mut state = *condition.value();
        prop_assert!(condition.matches(&state));
        prop_assert_eq!(state.masked(condition.mask()), state);
        for (n, value) in &values {
            state.set(all[n % all.len()], *value);
        }
        let same = all.iter().all(|f| (state.get(*f) ^ condition.value().get(*f)) & condition.mask().get(*f) == 0);
        prop_assert_eq!(condition.matches(&state), same);
    }
}
