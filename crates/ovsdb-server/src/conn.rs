//! One client's connection: reads messages for the core, and sends what is in the core's outbox.
//!
//! A connection's task handles all complete messages of a read. The server's flush, which runs
//! after all tasks that are ready, writes the replies: so the transactions of many clients share
//! one write to the file. The task itself writes only while the client's socket is full.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use mgmt::jsonrpc::{Framer, Limits};
use mgmt::os_text;
use mgmt::stream::Stream;

use crate::core::{COUNTED, Now, SessionId};
use crate::request;
use crate::server::Inner;
use crate::socket::Socket;

/// The longest message of a client, in bytes.
const MAX_MESSAGE: usize = 64 << 20;

/// The deepest nesting in a message.
const MAX_DEPTH: u32 = 1000;

/// Most bytes of one read.
pub(crate) const READ: usize = 64 << 10;

/// The sending side of a connection, shared by the server's flush and the connection's task.
pub(crate) struct Conn {
    pub(crate) id: SessionId,
    socket: Socket,
    /// Wakes the task for work that is not readable data.
    task: RefCell<Option<Waker>>,
    /// The socket was full: the task writes.
    full: Cell<bool>,
    /// The task does not read, because the client does not read its replies.
    paused: Cell<bool>,
    ended: Cell<bool>,
    /// The task has to discard the incomplete message.
    give_up: Cell<bool>,
}

/// Length in bytes from which a message's memory is returned to the system.
const LONG: usize = 1 << 20;

/// Longest time for one client's requests before other clients get their turn.
const TURN: Duration = Duration::from_millis(10);

/// What a connection's task wakes up for.
enum Event {
    Read(usize),
    Resume,
    End,
}

impl Conn {
    /// Sends what the core's outbox has for the client, until the socket is full. Returns true when
    /// the outbox is empty.
    pub(crate) fn send(&self, inner: &Inner) -> bool {
        if self.full.get() || self.ended.get() {
            return false;
        }
        let mut core = inner.core.borrow_mut();
        let Some(outbox) = core.outbox(self.id) else {
            return false;
        };
        while !outbox.sendable().is_empty() {
            let result = self.socket.try_write(outbox.sendable());
            match result {
                Ok(n) => outbox.sent(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.full.set(true);
                    self.wake();
                    return false;
                }
                Err(_) => {
                    self.end();
                    return false;
                }
            }
        }
        match self.socket.try_flush() {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.full.set(true);
                self.wake();
                false
            }
            Err(_) => {
                self.end();
                false
            }
        }
    }

    /// Ends the connection; its task cleans up.
    pub(crate) fn end(&self) {
        self.ended.set(true);
        self.wake();
    }

    /// Lets the task read from the client again.
    pub(crate) fn resume(&self) {
        if self.paused.get() {
            self.wake();
        }
    }

    /// Makes the task discard the incomplete message.
    fn give_up(&self) {
        self.give_up.set(true);
        self.wake();
    }

    fn wake(&self) {
        if let Some(task) = &*self.task.borrow() {
            task.wake_by_ref();
        }
    }

    /// Writes until the socket is full. Returns true when nothing is left or the connection ended.
    fn poll_send(&self, inner: &Inner, cx: &mut Context<'_>) -> bool {
        let mut core = inner.core.borrow_mut();
        let Some(outbox) = core.outbox(self.id) else {
            return true;
        };
        while !outbox.sendable().is_empty() {
            match self.socket.poll_write(cx, outbox.sendable()) {
                Poll::Ready(Ok(n)) if n > 0 => outbox.sent(n),
                Poll::Ready(_) => {
                    self.ended.set(true);
                    return true;
                }
                Poll::Pending => return false,
            }
        }
        match self.socket.poll_flush(cx) {
            Poll::Ready(Ok(())) => self.socket.drained(),
            Poll::Ready(Err(_)) => self.ended.set(true),
            Poll::Pending => return false,
        }
        true
    }
}

/// Serves a client until either side ends the connection.
pub(crate) async fn serve(inner: Rc<Inner>, stream: Stream, id: SessionId) {
    let socket = match Socket::new(stream) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(target: "jsonrpc", "cannot watch a client's socket: {}", os_text(&error));
            inner.flush();
            inner.core.borrow_mut().disconnect(id);
            return;
        }
    };
    let conn = Rc::new(Conn {
        id,
        socket,
        task: RefCell::new(None),
        full: Cell::new(false),
        paused: Cell::new(false),
        ended: Cell::new(false),
        give_up: Cell::new(false),
    });
    inner.conns.borrow_mut().insert(id, conn.clone());
    if inner.core.borrow().is_closing(id) {
        // It was closed before its connection was known.
        conn.end();
    }
    let mut task = Task {
        inner: inner.clone(),
        conn,
        framer: framer(),
        counted: 0,
    };
    if let Err(error) = task.run().await {
        let name = inner.core.borrow().session_name(id).to_owned();
        telemetry::warn_limited!(target: "jsonrpc", "{name}: {error}");
    }
    inner.flush();
    inner.conns.borrow_mut().remove(&id);
    {
        let mut core = inner.core.borrow_mut();
        core.freed(task.framer.memory());
        core.disconnect(id);
    }
    inner.flush_soon();
}

