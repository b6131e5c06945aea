//! A transaction under construction, its operations, and its result.

use super::tables::Tables;
use crate::rows::ToDatum;
use crate::{Atom, ColumnType, DatabaseSchema, Datum, Uuid, UuidGen};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Changes that happen together or not at all.
///
/// A row inserted here gets a provisional UUID at once, so that other columns can refer to it. The
/// server assigns another, which is in [`TxnStatus::Success`].
#[derive(Debug, Clone)]
pub struct Txn {
    uuids: UuidGen,
    edits: Vec<Edit>,
    by_row: HashMap<Uuid, usize>,
    comments: Vec<String>,
    increment: Option<(String, Uuid, String)>,
    /// Tables that must not have a row.
    empty: BTreeSet<String>,
}

/// The result of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TxnStatus {
    /// No answer yet.
    Incomplete,
    /// Nothing in it changes anything: it was not sent.
    Unchanged,
    /// It is in the database.
    Success {
        /// The UUIDs of the inserted rows: from that of the [`Txn`] to that of the database.
        inserted: BTreeMap<Uuid, Uuid>,
        /// The new value of the column that was incremented.
        increment: Option<i64>,
    },
    /// A verified column has changed, or the connection broke: build the transaction again from the
    /// current replica. If the connection broke, the server may have committed it.
    TryAgain,
    /// The client does not hold its lock.
    NotLocked,
    /// The server refuses it: the `<error>` as JSON text, or why it could not be sent.
    Error(String),
}

/// The changes of a row.
#[derive(Debug, Clone)]
pub(super) struct Edit {
    pub(super) table: String,
    pub(super) uuid: Uuid,
    pub(super) kind: EditKind,
    pub(super) set: BTreeMap<String, Datum>,
    pub(super) mutated: BTreeMap<String, Mutation>,
    verified: BTreeMap<String, Datum>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EditKind {
    Insert,
    /// With the UUID that the caller chose.
    InsertAs,
    Update,
    Delete,
    /// Inserted and deleted in the same transaction.
    Nothing,
}

/// Elements to take out of a set or map, then elements to put in.
#[derive(Debug, Clone, Default)]
pub(super) struct Mutation {
    delete: BTreeSet<Atom>,
    /// With the value, in a map.
    insert: BTreeMap<Atom, Option<Atom>>,
}

impl Mutation {
    pub(super) fn apply(&self, base: &Datum) -> Datum {
        let stays = |key: &Atom| !self.delete.contains(key) && !self.insert.contains_key(key);
        if !base.pairs().is_empty() || self.insert.values().any(Option::is_some) {
            let stay = base.pairs().iter().filter(|(key, _)| stays(key)).cloned();
            let come = self
                .insert
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
            return Datum::map(stay.chain(come));
        }
        let stay = base.atoms().iter().filter(|atom| stays(atom)).cloned();
        Datum::set(stay.chain(self.insert.keys().cloned()))
    }
}

impl Txn {
    /// An empty transaction; `seed` decides the provisional UUIDs. Most callers want
    /// [`super::Idl::txn`].
    pub fn new(seed: u128) -> Txn {
        Txn {
            uuids: UuidGen::new(seed),
            edits: Vec::new(),
            by_row: HashMap::new(),
            comments: Vec::new(),
            increment: None,
            empty: BTreeSet::new(),
        }
    }

    /// Inserts a row of defaults into `table`; its provisional UUID.
    pub fn insert(&mut self, table: &str) -> Uuid {
        let uuid = self.reserve();
        self.insert_reserved(table, uuid);
        uuid
    }

    /// A provisional UUID for a row that [`Txn::insert_reserved`] inserts later; other columns can
    /// refer to it before.
    pub fn reserve(&mut self) -> Uuid {
        self.uuids.next_uuid()
    }

    /// Inserts a row of defaults into `table` under a UUID of [`Txn::reserve`].
    pub fn insert_reserved(&mut self, table: &str, uuid: Uuid) {
        self.edit(table, uuid).kind = EditKind::Insert;
    }

    /// Inserts a row of defaults into `table` with the UUID `uuid` (an extension of ovsdb-server ≥
    /// 2.17).
    pub fn insert_as(&mut self, table: &str, uuid: Uuid) {
        self.edit(table, uuid).kind = EditKind::InsertAs;
    }

    /// Sets a column.
    pub fn set(&mut self, table: &str, uuid: Uuid, column: &str, value: impl ToDatum) {
        let edit = self.edit(table, uuid);
        edit.mutated.remove(column);
        edit.set.insert(column.to_owned(), value.to_datum());
    }

