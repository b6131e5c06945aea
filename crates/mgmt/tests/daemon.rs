//! A daemon's life, seen from outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mgmt::{pidfile, unixctl};
use tempfile::TempDir;

struct Sandbox {
    dir: TempDir,
}

impl Sandbox {
    fn new() -> Sandbox {
        Sandbox {
            dir: TempDir::new().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let tests = std::env::current_exe().unwrap();
        let target = tests.parent().and_then(Path::parent).unwrap();
        let mut command = Command::new(target.join("examples/minimal_daemon"));
        command
            .args(args)
            .arg("-vconsole:off")
            .arg("-vsyslog:off")
            .current_dir(self.dir.path())
            .env("OVS_RUNDIR", self.dir.path())
            .env("OVS_LOGDIR", self.dir.path());
        command
    }

    fn pid(&self) -> Option<u32> {
        pidfile::read(&self.path("minimal-daemon.pid")).ok()
    }

    fn call(&self, method: &str) -> std::io::Result<Result<String, String>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let path = self.path("ctl");
        runtime.block_on(unixctl::call(&path, method, &[]))
    }
}

fn eventually(what: &str, mut f: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !f() {
        assert!(Instant::now() < end, "{what}");
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_detached_daemon_serves_when_its_starter_exits_and_leaves_nothing_behind() {
    let sandbox = Sandbox::new();
    let args = ["--detach", "--pidfile", "--log-file", "--unixctl=ctl"];
    let out = sandbox.run(&args);
    assert!(out.status.success(), "{out:?}");
    let pid = sandbox
        .pid()
        .expect("the pidfile is there as soon as the starter exits");
    assert!(
        sandbox
            .call("version")
            .unwrap()
            .unwrap()
            .starts_with("minimal-daemon (Open vSwitch) 3.1")
    );
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
    assert_eq!(
        fs::read_link(format!("/proc/{pid}/fd/0")).unwrap(),
        Path::new("/dev/null")
    );
    assert_eq!(
        fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim(),
        "minimal-daemon"
    );

    let log = fs::read_to_string(sandbox.path("minimal-daemon.log")).unwrap();
    assert_eq!(log.matches("opened log file").count(), 1, "{log}");

    let second = sandbox.run(&args);
    assert_eq!(second.status.code(), Some(1));
    let path = sandbox.path("minimal-daemon.pid");
    assert_eq!(
        String::from_utf8(second.stderr).unwrap(),
        format!(
            "minimal-daemon: {}: already running as pid {pid}, aborting\n",
            path.display()
        )
    );

    assert_eq!(sandbox.call("exit").unwrap(), Ok(String::new()));
    eventually("it ends", || !path.exists());
    eventually("its socket goes", || !sandbox.path("ctl").exists());
}

#[test]
fn a_daemon_that_cannot_start_fails_in_the_foreground() {
    let sandbox = Sandbox::new();
    let out = sandbox.run(&["--detach", "--monitor", "--unixctl=/nonexistent/ctl"]);
    assert_eq!(out.status.code(), Some(1));
    let text = String::from_utf8(out.stderr).unwrap();
    assert!(text.contains("No such file or directory"), "{text}");
}

#[test]
fn the_monitor_starts_a_crashed_daemon_again_and_ends_with_it() {
    let sandbox = Sandbox::new();
    let out = sandbox.run(&["--detach", "--monitor", "--pidfile", "--log-file", "--unixctl=ctl"]);
    assert!(out.status.success(), "{out:?}");
    let first = sandbox.pid().unwrap();
    assert!(sandbox.call("crash").is_err());
    eventually("it is back", || sandbox.pid().is_some_and(|pid| pid != first));
    eventually("it answers", || sandbox.call("version").is_ok());
    assert_eq!(sandbox.call("exit").unwrap(), Ok(String::new()));
    let log = || fs::read_to_string(sandbox.path("minimal-daemon.log")).unwrap();
    eventually("the monitor ends", || log().contains("exit status 0, exiting"));
    assert!(log().contains("|daemon(monitor)|ERR|1 crashes: pid"), "{}", log());
}

#[test]
fn a_daemon_told_to_end_dies_of_the_signal_and_cleans_up() {
    use std::os::unix::process::ExitStatusExt;
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["--pidfile", "--unixctl=ctl"]);
    let mut child = command.spawn().unwrap();
    eventually("it answers", || sandbox.call("version").is_ok());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    assert!(!sandbox.path("ctl").exists() && !sandbox.path("minimal-daemon.pid").exists());
}
