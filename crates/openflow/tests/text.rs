//! The text grammar beside Debian's `ovs-ofctl`: a table of flows is put to both, and acceptance,
//! the words of errors, the usable flow formats and what is printed are compared.

use openflow::model::{Body, FlowCommand, FlowMod, Message, TunMetadata};
use openflow::text::{
    Names, Protocols, Style, flow_mod, instructions, matching, parse_flow_usable, parse_instructions, parse_match,
};
use openflow::{Codec, Version};
use std::fmt::Write;
use std::process::Command;
use std::thread;

const FLOWS: &str = include_str!("text_flows.txt");

/// Lines that differ, each with its reason.
const DIFFERENCES: &str = include_str!("text_differences.txt");

/// Flow formats and lines that are printed otherwise in them, each with its reason.
const VERSION_DIFFERENCES: &str = include_str!("text_version_differences.txt");

const ALL: &str = "OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15";

fn flows() -> impl Iterator<Item = &'static str> {
    FLOWS.lines().filter(|line| !line.starts_with('#'))
}

fn differs(text: &str) -> bool {
    DIFFERENCES.lines().any(|known| known == text)
}

/// The flow as it is behind its way over the wire, which turns some actions into others.
fn sent(flow: &FlowMod, protocol: Protocols) -> Option<String> {
    let version = protocol.version()?;
    let mut flow = flow.clone();
    if version > Version::V10 {
        // Later versions ask for a table.
        flow.table = flow.table.or(Some(0));
    }
    let codec = Codec {
        nxm: Protocols::NXM_ANY.has(protocol),
        table_id: Protocols::TABLE.has(protocol),
        ..Codec::new(version)
    };
    let message = Message {
        xid: 1,
        body: Body::FlowMod(Box::new(flow)),
    };
    match codec.decode(&codec.encode(&message)).ok()?.body {
        Body::FlowMod(flow) => Some(flow_mod(&flow, Style::of(version))),
        _ => None,
    }
}

/// What there is to say of a flow.
#[derive(Debug, PartialEq)]
enum Said {
    Error(String),
    /// The usable formats, the one that is chosen, and the flow in it, if it can be printed.
    Flow(String, String, Option<String>),
}

fn ours(text: &str) -> Said {
    match parse_flow_usable(FlowCommand::Add, text, &Names::default()) {
        Err(e) => Said::Error(e.to_string()),
        Ok((flow, usable)) => match usable.iter().next() {
            None => Said::Error("no usable protocol".into()),
            Some(chosen) => Said::Flow(usable.to_string(), chosen.to_string(), sent(&flow, chosen)),
        },
    }
}

/// What `ovs-ofctl` says; `None` where there is none.
fn theirs(text: &str) -> Option<Said> {
    let output = Command::new("ovs-ofctl")
        .args(["-O", ALL, "parse-flow", text])
        .output()
        .ok()?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let error = errors.lines().find_map(|l| l.strip_prefix("ovs-ofctl: "));
        return Some(Said::Error(error.unwrap_or_default().to_string()));
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    let behind = |mark: &str| stdout.lines().find_map(|l| Some(l.split_once(mark)?.1.to_string()));
    Some(Said::Flow(
        behind("usable protocols: ")?,
        behind("chosen protocol: ")?,
        behind("(xid=0x1): ").filter(|f| !f.contains("***")),
    ))
}

#[test]
fn flows_are_read_and_printed_as_ovs_ofctl_does() {
    let lines: Vec<_> = flows().collect();
    let parts = lines.chunks(lines.len() / 4 + 1);
    let results = thread::scope(|scope| {
        let threads: Vec<_> = parts.map(|part| scope.spawn(|| compare(part))).collect();
        threads
            .into_iter()
            .map(|t| t.join().expect("a comparison"))
            .collect::<Option<Vec<_>>>()
    });
    let Some(results) = results else {
        println!("skipped: there is no ovs-ofctl");
        return;
    };
    let found: Vec<_> = results.into_iter().flatten().collect();
    let unknown: Vec<_> = found
        .iter()
        .filter(|(text, _)| !differs(text))
        .map(|(_, what)| what.as_str())
        .collect();
    assert!(unknown.is_empty(), "{} differ:\n{}", unknown.len(), unknown.join("\n"));
    for known in DIFFERENCES.lines().filter(|line| !line.starts_with('#')) {
        assert!(
            found.iter().any(|(text, _)| *text == known),
            "written down as a difference, and is none: {known}"
        );
    }
}

