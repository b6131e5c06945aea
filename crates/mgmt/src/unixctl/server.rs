//! The daemon's side of a control socket.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::Value;
use telemetry::{coverage, memory, version, vlog};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::REQUEST_LIMITS;
use crate::jsonrpc::{Connection, Message};
use crate::os_text;
use crate::stream::{Listener, Remote, Stream, Tls};

/// Runs a command: its arguments in, its text or the text of its error out.
pub type Handler = Box<dyn FnMut(&[String]) -> Result<String, String>>;

/// Runs a command that answers in text and in JSON.
pub type Document = Box<dyn FnMut(&[String]) -> Result<(String, Value), String>>;

/// Runs a command whose answer comes later.
pub type Deferred = Box<dyn FnMut(&[String]) -> Pin<Box<dyn Future<Output = Result<String, String>>>>>;

/// Most clients at the same time. For one more, the server disconnects the client that has been
/// idle longest; if all have commands running, the new one waits. Together with the length limit of
/// commands, this bounds their memory: 64 MiB.
const MAX_CLIENTS: usize = 64;

/// The server may disconnect a client that has sent nothing, or read no answer, for this time.
const PATIENCE: Duration = Duration::from_secs(10);

telemetry::counters! {
    /// Commands that clients sent.
    RECEIVED = "unixctl_received";
    /// Answers given.
    REPLIED = "unixctl_replied";
    /// Idle clients that the server disconnected to accept others.
    GAVE_WAY = "unixctl_gave_way";
}

/// A control socket and the commands it takes. Clones are the same server.
///
/// The commands that every daemon has (`list-commands`, `version`, `vlog/*`, `coverage/*`,
/// `memory/show`) are there from the start; `exit` is the daemon's to register.
#[derive(Clone)]
pub struct Server {
    inner: Rc<Inner>,
}

struct Inner {
    commands: RefCell<BTreeMap<String, Command>>,
    memory: RefCell<Vec<MemorySource>>,
    clients: RefCell<BTreeMap<u64, Rc<Client>>>,
    next_client: Cell<u64>,
    /// Notified when a client has left or become idle.
    client_left: Notify,
}

/// A client that is served.
struct Client {
    /// Since when it has no command running.
    idle_since: Cell<Option<Instant>>,
    /// Requests its end.
    leave: Notify,
}

/// The command by which a client chooses the format of the answers on its connection.
const SET_OPTIONS: &str = "set-options";

/// Most words that [`SET_OPTIONS`] takes.
const MOST_OPTIONS: usize = 2;

/// The format of answers (ovs-appctl(8), `--format`).
#[derive(Clone, Copy)]
enum Format {
    /// Text for people.
    Text,
    /// A JSON document. Text is wrapped in an object.
    Json,
}

impl Format {
    /// Reads `--format text` or `--format=json`.
    fn read(args: &[String]) -> Result<Format, String> {
        let name = match args {
            [option, name] if option == "--format" => name,
            [option] => option
                .strip_prefix("--format=")
                .ok_or_else(|| format!("option {option} is unknown or has no value"))?,
            _ => return Err(format!("option {} is unknown", args.first().map_or("", String::as_str))),
        };
        match name {
            "text" => Ok(Format::Text),
            "json" => Ok(Format::Json),
            other => Err(format!("value {other} on --format is not supported")),
        }
    }

    /// The answer of a command, which may have a document beside its text.
    fn reply(self, text: String, document: Option<Value>) -> Value {
        match (self, document) {
            (Format::Text, _) => Value::from(end_line(text)),
            (Format::Json, Some(document)) => document,
            (Format::Json, None) => serde_json::json!({"reply-format": "plain", "reply": end_line(text)}),
        }
    }
}

type MemorySource = Box<dyn FnMut(&mut memory::Usage)>;

struct Command {
    /// `None` if `list-commands` leaves it out.
    usage: Option<String>,
    min: usize,
    max: usize,
    run: Rc<RefCell<Run>>,
}

enum Run {
    Now(Handler),
    Document(Document),
    Later(Deferred),
}

impl Server {
    /// The commands of a daemon called `program`, reached by whatever listeners [`Server::serve`]
    /// is given.
    pub fn new(program: &str) -> Server {
        let server = Server {
            inner: Rc::new(Inner {
                commands: RefCell::default(),
                memory: RefCell::default(),
                clients: RefCell::default(),
                next_client: Cell::new(0),
                client_left: Notify::new(),
            }),
        };
        server.register_common(program);
        server
    }

    /// Listens at `path`, and replaces a socket that no process listens on. Waits up to 10 s for
    /// the end of another process that listens there.
    ///
    /// # Errors
    /// The system's.
    pub async fn bind(path: &Path) -> io::Result<Listener> {
        Listener::bind_patiently(&Remote::PassiveUnix(path.to_owned()), &Tls::default()).await
    }

    /// Adds a command that takes between `min` and `max` arguments, or replaces it. `usage` names
    /// them for `list-commands`.
    pub fn register(&self, name: &str, usage: &str, min: usize, max: usize, handler: Handler) {
        self.insert(name, Some(usage), min, max, Run::Now(handler));
    }

