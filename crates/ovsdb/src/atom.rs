//! One value: an integer, a real, a boolean, a string or a UUID (RFC 7047 §5.1, `<atom>`).

use crate::error::{Error, ErrorKind};
use crate::json::Json;
use crate::parser::is_id;
use crate::uuid::Uuid;
use serde::ser::{Serialize, SerializeTuple, Serializer};
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The type of an atom (RFC 7047 §3.2, `<atomic-type>`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AtomicType {
    /// 64-bit signed.
    Integer,
    /// Double precision, finite.
    Real,
    /// `true` or `false`.
    Boolean,
    /// Unicode.
    String,
    /// A UUID, often a reference to a row.
    Uuid,
}

impl AtomicType {
    /// The name in a schema.
    pub fn as_str(self) -> &'static str {
        match self {
            AtomicType::Integer => "integer",
            AtomicType::Real => "real",
            AtomicType::Boolean => "boolean",
            AtomicType::String => "string",
            AtomicType::Uuid => "uuid",
        }
    }

    /// The type of that name.
    pub fn from_name(name: &str) -> Option<AtomicType> {
        Some(match name {
            "integer" => AtomicType::Integer,
            "real" => AtomicType::Real,
            "boolean" => AtomicType::Boolean,
            "string" => AtomicType::String,
            "uuid" => AtomicType::Uuid,
            _ => return None,
        })
    }

    /// The value of a column that was not given one (RFC 7047 §5.2.1): 0, 0.0, false, "" or the
    /// zero UUID.
    pub(crate) fn default_atom(self) -> Atom {
        match self {
            AtomicType::Integer => Atom::Integer(0),
            AtomicType::Real => Atom::Real(0.0),
            AtomicType::Boolean => Atom::Boolean(false),
            AtomicType::String => Atom::String(Arc::default()),
            AtomicType::Uuid => Atom::Uuid(Uuid::ZERO),
        }
    }
}

impl fmt::Display for AtomicType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One value. Cloning is cheap: strings are shared.
#[derive(Debug, Clone)]
pub enum Atom {
    /// 64-bit signed.
    Integer(i64),
    /// Finite; minus zero equals zero.
    Real(f64),
    /// A truth value.
    Boolean(bool),
    /// Unicode text.
    String(Arc<str>),
    /// A UUID.
    Uuid(Uuid),
}

/// Names that a transaction gives to rows not yet inserted (RFC 7047 §5.1, `<named-uuid>`).
#[derive(Debug, Default)]
pub struct Symbols {
    names: HashMap<String, Symbol>,
}

/// One named UUID.
#[derive(Debug, Clone, Copy)]
pub struct Symbol {
    /// The UUID that the name stands for.
    pub uuid: Uuid,
    /// Whether an insert has taken the name.
    pub created: bool,
}

impl Symbols {
    /// No names yet.
    pub fn new() -> Symbols {
        Symbols::default()
    }

    /// The symbol `name`, made with a UUID from `fresh` at its first use.
    pub fn get_or_insert(&mut self, name: &str, fresh: impl FnOnce() -> Uuid) -> &mut Symbol {
        if !self.names.contains_key(name) {
            self.names.insert(
                name.to_owned(),
                Symbol {
                    uuid: fresh(),
                    created: false,
                },
            );
        }
        self.names.entry(name.to_owned()).or_insert(Symbol {
            uuid: Uuid::ZERO,
            created: false,
        })
    }

    /// The symbol `name`, if it was used before.
    pub fn get(&self, name: &str) -> Option<Symbol> {
        self.names.get(name).copied()
    }

    /// All names with their symbols, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Symbol)> {
        self.names.iter().map(|(name, symbol)| (name.as_str(), *symbol))
    }
}

/// How the parser of JSON values resolves `["named-uuid", name]`: the UUID, or `None` where names
/// are not allowed.
pub type Resolve<'a> = &'a mut dyn FnMut(&str) -> Option<Uuid>;

