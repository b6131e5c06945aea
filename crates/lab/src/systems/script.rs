//! The commands that set up a switch, kept as a user would type them, and the commands that undo
//! them.

use crate::bed::{Bed, command};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs commands in the namespace of bridges. Dropping it runs the undo commands in reverse
/// order.
pub(crate) struct Script {
    namespace: String,
    /// Variables of the commands' environment.
    env: Vec<(String, String)>,
    /// Programs outside the `PATH`: the typed name and the file.
    programs: Vec<(String, PathBuf)>,
    /// Replacements of parts of commands in the text.
    shown: Vec<(String, String)>,
    lines: Vec<String>,
    undo: Vec<Undo>,
}

enum Undo {
    Run(String),
    Write(&'static str, String),
    /// A host's namespace, and the command.
    Host(String, String),
}

impl Script {
    pub(crate) fn new(namespace: &str) -> Script {
        Script {
            namespace: namespace.to_owned(),
            env: Vec::new(),
            programs: Vec::new(),
            shown: Vec::new(),
            lines: Vec::new(),
            undo: Vec::new(),
        }
    }

    /// The commands so far.
    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }

    /// An environment variable of the commands. The text has `$NAME` in place of its value.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        if !self.shown.iter().any(|(shown, _)| shown == value) {
            self.shown.push((value.to_owned(), format!("${name}")));
        }
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// The file that is run where a command's program is `name`.
    pub(crate) fn program(&mut self, name: &str, file: &Path) {
        self.programs.push((name.to_owned(), file.to_owned()));
    }

    /// Runs a command, split at blanks, and keeps its text. Returns its output. A word may have
    /// quotes around it, as a shell needs them.
    pub(crate) fn run(&mut self, line: &str) -> Result<String> {
        self.note(line);
        self.ask(line)
    }

    /// Runs a command that is no part of the configuration.
    pub(crate) fn ask(&self, line: &str) -> Result<String> {
        command::run(&mut self.command(&words(line)))
    }

    /// A command in the namespace and the environment.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]);
        if let [program, args @ ..] = words {
            let file = self.programs.iter().find(|(name, _)| name == program);
            match file {
                Some((_, file)) => command.arg(file),
                None => command.arg(program),
            };
            command.args(args);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Keeps the text of a command that is run otherwise.
    pub(crate) fn note(&mut self, line: &str) {
        let mut line = line.to_owned();
        for (value, shown) in &self.shown {
            line = line.replace(value, shown);
        }
        self.lines.push(line);
    }

    /// Sets a setting of the namespace's network, `net.ipv4.ip_forward`; the previous value is
    /// restored at the end.
    pub(crate) fn sysctl(&mut self, name: &'static str, value: &str) -> Result<()> {
        self.note(&format!("sysctl -w {name}={value}"));
        let before = crate::bed::namespace::enter(&self.namespace, || exchange(name, value))?;
        self.undo.push(Undo::Write(name, before));
        Ok(())
    }

    /// Adds a command to run at the end; its failure is ignored.
    pub(crate) fn undo(&mut self, line: &str) {
        self.undo.push(Undo::Run(line.to_owned()));
    }

    /// Runs a command on a host, and `undo` at the end.
    pub(crate) fn on_host(&mut self, bed: &Bed, host: &str, line: &str, undo: &str) -> Result<()> {
        self.note(&format!("{host}# {line}"));
        let host = bed.host(host)?;
        command::run(&mut host.command(&words(line)))?;
        self.undo.push(Undo::Host(host.namespace().to_owned(), undo.to_owned()));
        Ok(())
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        for undo in std::mem::take(&mut self.undo).into_iter().rev() {
            // The bed goes too, and takes along whatever is left.
            let _ = match undo {
                Undo::Run(line) => self.ask(&line).map(drop),
                Undo::Write(name, value) => {
                    crate::bed::namespace::enter(&self.namespace, || exchange(name, &value)).map(drop)
                }
                Undo::Host(namespace, line) => {
                    let mut command = Command::new("ip");
                    command.args(["netns", "exec", &namespace]).args(words(&line));
                    command::run(&mut command).map(drop)
                }
            };
        }
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().map(|word| word.trim_matches('\'')).collect()
}

/// Writes a setting and returns the previous value.
fn exchange(name: &str, value: &str) -> Result<String> {
    let path = Path::new("/proc/sys").join(name.replace('.', "/"));
    let what = || format!("sysctl {name}");
    let before = fs::read_to_string(&path).with_context(what)?;
    fs::write(&path, value).with_context(what)?;
    Ok(before.trim().to_owned())
}
