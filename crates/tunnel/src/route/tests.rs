use super::*;
use proptest::prelude::*;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn route(to: &str, device: &str, origin: Origin) -> Route {
    let source = address(if to.contains(':') { "fd00::1" } else { "10.0.0.1" });
    let hop = Hop {
        device: device.to_owned(),
        gateway: None,
        source,
    };
    Route {
        to: prefix(to),
        mark: 0,
        hop,
        origin,
    }
}

const CACHED: Origin = Origin::Cached { local: false };
const LOCAL: Origin = Origin::Cached { local: true };

#[test]
fn the_longest_prefix_wins_and_users_and_local_routes_go_before() {
    let mut table = Table::default();
    table.cache([
        route("0.0.0.0/0", "default", CACHED),
        route("10.0.0.0/8", "eight", CACHED),
        route("10.1.0.0/16", "sixteen", CACHED),
        route("10.1.1.1/32", "own", LOCAL),
        route("::/0", "six", CACHED),
    ]);
    let mut user = |to: &str, device: &str| {
        let Route { to, hop, .. } = route(to, device, Origin::User);
        table.add(to, 0, hop);
    };
    user("10.1.1.0/24", "user");
    user("10.0.0.0/9", "nine");
    let device = |to: &str| table.lookup(address(to), 0).map(|route| route.hop.device.as_str());
    assert_eq!(device("9.9.9.9"), Some("default"));
    assert_eq!(device("10.200.0.1"), Some("eight"));
    assert_eq!(device("10.1.1.1"), Some("own"));
    assert_eq!(device("10.1.1.2"), Some("user"));
    // A user's /9 ranks as a /73, above the kernel's /16.
    assert_eq!(device("10.1.2.2"), Some("nine"));
    assert_eq!(device("fd00::1"), Some("six"));
    assert_eq!(table.lookup(address("9.9.9.9"), 1), None);
}

#[test]
fn marks_tell_routes_apart() {
    let mut table = Table::default();
    let hop = route("10.0.0.0/8", "a", Origin::User).hop;
    table.add(prefix("10.0.0.0/8"), 7, hop);
    assert!(table.lookup(address("10.0.0.1"), 0).is_none());
    assert!(table.lookup(address("10.0.0.1"), 7).is_some());
    assert!(!table.remove(prefix("10.0.0.0/8"), 0));
    assert!(table.remove(prefix("10.9.9.9/8"), 7));
    assert_eq!(table.routes().count(), 0);
}

/// A rule for a mark, about IPv4.
fn rule(mark: u32, table: u32) -> Rule {
    Rule {
        invert: false,
        mark: (mark, if mark == 0 { 0 } else { u32::MAX }),
        to: prefix("0.0.0.0/0"),
        from: prefix("0.0.0.0/0"),
        table: Some(table),
        suppress: None,
    }
}

