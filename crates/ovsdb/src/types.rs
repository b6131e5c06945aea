//! Types of columns: what atoms a column may hold, and how many (RFC 7047 §3.2, `<type>` and
//! `<base-type>`).

use crate::atom::{Atom, AtomicType, json_integer, no_names};
use crate::datum::Datum;
use crate::error::Error;
use crate::parser::{Kinds, Name, Parser};
use serde_json::{Map, Value};
use std::fmt::{self, Write as _};

/// What happens to a reference when the row it names is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefType {
    /// The row cannot be deleted, and a reference to a missing row is an error.
    Strong,
    /// The reference is removed from its column.
    Weak,
}

/// The table that the UUIDs of a column name rows of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RefTable {
    /// The table's name.
    pub table: String,
    /// How strong the reference is.
    pub kind: RefType,
}

/// A type of atom with its limits.
#[derive(Debug, Clone, PartialEq)]
pub enum BaseKind {
    /// Integers from `min` to `max`.
    Integer {
        /// The least value.
        min: i64,
        /// The greatest value.
        max: i64,
    },
    /// Reals from `min` to `max`.
    Real {
        /// The least value, or `f64::MIN`.
        min: f64,
        /// The greatest value, or `f64::MAX`.
        max: f64,
    },
    /// Booleans.
    Boolean,
    /// Strings of `min` to `max` characters.
    String {
        /// The least length in characters.
        min: usize,
        /// The greatest length in characters.
        max: usize,
    },
    /// UUIDs, of rows of a table if one is named.
    Uuid(Option<RefTable>),
}

/// A type of atom with its limits and, if it has one, the list of all its values (RFC 7047 §3.2,
/// `<base-type>`).
#[derive(Debug, Clone, PartialEq)]
pub struct BaseType {
    /// Type and limits.
    pub kind: BaseKind,
    /// The only values allowed, when the type is an enumeration.
    pub values: Option<Datum>,
}

/// The type of a column: a scalar, an optional scalar, a set or a map (RFC 7047 §3.2, `<type>`).
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnType {
    /// The type of the elements, or of a map's keys.
    pub key: BaseType,
    /// The type of a map's values.
    pub value: Option<BaseType>,
    /// The least number of elements, 0 or 1.
    pub min: usize,
    /// The greatest number of elements, at least 1; [`UNLIMITED`] for no limit.
    pub max: usize,
}

/// `"max": "unlimited"`.
pub const UNLIMITED: usize = u32::MAX as usize;

impl BaseType {
    /// The type without limits.
    pub fn plain(kind: AtomicType) -> BaseType {
        let kind = match kind {
            AtomicType::Integer => BaseKind::Integer {
                min: i64::MIN,
                max: i64::MAX,
            },
            AtomicType::Real => BaseKind::Real {
                min: f64::MIN,
                max: f64::MAX,
            },
            AtomicType::Boolean => BaseKind::Boolean,
            AtomicType::String => BaseKind::String { min: 0, max: UNLIMITED },
            AtomicType::Uuid => BaseKind::Uuid(None),
        };
        BaseType { kind, values: None }
    }

    /// The type of its atoms.
    pub fn atomic_type(&self) -> AtomicType {
        match self.kind {
            BaseKind::Integer { .. } => AtomicType::Integer,
            BaseKind::Real { .. } => AtomicType::Real,
            BaseKind::Boolean => AtomicType::Boolean,
            BaseKind::String { .. } => AtomicType::String,
            BaseKind::Uuid(_) => AtomicType::Uuid,
        }
    }

    /// The table whose rows its UUIDs name.
    pub fn reference(&self) -> Option<&RefTable> {
        if let BaseKind::Uuid(reference) = &self.kind {
            reference.as_ref()
        } else {
            None
        }
    }

    /// Whether it is a reference of that strength.
    pub fn refers(&self, kind: RefType) -> bool {
        self.reference().is_some_and(|reference| reference.kind == kind)
    }