/// Refuses every named UUID: for JSON outside a transaction.
pub fn no_names(_: &str) -> Option<Uuid> {
    None
}

impl Atom {
    /// A string atom.
    pub fn string(text: impl AsRef<str>) -> Atom {
        Atom::String(Arc::from(text.as_ref()))
    }

    /// Its type.
    pub fn atomic_type(&self) -> AtomicType {
        match self {
            Atom::Integer(_) => AtomicType::Integer,
            Atom::Real(_) => AtomicType::Real,
            Atom::Boolean(_) => AtomicType::Boolean,
            Atom::String(_) => AtomicType::String,
            Atom::Uuid(_) => AtomicType::Uuid,
        }
    }

    /// The integer, if it is one.
    pub fn as_integer(&self) -> Option<i64> {
        if let Atom::Integer(value) = self {
            Some(*value)
        } else {
            None
        }
    }

    /// The real, if it is one.
    pub(crate) fn as_real(&self) -> Option<f64> {
        if let Atom::Real(value) = self {
            Some(*value)
        } else {
            None
        }
    }

    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        if let Atom::Boolean(value) = self {
            Some(*value)
        } else {
            None
        }
    }

    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        if let Atom::String(value) = self {
            Some(value)
        } else {
            None
        }
    }

    /// The UUID, if it is one.
    pub fn as_uuid(&self) -> Option<Uuid> {
        if let Atom::Uuid(value) = self {
            Some(*value)
        } else {
            None
        }
    }

    /// Whether it is the default of its type.
    pub fn is_default(&self) -> bool {
        match self {
            Atom::Integer(value) => *value == 0,
            Atom::Real(value) => *value == 0.0,
            Atom::Boolean(value) => !value,
            Atom::String(value) => value.is_empty(),
            Atom::Uuid(value) => value.is_zero(),
        }
    }

    /// Parses an `<atom>` of type `kind`.
    ///
    /// # Errors
    /// `syntax error` when the JSON is of another type or a UUID is malformed.
    pub fn from_json(json: &impl Json, kind: AtomicType, resolve: Resolve<'_>) -> Result<Atom, Error> {
        let atom = match kind {
            AtomicType::Integer => json_integer(json).map(Atom::Integer),
            AtomicType::Real => json
                .as_f64()
                .filter(|value| value.is_finite())
                .map(|value| Atom::Real(value + 0.0)),
            AtomicType::Boolean => json.as_bool().map(Atom::Boolean),
            AtomicType::String => json.as_str().map(Atom::string),
            AtomicType::Uuid => return uuid_from_json(json, resolve).map(Atom::Uuid),
        };
        atom.ok_or_else(|| Error::syntax(json, format!("expected {kind}")))
    }

    /// The `<atom>`.
    pub fn to_json(&self) -> Value {
        match self {
            Atom::Integer(value) => (*value).into(),
            Atom::Real(value) => match whole(*value) {
                Some(whole) => whole.into(),
                None => (*value).into(),
            },
            Atom::Boolean(value) => (*value).into(),
            Atom::String(value) => value.as_ref().into(),
            Atom::Uuid(value) => Value::Array(vec!["uuid".into(), value.to_text().as_str().into()]),
        }
    }
}

impl Serialize for Atom {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Atom::Integer(value) => serializer.serialize_i64(*value),
            Atom::Real(value) => match whole(*value) {
                Some(whole) => serializer.serialize_i64(whole),
                None => serializer.serialize_f64(*value),
            },
            Atom::Boolean(value) => serializer.serialize_bool(*value),
            Atom::String(value) => serializer.serialize_str(value),
            Atom::Uuid(value) => {
                let mut pair = serializer.serialize_tuple(2)?;
                pair.serialize_element("uuid")?;
                pair.serialize_element(value.to_text().as_str())?;
                pair.end()
            }
        }
    }
}

