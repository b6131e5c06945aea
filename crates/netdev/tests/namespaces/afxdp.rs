//! AF_XDP ports between hosts whose devices have the offloads that they have by default.

use crate::lab::{Forwarder, Lab, Queues};
use netdev::{Afxdp, AfxdpConfig, Csum, Frame, Isolation, Kind, Netdev, System, XdpMode};
use std::process::{Command, Stdio};
use std::sync::Arc;
use testkit::{Iperf3, eventually, ping, skip};
use wire::VlanTag;

const MODES: [XdpMode; 3] = [XdpMode::BestEffort, XdpMode::Native, XdpMode::Generic];

fn config(mode: XdpMode) -> AfxdpConfig {
    AfxdpConfig {
        mode,
        ..AfxdpConfig::default()
    }
}

impl Lab {
    fn afxdp(&self, name: &str, config: AfxdpConfig) -> Queues {
        self.sw
            .enter(|| Queues::open(Arc::new(Afxdp::open(name, config).unwrap())))
    }

    /// Whether a program is attached to a device of the switch's.
    fn has_program(&self, name: &str) -> bool {
        self.sw.ip(&format!("link show {name}")).contains("prog/xdp")
    }

    /// A process that another test is just starting holds every descriptor for a moment.
    fn has_no_program(&self, name: &str) {
        eventually("the program is gone", || (!self.has_program(name)).then_some(()));
    }
}

#[test]
fn hosts_reach_each_other_by_afxdp_ports_in_every_mode() {
    skip!(unless root, "ip", "ping", "iperf3");
    for mode in MODES {
        let lab = Lab::new();
        if mode == XdpMode::Generic {
            // The device passes on the host's packets, and that hook leaves segmentation on.
            for host in [&lab.h1, &lab.h2] {
                host.run(&["ip", "link", "set", "eth0", "gso_max_segs", "1"]);
            }
        }
        let ports = ["oxp1", "oxp2"].map(|name| lab.afxdp(name, config(mode)));
        assert_eq!(ports[0].device.kind(), Kind::Afxdp);
        let used = if mode == XdpMode::BestEffort {
            XdpMode::Native
        } else {
            mode
        };
        assert_eq!(ports[0].device.status()["xdp-mode"], used.as_str());
        let forwarder = Forwarder::start(ports);
        assert_eq!(ping(&lab.h1, "192.168.77.2", 3).received, 3, "{mode}");
        // Checksums are left to the hosts' devices, and not filled in by them.
        assert!(Iperf3::tcp_bytes(5 << 20).run(&lab.h1, &lab.h2, "192.168.77.2") > 0.0);
        let forwarded = forwarder.stop();
        let report = forwarded.report;
        assert_eq!((report.errors, report.too_big, report.down), (0, 0, 0), "{mode}");
    }
}

#[test]
fn tcp_runs_between_a_port_with_offloads_and_one_without() {
    skip!(unless root, "ip", "ping", "iperf3");
    let lab = Lab::new();
    let forwarder = Forwarder::start([lab.port("oxp1"), lab.afxdp("oxp2", AfxdpConfig::default())]);
    assert_eq!(ping(&lab.h1, "192.168.77.2", 3).received, 3);
    let bytes = 10 << 20;
    assert!(Iperf3::tcp_bytes(bytes).run(&lab.h1, &lab.h2, "192.168.77.2") > 0.0);
    let back = Iperf3 {
        bytes,
        extra: vec!["-R".to_owned()],
        ..Iperf3::default()
    };
    assert!(back.run(&lab.h1, &lab.h2, "192.168.77.2") > 0.0);
    let forwarded = forwarder.stop();
    assert!(forwarded.large > 10, "{} large frames were cut", forwarded.large);
    assert_eq!((forwarded.report.errors, forwarded.report.too_big), (0, 0));
}

#[test]
fn packets_of_every_length_and_their_tags_cross_unchanged() {
    skip!(unless root, "ip");
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let lab = Lab::new();
        let (mut h1, mut h2) = (lab.host(&lab.h1), lab.host(&lab.h2));
        let forwarder = Forwarder::start(["oxp1", "oxp2"].map(|name| lab.afxdp(name, config(mode))));
        let tag = |tpid, tci| VlanTag { tpid, tci };
        let stacks: [&[VlanTag]; 4] = [
            &[],
            &[tag(0x8100, 10)],
            &[tag(0x8100, 0xe00a)],
            &[tag(0x8100, 1), tag(0x88a8, 2)],
        ];
        for tags in stacks {
            for len in [60, 61, 127, 128, 512, 1400, 1514] {
                let mut packet = vec![0x5a; len];
                packet[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
                let mut frame = Frame::from_slice(&packet);
                if len == 1514 && tags.len() > 1 {
                    continue;
                }
                for &tag in tags {
                    frame.push_vlan(tag).unwrap();
                }
                let bytes = frame.data().to_vec();
                assert_eq!(h1.send(frame).packets, 1);
                let found = h2.wait_for(|frame| frame.data()[..6] == bytes[..6]);
                let found = found.unwrap_or_else(|| panic!("{mode}: {len} bytes behind {tags:?} did not arrive"));
                assert_eq!(found.data(), bytes, "{mode}: {len} bytes behind {tags:?}");
            }
        }
        assert_eq!(forwarder.stop().report.errors, 0);
    }
}

