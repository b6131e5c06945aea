//! Developer commands: `cargo xtask COMMAND`.
//!
//! `tidy` checks what the compiler does not: which crate may import which (the layers), and the
//! project's rules for files. It prints every fault with its place and fails if there is one.
//! `bpf` builds the kernel's programs from C. `instructions` counts the instructions of the fast
//! path for a packet, and fails if they have changed.

mod bpf;
mod instructions;
mod layers;
mod sources;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(),
        ["bpf"] => bpf::build(),
        ["instructions"] => instructions::run(false),
        ["instructions", "--renew"] => instructions::run(true),
        _ => {
            eprintln!(
                "usage: cargo xtask tidy                      check import rules and house rules\n       \
                 cargo xtask bpf                       build the eBPF programs with clang\n       \
                 cargo xtask instructions [--renew]    count the fast path's instructions; keep the new numbers"
            );
            return ExitCode::FAILURE;
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The findings of a check.
#[derive(Debug, Default)]
struct Findings {
    faults: Vec<String>,
    warnings: Vec<String>,
}

impl Findings {
    fn fault(&mut self, text: impl Into<String>) {
        self.faults.push(text.into());
    }

    fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }
}

fn tidy() -> Result<()> {
    let root = root()?;
    let mut found = Findings::default();
    layers::check(&root, &mut found)?;
    bpf::check(&root, &mut found)?;
    let files = sources::check(&root, &mut found)?;
    for warning in &found.warnings {
        println!("tidy: warning: {warning}");
    }
    for fault in &found.faults {
        println!("tidy: {fault}");
    }
    match found.faults.len() {
        0 => {
            println!("tidy: {files} files in order");
            Ok(())
        }
        n => bail!("{n} faults"),
    }
}

/// The workspace's directory.
fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().context("xtask lies in the workspace")?;
    Ok(root.to_owned())
}

/// Standard output of a command that must succeed.
fn output(command: &mut Command) -> Result<Vec<u8>> {
    let text = format!("{command:?}");
    let out = command.output().with_context(|| text.clone())?;
    if !out.status.success() {
        bail!("{text}: {}", String::from_utf8_lossy(&out.stderr));
    }
    Ok(out.stdout)
}
