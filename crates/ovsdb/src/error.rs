//! Errors of the database, with Open vSwitch's texts.
//!
//! RFC 7047 gives an error as an object with a short fixed string (`error`), and optionally an
//! explanation (`details`); Open vSwitch adds the JSON that could not be parsed (`syntax`).

use crate::json::Json;
use serde_json::{Map, Value};
use std::fmt;

/// What kind of error: the fixed string of the `error` member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorKind {
    /// The JSON does not follow the protocol.
    Syntax,
    /// A value breaks a constraint of its column, table or index.
    Constraint,
    /// A strong reference to a row that does not exist would remain.
    ReferentialIntegrity,
    /// No such column in the table.
    UnknownColumn,
    /// No such table in the database.
    UnknownTable,
    /// No such database in the server.
    UnknownDatabase,
    /// The database has no contents yet.
    DatabaseNotAvailable,
    /// No such monitor in the session.
    UnknownMonitor,
    /// No such comparison in a condition.
    UnknownFunction,
    /// No such operator in a mutation.
    UnknownMutator,
    /// A division by zero.
    Domain,
    /// The result of a mutation does not fit its type.
    Range,
    /// A `wait` was not met in time.
    TimedOut,
    /// The client asked for it.
    Aborted,
    /// An `assert`ed lock is not held by the client.
    NotOwner,
    /// Two inserts of a transaction have the same `uuid-name`.
    DuplicateUuidName,
    /// An insert names the UUID of a row that exists.
    DuplicateUuid,
    /// The rules for the client's role prohibit it.
    Permission,
    /// The database or the client may only read.
    NotAllowed,
    /// The operation is not supported on this database or column.
    NotSupported,
    /// A set or map contains a duplicate, and other faults without an error of their own.
    Ovsdb,
    /// The log could not be read or written.
    Io,
    /// A limit of memory or size was reached.
    ResourcesExhausted,
    /// A fault of the engine itself.
    Internal,
}

impl ErrorKind {
    /// The string of the `error` member.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Syntax => "syntax error",
            ErrorKind::Constraint => "constraint violation",
            ErrorKind::ReferentialIntegrity => "referential integrity violation",
            ErrorKind::UnknownColumn => "unknown column",
            ErrorKind::UnknownTable => "unknown table",
            ErrorKind::UnknownDatabase => "unknown database",
            ErrorKind::DatabaseNotAvailable => "database not available",
            ErrorKind::UnknownMonitor => "unknown monitor",
            ErrorKind::UnknownFunction => "unknown function",
            ErrorKind::UnknownMutator => "unknown mutator",
            ErrorKind::Domain => "domain error",
            ErrorKind::Range => "range error",
            ErrorKind::TimedOut => "timed out",
            ErrorKind::Aborted => "aborted",
            ErrorKind::NotOwner => "not owner",
            ErrorKind::DuplicateUuidName => "duplicate uuid-name",
            ErrorKind::DuplicateUuid => "duplicate uuid",
            ErrorKind::Permission => "permission error",
            ErrorKind::NotAllowed => "not allowed",
            ErrorKind::NotSupported => "not supported",
            ErrorKind::Ovsdb => "ovsdb error",
            ErrorKind::Io => "I/O error",
            ErrorKind::ResourcesExhausted => "resources exhausted",
            ErrorKind::Internal => "internal error",
        }
    }
}

/// An error of the database (RFC 7047 §3.1, `<error>`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    kind: ErrorKind,
    details: Option<Box<str>>,
    syntax: Option<Box<str>>,
}

/// The longest piece of a client's JSON that an error quotes back, in bytes.
const MAX_QUOTE: usize = 4096;

impl Error {
    /// An error with an explanation.
    pub fn new(kind: ErrorKind, details: impl Into<String>) -> Error {
        Error {
            kind,
            details: Some(details.into().into_boxed_str()),
            syntax: None,
        }
    }

    /// An error without explanation.
    pub fn bare(kind: ErrorKind) -> Error {
        Error {
            kind,
            details: None,
            syntax: None,
        }
    }

    /// A syntax error that quotes the JSON at fault.
    pub fn syntax(json: &impl Json, details: impl Into<String>) -> Error {
        Error::new(ErrorKind::Syntax, details).quoting(json)
    }

    /// A broken constraint.
    pub fn constraint(details: impl Into<String>) -> Error {
        Error::new(ErrorKind::Constraint, details)
    }

    /// The same error, quoting the JSON at fault.
    pub fn quoting(mut self, json: &impl Json) -> Error {
        let mut text = json.to_value().to_string();
        if text.len() > MAX_QUOTE {
            let end = (0..=MAX_QUOTE).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            text.truncate(end);
        }
        self.syntax = Some(text.into_boxed_str());
        self
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The explanation.
    pub fn details(&self) -> Option<&str> {
        self.details.as_deref()
    }

    /// The JSON at fault, as text.
    pub fn quoted(&self) -> Option<&str> {
        self.syntax.as_deref()
    }

    /// The `<error>` object.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("error".into(), self.kind.as_str().into());
        if let Some(details) = &self.details {
            object.insert("details".into(), details.as_ref().into());
        }
        if let Some(syntax) = &self.syntax {
            object.insert("syntax".into(), syntax.as_ref().into());
        }
        Value::Object(object)
    }
}

/// One line, as the command-line tools show it.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(syntax) = &self.syntax {
            write!(f, "syntax \"{syntax}\": ")?;
        }
        f.write_str(self.kind.as_str())?;
        if let Some(details) = &self.details {
            write!(f, ": {details}")?;
        }
        Ok(())
    }
}
