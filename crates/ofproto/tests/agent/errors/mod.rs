//! Every error there is: what provokes it, here and, where it is installed, in Debian's Open
//! vSwitch; or why it cannot come.

mod cases;
mod debian;
mod elsewhere;
mod wire;

use crate::world::Lab;
use cases::{CASES, Case};
use ofproto::Kind;
use openflow::{Code, ErrorKind, OfError, Version};
use std::collections::BTreeSet;

/// Errors that no peer can provoke, and why.
const NEVER: &[(&str, &[OfError])] = {
    use OfError as E;
    &[
        (
            "nobody's requests are refused for who he is",
            &[
                E::HfcEperm,
                E::BacEperm,
                E::BicEperm,
                E::BmcEperm,
                E::FmfcEperm,
                E::GmfcEperm,
                E::QofcEperm,
                E::ScfcEperm,
                E::BpcEperm,
                E::AcfcEperm,
                E::BfcEperm,
            ],
        ),
        ("no packets are kept", &[E::BrcBufferEmpty]),
        ("it is for controllers to say", &[E::BrcMultipartReplyTimeout]),
        (
            "Open vSwitch has it that MMFC_INVALID_METER is said of actions too",
            &[E::BacBadMeter],
        ),
        (
            "rules may name queues that do not exist yet, as in Open vSwitch",
            &[E::BacBadQueue],
        ),
        (
            "Open vSwitch has it that BAC_BAD_ARGUMENT is said of tags",
            &[E::BacBadTag],
        ),
        ("any order of actions is carried out", &[E::BacUnsupportedOrder]),
        ("no experimenter's instructions are known", &[E::BicBadExpType]),
        (
            "all instructions of a version are carried out, all bits of metadata written",
            &[E::BicUnsupInst, E::BicUnsupMetadata, E::BicUnsupMetadataMask],
        ),
        (
            "any mask of an address is taken, and any tag",
            &[E::BmcBadDlAddrMask, E::BmcBadNwAddrMask, E::BmcBadTag],
        ),
        (
            "there are no emergency rules, which is said of them",
            &[E::FmfcBadEmergTimeout],
        ),
        (
            "any priority and timeout is taken",
            &[E::FmfcBadPriority, E::FmfcBadTimeout],
        ),
        ("no tables are synchronised", &[E::FmfcCantSync, E::FmfcIsSync]),
        (
            "there is a word for every fault",
            &[E::BrcUnknown, E::FmfcUnsupported, E::RrfcUnsup],
        ),
        (
            "a bridge that is gone has no connections",
            &[E::FmfcUnknown, E::MmfcUnknown, E::BfcUnknown, E::TmfcBadTable],
        ),
        (
            "groups that others send to may go, as in Open vSwitch",
            &[E::GmfcChainedGroup],
        ),
        (
            "groups send to groups, have weights, and are as many as their numbers",
            &[E::GmfcChainingUnsupported, E::GmfcWeightUnsupported, E::GmfcOutOfGroups],
        ),
        ("what ports advertise is theirs to say", &[E::PmfcBadAdvertise]),
        ("a length is wrong for all messages alike", &[E::ScfcBadLen]),
        (
            "short identifiers are the controllers' own matter",
            &[E::RrfcIdInUse, E::RrfcIdUnsup],
        ),
        ("any burst is taken", &[E::MmfcBadBurst]),
        (
            "tables' features are not to be changed, whatever to",
            &[
                E::TffcBadCapa,
                E::TffcBadMaxEnt,
                E::TffcBadMetadata,
                E::TffcBadTable,
                E::TffcTooMany,
                E::NxTffcDupTable,
            ],
        ),
        ("of experimenters' properties none has a value", &[E::BpcBadExpValue]),
        ("as many properties are read as a message holds", &[E::BpcTooMany]),
        (
            "any port is taken, and of tables BRC_BAD_TABLE_ID is said",
            &[E::MofcBadOut, E::MofcBadTableId, E::MofcInvalidMonitor],
        ),
        (
            "a bundle that is begun again is BAD_ID, as in Open vSwitch",
            &[E::BfcBundleExist],
        ),
        ("bundles wait for each other", &[E::BfcBundleInProgress]),
        (
            "messages of a bundle conflict in no way that matters",
            &[E::BfcMsgConflict],
        ),
        ("nothing is done at a time", &[E::BfcSchedFuture, E::BfcSchedPast]),
        (
            "what Open vSwitch had words for before the specification had, or has for hardware",
            &[
                E::NxBacBadHeaderType,
                E::NxBacMustBeZero,
                E::NxQofcQueueError,
                E::NxBrcNxmBadType,
                E::NxFmfcBadTableId,
                E::NxFmfcHardware,
            ],
        ),
        (
            "matches on connections are fields that there are none of",
            &[E::NxBmcCtDatapathSupport],
        ),
        (
            "no connections are tracked, so a flush of them has nothing to do",
            &[E::NxBacCtDatapathSupport],
        ),
        ("every packet that waits may go on", &[E::NxRNotSupported]),
        ("only switches send updates", &[E::NxBrcFmBadEvent]),
    ]
};

/// The error in the last answer.
fn refusal(lab: &mut Lab, version: Version, messages: &[Vec<u8>]) -> Option<OfError> {
    let id = lab.open(Kind::Service, version);
    for message in messages {
        lab.say_bytes(id, message);
    }
    let heard = lab.hear_raw(id);
    let refused = heard.iter().rfind(|message| message[1] == 1)?;
    let last = messages.last()?;
    // It is about the last message, and quotes it.
    assert_eq!(refused[4..8], last[4..8], "{version}");
    let decoded = openflow::Codec::new(version).decode(refused).ok()?;
    match decoded.body {
        openflow::model::Body::Error(body) => match body.kind {
            ErrorKind::Known(error) => Some(error),
            ErrorKind::Unknown { .. } => None,
        },
        _ => None,
    }
}

/// The versions of a case, with what is said in each.
fn versions(case: &Case) -> impl Iterator<Item = (Version, Vec<Vec<u8>>)> + '_ {
    let Case(_, first, last, messages) = case;
    let all = Version::ALL.into_iter().filter(|v| *first <= *v && *v <= *last);
    all.map(|version| (version, messages(version)))
}

/// The number that stands for an error.
fn code(error: OfError, version: Version) -> Option<Code> {
    error
        .code(version)
        .or_else(|| OfError::NxBrcUnencodableError.code(version))
}

#[test]
fn every_fault_is_answered_with_its_error_in_every_version() {
    let mut wrong = Vec::new();
    for case in CASES {
        for (version, messages) in versions(case) {
            let answer = refusal(&mut Lab::new(), version, &messages);
            if answer.and_then(|error| code(error, version)) != code(case.0, version) {
                wrong.push(format!("{} in {version}: {answer:?}", case.0));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_error_has_a_case_or_a_reason_why_it_has_none() {
    let cases = CASES.iter().map(|case| case.0);
    let provoked: BTreeSet<OfError> = cases.chain(elsewhere::ALL.iter().copied()).collect();
    let never: BTreeSet<OfError> = NEVER.iter().flat_map(|(_, errors)| errors.iter().copied()).collect();
    let both: Vec<_> = provoked.intersection(&never).collect();
    assert_eq!(both, Vec::<&OfError>::new());
    let missing: Vec<_> = OfError::ALL
        .iter()
        .filter(|error| !provoked.contains(error) && !never.contains(error))
        .collect();
    assert_eq!(missing, Vec::<&OfError>::new());
}
