//! The lab's side of an agent.

use super::agent;
use super::protocol::{Answer, Ask, Outcome, Ready, Request, Said, Task};
use super::stack::{Count, Stack};
use anyhow::{Context, Result, anyhow, bail};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long an agent may take to prepare a task.
const PREPARED: Duration = Duration::from_secs(20);

/// Timeout for an agent to stop a task.
const STOPPED: Duration = Duration::from_secs(30);

/// A connection to an agent. Clones share it; when the last is dropped, with all tasks, the agent's
/// input ends.
#[derive(Clone)]
pub struct Agent(Arc<Inner>);

struct Inner {
    name: String,
    to: Mutex<Box<dyn Write + Send>>,
    next: AtomicU64,
    pending: Arc<Mutex<Pending>>,
}

/// The receivers of tasks' answers, and whether the agent is gone.
#[derive(Default)]
struct Pending {
    tasks: HashMap<u64, Sender<Said>>,
    gone: bool,
}

/// A task of an agent. Dropping it stops the task, and does not wait for its end.
pub struct Remote {
    agent: Agent,
    id: u64,
    answers: Receiver<Said>,
    ready: Ready,
    ended: bool,
}

impl Agent {
    /// To an agent with these ends of its input and output. The name of the host is for errors.
    ///
    /// # Errors
    /// No thread.
    pub fn new(name: &str, from: impl Read + Send + 'static, to: impl Write + Send + 'static) -> Result<Agent> {
        let pending = Arc::new(Mutex::new(Pending::default()));
        let to_tasks = Arc::clone(&pending);
        std::thread::Builder::new()
            .name(format!("agent {name}"))
            .spawn(move || deliver(BufReader::new(from), &to_tasks))
            .context("a thread for an agent's answers")?;
        Ok(Agent(Arc::new(Inner {
            name: name.to_owned(),
            to: Mutex::new(Box::new(to)),
            next: AtomicU64::new(0),
            pending,
        })))
    }

    /// An agent in a thread of this process, for the namespace that this is in.
    ///
    /// # Errors
    /// No pipe or thread.
    pub fn here(name: &str) -> Result<Agent> {
        let (input, to) = std::io::pipe().context("pipe")?;
        let (from, output) = std::io::pipe().context("pipe")?;
        std::thread::Builder::new()
            .name("agent".to_owned())
            .spawn(move || agent::main(input, output))
            .context("a thread for an agent")?;
        Agent::new(name, from, to)
    }

    /// Where it runs.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Prepares a task. A server starts at once, others at [`Remote::go`].
    ///
    /// # Errors
    /// The agent has gone, takes longer than 20 seconds, or cannot do the task: with its reason.
    pub fn start(&self, task: Task) -> Result<Remote> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answers) = mpsc::channel();
        self.pending().tasks.insert(id, sender);
        let mut remote = Remote {
            agent: self.clone(),
            id,
            answers,
            ready: Ready::default(),
            ended: false,
        };
        remote.ask(Ask::Start(task))?;
        match remote.answer(PREPARED)? {
            Said::Ready(ready) => remote.ready = ready,
            Said::Done(_) => bail!("{}: the task ended before it began", self.0.name),
            Said::Error(reason) => bail!("{}: {reason}", self.0.name),
        }
        Ok(remote)
    }

    /// The counters of its host's stack.
    ///
    /// # Errors
    /// The agent has gone or does not answer.
    pub fn counts(&self) -> Result<Stack> {
        let mut count = self.start(Task::Count(Count {}))?;
        count.go()?;
        match count.wait(STOPPED)? {
            Outcome::Counted(counted) => Ok(counted),
            _ => bail!("{}: the agent answers something else than counts", self.0.name),
        }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.0.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Delivers answers to their receivers until the end of the stream.
fn deliver(from: impl BufRead, pending: &Mutex<Pending>) {
    for line in from.split(b'\n') {
        let Ok(line) = line else { break };
        // Anything else, as a guest's kernel that writes to its console, is not for us.
        let Ok(Answer { id: Some(id), said }) = serde_json::from_slice(&line) else {
            continue;
        };
        let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
        let last = !matches!(said, Said::Ready(_));
        if let Some(task) = pending.tasks.get(&id) {
            let _ = task.send(said);
        }
        if last {
            pending.tasks.remove(&id);
        }
    }
    let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
    pending.gone = true;
    pending.tasks.clear();
}

impl Remote {
    /// The task's ports, in the order that it named their uses in.
    pub fn ports(&self) -> &[u16] {
        &self.ready.ports
    }

    /// Starts the prepared task.
    ///
    /// # Errors
    /// The agent has gone.
    pub fn go(&mut self) -> Result<()> {
        self.ask(Ask::Go)
    }

    /// Waits until the task ends by itself.
    ///
    /// # Errors
    /// It does not within this time, it failed, or the agent has gone.
    pub fn wait(mut self, most: Duration) -> Result<Outcome> {
        self.outcome(most)
    }

    /// Stops the task and takes its results.
    ///
    /// # Errors
    /// The task failed, or the agent has gone or does not answer within 30 seconds.
    pub fn stop(mut self) -> Result<Outcome> {
        self.ask(Ask::Stop)?;
        self.outcome(STOPPED)
    }

    /// Tells the task to stop, and does not wait for it.
    ///
    /// # Errors
    /// The agent has gone.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.ask(Ask::Stop)
    }

    /// Stops tasks at the same time, since each may wait for late packets, and takes their results
    /// in order.
    ///
    /// # Errors
    /// Those of [`Remote::stop`], of the first that has any.
    pub(crate) fn stop_all(mut tasks: Vec<Remote>) -> Result<Vec<Outcome>> {
        for task in &mut tasks {
            task.ask(Ask::Stop)?;
        }
        tasks.into_iter().map(|task| task.wait(STOPPED)).collect()
    }

    fn outcome(&mut self, most: Duration) -> Result<Outcome> {
        let said = self.answer(most)?;
        self.ended = true;
        match said {
            Said::Done(outcome) => Ok(*outcome),
            Said::Error(reason) => bail!("{}: {reason}", self.agent.0.name),
            Said::Ready(_) => bail!("{}: a task was made ready twice", self.agent.0.name),
        }
    }

    fn answer(&mut self, most: Duration) -> Result<Said> {
        self.answers.recv_timeout(most).map_err(|error| match error {
            RecvTimeoutError::Timeout => anyhow!("{}: the agent has not answered for {most:?}", self.agent.0.name),
            RecvTimeoutError::Disconnected => anyhow!("{}: the agent has gone", self.agent.0.name),
        })
    }

    fn ask(&mut self, ask: Ask) -> Result<()> {
        if self.agent.pending().gone {
            // Its last answer may still be in the channel.
            return match ask {
                Ask::Start(_) => Err(anyhow!("{}: the agent has gone", self.agent.0.name)),
                Ask::Go | Ask::Stop => Ok(()),
            };
        }
        let mut line = serde_json::to_vec(&Request { id: self.id, ask })?;
        line.push(b'\n');
        let mut to = self.agent.0.to.lock().unwrap_or_else(PoisonError::into_inner);
        to.write_all(&line)
            .and_then(|()| to.flush())
            .with_context(|| format!("{}: the agent does not listen", self.agent.0.name))
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.ask(Ask::Stop);
            self.agent.pending().tasks.remove(&self.id);
        }
    }
}
