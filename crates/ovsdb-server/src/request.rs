//! Reads a client's message.
//!
//! Nearly all messages are requests of one form, which are read without building a JSON object. All
//! others go through the general JSON-RPC parser, which also reports what is wrong.

use std::fmt;

use mgmt::jsonrpc::{Message, MessageError};
use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use ovsdb::{Arena, Json as _, Node};

/// A client's message.
#[derive(Debug, PartialEq)]
pub(crate) enum Incoming<'a> {
    /// A transaction of the usual form, the most frequent message.
    Transact {
        db: &'a str,
        ops: &'a [Node<'a>],
        /// Not null.
        id: Value,
    },
    /// A request.
    Request {
        method: &'a str,
        params: Vec<Value>,
        /// Not null.
        id: Value,
    },
    /// Anything else, or a request in an unusual form.
    Other(Message),
}

/// Reads one message; parts of it are kept in `arena`.
pub(crate) fn parse<'a>(frame: &'a [u8], arena: &'a Arena) -> Result<Incoming<'a>, MessageError> {
    if let Ok(text) = std::str::from_utf8(frame) {
        if let Some(transact) = Node::parse(text, arena).and_then(transact) {
            return Ok(transact);
        }
        ovsdb::refuse_nul(frame)?;
        let mut json = serde_json::Deserializer::from_str(text);
        if let Ok(Some(request)) = json.deserialize_map(Request)
            && json.end().is_ok()
        {
            return Ok(request);
        }
    }
    Message::parse(frame).map(Incoming::Other)
}

/// The members of a transaction of the usual form.
fn transact(message: Node<'_>) -> Option<Incoming<'_>> {
    let Node::Object(
        [
            ("id", id @ (Node::Integer(_) | Node::String(_))),
            ("method", Node::String("transact")),
            ("params", Node::Array([Node::String(db), ops @ ..])),
        ],
    ) = message
    else {
        return None;
    };
    let id = id.to_value();
    Some(Incoming::Transact { db, ops, id })
}

/// Yields a request, or `None` for any other message.
struct Request;

impl<'de> Visitor<'de> for Request {
    type Value = Option<Incoming<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut method, mut params, mut id) = (None, None, None);
        let mut strange = false;
        while let Some(name) = map.next_key::<&str>()? {
            match name {
                "method" if method.is_none() => method = Some(map.next_value::<&str>()?),
                "params" if params.is_none() => params = Some(map.next_value::<Vec<Value>>()?),
                "id" if id.is_none() => id = Some(map.next_value::<Value>()?),
                _ => {
                    strange = true;
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(match (method, params, id) {
            (Some(method), Some(params), Some(id)) if !strange && !id.is_null() => {
                Some(Incoming::Request { method, params, id })
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
        for (frame, short) in [
            (r#"{"id":1,"method":"echo","params":[1,{"a":"b"}]}"#, true),
            (r#"{"params":["\u00e9"],"id":"x","method":"list_dbs"}"#, true),
            (r#"{"id":null,"method":"cancel","params":[1]}"#, false),
            (
                r#"{"id":1,"method":"transact","params":["D",{"op":"x","a":[]},null]}"#,
                true,
            ),
            (
                r#"{"method":"transact","params":["D",{"op":1.5,"a":"\n"}],"id":"x"}"#,
                true,
            ),
            (r#"{"id":null,"method":"transact","params":["D"]}"#, false),
            (r#"{"id":[1],"method":"transact","params":[]}"#, true),
            (r#"{"id":1,"method":"a","method":"b","params":[]}"#, false),
            (r#"{"id":1,"result":[],"error":null}"#, false),
            (r#"{"i\u0064":1,"method":"echo","params":[]}"#, false),
            (r#"{"id":1,"method":"\u0065cho","params":[]}"#, false),
        ] {
            let arena = Arena::default();
            let read = match parse(frame.as_bytes(), &arena).unwrap() {
                Incoming::Request { method, params, id } => (Message::request(method, params, id), true),
                Incoming::Other(message) => (message, false),
                Incoming::Transact { db, ops, id } => {
                    let ops = ops.iter().map(Node::to_value);
                    let params = std::iter::once(db.into()).chain(ops).collect();
                    (Message::request("transact", params, id), true)
                }
            };
            assert_eq!(read, (Message::parse(frame.as_bytes()).unwrap(), short), "{frame}");
        }
        for frame in [
            "[]",
            "{}",
            r#"{"id":1,"method":"a","params":[]}}"#,
            r#"{"id":1,"method":"a","params":[],"x":1}"#,
            "{",
        ] {
            assert!(parse(frame.as_bytes(), &Arena::default()).is_err(), "{frame}");
        }
        let bad = b"{\"id\":1,\"method\":\"a\",\"params\":[\"\xff\"]}";
        assert!(parse(bad, &Arena::default()).is_err());
    }
}
