//! A chassis with a thousand ports.

use super::{Network, needs_ovn};
use testkit::skip;

const PORTS: usize = 1000;

#[test]
fn a_thousand_ports_of_a_chassis_come_up_and_change() {
    skip!(unless long);
    needs_ovn!();
    let network = Network::new(2);
    for chassis in &network.chassis {
        // A controller that computes this long does not hear the answers to its probes, nor go on
        // with a bundle.
        chassis.switch.vsctl(
            "set open_vswitch . external_ids:ovn-openflow-probe-interval=60 other_config:bundle-idle-timeout=60",
        );
    }
    for some in (0..PORTS).collect::<Vec<_>>().chunks(100) {
        let (mut logical, mut devices) = (Vec::new(), Vec::new());
        for n in some {
            let (high, low) = (n / 250, n % 250 + 1);
            logical.push(format!(
                "lsp-add ls1 d{n} -- lsp-set-addresses d{n} \"50:54:01:00:0{high}:{low:02x} 10.2.{}.{low}\"",
                high + 1
            ));
            devices.push(format!(
                "add-port br-int d{n} -- set interface d{n} type=internal external_ids:iface-id=d{n}"
            ));
        }
        network.central.nb(&logical.join(" -- "));
        network.chassis[0].switch.vsctl(&devices.join(" -- "));
    }
    network.central.sync();
    for n in 0..PORTS {
        network.wait_for(&format!("d{n}"));
    }
    network.works();
    network.filters();
    network.central.nb("ls-del ls1");
    network.central.sync();
    network.reaches(&network.a, "10.1.0.12");
    // The controller asks what a switch can do by a connection of its own, whose probes wait for
    // five seconds whatever is configured. If it computes for longer it does not read the answers
    // that it has, and connects again: that is no error of the switch.
    for chassis in &network.chassis {
        chassis.has_no_errors_but("no response to inactivity probe");
    }
}
