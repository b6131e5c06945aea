//! Packets between chassis that the kernel carries.

use super::{Chassis, Network, Plan, needs_ovn};
use crate::fixture::{cannot_offload, offloaded, offloads_nothing, packets_of, seen_by_workers};
use testkit::{Iperf3, Netns, eventually, ping};

impl Chassis {
    /// Packets that its tunnel has received and sent.
    fn tunnelled(&self) -> u64 {
        let find = "--bare --columns=name find interface type=geneve";
        let [rx, tx] = packets_of(&self.switch, "br-int", self.switch.vsctl(find).trim());
        rx + tx
    }
}

/// Packets of a transfer between chassis, and those of them that workers had, of both chassis.
fn transfer(network: &Network, from: &Netns, to: &Netns, address: &str) -> (u64, u64) {
    let counts = || {
        let of = |chassis: &Chassis| (chassis.tunnelled(), seen_by_workers(&chassis.switch));
        let counts = network.chassis.iter().map(of);
        counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    };
    let before = counts();
    let speed = Iperf3::tcp(2).run(from, to, address);
    let mut after = before;
    eventually("the tunnels have counted the packets", || {
        after = counts();
        (after.0 - before.0 > 1000).then_some(())
    });
    println!(
        "{:.1} Gbit/s, {} packets, {} by workers",
        speed / 1e9,
        after.0 - before.0,
        after.1 - before.1
    );
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn packets_between_chassis_pass_by_the_workers_where_the_tunnels_ends_are_addresses_of_a_bridge() {
    needs_ovn!("iperf3");
    if cannot_offload(module_path!(), &[]) {
        return;
    }
    let network = Network::of(Plan {
        kinds: &[true, true],
        bridged: true,
        ..Plan::default()
    });
    network.works();
    assert_eq!(ping(&network.a, "10.1.0.12", 10).received, 10);
    transfer(&network, &network.a, &network.b, "10.1.0.12");
    if offloads_nothing(module_path!(), &network.chassis[0].switch) {
        return;
    }
    // By OVN's default, outer headers have checksums.
    let csum = network.chassis[0]
        .switch
        .vsctl("--bare --columns=options find interface type=geneve");
    assert!(csum.contains("csum=true"), "{csum}");
    let is_offloaded = |text: &str| {
        for chassis in &network.chassis {
            eventually(text, || (offloaded(&chassis.switch, text) > 0).then_some(()));
        }
    };
    is_offloaded("tnl_push(");
    is_offloaded("geneve(");
    let seen = || -> u64 {
        network
            .chassis
            .iter()
            .map(|chassis| seen_by_workers(&chassis.switch))
            .sum()
    };
    let before = seen();
    assert_eq!(ping(&network.a, "10.1.0.12", 50).received, 50);
    let by_workers = seen() - before;
    assert!(by_workers < 100, "{by_workers} of 200 looks of workers at pings");
    let check = |from: &Netns, to: &Netns, address: &str| {
        let (all, by_workers) = transfer(&network, from, to, address);
        assert!(by_workers * 2 < all, "{by_workers} of {all}");
    };
    // On one logical switch, and of connections that an access list allows.
    check(&network.a, &network.b, "10.1.0.12");
    check(&network.b, &network.a, "10.1.0.11");
    network.acl("to-lport", "1001", "outport==\"pb\" && ip", "drop");
    network.acl("to-lport", "1002", "outport==\"pb\" && ip4 && tcp", "allow-related");
    network.central.sync();
    check(&network.a, &network.b, "10.1.0.12");
    network.has_no_errors();
}
