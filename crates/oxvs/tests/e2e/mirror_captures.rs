//! What a mirror's output shows is, frame for frame, what its ports carry.

use crate::fixture::{in_namespace, stand_in};
use rustix::net::{SendFlags, send};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::time::Duration;
use sys::PacketSocket;
use testkit::{Capture, Netns, Packet, Rng, Tier, Unixctl, Vswitch, mac, skip};

/// Frames of all modes together.
const QUICK: usize = 6_000;
const LONG: usize = 100_000;

/// Frames that a host sends before the switch has to have taken them.
const BURST: usize = 24;

const HOSTS: usize = 5;

/// The UDP port of a frame says which rule it meets; those of other frames are switched as NORMAL.
const TAGGED_BY_RULE: u16 = 7001;
const UNTAGGED_BY_RULE: u16 = 7002;
const RETAGGED_BY_RULE: u16 = 7003;
const DROPPED_BY_RULE: u16 = 7004;
const CHANGED_BY_RULE: u16 = 7005;
const TO_TWO_BY_RULE: u16 = 7006;
const OTHERS: u16 = 8000;
const RULES: [u16; 8] = [
    TAGGED_BY_RULE,
    UNTAGGED_BY_RULE,
    RETAGGED_BY_RULE,
    DROPPED_BY_RULE,
    CHANGED_BY_RULE,
    TO_TWO_BY_RULE,
    OTHERS,
    OTHERS + 1,
];

/// Five hosts in two VLANs and one that watches.
struct Lab {
    hosts: Vec<Netns>,
    sockets: Vec<PacketSocket>,
    watcher: Netns,
    switch: Vswitch,
    counters: Unixctl,
    rng: Rng,
    /// Number of frames sent so far; each frame has its own.
    sent: u64,
    _ns: Netns,
}

/// What a mode sends, and where it was seen.
struct Seen {
    /// What each host sent and received.
    sent: Vec<Vec<Vec<u8>>>,
    received: Vec<Vec<Vec<u8>>>,
    mirrored: Vec<Vec<u8>>,
}

/// The frame's tag, with its TPID in the upper half.
fn tag_of(frame: &[u8]) -> Option<u32> {
    let tag = u32::from_be_bytes(frame[12..16].try_into().unwrap());
    matches!(tag >> 16, 0x8100 | 0x88a8).then_some(tag)
}

/// The frame with another tag, or none.
fn with_tag(frame: &[u8], tag: Option<u32>) -> Vec<u8> {
    let rest = if tag_of(frame).is_some() { 16 } else { 12 };
    let tag = tag.map(u32::to_be_bytes);
    [&frame[..12], tag.as_ref().map_or(&[][..], |tag| tag), &frame[rest..]].concat()
}

/// Its number: its last bytes.
fn number_of(frame: &[u8]) -> u64 {
    u64::from_be_bytes(frame.last_chunk().copied().unwrap())
}

/// The frame as the bridge has it: with the tag of its VLAN.
fn in_bridge(host: usize, frame: &[u8]) -> Vec<u8> {
    let access = match host {
        0 | 1 => Some(10),
        3 => Some(20),
        _ => None,
    };
    let tag = tag_of(frame);
    match (access, tag) {
        (Some(vlan), None) => with_tag(frame, Some(0x8100_0000 | vlan)),
        (Some(vlan), Some(tag)) if tag & 0xfff == 0 => with_tag(frame, Some(tag | vlan)),
        _ => frame.to_vec(),
    }
}

