//! Translations that take longer than a worker may wait: the queue of requests, and the finished
//! translations.
//!
//! A worker translates with little patience. It leaves longer translations here and continues with
//! other packets. A thread of this daemon translates them, one of each port in turn. A worker that
//! asks about the same packet later takes the finished translation. A port may have
//! [`MOST_OF_PORT`] requests here, and all ports together [`MOST`]. Workers drop packets beyond
//! that, and count them under [`DropCause::UpcallBudget`](dp::DropCause::UpcallBudget).
//!
//! Workers look for a finished translation every half millisecond. One that is older than [`FRESH`]
//! may describe old tables and is discarded. All together take at most [`MOST_BYTES`]. A worker
//! requests a discarded translation again.

use dp::{Key, PortNo, Translation, Upcall};
use nanos::Nanos;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Requests in all.
const MOST: usize = 1024;
/// Requests of one port.
const MOST_OF_PORT: usize = 64;
/// Bytes kept of a packet. No message of a control protocol is longer.
const MOST_OF_PACKET: usize = 2048;
/// Memory of all finished translations.
const MOST_BYTES: usize = 64 << 20;
/// The time for which a finished translation is valid.
const FRESH: Duration = Duration::from_millis(10);

/// A finished translation.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) translation: Translation,
    /// The epoch of changes before it was made.
    pub(super) epoch: u64,
}

impl Done {
    /// Approximately the memory that it takes.
    fn bytes(&self) -> usize {
        let Translation {
            actions,
            deps,
            credits,
            effects,
            ..
        } = &self.translation;
        size_of_val(self)
            + size_of_val(&actions[..])
            + size_of_val(&deps[..])
            + size_of_val(&credits[..])
            + size_of_val(&effects[..])
    }
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requested {
    /// The thread will translate it.
    Queued,
    /// The port, or all ports together, have too many requests.
    TooMany,
    /// No thread serves requests.
    NoServer,
}

/// The state of a packet's translation.
#[derive(Debug)]
pub(super) enum Known {
    /// It was not requested.
    Nothing,
    /// It was requested, and is not finished.
    Pending,
    /// It is finished. The caller takes it.
    Done(Box<Done>),
}

/// Requests and finished translations. See the module's page.
pub(super) struct Long {
    queue: Mutex<Queue>,
    ready: Condvar,
    /// Number of requests, finished or not. While it is 0, workers do not take the lock.
    len: AtomicUsize,
}

struct Queue {
    requests: HashMap<Key, Request>,
    /// By port, the requests that the thread has not started.
    waiting: BTreeMap<PortNo, VecDeque<Waiting>>,
    /// Number of requests by port, finished or not.
    counts: BTreeMap<PortNo, usize>,
    port_queue: VecDeque<PortNo>,
    /// Times and keys of finished requests, the oldest first; workers have taken some of them.
    finished: VecDeque<(Nanos, Key)>,
    /// Memory of finished translations, and its limit.
    bytes: usize,
    most_bytes: usize,
    /// Threads that serve requests.
    servers: usize,
    closed: bool,
}

/// A packet to translate.
pub(super) struct Waiting {
    pub(super) key: Key,
    /// Its first bytes.
    pub(super) packet: Box<[u8]>,
    pub(super) tunnel_options: Box<[u8]>,
}

impl Waiting {
    pub(super) fn upcall(&self) -> Upcall<'_> {
        Upcall {
            key: &self.key,
            packet: &self.packet,
            tunnel_options: &self.tunnel_options,
        }
    }
}

struct Request {
    port: PortNo,
    answer: Option<Kept>,
}

/// A finished translation that waits for a worker.
struct Kept {
    done: Box<Done>,
    /// When it was finished.
    at: Nanos,
    bytes: usize,
}

/// A thread serves requests until this is dropped.
pub(super) struct Serving(Arc<Long>);

impl Drop for Serving {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.servers -= 1;
        if queue.servers == 0 {
            // No thread serves the waiting requests any more.
            queue.clear();
            self.0.note_len(&queue);
        }
    }
}

