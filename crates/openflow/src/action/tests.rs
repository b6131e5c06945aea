use crate::buf::Writer;
use crate::instruction;
use crate::model::{Action, Match, Value};
use crate::{OfError, Version};
use flow::MatchField as F;

/// What Debian's ovs-ofctl 3.1 sends for actions: version, text, bytes of the flow's actions or
/// instructions.
const OBSERVED: &str = include_str!("../../tests/fixtures/actions.txt");

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len()).step_by(2);
    pairs.map(|n| u8::from_str_radix(&hex[n..n + 2], 16).unwrap()).collect()
}

/// The match of the flow that had the actions, as far as they depend on it.
fn matching(protocol: &str) -> Match {
    let mut m = Match::ANY;
    let (eth_type, proto) = match protocol {
        "ip" => (0x0800, 0),
        "tcp" => (0x0800, 6),
        "udp" => (0x0800, 17),
        "sctp" => (0x0800, 132),
        "mpls" => (0x8847, 0),
        "vlan" => {
            m.set(F::DlVlan, 9, 0xfff);
            return m;
        }
        _ => return m,
    };
    m.set(F::EthType, eth_type, 0xffff);
    if proto != 0 {
        m.set(F::NwProto, proto, 0xff);
    }
    m
}

#[test]
fn what_others_send_is_read_and_written_back_to_the_byte() {
    let mut count = 0;
    let mut faults = Vec::new();
    for line in OBSERVED.lines() {
        let [minor, protocol, text, hex] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let version = Version::from_number(minor.parse::<u8>().unwrap() - 9).unwrap();
        let sent = bytes(hex);
        let read = match instruction::decode(version, &sent) {
            Ok(read) => read,
            Err(e) => {
                faults.push(format!("{version} {text}: {e} {hex}"));
                continue;
            }
        };
        let mut out = Writer::new();
        instruction::encode(&mut out, version, &read, &matching(protocol));
        let again: String = out.0.iter().map(|b| format!("{b:02x}")).collect();
        if again != hex {
            faults.push(format!("{version} {protocol} {text}:\n{hex}\n{again}\n{read:?}"));
        }
        count += 1;
    }
    assert!(faults.is_empty(), "{}\n{}", faults.len(), faults.join("\n"));
    assert!(count > 200, "{count}");
}

#[test]
fn a_field_is_set_to_no_bits_beyond_its_mask() {
    // A register, an address, a tag's number, tunnel metadata: what is named, the value, the mask;
    // each value has a bit too many.
    let fields = [
        ("00010308", vec![0, 0, 0, 5], vec![0, 0, 0, 1]),
        ("8000070c", vec![1, 0, 0, 0, 0, 6], vec![0xff, 0, 0, 0, 0, 0]),
        ("80000d04", vec![0x10, 5], vec![0x10, 1]),
        ("00015108", vec![1, 2, 0, 0], vec![1, 0, 0, 0]),
    ];
    for (header, value, mask) in fields {
        let within: Vec<u8> = value.iter().zip(&mask).map(|(v, m)| v & m).collect();
        for (version, start) in [(Version::V15, "0019"), (Version::V13, "ffff"), (Version::V10, "ffff")] {
            let action = |value: &[u8]| {
                let vendor: &[u8] = if start == "ffff" {
                    &[0, 0, 0x23, 0x20, 0, 33]
                } else {
                    &[]
                };
                let mut action = [&bytes(start)[..], &[0, 0], vendor, &bytes(header), value, &mask].concat();
                action.resize(action.len().next_multiple_of(8), 0);
                action[3] = action.len() as u8;
                action
            };
            assert_eq!(
                super::decode(version, &action(&value)),
                Err(OfError::BmcBadWildcards),
                "{version} {header}"
            );
            let read = super::decode(version, &action(&within)).unwrap();
            // Whoever asks for more bits than the mask has, as texts can, means those that it has.
            let Action::SetField { field, mask, .. } = read[0].clone() else {
                panic!("{read:?}");
            };
            let more = match &mask {
                Some(Value::Wide(_)) => Value::Wide(value.clone()),
                _ => Value::Word(value.iter().fold(0, |n, byte| n << 8 | u128::from(*byte))),
            };
            let mut out = Writer::new();
            let asked = Action::SetField {
                field,
                value: more,
                mask,
            };
            super::Encoder::new(Version::V15, &Match::ANY).encode(&mut out, &[asked]);
            assert_eq!(super::decode(Version::V15, &out.0), Ok(read), "{version} {header}");
        }
    }
}

#[test]
fn test_actions_are_unknown_until_they_are_accepted() {
    let recirculate = bytes("ffff00100000232000ff000000000000");
    let slow = bytes("ffff00100000232000fe000000000000");
    for unknown in [&recirculate, &slow] {
        assert_eq!(super::decode(Version::V13, unknown), Err(OfError::BacBadVendorType));
    }
    super::accept_test_actions();
    assert_eq!(super::decode(Version::V13, &recirculate), Ok(vec![Action::DebugRecirc]));
    assert_eq!(super::decode(Version::V13, &slow), Ok(vec![Action::DebugSlow]));
    let long = bytes("ffff00180000232000ff0000000000000000000000000000");
    assert_eq!(super::decode(Version::V13, &long), Err(OfError::BacBadLen));
}
