//! Hosts that are containers of Podman: each joins the network namespace that the bed has made for
//! the host, so that addresses and cables are those of any other host.
//!
//! The root file system of a container has the programs of this machine and the laboratory's, all
//! read-only; no image is fetched. Podman has its own defaults for seccomp, capabilities and
//! limits. Its state is in the directory of the bed, apart from other containers of this machine.

use super::command::{cannot_start, run, run_words, shown};
use super::host::Host;
use super::namespace::NAMES;
use super::program;
use super::record::{ROOT, Record};
use super::warden::Warden;
use crate::guest::{arguments, find};
use crate::topology::{Attachment, Topology};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The laboratory's program in a container.
pub(super) const PROGRAM: &str = "/oxvs-lab";

/// The OCI runtimes that are tried, in this order: Podman's own choice first.
const RUNTIMES: &[&str] = &["crun", "runc"];

/// Directories of this machine with programs and libraries. Where one is a link, so it is in a
/// container.
const SYSTEM: &[&str] = &["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Podman's own limit for open files and for processes.
const LIMIT: u64 = 1_048_576;

/// How long Podman's processes may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A container that runs.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    podman: Podman,
    name: String,
}

impl Container {
    /// A command that runs in the container, the program first. `input`: the command's standard
    /// input is the program's.
    pub(super) fn command(&self, input: bool, words: &[&str]) -> Command {
        let mut command = self.podman.command();
        command.arg("exec");
        if input {
            command.arg("--interactive");
        }
        command.arg(&self.name).args(words);
        command
    }
}

/// Why this machine can have no containers; none if it can, or need not.
pub(super) fn missing(topology: &Topology) -> Option<String> {
    let host = topology.hosts.iter().find(|host| is_container(host))?;
    let reason = runtime().as_ref().err()?;
    Some(format!("host {} is a container of Podman, and {reason}", host.name))
}

fn is_container(host: &crate::topology::Host) -> bool {
    host.attachment == Attachment::Podman
}

/// Starts all containers of a testbed whose namespaces are there.
pub(super) fn start(
    topology: &Topology,
    hosts: &[Host],
    directory: &Path,
    id: &str,
) -> Result<Vec<(String, Container)>> {
    let mut started = Vec::new();
    let mut podman = None;
    for host in topology.hosts.iter().filter(|host| is_container(host)) {
        // Another machine may have the hosts.
        let Some(made) = hosts.iter().find(|made| made.name == host.name) else {
            continue;
        };
        let podman = match &podman {
            Some(podman) => podman,
            None => {
                let runtime = runtime().as_ref().map_err(|reason| anyhow::anyhow!("{reason}"))?;
                podman.insert(Podman::set_up(directory, id, runtime)?)
            }
        };
        let network = format!("ns:{NAMES}/{}", made.namespace);
        let container = podman
            .start(&host.name, &network)
            .with_context(|| format!("host {}", host.name))?;
        started.push((host.name.clone(), container));
    }
    Ok(started)
}

/// Removes the containers of a bed with all of their processes, mounts and control groups; they may
/// be half made or half removed.
pub(super) fn remove(directory: &Path, id: &str) -> Result<()> {
    let podman = Podman::of(directory, id);
    if !podman.place.is_dir() {
        return Ok(());
    }
    // If this fails, the rest ends and removes what it can without Podman.
    let removed = if podman.configuration().exists() {
        run(podman.command().args(["rm", "--all", "--force", "--time", "0"])).map(drop)
    } else {
        Ok(())
    };
    end_processes(&podman.place)?;
    for mount in mounts_below(&podman.place).iter().rev() {
        run_words(&["umount", "--lazy", mount])?;
    }
    remove_groups(&podman.group);
    // Two may clean at a time.
    removed.or_else(|error| if podman.place.exists() { Err(error) } else { Ok(()) })
}

/// Whether a process keeps a container of a bed that the process `maker` has made.
pub(crate) fn is_monitor(maker: u32, pid: u32, name: &str) -> bool {
    name == MONITOR && arguments(pid).contains(&format!("{ROOT}/{maker}-"))
}

/// Podman's program that keeps a container. It is no descendant of the process that starts it.
const MONITOR: &str = "conmon";

/// Podman's programs.
const PROCESSES: [&str; 4] = ["podman", MONITOR, "crun", "runc"];

