//! Other tunnels between chassis than Geneve over IPv4, and several kinds of them.

use super::{Chassis, Network, Plan, kinds, needs_ovn};
use testkit::{Capture, Netns, eventually, ping, skip};

#[test]
fn chassis_are_one_network_through_vxlan_and_through_geneve_over_ipv6() {
    skip!(unless long);
    needs_ovn!();
    for (encapsulation, underlay) in [("geneve", ("fd00:9::", 64)), ("vxlan", ("172.31.9.", 24))] {
        let network = Network::of(Plan {
            kinds: &kinds(2),
            encapsulation,
            underlay,
            ..Plan::default()
        });
        network.works();
        let port = network.chassis[0]
            .switch
            .vsctl("--bare --columns=type,options find interface options:key=flow");
        assert!(
            port.contains(encapsulation) && port.contains(&format!("{}2", underlay.0)),
            "{port}"
        );
        network.has_no_errors();
    }
}

/// Chassis that speak Geneve and VXLAN take Geneve with each other and VXLAN with one that has
/// nothing else, also when that changes while they run.
#[test]
fn vxlan_and_geneve_are_beside_each_other_in_one_network() {
    skip!(unless long);
    needs_ovn!();
    let network = Network::of(Plan {
        kinds: &kinds(3),
        encapsulation: "geneve,vxlan",
        ..Plan::default()
    });
    let last = network.chassis.len() - 1;
    // Hosts: `a` is on the first chassis, `c` on the second, `b` on the last.
    let tunnels = |chassis: &Chassis, kind: &str| {
        let find = format!("--bare --columns=options find interface type={kind} options:key=flow");
        let ends = chassis.switch.vsctl(&find);
        ends.lines().filter(|line| line.contains("remote_ip")).count()
    };
    let have = |wanted: &dyn Fn(usize) -> (usize, usize)| {
        eventually("the chassis have these tunnels", || {
            let mut all = network.chassis.iter().enumerate();
            all.all(|(n, chassis)| (tunnels(chassis, "geneve"), tunnels(chassis, "vxlan")) == wanted(n))
                .then_some(())
        });
    };
    // How many packets of Geneve and of VXLAN the last chassis sends and receives meanwhile.
    let passing = |from: &Netns, to: &str| {
        let start = |port: u16| Capture::start(&network.chassis[last].ns, "under", &format!("udp dst port {port}"));
        let captures = [6081, 4789].map(start);
        network.reaches(from, to);
        captures.map(|capture| capture.finish().len())
    };

    // The first packet through a new tunnel over a bridge asks for the other end, and is lost.
    let works = || {
        for (from, to) in [
            (&network.a, "10.1.0.12"),
            (&network.b, "10.2.0.13"),
            (&network.a, "10.2.0.13"),
        ] {
            eventually(to, || (ping(from, to, 1).received == 1).then_some(()));
        }
        network.works();
    };

    have(&|_| (last, 0));
    works();
    let [geneve, vxlan] = passing(&network.a, "10.1.0.12");
    assert!(geneve >= 6 && vxlan == 0, "{geneve} {vxlan}");

    let speaks = |kinds: &str| {
        network.chassis[last]
            .switch
            .vsctl(&format!("set open_vswitch . external_ids:ovn-encap-type={kinds}"));
        network.central.sync();
    };
    speaks("vxlan");
    have(&|n| if n == last { (0, last) } else { (last - 1, 1) });
    works();
    for (from, to) in [(&network.a, "10.1.0.12"), (&network.b, "10.2.0.13")] {
        let [geneve, vxlan] = passing(from, to);
        assert!(geneve == 0 && vxlan >= 6, "{geneve} {vxlan}");
    }
    let other = Capture::start(&network.chassis[0].ns, "under", "udp dst port 6081");
    network.reaches(&network.a, "10.2.0.13");
    assert!(other.finish().len() >= 6);

    speaks("geneve,vxlan");
    have(&|_| (last, 0));
    works();
    network.has_no_errors();
}
