//! `qos/*`: disciplines of interfaces in Open vSwitch's format; each queue has additional lines at
//! the end.

use super::Answer;
use crate::state::State;
use dp::QosReport;
use qos::{Cause, Nanos, Stats};
use std::fmt::Write;

pub(super) fn register(add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Answer)) {
    add("qos/show", "interface", 1, 1, show);
    add("qos/show-types", "interface", 1, 1, show_types);
}

const NO_INTERFACE: &str = "no such interface";

fn show_types(state: &State, args: &[String]) -> Answer {
    if state.bridges.borrow().interface(&args[0]).is_none() {
        return Err(NO_INTERFACE.to_owned());
    }
    Ok(qos::keys::KINDS.iter().fold(String::new(), |mut out, kind| {
        let _ = writeln!(out, "QoS type: {kind}");
        out
    }))
}

fn show(state: &State, args: &[String]) -> Answer {
    let name = &args[0];
    let bridges = state.bridges.borrow();
    let interface = bridges.interface(name).ok_or(NO_INTERFACE)?;
    let report = interface.port.and_then(|port| state.dp().qos(port));
    let qos = bridges.qos(name);
    let speed = qos.and_then(|qos| qos.port_speed());
    let Some((kind, configured)) = qos.and_then(|qos| qos.discipline()) else {
        let mut out = format!("QoS not configured on {name}\n");
        if let Some(speed) = speed {
            let _ = writeln!(out, "port-speed: {speed}");
            out.push_str(&held(report.as_ref()));
            out.push_str("\nDefault:\n");
            let queues = report.iter().flat_map(|report| &report.queues);
            let mut all = Stats::default();
            queues.for_each(|(_, stats)| all.add(stats));
            out.push_str(&counters(&all));
        }
        return Ok(out);
    };
    let mut out = format!("QoS: {name} {kind}\n");
    for (key, value) in &configured.details {
        let _ = writeln!(out, "{key}: {value}");
    }
    if let Some(speed) = speed {
        let _ = writeln!(out, "port-speed: {speed}");
    }
    out.push_str(&held(report.as_ref()));
    let (stats, none) = (crate::qos::counters(configured, report.as_ref()), Stats::default());
    for (number, queue) in &configured.queues {
        out.push('\n');
        match number {
            0 => out.push_str("Default:\n"),
            number => _ = writeln!(out, "Queue {number}:"),
        }
        for (key, value) in &queue.details {
            let _ = writeln!(out, "  {key}: {value}");
        }
        if let Some(dscp) = configured.dscp.get(number) {
            let _ = writeln!(out, "  dscp: {dscp}");
        }
        out.push_str(&counters(stats.get(number).unwrap_or(&none)));
    }
    Ok(out)
}

/// Packets that left their queue and wait for the device, if any.
fn held(report: Option<&QosReport>) -> String {
    match report {
        Some(report) if report.held_packets > 0 => format!(
            "held_packets: {}\nheld_bytes: {}\n",
            report.held_packets, report.held_bytes
        ),
        _ => String::new(),
    }
}

/// Open vSwitch's three counters, then backlog, drops by cause, ECN marks and sojourn times.
fn counters(stats: &Stats) -> String {
    let mut out = String::new();
    let mut line = |key: &str, value: &dyn std::fmt::Display| _ = writeln!(out, "  {key}: {value}");
    line("tx_packets", &stats.packets);
    line("tx_bytes", &stats.bytes);
    line("tx_errors", &stats.all_dropped());
    line("backlog_packets", &stats.backlog_packets);
    line("backlog_bytes", &stats.backlog_bytes);
    for cause in Cause::ALL {
        if stats.dropped(cause) > 0 {
            line(&format!("dropped_{}", cause.name()), &stats.dropped(cause));
        }
    }
    line("ecn_marks", &stats.marks);
    if stats.packets > 0 {
        for (name, fraction) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
            line(&format!("sojourn_{name}"), &below(stats.sojourn.quantile(fraction)));
        }
    }
    out
}

/// An upper bound of times; the largest bucket has none.
fn below(bound: Option<Nanos>) -> String {
    match bound {
        Some(Nanos(nanos)) => format!("<{} us", nanos / 1000),
        None => ">4.3 s".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_device_has_not_taken_is_shown_where_there_is_some() {
        let mut report = QosReport::default();
        assert_eq!(held(Some(&report)) + &held(None), "");
        (report.held_packets, report.held_bytes) = (2, 2_028);
        assert_eq!(held(Some(&report)), "held_packets: 2\nheld_bytes: 2028\n");
    }

    #[test]
    fn counters_name_only_the_causes_that_there_were() {
        let mut stats = Stats {
            packets: 0,
            backlog_packets: 2,
            backlog_bytes: 128,
            ..Stats::default()
        };
        let none = "  tx_packets: 0\n  tx_bytes: 0\n  tx_errors: 0\n  backlog_packets: 2\n  backlog_bytes: 128\n  ecn_marks: 0\n";
        assert_eq!(counters(&stats), none);
        stats.drops[Cause::Full as usize] = 3;
        stats.drops[Cause::Sojourn as usize] = 4;
        let shown = counters(&stats);
        assert!(shown.contains("  tx_errors: 7\n"), "{shown}");
        assert!(
            shown.contains("  dropped_full: 3\n  dropped_sojourn: 4\n  ecn_marks: 0\n"),
            "{shown}"
        );
        assert_eq!(below(Some(Nanos(65_536))), "<65 us");
        assert_eq!(below(None), ">4.3 s");
    }
}
