//! Two machines made of namespaces, and what stands in for ssh between them.

use lab::results::{Results, load};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use testkit::eventually_within;

/// Two bridges on the one machine, and on the other three hosts: by a bare cable, by a delayed one,
/// and by one that is too slow for what is sent.
pub(crate) const SMALL: &str = r#"
id = "X.remote"
study = "X"
title = "Remote"
about = "For a test."
host = [
    { name = "A", address = [{ ip = "10.9.1.1", prefix = 24 }] },
    { name = "B", address = [{ ip = "10.9.1.2", prefix = 24 }] },
    { name = "C", address = [{ ip = "10.9.1.3", prefix = 24 }] },
]
bridge = [{ name = "S1", offload = false }, { name = "S2" }]
link = [
    { a = { at = "A" }, b = { at = "S1" } },
    { a = { at = "S1" }, b = { at = "S2" }, delay = 2000 },
    { a = { at = "B" }, b = { at = "S2" }, delay = 1000 },
    { a = { at = "C" }, b = { at = "S1" }, rate = 10_000_000, queue = 15_140 },
]

[quick]
repetitions = 1
seconds = "SECONDS"

[full]
repetitions = 1
seconds = 1

[[measure]]
name = "probe"
from = "A"
to = "B"
test = "rtt"
payload = 100

[[measure]]
name = "flood"
from = "A"
to = "C"
test = "cbr"
payload = 1000
rate = 40_000_000

[[metric]]
name = "probe.rtt"
title = "Round trip"
unit = "µs"
better = "lower"

[[metric]]
name = "flood.loss"
title = "Lost"
unit = ""
better = "lower"

[[figure]]
form = "bars"
y = "probe.rtt"
"#;

/// What stands in for ssh: it says the command to a server, and passes on both ends' lines.
const SSH: &str = r#"#!/usr/bin/env python3
import os, socket, sys, threading
words = sys.argv[1:]
while words[0] == "-o":
    words = words[2:]
try:
    server = socket.create_connection((words[0], 22), timeout=3)
except OSError as error:
    sys.exit(print(f"ssh: {words[0]}: {error}", file=sys.stderr) or 255)
server.settimeout(None)
server.sendall((" ".join(words[1:]) + "\n").encode())
def up():
    while data := os.read(0, 65536):
        server.sendall(data)
    server.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while data := server.recv(65536):
    os.write(1, data)
"#;

/// A machine: namespaces, with a first process that waits for those that have lost their parent.
pub(crate) struct Machine {
    init: Child,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        let first = "mount -t tmpfs none /run && mkdir /run/netns && mount -t sysfs none /sys && ip link set lo up \
                     && echo ready && while :; do sleep 1; done";
        let mut init = Command::new("unshare");
        init.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        init.args(["sh", "-c", first])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut init = init.spawn().unwrap();
        let mut ready = [0; 6];
        init.stdout.take().unwrap().read_exact(&mut ready).unwrap();
        assert_eq!(&ready, b"ready\n");
        Machine { init }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.init.id()
    }

    pub(crate) fn command(&self, script: &str) -> Command {
        let mut command = Command::new("nsenter");
        for (kind, file) in [("net", "net"), ("mount", "mnt"), ("pid", "pid_for_children")] {
            command.arg(format!("--{kind}=/proc/{}/ns/{file}", self.pid()));
        }
        // Other tests run at the same time.
        command.args(["sh", "-c", script]).env("OXVS_LAB_ANY_LOAD", "");
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, script: &str) -> String {
        let output = self.command(script).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{script}: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        said
    }

    /// What testbeds have left.
    pub(crate) fn remains(&self) -> String {
        self.run("ls /run/netns; ls /run/oxvs-lab 2>/dev/null; cat /proc/[0-9]*/comm | grep oxvs; ip -br link show type vxlan")
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.remains().trim().is_empty()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.init.kill().unwrap();
        self.init.wait().unwrap();
    }
}

/// The machine with the hosts, the one with the switch, and a directory that both see.
pub(crate) struct Two {
    pub(crate) here: Machine,
    pub(crate) there: Machine,
    pub(crate) dir: tempfile::TempDir,
}

