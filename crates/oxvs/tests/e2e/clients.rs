//! Unmodified clients: Debian's programs, and the command lines of programs that configure Open
//! vSwitch.

use crate::fixture::{binary, dummy, dummy_bridge, in_namespace, ours, stand_in};
use testkit::{Netns, Options, Packet, Vswitch, eventually, mac, skip};

const PROGRAMS: [&str; 4] = ["ovs-vsctl", "ovs-appctl", "ovsdb-client", "setpriv"];

fn have_programs() -> Option<String> {
    testkit::missing(false, &PROGRAMS)
}

#[test]
fn a_bridge_is_there_when_ovs_vsctl_returns() {
    if let Some(reason) = have_programs() {
        skip!("{reason}");
    }
    let switch = dummy();
    switch.vsctl(
        "add-br br0 -- set bridge br0 datapath_type=dummy -- add-port br0 p1 tag=5 -- set interface p1 type=dummy",
    );
    assert!(
        switch
            .get("interface", "p1", "ofport")
            .parse::<u16>()
            .is_ok_and(|p| p > 0)
    );
    assert_eq!(switch.get("interface", "br0", "ofport"), "65534");
    assert_eq!(switch.get("interface", "p1", "admin_state"), "up");
    assert_eq!(switch.get("interface", "p1", "mtu"), "1500");
    assert_eq!(
        switch.get("interface", "p1", "mac_in_use").len(),
        "\"aa:bb:cc:dd:ee:ff\"".len()
    );
    assert_eq!(
        switch.get("bridge", "br0", "datapath_id").len(),
        "\"0000000000000000\"".len()
    );
    assert_eq!(
        switch.get("open_vswitch", ".", "cur_cfg"),
        switch.get("open_vswitch", ".", "next_cfg")
    );
    let types = switch.get("open_vswitch", ".", "iface_types");
    for kind in ["internal", "system", "tap", "patch", "dummy"] {
        assert!(types.contains(kind), "{types}");
    }
    assert!(switch.get("open_vswitch", ".", "datapath_types").contains("netdev"));
    assert!(!switch.get("open_vswitch", ".", "ovs_version").is_empty());
    // Dummy devices have locally administered addresses, like guests' devices, so the bridge keeps
    // its own.
    let identifier = switch.get("bridge", "br0", "datapath_id");
    switch.vsctl("add-port br0 p0 -- set interface p0 type=dummy");
    assert_eq!(switch.get("bridge", "br0", "datapath_id"), identifier);
    assert!(!identifier.contains("aa55aa55"), "{identifier}");
    switch.vsctl("del-port p0");
    assert_eq!(switch.vsctl("list-ports br0"), "p1\n");
    assert_eq!(switch.vsctl("iface-to-br p1"), "br0\n");
    let show = switch.vsctl("show");
    assert!(show.contains("        Port p1\n            tag: 5\n"), "{show}");
    switch.vsctl("del-port p1 -- del-br br0");
    assert_eq!(switch.vsctl("list-br"), "");
}

#[test]
fn a_bridge_whose_name_is_a_path_is_ignored_and_leaves_no_socket_outside_the_run_directory() {
    if let Some(reason) = have_programs() {
        skip!("{reason}");
    }
    let switch = dummy();
    let above = switch.sandbox.dir().parent().unwrap().to_owned();
    let unique = format!("oxvs-escape-{}", std::process::id());
    let name = format!("../{unique}");
    for bridge in [name.as_str(), "a/b"] {
        let done = switch.try_vsctl(&["add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=dummy"]);
        assert_eq!(done.status, Some(0), "{}", done.stderr);
    }
    dummy_bridge(&switch, "br0", &[]);
    eventually("br0 is served", || {
        switch.sandbox.path("br0.mgmt").exists().then_some(())
    });
    for suffix in ["mgmt", "snoop"] {
        let outside = above.join(format!("{unique}.{suffix}"));
        assert!(!outside.exists(), "{}", outside.display());
    }
    assert_eq!(switch.get("interface", "a/b", "ofport"), "[]");
    let warning = format!("ignoring bridge with invalid name \"{name}\"");
    assert!(switch.sandbox.read("switch.log").contains(&warning));
    if !stand_in() {
        let status = switch.get("bridge", &name, "status");
        assert!(status.contains("must not contain"), "{status}");
    }
    switch.vsctl(&format!("del-br {name} -- del-br a/b"));
    assert_eq!(switch.vsctl("list-br"), "br0\n");
}

