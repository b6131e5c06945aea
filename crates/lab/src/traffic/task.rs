//! A task of an agent, as the code that does it sees it.

use super::protocol::{Answer, Ready, Said};
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a task that waits for something else looks whether it shall stop.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// A task's channel to the agent.
#[derive(Clone)]
pub(crate) struct Control {
    id: u64,
    out: Output,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Clone, Copy, Default)]
struct State {
    go: bool,
    stop: bool,
}

/// The agent's output of whole lines, from any thread.
#[derive(Clone)]
pub(crate) struct Output(Arc<Mutex<dyn Write + Send>>);

impl Control {
    pub(crate) fn new(id: u64, out: Output) -> Control {
        Control {
            id,
            out,
            state: Arc::default(),
        }
    }

    /// Tells that all is prepared.
    pub(crate) fn ready(&self, ports: Vec<u16>) {
        self.say(Said::Ready(Ready { ports }));
    }

    pub(crate) fn say(&self, said: Said) {
        self.out.say(&Answer {
            id: Some(self.id),
            said,
        });
    }

    /// Waits for the word to begin. False: it is to stop instead.
    pub(crate) fn await_go(&self) -> bool {
        let mut state = self.state();
        while !state.go && !state.stop {
            state = self.state.1.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.stop
    }

    pub(crate) fn stopped(&self) -> bool {
        self.state().stop
    }

    pub(crate) fn go(&self) {
        self.state().go = true;
        self.state.1.notify_all();
    }

    pub(crate) fn stop(&self) {
        self.state().stop = true;
        self.state.1.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Output {
    pub(crate) fn new(out: impl Write + Send + 'static) -> Output {
        Output(Arc::new(Mutex::new(out)))
    }

    /// Writes an answer. An error means that the lab is gone, and then the input ends too.
    pub(crate) fn say(&self, answer: &Answer) {
        let Ok(mut line) = serde_json::to_vec(answer) else {
            return;
        };
        line.push(b'\n');
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}
