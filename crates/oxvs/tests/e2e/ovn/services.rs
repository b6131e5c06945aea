//! OVN's services at ports: what `ovn-controller` answers itself (packets that wait for it and are
//! resumed), and what ports may send, how much, and with which DSCP.

use super::{Network, needs_ovn};
use std::net::UdpSocket;
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

/// A DHCPDISCOVER (RFC 2131 §2) of the host `pa`.
fn discover() -> Vec<u8> {
    let mut message = vec![0; 236];
    message[..4].copy_from_slice(&[1, 1, 6, 0]);
    message[4..8].copy_from_slice(b"oxvs");
    message[28..34].copy_from_slice(&[0x50, 0x54, 0, 0, 0, 1]);
    message.extend([0x63, 0x82, 0x53, 0x63, 53, 1, 1, 255]);
    message
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
    let offer = network.a.enter(|| {
        let socket = UdpSocket::bind("0.0.0.0:68").unwrap();
        socket.set_broadcast(true).unwrap();
        ask(&socket, "255.255.255.255:67", &discover())
    });
    assert_eq!((&offer[4..8], &offer[16..20]), (&b"oxvs"[..], &[10, 1, 0, 11][..]));
    assert_eq!(offer[240..243], [53, 1, 2], "an offer");

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
    network.has_no_errors();
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
    network.configure("qos-del ls0");
    // 100 kbit/s with a burst as large: some of 40 packets of 1000 bytes, and not all.
    limit(&network, &["rate=100", "burst=100"]);
    let words = ["ping", "-c", "40", "-i", "0.002", "-s", "972", "-W", "1", "10.1.0.12"];
    let shown = network.a.try_run(&words, &[]).stdout;
    let received = shown.split(" received").next().unwrap();
    let received: u32 = received.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((8..40).contains(&received), "{shown}");
    network.configure("qos-del ls0");
    network.reaches(&network.a, "10.1.0.12");
    network.has_no_errors();
}