    /// Checks an atom against the limits.
    ///
    /// # Errors
    /// `constraint violation`, with the value and the limit in the details.
    pub fn check(&self, atom: &Atom) -> Result<(), Error> {
        if let Some(values) = &self.values {
            if values.contains(atom) {
                return Ok(());
            }
            return Err(Error::constraint(format!(
                "{} is not one of the allowed values ({})",
                atom.to_text(),
                values.display_list()
            )));
        }
        match (&self.kind, atom) {
            (BaseKind::Integer { min, max }, Atom::Integer(value)) => {
                let (low, high) = ((*min != i64::MIN).then_some(min), (*max != i64::MAX).then_some(max));
                check_range(value, min, max, low, high, |v| v.to_string())
            }
            (BaseKind::Real { min, max }, Atom::Real(value)) => {
                let (low, high) = ((*min != f64::MIN).then_some(min), (*max != f64::MAX).then_some(max));
                check_range(value, min, max, low, high, |v| real_text(*v))
            }
            (BaseKind::String { min, max }, Atom::String(text)) => {
                if text.len() >= *min && text.len() <= *max && *min == 0 {
                    return Ok(());
                }
                let length = text.chars().count();
                if length < *min {
                    Err(Error::constraint(format!(
                        "\"{text}\" length {length} is less than minimum allowed length {min}"
                    )))
                } else if length > *max {
                    Err(Error::constraint(format!(
                        "\"{text}\" length {length} is greater than maximum allowed length {max}"
                    )))
                } else {
                    Ok(())
                }
            }
            _ => Ok(()),
        }
    }

    /// Parses a `<base-type>`.
    ///
    /// # Errors
    /// `syntax error` when it is malformed or its limits contradict each other.
    pub fn from_json(json: &Value) -> Result<BaseType, Error> {
        if let Some(name) = json.as_str() {
            return atomic_type(json, name).map(BaseType::plain);
        }
        let mut parser = Parser::new(json, Name::Plain("ovsdb type"));
        let kind = match parser.required("type", Kinds::STRING) {
            Some(name) => atomic_type(name, name.as_str().unwrap_or_default())?,
            None => {
                return Err(parser
                    .finish()
                    .err()
                    .unwrap_or_else(|| Error::syntax(json, "type expected")));
            }
        };
        let mut base = BaseType::plain(kind);
        if let Some(values) = parser.optional("enum", Kinds::ANY) {
            let relaxed = ColumnType {
                key: base,
                value: None,
                min: 1,
                max: UNLIMITED,
            };
            base = BaseType {
                values: Some(Datum::from_json(values, &relaxed, &mut no_names)?),
                kind: relaxed.key.kind,
            };
        } else {
            match &mut base.kind {
                BaseKind::Integer { min, max } => {
                    *min = parser
                        .optional("minInteger", Kinds::INTEGER)
                        .and_then(json_integer)
                        .unwrap_or(*min);
                    *max = parser
                        .optional("maxInteger", Kinds::INTEGER)
                        .and_then(json_integer)
                        .unwrap_or(*max);
                    if min > max {
                        return Err(Error::syntax(json, "minInteger exceeds maxInteger"));
                    }
                }
                BaseKind::Real { min, max } => {
                    *min = parser
                        .optional("minReal", Kinds::NUMBER)
                        .and_then(Value::as_f64)
                        .unwrap_or(*min);
                    *max = parser
                        .optional("maxReal", Kinds::NUMBER)
                        .and_then(Value::as_f64)
                        .unwrap_or(*max);
                    if min > max {
                        return Err(Error::syntax(json, "minReal exceeds maxReal"));
                    }
                }
                BaseKind::Boolean => {}
                BaseKind::String { min, max } => {
                    *min = length(&mut parser, "minLength")?.unwrap_or(*min);
                    *max = length(&mut parser, "maxLength")?.unwrap_or(*max);
                    if min > max {
                        return Err(Error::syntax(json, "minLength exceeds maxLength"));
                    }
                }
                BaseKind::Uuid(reference) => *reference = ref_table(&mut parser)?,
            }
        }
        parser.finish()?;
        Ok(base)
    }