fn framer() -> Framer {
    Framer::with_limits(Limits {
        max_bytes: MAX_MESSAGE,
        max_depth: MAX_DEPTH,
    })
}

struct Task {
    inner: Rc<Inner>,
    conn: Rc<Conn>,
    framer: Framer,
    /// Bytes of the incomplete message that count against the memory budget.
    counted: usize,
}

impl Task {
    /// Runs until the connection ends. An error is the client's fault.
    async fn run(&mut self) -> Result<(), String> {
        loop {
            match poll_fn(|cx| self.poll(cx)).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                Err(error) => return Err(format!("receive error: {}", os_text(&error))),
                Ok(Event::End | Event::Read(0)) => return Ok(()),
                Ok(Event::Resume) => self.handle(self.inner.now()).await?,
                Ok(Event::Read(n)) => {
                    let now = self.inner.now();
                    self.inner.core.borrow_mut().heard(self.conn.id, now);
                    self.handle(now).await?;
                    if n == READ {
                        // There may be more to read, but replies go out first.
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Event>> {
        if self.conn.give_up.take() {
            self.give_up();
        }
        let Task {
            inner, conn, framer, ..
        } = self;
        {
            let mut task = conn.task.borrow_mut();
            if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
                *task = Some(cx.waker().clone());
            }
        }
        if conn.ended.get() {
            return Poll::Ready(Ok(Event::End));
        }
        if conn.full.get() && conn.poll_send(inner, cx) {
            conn.full.set(false);
            if conn.ended.get() {
                return Poll::Ready(Ok(Event::End));
            }
            inner.core.borrow_mut().drained(conn.id);
            inner.flush_soon();
        }
        let listens = inner.core.borrow().listens(conn.id);
        if !listens {
            conn.paused.set(true);
            return Poll::Pending;
        }
        if conn.paused.replace(false) {
            return Poll::Ready(Ok(Event::Resume));
        }
        let mut buffer = inner.read_buffer.borrow_mut();
        let read = conn.socket.poll_read(cx, &mut buffer);
        read.map_ok(|n| {
            framer.push(&buffer[..n]);
            Event::Read(n)
        })
    }

    /// Hands complete messages to the core, while the core accepts messages from this client.
    async fn handle(&mut self, mut now: Now) -> Result<(), String> {
        let mut handled = 0u32;
        loop {
            if let Some(outline) = self.framer.take_discarded() {
                self.inner.flush();
                if !self.inner.core.borrow_mut().refuse_input(self.conn.id, &outline) {
                    return Err("a long message without an id was given up for the memory budget".to_owned());
                }
                handled += 1;
            }
            if !self.inner.core.borrow().listens(self.conn.id) {
                self.conn.paused.set(true);
                break;
            }
            let Some(frame) = self
                .framer
                .next()
                .map_err(|error| format!("error parsing stream: {error}"))?
            else {
                break;
            };
            if self.counted > 0 {
                // The core handles it now, before the task reads the next one.
                self.counted = 0;
                self.inner.core.borrow_mut().input(self.conn.id, 0);
            }
            if frame.len() >= LONG {
                // The parsed message needs several times the memory of its text.
                self.inner.core.borrow_mut().freed(frame.len() * 4);
            }
            let mut arena = self.inner.arena.take();
            let message = request::parse(frame, &arena).map_err(|error| format!("received {error}"))?;
            self.inner.handle(self.conn.id, message, now);
            arena.clear();
            self.inner.arena.replace(arena);
            handled += 1;
            // Reading the clock for each small request costs too much.
            if handled.is_multiple_of(4) && self.inner.monotonic() > now.monotonic + TURN {
                self.inner.flush_soon();
                tokio::task::yield_now().await;
                now = self.inner.now();
            }
        }
        if handled > 0 {
            self.inner.flush_soon();
        }
        self.count_input();
        Ok(())
    }

    /// Counts the incomplete message. Over the memory budget, the session with the longest one
    /// discards it.
    fn count_input(&mut self) {
        let pending = self.framer.pending();
        let bytes = if pending < COUNTED { 0 } else { pending };
        if bytes == self.counted {
            return;
        }
        self.counted = bytes;
        let longest = self.inner.core.borrow_mut().input(self.conn.id, bytes);
        match longest {
            Some(id) if id == self.conn.id => self.give_up(),
            Some(id) => {
                if let Some(conn) = self.inner.conns.borrow().get(&id) {
                    conn.give_up();
                }
            }
            None => {}
        }
    }

    /// Discards the incomplete message. The server answers it with an error when its end arrives.
    fn give_up(&mut self) {
        self.inner.core.borrow_mut().freed(self.framer.memory());
        self.framer.discard();
        self.counted = 0;
    }
}
