//! Random actions on random packets.

use super::*;

fn any_action() -> impl Strategy<Value = Action> {
    let field = (0..Field::ALL.len(), any::<u128>(), any::<u128>());
    let ethertype = || prop_oneof![Just(0x0800u16), Just(0x86dd), Just(0x8847), Just(0x8100), any::<u16>()];
    prop_oneof![
        2 => (1..5u32).prop_map(output),
        4 => field.prop_filter_map("writable", |(field, value, mask)| {
            SetField::new(Field::ALL[field], value, mask).map(Action::SetField)
        }),
        1 => (ethertype(), any::<u16>()).prop_map(|(tpid, tci)| Action::PushVlan(VlanTag { tpid, tci })),
        1 => Just(Action::PopVlan),
        1 => (ethertype(), any::<u32>()).prop_map(|(ethertype, lse)| Action::PushMpls { ethertype, lse }),
        1 => ethertype().prop_map(|ethertype| Action::PopMpls { ethertype }),
        1 => (any::<u32>(), any::<u32>()).prop_map(|(lse, mask)| Action::SetMpls { lse, mask }),
        1 => Just(Action::CopyTtlOut),
        1 => Just(Action::CopyTtlIn),
        1 => (0..200u32).prop_map(Action::Trunc),
        1 => (0..200u16).prop_map(|max_len| Action::Punt { reason: PuntReason::Controller, handle: 1, max_len }),
        1 => (0..3u32).prop_map(Action::Meter),
        1 => (0..6u32).prop_map(Action::Clone),
        1 => (any::<u32>(), 0..6u32).prop_map(|(probability, steps)| Action::Sample { probability, steps }),
        1 => (0..200u16, 0..4u32, 0..4u32).prop_map(|(len, then, otherwise)| Action::IfLonger { len, then, otherwise }),
        1 => (1..3u32).prop_map(Action::Recirc),
        1 => (1..3u32).prop_map(|basis| Action::RecircByHash {
            id: flow::RecircId::hashed(basis),
            hash: dp::FlowHash::L4 { basis },
        }),
        1 => any::<u32>().prop_map(Action::SetQueue),
        1 => any::<u32>().prop_map(|tci| Action::PushPbb { tci }),
        1 => Just(Action::PopPbb),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases * 4, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_packet_and_no_actions_make_a_worker_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        kind in prop_oneof![Just(0x0800u16), Just(0x86dd), Just(0x8847), Just(0x8100), Just(0x0806), any::<u16>()],
        cut in 0..60usize,
        whole: bool,
        actions in prop::collection::vec(any_action(), 0..20),
        pending: Option<(u8, u8)>,
        gso in 0..4usize,
        gso_size in 1..100u16,
    ) {
        let mut fixture = Fixture::new();
        let config = MeterConfig {
            unit: MeterUnit::Kbps,
            bands: vec![Band { rate: 1, burst: 0, effect: BandEffect::DscpRemark(1) }],
            cause: DropCause::Meter,
        };
        fixture.meters.set(1, &config).unwrap();
        let mut packet = if whole { tcp(1, &bytes) } else { bytes };
        if let Some(field) = packet.get_mut(12..14) && !whole {
            field.copy_from_slice(&kind.to_be_bytes());
        }
        packet.truncate(packet.len().saturating_sub(cut));
        let mut frame = Frame::from_slice(&packet);
        if let Some((start, offset)) = pending {
            frame.offload.csum = Csum::Partial { start: start.into(), offset: offset.into() };
        }
        frame.offload.gso = [Gso::None, Gso::Tcp4, Gso::Tcp6, Gso::Udp][gso];
        (frame.offload.gso_size, frame.offload.hdr_len) = (gso_size, 54);
        fixture.run(frame, &actions);
    }

    #[test]
    fn what_is_pushed_and_popped_again_leaves_the_packet_as_it_was(
        pushes in prop::collection::vec((any::<bool>(), any::<u32>()), 0..8), port: u16, tagged: bool,
    ) {
        let mut fixture = Fixture::new();
        let mut frame = Frame::from_slice(&udp([10, 0, 0, 1], port).bytes());
        if tagged {
            frame.push_vlan(VlanTag { tpid: 0x8100, tci: 5 }).unwrap();
        }
        let before = frame.data().to_vec();
        let (mut actions, mut pops) = (Vec::new(), Vec::new());
        let mut kind = 0x0800;
        for (vlan, value) in pushes {
            if vlan {
                actions.push(Action::PushVlan(VlanTag { tpid: 0x88a8, tci: value as u16 }));
                pops.push(Action::PopVlan);
            } else {
                actions.push(Action::PushMpls { ethertype: 0x8847, lse: value });
                pops.push(Action::PopMpls { ethertype: kind });
                kind = 0x8847;
            }
        }
        actions.extend(pops.into_iter().rev());
        actions.extend([set(Field::TpDst, 54), set(Field::TpDst, 53), output(1)]);
        let [one, ..] = fixture.run(frame, &actions);
        prop_assert_eq!(&one[0], &before);
    }
}
