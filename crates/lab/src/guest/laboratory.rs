//! The laboratory in a guest: switches, hosts and cables all inside, on a kernel with features that
//! this machine's may lack.

use super::image::find;
use super::kernel::{Kernel, said};
use super::machine::{Guest, Output};
use crate::bed::{lab_program, switch_program};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Programs copied to the guest if this machine has them. A missing program of a switch is missing
/// in the guest too, and the run reports it.
const PROGRAMS: &[&str] = &[
    "bridge",
    "ethtool",
    "iperf3",
    "ovs-appctl",
    "ovs-ofctl",
    "ovs-vsctl",
    "ovs-vswitchd",
    "ovsdb-client",
    "ovsdb-server",
    "ovsdb-tool",
    "tcpdump",
];

/// Modules that the studies need: switches, VLANs, guests' and containers' devices, tunnels and
/// their encryption, schedulers, policers.
const MODULES: &[&str] = &[
    "act_gact",
    "act_mirred",
    "act_police",
    "act_skbedit",
    "af_packet",
    "bonding",
    "bridge",
    "cls_basic",
    "cls_bpf",
    "cls_flower",
    "cls_fw",
    "cls_matchall",
    "cls_u32",
    "ctr",
    "8021q",
    "drbg",
    "dummy",
    "esp4",
    "gcm",
    "geneve",
    "ghash_generic",
    "ip_gre",
    "jitterentropy_rng",
    "openvswitch",
    "sch_codel",
    "sch_fq",
    "sch_fq_codel",
    "sch_hfsc",
    "sch_htb",
    "sch_ingress",
    "sch_netem",
    "sch_prio",
    "sch_sfq",
    "sch_tbf",
    "seqiv",
    "sha512_generic",
    "tcp_bbr",
    "tun",
    "veth",
    "vxlan",
    "xfrm_user",
];

/// Debian's directories of Open vSwitch's data files.
const SCHEMAS: &[&str] = &["/usr/share/openvswitch/vswitch.ovsschema"];

/// Where results are, in the guest.
const OUT: &str = "/out";

/// In MiB: tables of a million rules are meant to fit.
const MEMORY: u32 = 6144;

/// Minutes of one guest: the maximum loss if it is killed.
const SHIFT: f64 = 10.0;

/// Runs `oxvs lab run ARGS… --out DIR` in guests, one after the other, until the run is complete or
/// the minutes are spent. Scenario files among the arguments are copied. The runs' output goes to
/// `printed`.
///
/// # Errors
/// A guest cannot be run, or the run in it failed.
pub fn run(
    args: &[String],
    dir: &Path,
    minutes: Option<f64>,
    is_complete: impl Fn(&Path) -> bool,
    printed: &mut dyn Write,
) -> Result<()> {
    let kernel = Kernel::fetch()?;
    let (args, scenarios) = taken_along(args);
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    let began = std::time::Instant::now();
    loop {
        let left = minutes.map(|minutes| minutes - began.elapsed().as_secs_f64() / 60.0);
        let shift = left.unwrap_or(SHIFT).min(SHIFT);
        if shift <= 0.0 {
            return Ok(());
        }
        let guest = guest(&scenarios, dir)?;
        let mut command: Vec<String> = ["env", "TERM=dumb", "oxvs-lab", "run"].map(str::to_owned).to_vec();
        command.extend(args.iter().cloned());
        command.extend([
            "--out".to_owned(),
            OUT.to_owned(),
            "--budget".to_owned(),
            format!("{shift:.2}"),
        ]);
        // A repetition that has begun is brought to its end.
        let limit = Duration::from_secs_f64(shift * 60.0 + 1800.0);
        let next = tempfile::Builder::new().prefix(".guest-").tempdir_in(dir)?;
        let finished = guest.run(&kernel, &command, Output::Archive(next.path()), limit, printed)?;
        take(next.path(), dir)?;
        ensure!(
            finished.status == 0,
            "the run in the guest failed (exit status {})",
            finished.status
        );
        if is_complete(dir) {
            return Ok(());
        }
    }
}

/// The arguments as the guest gets them, and the files of scenarios among them: where the guest has
/// each, beside its results, and where it is here.
fn taken_along(args: &[String]) -> (Vec<String>, Vec<(String, PathBuf)>) {
    let mut files = Vec::new();
    let mut inside = |arg: &String| {
        let path = Path::new(arg);
        let Some(name) = path.file_name().filter(|_| arg.ends_with(".toml")) else {
            return arg.clone();
        };
        // Two can have one name, in two directories.
        let place = format!("scenarios/{}/{}", files.len(), name.display());
        files.push((place.clone(), path.to_owned()));
        format!("/{place}")
    };
    (args.iter().map(&mut inside).collect(), files)
}

/// A guest with the laboratory's programs and the present results.
fn guest(scenarios: &[(String, PathBuf)], dir: &Path) -> Result<Guest> {
    let ours = [lab_program()?, switch_program()?].map(|file| file.display().to_string());
    let mut files: Vec<(String, PathBuf)> = SCHEMAS
        .iter()
        .filter(|file| Path::new(file).exists())
        .map(|file| ((*file).to_owned(), PathBuf::from(file)))
        .collect();
    files.extend_from_slice(scenarios);
    for file in said(
        Command::new("find")
            .arg(dir)
            .args(["-type", "f", "-not", "-path", "*/.guest-*"]),
    )?
    .lines()
    {
        let below = Path::new(file).strip_prefix(dir)?;
        files.push((format!("out/{}", below.display()), PathBuf::from(file)));
    }
    let installed = PROGRAMS
        .iter()
        .filter(|name| find(name).is_some())
        .map(|name| (*name).to_owned());
    Ok(Guest {
        // For its libraries.
        programs: installed.chain(ours).collect(),
        files,
        modules: MODULES.iter().map(|name| (*name).to_owned()).collect(),
        memory: MEMORY,
        processors: 2,
        ..Guest::default()
    })
}

/// Replaces the results by the guest's.
fn take(from: &Path, to: &Path) -> Result<()> {
    let mut entries = fs::read_dir(from)?.peekable();
    ensure!(entries.peek().is_some(), "the guest has left nothing");
    said(
        Command::new("cp")
            .arg("-r")
            .arg(format!("{}/.", from.display()))
            .arg(to),
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_scenarios_are_taken_along_beside_the_results() {
        let words = ["S0.rtt", "mine.toml", "../theirs/mine.toml", "--full"].map(str::to_owned);
        let (args, files) = taken_along(&words);
        assert_eq!(
            args,
            ["S0.rtt", "/scenarios/0/mine.toml", "/scenarios/1/mine.toml", "--full"]
        );
        let expected = [
            ("scenarios/0/mine.toml", "mine.toml"),
            ("scenarios/1/mine.toml", "../theirs/mine.toml"),
        ];
        assert_eq!(
            files,
            expected.map(|(there, here)| (there.to_owned(), PathBuf::from(here)))
        );
    }
}