    /// As [`Server::register`], for a command that `list-commands` leaves out: an old name.
    pub fn register_hidden(&self, name: &str, min: usize, max: usize, handler: Handler) {
        self.insert(name, None, min, max, Run::Now(handler));
    }

    /// As [`Server::register`], for a command whose answer takes time: others run meanwhile.
    pub fn register_deferred(&self, name: &str, usage: &str, min: usize, max: usize, handler: Deferred) {
        self.insert(name, Some(usage), min, max, Run::Later(handler));
    }

    /// As [`Server::register`], for a command that also answers in JSON.
    pub fn register_document(&self, name: &str, usage: &str, min: usize, max: usize, handler: Document) {
        self.insert(name, Some(usage), min, max, Run::Document(handler));
    }

    /// Adds something to what `memory/show` counts.
    pub fn register_memory(&self, source: impl FnMut(&mut memory::Usage) + 'static) {
        self.inner.memory.borrow_mut().push(Box::new(source));
    }

    /// Serves the clients of `listener`, and keeps `coverage/show`'s rates, until it is dropped.
    /// Runs inside a `LocalSet`.
    pub async fn serve(self, listener: Listener) {
        let accept = self.accept(listener);
        let rates = async {
            let interval = Duration::from_secs(coverage::TICK_SECONDS);
            loop {
                tokio::time::sleep(interval).await;
                coverage::tick();
            }
        };
        tokio::join!(accept, rates);
    }

    /// Runs a command as if a client had sent it.
    ///
    /// # Errors
    /// The text of the command's error.
    pub async fn run(&self, name: &str, args: &[String]) -> Result<String, String> {
        self.answer(name, args).await.map(|(text, _)| text)
    }

    /// The text of a command's answer, and its document if it has one.
    async fn answer(&self, name: &str, args: &[String]) -> Result<(String, Option<Value>), String> {
        let (run, min, max) = {
            let commands = self.inner.commands.borrow();
            let command = commands.get(name).ok_or_else(|| {
                format!(
                    "\"{name}\" is not a valid command (use \"list-commands\" to see a list of \
                     valid commands)"
                )
            })?;
            (command.run.clone(), command.min, command.max)
        };
        if args.len() < min {
            return Err(format!("\"{name}\" command requires at least {min} arguments"));
        }
        if args.len() > max {
            return Err(format!("\"{name}\" command takes at most {max} arguments"));
        }
        let later = match &mut *run.borrow_mut() {
            Run::Now(handler) => return handler(args).map(|text| (text, None)),
            Run::Document(handler) => return handler(args).map(|(text, document)| (text, Some(document))),
            Run::Later(handler) => handler(args),
        };
        later.await.map(|text| (text, None))
    }

