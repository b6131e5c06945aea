//! The built-in scenarios, and the errors of wrong files.

use lab::scenario::{Profile, Scenario, built_in, estimate, find};
use lab::topology::{Attachment, Control};
use lab::traffic::Test;

fn scenario(id: &str) -> Scenario {
    let all = built_in().unwrap_or_else(|error| panic!("{error}"));
    all.into_iter().find(|scenario| scenario.id == id).unwrap()
}

#[test]
fn every_scenario_of_the_program_can_be_run() {
    for scenario in built_in().unwrap_or_else(|error| panic!("{error}")) {
        for profile in [Profile::Quick, Profile::Full] {
            assert!(!scenario.cells(profile).is_empty(), "{}", scenario.id);
        }
        assert!(
            !scenario.metrics.is_empty() && !scenario.figures.is_empty(),
            "{}",
            scenario.id
        );
        assert!(scenario.file.starts_with(&scenario.id.to_lowercase().replace('.', "-")));
    }
}

#[test]
fn one_description_makes_a_cell_of_each_combination() {
    let scenario = scenario("S0.rtt.l3");
    assert_eq!(scenario.cells(Profile::Full).len(), 2 * 2 * 2 * 7);
    // A base and one step along each of four dimensions.
    assert_eq!(scenario.cells(Profile::Quick).len(), 5);
    let cell = scenario.cells(Profile::Full).last().unwrap();
    let at: Vec<(&str, &str)> = cell
        .at
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        at,
        [
            ("background", "mesh"),
            ("payload", "1440"),
            ("speed", "100"),
            ("vlans", "two VLANs")
        ]
    );
    assert_eq!(cell.setup.background.len(), 12);
    assert_eq!(cell.setup.background[0].name, "PC1-PC2");
    assert!(matches!(
        cell.setup.background[11].test,
        Test::Cbr {
            payload: 500,
            rate: 25_000_000,
            ..
        }
    ));
    assert!(
        cell.setup
            .topology
            .links
            .iter()
            .all(|link| link.rate == Some(100_000_000))
    );
    assert_eq!(cell.setup.measured[0].to, "PC4");
    assert!(scenario.cells(Profile::Full)[0].setup.background.is_empty());
}

#[test]
fn elements_are_there_only_where_their_condition_holds_and_what_is_absent_is_left_out() {
    let scenario = scenario("S1.transfer");
    for cell in scenario.cells(Profile::Full) {
        let Test::TcpStream(streams) = &cell.setup.measured[0].test else {
            panic!("{:?}", cell.setup.measured);
        };
        let kilobytes = cell.at["window"].parse::<u32>().ok();
        assert_eq!(streams.buffer, kilobytes.map(|kilobytes| 1024 * kilobytes));
        let topology = &cell.setup.topology;
        let (bridges, rated) = match cell.at["setup"].as_str() {
            "baseline" | "mininet" => (1, 2),
            "container" | "guest" => (1, 0),
            "sdn" => (3, 0),
            _ => (2, 1),
        };
        assert_eq!(topology.bridges.len(), bridges);
        assert_eq!(topology.links.iter().filter(|link| link.rate.is_some()).count(), rated);
        let reactive = topology
            .bridges
            .iter()
            .all(|bridge| bridge.control == Control::Reactive);
        assert_eq!(reactive, bridges == 3);
        let guests = topology
            .hosts
            .iter()
            .all(|host| host.attachment == Attachment::Guest { memory: 1024 });
        assert_eq!(guests, cell.at["setup"] == "guest");
    }
}

#[test]
fn results_are_led_to_the_tables_of_the_findings() {
    let scenario = scenario("S1.transfer");
    let cell = scenario
        .cells(Profile::Full)
        .iter()
        .find(|cell| cell.at["window"] == "16")
        .unwrap();
    let fed = scenario.feeds(&cell.at, "bridge").unwrap();
    assert_eq!(fed.len(), 1);
    assert_eq!(
        (fed[0].table.as_str(), fed[0].keys["window_kb"].as_str()),
        ("transfer", "16")
    );
    assert!(
        scenario
            .feeds(&cell.at, "oxvs")
            .unwrap()
            .iter()
            .all(|fed| fed.keys["scenario"] != "baseline_average")
    );
}

