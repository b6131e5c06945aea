//! Tracked connections that an orderly end leaves to the next start, in a file of the run
//! directory.
//!
//! The file says when it was written, by the system's clock. The start that reads it removes it
//! before, so that no file is read twice.

use conntrack::{Bypass, Bypassing, Conntrack, PolicyId};
use dp_ebpf::Left;
use nanos::Nanos;
use parking_lot::Mutex;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the file begins with: its format.
const FORMAT: &[u8] = b"oxvs connections 2\n";

fn path() -> PathBuf {
    mgmt::paths::in_rundir("ovs-vswitchd.connections")
}

/// Leaves all connections to the next start. `flows_stay`: the offloaded flows stay in force.
pub(crate) fn hand_over(conntrack: &Arc<Conntrack>, flows_stay: bool, now: Nanos) {
    if conntrack.is_empty() {
        return;
    }
    match write(&path(), conntrack, flows_stay, now) {
        Ok(number) => tracing::info!(target: "conntrack", "left {number} connections to the next start"),
        Err(error) => tracing::warn!(target: "conntrack", "cannot leave connections to the next start: {error}"),
    }
}

/// The offloaded flows of the process before, and the connections that they forward packets of:
/// these count what passes.
pub(crate) struct LeftConnections {
    flows: Arc<Left>,
    open: Mutex<Vec<Bypassing>>,
}

impl LeftConnections {
    /// None yet.
    pub(crate) fn of(flows: Arc<Left>) -> Arc<LeftConnections> {
        let open = Mutex::default();
        Arc::new(LeftConnections { flows, open })
    }

    /// Gives the connections back to the tracker alone. The flows have ended, some milliseconds
    /// before.
    pub(crate) fn close(&self) {
        self.open.lock().clear();
    }
}

/// Takes over the connections of the process before, if it left any. `policy` says which timeout
/// policy a zone has. Those that flows forward packets of are opened for them.
pub(crate) fn take_over(
    conntrack: &Arc<Conntrack>,
    left: Option<&LeftConnections>,
    now: Nanos,
    policy: impl Fn(u16) -> PolicyId,
) {
    let records = match read(&path()) {
        Ok(records) => records,
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => {
            tracing::warn!(target: "conntrack", "cannot take over connections: {error}");
            return;
        }
    };
    let Some((ago, records)) = age(&records) else {
        tracing::warn!(target: "conntrack", "cannot take over connections: another version has left them");
        return;
    };
    let mut tracker = conntrack.tracker();
    let done = tracker.take_over(records, left.is_some(), ago, now, policy);
    let (number, refused) = (done.connections, done.refused);
    tracing::info!(target: "conntrack", "took over {number} connections; {refused} have ended or have no room");
    let Some(LeftConnections { flows, open }) = left else {
        return;
    };
    let mut open = open.lock();
    let known = done
        .bypassed
        .into_iter()
        .filter(|(_, number)| flows.has_connection(*number));
    open.extend(known.filter_map(|(connection, number)| {
        tracker.bypass(connection, || Some((flows.clone() as Arc<dyn Bypass>, number)))
    }));
    if flows.has_ended() {
        // They have caught up with what has passed.
        open.clear();
    }
}

fn write(path: &Path, conntrack: &Arc<Conntrack>, flows_stay: bool, now: Nanos) -> io::Result<usize> {
    // A file that is not whole has another name.
    let part = path.with_extension("connections.part");
    match fs::remove_file(&part) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&part)?;
    let mut file = BufWriter::new(file);
    file.write_all(FORMAT)?;
    file.write_all(&(since_epoch().as_nanos() as u64).to_le_bytes())?;
    let number = conntrack
        .tracker()
        .hand_over(flows_stay, now, |record| file.write_all(record))?;
    file.into_inner()?;
    fs::rename(&part, path)?;
    Ok(number)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    fs::remove_file(path)?;
    let mut records = Vec::new();
    file.read_to_end(&mut records)?;
    Ok(records)
}

/// How long ago a file was written, and its records; `None` if it has another format.
fn age(file: &[u8]) -> Option<(Duration, &[u8])> {
    let (written, records) = file.strip_prefix(FORMAT)?.split_first_chunk()?;
    let written = Duration::from_nanos(u64::from_le_bytes(*written));
    Some((since_epoch().saturating_sub(written), records))
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use conntrack::{Packet, Request};

    #[test]
    fn a_file_is_read_once_and_only_if_it_is_whole_and_of_this_format() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("connections");
        let now = Nanos::from_secs(5);
        let before = Conntrack::new(1);
        let request = Request {
            commit: true,
            ..Request::default()
        };
        // UDP from port 7 of 10.0.0.1 to port 9 of 10.0.0.2, without a checksum.
        let header = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0x66, 0xcf, 10, 0, 0, 1, 10, 0, 0, 2];
        let mut packet = [&header[..], &[0, 7, 0, 9, 0, 8, 0, 0]].concat();
        before
            .tracker()
            .track(&request, &mut Packet::new(&mut packet, false), now);
        assert_eq!(before.len(), 1);
        assert_eq!(write(&path, &before, false, now).unwrap(), 1);
        assert_eq!(fs::metadata(&path).unwrap().len(), 19 + 8 + 17 * 8);

        let file = read(&path).unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), ErrorKind::NotFound);
        let (ago, records) = age(&file).unwrap();
        assert!(ago < Duration::from_secs(30));
        let after = Conntrack::new(2);
        let done = after.tracker().take_over(records, false, ago, now, |_| PolicyId(0));
        assert_eq!((done.connections, done.refused, after.len()), (1, 0, 1));
        for len in 0..FORMAT.len() + 8 {
            assert!(age(&file[..len]).is_none(), "{len}");
        }
        assert!(age(b"oxvs connections 1\n12345678").is_none());
    }
}