impl Default for Long {
    fn default() -> Long {
        Long::with_room_for(MOST_BYTES)
    }
}

impl Long {
    fn with_room_for(most_bytes: usize) -> Long {
        let queue = Queue {
            requests: HashMap::new(),
            waiting: BTreeMap::new(),
            counts: BTreeMap::new(),
            port_queue: VecDeque::new(),
            finished: VecDeque::new(),
            bytes: 0,
            most_bytes,
            servers: 0,
            closed: false,
        };
        Long {
            queue: Mutex::new(queue),
            ready: Condvar::new(),
            len: AtomicUsize::new(0),
        }
    }

    fn note_len(&self, queue: &Queue) {
        self.len.store(queue.requests.len(), Ordering::Release);
    }

    /// Returns the state of a packet's translation.
    pub(super) fn look(&self, key: &Key, now: Nanos) -> Known {
        if self.len.load(Ordering::Acquire) == 0 {
            return Known::Nothing;
        }
        let mut queue = self.queue.lock();
        match queue.requests.get(key) {
            None => Known::Nothing,
            Some(Request { answer: None, .. }) => Known::Pending,
            Some(Request { answer: Some(_), .. }) => {
                let request = queue.remove(key);
                self.note_len(&queue);
                let answer = request.and_then(|request| request.answer);
                let fresh = answer.filter(|answer| answer.is_fresh(now));
                fresh.map_or(Known::Nothing, |answer| Known::Done(answer.done))
            }
        }
    }

    /// Requests a packet's translation.
    pub(super) fn request(&self, upcall: &Upcall<'_>, now: Nanos) -> Requested {
        let mut queue = self.queue.lock();
        if queue.servers == 0 {
            return Requested::NoServer;
        }
        let taken = queue.request(upcall, now);
        self.note_len(&queue);
        if taken {
            self.ready.notify_one();
            Requested::Queued
        } else {
            Requested::TooMany
        }
    }

    /// Registers a thread that serves requests, until it drops the result.
    pub(super) fn begin(self: &Arc<Long>) -> Serving {
        self.queue.lock().servers += 1;
        Serving(self.clone())
    }

    /// Waits for the next request; `None` when the daemon ends.
    pub(super) fn next(&self) -> Option<Waiting> {
        let mut queue = self.queue.lock();
        loop {
            if queue.closed {
                return None;
            }
            if let Some(next) = queue.next() {
                return Some(next);
            }
            self.ready.wait(&mut queue);
        }
    }

    /// Stores a finished translation.
    pub(super) fn answer(&self, key: &Key, done: Done, now: Nanos) {
        let mut queue = self.queue.lock();
        queue.answer(key, done, now);
        self.note_len(&queue);
    }

    /// Ends the thread that serves requests.
    pub(super) fn close(&self) {
        self.queue.lock().closed = true;
        self.ready.notify_all();
    }
}

impl Queue {
    fn request(&mut self, upcall: &Upcall<'_>, now: Nanos) -> bool {
        let Upcall {
            key,
            packet,
            tunnel_options,
        } = *upcall;
        let port = key.in_port();
        if self.requests.contains_key(key) {
            return true;
        }
        let is_full = |queue: &Queue| {
            queue.requests.len() >= MOST || queue.counts.get(&port).is_some_and(|count| *count >= MOST_OF_PORT)
        };
        if is_full(self) {
            self.discard_old(now);
            if is_full(self) {
                return false;
            }
        }
        self.requests.insert(*key, Request { port, answer: None });
        *self.counts.entry(port).or_default() += 1;
        let waiting = self.waiting.entry(port).or_default();
        if waiting.is_empty() {
            self.port_queue.push_back(port);
        }
        waiting.push_back(Waiting {
            key: *key,
            packet: packet[..packet.len().min(MOST_OF_PACKET)].into(),
            tunnel_options: tunnel_options.into(),
        });
        true
    }