#[test]
fn a_quick_look_at_everything_on_two_systems_takes_less_than_ten_minutes() {
    let all = built_in().unwrap();
    let mut each: Vec<_> = all
        .iter()
        .map(|scenario| (estimate([scenario], Profile::Quick, 2), &scenario.id))
        .collect();
    each.sort();
    let whole = estimate(&all, Profile::Quick, 2);
    assert!(whole.as_secs() < 600, "{whole:?}: {each:?}");
}

#[test]
fn a_word_means_a_scenario_or_all_below_it() {
    let all = built_in().unwrap();
    let ids = |word: &str| {
        find(&all, word)
            .iter()
            .map(|scenario| scenario.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids("s0.rtt"), ["S0.rtt.l3", "S0.rtt.stick"]);
    assert_eq!(ids("S0.rtt.l3"), ["S0.rtt.l3"]);
    assert_eq!(ids("S0.r"), [""; 0]);
    assert_eq!(ids("S3").len(), 10);
}

#[test]
fn only_mininet_runs_what_mininet_makes() {
    let scenario = scenario("S1.transfer");
    for cell in scenario.cells(Profile::Full) {
        assert_eq!(cell.setup.is_for("oxvs"), cell.at["setup"] != "mininet");
        assert!(cell.setup.is_for("mininet"));
    }
}

/// A whole scenario, short.
const SMALL: &str = r#"id = "X.small"
study = "X"
title = "Small"
about = "A test."
host = [
    { name = "A", address = [{ ip = "10.0.0.1", prefix = 24 }] },
    { name = "B", address = [{ ip = "10.0.0.2", prefix = 24 }], gateway = "10.0.0.1" },
]
bridge = [{ name = "S", svi = [{ ip = "10.0.0.3", prefix = 24 }] }]
link = [
    { a = { at = "A" }, b = { at = "S", port = { access = 10 } }, rate = "= $speed * 1000" },
    { a = { at = "B" }, b = { at = "S", port = { access = 10, qos = { kind = "htb", rate = 1000 } } } },
]

[quick]
repetitions = 1
seconds = 1

[full]
repetitions = 1
seconds = 1.5

[varied.speed]
title = "Speed"
quick = [10]
full = [10, 100]

[derived]
label = { by = "speed", is = { 10 = "slow" }, otherwise = "fast" }

[[measure]]
name = "probe"
from = "A"
to = "B"
test = "rtt"
payload = 100

[[metric]]
name = "probe.rtt"
title = "Round trip"
unit = "µs"

[[figure]]
form = "lines"
x = "speed"
y = "probe.rtt"

[[feeds]]
table = "rtt"
metric = "probe.rtt"
keys = { label = "$label", bytes = 100 }
"#;

#[test]
fn what_is_wrong_is_told_with_its_line() {
    Scenario::parse("small.toml", SMALL).unwrap_or_else(|error| panic!("{error}"));
    let mut wrong = Vec::new();
    for (old, new, message) in [
        ("study = \"X\"\n", "", "1:1: missing field `study`"),
        (
            "id = \"X.small\"",
            "id = \"Y.small\"",
            "1:6: the id must begin with the study's: X.NAME",
        ),
        (
            "title = \"Small\"",
            "titel = \"Small\"",
            "3:1: unknown field `titel`, expected one of",
        ),
        ("title = \"Small\"", "title = \"Small", "3:"),
        ("name = \"B\"", "name = \"A\"", "7:14: there are two of the name 'A'"),
        (
            "name = \"B\"",
            "name = \"B b\"",
            "7:14: 'B b' is no name: 1 to 12 letters, digits and '-'",
        ),
        ("10.0.0.2", "10.0.0.1", "7:29: 'A' has the address 10.0.0.1 already"),
        ("10.0.0.2", "10.0.0.300", "7:37: invalid IPv4 address syntax"),
        ("10.0.0.3", "224.0.0.3", "9:31: 224.0.0.3 is no address of a host"),
        (
            "gateway = \"10.0.0.1\"",
            "gateway = \"10.1.0.1\"",
            "7:75: the gateway 10.1.0.1 is in none of the host's networks",
        ),
        (
            "prefix = 24 }] },\n    { name = \"B\"",
            "prefix = 33 }] },\n    { name = \"B\"",
            "6:29: 10.0.0.1: a prefix is 0 to 32",
        ),
        (
            "at = \"S\", port = { access = 10 }",
            "at = \"T\"",
            "11:36: there is no host and no bridge 'T'",
        ),
        (
            "access = 10 }",
            "access = 4095 }",
            "11:59: a VLAN is 1 to 4094, not 4095",
        ),
        ("access = 10 }", "access = 0 }", "11:59: a VLAN is 1 to 4094, not 0"),
        (
            "access = 10 }",
            "access = -1 }",
            "11:59: invalid value: integer `-1`, expected u16",
        ),
        (
            "access = 10 }",
            "access = 10, trunk = [20] }",
            "11:71: a port is an access port or a trunk, not both",
        ),
        (
            "{ at = \"A\" }",
            "{ at = \"A\", port = { access = 10 } }",
            "11:30: 'A' is a host: only a bridge's port has set-up",
        ),
        (
            "kind = \"htb\"",
            "kind = \"sfq\"",
            "12:69: only HTB and HFSC have a rate, classes, leaves and a limit",
        ),
        (
            "kind = \"htb\"",
            "kind = \"hbt\"",
            "12:78: unknown variant `hbt`, expected one of",
        ),
        (
            "$speed * 1000",
            "$sped * 1000",
            "11:74: there is no '$sped': there are label, profile, speed",
        ),
        (
            "$speed * 1000",
            "$speed - 10",
            "11:74: a cable's rate is more than 0 bit/s",
        ),
        ("$speed * 1000", "$label * 1000", "11:74: '$label' is not a number"),
        (
            "quick = [10]",
            "quick = []",
            "25:9: a dimension has a list of at least one value",
        ),
        ("quick = [10]\n", "", "23:9: 'speed' has no values for 'quick'"),
        ("full = [10, 100]", "full = [10, 10]", "26:13: 10 stands twice"),
        ("[varied.speed]", "[varied.system]", "23:9: a dimension's name is"),
        (
            "is = { 10 =",
            "is = { 11 =",
            "29:32: 'speed' never is 11: its values are 10, 100",
        ),
        (
            ", otherwise = \"fast\"",
            "",
            "29:9: nothing is said for speed = 100, and there is no 'otherwise'",
        ),
        (
            "seconds = 1\n",
            "seconds = 0\n",
            "17:11: what is measured takes more than 0",
        ),
        ("to = \"B\"", "to = \"C\"", "34:6: there is no host 'C'"),
        ("to = \"B\"", "to = \"A\"", "34:6: 'A' sends to itself"),
        (
            "to = \"B\"\n",
            "to = \"B\"\nwhen = { speed = 11 }\n",
            "35:18: 'speed' never is 11",
        ),
        (
            "to = \"B\"\n",
            "to = \"B\"\nwhen = { sped = 10 }\n",
            "35:10: there is no '$sped'",
        ),
        (
            "to = \"B\"\n",
            "to = \"B\"\nwhen = { speed = 100 }\n",
            "a cell has neither a [[measure]] nor an [[observe]]",
        ),
        (
            "payload = 100\n",
            "payload = 100\nbuffer = 3\n",
            "37:1: unknown field `buffer`",
        ),
        (
            "payload = 100\n",
            "payload = 4\n",
            "36:11: a datagram's payload is 20 to 65 507 bytes, not 4",
        ),
        (
            "payload = 100\n",
            "payload = 100\nip6 = true\n",
            "37:7: both hosts need an 'ip6' address",
        ),
        ("test = \"rtt\"", "test = \"rrt\"", "unknown variant `rrt`"),
        (
            "name = \"probe.rtt\"",
            "name = \"prob.rtt\"",
            "43:1: a figure shows 'probe.rtt', which is no [[metric]]",
        ),
        (
            "x = \"speed\"",
            "x = \"size\"",
            "43:1: a figure uses 'size', which is not varied",
        ),
        ("form = \"lines\"", "form = \"line\"", "unknown variant `line`"),
        (
            "name = \"probe\"\nfrom",
            "name = \"prob\"\nfrom",
            "39:8: 'probe.rtt': nothing that is measured has this name",
        ),
        (
            "metric = \"probe.rtt\"",
            "metric = \"probe.x\"",
            "50:10: 'probe.x' is no [[metric]] of this file",
        ),
        ("label = \"$label\"", "label = \"$lable\"", "there is no '$lable'"),
    ] {
        let text = SMALL.replacen(old, new, 1);
        assert_ne!(text, SMALL, "{old}");
        let error = Scenario::parse("small.toml", &text).expect_err(new).to_string();
        if !error
            .lines()
            .any(|line| line.starts_with("small.toml:") && line.contains(message))
        {
            wrong.push(format!("{new}\n  should be {message}\n  is {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn testbeds_that_cannot_carry_the_traffic_are_refused() {
    for (old, new, message) in [
        (
            "bridge = [{ name = \"S\"",
            "bridge = [{ name = \"T\" }, { name = \"S\"",
            None,
        ),
        (
            "    { a = { at = \"B\" }, b = { at = \"S\"",
            "    { a = { at = \"A\" }, b = { at = \"S\"",
            Some("'A' has more than one cable"),
        ),
        (
            "    { a = { at = \"B\" }, b = { at = \"S\"",
            "    { a = { at = \"S\" }, b = { at = \"S\"",
            Some("both ends are at 'S'"),
        ),
        (
            "bridge = [{ name = \"S\"",
            "bridge = [{ name = \"T\" }, { name = \"S\"",
            None,
        ),
    ] {
        let text = SMALL.replacen(old, new, 1);
        let result = Scenario::parse("small.toml", &text).map_err(|error| error.to_string());
        match message {
            None => assert!(result.is_ok(), "{result:?}"),
            Some(message) => assert!(
                result.as_ref().is_err_and(|error| error.contains(message)),
                "{result:?}"
            ),
        }
    }
    let far = |links: &str| {
        let text = SMALL
            .replacen(
                "bridge = [{ name = \"S\"",
                "bridge = [{ name = \"T\" }, { name = \"S\"",
                1,
            )
            .replacen(
                "b = { at = \"S\", port = { access = 10, qos = { kind = \"htb\", rate = 1000 } } } },",
                "b = { at = \"T\" } },",
                1,
            )
            .replacen("link = [\n", &format!("link = [\n{links}"), 1);
        Scenario::parse("small.toml", &text)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    assert!(far("").unwrap_err().contains("34:6: no path leads from 'A' to 'B'"));
    let joined = "    { a = { at = \"S\" }, b = { at = \"T\" } },\n";
    assert_eq!(far(joined), Ok(()));
    assert!(
        far(&joined.repeat(2))
            .unwrap_err()
            .contains("12:5: this joins 'S' and 'T' in a circle")
    );
    let bond = "port = { bond = { name = \"b\", mode = \"active_backup\" } }";
    let bonded = format!("    {{ count = 2, a = {{ at = \"S\", {bond} }}, b = {{ at = \"T\", {bond} }} }},\n");
    assert_eq!(far(&bonded), Ok(()));
}

#[test]
fn observations_and_ports_that_cannot_be_are_refused() {
    let refused = |old: &str, new: &str, message: &str| {
        let text = SMALL.replacen(old, new, 1);
        assert_ne!(text, SMALL, "{old}");
        let error = Scenario::parse("small.toml", &text).expect_err(new).to_string();
        assert!(error.contains(message), "{new}: {error}");
    };
    for (observation, message) in [
        (
            "observe = 'capacity'\nexact = false\nmasks = 25\nat_most = 5",
            "masks are 1 to 24, not 25",
        ),
        (
            "observe = 'rfc2544'\nfrom = 'A'\nto = 'B'\npayload = 64\nmost = 1000\nresolution = 0.9",
            "a resolution is a share of the highest rate",
        ),
        (
            "observe = 'rfc2544'\nfrom = 'A'\nto = 'A'\npayload = 64\nmost = 1000\nresolution = 0.1",
            "'A' sends to itself",
        ),
        (
            "observe = 'replay'\nfrom = 'A'\nto = 'B'\nfile = 'x.pcap'\nspeed = 0",
            "a speed is a number above 0",
        ),
    ] {
        let observe = format!("[[observe]]\nname = 'more'\n{observation}\n\n[[metric]]");
        refused("[[metric]]", &observe, message);
    }
    for (qos, message) in [
        ("kind = 'sfq', limit = 5", "only HTB and HFSC have"),
        (
            "kind = 'htb', rate = 1000, limit = 5, leaf = 'codel'",
            "only a leaf 'fifo' has a limit",
        ),
        (
            "kind = 'htb', rate = 1000, limit = 0",
            "a queue holds 1 to 1000 packets",
        ),
    ] {
        refused("kind = \"htb\", rate = 1000", qos, message);
    }
}

#[test]
fn a_host_is_a_namespace_a_container_or_a_guest() {
    let with = |attachment: &str, more: &str| {
        let host = format!("{{ name = \"B\", attachment = {attachment}, address");
        let text = SMALL.replacen("{ name = \"B\", address", &host, 1) + more;
        Scenario::parse("small.toml", &text).map_err(|error| error.to_string())
    };
    let scenario = with("\"podman\"", "").unwrap();
    let hosts = &scenario.cells(Profile::Full)[0].setup.topology.hosts;
    let attachments = [hosts[0].attachment, hosts[1].attachment];
    assert_eq!(attachments, [Attachment::Container, Attachment::Podman]);
    let scenario = with("{ libvirt = { memory = 512 } }", "").unwrap();
    let managed = scenario.cells(Profile::Full)[0].setup.topology.hosts[1].attachment;
    assert_eq!(managed, Attachment::Libvirt { memory: 512 });
    assert!(managed.is_guest());
    let web = "\n[[observe]]\nname = 'web'\nobserve = 'application'\napplication = 'web'\nconnections = 1\n\
               from = 'A'\nto = 'B'\n";
    assert!(with("\"container\"", web).is_ok());
    for (attachment, more, message) in [
        (
            "\"docker\"",
            "",
            "7:32: unknown variant `docker`, expected one of `container`, `podman`, `guest`, `libvirt`",
        ),
        ("{ podman = { memory = 512 } }", "", "7:43: this name takes no values"),
        (
            "{ guest = { memory = 1 } }",
            "",
            "7:32: a guest's memory is 64 to 65 536 MiB, not 1",
        ),
        (
            "{ libvirt = { memory = 1 } }",
            "",
            "7:32: a guest's memory is 64 to 65 536 MiB, not 1",
        ),
        (
            "\"podman\"",
            web,
            "'B' is a container of Podman, which has no files of the application: \
             applications run on hosts with attachment = \"container\"",
        ),
        (
            "{ guest = { memory = 512 } }",
            web,
            "'B' is a guest, which has no programs: applications run on hosts with attachment = \"container\"",
        ),
    ] {
        let error = with(attachment, more).expect_err(attachment);
        assert!(error.contains(message), "{attachment}: {error}");
    }
}

#[test]
fn tunnels_that_no_host_or_port_can_have_are_refused() {
    let plain = SMALL.replacen(", qos = { kind = \"htb\", rate = 1000 }", "", 1);
    let with = |old: &str, new: &str| {
        let text = plain.replacen(
            "{ name = \"B\", address",
            "{ name = \"B\", tunnel = { kind = \"vxlan\", number = 1000 }, address",
            1,
        );
        assert!(text.contains(old), "{old}");
        Scenario::parse("small.toml", &text.replacen(old, new, 1)).map_err(|error| error.to_string())
    };
    let scenario = with("", "").unwrap();
    let topology = &scenario.cells(Profile::Full)[0].setup.topology;
    let ends = topology.tunnel_ends("B").unwrap();
    assert_eq!(
        (ends.host.to_string(), ends.switch.to_string()),
        ("198.18.0.5".to_owned(), "198.18.0.6".to_owned())
    );
    assert_eq!(topology.tunnel_ends("A"), None);
    let native = with("number = 1000", "underlay = \"native\"").unwrap();
    let other = &native.cells(Profile::Full)[0].setup.topology;
    assert!(
        topology != other && topology.cabling() == other.cabling(),
        "the hosts and cables are the same"
    );
    for (old, new, message) in [
        (
            "number = 1000",
            "number = 0",
            "7:55: a switch has 1 to 1000 tunnels to a host, not 0",
        ),
        (
            "number = 1000",
            "number = 1001",
            "a switch has 1 to 1000 tunnels to a host, not 1001",
        ),
        ("\"vxlan\"", "\"stt\"", "unknown variant `stt`"),
        (
            "number = 1000",
            "underlay = \"native\", ipsec = true",
            "the host's stack encrypts: a tunnel with IPsec has the underlay 'host'",
        ),
        (
            "number = 1000 }",
            "number = 1 }, attachment = { guest = { memory = 512 } }",
            "only a container is attached through a tunnel",
        ),
        (
            "10.0.0.3",
            "198.19.0.3",
            "198.19.0.3 is an address of the tunnels' underlays",
        ),
        (
            "b = { at = \"S\", port = { access = 10 } } },\n]",
            "b = { at = \"S\", port = { access = 10, bfd = 10 } } },\n]",
            "12:48: a tunnel's port has VLANs, and no other set-up",
        ),
    ] {
        let error = with(old, new).expect_err(new);
        assert!(error.contains(message), "{new}: {error}");
    }
}

#[test]
fn rules_about_connections_of_hosts_that_cannot_have_them_are_refused() {
    let with = |stateful: &str| {
        let text = SMALL
            .replacen(
                "{ ip = \"10.0.0.2\", prefix = 24 }",
                "{ ip = \"10.0.0.2\", prefix = 24 }, { ip = \"10.0.0.22\", prefix = 24 }",
                1,
            )
            .replacen(
                "{ name = \"S\"",
                &format!("{{ name = \"S\", stateful = {{ {stateful} }}"),
                1,
            );
        Scenario::parse("small.toml", &text).map_err(|error| error.to_string())
    };
    let good = [
        "kind = 'firewall', from = 'A'",
        "kind = 'snat', from = 'B', address = '10.0.0.22'",
        "kind = 'balance', from = 'A', address = '10.0.0.2', servers = ['10.0.0.22']",
    ];
    for stateful in good {
        let scenario = with(stateful).unwrap_or_else(|error| panic!("{error}"));
        let topology = &scenario.cells(Profile::Full)[0].setup.topology;
        assert!(topology.bridges[0].stateful.is_some() && topology.cabling().bridges[0].stateful.is_none());
    }
    for (stateful, message) in [
        ("kind = 'firewall', from = 'C'", "there is no host 'C'"),
        (
            "kind = 'firewall', from = 'A', address = '10.0.0.1'",
            "unknown field `address`",
        ),
        ("kind = 'fire', from = 'A'", "unknown variant `fire`"),
        (
            "kind = 'snat', from = 'B', address = '10.0.0.2'",
            "10.0.0.2 is not one more address of 'B'",
        ),
        (
            "kind = 'balance', from = 'A', address = '10.0.0.1', servers = ['10.0.0.22']",
            "10.0.0.1 is no address of another host",
        ),
        (
            "kind = 'balance', from = 'A', address = '10.0.0.2', servers = []",
            "there are 1 to 64 servers, not 0",
        ),
        (
            "kind = 'balance', from = 'A', address = '10.0.0.2', servers = ['10.0.0.2']",
            "10.0.0.2 is not one more address of the host with 10.0.0.2",
        ),
    ] {
        let error = with(stateful).map(|_| ()).expect_err(stateful);
        assert!(error.contains(message), "{stateful}: {error}");
    }
    let by_rules = with("kind = 'firewall', from = 'A' }, control = 'rules' }] #");
    let error = by_rules.map(|_| ()).unwrap_err();
    assert!(error.contains("the rules of 'S' are not the switch's own"), "{error}");
    let two = SMALL.replacen(
        "{ ip = \"10.0.0.2\", prefix = 24 }",
        "{ ip = \"10.0.0.2\", prefix = 24 }, { ip = \"10.0.1.2\", prefix = 24 }",
        1,
    );
    let error = Scenario::parse("small.toml", &two).unwrap_err().to_string();
    assert!(error.contains("'B' has addresses of two networks untagged"), "{error}");
}

#[test]
fn a_cluster_is_two_chassis_with_one_cable_between_them() {
    let all = built_in().unwrap();
    let source = &all.iter().find(|scenario| scenario.id == "S5.cluster").unwrap().source;
    let with = |old: &str, new: &str| {
        assert!(source.contains(old), "{old}");
        Scenario::parse("cluster.toml", &source.replacen(old, new, 1)).map_err(|error| error.to_string())
    };
    let topology = with("", "").unwrap().cells(Profile::Full)[0].setup.topology.clone();
    assert!(topology.is_cluster() && topology.cabling().is_cluster());
    let cable = "{ a = { at = \"one\" }, b = { at = \"two\" } },";
    for (old, new, message) in [
        (
            "{ name = \"two\", control = \"ovn\" }",
            "{ name = \"two\" }",
            "a cluster is two bridges, both controlled by OVN",
        ),
        (
            "{ name = \"two\", control = \"ovn\" }",
            "{ name = \"two\", control = \"ovn\", tree = \"rstp\" }",
            "a chassis has neither addresses of its own nor a tree",
        ),
        (
            cable,
            &format!("{cable} {cable}"),
            "this joins 'one' and 'two' in a circle",
        ),
        (
            "{ at = \"two\" } },\n]",
            "{ at = \"two\", port = { access = 1 } } },\n]",
            "ports of a chassis have no set-up",
        ),
        (
            "10.15.0.3\", prefix = 24 ",
            "10.16.0.3\", prefix = 24 ",
            "hosts of a cluster are containers in one network, untagged",
        ),
    ] {
        let error = with(old, new).map(|_| ()).expect_err(new);
        assert!(error.contains(message), "{new}: {error}");
    }
}

#[test]
fn what_would_grow_without_bounds_is_refused() {
    let many = |quick: &str| {
        let values: Vec<String> = (0..50).map(|n| n.to_string()).collect();
        let values = values.join(", ");
        let more = format!(
            "[varied.a]\ntitle = 'a'\nquick = [{values}]\nfull = [1]\n[varied.b]\ntitle = 'b'\nquick = [{values}]\nfull = [1]\n{quick}"
        );
        Scenario::parse(
            "small.toml",
            &SMALL.replacen("[varied.speed]", &format!("{more}[varied.speed]"), 1),
        )
    };
    assert!(
        many("")
            .unwrap_err()
            .to_string()
            .contains("these are more than 2000 cells")
    );
    let count = |of: &str| {
        let text = SMALL.replacen("{ name = \"A\"", &format!("{{ count = {of}, name = \"A\""), 1);
        Scenario::parse("small.toml", &text).unwrap_err().to_string()
    };
    assert!(count("2000").contains("'count' is an integer from 0 to 1024"));
    assert!(
        count("1, x = [{ count = 1024, y = [{ count = 1024, z = 1 }] }]")
            .contains("this makes more than 100000 values")
    );
}

#[test]
fn no_file_makes_the_reader_panic() {
    let all = built_in().unwrap();
    let sources: Vec<&str> = all
        .iter()
        .map(|scenario| scenario.source.as_str())
        .chain([SMALL])
        .collect();
    let mut rng = testkit::Rng::new(0x5eed);
    for source in &sources {
        let lines: Vec<&str> = source.lines().collect();
        for _ in 0..40 {
            let mut text: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            for _ in 0..=rng.below(3) {
                let at = rng.below(text.len());
                match rng.below(6) {
                    0 => drop(text.remove(at)),
                    1 => text.insert(at, (*rng.pick(&lines)).to_owned()),
                    2 => {
                        let other = *rng.pick(&sources);
                        text[at] = (*rng.pick(&other.lines().collect::<Vec<_>>())).to_owned();
                    }
                    3 => text.truncate(at + 1),
                    4 => {
                        let words = [
                            "-1",
                            "{}",
                            "[]",
                            "$x",
                            "\"=$speed/0\"",
                            "1e300",
                            "99999999999",
                            "absent",
                            "{ guest = 1 }",
                        ];
                        if let Some((key, _)) = text[at].clone().split_once('=') {
                            text[at] = format!("{key} = {}", rng.pick(&words));
                        }
                    }
                    _ => {
                        let mut bytes = text[at].clone().into_bytes();
                        if !bytes.is_empty() {
                            let place = rng.below(bytes.len());
                            bytes[place] = rng.number() as u8;
                        }
                        text[at] = String::from_utf8_lossy(&bytes).into_owned();
                    }
                }
                if text.is_empty() {
                    text.push(String::new());
                }
            }
            if let Err(error) = Scenario::parse("mutated.toml", &text.join("\n")) {
                assert!(!error.problems.is_empty());
            }
        }
    }
}

#[test]
fn the_manual_s_example_can_be_run() {
    let manual = include_str!("../../../docs/lab-scenarios.md");
    let example = manual
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap();
    let scenario = Scenario::parse("lab-scenarios.md", example).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(scenario.cells(Profile::Full).len(), 6);
    assert_eq!(scenario.cells(Profile::Quick).len(), 2);
}

#[test]
fn every_way_to_say_something_is_understood() {
    let text = include_str!("../../../fuzz/corpus/scenario/names");
    let scenario = Scenario::parse("names", text).unwrap_or_else(|error| panic!("{error}"));
    let cells = scenario.cells(Profile::Full);
    assert_eq!(cells.len(), 3, "one of four is excepted");
    let last = &cells[2].setup;
    assert_eq!(last.topology.hosts.len(), 4);
    assert_eq!(last.topology.hosts[3].addresses[0].ip.to_string(), "10.0.2.4");
    assert_eq!(cells[1].setup.topology.hosts[0].addresses[0].vlan, None);
    assert_eq!(last.topology.links[4], last.topology.links[5]);
    assert!(last.needs_openflow());
    let fill = last.openflow.as_ref().unwrap().rules;
    assert_eq!(fill, lab::scenario::Fill::Number(10));
    let metrics = [("H1-H2.rate".to_owned(), 3.0)].into();
    assert!(
        last.fairness(&metrics).contains_key("f.sum"),
        "of the measured flows, of which there are none"
    );
}
