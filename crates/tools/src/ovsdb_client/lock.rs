//! `lock`, `steal`, `unlock`: locks of the server, to try them (RFC 7047 §4.1.8).

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use mgmt::daemon;
use mgmt::jsonrpc::{Connection, Message, RecvError};
use mgmt::unixctl::Server;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, oneshot};

use super::{Client, PROGRAM};
use crate::common::{Failure, print};

/// A request from the control socket, and where its answer goes.
type Request = (String, String, oneshot::Sender<Result<String, String>>);

pub(super) async fn run(client: &mut Client, mut rpc: Connection) -> Result<(), Failure> {
    let method = client.command.clone();
    let reply = client.call(&mut rpc, &method, vec![json!(client.args[0])]).await?;
    client.print_json(&reply)?;
    if !client.daemon.options().detach {
        if method == "unlock" {
            return Ok(());
        }
        loop {
            let message = rpc.recv().await;
            handle(client, &mut rpc, message, &mut HashMap::new()).await?;
        }
    }

    let (sender, mut requests) = mpsc::unbounded_channel::<Request>();
    let exit = serve(client, sender).await?;
    client.daemon.ready();
    let mut waiting = HashMap::new();
    let mut terminated = std::pin::pin!(daemon::terminated());
    loop {
        tokio::select! {
            message = rpc.recv() => handle(client, &mut rpc, message, &mut waiting).await?,
            Some((method, lock, answer)) = requests.recv() => {
                let id = rpc.request(&method, vec![json!(lock)]).await;
                let id = id.map_err(|e| client.lost(&e))?;
                waiting.insert(id.to_string(), answer);
            }
            () = exit.notified() => return Ok(()),
            _ = &mut terminated => return Ok(()),
        }
    }
}

/// Prints the server's notifications; passes replies to the control socket's requests.
async fn handle(
    client: &Client,
    rpc: &mut Connection,
    message: Result<Option<Message>, RecvError>,
    waiting: &mut HashMap<String, oneshot::Sender<Result<String, String>>>,
) -> Result<(), Failure> {
    let message = message
        .map_err(|e| client.lost(&e))?
        .ok_or_else(|| client.lost(&"End of file"))?;
    if let Some(reply) = message.echo_reply() {
        return rpc.send(reply).await.map_err(|e| client.lost(&e));
    }
    match message {
        Message::Notification { method, params } => {
            let params = client.style.json(&Value::Array(params));
            print(&format!("{method}\n{params}\n"))
        }
        Message::Reply { result, id } => {
            if let Some(answer) = waiting.remove(&id.to_string()) {
                let _ = answer.send(Ok(client.style.json(&result)));
            }
            Ok(())
        }
        Message::Error { error, id } => {
            if let Some(answer) = waiting.remove(&id.to_string()) {
                let _ = answer.send(Err(error.to_string()));
            }
            Ok(())
        }
        Message::Request { .. } => Ok(()),
    }
}

/// The control socket of a detached client: `lock`, `steal`, `unlock`, `exit`.
async fn serve(client: &Client, requests: mpsc::UnboundedSender<Request>) -> Result<Rc<Notify>, Failure> {
    let server = Server::new(PROGRAM);
    let requests = Rc::new(RefCell::new(requests));
    for method in ["lock", "steal", "unlock"] {
        let requests = requests.clone();
        let handler = move |args: &[String]| {
            let (answer, answered) = oneshot::channel();
            let _ = requests.borrow().send((method.to_owned(), args[0].clone(), answer));
            let later = async { answered.await.unwrap_or_else(|_| Err("connection lost".into())) };
            Box::pin(later) as Pin<Box<dyn Future<Output = Result<String, String>>>>
        };
        server.register_deferred(method, "LOCK", 1, 1, Box::new(handler));
    }
    serve_exit(client, server).await
}

/// Adds `exit` to a control socket and opens it where the options say. The notification says that
/// `exit` came.
pub(super) async fn serve_exit(client: &Client, server: Server) -> Result<Rc<Notify>, Failure> {
    let exit = Rc::new(Notify::new());
    let told = exit.clone();
    let handler = move |_: &[String]| {
        // The reply goes out before the program ends.
        let told = told.clone();
        tokio::task::spawn_local(async move {
            tokio::task::yield_now().await;
            told.notify_one();
        });
        Ok(String::new())
    };
    server.register("exit", "", 0, 0, Box::new(handler));
    if let Some(path) = client.daemon.options().unixctl_path() {
        let listener = Server::bind(&path).await.map_err(|e| {
            let why = mgmt::os_text(&e);
            Failure::new(format!("failed to create unixctl server at {} ({why})", path.display()))
        })?;
        tokio::task::spawn_local(server.serve(listener));
    }
    Ok(exit)
}
