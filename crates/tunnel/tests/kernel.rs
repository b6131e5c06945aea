//! The kernel answers what is asked of neighbours, and says which outer packets are too big.

use std::net::IpAddr;
use testkit::{Netns, eventually, skip};
use tunnel::format::{Body, Encapsulation, FlowLabel, Inner, Outer, Packet, SourcePorts};
use tunnel::neighbour::{BridgeName, Heard, HeardBy, Request, Resolution, Table};
use tunnel::path_mtu::{self, TooBig, sent};
use tunnel::vport::{Config, Type, parse};
use wire::MacAddr;

const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const THEIRS: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A namespace whose device `v0` is linked to `v1` of another, which has these addresses.
fn linked(addresses: &[&str]) -> (Netns, Netns) {
    let (here, other) = (Netns::new("underlay"), Netns::new("underlay-far"));
    here.veth("v0", &other, "v1");
    here.ip(&format!("link set v0 address {OURS}"));
    other.ip(&format!("link set v1 address {THEIRS}"));
    allow_ipv6(&other, "v1");
    addresses.iter().for_each(|address| other.address("v1", address));
    (here, other)
}

fn allow_ipv6(ns: &Netns, device: &str) {
    let script = format!("echo 0 > /proc/sys/net/ipv6/conf/{device}/disable_ipv6");
    ns.run(&["sh", "-c", &script]);
}

/// A socket that receives the frames of a device, and sends out of it.
fn socket(ns: &Netns, device: &str) -> sys::PacketSocket {
    ns.enter(|| {
        let socket = sys::PacketSocket::new().unwrap();
        let index = rustix::net::netdevice::name_to_index(&socket, device).unwrap();
        socket.bind(index, true).unwrap();
        socket.ignore_outgoing().unwrap();
        socket
    })
}

/// Sends a frame again and again until `read` finds an answer among the received ones.
fn exchange<T>(socket: &sys::PacketSocket, what: &str, frame: &[u8], mut read: impl FnMut(&[u8]) -> Option<T>) -> T {
    eventually(what, || {
        rustix::net::send(socket, frame, rustix::net::SendFlags::empty()).unwrap();
        let mut buffer = [0; 2000];
        let receive = |buffer: &mut [u8]| rustix::net::recv(socket, buffer, rustix::net::RecvFlags::DONTWAIT);
        while let Ok((len, _)) = receive(&mut buffer[..]) {
            if let Some(answer) = read(&buffer[..len]) {
                return Some(answer);
            }
        }
        None
    })
}

#[test]
fn a_host_says_its_ethernet_address() {
    skip!(unless root, "ip");
    let (here, _other) = linked(&["192.0.2.2/24", "fd00::2/64"]);
    let socket = socket(&here, "v0");
    let (mut table, bridge) = (Table::default(), BridgeName::new("br0"));
    let now = nanos::Nanos::from_secs(1);
    for (own, address) in [("192.0.2.1", "192.0.2.2"), ("fd00::1", "fd00::2")] {
        let (own, address) = (ip(own), ip(address));
        let request = Request { bridge, address };
        assert_eq!(table.resolve(bridge, address, now), Resolution::Ask(request));
        let frame = request.frame(OURS, own).unwrap();
        let heard = exchange(&socket, "an answer", &frame, |frame| {
            Heard::from_frame(frame).filter(|heard| heard.by == HeardBy::Host(own))
        });
        assert_eq!((heard.address, heard.mac), (address, THEIRS));
        assert_eq!(table.learn(bridge, &heard, &[own], now), Ok(true));
        assert_eq!(table.neighbours().get(bridge, address), Some(THEIRS));
    }
}

/// VXLAN to this address, and one of its packets of 1450 bytes, in a frame to the router.
fn vxlan(source: IpAddr, destination: IpAddr) -> (Config, Vec<u8>) {
    let options = [
        ("remote_ip".to_owned(), destination.to_string()),
        ("key".to_owned(), "7".to_owned()),
    ];
    let config = parse("t", Type::Vxlan, &options.into()).config.unwrap();
    let outer = Outer {
        ethernet: Some((THEIRS, OURS)),
        src: source,
        dst: destination,
        tos: 0,
        ttl: 64,
        df: true,
        label: FlowLabel::Zero,
        ports: SourcePorts::default(),
    };
    let body = Body::Vxlan {
        port: 4789,
        csum: false,
        id: 7,
        gbp: None,
        gpe: false,
    };
    let template = Encapsulation::new(&outer, &body, Inner::Ethernet).unwrap();
    let mut frame = vec![0; 14 + 1450];
    template.write(&mut frame, &Packet::default()).unwrap();
    (config, frame)
}

#[test]
fn a_router_says_how_large_outer_packets_may_be() {
    skip!(unless root, "ip");
    let (here, router) = linked(&["192.0.2.254/24", "fd00:1::fe/64"]);
    // The link behind the router takes packets of 1400 bytes.
    router.veth("v2", &here, "v3");
    router.ip("link set v2 mtu 1400");
    allow_ipv6(&router, "v2");
    router.address("v2", "198.51.100.254/24");
    router.address("v2", "fd00:2::fe/64");
    let forward = "for f in ipv4/ip_forward ipv6/conf/all/forwarding; do echo 1 > /proc/sys/net/$f; done";
    router.run(&["sh", "-c", forward]);
    router.ip(&format!("neigh add 192.0.2.1 lladdr {OURS} dev v1"));
    router.ip(&format!("neigh add fd00:1::1 lladdr {OURS} dev v1"));
    let socket = socket(&here, "v0");
    let mut table = path_mtu::Table::default();
    for (source, destination) in [("192.0.2.1", "198.51.100.2"), ("fd00:1::1", "fd00:2::2")] {
        let destination = ip(destination);
        let (config, frame) = vxlan(ip(source), destination);
        exchange(&socket, "an error of the router", &frame, |frame| {
            let error = TooBig::parse(frame.get(14..)?).ok()?;
            assert_eq!((error.mtu, error.quoted.len), (1400, 1450));
            let to = sent(&config, SourcePorts::default(), &error.quoted)?;
            assert_eq!(table.learn(to, error.mtu, nanos::Nanos::from_secs(1)), [destination]);
            Some(())
        });
        assert_eq!(table.get(destination), Some(1400));
    }
}
