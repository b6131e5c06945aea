//! OVN's services at ports: what `ovn-controller` answers itself (packets that wait for it and are
//! resumed), and what ports may send, how much, and with which DSCP.

use super::{Network, allow_ipv6, needs_ovn};
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;
use testkit::{Capture, eventually, ping};

/// Asks until there is an answer.
pub(super) fn ask(socket: &UdpSocket, to: &str, question: &[u8]) -> Vec<u8> {
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    eventually("there is an answer", || {
        socket.send_to(question, to).unwrap();
        let mut answer = [0; 1500];
        let len = socket.recv(&mut answer).ok()?;
        Some(answer[..len].to_vec())
    })
}

/// A message of the host `pa` as a client of DHCP (RFC 2131 §2): its type, and further options.
fn dhcp(kind: u8, options: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 236];
    message[..4].copy_from_slice(&[1, 1, 6, 0]);
    message[4..8].copy_from_slice(&[b'o', b'x', b'v', kind]);
    message[28..34].copy_from_slice(&[0x50, 0x54, 0, 0, 0, 1]);
    message.extend([0x63, 0x82, 0x53, 0x63, 53, 1, kind]);
    message.extend(options);
    message.push(255);
    message
}

/// A request (RFC 2131 §4.3.2) for the address that the server has offered.
fn request(address: [u8; 4]) -> Vec<u8> {
    let mut options = vec![50, 4];
    options.extend(address);
    options.extend([54, 4, 10, 1, 0, 1]);
    dhcp(3, &options)
}

#[test]
fn the_controller_answers_for_dhcp_and_dns() {
    needs_ovn!();
    let network = Network::new(1);
    network.configure(
        "create dhcp_options cidr=10.1.0.0/24 \
         options:server_id=10.1.0.1 options:server_mac=00:00:00:00:ff:01 options:lease_time=3600 options:router=10.1.0.1",
    );
    let options = network
        .central
        .nb("--bare --columns=_uuid find dhcp_options cidr=10.1.0.0/24");
    network.configure(&format!("lsp-set-dhcpv4-options pa {}", options.trim()));
    for (question, answered, address) in [
        (dhcp(1, &[]), 2, [10, 1, 0, 11]),
        (request([10, 1, 0, 11]), 5, [10, 1, 0, 11]),
        (request([10, 1, 0, 99]), 6, [0; 4]),
    ] {
        let answer = network.a.enter(|| {
            // A process that another test is starting can have a copy of the one before.
            let socket = eventually("the port is free", || UdpSocket::bind("0.0.0.0:68").ok());
            socket.set_broadcast(true).unwrap();
            ask(&socket, "255.255.255.255:67", &question)
        });
        assert_eq!((&answer[4..8], &answer[16..20]), (&question[4..8], &address[..]));
        // DHCPOFFER, DHCPACK, DHCPNAK.
        assert_eq!(answer[240..243], [53, 1, answered]);
        let lease = [51, 4, 0, 0, 14, 16];
        assert_eq!(
            answer.windows(6).any(|option| option == lease),
            answered != 6,
            "{answer:x?}"
        );
    }

    network.has_counted("put_dhcp_opts(");

    let records = r#"records={"www.oxvs.test"="10.1.0.12"}"#;
    let created = network.central.tool("ovn-nbctl", "nb", &["create", "dns", records]);
    created.expect_ok();
    let dns = network.central.nb("--bare --columns=_uuid list dns");
    network.configure(&format!("set logical_switch ls0 dns_records={}", dns.trim()));
    let mut question = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    question.extend(b"\x03www\x04oxvs\x04test\x00\x00\x01\x00\x01");
    let answer = network.a.enter(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        ask(&socket, "10.2.0.13:53", &question)
    });
    assert_eq!(answer[..2], [0x12, 0x34]);
    assert!(answer.ends_with(&[0, 4, 10, 1, 0, 12]), "{answer:x?}");
    network.has_counted("dns_lookup(");
    network.has_no_errors();
}