impl Lab {
    fn new(offload: bool) -> Lab {
        let ns = Netns::new("sw");
        let switch = in_namespace(&ns);
        switch.vsctl(&format!(
            "add-br br0 -- set bridge br0 datapath_type=netdev \
             -- set port br0 tag=99 -- set open_vswitch . other_config:kernel-offload={offload}"
        ));
        let vlans = [
            "tag=10",
            "tag=10",
            "trunks=10,20",
            "vlan_mode=native-untagged tag=20 trunks=10,20",
            "trunks=0,10,20,30,40",
        ];
        let hosts: Vec<Netns> = (1..=HOSTS).map(|n| Lab::host(&ns, n)).collect();
        for (n, vlans) in (1..).zip(vlans) {
            switch.vsctl(&format!(
                "add-port br0 h{n} {vlans} -- set interface h{n} ofport_request={n}"
            ));
        }
        let watcher = Lab::host(&ns, HOSTS + 1);
        switch.vsctl(&format!("add-port br0 h{}", HOSTS + 1));
        for rule in [
            "priority=0,actions=NORMAL".to_owned(),
            format!(
                "priority=9,udp,in_port=1,tp_dst={TAGGED_BY_RULE},actions=push_vlan:0x8100,set_field:4126->vlan_vid,output:5"
            ),
            format!(
                "priority=9,udp,in_port=3,vlan_vid=0x1000/0x1000,tp_dst={UNTAGGED_BY_RULE},actions=pop_vlan,output:5"
            ),
            format!(
                "priority=9,udp,in_port=3,vlan_vid=0x1000/0x1000,tp_dst={RETAGGED_BY_RULE},actions=set_field:4136->vlan_vid,output:5"
            ),
            format!("priority=9,udp,tp_dst={DROPPED_BY_RULE},actions=drop"),
            format!("priority=9,udp,tp_dst={CHANGED_BY_RULE},actions=set_field:8->ip_dscp,NORMAL"),
            format!("priority=9,udp,in_port=1,tp_dst={TO_TWO_BY_RULE},actions=output:2,output:5"),
        ] {
            switch
                .tool("ovs-ofctl", &["-O", "OpenFlow13", "add-flow", "br0", &rule])
                .expect_ok();
        }
        let sockets = hosts.iter().map(|host| {
            host.enter(|| {
                let socket = PacketSocket::new().unwrap();
                let index = rustix::net::netdevice::name_to_index(&socket, "eth0").unwrap();
                socket.bind(index, false).unwrap();
                socket
            })
        });
        Lab {
            sockets: sockets.collect(),
            counters: switch.unixctl(),
            rng: Rng::new(23),
            sent: 0,
            hosts,
            watcher,
            switch,
            _ns: ns,
        }
    }

    fn host(ns: &Netns, n: usize) -> Netns {
        let host = Netns::new(&format!("h{n}"));
        host.veth("eth0", ns, &format!("h{n}"));
        host
    }

    /// A frame from one host to another.
    fn frame(&mut self, from: usize) -> Vec<u8> {
        let rng = &mut self.rng;
        // A few go to nobody or to all: they are flooded.
        let to = match rng.below(30) {
            0 => [0xff; 6],
            1 => mac(99),
            _ => mac(1 + rng.below(HOSTS) as u32),
        };
        let packet = Packet::new(mac(1 + from as u32), to);
        let packet = match from {
            2 => packet.vlan(*rng.pick(&[10, 20, 10 | 5 << 13])),
            3 if rng.chance(50) => packet.vlan(10),
            4 if rng.chance(80) => packet.vlan(*rng.pick(&[10, 20, 30])),
            0 if rng.chance(10) => packet.vlan(3 << 13),
            _ => packet,
        };
        self.sent += 1;
        let mut payload = vec![0; rng.below(1200)];
        payload.extend(self.sent.to_be_bytes());
        let address = |n: usize| 1 + n as u8;
        let packet = match rng.below(8) {
            0 => return packet.payload(0x88b5, &payload).bytes(),
            1 => packet.ipv6(Ipv6Addr::from(1 + from as u128), Ipv6Addr::from(99)),
            _ => packet.ipv4(Ipv4Addr::new(10, 0, 0, address(from)), Ipv4Addr::new(10, 0, 0, 99)),
        };
        match rng.below(4) {
            0 => packet.tcp(1000, 80, rng.number() as u8 & 0x3f, &payload),
            1 => packet.echo(7, 1, &payload),
            _ => packet.udp(1000, *rng.pick(&RULES), &payload),
        }
        .bytes()
    }

