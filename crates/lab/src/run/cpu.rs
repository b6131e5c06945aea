//! Who used the processors.

/// Clock ticks a second in /proc, on every Linux that this builds for.
const TICKS: f64 = 100.0;

/// Seconds of CPU up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// All processors of the machine, by anybody, idle time and waiting for disks apart; with what the hypervisor gave to others.
    pub(crate) all: f64,
    /// The kernel's own threads for packets (`ksoftirqd`).
    pub(crate) packets: f64,
    /// This process and the children that it has waited for.
    pub(crate) own: f64,
}

impl Usage {
    /// Up to now. What cannot be read is 0.
    pub(crate) fn now() -> Usage {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let own = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Usage {
            all: busy(&stat),
            packets: packets(),
            own: process(&own, true),
        }
    }

    /// Since an earlier moment.
    pub(crate) fn since(self, earlier: Usage) -> Usage {
        Usage {
            all: (self.all - earlier.all).max(0.0),
            packets: (self.packets - earlier.packets).max(0.0),
            own: (self.own - earlier.own).max(0.0),
        }
    }
}

/// Of the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal; what guests use is in user.
fn busy(stat: &str) -> f64 {
    let Some(line) = stat.lines().next().and_then(|line| line.strip_prefix("cpu ")) else {
        return 0.0;
    };
    let ticks: Vec<f64> = line
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0.0))
        .collect();
    [0, 1, 2, 5, 6, 7]
        .iter()
        .filter_map(|place| ticks.get(*place))
        .sum::<f64>()
        / TICKS
}

/// utime and stime of a line of /proc/PID/stat, and of the children waited for.
fn process(stat: &str, children: bool) -> f64 {
    // The command's name may hold spaces and parentheses; the last ')' ends it.
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return 0.0;
    };
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let wanted = if children { 11..15 } else { 11..13 };
    let ticks = fields.get(wanted).unwrap_or_default().iter();
    ticks.map(|field| field.parse::<f64>().unwrap_or(0.0)).sum::<f64>() / TICKS
}

fn packets() -> f64 {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return 0.0;
    };
    let pids = entries
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit));
    let stats = pids.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    stats
        .filter(|stat| stat.contains("(ksoftirqd/"))
        .map(|stat| process(&stat, false))
        .sum()
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
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) R 1 1 1 0 -1 4194304 5 0 0 0 150 50 25 75 20 0 1 0";
        assert_eq!(process(stat, false), 2.0);
        assert_eq!(process(stat, true), 3.0);
        assert_eq!(process("nonsense", true), 0.0);
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
