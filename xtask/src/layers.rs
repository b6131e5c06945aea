//! Which crate may import which.

use crate::{Findings, output};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The crates from the bottom up: each may import those of the rows above its own, never its
/// neighbours.
const LAYERS: &[&[&str]] = &[
    &["nanos", "wire", "sys", "telemetry"],
    &["flow", "qos", "ovsdb", "export", "protocols", "tunnel", "conntrack"],
    &["netdev", "classifier", "openflow"],
    &["dp"],
    &["dp-user", "dp-ebpf", "switch"],
    &["ofproto"],
    &["mgmt"],
    &["ovsdb-server"],
    &["vswitchd", "tools", "lab"],
    &["oxvs"],
];

/// Crates for development only: nothing may import them but tests.
const DEV_ONLY: &[&str] = &["testkit", "fuzz-targets", "instructions", "xtask"];

/// Crates that take the time as an argument and open nothing.
pub(crate) const SANS_IO: &[&str] = &[
    "nanos",
    "wire",
    "flow",
    "qos",
    "export",
    "protocols",
    "tunnel",
    "conntrack",
    "ovsdb",
    "classifier",
    "openflow",
    "dp",
    "switch",
    "ofproto",
];

/// The only crates with unsafe code.
pub(crate) const UNSAFE: &[&str] = &["sys", "dp-ebpf"];

/// The first row in which something asynchronous may be imported. `sys` may do so by a feature, for
/// the calls of the runtime that are unsafe.
const ASYNC_FROM: &str = "mgmt";
const ASYNC: &[&str] = &["tokio", "tokio-rustls"];

pub(crate) fn check(root: &Path, found: &mut Findings) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let metadata = output(
        Command::new(cargo)
            .args(["metadata", "--no-deps", "--format-version=1"])
            .current_dir(root),
    )?;
    let metadata: Value = serde_json::from_slice(&metadata)?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata lists packages")?;
    let package = |name: &str| packages.iter().any(|p| p["name"] == name);
    for p in packages {
        let name = p["name"].as_str().unwrap_or_default();
        let imports: Vec<Import> = p["dependencies"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|d| Import {
                name: d["name"].as_str().unwrap_or_default(),
                dev: d["kind"] == "dev",
                optional: d["optional"] == true,
            })
            .collect();
        for fault in faults(name, &imports, &package) {
            found.fault(fault);
        }
        if p["license"] != "Apache-2.0" {
            found.fault(format!("{name}: its licence field is not Apache-2.0"));
        }
        let manifest = p["manifest_path"].as_str().unwrap_or_default();
        let text = std::fs::read_to_string(manifest).context(manifest.to_owned())?;
        if !text.contains("[lints]\nworkspace = true") {
            found.fault(format!("{name}: does not take the workspace's lints"));
        }
    }
    Ok(())
}

struct Import<'a> {
    name: &'a str,
    dev: bool,
    optional: bool,
}

fn row(name: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&name))
}

/// The rules that a package breaks; `ours` tells the workspace's packages from others.
fn faults(name: &str, imports: &[Import<'_>], ours: &dyn Fn(&str) -> bool) -> Vec<String> {
    let dev_only = DEV_ONLY.contains(&name);
    let mine = row(name);
    if mine.is_none() && !dev_only {
        return vec![format!("{name}: in no row of the layers; give it one")];
    }
    let mut faults = Vec::new();
    for import in imports {
        let theirs = import.name;
        let seam = name == "sys" && import.optional;
        if ASYNC.contains(&theirs) && !import.dev && mine < row(ASYNC_FROM) && !dev_only && !seam {
            faults.push(format!("{name}: imports {theirs} below {ASYNC_FROM}"));
        }
        if !ours(theirs) {
            continue;
        }
        if DEV_ONLY.contains(&theirs) {
            if !import.dev && !dev_only {
                faults.push(format!("{name}: imports {theirs} outside its dev-dependencies"));
            }
        } else if !dev_only && row(theirs) >= mine {
            faults.push(format!("{name}: imports {theirs}, which is not in a layer below it"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(name: &str, import: &str, dev: bool) -> Vec<String> {
        let import = Import {
            name: import,
            dev,
            optional: false,
        };
        faults(name, &[import], &|n| n != "tokio")
    }

    #[test]
    fn imports_point_down_only() {
        assert!(judge("switch", "dp", false).is_empty());
        assert!(judge("vswitchd", "ovsdb-server", false).is_empty());
        assert_eq!(judge("dp", "switch", false).len(), 1);
        assert_eq!(judge("switch", "dp-user", false).len(), 1);
        assert_eq!(judge("switch", "dp-user", true).len(), 1);
    }

    #[test]
    fn only_tests_import_the_test_crates_which_import_everything() {
        assert!(judge("netdev", "testkit", true).is_empty());
        assert_eq!(judge("netdev", "testkit", false).len(), 1);
        assert!(judge("fuzz-targets", "flow", false).is_empty());
    }

    #[test]
    fn async_stays_above_the_core() {
        assert!(judge("mgmt", "tokio", false).is_empty());
        assert_eq!(judge("ovsdb", "tokio", false).len(), 1);
        assert!(judge("ovsdb", "tokio", true).is_empty());
    }

    #[test]
    fn sys_may_import_tokio_by_a_feature_only() {
        let faults = |name, optional| {
            let import = Import {
                name: "tokio",
                dev: false,
                optional,
            };
            faults(name, &[import], &|n| n != "tokio")
        };
        assert!(faults("sys", true).is_empty());
        assert_eq!(faults("sys", false).len(), 1);
        assert_eq!(faults("wire", true).len(), 1);
    }

    #[test]
    fn a_crate_without_a_row_is_a_fault() {
        assert_eq!(judge("misc", "wire", false).len(), 1);
    }
}
