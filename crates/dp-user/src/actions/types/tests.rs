use super::*;
use dp::{NshPush, parse_actions};
use flow::{Field, PacketMeta, PortNo, extract};
use proptest::prelude::*;
use std::sync::Arc;

const BEFORE: [u8; 20] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5, 1, 2, 3, 4, 5, 6];

/// A frame after actions; the first that cannot be done ends them.
fn after(data: &[u8], packet_type: u32, actions: &[Action]) -> Result<Frame, FrameError> {
    let mut frame = Frame::from_slice(data);
    frame.meta = PacketMeta::received(PortNo(1));
    frame.meta.set_packet_type(packet_type);
    let mut layers = Layers::UNKNOWN;
    for action in actions {
        change(action, &mut frame, &mut layers)?;
    }
    Ok(frame)
}

fn parsed(text: &str) -> Vec<Action> {
    parse_actions(text).unwrap()
}

#[test]
fn what_is_pushed_is_popped_again() {
    let push = "push_nsh(flags=1,ttl=62,mdtype=1,np=3,spi=0x1234,si=7,c1=0x1,c2=0x2,c3=0x3,c4=0x4),\
                push_eth(src=02:00:00:00:00:03,dst=02:00:00:00:00:04)";
    let frame = after(&BEFORE, 0, &parsed(push)).unwrap();
    assert_eq!(frame.meta.packet_type(), 0);
    let expected = [
        &[2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 3, 0x89, 0x4f][..],
        &[0x1f, 0x86, 1, 3, 0, 0x12, 0x34, 7],
        &[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4],
        &BEFORE,
    ];
    assert_eq!(frame.data(), expected.concat());
    let key = extract(frame.data(), &frame.meta).unwrap();
    assert_eq!((key.get(Field::NshSpi), key.get(Field::NshC4)), (0x1234, 4));
    let back = after(frame.data(), 0, &parsed("pop_eth,pop_nsh()")).unwrap();
    assert_eq!((back.data(), back.meta.packet_type()), (&BEFORE[..], 0));
}

#[test]
fn a_label_before_an_ethernet_packet_is_popped_from_it() {
    let mut frame = after(
        &BEFORE,
        0,
        &parsed("add_mpls(label=5,tc=0,ttl=64,bos=1,eth_type=0x8847)"),
    )
    .unwrap();
    assert_eq!(frame.meta.packet_type(), 0x1_8847);
    assert_eq!(frame.data()[12..18], [0x88, 0x47, 0, 0, 0x51, 64]);
    let mut layers = Layers::UNKNOWN;
    crate::actions::headers::pop_mpls(&mut frame, &mut layers, 0x6558).unwrap();
    uncover(&mut frame).unwrap();
    assert_eq!((frame.data(), frame.meta.packet_type()), (&BEFORE[..], 0));
}

#[test]
fn a_header_cut_at_any_byte_is_not_popped() {
    let frame = after(&BEFORE, 0, &parsed("push_nsh(np=3)")).unwrap();
    assert_eq!(frame.meta.packet_type(), 0x1_894f);
    // An Ethernet header has to be behind it.
    for cut in 0..14 + 24 + 14 {
        let cut = &frame.data()[..cut];
        assert!(after(cut, 0x1_894f, &[Action::PopNsh]).is_err(), "{}", cut.len());
    }
    for words in (0..64).filter(|words| *words != 6) {
        let mut wrong = frame.data().to_vec();
        wrong[15] = wrong[15] & 0xc0 | words;
        assert!(after(&wrong, 0x1_894f, &[Action::PopNsh]).is_err(), "{words}");
    }
}

proptest! {
    #[test]
    fn no_bytes_and_actions_panic_and_a_push_is_undone_by_a_pop(
        data in proptest::collection::vec(any::<u8>(), 0..90),
        bare: bool,
        kind in prop_oneof![Just(0x894fu16), Just(0x0800), any::<u16>()],
        words in 0usize..20,
    ) {
        let mut data = data;
        if let Some(at) = data.get_mut(12..14).filter(|_| bare) {
            at.copy_from_slice(&kind.to_be_bytes());
        }
        let packet_type = if bare { 0x1_0000 | u32::from(kind) } else { 0 };
        let _ = after(&data, packet_type, &parsed("pop_nsh(),pop_nsh(),pop_eth,pop_nsh()"));
        let protocol = match (bare, kind) {
            (false, _) => protocol::ETHERNET,
            (true, 0x894f) => protocol::NSH,
            (true, 0x0800) => protocol::IPV4,
            _ => return Ok(()),
        };
        let push = Action::PushNsh(Arc::new(NshPush {
            flags: 0,
            ttl: 63,
            md_type: 2,
            protocol,
            path: 5,
            index: 6,
            metadata: vec![7; 4 * words],
        }));
        if data.len() >= ETHERNET {
            let before = after(&data, packet_type, &[]).unwrap();
            let frame = after(&data, packet_type, &[push, Action::PopNsh]).unwrap();
            let network = if bare { 12 } else { 0 };
            prop_assert_eq!(&frame.data()[network..], &before.data()[network..]);
            prop_assert_eq!(frame.meta.packet_type(), packet_type);
        }
    }
}
