//! The database server's configuration file, as whoever may write it writes it.

use ovsdb_server::check_config;
use serde_json::Value;

/// A text is read whole: white space around it changes nothing, and without its last byte it is no
/// file any more. A file has the remotes and databases that its JSON has.
pub fn configuration(data: &[u8]) {
    let data = data.trim_ascii();
    let read = match check_config(data) {
        Ok(read) => read,
        Err(error) => return assert!(!error.is_empty(), "an error without words"),
    };
    assert_eq!(check_config(&[b"\n ", data, b"\t\n"].concat()), Ok(read));
    assert!(check_config(&data[..data.len() - 1]).is_err());
    let json: Value = serde_json::from_slice(data).expect("what was read is JSON");
    let members = |name| {
        json.get(name)
            .and_then(Value::as_object)
            .map_or(0, |members| members.len())
    };
    assert_eq!(read, (members("remotes"), members("databases")));
}
