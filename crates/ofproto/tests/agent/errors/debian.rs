//! The same faults in Debian's Open vSwitch.

use super::cases::CASES;
use super::{code, versions, wire};
use openflow::model::{ALL_GROUPS, ALL_METERS, FlowCommand};
use openflow::{Codec, ErrorKind, OfError, Version};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use testkit::{Options, Vswitch, skip};

fn connect(switch: &Vswitch, version: Version) -> UnixStream {
    let mut stream = UnixStream::connect(switch.sandbox.path("br0.mgmt")).expect("the bridge listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a stream");
    stream.write_all(&wire::message(version, 0, &[])).expect("it is sent");
    stream
}

/// What is answered to messages that are refused, the last one.
fn refusal(stream: &mut UnixStream, version: Version, messages: &[Vec<u8>]) -> Option<Vec<u8>> {
    for message in messages {
        stream.write_all(message).expect("it is sent");
    }
    stream
        .write_all(&wire::message(version, 2, b"end"))
        .expect("it is sent");
    let mut refused = None;
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header).expect("an answer");
        let mut message = header.to_vec();
        message.resize(u16::from_be_bytes([header[2], header[3]]).into(), 0);
        stream.read_exact(&mut message[8..]).expect("the rest of the message");
        match header[1] {
            1 => refused = Some(message),
            3 if message[8..] == *b"end" => return refused,
            _ => {}
        }
    }
}

fn error_of(message: &[u8]) -> Option<OfError> {
    // It may speak in another version than was agreed on.
    let version = Version::from_number(message[0])?;
    match Codec::new(version).decode(message).expect("it makes sense").body {
        openflow::model::Body::Error(body) => match body.kind {
            ErrorKind::Known(error) => Some(error),
            ErrorKind::Unknown { .. } => None,
        },
        _ => None,
    }
}

/// What Open vSwitch says instead, and why we do not.
const OTHERWISE: &[(OfError, Option<OfError>, &str)] = {
    use OfError as E;
    const TAKES_IT: &str = "it does not look at this, or can do it";
    const ORDER: &str = "of two faults it names the other one";
    const OLDER: &str = "it has not what the message is about";
    const UNNAMED: &str = "it names an error of a later version, which it cannot say in this one";
    &[
        (E::BrcBadPacket, None, TAKES_IT),
        (E::BrcBadTableId, None, "it has a table more, of its own, and shows it"),
        (E::BrcMultipartBadSched, Some(E::BrcBadStat), OLDER),
        (E::BrcMultipartBufferOverflow, None, TAKES_IT),
        (E::BacBadSetArgument, Some(E::BacMatchInconsistent), ORDER),
        (
            E::BacBadSetLen,
            Some(E::BmcBadLen),
            "it says of actions what is said of matches",
        ),
        (E::BacBadSetLen, Some(E::NxBrcUnencodableError), UNNAMED),
        (E::BacBadSetMask, Some(E::BacMatchInconsistent), ORDER),
        (E::BacTooMany, None, TAKES_IT),
        (E::GmfcLoop, None, TAKES_IT),
        (E::GmfcOutOfBuckets, None, TAKES_IT),
        (
            E::PmfcBadConfig,
            Some(E::PmfcBadHwAddr),
            "its ports have other addresses",
        ),
        (E::TmfcBadConfig, None, TAKES_IT),
        (E::MmfcBadBandValue, Some(E::MmfcBadBand), OLDER),
        (E::TffcEperm, Some(E::NxBrcUnencodableError), UNNAMED),
        (
            E::BpcBadExperimenter,
            Some(E::BpcBadExpType),
            "it has one error for all experimenters' properties",
        ),
        (E::BpcDupType, Some(E::NxBrcUnencodableError), UNNAMED),
        (E::BpcDupType, Some(E::TffcBadFeatures), ORDER),
        (E::BfcBadFlags, None, TAKES_IT),
        (E::BfcBadType, None, TAKES_IT),
        (E::BfcSchedNotSupported, None, TAKES_IT),
        (E::NxBacBadEdProp, Some(E::BacBadLen), ORDER),
        (E::NxBrcBadReason, Some(E::BrcBadType), ORDER),
    ]
};

#[test]
fn open_vswitch_answers_faults_with_the_same_errors() {
    skip!(unless "ovs-vswitchd", "ovsdb-server", "ovs-vsctl");
    let switch = Vswitch::debian(Options::default());
    switch.vsctl(
        "add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure \
         protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15",
    );
    for n in 1..=3 {
        switch.vsctl(&format!(
            "add-port br0 p{n} -- set interface p{n} type=dummy ofport_request={n}"
        ));
    }
    let newest = Version::V15;
    let mut clean = connect(&switch, newest);
    let everything = [
        wire::flow(newest, |rule| {
            rule.command = FlowCommand::Delete;
            rule.table = None;
        }),
        wire::group(newest, 2, 0, ALL_GROUPS, &[]),
        wire::meter(newest, 2, 1, ALL_METERS, &[]),
    ];
    let mut other = Vec::new();
    // What it says of monitors begins with memory that it has not written.
    for case in CASES.iter().filter(|case| !case.0.name().starts_with("OFPMOFC")) {
        for (version, messages) in versions(case) {
            assert_eq!(refusal(&mut clean, newest, &everything), None);
            let mut stream = connect(&switch, version);
            let answer = refusal(&mut stream, version, &messages);
            let answer = answer.as_deref().and_then(error_of);
            let same = answer.and_then(|error| code(error, version)) == code(case.0, version);
            let known = OTHERWISE
                .iter()
                .any(|(ours, theirs, _)| (*ours, *theirs) == (case.0, answer));
            if !same && !known {
                other.push(format!("{} in {version}: {answer:?}", case.0));
            }
        }
    }
    assert!(other.is_empty(), "{other:#?}");
}
