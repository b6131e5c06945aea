//! What sessions keep in the server, and the memory budget that bounds all of them together.
//!
//! Three things count: what was asked for and stays (waiting transactions, monitors, locks),
//! messages that have not arrived as a whole, and bytes to be sent. Small amounts of the last two
//! do not count: they are within the [`RESERVED`] bytes of each session.

use ovsdb::{Error, ErrorKind};
use telemetry::budget::{Budget, Share};

use super::{Core, MAX_HELD, SessionId};

/// What each session may hold whatever others do, in bytes.
pub(super) const RESERVED: usize = 256 << 10;

/// Unfinished messages and bytes to be sent count from this length on, in bytes.
pub(crate) const COUNTED: usize = 64 << 10;

telemetry::counters! {
    /// Requests refused because their session keeps too much.
    KEPT = "ovsdb_held_refused";
    /// Requests refused because their replies were too long for the memory budget.
    REPLY = "ovsdb_reply_refused";
    /// Unfinished messages given up because of the memory budget.
    INPUT = "ovsdb_input_refused";
}

/// What one session keeps in the server.
#[derive(Debug)]
pub(super) struct Holding {
    share: Share,
    /// Waiting transactions, monitors and locks.
    kept: usize,
    /// The unfinished message.
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

    /// What waiting transactions, monitors and locks weigh.
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

    /// Gives back what [`Holding::keep`] took.
    pub(super) fn let_go(&mut self, weight: usize) {
        let weight = weight.min(self.kept);
        self.kept -= weight;
        self.share.shrink(weight);
    }

    /// Whether a reply of so many bytes may wait to be sent.
    pub(super) fn may_owe(&mut self, length: usize) -> Result<(), Error> {
        if length < COUNTED {
            return Ok(());
        }
        match self.share.grow(length) {
            Ok(()) => {
                // It counts with all that is owed.
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

    /// So many bytes wait to be sent now.
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
    /// So many bytes of an unfinished message of a session have arrived. Returns the session whose
    /// unfinished message has to be given up for the memory budget: the one with the longest.
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
        // Its bytes are freed soon.
        self.sessions.get_mut(&longest)?.holding.set_input(0);
        INPUT.inc();
        Some(longest)
    }

    /// Refuses a message that was given up and has ended, by what is left of it. False if that has
    /// no id.
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

    /// Bytes that all sessions hold, and the most they may hold.
    pub(crate) fn budget(&self) -> (usize, usize) {
        (self.budget.held(), self.budget.limit())
    }
}
