//! Other tunnels between chassis than Geneve over IPv4.

use super::{Network, Plan, kinds, needs_ovn};
use testkit::skip;

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