#[test]
fn a_device_that_does_not_exist_is_an_error_in_its_row_and_elsewhere_nothing() {
    skip!(unless root, "ip", "ovs-vsctl", "setpriv");
    let ns = Netns::new("sw");
    let switch = in_namespace(&ns);
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
    let done = switch.try_vsctl(&["add-port", "br0", "nowhere"]);
    assert_eq!(done.status, Some(0), "{}", done.stderr);
    assert!(
        done.stderr.contains("Error detected while setting up 'nowhere'"),
        "{}",
        done.stderr
    );
    assert_eq!(switch.get("interface", "nowhere", "ofport"), "-1");
    assert_eq!(
        switch.get("interface", "nowhere", "error"),
        "\"could not open network device nowhere (No such device)\""
    );
    assert_eq!(switch.get("interface", "br0", "error"), "[]");
}

/// Errors of the switch under test and its tools, and of Debian's.
#[test]
fn mistakes_are_answered_as_users_know_it() {
    skip!(unless "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv");
    let oracle = Vswitch::debian(Options::default());
    let mine = crate::fixture::start(Options {
        client: ours(),
        ..Options::default()
    });
    for switch in [&oracle, &mine] {
        dummy_bridge(switch, "br0", &["p1"]);
    }
    for command in [
        "frobnicate",
        "add-br",
        "add-br br0",
        "add-port br9 p2",
        "add-port br0 p1",
        "del-br br9",
        "del-port p9",
        "list nowhere",
        "list bridge nosuch",
        "set port p1 tag=5000",
        "set port p1 tag=x",
        "set port p1 vlan_mode=sideways",
        "set port p1 nosuch=1",
        "set port p1 tag",
        "set port nosuch tag=1",
        "get port p1 other_config:nosuch",
        "get port p1 nosuch",
        "remove bridge br0 name br0",
        "clear bridge br0 name",
        "add port p1 trunks 4096",
        "set bridge br0 _uuid=1",
        "destroy bridge nosuch",
        "--id=@x add-br br7",
        "--may-exist add-port br0 p1 tag=5000",
        "wait-until bridge br0 nosuch=1",
        "br-to-vlan br9",
        "list-ports",
        "--columns=nosuch list bridge",
        "find bridge nosuch=1",
        "--format=nosuch list-br",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        let theirs = oracle.try_vsctl(&words);
        let ours = mine.try_vsctl(&words);
        let strip = |text: &str| text.replace("ovs-vsctl: ", "").replace("vsctl: ", "");
        assert_eq!(ours.status, theirs.status, "{command}: {}{}", ours.stdout, ours.stderr);
        assert_eq!(
            without_log(&strip(&ours.stderr)),
            without_log(&strip(&theirs.stderr)),
            "{command}"
        );
        assert_eq!(ours.stdout, theirs.stdout, "{command}");
    }
}

