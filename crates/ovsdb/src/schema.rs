//! Schemas of databases, tables and columns (RFC 7047 §3.2).
//!
//! Columns are numbered: 0 is `_uuid`, 1 is `_version`, the others follow in the order of their
//! names. A row holds its values by these numbers.

use crate::atom::AtomicType;
use crate::error::{Error, ErrorKind};
use crate::json::{Json, parse_json};
use crate::parser::{Kinds, Name, Parser, is_id};
use crate::types::{BaseType, ColumnType, RefType, UNLIMITED};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The number of the column `_uuid` in every table.
pub const COL_UUID: usize = 0;
/// The number of the column `_version` in every table.
pub const COL_VERSION: usize = 1;
/// The number of the first column that the schema defines.
pub const FIRST_COLUMN: usize = 2;

/// A column (RFC 7047 §3.2, `<column-schema>`).
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnSchema {
    /// An `<id>`.
    pub name: String,
    /// What it holds.
    pub kind: ColumnType,
    /// Whether its value may change after the row's insertion.
    pub mutable: bool,
    /// Whether its value survives a restart of the server.
    pub persistent: bool,
}

/// A table (RFC 7047 §3.2, `<table-schema>`).
#[derive(Debug, Clone, PartialEq)]
pub struct TableSchema {
    name: String,
    columns: Vec<ColumnSchema>,
    by_name: HashMap<String, usize>,
    mutable: bool,
    is_root: bool,
    max_rows: usize,
    indexes: Vec<Vec<usize>>,
}

/// A database (RFC 7047 §3.2, `<database-schema>`).
#[derive(Debug, Clone, PartialEq)]
pub struct DatabaseSchema {
    name: String,
    version: String,
    cksum: String,
    tables: Vec<TableSchema>,
    by_name: HashMap<String, usize>,
}

impl DatabaseSchema {
    /// Parses and validates a `<database-schema>`.
    ///
    /// # Errors
    /// `syntax error` when it is malformed, names a table that does not exist, or contradicts
    /// itself.
    pub fn from_json(json: &Value) -> Result<DatabaseSchema, Error> {
        let mut parser = Parser::new(json, Name::Plain("database schema"));
        let name = parser.required("name", Kinds::ID).and_then(Value::as_str);
        let version = parser.optional("version", Kinds::STRING).and_then(Value::as_str);
        let cksum = parser.optional("cksum", Kinds::STRING).and_then(Value::as_str);
        let tables_json = parser.required("tables", Kinds::OBJECT).and_then(Value::as_object);
        parser.finish()?;
        let version = version.unwrap_or_default();
        if !version.is_empty() && !is_version(version) {
            return Err(Error::syntax(
                json,
                format!("schema version \"{version}\" not in format x.y.z"),
            ));
        }
        let mut tables = Vec::new();
        for (name, table) in tables_json.into_iter().flatten() {
            check_name(json, "table", name)?;
            tables.push(TableSchema::from_json(name, table)?);
        }
        let mut schema = DatabaseSchema {
            name: name.unwrap_or_default().to_owned(),
            version: version.to_owned(),
            cksum: cksum.unwrap_or_default().to_owned(),
            by_name: tables
                .iter()
                .enumerate()
                .map(|(at, table)| (table.name.clone(), at))
                .collect(),
            tables,
        };
        schema.settle_references()?;
        Ok(schema)
    }

    /// Parses the text of a schema file.
    ///
    /// # Errors
    /// `syntax error`.
    pub fn from_text(text: &str) -> Result<DatabaseSchema, Error> {
        let json =
            parse_json(text.as_bytes()).map_err(|e| Error::new(ErrorKind::Syntax, format!("not valid JSON: {e}")))?;
        DatabaseSchema::from_json(&json)
    }

