//! The system's identity in the root row: `external_ids:system-id`, `system_type` and
//! `system_version`.
//!
//! `ovs-ctl start` fills these in for Open vSwitch, and controllers read them. If the switch and
//! the database are one process, no such script runs, so the switch sets missing values. It reads
//! and writes the same files as `ovs-ctl`.

use mgmt::os_text;
use ovsdb::idl::Txn;
use ovsdb::rows::{OpenVSwitch, open_vswitch};
use std::fs;
use std::path::Path;

/// The key of `external_ids` that identifies this system.
const SYSTEM_ID: &str = "system-id";

/// Adds missing values of the root row to `txn`; present values are the user's and stay. The files
/// are in `directory`, the database's, so that a second switch on this machine with another
/// database has its own identifier.
pub(crate) fn complete(root: &OpenVSwitch, directory: &Path, txn: &mut Txn) {
    use open_vswitch::{TABLE, columns};
    if !root.external_ids.contains_key(SYSTEM_ID) {
        txn.map_put(TABLE, root.uuid, columns::EXTERNAL_IDS, SYSTEM_ID, system_id(directory));
    }
    if root.system_type.is_none() || root.system_version.is_none() {
        let (kind, version) = system(directory, Path::new("/etc/os-release"));
        if root.system_type.is_none() {
            txn.set(TABLE, root.uuid, columns::SYSTEM_TYPE, Some(kind));
        }
        if root.system_version.is_none() {
            txn.set(TABLE, root.uuid, columns::SYSTEM_VERSION, Some(version));
        }
    }
}

/// The identifier in `system-id.conf`, or a new random one, which is written there: it outlives the
/// database.
fn system_id(directory: &Path) -> String {
    let file = directory.join("system-id.conf");
    if let Some(id) = first_line(&file) {
        return id;
    }
    let id = uuid::Uuid::new_v4().to_string();
    let written = fs::create_dir_all(directory).and_then(|()| fs::write(&file, format!("{id}\n")));
    if let Err(error) = written {
        tracing::warn!(target: "bridge", "cannot keep the system's identifier in {}: {}", file.display(), os_text(&error));
    }
    id
}

/// The operating system's name and version: from `system-type.conf` and `system-version.conf`, else
/// from `os_release` (os-release(5)).
fn system(directory: &Path, os_release: &Path) -> (String, String) {
    if let Some(kind) = first_line(&directory.join("system-type.conf")) {
        let version = first_line(&directory.join("system-version.conf"));
        return (kind, version.unwrap_or_else(unknown));
    }
    let text = fs::read_to_string(os_release).unwrap_or_default();
    let value = |name: &str| {
        let mut values = text
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        let value = values.next_back()?.trim().trim_matches(['"', '\'']);
        (!value.is_empty()).then(|| value.to_owned())
    };
    (
        value("ID").unwrap_or_else(unknown),
        value("VERSION_ID").unwrap_or_else(unknown),
    )
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// A file's first line, unless it is empty.
fn first_line(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identifier_is_random_once_and_kept_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("openvswitch");
        let id = system_id(&directory);
        assert!(uuid::Uuid::parse_str(&id).is_ok(), "{id}");
        assert_eq!(system_id(&directory), id);
        fs::write(directory.join("system-id.conf"), "chassis-1\n").unwrap();
        assert_eq!(system_id(&directory), "chassis-1");
    }

    #[test]
    fn the_system_is_that_of_os_release_unless_files_of_ovs_ctl_say_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let release = dir.path().join("os-release");
        let pair = |kind: &str, version: &str| (kind.to_owned(), version.to_owned());
        assert_eq!(system(dir.path(), &release), pair("unknown", "unknown"));
        fs::write(&release, "NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nID=debian\n").unwrap();
        assert_eq!(system(dir.path(), &release), pair("debian", "12"));
        fs::write(dir.path().join("system-type.conf"), "KVM\n").unwrap();
        fs::write(dir.path().join("system-version.conf"), "4.18\n").unwrap();
        assert_eq!(system(dir.path(), &release), pair("KVM", "4.18"));
    }
}
