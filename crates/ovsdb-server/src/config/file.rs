//! The text of the configuration file (ovsdb-server(1), "Configuration File"): JSON, parsed whole
//! into types that hold legal values only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::remotes::Settings;
use crate::source::SourceOptions;

/// The longest configuration file, in bytes.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// What a configuration file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) remotes: BTreeMap<String, Settings>,
    /// The databases: by file name, relays by the name of the database.
    pub(crate) databases: BTreeMap<String, Model>,
}

/// How a database is served (ovsdb(7), "Service Models").
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Model {
    Standalone,
    /// An active server, which may have a source for later.
    Active,
    Backup {
        source: Source,
        /// Tables that are not replicated.
        excluded: BTreeSet<String>,
    },
    Relay(Source),
}

/// The server that a backup or relay follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// `tcp:HOST:PORT`, …; a relay may have several, separated by commas.
    pub(crate) remote: String,
    pub(crate) options: SourceOptions,
}

impl Config {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// The place in the file and the rule that it breaks.
    pub(crate) fn parse(text: &[u8]) -> Result<Config, String> {
        let json: Value = ovsdb::parse_json(text).map_err(|error| error.to_string())?;
        let Value::Object(members) = json else {
            return Err("configuration in a file must be a JSON object".to_owned());
        };
        let mut config = Config::default();
        for (remote, options) in section(&members, "remotes")? {
            let place = format!("remotes: {remote}");
            config.remotes.insert(remote.clone(), settings(&place, options)?);
        }
        for (name, database) in section(&members, "databases")? {
            config.databases.insert(name.clone(), model(name, database)?);
        }
        Ok(config)
    }
}

/// The members of an object at the top of the file.
fn section<'a>(file: &'a Map<String, Value>, name: &str) -> Result<Vec<(&'a String, &'a Value)>, String> {
    match file.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Object(members)) => Ok(members.iter().collect()),
        Some(_) => Err(format!("'{name}' is not a JSON object or null")),
    }
}

fn model(name: &str, json: &Value) -> Result<Model, String> {
    let place = format!("databases: {name}");
    let empty = Map::new();
    let members = match json {
        Value::Null => &empty,
        Value::Object(members) => members,
        _ => return Err(format!("{place}: not a JSON object or null")),
    };
    let kind = match members.get("service-model") {
        None => None,
        Some(Value::String(kind)) => Some(kind.as_str()),
        Some(_) => return Err(format!("{place}: 'service-model' is not a string")),
    };
    let known: &[&str] = match kind {
        Some("active-backup") => &["service-model", "backup", "source", "exclude-tables"],
        Some("relay") => &["service-model", "source"],
        _ => &["service-model"],
    };
    only(&place, members, known)?;
    match kind {
        None | Some("standalone") => Ok(Model::Standalone),
        Some("clustered") => Err(format!("{place}: service model 'clustered' is not supported")),
        Some("relay") => match source(&place, members)? {
            Some(source) => Ok(Model::Relay(source)),
            None => Err(format!("{place}: a relay requires a 'source'")),
        },
        Some("active-backup") => {
            let Some(backup) = members.get("backup").and_then(Value::as_bool) else {
                return Err(format!("{place}: 'backup' must be true or false"));
            };
            let excluded = excluded(&place, members)?;
            match (backup, source(&place, members)?) {
                (false, _) => Ok(Model::Active),
                (true, Some(source)) => Ok(Model::Backup { source, excluded }),
                (true, None) => Err(format!("{place}: a backup requires a 'source'")),
            }
        }
        Some(other) => Err(format!("{place}: '{other}' is not a valid service model")),
    }
}

fn excluded(place: &str, members: &Map<String, Value>) -> Result<BTreeSet<String>, String> {
    let Some(tables) = members.get("exclude-tables") else {
        return Ok(BTreeSet::new());
    };
    let tables = tables.as_array();
    let tables = tables.ok_or_else(|| format!("{place}: 'exclude-tables' is not an array"))?;
    let text = |table: &Value| table.as_str().map(str::to_owned);
    let tables: Option<BTreeSet<String>> = tables.iter().map(text).collect();
    tables.ok_or_else(|| format!("{place}: 'exclude-tables' must contain strings"))
}

fn source(place: &str, members: &Map<String, Value>) -> Result<Option<Source>, String> {
    let Some(json) = members.get("source") else {
        return Ok(None);
    };
    let one = json.as_object().filter(|sources| sources.len() == 1);
    let Some((remote, options)) = one.and_then(|sources| sources.iter().next()) else {
        return Err(format!(
            "{place}: 'source' should be an object with exactly one element"
        ));
    };
    let place = format!("{place}: source {remote}");
    for remote in remote.split(',') {
        match remote.parse::<mgmt::stream::Remote>() {
            Ok(parsed) if !parsed.is_passive() => {}
            Ok(_) => return Err(format!("{place}: not an active connection method")),
            Err(error) => return Err(format!("{place}: {error}")),
        }
    }
    let options = members_of(&place, options)?;
    only(&place, &options, &["inactivity-probe", "max-backoff", "dscp"])?;
    let options = SourceOptions {
        probe: time(&place, &options, "inactivity-probe")?,
        max_backoff: time(&place, &options, "max-backoff")?,
        dscp: dscp(&place, &options)?,
    };
    let remote = remote.clone();
    Ok(Some(Source { remote, options }))
}

