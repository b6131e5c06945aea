//! Processor time by user.

use crate::bed::container;
use crate::guest::is_emulator;
use std::time::Duration;

/// Clock ticks a second in /proc, on every Linux that this builds for.
const TICKS: f64 = 100.0;

/// Seconds of CPU up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// All processors of the machine, without idle time, the threads that [keep processors
    /// awake](crate::awake) and waits for disks; with steal time.
    pub(crate) all: f64,
    /// Of `all`, processes of a lower priority than usual (`nice`), in user mode.
    pub(crate) nice: f64,
    /// The kernel's own threads for packets (`ksoftirqd`).
    pub(crate) packets: f64,
    /// This process, all that it started and that they started, its containers, and those of them
    /// that have ended.
    pub(crate) own: f64,
}

impl Usage {
    /// The usage up to now. Unreadable values are 0.
    pub(crate) fn now() -> Usage {
        let stat = stat();
        let processes = processes();
        let packets = processes
            .iter()
            .filter(|process| process.name.starts_with("ksoftirqd/"));
        let awake = awake();
        Usage {
            all: busy(&stat) - awake,
            nice: columns(&stat, &[1]),
            packets: packets.map(|process| process.seconds).sum(),
            own: family(&processes, own(&processes)) - awake,
        }
    }

    /// Since an earlier moment.
    pub(crate) fn since(self, earlier: Usage) -> Usage {
        Usage {
            all: (self.all - earlier.all).max(0.0),
            nice: (self.nice - earlier.nice).max(0.0),
            packets: (self.packets - earlier.packets).max(0.0),
            own: (self.own - earlier.own).max(0.0),
        }
    }
}

/// [`Usage::all`] alone, which costs less to read.
pub(crate) fn machine() -> f64 {
    busy(&stat()) - awake()
}

/// The time that the host of this guest has taken a processor for others; 0 where the kernel does
/// not know.
pub(crate) fn stolen(cpu: usize) -> Duration {
    stolen_in(&stat(), cpu)
}

fn stolen_in(stat: &str, cpu: usize) -> Duration {
    let name = format!("cpu{cpu} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name));
    Duration::from_secs_f64(line.map_or(0.0, |line| sum(line, &[7])))
}

fn stat() -> String {
    std::fs::read_to_string("/proc/stat").unwrap_or_default()
}

/// The time of the threads that keep processors awake, which counts for nobody.
fn awake() -> f64 {
    let threads = threads();
    let awake = threads
        .iter()
        .filter(|thread| thread.name.starts_with(crate::awake::NAME));
    awake.map(|thread| thread.seconds).sum()
}

/// Of the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal; what
/// guests use is in user.
fn busy(stat: &str) -> f64 {
    columns(stat, &[0, 1, 2, 5, 6, 7])
}

/// The sum of some numbers of the first line of /proc/stat, in seconds.
fn columns(stat: &str, places: &[usize]) -> f64 {
    let line = stat.lines().next().and_then(|line| line.strip_prefix("cpu "));
    line.map_or(0.0, |line| sum(line, places))
}

/// The sum of some numbers of a processor's line, in seconds.
fn sum(line: &str, places: &[usize]) -> f64 {
    let ticks: Vec<f64> = line
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0.0))
        .collect();
    places.iter().filter_map(|place| ticks.get(*place)).sum::<f64>() / TICKS
}

#[derive(Debug, PartialEq)]
struct Process {
    pid: u32,
    parent: u32,
    name: String,
    /// Its own, and of children that it has waited for.
    seconds: f64,
}

/// A line of /proc/PID/stat (`proc_pid_stat(5)`).
fn process(stat: &str) -> Option<Process> {
    // The command's name may hold spaces and parentheses; the last ')' ends it.
    let (before, rest) = stat.rsplit_once(')')?;
    let (pid, name) = before.split_once('(')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter();
    Some(Process {
        pid: pid.trim().parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        name: name.to_owned(),
        seconds: ticks.map(|field| field.parse::<f64>().unwrap_or(0.0)).sum::<f64>() / TICKS,
    })
}

fn processes() -> Vec<Process> {
    all_in("/proc")
}

/// Of this process.
fn threads() -> Vec<Process> {
    all_in("/proc/self/task")
}

fn all_in(directory: &str) -> Vec<Process> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let pids = entries.filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit));
    let stats = pids.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    stats.filter_map(|stat| process(&stat)).collect()
}

/// This process, the monitors of its containers, which have left it (what runs in the containers
/// descends from them), and what libvirt runs for it.
fn own(processes: &[Process]) -> Vec<u32> {
    let pid = std::process::id();
    let monitors = processes
        .iter()
        .filter(|Process { pid: other, name, .. }| {
            container::is_monitor(pid, *other, name) || is_emulator(pid, *other, name)
        })
        .map(|process| process.pid);
    [pid].into_iter().chain(monitors).collect()
}

/// The usage of some processes and their descendants.
fn family(processes: &[Process], mut family: Vec<u32>) -> f64 {
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        next += 1;
        let children = processes
            .iter()
            .filter(|process| process.parent == parent && !family.contains(&process.pid));
        let children: Vec<u32> = children.map(|process| process.pid).collect();
        family.extend(children);
    }
    let members = processes.iter().filter(|process| family.contains(&process.pid));
    members.map(|process| process.seconds).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_processors_and_those_that_wait_for_disks_are_not_busy() {
        assert_eq!(busy("cpu  100 200 300 9000 9000 10 20 30 40 0\ncpu0 1 1 1 1\n"), 6.6);
        assert_eq!(busy(""), 0.0);
    }

    #[test]
    fn stolen_time_is_that_of_one_processor() {
        let stat = "cpu  1 1 1 1 1 1 1 30 0 0\ncpu0 1 1 1 1 1 1 1 10 0 0\ncpu1 1 1 1 1 1 1 1 20 0 0\n";
        assert_eq!(stolen_in(stat, 1), Duration::from_millis(200));
        assert_eq!(stolen_in(stat, 2), Duration::ZERO);
    }

    fn line(pid: u32, name: &str, parent: u32, ticks: [u32; 4]) -> String {
        let [user, system, children, of_children] = ticks;
        format!("{pid} ({name}) R {parent} 1 1 0 -1 4194304 5 0 0 0 {user} {system} {children} {of_children} 20 0 1 0")
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let found = process(&line(7, "a) b (c", 1, [150, 50, 25, 75])).unwrap();
        let expected = Process {
            pid: 7,
            parent: 1,
            name: "a) b (c".to_owned(),
            seconds: 3.0,
        };
        assert_eq!(found, expected);
        assert_eq!(process("nonsense"), None);
    }

    #[test]
    fn a_family_is_all_that_descend_from_one() {
        let lines = [(10, 1), (11, 10), (12, 11), (13, 1), (10, 12)]
            .map(|(pid, parent)| line(pid, "x", parent, [100, 0, 0, 0]));
        let processes: Vec<Process> = lines[..4].iter().filter_map(|line| process(line)).collect();
        assert_eq!(family(&processes, vec![10]), 3.0);
        assert_eq!(family(&processes, vec![10, 13]), 4.0);
        assert_eq!(family(&processes, vec![99]), 0.0);
    }

    #[test]
    fn work_is_seen() {
        let before = Usage::now();
        let begin = std::time::Instant::now();
        let mut sum = 0u64;
        while begin.elapsed().as_millis() < 200 {
            sum = sum.wrapping_mul(31).wrapping_add(7);
        }
        std::hint::black_box(sum);
        let used = Usage::now().since(before);
        assert!(used.own > 0.0 && used.all > 0.0, "{used:?}");
    }
}
