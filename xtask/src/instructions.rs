//! Counts the fast path's instructions for each packet and compares them with the kept numbers: a
//! check that does not depend on the machine's load.
//!
//! The kept numbers are in [`KEPT`]. They belong to one compiler; with another version, differences
//! are shown but are not faults.

use crate::{output, root};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The numbers, a case a line, below the version of the compiler.
const KEPT: &str = "crates/instructions/per-packet.txt";

/// Tolerated relative difference from the kept number.
const TOLERANCE: f64 = 0.05;

/// How often a new or changed number is counted.
const TIMES: u32 = 4;

/// Packets of the longer of the two runs whose difference counts, beyond those of the shorter.
const PACKETS: u64 = 32 * 640;

/// Packets of the shorter.
const BASE: u64 = 32 * 64;

/// Counts and compares with the kept numbers; with `renew`, keeps the new ones.
pub(crate) fn run(renew: bool) -> Result<()> {
    let root = root()?;
    if Command::new("valgrind").arg("--version").output().is_err() {
        if renew {
            bail!("valgrind is not installed ('scripts/setup.sh test' installs it)");
        }
        println!("skipped: instructions per packet: valgrind is not installed");
        return Ok(());
    }
    let program = build(&root)?;
    let compiler = String::from_utf8(output(Command::new("rustc").arg("--version"))?)?;
    let compiler = compiler.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let cases = String::from_utf8(output(&mut Command::new(&program))?)?;
    let count = |case: &str, times| Ok((case.to_owned(), per_packet(&program, case, times)?));
    let first = if renew { TIMES } else { 1 };
    let mut counted: BTreeMap<String, f64> = cases.lines().map(|case| count(case, first)).collect::<Result<_>>()?;
    let path = root.join(KEPT);
    if renew {
        std::fs::write(&path, text(&compiler, &counted)).with_context(|| path.display().to_string())?;
        print!("{}", text(&compiler, &counted));
        return Ok(());
    }
    let kept = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let (kept_by, kept) = parse(&kept)?;
    // Each run has its own hash seed, which changes the number of comparisons a little.
    for (case, now) in &mut counted {
        if kept.get(case).is_some_and(|was| off(*was, *now)) {
            *now = per_packet(&program, case, TIMES)?;
        }
    }
    let faults = compare(&kept, &counted);
    for (case, now) in &counted {
        let was = kept.get(case).map_or_else(|| "-".to_owned(), |was| format!("{was:.1}"));
        println!("instructions per packet: {case:<14} {now:>8.1} (kept: {was})");
    }
    match faults.len() {
        0 => Ok(()),
        _ if kept_by != compiler => {
            println!("the numbers kept are of Rust {kept_by}, this is {compiler}: the differences are no faults");
            Ok(())
        }
        n => bail!(
            "{}\n{n} differ by more than {:.0} %; if that is meant, 'cargo xtask instructions --renew' keeps the new ones",
            faults.join("\n"),
            TOLERANCE * 100.0
        ),
    }
}

/// Builds the counted program in an optimised profile of its own, since the release profile takes
/// minutes.
fn build(root: &Path) -> Result<std::path::PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let args = [
        "build",
        "--quiet",
        "--locked",
        "--profile=counted",
        "--package=instructions",
    ];
    output(Command::new(cargo).args(args).current_dir(root))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    Ok(target.join("counted/instructions"))
}

/// Instructions of a packet, the mean of `times` runs.
fn per_packet(program: &Path, case: &str, times: u32) -> Result<f64> {
    let mut more = 0;
    for _ in 0..times {
        let (short, long) = (start(program, case, BASE)?, start(program, case, BASE + PACKETS)?);
        more += finish(long, case)?.saturating_sub(finish(short, case)?);
    }
    Ok(more as f64 / (PACKETS * u64::from(times)) as f64)
}

/// Starts a counted run.
fn start(program: &Path, case: &str, packets: u64) -> Result<Child> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(program).args([case, &packets.to_string()]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().context("valgrind")
}

/// Instructions of the whole run.
fn finish(run: Child, case: &str) -> Result<u64> {
    let out = run.wait_with_output().context("valgrind")?;
    let said = String::from_utf8_lossy(&out.stderr);
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    match collected.and_then(|(_, number)| number.trim().parse().ok()) {
        Some(number) if out.status.success() => Ok(number),
        _ => bail!("valgrind counts nothing of {case}: {said}"),
    }
}

fn text(compiler: &str, counted: &BTreeMap<String, f64>) -> String {
    let mut text = format!("rust {compiler}\n");
    for (case, count) in counted {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{case} {count:.1}");
    }
    text
}

/// The compiler and the numbers of a text that [`text`] wrote.
fn parse(text: &str) -> Result<(String, BTreeMap<String, f64>)> {
    let mut lines = text
        .lines()
        .map(|line| line.split_once(' ').with_context(|| format!("{KEPT}: {line}")));
    let (_, compiler) = lines.next().context(KEPT)??;
    let numbers = lines.map(|line| {
        let (case, number) = line?;
        Ok((
            case.to_owned(),
            number.parse().with_context(|| format!("{KEPT}: {number}"))?,
        ))
    });
    Ok((compiler.to_owned(), numbers.collect::<Result<_>>()?))
}

/// Whether a number is too far from the kept one.
fn off(was: f64, now: f64) -> bool {
    (now / was - 1.0).abs() > TOLERANCE
}

/// The differences: more, less, new or missing.
fn compare(kept: &BTreeMap<String, f64>, counted: &BTreeMap<String, f64>) -> Vec<String> {
    let mut faults = Vec::new();
    for (case, now) in counted {
        match kept.get(case) {
            None => faults.push(format!("{case}: {now:.1}, and nothing is kept of it")),
            Some(was) if off(*was, *now) => {
                faults.push(format!(
                    "{case}: {now:.1} instructions a packet, and it was {was:.1} ({:+.1} %)",
                    (now / was - 1.0) * 100.0
                ));
            }
            Some(_) => {}
        }
    }
    let gone = kept.keys().filter(|case| !counted.contains_key(*case));
    faults.extend(gone.map(|case| format!("{case} is kept, and not counted any more")));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(list: &[(&str, f64)]) -> BTreeMap<String, f64> {
        list.iter().map(|(case, count)| ((*case).to_owned(), *count)).collect()
    }

    #[test]
    fn what_is_kept_is_read_back() {
        let counted = numbers(&[("masks", 512.5), ("port", 210.0)]);
        assert_eq!(
            parse(&text("1.95.0", &counted)).unwrap(),
            ("1.95.0".to_owned(), counted)
        );
    }

    #[test]
    fn more_and_less_than_five_percent_are_faults_and_so_are_new_and_missing_cases() {
        let kept = numbers(&[("a", 100.0), ("b", 100.0), ("c", 100.0), ("d", 100.0)]);
        let counted = numbers(&[("a", 104.0), ("b", 106.0), ("c", 94.0), ("e", 1.0)]);
        let faults = compare(&kept, &counted);
        assert_eq!(faults.len(), 4, "{faults:?}");
        assert!(
            faults[0].starts_with("b: 106.0") && faults[3].starts_with("d is kept"),
            "{faults:?}"
        );
    }
}
