//! The `_Server` database: a row for each database that the server has (ovsdb-server(5)).

use crate::atom::Atom;
use crate::commit::Commit;
use crate::database::{Database, Outcome};
use crate::error::Error;
use crate::schema::DatabaseSchema;
use crate::schemas;
use crate::txn::TxnCtx;
use crate::uuid::Uuid;
use serde_json::{Value, json};
use std::sync::Arc;

/// How a database is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// By one server.
    Standalone,
    /// By a Raft cluster.
    Clustered,
    /// By a relay.
    Relay,
}

/// A row of the `Database` table.
#[derive(Debug, Clone, PartialEq)]
pub struct ServedDatabase {
    /// The database's name.
    pub name: String,
    /// How it is served.
    pub model: Model,
    /// Whether it can be used now.
    pub connected: bool,
    /// Whether this server may write to it.
    pub leader: bool,
    /// Its schema, unless it is not known yet.
    pub schema: Option<Arc<DatabaseSchema>>,
    /// The cluster's ID.
    pub cid: Option<Uuid>,
    /// The server's ID in the cluster.
    pub sid: Option<Uuid>,
    /// The index of the last log entry applied.
    pub index: Option<i64>,
}

impl ServedDatabase {
    /// A database that this server alone serves.
    pub fn standalone(schema: Arc<DatabaseSchema>) -> ServedDatabase {
        ServedDatabase {
            name: schema.name().to_owned(),
            model: Model::Standalone,
            connected: true,
            leader: true,
            schema: Some(schema),
            cid: None,
            sid: None,
            index: None,
        }
    }

    /// A database whose contents come from another server. The schema is not known at first.
    pub fn relay(name: String, schema: Option<Arc<DatabaseSchema>>, connected: bool) -> ServedDatabase {
        ServedDatabase {
            name,
            model: Model::Relay,
            connected,
            leader: false,
            schema,
            cid: None,
            sid: None,
            index: None,
        }
    }

    fn to_row(&self) -> Value {
        let uuid = |uuid: Option<Uuid>| uuid.map_or(json!(["set", []]), |uuid| Atom::Uuid(uuid).to_json());
        json!({
            "name": self.name,
            "model": match self.model {
                Model::Standalone => "standalone",
                Model::Clustered => "clustered",
                Model::Relay => "relay",
            },
            "connected": self.connected,
            "leader": self.leader,
            "schema": self.schema.as_ref().map_or(json!(["set", []]), |schema| schema.to_json().to_string().into()),
            "cid": uuid(self.cid),
            "sid": uuid(self.sid),
            "index": self.index.map_or(json!(["set", []]), Value::from),
        })
    }
}

/// A new `_Server` database without rows.
///
/// # Errors
/// Never: the schema is part of the program.
pub fn new(seed: u128) -> Result<Database, Error> {
    Ok(Database::new(DatabaseSchema::from_text(schemas::SERVER)?, seed))
}

/// Updates the `_Server` database to `served` in one transaction. Rows of databases that stay keep
/// their UUIDs.
pub fn update(db: &mut Database, served: &[ServedDatabase]) -> Option<Arc<Commit>> {
    let mut ops = Vec::new();
    let gone: Vec<Value> = served
        .iter()
        .map(|database| json!(["name", "!=", database.name]))
        .collect();
    ops.push(json!({"op": "delete", "table": "Database", "where": gone}));
    for database in served {
        let condition = json!([["name", "==", database.name]]);
        let name = db
            .schema()
            .table("Database")
            .and_then(|table| table.column_index("name"))
            .unwrap_or_default();
        let wanted = Atom::string(&database.name);
        if db.rows(0).any(|row| row.get(name).as_one() == Some(&wanted)) {
            ops.push(json!({"op": "update", "table": "Database", "where": condition, "row": database.to_row()}));
        } else {
            ops.push(json!({"op": "insert", "table": "Database", "row": database.to_row()}));
        }
    }
    match db.transact(&ops, &TxnCtx::PLAIN) {
        Outcome::Done { commit, .. } => commit,
        Outcome::Blocked { .. } => None,
    }
}
