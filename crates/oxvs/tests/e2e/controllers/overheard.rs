//! Output of `ovs-ofctl monitor` and `snoop` for a bridge with a controller.

use super::*;

/// `ovs-ofctl` that listens in the background until this is dropped.
struct Listener {
    said: String,
    pid: String,
}

impl Listener {
    /// Debian's program.
    fn start(switch: &Vswitch, name: &str, words: &str) -> Listener {
        Listener::of("ovs-ofctl", switch, name, words)
    }

    fn of(program: &str, switch: &Vswitch, name: &str, words: &str) -> Listener {
        let said = switch.sandbox.arg(&format!("{name}.txt"));
        let pid = switch.sandbox.arg(&format!("{name}.pid"));
        let command =
            format!("exec {program} {words} --detach --no-chdir --log-file={said}.vlog --pidfile={pid} 2> {said}");
        testkit::try_run(&["sh", "-c", &command], &switch.sandbox.env()).expect_ok();
        Listener { said, pid }
    }

    /// Waits until the parts have been printed in this order.
    #[track_caller]
    fn prints(&self, parts: &[&str]) {
        let text = || std::fs::read_to_string(&self.said).unwrap_or_default();
        let rest = |text: &str| {
            let mut at = 0;
            parts
                .iter()
                .find(|part| match text[at..].find(**part) {
                    Some(found) => {
                        at += found + part.len();
                        false
                    }
                    None => true,
                })
                .copied()
        };
        let end = Instant::now() + Duration::from_secs(20);
        while let Some(missing) = rest(&text()) {
            assert!(Instant::now() < end, "{missing}: {}", text());
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let process = std::fs::read_to_string(&self.pid).unwrap_or_default();
        testkit::try_run(&["kill", process.trim()], &[]);
    }
}

#[test]
fn who_monitors_is_told_of_packets_and_rules_and_who_snoops_of_what_the_controller_says_and_hears() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    switch.vsctl("set-fail-mode br0 secure -- set bridge br0 other_config:disable-in-band=true");
    let controller = Controller::start(0);
    switch.vsctl(&format!("set-controller br0 tcp:127.0.0.1:{}", controller.port));
    wait_connected(&switch, true);
    controller.hears(FEATURES_REPLY);
    let snoop = Listener::start(&switch, "snoop", "-O OpenFlow13 snoop br0");
    // It can be in the background before the switch has read its hello.
    eventually("what is said is overheard", || {
        controller.say(&message(BARRIER_REQUEST, &[]));
        sleep(Duration::from_millis(20));
        let overheard = std::fs::read_to_string(&snoop.said).unwrap_or_default();
        overheard.contains("OFPT_BARRIER_REQUEST").then_some(())
    });
    let ofctl = format!("{} ofctl", env!("CARGO_BIN_EXE_oxvs"));
    let own = Listener::of(&ofctl, &switch, "own", "-O OpenFlow13 snoop br0");
    let monitor = Listener::start(&switch, "monitor", "-O OpenFlow13 monitor br0 65535 watch:");
    controller.ask_for_misses();
    snoop.prints(&["OFPT_FLOW_MOD (OF1.3)", "priority=0 actions=CONTROLLER:65535"]);
    monitor.prints(&["event=ADDED table=0 cookie=0 actions=CONTROLLER:65535"]);

    inject(&switch, "p1", &frame(1));
    let told = ["_PACKET_IN", "in_port=1 (via no_match) data_len=74", "dl_type=0x88b5"];
    monitor.prints(&told);
    snoop.prints(&told);
    controller.hears(PACKET_IN);

    controller.say(&message(BARRIER_REQUEST, &[]));
    snoop.prints(
        &[
            &told[..],
            &["OFPT_BARRIER_REQUEST (OF1.3)", "OFPT_BARRIER_REPLY (OF1.3)"],
        ]
        .concat(),
    );
    let add = |rule: &str| {
        let words = ["--timeout=20", "-O", "OpenFlow13", "add-flow", "br0", rule];
        switch.tool("ovs-ofctl", &words).expect_ok();
    };
    add("send_flow_rem,priority=3,in_port=2,actions=output:1");
    monitor.prints(&["event=ADDED table=0 cookie=0 in_port=2 actions=output:1"]);
    let words = ["--timeout=20", "-O", "OpenFlow13", "del-flows", "br0", "in_port=2"];
    switch.tool("ovs-ofctl", &words).expect_ok();
    let ended = ["OFPT_FLOW_REMOVED (OF1.3)", "priority=3,in_port=2 reason=delete"];
    monitor.prints(&["event=DELETED reason=delete table=0 cookie=0 in_port=2"]);
    monitor.prints(&ended);
    snoop.prints(&ended);
    own.prints(&["OFPT_FLOW_MOD (OF1.3)", "OFPT_BARRIER_REPLY (OF1.3)"]);
    own.prints(&ended);
    // Requests of other peers are not part of the controller's traffic.
    let overheard = std::fs::read_to_string(&snoop.said).unwrap_or_default();
    assert!(!overheard.contains("output:1"), "{overheard}");
    let heard = std::fs::read_to_string(&own.said).unwrap_or_default();
    assert!(!heard.contains("OFPT_HELLO"), "the greeting is not part of it: {heard}");
}
