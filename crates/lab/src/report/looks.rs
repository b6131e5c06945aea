//! How systems look in figures: the same in all of them.

/// Class of a system's colour, and shape of its marker.
pub(crate) type Look = (String, usize);

/// Systems that are known, in the order they stand in; a system's place is its colour and its
/// shape.
const KNOWN: &[(&str, &str)] = &[
    ("oxvs", "oxvs"),
    ("bridge", "Linux bridge"),
    ("ovs-kernel", "Open vSwitch, kernel datapath"),
    ("ovs-userspace", "Open vSwitch, userspace"),
    ("ovs-tso", "Open vSwitch, userspace with TSO"),
    ("ovs-afxdp", "Open vSwitch, AF_XDP"),
    ("ovs-dpdk", "Open vSwitch, DPDK"),
    ("mininet", "Mininet driving oxvs"),
    ("oxvs-kernel", "oxvs, kernel datapath"),
    ("oxvs-afxdp", "oxvs, AF_XDP"),
];

/// How many colours there are.
pub(crate) const COLOURS: usize = 9;

/// Of a system.
pub(crate) fn of_system(name: &str) -> Look {
    let place = place(name);
    (format!("s{}", place % COLOURS), place)
}

/// The place of a bound in legends, behind all systems.
pub(crate) const BOUND: usize = 999;
/// The places of a study's printed results in legends, behind all others.
pub(crate) const PRINTED: usize = 1000;

/// For a bound that theory gives: never the colour of a system.
pub(crate) fn of_bound() -> Look {
    ("print".into(), 2)
}

/// For a study's printed results: never the colour of a system.
pub(crate) fn of_print(nth: usize) -> Look {
    ("print".into(), nth + 3)
}

/// A system's name in figures and tables.
pub(crate) fn title(name: &str) -> &str {
    KNOWN
        .iter()
        .find(|(known, _)| *known == name)
        .map_or(name, |(_, title)| title)
}

/// The order in which systems stand.
pub(crate) fn place(name: &str) -> usize {
    let known = KNOWN.iter().position(|(known, _)| *known == name);
    // One that is unknown has a place of its own too, the same in every report.
    known.unwrap_or_else(|| KNOWN.len() + name.bytes().map(usize::from).sum::<usize>() % 64)
}

/// Names in their order, each once.
pub(crate) fn in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let names: std::collections::BTreeSet<(usize, &str)> = names.map(|name| (place(name), name)).collect();
    names.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_have_a_look_and_an_order_of_their_own() {
        let looks: std::collections::BTreeSet<Look> = KNOWN.iter().map(|(name, _)| of_system(name)).collect();
        assert_eq!(looks.len(), KNOWN.len());
        assert_eq!(
            in_order(["zzz", "bridge", "oxvs", "bridge"].into_iter()),
            ["oxvs", "bridge", "zzz"]
        );
        assert_eq!(title("zzz"), "zzz");
    }
}
