//! The control plane's interface: states, names, links that come and go, and leftovers of a killed
//! process.

use crate::lab::{Lab, Queues};
use netdev::{Frame, Isolation, Kind, Netdev, Spec, System, Tap};
use std::process::{Command, Stdio};
use std::sync::Arc;
use testkit::{Netns, eventually, skip};

#[test]
fn a_device_that_does_not_exist_is_refused_in_the_words_users_know() {
    let error = netdev::open(&Spec::System {
        name: "oxnosuch".to_owned(),
    })
    .err()
    .unwrap();
    assert_eq!(
        error.to_string(),
        "could not open network device oxnosuch (No such device)"
    );
    for name in ["", "0123456789abcdef", "a/b", "a b", ".."] {
        let error = netdev::open(&Spec::System { name: name.to_owned() }).err().unwrap();
        assert_eq!(
            error.to_string(),
            format!("could not open network device {name} (Invalid argument)")
        );
    }
}

#[test]
fn the_state_of_a_device_is_the_kernels() {
    skip!(unless root, "ip");
    let lab = Lab::new();
    let device = lab
        .sw
        .enter(|| {
            netdev::open(&Spec::System {
                name: "oxp1".to_owned(),
            })
        })
        .unwrap();
    let state = device.state().unwrap();
    assert!(state.admin_up && state.carrier && state.ifindex > 0);
    assert_eq!(
        (state.mtu, state.speed, state.full_duplex),
        (1500, Some(10_000_000_000), Some(true))
    );
    assert_eq!(device.status()["driver_name"], "veth");

    let mac = "02:11:22:33:44:55".parse().unwrap();
    device.set_mac(mac).unwrap();
    device.set_mtu(9000).unwrap();
    device.set_up(false).unwrap();
    let changed = device.state().unwrap();
    assert_eq!(
        (changed.mac, changed.mtu, changed.admin_up, changed.carrier),
        (mac, 9000, false, false)
    );
    assert!(changed.link_resets > state.link_resets);
    assert!(device.set_mtu(100_000).is_err());

    lab.sw.ip("link del oxp1");
    let gone = device.state().unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(rustix::io::Errno::NODEV.raw_os_error()));
}

#[test]
fn internal_ports_exist_as_long_as_they_are_open() {
    skip!(unless root, "ip");
    let sw = Netns::new("sw");
    let open = |name: &str| sw.enter(|| Tap::internal(name, None, 1400));
    let mut port = Queues::open(Arc::new(open("oxi0").unwrap()));
    assert_eq!(port.device.kind(), Kind::Internal);
    assert_eq!(port.device.state().unwrap().mtu, 1400);
    let taken = open("oxi0").err().unwrap();
    assert_eq!(
        taken.to_string(),
        "could not open network device oxi0 (Device or resource busy)"
    );

    let report = port.send(Frame::from_slice(&[0; 60]));
    assert_eq!(
        (report.packets, report.down),
        (0, 1),
        "a port that is down takes nothing"
    );
    port.device.set_up(true).unwrap();
    assert_eq!(port.send(Frame::from_slice(&[0; 60])).packets, 1);
    drop(port);
    assert!(!sw.ip("link show").contains("oxi0"));
}

#[test]
fn a_queue_of_a_deleted_device_ends_in_an_error_or_stays_silent() {
    skip!(unless root, "ip");
    let lab = Lab::new();
    let mut system = lab.port("oxp1");
    lab.sw.ip("link del oxp1");
    let mut frames = Vec::new();
    assert_eq!(system.rx.recv(&mut frames, 32).unwrap(), 0);
    assert_eq!(system.send(Frame::from_slice(&[0; 60])).down, 1);

    let mut tap = lab.sw.enter(|| Queues::open(Arc::new(Tap::open("oxt0").unwrap())));
    lab.sw.ip("link del oxt0");
    assert!(tap.rx.recv(&mut frames, 32).is_err());
    assert_eq!(tap.send(Frame::from_slice(&[0; 60])).down, 1);
}

