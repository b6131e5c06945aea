//! A connection's bytes: from the socket to the agent, and back.

use super::BridgeAgent;
use super::output::Output;
use mgmt::stream::Stream;
use ofproto::{ConnId, Run};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

/// Why a connection ended whose peer closed it.
pub(crate) const CLOSED: &str = "connection closed by peer";

/// Messages, or parts of long answers, after which other tasks run.
const STEPS: usize = 64;
/// Bytes read at once.
const INPUT: usize = 64 << 10;
/// How long the thread polls for the next message before it sleeps. A peer that waits for each
/// answer before it sends the next message, as `ovs-ofctl add-flows` does, answers within this
/// time; waking the thread costs more than the message.
const SPIN: Duration = Duration::from_micros(100);
/// How long a rejected peer may take to read the error message.
const LINGER: Duration = Duration::from_secs(1);

/// Serves a connection until it ends. Returns the reason.
pub(super) async fn serve(bridge: Rc<BridgeAgent>, stream: Stream, id: ConnId, wake: Rc<Notify>) -> String {
    let why = match exchange(&bridge, stream, id, &wake).await {
        Ok(why) => why,
        Err(error) => error.to_string(),
    };
    bridge.ended(id);
    why
}

async fn exchange(bridge: &BridgeAgent, stream: Stream, id: ConnId, wake: &Notify) -> std::io::Result<String> {
    let (mut reader, mut writer) = stream.into_split();
    let mut input = vec![0; INPUT];
    let mut output = Output::default();
    let mut spin_until = None;
    loop {
        let Some(state) = bridge.state.upgrade() else {
            return Ok("the switch ends".to_owned());
        };
        let now = state.shared.clock.now();
        let (run, due) = {
            let mut agent = bridge.agent.borrow_mut();
            agent.tick(id, now);
            let run = agent.run(id, &*state, now, STEPS);
            if output.is_written() {
                output.put(agent.transmit(id));
            }
            (run, agent.deadline(id))
        };
        bridge.wake_but(Some(id));
        state.tables_touched();
        let wait = due.map(|due| Duration::from_nanos(due.0.saturating_sub(now.0)));
        let due = Instant::now() + wait.unwrap_or(Duration::from_secs(3600));
        drop(state);
        let idle = match run {
            Run::Close(why) => {
                let _ = timeout(LINGER, output.send(&mut writer)).await;
                return Ok(why.to_string());
            }
            Run::Busy => {
                // Sends without waiting.
                if output.is_pending() {
                    let mut send = std::pin::pin!(output.send(&mut writer));
                    let sent = std::future::poll_fn(|cx| Poll::Ready(send.as_mut().poll(cx))).await;
                    if let Poll::Ready(sent) = sent {
                        sent?;
                    }
                }
                tokio::task::yield_now().await;
                continue;
            }
            Run::Full | Run::Wait => false,
            Run::Idle => true,
        };
        let spins = idle && spin_until.is_some_and(|until| Instant::now() < until);
        tokio::select! {
            biased;
            sent = output.send(&mut writer), if output.is_pending() => sent?,
            read = reader.read(&mut input), if idle => match read? {
                0 => return Ok(CLOSED.to_owned()),
                n => {
                    bridge.agent.borrow_mut().receive(id, &input[..n]);
                    spin_until = Some(Instant::now() + SPIN);
                }
            },
            () = wake.notified() => {}
            // The runtime polls the sockets and runs the thread's other tasks.
            () = tokio::task::yield_now(), if spins => {}
            () = sleep_until(due) => {}
        }
    }
}
