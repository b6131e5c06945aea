//! The description of a run's machine.

use rustix::system::{sysinfo, uname};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// A machine, and the state it was found in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Release and version of the kernel.
    pub kernel: String,
    /// Name and version of the distribution.
    pub distribution: String,
    /// Model of the processors.
    pub cpu: String,
    /// How many processors this process may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// How the processors' frequency is chosen; none: not ours to see, as in most virtual machines.
    pub governor: Option<String>,
    /// The clock source.
    pub clock: String,
    /// It is a virtual machine.
    pub virtualized: bool,
    /// Mean number of processes that ran or wanted to, over the minute before.
    pub load: f64,
    /// Congestion control of TCP, unless an experiment names another; guests that are hosts have
    /// their own kernel's.
    #[serde(default)]
    pub congestion: Option<String>,
    /// Offloads of a host's interface ([`crate::bed::offloads`]), as `ethtool -k` names them; empty
    /// if unknown.
    #[serde(default)]
    pub offloads: BTreeMap<String, String>,
}

impl Machine {
    /// This machine. Unknown values are empty, and so are the offloads, which need a testbed.
    pub fn here() -> Machine {
        let cpuinfo = text("/proc/cpuinfo");
        let field = |name: &str| cpuinfo.lines().find_map(|line| value(line, ':', name));
        let memory = sysinfo();
        Machine {
            kernel: format!(
                "{} {}",
                uname().release().to_string_lossy(),
                uname().version().to_string_lossy()
            ),
            distribution: distribution(&text("/etc/os-release"), text("/etc/debian_version").trim()),
            cpu: field("model name")
                .or_else(|| field("Model"))
                .unwrap_or_else(|| uname().machine().to_string_lossy().into_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory.totalram as u64 * u64::from(memory.mem_unit.max(1)),
            governor: Some(
                text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
                    .trim()
                    .to_owned(),
            )
            .filter(|text| !text.is_empty()),
            clock: text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
                .trim()
                .to_owned(),
            virtualized: field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            load: text("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or(0.0),
            congestion: Some(text("/proc/sys/net/ipv4/tcp_congestion_control").trim().to_owned())
                .filter(|text| !text.is_empty()),
            offloads: BTreeMap::new(),
        }
    }

    /// The differences to another machine that forbid mixing their results; none if there are none.
    pub fn differs(&self, other: &Machine) -> Option<String> {
        let pairs = [
            ("kernel", &self.kernel, &other.kernel),
            ("processor", &self.cpu, &other.cpu),
        ];
        let differs = |(what, mine, theirs): (&str, &String, &String)| {
            (mine != theirs).then(|| format!("{what} '{mine}', not '{theirs}'"))
        };
        let congestion = (self.congestion != other.congestion).then(|| {
            let name = |machine: &Machine| machine.congestion.clone().unwrap_or_else(|| "not known".to_owned());
            format!("congestion control '{}', not '{}'", name(self), name(other))
        });
        let cores = (self.cores != other.cores).then(|| format!("{} processors, not {}", self.cores, other.cores));
        pairs.into_iter().find_map(differs).or(cores).or(congestion)
    }
}

fn text(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn value(line: &str, separator: char, name: &str) -> Option<String> {
    let (key, value) = line.split_once(separator)?;
    (key.trim() == name).then(|| value.trim().trim_matches('"').to_owned())
}

fn distribution(release: &str, debian: &str) -> String {
    let name = release
        .lines()
        .find_map(|line| value(line, '=', "PRETTY_NAME"))
        .unwrap_or_default();
    // The file names the release only; Debian's own has the point release too.
    if name.starts_with("Debian") && !debian.is_empty() {
        format!("{name}, {debian}")
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_memory_and_processors() {
        let machine = Machine::here();
        assert!(
            machine.kernel.contains('.') && machine.memory > 1 << 20 && machine.cores > 0,
            "{machine:?}"
        );
        assert_eq!(machine.differs(&Machine::here()), None);
    }

    #[test]
    fn results_of_two_kernels_do_not_belong_together() {
        let here = Machine::here();
        let other = Machine {
            kernel: "6.1".to_owned(),
            ..here.clone()
        };
        assert!(here.differs(&other).unwrap().contains("not '6.1'"));
    }

    #[test]
    fn debian_is_told_with_its_point_release() {
        assert_eq!(
            distribution("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n", "12.11"),
            "Debian GNU/Linux 12 (bookworm), 12.11"
        );
        assert_eq!(distribution("PRETTY_NAME=Other\n", ""), "Other");
    }
}
