//! A measured switch: oxvs, or Open vSwitch with DPDK, each as its own daemon, configured by the
//! same commands.

use super::bond;
use super::case::Case;
use super::report::Turn;
use super::rules::{Rules, SINK};
use super::trace::{self, Traces};
use super::tunnel;
use crate::bed::{Bed, command, switch_program};
use crate::controller::Connection;
use crate::systems::daemon::Daemon;
use crate::systems::openvswitch::{open_vswitch, version};
use crate::systems::script::Script;
use crate::topology::Topology;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, setpriority_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use sys::perf::{Counter, Event};

/// Open vSwitch's daemon with DPDK in Debian.
const DPDK: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";

/// The database schema of Debian's package.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Most packets of one of Open vSwitch's pools of buffers.
const POOL: u64 = 262_144;

/// Overhead of a pool's buffer beside its packet in bytes, rounded up.
const HEADER: u64 = 1024;

/// How long it is looked at to see whether packets move, and are still looked up.
const WINDOW: Duration = Duration::from_millis(200);

/// Which switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Oxvs,
    Dpdk,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Oxvs => "oxvs",
            Kind::Dpdk => "ovs-dpdk",
        }
    }

    /// The device of the n-th port that drops packets, as settings of an interface.
    fn sink(self, number: u32) -> String {
        match self {
            Kind::Oxvs => "type=null".to_owned(),
            Kind::Dpdk => format!(
                "type=dpdk options:dpdk-devargs=net_null{},size=64,copy=0,no-rx=1",
                number + 1
            ),
        }
    }

    /// Its description with the version.
    pub(crate) fn describe(self) -> String {
        match self {
            Kind::Oxvs => format!("oxvs {}", crate::VERSION),
            Kind::Dpdk => {
                let version = version(Path::new(DPDK)).unwrap_or_default();
                format!("Open vSwitch with DPDK {version}").trim_end().to_owned()
            }
        }
    }
}

/// Why Open vSwitch with DPDK cannot be measured here; none if it can.
pub(crate) fn dpdk_missing() -> Option<String> {
    if !Path::new(DPDK).exists() {
        return Some("Open vSwitch with DPDK is not installed ('scripts/setup.sh peers' installs it)".to_owned());
    }
    let drivers = fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten()
        .flat_map(|entry| fs::read_dir(entry.path().join("dpdk")).into_iter().flatten().flatten());
    let files: Vec<String> = drivers
        .flat_map(|directory| fs::read_dir(directory.path()).into_iter().flatten().flatten())
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .collect();
    ["net_pcap", "net_null", "mempool_ring"]
        .into_iter()
        .find(|driver| {
            !files
                .iter()
                .any(|file| file.starts_with(&format!("librte_{driver}.so")))
        })
        .map(|driver| format!("DPDK has no driver {driver} here ('scripts/setup.sh peers' installs it)"))
}

/// A switch's counters at a point in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    at: Instant,
    received: u64,
    sent: u64,
    /// Cycles and instructions of its workers.
    executed: Option<(u64, u64)>,
}

impl Moved {
    /// The difference of two counter readings.
    fn turn(from: Moved, to: Moved) -> Turn {
        let seconds = (to.at - from.at).as_secs_f64();
        let received = to.received.saturating_sub(from.received) as f64;
        let share = |from: u64, to: u64| to.saturating_sub(from) as f64 / received.max(1.0);
        Turn {
            received: received / seconds,
            sent: to.sent.saturating_sub(from.sent) as f64 / seconds,
            executed: from
                .executed
                .zip(to.executed)
                .map(|(from, to)| (share(from.0, to.0), share(from.1, to.1))),
        }
    }
}

/// A switch that runs, configured for a case.
pub(crate) struct Subject {
    pub(crate) kind: Kind,
    pub(crate) rules: Rules,
    control: PathBuf,
    script: Script,
    daemons: Vec<Daemon>,
    /// Cycles and instructions of each worker; empty without processor counters.
    counters: Vec<[Counter; 2]>,
    paused: bool,
    directory: PathBuf,
    /// Last: it removes what the others use.
    bed: Bed,
}