    /// Adds an element to a set, independently of other clients' changes.
    pub fn set_insert(&mut self, table: &str, uuid: Uuid, column: &str, element: impl Into<Atom>) {
        let element = element.into();
        self.mutate(table, uuid, column, |mutation| {
            mutation.delete.remove(&element);
            mutation.insert.insert(element, None);
        });
    }

    /// Removes an element from a set, or a key's pair from a map, independently of other clients'
    /// changes.
    pub fn set_delete(&mut self, table: &str, uuid: Uuid, column: &str, key: impl Into<Atom>) {
        let key = key.into();
        self.mutate(table, uuid, column, |mutation| {
            mutation.insert.remove(&key);
            mutation.delete.insert(key);
        });
    }

    /// Sets a key's value in a map, independently of other clients' changes.
    pub fn map_put(&mut self, table: &str, uuid: Uuid, column: &str, key: impl Into<Atom>, value: impl Into<Atom>) {
        let (key, value) = (key.into(), value.into());
        self.mutate(table, uuid, column, |mutation| {
            mutation.delete.insert(key.clone());
            mutation.insert.insert(key, Some(value));
        });
    }

    /// Removes a key's pair from a map.
    pub fn map_delete(&mut self, table: &str, uuid: Uuid, column: &str, key: impl Into<Atom>) {
        self.set_delete(table, uuid, column, key);
    }

    /// Deletes a row. In tables that are not roots it takes effect only when nothing refers to the
    /// row any more.
    pub fn delete(&mut self, table: &str, uuid: Uuid) {
        let edit = self.edit(table, uuid);
        edit.kind = match edit.kind {
            EditKind::Insert | EditKind::InsertAs => EditKind::Nothing,
            EditKind::Update | EditKind::Delete => EditKind::Delete,
            EditKind::Nothing => EditKind::Nothing,
        };
        edit.set.clear();
        edit.mutated.clear();
        edit.verified.clear();
    }

    /// Makes the transaction fail with [`TxnStatus::TryAgain`] if the column no longer has the
    /// value that `tables` shows. Rows and columns that `tables` lacks are not verified.
    pub fn verify(&mut self, tables: &Tables, table: &str, uuid: Uuid, column: &str) {
        if let Some(value) = tables.row(table, uuid).and_then(|row| row.get(column)) {
            let edit = self.edit(table, uuid);
            if edit.kind == EditKind::Update {
                edit.verified.entry(column.to_owned()).or_insert_with(|| value.clone());
            }
        }
    }

    /// Makes the transaction fail with [`TxnStatus::TryAgain`] if `table` has a row.
    pub fn verify_empty(&mut self, table: &str) {
        self.empty.insert(table.to_owned());
    }

    /// Adds a line to the transaction's comment in the server's log.
    pub fn comment(&mut self, text: impl Into<String>) {
        self.comments.push(text.into());
    }

    /// Adds 1 to an integer column and reports its new value, if the transaction changes anything
    /// else.
    pub fn increment(&mut self, table: &str, uuid: Uuid, column: &str) {
        self.increment = Some((table.to_owned(), uuid, column.to_owned()));
    }

    /// The rows that it inserts or sets columns of. References that come and go elsewhere because
    /// of them are not counted.
    pub fn rows_set(&self) -> impl Iterator<Item = (&str, Uuid)> {
        let is_set = |edit: &&Edit| match edit.kind {
            EditKind::Insert | EditKind::InsertAs => true,
            EditKind::Update => !edit.set.is_empty(),
            EditKind::Delete | EditKind::Nothing => false,
        };
        self.edits
            .iter()
            .filter(is_set)
            .map(|edit| (edit.table.as_str(), edit.uuid))
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.edits.iter().all(|edit| match edit.kind {
            EditKind::Insert | EditKind::InsertAs | EditKind::Delete => false,
            EditKind::Update => edit.set.is_empty() && edit.mutated.is_empty(),
            EditKind::Nothing => true,
        })
    }

    pub(super) fn edit_of(&self, table: &str, uuid: Uuid) -> Option<&Edit> {
        self.by_row
            .get(&uuid)
            .map(|&at| &self.edits[at])
            .filter(|edit| edit.table == table)
    }

    pub(super) fn edits_of<'a>(&'a self, table: &'a str) -> impl Iterator<Item = &'a Edit> {
        self.edits.iter().filter(move |edit| edit.table == table)
    }

