//! Reads a client's message.
//!
//! Nearly all are requests of one form; these are read without the detour over a JSON object. Anything else takes the way of all other
//! programs, which also knows the words for what is wrong.

use std::fmt;

use mgmt::jsonrpc::{Message, MessageError};
use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// Reads one message.
pub(crate) fn parse(frame: &[u8]) -> Result<Message, MessageError> {
    let mut json = serde_json::Deserializer::from_slice(frame);
    match json.deserialize_map(Request).ok().flatten() {
        Some(request) if json.end().is_ok() => Ok(request),
        _ => Message::parse(frame),
    }
}

/// Yields a request, or `None` for what is something else.
struct Request;

impl<'de> Visitor<'de> for Request {
    type Value = Option<Message>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<Message>, A::Error> {
        let (mut method, mut params, mut id) = (None, None, None);
        let mut strange = false;
        while let Some(name) = map.next_key::<&str>()? {
            match name {
                "method" if method.is_none() => method = Some(map.next_value::<Value>()?),
                "params" if params.is_none() => params = Some(map.next_value::<Value>()?),
                "id" if id.is_none() => id = Some(map.next_value::<Value>()?),
                _ => {
                    strange = true;
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(match (method, params, id) {
            (Some(Value::String(method)), Some(Value::Array(params)), Some(id)) if !strange && !id.is_null() => {
                Some(Message::Request { method, params, id })
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_and_the_long_one_read_the_same() {
        for frame in [
            r#"{"id":1,"method":"echo","params":[1,{"a":"b"}]}"#,
            r#"{"params":[],"id":"x","method":"list_dbs"}"#,
            r#"{"id":null,"method":"cancel","params":[1]}"#,
            r#"{"id":1,"method":"a","method":"b","params":[]}"#,
            r#"{"id":1,"result":[],"error":null}"#,
            r#"{"i\u0064":1,"method":"echo","params":[]}"#,
        ] {
            assert_eq!(
                parse(frame.as_bytes()).unwrap(),
                Message::parse(frame.as_bytes()).unwrap(),
                "{frame}"
            );
        }
        for frame in [
            "[]",
            "{}",
            r#"{"id":1,"method":"a","params":[]}}"#,
            r#"{"id":1,"method":"a","params":[],"x":1}"#,
            "{",
        ] {
            assert!(parse(frame.as_bytes()).is_err(), "{frame}");
        }
    }
}
