//! The project's rules for files.

use crate::layers::{SANS_IO, UNSAFE};
use crate::{Findings, output};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// Lines from which `tidy` warns: look for two concepts to separate.
const LONG: usize = 600;
/// Maximum lines of a source file.
const TOO_LONG: usize = 1000;

/// Maximum columns of a comment.
const COMMENT_COLUMNS: usize = 100;

/// Forbidden in source files. Written in two halves, since this is one.
const UNFINISHED: &[&str] = &[
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
];
/// Lifts the workspace's ban.
const ALLOWS_UNSAFE: &[&str] = &[concat!("allow(", "unsafe_code"), concat!("expect(", "unsafe_code")];
/// Forbidden in sans-IO crates, outside their tests.
const IO: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "std::net::Tcp",
    "std::net::Udp",
    "std::os::unix::net",
    "thread::spawn",
    "thread::sleep",
];
/// Directories that exist on any machine.
const COMMON: &[&str] = &[
    "/", "/builds", "/home", "/opt", "/root", "/src", "/srv", "/tmp", "/usr", "/usr/src", "/var",
];

/// Checks every tracked and every new file that is not ignored. Returns their number.
pub(crate) fn check(root: &Path, found: &mut Findings) -> Result<usize> {
    // Accepts a clone that another user owns.
    let list = output(
        Command::new("git")
            .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached"])
            .args(["--others", "--exclude-standard"])
            .current_dir(root),
    )?;
    let list = String::from_utf8(list).context("file names are UTF-8")?;
    let machine = machine_paths(root);
    let mut files = 0;
    for name in list.split('\0').filter(|n| !n.is_empty()) {
        // Deleted and not yet committed, or not text.
        let Ok(text) = std::fs::read_to_string(root.join(name)) else {
            continue;
        };
        files += 1;
        if let Some(path) = machine.iter().find(|p| text.contains(p.as_str())) {
            found.fault(format!("{name}: names {path}, a directory of this machine"));
        }
        if let Some(marker) = comment_marker(name) {
            long_comments(name, &text, marker, found);
        }
        if name.ends_with(".rs") {
            rust(name, &text, found);
        }
    }
    Ok(files)
}

/// What begins a comment in a file of this name; `None` if the rule for comments does not apply.
fn comment_marker(name: &str) -> Option<&'static str> {
    let ends = |suffixes: &[&str]| suffixes.iter().any(|suffix| name.ends_with(suffix));
    if ends(&[".rs", ".c", ".h"]) {
        Some("//")
    } else if ends(&[".sh", ".py", "Makefile"]) {
        Some("# ")
    } else {
        None
    }
}

/// Reports comment lines that are too long and contain a blank.
fn long_comments(name: &str, text: &str, marker: &str, found: &mut Findings) {
    for (n, line) in text.lines().enumerate() {
        let comment = line.trim_start();
        let columns = line.chars().count();
        if comment.starts_with(marker) && columns > COMMENT_COLUMNS && comment.matches(' ').count() > 1 {
            found.fault(format!(
                "{name}:{}: a comment of {columns} columns, more than {COMMENT_COLUMNS}",
                n + 1
            ));
        }
    }
}

/// The rules for one file of Rust.
fn rust(name: &str, text: &str, found: &mut Findings) {
    let lines = text.lines().count();
    if lines > TOO_LONG {
        found.fault(format!("{name}: {lines} lines, more than {TOO_LONG}"));
    } else if lines > LONG {
        found.warn(format!("{name}: {lines} lines, more than {LONG}"));
    }
    let is_root = name.ends_with("src/lib.rs") || name.ends_with("src/main.rs");
    if is_root && !text.starts_with("//!") {
        found.fault(format!("{name}: has no page that says what the crate is"));
    }
    for (n, line) in text.lines().enumerate() {
        if let Some(word) = UNFINISHED.iter().find(|w| line.contains(*w)) {
            found.fault(format!("{name}:{}: {word} left in", n + 1));
        }
    }
    let Some(krate) = name.strip_prefix("crates/").and_then(|n| n.split('/').next()) else {
        return;
    };
    if !UNSAFE.contains(&krate) && ALLOWS_UNSAFE.iter().any(|a| text.contains(a)) {
        found.fault(format!("{name}: allows unsafe code outside {UNSAFE:?}"));
    }
    if SANS_IO.contains(&krate) && name.contains("/src/") && !is_test(name) {
        for (n, line) in product_code(text).lines().enumerate() {
            if let Some(call) = IO.iter().find(|c| line.contains(*c)) {
                found.fault(format!("{name}:{}: {call} in a sans-IO crate", n + 1));
            }
        }
    }
}

fn is_test(name: &str) -> bool {
    name.contains("/tests/") || name.ends_with("/tests.rs") || name.ends_with("_tests.rs")
}

/// The code before a file's tests.
fn product_code(text: &str) -> &str {
    text.split("\n#[cfg(test)]").next().unwrap_or(text)
}

/// Paths that would reveal a machine: the checkout's directory.
fn machine_paths(root: &Path) -> Vec<String> {
    root.ancestors()
        .take(2)
        .map(|p| p.display().to_string())
        .filter(|p| !COMMON.contains(&p.as_str()))
        .map(|p| p + "/")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(name: &str, text: &str) -> usize {
        let mut found = Findings::default();
        rust(name, text, &mut found);
        found.faults.len()
    }

    #[test]
    fn what_is_unfinished_or_too_long_is_found() {
        assert_eq!(faults("crates/flow/src/a.rs", "fn f() {}\n"), 0);
        let unfinished = format!("fn f() {{ {}) }}", UNFINISHED[0]);
        assert_eq!(faults("crates/flow/src/a.rs", &unfinished), 1);
        assert_eq!(faults("crates/flow/src/a.rs", &"\n".repeat(1001)), 1);
        assert_eq!(faults("crates/flow/src/lib.rs", "fn f() {}"), 1);
    }

    #[test]
    fn the_core_may_read_a_clock_in_its_tests_only() {
        let clock = "let now = Instant::now();";
        let test = format!("\n#[cfg(test)]\nmod tests {{ {clock} }}");
        assert_eq!(faults("crates/switch/src/a.rs", clock), 1);
        assert_eq!(faults("crates/switch/src/a.rs", &test), 0);
        assert_eq!(faults("crates/dp-user/src/a.rs", clock), 0);
    }

    #[test]
    fn the_place_of_a_checkout_tells_of_a_machine_unless_everyone_has_it() {
        assert_eq!(machine_paths(Path::new("/tmp/x")), ["/tmp/x/"]);
        assert_eq!(machine_paths(Path::new("/a/b/c")), ["/a/b/c/", "/a/b/"]);
    }
}
