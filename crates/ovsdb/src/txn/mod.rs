//! Transactions (RFC 7047 §4.1.3): operations run one after the other on the tables themselves and
//! record the committed rows that they change, so that a failure restores them. Then [`settle`]
//! checks the constraints on the whole transaction, and [`finish`] commits it.
//!
//! Invariants
//! - Reference counts, weak references and indexes are those of the last commit until [`finish`],
//!   which cannot fail.
//! - A row that the transaction changed is in [`Txn::touched`] with its committed state.

mod ops;
mod rbac;
mod settle;

use crate::atom::Symbols;
use crate::commit::Commit;
use crate::database::{Database, Outcome};
use crate::error::{Error, ErrorKind};
use crate::json::Json;
use crate::parser::{Kinds, Name, Parser};
use crate::replica::NewRows;
use crate::row::Row;
use crate::schema::COL_VERSION;
use crate::table::RowId;
use crate::uuid::Uuid;
use crate::{DatabaseSchema, Datum};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
pub use rbac::Rbac;
use serde_json::Value;
use settle::Settled;
use std::sync::Arc;
use std::time::Duration;

/// The client and the time of a transaction.
#[derive(Clone, Copy)]
pub struct TxnCtx<'a> {
    /// The time since the transaction was first executed, against which its `wait`s time out.
    pub waited: Duration,
    /// Whether the client holds the lock of that name.
    pub holds_lock: &'a dyn Fn(&str) -> bool,
    /// Whether the client may only read.
    pub read_only: bool,
    /// The client's role, if it has one.
    pub rbac: Option<Rbac<'a>>,
}

impl TxnCtx<'_> {
    /// The first execution for a client that holds no locks and may write.
    pub const PLAIN: TxnCtx<'static> = TxnCtx {
        waited: Duration::ZERO,
        holds_lock: &|_| false,
        read_only: false,
        rbac: None,
    };
}

impl Default for TxnCtx<'_> {
    fn default() -> Self {
        TxnCtx::PLAIN
    }
}

/// A transaction that runs.
pub(crate) struct Txn<'a> {
    db: &'a mut Database,
    schema: Arc<DatabaseSchema>,
    ctx: &'a TxnCtx<'a>,
    symbols: Symbols,
    touched: Vec<Touched>,
    touched_at: HashMap<RowId, usize, FixedState>,
    comments: Vec<String>,
    durable: bool,
}

/// A row that the transaction changed.
struct Touched {
    table: usize,
    uuid: Uuid,
    /// The row as committed; `None` if the transaction inserted it.
    old: Option<Arc<Row>>,
}

