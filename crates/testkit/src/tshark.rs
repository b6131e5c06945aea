//! What tshark says of a capture.

use std::path::Path;
use std::process::Command;

/// Runs tshark on a capture, without name resolution, and returns what it prints.
///
/// # Panics
/// If tshark fails.
#[track_caller]
pub fn tshark(capture: &Path, args: &[&str]) -> String {
    let out = Command::new("tshark")
        .args(["-n", "-r"])
        .arg(capture)
        .args(args)
        .output()
        .expect("tshark");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}
