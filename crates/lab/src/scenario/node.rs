//! A TOML file as a tree with the position of each value.

use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and its place in the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    /// Bytes of the file.
    pub(super) span: Range<usize>,
    /// Its value.
    pub(super) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Array(Vec<Node>),
    /// In the order of the file.
    Table(Vec<(Key, Node)>),
    /// Left out by a substitution, with its key.
    Absent,
}

/// A key of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub(super) span: Range<usize>,
    pub(super) name: String,
}

/// Something wrong at a place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fault {
    pub(super) span: Range<usize>,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(span: &Range<usize>, message: impl Into<String>) -> Fault {
        Fault {
            span: span.clone(),
            message: message.into(),
        }
    }
}

impl Node {
    /// Reads a file.
    pub(super) fn read(text: &str) -> Result<Node, Fault> {
        let table = DeTable::parse(text).map_err(|error| Fault {
            span: error.span().unwrap_or(0..0),
            message: error.message().to_owned(),
        })?;
        let span = table.span();
        Ok(Node {
            value: from_table(table.into_inner())?,
            span,
        })
    }

    pub(super) fn table(&self) -> Option<&[(Key, Node)]> {
        match &self.value {
            Value::Table(entries) => Some(entries),
            _ => None,
        }
    }

    pub(super) fn array(&self) -> Option<&[Node]> {
        match &self.value {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.table()?.iter().find(|(k, _)| k.name == key).map(|(_, node)| node)
    }

    /// Takes an entry out of a table.
    pub(super) fn take(&mut self, key: &str) -> Option<Node> {
        let Value::Table(entries) = &mut self.value else {
            return None;
        };
        let place = entries.iter().position(|(k, _)| k.name == key)?;
        Some(entries.remove(place).1)
    }

    /// The position of a path of keys and array indices, as far as the path exists.
    pub(super) fn place(&self, path: &[&str]) -> &Range<usize> {
        let Some((first, rest)) = path.split_first() else {
            return &self.span;
        };
        let next = match &self.value {
            Value::Array(items) => first.parse().ok().and_then(|n: usize| items.get(n)),
            _ => self.get(first),
        };
        next.map_or(&self.span, |node| node.place(rest))
    }

    /// The kind of value, for a message.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Bool(_) => "true or false",
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a number",
            Value::Text(_) => "a text",
            Value::Array(_) => "an array",
            Value::Table(_) => "a table",
            Value::Absent => "nothing",
        }
    }

    /// A value alone as text, as it is compared and shown.
    pub(super) fn label(&self) -> Option<String> {
        match &self.value {
            Value::Bool(value) => Some(value.to_string()),
            Value::Integer(value) => Some(value.to_string()),
            Value::Float(value) => Some(value.to_string()),
            Value::Text(value) => Some(value.clone()),
            _ => None,
        }
    }
}

fn from_table(table: DeTable<'_>) -> Result<Value, Fault> {
    let mut entries = Vec::with_capacity(table.len());
    for (key, value) in table {
        let key = Key {
            span: key.span(),
            name: key.into_inner().into_owned(),
        };
        entries.push((key, from_value(value)?));
    }
    // The reader sorts by name.
    entries.sort_by_key(|(key, _)| key.span.start);
    Ok(Value::Table(entries))
}

fn from_value(value: Spanned<DeValue<'_>>) -> Result<Node, Fault> {
    let span = value.span();
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Boolean(value) => Value::Bool(value),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(Value::Integer)
            .map_err(|_| Fault::new(&span, "this integer is too large"))?,
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .ok()
            .filter(|value: &f64| value.is_finite())
            .map(Value::Float)
            .ok_or_else(|| Fault::new(&span, "this is not a finite number"))?,
        DeValue::Datetime(_) => return Err(Fault::new(&span, "no key takes a date")),
        DeValue::Array(items) => Value::Array(items.into_iter().map(from_value).collect::<Result<_, _>>()?),
        DeValue::Table(table) => from_table(table)?,
    };
    Ok(Node { span, value })
}
