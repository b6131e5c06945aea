//! A row of a table: one datum a column.

use crate::datum::Datum;
use crate::schema::{COL_UUID, COL_VERSION, TableSchema};
use crate::uuid::Uuid;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

/// A row. Rows are shared between the table, transactions and monitors, and copied when they
/// change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    fields: Box<[Datum]>,
}

impl Row {
    /// A row of default values.
    pub(crate) fn new(table: &TableSchema, uuid: Uuid) -> Row {
        let mut fields: Box<[Datum]> = table
            .columns()
            .iter()
            .map(|column| column.kind.default_datum())
            .collect();
        fields[COL_UUID] = Datum::one(uuid);
        Row { fields }
    }

    /// The row's UUID.
    pub fn uuid(&self) -> Uuid {
        self.uuid_of(COL_UUID)
    }

    /// The row's version, which changes with the row.
    pub fn version(&self) -> Uuid {
        self.uuid_of(COL_VERSION)
    }

    fn uuid_of(&self, column: usize) -> Uuid {
        self.fields[column]
            .as_one()
            .and_then(|atom| atom.as_uuid())
            .unwrap_or_default()
    }

    /// The value of the column of that number.
    pub fn get(&self, column: usize) -> &Datum {
        &self.fields[column]
    }

    /// All values by the number of their columns.
    pub fn fields(&self) -> &[Datum] {
        &self.fields
    }

    pub(crate) fn set(&mut self, column: usize, value: Datum) {
        self.fields[column] = value;
    }

    /// The `<row>` of these columns.
    pub fn to_json(&self, table: &TableSchema, columns: &[usize]) -> Value {
        let member = |&at: &usize| {
            let column = &table.columns()[at];
            (column.name.clone(), self.fields[at].to_json(&column.kind))
        };
        Value::Object(columns.iter().map(member).collect::<Map<_, _>>())
    }

    /// The `<row>` of these columns for a serializer.
    pub fn json<'a>(&'a self, table: &'a TableSchema, columns: &'a [usize]) -> impl Serialize + 'a {
        RowJson {
            row: self,
            table,
            columns,
        }
    }
}

struct RowJson<'a> {
    row: &'a Row,
    table: &'a TableSchema,
    columns: &'a [usize],
}

impl Serialize for RowJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.columns.len()))?;
        for &at in self.columns {
            let column = &self.table.columns()[at];
            map.serialize_entry(&column.name, &self.row.fields[at].json(&column.kind))?;
        }
        map.end()
    }
}
