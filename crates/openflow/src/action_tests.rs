use crate::Version;
use crate::buf::Writer;
use crate::instruction;
use crate::model::Match;
use flow::MatchField as F;

/// What Debian's ovs-ofctl 3.1 sends for actions: version, text, bytes of the flow's actions or instructions.
const OBSERVED: &str = include_str!("../tests/fixtures/actions.txt");

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
