//! Reads the members of a JSON object one by one. Reports members that are missing, of the wrong
//! type or left over, with Open vSwitch's error texts.

use crate::error::Error;
use crate::json::{Json, JsonKind};
use serde_json::Value;
use std::fmt;

/// A JSON object being read.
///
/// The first fault is kept; what is read after it is ignored. [`Parser::finish`] reports it.
pub(crate) struct Parser<'a, J = Value> {
    name: Name<'a>,
    json: &'a J,
    is_object: bool,
    taken: [&'a str; MAX_MEMBERS],
    n_taken: usize,
    fault: Option<Error>,
}

/// More members than any object of the protocol has.
const MAX_MEMBERS: usize = 12;

/// The object's name in errors, formatted only if there is an error.
#[derive(Clone, Copy)]
pub(crate) enum Name<'a> {
    Plain(&'static str),
    /// `thing NAME`
    Named(&'static str, &'a str),
    /// `table NAME select`
    Select(&'a str),
    /// An operation of a transaction, counted from 1.
    Operation {
        number: usize,
        of: usize,
    },
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Plain(name) => f.write_str(name),
            Name::Named(what, name) => write!(f, "{what} {name}"),
            Name::Select(table) => write!(f, "table {table} select"),
            Name::Operation { number, of } => write!(f, "ovsdb operation {number} of {of}"),
        }
    }
}

/// The JSON types that a member may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kinds(u8);

impl Kinds {
    pub(crate) const BOOLEAN: Kinds = Kinds(1);
    pub(crate) const INTEGER: Kinds = Kinds(2);
    pub(crate) const NUMBER: Kinds = Kinds(2 | 4);
    pub(crate) const STRING: Kinds = Kinds(8);
    pub(crate) const ARRAY: Kinds = Kinds(16);
    pub(crate) const OBJECT: Kinds = Kinds(32);
    /// A string that is an `<id>`.
    pub(crate) const ID: Kinds = Kinds(128);
    pub(crate) const ANY: Kinds = Kinds(127);

    /// These types or those.
    pub(crate) const fn or(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    fn accepts(self, value: &impl Json) -> bool {
        let bit = match value.kind() {
            JsonKind::Null => 64,
            JsonKind::Boolean => 1,
            JsonKind::Number if crate::atom::json_integer(value).is_some() => 2,
            JsonKind::Number => 4,
            JsonKind::String if self.0 & 128 != 0 && value.as_str().is_some_and(is_id) => 128,
            JsonKind::String => 8,
            JsonKind::Array => 16,
            JsonKind::Object => 32,
        };
        self.0 & bit != 0
    }
}

/// Whether `text` is an `<id>` (RFC 7047 §3.1): a letter or underscore, then letters, digits and
/// underscores.
pub fn is_id(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|c| c.is_ascii_alphabetic() || c == b'_')
        && bytes.all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

impl<'a, J: Json> Parser<'a, J> {
    /// Starts reading `json`, which errors call `name`.
    pub(crate) fn new(json: &'a J, name: Name<'a>) -> Parser<'a, J> {
        let is_object = json.kind() == JsonKind::Object;
        let taken = [""; MAX_MEMBERS];
        let mut parser = Parser {
            name,
            json,
            is_object,
            taken,
            n_taken: 0,
            fault: None,
        };
        if !parser.is_object {
            parser.fail_unquoted("Object expected.");
        }
        parser
    }

    /// The object that is read.
    pub(crate) fn json(&self) -> &'a J {
        self.json
    }

    /// Takes an optional member.
    pub(crate) fn optional(&mut self, name: &str, kinds: Kinds) -> Option<&'a J> {
        let found = self.json.member(name)?;
        self.take(name, found, kinds)
    }

    fn take(&mut self, name: &str, (key, value): (&'a str, &'a J), kinds: Kinds) -> Option<&'a J> {
        if let Some(slot) = self.taken.get_mut(self.n_taken) {
            *slot = key;
            self.n_taken += 1;
        }
        if !kinds.accepts(value) {
            self.fail(format!("Type mismatch for member '{name}'."));
            return None;
        }
        Some(value)
    }

    /// Takes a required member.
    pub(crate) fn required(&mut self, name: &str, kinds: Kinds) -> Option<&'a J> {
        let found = self.json.member(name);
        if found.is_none() && self.is_object {
            self.fail(format!("Required '{name}' member is missing."));
        }
        self.take(name, found?, kinds)
    }

    /// Records an error that quotes the object.
    pub(crate) fn fail(&mut self, message: impl AsRef<str>) {
        if self.fault.is_none() {
            let details = format!("Parsing {} failed: {}", self.name, message.as_ref());
            self.fault = Some(Error::syntax(self.json, details));
        }
    }

    /// Ends the reading: returns the first error, or one about members that were not taken.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        if self.fault.is_none() && self.json.n_members() > self.n_taken {
            let mut left =
                (self.json.members().map(|(name, _)| name)).filter(|name| !self.taken[..self.n_taken].contains(name));
            let first = left.next().unwrap_or_default();
            let message = match left.count() {
                0 => format!("Member '{first}' is present but not allowed here."),
                1 => {
                    format!("Member '{first}' and 1 other member are present but not allowed here.")
                }
                n => format!("Member '{first}' and {n} other members are present but not allowed here."),
            };
            self.fail(message);
        }
        self.fault.map_or(Ok(()), Err)
    }

    fn fail_unquoted(&mut self, message: &str) {
        let details = format!("Parsing {} failed: {message}", self.name);
        self.fault = Some(Error::new(crate::error::ErrorKind::Syntax, details));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn missing_wrong_and_left_over_members_are_named() {
        let json = json!({"a": 1, "b": "x y", "c": 0, "d": 0});
        let mut parser = Parser::new(&json, Name::Plain("thing"));
        assert!(parser.required("a", Kinds::INTEGER).is_some());
        assert_eq!(
            parser.finish().unwrap_err().details(),
            Some("Parsing thing failed: Member 'b' and 2 other members are present but not allowed here.")
        );
        let mut parser = Parser::new(&json, Name::Plain("thing"));
        parser.required("b", Kinds::ID);
        parser.required("e", Kinds::ANY);
        assert_eq!(
            parser.finish().unwrap_err().details(),
            Some("Parsing thing failed: Type mismatch for member 'b'.")
        );
        let mut parser = Parser::new(&json, Name::Plain("thing"));
        parser.required("e", Kinds::ANY);
        assert_eq!(
            parser.finish().unwrap_err().details(),
            Some("Parsing thing failed: Required 'e' member is missing.")
        );
    }

    #[test]
    fn identifiers_start_with_a_letter_or_underscore() {
        assert!(is_id("a") && is_id("_9") && is_id("Ab_1"));
        assert!(!is_id("") && !is_id("9a") && !is_id("a-b") && !is_id("é"));
    }
}
