//! The scenarios of the program, and what is said of files that are wrong.

use lab::scenario::{Profile, Scenario, built_in};
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
            "baseline" => (1, 2),
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
