use super::*;

/// Messages in hexadecimal digits, each followed by what Debian's ovs-ofctl 3.1 prints for it.
const OBSERVED: &str = include_str!("../../../tests/fixtures/printed.txt");

/// How messages begin that are printed otherwise, and why.
const OTHERWISE: [(&str, &str); 2] = [
    (
        "031300900000000100030000000000000200000000000000636c6173736966696572",
        "the field for physical ports, which Open vSwitch has not",
    ),
    (
        "0613002800000001000b",
        "meter features of OpenFlow 1.5 are 24 bytes; Open vSwitch takes the 16 of OpenFlow 1.3 only",
    ),
];

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len()).step_by(2);
    pairs.map(|n| u8::from_str_radix(&hex[n..n + 2], 16).unwrap()).collect()
}

#[test]
fn messages_are_printed_as_ovs_ofctl_prints_them() {
    let (mut faults, mut known) = (Vec::new(), Vec::new());
    for part in OBSERVED.split("HEX ").skip(1) {
        let (hex, theirs) = part.split_once('\n').unwrap();
        let ours = message(&bytes(hex), None, 2);
        match OTHERWISE.iter().position(|(begin, _)| hex.starts_with(begin)) {
            _ if ours == theirs => {}
            Some(at) => known.push(at),
            None => faults.push(format!("{hex}\ntheirs: {theirs}\nours:   {ours}")),
        }
    }
    assert!(faults.is_empty(), "{}\n{}", faults.len(), faults.join("\n"));
    for (at, (begin, _)) in OTHERWISE.iter().enumerate() {
        assert!(known.contains(&at), "said to be printed otherwise, and is not: {begin}");
    }
}

#[test]
fn no_bytes_make_printing_fail() {
    for part in OBSERVED.split("HEX ").skip(1).step_by(7) {
        let data = bytes(part.split_once('\n').unwrap().0);
        for at in 0..data.len().min(80) {
            let mut cut = data[..at].to_vec();
            assert!(!message(&cut, None, 3).is_empty());
            if let Some(length) = cut.get_mut(2..4) {
                length.copy_from_slice(&(at as u16).to_be_bytes());
            }
            assert!(!message(&cut, None, 3).is_empty());
            let mut changed = data.clone();
            changed[at] ^= 0x55;
            assert!(!message(&changed, None, 3).is_empty());
        }
    }
}

#[test]
fn fields_with_a_common_beginning_are_drawn_together() {
    let mut out = String::new();
    lists::field_names_for_tests(
        &mut out,
        &[
            "tun_src",
            "reg1",
            "tun_ipv6_src",
            "reg0",
            "tun_ipv6_dst",
            "eth_type",
            "reg3",
        ],
    );
    assert_eq!(out, "tun_{src,ipv6_{src,dst}} reg0...reg1 reg3 eth_type");
}
