//! The messages that the server sends, written straight to bytes.

use serde::Serialize;
use serde_json::Value;

/// Appends any value as JSON.
pub(crate) fn json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    // Writing to a Vec does not fail, and all our keys are strings.
    let _ = serde_json::to_writer(out, value);
}

/// Appends the reply to a request.
pub(crate) fn reply(out: &mut Vec<u8>, id: &Value, result: &(impl Serialize + ?Sized)) {
    reply_with(out, id, |out| json(out, result));
}

/// Appends the reply to a request, whose result `write` writes.
pub(crate) fn reply_with(out: &mut Vec<u8>, id: &Value, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"{\"id\":");
    json(out, id);
    out.extend_from_slice(b",\"result\":");
    write(out);
    out.extend_from_slice(b",\"error\":null}");
}

/// Appends an error reply.
pub(crate) fn error(out: &mut Vec<u8>, id: &Value, error: &Value) {
    out.extend_from_slice(b"{\"id\":");
    json(out, id);
    out.extend_from_slice(b",\"result\":null,\"error\":");
    json(out, error);
    out.push(b'}');
}

/// Appends a notification with one parameter.
pub(crate) fn notification(out: &mut Vec<u8>, method: &str, param: &(impl Serialize + ?Sized)) {
    out.extend_from_slice(b"{\"id\":null,\"method\":\"");
    out.extend_from_slice(method.as_bytes());
    out.extend_from_slice(b"\",\"params\":[");
    json(out, param);
    out.extend_from_slice(b"]}");
}

/// Appends the echo request that probes a silent client.
pub(crate) fn probe(out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"id":"echo","method":"echo","params":[]}"#);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_are_json_with_the_members_of_their_kind() {
        let mut out = Vec::new();
        reply(&mut out, &json!("a"), &json!([{}]));
        error(&mut out, &json!(1), &json!("canceled"));
        notification(&mut out, "locked", "l");
        probe(&mut out);
        let read: Vec<Value> = serde_json::Deserializer::from_slice(&out)
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert_eq!(
            read,
            [
                json!({"id": "a", "result": [{}], "error": null}),
                json!({"id": 1, "result": null, "error": "canceled"}),
                json!({"id": null, "method": "locked", "params": ["l"]}),
                json!({"id": "echo", "method": "echo", "params": []}),
            ]
        );
    }
}
