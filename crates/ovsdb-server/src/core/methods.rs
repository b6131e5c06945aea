//! The requests of clients (RFC 7047 §4.1, ovsdb-server(7)), and the errors for invalid ones.

use mgmt::jsonrpc::Message;
use ovsdb::{DatabaseSchema, Error, ErrorKind, Json, is_id};
use serde_json::{Value, json};

use crate::request::Incoming;

use super::locks::Told;
use super::{Close, Conversion, Core, Effect, HELD_ITEM, Hosted, Now, SessionId, encode};

impl Core {
    /// Whether the open batch has to be written before this message is handled.
    pub(crate) fn must_flush(&self, message: &Incoming<'_>) -> bool {
        if self.batch.is_empty() {
            return false;
        }
        match message {
            Incoming::Transact { db, .. } => *db != self.batch.db(),
            Incoming::Request { method, params, .. } => {
                *method != "transact" || params.first().and_then(Value::as_str) != Some(self.batch.db())
            }
            Incoming::Other(_) => true,
        }
    }

    /// Executes a client's request.
    pub(crate) fn handle(&mut self, session: SessionId, message: Incoming<'_>, now: Now) -> Option<Effect> {
        let message = match message {
            Incoming::Transact { db, ops, id } => {
                if self.may_transact(db, session, &id) {
                    self.transact(session, id, db, ops, now);
                    return None;
                }
                let params = std::iter::once(db.into()).chain(ops.iter().map(Json::to_value));
                return self.request(session, "transact", params.collect(), id, now);
            }
            Incoming::Request { method, params, id } => return self.request(session, method, params, id, now),
            Incoming::Other(message) => message,
        };
        match message {
            Message::Request { method, params, id } => return self.request(session, &method, params, id, now),
            Message::Notification { method, params } => {
                if let ("cancel", [id]) = (method.as_str(), params.as_slice()) {
                    self.cancel(session, id);
                }
            }
            Message::Reply { id, .. } | Message::Error { id, .. } => {
                if id != "echo" {
                    self.close(session, Close::Warn("received unexpected reply message".into()));
                }
            }
        }
        None
    }

    fn request(&mut self, session: SessionId, method: &str, params: Vec<Value>, id: Value, now: Now) -> Option<Effect> {
        let done = match method {
            "transact" => match params.split_first() {
                Some((Value::String(db), ops)) if self.may_transact(db, session, &id) => {
                    self.transact(session, id, db, ops, now);
                    return None;
                }
                _ if self.waits_for(session, &id) => {
                    let details = "transact: duplicate request ID";
                    Err(Error::syntax(&Value::from(params), details))
                }
                _ => self.known_db(method, &params).map(Value::from),
            },
            "echo" => Ok(Value::Array(params)),
            "list_dbs" => Ok(self.database_names().collect()),
            "get_schema" => self.known_db(method, &params).map(|db| self.schema_json(&db)),
            "get_server_id" => Ok(self.server_id.to_string().into()),
            "set_db_change_aware" => self.set_change_aware(session, params),
            "lock" | "steal" | "unlock" if self.may_only_read(session) => {
                let why = "lock and unlock methods not allowed, DB server is read only.";
                self.refuse(session, &id, &why.into());
                return None;
            }
            "lock" | "steal" => self.take_lock(session, method, params),
            "unlock" => self.unlock(session, params),
            "monitor_cond" | "monitor_cond_since" | "monitor_cond_change" if !self.monitor_cond => {
                self.refuse(session, &id, &"unknown method".into());
                return None;
            }
            "monitor" | "monitor_cond" | "monitor_cond_since" => {
                self.start_monitor(session, method, &params, &id);
                return None;
            }
            "monitor_cond_change" => self.change_monitor(session, &params),
            "monitor_cancel" => {
                self.end_monitor(session, &params, &id);
                return None;
            }
            "convert" => match self.prepare_conversion(session, params, id.clone()) {
                Ok(conversion) => return Some(Effect::Convert(Box::new(conversion))),
                Err(error) => {
                    self.refuse(session, &id, &error);
                    return None;
                }
            },
            _ => {
                self.refuse(session, &id, &"unknown method".into());
                return None;
            }
        };
        match done {
            Ok(result) => self.answer(session, &id, &result),
            Err(error) => self.refuse(session, &id, &error.to_json()),
        }
        None
    }

    /// Checks that the database exists, and that no waiting transaction has the request's id.
    fn may_transact(&self, db: &str, session: SessionId, id: &Value) -> bool {
        let available = |hosted: &Hosted| hosted.relay.as_ref().is_none_or(|relay| relay.ready);
        self.databases.get(db).is_some_and(available) && !self.waits_for(session, id)
    }

    /// Whether the session's requests may change nothing.
    fn may_only_read(&self, session: SessionId) -> bool {
        let options = self.sessions.get(&session).map(|session| &session.options);
        options.is_some_and(|options| options.read_only) || self.is_backup_server()
    }