/// The integer that a JSON number stands for: 3, but 3.0 and 3e0 as well.
pub(crate) fn json_integer(json: &impl Json) -> Option<i64> {
    json.as_i64().or_else(|| json.as_f64().and_then(whole))
}

/// The integer equal to `value`, if there is one that a double holds exactly.
pub(crate) fn whole(value: f64) -> Option<i64> {
    const LIMIT: f64 = (1u64 << 53) as f64;
    (value.fract() == 0.0 && value.abs() <= LIMIT).then_some(value as i64)
}

/// Parses `["uuid", text]` or `["named-uuid", name]`.
fn uuid_from_json<J: Json>(json: &J, resolve: Resolve<'_>) -> Result<Uuid, Error> {
    if let Some([tag, text]) = json.as_array()
        && let (Some(tag), Some(text)) = (tag.as_str(), text.as_str())
    {
        if tag == "uuid" {
            return text
                .parse()
                .map_err(|_| Error::syntax(json, format!("\"{text}\" is not a valid UUID")));
        }
        if tag == "named-uuid" {
            if !is_id(text) {
                return Err(Error::syntax(json, "named-uuid string is not a valid <id>"));
            }
            if let Some(uuid) = resolve(text) {
                return Ok(uuid);
            }
        }
    }
    Err(Error::new(ErrorKind::Syntax, "expected [\"uuid\", <string>]").quoting(json))
}

impl PartialEq for Atom {
    fn eq(&self, other: &Atom) -> bool {
        match (self, other) {
            (Atom::Integer(a), Atom::Integer(b)) => a == b,
            (Atom::Real(a), Atom::Real(b)) => compare_reals(*a, *b).is_eq(),
            (Atom::Boolean(a), Atom::Boolean(b)) => a == b,
            (Atom::String(a), Atom::String(b)) => Arc::ptr_eq(a, b) || a == b,
            (Atom::Uuid(a), Atom::Uuid(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Atom {}

impl PartialOrd for Atom {
    fn partial_cmp(&self, other: &Atom) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Atom {
    fn cmp(&self, other: &Atom) -> Ordering {
        match (self, other) {
            (Atom::Integer(a), Atom::Integer(b)) => a.cmp(b),
            (Atom::Real(a), Atom::Real(b)) => compare_reals(*a, *b),
            (Atom::Boolean(a), Atom::Boolean(b)) => a.cmp(b),
            (Atom::String(a), Atom::String(b)) => a.cmp(b),
            (Atom::Uuid(a), Atom::Uuid(b)) => a.cmp(b),
            _ => self.atomic_type().cmp(&other.atomic_type()),
        }
    }
}

impl Hash for Atom {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Atom::Integer(value) => value.hash(state),
            Atom::Real(value) => (value + 0.0).to_bits().hash(state),
            Atom::Boolean(value) => value.hash(state),
            Atom::String(value) => value.hash(state),
            Atom::Uuid(value) => value.hash(state),
        }
    }
}

/// A total order that keeps minus zero equal to zero.
fn compare_reals(a: f64, b: f64) -> Ordering {
    (a + 0.0).total_cmp(&(b + 0.0))
}

impl From<i64> for Atom {
    fn from(value: i64) -> Atom {
        Atom::Integer(value)
    }
}

impl From<f64> for Atom {
    fn from(value: f64) -> Atom {
        Atom::Real(value)
    }
}

impl From<bool> for Atom {
    fn from(value: bool) -> Atom {
        Atom::Boolean(value)
    }
}

impl From<&str> for Atom {
    fn from(value: &str) -> Atom {
        Atom::string(value)
    }
}

impl From<String> for Atom {
    fn from(value: String) -> Atom {
        Atom::String(value.into())
    }
}

impl From<Uuid> for Atom {
    fn from(value: Uuid) -> Atom {
        Atom::Uuid(value)
    }
}
