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

/// A test that fails leaves no daemon behind.
impl Drop for Sandbox {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.call("exit");
        }
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
            .starts_with("minimal-daemon (Open vSwitch) 3.5.0\n")
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
fn a_panic_is_in_the_log_with_its_backtrace() {
    let sandbox = Sandbox::new();
    let out = sandbox.run(&["--detach", "--pidfile", "--log-file", "--unixctl=ctl"]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(
        sandbox.call("panic").unwrap().unwrap_err().trim_end(),
        "a thread panicked"
    );
    let log = fs::read_to_string(sandbox.path("minimal-daemon.log")).unwrap();
    assert!(log.contains("|util"), "{log}");
    assert!(log.contains("on request"), "{log}");
    assert!(log.contains("|EMER|0: "), "{log}");
    assert_eq!(sandbox.call("exit").unwrap(), Ok(String::new()));
}

#[test]
fn a_crash_is_in_the_log_with_its_backtrace_and_the_monitor_restarts_the_daemon() {
    let sandbox = Sandbox::new();
    let args = ["--detach", "--monitor", "--pidfile", "--log-file", "--unixctl=ctl"];
    assert!(sandbox.run(&args).status.success());
    let log = || fs::read_to_string(sandbox.path("minimal-daemon.log")).unwrap();
    // Between two restarts the monitor waits ten seconds, so one crash has to do here.
    let crashed = sandbox.pid().unwrap();
    assert!(sandbox.call("overflow").is_err());
    eventually("it is back", || sandbox.pid().is_some_and(|pid| pid != crashed));
    eventually("it answers", || sandbox.call("version").is_ok());
    let text = log();
    let lines: Vec<&str> = text.lines().map(|line| line.splitn(3, '|').nth(2).unwrap()).collect();
    let at = |begin: &str| {
        let found = lines.iter().position(|line| line.starts_with(begin));
        found.unwrap_or_else(|| panic!("{begin}: {text}"))
    };
    let crash = at("fatal_signal(crash)|EMER|SIGSEGV detected, backtrace:");
    let trace = at("backtrace(crash)|EMER|0x");
    // With optimisation, functions that it calls stand before it.
    let overflows = |line: &&str| line.starts_with("backtrace(crash)|EMER|0x") && line.contains("<overflow+0x");
    assert!(lines.iter().any(overflows), "{text}");
    let died = format!("daemon(monitor)|ERR|1 crashes: pid {crashed} died, killed (Segmentation fault)");
    assert!(crash < trace && trace < at(&died), "{text}");
    assert_eq!(sandbox.call("exit").unwrap(), Ok(String::new()));
}

#[test]
fn a_daemon_serves_as_the_user_that_it_is_told_with_few_capabilities() {
    use std::os::unix::fs::{MetadataExt, chown};
    testkit::skip!(unless root);
    let (sandbox, nobody) = (Sandbox::new(), 65534);
    chown(sandbox.dir.path(), Some(nobody), None).unwrap();
    let user = "--user=nobody";
    let args = [
        "--detach",
        "--monitor",
        "--pidfile",
        "--log-file",
        "--unixctl=ctl",
        user,
    ];
    let out = sandbox.run(&args);
    assert!(out.status.success(), "{out:?}");
    for file in ["minimal-daemon.pid", "minimal-daemon.log", "ctl"] {
        assert_eq!(fs::metadata(sandbox.path(file)).unwrap().uid(), nobody, "{file}");
    }
    let status = |pid: u32, field: &str| -> String {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // CAP_NET_BIND_SERVICE and CAP_IPC_LOCK, as in Open vSwitch.
    let kept = "0000000000004400";
    let check = |pid: u32| {
        for (field, value) in [
            ("Uid:", "65534 65534 65534 65534"),
            ("Groups:", ""),
            ("CapPrm:", kept),
            ("CapEff:", kept),
            ("CapInh:", "0000000000000000"),
            ("CapAmb:", "0000000000000000"),
            ("CapBnd:", "0000000000000000"),
        ] {
            assert_eq!(status(pid, field), value, "{field}");
        }
    };
    let first = sandbox.pid().unwrap();
    check(first);
    let monitor: u32 = status(first, "PPid:").parse().unwrap();
    assert_eq!(status(monitor, "Uid:"), "65534 65534 65534 65534");
    assert!(sandbox.call("crash").is_err());
    eventually("it is back", || sandbox.pid().is_some_and(|pid| pid != first));
    eventually("it answers", || sandbox.call("version").is_ok());
    check(sandbox.pid().unwrap());
    assert_eq!(sandbox.call("exit").unwrap(), Ok(String::new()));

    let refused = sandbox.run(&["--user=no-such-user"]);
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(text, "minimal-daemon: user no-such-user not found, aborting.\n");
}

#[test]
fn a_daemon_takes_as_many_descriptors_as_the_system_gives() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.command(&["--detach", "--pidfile", "--unixctl=ctl"]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -Sn 64 && exec \"$0\" \"$@\""]);
    limited.arg(daemon.get_program()).args(daemon.get_args());
    for (name, value) in daemon.get_envs() {
        limited.env(name, value.unwrap());
    }
    let started = limited.current_dir(sandbox.dir.path()).status().unwrap();
    assert!(started.success());
    let limits = fs::read_to_string(format!("/proc/{}/limits", sandbox.pid().unwrap())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[3], words[4], "{line}");
    sandbox.call("exit").unwrap().unwrap();
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

#[test]
fn a_sighup_reopens_the_log_and_other_signals_do_what_they_do_to_open_vswitch() {
    use rustix::process::{Pid, Signal, kill_process};
    let sandbox = Sandbox::new();
    let log = || fs::read_to_string(sandbox.path("minimal-daemon.log")).unwrap_or_default();
    let signal = |pid: u32, signal: Signal| {
        kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
    };
    let parent = |pid: u32| -> u32 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[1].parse().unwrap()
    };
    let args = ["--detach", "--monitor", "--pidfile", "--log-file", "--unixctl=ctl"];
    assert!(sandbox.run(&args).status.success());
    let mut pid = sandbox.pid().unwrap();
    let monitor = parent(pid);

    fs::rename(sandbox.path("minimal-daemon.log"), sandbox.path("old.log")).unwrap();
    signal(monitor, Signal::HUP);
    signal(pid, Signal::HUP);
    eventually("the log is reopened", || log().contains("opened log file"));
    for ignored in [Signal::PIPE, Signal::HUP] {
        signal(pid, ignored);
        signal(monitor, ignored);
        assert!(sandbox.call("version").unwrap().is_ok());
    }
    assert_eq!((sandbox.pid(), parent(pid)), (Some(pid), monitor));

    signal(pid, Signal::ALARM);
    eventually("the monitor starts it again", || {
        sandbox.pid().is_some_and(|new| new != pid)
    });
    eventually("it answers", || sandbox.call("version").is_ok());
    assert!(
        log().contains("|fatal_signal|WARN|terminating with signal 14 (Alarm clock)"),
        "{}",
        log()
    );
    assert!(
        log().contains(&format!("1 crashes: pid {pid} died, killed (Alarm clock), restarting")),
        "{}",
        log()
    );
    pid = sandbox.pid().unwrap();
    signal(pid, Signal::USR1);
    let end = format!("pid {pid} died, killed (User defined signal 1), exiting");
    eventually("it ends, and its monitor", || log().contains(&end));

    for (ends, name) in [(Signal::USR2, "User defined signal 2"), (Signal::QUIT, "Quit")] {
        // A shell starts a command in the background with SIGQUIT ignored, and so would the daemon.
        if is_ignored(ends) {
            continue;
        }
        assert!(sandbox.run(&args).status.success());
        let pid = sandbox.pid().unwrap();
        signal(pid, ends);
        let end = format!("pid {pid} died, killed ({name})");
        eventually("it ends, and its monitor", || log().contains(&end));
    }
}

