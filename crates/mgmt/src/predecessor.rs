//! A daemon that already runs with the same pidfile, and files of a killed one.
//!
//! A daemon that is ending still holds its sockets and devices for a moment, and its successor
//! waits for its end. A daemon is ending if its process has SIGKILL pending or is a zombie, or if
//! it has an exclusive `flock` on its pidfile, which it takes when it begins to end
//! ([`announce_end`]).

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::pidfile;
use crate::stream::{Probe, probe};

/// How long a successor waits for a daemon that is ending.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon that does not look like ending may have a pending signal.
const GRACE: Duration = Duration::from_secs(2);

/// The interval at which the pidfile is read.
const PAUSE: Duration = Duration::from_millis(10);

/// Programs whose stale files in the run directory are removed.
const PROGRAMS: [&str; 2] = ["ovs-vswitchd", "ovsdb-server"];

/// Waits until the daemon that has the pidfile at `path` has ended, if it is ending.
///
/// # Errors
/// The process id of a daemon that goes on, or that does not end within 30 s; 0 where it is in
/// another PID namespace.
pub(crate) fn wait(path: &Path) -> Result<(), u32> {
    let begun = Instant::now();
    let mut said = false;
    loop {
        let Ok(file) = File::open(path) else { return Ok(()) };
        let held = pidfile::lock_holder(&file).ok().flatten();
        let pid = match held.or_else(|| pidfile::number(&file).ok()) {
            Some(pid) => pid,
            None => return Ok(()),
        };
        let ending = is_ending(pid) || (held.is_some() && has_announced_end(&file));
        if !ending && held.is_none() {
            // The pidfile of a dead daemon; its number may belong to any process by now.
            return Ok(());
        }
        let patience = if ending { PATIENCE } else { GRACE };
        if begun.elapsed() > patience {
            return Err(pid);
        }
        if ending && !said {
            said = true;
            tracing::info!(target: "daemon", "{}: pid {pid} is ending, waiting for it", path.display());
        }
        drop(file);
        wait_for_end(pid, if ending { PAUSE * 10 } else { PAUSE });
    }
}

/// Announces to successors that this daemon is ending.
pub(crate) fn announce_end(pidfile: &File) {
    // A successor holds a shared lock for an instant when it asks.
    for _ in 0..20 {
        match flock(pidfile, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => sleep(Duration::from_millis(1)),
            _ => return,
        }
    }
}

fn has_announced_end(pidfile: &File) -> bool {
    match flock(pidfile, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            let _ = flock(pidfile, FlockOperation::Unlock);
            false
        }
        Err(error) => error == rustix::io::Errno::WOULDBLOCK,
    }
}

/// Whether a process exists that has been killed, or has ended and still has threads that have not.
fn is_ending(pid: u32) -> bool {
    const SIGKILL: u64 = 1 << 8;
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
        return false;
    };
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim).unwrap_or_default()
    };
    let pending = |name| u64::from_str_radix(field(name), 16).unwrap_or(0) & SIGKILL != 0;
    let dead = field("State:").starts_with(['Z', 'X']);
    // A zombie keeps its pending signals until it is reaped.
    (dead || pending("SigPnd:") || pending("ShdPnd:")) && !has_ended(pid)
}

/// Whether all threads of a process have ended: it holds no file any more.
fn has_ended(pid: u32) -> bool {
    wait_for_end(pid, Duration::ZERO)
}

/// Waits at most this long for all threads of a process to end; whether they have.
fn wait_for_end(pid: u32, limit: Duration) -> bool {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    match raw.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        Some(Ok(process)) => {
            let limit = Timespec::try_from(limit).ok();
            let mut wanted = [PollFd::new(&process, PollFlags::IN)];
            matches!(poll(&mut wanted, limit.as_ref()), Ok(ready) if ready > 0)
        }
        Some(Err(rustix::io::Errno::SRCH)) => true,
        _ => {
            sleep(limit);
            false
        }
    }
}

