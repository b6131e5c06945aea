//! Translations that take longer than a worker may wait: who asked for them, and those that are
//! done.
//!
//! A worker translates with little patience. What takes longer it leaves here, and goes on with
//! other packets; a thread of this daemon translates it, one of each port in turn, and whoever asks
//! about the same packet again takes the answer along. A port may have [`MOST_OF_PORT`] questions
//! here, and all ports together [`MOST`]; a worker drops the packets of others, and counts them
//! under [`DropCause::UpcallBudget`](dp::DropCause::UpcallBudget).
//!
//! Workers come for an answer every half millisecond. One that is older than [`FRESH`] is of tables
//! that were, and is given to nobody; all together take no more than [`MOST_BYTES`]. Whoever comes
//! for an answer that is gone asks again.

use dp::{Key, PortNo, Translation, Upcall};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use wire::Nanos;

/// Questions in all.
const MOST: usize = 1024;
/// Questions of one port.
const MOST_OF_PORT: usize = 64;
/// Bytes that are kept of a packet. No control message is longer.
const MOST_OF_PACKET: usize = 2048;
/// Memory of all answers.
const MOST_BYTES: usize = 64 << 20;
/// For so long an answer is given to whoever comes for it.
const FRESH: Duration = Duration::from_millis(10);

/// An answer.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) translation: Translation,
    /// The epoch of changes before it was made.
    pub(super) epoch: u64,
}

impl Done {
    /// The memory that it takes, about.
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

/// What became of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// There is to be an answer.
    Yes,
    /// Its port, or all of them, have too many questions.
    TooMany,
    /// Nobody answers.
    Unserved,
}

/// What is known of a packet's translation.
#[derive(Debug)]
pub(super) enum Known {
    /// Nobody has asked.
    Nothing,
    /// It is on its way.
    Asked,
    /// It is there; it is given away with this.
    Done(Box<Done>),
}

/// See the module's page.
pub(super) struct Long {
    queue: Mutex<Queue>,
    ready: Condvar,
    /// Questions, answered or not: of most packets there is none, and nobody takes the lock.
    len: AtomicUsize,
}

struct Queue {
    asked: HashMap<Key, Question>,
    /// Of each port, those that nobody works on yet.
    waiting: BTreeMap<PortNo, VecDeque<Waiting>>,
    /// How many each port has, answered or not.
    counts: BTreeMap<PortNo, usize>,
    turns: VecDeque<PortNo>,
    /// The questions that were answered lately, the oldest answer first, and when; some have been
    /// given away.
    answered: VecDeque<(Nanos, Key)>,
    /// Memory of the answers, and how much that may be.
    bytes: usize,
    most_bytes: usize,
    /// Threads that answer.
    servers: usize,
    closed: bool,
}

/// A packet that nobody works on yet: its key and its first bytes.
type Waiting = (Key, Box<[u8]>);

struct Question {
    port: PortNo,
    answer: Option<Kept>,
}

/// An answer that waits.
struct Kept {
    done: Box<Done>,
    /// When it was made.
    at: Nanos,
    bytes: usize,
}

/// There is a thread that answers as long as this is.
pub(super) struct Serving(Arc<Long>);

impl Drop for Serving {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.servers -= 1;
        if queue.servers == 0 {
            // Nobody is to wait for what does not come.
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
            asked: HashMap::new(),
            waiting: BTreeMap::new(),
            counts: BTreeMap::new(),
            turns: VecDeque::new(),
            answered: VecDeque::new(),
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
        self.len.store(queue.asked.len(), Ordering::Release);
    }

