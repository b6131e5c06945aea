//! The scenarios' results reach the findings.

use lab::findings::{Finding, Verdict, published};
use lab::scenario::{Fed, Profile, Scenario, built_in};
use lab::stats::Estimate;
use lab::table::{Cell, Table};
use std::collections::{BTreeMap, BTreeSet};

const SYSTEMS: [&str; 3] = ["ovs-kernel", "bridge", "mininet"];

fn fed(scenarios: &[Scenario]) -> Vec<Fed> {
    let mut all = Vec::new();
    for scenario in scenarios {
        for cell in scenario.cells(Profile::Full) {
            for system in SYSTEMS.iter().filter(|system| cell.setup.is_for(system)) {
                all.extend(scenario.feeds(&cell.at, system).unwrap());
            }
        }
    }
    all
}

#[test]
fn every_table_of_the_findings_is_fed_and_with_its_own_dimensions_and_values() {
    let scenarios = built_in().unwrap();
    let all = fed(&scenarios);
    let tables: BTreeSet<&str> = all.iter().map(|fed| fed.table.as_str()).collect();
    // Checks of the study's own table alone need no results.
    let findings = published().unwrap();
    let named: BTreeSet<&str> = findings.finding.iter().flat_map(Finding::tables).collect();
    assert_eq!(tables, named);
    for (name, table) in published().unwrap().printed().unwrap() {
        let printed = &table.cells[0].at;
        let fed: Vec<&Fed> = all.iter().filter(|fed| fed.table == name).collect();
        for fed in &fed {
            let has = |key: &String| fed.keys.contains_key(key);
            assert!(printed.keys().all(has), "{name}: {:?}", fed.keys);
        }
        // Values that the study prints are written in its form, except its own systems and
        // additional numbers.
        for (key, value) in fed.iter().flat_map(|fed| &fed.keys) {
            let own = table.values_of(key);
            let ours = ["switch", "streams", "window_kb"].contains(&key.as_str());
            assert!(
                ours || own.contains(value),
                "{name}: {key} = {value} is none of {own:?}"
            );
        }
    }
}

#[test]
fn no_two_cells_of_an_experiment_feed_the_same_cell_of_a_table() {
    for scenario in built_in().unwrap() {
        for system in SYSTEMS {
            let mut fed: Vec<Fed> = Vec::new();
            for cell in scenario
                .cells(Profile::Full)
                .iter()
                .filter(|cell| cell.setup.is_for(system))
            {
                for new in scenario.feeds(&cell.at, system).unwrap() {
                    let same = |old: &&Fed| (&old.table, &old.keys) == (&new.table, &new.keys);
                    assert_eq!(fed.iter().find(same), None, "{} {:?}", scenario.id, cell.at);
                    fed.push(new);
                }
            }
        }
    }
}

/// Tables as if each result were what `value` says.
fn measured(value: impl Fn(&Fed) -> f64) -> BTreeMap<String, Table> {
    let scenarios: Vec<Scenario> = built_in()
        .unwrap()
        .into_iter()
        .filter(|scenario| scenario.study == "S0")
        .collect();
    let mut tables: BTreeMap<String, Table> = BTreeMap::new();
    for fed in fed(&scenarios) {
        let value = Estimate::Point(value(&fed));
        let table = tables.entry(fed.table).or_default();
        table.cells.push(Cell {
            at: fed.keys,
            value: value.into(),
        });
    }
    tables
}

fn verdicts(tables: &BTreeMap<String, Table>) -> Vec<(String, Verdict)> {
    let ours = |finding: &&Finding| finding.id.starts_with("S0.") && !finding.checks.is_empty();
    let findings = published().unwrap().finding;
    findings
        .iter()
        .filter(ours)
        .map(|finding| (finding.id.clone(), finding.judge(tables).verdict))
        .collect()
}

#[test]
fn what_the_first_study_says_of_its_figures_is_judged_by_what_is_measured() {
    let number = |fed: &Fed, key: &str| fed.keys[key].parse::<f64>().unwrap();
    let borne_out = measured(|fed| match fed.table.as_str() {
        "rtt" => 100.0 + if fed.keys["routing"] == "stick" { 50.0 } else { 0.0 },
        "tput" => number(fed, "speed") * 0.3,
        "fair_sum" => number(fed, "speed") * 0.95,
        _ => 1.0 + number(fed, "speed") / 100.0,
    });
    let against = measured(|fed| match fed.table.as_str() {
        "rtt" => {
            let slow = fed.keys["vlans"] == "two VLANs" && fed.keys["routing"] == "l3";
            let own = if fed.keys["switch"] == "Open vSwitch" {
                100.0
            } else {
                0.0
            };
            own + number(fed, "payload") + if slow { 1000.0 } else { 0.0 }
        }
        "tput" => number(fed, "speed").sqrt() * if fed.keys["switch"] == "Open vSwitch" { 1.0 } else { 0.5 },
        "fair_sum" => 8.0,
        _ => 1000.0 / number(fed, "speed"),
    });
    let (for_it, against) = (verdicts(&borne_out), verdicts(&against));
    assert_eq!(for_it.len(), 9);
    for ((id, verdict), (_, turned)) in for_it.iter().zip(&against) {
        assert_eq!((verdict, turned), (&Verdict::Holds, &Verdict::Refuted), "{id}");
    }
}
