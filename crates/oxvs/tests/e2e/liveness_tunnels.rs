//! BFD and CFM through tunnels, with Debian's Open vSwitch at the other end.

use crate::fixture::Pair;
use crate::liveness::wait_for;
use testkit::{Daemon, Sandbox, Vswitch, eventually, skip};

/// Our switch and Open vSwitch, each with an underlay bridge and, in `br0`, the tunnel `t0` to the
/// other one.
fn pair_with_tunnel(options: &str) -> Pair {
    let pair = Pair::new(&["ph"]);
    pair.both("add-br br-phy -- set bridge br-phy datapath_type=netdev -- add-port br-phy ph");
    for (ns, own) in [(&pair.near, 1), (&pair.far, 2)] {
        ns.address("br-phy", &format!("172.31.0.{own}/24"));
        ns.ip("link set br-phy up");
    }
    for (switch, other) in [(&pair.ours, 2), (&pair.theirs, 1)] {
        switch.vsctl(&format!(
            "add-port br0 t0 -- set interface t0 options:remote_ip=172.31.0.{other} {options}"
        ));
    }
    pair
}

/// Packets of a switch's rule for BFD through a tunnel that marks them, or does not.
fn received(switch: &Vswitch, flags: &str) -> u64 {
    let flow = format!("udp,tp_dst=3784,tun_flags={flags}");
    let dumped = switch.tool("ovs-ofctl", &["dump-flows", "br0", &flow]);
    let dumped = dumped.expect_ok();
    let counts = dumped.split("n_packets=").skip(1);
    counts
        .filter_map(|rest| rest.split(',').next()?.parse::<u64>().ok())
        .sum()
}

