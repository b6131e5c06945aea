//! Commands that end: run to the end within a time limit, output kept.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Seconds after which a command is killed: far beyond what any should take, so that a hang fails a
/// test instead of stopping the run.
const LIMIT: u32 = 60;

/// The result of a command.
#[derive(Debug, Clone)]
pub struct Done {
    /// The command line, for messages.
    pub command: String,
    /// Exit status; `None` where a signal ended it, 124 where it ran out of time.
    pub status: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Done {
    /// Whether it exited with status 0.
    pub fn ok(&self) -> bool {
        self.status == Some(0)
    }

    /// Standard output of a command that succeeded.
    ///
    /// # Panics
    /// If it failed; the message has its output.
    #[track_caller]
    pub fn expect_ok(self) -> String {
        assert!(
            self.ok(),
            "{} ended with {:?}\n{}{}",
            self.command,
            self.status,
            self.stdout,
            self.stderr
        );
        self.stdout
    }
}

/// Runs `command`, which must succeed, and gives its standard output.
#[track_caller]
pub fn run<S: AsRef<OsStr>>(command: &[S]) -> String {
    try_run(command, &[]).expect_ok()
}

/// Runs `command` with `env` added to the environment, whatever its exit status.
///
/// # Panics
/// If it cannot be started.
#[track_caller]
pub fn try_run<S: AsRef<OsStr>>(command: &[S], env: &[(String, String)]) -> Done {
    try_run_in(Path::new("."), command, env, Stdio::null())
}

/// As [`try_run`], in the directory `dir` and with `input` as standard input.
///
/// # Panics
/// If it cannot be started.
#[track_caller]
pub fn try_run_in<S: AsRef<OsStr>>(dir: &Path, command: &[S], env: &[(String, String)], input: Stdio) -> Done {
    let text = display(command);
    let output = Command::new("timeout")
        .args(["-k", "5", &LIMIT.to_string()])
        .args(command)
        .envs(env.iter().map(|(k, v)| (k, v)))
        .env("LC_ALL", "C")
        .current_dir(dir)
        .stdin(input)
        .output();
    let output = output.unwrap_or_else(|e| panic!("{text}: {e}"));
    Done {
        command: text,
        status: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A command line as a person would type it.
pub(crate) fn display<S: AsRef<OsStr>>(command: &[S]) -> String {
    let words: Vec<String> = command
        .iter()
        .map(|w| w.as_ref().to_string_lossy().into_owned())
        .collect();
    words.join(" ")
}
