//! Networks of one, two and three chassis: what each of them does, before and after restarts.

use super::{Network, Plan, kinds, needs_ovn};
use testkit::{ping, skip};

impl Network {
    #[track_caller]
    pub(super) fn filters(&self) {
        self.acl("to-lport", "1001", "outport==\"pb\" && ip", "drop");
        let web = "outport==\"pb\" && ip4 && tcp.dst==8080";
        self.acl("to-lport", "1002", web, "allow-related");
        self.acl("from-lport", "1002", "inport==\"pb\" && ip4", "allow-related");
        self.central.sync();
        assert_eq!(self.page(&self.a, "10.1.0.12:8080"), "200");
        assert_eq!(self.page(&self.a, "10.1.0.12:8081"), "000");
        assert_eq!(ping(&self.a, "10.1.0.12", 1).received, 0);
        // Answers come back.
        self.reaches(&self.b, "10.1.0.11");
        self.central.nb("acl-del ls0");
        // Whoever is refused learns of it.
        self.acl("to-lport", "1002", "outport==\"pb\" && tcp.dst==8081", "reject");
        self.central.sync();
        let words = ["curl", "-s", "-m", "5", "http://10.1.0.12:8081/"];
        assert_eq!(self.a.try_run(&words, &[]).status, Some(7), "refused");
        self.configure("acl-del ls0");
    }

    #[track_caller]
    fn balances(&self) {
        self.configure(
            "lb-add lb0 10.9.9.9:80 10.1.0.12:8080,10.1.0.12:8081 tcp -- lr-lb-add r0 lb0 -- ls-lb-add ls0 lb0 \
             -- ls-lb-add ls1 lb0",
        );
        for host in [&self.a, &self.c, &self.b] {
            for _ in 0..4 {
                assert_eq!(self.page(host, "10.9.9.9"), "200");
            }
        }
        self.configure("lb-del lb0");
    }

    #[track_caller]
    fn translates(&self) {
        self.configure(
            "set logical_router r0 options:chassis=ch1 -- lr-nat-add r0 dnat_and_snat 10.2.0.100 10.1.0.12 \
             -- lr-nat-add r0 snat 10.2.0.101 10.1.0.0/24",
        );
        assert_eq!(self.page(&self.c, "10.2.0.100:8080"), "200");
        let capture = testkit::Capture::start(&self.c, "eth0", "icmp");
        self.reaches(&self.a, "10.2.0.13");
        let frames = capture.finish();
        assert!(
            frames.iter().any(|frame| frame[26..30] == [10, 2, 0, 101]),
            "{frames:x?}"
        );
        self.configure("lr-nat-del r0 -- remove logical_router r0 options chassis");
    }
}

#[test]
fn one_chassis_switches_routes_filters_balances_and_translates() {
    needs_ovn!();
    let network = Network::new(1);
    network.works();
    let short = ["ping", "-c", "1", "-t", "1", "-W", "1", "10.1.0.12"];
    assert!(network.c.try_run(&short, &[]).stdout.contains("exceeded"));
    network.filters();
    network.balances();
    network.translates();
    network.works();
    network.has_no_errors();
}

#[test]
fn the_controller_reads_what_the_datapath_can() {
    needs_ovn!();
    let network = Network::new(1);
    let chassis = &network.chassis[0];
    let row = chassis.switch.vsctl("--bare --columns=capabilities list datapath");
    for capability in ["ct_zero_snat=true", "max_hash_alg=1"] {
        assert!(row.contains(capability), "{row}");
    }
    let log = chassis.log();
    assert!(log.contains("OVS Feature: ct_zero_snat, state: supported"), "{log}");
    network.has_no_errors();
}

#[test]
fn two_chassis_are_one_network_through_geneve_also_after_restarts() {
    needs_ovn!();
    let mut network = Network::new(2);
    network.works();
    network.filters();
    network.balances();
    // The controller comes back, then the switch after kill -9.
    let chassis = &mut network.chassis[1];
    chassis.controller = None;
    chassis.start_controller();
    network.central.sync();
    network.works();
    network.survives_kill(1);
    network.has_no_errors();
}

#[test]
fn three_chassis_are_one_network_with_databases_of_ours() {
    skip!(unless long);
    needs_ovn!();
    let network = Network::of(Plan {
        kinds: &kinds(3),
        our_databases: true,
        ..Plan::default()
    });
    network.works();
    network.filters();
    network.balances();
    network.translates();
    network.has_no_errors();
}
