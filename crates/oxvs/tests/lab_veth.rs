//! Datagrams as fast as they go, the processor time of each, and gaps of workers: experiments of
//! the laboratory on oxvs.

use lab::results::{Sample, load};
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::skip;

/// The head of an experiment on two hosts at a bridge.
fn head(bridge: &str, metric: &str) -> String {
    format!(
        r#"
id = "X.veth"
study = "X"
title = "Small"
about = "For a test."
host = [
    {{ name = "A", address = [{{ ip = "10.9.2.1", prefix = 24 }}] }},
    {{ name = "B", address = [{{ ip = "10.9.2.2", prefix = 24 }}] }},
]
bridge = [{{ name = "S1"{bridge} }}]
link = [{{ a = {{ at = "A" }}, b = {{ at = "S1" }} }}, {{ a = {{ at = "B" }}, b = {{ at = "S1" }} }}]
awake = false

[quick]
repetitions = 1
seconds = 0.3

[full]
repetitions = 1
seconds = 1

[[metric]]
name = "{metric}"
title = "Metric"
unit = ""

[[figure]]
form = "bars"
groups = "kind"
y = "{metric}"
"#
    )
}

fn run(text: &str) -> Vec<Sample> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("veth.toml"), text).unwrap();
    lab(dir.path())
}

fn lab(dir: &Path) -> Vec<Sample> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oxvs"));
    command.args(["lab", "run", "veth.toml", "--switch", "oxvs", "--out", "out"]);
    // Other tests run at the same time.
    command.env("OXVS_LAB_ANY_LOAD", "");
    let output = command.current_dir(dir).stdin(Stdio::null()).output().unwrap();
    let said = [&output.stdout[..], b"\n", &output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    load(&dir.join("out")).unwrap().samples
}

fn metric(sample: &Sample, name: &str) -> f64 {
    let found = sample.metrics.get(name).copied();
    found.unwrap_or_else(|| panic!("{name}: {sample:#?}"))
}

#[test]
fn short_datagrams_cross_the_switch_and_have_their_processor_time() {
    skip!(unless root, "ip", "tc", "ethtool");
    let flows = r#"
[varied.kind]
title = "Kind"
quick = ["most", "loaded"]
full = ["most"]

[[measure]]
when = { kind = "most" }
name = "short"
from = "A"
to = "B"
test = "flood"

[[observe]]
when = { kind = "most" }
name = "use"
observe = "usage"
flow = "short"

[[background]]
when = { kind = "loaded" }
name = "load"
from = "A"
to = "B"
test = "flood"
of_most = 0.5

[[measure]]
when = { kind = "loaded" }
name = "probe"
from = "A"
to = "B"
test = "rtt"
payload = 56
interval = 5000
"#;
    let samples = run(&(head("", "short.rate") + flows));
    assert_eq!(samples.len(), 2);
    for sample in samples {
        if sample.at["kind"] == "loaded" {
            assert!(metric(&sample, "probe.rtt") > 0.0 && metric(&sample, "probe.p999") > 0.0);
            continue;
        }
        assert!(metric(&sample, "short.rate") > 1000.0, "{sample:?}");
        assert!((0.0..=1.0).contains(&metric(&sample, "short.share")), "{sample:?}");
        assert!(metric(&sample, "use.memory") > 1e6, "{sample:?}");
        assert!(metric(&sample, "use.cost_all") > 0.0, "{sample:?}");
        assert!(metric(&sample, "use.cost") >= 0.0, "{sample:?}");
        // What the sink leaves to the kernel to drop has arrived.
        let lost: u64 = sample.losses.iter().map(|loss| loss.packets).sum();
        let at_sink = sample.losses.iter().filter(|loss| loss.cause == "receiver");
        assert!(
            at_sink.map(|loss| loss.packets).sum::<u64>() <= lost / 2 + 10,
            "{sample:?}"
        );
    }
}

#[test]
fn gaps_are_measured_while_ports_rules_and_offloaded_flows_come_and_go() {
    skip!(unless root, "ip", "tc", "ethtool");
    let observed = r#"
[varied.kind]
title = "Kind"
quick = ["nothing", "internal_ports", "veth_ports", "rules", "bundle", "offloaded_rules", "offloaded_flows", "offloaded_port"]
full = ["nothing"]

[[observe]]
name = "known"
observe = "gaps"
during = "$kind"
number = 30
priority = false
"#;
    let samples = run(&(head(", control = \"rules\"", "known.delay") + observed));
    assert_eq!(samples.len(), 8);
    for sample in samples {
        let kind = sample.at["kind"].as_str();
        assert!(metric(&sample, "known.delay") > 0.0, "{sample:?}");
        assert!(metric(&sample, "known.turn") >= 0.0, "{sample:?}");
        let parts: &[&str] = match kind {
            "nothing" => &["wait"],
            "offloaded_rules" | "offloaded_flows" | "offloaded_port" => &["go"],
            _ => &["come", "go"],
        };
        for part in parts {
            let of = |name: &str| metric(&sample, &format!("known.{part}.{name}"));
            assert!(of("median") <= of("p999") && of("p999") <= of("delay"), "{sample:?}");
            assert_eq!(of("seconds") > 0.001, kind != "nothing", "{sample:?}");
        }
        if kind == "nothing" {
            assert_eq!(metric(&sample, "known.lost"), 0.0, "{sample:?}");
        }
    }
}
