//! The schemas that ship with the switch, as JSON text.

/// The configuration database of the switch: ovs-vswitchd.conf.db(5), version 8.8.0.
pub const OPEN_VSWITCH: &str = include_str!("../schemas/open_vswitch.ovsschema");

/// The database about the databases that a server has: ovsdb-server(5), version 1.2.0.
pub const SERVER: &str = include_str!("../schemas/server.ovsschema");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DatabaseSchema;

    #[test]
    fn shipped_schemas_parse_and_print_as_they_were() {
        for (text, name, version) in [(OPEN_VSWITCH, "Open_vSwitch", "8.8.0"), (SERVER, "_Server", "1.2.0")] {
            let schema = DatabaseSchema::from_text(text).unwrap();
            assert_eq!((schema.name(), schema.version()), (name, version));
            let again = DatabaseSchema::from_json(&schema.to_json()).unwrap();
            assert_eq!(again, schema);
        }
    }
}
