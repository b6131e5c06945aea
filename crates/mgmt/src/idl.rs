//! An [`Idl`] on a stream: the client of a database that daemons and tools await on.
//!
//! With a [`Remote`] it reconnects when the connection breaks, at the times of
//! [`crate::reconnect`]. With a given stream ([`IdlConnection::over`]) a broken connection is the
//! end. Dropping a future here loses nothing: bytes that were read or wait to be sent stay in the
//! connection.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use nanos::Nanos;
use ovsdb::idl::{Event, Idl, IdlError, Txn, TxnStatus};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::jsonrpc::{FrameError, Framer, Limits};
use crate::reconnect::{Action, Policy, Reconnect, State};
use crate::stream::{self, Remote, Tls};

/// A stream of any kind.
pub trait Io: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Io for T {}

/// A client of a database and its connection.
pub struct IdlConnection {
    idl: Idl,
    remote: Option<Remote>,
    tls: Tls,
    link: Option<Link>,
    /// When to connect, to probe, and to disconnect.
    machine: Reconnect,
    /// Time zero of `reconnect`.
    origin: Instant,
    events: VecDeque<Event>,
    /// Results of transactions that have not been taken yet.
    finished: BTreeMap<u64, TxnStatus>,
    seen: u64,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The stream failed, or could not be made.
    #[error("{}", crate::os_text(.0))]
    Io(#[from] io::Error),
    /// The server closed it.
    #[error("End of file")]
    Closed,
    /// The server's bytes are not JSON values.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A message is not JSON.
    #[error("malformed message from database server: {0}")]
    Json(#[from] serde_json::Error),
    /// The server broke the protocol, or refused a request that the client depends on.
    #[error(transparent)]
    Idl(#[from] IdlError),
    /// The server did not answer.
    #[error("no response to inactivity probe")]
    Silent,
    /// The connection attempt timed out.
    #[error("connection attempt timed out")]
    TimedOut,
}

/// The longest message taken from a server: it is the server that decides how large the database
/// is.
const MAX_MESSAGE: usize = 1 << 30;

impl IdlConnection {
    /// A client on a stream that is connected already.
    pub fn over(idl: Idl, stream: impl Io + 'static) -> IdlConnection {
        let mut this = IdlConnection::new(idl, None, Tls::default());
        this.machine.poll(Nanos::ZERO);
        this.connected(stream);
        this
    }

    /// A client of a server at `remote`. It connects when it is first awaited, and reconnects.
    pub fn to(idl: Idl, remote: Remote, tls: Tls) -> IdlConnection {
        IdlConnection::new(idl, Some(remote), tls)
    }

    /// Connects to `remote` once; a broken connection is the end.
    ///
    /// # Errors
    /// The system's.
    pub async fn once(idl: Idl, remote: &Remote, tls: &Tls) -> Result<IdlConnection, ConnectionError> {
        Ok(IdlConnection::over(idl, stream::connect_or_accept(remote, tls).await?))
    }

    fn new(idl: Idl, remote: Option<Remote>, tls: Tls) -> IdlConnection {
        let mut policy = Policy::default();
        if remote.as_ref().is_none_or(Remote::is_local) {
            policy.probe = None;
        }
        IdlConnection {
            idl,
            remote,
            tls,
            link: None,
            machine: Reconnect::new(policy, Nanos::ZERO),
            origin: Instant::now(),
            events: VecDeque::new(),
            finished: BTreeMap::new(),
            seen: 0,
        }
    }

    /// The client: its replica, its lock, new transactions.
    pub fn idl(&self) -> &Idl {
        &self.idl
    }

    /// The client, to change.
    pub fn idl_mut(&mut self) -> &mut Idl {
        &mut self.idl
    }

    /// Whether there is a connection that keeps the replica up to date.
    pub fn is_connected(&self) -> bool {
        self.link.is_some() && self.idl.is_synced()
    }

    /// Probes the server after `interval` of silence, `None` for never. The default is 5 seconds
    /// over TCP, and never over other streams.
    pub fn set_probe_interval(&mut self, interval: Option<Duration>) {
        let policy = *self.machine.policy();
        self.machine.set_policy(Policy {
            probe: interval,
            ..policy
        });
    }

    /// Waits until the contents change ([`Idl::seqno`] moves) or the lock is granted or lost. What
    /// has changed since the last return counts.
    ///
    /// # Errors
    /// The connection broke and there is no remote to connect to again. With one, errors are logged
    /// and the wait goes on.
    pub async fn changed(&mut self) -> Result<(), ConnectionError> {
        loop {
            let mut lock_changed = false;
            while let Some(event) = self.events.pop_front() {
                match event {
                    Event::Lock(_) => lock_changed = true,
                    Event::Committed(id, status) => {
                        self.finished.insert(id, status);
                    }
                    Event::Changed | Event::Holder(_) | Event::Alive => {}
                }
            }
            if lock_changed || self.idl.seqno() != self.seen {
                self.seen = self.idl.seqno();
                return Ok(());
            }
            self.drive().await?;
        }
    }

    /// The next event of any kind.
    ///
    /// # Errors
    /// As [`IdlConnection::changed`].
    pub async fn event(&mut self) -> Result<Event, ConnectionError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            self.drive().await?;
        }
    }

    /// Sends a transaction and waits for its result.
    ///
    /// # Errors
    /// As [`IdlConnection::changed`]; the transaction may have happened.
    pub async fn commit(&mut self, txn: Txn) -> Result<TxnStatus, ConnectionError> {
        let id = self.submit(txn);
        self.committed(id).await
    }

    /// Sends a transaction without waiting; its number for [`IdlConnection::committed`] and
    /// [`IdlConnection::poll_status`].
    pub fn submit(&mut self, txn: Txn) -> u64 {
        let id = self.idl.commit(txn);
        self.collect();
        id
    }

    /// Takes the result of a transaction, if it is known. Await [`IdlConnection::changed`] to keep
    /// the connection going.
    pub fn poll_status(&mut self, id: u64) -> Option<TxnStatus> {
        let at = self
            .events
            .iter()
            .position(|event| matches!(event, Event::Committed(this, _) if *this == id));
        match at.and_then(|at| self.events.remove(at)) {
            Some(Event::Committed(_, status)) => Some(status),
            _ => self.finished.remove(&id),
        }
    }

    /// Waits for the result of a transaction.
    ///
    /// # Errors
    /// As [`IdlConnection::commit`].
    pub async fn committed(&mut self, id: u64) -> Result<TxnStatus, ConnectionError> {
        loop {
            if let Some(status) = self.poll_status(id) {
                return Ok(status);
            }
            self.drive().await?;
        }
    }

    /// Reads, writes and connects until something happened.
    async fn drive(&mut self) -> Result<(), ConnectionError> {
        let result = match &self.link {
            Some(_) => self.exchange().await,
            None => self.connect().await,
        };
        let Err(error) = result else { return Ok(()) };
        let Some(remote) = self.remote.clone() else {
            return Err(error);
        };
        let connected = self.link.take().is_some();
        self.idl.reset();
        self.collect();
        let now = self.now();
        if connected {
            self.machine.disconnected(&error.to_string(), now);
            tracing::warn!(target: "reconnect", "{remote}: connection dropped ({error})");
        } else {
            self.machine.failed(&error.to_string(), now);
            tracing::warn!(target: "reconnect", "{remote}: connection attempt failed ({error})");
        }
        Ok(())
    }

    async fn connect(&mut self) -> Result<(), ConnectionError> {
        let remote = self.remote.clone().ok_or(ConnectionError::Closed)?;
        while self.machine.state() == State::Backoff {
            if let Some(at) = self.machine.deadline() {
                sleep_until(self.instant(at)).await;
            }
            if self.machine.poll(self.now()) == Some(Action::Connect) {
                tracing::info!(target: "reconnect", "{remote}: connecting...");
            }
        }
        // An attempt whose future was dropped starts again here.
        let attempt = stream::connect_or_accept(&remote, &self.tls);
        let stream = match self.machine.deadline().filter(|_| !remote.is_passive()) {
            None => attempt.await?,
            Some(at) => match timeout_at(self.instant(at), attempt).await {
                Ok(stream) => stream?,
                Err(_) => {
                    self.machine.poll(self.now());
                    return Err(ConnectionError::TimedOut);
                }
            },
        };
        tracing::info!(target: "reconnect", "{remote}: connected");
        self.connected(stream);
        Ok(())
    }

    fn connected(&mut self, stream: impl Io + 'static) {
        self.link = Some(Link::new(stream));
        self.machine.connected(self.now());
    }

    async fn exchange(&mut self) -> Result<(), ConnectionError> {
        let due = self.machine.deadline().map(|at| self.instant(at));
        let link = self.link.as_mut().ok_or(ConnectionError::Closed)?;
        while let Some(message) = self.idl.poll_send() {
            serde_json::to_writer(&mut link.unsent, &message)?;
        }
        let heard = match due {
            None => link.exchange().await,
            Some(due) => match timeout_at(due, link.exchange()).await {
                Ok(result) => result,
                Err(_) => return self.silence(),
            },
        };
        heard?;
        self.machine.heard(self.now());
        let link = self.link.as_mut().ok_or(ConnectionError::Closed)?;
        while let Some(frame) = link.framer.next()? {
            let message = ovsdb::parse_json(frame)?;
            self.events.extend(self.idl.handle(message)?);
        }
        Ok(())
    }

    /// Probes or drops a silent peer.
    fn silence(&mut self) -> Result<(), ConnectionError> {
        match self.machine.poll(self.now()) {
            Some(Action::Probe) => self.idl.ping(),
            Some(Action::Disconnect(_)) => return Err(ConnectionError::Silent),
            Some(Action::Connect) | None => {}
        }
        Ok(())
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn instant(&self, at: Nanos) -> Instant {
        self.origin + Duration::from_nanos(at.0)
    }

    fn collect(&mut self) {
        self.events.extend(self.idl.take_events());
    }
}

/// One connection.
struct Link {
    stream: Box<dyn Io>,
    framer: Framer,
    unsent: Vec<u8>,
}

impl Link {
    fn new(stream: impl Io + 'static) -> Link {
        Link {
            stream: Box::new(stream),
            framer: Framer::with_limits(Limits {
                max_bytes: MAX_MESSAGE,
                ..Limits::default()
            }),
            unsent: Vec::new(),
        }
    }

    /// Sends what is to be sent until something arrives.
    async fn exchange(&mut self) -> Result<(), ConnectionError> {
        poll_fn(|cx| self.poll_exchange(cx)).await
    }

    fn poll_exchange(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        let mut stream = Pin::new(&mut self.stream);
        while !self.unsent.is_empty() {
            match stream.as_mut().poll_write(cx, &self.unsent) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(ConnectionError::Closed)),
                Poll::Ready(Ok(sent)) => drop(self.unsent.drain(..sent)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => break,
            }
        }
        if self.unsent.is_empty()
            && let Poll::Ready(Err(error)) = stream.as_mut().poll_flush(cx)
        {
            return Poll::Ready(Err(error.into()));
        }
        let mut bytes = [0; 16 << 10];
        let mut buffer = ReadBuf::new(&mut bytes);
        ready!(stream.as_mut().poll_read(cx, &mut buffer))?;
        if buffer.filled().is_empty() {
            return Poll::Ready(Err(ConnectionError::Closed));
        }
        self.framer.push(buffer.filled());
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ovsdb::idl::Selection;
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    /// The far end of a connection, which answers by the book.
    struct Server {
        stream: DuplexStream,
        framer: Framer,
    }

    impl Server {
        async fn recv(&mut self) -> Value {
            loop {
                if let Some(frame) = self.framer.next().unwrap() {
                    return serde_json::from_slice(frame).unwrap();
                }
                assert_ne!(self.stream.read_buf(self.framer.buffer()).await.unwrap(), 0);
            }
        }

        async fn send(&mut self, message: Value) {
            self.stream.write_all(message.to_string().as_bytes()).await.unwrap();
        }

        async fn reply(&mut self, result: Value) -> Value {
            let request = self.recv().await;
            self.send(json!({ "id": request["id"], "result": result, "error": null }))
                .await;
            request
        }
    }

    fn pair() -> (IdlConnection, Server) {
        let (near, far) = tokio::io::duplex(64);
        let idl = Idl::new("Open_vSwitch", Selection::new().column("Bridge", "name").clone(), 1);
        (
            IdlConnection::over(idl, near),
            Server {
                stream: far,
                framer: Framer::new(),
            },
        )
    }

    async fn greet(server: &mut Server) {
        let schema: Value = serde_json::from_str(ovsdb::schemas::OPEN_VSWITCH).unwrap();
        server.reply(schema).await;
        server.reply(json!([false, ovsdb::Uuid::ZERO.to_string(), {}])).await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn contents_arrive_and_transactions_are_answered() {
        let (mut client, mut server) = pair();
        let far = async {
            greet(&mut server).await;
            let request = server
                .reply(json!([{ "uuid": ["uuid", ovsdb::Uuid::ZERO.to_string()] }]))
                .await;
            assert_eq!(request["method"], "transact");
        };
        let near = async {
            client.changed().await.unwrap();
            assert!(client.is_connected());
            let mut txn = client.idl_mut().txn();
            let row = txn.insert("Queue");
            let status = client.commit(txn).await.unwrap();
            let inserted = [(row, ovsdb::Uuid::ZERO)].into();
            assert_eq!(
                status,
                TxnStatus::Success {
                    inserted,
                    increment: None
                }
            );
        };
        tokio::join!(far, near);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn waiting_may_be_given_up_without_a_loss() {
        let (mut client, mut server) = pair();
        let far = async {
            greet(&mut server).await;
            let update = json!({ "Bridge": { ovsdb::Uuid::ZERO.to_string(): { "insert": { "name": "br0" } } } });
            server
                .send(json!({ "method": "update2", "params": [null, update], "id": null }))
                .await;
        };
        let near = async {
            for _ in 0..1000 {
                let _ = tokio::time::timeout(Duration::ZERO, client.changed()).await;
                tokio::task::yield_now().await;
            }
            assert!(client.idl().tables().find("Bridge", "name", "br0").is_some());
        };
        tokio::join!(far, near);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_silent_server_is_asked_and_then_given_up() {
        let (mut client, mut server) = pair();
        client.set_probe_interval(Some(Duration::from_millis(50)));
        let far = async {
            greet(&mut server).await;
            let probe = server.recv().await;
            assert_eq!(probe["method"], "echo");
        };
        let near = async {
            client.changed().await.unwrap();
            assert!(matches!(client.changed().await, Err(ConnectionError::Silent)));
        };
        tokio::join!(far, near);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_attempt_that_failed_is_made_again_after_a_pause() {
        let idl = Idl::new("Open_vSwitch", Selection::new(), 1);
        let dir = tempfile::tempdir().unwrap();
        let remote = Remote::Unix(dir.path().join("nobody"));
        let mut client = IdlConnection::to(idl, remote, Tls::default());
        let _ = tokio::time::timeout(Duration::from_millis(1500), client.changed()).await;
        // At once, and after a second.
        assert_eq!(client.machine.attempts(), 2);
        assert!(!client.is_connected());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_closed_stream_is_an_error() {
        let (mut client, server) = pair();
        drop(server);
        assert!(client.changed().await.is_err());
    }
}
