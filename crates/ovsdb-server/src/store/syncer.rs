//! Group commit: a thread that syncs a database's file to the disk.
//!
//! [`Syncer::wrote`] reports a write; it costs nothing while a sync is due already. The thread
//! collects writes for [`GATHER`], so a power failure loses at most about 100 ms of acknowledged
//! transactions. [`Syncer::sync`] is for durable transactions: it requests a sync at once, and
//! calls back when the write is on the disk.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How long writes are collected for one sync.
const GATHER: Duration = Duration::from_millis(60);

/// Called on the syncer's thread when a requested sync is done.
pub(crate) type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

enum Ask {
    Wrote(Arc<File>),
    Sync(Arc<File>, Done),
}

/// The handle of a syncing thread, which ends, after a last sync, when the handle is dropped.
#[derive(Debug)]
pub(crate) struct Syncer {
    asks: Option<mpsc::Sender<Ask>>,
    due: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Syncer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's, when it has no more threads.
    pub(crate) fn start() -> io::Result<Syncer> {
        let (asks, asked) = mpsc::channel();
        let due = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&due);
        let thread = thread::Builder::new()
            .name("ovsdb-sync".into())
            .spawn(move || run(&asked, &flag))?;
        Ok(Syncer {
            asks: Some(asks),
            due,
            thread: Some(thread),
        })
    }

    /// Reports a write to `file`; it is on the disk within 100 ms.
    pub(crate) fn wrote(&self, file: &Arc<File>) {
        if !self.due.swap(true, Ordering::AcqRel) {
            self.ask(Ask::Wrote(Arc::clone(file)));
        }
    }

    /// Reports that `file` has replaced the file reported before.
    pub(crate) fn replaced(&self, file: &Arc<File>) {
        self.due.store(true, Ordering::Release);
        self.ask(Ask::Wrote(Arc::clone(file)));
    }

    /// Requests a sync of `file` now.
    pub(crate) fn sync(&self, file: &Arc<File>, done: Done) {
        self.ask(Ask::Sync(Arc::clone(file), done));
    }

    fn ask(&self, ask: Ask) {
        if let Some(asks) = &self.asks
            && let Err(mpsc::SendError(Ask::Sync(file, done))) = asks.send(ask)
        {
            done(file.sync_data());
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.asks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What one round has to do.
#[derive(Default)]
struct Round {
    files: Vec<Arc<File>>,
    waiting: Vec<(Arc<File>, Done)>,
}

impl Round {
    fn add(&mut self, ask: Ask) {
        let file = match ask {
            Ask::Wrote(file) => file,
            Ask::Sync(file, done) => {
                self.waiting.push((Arc::clone(&file), done));
                file
            }
        };
        if !self.files.iter().any(|known| Arc::ptr_eq(known, &file)) {
            self.files.push(file);
        }
    }

    fn sync(self) {
        let results: Vec<_> = self.files.iter().map(|file| file.sync_data()).collect();
        for error in results.iter().filter_map(|result| result.as_ref().err()) {
            tracing::error!(target: "ovsdb_file", "cannot bring the database to the disk: {error}");
        }
        for (file, done) in self.waiting {
            let at = self.files.iter().position(|known| Arc::ptr_eq(known, &file));
            done(at.map_or(Ok(()), |at| copy(&results[at])));
        }
    }
}

fn run(asked: &mpsc::Receiver<Ask>, due: &AtomicBool) {
    while let Ok(ask) = asked.recv() {
        let mut round = Round::default();
        round.add(ask);
        let until = Instant::now() + GATHER;
        while round.waiting.is_empty() {
            match asked.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(ask) => round.add(ask),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        due.store(false, Ordering::Release);
        while let Ok(ask) = asked.try_recv() {
            round.add(ask);
        }
        round.sync();
    }
}

fn copy(result: &io::Result<()>) -> io::Result<()> {
    result
        .as_ref()
        .copied()
        .map_err(|error| io::Error::new(error.kind(), error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requested_sync_is_answered_whatever_else_is_due() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let syncer = Syncer::start().unwrap();
        let (tell, told) = mpsc::channel();
        for _ in 0..3 {
            syncer.wrote(&file);
            let tell = tell.clone();
            syncer.sync(&file, Box::new(move |result| tell.send(result.is_ok()).unwrap()));
        }
        drop(tell);
        drop(syncer);
        assert_eq!(told.iter().collect::<Vec<_>>(), [true; 3]);
    }
}
