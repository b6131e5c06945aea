//! BPDUs: recorded ones, and ones that are cut or changed.

use crate::stp::wire::{Bpdu, BridgeId, Message, PortId, RstFlags, Times, WireError, WireRole};
use proptest::prelude::*;
use testkit::from_hex;
use wire::MacAddr;

/// A Configuration BPDU of the kernel's bridge.
const CONFIG: &str =
    "0180c200000002000000000100264242030000000000800002000000000100000000800002000000000180010000140002000f00";
/// An RST BPDU of `mstpd`: designated, forwarding, proposal off, agreement on.
const RST: &str = "0180c2000000020000000001002742420300000202 7c 8000020000000001 00000000 8000020000000001 8001 0000 1400 0200 0f00 00";

fn bytes(hex: &str) -> Vec<u8> {
    from_hex(&hex.replace(' ', ""))
}

fn message() -> Message {
    let id = BridgeId::new(0x8000, MacAddr([2, 0, 0, 0, 0, 1]));
    Message {
        root: id,
        cost: 0,
        bridge: id,
        port: PortId(0x8001),
        times: Times {
            message_age: 0,
            max_age: 0x1400,
            hello_time: 0x200,
            forward_delay: 0xf00,
        },
        topology_change: false,
    }
}

#[test]
fn the_three_types_have_the_standards_format() {
    let source = MacAddr([2, 0, 0, 0, 0, 1]);
    let config = Bpdu::Config(message(), false);
    assert_eq!(Bpdu::parse(&bytes(CONFIG)), Ok(config));
    assert_eq!(config.emit(source), bytes(CONFIG));
    let flags = RstFlags {
        role: WireRole::Designated,
        proposal: false,
        agreement: true,
        learning: true,
        forwarding: true,
    };
    let rst = Bpdu::Rst(message(), flags);
    assert_eq!(Bpdu::parse(&bytes(RST)), Ok(rst));
    assert_eq!(rst.emit(source), bytes(RST));
    let tcn = bytes("0180c2000000020000000001000742420300000080");
    assert_eq!(Bpdu::parse(&tcn), Ok(Bpdu::Tcn));
    assert_eq!(Bpdu::Tcn.emit(source), tcn);
}

#[test]
fn padding_and_parts_of_later_versions_are_passed_over() {
    let mut padded = bytes(CONFIG);
    padded.resize(60, 0);
    assert_eq!(Bpdu::parse(&padded), Bpdu::parse(&bytes(CONFIG)));
    // Version 3 (MSTP) has more behind the same part.
    let mut later = bytes(RST);
    (later[13], later[19]) = (0x27 + 64, 3);
    later.extend([7; 64]);
    assert_eq!(Bpdu::parse(&later), Bpdu::parse(&bytes(RST)));
}

#[test]
fn every_cut_and_every_wrong_length_is_refused() {
    for hex in [CONFIG, RST] {
        let whole = bytes(hex);
        for end in 0..whole.len() {
            assert!(Bpdu::parse(&whole[..end]).is_err(), "{end}");
            // The length field says as much as there is.
            if end >= 17 {
                let mut cut = whole[..end].to_vec();
                cut[12..14].copy_from_slice(&((end - 14) as u16).to_be_bytes());
                assert_eq!(Bpdu::parse(&cut), Err(WireError::Runt), "{end}");
            }
        }
        for length in 0..=u16::MAX {
            let mut wrong = whole.clone();
            wrong[12..14].copy_from_slice(&length.to_be_bytes());
            let parsed = Bpdu::parse(&wrong);
            assert_eq!(parsed.is_ok(), usize::from(length) == whole.len() - 14, "{length}");
        }
    }
}

#[test]
fn what_is_not_a_bpdu_is_refused_by_its_cause() {
    let with = |at: usize, byte: u8| {
        let mut frame = bytes(CONFIG);
        frame[at] = byte;
        Bpdu::parse(&frame)
    };
    assert_eq!(with(5, 1), Err(WireError::NotBpdu));
    assert_eq!(with(14, 0xaa), Err(WireError::NotBpdu));
    assert_eq!(with(18, 1), Err(WireError::Protocol));
    assert_eq!(with(20, 0x33), Err(WireError::Type));
    // An RST BPDU of version 0 does not exist.
    assert_eq!(with(20, 0x02), Err(WireError::Type));
    assert_eq!(with(44, 0x14), Err(WireError::Old));
    for error in [
        WireError::NotBpdu,
        WireError::Protocol,
        WireError::Type,
        WireError::Old,
        WireError::Runt,
    ] {
        assert!(!error.to_string().is_empty());
    }
}

proptest! {
    #[test]
    fn any_bytes_parse_or_not_and_what_parses_is_written_back(frame in proptest::collection::vec(any::<u8>(), 0..80), real: bool) {
        let mut frame = frame;
        if real && frame.len() >= 21 {
            let mut start = bytes(CONFIG);
            start.truncate(21);
            (start[13], start[20]) = ((frame.len() - 14) as u8, frame[20] & 0x82);
            start[19] = 2;
            frame[..21].copy_from_slice(&start);
        }
        if let Ok(bpdu) = Bpdu::parse(&frame) {
            prop_assert_eq!(Bpdu::parse(&bpdu.emit(MacAddr::ZERO)), Ok(bpdu));
        }
    }
}
