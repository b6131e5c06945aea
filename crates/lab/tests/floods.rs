//! Scenarios with datagrams as fast as they go, with the processor time of each, and with gaps.

use lab::scenario::{Profile, Scenario};
use lab::traffic::Test;

/// A whole scenario. The flow's keys are from line 30 on, an observation's from line 33.
const SMALL: &str = r#"id = "X.short"
study = "X"
title = "Short"
about = "A test."
host = [
    { name = "A", address = [{ ip = "10.0.0.1", prefix = 24 }] },
    { name = "B", address = [{ ip = "10.0.0.2", prefix = 24 }] },
]
bridge = [{ name = "S" }]
link = [{ a = { at = "A" }, b = { at = "S" } }, { a = { at = "B" }, b = { at = "S" } }]

[quick]
repetitions = 1
seconds = 1

[full]
repetitions = 1
seconds = 1

[varied.size]
title = "Size"
quick = [18]
full = [18, 100]

[[measure]]
name = "short"
from = "A"
to = "B"
test = "flood"

[[observe]]
name = "use"
observe = "usage"
flow = "short"

[[metric]]
name = "short.rate"
title = "Rate"
unit = "1/s"

[[figure]]
form = "bars"
groups = "size"
y = "short.rate"
"#;

fn with(changes: &[(&str, &str)]) -> Result<Scenario, String> {
    let mut text = SMALL.to_owned();
    for (old, new) in changes {
        assert!(text.contains(old), "{old}");
        text = text.replacen(old, new, 1);
    }
    Scenario::parse("short.toml", &text).map_err(|error| error.to_string())
}

fn refused(changes: &[(&str, &str)], message: &str) {
    let error = with(changes).expect_err(message);
    assert!(error.contains(message), "should be {message}, is {error}");
}

#[test]
fn a_flood_is_of_the_shortest_datagrams_as_fast_as_they_go() {
    let scenario = with(&[]).unwrap();
    let fastest = Test::Flood {
        payload: 18,
        rate: None,
        of_most: None,
    };
    assert_eq!(scenario.cells(Profile::Full)[0].setup.measured[0].test, fastest);
    for keys in ["of_most = 0.9", "payload = 1472\nrate = 1"] {
        let test = format!("test = \"flood\"\n{keys}");
        assert!(with(&[("test = \"flood\"", &test)]).is_ok(), "{keys}");
    }
}

#[test]
fn floods_that_cannot_be_sent_are_refused() {
    for (keys, message) in [
        (
            "payload = 1473",
            "30:11: a datagram of a flood has 1 to 1472 bytes of payload, not 1473",
        ),
        ("rate = 0", "30:8: a rate is more than 0 datagrams a second"),
        (
            "rate = 5\nof_most = 0.5",
            "31:11: a flood has a 'rate', or a share of the highest one, not both",
        ),
        (
            "of_most = 1.5",
            "30:11: 'of_most' is a share of the highest rate, above 0 and at most 1, not 1.5",
        ),
    ] {
        refused(&[("test = \"flood\"", &format!("test = \"flood\"\n{keys}"))], message);
    }
    refused(
        &[("{ name = \"B\",", "{ name = \"B\", attachment = \"podman\",")],
        "28:6: 'B' must be a network namespace: attachment = \"container\"",
    );
}

#[test]
fn processor_time_is_of_a_flow_whose_bytes_or_datagrams_arrive() {
    assert!(with(&[("flow = \"short\"\n", "")]).is_ok());
    refused(
        &[("flow = \"short\"", "flow = \"long\"")],
        "34:8: no measured flow is 'long'",
    );
    refused(
        &[("test = \"flood\"", "test = \"rtt\"\npayload = 64")],
        "35:8: processor time is divided by bytes or datagrams that arrive: of tcp_stream, udp_stream,",
    );
}

#[test]
fn gaps_need_rules_and_something_that_happens() {
    let gaps = |keys: &str, bridge: &str| {
        let observed = format!("observe = \"gaps\"\n{keys}");
        with(&[
            (
                "bridge = [{ name = \"S\"",
                &format!("bridge = [{{ name = \"S\"{bridge}"),
            ),
            ("observe = \"usage\"\nflow = \"short\"", &observed),
        ])
    };
    let rules = ", control = \"rules\"";
    assert!(gaps("during = \"veth_ports\"\nnumber = 10000", rules).is_ok());
    for (keys, bridge, message) in [
        (
            "during = \"nothing\"",
            "",
            "33:11: gaps need two hosts and a bridge with control = \"rules\"",
        ),
        (
            "during = \"rules\"\nnumber = 1000001",
            rules,
            "35:10: a number is 1 to 1000000, not 1000001",
        ),
        (
            "during = \"lunch\"",
            rules,
            "unknown variant `lunch`, expected one of `nothing`, `internal_ports`",
        ),
    ] {
        let error = gaps(keys, bridge).expect_err(keys);
        assert!(error.contains(message), "{keys}: {error}");
    }
}

#[test]
fn processors_may_sleep_where_a_scenario_says_so() {
    let awake = |scenario: &Scenario| -> Vec<bool> {
        let cells = scenario.cells(Profile::Full).iter();
        cells.map(|cell| cell.setup.awake).collect()
    };
    assert_eq!(awake(&with(&[]).unwrap()), [true, true]);
    let derived = "[derived]\nawake = { by = \"size\", is = { 18 = false }, otherwise = true }\n\n[[measure]]";
    let scenario = with(&[("\n[quick]", "awake = \"$awake\"\n\n[quick]"), ("[[measure]]", derived)]);
    assert_eq!(awake(&scenario.unwrap()), [false, true]);
    refused(&[("\n[quick]", "awake = 1\n\n[quick]")], "11:9: ");
}