    /// The `<database-schema>`.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("name".into(), self.name.as_str().into());
        if !self.version.is_empty() {
            object.insert("version".into(), self.version.as_str().into());
        }
        if !self.cksum.is_empty() {
            object.insert("cksum".into(), self.cksum.as_str().into());
        }
        let some_root = self.tables.iter().any(|table| !table.is_root);
        let tables = self
            .tables
            .iter()
            .map(|table| (table.name.clone(), table.to_json(some_root)))
            .collect();
        object.insert("tables".into(), Value::Object(tables));
        Value::Object(object)
    }

    /// The database's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version, `x.y.z`, or empty.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The checksum that the schema's author gave, or empty.
    pub fn cksum(&self) -> &str {
        &self.cksum
    }

    /// The tables, sorted by name; a table's number is its place here.
    pub fn tables(&self) -> &[TableSchema] {
        &self.tables
    }

    /// The table of that name.
    pub fn table(&self, name: &str) -> Option<&TableSchema> {
        self.table_index(name).map(|at| &self.tables[at])
    }

    /// The number of the table of that name.
    pub fn table_index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Checks that references name existing tables, and makes columns of weak references mutable.
    /// If no table is a root (schemas older than `isRoot`), all tables are.
    fn settle_references(&mut self) -> Result<(), Error> {
        for table in &self.tables {
            for column in &table.columns {
                for base in column.kind.bases() {
                    if let Some(reference) = base.reference()
                        && !self.by_name.contains_key(&reference.table)
                    {
                        let (name, to) = (&column.name, &reference.table);
                        let side = if std::ptr::eq(base, &column.kind.key) {
                            "key"
                        } else {
                            "value"
                        };
                        let details = format!("column {name} {side} refers to undefined table {to}");
                        return Err(Error::new(ErrorKind::Syntax, details));
                    }
                }
            }
        }
        let no_root = self.tables.iter().all(|table| !table.is_root);
        for table in &mut self.tables {
            table.is_root |= no_root;
            for column in &mut table.columns {
                column.mutable |= column.kind.bases().any(|base| base.refers(RefType::Weak));
            }
        }
        Ok(())
    }
}

impl TableSchema {
    fn from_json(name: &str, json: &Value) -> Result<TableSchema, Error> {
        let mut parser = Parser::new(json, Name::Named("table schema for table", name));
        let columns_json = parser.required("columns", Kinds::OBJECT).and_then(Value::as_object);
        let mutable = parser
            .optional("mutable", Kinds::BOOLEAN)
            .and_then(Value::as_bool)
            .unwrap_or(true);
        let max_rows = parser.optional("maxRows", Kinds::INTEGER);
        let is_root = parser
            .optional("isRoot", Kinds::BOOLEAN)
            .and_then(Value::as_bool)
            .unwrap_or(false);
        let indexes_json = parser.optional("indexes", Kinds::ARRAY).and_then(Value::as_array);
        parser.finish()?;
        let max_rows = match max_rows {
            None => UNLIMITED,
            Some(number) => crate::atom::json_integer(number)
                .filter(|&max| max > 0)
                .and_then(|max| usize::try_from(max).ok())
                .map(|max| max.min(UNLIMITED))
                .ok_or_else(|| Error::syntax(json, "maxRows must be at least 1"))?,
        };
        let columns_json = columns_json.filter(|columns| !columns.is_empty());
        let columns_json = columns_json.ok_or_else(|| Error::syntax(json, "table must have at least one column"))?;
        let uuid = ColumnType::scalar(BaseType::plain(AtomicType::Uuid));
        let pseudo = |name: &str, persistent| ColumnSchema {
            name: name.to_owned(),
            kind: uuid.clone(),
            mutable: false,
            persistent,
        };
        let mut columns = vec![pseudo("_uuid", true), pseudo("_version", false)];
        for (column, definition) in columns_json {
            check_name(json, "column", column)?;
            columns.push(ColumnSchema::from_json(column, definition, mutable)?);
        }
        let by_name = columns
            .iter()
            .enumerate()
            .map(|(at, column)| (column.name.clone(), at))
            .collect();
        let mut table = TableSchema {
            name: name.to_owned(),
            columns,
            by_name,
            mutable,
            is_root,
            max_rows,
            indexes: Vec::new(),
        };
        for index in indexes_json.into_iter().flatten() {
            let index = table.parse_index(json, index)?;
            table.indexes.push(index);
        }
        Ok(table)
    }

    /// Parses one of the `indexes` of the `<table-schema>` that is `json`.
    fn parse_index(&self, json: &Value, index: &Value) -> Result<Vec<usize>, Error> {
        let columns = self.parse_columns(index)?;
        if columns.is_empty() {
            return Err(Error::syntax(json, "index must have at least one column"));
        }
        if let Some(&column) = columns.iter().find(|&&column| !self.columns[column].persistent) {
            let name = &self.columns[column].name;
            return Err(Error::syntax(
                json,
                format!("ephemeral columns (such as {name}) may not be indexed"),
            ));
        }
        Ok(columns)
    }