/// Why a transaction ends early.
enum Stop {
    Failed(Error),
    /// A `wait` is not met; the time until it fails.
    Blocked(Option<Duration>),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

/// Runs a transaction on `db`.
pub(crate) fn transact<J: Json>(db: &mut Database, ops: &[J], ctx: &TxnCtx<'_>) -> Outcome {
    let mut txn = Txn::new(db, ctx);
    let mut reply = Vec::with_capacity(ops.len() + 1);
    for (at, op) in ops.iter().enumerate() {
        match txn.run(op, at + 1, ops.len()) {
            Ok(result) => reply.push(result),
            Err(Stop::Blocked(timeout)) => {
                txn.roll_back();
                return Outcome::Blocked { timeout };
            }
            Err(Stop::Failed(error)) => {
                txn.roll_back();
                reply.push(error.to_json());
                reply.resize(ops.len(), Value::Null);
                return Outcome::Done {
                    reply: Value::Array(reply),
                    commit: None,
                };
            }
        }
    }
    let commit = match settle::settle(&mut txn) {
        Ok(settled) => settled.map(|settled| finish(txn, settled, None)),
        Err(error) => {
            txn.roll_back();
            reply.push(error.to_json());
            None
        }
    };
    Outcome::Done {
        reply: Value::Array(reply),
        commit,
    }
}

/// Sets and deletes whole rows, and checks every constraint. `id` is the UUID of the transaction; a
/// new one if `None`. Returns the commit if anything changed.
pub(crate) fn apply(db: &mut Database, rows: NewRows, id: Option<Uuid>) -> Result<Option<Arc<Commit>>, Error> {
    let mut txn = Txn::new(db, &TxnCtx::PLAIN);
    for (table, uuid, new) in rows {
        txn.touch(table, uuid);
        match new {
            Some(mut row) => {
                if !txn.db.tables[table].rows.contains_key(&uuid) {
                    row.set(COL_VERSION, Datum::one(txn.db.uuids.next_uuid()));
                }
                txn.db.tables[table].rows.insert(uuid, Arc::new(row));
            }
            None => drop(txn.db.tables[table].rows.remove(&uuid)),
        }
    }
    match settle::settle(&mut txn) {
        Ok(settled) => Ok(settled.map(|settled| finish(txn, settled, id))),
        Err(error) => {
            txn.roll_back();
            Err(error)
        }
    }
}

/// Sets the versions of changed rows and makes the commit. This cannot fail.
fn finish(mut txn: Txn<'_>, settled: Settled, id: Option<Uuid>) -> Arc<Commit> {
    let Settled { mut changes, counts } = settled;
    let db = &mut *txn.db;
    for change in &mut changes {
        if change.old.is_some() && change.new.is_some() {
            let version = db.uuids.next_uuid();
            // Drops the table's reference first, so that the row is changed in place, not copied.
            change.new = None;
            if let Some(row) = db.tables[change.table].rows.get_mut(&change.uuid) {
                Arc::make_mut(row).set(COL_VERSION, Datum::one(version));
                change.new = Some(row.clone());
            }
        }
    }
    for change in &changes {
        db.note_weak_and_indexes(change.table, change.uuid, change.old.as_deref(), change.new.as_deref());
    }
    for ((table, uuid), change) in counts.into_iter().filter(|(_, change)| *change != 0) {
        db.tables[table].count_strong(uuid, change);
    }
    changes.sort_by_key(|change| change.table);
    let comment = (!txn.comments.is_empty()).then(|| std::mem::take(&mut txn.comments).join("\n"));
    let commit = Arc::new(Commit {
        id: id.unwrap_or_else(|| db.uuids.next_uuid()),
        changes,
        comment,
        durable: txn.durable,
    });
    db.remember(commit.clone());
    commit
}

impl<'a> Txn<'a> {
    fn new(db: &'a mut Database, ctx: &'a TxnCtx<'a>) -> Txn<'a> {
        let schema = db.schema().clone();
        let hasher = db
            .tables
            .first()
            .map_or_else(FixedState::default, |table| table.hasher.clone());
        Txn {
            db,
            schema,
            ctx,
            symbols: Symbols::new(),
            touched: Vec::new(),
            touched_at: HashMap::with_hasher(hasher),
            comments: Vec::new(),
            durable: false,
        }
    }

    /// Runs one operation.
    fn run<J: Json>(&mut self, op: &J, number: usize, of: usize) -> Result<Value, Stop> {
        let mut parser = Parser::new(op, Name::Operation { number, of });
        let name = parser.required("op", Kinds::ID).and_then(J::as_str);
        match name {
            Some("insert") => self.insert(parser).map_err(Stop::from),
            Some("select") => self.select(parser).map_err(Stop::from),
            Some("update") => self.update(parser).map_err(Stop::from),
            Some("mutate") => self.mutate(parser).map_err(Stop::from),
            Some("delete") => self.delete(parser).map_err(Stop::from),
            Some("wait") => self.wait(parser),
            Some("commit") => self.commit(parser).map_err(Stop::from),
            Some("abort") => {
                parser.finish()?;
                Err(Error::new(ErrorKind::Aborted, "aborted by request").into())
            }
            Some("comment") => self.comment(parser).map_err(Stop::from),
            Some("assert") => self.assert(parser).map_err(Stop::from),
            Some(name) => {
                parser.fail(format!("No operation \"{name}\""));
                Err(parser
                    .finish()
                    .err()
                    .unwrap_or_else(|| Error::bare(ErrorKind::Internal))
                    .into())
            }
            None => Err(parser
                .finish()
                .err()
                .unwrap_or_else(|| Error::bare(ErrorKind::Internal))
                .into()),
        }
    }

    /// Records the committed state of a row before its first change. Call it while the table still
    /// has that state.
    fn touch(&mut self, table: usize, uuid: Uuid) {
        if let hashbrown::hash_map::Entry::Vacant(entry) = self.touched_at.entry((table, uuid)) {
            entry.insert(self.touched.len());
            let old = self.db.tables[table].rows.get(&uuid).cloned();
            self.touched.push(Touched { table, uuid, old });
        }
    }

    /// The committed state of a row that the transaction changed.
    fn committed(&self, id: &RowId) -> Option<&Touched> {
        self.touched_at.get(id).map(|&at| &self.touched[at])
    }

    /// Restores every changed row.
    fn roll_back(&mut self) {
        for touched in std::mem::take(&mut self.touched) {
            let rows = &mut self.db.tables[touched.table].rows;
            match touched.old {
                Some(old) => rows.insert(touched.uuid, old),
                None => rows.remove(&touched.uuid),
            };
        }
        self.touched_at.clear();
    }
}