    async fn accept(&self, mut listener: Listener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    while self.inner.clients.borrow().len() >= MAX_CLIENTS {
                        self.dismiss_idle();
                        self.inner.client_left.notified().await;
                    }
                    let server = self.clone();
                    let (id, client) = self.admit();
                    tokio::task::spawn_local(async move {
                        server.session(stream, &peer, &client).await;
                        server.inner.clients.borrow_mut().remove(&id);
                        server.inner.client_left.notify_one();
                    });
                }
                Err(e) => {
                    telemetry::warn_limited!(target: "unixctl", "accept failed: {}", os_text(&e));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn admit(&self) -> (u64, Rc<Client>) {
        let id = self.inner.next_client.replace(self.inner.next_client.get() + 1);
        let client = Rc::new(Client {
            idle_since: Cell::new(Some(Instant::now())),
            leave: Notify::new(),
        });
        self.inner.clients.borrow_mut().insert(id, client.clone());
        (id, client)
    }

    /// Disconnects the client that has been idle longest, if there is an idle one.
    fn dismiss_idle(&self) {
        let clients = self.inner.clients.borrow();
        let idle = clients.values().filter(|client| client.idle_since.get().is_some());
        if let Some(client) = idle.min_by_key(|client| client.idle_since.get()) {
            client.idle_since.set(None);
            client.leave.notify_one();
            GAVE_WAY.inc();
        }
    }

    async fn session(&self, stream: Stream, peer: &str, client: &Client) {
        let mut connection = Connection::with_limits(stream, REQUEST_LIMITS);
        let mut format = Format::Text;
        loop {
            let received = tokio::select! {
                received = timeout(PATIENCE, connection.recv()) => received,
                () = client.leave.notified() => return,
            };
            let message = match received {
                Err(_) if self.inner.clients.borrow().len() > MAX_CLIENTS / 2 => return,
                Err(_) => continue,
                Ok(Ok(Some(message))) => message,
                Ok(Ok(None)) => return,
                Ok(Err(e)) => {
                    telemetry::warn_limited!(target: "unixctl", "{peer}: {e}");
                    return;
                }
            };
            let Message::Request { method, params, id } = message else {
                telemetry::warn_limited!(target: "unixctl", "{peer}: received unexpected message");
                return;
            };
            RECEIVED.inc();
            client.idle_since.set(None);
            let args: Option<Vec<String>> = params.iter().map(|p| p.as_str().map(str::to_owned)).collect();
            let result = match args {
                Some(args) => {
                    tracing::debug!(target: "unixctl", "received request {method}{args:?}, id={id}");
                    match (method.as_str(), args.len()) {
                        // A client's format is the connection's, so the command runs here.
                        (SET_OPTIONS, 1..=MOST_OPTIONS) => Format::read(&args).map(|chosen| {
                            format = chosen;
                            (String::new(), None)
                        }),
                        _ => self.answer(&method, &args).await,
                    }
                }
                None => Err(format!("\"{method}\" command has non-string argument")),
            };
            match &result {
                Ok((text, _)) => tracing::debug!(target: "unixctl", "replying with success, id={id}: {text:?}"),
                Err(text) => tracing::debug!(target: "unixctl", "replying with error, id={id}: {text:?}"),
            }
            let reply = match result {
                Ok((text, document)) => Message::reply(format.reply(text, document), id),
                Err(text) => Message::error(end_line(text), id),
            };
            REPLIED.inc();
            match timeout(PATIENCE, connection.send(reply)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
            client.idle_since.set(Some(Instant::now()));
            self.inner.client_left.notify_one();
        }
    }

    fn insert(&self, name: &str, usage: Option<&str>, min: usize, max: usize, run: Run) {
        let run = Rc::new(RefCell::new(run));
        let command = Command {
            usage: usage.map(str::to_owned),
            min,
            max,
            run,
        };
        self.inner.commands.borrow_mut().insert(name.to_owned(), command);
    }

    fn register_common(&self, program: &str) {
        let text = |f: fn() -> String| -> Handler { Box::new(move |_| Ok(f())) };
        let inner = Rc::downgrade(&self.inner);
        self.register_document(
            "list-commands",
            "",
            0,
            0,
            Box::new(move |_| Ok(inner.upgrade().map(|i| list_commands(&i)).unwrap_or_default())),
        );
        self.register(
            SET_OPTIONS,
            "[--format text|json]",
            1,
            MOST_OPTIONS,
            Box::new(|args| Format::read(args).map(|_| String::new())),
        );
        let line = version::text(program);
        self.register("version", "", 0, 0, Box::new(move |_| Ok(line.clone())));

        self.register(
            "vlog/set",
            "{spec | PATTERN:destination:pattern}",
            0,
            usize::MAX,
            Box::new(|args| {
                let specs = if args.is_empty() { &[String::new()][..] } else { args };
                specs
                    .iter()
                    .try_for_each(|spec| vlog::set(spec))
                    .map_err(|e| e.to_string())?;
                Ok(String::new())
            }),
        );
        self.register("vlog/list", "", 0, 0, text(vlog::list));
        self.register("vlog/list-pattern", "", 0, 0, text(vlog::list_pattern));
        self.register(
            "vlog/reopen",
            "",
            0,
            0,
            Box::new(|_| match (vlog::file(), vlog::reopen()) {
                (None, _) => Err("Logging to file not configured".to_owned()),
                (_, Err(e)) => Err(os_text(&e)),
                (_, Ok(())) => Ok(String::new()),
            }),
        );
        self.register(
            "vlog/close",
            "",
            0,
            0,
            Box::new(|_| {
                vlog::close();
                Ok(String::new())
            }),
        );
        for (name, limited) in [("vlog/enable-rate-limit", true), ("vlog/disable-rate-limit", false)] {
            self.register(
                name,
                "[module]...",
                0,
                usize::MAX,
                Box::new(move |args| {
                    vlog::limit_rates(args, limited).map_err(|e| e.to_string())?;
                    Ok(String::new())
                }),
            );
        }

        self.register("coverage/show", "", 0, 0, text(coverage::show));
        self.register(
            "coverage/read-counter",
            "COUNTER",
            1,
            1,
            Box::new(|args| {
                let count = coverage::read(&args[0]).ok_or("No such counter")?;
                Ok(count.to_string())
            }),
        );
        let inner = Rc::downgrade(&self.inner);
        self.register(
            "memory/show",
            "",
            0,
            0,
            Box::new(move |_| {
                let mut usage = memory::Usage::new();
                if let Some(inner) = inner.upgrade() {
                    inner
                        .memory
                        .borrow_mut()
                        .iter_mut()
                        .for_each(|source| source(&mut usage));
                }
                Ok(memory::format(&usage))
            }),
        );
    }
}

/// The commands with their arguments, as text and by name.
fn list_commands(inner: &Inner) -> (String, Value) {
    let mut out = String::from("The available commands are:\n");
    let mut usages = serde_json::Map::new();
    for (name, command) in inner.commands.borrow().iter() {
        if let Some(usage) = &command.usage {
            let _ = writeln!(out, "  {name:<23} {usage}");
            usages.insert(name.clone(), usage.clone().into());
        }
    }
    (out, usages.into())
}

fn end_line(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
