//! `oxvs tcpdump`: what ports carry and what the switch drops of it, without a trace afterwards.

use crate::fixture::{binary, dummy, dummy_bridge};
use std::process::{Child, Command, Stdio};
use testkit::{Packet, Vswitch, eventually, mac, skip, try_run};

/// The tool, capturing to a file of the sandbox.
struct Capture<'a> {
    switch: &'a Vswitch,
    child: Child,
    file: String,
}

impl<'a> Capture<'a> {
    fn start(switch: &'a Vswitch, args: &[&str]) -> Capture<'a> {
        let file = switch.sandbox.arg("capture.pcapng");
        let mut command = Command::new(binary());
        let target = switch.sandbox.arg("switch.ctl");
        command.arg("tcpdump").args(args).args(["-w", &file, "-t", &target]);
        command.envs(switch.sandbox.env()).stderr(Stdio::piped());
        let capture = Capture {
            switch,
            child: command.spawn().unwrap(),
            file,
        };
        eventually("the switch copies packets", || {
            capture.send("p1", 77);
            capture.is_on().then_some(())
        });
        capture
    }

    /// Whether a megaflow copies packets.
    fn is_on(&self) -> bool {
        self.switch.appctl(&["dpctl/dump-flows"]).contains("slow_path(capture)")
    }

    fn send(&self, port: &str, src: u32) {
        let packet = Packet::new(mac(src), mac(9)).payload(0x88b5, b"payload").padded();
        let sent = self
            .switch
            .unixctl()
            .call("netdev-dummy/receive", &[port, &packet.hex()]);
        sent.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Ends the tool by a signal. Returns what it said, and the packets: source, interface,
    /// direction and comment of each.
    fn end(mut self, signal: &str) -> (String, Vec<String>) {
        try_run(&["kill", signal, &self.child.id().to_string()], &[]).expect_ok();
        let mut said = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut said).unwrap();
        self.child.wait().unwrap();
        let fields = [
            "eth.src",
            "frame.interface_name",
            "frame.packet_flags_direction",
            "frame.comment",
        ];
        let mut words = vec!["tshark", "-r", &self.file, "-T", "fields"];
        words.extend(fields.iter().flat_map(|field| ["-e", *field]));
        let read = try_run(&words, &[]);
        let rows = read.stdout.lines().map(|line| line.trim_end().replace('\t', " "));
        (said, rows.filter(|row| !row.starts_with("02:00:00:00:00:4d")).collect())
    }
}

#[test]
fn a_capture_has_what_a_port_receives_and_sends_and_why_the_switch_drops_it() {
    skip!(unless "ovs-vsctl", "setpriv", "tshark");
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    switch.tool(
        "ovs-ofctl",
        &["add-flow", "br0", "priority=9,dl_src=02:00:00:00:00:05,actions=drop"],
    );
    switch.vsctl("set port p2 trunks=7");
    let capture = Capture::start(&switch, &["p1"]);
    for (port, src) in [("p1", 1), ("p1", 5), ("p2", 3)] {
        capture.send(port, src);
    }
    eventually("the packets are in the file", || {
        let bytes = std::fs::read(&capture.file).unwrap();
        let has = |src: u32| bytes.windows(6).any(|window| window == mac(src));
        (has(1) && has(5)).then_some(())
    });
    let (said, rows) = capture.end("-INT");
    assert_eq!(
        rows,
        [
            "02:00:00:00:00:01 p1 0x00000001",
            "02:00:00:00:00:05 p1 0x00000001 drop_no_destination",
        ]
    );
    assert!(said.contains("packets captured"), "{said}");
    assert!(
        said.contains("captured packets that go nowhere: drop_no_destination 1"),
        "{said}"
    );
    assert!(
        said.contains("dropped by the switch at these ports: drop_no_destination"),
        "{said}"
    );
}

#[test]
fn a_capture_of_a_bridge_says_what_enters_and_what_leaves_where_as_far_as_it_matches() {
    skip!(unless "ovs-vsctl", "setpriv", "tshark");
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    switch.vsctl("set port p1 tag=5");
    let capture = Capture::start(&switch, &["--bridge", "br0", "dl_type=0x88b5", "-i", "p2", "-i", "p1"]);
    capture.send("p1", 1);
    eventually("the packets are in the file", || {
        let bytes = std::fs::read(&capture.file).unwrap();
        (bytes.windows(6).filter(|window| *window == mac(1)).count() == 2).then_some(())
    });
    let (_, rows) = capture.end("-TERM");
    assert_eq!(
        rows,
        ["02:00:00:00:00:01 p1 0x00000001", "02:00:00:00:00:01 p2 0x00000002",]
    );
}

#[test]
fn a_capture_ends_with_its_tool_however_that_ends_and_is_refused_with_a_reason() {
    skip!(unless "ovs-vsctl", "setpriv", "tshark");
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    let capture = Capture::start(&switch, &["p1"]);
    let (_, _) = capture.end("-KILL");
    let packet = Packet::new(mac(1), mac(9)).payload(0x88b5, b"payload").padded();
    eventually("the capture is gone", || {
        let sent = switch.unixctl().call("netdev-dummy/receive", &["p1", &packet.hex()]);
        sent.unwrap_or_else(|error| panic!("{error}"));
        let flows = switch.appctl(&["dpctl/dump-flows"]);
        (!flows.contains("capture") && flows.contains("in_port")).then_some(())
    });
    assert_eq!(switch.get("bridge", "br0", "mirrors"), "[]");
    let nobody = try_run(
        &[binary().to_str().unwrap(), "tcpdump", "p1", "-t", "/no/such/switch.ctl"],
        &switch.sandbox.env(),
    );
    assert!(
        !nobody.ok() && nobody.stderr.contains("cannot capture at /no/such/switch.capture"),
        "{nobody:?}"
    );
    for (args, error) in [
        (&["p7"][..], "no port named p7"),
        (&["--bridge", "br7"], "no bridge named br7"),
        (&["--bridge", "br0", "-i", "p7"], "bridge br0 has no port named p7"),
        (&["p1", "no_such_field=1"], "filter \"no_such_field=1\""),
        (&["p1", "-s", "3"], "--snapshot-length 3"),
        (&["p1", "-c", "none"], "--count none"),
        (&["p1", "-Q", "up"], "direction: up"),
        (&[], "name a port"),
        (&["p1", "-w", "/no/such/folder"], "/no/such/folder"),
    ] {
        let target = switch.sandbox.arg("switch.ctl");
        let mut words = vec![binary().to_str().unwrap(), "tcpdump", "-t", &target];
        words.extend(args);
        let done = try_run(&words, &switch.sandbox.env());
        assert!(!done.ok() && done.stderr.contains(error), "{args:?}: {done:?}");
    }
}
