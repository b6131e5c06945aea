//! The codec of messages: recorded ones, samples of every kind, numbers at random, and the errors
//! of Debian's ovs-ofctl.

mod more;
mod numbers;
mod oracle;
mod samples;

use openflow::model::*;
use openflow::{Codec, HEADER_LEN, OfError, Version, Versions};
use samples::samples;
use std::process::Command;

/// The types of messages.
const EXPERIMENTER: u8 = 4;

/// Whether there is a tool to compare with.
fn has_tool() -> bool {
    let found = Command::new("ovs-ofctl").arg("--version").output().is_ok();
    if !found {
        println!("skipped: no ovs-ofctl");
    }
    found
}

/// A message of every kind that a version has.
fn all_samples(version: Version) -> Vec<Body> {
    let mut all = samples(version);
    all.extend(more::samples(version));
    all
}

/// What Debian's ovs-ofctl 3.1 sends: version, command, bytes.
const OBSERVED: &str = include_str!("../fixtures/messages.txt");

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len()).step_by(2);
    pairs.map(|n| u8::from_str_radix(&hex[n..n + 2], 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn what_others_send_is_read_and_written_back_to_the_byte() {
    let mut faults = Vec::new();
    let mut count = 0;
    for line in OBSERVED.lines() {
        let [_, command, sent] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let sent = bytes(sent);
        let version = Version::from_number(sent[0]).unwrap();
        let nxm = sent[1] == EXPERIMENTER;
        for table_id in [false, true] {
            let codec = Codec { version, nxm, table_id };
            let read = match codec.decode(&sent) {
                Ok(read) => read,
                Err(OfError::FmfcBadCommand) if !table_id => continue,
                Err(e) => {
                    faults.push(format!("{version} {command}: {e}\n{}", hex(&sent)));
                    break;
                }
            };
            let again = codec.encode(&read);
            // The order of a match's fields is free.
            let same = again.len() == sent.len() && codec.decode(&again).as_ref() == Ok(&read);
            if !same {
                faults.push(format!(
                    "{version} {command}:\n{}\n{}\n{read:?}",
                    hex(&sent),
                    hex(&again)
                ));
            }
            count += 1;
            break;
        }
    }
    assert!(faults.is_empty(), "{}\n{}", faults.len(), faults.join("\n"));
    assert!(count > 200, "{count}");
}

/// What Debian's ovs-ofctl and ovs-vswitchd 3.1 say to each other in every version: direction and
/// bytes.
const DIALOGUE: &str = include_str!("../fixtures/dialogue.txt");

#[test]
fn a_real_dialogue_is_read_and_written_back() {
    let mut faults = Vec::new();
    let mut count = [0; 7];
    for line in DIALOGUE.lines() {
        let sent = bytes(&line[2..]);
        let mut codec = Codec::new(Version::from_number(sent[0]).unwrap());
        count[usize::from(sent[0])] += 1;
        let mut read = codec.decode(&sent);
        if read == Err(OfError::FmfcBadCommand) {
            codec.table_id = true;
            read = codec.decode(&sent);
        }
        let read = match read {
            Ok(read) => read,
            Err(e) => {
                faults.push(format!("{e}: {line}"));
                continue;
            }
        };
        let codec = Codec {
            nxm: sent[1] == EXPERIMENTER,
            ..codec
        };
        let again = codec.encode(&read);
        let same = again.len() == sent.len() || codec.version == Version::V11;
        if !same || codec.decode(&again).as_ref() != Ok(&read) {
            faults.push(format!("{line}\n- {}\n{read:?}", hex(&again)));
        }
    }
    assert!(faults.is_empty(), "{}\n{}", faults.len(), faults.join("\n"));
    assert!(count[1..].iter().all(|n| *n > 30), "{count:?}");
}

#[test]
fn every_message_of_every_version_reads_as_it_was_written() {
    let mut faults = Vec::new();
    for version in Version::ALL {
        let codec = Codec::new(version);
        for body in all_samples(version) {
            let message = Message { xid: 1, body };
            let sent = codec.encode(&message);
            let read = codec.decode(&sent);
            if read.as_ref() != Ok(&message) {
                faults.push(format!("{version} {}\n{read:?}\n{message:?}", hex(&sent)));
            }
        }
    }
    assert!(faults.is_empty(), "{}\n{}", faults.len(), faults.join("\n"));
}

/// Reads a message that may make no sense; what is read can be written, and reads again, and is
/// written the same.
fn survives(codec: &Codec, bytes: &[u8]) {
    let Ok(read) = codec.decode(bytes) else { return };
    let written = codec.encode(&read);
    let mut framer = openflow::Framer::new();
    framer.push(&written);
    let mut whole = Vec::new();
    while let Ok(Some(message)) = framer.next() {
        match codec.decode(message) {
            Ok(again) => codec.append(&mut whole, &again),
            Err(e) => panic!("{e}\n{}\n{}\n{read:?}", hex(bytes), hex(message)),
        }
    }
    assert_eq!(hex(&whole), hex(&written), "{} {read:?}", hex(bytes));
}

#[test]
fn a_message_cut_off_or_too_long_is_an_error_and_no_panic() {
    for version in Version::ALL {
        let codec = Codec::new(version);
        for body in all_samples(version) {
            let sent = codec.encode(&Message { xid: 1, body });
            for len in 0..sent.len() + 17 {
                let mut bytes = sent.clone();
                bytes.resize(len, 0);
                let _ = codec.decode(&bytes);
                if let Some(at) = bytes.get_mut(2..4) {
                    at.copy_from_slice(&(len as u16).to_be_bytes());
                }
                survives(&codec, &bytes);
            }
        }
    }
}

#[test]
fn a_message_with_any_byte_changed_is_a_message_or_an_error_and_no_panic() {
    for version in Version::ALL {
        let codec = Codec::new(version);
        for body in all_samples(version) {
            let sent = codec.encode(&Message { xid: 1, body });
            let mut bytes = sent.clone();
            for at in 0..sent.len().min(200) {
                let byte = sent[at];
                for change in [0x01, 0x02, 0x08, 0x80, 0xff] {
                    bytes[at] = byte ^ change;
                    survives(&codec, &bytes);
                }
                bytes[at] = byte;
            }
        }
    }
}

/// Flows in the words of `ovs-ofctl`.
const FLOWS: &str = include_str!("../text_flows.txt");

#[test]
fn a_flow_that_a_version_can_say_is_read_as_it_was_written() {
    use openflow::text::{Names, parse_flow};
    let (mut count, mut refused, mut faults) = (0, 0, Vec::new());
    for line in FLOWS.lines() {
        let Ok(flow) = parse_flow(FlowCommand::Add, line, &Names::default()) else {
            continue;
        };
        for version in Version::ALL {
            let codec = Codec {
                version,
                nxm: true,
                table_id: true,
            };
            let table = if version == Version::V10 {
                flow.table
            } else {
                flow.table.or(Some(0))
            };
            let message = Message {
                xid: 1,
                body: Body::FlowMod(Box::new(FlowMod { table, ..flow.clone() })),
            };
            let sent = codec.encode(&message);
            // The text lets through some numbers that no message may have.
            match codec.decode(&sent) {
                Ok(read) if codec.decode(&codec.encode(&read)).as_ref() == Ok(&read) => count += 1,
                Ok(read) => faults.push(format!(
                    "{version} {line}\n{}\n{}",
                    hex(&sent),
                    hex(&codec.encode(&read))
                )),
                Err(OfError::BacBadOutPort | OfError::BmcBadValue | OfError::BicBadTableId) => refused += 1,
                Err(OfError::BacBadArgument | OfError::BacBadSetArgument) => refused += 1,
                // And fields of headers that the packets need not have.
                Err(OfError::BmcBadPrereq) if !flow.matching.is_normal() => refused += 1,
                Err(e) => faults.push(format!("{version} {line}: {e}\n{}", hex(&sent))),
            }
        }
    }
    assert!(faults.is_empty(), "{}\n{}", faults.len(), faults.join("\n"));
    assert!(count > 2000 && refused < 150, "{count} {refused}");
}

#[test]
fn debians_tool_understands_what_is_written() {
    if !has_tool() {
        return;
    }
    for version in Version::ALL {
        let codec = Codec::new(version);
        let mut hexes = String::new();
        let bodies = all_samples(version);
        for body in bodies
            .into_iter()
            .filter(|body| !more::beyond_open_vswitch(version, body))
        {
            hexes += &hex(&codec.encode(&Message { xid: 1, body }));
            hexes.push('\n');
        }
        let mut faults = Vec::new();
        for line in hexes.lines() {
            let printed = Command::new("ovs-ofctl").args(["ofp-print", line]).output().unwrap();
            let text = String::from_utf8_lossy(&printed.stdout).into_owned();
            if text.contains("decode error") || text.contains("***") || text.is_empty() {
                let first: Vec<_> = text.lines().take(3).collect();
                faults.push(format!(
                    "{line}\n{}\n{}",
                    first.join("\n"),
                    String::from_utf8_lossy(&printed.stderr)
                ));
            }
        }
        assert!(faults.is_empty(), "{version}\n{}", faults.join("\n"));
    }
}

#[test]
fn a_long_answer_becomes_several_messages_that_say_so() {
    let codec = Codec::new(Version::V13);
    let stats = GroupStats {
        group: 1,
        ref_count: 0,
        packets: 0,
        bytes: 0,
        duration: Duration::default(),
        buckets: vec![(1, 2); 100],
    };
    let reply = StatsReply::Group(vec![stats; 100]);
    let sent = codec.encode(&Message {
        xid: 3,
        body: Body::StatsReply { more: false, reply },
    });
    let mut framer = openflow::Framer::new();
    framer.push(&sent);
    let (mut parts, mut groups) = (Vec::new(), 0);
    while let Some(bytes) = framer.next().unwrap() {
        let message = codec.decode(bytes).unwrap();
        let Body::StatsReply {
            more,
            reply: StatsReply::Group(part),
        } = message.body
        else {
            panic!("another message");
        };
        parts.push(more);
        groups += part.len();
    }
    assert_eq!((parts, groups), (vec![true, true, false], 100));
}

#[test]
fn what_no_message_holds_is_left_out_of_an_answer() {
    let stats = |group: u32, buckets: usize| GroupStats {
        group,
        ref_count: 0,
        packets: 0,
        bytes: 0,
        duration: Duration::default(),
        buckets: vec![(1, 2); buckets],
    };
    // 40 bytes and 16 for each bucket, behind a header of 16.
    const MOST: usize = (65_535 - 16 - 40) / 16;
    let codec = Codec::new(Version::V13);
    for (sizes, told) in [
        (vec![1, MOST + 1, 2], vec![vec![1, 3]]),
        (vec![MOST + 1], vec![vec![]]),
        (vec![5000, 1, 9000], vec![vec![2]]),
        (vec![1, MOST, 2], vec![vec![1], vec![2], vec![3]]),
    ] {
        let reply = StatsReply::Group((1..).zip(&sizes).map(|(n, size)| stats(n, *size)).collect());
        let sent = codec.encode(&Message {
            xid: 3,
            body: Body::StatsReply { more: false, reply },
        });
        let mut framer = openflow::Framer::new();
        framer.push(&sent);
        let mut parts = Vec::new();
        while let Some(bytes) = framer.next().unwrap() {
            let Body::StatsReply {
                more,
                reply: StatsReply::Group(part),
            } = codec.decode(bytes).unwrap().body
            else {
                panic!("another message");
            };
            assert_eq!(more, parts.len() + 1 < told.len());
            parts.push(part.into_iter().map(|group| group.group).collect::<Vec<_>>());
        }
        assert_eq!(parts, told, "{sizes:?}");
    }
}

#[test]
fn what_is_wrong_with_a_message_is_said_as_the_specification_says() {
    let v13 = Codec::new(Version::V13);
    let v10 = Codec::new(Version::V10);
    let cases = [
        (v13, "0463000800000001", OfError::BrcBadType),
        (v13, "0105000800000001", OfError::BrcBadVersion),
        (v13, "0405000a000000010000", OfError::BrcBadLen),
        (v13, "0412001000000001ff00000000000000", OfError::BrcBadStat),
        (v13, "04040010000000011234567800000001", OfError::BrcBadVendor),
        (v13, "0404001000000001000023200000ffff", OfError::BrcBadSubtype),
        (v10, "010f0008000000ff", OfError::BrcBadLen),
        (
            v13,
            "0418001800000001000000090000000000000000000000ff",
            OfError::RrfcBadRole,
        ),
        (v13, "041d00100000000100000001ffffffff", OfError::MmfcInvalidMeter),
        (v13, "041d0010000000010000000100000000", OfError::MmfcInvalidMeter),
        (v13, "041d0010000000010000000000000001", OfError::MmfcBadFlags),
        (v13, "040f0010000000010000090000000001", OfError::GmfcBadType),
        (v13, "040f0010000000010009000000000001", OfError::GmfcBadCommand),
        (v13, "0411001000000001000000000000000f", OfError::TmfcBadConfig),
    ];
    for (codec, message, error) in cases {
        assert_eq!(codec.decode(&bytes(message)).map(|m| m.body), Err(error), "{message}");
    }
}

#[test]
fn a_hello_without_sense_is_a_hello_without_bitmap() {
    for (message, bitmap) in [
        ("0400000800000001", None),
        ("0600001000000001000100080000007e", Some(Versions::ALL)),
        (
            "0600001800000001ffff0006aaaa00000001000800000012",
            Some(Versions::from_bitmap(0x12)),
        ),
        ("060000100000000100010000aaaaaaaa", None),
        ("0600000b00000001000100", None),
    ] {
        let read = Codec::new(Version::V13).decode(&bytes(message)).unwrap();
        let Body::Hello(hello) = read.body else { panic!() };
        assert_eq!(hello.bitmap, bitmap, "{message}");
        assert_eq!(hello.version, bytes(message)[0]);
    }
}

/// Errors quote messages, which may be errors.
// Debian's tool does not know these fields yet.
#[test]
fn a_flush_by_mark_and_label_is_read_as_it_was_written() {
    use openflow::text::print;
    let flush = CtFlush {
        mark: Some((0xcc, 0xff)),
        label: Some((6 << 64, u128::MAX)),
        ..CtFlush::default()
    };
    let message = Message {
        xid: 3,
        body: Body::CtFlush(Box::new(flush)),
    };
    let codec = Codec::new(Version::V15);
    let bytes = codec.encode(&message);
    assert_eq!(codec.decode(&bytes).as_ref(), Ok(&message));
    let printed = print::message(&bytes, None, 0);
    let expected = "NXT_CT_FLUSH (OF1.5) (xid=0x3): zone=0 mark=0xcc/0xff labels=0x60000000000000000 \
                    'ct_ipv6_src=::,ct_ipv6_dst=::,ct_tp_src=0,ct_tp_dst=0,ct_nw_proto=0' \
                    'ct_ipv6_src=::,ct_ipv6_dst=::,ct_tp_src=0,ct_tp_dst=0'\n";
    assert_eq!(printed, expected);
}

#[test]
fn errors_that_quote_errors_print_to_a_depth() {
    let mut message = Vec::new();
    for _ in 0..5_000 {
        let len = 12 + message.len() as u16;
        // OFPT_ERROR of OpenFlow 1.3: type 1, code 1.
        let mut outer = [&[4, 1], &len.to_be_bytes()[..], &[0, 0, 0, 1, 0, 1, 0, 1]].concat();
        outer.append(&mut message);
        message = outer;
    }
    let text = openflow::text::print::message(&message, None, 0);
    assert_eq!(
        text.matches("OFPT_ERROR").count(),
        9,
        "{}",
        &text[..text.len().min(2000)]
    );
}
