//! Translations that take longer than a worker may wait: who asked for them, and those that are done.
//!
//! A worker translates with little patience. What takes longer it leaves here, and goes on with other packets; a thread of this daemon translates
//! it, one of each port in turn, and whoever asks about the same packet again takes the answer along. A port may have [`MOST_OF_PORT`] questions
//! here, and all ports together [`MOST`]; a worker drops the packets of others, and counts them under
//! [`DropCause::UpcallBudget`](dp::DropCause::UpcallBudget).

use dp::{Key, PortNo, Translation};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use wire::Nanos;

/// Questions in all.
const MOST: usize = 1024;
/// Questions of one port.
const MOST_OF_PORT: usize = 64;
/// For so long an answer is kept that nobody comes for, where its port has other questions.
const UNCLAIMED: Duration = Duration::from_secs(1);

/// An answer.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) translation: Translation,
    /// The epoch of changes before it was made.
    pub(super) epoch: u64,
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
#[derive(Default)]
pub(super) struct Long {
    queue: Mutex<Queue>,
    ready: Condvar,
    /// Questions, answered or not: of most packets there is none, and nobody takes the lock.
    len: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    asked: HashMap<Key, Question>,
    /// Of each port, those that nobody works on yet.
    waiting: BTreeMap<PortNo, VecDeque<Key>>,
    /// How many each port has, answered or not.
    counts: BTreeMap<PortNo, usize>,
    turns: VecDeque<PortNo>,
    /// Whether there is a thread that answers.
    served: bool,
    closed: bool,
}

struct Question {
    port: PortNo,
    /// With the time at which it was answered.
    answer: Option<(Box<Done>, Nanos)>,
}

impl Long {
    /// What is known of the packet of a key.
    pub(super) fn look(&self, key: &Key) -> Known {
        if self.len.load(Ordering::Acquire) == 0 {
            return Known::Nothing;
        }
        let mut queue = self.queue.lock();
        match queue.asked.get(key) {
            None => Known::Nothing,
            Some(Question { answer: None, .. }) => Known::Asked,
            Some(Question { answer: Some(_), .. }) => {
                let question = queue.remove(key);
                self.len.store(queue.asked.len(), Ordering::Release);
                question
                    .and_then(|question| question.answer)
                    .map_or(Known::Nothing, |(done, _)| Known::Done(done))
            }
        }
    }

    /// Whether a thread answers questions.
    pub(super) fn is_served(&self) -> bool {
        self.queue.lock().served
    }

    /// Asks for a packet's translation. `false` where its port, or all of them, have too many questions.
    pub(super) fn ask(&self, key: &Key, now: Nanos) -> bool {
        let mut queue = self.queue.lock();
        let taken = queue.ask(key, now);
        self.len.store(queue.asked.len(), Ordering::Release);
        if taken {
            self.ready.notify_one();
        }
        taken
    }

    /// Notes that a thread answers questions from now on.
    pub(super) fn begin(&self) {
        self.queue.lock().served = true;
    }

    /// The next question, as soon as there is one; `None` at the end.
    pub(super) fn next(&self) -> Option<Key> {
        let mut queue = self.queue.lock();
        loop {
            if queue.closed {
                return None;
            }
            if let Some(key) = queue.next() {
                return Some(key);
            }
            self.ready.wait(&mut queue);
        }
    }

    /// Answers a question.
    pub(super) fn answer(&self, key: &Key, done: Done, now: Nanos) {
        if let Some(question) = self.queue.lock().asked.get_mut(key) {
            question.answer = Some((Box::new(done), now));
        }
    }

    /// Ends the thread that answers.
    pub(super) fn close(&self) {
        self.queue.lock().closed = true;
        self.ready.notify_all();
    }
}

impl Queue {
    fn ask(&mut self, key: &Key, now: Nanos) -> bool {
        let port = key.in_port();
        if self.asked.contains_key(key) {
            return true;
        }
        let is_full = |queue: &Queue| {
            queue.asked.len() >= MOST || queue.counts.get(&port).is_some_and(|count| *count >= MOST_OF_PORT)
        };
        if is_full(self) {
            self.forget_unclaimed(now);
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
        waiting.push_back(*key);
        true
    }

    fn next(&mut self) -> Option<Key> {
        let port = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&port)?;
        let key = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&port);
        } else {
            self.turns.push_back(port);
        }
        key
    }

    fn remove(&mut self, key: &Key) -> Option<Question> {
        let question = self.asked.remove(key)?;
        if let Some(count) = self.counts.get_mut(&question.port) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&question.port);
            }
        }
        Some(question)
    }

    /// Forgets answers to those who have gone: their port was removed, or their packet got its megaflow in another way.
    fn forget_unclaimed(&mut self, now: Nanos) {
        let is_old = |question: &Question| matches!(&question.answer, Some((_, at)) if now.since(*at) >= UNCLAIMED);
        let old: Vec<Key> = self
            .asked
            .iter()
            .filter(|(_, question)| is_old(question))
            .map(|(key, _)| *key)
            .collect();
        for key in old {
            self.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{Field, Mask};
    use std::sync::Arc;

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

    #[test]
    fn a_port_with_many_questions_leaves_room_and_turns_to_others() {
        let long = Long::default();
        let taken = (0..2 * MOST as u64).filter(|n| long.ask(&key(1, *n), Nanos::ZERO));
        assert_eq!(taken.count(), MOST_OF_PORT);
        assert!(long.ask(&key(2, 0), Nanos::ZERO) && long.ask(&key(2, 0), Nanos::ZERO));
        let next: Vec<u32> = (0..3).map(|_| long.next().unwrap().in_port().0).collect();
        assert_eq!(next, [1, 2, 1]);
        let all = (3..100).map(|port| (0..100).filter(|n| long.ask(&key(port, *n), Nanos::ZERO)).count());
        assert_eq!(all.sum::<usize>() + MOST_OF_PORT + 1, MOST);
    }

    #[test]
    fn an_answer_is_given_to_the_first_who_asks_again() {
        let long = Long::default();
        let one = key(1, 1);
        assert!(matches!(long.look(&one), Known::Nothing));
        assert!(long.ask(&one, Nanos::ZERO));
        assert!(matches!(long.look(&one), Known::Asked));
        assert_eq!(long.next(), Some(one));
        assert!(matches!(long.look(&one), Known::Asked));
        long.answer(&one, done(), Nanos::ZERO);
        assert!(matches!(long.look(&one), Known::Done(done) if done.epoch == 7));
        assert!(matches!(long.look(&one), Known::Nothing));
        long.close();
        assert_eq!(long.next(), None);
    }

    #[test]
    fn answers_that_nobody_comes_for_make_room_after_a_while() {
        let long = Long::default();
        for n in 0..MOST_OF_PORT as u64 {
            assert!(long.ask(&key(1, n), Nanos::ZERO));
            let next = long.next().unwrap();
            long.answer(&next, done(), Nanos::ZERO);
        }
        assert!(!long.ask(&key(1, 1000), Nanos::ZERO));
        assert!(long.ask(&key(1, 1000), Nanos::from_secs(1)));
        assert_eq!(long.len.load(Ordering::Relaxed), 1);
    }
}
