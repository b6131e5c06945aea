//! `ovs-vsctl` against Debian's: the same command lines, each tool with a database of its own.
//!
//! Every file of `tests/vsctl` is a session that starts with an empty database. Output, errors and
//! exit status of each command line must agree byte for byte, but for UUIDs and times, and at the
//! end both databases must hold the same. Where records are listed their order may differ: theirs
//! is that of a hash table, ours that of names or UUIDs.

mod oracle;

use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use oracle::Sandbox;

#[test]
fn bridges_are_made_and_listed_alike() {
    compare("bridges", include_str!("vsctl/bridges.cases"));
}

#[test]
fn ports_and_bonds_are_made_and_listed_alike() {
    compare("ports", include_str!("vsctl/ports.cases"));
}

#[test]
fn database_commands_answer_alike() {
    compare("database", include_str!("vsctl/database.cases"));
}

#[test]
fn steps_of_a_transaction_see_each_other_alike() {
    compare("steps", include_str!("vsctl/steps.cases"));
}

#[test]
fn controllers_and_the_switch_as_a_whole_are_set_alike() {
    compare("switch", include_str!("vsctl/switch.cases"));
}

#[test]
fn options_are_taken_alike() {
    compare("options", include_str!("vsctl/options.cases"));
}

#[test]
fn rows_are_named_alike() {
    compare("names", include_str!("vsctl/names.cases"));
}

#[test]
fn values_are_read_and_printed_alike() {
    compare("values", include_str!("vsctl/values.cases"));
}

/// What theirs takes for something else, or crashes on, ours refuses.
#[test]
fn what_theirs_misreads_is_refused() {
    let Some(sandbox) = sandbox() else { return };
    let run = |line: &str| {
        let mut words = vec!["--no-wait".to_owned(), "--db=unix:db.sock".to_owned()];
        words.extend(split(line));
        text(&sandbox.our_command(&["ovs-vsctl"]).args(words).output().unwrap())
    };
    assert_eq!(run("add-br br0 -- add-port br0 p"), "exit 0\n\n");
    for (line, error) in [
        ("add-br x br0 vlan7", "add-br: vlan must be between 0 and 4095"),
        (
            "set bridge br0 other_config=a",
            "a: syntax error at end of argument expecting \"=\"",
        ),
        (
            "set bridge br0 flow_tables=1-2=@x",
            "\"1-2\" is not a valid integer or range",
        ),
        (
            "--inactivity-probe=x set-manager ptcp:",
            "value x on --inactivity-probe is invalid",
        ),
        // Four since schema 8.8.0, three in Debian's.
        (
            "--id=@t create flow_table prefixes=a,b,c,d,e -- set bridge br0 flow_tables=1=@t",
            "a,b,c,d,e: 5 value(s) specified but the maximum number is 4",
        ),
        ("add-bond-iface p ''", "interface name must not be empty string"),
        (
            "--db=carrier:pigeon show",
            "carrier:pigeon: unknown connection method \
          (use tcp:HOST:PORT, ssl:HOST:PORT, unix:FILE, ptcp:PORT[:IP], pssl:PORT[:IP] or punix:FILE)",
        ),
    ] {
        assert_eq!(run(line), format!("exit 1\n\novs-vsctl: {error}\n"), "{line}");
    }
}

/// Without a switch the command makes the change, and tells the user why it does not return.
#[test]
fn a_switch_that_does_not_run_is_named() {
    let Some(sandbox) = sandbox() else { return };
    let args = ["ovs-vsctl", "--db=unix:db.sock", "--timeout=4", "add-br", "br0"];
    let output = sandbox.our_command(&args).output().unwrap();
    assert_eq!(output.status.signal(), Some(14));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        errors.contains("no switch (ovs-vswitchd) is running to apply it"),
        "{errors}"
    );
    let listed = sandbox.theirs(&["ovs-vsctl", "--db=unix:db.sock", "list-br"]);
    assert_eq!(listed.out, "br0\n");
}

fn sandbox() -> Option<Sandbox> {
    let mut sandbox = Sandbox::new()?;
    sandbox.write("schema", ovsdb::schemas::OPEN_VSWITCH);
    sandbox.start_server(&[("conf.db", "schema")]);
    Some(sandbox)
}

fn compare(name: &str, cases: &str) {
    let (Some(theirs), Some(ours)) = (sandbox(), sandbox()) else {
        return;
    };
    for line in cases.lines().filter(|line| !line.starts_with('#')) {
        let mut words = vec!["--no-wait".to_owned(), "--db=unix:db.sock".to_owned()];
        words.extend(split(line));
        let expected = theirs.command("ovs-vsctl").args(&words).output().unwrap();
        let got = ours.our_command(&["ovs-vsctl"]).args(&words).output().unwrap();
        assert_eq!(
            normal(line, &got),
            normal(line, &expected),
            "{name}: ours and theirs of: {line}"
        );
    }
    let dump = ["ovsdb-client", "--timeout=10", "dump", "unix:db.sock", "Open_vSwitch"];
    let contents = |sandbox: &Sandbox| {
        let dump = sandbox.theirs(&dump);
        assert_eq!(dump.status, Some(0), "{dump:?}");
        // Column widths follow the UUIDs' number, rules are lines of dashes.
        sorted_lines(&without_uuids(&dump.out))
    };
    assert_eq!(contents(&ours), contents(&theirs), "{name}: databases at the end");
}

fn text(output: &Output) -> String {
    use String as S;
    let status = match (output.status.code(), output.status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, signal) => format!("signal {signal:?}"),
    };
    format!(
        "{status}\n{}\n{}",
        S::from_utf8_lossy(&output.stdout),
        S::from_utf8_lossy(&output.stderr)
    )
}

/// What must agree: without UUIDs and times, and without the order of records.
fn normal(line: &str, output: &Output) -> String {
    let text = without_times(&without_uuids(&text(output)));
    let words = split(line);
    let has = |word: &str| words.iter().any(|part| part == word);
    if !["show", "list", "find"].into_iter().any(has) {
        return text;
    }
    match words.iter().any(|word| word.contains("json")) {
        true => sorted_characters(&text),
        false => sorted_lines(&text),
    }
}

fn sorted_lines(text: &str) -> String {
    let one_line = |line: &str| match line.contains("\\n") {
        true => sorted_characters(line),
        false => line.to_owned(),
    };
    let mut lines: Vec<String> = text.lines().map(one_line).collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn sorted_characters(text: &str) -> String {
    let mut all: Vec<char> = text.chars().collect();
    all.sort_unstable();
    all.into_iter().collect()
}

fn without_uuids(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        match rest.get(..36).is_some_and(|uuid| uuid.parse::<ovsdb::Uuid>().is_ok()) {
            true => {
                out.push_str("<uuid>");
                rest = &rest[36..];
            }
            false => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    out
}

/// Takes the time off lines of the log: `2026-01-31T12:00:00Z|00002|vsctl|WARN|…`.
fn without_times(text: &str) -> String {
    let strip = |line: &str| match line.split_once("Z|") {
        Some((time, rest)) if time.len() == 19 && time.as_bytes()[10] == b'T' => format!("<time>|{rest}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(strip).collect()
}

/// Words as a shell splits them: single quotes, double quotes with backslashes, backslashes.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, ' ') => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), c) if c == open => quote = None,
            (Some('"'), '\\') if matches!(chars.peek(), Some('"' | '\\')) => {
                word.get_or_insert_default().extend(chars.next());
            }
            (None, '\\') => word.get_or_insert_default().extend(chars.next()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
