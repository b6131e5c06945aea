//! Names of devices and namespaces.

/// The longest name of a network device (`IFNAMSIZ` less its zero byte).
const LONGEST: usize = 15;

/// The prefix of the laboratory's namespaces.
pub(crate) const PREFIX: &str = "oxvs-lab-";

/// The device of an end: the port of `at` that leads to `to`, as `s1-PC1`; the second of two such
/// is `s1-PC1.2`. Names that would be too long keep their beginning and get four digits that tell
/// them apart.
pub(crate) fn device(at: &str, to: &str, ordinal: usize) -> String {
    let full = if ordinal == 0 {
        format!("{at}-{to}")
    } else {
        format!("{at}-{to}.{}", ordinal + 1)
    };
    fitting(&full)
}

/// A name as it is, or if it is too long for a device its beginning and a hash of it.
pub(crate) fn fitting(name: &str) -> String {
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let start: String = name.chars().filter(char::is_ascii).take(LONGEST - 5).collect();
    format!("{start}~{:04x}", hash >> 16)
}

/// A namespace of a bed.
pub(crate) fn namespace(id: &str, what: &str) -> String {
    format!("{PREFIX}{id}-{what}")
}

/// The process that made a namespace of that name, if it is the laboratory's.
pub(crate) fn maker(namespace: &str) -> Option<u32> {
    let (pid, rest) = namespace.strip_prefix(PREFIX)?.split_once('-')?;
    let (number, _) = rest.split_once('-')?;
    number.parse::<u32>().ok()?;
    pid.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_after_their_two_ends_and_never_too_long() {
        assert_eq!(device("s1", "PC1", 0), "s1-PC1");
        assert_eq!(device("s1", "s2", 1), "s1-s2.2");
        let (a, b) = (
            device("access-switch", "workstation1", 0),
            device("access-switch", "workstation2", 0),
        );
        assert_ne!(a, b);
        assert!(a.starts_with("access-swi~") && a.len() == 15, "{a}");
    }

    #[test]
    fn the_maker_of_a_namespace_is_read_from_its_name() {
        assert_eq!(maker(&namespace("123-0", "PC1")), Some(123));
        assert_eq!(maker("oxvs-lab-demo-x"), None);
        assert_eq!(maker("oxvs-1-2-x"), None);
    }
}