    /// What is known of the packet of a key.
    pub(super) fn look(&self, key: &Key, now: Nanos) -> Known {
        if self.len.load(Ordering::Acquire) == 0 {
            return Known::Nothing;
        }
        let mut queue = self.queue.lock();
        match queue.asked.get(key) {
            None => Known::Nothing,
            Some(Question { answer: None, .. }) => Known::Asked,
            Some(Question { answer: Some(_), .. }) => {
                let question = queue.remove(key);
                self.note_len(&queue);
                let answer = question.and_then(|question| question.answer);
                let fresh = answer.filter(|answer| answer.is_fresh(now));
                fresh.map_or(Known::Nothing, |answer| Known::Done(answer.done))
            }
        }
    }

    /// Asks for a packet's translation.
    pub(super) fn ask(&self, upcall: &Upcall<'_>, now: Nanos) -> Asked {
        let mut queue = self.queue.lock();
        if queue.servers == 0 {
            return Asked::Unserved;
        }
        let taken = queue.ask(upcall, now);
        self.note_len(&queue);
        if taken {
            self.ready.notify_one();
            Asked::Yes
        } else {
            Asked::TooMany
        }
    }

    /// Notes that a thread answers questions from now on, until what this returns is dropped.
    pub(super) fn begin(self: &Arc<Long>) -> Serving {
        self.queue.lock().servers += 1;
        Serving(self.clone())
    }

    /// The next question, as soon as there is one; `None` at the end.
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

    /// Answers a question.
    pub(super) fn answer(&self, key: &Key, done: Done, now: Nanos) {
        let mut queue = self.queue.lock();
        queue.answer(key, done, now);
        self.note_len(&queue);
    }

    /// Ends the thread that answers.
    pub(super) fn close(&self) {
        self.queue.lock().closed = true;
        self.ready.notify_all();
    }
}

impl Queue {
    fn ask(&mut self, upcall: &Upcall<'_>, now: Nanos) -> bool {
        let Upcall { key, packet } = *upcall;
        let port = key.in_port();
        if self.asked.contains_key(key) {
            return true;
        }
        let is_full = |queue: &Queue| {
            queue.asked.len() >= MOST || queue.counts.get(&port).is_some_and(|count| *count >= MOST_OF_PORT)
        };
        if is_full(self) {
            self.forget_old(now);
            if is_full(self) {
                return false;
            }
        }
        self.asked.insert(*key, Question { port, answer: None });
        *self.counts.entry(port).or_default() += 1;
        let waiting = self.waiting.entry(port).or_default();
        if waiting.is_empty() {
            self.turns.push_back(port);
        }
        waiting.push_back((*key, packet[..packet.len().min(MOST_OF_PACKET)].into()));
        true
    }

