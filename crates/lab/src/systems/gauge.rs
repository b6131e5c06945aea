//! Counters of a running switch that are cheap enough to read many times a second.

use super::kernel_drops;
use super::layout::Layout;
use crate::results::Loss;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Reads a switch's counters from a thread of its own, without starting a process for each.
pub trait Gauge: Send {
    /// The processes that forward.
    fn processes(&self) -> &[u32];

    /// Packets that wait in the queues of ports, by place as in [`super::Running::drops`].
    ///
    /// # Errors
    /// It does not answer.
    fn queues(&mut self) -> Result<BTreeMap<String, u64>>;

    /// Packets dropped so far.
    ///
    /// # Errors
    /// It does not answer.
    fn drops(&mut self) -> Result<u64>;

    /// Processes of the laboratory that do the reading.
    fn own_processes(&self) -> Vec<u32>;
}

/// Seconds of CPU of the threads that a process has now, from the scheduler's nanoseconds
/// (`schedstat`); where the kernel does not count these, in ticks.
pub(crate) fn exact_cpu(pid: u32) -> f64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let of_thread = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    };
    // A thread may end meanwhile.
    let nanos: Vec<f64> = threads.filter_map(of_thread).collect();
    if nanos.is_empty() {
        return crate::bed::process_cpu(pid).unwrap_or(0.0);
    }
    nanos.iter().sum::<f64>() / 1e9
}

/// The kernel's queueing disciplines and policers at the ports of a switch.
pub(crate) struct KernelGauge {
    layout: Layout,
    tc: Tc,
}

impl KernelGauge {
    /// # Errors
    /// `tc` cannot be started.
    pub(crate) fn new(namespace: &str, layout: &Layout) -> Result<KernelGauge> {
        Ok(KernelGauge {
            layout: layout.clone(),
            tc: Tc::start(namespace)?,
        })
    }

    /// All drops of queues and policers.
    pub(crate) fn losses(&mut self) -> Result<Vec<Loss>> {
        Ok(kernel_drops::of_queues(&self.tc.queues()?, &self.layout))
    }
}

impl Gauge for KernelGauge {
    fn processes(&self) -> &[u32] {
        &[]
    }

    fn queues(&mut self) -> Result<BTreeMap<String, u64>> {
        let places = self.layout.places();
        let all = self.tc.queues()?;
        let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
        // The first queue of a device counts those below it too.
        let first = all.iter().filter(|queue| queue["root"] == true);
        let read = |queue: &Value| Some((places.get(queue["dev"].as_str()?)?.clone(), queue["qlen"].as_u64()?));
        Ok(first.filter_map(read).collect())
    }

    fn drops(&mut self) -> Result<u64> {
        Ok(self.losses()?.iter().map(|loss| loss.packets).sum())
    }

    fn own_processes(&self) -> Vec<u32> {
        vec![self.tc.child.id()]
    }
}

/// A `tc` that stays, and answers by line.
struct Tc {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Tc {
    fn start(namespace: &str) -> Result<Tc> {
        let mut command = Command::new("tc");
        command.args(["-n", namespace, "-s", "-j", "-force", "-batch", "-"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().context("cannot start tc")?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("tc has no input or output");
        };
        Ok(Tc {
            child,
            to,
            from: BufReader::new(from),
        })
    }

    fn queues(&mut self) -> Result<Value> {
        self.to.write_all(b"qdisc show\n").context("tc")?;
        next(&mut self.from).context("tc qdisc show")
    }
}

impl Drop for Tc {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The next JSON value of a stream.
///
/// # Errors
/// The stream ends, or has something else.
pub(crate) fn next(from: &mut impl std::io::BufRead) -> Result<Value> {
    let mut values = serde_json::Deserializer::from_reader(from).into_iter::<Value>();
    Ok(values.next().context("it has ended")??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_one_by_one() {
        let mut stream: &[u8] = b"[{\"a\":1}]\n{\"result\":\"x\"}{";
        assert_eq!(next(&mut stream).unwrap()[0]["a"], 1);
        assert_eq!(next(&mut stream).unwrap()["result"], "x");
        assert!(next(&mut stream).is_err() && next(&mut stream).is_err());
    }

    #[test]
    fn the_time_of_a_process_is_finer_than_ticks() {
        // Another process: threads of other tests end in this one, and their time with them.
        let mut busy = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 5000000 ]; do i=$((i+1)); done"])
            .spawn()
            .unwrap();
        let begin = exact_cpu(busy.id());
        let used = testkit::eventually("it has run", || {
            let used = exact_cpu(busy.id()) - begin;
            (used > 0.0).then_some(used)
        });
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(
            (used * 100.0).fract() > 0.0,
            "{used} seconds are whole ticks of a hundredth"
        );
        assert_eq!(exact_cpu(0), 0.0);
    }
}
