//! `oxvs tcpdump`: what ports carry and what the switch drops of it, without a trace afterwards.

use crate::fixture::{binary, dummy, dummy_bridge};
use std::process::{Child, Command, Stdio};
use testkit::{Packet, Vswitch, eventually, mac, skip, try_run};

/// The tool, capturing to a file of the sandbox.
pub(crate) struct Tool {
    child: Child,
    pub(crate) file: String,
}

impl Tool {
    pub(crate) fn start(switch: &Vswitch, args: &[&str]) -> Tool {
        let file = switch.sandbox.arg("capture.pcapng");
        let mut command = Command::new(binary());
        let target = switch.sandbox.arg("switch.ctl");
        command.arg("tcpdump").args(args).args(["-w", &file, "-t", &target]);
        command.envs(switch.sandbox.env()).stderr(Stdio::piped());
        Tool {
            child: command.spawn().unwrap(),
            file,
        }
    }

    /// Ends the tool by a signal. Returns what it said.
    pub(crate) fn end(&mut self, signal: &str) -> String {
        try_run(&["kill", signal, &self.child.id().to_string()], &[]).expect_ok();
        let mut said = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut said).unwrap();
        self.child.wait().unwrap();
        said
    }

    /// The packets of the file as tshark decodes them: fields of each.
    pub(crate) fn rows(&self, fields: &[&str]) -> Vec<String> {
        let mut words = vec!["tshark", "-r", &self.file, "-T", "fields"];
        words.extend(fields.iter().flat_map(|field| ["-e", *field]));
        let read = try_run(&words, &[]);
        let rows = read.stdout.lines().map(|line| line.trim_end().replace('\t', " "));
        rows.collect()
    }
}

/// Whether a megaflow copies packets.
pub(crate) fn is_captured(switch: &Vswitch) -> bool {
    switch.appctl(&["dpctl/dump-flows"]).contains("slow_path(capture)")
}

/// The tool at a switch of devices of memory.
struct Capture<'a> {
    switch: &'a Vswitch,
    tool: Tool,
}

impl<'a> Capture<'a> {
    fn start(switch: &'a Vswitch, args: &[&str]) -> Capture<'a> {
        let capture = Capture {
            switch,
            tool: Tool::start(switch, args),
        };
        eventually("the switch copies packets", || {
            capture.send("p1", 77);
            is_captured(switch).then_some(())
        });
        capture
    }

    fn send(&self, port: &str, src: u32) {
        let packet = Packet::new(mac(src), mac(9)).payload(0x88b5, b"payload").padded();
        let sent = self
            .switch
            .unixctl()
            .call("netdev-dummy/receive", &[port, &packet.hex()]);
        sent.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Waits until the file has so many frames from this source.
    fn wait_for(&self, src: u32, frames: usize) {
        eventually("the packets are in the file", || {
            let bytes = std::fs::read(&self.tool.file).unwrap();
            let found = bytes.windows(6).filter(|window| *window == mac(src));
            (found.count() == frames).then_some(())
        });
    }

    /// Ends the tool by a signal. Returns what it said, and the packets: source, interface,
    /// direction and comment of each.
    fn end(mut self, signal: &str) -> (String, Vec<String>) {
        let said = self.tool.end(signal);
        let mut rows = self.tool.rows(&[
            "eth.src",
            "frame.interface_name",
            "frame.packet_flags_direction",
            "frame.comment",
        ]);
        rows.retain(|row| !row.starts_with("02:00:00:00:00:4d"));
        (said, rows)
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
    capture.wait_for(1, 1);
    capture.wait_for(5, 1);
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
    capture.wait_for(1, 2);
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
