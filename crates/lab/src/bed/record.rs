//! Records the parts of a bed before they are made, so that a later process can remove them.
//!
//! A bed has a directory under `/run/oxvs-lab`, named after its id: its file `owner` has the
//! process id and start time, `namespaces` a name on each line, `hugepages` their previous number,
//! `podman` all that its containers consist of.
//! Files of a system under test in it are removed with it.

use super::command::run_words;
use super::container;
use super::names::{PREFIX, maker};
use super::namespace::NAMES;
use crate::guest::{directory_maker, is_emulator};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Where the directories of beds are.
pub(super) const ROOT: &str = "/run/oxvs-lab";

/// How many huge pages of 2 MB the kernel sets apart.
const HUGEPAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// The record of a bed.
#[derive(Debug)]
pub(crate) struct Record {
    id: String,
    directory: PathBuf,
}

impl Record {
    /// Begins the record of a bed of this process.
    pub(crate) fn begin() -> Result<Record> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let pid = std::process::id();
        let id = format!("{pid}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = Path::new(ROOT).join(&id);
        // Written under another name and then renamed, because a directory without an owner would
        // look like one under construction.
        let draft = Path::new(ROOT).join(format!(".{id}"));
        let make = || -> std::io::Result<()> {
            let _ = fs::remove_dir_all(&draft);
            fs::create_dir_all(&draft)?;
            fs::write(draft.join("owner"), format!("{pid} {}\n", start_time(pid).unwrap_or(0)))?;
            fs::rename(&draft, &directory)
        };
        make().with_context(|| format!("{}: the record of a testbed", directory.display()))?;
        Ok(Record { id, directory })
    }