#[test]
fn packets_take_the_table_that_the_kernels_rules_choose_by_their_mark() {
    use policy::{LOCAL as OWN, MAIN};
    let mut table = Table::default();
    let (main, other) = (route("0.0.0.0/0", "main", CACHED), route("10.0.0.0/8", "other", CACHED));
    let own = route("10.0.0.1/32", "own", LOCAL);
    table.cache([main.clone(), own.clone()]);
    let usual = [rule(0, OWN), rule(0, MAIN)];
    let routes = [(MAIN, main.clone()), (9, other), (OWN, own)];
    let way = |table: &Table, to: &str, mark| table.way(address(to), mark, None).map(|route| route.hop.device.clone());
    table.follow(usual.to_vec(), routes.clone(), HashMap::new());
    // A packet with a mark has the route of others.
    for mark in [0, 7] {
        assert_eq!(way(&table, "10.9.9.9", mark).as_deref(), Some("main"));
        assert_eq!(way(&table, "10.0.0.1", mark).as_deref(), Some("own"));
        assert_eq!(way(&table, "fd00::1", mark), None);
    }
    assert_eq!(
        table.lookup(address("10.9.9.9"), 7),
        None,
        "as ovs/route/lookup says it"
    );
    let before = table.generation();
    table.follow(vec![usual[0], rule(7, 9), usual[1]], routes.clone(), HashMap::new());
    assert_ne!(table.generation(), before);
    for (to, mark, device) in [
        ("10.9.9.9", 7, "other"),
        ("10.9.9.9", 8, "main"),
        ("10.9.9.9", 0, "main"),
        // Table 9 has no route.
        ("11.9.9.9", 7, "main"),
        ("10.0.0.1", 7, "own"),
    ] {
        assert_eq!(way(&table, to, mark).as_deref(), Some(device), "{to} {mark}");
    }
    assert!(table.devices().contains("other"));
    // Routes of users go before, those with the mark.
    table.add(prefix("10.9.0.0/16"), 7, route("10.9.0.0/16", "user", Origin::User).hop);
    assert_eq!(way(&table, "10.9.9.9", 7).as_deref(), Some("user"));
    assert_eq!(way(&table, "10.8.9.9", 7).as_deref(), Some("other"));
    // All packets but the marked ones; none of the default routes; an end.
    let inverted = Rule {
        invert: true,
        ..rule(7, 9)
    };
    table.follow(vec![inverted, usual[1]], routes.clone(), HashMap::new());
    assert_eq!(way(&table, "10.8.9.9", 0).as_deref(), Some("other"));
    assert_eq!(way(&table, "10.8.9.9", 7).as_deref(), Some("main"));
    let suppressed = Rule {
        suppress: Some(0),
        ..usual[1]
    };
    table.follow(vec![suppressed, rule(0, 9)], routes.clone(), HashMap::new());
    assert_eq!(way(&table, "10.8.9.9", 0).as_deref(), Some("other"));
    assert_eq!(way(&table, "11.8.9.9", 0), None);
    let end = Rule {
        table: None,
        ..rule(0, 0)
    };
    table.follow(vec![end, usual[1]], routes.clone(), HashMap::new());
    assert_eq!(way(&table, "10.8.9.9", 0), None);
    // A rule about the source counts where the source does not depend on the route.
    let of_source = Rule {
        from: prefix("192.0.2.0/24"),
        ..rule(0, 9)
    };
    table.follow(vec![of_source, usual[1]], routes, HashMap::new());
    for (from, device) in [
        (Some("192.0.2.7"), "other"),
        (Some("192.0.3.7"), "main"),
        (Some("fd00::7"), "main"),
        (None, "main"),
    ] {
        let found = table.way(address("10.8.9.9"), 0, from.map(address));
        assert_eq!(found.unwrap().hop.device, device, "{from:?}");
    }
}

#[test]
fn a_route_to_a_vrf_leads_on_by_the_routes_of_that_vrf() {
    use policy::MAIN;
    let mut table = Table::default();
    let usual = vec![rule(0, policy::LOCAL), rule(0, MAIN), rule(7, 10)];
    let routes = [
        (MAIN, route("10.1.0.0/16", "blue", CACHED)),
        (MAIN, route("10.2.0.0/16", "red", CACHED)),
        (MAIN, route("10.3.0.0/16", "loop", CACHED)),
        (10, route("10.1.2.0/24", "v0", CACHED)),
        (10, route("10.1.0.1/32", "v0", LOCAL)),
        (11, route("10.2.0.0/16", "blue", CACHED)),
        (10, route("10.2.3.0/24", "v1", CACHED)),
        (12, route("10.3.0.0/16", "loop", CACHED)),
    ];
    let vrfs = [("blue", 10), ("red", 11), ("loop", 12)];
    table.follow(usual, routes, vrfs.map(|(name, table)| (name.to_owned(), table)).into());
    let way = |to: &str, mark| {
        table
            .way(address(to), mark, None)
            .map(|route| route.hop.device.as_str())
    };
    assert_eq!(way("10.1.2.3", 0), Some("v0"));
    assert_eq!(way("10.1.9.9", 0), None, "the VRF has no route");
    assert_eq!(way("10.2.3.4", 0), Some("v1"), "from VRF to VRF");
    assert_eq!(way("10.3.0.1", 0), None, "for ever");
    assert_eq!(way("10.4.0.1", 7), None);
    let own = table.way(address("10.1.0.1"), 0, None).unwrap();
    assert_eq!(own.origin, LOCAL, "an address of the host");
    assert!(table.is_local(address("10.1.0.1")) && !table.is_local(address("10.1.2.3")));
}

#[test]
fn new_kernel_routes_replace_the_old_ones_and_not_those_of_users() {
    let mut table = Table::default();
    let before = table.generation();
    table.cache([route("10.0.0.0/8", "old", CACHED), route("10.0.0.0/8", "newer", CACHED)]);
    assert_eq!(table.lookup(address("10.0.0.1"), 0).unwrap().hop.device, "newer");
    let Route { to, hop, .. } = route("10.0.0.1/32", "user", Origin::User);
    table.add(to, 0, hop);
    table.cache([route("10.0.0.1/32", "own", LOCAL)]);
    assert_eq!(table.lookup(address("10.0.0.1"), 0).unwrap().hop.device, "user");
    assert_eq!(table.lookup(address("10.0.0.2"), 0), None);
    assert!(
        !table.remove(prefix("10.0.0.0/8"), 0),
        "only users' routes are removed by hand"
    );
    assert_ne!(table.generation(), before);
}

