//! An [`Idl`] on a stream: the client of a database that daemons and tools await on.
//!
//! Over a [`Remote`] it connects anew when the connection breaks, after 1 second, then 2, then 4, at most 8; over a stream that it was given
//! ([`IdlConnection::over`]) a broken connection is the end. Every future here may be dropped without a loss: what has been read or is yet
//! to be sent stays in the connection.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ovsdb::idl::{Event, Idl, IdlError, Txn, TxnStatus};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::jsonrpc::{FrameError, Framer, Limits};
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
    backoff: Duration,
    retry_at: Option<Instant>,
    /// How long the peer may be silent before it is asked whether it is there.
    probe: Option<Duration>,
    events: VecDeque<Event>,
    /// What became of transactions that nobody has asked for yet.
    finished: BTreeMap<u64, TxnStatus>,
    seen: u64,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The stream failed, or could not be made.
    #[error("{}", crate::pidfile::os_text(.0))]
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
    /// The server's messages make no sense, or it refuses what the client needs.
    #[error(transparent)]
    Idl(#[from] IdlError),
    /// The server did not answer.
    #[error("no response to inactivity probe")]
    Silent,
}

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LAST_BACKOFF: Duration = Duration::from_secs(8);
const PROBE: Duration = Duration::from_secs(5);
/// The longest message taken from a server: it is the server that decides how large the database is.
const MAX_MESSAGE: usize = 1 << 30;

impl IdlConnection {
    /// A client on a stream that is connected already.
    pub fn over(idl: Idl, stream: impl Io + 'static) -> IdlConnection {
        IdlConnection {
            link: Some(Link::new(stream)),
            ..IdlConnection::new(idl, None, Tls::default())
        }
    }

    /// A client of a server at `remote`, connected when it is first awaited and anew whenever that is needed.
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
        let probe = remote
            .as_ref()
            .is_some_and(|remote| !remote.is_local())
            .then_some(PROBE);
        IdlConnection {
            idl,
            remote,
            tls,
            link: None,
            backoff: FIRST_BACKOFF,
            retry_at: None,
            probe,
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

    /// Whether there is a connection, and the replica is kept fresh over it.
    pub fn is_connected(&self) -> bool {
        self.link.is_some() && self.idl.is_synced()
    }

    /// Asks the server whether it is there after `interval` of silence, `None` never. Without this call: 5 seconds over TCP, never over
    /// other streams.
    pub fn set_probe_interval(&mut self, interval: Option<Duration>) {
        self.probe = interval;
    }

    /// Waits until the contents change ([`Idl::seqno`] moves) or the lock is granted or lost. What has changed since the last return counts.
    ///
    /// # Errors
    /// The connection broke and there is no remote to connect to again. With one, errors are logged and the wait goes on.
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

    /// Sends a transaction and waits for what becomes of it.
    ///
    /// # Errors
    /// As [`IdlConnection::changed`]; the transaction may have happened.
    pub async fn commit(&mut self, txn: Txn) -> Result<TxnStatus, ConnectionError> {
        let id = self.submit(txn);
        self.committed(id).await
    }

    /// Sends a transaction without waiting; its number for [`IdlConnection::committed`] and [`IdlConnection::poll_status`].
    pub fn submit(&mut self, txn: Txn) -> u64 {
        let id = self.idl.commit(txn);
        self.collect();
        id
    }

    /// What has become of a transaction, if that is known; it is told once. Whoever awaits [`IdlConnection::changed`] meanwhile keeps the
    /// connection going.
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

    /// Waits for what becomes of a transaction.
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
        if connected {
            tracing::warn!(target: "reconnect", "{remote}: connection dropped ({error})");
        } else {
            tracing::warn!(target: "reconnect", "{remote}: connection attempt failed ({error})");
        }
        let now = Instant::now();
        self.retry_at = Some(now + self.backoff);
        self.backoff = (self.backoff * 2).min(LAST_BACKOFF);
        Ok(())
    }

    async fn connect(&mut self) -> Result<(), ConnectionError> {
        let remote = self.remote.clone().ok_or(ConnectionError::Closed)?;
        if let Some(at) = self.retry_at {
            sleep_until(at).await;
        }
        tracing::info!(target: "reconnect", "{remote}: connecting...");
        let stream = stream::connect_or_accept(&remote, &self.tls).await?;
        tracing::info!(target: "reconnect", "{remote}: connected");
        self.link = Some(Link::new(stream));
        Ok(())
    }

    async fn exchange(&mut self) -> Result<(), ConnectionError> {
        let link = self.link.as_mut().ok_or(ConnectionError::Closed)?;
        while let Some(message) = self.idl.poll_send() {
            serde_json::to_writer(&mut link.unsent, &message)?;
        }
        match self.probe {
            None => link.exchange().await?,
            Some(probe) => match timeout_at(link.heard + probe, link.exchange()).await {
                Ok(result) => result?,
                Err(_) if link.probed => return Err(ConnectionError::Silent),
                Err(_) => {
                    link.probed = true;
                    link.heard = Instant::now();
                    self.idl.ping();
                }
            },
        }
        while let Some(frame) = link.framer.next()? {
            let message = serde_json::from_slice(frame)?;
            self.events.extend(self.idl.handle(message)?);
        }
        if self.idl.is_synced() {
            self.backoff = FIRST_BACKOFF;
        }
        Ok(())
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
    heard: Instant,
    probed: bool,
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
            heard: Instant::now(),
            probed: false,
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
        self.heard = Instant::now();
        self.probed = false;
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
    async fn a_closed_stream_is_an_error() {
        let (mut client, server) = pair();
        drop(server);
        assert!(client.changed().await.is_err());
    }
}
