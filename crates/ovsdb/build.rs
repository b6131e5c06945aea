//! Generates `rows`: one structure per table of the switch's schema, so that no column's name or
//! type is spelled twice.

use serde_json::{Map, Value};
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

const SCHEMA: &str = "schemas/open_vswitch.ovsschema";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={SCHEMA}");
    println!("cargo::rerun-if-changed=build.rs");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(SCHEMA)?)?;
    let mut code = String::new();
    for (table, content) in members(&schema, "tables")? {
        generate(&mut code, table, members(content, "columns")?)?;
    }
    let out = std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?;
    std::fs::write(Path::new(&out).join("rows.rs"), code)?;
    Ok(())
}

fn members<'a>(json: &'a Value, name: &str) -> Result<&'a Map<String, Value>, String> {
    json.get(name)
        .and_then(Value::as_object)
        .ok_or_else(|| format!("{SCHEMA}: no object \"{name}\""))
}

fn generate(code: &mut String, table: &str, columns: &Map<String, Value>) -> Result<(), Box<dyn Error>> {
    let module = table.to_lowercase();
    let name = struct_name(table);
    writeln!(code, "/// Names of the table `{table}`.\npub mod {module} {{")?;
    writeln!(
        code,
        "    /// The table's name.\n    pub const TABLE: &str = {table:?};"
    )?;
    writeln!(code, "    /// Names of its columns.\n    pub mod columns {{")?;
    for column in columns.keys() {
        writeln!(
            code,
            "        /// `{column}`.\n        pub const {}: &str = {column:?};",
            column.to_uppercase()
        )?;
    }
    let all: Vec<String> = columns.keys().map(|column| column.to_uppercase()).collect();
    writeln!(
        code,
        "        /// All of them.\n        pub const ALL: &[&str] = &[{}];\n    }}\n}}\n",
        all.join(", ")
    )?;

    writeln!(
        code,
        "/// A row of the table `{table}`.\n#[derive(Debug, Clone, Default, PartialEq)]"
    )?;
    writeln!(
        code,
        "pub struct {name} {{\n    /// The row's UUID.\n    pub uuid: Uuid,"
    )?;
    for (column, content) in columns {
        let kind = content
            .get("type")
            .ok_or_else(|| format!("{table}.{column} has no type"))?;
        let (rust, words) = types(kind).ok_or_else(|| format!("{table}.{column} has a strange type"))?;
        writeln!(
            code,
            "    /// The column `{column}`: {words}.\n    pub {}: {rust},",
            field(column)
        )?;
    }
    writeln!(code, "}}\n\nimpl TypedRow for {name} {{")?;
    writeln!(code, "    const TABLE: &'static str = {module}::TABLE;")?;
    writeln!(
        code,
        "    const COLUMNS: &'static [&'static str] = {module}::columns::ALL;\n"
    )?;
    writeln!(
        code,
        "    fn from_row(uuid: Uuid, row: &Row) -> Result<Self, RowError> {{\n        Ok({name} {{"
    )?;
    writeln!(code, "            uuid,")?;
    for column in columns.keys() {
        let constant = column.to_uppercase();
        let field = field(column);
        writeln!(
            code,
            "            {field}: column(row, uuid, {module}::TABLE, {module}::columns::{constant})?,"
        )?;
    }
    writeln!(code, "        }})\n    }}\n}}\n")?;
    Ok(())
}

/// `CT_Zone` → `CtZone`, `Open_vSwitch` → `OpenVSwitch`, `sFlow` → `SFlow`.
fn struct_name(table: &str) -> String {
    let part = |part: &str| {
        let shouting = part.len() > 1 && part.chars().all(char::is_uppercase);
        let rest = &part[1..];
        part[..1].to_uppercase() + &if shouting { rest.to_lowercase() } else { rest.to_owned() }
    };
    table.split('_').map(part).collect()
}

/// A column's name as the name of a field.
fn field(column: &str) -> String {
    match column {
        "type" => "type_".to_owned(),
        _ => column.to_owned(),
    }
}

/// The Rust type of a column's type, and that in words.
fn types(kind: &Value) -> Option<(String, String)> {
    if let Some(name) = kind.as_str() {
        let (rust, words) = atom(&Value::from(name))?;
        return Some((rust.to_owned(), words));
    }
    let (key, key_words) = atom(kind.get("key")?)?;
    let min = kind.get("min").map_or(Some(1), Value::as_u64)?;
    let max = kind.get("max").map_or(Some(1), |max| {
        max.as_str().map_or_else(|| max.as_u64(), |_| Some(u64::MAX))
    })?;
    Some(match (kind.get("value"), min, max) {
        (Some(value), ..) => {
            let (value, value_words) = atom(value)?;
            (
                format!("BTreeMap<{key}, {value}>"),
                format!("map from {key_words} to {value_words}"),
            )
        }
        (None, 1, 1) => (key.to_owned(), key_words),
        (None, 0, 1) => (format!("Option<{key}>"), format!("optional {key_words}")),
        _ => (format!("Vec<{key}>"), format!("sorted set of {key_words}")),
    })
}

fn atom(base: &Value) -> Option<(&'static str, String)> {
    let name = base.as_str().or_else(|| base.get("type")?.as_str())?;
    let rust = match name {
        "integer" => "i64",
        "real" => "f64",
        "boolean" => "bool",
        "string" => "String",
        "uuid" => "Uuid",
        _ => return None,
    };
    let limit = |member: &str| base.get(member).and_then(Value::as_i64);
    let words = if let Some(table) = base.get("refTable").and_then(Value::as_str) {
        let weak = base.get("refType").and_then(Value::as_str) == Some("weak");
        format!("{}row of `{table}`", if weak { "weakly referenced " } else { "" })
    } else if let Some(values) = base.get("enum").and_then(|list| list.get(1)).and_then(Value::as_array) {
        let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
        format!("{name}, one of `{}`", values.join("`, `"))
    } else {
        match (limit("minInteger"), limit("maxInteger")) {
            (Some(min), Some(max)) => format!("{name} from {min} to {max}"),
            (Some(min), None) => format!("{name}, at least {min}"),
            (None, Some(max)) => format!("{name}, at most {max}"),
            (None, None) => name.to_owned(),
        }
    };
    Some((rust, words))
}
