//! Errors in messages: we report what Debian's ovs-ofctl reports.

use super::*;
use std::collections::BTreeMap;
use std::io::Write;

/// Messages with one thing changed: a byte, a length, the end.
fn spoilt(message: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![message.to_vec()];
    let with_len = |mut bytes: Vec<u8>| {
        let len = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        bytes
    };
    for len in HEADER_LEN..message.len() {
        all.push(with_len(message[..len].to_vec()));
    }
    for more in [1, 4, 8, 16] {
        all.push(with_len([message, &vec![0; more]].concat()));
    }
    for at in HEADER_LEN..message.len().min(400) {
        for change in [0x01, 0x80, 0xff, 0x08] {
            let mut bytes = message.to_vec();
            bytes[at] ^= change;
            all.push(bytes);
        }
    }
    all
}

/// What ovs-ofctl says of each message: the error's name, or nothing.
fn oracle(messages: &[Vec<u8>]) -> Vec<Option<String>> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for message in messages {
        file.write_all(message).unwrap();
        // The report on the next message follows the report on this one.
        file.write_all(&[1, 19, 0, 8, 0, 0, 0, 0]).unwrap();
    }
    let out = Command::new("ovs-ofctl")
        .arg("ofp-parse")
        .arg(file.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let parts: Vec<_> = text.split("OFPT_BARRIER_REPLY (xid=0x0):\n").collect();
    assert_eq!(
        parts.len(),
        messages.len() + 1,
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let error = |part: &str| {
        let (_, rest) = part.split_once("***decode error: ")?;
        Some(rest.split_once("***")?.0.to_string())
    };
    parts[..messages.len()].iter().map(|part| error(part)).collect()
}

/// Whether a message is one that controllers send. What switches send is read more leniently here.
fn asks(body: &Body) -> bool {
    !matches!(
        body,
        Body::Error(_)
            | Body::StatsReply { .. }
            | Body::FeaturesReply(_)
            | Body::GetConfigReply(_)
            | Body::PacketIn(_)
            | Body::FlowRemoved(_)
            | Body::PortStatus(_)
            | Body::QueueGetConfigReply { .. }
            | Body::RoleReply(_)
            | Body::GetAsyncReply(_)
            | Body::RoleStatus(_)
            | Body::TableStatus(_)
            | Body::RequestForward(_)
            | Body::TlvTableReply(_)
            // The message within is the receiver's business.
            | Body::BundleAdd(_)
    )
}

/// Messages with different errors: the message, our error, Open vSwitch's ("ok" for none). An
/// empty word stands for any.
const OTHERWISE: &[(&str, &str, &str)] = &[
    // The tool prints what the switch refuses; the specification says so too.
    ("BundleControl", "", "ok"),
    ("", "NXBRC_MUST_BE_ZERO", "ok"),
    ("GroupMod", "OFPGMFC_BAD_WATCH", "ok"),
    ("GroupMod", "OFPBPC_BAD_LEN", "ok"),
    ("MeterMod", "OFPMMFC_BAD_FLAGS", "ok"),
    ("PortMod", "OFPPMFC_BAD_CONFIG", "ok"),
    ("PortMod", "OFPBPC_BAD_TYPE", "ok"),
    ("Resume", "", "ok"),
    ("SetFlowFormat", "OFPBRC_EPERM", "ok"),
    ("StatsRequest FlowMonitor", "OFPMOFC_BAD_COMMAND", "ok"),
    ("StatsRequest FlowMonitor", "OFPBMC_BAD_LEN", "ok"),
    ("StatsRequest TableFeatures", "", "ok"),
    ("TableMod", "", "ok"),
    // Bytes behind the match.
    ("StatsRequest Flow", "OFPBRC_BAD_LEN", "ok"),
    ("StatsRequest Aggregate", "OFPBRC_BAD_LEN", "ok"),
    // The byte of the command that says the table where that was agreed on.
    ("FlowMod", "OFPFMFC_BAD_COMMAND", "ok"),
    // Looked at when the rule meets the tables.
    ("FlowMod", "ok", "OFPBIC_BAD_TABLE_ID"),
    ("FlowMod", "ok", "OFPBAC_MATCH_INCONSISTENT"),
    // Nicira's actions are read in every version, and backbone tags are acted upon.
    ("FlowMod", "ok", "OFPBAC_BAD_VENDOR_TYPE"),
    ("FlowMod", "OFPBAC_BAD_LEN", "OFPBAC_BAD_VENDOR_TYPE"),
    ("FlowMod", "OFPBAC_BAD_ARGUMENT", "OFPBAC_BAD_TYPE"),
    // A wrong length within the actions of an instruction.
    ("FlowMod", "OFPBAC_BAD_LEN", "OFPBIC_BAD_LEN"),
    // Actions of OpenFlow 1.1 are no types of later versions.
    ("", "OFPBAC_BAD_TYPE", "OFPBAC_BAD_LEN"),
    ("", "OFPBAC_BAD_TYPE", "OFPBIC_BAD_LEN"),
    // OpenFlow 1.5 has more events.
    ("SetAsync", "", "OFPACFC_UNSUPPORTED"),
    // Open vSwitch's own words.
    ("StatsRequest TableFeatures", "", "OFPTFFC_BAD_FEATURES"),
    ("TableMod", "OFPBPC_BAD_TYPE", "OFPBRC_BAD_TYPE"),
    ("GroupMod", "OFPBPC_BAD_EXPERIMENTER", "OFPBPC_BAD_EXP_TYPE"),
    // Two things are wrong, and the other is said first.
    ("FlowMod", "OFPBMC_BAD_FIELD", "OFPBMC_BAD_WILDCARDS"),
    ("FlowMod", "OFPBAC_BAD_LEN", "OFPBMC_BAD_LEN"),
    ("FlowMod", "OFPBAC_BAD_SET_LEN", "OFPBAC_BAD_SET_TYPE"),
    ("FlowMod", "OFPBMC_BAD_FIELD", "OFPBMC_BAD_LEN"),
    ("FlowMod", "OFPBMC_BAD_LEN", "OFPBMC_BAD_WILDCARDS"),
    ("FlowMod", "OFPBRC_EPERM", "OFPBRC_BAD_LEN"),
    ("FlowMonitorResumed", "OFPBRC_BAD_LEN", "OFPBRC_BAD_SUBTYPE"),
    ("GroupMod", "OFPBAC_BAD_LEN", "OFPBRC_BAD_LEN"),
    ("GroupMod", "OFPBMC_BAD_FIELD", ""),
    ("GroupMod", "OFPBMC_BAD_LEN", ""),
    ("GroupMod", "OFPGMFC_BAD_BUCKET", "OFPBPC_BAD_LEN"),
    ("GroupMod", "OFPGMFC_BAD_COMMAND", "OFPGMFC_BAD_BUCKET"),
    ("PacketOut", "OFPBAC_BAD_LEN", "OFPBRC_BAD_LEN"),
    ("PacketOut", "OFPBMC_BAD_FIELD", ""),
    ("PacketOut", "OFPBMC_BAD_LEN", ""),
    ("Resume", "", "OFPBRC_BAD_LEN"),
    ("Resume", "ok", "OFPBPC_BAD_LEN"),
    ("SetAsync", "ok", "NXTTMFC_BAD_FIELD_IDX"),
    ("StatsRequest FlowMonitor", "OFPBMC_BAD_LEN", "OFPBRC_BAD_STAT"),
    ("StatsRequest TableFeatures", "", ""),
];

/// The name of a message's kind, and of its part's.
fn name(body: &Body) -> String {
    let word = |text: String| -> String { text.chars().take_while(|c| c.is_alphanumeric()).collect() };
    match body {
        Body::StatsRequest { request, .. } => format!("StatsRequest {}", word(format!("{request:?}"))),
        _ => word(format!("{body:?}")),
    }
}

#[test]
fn what_is_wrong_with_a_spoilt_message_is_said_as_ovs_ofctl_says() {
    if !has_tool() {
        return;
    }
    let mut found: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let (mut same, mut errors) = (0, 0);
    for version in Version::ALL {
        let codec = Codec::new(version);
        for body in all_samples(version) {
            if more::beyond_open_vswitch(version, &body) || !asks(&body) {
                continue;
            }
            let name = name(&body);
            let messages = spoilt(&codec.encode(&Message { xid: 1, body }));
            for (message, theirs) in messages.iter().zip(oracle(&messages)) {
                let ours = codec.decode(message).err().map_or("ok", |e| e.name());
                let theirs = theirs.as_deref().unwrap_or("ok");
                if ours == theirs {
                    same += 1;
                    errors += usize::from(ours != "ok");
                    continue;
                }
                let is = |word: &str, other: &str| word.is_empty() || word == other;
                if !OTHERWISE
                    .iter()
                    .any(|(n, a, b)| is(n, &name) && is(a, ours) && is(b, theirs))
                {
                    let entry = found.entry(format!("{name}: here {ours}, there {theirs}"));
                    entry.or_insert((0, hex(message))).0 += 1;
                }
            }
        }
    }
    let found: Vec<_> = found
        .iter()
        .map(|(what, (n, hex))| format!("{what}: {n}, as {hex}"))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(same > 30_000 && errors > 10_000, "{same} {errors}");
}

/// A flow-mod with these instructions, or in OpenFlow 1.0 these actions.
fn with_instructions(version: Version, instructions: &[u8]) -> Vec<u8> {
    let mut message = Codec::new(version).encode(&Message {
        xid: 1,
        body: Body::FlowMod(Box::new(FlowMod {
            table: if version == Version::V10 { None } else { Some(0) },
            ..FlowMod::default()
        })),
    });
    message.extend_from_slice(instructions);
    let len = message.len() as u16;
    message[2..4].copy_from_slice(&len.to_be_bytes());
    message
}

/// The same with actions.
fn with_actions(version: Version, actions: &[u8]) -> Vec<u8> {
    if version == Version::V10 {
        return with_instructions(version, actions);
    }
    let len = (actions.len() as u16 + 8).to_be_bytes();
    with_instructions(version, &[&[0, 4, len[0], len[1], 0, 0, 0, 0], actions].concat())
}

/// A type, a length and zeros.
fn zeros(kind: u16, len: u16) -> Vec<u8> {
    let mut bytes = [kind.to_be_bytes(), len.to_be_bytes()].concat();
    bytes.resize(usize::from(len), 0);
    bytes
}

#[test]
fn an_action_or_instruction_of_zeros_is_taken_where_ovs_ofctl_takes_it() {
    /// Taken here, and there looked at in the light of the match, or not known.
    const TAKEN: [&str; 7] = [
        "OFPBAC_MATCH_INCONSISTENT",
        "OFPMMFC_INVALID_METER",
        "OFPBIC_BAD_TABLE_ID",
        "OFPBAC_BAD_TYPE",
        "OFPBAC_BAD_VENDOR_TYPE",
        "OFPBIC_UNKNOWN_INST",
        "NXBAC_UNKNOWN_ED_PROP",
    ];
    if !has_tool() {
        return;
    }
    let (mut faults, mut same) = (Vec::new(), 0);
    for version in Version::ALL {
        let mut messages = Vec::new();
        for kind in (0..40).chain([0xfffe, 0xffff]) {
            for len in [8, 16, 24, 32] {
                messages.push((format!("action {kind}"), with_actions(version, &zeros(kind, len))));
                if version > Version::V10 {
                    messages.push((
                        format!("instruction {kind}"),
                        with_instructions(version, &zeros(kind, len)),
                    ));
                }
            }
        }
        for subtype in 0..56u16 {
            for len in [16, 24, 32] {
                let mut action = zeros(0xffff, len);
                action[4..8].copy_from_slice(&[0, 0, 0x23, 0x20]);
                action[8..10].copy_from_slice(&subtype.to_be_bytes());
                messages.push((format!("nicira {subtype}"), with_actions(version, &action)));
            }
        }
        let codec = Codec::new(version);
        let bytes: Vec<_> = messages.iter().map(|(_, bytes)| bytes.clone()).collect();
        for ((name, bytes), theirs) in messages.iter().zip(oracle(&bytes)) {
            let ours = codec.decode(bytes).err().map_or("ok", |e| e.name());
            let theirs = theirs.as_deref().unwrap_or("ok");
            same += usize::from(ours == theirs);
            let fits = match (ours, theirs) {
                ("ok", error) => error == "ok" || TAKEN.contains(&error),
                // Actions of OpenFlow 1.1 are no types of later versions.
                ("OFPBAC_BAD_TYPE", "ok") => matches!(name.as_str(), "action 3" | "action 4"),
                // A decrement that tells no controller has no words in the text.
                ("OFPBAC_BAD_ARGUMENT", "ok") => name == "nicira 21",
                (_, theirs) => theirs != "ok",
            };
            if !fits {
                faults.push(format!("{version} {name}: here {ours}, there {theirs}: {}", hex(bytes)));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(same > 1000, "{same}");
}