impl Two {
    pub(crate) fn new(seconds: f64) -> Two {
        let two = Two {
            here: Machine::new(),
            there: Machine::new(),
            dir: tempfile::tempdir().unwrap(),
        };
        for (device, network) in [("wire", "198.51.100"), ("ssh", "192.0.2")] {
            let (here, there) = (two.here.pid().to_string(), two.there.pid().to_string());
            let (a, b) = (format!("{device}-here"), format!("{device}-there"));
            let pair = [
                "ip", "link", "add", &a, "netns", &here, "type", "veth", "peer", "name", &b, "netns", &there,
            ];
            testkit::run(&pair);
            for (machine, end, last) in [(&two.here, &a, 1), (&two.there, &b, 2)] {
                machine.run(&format!(
                    "ip link set {end} mtu 1600 up && ip addr add {network}.{last}/24 dev {end}"
                ));
            }
        }
        let file = |name: &str, text: &str| {
            let path = two.dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        };
        file("ssh", SSH);
        file("small.toml", &SMALL.replace("\"SECONDS\"", &seconds.to_string()));
        two.serve();
        two
    }

    /// Serves what stands in for ssh, on a thread that ends with this process.
    fn serve(&self) {
        let network = File::open(format!("/proc/{}/ns/net", self.there.pid())).unwrap();
        let listen = move || {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            TcpListener::bind("192.0.2.2:22").unwrap()
        };
        let listener = std::thread::spawn(listen).join().unwrap();
        let pid = self.there.pid();
        let log = self.dir.path().join("ssh.log");
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let log = File::options().create(true).append(true).open(&log).unwrap();
                std::thread::spawn(move || shell(pid, stream, log));
            }
        });
    }

    pub(crate) fn lab(&self, args: &str) -> Command {
        let (dir, lab) = (self.dir.path().display(), env!("CARGO_BIN_EXE_oxvs"));
        self.here.command(&format!(
            "cd {dir} && echo $$ > pid && exec {lab} lab run small.toml {args}"
        ))
    }

    pub(crate) fn run(&self, args: &str) -> (Output, String) {
        let output = self.lab(args).output().unwrap();
        let said = [&output.stdout[..], b"\n", &output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        (output, said)
    }

    pub(crate) fn results(&self) -> Results {
        load(&self.dir.path().join("out")).unwrap()
    }

    pub(crate) fn are_clean(&self) {
        eventually_within(Duration::from_secs(60), "nothing is left on either machine", || {
            (self.here.is_clean() && self.there.is_clean()).then_some(())
        });
    }
}

/// Runs a command on the other machine for a connection.
fn shell(pid: u32, stream: TcpStream, log: File) {
    let mut command = String::new();
    // The lines after the command are for the program.
    let mut one = BufReader::with_capacity(1, stream.try_clone().unwrap());
    one.read_line(&mut command).unwrap();
    let mut shell = Command::new("nsenter");
    for (kind, file) in [("net", "net"), ("mount", "mnt"), ("pid", "pid_for_children")] {
        shell.arg(format!("--{kind}=/proc/{pid}/ns/{file}"));
    }
    shell.args(["sh", "-c", command.trim()]).env("OXVS_LAB_ANY_LOAD", "");
    drop(one);
    let input = OwnedFd::from(stream.try_clone().unwrap());
    shell.stdin(input).stdout(OwnedFd::from(stream)).stderr(log);
    let mut child = shell.spawn().unwrap();
    // Its copies of the connection.
    drop(shell);
    child.wait().unwrap();
}

pub(crate) fn remote(program: &str) -> String {
    format!(
        "--ssh ./ssh --remote 192.0.2.2 --wire wire-here=wire-there --tag vxlan --remote-program {program} --out out"
    )
}

/// Starts a run, and waits until its traffic flows.
pub(crate) fn measuring(two: &Two) -> Child {
    let mut run = two.lab(&format!("--switch oxvs {}", remote(env!("CARGO_BIN_EXE_oxvs"))));
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let port = "ip netns exec $(ls /run/netns | grep switch) cat /sys/class/net/S1-C/statistics/tx_packets";
    let flows = || {
        let output = two.there.command(port).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        said.trim().parse::<u64>().is_ok_and(|packets| packets > 1000)
    };
    let over = eventually_within(Duration::from_secs(90), "the flood begins", || {
        let over = run.try_wait().unwrap().is_some();
        (over || flows()).then_some(over)
    });
    if over {
        let output = run.wait_with_output().unwrap();
        panic!("it has ended: {}", String::from_utf8_lossy(&output.stderr));
    }
    run
}