fn settings(place: &str, json: &Value) -> Result<Settings, String> {
    let options = members_of(place, json)?;
    only(
        place,
        &options,
        &["inactivity-probe", "max-backoff", "dscp", "read-only", "role"],
    )?;
    let default = Settings::default();
    let wrong = |name: &str, rule: &str| format!("{place}: '{name}' is not a {rule}");
    let read_only = match options.get("read-only") {
        None => false,
        Some(value) => value.as_bool().ok_or_else(|| wrong("read-only", "boolean"))?,
    };
    let role = match options.get("role") {
        None => "",
        Some(value) => value.as_str().ok_or_else(|| wrong("role", "string"))?,
    };
    Ok(Settings {
        probe: time(place, &options, "inactivity-probe")?,
        max_backoff: time(place, &options, "max-backoff")?.unwrap_or(default.max_backoff),
        read_only,
        role: role.to_owned(),
        dscp: dscp(place, &options)?.unwrap_or(default.dscp),
    })
}

fn members_of(place: &str, json: &Value) -> Result<Map<String, Value>, String> {
    match json {
        Value::Null => Ok(Map::new()),
        Value::Object(members) => Ok(members.clone()),
        _ => Err(format!("{place}: JSON-RPC options are not a JSON object or null")),
    }
}

/// A time in milliseconds.
fn time(place: &str, options: &Map<String, Value>, name: &str) -> Result<Option<Duration>, String> {
    let Some(value) = options.get(name) else {
        return Ok(None);
    };
    let time = value.as_u64().and_then(|time| u32::try_from(time).ok());
    let time = time.filter(|time| *time <= i32::MAX as u32);
    match time {
        Some(time) => Ok(Some(Duration::from_millis(time.into()))),
        None => Err(format!("{place}: '{name}' is not an integer from 0 to {}", i32::MAX)),
    }
}

fn dscp(place: &str, options: &Map<String, Value>) -> Result<Option<u8>, String> {
    let Some(value) = options.get("dscp") else {
        return Ok(None);
    };
    let dscp = value.as_u64().and_then(|dscp| u8::try_from(dscp).ok());
    match dscp.filter(|dscp| *dscp < 64) {
        Some(dscp) => Ok(Some(dscp)),
        None => Err(format!("{place}: 'dscp' is not an integer from 0 to 63")),
    }
}

/// Refuses members that have no meaning.
fn only(place: &str, members: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match members.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(format!("{place}: member '{name}' is not allowed here")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"{"remotes": {"punix:a": null, "ptcp:1": {"inactivity-probe": 0, "max-backoff": 7,
        "dscp": 3, "read-only": true, "role": "r"}}, "databases": {"a.db": {}, "b.db": null,
        "c.db": {"service-model": "active-backup", "backup": true, "source": {"tcp:127.0.0.1:1": null},
        "exclude-tables": ["T"]}, "R": {"service-model": "relay", "source":
        {"unix:x,unix:y": {"inactivity-probe": 5}}}}}"#;

    #[test]
    fn a_file_has_remotes_and_databases_of_every_service_model() {
        let config = Config::parse(WHOLE.as_bytes()).unwrap();
        let remote = &config.remotes["ptcp:1"];
        assert_eq!(
            (remote.probe, remote.dscp, remote.role.as_str()),
            (Some(Duration::ZERO), 3, "r")
        );
        assert_eq!(config.remotes["punix:a"], Settings::default());
        assert_eq!(config.databases["b.db"], Model::Standalone);
        let Model::Backup { source, excluded } = &config.databases["c.db"] else {
            panic!("c.db is a backup");
        };
        assert_eq!((source.remote.as_str(), excluded.len()), ("tcp:127.0.0.1:1", 1));
        let Model::Relay(source) = &config.databases["R"] else {
            panic!("R is a relay");
        };
        assert_eq!(source.options.probe, Some(Duration::from_millis(5)));
    }

    #[test]
    fn errors_name_the_place_and_the_rule() {
        for (text, error) in [
            ("[]", "configuration in a file must be a JSON object"),
            (r#"{"remotes": 1}"#, "'remotes' is not a JSON object or null"),
            (
                r#"{"remotes": {"ptcp:1": {"dscp": 64}}}"#,
                "remotes: ptcp:1: 'dscp' is not an integer from 0 to 63",
            ),
            (
                r#"{"databases": {"a": {"service-model": "clustered"}}}"#,
                "databases: a: service model 'clustered' is not supported",
            ),
            (
                r#"{"databases": {"a": {"service-model": "x"}}}"#,
                "databases: a: 'x' is not a valid service model",
            ),
            (
                r#"{"databases": {"a": {"backup": true}}}"#,
                "databases: a: member 'backup' is not allowed here",
            ),
            (
                r#"{"databases": {"a": {"service-model": "relay"}}}"#,
                "databases: a: a relay requires a 'source'",
            ),
            (
                r#"{"databases": {"a": {"service-model": "active-backup", "backup": true}}}"#,
                "databases: a: a backup requires a 'source'",
            ),
        ] {
            assert_eq!(Config::parse(text.as_bytes()).unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn files_that_are_cut_or_damaged_are_refused_or_read_but_never_panic() {
        for at in 0..WHOLE.len() {
            assert!(Config::parse(&WHOLE.as_bytes()[..at]).is_err());
            for byte in [b'"', b'{', b'[', b'0', b'-', 0, 0xff] {
                let mut text = WHOLE.as_bytes().to_vec();
                text[at] = byte;
                let _ = Config::parse(&text);
            }
        }
    }
}
