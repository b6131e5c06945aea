use super::*;
use MatchField as F;
use proptest::prelude::*;

fn tcp() -> Match {
    let mut m = Match::ANY;
    m.add(F::EthType, 0x0800, 0xffff).unwrap();
    m.add(F::NwProto, 6, 0xff).unwrap();
    m
}

#[test]
fn a_field_needs_what_its_protocol_is() {
    let mut m = Match::ANY;
    assert_eq!(m.add(F::TcpSrc, 80, 0xffff), Err(OfError::BmcBadPrereq));
    let mut m = tcp();
    assert_eq!(m.add(F::TcpSrc, 80, 0xffff), Ok(()));
    assert_eq!(m.add(F::UdpSrc, 80, 0xffff), Err(OfError::BmcBadPrereq));
    let mut m = tcp();
    m.add(F::IpFrag, 3, 3).unwrap();
    assert_eq!(m.add(F::TcpSrc, 80, 0xffff), Err(OfError::BmcBadPrereq));
}

#[test]
fn what_is_wrong_with_a_condition_is_said_as_the_specification_says() {
    let mut m = tcp();
    assert_eq!(m.add(F::EthType, 0x0800, 0xffff), Err(OfError::BmcDupField));
    assert_eq!(m.add(F::IpSrc, 1, 2), Err(OfError::BmcBadWildcards));
    assert_eq!(m.add(F::NwTtl, 1, 1), Err(OfError::BmcBadMask));
    assert_eq!(m.add(F::NwEcn, 4, 0xff), Err(OfError::BmcBadValue));
    assert_eq!(m.add(F::NwEcn, 3, 0xff), Ok(()));
    assert_eq!(m.exact(F::NwEcn), Some(3));
}

#[test]
fn views_and_canonical_fields_say_the_same() {
    let (mut a, mut b) = (Match::ANY, Match::ANY);
    a.set(F::VlanVid, 0x1009, 0x1fff);
    a.set(F::VlanPcp, 7, 7);
    b.set(F::DlVlan, 9, 0xfff);
    b.set(F::DlVlanPcp, 7, 7);
    assert_eq!(a, b);
    assert_eq!(a.exact(F::VlanTci), Some(0xf009));
    assert_eq!(a.get(F::VlanPcp), Some((7, 7)));

    let mut c = Match::ANY;
    c.set(F::Xreg1, 0x1_0000_0002, u128::from(u64::MAX));
    assert_eq!((c.exact(F::Reg2), c.exact(F::Reg3)), (Some(1), Some(2)));
    assert_eq!(c.exact(F::Xreg1), Some(0x1_0000_0002));
    assert_eq!(c.exact(F::Xxreg0), None);

    let mut d = Match::ANY;
    d.set(F::InPort, 0xfffe, 0xffff);
    assert_eq!(d.exact(F::InPortOxm), Some(0xffff_fffe));
}

#[test]
fn no_tag_is_said_with_the_bits_that_were_asked_for() {
    let said = [
        (F::VlanVid, 0, 0x1fff),
        (F::VlanVid, 0, 0x1000),
        (F::VlanTci, 0, 0x1fff),
        (F::VlanTci, 0, 0xffff),
        (F::VlanTci, 0x0123, 0xffff),
    ];
    for (field, value, mask) in said {
        let mut m = Match::ANY;
        m.set(field, value, mask);
        assert_eq!(m.get(F::VlanTci), Some((value, mask)), "{field} {mask:#x}");
        assert!(!m.meets(MatchPrerequisite::VlanVid));
    }
    let mut m = Match::ANY;
    m.add(F::VlanVid, 0, 0x1fff).unwrap();
    assert_eq!(m.add(F::VlanPcp, 1, 7), Err(OfError::BmcBadPrereq));
}

#[test]
fn normalizing_takes_out_what_packets_need_not_have() {
    let mut m = Match::ANY;
    m.set(F::EthType, 0x1234, 0xffff);
    m.set(F::NwProto, 6, 0xff);
    m.set(F::TcpDst, 80, 0xffff);
    m.set(F::Reg1, 5, 0xff);
    let m = m.normalized();
    assert_eq!(
        m.entries().iter().map(|e| e.field).collect::<Vec<_>>(),
        [F::Reg1, F::EthType]
    );
}

#[test]
fn tunnel_metadata_is_kept_as_long_as_it_came() {
    let mut m = Match::ANY;
    m.add_tun_metadata(3, &[1, 2], None).unwrap();
    assert_eq!(m.add_tun_metadata(3, &[1], None), Err(OfError::BmcDupField));
    assert_eq!(m.add_tun_metadata(4, &[1], Some(&[2])), Err(OfError::BmcBadWildcards));
    assert_eq!(m.add_tun_metadata(64, &[1], None), Err(OfError::BmcBadField));
    assert_eq!(m.to_state(), None);
    assert!(!m.is_any());
}

proptest! {
    #[test]
    fn a_match_is_the_same_behind_a_state(said in proptest::collection::vec((any::<usize>(), any::<u128>(), any::<u128>()), 0..12)) {
        let mut m = Match::ANY;
        for (n, value, mask) in said {
            let field = F::ALL[n % F::ALL.len()];
            m.set(field, value & mask, mask);
        }
        let m = m.normalized();
        let state = m.to_state().unwrap();
        prop_assert_eq!(Match::from_state(&state), m.clone());
        prop_assert_eq!(m.normalized(), m.clone());
        for entry in m.entries() {
            prop_assert_eq!(entry.value & !entry.mask, 0);
            prop_assert!(entry.mask != 0 && entry.field.info().canonical);
        }
    }
}