    /// Packets that the ports have received.
    fn taken(&mut self) -> u64 {
        let shown = self.counters.call("dpctl/show", &["-s"]).unwrap();
        let packets = shown.split("RX packets:").skip(1);
        let packets = packets.map(|rest| rest.split_whitespace().next().unwrap().parse::<u64>().unwrap());
        packets.sum()
    }

    /// Sends so many frames, from random hosts, as fast as the switch takes them.
    fn send(&mut self, frames: usize) {
        let mut left = frames;
        let (mut wanted, mut waited) = (self.taken(), 0);
        while left > 0 {
            for from in 0..HOSTS {
                for _ in 0..self.rng.below(BURST + 1).min(left) {
                    let frame = self.frame(from);
                    while send(self.sockets[from].as_fd(), &frame, SendFlags::empty()).is_err() {
                        std::thread::yield_now();
                    }
                    left -= 1;
                    wanted += 1;
                }
            }
            while self.taken() < wanted {
                waited += 1;
                assert!(waited < 10_000, "frames are lost on their way to the switch");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn seen(&mut self, frames: usize) -> Seen {
        // The hosts' addresses are learned first.
        for host in 0..HOSTS {
            for _ in 0..2 {
                let frame = self.frame(host);
                let _ = send(self.sockets[host].as_fd(), &frame, SendFlags::empty());
            }
        }
        std::thread::sleep(Duration::from_millis(100));
        let start = |ns: &Netns| Capture::start_large(ns, "eth0", "");
        let captures: Vec<Capture> = self.hosts.iter().map(start).collect();
        let mirror = start(&self.watcher);
        self.send(frames);
        // Packets on their way arrive.
        let mut last = 0;
        loop {
            std::thread::sleep(Duration::from_millis(200));
            let now = mirror.frames().len();
            if now == last {
                break;
            }
            last = now;
        }
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        for (host, capture) in captures.into_iter().enumerate() {
            let source = mac(1 + host as u32);
            let (own, others) = capture.finish().into_iter().partition(|frame| frame[6..12] == source);
            sent.push(own);
            received.push(others);
        }
        Seen {
            sent,
            received,
            mirrored: mirror.finish(),
        }
    }

    fn mirror(&self, columns: &str) {
        let ports: String = (1..=HOSTS + 1)
            .map(|n| format!("-- --id=@h{n} get port h{n} "))
            .collect();
        self.switch.vsctl(&format!(
            "{ports}-- --id=@m create mirror name=m {columns} -- set bridge br0 mirrors=@m"
        ));
    }

    /// Whether the kernel has a flow with actions of which some are these.
    fn offloads(&self, actions: &str) -> bool {
        let flows = self.switch.appctl(&["dpctl/dump-flows", "-m"]);
        let mut of_flow = flows.lines().filter(|flow| flow.contains("offloaded:"));
        of_flow.any(|flow| flow.contains(actions))
    }
}

impl Seen {
    /// What the bridge accepts of what these hosts sent.
    fn accepted(&self, hosts: impl IntoIterator<Item = usize>) -> Vec<Vec<u8>> {
        let carried = |host: usize, frame: &Vec<u8>| {
            let vlan = tag_of(frame).map_or(0, |tag| tag & 0xfff);
            match host {
                2 | 3 => [10, 20].contains(&vlan),
                4 => [0, 10, 20, 30].contains(&vlan),
                _ => vlan == 10,
            }
        };
        let of = |host: usize| {
            self.sent[host]
                .iter()
                .map(move |frame| in_bridge(host, frame))
                .map(move |frame| (host, frame))
        };
        let all = hosts.into_iter().flat_map(of);
        all.filter(|(host, frame)| carried(*host, frame))
            .map(|(_, frame)| frame)
            .collect()
    }

    /// What these hosts received.
    fn delivered(&self, host: usize) -> Vec<Vec<u8>> {
        self.received[host].iter().map(|frame| in_bridge(host, frame)).collect()
    }
}

#[track_caller]
fn assert_same(what: &str, mut expected: Vec<Vec<u8>>, mut seen: Vec<Vec<u8>>) {
    expected.sort();
    seen.sort();
    assert!(!expected.is_empty());
    if let Some(n) = (0..expected.len().max(seen.len())).find(|n| expected.get(*n) != seen.get(*n)) {
        let numbers = |frames: &[Vec<u8>]| {
            frames
                .get(n)
                .map(|frame| (number_of(frame), testkit::to_hex(&frame[..60.min(frame.len())])))
        };
        panic!(
            "{what}: of {} and {} frames, expected {:?} and saw {:?}",
            expected.len(),
            seen.len(),
            numbers(&expected),
            numbers(&seen)
        );
    }
}

fn compare(offload: bool) {
    let total = if Tier::of_this_run() == Tier::Long { LONG } else { QUICK };
    let mut lab = Lab::new(offload);
    let of_mode = total / 8;
    let untag = |frames: Vec<Vec<u8>>| frames.iter().map(|frame| with_tag(frame, None)).collect::<Vec<_>>();

    lab.mirror("select_all=true output_port=@h6");
    let seen = lab.seen(of_mode);
    assert_same("all ports", seen.accepted(0..HOSTS), seen.mirrored);
    assert_eq!(
        lab.offloads("push_vlan(vid=10"),
        offload,
        "an untagged packet is mirrored"
    );

    lab.mirror("select_src_port=@h1,@h3 output_port=@h6");
    let seen = lab.seen(of_mode);
    assert_same("two sources", seen.accepted([0, 2]), seen.mirrored);

    lab.mirror("select_dst_port=@h2 output_port=@h6");
    let seen = lab.seen(of_mode);
    assert_same("an access port as destination", seen.delivered(1), seen.mirrored);

    lab.mirror("select_dst_port=@h5 output_port=@h6");
    let seen = lab.seen(of_mode);
    assert_same(
        "a destination that rules push and pop tags for",
        seen.delivered(4),
        seen.mirrored,
    );

    lab.mirror("select_src_port=@h1 select_dst_port=@h5 output_port=@h6");
    let seen = lab.seen(of_mode);
    let source = mac(1);
    let others = seen.delivered(4).into_iter().filter(|frame| frame[6..12] != source);
    let expected = seen.accepted([0]).into_iter().chain(others).collect();
    assert_same("a source and a destination", expected, seen.mirrored);

    lab.mirror("select_all=true select_vlan=20 output_port=@h6");
    let seen = lab.seen(of_mode);
    let accepted = seen.accepted(0..HOSTS).into_iter();
    let expected = accepted.filter(|frame| tag_of(frame).is_some_and(|tag| tag & 0xfff == 20));
    assert_same("a VLAN", expected.collect(), seen.mirrored);

    lab.switch.vsctl("set port h6 tag=77");
    lab.mirror("select_src_port=@h4 output_port=@h6");
    let seen = lab.seen(of_mode);
    assert_same("an access port as output", untag(seen.accepted([3])), seen.mirrored);

    lab.switch.vsctl("clear port h6 tag -- set port h6 trunks=50");
    lab.mirror("select_src_port=@h1,@h3,@h4 output_vlan=50");
    let seen = lab.seen(of_mode);
    let into_vlan = |frame: &Vec<u8>| with_tag(frame, tag_of(frame).map(|tag| tag & !0xfff | 50));
    let expected = seen.accepted([0, 2, 3]).iter().map(into_vlan).collect();
    assert_same("into a VLAN", expected, seen.mirrored);
    assert_eq!(
        lab.offloads("pop_vlan,push_vlan(vid=50"),
        offload,
        "a tagged packet is mirrored"
    );
}

#[test]
fn a_capture_at_the_output_equals_captures_at_the_mirrored_ports() {
    skip!(unless root, "ip", "tcpdump", "ovs-vsctl", "ovs-ofctl");
    compare(false);
}

#[test]
fn a_capture_at_the_output_equals_captures_at_the_mirrored_ports_where_the_kernel_forwards() {
    skip!(unless root, "ip", "tcpdump", "ovs-vsctl", "ovs-ofctl");
    if stand_in() {
        skip!("Open vSwitch has no such offload");
    }
    compare(true);
}