/// The lines that differ, with how.
fn compare(lines: &[&'static str]) -> Option<Vec<(&'static str, String)>> {
    let mut found = Vec::new();
    for text in lines {
        let (ours, theirs) = (ours(text), theirs(text)?);
        let same = match (&ours, &theirs) {
            // What is not printed there cannot be compared.
            (Said::Flow(usable, chosen, _), Said::Flow(u, c, None)) => (usable, chosen) == (u, c),
            _ => ours == theirs,
        };
        if !same {
            found.push((*text, format!("{text}\n  ours   {ours:?}\n  theirs {theirs:?}")));
        }
    }
    Some(found)
}

#[test]
fn flows_are_printed_in_the_words_of_every_version() {
    let read = |text: &'static str| Some((text, parse_flow_usable(FlowCommand::Add, text, &Names::default()).ok()?));
    let flows: Vec<_> = flows().filter(|text| !differs(text)).filter_map(read).collect();
    let mut faults = Vec::new();
    for (flag, format) in [
        ("OpenFlow10", Protocols::NXM_TABLE),
        ("OpenFlow11", Protocols::OF11),
        ("OpenFlow12", Protocols::OF12),
        ("OpenFlow13", Protocols::OF13),
        ("OpenFlow14", Protocols::OF14),
        ("OpenFlow15", Protocols::OF15),
    ] {
        let usable: Vec<_> = flows.iter().filter(|(_, (_, usable))| usable.has(format)).collect();
        let file: String = usable.iter().fold(String::new(), |mut file, (text, _)| {
            let _ = writeln!(file, "{}", text.replace('#', " "));
            file
        });
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("flows");
        std::fs::write(&path, file).expect("a file");
        let name = format.to_string();
        let command = Command::new("ovs-ofctl")
            .args(["-O", flag, "-F", &name, "parse-flows"])
            .arg(&path)
            .output();
        let Ok(output) = command else {
            println!("skipped: there is no ovs-ofctl");
            return;
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        let error: Vec<_> = errors.lines().filter(|l| l.starts_with("ovs-ofctl: ")).collect();
        assert!(output.status.success(), "{format}: {error:?}");
        let stdout = String::from_utf8_lossy(&output.stdout);
        let printed: Vec<_> = stdout
            .lines()
            .filter_map(|l| Some(l.split_once("FLOW_MOD (")?.1))
            .collect();
        assert_eq!(printed.len(), usable.len());
        for ((text, (flow, _)), theirs) in usable.iter().zip(printed) {
            let Some((_, theirs)) = theirs.split_once("): ") else {
                continue;
            };
            // If the switch may choose the table, Open vSwitch prints the number for any table.
            let theirs = theirs.replacen("table:255 ", "", 1);
            let ours = sent(flow, format).unwrap_or_default();
            if !theirs.contains("***") && ours != theirs {
                faults.push((
                    format!("{format} {text}"),
                    format!("{format} {text}\n  ours   {ours}\n  theirs {theirs}"),
                ));
            }
        }
    }
    let known: Vec<_> = VERSION_DIFFERENCES
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let unknown = faults.iter().filter(|(name, _)| !known.contains(&name.as_str()));
    let unknown: Vec<_> = unknown.map(|(_, what)| what.as_str()).collect();
    assert!(unknown.is_empty(), "{} differ:\n{}", unknown.len(), unknown.join("\n"));
    for known in known {
        assert!(
            faults.iter().any(|(name, _)| name == known),
            "written down as a difference, and is none: {known}"
        );
    }
}

#[test]
fn what_is_printed_reads_as_what_it_was_printed_from() {
    let names = Names::default();
    for text in flows() {
        let Ok((flow, _)) = parse_flow_usable(FlowCommand::Add, text, &names) else {
            continue;
        };
        // How wide a field of a tunnel's option is, the text does not know: of a value whose bytes
        // all count, no mask is printed.
        let widened = |one: &TunMetadata| !one.exact && !one.mask.is_empty() && one.mask.iter().all(|m| *m == 0xff);
        if flow.matching.tun_metadata().iter().any(widened) {
            continue;
        }
        for style in [Version::V10, Version::V13].map(Style::of) {
            let printed = matching(&flow.matching, style);
            assert_eq!(
                parse_match(&printed, &names).as_ref(),
                Ok(&flow.matching),
                "{text}: {printed}"
            );
            let printed = instructions(&flow.instructions, style);
            assert_eq!(
                parse_instructions(&printed, &names).as_ref(),
                Ok(&flow.instructions),
                "{text}: {printed}"
            );
        }
    }
}
