//! Several controllers of a bridge, and rate limits of packet-ins.

use super::*;

const ERROR: u8 = 1;
const ROLE_REQUEST: u8 = 24;
const ROLE_REPLY: u8 = 25;
const EQUAL: u8 = 1;
const MASTER: u8 = 2;
const SLAVE: u8 = 3;

/// The request for a role, and a reply that says so.
fn role(role: u8, generation: u8) -> Vec<u8> {
    vec![0, 0, 0, role, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, generation]
}

impl Controller {
    fn asks_for(&self, wanted: u8, generation: u8) -> Vec<u8> {
        self.say(&message(ROLE_REQUEST, &role(wanted, generation)));
        self.hears(ROLE_REPLY)
    }

    fn is_refused(&self, what: &[u8], kind: u8, code: u8) {
        self.say(what);
        let error = self.hears(ERROR);
        assert_eq!(error[..4], [0, kind, 0, code]);
        assert_eq!(error[4..12], what[..8], "what is refused is quoted");
    }

    fn told(&self) -> usize {
        let heard = self.heard.lock().expect("what was heard");
        heard.iter().filter(|(what, _)| *what == PACKET_IN).count()
    }
}

#[test]
fn of_several_controllers_one_is_the_master_and_slaves_change_nothing() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    let (one, two) = (Controller::start(0), Controller::start(0));
    let targets = [&one, &two].map(|controller| format!("tcp:127.0.0.1:{}", controller.port));
    switch.vsctl(&format!(
        "set-fail-mode br0 secure -- set-controller br0 {}",
        targets.join(" ")
    ));
    one.hears(FEATURES_REPLY);
    two.hears(FEATURES_REPLY);
    let roles = |wanted: [&str; 2]| {
        eventually("the rows have the roles", || {
            let role = |target: &String| {
                let found = switch.vsctl(&format!("--bare --columns=role find controller target=\"{target}\""));
                found.trim().to_owned()
            };
            (targets.each_ref().map(role) == wanted).then_some(())
        });
    };
    roles(["other", "other"]);

    assert_eq!(one.asks_for(MASTER, 5), role(MASTER, 5));
    roles(["master", "other"]);
    // The later master replaces it.
    assert_eq!(two.asks_for(MASTER, 6), role(MASTER, 6));
    roles(["slave", "master"]);
    one.is_refused(&message(ROLE_REQUEST, &role(MASTER, 5)), 11, 0);
    let any = [&[0; 40][..], &[0, 1, 0, 4, 0, 0, 0, 0]].concat();
    one.is_refused(&message(FLOW_MOD, &any), 1, 10);
    two.ask_for_misses();
    let flows = eventually("the master's rule is there", || {
        let flows = switch
            .tool("ovs-ofctl", &["-O", "OpenFlow13", "dump-flows", "br0"])
            .expect_ok();
        flows.contains("CONTROLLER:65535").then_some(flows)
    });
    assert_eq!(flows.matches("actions=").count(), 1, "{flows}");

    inject(&switch, "p1", &frame(1));
    two.hears(PACKET_IN);
    assert!(!one.has_heard(PACKET_IN), "slaves are told of ports only");
    assert_eq!(one.asks_for(EQUAL, 0), role(EQUAL, 6));
    roles(["other", "master"]);
    inject(&switch, "p1", &frame(2));
    one.hears(PACKET_IN);
    two.hears(PACKET_IN);
    assert_eq!(two.asks_for(SLAVE, 7), role(SLAVE, 7));
    roles(["other", "slave"]);
}

#[test]
fn a_controller_whose_packets_are_limited_hears_of_so_many_and_its_row_counts_all() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    let controller = Controller::start(0);
    switch.vsctl(&format!(
        "--id=@c create controller target=\"tcp:127.0.0.1:{}\" controller_rate_limit=100 controller_burst_limit=25 \
         -- set bridge br0 controller=[@c] fail_mode=secure",
        controller.port
    ));
    wait_connected(&switch, true);
    controller.ask_for_misses();
    eventually("the rule is there", || {
        inject(&switch, "p1", &frame(0));
        controller.has_heard(PACKET_IN).then_some(())
    });
    let status = || {
        let status = switch.vsctl("--bare --columns=status list controller");
        let count = |name: &str| -> Option<usize> {
            let (_, behind) = status.split_once(&format!("packet-in-{name}="))?;
            behind.split_whitespace().next()?.parse().ok()
        };
        let all = ["bypassed", "queued", "dropped", "backlog"];
        let kind = |kind: &str| all.map(|what| count(&format!("{kind}-{what}")));
        (kind("miss"), kind("action"))
    };
    let (Some(before), (_, action)) = (eventually("it counts", || Some(status().0[0])), status()) else {
        panic!("without a limit there would be no counts");
    };
    assert_eq!(action, [Some(0); 4], "no action sends anything to the controller");
    let many = 200;
    for _ in 0..many {
        inject(&switch, "p1", &frame(1));
    }
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let (miss, _) = status();
        let [Some(bypassed), Some(queued), Some(dropped), Some(backlog)] = miss else {
            panic!("{miss:?}");
        };
        // Each was sent at once, or queued and sent later or dropped.
        if bypassed + queued >= before + many && backlog == 0 {
            assert!(dropped <= queued);
            assert_eq!(controller.told(), bypassed + queued - dropped);
            break;
        }
        assert!(Instant::now() < end, "{miss:?}");
        sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_meter_polices_what_controllers_are_told_of() {
    if let Some(reason) = testkit::missing(false, &TOOLS) {
        skip!("{reason}");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    let controller = Controller::start(0);
    switch.vsctl(&format!(
        "set-fail-mode br0 secure -- set-controller br0 tcp:127.0.0.1:{}",
        controller.port
    ));
    wait_connected(&switch, true);
    let ofctl = |args: &[&str]| {
        let words = [&["-O", "OpenFlow13"], args].concat();
        switch.tool("ovs-ofctl", &words).expect_ok()
    };
    ofctl(&[
        "add-meter",
        "br0",
        "meter=controller,pktps,burst,stats,bands=type=drop,rate=1,burst_size=3",
    ]);
    ofctl(&[
        "add-meter",
        "br0",
        "meter=slowpath,pktps,stats,bands=type=drop,rate=100000",
    ]);
    controller.ask_for_misses();
    eventually("the rule is there", || {
        inject(&switch, "p1", &frame(0));
        controller.has_heard(PACKET_IN).then_some(())
    });
    for _ in 0..60 {
        inject(&switch, "p1", &frame(1));
    }
    let stats = ofctl(&["meter-stats", "br0", "meter=controller"]);
    let count = |name: &str| -> usize {
        let (_, behind) = stats.split_once(name).unwrap_or_else(|| panic!("{name} in {stats}"));
        let digits = behind.split(|c: char| !c.is_ascii_digit()).next();
        digits.and_then(|digits| digits.parse().ok()).unwrap_or_default()
    };
    let (all, dropped) = (count("packet_in_count:"), count("0: packet_count:"));
    assert!(all > 60 && dropped > 40 && dropped < all, "{stats}");
    eventually("the rest has been told", || {
        (controller.told() >= all - dropped).then_some(())
    });
    assert_eq!(controller.told(), all - dropped);
}
