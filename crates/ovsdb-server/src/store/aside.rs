//! Keeps the truncated end of a damaged database file for a repair.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The first bytes of each record.
const HEADER: &[u8] = b"OVSDB JSON ";

/// Most files with truncated data beside a database. With that many, the next damage is an error.
const MOST: usize = 1000;

/// Writes `tail` to a new file beside the database: `NAME.cut-off`, `NAME.cut-off.1`, … Returns its
/// name.
///
/// # Errors
/// The system's, or `AlreadyExists` when there are [`MOST`] such files.
pub(super) fn keep(database: &Path, tail: &[u8]) -> io::Result<PathBuf> {
    for number in 0..MOST {
        let mut name = database.as_os_str().to_owned();
        name.push(".cut-off");
        if number > 0 {
            name.push(format!(".{number}"));
        }
        let name = PathBuf::from(name);
        let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&name);
        match new {
            Ok(mut file) => {
                file.write_all(tail)?;
                file.sync_all()?;
                return Ok(name);
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// How many records begin in `tail`. A record with a damaged header is not found, except the first:
/// `tail` begins with it.
pub(super) fn records(tail: &[u8]) -> usize {
    let begins = |at: &usize| *at == 0 || tail[at - 1] == b'\n' && tail[*at..].starts_with(HEADER);
    (0..tail.len()).filter(begins).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_has_a_file_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("conf.db");
        let names: Vec<PathBuf> = (0..3).map(|n| keep(&database, &[n]).unwrap()).collect();
        let expected = ["conf.db.cut-off", "conf.db.cut-off.1", "conf.db.cut-off.2"];
        assert_eq!(names, expected.map(|name| dir.path().join(name)));
        for (n, name) in names.iter().enumerate() {
            assert_eq!(std::fs::read(name).unwrap(), [n as u8]);
        }
    }

    #[test]
    fn records_are_counted_by_their_headers() {
        assert_eq!(records(b""), 0);
        assert_eq!(records(b"garbage"), 1);
        assert_eq!(records(b"OVSDB JSON 2 0\n{}\nOVSDB JSON 2 0\n{}\n"), 2);
        assert_eq!(records(b"XXDB JSON 2 0\n{\"OVSDB JSON \"}\nOVSDB JSON 2"), 2);
    }
}
