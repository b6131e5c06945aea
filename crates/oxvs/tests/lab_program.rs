//! How the switch's program finds the laboratory's, and the errors for different versions.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const OXVS: &str = env!("CARGO_BIN_EXE_oxvs");
const LAB: &str = env!("CARGO_BIN_EXE_oxvs-lab");

/// A directory with these programs, each a copy of a file.
fn installed(programs: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, file) in programs {
        std::fs::copy(file, directory.path().join(name)).unwrap();
    }
    directory
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The output of a program with an empty `PATH`.
fn run(program: &Path, args: &[&str]) -> Output {
    Command::new(program).args(args).env("PATH", "").output().unwrap()
}

#[test]
fn oxvs_lab_starts_the_laboratory_beside_it() {
    let directory = installed(&[("oxvs", OXVS), ("oxvs-lab", LAB)]);
    let output = run(&directory.path().join("oxvs"), &["lab", "--help"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("oxvs lab run --quick"));
}

#[test]
fn without_a_laboratory_the_error_says_what_is_missing() {
    let directory = installed(&[("oxvs", OXVS)]);
    let output = run(&directory.path().join("oxvs"), &["lab", "list"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("cannot start oxvs-lab"), "{}", said(&output));
}

#[test]
fn a_laboratory_of_another_version_refuses_the_switch_that_starts_it() {
    let output = Command::new(LAB)
        .arg("list")
        .env("OXVS_CALLER_VERSION", "0.0.1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("oxvs is version 0.0.1"), "{}", said(&output));
}

#[test]
fn a_laboratory_refuses_to_measure_a_switch_of_another_version() {
    testkit::skip!(unless root, "ip", "tc", "ethtool");
    let directory = installed(&[("oxvs-lab", LAB)]);
    let fake = directory.path().join("oxvs");
    std::fs::write(
        &fake,
        "#!/bin/sh\necho 'oxvs 0.0.1, compatible with Open vSwitch 3.1.0'\n",
    )
    .unwrap();
    std::fs::set_permissions(&fake, PermissionsExt::from_mode(0o755)).unwrap();
    let output = Command::new(directory.path().join("oxvs-lab"))
        .args([
            "bench", "--rules", "port", "--flows", "1", "--rounds", "1", "--peer", "none",
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("is version 0.0.1"), "{}", said(&output));
}