    /// The database that a request's first parameter names.
    pub(super) fn known_db(&self, method: &str, params: &[Value]) -> Result<String, Error> {
        let Some(name) = params.first().and_then(Value::as_str) else {
            let details = format!("{method} request params must begin with <db-name>");
            return Err(Error::syntax(&Value::Array(params.to_vec()), details));
        };
        if let Some(hosted) = self.databases.get(name) {
            if hosted.relay.as_ref().is_some_and(|relay| !relay.ready) {
                let details = format!(
                    "{method} request specifies database {name} which is not yet available because it has not \
                     completed joining its cluster"
                );
                return Err(Error::new(ErrorKind::DatabaseNotAvailable, details));
            }
            return Ok(name.to_owned());
        }
        let details = format!("{method} request specifies unknown database {name}");
        Err(Error::new(ErrorKind::UnknownDatabase, details).quoting(&Value::Array(params.to_vec())))
    }

    fn schema_json(&self, db: &str) -> Value {
        self.database(db).map_or(Value::Null, |db| db.schema().to_json())
    }

    fn set_change_aware(&mut self, session: SessionId, params: Vec<Value>) -> Result<Value, Error> {
        let [Value::Bool(aware)] = params[..] else {
            let details = "set_db_change_aware: true or false parameter expected";
            return Err(Error::syntax(&Value::Array(params), details));
        };
        if let Some(session) = self.sessions.get_mut(&session) {
            session.change_aware = aware;
        }
        Ok(json!({}))
    }

    fn take_lock(&mut self, session: SessionId, method: &str, params: Vec<Value>) -> Result<Value, Error> {
        let name = lock_name(method, params)?;
        let weight = HELD_ITEM + name.len();
        if let Some(state) = self.sessions.get_mut(&session) {
            state.hold(weight)?;
        }
        let taken = match method {
            "steal" => self.locks.steal(&name, session),
            _ => self.locks.lock(&name, session),
        };
        let Some(taken) = taken else {
            self.let_go(session, weight);
            let details = format!("must issue \"unlock\" before new \"{method}\"");
            return Err(Error::syntax(&json!([name]), details));
        };
        if let Some(told) = taken.told {
            self.tell_lock(&name, told);
        }
        Ok(json!({ "locked": taken.locked }))
    }

    fn unlock(&mut self, session: SessionId, params: Vec<Value>) -> Result<Value, Error> {
        let name = lock_name("unlock", params)?;
        let Some(told) = self.locks.unlock(&name, session) else {
            let details = "unlock: \"unlock\" without \"lock\" or \"steal\"";
            return Err(Error::syntax(&json!([name]), details));
        };
        self.let_go(session, HELD_ITEM + name.len());
        if let Some(told) = told {
            self.tell_lock(&name, told);
        }
        Ok(json!({}))
    }

    fn let_go(&mut self, session: SessionId, weight: usize) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.let_go(weight);
        }
    }

    /// Notifies a session that it gained or lost a lock.
    pub(super) fn tell_lock(&mut self, name: &str, told: Told) {
        let (session, method) = match told {
            Told::Locked(session) => (session, "locked"),
            Told::Stolen(session) => (session, "stolen"),
        };
        self.post(session, |out| encode::notification(out, method, name));
    }

    /// `convert` (ovsdb-server(7) §4.1.19), up to writing the file.
    fn prepare_conversion(&mut self, session: SessionId, params: Vec<Value>, id: Value) -> Result<Conversion, Value> {
        let name = self.known_db("convert", &params).map_err(|error| error.to_json())?;
        if params.len() != 2 {
            return Err(Error::syntax(&Value::Array(params), "array expected").to_json());
        }
        let schema = DatabaseSchema::from_json(&params[1]).map_err(|error| error.to_json())?;
        if schema.name() != name {
            let details = format!(
                "new schema name ({}) does not match database name ({name})",
                schema.name()
            );
            return Err(json!({"error": "invalid parameters", "details": details}));
        }
        let hosted = self.databases.get(&name).filter(|hosted| hosted.persistent);
        let read_only = self
            .sessions
            .get(&session)
            .is_some_and(|session| session.options.read_only);
        let Some(hosted) = hosted.filter(|_| !read_only) else {
            let details = format!("database {name} cannot be converted");
            return Err(Error::new(ErrorKind::NotAllowed, details).to_json());
        };
        let seed = self.uuids.next_uuid().as_u128();
        let new = hosted.db.convert(schema, seed).map_err(|error| error.to_json())?;
        Ok(Conversion { name, new, session, id })
    }
}

fn lock_name(method: &str, params: Vec<Value>) -> Result<String, Error> {
    match params.as_slice() {
        [Value::String(name)] if is_id(name) => Ok(name.clone()),
        _ => Err(Error::syntax(
            &Value::Array(params),
            format!("{method} request params must be <id>"),
        )),
    }
}
