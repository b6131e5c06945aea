//! `bpf`: builds the programs of `crates/*/bpf/*.c` with clang. Their objects are committed, so
//! that a build needs no clang; `built.txt` says from which sources and by which clang.
//!
//! `tidy` checks that each object is the one that was built from its sources, and builds it again
//! where the same clang is installed.

use crate::{Findings, output, root};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders with programs. The first one's header is for all.
const FOLDERS: &[&str] = &["crates/netdev/bpf", "crates/dp-ebpf/bpf"];
const RECORD: &str = "crates/dp-ebpf/bpf/built.txt";

/// Version 3 of the instruction set: Linux 5.1. No debug information names a directory.
const FLAGS: &[&str] = &[
    "-O2",
    "-g",
    "-target",
    "bpf",
    "-mcpu=v3",
    "-nostdinc",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Werror",
    "-fdebug-compilation-dir=.",
    "-Icrates/netdev/bpf",
];

/// Builds all objects and records what they were built from.
pub(crate) fn build() -> Result<()> {
    let root = root()?;
    let clang = clang().context("clang --version")?;
    for source in files(&root, "c")? {
        let object = source.with_extension("o");
        fs::write(root.join(&object), compile(&root, &source)?)?;
        println!("bpf: {}", object.display());
    }
    fs::write(root.join(RECORD), record(&root, &clang)?).context(RECORD)
}

pub(crate) fn check(root: &Path, found: &mut Findings) -> Result<()> {
    let recorded = fs::read_to_string(root.join(RECORD)).context(RECORD)?;
    let built_by = recorded.lines().next().unwrap_or_default();
    if record(root, built_by)? != recorded {
        found.fault(format!(
            "{RECORD}: a source or object has changed since: run cargo xtask bpf"
        ));
    } else if clang().is_ok_and(|clang| clang == built_by) {
        for source in files(root, "c")? {
            let committed = fs::read(root.join(source.with_extension("o")))?;
            if compile(root, &source)? != committed {
                found.fault(format!(
                    "{}: is not what {built_by} makes of its source",
                    source.display()
                ));
            }
        }
    }
    Ok(())
}

/// The object of a source.
fn compile(root: &Path, source: &Path) -> Result<Vec<u8>> {
    let mut clang = Command::new("clang");
    clang.args(FLAGS).arg("-c").arg(source).args(["-o", "-"]);
    output(clang.current_dir(root))
}

/// The first line of what clang says of itself.
fn clang() -> Result<String> {
    let said = String::from_utf8(output(Command::new("clang").arg("--version"))?)?;
    Ok(said.lines().next().unwrap_or_default().to_owned())
}

/// Clang, flags, and a hash of each source, header and object.
fn record(root: &Path, clang: &str) -> Result<String> {
    let mut text = format!("{clang}\n{}\n", FLAGS.join(" "));
    for ending in ["c", "h", "o"] {
        for path in files(root, ending)? {
            let hash = fnv(&fs::read(root.join(&path))?);
            writeln!(text, "{hash:016x} {}", path.display())?;
        }
    }
    Ok(text)
}

/// Files of the folders by their ending, relative to the root.
fn files(root: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        for entry in fs::read_dir(root.join(folder)).context(*folder)? {
            let path = Path::new(folder).join(entry?.file_name());
            if path.extension().is_some_and(|e| e == ending) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// FNV-1a: tells files apart that nobody wants to be taken for another.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_match_their_sources() {
        let mut found = Findings::default();
        check(&root().unwrap(), &mut found).unwrap();
        assert!(found.faults.is_empty(), "{:?}", found.faults);
    }

    #[test]
    fn a_changed_source_is_found() {
        let root = root().unwrap();
        let copy = std::env::temp_dir().join(format!("oxvs-bpf-check-{}", std::process::id()));
        for folder in FOLDERS {
            fs::create_dir_all(copy.join(folder)).unwrap();
            for entry in fs::read_dir(root.join(folder)).unwrap() {
                let path = Path::new(folder).join(entry.unwrap().file_name());
                fs::copy(root.join(&path), copy.join(&path)).unwrap();
            }
        }
        let faults = || {
            let mut found = Findings::default();
            check(&copy, &mut found).unwrap();
            found.faults.len()
        };
        assert_eq!(faults(), 0);
        let source = copy.join("crates/netdev/bpf/isolate.c");
        let text = fs::read_to_string(&source).unwrap().replace("TC_ACT_SHOT", "0");
        fs::write(&source, text).unwrap();
        assert_eq!(faults(), 1);
        fs::remove_dir_all(copy).unwrap();
    }
}