impl Subject {
    /// Starts a switch without ports, which gets these rules.
    ///
    /// # Errors
    /// A program is missing or does not come up, with what it said.
    pub(crate) fn start(kind: Kind, rules: Rules) -> Result<Subject> {
        let bed = Bed::build(&Topology::default())?;
        let directory = bed.directory().join("run");
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let mut script = Script::new(bed.namespace());
        for name in ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR"] {
            script.set(name, &directory.to_string_lossy());
        }
        script.program("oxvs", &switch_program()?);
        Ok(Subject {
            kind,
            rules,
            control: directory.join("switch.ctl"),
            script,
            daemons: Vec::new(),
            counters: Vec::new(),
            paused: false,
            directory,
            bed,
        })
    }

    /// Its name in the results.
    pub(crate) fn name(&self, case: &Case) -> String {
        let name = self.kind.name();
        match self.rules == case.rules {
            true => name.to_owned(),
            false => format!("{name} {}", self.rules),
        }
    }

    /// A directory for files that both switches read.
    pub(crate) fn files(&self) -> &Path {
        &self.directory
    }

    /// The commands that have configured it.
    pub(crate) fn configuration(&self) -> &[String] {
        self.script.lines()
    }

    /// Boots and configures it for a case; packets flow when this returns.
    ///
    /// # Errors
    /// A command fails, with what it said.
    pub(crate) fn prepare(&mut self, case: &Case, traces: &Traces, cpus: &[usize]) -> Result<()> {
        match self.kind {
            Kind::Oxvs => self.boot_oxvs(cpus)?,
            Kind::Dpdk => self.boot_dpdk(traces, cpus)?,
        }
        self.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev fail_mode=secure")?;
        if let Some(kind) = self.rules.tunnel() {
            for line in tunnel::port(kind) {
                self.script.run(&line)?;
            }
            for line in tunnel::UNDERLAY {
                match line.strip_prefix("appctl ") {
                    Some(args) => self.appctl(args).map(drop)?,
                    None => self.script.run(line).map(drop)?,
                }
            }
        }
        let rules = self.directory.join("rules");
        fs::write(&rules, self.rules.lines(case, traces.sources.len())).with_context(|| rules.display().to_string())?;
        self.script.run(&format!(
            "oxvs ofctl -O OpenFlow13 --bundle add-flows br0 {}",
            rules.display()
        ))?;
        let sinks = (0..self.rules.sinks()).map(|number| self.kind.sink(number));
        self.vsctl(&match &sinks.collect::<Vec<_>>()[..] {
            [sink] => format!("add-port br0 sink -- set interface sink ofport_request={SINK} {sink}"),
            sinks => bond::port("sink", sinks),
        })?;
        if let Some(more) = self.rules.configuration() {
            self.vsctl(more)?;
        }
        if self.rules.learns() {
            // A sink sends nothing, so its stations must be added by hand. Those of a bond are at
            // any member.
            let sink = if self.rules.sinks() > 1 { "sink1" } else { "sink" };
            for station in trace::targets() {
                self.appctl(&format!("fdb/add br0 {sink} 0 {station}"))?;
            }
        }
        self.keep_bond()?;
        for (number, file) in traces.sources.iter().enumerate() {
            let (port, file) = (number + 1, file.display());
            let device = match self.kind {
                Kind::Oxvs => format!("type=pcap options:rx_pcap={file} options:infinite_rx=1"),
                Kind::Dpdk => {
                    let pool = if traces.apart {
                        format!(" mtu_request={}", pool_mtu(number))
                    } else {
                        String::new()
                    };
                    format!("type=dpdk options:dpdk-devargs=net_pcap{port},rx_pcap={file},infinite_rx=1{pool}")
                }
            };
            self.vsctl(&format!(
                "add-port br0 src{port} -- set interface src{port} ofport_request={port} {device}"
            ))?;
        }
        if self.rules.watches() {
            self.vsctl(&super::rules::mirror(&self.kind.sink(1), traces.sources.len()))?;
        }
        let errors = self
            .script
            .ask("oxvs vsctl --timeout=60 --format=json --columns=name,error,ofport list interface")?;
        if let Some((name, error)) = crate::systems::openvswitch::interface_error(&errors)? {
            bail!("{}: port {name}: {error}", self.kind.name());
        }
        self.place_workers(case, cpus)
    }

    fn boot_oxvs(&mut self, cpus: &[usize]) -> Result<()> {
        let line = format!(
            "oxvs run --pidfile --log-file -vconsole:off --unixctl={}",
            self.control.display()
        );
        self.launch("oxvs", &line)?;
        self.vsctl(&format!(
            "set open_vswitch . other_config:worker-spin=20000 other_config:pmd-cpu-mask={:#x} other_config:flow-limit=2000000 \
             other_config:max-idle=600000",
            mask(cpus)
        ))
    }

    fn boot_dpdk(&mut self, traces: &Traces, cpus: &[usize]) -> Result<()> {
        if let Some(reason) = dpdk_missing() {
            bail!("{reason}");
        }
        let pools = if traces.apart { traces.sources.len() } else { 1 };
        let bytes: u64 = (0..pools as u64).map(|pool| POOL * (2048 + 1024 * pool + HEADER)).sum();
        self.bed.reserve_hugepages(bytes / (2 << 20) + 150)?;
        for program in ["ovsdb-server", "ovsdb-tool"] {
            let file = open_vswitch(program).with_context(|| format!("{program} is not installed"))?;
            self.script.program(program, &file);
        }
        self.script.program("ovs-vswitchd-dpdk", Path::new(DPDK));
        let directory = self.directory.display().to_string();
        self.script
            .run(&format!("ovsdb-tool create {directory}/conf.db {SCHEMA}"))?;
        let server = format!("ovsdb-server --remote=punix:{directory}/db.sock --pidfile --log-file -vconsole:off");
        self.launch("ovsdb-server", &server)?;
        self.vsctl("--no-wait init")?;
        let others: Vec<usize> = sys::thread::allowed_cpus()?
            .into_iter()
            .filter(|cpu| !cpus.contains(cpu))
            .collect();
        let main = mask(if others.is_empty() { cpus } else { &others[..1] });
        // Without pools of its own for each port a trace of 200 000 packets fits.
        let settings = format!(
            "--no-wait set open_vswitch . other_config:dpdk-init=true other_config:dpdk-lcore-mask={main:#x} \
             other_config:pmd-cpu-mask={:#x} other_config:pmd-rxq-assign=roundrobin other_config:flow-limit=2000000 \
             other_config:max-idle=600000",
            mask(cpus)
        );
        self.vsctl(&settings)?;
        // In memory: no hugetlbfs is needed, and no files are left. Without a device no physical
        // addresses are needed, which would take minutes to sort pages.
        let extra = "other_config:dpdk-extra=\"--no-pci --in-memory --iova-mode=va\"";
        self.script
            .note(&format!("oxvs vsctl --no-wait set open_vswitch . '{extra}'"));
        let words = ["oxvs", "vsctl", "--no-wait", "set", "open_vswitch", ".", extra];
        command::run(&mut self.script.command(&words))?;
        let line = format!(
            "ovs-vswitchd-dpdk --disable-system --pidfile --log-file -vconsole:off --unixctl={}",
            self.control.display()
        );
        self.launch("ovs-vswitchd-dpdk", &line)
    }

    /// Starts a daemon and waits until it answers.
    fn launch(&mut self, name: &'static str, line: &str) -> Result<()> {
        self.script.note(&format!("{line} &"));
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut daemon = Daemon::start(
            name,
            self.script.command(&words),
            &self.directory,
            &format!("{name}.log"),
        )?;
        let socket = if name == "ovsdb-server" {
            self.directory.join("db.sock")
        } else {
            self.control.clone()
        };
        let ready = daemon.wait_until("its socket", || UnixStream::connect(&socket).is_ok());
        self.daemons.push(daemon);
        ready
    }

    /// Tells its database something.
    pub(crate) fn vsctl(&mut self, args: &str) -> Result<()> {
        self.script.run(&format!("oxvs vsctl --timeout=120 {args}")).map(drop)
    }

    /// Asks its daemon something.
    pub(crate) fn appctl(&self, args: &str) -> Result<String> {
        let control = self.control.display();
        self.script
            .ask(&format!("oxvs appctl --timeout=60 -t {control} {args}"))
    }

    fn pid(&self) -> Option<u32> {
        self.daemons.last().map(Daemon::pid)
    }

    /// Its threads that move packets.
    pub(crate) fn workers(&self) -> Vec<u32> {
        let Some(pid) = self.pid() else { return Vec::new() };
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        tasks
            .filter_map(|task| {
                let name = fs::read_to_string(task.path().join("comm")).ok()?;
                let moves = name.starts_with("pmd-c") || name.starts_with("oxvs-worker");
                moves.then(|| task.file_name().to_string_lossy().parse().ok()).flatten()
            })
            .collect()
    }

    /// Binds each worker to its own processor with priority, and moves everything else away if
    /// there are more processors.
    fn place_workers(&mut self, case: &Case, cpus: &[usize]) -> Result<()> {
        let workers = self.workers();
        ensure!(
            workers.len() == case.workers,
            "{}: {} workers run, and {} are wanted",
            self.kind.name(),
            workers.len(),
            case.workers
        );
        let one = |cpu: usize| {
            let mut set = CpuSet::new();
            set.set(cpu);
            set
        };
        if self.kind == Kind::Oxvs {
            let mut rest = CpuSet::new();
            let allowed = sys::thread::allowed_cpus()?;
            allowed
                .iter()
                .filter(|cpu| !cpus.contains(cpu))
                .for_each(|cpu| rest.set(*cpu));
            if rest.count() > 0 {
                let tasks = fs::read_dir(format!("/proc/{}/task", self.pid().unwrap_or(0)))?.flatten();
                for task in tasks.filter_map(|task| task.file_name().to_string_lossy().parse().ok()) {
                    // A thread may have ended by now.
                    let _ = sched_setaffinity(Pid::from_raw(task), &rest);
                }
            }
            for (worker, cpu) in workers.iter().zip(cpus) {
                sched_setaffinity(Pid::from_raw(worker.cast_signed()), &one(*cpu)).context("sched_setaffinity")?;
            }
        }
        let counters = workers.iter().map(|worker| {
            let open = |event| Counter::of_thread(*worker, event).ok();
            Some([open(Event::Cycles)?, open(Event::Instructions)?])
        });
        self.counters = counters.collect::<Option<_>>().unwrap_or_default();
        for worker in workers {
            // Of a thread, as its number is one.
            setpriority_process(Pid::from_raw(worker.cast_signed()), -20).context("setpriority")?;
        }
        Ok(())
    }

    /// Stops it by SIGSTOP.
    pub(crate) fn pause(&mut self) {
        self.signal(Signal::STOP);
        self.paused = true;
    }

    /// Continues it.
    pub(crate) fn resume(&mut self) {
        self.signal(Signal::CONT);
        self.paused = false;
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
            // The next request notices its end.
            let _ = kill_process(pid, signal);
        }
    }

    fn executed(&self) -> Option<(u64, u64)> {
        let read = |[cycles, instructions]: &[Counter; 2]| Some((cycles.read().ok()?, instructions.read().ok()?));
        let workers: Option<Vec<(u64, u64)>> = self.counters.iter().map(read).collect();
        workers?.into_iter().reduce(|a, b| (a.0 + b.0, a.1 + b.1))
    }

    fn moved(&self, connection: &mut Connection) -> Result<Moved> {
        let (at, ports) = connection.ports()?;
        let (mut received, mut sent) = (0, 0);
        let sinks = SINK..SINK + self.rules.sinks();
        for port in ports {
            match port.port.0 {
                number if sinks.contains(&number) => sent += port.tx_packets,
                number if number < SINK => received += port.rx_packets,
                _ => {}
            }
        }
        Ok(Moved {
            at,
            received,
            sent,
            executed: self.executed(),
        })
    }

    fn connection(&self) -> Result<Connection> {
        let path = self.directory.join("br0.mgmt");
        let stream = UnixStream::connect(&path).with_context(|| path.display().to_string())?;
        Connection::open(stream)
    }

    /// Keeps its bond up, if it has one, for the next 90 seconds.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn keep_bond(&self) -> Result<()> {
        match self.rules.sinks() {
            1 => Ok(()),
            members => bond::speak(&mut self.connection()?, members),
        }
    }

    /// Measures its rates for a time.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn measure(&self, time: Duration) -> Result<Turn> {
        let mut connection = self.connection()?;
        let from = self.moved(&mut connection)?;
        std::thread::sleep(time);
        Ok(Moved::turn(from, self.moved(&mut connection)?))
    }

    /// The same for packets that were translated successfully; a switch that flushes its caches
    /// refuses some meanwhile.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn measure_new(&self, time: Duration) -> Result<Turn> {
        let answered = |hits: BTreeMap<String, u64>| -> u64 {
            let answered = hits
                .iter()
                .filter(|(name, _)| name.contains("upcall") && !name.contains("failed"));
            answered.map(|(_, n)| n).sum()
        };
        let (began, from) = (Instant::now(), answered(self.hits()?));
        let mut turn = self.measure(time)?;
        let new = answered(self.hits()?).saturating_sub(from) as f64;
        turn.received = new / began.elapsed().as_secs_f64();
        Ok(turn)
    }

    /// Runs it until caches are filled and stations learned, at most for two minutes; the result
    /// shows how many packets still miss.
    ///
    /// # Errors
    /// It does not answer, or moves nothing.
    pub(crate) fn settle(&self) -> Result<()> {
        const LONGEST: Duration = Duration::from_secs(120);
        self.moves()?;
        let (began, mut quiet) = (Instant::now(), 0);
        let mut before = upcalls(&self.hits()?);
        while quiet < 4 && began.elapsed() < LONGEST {
            self.keep_bond()?;
            std::thread::sleep(WINDOW);
            let now = upcalls(&self.hits()?);
            // The host's own packets cause a few new flows.
            quiet = if now <= before + 10 { quiet + 1 } else { 0 };
            before = now;
        }
        Ok(())
    }

    /// Checks that packets arrive.
    ///
    /// # Errors
    /// It does not answer, or no packets arrive.
    pub(crate) fn moves(&self) -> Result<()> {
        let moves = self.measure(WINDOW)?.received > 0.0;
        ensure!(moves, "{}: no packet moves", self.kind.name());
        Ok(())
    }

    /// Flushes its megaflows, so that the next packet of each connection is an upcall.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn forget(&self) -> Result<()> {
        self.appctl("revalidator/purge").map(drop)
    }

    /// Which of its caches have known how many packets, and which had to be looked up, since it was
    /// started.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn hits(&self) -> Result<BTreeMap<String, u64>> {
        let said = match self.kind {
            Kind::Oxvs => self.appctl("upcall/show")?,
            Kind::Dpdk => self.appctl("dpif-netdev/pmd-stats-show")?,
        };
        Ok(counted(&said))
    }

    /// As [`Subject::hits`] for a paused one, which continues for the time of the answer.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn hits_paused(&self) -> Result<BTreeMap<String, u64>> {
        self.signal(Signal::CONT);
        let hits = self.hits();
        self.signal(Signal::STOP);
        hits
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // A stopped process cannot handle SIGTERM.
        if self.paused {
            self.resume();
        }
        while let Some(daemon) = self.daemons.pop() {
            drop(daemon);
        }
    }
}

