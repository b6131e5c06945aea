//! Reads typed values from a tree, with the position of errors.

use super::node::{Fault, Key, Node, Value};
use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{self, DeserializeOwned, Deserializer, EnumAccess, IntoDeserializer, VariantAccess, Visitor};
use std::fmt::Display;
use std::ops::Range;

/// Reads a typed value.
pub(super) fn typed<T: DeserializeOwned>(node: &Node) -> Result<T, Fault> {
    T::deserialize(Reader(node)).map_err(|error| {
        let span = error.span.unwrap_or_else(|| node.span.clone());
        let named = error
            .message
            .strip_prefix("unknown field `")
            .and_then(|rest| rest.split('`').next());
        Fault {
            // If a table is read in two parts, the second part has no positions of keys.
            span: named.and_then(|name| key_within(node, &span, name)).unwrap_or(span),
            message: error.message,
        }
    })
}

/// The place of a key in a table at a place.
fn key_within(node: &Node, span: &Range<usize>, name: &str) -> Option<Range<usize>> {
    match &node.value {
        Value::Table(entries) => {
            let own = entries
                .iter()
                .filter(|_| node.span == *span)
                .find(|(key, _)| key.name == name);
            own.map(|(key, _)| key.span.clone())
                .or_else(|| entries.iter().find_map(|(_, node)| key_within(node, span, name)))
        }
        Value::Array(items) => items.iter().find_map(|node| key_within(node, span, name)),
        _ => None,
    }
}

/// The innermost place that is known stays.
#[derive(Debug)]
struct Error {
    span: Option<Range<usize>>,
    message: String,
}

impl Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: Display>(message: T) -> Error {
        Error {
            span: None,
            message: message.to_string(),
        }
    }
}

impl Error {
    fn at(mut self, span: &Range<usize>) -> Error {
        self.span.get_or_insert_with(|| span.clone());
        self
    }
}

#[derive(Clone, Copy)]
struct Reader<'a>(&'a Node);

impl<'de> IntoDeserializer<'de, Error> for Reader<'de> {
    type Deserializer = Reader<'de>;
    fn into_deserializer(self) -> Reader<'de> {
        self
    }
}

/// A key, so that an unknown one is reported with its position.
#[derive(Clone, Copy)]
struct Name<'a>(&'a Key);

impl<'de> IntoDeserializer<'de, Error> for Name<'de> {
    type Deserializer = Name<'de>;
    fn into_deserializer(self) -> Name<'de> {
        self
    }
}

impl<'de> Deserializer<'de> for Name<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor
            .visit_borrowed_str(&self.0.name)
            .map_err(|error: Error| error.at(&self.0.span))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let read = match &self.0.value {
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Integer(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(value) => visitor.visit_borrowed_str(value),
            Value::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.iter().map(Reader))),
            Value::Table(entries) => {
                visitor.visit_map(MapDeserializer::new(entries.iter().map(|(k, v)| (Name(k), Reader(v)))))
            }
            Value::Absent => visitor.visit_unit(),
        };
        read.map_err(|error: Error| error.at(&self.0.span))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0.value {
            Value::Absent => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let read = match &self.0.value {
            Value::Text(name) => visitor.visit_enum(StrDeserializer::<Error>::new(name)),
            Value::Table(entries) => match entries.as_slice() {
                [(name, value)] => visitor.visit_enum(Variant { name, value }),
                _ => Err(de::Error::custom("this must be one name, or a table of one")),
            },
            _ => Err(de::Error::custom(format!(
                "{} stands where a name is due",
                self.0.kind()
            ))),
        };
        read.map_err(|error: Error| error.at(&self.0.span))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

struct Variant<'a> {
    name: &'a Key,
    value: &'a Node,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Error;
    type Variant = Reader<'de>;

    fn variant_seed<V: de::DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Reader<'de>), Error> {
        Ok((seed.deserialize(Name(self.name))?, Reader(self.value)))
    }
}

impl<'de> VariantAccess<'de> for Reader<'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.0.table() {
            Some([]) => Ok(()),
            _ => Err(<Error as de::Error>::custom("this name takes no values").at(&self.0.span)),
        }
    }

    fn newtype_variant_seed<T: de::DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }
}