#[test]
fn the_switch_answers_for_known_addresses() {
    needs_ovn!();
    let network = Network::new(2);
    network.with_ipv6();
    network.set_ipv6();
    allow_ipv6(&network.a, "eth0");
    network.a.address("eth0", "fd01::11/64");
    let asked = "arp[7]==1 or (icmp6 and ip6[40]==135)";
    for (address, flow) in [
        ("10.1.0.12", "arp.tpa == 10.1.0.12"),
        ("fd01::12", "nd.target == fd01::12"),
    ] {
        let first = &network.chassis[0];
        let before = first.counted(&network.central, flow);
        let capture = Capture::start(&network.b, "eth0", asked);
        network.a.ip("neigh flush dev eth0");
        eventually(address, || (ping(&network.a, address, 1).received == 1).then_some(()));
        network.reaches(&network.a, address);
        eventually("the rule has counted the question", || {
            (first.counted(&network.central, flow) > before).then_some(())
        });
        let frames = capture.finish();
        let of_a = |frame: &&Vec<u8>| frame[6..12] == [0x50, 0x54, 0, 0, 0, 1];
        // OVN floods questions for addresses that it does not know: the hosts' own of the link.
        let reached: Vec<_> = frames
            .iter()
            .filter(of_a)
            .filter(|frame| is_about(frame, address))
            .collect();
        assert!(reached.is_empty(), "{reached:x?}");
    }
    network.has_no_errors();
}

/// Whether a question for a neighbour is for this address.
fn is_about(frame: &[u8], address: &str) -> bool {
    match address.parse().unwrap() {
        IpAddr::V4(address) => frame.get(38..42) == Some(&address.octets()[..]),
        IpAddr::V6(address) => frame.get(62..78) == Some(&address.octets()[..]),
    }
}

#[test]
fn ports_send_from_their_own_addresses_only_while_they_are_enabled() {
    needs_ovn!();
    let network = Network::new(1);
    network.configure("lsp-set-port-security pa \"50:54:00:00:00:01 10.1.0.11\"");
    network.reaches(&network.a, "10.1.0.12");
    network.a.ip("addr add 10.1.0.77/24 dev eth0");
    let from = |source: &str| {
        let words = ["ping", "-c", "1", "-W", "1", "-I", source, "10.1.0.12"];
        network.a.try_run(&words, &[]).stdout.contains(" 1 received")
    };
    assert!(from("10.1.0.11") && !from("10.1.0.77"));
    network.configure("lsp-set-port-security pa");
    assert!(from("10.1.0.77"));
    network.configure("lsp-set-port-security pa \"50:54:00:00:00:09 10.1.0.11\"");
    assert!(!from("10.1.0.11"));
    network.configure("lsp-set-port-security pa -- lsp-set-enabled pa disabled");
    assert_eq!(ping(&network.a, "10.1.0.12", 1).received, 0);
    network.configure("lsp-set-enabled pa enabled");
    network.reaches(&network.a, "10.1.0.12");
    // A port that goes, and comes back.
    network.configure("lsp-del pa");
    assert_eq!(ping(&network.a, "10.1.0.12", 1).received, 0);
    network.configure("lsp-add ls0 pa -- lsp-set-addresses pa \"50:54:00:00:00:01 10.1.0.11\"");
    network.central.nb("wait-until logical_switch_port pa up=true");
    network.reaches(&network.a, "10.1.0.12");
    network.has_no_errors();
}

/// What ICMP of the host `pa` gets.
fn limit(network: &Network, what: &[&str]) {
    let words = ["qos-add", "ls0", "from-lport", "100", "inport==\"pa\" && icmp4"];
    let added = network.central.tool("ovn-nbctl", "nb", &[&words[..], what].concat());
    added.expect_ok();
    network.central.sync();
}

#[test]
fn a_class_of_packets_has_its_dscp_and_its_rate() {
    needs_ovn!();
    let network = Network::new(1);
    let capture = Capture::start(&network.b, "eth0", "icmp");
    limit(&network, &["dscp=46"]);
    network.reaches(&network.a, "10.1.0.12");
    let frames = capture.finish();
    assert!(frames.iter().any(|frame| frame[15] >> 2 == 46), "{frames:x?}");
    network.has_counted("ip.dscp = 46");
    network.configure("qos-del ls0");
    // 100 kbit/s with a burst as large: some of 40 packets of 1000 bytes, and not all.
    limit(&network, &["rate=100", "burst=100"]);
    let words = ["ping", "-c", "40", "-i", "0.002", "-s", "972", "-W", "1", "10.1.0.12"];
    let shown = network.a.try_run(&words, &[]).stdout;
    let received = shown.split(" received").next().unwrap();
    let received: u32 = received.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((8..40).contains(&received), "{shown}");
    network.has_counted("set_meter(");
    network.configure("qos-del ls0");
    network.reaches(&network.a, "10.1.0.12");
    network.has_no_errors();
}