/// From the cache counters, the packets that were upcalls, including lost ones.
pub(crate) fn upcalls(hits: &BTreeMap<String, u64>) -> u64 {
    let upcalls = hits.iter().filter(|(name, _)| name.contains("upcall"));
    upcalls.map(|(_, n)| n).sum()
}

/// Open vSwitch shares a pool of buffers between ports whose largest packets need buffers of the
/// same size, steps of 1 KB.
fn pool_mtu(source: usize) -> usize {
    1500 + 1000 * source
}

fn mask(cpus: &[usize]) -> u64 {
    cpus.iter()
        .filter(|cpu| **cpu < 64)
        .fold(0, |mask, cpu| mask | 1 << cpu)
}

/// The numbers of lines `NAME: NUMBER` about hits and upcalls, those of several workers together.
fn counted(said: &str) -> BTreeMap<String, u64> {
    let mut counted = BTreeMap::new();
    for (name, value) in said.lines().filter_map(|line| line.split_once(':')) {
        let name = name.trim();
        let number = value
            .split_whitespace()
            .next()
            .and_then(|word| word.parse::<u64>().ok());
        if let Some(number) = number.filter(|_| name.ends_with("hits") || name.contains("upcall")) {
            *counted.entry(name.to_owned()).or_insert(0) += number;
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_of_several_workers_are_added_and_averages_left_out() {
        let said = "\
pmd thread numa_id 0 core_id 1:
  packets received: 15340832
  emc hits: 5
  avg. subtable lookups per megaflow hit: 1.02
  miss with success upcall: 7
pmd thread numa_id 0 core_id 2:
  emc hits: 6
main thread:
  upcalls       : 3 (lost 0)
";
        let expected = [("emc hits", 11), ("miss with success upcall", 7), ("upcalls", 3)];
        assert_eq!(counted(said), expected.map(|(name, n)| (name.to_owned(), n)).into());
    }

    #[test]
    fn a_mask_has_a_bit_for_each_processor() {
        assert_eq!(mask(&[1, 3]), 0b1010);
    }
}