    fn edit(&mut self, table: &str, uuid: Uuid) -> &mut Edit {
        let next = self.edits.len();
        let at = *self.by_row.entry(uuid).or_insert(next);
        if at == next {
            self.edits.push(Edit {
                table: table.to_owned(),
                uuid,
                kind: EditKind::Update,
                set: BTreeMap::new(),
                mutated: BTreeMap::new(),
                verified: BTreeMap::new(),
            });
        }
        &mut self.edits[at]
    }

    /// Changes a set or map: in the value that this transaction sets, or else by a mutation.
    fn mutate(&mut self, table: &str, uuid: Uuid, column: &str, change: impl FnOnce(&mut Mutation)) {
        let edit = self.edit(table, uuid);
        let inserts = matches!(edit.kind, EditKind::Insert | EditKind::InsertAs);
        if inserts || edit.set.contains_key(column) {
            let mut mutation = Mutation::default();
            change(&mut mutation);
            let value = edit.set.entry(column.to_owned()).or_default();
            *value = mutation.apply(value);
        } else {
            change(edit.mutated.entry(column.to_owned()).or_default());
        }
    }
}

/// A transaction as the operations of a `transact` request, and how to read the reply.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) operations: Vec<Value>,
    /// The operation that inserts each row.
    inserts: Vec<(usize, Uuid)>,
    /// The operation that selects the incremented column.
    increment: Option<(usize, String)>,
}

impl Txn {
    /// The operations, for a server with `schema`. Columns that the server lacks are left out.
    pub(super) fn into_request(self, schema: &DatabaseSchema, lock: Option<&str>) -> Request {
        let names: BTreeSet<Uuid> = self
            .edits
            .iter()
            .filter(|edit| edit.kind == EditKind::Insert)
            .map(|edit| edit.uuid)
            .collect();
        let encoder = Encoder { schema, names };
        let mut request = Request {
            operations: Vec::new(),
            inserts: Vec::new(),
            increment: None,
        };
        if let Some(lock) = lock {
            request.operations.push(json!({ "op": "assert", "lock": lock }));
        }
        for table in &self.empty {
            request.operations.push(json!({
                "op": "wait", "timeout": 0, "table": table, "where": [], "until": "==", "rows": [],
            }));
        }
        request
            .operations
            .extend(self.edits.iter().filter_map(|edit| encoder.wait(edit)));
        for edit in &self.edits {
            match edit.kind {
                EditKind::Nothing => {}
                EditKind::Delete => {
                    if schema.table(&edit.table).is_some_and(|table| table.is_root()) {
                        let row = encoder.this_row(edit.uuid);
                        request
                            .operations
                            .push(json!({ "op": "delete", "table": edit.table, "where": row }));
                    }
                }
                EditKind::Insert | EditKind::InsertAs => {
                    request.inserts.push((request.operations.len(), edit.uuid));
                    request.operations.push(encoder.insert(edit));
                }
                EditKind::Update => {
                    request.operations.extend(encoder.update(edit));
                    request.operations.extend(encoder.mutate(edit));
                }
            }
        }
        if let Some((table, uuid, column)) = self.increment {
            let row = encoder.this_row(uuid);
            let mutations = json!([[column, "+=", 1]]);
            request
                .operations
                .push(json!({ "op": "mutate", "table": table, "where": row, "mutations": mutations }));
            let select = json!({ "op": "select", "table": table, "where": row, "columns": [column] });
            request.increment = Some((request.operations.len(), column));
            request.operations.push(select);
        }
        if !self.comments.is_empty() {
            request
                .operations
                .push(json!({ "op": "comment", "comment": self.comments.join("\n") }));
        }
        request
    }
}

impl Request {
    /// What a reply's `result` says.
    pub(super) fn status(&self, result: &Value) -> TxnStatus {
        let Some(results) = result.as_array() else {
            return TxnStatus::Error(format!("reply to \"transact\" is not an array: {result}"));
        };
        let mut again = false;
        for result in results {
            match result.get("error").and_then(Value::as_str) {
                None => {}
                Some("timed out") => again = true,
                Some("not owner") => return TxnStatus::NotLocked,
                Some(_) => return TxnStatus::Error(result.to_string()),
            }
        }
        if again {
            return TxnStatus::TryAgain;
        }
        if results.len() < self.operations.len() {
            let (got, sent) = (results.len(), self.operations.len());
            return TxnStatus::Error(format!("reply to \"transact\" has {got} results for {sent} operations"));
        }
        let mut inserted = BTreeMap::new();
        for (at, uuid) in &self.inserts {
            let real = results[*at]
                .pointer("/uuid/1")
                .and_then(Value::as_str)
                .and_then(|text| text.parse().ok());
            let Some(real) = real else {
                return TxnStatus::Error(format!("\"insert\" without a UUID in its result: {}", results[*at]));
            };
            inserted.insert(*uuid, real);
        }
        let selected = |(at, column): &(usize, String)| results[*at].get("rows")?.get(0)?.get(column)?.as_i64();
        TxnStatus::Success {
            inserted,
            increment: self.increment.as_ref().and_then(selected),
        }
    }
}

