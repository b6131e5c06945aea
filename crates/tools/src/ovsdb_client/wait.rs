//! `wait`: until a database is there, is connected, or is gone. The server may come up, go away
//! and come back meanwhile.

use std::time::Duration;

use mgmt::jsonrpc::{CallError, Connection};
use serde_json::json;

use super::{Client, connect};
use crate::common::Failure;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Added,
    Connected,
    Removed,
}

pub(super) async fn run(client: &Client) -> Result<(), Failure> {
    let state = match client.args[1].as_str() {
        "added" => State::Added,
        "connected" => State::Connected,
        "removed" => State::Removed,
        other => return Err(Failure::new(format!("{other}: unknown state"))),
    };
    // A name that can never be reached is an error, a server that is not there yet is not.
    if let Err(e) = client.server.parse::<mgmt::stream::Remote>() {
        return Err(Failure::new(e.to_string()));
    }
    loop {
        tracing::info!(target: "reconnect", "{}: connecting...", client.server);
        if let Ok(mut rpc) = connect(&client.server, &client.tls).await {
            tracing::info!(target: "reconnect", "{}: connected", client.server);
            match watch(&mut rpc, &client.args[0], state).await {
                Ok(()) => return Ok(()),
                Err(CallError::Remote(error)) => {
                    return Err(Failure::new(format!("{}: {error}", client.server)));
                }
                Err(_) => {}
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Returns when the database is in the state; looks again at each change of `_Server`.
async fn watch(rpc: &mut Connection, database: &str, state: State) -> Result<(), CallError> {
    rpc.call("set_db_change_aware", vec![json!(true)]).await?;
    let wanted = json!({"Database": [{"columns": ["name", "connected"]}]});
    rpc.call("monitor", vec![json!("_Server"), json!("wait"), wanted])
        .await?;
    loop {
        let select = json!({
            "op": "select", "table": "Database", "where": [["name", "==", database]],
            "columns": ["connected"],
        });
        let reply = rpc.call("transact", vec![json!("_Server"), select]).await?;
        let row = reply.pointer("/0/rows/0");
        let is_connected = row.and_then(|r| r.get("connected")).is_some_and(|c| c == true);
        let reached = match state {
            State::Added => row.is_some(),
            State::Connected => is_connected,
            State::Removed => row.is_none(),
        };
        if reached {
            return Ok(());
        }
        let message = rpc.recv().await?.ok_or(CallError::Closed)?;
        if let Some(reply) = message.echo_reply() {
            rpc.send(reply).await?;
        }
    }
}
