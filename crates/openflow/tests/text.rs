//! The text grammar beside Debian's `ovs-ofctl`: a table of flows is put to both, and acceptance and what is printed compared.

use openflow::model::{Body, FlowCommand, FlowMod, Message};
use openflow::text::{
    Names, ParseError, Style, flow_mod, instructions, matching, parse_flow, parse_instructions, parse_match,
};
use openflow::{Codec, Version};
use std::process::Command;

const FLOWS: &str = include_str!("text_flows.txt");

/// Lines that differ, each with its reason.
const DIFFERENCES: &str = include_str!("text_differences.txt");

const STYLE: Style<'static> = Style {
    version: Version::V10,
    names: None,
};

fn flows() -> impl Iterator<Item = &'static str> {
    FLOWS.lines().filter(|line| !line.starts_with('#'))
}

/// The flow as it is behind its way over the wire, where OpenFlow 1.0 turns some actions into others.
fn over_the_wire(flow: &FlowMod) -> Option<FlowMod> {
    let codec = Codec {
        nxm: true,
        table_id: true,
        ..Codec::new(Version::V10)
    };
    let message = Message {
        xid: 1,
        body: Body::FlowMod(Box::new(flow.clone())),
    };
    match codec.decode(&codec.encode(&message)).ok()?.body {
        Body::FlowMod(flow) => Some(*flow),
        _ => None,
    }
}

fn ours(text: &str) -> Result<Option<String>, ParseError> {
    let flow = parse_flow(FlowCommand::Add, text, &Names::default())?;
    Ok(over_the_wire(&flow).map(|flow| flow_mod(&flow, STYLE)))
}

/// What `ovs-ofctl` says: the flow as it prints it, none where it prints no flow, or the error.
fn theirs(text: &str) -> Option<Result<Option<String>, String>> {
    let output = Command::new("ovs-ofctl").args(["parse-flow", text]).output().ok()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let error = errors.lines().find_map(|l| l.strip_prefix("ovs-ofctl: "));
        return Some(Err(error.unwrap_or_default().to_string()));
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    let flow = stdout
        .lines()
        .find_map(|l| Some(l.split_once("FLOW_MOD (xid=0x1): ")?.1));
    Some(Ok(flow.filter(|f| !f.contains("***")).map(str::to_string)))
}

#[test]
fn flows_are_read_and_printed_as_ovs_ofctl_does() {
    let known: Vec<&str> = DIFFERENCES.lines().filter(|line| !line.starts_with('#')).collect();
    let (mut compared, mut words, mut refused, mut differ, mut wrong) = (0, 0, 0, 0, Vec::new());
    for text in flows() {
        let Some(theirs) = theirs(text) else {
            println!("skipped: there is no ovs-ofctl");
            return;
        };
        compared += 1;
        let difference = match (ours(text), theirs) {
            (Ok(Some(ours)), Ok(Some(theirs))) if ours != theirs => format!("ours {ours}\n  theirs {theirs}"),
            (Ok(ours), Err(theirs)) => format!("accepted as {ours:?}\n  theirs {theirs}"),
            (Err(ours), Ok(theirs)) => format!("refused: {ours}\n  theirs {theirs:?}"),
            (Err(ours), Err(theirs)) => {
                refused += 1;
                words += usize::from(ours.to_string() == theirs);
                continue;
            }
            _ => continue,
        };
        if known.contains(&text) {
            differ += 1;
        } else {
            wrong.push(format!("{text}\n  {difference}"));
        }
    }
    println!("{compared} compared; {refused} refused by both, {words} of them in the same words");
    assert_eq!(differ, known.len(), "a difference is written down that is none");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_is_printed_reads_as_what_it_was_printed_from() {
    for text in flows().filter(|text| !DIFFERENCES.lines().any(|known| known == *text)) {
        let Ok(flow) = parse_flow(FlowCommand::Add, text, &Names::default()) else {
            continue;
        };
        let names = Names::default();
        let printed = matching(&flow.matching, STYLE);
        assert_eq!(
            parse_match(&printed, &names).as_ref(),
            Ok(&flow.matching),
            "{text}: {printed}"
        );
        let printed = instructions(&flow.instructions, STYLE);
        assert_eq!(
            parse_instructions(&printed, &names).as_ref(),
            Ok(&flow.instructions),
            "{text}: {printed}"
        );
    }
}