/// Removes from the run directory the control sockets and pidfiles of daemons that were killed:
/// those of `program` and of the switch's own programs. Call it before this process has a pidfile.
pub(crate) fn remove_leftovers(rundir: &Path, program: &str) {
    let Ok(entries) = fs::read_dir(rundir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let ours = |rest: &&str| PROGRAMS.contains(rest) || *rest == program;
        let stale = match name.rsplit_once('.') {
            Some((rest, "ctl" | "capture")) => {
                let owner = rest.rsplit_once('.').filter(|(owner, _)| ours(owner));
                let owner = owner.and_then(|(owner, pid)| Some((owner, pid.parse::<u32>().ok()?)));
                owner.is_some_and(|(owner, pid)| !is_running(pid, owner)) && is_dead_socket(&entry.path())
            }
            Some((owner, "pid")) if ours(&owner) => is_dead_pidfile(&entry.path(), owner),
            _ => false,
        };
        if stale && fs::remove_file(entry.path()).is_ok() {
            tracing::debug!(target: "daemon", "removed {}, whose process was killed", entry.path().display());
        }
    }
}

fn is_dead_socket(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    is_socket && matches!(probe(path), Ok(Probe::NoListener))
}

/// Whether no process has the pidfile locked, and the one it names is gone or of another name.
fn is_dead_pidfile(path: &Path, program: &str) -> bool {
    let Ok(file) = File::open(path) else { return false };
    if !matches!(pidfile::lock_holder(&file), Ok(None)) {
        return false;
    }
    !pidfile::number(&file).is_ok_and(|pid| is_running(pid, program))
}

/// Whether a process of that number has the name of `program` and has not ended.
fn is_running(pid: u32, program: &str) -> bool {
    // The kernel keeps 15 bytes of a name.
    let comm = fs::read_to_string(format!("/proc/{pid}/comm"));
    comm.is_ok_and(|comm| program.starts_with(comm.trim_end())) && !has_ended(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_daemons_left_is_removed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let dead = [
            "ovs-vswitchd.4000000.ctl",
            "ovsdb-server.4000001.ctl",
            "test.4000002.ctl",
            "ovs-vswitchd.4000000.capture",
        ];
        for name in dead {
            // The name of a socket stays when it is closed.
            drop(std::os::unix::net::UnixListener::bind(path(name)).unwrap());
        }
        fs::write(path("ovsdb-server.pid"), "4000000\n").unwrap();
        let kept = ["other.4000000.ctl", "ovs-vswitchd.ctl", "other.pid", "br0.mgmt"];
        for name in kept {
            drop(std::os::unix::net::UnixListener::bind(path(name)).unwrap());
        }
        let alive = std::os::unix::net::UnixListener::bind(path("ovs-vswitchd.1.ctl")).unwrap();
        fs::write(path("ovs-vswitchd.4000003.ctl"), "no socket").unwrap();
        remove_leftovers(directory.path(), "test");
        let mut left: Vec<String> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut wanted = kept.to_vec();
        wanted.extend(["ovs-vswitchd.1.ctl", "ovs-vswitchd.4000003.ctl"]);
        wanted.sort_unstable();
        assert_eq!(left, wanted);
        drop(alive);
    }

    #[test]
    fn sockets_of_processes_that_run_are_kept_before_they_listen_and_when_they_are_busy() {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
        let directory = tempfile::tempdir().unwrap();
        let pid = std::process::id();
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        let program = comm.trim_end();
        let bound = |name: &str| {
            let path = directory.path().join(name);
            let socket = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
            bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
            (socket, path)
        };
        let (_starting, starting) = bound(&format!("{program}.{pid}.ctl"));
        // The backlog of a listener of another PID namespace is full.
        let (busy, full) = bound("ovs-vswitchd.4000000.ctl");
        listen(&busy, 0).unwrap();
        let mut clients = Vec::new();
        while let Ok(Probe::Listener(client)) = probe(&full) {
            clients.push(client);
        }
        assert!(matches!(probe(&full), Ok(Probe::Busy)));
        let (_dead, dead) = bound("ovs-vswitchd.4000001.ctl");
        remove_leftovers(directory.path(), program);
        assert!(starting.exists() && full.exists() && !dead.exists());
    }

    #[test]
    fn a_process_that_runs_is_not_ending_and_one_that_is_gone_has_ended() {
        assert!(!is_ending(std::process::id()));
        assert!(!has_ended(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(!is_ending(pid) && has_ended(pid));
    }

    #[test]
    fn a_daemon_says_that_it_ends_by_its_pidfile() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let theirs = File::open(file.path()).unwrap();
        assert!(!has_announced_end(&theirs));
        announce_end(file.as_file());
        assert!(has_announced_end(&theirs));
    }
}