    /// The record of a bed of that id, if it is there.
    pub(crate) fn find(id: &str) -> Option<Record> {
        let directory = Path::new(ROOT).join(id);
        let plain = !id.is_empty() && !id.contains(['/', '.']);
        (plain && directory.is_dir()).then(|| Record {
            id: id.to_owned(),
            directory,
        })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes a namespace of the bed.
    pub(crate) fn make_namespace(&self, name: &str) -> Result<()> {
        if Path::new(NAMES).join(name).exists() {
            bail!(
                "namespace {name} exists, and this run has not made it; 'oxvs lab clean' removes what runs that are gone have left"
            );
        }
        let list = self.directory.join("namespaces");
        let add = || {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(&list)?
                .write_all(format!("{name}\n").as_bytes())
        };
        add().with_context(|| list.display().to_string())?;
        run_words(&["ip", "netns", "add", name]).map(drop)
    }

    /// Reserves this many huge pages of 2 MB if fewer exist; removing the bed restores the previous
    /// number.
    pub(crate) fn reserve_hugepages(&self, pages: u64) -> Result<()> {
        let count = || -> Result<u64> {
            let text = fs::read_to_string(HUGEPAGES).context("this kernel has no huge pages of 2 MB")?;
            text.trim().parse().context(HUGEPAGES)
        };
        let before = count()?;
        if before >= pages {
            return Ok(());
        }
        let kept = self.directory.join("hugepages");
        fs::write(&kept, before.to_string()).with_context(|| kept.display().to_string())?;
        fs::write(HUGEPAGES, pages.to_string()).context(HUGEPAGES)?;
        let found = count()?;
        if found < pages {
            bail!(
                "the kernel sets {found} huge pages of 2 MB apart, and {pages} are needed: memory is full or in pieces"
            );
        }
        Ok(())
    }

    /// Removes the containers of the bed, ends its processes, removes its namespaces and its
    /// directory, in this order. A missing part is no error.
    pub(crate) fn remove(&self) -> Result<()> {
        let containers = container::remove(&self.directory, &self.id);
        let list = fs::read_to_string(self.directory.join("namespaces")).unwrap_or_default();
        for name in list.lines().filter(|name| name.starts_with(PREFIX)) {
            remove_namespace(name)?;
        }
        // No process uses them any more.
        if let Ok(before) = fs::read_to_string(self.directory.join("hugepages")) {
            fs::write(HUGEPAGES, before.trim()).context(HUGEPAGES)?;
        }
        match fs::remove_dir_all(&self.directory) {
            // Two may remove it at a time.
            Err(error) if error.kind() != ErrorKind::NotFound && self.directory.exists() => {
                Err(error).with_context(|| self.directory.display().to_string())
            }
            _ => containers.context("containers"),
        }
    }

    /// Whether the process that made the bed still runs. A record without an owner has none.
    fn is_owned(&self) -> bool {
        let owner = fs::read_to_string(self.directory.join("owner")).unwrap_or_default();
        let mut words = owner.split_whitespace();
        let pid = words.next().and_then(|word| word.parse().ok());
        let started = words.next().and_then(|word| word.parse().ok());
        pid.is_some_and(|pid| start_time(pid).is_some_and(|now| Some(now) == started))
    }
}

/// Removes the remains of dead runs and lists them: namespaces with their processes, and
/// directories, also of guests. Those of a running process stay.
///
/// # Errors
/// No root; a command that fails. Everything else that can be removed is removed first.
pub fn clean() -> Result<Vec<String>> {
    if !rustix::process::geteuid().is_root() {
        bail!("removing namespaces needs root");
    }
    let mut removed = Vec::new();
    let mut failed = None;
    for entry in entries(Path::new(ROOT)) {
        let record = Record {
            directory: Path::new(ROOT).join(&entry),
            id: entry,
        };
        // A draft's owner may not be written yet; its name has the process id.
        let being_made = record
            .id
            .strip_prefix('.')
            .and_then(|id| id.split('-').next()?.parse().ok());
        if record.is_owned() || being_made.is_some_and(|pid: u32| start_time(pid).is_some()) {
            continue;
        }
        match record.remove() {
            Ok(()) => removed.push(format!("testbed {}", record.id)),
            Err(error) => failed = Some(error),
        }
    }
    for name in entries(Path::new(NAMES)) {
        let recorded = |pid: u32| {
            entries(Path::new(ROOT))
                .iter()
                .any(|id| id.starts_with(&format!("{pid}-")))
        };
        if maker(&name).is_some_and(|pid| start_time(pid).is_none() && !recorded(pid)) {
            match remove_namespace(&name) {
                Ok(()) => removed.push(format!("namespace {name}")),
                Err(error) => failed = Some(error),
            }
        }
    }
    let files = std::env::temp_dir();
    for name in entries(&files) {
        let Some(maker) = directory_maker(&name).filter(|&pid| start_time(pid).is_none()) else {
            continue;
        };
        // libvirt's QEMU does not end with its maker.
        for pid in container::process_ids().filter(|&pid| is_emulator(maker, pid, &container::name(pid))) {
            let _ = Pid::from_raw(pid.cast_signed()).map(|pid| kill_process(pid, Signal::KILL));
        }
        let directory = files.join(name);
        match fs::remove_dir_all(&directory) {
            Ok(()) => removed.push(format!("files of a guest, {}", directory.display())),
            // Two may clean at a time.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => failed = Some(anyhow::Error::from(error).context(directory.display().to_string())),
        }
    }
    failed.map_or(Ok(removed), Err)
}

/// Ends what runs in a namespace, then deletes it: a namespace lives on, without a name, while a
/// process is in it.
fn remove_namespace(name: &str) -> Result<()> {
    if !Path::new(NAMES).join(name).exists() {
        return Ok(());
    }
    // Repeats while processes are left, because one may start another meanwhile.
    for _ in 0..200 {
        let pids = match run_words(&["ip", "netns", "pids", name]) {
            Err(_) if !Path::new(NAMES).join(name).exists() => return Ok(()),
            pids => pids?,
        };
        let pids = pids.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok());
        let others: Vec<Pid> = pids
            .filter(|&pid| pid.cast_unsigned() != std::process::id())
            .filter_map(Pid::from_raw)
            .collect();
        if others.is_empty() {
            break;
        }
        for pid in others {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    match run_words(&["ip", "netns", "del", name]) {
        // Two may clean at a time.
        Err(_) if !Path::new(NAMES).join(name).exists() => Ok(()),
        result => result.map(drop),
    }
}

/// When a process was started, in ticks since the machine was; none if there is no such process, or
/// it has ended and waits for its parent.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may have blanks; the third is the
    // state, the 22nd the time.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    (state != "Z").then(|| fields.nth(18)?.parse().ok()).flatten()
}

fn entries(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_process_has_a_start_time_and_one_that_is_gone_has_none() {
        assert_eq!(start_time(std::process::id()), start_time(std::process::id()));
        assert!(start_time(std::process::id()).is_some());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(start_time(child.id()), None);
    }

    #[test]
    fn a_guests_directory_names_its_maker() {
        assert_eq!(directory_maker("oxvs-guest-17-aX3"), Some(17));
        for other in ["oxvs-guest-", "oxvs-guest-17", "oxvs-guest-x-1", "oxvs-17-1"] {
            assert_eq!(directory_maker(other), None, "{other}");
        }
    }

    #[test]
    fn only_a_plain_id_names_a_record() {
        assert!(Record::find("..").is_none());
        assert!(Record::find("").is_none());
        assert!(Record::find("a/b").is_none());
    }
}