#[test]
fn the_monitor_tells_when_links_come_change_and_go() {
    skip!(unless root, "ip");
    let lab = Lab::new();
    let mut monitor = lab.monitor();
    assert!(monitor.links().any(|link| link.name == "oxp1" && link.kind == "veth"));
    assert!(monitor.next().is_empty());
    lab.sw.ip("link set oxp1 mtu 1400");
    let changed = eventually("the new MTU is told", || monitor.next().pop());
    assert_eq!(
        (changed.name.as_str(), changed.mtu, changed.up, changed.deleted),
        ("oxp1", 1400, true, false)
    );
    lab.h1.ip("link set eth0 down");
    eventually("the lost carrier is told", || {
        monitor
            .next()
            .iter()
            .any(|event| event.name == "oxp1" && !event.carrier)
            .then_some(())
    });
    lab.sw.ip("link del oxp2");
    eventually("the deletion is told", || {
        monitor
            .next()
            .iter()
            .any(|event| event.name == "oxp2" && event.deleted)
            .then_some(())
    });
    assert!(monitor.links().all(|link| link.name != "oxp2"));
    lab.sw.ip("link add oxnew type veth peer name oxpeer");
    eventually("the new link is told", || {
        monitor
            .next()
            .iter()
            .any(|event| event.name == "oxnew" && !event.deleted)
            .then_some(())
    });
}

#[test]
fn filters_and_qdiscs_of_others_stay() {
    skip!(unless root, "ip", "tc");
    let lab = Lab::new();
    let filters = || lab.sw.run(&["tc", "filter", "show", "dev", "oxp1", "ingress"]);
    let qdiscs = || lab.sw.run(&["tc", "qdisc", "show", "dev", "oxp1"]);
    let open = || lab.port_with("oxp1", Isolation::Filter);

    let before = qdiscs();
    let port = open();
    assert!(filters().contains("oxvs_drop"), "{}", filters());
    assert!(qdiscs().contains("clsact"));
    drop(port);
    assert_eq!(qdiscs(), before, "a qdisc that was made is taken away again");

    for kind in ["clsact", "ingress"] {
        lab.sw.run(&["tc", "qdisc", "add", "dev", "oxp1", kind]);
        let with_foreign = qdiscs();
        let port = open();
        assert!(filters().contains("oxvs_drop"), "{}", filters());
        drop(port);
        assert!(!filters().contains("oxvs_drop"), "{}", filters());
        assert_eq!(qdiscs(), with_foreign);
        lab.sw.run(&["tc", "qdisc", "del", "dev", "oxp1", kind]);
    }
}

/// Not a test of its own: the process that the next one kills.
#[test]
fn holds_a_port_when_asked_to() {
    let (Ok(name), Ok(how)) = (std::env::var("OXVS_TEST_HOLD"), std::env::var("OXVS_TEST_ISOLATION")) else {
        return;
    };
    let isolation = if how == "filter" {
        Isolation::Filter
    } else {
        Isolation::Auto
    };
    let system = System::open(&name, isolation).unwrap();
    // A process that another test starts holds its parent's claims between fork and exec.
    let _receivers = eventually("nobody else has the port", || match system.open_rx() {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => None,
        opened => Some(opened.unwrap()),
    });
    println!("held by {:?}", system.isolated());
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
fn a_killed_process_leaves_no_device_without_a_host_stack() {
    skip!(unless root, "ip", "tc", "ping");
    let lab = Lab::new();
    lab.sw.address("oxp1", "192.168.77.3/24");
    let answers = || testkit::ping(&lab.h1, "192.168.77.3", 1).received == 1;
    let hold = |isolation: &str| {
        let program = std::env::current_exe().unwrap();
        let mut child = Command::new("ip")
            .args(["netns", "exec", lab.sw.name(), program.to_str().unwrap()])
            .args(["--exact", "--nocapture", "devices::holds_a_port_when_asked_to"])
            .env("OXVS_TEST_HOLD", "oxp1")
            .env("OXVS_TEST_ISOLATION", isolation)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        while !told.contains("held by") {
            assert!(
                std::io::BufRead::read_line(&mut out, &mut told).unwrap() > 0,
                "it ended: {told}"
            );
        }
        (child, told)
    };

    let (mut child, told) = hold("auto");
    assert!(!answers());
    child.kill().unwrap();
    child.wait().unwrap();
    if told.contains("Tcx") {
        eventually("the stack has its device back", || answers().then_some(()));
    }

    // A filter stays behind; the next process that has the port takes it over and away.
    let (mut child, told) = hold("filter");
    assert!(told.contains("Filter"), "{told}");
    assert!(!answers());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!answers());
    // The first ping may wait for an address that was asked for before, and is asked for again a
    // second later.
    drop(lab.port("oxp1"));
    eventually("the stack has its device back", || answers().then_some(()));
    drop(lab.port_with("oxp1", Isolation::Filter));
    eventually("the stack has its device back", || answers().then_some(()));

    // Or a process that has no such port gives the device back, once its owner has gone.
    let (mut child, _) = hold("filter");
    assert!(lab.sw.enter(netdev::remove_leftovers).unwrap().is_empty());
    assert!(!answers());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(lab.sw.enter(netdev::remove_leftovers).unwrap(), ["oxp1"]);
    eventually("the stack has its device back", || answers().then_some(()));
}
