//! What differs between two runs of the same program: each kind is replaced by its name in braces.

use testkit::Sandbox;

/// `text` without directories, process ids, UUIDs, durations, times of log lines and versions.
pub(crate) fn normalise(text: &str, sandbox: &Sandbox) -> String {
    let mut text = text.replace(&sandbox.dir().display().to_string(), "{dir}");
    for daemon in ["ovs-vswitchd", "ovsdb-server"] {
        let pid = sandbox.read(&format!("{daemon}.pid"));
        if !pid.trim().is_empty() {
            text = text.replace(
                &format!("{daemon}.{}.ctl", pid.trim()),
                &format!("{daemon}.{{pid}}.ctl"),
            );
        }
    }
    let lines = text.lines().filter(|line| !own_version(line));
    let mut out: String = lines.map(|line| version(stamp(&dummys_address(line))) + "\n").collect();
    if !text.ends_with('\n') {
        out.pop();
    }
    // A flow's second age is there if a second has ended between its beginning and its change.
    durations(uuids(&out)).replace("hard_age={time}, ", "")
}

/// A dummy's address counts the devices that the process has opened so far. Those of benches end
/// in zero.
fn dummys_address(line: &str) -> String {
    let mark = "addr:aa:55:aa:55:00:";
    match line.split_once(mark) {
        Some((before, number)) if number != "00" => format!("{before}addr:{{dummy}}"),
        _ => line.to_owned(),
    }
}

/// A log line without its time and number.
fn stamp(line: &str) -> String {
    let mut parts = line.splitn(3, '|');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(time), Some(number), Some(rest)) if time.ends_with('Z') && number.parse::<u32>().is_ok() => {
            format!("{{time}}|{{number}}|{rest}")
        }
        _ => line.to_owned(),
    }
}

fn version(line: String) -> String {
    let mark = "(Open vSwitch) ";
    match line.find(mark) {
        Some(at) => line[..at + mark.len()].to_owned() + "{version}",
        None => line,
    }
}

/// The second line of `--version` (docs/compatibility.md, "Versions").
fn own_version(line: &str) -> bool {
    let number = line.strip_prefix("oxvs ");
    number.is_some_and(|number| number.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

fn uuids(text: &str) -> String {
    let of_uuid = |c: char| c.is_ascii_hexdigit() || c == '-';
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(of_uuid) {
        let (before, word) = rest.split_at(start);
        let end = word.find(|c| !of_uuid(c)).unwrap_or(word.len());
        let lengths: Vec<usize> = word[..end].split('-').map(str::len).collect();
        out.push_str(before);
        out.push_str(if lengths == [8, 4, 4, 4, 12] {
            "{uuid}"
        } else {
            &word[..end]
        });
        rest = &word[end..];
    }
    out + rest
}

fn durations(mut text: String) -> String {
    for key in [
        "duration=",
        "duration:",
        " duration",
        "used:",
        "idle_age=",
        "hard_age=",
        "dump duration : ",
    ] {
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(key) {
            let (before, after) = rest.split_at(at + key.len());
            let end = after.find(|c: char| !c.is_ascii_digit() && c != '.');
            let end = end.unwrap_or(after.len());
            out.push_str(before);
            out.push_str(if end > 0 { "{time}" } else { "" });
            rest = &after[end..];
        }
        text = out + rest;
    }
    text
}

#[test]
fn only_what_differs_between_runs_is_replaced() {
    let sandbox = Sandbox::new();
    let text = format!(
        "a {} hard_age=1, idle_age=2, 01234567-89ab-cdef-0123-456789abcdef ufid:0-1, used:1.2s, used:never\nx (Open vSwitch) 3.1.0, y\noxvs 1.2.3\noxvs is here\n\
         2026-11-23T16:43:37Z|00001|m|INFO|t|u",
        sandbox.arg("f")
    );
    assert_eq!(
        normalise(&text, &sandbox),
        "a {dir}/f idle_age={time}, {uuid} ufid:0-1, used:{time}s, used:never\nx (Open vSwitch) {version}\noxvs is here\n{time}|{number}|m|INFO|t|u"
    );
}
