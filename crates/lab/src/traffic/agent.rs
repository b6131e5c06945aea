//! The agent: the part of the lab that runs where traffic begins and ends, in a host's namespace or
//! in a guest.
//!
//! It reads requests from its input and writes answers to its output ([`super::protocol`]), each
//! task in a thread of its own. It answers any input; only the end of its input ends it, with all
//! its tasks.

use super::protocol::{Answer, Ask, LONGEST_LINE, Outcome, Request, Said, Task};
use super::task::{Control, Output};
use anyhow::Result;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::thread::JoinHandle;

/// Serves until the end of the input; then all tasks are stopped.
///
/// # Errors
/// The input's.
pub fn main(input: impl Read, output: impl Write + Send + 'static) -> Result<()> {
    let output = Output::new(output);
    let mut tasks = Tasks(HashMap::new());
    let mut input = BufReader::new(input);
    while let Some(line) = next_line(&mut input)? {
        match line {
            Line::Whole(line) if line.trim_ascii().is_empty() => {}
            Line::Whole(line) => match serde_json::from_slice::<Request>(&line) {
                Ok(request) => tasks.serve(request, &output),
                Err(error) => refuse(&output, id_of(&line), format!("not a request: {error}")),
            },
            Line::TooLong => refuse(
                &output,
                None,
                format!("not a request: a line of more than {LONGEST_LINE} bytes"),
            ),
        }
    }
    Ok(())
}

fn refuse(output: &Output, id: Option<u64>, reason: String) {
    output.say(&Answer {
        id,
        said: Said::Error(reason),
    });
}

/// The task number in a malformed request, for the error answer.
fn id_of(line: &[u8]) -> Option<u64> {
    let value: serde_json::Value = serde_json::from_slice(line).ok()?;
    value.get("id")?.as_u64()
}

enum Line {
    Whole(Vec<u8>),
    TooLong,
}

/// The next line without its end; none at the end of the input. Of a line that is too long nothing
/// is kept.
fn next_line(input: &mut impl BufRead) -> std::io::Result<Option<Line>> {
    let mut line = Vec::new();
    let limit = LONGEST_LINE as u64 + 1;
    if input.by_ref().take(limit).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.pop_if(|&mut last| last == b'\n').is_some() || line.len() <= LONGEST_LINE {
        return Ok(Some(Line::Whole(line)));
    }
    input.skip_until(b'\n')?;
    Ok(Some(Line::TooLong))
}

/// The tasks that run. Dropping it stops them and waits for their ends.
struct Tasks(HashMap<u64, Running>);

struct Running {
    control: Control,
    thread: JoinHandle<()>,
}

impl Tasks {
    fn serve(&mut self, Request { id, ask }: Request, output: &Output) {
        self.0.retain(|_, running| !running.thread.is_finished());
        match (ask, self.0.get(&id)) {
            (Ask::Start(_), Some(_)) => refuse(output, Some(id), format!("task {id} is running already")),
            (Ask::Start(task), None) => {
                let control = Control::new(id, output.clone());
                let mine = control.clone();
                let thread = std::thread::Builder::new().name(format!("task {id}"));
                match thread.spawn(move || control.say(end_of(&task, &control))) {
                    Ok(thread) => drop(self.0.insert(id, Running { control: mine, thread })),
                    Err(error) => refuse(output, Some(id), format!("no thread: {error}")),
                }
            }
            (Ask::Go, Some(running)) => running.control.go(),
            (Ask::Stop, Some(running)) => running.control.stop(),
            // It has ended, and said so: the two crossed on their way.
            (Ask::Go | Ask::Stop, None) => {}
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for running in self.0.values() {
            running.control.stop();
        }
        for (_, running) in self.0.drain() {
            let _ = running.thread.join();
        }
    }
}

/// Does a task, and says how it ended.
fn end_of(task: &Task, control: &Control) -> Said {
    match run(task, control) {
        Ok(outcome) => Said::Done(Box::new(outcome)),
        Err(error) => Said::Error(format!("{error:#}")),
    }
}

fn run(task: &Task, control: &Control) -> Result<Outcome> {
    match task {
        Task::Echo(task) => task.run(control),
        Task::Probe(task) => task.run(control),
        Task::Send(task) => task.run(control),
        Task::Receive(task) => task.run(control),
        Task::Flood(task) => task.run(control),
        Task::Sink(task) => task.run(control),
        Task::Capture(task) => task.run(control),
        Task::StreamServer(task) => task.run(control),
        Task::StreamClient(task) => task.run(control),
        Task::Ping(task) => task.run(control),
        Task::IperfServer(task) => task.run(control),
        Task::IperfClient(task) => task.run(control),
        Task::Count(task) => task.run(control),
        Task::Replay(task) => task.run(control),
        Task::Speed(task) => task.run(control),
    }
}