/// The runtime with which Podman can run a container here, tried once; otherwise the reason why
/// none can.
fn runtime() -> &'static Result<&'static str, String> {
    static FOUND: OnceLock<Result<&'static str, String>> = OnceLock::new();
    FOUND.get_or_init(|| {
        if find("podman").is_none() {
            return Err("podman is not installed (Debian: package podman)".to_owned());
        }
        let mut reasons = Vec::new();
        for runtime in RUNTIMES.iter().filter(|runtime| find(runtime).is_some()) {
            match attempt(runtime) {
                Ok(()) => return Ok(runtime),
                Err(error) => reasons.push(format!("{runtime}: {error:#}")),
            }
        }
        match reasons.as_slice() {
            [] => Err(format!("none of its runtimes is installed ({})", RUNTIMES.join(", "))),
            _ => Err(format!("no container can run here: {}", reasons.join("; "))),
        }
    })
}

/// Runs the laboratory's program in a container without a network; the bed's file system may not
/// let programs run.
fn attempt(runtime: &str) -> Result<()> {
    let record = Record::begin()?;
    let warden = Warden::start(record.id());
    let tried = Podman::set_up(record.directory(), record.id(), runtime)
        .and_then(|podman| podman.start("attempt", "none"))
        .and_then(|container| run(&mut container.command(false, &[PROGRAM, "--help"])));
    let removed = record.remove();
    drop(warden?);
    tried.map_err(|error| anyhow::anyhow!(last_line(&format!("{error:#}"))))?;
    removed
}

/// What a failed command said, without the command.
fn last_line(error: &str) -> String {
    let said = error.rsplit_once("Error: ").map_or(error, |(_, said)| said);
    said.trim().to_owned()
}

/// Podman with its state in the directory of a bed.
#[derive(Clone, Debug)]
struct Podman {
    /// The directory of its state, and of all that its containers consist of.
    place: PathBuf,
    /// The control group of its containers.
    group: String,
}

impl Podman {
    fn of(directory: &Path, id: &str) -> Podman {
        Podman {
            place: directory.join("podman"),
            group: format!("oxvs-lab-{id}"),
        }
    }

    fn set_up(directory: &Path, id: &str, runtime: &str) -> Result<Podman> {
        let podman = Podman::of(directory, id);
        let make = || -> Result<()> {
            fs::create_dir(&podman.place)?;
            // Locks in files: those in shared memory are for all containers of this machine.
            let configuration = format!("[engine]\nruntime = \"{runtime}\"\nlock_type = \"file\"\n");
            fs::write(podman.configuration(), configuration)?;
            make_root(&podman.root())
        };
        make().with_context(|| podman.place.display().to_string())?;
        Ok(podman)
    }

    fn configuration(&self) -> PathBuf {
        self.place.join("containers.conf")
    }

    fn root(&self) -> PathBuf {
        self.place.join("root")
    }

    fn command(&self) -> Command {
        let mut command = Command::new("podman");
        command.env("CONTAINERS_CONF", self.configuration());
        for (option, directory) in [("--root", "storage"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
            command.arg(option).arg(self.place.join(directory));
        }
        command.args(["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"]);
        command.args(["--events-backend", "none"]);
        command
    }

    fn start(&self, name: &str, network: &str) -> Result<Container> {
        let mut command = self.command();
        command.args(["run", "--detach", "--name", name, "--hostname", name]);
        command.args(["--network", network, "--log-driver", "none", "--read-only"]);
        command.args(["--cgroup-parent", &format!("/{}", self.group)]);
        for (limit, most) in limits() {
            command.args(["--ulimit", &format!("{limit}={most}:{most}")]);
        }
        for name in SYSTEM.iter().filter(|name| is_directory(name)) {
            command.args(["--volume", &format!("/{name}:/{name}:ro")]);
        }
        // It lasts as long as the bed; programs are started in it.
        command.arg("--rootfs").arg(self.root()).args(["sleep", "infinity"]);
        // The monitor keeps standard error open, so it is a file.
        let said = self.place.join("said");
        let file = fs::File::create(&said).with_context(|| said.display().to_string())?;
        command
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null());
        let status = command.stderr(file).status();
        let status = status.map_err(|error| cannot_start(&command, &error))?;
        if !status.success() {
            let said = fs::read_to_string(&said).unwrap_or_default();
            bail!("{}: {}", shown(&command), said.trim().replace('\n', "; "));
        }
        Ok(Container {
            podman: self.clone(),
            name: name.to_owned(),
        })
    }
}