    /// The `<base-type>`.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        if let Some(values) = &self.values {
            let set = ColumnType {
                key: BaseType::plain(self.atomic_type()),
                value: None,
                min: 1,
                max: UNLIMITED,
            };
            object.insert("enum".into(), values.to_json(&set));
        }
        match &self.kind {
            BaseKind::Integer { min, max } => {
                limit(&mut object, "minInteger", *min, i64::MIN);
                limit(&mut object, "maxInteger", *max, i64::MAX);
            }
            BaseKind::Real { min, max } => {
                if *min != f64::MIN {
                    object.insert("minReal".into(), Atom::Real(*min).to_json());
                }
                if *max != f64::MAX {
                    object.insert("maxReal".into(), Atom::Real(*max).to_json());
                }
            }
            BaseKind::Boolean => {}
            BaseKind::String { min, max } => {
                limit(&mut object, "minLength", *min as i64, 0);
                limit(&mut object, "maxLength", *max as i64, UNLIMITED as i64);
            }
            BaseKind::Uuid(None) => {}
            BaseKind::Uuid(Some(reference)) => {
                object.insert("refTable".into(), reference.table.as_str().into());
                if reference.kind == RefType::Weak {
                    object.insert("refType".into(), "weak".into());
                }
            }
        }
        let name = self.atomic_type().as_str();
        if object.is_empty() {
            return name.into();
        }
        object.insert("type".into(), name.into());
        Value::Object(object)
    }

    /// What the values are, in English, for messages to users: `integer in range 0 to 4,095`,
    /// `one of red, green`.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        if let Some(values) = &self.values {
            let listed: Vec<String> = values.atoms().iter().map(Atom::to_text).collect();
            let _ = write!(text, "one of {}", listed.join(", "));
            return text;
        }
        match &self.kind {
            BaseKind::Integer {
                min: i64::MIN,
                max: i64::MAX,
            }
            | BaseKind::Boolean
            | BaseKind::Uuid(None) => {
                text.push_str(self.atomic_type().as_str());
            }
            BaseKind::Integer { min, max } => {
                let _ = write!(text, "integer from {min} to {max}");
            }
            BaseKind::Real { min, max } => {
                let _ = write!(text, "real from {} to {}", real_text(*min), real_text(*max));
            }
            BaseKind::String { min, max } => {
                let _ = write!(text, "string of {min} to {max} characters");
            }
            BaseKind::Uuid(Some(reference)) => {
                let _ = write!(text, "{} row", reference.table);
            }
        }
        text
    }
}

impl ColumnType {
    /// Exactly one atom of that type.
    pub fn scalar(key: BaseType) -> ColumnType {
        ColumnType {
            key,
            value: None,
            min: 1,
            max: 1,
        }
    }

    /// Whether it is a map.
    pub fn is_map(&self) -> bool {
        self.value.is_some()
    }

    /// Whether it holds exactly one atom.
    pub(crate) fn is_scalar(&self) -> bool {
        self.value.is_none() && self.min == 1 && self.max == 1
    }

    /// Whether it holds one atom or none.
    pub(crate) fn is_optional_scalar(&self) -> bool {
        self.value.is_none() && self.min == 0 && self.max == 1
    }

    /// Whether a difference lists elements, rather than being the new value (ovsdb-server(7)
    /// §4.1.14).
    pub(crate) fn is_composite(&self) -> bool {
        self.max > 1
    }

    /// The type in English: `integer`, `set of up to 3 strings`, `map of (string, string) pairs`.
    pub fn describe(&self) -> String {
        let key = self.key.atomic_type();
        if self.is_scalar() {
            return key.to_string();
        }
        let number = match (self.min, self.max) {
            (0, UNLIMITED) => String::new(),
            (min, UNLIMITED) => format!(" {min} or more"),
            (0, max) => format!(" up to {max}"),
            (min, max) => format!(" {min} to {max}"),
        };
        match &self.value {
            None => format!("set of{number} {key}s"),
            Some(value) => format!("map of{number} ({key}, {}) pairs", value.atomic_type()),
        }
    }

    /// The same type without a limit on the number of elements.
    pub fn relaxed(&self) -> ColumnType {
        ColumnType {
            min: 0,
            max: UNLIMITED,
            ..self.clone()
        }
    }

    /// The default value of a column (RFC 7047 §5.2.1).
    pub fn default_datum(&self) -> Datum {
        if self.min == 0 {
            return Datum::EMPTY;
        }
        let key = self.key.atomic_type().default_atom();
        match &self.value {
            None => Datum::one(key),
            Some(value) => Datum::map([(key, value.atomic_type().default_atom())]),
        }
    }

