use super::*;
use flow::MatchField as F;
use proptest::prelude::*;

fn encode(matching: &Match, version: Version) -> Vec<u8> {
    let mut out = Writer::new();
    encode_match(&mut out, matching, version);
    out.0
}

fn decode(hex: &str) -> Result<Match, OfError> {
    decode_match(&bytes(hex), Unknown::Refuse).map(|(m, _)| m)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    let pairs = (0..digits.len()).step_by(2);
    pairs
        .map(|n| u8::from_str_radix(&digits[n..n + 2], 16).unwrap())
        .collect()
}

#[test]
fn fields_have_the_identifiers_of_the_version() {
    let mut m = Match::ANY;
    m.set(F::InPortOxm, 0xffff_fffe, u32::MAX.into());
    m.set(F::DlVlan, 9, 0xfff);
    m.set(F::EthType, 0x800, 0xffff);
    m.set(F::NwTos, 184, 0xfc);
    let nxm = "00000002fffe 000006020800 000009041009 1fff 00000a01b8";
    assert_eq!(encode(&m, Version::V10), bytes(nxm));
    let oxm = "80000004fffffffe 80000a020800 80000c021009 800010012e";
    assert_eq!(encode(&m, Version::V13), bytes(oxm));
    assert_eq!(decode(nxm).unwrap(), m);
    assert_eq!(decode(oxm).unwrap(), m);
}

#[test]
fn bad_fields_are_refused_with_the_error_that_fits() {
    let cases = [
        ("80000a020800 80000a020800", OfError::BmcDupField),
        ("8000140106", OfError::BmcBadPrereq),
        ("80000a0308000000", OfError::BmcBadField),
        ("80000a04ffff0800", OfError::BmcBadField),
        ("80000a02", OfError::BmcBadLen),
        ("8000", OfError::BmcBadLen),
        ("80007e020000", OfError::BmcBadField),
        ("ffff0002 0000", OfError::BmcBadLen),
        ("ffff0006 12345678 0000", OfError::BmcBadField),
        ("8000090c 010000000000 00ffffffffff", OfError::BmcBadWildcards),
        ("80000b04 0800 00ff", OfError::BmcBadWildcards),
        ("80000b04 0800 0fff", OfError::BmcBadMask),
        ("80007f04 0800 00ff", OfError::BmcBadWildcards),
        ("80000004 0000ff00", OfError::BmcBadValue),
        ("80007e08 0000", OfError::BmcBadField),
        ("80000b04 0000 00ff", OfError::BmcBadMask),
        ("80000c02f009", OfError::BmcBadValue),
        ("80000a020800 8000120104", OfError::BmcBadValue),
    ];
    for (hex, error) in cases {
        assert_eq!(decode(hex), Err(error), "{hex}");
    }
}

#[test]
fn a_cookie_is_told_from_the_field_of_the_same_number() {
    let data = bytes("00013c08 0000000000000007");
    assert_eq!(
        decode_match(&data, Unknown::Refuse),
        Ok((Match::ANY, Some((7, u64::MAX))))
    );
    let mpls = decode("80000a028847 00013c0103").unwrap();
    assert_eq!(mpls.exact(F::MplsTtl), Some(3));
}

#[test]
fn unknown_fields_are_skipped_where_that_is_asked_for() {
    let data = bytes("80007e020000 80000a020800");
    let (m, _) = decode_match(&data, Unknown::Skip).unwrap();
    assert_eq!(m.exact(F::EthType), Some(0x800));
}

/// Random matches as Debian's ovs-vswitchd 3.1 reports them: by NXM, in OpenFlow 1.3, in OpenFlow
/// 1.5.
const REPORTED: &str = include_str!("../../tests/fixtures/order.txt");

#[test]
fn matches_are_written_byte_by_byte_as_open_vswitch_reports_them() {
    let versions = [Version::V10, Version::V13, Version::V15];
    let mut differ = Vec::new();
    for line in REPORTED.lines() {
        for (expected, version) in line.split('\t').zip(versions) {
            let matching = decode(expected).unwrap_or_else(|error| panic!("{expected}: {error:?}"));
            let written = encode(&matching, version);
            if written != bytes(expected) {
                differ.push(format!("{version:?}: want {expected}, have {written:02x?}"));
            }
        }
    }
    assert!(
        differ.is_empty(),
        "{} differ\n{}",
        differ.len(),
        differ[..differ.len().min(10)].join("\n")
    );
}

proptest! {
    #[test]
    fn every_match_survives_every_version(said in proptest::collection::vec((any::<usize>(), any::<u128>(), any::<u128>(), any::<bool>()), 0..12),
        protocol in any::<usize>(), tun in proptest::collection::vec((0u8..64, proptest::collection::vec(any::<(u8, u8)>(), 1..124)), 0..3)) {
        let mut m = protocols(protocol);
        for (n, value, mask, exact) in said {
            let field = F::ALL[n % F::ALL.len()];
            let maskable = field.info().maskable == flow::Maskable::Any && !exact;
            // Without identifier, a field is in no message.
            if field.id(1).is_some() && field.info().canonical && field.info().prerequisite != flow::MatchPrerequisite::Ethernet {
                // Between the ports and the reserved ones there are none.
                let value = if field == F::InPortOxm { value & 0x7fff } else { value };
                m.set(field, value, if maskable { mask } else { u128::MAX });
            }
        }
        for (number, bytes) in tun {
            let mask: Vec<u8> = bytes.iter().map(|(_, m)| *m).collect();
            let value: Vec<u8> = bytes.iter().map(|(v, m)| v & m).collect();
            let _ = m.add_tun_metadata(number, &value, Some(&mask));
        }
        m.clear(F::PacketType);
        let m = m.normalized();
        for version in Version::ALL {
            let data = encode(&m, version);
            let mut m = m.clone();
            if version < Version::V11 && let Some(port) = m.exact(F::InPortOxm) {
                m.set(F::InPort, port_to_of10(port as u32).into(), 0xffff);
            }
            prop_assert_eq!(decode_match(&data, Unknown::Refuse), Ok((m, None)));
        }
    }

    #[test]
    fn any_bytes_are_a_match_or_an_error(data in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok((m, _)) = decode_match(&data, Unknown::Skip) {
            let again = decode_match(&encode(&m, Version::V13), Unknown::Refuse);
            prop_assert_eq!(again, Ok((m, None)));
        }
    }
}

/// The beginning of a match of packets of some protocol.
pub(crate) fn protocols(n: usize) -> Match {
    let mut m = Match::ANY;
    let (eth_type, proto) = [
        (0x0800, 6),
        (0x0800, 17),
        (0x0800, 132),
        (0x0800, 1),
        (0x86dd, 6),
        (0x86dd, 58),
        (0x0806, 0),
        (0x8847, 0),
        (0x894f, 0),
        (0x88e7, 0),
        (0x1234, 0),
    ][n % 11];
    m.set(F::EthType, eth_type, 0xffff);
    if proto != 0 {
        m.set(F::NwProto, proto, 0xff);
    }
    if proto == 58 && n.is_multiple_of(2) {
        m.set(F::Icmpv6Type, 135 + (n as u128 / 2) % 2, 0xff);
        m.set(F::Icmpv6Code, 0, 0xff);
    }
    m
}