#[test]
fn packets_of_several_buffers_cross_where_the_mtu_is_large() {
    skip!(unless root, "ip", "ping");
    let lab = Lab::new();
    for port in ["oxp1", "oxp2"] {
        lab.sw.ip(&format!("link set {port} mtu 9000"));
    }
    let ports = ["oxp1", "oxp2"].map(|name| lab.afxdp(name, AfxdpConfig::default()));
    for host in [&lab.h1, &lab.h2] {
        host.ip("link set eth0 mtu 9000");
    }
    let (mut h1, mut h2) = (lab.host(&lab.h1), lab.host(&lab.h2));
    let forwarder = Forwarder::start(ports);
    for len in [2000, 4096, 5000, 9014] {
        let mut packet: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
        packet[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        assert_eq!(h1.send(Frame::from_slice(&packet)).packets, 1);
        let found = h2.wait_for(|frame| frame.data()[..6] == packet[..6]);
        let found = found.unwrap_or_else(|| panic!("{len} bytes did not arrive"));
        assert!(found.data() == packet, "{len} bytes were changed");
    }
    forwarder.stop();
}

#[test]
fn what_the_device_cannot_take_is_counted_by_cause() {
    skip!(unless root, "ip");
    let lab = Lab::new();
    let mut port = lab.afxdp("oxp1", AfxdpConfig::default());
    let packet = |len| Frame::from_slice(&[[0x02; 12].as_slice(), &[0x88, 0xb5], &vec![0; len]].concat());
    assert_eq!(port.send(packet(1500)).packets, 1);
    assert_eq!(port.send(packet(1501)).too_big, 1);
    let mut unfinishable = packet(100);
    unfinishable.offload.csum = Csum::Partial { start: 200, offset: 0 };
    assert_eq!(port.send(unfinishable).errors, 1);
    port.device.set_up(false).unwrap();
    for _ in 0..3 {
        let report = port.tx.send(&mut vec![packet(60), packet(60)]);
        assert_eq!((report.packets, report.down), (0, 2));
    }
    port.device.set_up(true).unwrap();
    eventually("it sends again", || (port.send(packet(60)).packets == 1).then_some(()));
    lab.sw.ip("link del oxp1");
    eventually("the device is gone", || (port.send(packet(60)).down == 1).then_some(()));
}

#[test]
fn more_frames_than_the_ring_holds_are_sent_in_turn() {
    skip!(unless root, "ip");
    let lab = Lab::new();
    let mut port = lab.afxdp("oxp1", AfxdpConfig::default());
    let mut frames: Vec<Frame> = (0..5000_u32)
        .map(|n| {
            let mut packet = [0x02; 60];
            packet[20..24].copy_from_slice(&n.to_be_bytes());
            Frame::from_slice(&packet)
        })
        .collect();
    let report = port.tx.send(&mut frames);
    assert_eq!((report.packets, report.bytes, report.dropped), (5000, 300_000, 0));
}

#[test]
fn the_program_goes_with_the_port_and_the_stack_has_its_device_back() {
    skip!(unless root, "ip", "ping");
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let lab = Lab::new();
        lab.sw.address("oxp1", "192.168.77.3/24");
        let answers = || ping(&lab.h1, "192.168.77.3", 1).received == 1;
        assert!(answers());
        for _ in 0..3 {
            let port = lab.afxdp("oxp1", config(mode));
            assert!(lab.has_program("oxp1"));
            assert!(!answers(), "{mode}");
            drop(port);
            lab.has_no_program("oxp1");
        }
        eventually("the stack has its device back", || answers().then_some(()));
    }
}