    /// Parses a `<type>`.
    ///
    /// # Errors
    /// `syntax error` when it is malformed.
    pub fn from_json(json: &Value) -> Result<ColumnType, Error> {
        if json.is_string() {
            return BaseType::from_json(json).map(ColumnType::scalar);
        }
        let mut parser = Parser::new(json, Name::Plain("ovsdb type"));
        let both = Kinds::STRING.or(Kinds::OBJECT);
        let key = parser.required("key", both);
        let value = parser.optional("value", both);
        let min = parser.optional("min", Kinds::INTEGER);
        let max = parser.optional("max", Kinds::INTEGER.or(Kinds::STRING));
        parser.finish()?;
        let key = BaseType::from_json(key.unwrap_or(&Value::Null))?;
        let value = value.map(BaseType::from_json).transpose()?;
        let min = match min {
            None => 1,
            Some(json) => multiplicity(json)?,
        };
        let max = match max {
            None => 1,
            Some(Value::String(text)) if text == "unlimited" => UNLIMITED,
            Some(json) => multiplicity(json)?,
        };
        if min > 1 || max < 1 || min > max {
            return Err(Error::syntax(json, "ovsdb type fails constraint checks"));
        }
        Ok(ColumnType { key, value, min, max })
    }

    /// The `<type>`.
    pub fn to_json(&self) -> Value {
        if self.is_scalar() && self.key.to_json().is_string() {
            return self.key.to_json();
        }
        let mut object = Map::new();
        object.insert("key".into(), self.key.to_json());
        if let Some(value) = &self.value {
            object.insert("value".into(), value.to_json());
        }
        limit(&mut object, "min", self.min as i64, 1);
        if self.max == UNLIMITED {
            object.insert("max".into(), "unlimited".into());
        } else {
            limit(&mut object, "max", self.max as i64, 1);
        }
        Value::Object(object)
    }
}

/// A real as `%.15g` prints it, with more digits if these do not restore its value.
pub(crate) fn real_text(value: f64) -> String {
    if let Some(whole) = crate::atom::whole(value).filter(|whole| whole.abs() < 1_000_000_000_000_000) {
        return whole.to_string();
    }
    let magnitude = value.abs();
    if (1e-5..1e15).contains(&magnitude) {
        return value.to_string();
    }
    let text = format!("{value:e}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>2}")
}

fn check_range<T: PartialOrd>(
    value: &T,
    min: &T,
    max: &T,
    low: Option<&T>,
    high: Option<&T>,
    text: impl Fn(&T) -> String,
) -> Result<(), Error> {
    if value >= min && value <= max {
        return Ok(());
    }
    Err(Error::constraint(match (low, high) {
        (Some(_), None) => format!("{} is less than minimum allowed value {}", text(value), text(min)),
        (None, Some(_)) => format!("{} is greater than maximum allowed value {}", text(value), text(max)),
        _ => format!(
            "{} is not in the valid range {} to {} (inclusive)",
            text(value),
            text(min),
            text(max)
        ),
    }))
}

fn atomic_type(json: &Value, name: &str) -> Result<AtomicType, Error> {
    AtomicType::from_name(name).ok_or_else(|| Error::syntax(json, format!("\"{name}\" is not an atomic-type")))
}

fn length(parser: &mut Parser<'_>, member: &str) -> Result<Option<usize>, Error> {
    let Some(json) = parser.optional(member, Kinds::INTEGER) else {
        return Ok(None);
    };
    json_integer(json)
        .filter(|length| (0..=UNLIMITED as i64).contains(length))
        .map(|length| Some(length as usize))
        .ok_or_else(|| Error::syntax(json, format!("{member} out of valid range 0 to {UNLIMITED}")))
}

fn ref_table(parser: &mut Parser<'_>) -> Result<Option<RefTable>, Error> {
    let Some(table) = parser.optional("refTable", Kinds::ID).and_then(Value::as_str) else {
        return Ok(None);
    };
    let kind = match parser.optional("refType", Kinds::ID) {
        None => RefType::Strong,
        Some(Value::String(kind)) if kind == "strong" => RefType::Strong,
        Some(Value::String(kind)) if kind == "weak" => RefType::Weak,
        Some(json) => {
            let details = format!("refType must be \"strong\" or \"weak\" (not {json})");
            return Err(Error::syntax(json, details));
        }
    };
    Ok(Some(RefTable {
        table: table.to_owned(),
        kind,
    }))
}

/// A number of elements in a `<type>`.
fn multiplicity(json: &Value) -> Result<usize, Error> {
    json_integer(json)
        .and_then(|number| usize::try_from(number).ok())
        .filter(|number| *number <= UNLIMITED)
        .ok_or_else(|| Error::syntax(json, "bad min or max value"))
}

fn limit(object: &mut Map<String, Value>, name: &str, value: i64, default: i64) {
    if value != default {
        object.insert(name.into(), value.into());
    }
}

impl fmt::Display for RefType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == RefType::Strong { "strong" } else { "weak" })
    }
}