/// Removes log lines, which go to the same output as messages.
fn without_log(text: &str) -> String {
    let lines = text.lines().filter(|l| !l.contains("|ovs|") && !l.contains("|WARN|"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn libvirt_attaches_a_port_and_reads_its_statistics() {
    skip!(unless "ovs-vsctl", "setpriv");
    let switch = dummy();
    dummy_bridge(&switch, "virbr0", &[]);
    let attach = "--timeout=5 -- --may-exist add-port virbr0 vnet0 tag=42 vlan_mode=native-untagged trunk=42,43 \
                  -- set Interface vnet0 type=dummy \
                  -- set Interface vnet0 external_ids:attached-mac=\"52:54:00:12:34:56\" \
                  -- set Interface vnet0 external_ids:iface-id=\"0a0b0c0d-0000-4000-8000-000000000000\" \
                  -- set Interface vnet0 external_ids:vm-id=\"0a0b0c0d-0000-4000-8000-000000000001\" \
                  -- set Interface vnet0 external_ids:iface-status=active";
    let attach = attach.replace("trunk=", "trunks=").replace('"', "");
    let attach: Vec<&str> = attach.split_whitespace().collect();
    for _ in 0..2 {
        switch.try_vsctl(&attach).expect_ok();
    }
    let statistics =
        || switch.vsctl("--format=list --data=json --no-headings --columns=statistics list Interface vnet0");
    let frame = Packet::new(mac(1), mac(2)).payload(0x88b5, &[0; 86]);
    switch.appctl(&["netdev-dummy/receive", "vnet0", &frame.hex()]);
    eventually("the packet is counted", || {
        statistics().contains(r#"["rx_packets",1]"#).then_some(())
    });
    assert!(statistics().contains(r#"["rx_bytes",100]"#), "{}", statistics());
    switch.vsctl("--timeout=5 -- --if-exists del-port vnet0");
    switch.vsctl("--timeout=5 -- --if-exists del-port vnet0");
}

#[test]
fn ovs_docker_attaches_and_finds_a_container() {
    skip!(unless "ovs-vsctl", "setpriv");
    let switch = dummy();
    assert_eq!(switch.try_vsctl(&["br-exists", "br0"]).status, Some(2));
    dummy_bridge(&switch, "br0", &[]);
    assert_eq!(switch.try_vsctl(&["br-exists", "br0"]).status, Some(0));
    switch.vsctl(
        "--may-exist add-port br0 c0ffee_l -- set interface c0ffee_l type=dummy \
         external_ids:container_id=c0ffee external_ids:container_iface=eth1",
    );
    let find = "--data=bare --no-heading --columns=name find interface \
                external_ids:container_id=c0ffee external_ids:container_iface=eth1";
    assert_eq!(switch.vsctl(find), "c0ffee_l\n");
    switch.vsctl("set port c0ffee_l tag=7");
    assert_eq!(switch.get("port", "c0ffee_l", "tag"), "7");
    switch.vsctl("--if-exists del-port c0ffee_l");
    assert_eq!(switch.vsctl(find), "");
}

#[test]
fn mininet_builds_its_switch_in_one_command() {
    skip!(unless "ovs-vsctl", "setpriv");
    let switch = dummy();
    switch.vsctl("-t 1 show");
    let version = switch.tool("ovs-vsctl", &["--version"]).expect_ok();
    assert!(version.starts_with("ovs-vsctl"), "{version}");
    switch.vsctl(
        "--id=@s1c0 create Controller target=\"tcp:127.0.0.1:6653\" max_backoff=1000 \
         -- --if-exists del-br s1 -- add-br s1 -- set bridge s1 controller=[@s1c0] \
         other_config:datapath-id=0000000000000001 fail_mode=secure other-config:disable-in-band=true \
         other-config:dp-desc=s1 \
         -- add-port s1 s1-eth1 -- set Interface s1-eth1 type=dummy ofport_request=1 \
         -- add-port s1 s1-eth2 -- set Interface s1-eth2 ofport_request=2 type=patch options:peer=s2-eth1",
    );
    assert_eq!(switch.get("bridge", "s1", "datapath_id"), "\"0000000000000001\"");
    assert_eq!(switch.get("interface", "s1-eth1", "ofport"), "1");
    assert_eq!(switch.get("interface", "s1-eth2", "ofport"), "2");
    let controller = switch.get("bridge", "s1", "controller");
    let controller = controller.trim_matches(['[', ']']);
    assert_eq!(switch.get("controller", controller, "is_connected"), "false");
    switch.vsctl("--if-exists del-br s1");
}

#[test]
fn ovsdb_client_reads_writes_and_watches() {
    skip!(unless "ovs-vsctl", "ovsdb-client", "setpriv");
    let switch = dummy();
    let remote = switch.sandbox.db_remote();
    let client = |args: &[&str]| switch.tool("ovsdb-client", args).expect_ok();
    assert!(client(&["list-dbs", &remote]).contains("Open_vSwitch\n"));
    assert_eq!(
        client(&["get-schema-version", &remote, "Open_vSwitch"])
            .matches('.')
            .count(),
        2
    );
    assert!(client(&["list-tables", &remote]).contains("Interface"));
    let rows = r#"["Open_vSwitch",{"op":"select","table":"Open_vSwitch","where":[],"columns":["next_cfg"]}]"#;
    assert!(client(&["transact", &remote, rows]).contains(r#""next_cfg":"#));
    dummy_bridge(&switch, "br0", &["p1"]);
    let dump = client(&["-f", "csv", "dump", &remote, "Open_vSwitch", "Port", "name"]);
    assert!(dump.contains("p1"), "{dump}");
    let refused = r#"["Open_vSwitch",{"op":"update","table":"Port","where":[],"row":{"tag":5000}}]"#;
    assert!(client(&["transact", &remote, refused]).contains("constraint violation"));
    let wait = switch.tool(
        "ovsdb-client",
        &["--timeout=5", "wait", &remote, "Open_vSwitch", "connected"],
    );
    assert!(wait.ok(), "{}", wait.stderr);
    let backup = client(&["backup", &remote]);
    assert!(backup.starts_with("OVSDB JSON "), "{backup}");
}

#[test]
fn ovs_appctl_asks_and_directs_the_daemon() {
    skip!(unless "ovs-vsctl", "ovs-appctl", "setpriv");
    let mut switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    let commands = switch.appctl(&["list-commands"]);
    for command in [
        "coverage/show",
        "dpctl/dump-flows",
        "exit",
        "fdb/add",
        "fdb/flush",
        "fdb/show",
        "memory/show",
        "vlog/set",
    ] {
        assert!(commands.contains(&format!("\n  {command} ")), "{command} in {commands}");
    }
    assert!(switch.appctl(&["version"]).contains("ovs-vswitchd"));
    let frame = Packet::new(mac(7), [0xff; 6]).payload(0x88b5, &[]).padded();
    switch.appctl(&["netdev-dummy/receive", "p1", &frame.hex()]);
    eventually("the address is learned", || {
        let table = switch.appctl(&["fdb/show", "br0"]);
        table.contains("02:00:00:00:00:07").then_some(())
    });
    switch.appctl(&["fdb/flush", "br0"]);
    assert_eq!(
        switch.appctl(&["fdb/show", "br0"]),
        " port  VLAN  MAC                Age\n"
    );
    switch.appctl(&["fdb/add", "br0", "p2", "0", "02:00:00:00:00:09"]);
    let table = switch.appctl(&["fdb/show", "br0"]);
    assert!(
        table.contains("02:00:00:00:00:09") && table.contains("static"),
        "{table}"
    );
    assert!(switch.appctl(&["fdb/stats-show", "br0"]).contains("static"));
    switch.appctl(&["fdb/del", "br0", "0", "02:00:00:00:00:09"]);
    switch.appctl(&["vlog/set", "bridge:file:dbg"]);
    let list = switch.appctl(&["vlog/list"]);
    let bridge = list.lines().find(|l| l.starts_with("bridge ")).unwrap_or_default();
    assert!(bridge.contains("DBG"), "{list}");
    assert!(!switch.try_appctl(&["nosuch/command"]).ok());
    assert!(!switch.try_appctl(&["fdb/show", "nosuch"]).ok());
    assert!(!switch.appctl(&["memory/show"]).is_empty());
    assert!(switch.appctl(&["dpctl/show"]).contains("p1"));
    switch.appctl(&["exit"]);
    let status = switch.daemon().wait(std::time::Duration::from_secs(10));
    assert_eq!(status, Some(0));
}

#[test]
fn a_station_that_moves_and_comes_back_is_found_where_it_was_heard_last() {
    skip!(unless "ovs-vsctl", "ovs-appctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch goes by a cached flow for up to half a second");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2", "p3"]);
    let hello = Packet::new(mac(1), [0xff; 6]).payload(0x88b5, b"here I am").padded();
    for (n, port) in ["p1", "p2", "p1", "p2"].iter().enumerate() {
        switch.appctl(&["netdev-dummy/receive", port, &hello.hex()]);
        let ofport = switch.get("interface", port, "ofport");
        eventually(&format!("move {n}, to {port}, is seen"), || {
            let table = switch.appctl(&["fdb/show", "br0"]);
            let row = table.lines().find(|l| l.contains("02:00:00:00:00:01"))?;
            (row.split_whitespace().next() == Some(&ofport)).then_some(())
        });
    }
}

#[test]
fn what_is_not_built_yet_says_so_in_its_row() {
    skip!(unless "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch has all of it");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2", "p3"]);
    switch.vsctl("set bridge br0 other_config:dhcp-snooping=maybe");
    switch.wait_for("bridge", "br0", "status", |s| s.contains("unsupported"));
    switch.vsctl("set bridge br0 mcast_snooping_enable=true other_config:mcast-snooping-query-interval=1");
    switch.wait_for("bridge", "br0", "status", |s| {
        s.contains("mcast-snooping-query-interval=1")
    });
    switch.try_vsctl(&[
        "add-port",
        "br0",
        "dpdk0",
        "--",
        "set",
        "interface",
        "dpdk0",
        "type=dpdk",
    ]);
    switch.wait_for("interface", "dpdk0", "error", |s| s != "[]");
    switch.vsctl("set interface p1 other_config:tx-steering=hash");
    switch.wait_for("interface", "p1", "error", |s| s.contains("tx-steering"));
}

#[test]
fn the_binary_answers_to_the_names_of_open_vswitchs_programs() {
    if stand_in() {
        skip!("only ours has them");
    }
    let sandbox = testkit::Sandbox::new();
    for program in [
        "ovs-vsctl",
        "ovs-appctl",
        "ovsdb-client",
        "ovsdb-tool",
        "ovs-vswitchd",
        "ovsdb-server",
    ] {
        let link = sandbox.path(program);
        std::os::unix::fs::symlink(binary(), &link).expect("a link");
        let version = testkit::run(&[link.as_os_str(), "--version".as_ref()]);
        assert!(version.starts_with(program), "{version}");
        assert!(version.lines().next().is_some_and(|l| l.contains('.')), "{version}");
    }
}

#[test]
fn a_new_database_says_which_system_it_is_of_and_keeps_what_is_there() {
    if stand_in() {
        skip!("Open vSwitch's ovs-ctl says it");
    }
    let mut switch = dummy();
    let id = switch.get("open_vswitch", ".", "external_ids:system-id");
    assert_eq!(switch.sandbox.read("system-id.conf").trim(), id.trim_matches('"'));
    for column in ["system_type", "system_version"] {
        assert_ne!(switch.get("open_vswitch", ".", column), "[]", "{column}");
    }
    switch.vsctl("set open_vswitch . external_ids:system-id=mine system_type=KVM external_ids:other=1");
    switch.vsctl("clear open_vswitch . system_version");
    switch.kill();
    switch.boot();
    let version = || switch.get("open_vswitch", ".", "system_version");
    eventually("the version is back", || (version() != "[]").then_some(()));
    assert_eq!(
        switch.get("open_vswitch", ".", "external_ids"),
        "{other=\"1\", system-id=mine}"
    );
    assert_eq!(switch.get("open_vswitch", ".", "system_type"), "KVM");
}

#[test]
fn what_is_configured_and_not_supported_is_said_on_the_screen_and_in_the_log() {
    if stand_in() {
        skip!("Open vSwitch's tool does not say it");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    let binary = binary().display().to_string();
    let vsctl = |line: &str| {
        let mut words = vec![binary.as_str(), "vsctl"];
        words.extend(line.split(' '));
        let done = testkit::try_run(&words, &switch.sandbox.env());
        assert_eq!(done.status, Some(0), "{}", done.stderr);
        done
    };
    let warned = |line: &str| vsctl(line).stderr;
    let dhcp = "warning: Bridge br0: other_config:dhcp-snooping=maybe is not supported yet and has no effect\n";
    assert!(warned("set bridge br0 other_config:dhcp-snooping=maybe").contains(dhcp));
    assert_eq!(
        warned("add-port br0 p3 -- set interface p3 type=dummy"),
        "",
        "a row that was not set"
    );
    assert!(warned("set bridge br0 fail_mode=secure").contains(dhcp));
    let netflow = warned("-- --id=@n create netflow targets=192.0.2.1 -- set bridge br0 netflow=@n");
    let named = "warning: Bridge br0: NetFlow target 192.0.2.1: port must be specified";
    assert!(netflow.contains(named), "{netflow}");
    assert!(warned("set bridge br0 other_config:arp-inspection=maybe").contains("arp-inspection=maybe is not"));
    let qos = warned("-- --id=@q create qos type=linux-nosuch -- set port p1 qos=@q");
    assert!(
        qos.contains("warning: Port p1: ") && qos.contains("linux-nosuch"),
        "{qos}"
    );
    // The error is in another row than the changed one.
    let row = vsctl("-- --id=@q create qos type=linux-htb -- set port p2 qos=@q").stdout;
    let changed = warned(&format!("set qos {} type=linux-other", row.trim()));
    assert!(
        changed.contains("warning: Port p2: ") && changed.contains("linux-other"),
        "{changed}"
    );
    assert!(warned("set interface p2 other_config:emc-enable=true").contains("warning: Interface p2: "));
    assert_eq!(
        warned("set bridge br0 other_config:some-users-own=1")
            .matches("some-users-own")
            .count(),
        0
    );
    let show = vsctl("show").stdout;
    assert!(
        show.contains("unsupported: \"other_config:arp-inspection=maybe other_config:dhcp-snooping=maybe\"\n"),
        "{show}"
    );
    assert!(show.contains("            error: \"qos: "), "{show}");
    let log = switch.sandbox.read("switch.log");
    let dhcp = "|bridge|WARN|bridge br0: other_config:dhcp-snooping=maybe is not supported yet and has no effect";
    assert_eq!(log.matches(dhcp).count(), 1, "{log}");
}
