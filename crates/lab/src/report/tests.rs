//! Shared by the report's unit tests.

use crate::scenario::Scenario;

/// A scenario with a payload of 100, 1440 or `auto` bytes and the metric `probe.rtt`.
pub(super) fn scenario() -> Scenario {
    const TEXT: &str = r#"
        id = "S0.x"
        study = "S0"
        title = "Round trips"
        about = "What they take."
        [quick]
        repetitions = 2
        seconds = 1
        [full]
        repetitions = 2
        seconds = 1
        [varied.payload]
        title = "payload"
        unit = "B"
        quick = [100, 1440]
        full = [100, 1440]
        [[host]]
        name = "a"
        address = [{ ip = "10.0.0.1", prefix = 24 }]
        [[host]]
        name = "b"
        address = [{ ip = "10.0.0.2", prefix = 24 }]
        [[bridge]]
        name = "sw"
        [[link]]
        a = { at = "a" }
        b = { at = "sw" }
        [[link]]
        a = { at = "b" }
        b = { at = "sw" }
        [[measure]]
        name = "probe"
        from = "a"
        to = "b"
        test = "rtt"
        payload = "$payload"
        [[metric]]
        name = "probe.rtt"
        title = "round trip"
        unit = "µs"
        better = "lower"
        [[figure]]
        form = "lines"
        x = "payload"
        y = "probe.rtt"
    "#;
    Scenario::parse("x.toml", TEXT).unwrap_or_else(|error| panic!("{error}"))
}
