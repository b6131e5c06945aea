//! Versions, as `--version` and the `version` command print them.
//!
//! Scripts take the last or the fourth word of the first line for the version of Open vSwitch, so
//! that line is Open vSwitch's, and oxvs's own version is on the second line.

/// The version of Open vSwitch whose interfaces these are.
pub const COMPATIBLE: &str = "3.5.0";

/// The version of oxvs.
pub const OXVS: &str = env!("CARGO_PKG_VERSION");

/// The variable by which `oxvs lab` tells `oxvs-lab` its version, [`OXVS`].
pub const CALLER: &str = "OXVS_CALLER_VERSION";

/// The version of the `Open_vSwitch` schema that the tools know.
const DB_SCHEMA: &str = "8.8.0";

/// `PROGRAM (Open vSwitch) 3.5.0`, without a newline: the line at the start of a log.
pub fn line(program: &str) -> String {
    format!("{program} (Open vSwitch) {COMPATIBLE}")
}

/// [`line`] and, below it, `oxvs 0.1.0`: what `--version` prints.
pub fn text(program: &str) -> String {
    format!("{}\noxvs {OXVS}", line(program))
}

/// [`text`] and, below it, `DB Schema 8.8.0`: for programs that know the schema.
pub fn with_schema(program: &str) -> String {
    format!("{}\nDB Schema {DB_SCHEMA}", text(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_find_the_version_at_the_end_of_the_first_line() {
        let text = with_schema("ovs-vsctl");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "ovs-vsctl (Open vSwitch) 3.5.0");
        assert_eq!(lines[1], format!("oxvs {OXVS}"));
        assert_eq!(lines[2], "DB Schema 8.8.0");
    }
}