/// Whether this process, and every program that it starts, ignores a signal.
fn is_ignored(signal: rustix::process::Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn a_daemon_waits_for_one_that_is_ending_and_not_for_one_that_goes_on() {
    let sandbox = Sandbox::new();
    let args = ["--detach", "--pidfile", "--log-file", "--unixctl=ctl"];
    for kill in [true, false, true, false] {
        assert!(sandbox.run(&args).status.success());
        let pid = rustix::process::Pid::from_raw(sandbox.pid().unwrap() as i32).unwrap();
        match kill {
            true => rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap(),
            false => assert_eq!(sandbox.call("exit").unwrap(), Ok(String::new())),
        }
        let next = sandbox.run(&args);
        assert!(next.status.success(), "{next:?}");
        assert!(sandbox.call("version").unwrap().is_ok());
        assert_eq!(sandbox.call("exit").unwrap(), Ok(String::new()));
    }
}

#[test]
fn a_control_socket_whose_path_is_taken_by_a_file_is_named() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("ctl"), "in the way").unwrap();
    let out = sandbox.run(&["--detach", "--unixctl=ctl"]);
    assert_eq!(out.status.code(), Some(1));
    let text = String::from_utf8(out.stderr).unwrap();
    assert!(text.contains("the path is a file that is no socket"), "{text}");
    assert_eq!(fs::read_to_string(sandbox.path("ctl")).unwrap(), "in the way");
}