#[test]
fn routes_print_as_open_vswitch_prints_them() {
    let mut marked = route("1.2.4.9/24", "br0", Origin::User);
    marked.mark = 7;
    marked.hop.gateway = Some(address("1.1.2.1"));
    assert_eq!(
        marked.to_string(),
        "User: 1.2.4.0/24 MARK 7 dev br0 GW 1.1.2.1 SRC 10.0.0.1"
    );
    let own = route("fd00::1/128", "v0", LOCAL);
    assert_eq!(own.to_string(), "Cached: fd00::1/128 dev v0 SRC fd00::1 local");
}

#[test]
fn the_source_is_an_address_beside_the_gateway_or_the_destination() {
    let addresses = ["10.1.2.3/24", "10.1.2.9/24", "10.1.0.9/16", "fe80::5/64"].map(prefix);
    let source = |to: &str, gateway: Option<&str>| source(&addresses, address(to), gateway.map(address));
    assert_eq!(source("9.9.9.9", Some("10.1.2.1")), Some(address("10.1.2.3")));
    assert_eq!(source("9.9.9.9", Some("10.1.7.1")), Some(address("10.1.0.9")));
    assert_eq!(source("10.1.2.77", None), Some(address("10.1.2.3")));
    assert_eq!(source("10.1.2.77", Some("8.8.8.8")), Some(address("10.1.2.3")));
    assert_eq!(source("2001:db8::1", Some("fe80::1")), Some(address("fe80::5")));
    assert_eq!(source("9.9.9.9", None), None);
}

#[test]
fn prefixes_are_read_with_lengths_and_masks() {
    for (text, read) in [
        ("1.2.3.4", "1.2.3.4/32"),
        ("1.2.3.4/16", "1.2.0.0/16"),
        ("1.2.3.4/0", "0.0.0.0/0"),
        ("1.1.1.1/255.255.0.0", "1.1.0.0/16"),
        ("2001:db8:f::1/33", "2001:db8::/33"),
        ("::1/0", "::/0"),
        ("fd00::7/ffff:ffff::", "fd00::/32"),
    ] {
        assert_eq!(prefix(text).to_string(), read, "{text}");
    }
    for text in [
        "",
        "x",
        "1.2.3.4/",
        "1.2.3.4/33",
        "1.2.3.4/-1",
        "1.2.3.4/+1",
        "1.1.1.1/0x10",
        "::/129",
        "1.1.1.1/255.0.255.0",
        "1.1.1.1/ffff::",
        "1.2.3.4/999",
    ] {
        assert_eq!(text.parse::<Prefix>(), Err(ParsePrefixError), "{text}");
    }
}

proptest! {
    /// A lookup finds what a search through all routes finds.
    #[test]
    fn lookups_find_the_route_of_the_highest_rank(
        routes in prop::collection::vec((0u32..8, 0u8..=32, 0u32..2, 0u8..3), 0..20),
        to in 0u32..8, mark in 0u32..2,
    ) {
        let spread = |bits: u32| IpAddr::from((bits << 29 | bits).to_be_bytes());
        let mut table = Table::default();
        let mut all: Vec<Route> = Vec::new();
        for (bits, len, mark, origin) in routes {
            let origin = [CACHED, LOCAL, Origin::User][usize::from(origin)];
            let to = Prefix::new(spread(bits), len).unwrap();
            let same = |r: &Route| r.rank() == u16::from(to.mapped_len()) + if origin == CACHED { 0 } else { PREFERRED }
                && r.to.len() == len && r.to.address() == to.address() && r.mark == mark;
            // The table's rule for equals has a test of its own.
            if !all.iter().any(same) {
                let hop = route("10.0.0.0/8", &all.len().to_string(), origin).hop;
                all.push(Route { to, mark, hop, origin });
            }
        }
        for route in all.iter().filter(|route| route.origin == Origin::User) {
            table.add(route.to, route.mark, route.hop.clone());
        }
        table.cache(all.iter().filter(|route| route.origin != Origin::User).cloned());
        let fits = |route: &&Route| route.mark == mark && route.to.contains(spread(to));
        let best = all.iter().filter(fits).map(Route::rank).max();
        prop_assert_eq!(table.lookup(spread(to), mark).map(Route::rank), best);
        prop_assert_eq!(table.routes().count(), all.len());
    }
}