/// Not a test of its own: the process that the next one kills.
#[test]
fn holds_an_afxdp_port_when_asked_to() {
    let (Ok(name), Ok(mode)) = (std::env::var("OXVS_TEST_HOLD_XDP"), std::env::var("OXVS_TEST_XDP_MODE")) else {
        return;
    };
    let _port = Queues::open(Arc::new(Afxdp::open(&name, config(mode.parse().unwrap())).unwrap()));
    println!("held");
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
fn a_killed_process_leaves_no_program() {
    skip!(unless root, "ip");
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let lab = Lab::new();
        let program = std::env::current_exe().unwrap();
        let mut child = Command::new("ip")
            .args(["netns", "exec", lab.sw.name(), program.to_str().unwrap()])
            .args(["--exact", "--nocapture", "afxdp::holds_an_afxdp_port_when_asked_to"])
            .env("OXVS_TEST_HOLD_XDP", "oxp1")
            .env("OXVS_TEST_XDP_MODE", mode.as_str())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut told = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        while !told.contains("held") {
            let read = std::io::BufRead::read_line(&mut out, &mut told).unwrap();
            assert!(read > 0, "it ended: {told}");
        }
        assert!(lab.has_program("oxp1"));
        child.kill().unwrap();
        child.wait().unwrap();
        lab.has_no_program("oxp1");
        drop(lab.afxdp("oxp1", config(mode)));
    }
}

#[test]
fn several_queues_are_several_receive_queues() {
    skip!(unless root, "ip", "ethtool", "ping");
    let lab = Lab::new();
    lab.sw
        .ip("link add oxq1 numrxqueues 2 numtxqueues 2 type veth peer name oxq2 numrxqueues 2 numtxqueues 2");
    lab.sw.run(&["ethtool", "-L", "oxq1", "rx", "2", "tx", "2"]);
    for name in ["oxq1", "oxq2"] {
        lab.sw.ip(&format!("link set {name} up"));
    }
    let two = AfxdpConfig {
        queues: 2,
        ..AfxdpConfig::default()
    };
    let device = lab.sw.enter(|| Afxdp::open("oxq1", two).unwrap());
    let mut queues = lab.sw.enter(|| device.open_rx().unwrap());
    assert_eq!(queues.len(), 2);
    assert!(
        !device
            .status()
            .get("warning")
            .is_some_and(|warning| warning.contains("queues"))
    );
    let mut other = lab
        .sw
        .enter(|| Queues::open(Arc::new(System::open("oxq2", Isolation::Off).unwrap())));
    let mut packet = [0x02; 60];
    packet[12..14].copy_from_slice(&[0x88, 0xb5]);
    assert_eq!(other.send(Frame::from_slice(&packet)).packets, 1);
    let mut frames = Vec::new();
    eventually("it comes in by one of them", || {
        for queue in &mut queues {
            queue.recv(&mut frames, 32).unwrap();
        }
        frames.iter().any(|frame| frame.data() == packet).then_some(())
    });
    // Each transmit handle uses another queue; packets from either arrive.
    for _ in 0..2 {
        let report = device.open_tx().unwrap().send(&mut vec![Frame::from_slice(&packet)]);
        assert_eq!(report.packets, 1);
        assert!(other.wait_for(|frame| frame.data() == packet).is_some());
    }

    drop(queues);
    let one = lab.sw.enter(|| Afxdp::open("oxq1", AfxdpConfig::default()).unwrap());
    let warning = &one.status()["warning"];
    assert!(warning.contains("options:n_rxq=2 uses all"), "{warning}");
}

#[test]
fn what_cannot_be_had_is_refused_in_words_that_say_what_to_do() {
    skip!(unless root, "ip");
    let lab = Lab::new();
    let refused = |config: AfxdpConfig| {
        let device = lab.sw.enter(|| Afxdp::open("oxp1", config).unwrap());
        let error = lab.sw.enter(|| device.open_rx().err().unwrap().to_string());
        lab.has_no_program("oxp1");
        error
    };
    let error = refused(config(XdpMode::NativeZeroCopy));
    assert!(error.contains("use options:xdp-mode=native or best-effort"), "{error}");
    let many = AfxdpConfig {
        queues: 9,
        ..config(XdpMode::Native)
    };
    assert!(refused(many).contains("ethtool -L"), "{}", refused(many));
    let beyond = AfxdpConfig {
        first_queue: 500,
        ..config(XdpMode::Generic)
    };
    assert!(refused(beyond).contains("options:start-qid=500"), "{}", refused(beyond));

    let port = lab.afxdp("oxp1", AfxdpConfig::default());
    let device = lab.sw.enter(|| Afxdp::open("oxp1", AfxdpConfig::default()).unwrap());
    let error = lab.sw.enter(|| device.open_rx().err().unwrap().to_string());
    assert!(error.contains("another XDP program"), "{error}");
    drop(port);
    assert!(lab.sw.enter(|| device.open_rx().is_ok()));
}
