//! Runs other programs, with errors that have the command and its output.

use anyhow::{Context, Result, anyhow, bail};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// Runs a command to its end and gives its standard output.
///
/// # Errors
/// The program is not there, or does not succeed; the error has the command and what it wrote to
/// standard error.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| cannot_start(command, &e))?;
    finish(command, output)
}

/// As [`run`], for words.
///
/// # Errors
/// As [`run`].
pub fn run_words(words: &[&str]) -> Result<String> {
    let [program, args @ ..] = words else {
        bail!("no command");
    };
    run(Command::new(program).args(args))
}

/// As [`run_words`], but run only once in this process, since every cell of every scenario asks for
/// the machine's features.
///
/// # Errors
/// As [`run`], in words.
pub fn known(words: &[&str]) -> Result<String, String> {
    static KNOWN: Mutex<BTreeMap<Vec<String>, Result<String, String>>> = Mutex::new(BTreeMap::new());
    let key: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let ask = || run_words(words).map_err(|error| format!("{error:#}"));
    known.entry(key).or_insert_with(ask).clone()
}

/// Runs lines of `ip -batch` (or `tc -batch`) in a namespace, up to the first that fails.
///
/// # Errors
/// As [`run`]; the error has the line that failed.
pub fn batch(tool: &str, namespace: &str, lines: &[String]) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut command = Command::new(tool);
    command.args(["-n", namespace, "-batch", "-"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| cannot_start(&command, &e))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A failed tool stops reading; its own message is the error to report.
        let _ = stdin.write_all((lines.join("\n") + "\n").as_bytes());
    }
    let output = child.wait_with_output().with_context(|| format!("{tool} -batch"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let (failed, said) = failed_line(&said, lines);
    bail!("{tool} -n {namespace} {failed}: {said}")
}

/// The failed line of a batch (`Command failed -:3`), and the rest of the output.
fn failed_line(said: &str, lines: &[String]) -> (String, String) {
    let mut failed = "-batch".to_owned();
    let mut rest = String::new();
    for line in said.lines() {
        match line.strip_prefix("Command failed -:").map(str::parse::<usize>) {
            Some(Ok(number)) => {
                if let Some(line) = lines.get(number.wrapping_sub(1)) {
                    failed.clone_from(line);
                }
            }
            _ => {
                let _ = write!(rest, "{}{line}", if rest.is_empty() { "" } else { "; " });
            }
        }
    }
    (failed, rest)
}

/// The words of a command, as a user would type them.
pub fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        let arg = arg.to_string_lossy();
        if arg.is_empty() || arg.contains(|c: char| c.is_whitespace() || "\"'$\\".contains(c)) {
            let _ = write!(text, " '{}'", arg.replace('\'', "'\\''"));
        } else {
            let _ = write!(text, " {arg}");
        }
    }
    text
}

fn finish(command: &Command, output: Output) -> Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = if said.trim().is_empty() {
        String::from_utf8_lossy(&output.stdout)
    } else {
        said
    };
    let said = said.trim().replace('\n', "; ");
    if said.is_empty() {
        bail!("{}: {}", shown(command), output.status);
    }
    bail!("{}: {said}", shown(command))
}

/// Why a program could not be started.
pub fn cannot_start(command: &Command, error: &std::io::Error) -> anyhow::Error {
    let program = command.get_program().to_string_lossy();
    if error.kind() != ErrorKind::NotFound {
        return anyhow!("{}: {error}", shown(command));
    }
    match package(&program) {
        Some(package) => anyhow!("{program} is not installed (Debian: package {package})"),
        None => anyhow!("{program} is not installed"),
    }
}

/// The Debian package of a tool that beds use.
fn package(program: &str) -> Option<&'static str> {
    match program {
        "ip" | "tc" | "bridge" => Some("iproute2"),
        "ethtool" => Some("ethtool"),
        "unshare" => Some("util-linux"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_command_is_named_with_what_it_said() {
        let error = run_words(&["sh", "-c", "echo one >&2; echo two >&2; exit 3"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "sh -c 'echo one >&2; echo two >&2; exit 3': one; two"
        );
        let error = run_words(&["sh", "-c", "exit 3"]).unwrap_err();
        assert_eq!(error.to_string(), "sh -c 'exit 3': exit status: 3");
        assert_eq!(run_words(&["sh", "-c", "echo fine"]).unwrap(), "fine\n");
    }

    #[test]
    fn a_program_that_is_not_there_is_said_to_be_missing() {
        let error = run_words(&["oxvs-no-such-program"]).unwrap_err();
        assert_eq!(error.to_string(), "oxvs-no-such-program is not installed");
        let error = cannot_start(&Command::new("tc"), &ErrorKind::NotFound.into());
        assert_eq!(error.to_string(), "tc is not installed (Debian: package iproute2)");
    }

    #[test]
    fn a_failed_batch_names_its_line() {
        let lines = ["link add a".to_owned(), "link set b up".to_owned()];
        let said = "Cannot find device \"b\"\nCommand failed -:2\n";
        let (failed, rest) = failed_line(said, &lines);
        assert_eq!(
            (failed.as_str(), rest.as_str()),
            ("link set b up", "Cannot find device \"b\"")
        );
    }
}