    fn next(&mut self) -> Option<Waiting> {
        let port = self.port_queue.pop_front()?;
        let waiting = self.waiting.get_mut(&port)?;
        let next = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&port);
        } else {
            self.port_queue.push_back(port);
        }
        next
    }

    fn remove(&mut self, key: &Key) -> Option<Request> {
        let request = self.requests.remove(key)?;
        self.bytes -= request.answer.as_ref().map_or(0, |answer| answer.bytes);
        if let Some(count) = self.counts.get_mut(&request.port) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&request.port);
            }
        }
        Some(request)
    }

    fn answer(&mut self, key: &Key, done: Done, now: Nanos) {
        self.discard_old(now);
        if self.requests.get(key).is_none_or(|request| request.answer.is_some()) {
            return;
        }
        let bytes = done.bytes();
        while self.bytes > 0 && self.bytes + bytes > self.most_bytes {
            self.discard_oldest();
        }
        if let Some(request) = self.requests.get_mut(key) {
            let done = Box::new(done);
            request.answer = Some(Kept { done, at: now, bytes });
            self.bytes += bytes;
            self.finished.push_back((now, *key));
        }
    }

    /// Discards translations that no worker will take: their port was removed, or their packet got
    /// its megaflow otherwise.
    fn discard_old(&mut self, now: Nanos) {
        while let Some((at, _)) = self.finished.front()
            && !is_fresh(*at, now)
        {
            self.discard_oldest();
        }
    }

    /// Discards the oldest finished translation, if no worker has taken it.
    fn discard_oldest(&mut self) {
        let Some((at, key)) = self.finished.pop_front() else {
            return;
        };
        let answer = self.requests.get(&key).and_then(|request| request.answer.as_ref());
        if answer.is_some_and(|answer| answer.at == at) {
            self.remove(&key);
        }
    }

    fn clear(&mut self) {
        self.requests.clear();
        self.waiting.clear();
        self.counts.clear();
        self.port_queue.clear();
        self.finished.clear();
        self.bytes = 0;
    }
}

impl Kept {
    fn is_fresh(&self, now: Nanos) -> bool {
        is_fresh(self.at, now)
    }
}