    fn next(&mut self) -> Option<Waiting> {
        let port = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&port)?;
        let next = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&port);
        } else {
            self.turns.push_back(port);
        }
        next
    }

    fn remove(&mut self, key: &Key) -> Option<Question> {
        let question = self.asked.remove(key)?;
        self.bytes -= question.answer.as_ref().map_or(0, |answer| answer.bytes);
        if let Some(count) = self.counts.get_mut(&question.port) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&question.port);
            }
        }
        Some(question)
    }

    fn answer(&mut self, key: &Key, done: Done, now: Nanos) {
        self.forget_old(now);
        if self.asked.get(key).is_none_or(|question| question.answer.is_some()) {
            return;
        }
        let bytes = done.bytes();
        while self.bytes > 0 && self.bytes + bytes > self.most_bytes {
            self.forget_oldest();
        }
        if let Some(question) = self.asked.get_mut(key) {
            let done = Box::new(done);
            question.answer = Some(Kept { done, at: now, bytes });
            self.bytes += bytes;
            self.answered.push_back((now, *key));
        }
    }

    /// Forgets answers to those who have gone: their port was removed, or their packet got its
    /// megaflow in another way.
    fn forget_old(&mut self, now: Nanos) {
        while let Some((at, _)) = self.answered.front()
            && !is_fresh(*at, now)
        {
            self.forget_oldest();
        }
    }

    /// Forgets the oldest answer, if nobody has taken it.
    fn forget_oldest(&mut self) {
        let Some((at, key)) = self.answered.pop_front() else {
            return;
        };
        let answer = self.asked.get(&key).and_then(|question| question.answer.as_ref());
        if answer.is_some_and(|answer| answer.at == at) {
            self.remove(&key);
        }
    }

    fn clear(&mut self) {
        self.asked.clear();
        self.waiting.clear();
        self.counts.clear();
        self.turns.clear();
        self.answered.clear();
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

    /// With somebody who answers.
    fn served(most_bytes: usize) -> (Arc<Long>, Serving) {
        let long = Arc::new(Long::with_room_for(most_bytes));
        let serving = long.begin();
        (long, serving)
    }

    fn upcall(key: &Key) -> Upcall<'_> {
        Upcall { key, packet: b"packet" }
    }

    fn next(long: &Long) -> Option<Key> {
        let (key, packet) = long.next()?;
        assert_eq!(*packet, *b"packet");
        Some(key)
    }

    fn is_taken(long: &Long, key: &Key, now: Nanos) -> bool {
        match long.ask(&upcall(key), now) {
            Asked::Yes => true,
            Asked::TooMany => false,
            Asked::Unserved => panic!("nobody answers"),
        }
    }

    const T0: Nanos = Nanos::ZERO;

    #[test]
    fn a_port_with_many_questions_leaves_room_and_turns_to_others() {
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
    fn an_answer_is_given_to_the_first_who_asks_again() {
        let (long, _serving) = served(MOST_BYTES);
        let one = key(1, 1);
        assert!(matches!(long.look(&one, T0), Known::Nothing));
        assert!(is_taken(&long, &one, T0));
        assert!(matches!(long.look(&one, T0), Known::Asked));
        assert_eq!(next(&long), Some(one));
        assert!(matches!(long.look(&one, T0), Known::Asked));
        long.answer(&one, done(), T0);
        assert!(matches!(long.look(&one, T0), Known::Done(done) if done.epoch == 7));
        assert!(matches!(long.look(&one, T0), Known::Nothing));
        long.close();
        assert_eq!(next(&long), None);
    }

    #[test]
    fn an_old_answer_is_given_to_nobody() {
        let (long, _serving) = served(MOST_BYTES);
        let one = key(1, 1);
        let answered = |at| {
            assert!(is_taken(&long, &one, at));
            assert_eq!(next(&long), Some(one));
            long.answer(&one, done(), at);
        };
        answered(T0);
        let just = T0 + (FRESH - Duration::from_nanos(1));
        assert!(matches!(long.look(&one, just), Known::Done(_)));
        answered(just);
        assert!(matches!(long.look(&one, just + FRESH), Known::Nothing));
        assert!(matches!(long.look(&one, just + FRESH), Known::Nothing));
        assert_eq!((long.len.load(Ordering::Relaxed), long.queue.lock().bytes), (0, 0));
        // It can be asked for again.
        answered(just + FRESH);
        assert!(matches!(long.look(&one, just + FRESH), Known::Done(_)));
    }

    #[test]
    fn answers_that_nobody_comes_for_make_room_after_a_while() {
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
    fn answers_that_take_too_much_memory_displace_the_oldest() {
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
        // Those that were displaced can be asked for again.
        assert!(is_taken(&long, &key(1, 0), T0));
    }

    #[test]
    fn when_nobody_answers_any_more_nobody_waits() {
        let (long, serving) = served(MOST_BYTES);
        let one = key(1, 1);
        assert!(is_taken(&long, &one, T0));
        drop(serving);
        assert!(matches!(long.look(&one, T0), Known::Nothing));
        assert_eq!(long.ask(&upcall(&one), T0), Asked::Unserved);
        let again = (long.begin(), long.begin());
        assert!(is_taken(&long, &one, T0));
        drop(again.0);
        assert!(matches!(long.look(&one, T0), Known::Asked));
        assert_eq!(next(&long), Some(one));
    }
}