macro_rules! needs {
    () => {
        skip!(unless root, "ip", "ovs-vsctl", "ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "setpriv");
    };
}

#[test]
fn bfd_through_tunnels_comes_up_and_notices_broken_paths_and_silence() {
    needs!();
    for options in ["type=vxlan options:key=42", "type=geneve options:key=flow", "type=gre"] {
        let mut pair = pair_with_tunnel(options);
        pair.both("set interface t0 bfd:enable=true bfd:min_rx=100 bfd:min_tx=100");
        for switch in [&pair.ours, &pair.theirs] {
            wait_for(switch, "t0", "state", "up");
            wait_for(switch, "t0", "forwarding", "true");
            wait_for(switch, "t0", "remote_state", "up");
        }
        for (broken, other) in [(&pair.ours, &pair.theirs), (&pair.theirs, &pair.ours)] {
            broken.vsctl("set interface t0 bfd:cpath_down=true");
            wait_for(other, "t0", "forwarding", "false");
            wait_for(other, "t0", "remote_diagnostic", "Concatenated Path Down");
            broken.vsctl("set interface t0 bfd:cpath_down=false");
            wait_for(other, "t0", "forwarding", "true");
        }
        pair.theirs.kill();
        wait_for(&pair.ours, "t0", "diagnostic", "Control Detection Time Expired");
        wait_for(&pair.ours, "t0", "forwarding", "false");
        assert_eq!(pair.ours.get("interface", "t0", "link_state"), "up");
    }
}

#[test]
fn a_session_that_checks_the_tunnels_key_takes_packets_without_one_only() {
    needs!();
    let pair = pair_with_tunnel("type=geneve options:key=7");
    pair.both("set interface t0 bfd:enable=true bfd:min_rx=100");
    for switch in [&pair.ours, &pair.theirs] {
        wait_for(switch, "t0", "state", "up");
    }
    let deaf = |deaf: &Vswitch, other: &Vswitch| {
        deaf.vsctl("set interface t0 bfd:check_tnl_key=true");
        wait_for(deaf, "t0", "diagnostic", "Control Detection Time Expired");
        wait_for(other, "t0", "diagnostic", "Neighbor Signaled Session Down");
    };
    deaf(&pair.ours, &pair.theirs);
    pair.ours.vsctl("set interface t0 bfd:check_tnl_key=false");
    for switch in [&pair.ours, &pair.theirs] {
        wait_for(switch, "t0", "state", "up");
    }
    deaf(&pair.theirs, &pair.ours);
    pair.both("set interface t0 bfd:check_tnl_key=true options:key=0");
    for switch in [&pair.ours, &pair.theirs] {
        wait_for(switch, "t0", "state", "up");
    }
}

#[test]
fn bfd_marks_its_packets_as_those_of_control_where_it_is_to() {
    needs!();
    let pair = pair_with_tunnel("type=geneve options:key=7");
    for (sender, receiver) in [(&pair.ours, &pair.theirs), (&pair.theirs, &pair.ours)] {
        for flags in ["-oam", "+oam"] {
            let rule = format!("udp,tp_dst=3784,tun_flags={flags},actions=drop");
            receiver.tool("ovs-ofctl", &["add-flow", "br0", &rule]).expect_ok();
        }
        // The receiver has no session: BFD is data to it.
        for (oam, flags, other) in [(false, "-oam", "+oam"), (true, "+oam", "-oam")] {
            let before = received(receiver, other);
            sender.vsctl(&format!("set interface t0 bfd:enable=true bfd:oam={oam}"));
            eventually("packets come", || (received(receiver, flags) > 0).then_some(()));
            assert!(oam || received(receiver, other) == before);
        }
        sender.vsctl("clear interface t0 bfd");
    }
}

#[test]
fn cfm_through_a_tunnel_comes_up_and_tells_of_faults() {
    needs!();
    let pair = pair_with_tunnel("type=vxlan options:key=42");
    for (switch, point) in [(&pair.ours, 1), (&pair.theirs, 2)] {
        switch.vsctl(&format!(
            "set interface t0 cfm_mpid={point} other_config:cfm_interval=300"
        ));
    }
    for (switch, other) in [(&pair.ours, "[2]"), (&pair.theirs, "[1]")] {
        switch.wait_for("interface", "t0", "cfm_fault", |fault| fault == "false");
        switch.wait_for("interface", "t0", "cfm_remote_mpids", |points| points == other);
    }
    pair.ours.vsctl("clear interface t0 cfm_mpid");
    pair.theirs
        .wait_for("interface", "t0", "cfm_fault_status", |faults| faults.contains("recv"));
}

#[test]
fn data_through_a_tunnel_keeps_it_in_use_without_bfd_as_in_open_vswitch() {
    skip!(unless root, "ip", "ping", "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv");
    let pair = pair_with_tunnel("type=vxlan options:key=42");
    for (ns, own) in [(&pair.near, 1), (&pair.far, 2)] {
        ns.address("br0", &format!("172.31.1.{own}/24"));
        ns.ip("link set br0 up");
    }
    let ends = [
        (&pair.ours, &pair.near, "172.31.1.2", &pair.theirs),
        (&pair.theirs, &pair.far, "172.31.1.1", &pair.ours),
    ];
    for (switch, ns, other, silent) in ends {
        pair.both("set interface t0 bfd:enable=true bfd:min_rx=500 bfd:min_tx=100 bfd:forwarding_if_rx=true");
        wait_for(switch, "t0", "state", "up");
        let sandbox = Sandbox::new();
        let mut command = ns.prefix();
        command.extend(["ping", "-i", "0.05", other].map(str::to_owned));
        let data = Daemon::start("ping", &command, &sandbox);
        // For so long the data is enough.
        silent.vsctl("clear interface t0 bfd");
        wait_for(switch, "t0", "state", "down");
        assert!(switch.get("interface", "t0", "bfd_status:forwarding").contains("true"));
        drop(data);
        wait_for(switch, "t0", "forwarding", "false");
        switch.vsctl("clear interface t0 bfd");
    }
}