    /// Parses an array of distinct names of columns.
    pub(crate) fn parse_columns(&self, json: &impl Json) -> Result<Vec<usize>, Error> {
        let distinct = || Error::syntax(json, "array of distinct column names expected");
        let mut columns = Vec::new();
        for name in json.as_array().ok_or_else(distinct)? {
            let name = name.as_str().ok_or_else(distinct)?;
            let column = self
                .column_index(name)
                .ok_or_else(|| Error::syntax(json, format!("{name} is not a valid column name")))?;
            if columns.contains(&column) {
                return Err(distinct());
            }
            columns.push(column);
        }
        Ok(columns)
    }

    fn to_json(&self, show_root: bool) -> Value {
        let mut object = Map::new();
        let columns = self
            .user_columns()
            .map(|(_, column)| (column.name.clone(), column.to_json(self.mutable)));
        object.insert("columns".into(), Value::Object(columns.collect()));
        if !self.mutable {
            object.insert("mutable".into(), false.into());
        }
        if self.max_rows != UNLIMITED {
            object.insert("maxRows".into(), self.max_rows.into());
        }
        if self.is_root && show_root {
            object.insert("isRoot".into(), true.into());
        }
        if !self.indexes.is_empty() {
            let names = |index: &Vec<usize>| {
                index
                    .iter()
                    .map(|&at| self.columns[at].name.as_str())
                    .collect::<Vec<_>>()
            };
            object.insert("indexes".into(), self.indexes.iter().map(names).collect());
        }
        Value::Object(object)
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All columns by number, `_uuid` and `_version` first.
    pub fn columns(&self) -> &[ColumnSchema] {
        &self.columns
    }

    /// The columns that the schema defines, with their numbers.
    pub fn user_columns(&self) -> impl Iterator<Item = (usize, &ColumnSchema)> {
        self.columns.iter().enumerate().skip(FIRST_COLUMN)
    }

    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<&ColumnSchema> {
        self.column_index(name).map(|at| &self.columns[at])
    }

    /// The number of the column of that name.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Whether its rows stay without references to them.
    pub fn is_root(&self) -> bool {
        self.is_root
    }

    /// The greatest number of rows; [`UNLIMITED`] for no limit.
    pub fn max_rows(&self) -> usize {
        self.max_rows
    }

    /// The indexes: in each, the values of these columns together differ from row to row.
    pub fn indexes(&self) -> &[Vec<usize>] {
        &self.indexes
    }
}

impl ColumnSchema {
    fn from_json(name: &str, json: &Value, table_mutable: bool) -> Result<ColumnSchema, Error> {
        let mut parser = Parser::new(json, Name::Named("schema for column", name));
        let mutable = parser
            .optional("mutable", Kinds::BOOLEAN)
            .and_then(Value::as_bool)
            .unwrap_or(true);
        let ephemeral = parser
            .optional("ephemeral", Kinds::BOOLEAN)
            .and_then(Value::as_bool)
            .unwrap_or(false);
        let kind = parser.required("type", Kinds::STRING.or(Kinds::OBJECT));
        parser.finish()?;
        let kind = ColumnType::from_json(kind.unwrap_or(&Value::Null))?;
        Ok(ColumnSchema {
            name: name.to_owned(),
            kind,
            mutable: mutable && table_mutable,
            persistent: !ephemeral,
        })
    }

    fn to_json(&self, table_mutable: bool) -> Value {
        let mut object = Map::new();
        object.insert("type".into(), self.kind.to_json());
        if !self.mutable && table_mutable {
            object.insert("mutable".into(), false.into());
        }
        if !self.persistent {
            object.insert("ephemeral".into(), true.into());
        }
        Value::Object(object)
    }
}

impl ColumnType {
    /// The type of the keys and, in a map, that of the values.
    pub fn bases(&self) -> impl Iterator<Item = &BaseType> {
        std::iter::once(&self.key).chain(&self.value)
    }
}

/// A name must be an `<id>`; names with a leading underscore are reserved for the protocol.
fn check_name(json: &Value, what: &str, name: &str) -> Result<(), Error> {
    if name.starts_with('_') {
        return Err(Error::syntax(
            json,
            format!("names beginning with \"_\" are reserved ({what} {name})"),
        ));
    }
    if !is_id(name) {
        return Err(Error::syntax(json, format!("name must be a valid id ({what} {name})")));
    }
    Ok(())
}

fn is_version(text: &str) -> bool {
    let mut parts = text.split('.');
    let number = |part: Option<&str>| part.is_some_and(|p| !p.is_empty() && p.bytes().all(|c| c.is_ascii_digit()));
    number(parts.next()) && number(parts.next()) && number(parts.next()) && parts.next().is_none()
}