/// The limits of a container: Podman's own, as far as this process may have them. Without
/// `CAP_SYS_RESOURCE` a runtime cannot raise what it inherits, and Podman has lowered its own limit
/// of processes to the kernel's.
fn limits() -> [(&'static str, u64); 2] {
    let kernel = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    let kernel = kernel.trim().parse().unwrap_or(LIMIT);
    let inherited = |resource| getrlimit(resource).maximum.unwrap_or(LIMIT).min(LIMIT);
    [
        ("nofile", inherited(Resource::Nofile)),
        ("nproc", inherited(Resource::Nproc).min(kernel)),
    ]
}

/// Whether a directory of the root of this machine is one, and no link.
fn is_directory(name: &str) -> bool {
    let found = fs::symlink_metadata(Path::new("/").join(name));
    found.is_ok_and(|found| found.is_dir())
}

/// Makes the root file system that all containers of a bed share: places for this machine's
/// directories and for what Podman adds, and the laboratory's program.
fn make_root(root: &Path) -> Result<()> {
    for name in ["dev", "etc", "proc", "run", "sys", "tmp", "var/tmp"] {
        fs::create_dir_all(root.join(name))?;
    }
    for name in ["etc/hostname", "etc/hosts", "etc/resolv.conf", "run/.containerenv"] {
        fs::write(root.join(name), "")?;
    }
    for name in SYSTEM {
        match fs::read_link(Path::new("/").join(name)) {
            Ok(target) => std::os::unix::fs::symlink(target, root.join(name))?,
            Err(_) if is_directory(name) => fs::create_dir(root.join(name))?,
            Err(_) => {}
        }
    }
    let program = program::lab()?;
    fs::copy(&program, root.join(PROGRAM.trim_start_matches('/'))).with_context(|| program.display().to_string())?;
    Ok(())
}

/// Ends the processes of Podman whose command line names a path: its own, its monitors and those
/// that clean up after a container, which would make the directory again.
fn end_processes(place: &Path) -> Result<()> {
    let place = place.display().to_string();
    let end = Instant::now() + PATIENCE;
    loop {
        let is_left = |&pid: &u32| PROCESSES.contains(&name(pid).as_str()) && arguments(pid).contains(&place);
        let left: Vec<u32> = process_ids().filter(is_left).collect();
        if left.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < end, "processes {left:?} with {place} do not end");
        for pid in left.into_iter().filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All processes but this one.
pub(super) fn process_ids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|&pid| pid != std::process::id())
}

/// The name of a process's program; empty if it has ended.
pub(super) fn name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// Mount points below a directory, in the order of mounting (`proc_pid_mountinfo(5)`).
fn mounts_below(place: &Path) -> Vec<String> {
    let all = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = all.lines().filter_map(|line| line.split(' ').nth(4));
    let below = points.filter(|point| Path::new(point).starts_with(place));
    below.map(str::to_owned).collect()
}

/// Removes a control group with those below it, in each hierarchy of this machine. One that still
/// has processes stays.
fn remove_groups(name: &str) {
    const GROUPS: &str = "/sys/fs/cgroup";
    let hierarchies = fs::read_dir(GROUPS).into_iter().flatten().flatten();
    let hierarchies = hierarchies.map(|entry| entry.path()).chain([PathBuf::from(GROUPS)]);
    for group in hierarchies
        .map(|hierarchy| hierarchy.join(name))
        .filter(|group| group.is_dir())
    {
        // Processes that have been killed may not have ended yet.
        let end = Instant::now() + PATIENCE;
        while group.is_dir() && remove_group(&group).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn remove_group(group: &Path) -> io::Result<()> {
    for entry in fs::read_dir(group)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove_group(&entry.path())?;
        }
    }
    match fs::remove_dir(group) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_runtime_is_shown_without_the_command() {
        let error = "podman run x: Error: OCI runtime error: crun: no cgroups";
        assert_eq!(last_line(error), "OCI runtime error: crun: no cgroups");
        assert_eq!(last_line("it is missing\n"), "it is missing");
    }

    #[test]
    fn only_mounts_below_a_directory_are_its_own() {
        assert!(mounts_below(Path::new("/proc/none")).is_empty());
        assert!(mounts_below(Path::new("/proc")).contains(&"/proc".to_owned()));
    }

    #[test]
    fn a_process_is_a_monitor_only_by_its_name_and_its_maker() {
        assert!(arguments(std::process::id()).contains("lab"));
        assert!(!is_monitor(1, std::process::id(), MONITOR));
        assert!(!is_monitor(std::process::id(), std::process::id(), "lab"));
    }

    #[test]
    fn where_no_host_is_a_container_nothing_is_missing() {
        let topology = toml::from_str("host = [{ name = 'a', address = [] }]").unwrap();
        assert_eq!(missing(&topology), None);
    }
}