/// Turns edits into operations.
struct Encoder<'a> {
    schema: &'a DatabaseSchema,
    /// The rows that the transaction inserts: references to them are by name.
    names: BTreeSet<Uuid>,
}

impl Encoder<'_> {
    fn wait(&self, edit: &Edit) -> Option<Value> {
        let row = self.row(edit, &edit.verified, |_, _| true);
        if row.is_empty() {
            return None;
        }
        let columns: Vec<&String> = row.keys().collect();
        Some(json!({
            "op": "wait", "timeout": 0, "table": edit.table, "where": self.this_row(edit.uuid),
            "columns": columns, "until": "==", "rows": [row],
        }))
    }

    fn insert(&self, edit: &Edit) -> Value {
        let row = self.row(edit, &edit.set, |kind, value| !value.is_default(kind));
        let mut operation = json!({ "op": "insert", "table": edit.table, "row": row });
        if edit.kind == EditKind::InsertAs {
            operation["uuid"] = edit.uuid.to_string().into();
        } else {
            operation["uuid-name"] = name_of(edit.uuid).into();
        }
        operation
    }

    fn update(&self, edit: &Edit) -> Option<Value> {
        let row = self.row(edit, &edit.set, |_, _| true);
        let at = self.this_row(edit.uuid);
        (!row.is_empty()).then(|| json!({ "op": "update", "table": edit.table, "where": at, "row": row }))
    }

    fn mutate(&self, edit: &Edit) -> Option<Value> {
        let mut mutations = Vec::new();
        for (column, mutation) in &edit.mutated {
            let Some(kind) = self.kind(&edit.table, column) else {
                continue;
            };
            if !mutation.delete.is_empty() {
                let keys = mutation.delete.iter().map(|atom| self.atom(atom)).collect();
                mutations.push(json!([column, "delete", ["set", Value::Array(keys)]]));
            }
            if !mutation.insert.is_empty() {
                let elements = mutation.insert.iter().map(|(key, value)| match value {
                    Some(value) => json!([self.atom(key), self.atom(value)]),
                    None => self.atom(key),
                });
                let class = if kind.is_map() { "map" } else { "set" };
                mutations.push(json!([column, "insert", [class, elements.collect::<Vec<_>>()]]));
            }
        }
        let at = self.this_row(edit.uuid);
        (!mutations.is_empty())
            .then(|| json!({ "op": "mutate", "table": edit.table, "where": at, "mutations": mutations }))
    }

    fn row(
        &self,
        edit: &Edit,
        values: &BTreeMap<String, Datum>,
        wanted: impl Fn(&ColumnType, &Datum) -> bool,
    ) -> Map<String, Value> {
        let mut row = Map::new();
        for (column, value) in values {
            if let Some(kind) = self.kind(&edit.table, column).filter(|kind| wanted(kind, value)) {
                row.insert(column.clone(), self.datum(value, kind));
            }
        }
        row
    }

    fn kind(&self, table: &str, column: &str) -> Option<&ColumnType> {
        self.schema.table(table)?.column(column).map(|column| &column.kind)
    }

    fn this_row(&self, uuid: Uuid) -> Value {
        json!([["_uuid", "==", self.atom(&Atom::Uuid(uuid))]])
    }

    fn datum(&self, value: &Datum, kind: &ColumnType) -> Value {
        if kind.is_map() {
            let pairs = value
                .pairs()
                .iter()
                .map(|(key, value)| json!([self.atom(key), self.atom(value)]));
            return json!(["map", pairs.collect::<Vec<_>>()]);
        }
        match value.as_one() {
            Some(atom) => self.atom(atom),
            None => json!([
                "set",
                value.atoms().iter().map(|atom| self.atom(atom)).collect::<Vec<_>>()
            ]),
        }
    }

    fn atom(&self, atom: &Atom) -> Value {
        match atom {
            Atom::Uuid(uuid) if self.names.contains(uuid) => json!(["named-uuid", name_of(*uuid)]),
            _ => atom.to_json(),
        }
    }
}

/// The `uuid-name` of a row inserted with the provisional UUID `uuid`: an `<id>`.
fn name_of(uuid: Uuid) -> String {
    format!("row{}", uuid.to_string().replace('-', "_"))
}
