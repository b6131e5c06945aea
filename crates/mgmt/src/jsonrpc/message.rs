//! The four messages of JSON-RPC 1.0.

use serde_json::{Map, Value, json};

/// One JSON-RPC message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// A request; a reply or an error with the same `id` follows.
    Request {
        /// The method.
        method: String,
        /// Its arguments.
        params: Vec<Value>,
        /// Any JSON value but null.
        id: Value,
    },
    /// A notification, without an answer.
    Notification {
        /// The method.
        method: String,
        /// Its arguments.
        params: Vec<Value>,
    },
    /// The result of a request.
    Reply {
        /// The result.
        result: Value,
        /// The request's `id`.
        id: Value,
    },
    /// A request that failed.
    Error {
        /// Why.
        error: Value,
        /// The request's `id`.
        id: Value,
    },
}

/// Why bytes are not a JSON-RPC message.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// Not JSON.
    #[error("syntax error: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON, but not of the form of a message; says what is wrong.
    #[error("bad JSON-RPC message: {0}")]
    Form(&'static str),
}

impl Message {
    /// A request.
    pub fn request(method: &str, params: Vec<Value>, id: impl Into<Value>) -> Message {
        Message::Request {
            method: method.to_owned(),
            params,
            id: id.into(),
        }
    }

    /// A notification.
    pub fn notification(method: &str, params: Vec<Value>) -> Message {
        Message::Notification {
            method: method.to_owned(),
            params,
        }
    }

    /// The reply to the request that had `id`.
    pub fn reply(result: Value, id: Value) -> Message {
        Message::Reply { result, id }
    }

    /// The failure of the request that had `id`.
    pub fn error(error: impl Into<Value>, id: Value) -> Message {
        Message::Error {
            error: error.into(),
            id,
        }
    }

    /// Reads one message.
    ///
    /// # Errors
    /// [`MessageError`]; close the connection.
    pub fn parse(frame: &[u8]) -> Result<Message, MessageError> {
        Message::from_value(ovsdb::parse_json(frame)?)
    }

    /// Reads one message from JSON. Members that JSON-RPC does not know are refused.
    ///
    /// # Errors
    /// [`MessageError::Form`]
    pub fn from_value(value: Value) -> Result<Message, MessageError> {
        let Value::Object(mut object) = value else {
            return Err(MessageError::Form("message is not a JSON object"));
        };
        let mut take = |name: &str| object.remove(name).filter(|v| !v.is_null());
        let (method, params) = (take("method"), take("params"));
        let (result, error, id) = (take("result"), take("error"), take("id"));
        let had_result = result.is_some();
        object.remove("result");
        if !object.is_empty() {
            return Err(MessageError::Form("message has unexpected member"));
        }
        match (method, params, id) {
            (Some(_), _, _) if had_result || error.is_some() => {
                Err(MessageError::Form("request must not have \"result\" or \"error\""))
            }
            (Some(Value::String(method)), Some(Value::Array(params)), Some(id)) => {
                Ok(Message::Request { method, params, id })
            }
            (Some(Value::String(method)), Some(Value::Array(params)), None) => {
                Ok(Message::Notification { method, params })
            }
            (Some(Value::String(_)), _, _) => Err(MessageError::Form("\"params\" must be JSON array")),
            (Some(_), _, _) => Err(MessageError::Form("\"method\" must be JSON string")),
            (None, Some(_), _) => Err(MessageError::Form("reply must not have \"params\"")),
            (None, None, None) => Err(MessageError::Form("message has neither method nor id")),
            (None, None, Some(id)) => match error {
                Some(_) if had_result => Err(MessageError::Form("reply has both \"result\" and \"error\"")),
                Some(error) => Ok(Message::Error { error, id }),
                None => Ok(Message::Reply {
                    result: result.unwrap_or(Value::Null),
                    id,
                }),
            },
        }
    }

    /// The message as JSON.
    pub fn into_value(self) -> Value {
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        match self {
            Message::Request { method, params, id } => {
                put("method", method.into());
                put("params", params.into());
                put("id", id);
            }
            Message::Notification { method, params } => {
                put("method", method.into());
                put("params", params.into());
                put("id", Value::Null);
            }
            Message::Reply { result, id } => {
                put("result", result);
                put("error", Value::Null);
                put("id", id);
            }
            Message::Error { error, id } => {
                put("result", Value::Null);
                put("error", error);
                put("id", id);
            }
        }
        Value::Object(object)
    }

    /// The message as bytes to send.
    pub fn to_bytes(self) -> Vec<u8> {
        self.into_value().to_string().into_bytes()
    }

    /// The answer that a peer expects when this message is its `echo` (RFC 7047 §4.1.11).
    pub fn echo_reply(&self) -> Option<Message> {
        match self {
            Message::Request { method, params, id } if method == "echo" => {
                Some(Message::reply(json!(params), id.clone()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_being_written_and_read() {
        for message in [
            Message::request("echo", vec![json!("x")], 1),
            Message::notification("update", vec![json!(null), json!({})]),
            Message::reply(json!([{}]), json!("id")),
            Message::error("canceled", json!(["id"])),
        ] {
            assert_eq!(Message::parse(&message.clone().to_bytes()).unwrap(), message);
        }
    }

    #[test]
    fn a_reply_may_leave_out_what_is_null() {
        let parse = |s: &str| Message::parse(s.as_bytes()).unwrap();
        assert_eq!(parse(r#"{"id":1,"error":"x"}"#), Message::error("x", json!(1)));
        assert_eq!(parse(r#"{"id":1,"result":{}}"#), Message::reply(json!({}), json!(1)));
        assert_eq!(
            parse(r#"{"id":1,"result":null,"error":null}"#),
            Message::reply(Value::Null, json!(1))
        );
    }

    #[test]
    fn what_is_not_a_message_is_refused() {
        for wrong in [
            "[]",
            "{}",
            r#"{"id":1,"method":"a","params":{}}"#,
            r#"{"id":1,"method":"a"}"#,
            r#"{"id":1,"method":2,"params":[]}"#,
            r#"{"id":1,"params":[]}"#,
            r#"{"id":1,"result":1,"error":1}"#,
            r#"{"id":1,"method":"a","params":[],"result":1}"#,
            r#"{"id":1,"method":"a","params":[],"jsonrpc":"2.0"}"#,
            r#"{"id":1,"#,
            r#"{"id":1,"method":"a","params":["\u0000"]}"#,
            r#"{"id":"\u0000","result":1}"#,
        ] {
            assert!(Message::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        let deep = format!(r#"{{"id":1,"method":"a","params":{deep}}}"#);
        assert!(
            Message::parse(deep.as_bytes()).is_err(),
            "the parser's stack is bounded"
        );
    }
}
