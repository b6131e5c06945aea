//! Versions, as `--version` and the `version` command print them.
//!
//! Scripts take the first `\d+\.\d+` of the first line for the version of Open vSwitch, so the
//! version that oxvs is compatible with comes first.

/// The version of Open vSwitch whose interfaces these are.
pub const COMPATIBLE: &str = "3.1.0";

/// The version of oxvs.
pub const OXVS: &str = env!("CARGO_PKG_VERSION");

/// The variable by which `oxvs lab` tells `oxvs-lab` its version, [`OXVS`].
pub const CALLER: &str = "OXVS_CALLER_VERSION";

/// The version of the `Open_vSwitch` schema that the tools know.
const DB_SCHEMA: &str = "8.3.1";

/// `PROGRAM (Open vSwitch) 3.1.0, oxvs 0.1.0`, without a newline.
pub fn line(program: &str) -> String {
    format!("{program} (Open vSwitch) {COMPATIBLE}, oxvs {OXVS}")
}

/// [`line`] and, below it, `DB Schema 8.3.1`: for programs that know the schema.
pub fn with_schema(program: &str) -> String {
    format!("{}\nDB Schema {DB_SCHEMA}", line(program))
}