fn is_fresh(at: Nanos, now: Nanos) -> bool {
    now.since(at) < FRESH
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{Field, Mask};

    fn key(port: u32, station: u64) -> Key {
        let mut key = Key::ZERO;
        key.set(Field::InPort, port.into());
        key.set(Field::EthDst, station.into());
        key
    }

    fn done() -> Done {
        let translation = Translation {
            actions: Arc::from([]),
            mask: Mask::EMPTY,
            deps: Default::default(),
            effects: Default::default(),
            credits: Default::default(),
            drop: None,
        };
        Done { translation, epoch: 7 }
    }

    /// With a thread that serves requests.
    fn served(most_bytes: usize) -> (Arc<Long>, Serving) {
        let long = Arc::new(Long::with_room_for(most_bytes));
        let serving = long.begin();
        (long, serving)
    }

    fn upcall(key: &Key) -> Upcall<'_> {
        Upcall::new(key, b"packet")
    }

    fn next(long: &Long) -> Option<Key> {
        let waiting = long.next()?;
        assert_eq!(*waiting.packet, *b"packet");
        Some(waiting.key)
    }

    fn is_taken(long: &Long, key: &Key, now: Nanos) -> bool {
        match long.request(&upcall(key), now) {
            Requested::Queued => true,
            Requested::TooMany => false,
            Requested::NoServer => panic!("no thread"),
        }
    }

    const T0: Nanos = Nanos::ZERO;

    #[test]
    fn a_port_with_many_requests_leaves_room_for_other_ports() {
        let (long, _serving) = served(MOST_BYTES);
        let taken = (0..2 * MOST as u64).filter(|n| is_taken(&long, &key(1, *n), T0));
        assert_eq!(taken.count(), MOST_OF_PORT);
        assert!(is_taken(&long, &key(2, 0), T0) && is_taken(&long, &key(2, 0), T0));
        let next: Vec<u32> = (0..3).map(|_| next(&long).unwrap().in_port().0).collect();
        assert_eq!(next, [1, 2, 1]);
        let of_port = |port| (0..100).filter(|n| is_taken(&long, &key(port, *n), T0)).count();
        assert_eq!((3..100).map(of_port).sum::<usize>() + MOST_OF_PORT + 1, MOST);
    }

    #[test]
    fn the_first_worker_that_looks_again_takes_the_translation() {
        let (long, _serving) = served(MOST_BYTES);
        let one = key(1, 1);
        assert!(matches!(long.look(&one, T0), Known::Nothing));
        assert!(is_taken(&long, &one, T0));
        assert!(matches!(long.look(&one, T0), Known::Pending));
        assert_eq!(next(&long), Some(one));
        assert!(matches!(long.look(&one, T0), Known::Pending));
        long.answer(&one, done(), T0);
        assert!(matches!(long.look(&one, T0), Known::Done(done) if done.epoch == 7));
        assert!(matches!(long.look(&one, T0), Known::Nothing));
        long.close();
        assert_eq!(next(&long), None);
    }

    #[test]
    fn an_old_translation_is_discarded() {
        let (long, _serving) = served(MOST_BYTES);
        let one = key(1, 1);
        let finished = |at| {
            assert!(is_taken(&long, &one, at));
            assert_eq!(next(&long), Some(one));
            long.answer(&one, done(), at);
        };
        finished(T0);
        let just = T0 + (FRESH - Duration::from_nanos(1));
        assert!(matches!(long.look(&one, just), Known::Done(_)));
        finished(just);
        assert!(matches!(long.look(&one, just + FRESH), Known::Nothing));
        assert!(matches!(long.look(&one, just + FRESH), Known::Nothing));
        assert_eq!((long.len.load(Ordering::Relaxed), long.queue.lock().bytes), (0, 0));
        // It can be requested again.
        finished(just + FRESH);
        assert!(matches!(long.look(&one, just + FRESH), Known::Done(_)));
    }

    #[test]
    fn translations_that_no_worker_takes_make_room_after_a_while() {
        let (long, _serving) = served(MOST_BYTES);
        for n in 0..MOST_OF_PORT as u64 {
            assert!(is_taken(&long, &key(1, n), T0));
            let next = next(&long).unwrap();
            long.answer(&next, done(), T0);
        }
        assert!(!is_taken(&long, &key(1, 1000), T0));
        assert!(is_taken(&long, &key(1, 1000), T0 + FRESH));
        assert_eq!(long.len.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn translations_that_take_too_much_memory_displace_the_oldest() {
        let each = done().bytes();
        let (long, _serving) = served(4 * each);
        for n in 0..10 {
            assert!(is_taken(&long, &key(1, n), T0));
            let next = next(&long).unwrap();
            long.answer(&next, done(), T0);
            assert!(long.queue.lock().bytes <= 4 * each);
        }
        let kept: Vec<u64> = (0..10)
            .filter(|n| matches!(long.look(&key(1, *n), T0), Known::Done(_)))
            .collect();
        assert_eq!((kept, long.queue.lock().bytes), (vec![6, 7, 8, 9], 0));
        // Discarded translations can be requested again.
        assert!(is_taken(&long, &key(1, 0), T0));
    }

    #[test]
    fn without_a_thread_no_packet_waits() {
        let (long, serving) = served(MOST_BYTES);
        let one = key(1, 1);
        assert!(is_taken(&long, &one, T0));
        drop(serving);
        assert!(matches!(long.look(&one, T0), Known::Nothing));
        assert_eq!(long.request(&upcall(&one), T0), Requested::NoServer);
        let again = (long.begin(), long.begin());
        assert!(is_taken(&long, &one, T0));
        drop(again.0);
        assert!(matches!(long.look(&one, T0), Known::Pending));
        assert_eq!(next(&long), Some(one));
    }
}
