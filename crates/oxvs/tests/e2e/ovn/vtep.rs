//! A hardware VTEP in a network of OVN, made by `ovn-controller-vtep`: the chassis speak Geneve
//! with each other and VXLAN with it.

use super::{Network, Plan, kinds, needs_ovn, plug};
use crate::vtep::Emulator;
use testkit::{Capture, Daemon, Netns, eventually, ping, skip};

#[test]
fn a_hardware_vtep_and_a_logical_switch_are_one_network() {
    skip!(unless long);
    needs_ovn!("ovn-controller-vtep", "vtep-ctl", "ovs-ofctl", "ovs-appctl");
    if let Some(reason) = Emulator::missing() {
        skip!("{reason}");
    }
    let network = Network::of(Plan {
        kinds: &kinds(2),
        encapsulation: "geneve,vxlan",
        ..Plan::default()
    });
    let (place, host) = (Netns::new("vtep"), Netns::new("px"));
    plug(network.wire.as_ref().unwrap(), "vtep", &place, "under");
    place.address("under", "172.31.9.99/24");
    place.veth("p0", &host, "eth0");
    host.ip("link set eth0 mtu 1400");
    host.address("eth0", "10.1.0.99/24");
    let vtep = Emulator::start(&place, "172.31.9.99");
    let sandbox = &vtep.switch.sandbox;
    let command = [
        "env".to_owned(),
        format!("OVN_RUNDIR={}", sandbox.dir().display()),
        "ovn-controller-vtep".to_owned(),
        format!("--vtep-db={}", sandbox.db_remote()),
        format!("--ovnsb-db={}", network.central.remote("sb")),
    ];
    let _controller = Daemon::start("ovn-controller-vtep", &command, sandbox);
    vtep.ctl("add-ls outside -- bind-ls br0 p0 0 outside");
    network.configure(
        "lsp-add ls0 vtep -- lsp-set-type vtep vtep -- lsp-set-addresses vtep unknown \
         -- lsp-set-options vtep vtep-physical-switch=br0 vtep-logical-switch=outside",
    );
    let capture = Capture::start(&place, "under", "udp port 4789");
    let between = Capture::start(&network.chassis[1].ns, "under", "udp port 6081");
    for (from, to) in [(&host, "10.1.0.11"), (&host, "10.1.0.12"), (&network.a, "10.1.0.99")] {
        eventually(to, || (ping(from, to, 1).received == 1).then_some(()));
        network.reaches(from, to);
    }
    network.reaches(&network.a, "10.1.0.12");
    assert!(capture.finish().len() >= 12 && between.finish().len() >= 6);
    assert_eq!(network.page(&host, "10.1.0.12:8080"), "200");
    network.has_no_errors();
}
