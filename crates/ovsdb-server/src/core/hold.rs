//! The memory that sessions use, and the budget for all of them together.
//!
//! Three things count: state that clients requested (waiting transactions, monitors, locks),
//! incomplete messages, and bytes to be sent. Small amounts of the last two do not count: they are
//! within the [`RESERVED`] bytes of each session.

use ovsdb::{Error, ErrorKind};
use telemetry::budget::{Budget, Share};

use super::{Core, MAX_HELD, SessionId};

/// The bytes that each session may use regardless of the others.
pub(super) const RESERVED: usize = 256 << 10;

/// Length in bytes from which incomplete messages and bytes to be sent count.
pub(crate) const COUNTED: usize = 64 << 10;

telemetry::counters! {
    /// Requests refused because their session keeps too much.
    KEPT = "ovsdb_held_refused";
    /// Requests refused because their replies were too long for the memory budget.
    REPLY = "ovsdb_reply_refused";
    /// Incomplete messages discarded because of the memory budget.
    INPUT = "ovsdb_input_refused";
}

/// The memory that one session uses.
#[derive(Debug)]
pub(super) struct Holding {
    share: Share,
    /// Waiting transactions, monitors and locks.
    kept: usize,
    /// The incomplete message.
    input: usize,
    /// Bytes to be sent.
    owed: usize,
}

impl Holding {
    pub(super) fn new(budget: &Budget) -> Holding {
        Holding {
            share: budget.share(),
            kept: 0,
            input: 0,
            owed: 0,
        }
    }

    /// The size of waiting transactions, monitors and locks.
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// Charges `weight` bytes.
    pub(super) fn keep(&mut self, weight: usize) -> Result<(), Error> {
        let refused = if self.kept + weight > MAX_HELD {
            Some("too many or too large waiting transactions, monitors and locks in one session".to_owned())
        } else {
            self.share.grow(weight).err().map(|exceeded| exceeded.to_string())
        };
        if let Some(details) = refused {
            KEPT.inc();
            return Err(Error::new(ErrorKind::ResourcesExhausted, details));
        }
        self.kept += weight;
        Ok(())
    }

    /// Releases what [`Holding::keep`] charged.
    pub(super) fn let_go(&mut self, weight: usize) {
        let weight = weight.min(self.kept);
        self.kept -= weight;
        self.share.shrink(weight);
    }

    /// Whether a reply of this many bytes may be queued.
    pub(super) fn may_owe(&mut self, length: usize) -> Result<(), Error> {
        if length < COUNTED {
            return Ok(());
        }
        match self.share.grow(length) {
            Ok(()) => {
                // It counts together with the bytes that are queued already.
                self.share.shrink(length);
                Ok(())
            }
            Err(exceeded) => {
                REPLY.inc();
                Err(Error::new(
                    ErrorKind::ResourcesExhausted,
                    format!("reply is too long: {exceeded}"),
                ))
            }
        }
    }

    /// Sets how many bytes wait to be sent.
    pub(super) fn owe(&mut self, bytes: usize) {
        let bytes = if bytes < COUNTED { 0 } else { bytes };
        if bytes != self.owed {
            self.owed = bytes;
            self.share.set(self.kept + self.input + self.owed);
        }
    }

    fn set_input(&mut self, bytes: usize) {
        self.input = bytes;
        self.share.set(self.kept + self.input + self.owed);
    }
}

impl Core {
    /// Sets how many bytes of an incomplete message have arrived. Over the memory budget, returns
    /// the session with the longest incomplete message, which has to discard it.
    pub(crate) fn input(&mut self, id: SessionId, bytes: usize) -> Option<SessionId> {
        let holding = &mut self.sessions.get_mut(&id)?.holding;
        let grown = bytes > holding.input;
        holding.set_input(bytes);
        if !grown || !holding.share.is_exceeded() {
            return None;
        }
        let clients = self
            .sessions
            .iter()
            .filter(|(_, session)| !session.options.remote.is_empty());
        let inputs = clients.map(|(id, session)| (session.holding.input, *id));
        let (_, longest) = inputs.max()?;
        // The session frees its bytes soon.
        self.sessions.get_mut(&longest)?.holding.set_input(0);
        INPUT.inc();
        Some(longest)
    }

    /// Sends an error reply to a discarded message whose end has arrived. Returns false if the kept
    /// part of it has no id.
    pub(crate) fn refuse_input(&mut self, session: SessionId, outline: &[u8]) -> bool {
        let message: Option<serde_json::Value> = ovsdb::parse_json(outline).ok();
        let id = message.as_ref().and_then(|message| message.get("id"));
        let Some(id) = id.filter(|id| !id.is_null()) else {
            return false;
        };
        let details = "the message is too long for this session's part of the memory budget";
        let error = Error::new(ErrorKind::ResourcesExhausted, details);
        self.refuse(session, id, &error.to_json());
        true
    }

    /// The bytes that all sessions use, and the budget.
    pub(crate) fn budget(&self) -> (usize, usize) {
        (self.budget.held(), self.budget.limit())
    }
}
