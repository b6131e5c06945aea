use super::*;

/// Messages in hexadecimal digits, each followed by what Debian's ovs-ofctl 3.1 prints for it.
const OBSERVED: &str = include_str!("../../../tests/fixtures/printed.txt");

/// What the codec does not read, or reads in a way of its own: the sums of OpenFlow 1.5, packets without a VLAN tag in OXM, monitors and
/// descriptions of tables of OpenFlow 1.4, the precedence of OpenFlow 1.1, selection methods in descriptions, counters of one switch only.
const OTHERWISE: usize = 30;

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len()).step_by(2);
    pairs.map(|n| u8::from_str_radix(&hex[n..n + 2], 16).unwrap()).collect()
}

#[test]
fn messages_are_printed_as_ovs_ofctl_prints_them() {
    let (mut alike, mut faults) = (0, Vec::new());
    for part in OBSERVED.split("HEX ").skip(1) {
        let (hex, theirs) = part.split_once('\n').unwrap();
        let ours = message(&bytes(hex), None, 2);
        match ours == theirs {
            true => alike += 1,
            false => faults.push(format!("{hex}\ntheirs: {theirs}\nours:   {ours}")),
        }
    }
    assert!(faults.len() <= OTHERWISE, "{}\n{}", faults.len(), faults.join("\n"));
    assert!(alike > 700, "{alike}");
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
