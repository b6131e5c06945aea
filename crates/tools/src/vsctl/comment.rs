//! What the database's log says about a change: the command line, and who ran it.

use std::ffi::OsString;
use std::fs;

use super::PROGRAM;

/// `ovs-vsctl (invoked by bash): ovs-vsctl add-br br0`.
pub(super) fn comment(args: &[OsString]) -> String {
    match invoker() {
        Some(invoker) => format!("{PROGRAM} (invoked by {invoker}): {}", command_line(args)),
        None => format!("{PROGRAM}: {}", command_line(args)),
    }
}

/// The command line, its arguments in quotes where they need them.
pub(super) fn command_line(args: &[OsString]) -> String {
    let mut line = PROGRAM.to_owned();
    for arg in args {
        let arg = arg.to_string_lossy();
        line.push(' ');
        let plain =
            |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\' | '`' | '$' | '*' | '?' | '#' | '&');
        if !arg.is_empty() && arg.chars().all(plain) {
            line.push_str(&arg);
        } else {
            line.push_str(&serde_json::Value::from(arg.as_ref()).to_string());
        }
    }
    line
}

/// The name of the parent process.
fn invoker() -> Option<String> {
    let parent = rustix::process::getppid()?;
    let name = fs::read_to_string(format!("/proc/{}/comm", parent.as_raw_nonzero())).ok()?;
    Some(name.trim_end().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_with_spaces_or_quotes_are_quoted() {
        let args = ["--db=unix:/x", "add-br", "a b", ""].map(OsString::from);
        assert_eq!(command_line(&args), r#"ovs-vsctl --db=unix:/x add-br "a b" """#);
    }
}
