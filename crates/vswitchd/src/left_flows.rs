//! Offloaded flows that an orderly end leaves in force until the next start has its rules.
//!
//! Only where the configuration asks for it (`other_config:offload-hand-over`).
//! - The process that ends starts a [`keeper`], a small process that keeps open what the flows
//!   need, for so many seconds.
//! - The next process finds the keeper by its socket, and attaches its queues to the old programs:
//!   it sees the packets that the flows do not forward. The connections that it takes over count
//!   what the flows forward.
//! - Before the first change of rules by OpenFlow is acknowledged, the flows end, all at once, and
//!   the new process forwards alone ([`end`]). Where no rules are to come, since bridges work
//!   without a controller, they end once the configuration is applied; and at the latest when the
//!   keeper's time is over.

pub(crate) mod keeper;
mod wire;

use crate::connections::LeftConnections;
use crate::desired::Desired;
use crate::state::State;
use dp_ebpf::Left;
use dp_user::{DpUser, LeftFlows};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use switch::FailMode;
use sys::watch::Watched;
use tokio::io::Interest;
use wire::Message;

/// Longest `offload-hand-over`, in seconds.
pub(crate) const LONGEST: u64 = 600;

/// What the keeper's socket and the descriptors of its messages mean.
const FORMAT: u32 = 1;

/// How long each side waits for the other one's next message.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long packets may be on their way when a flow ends.
const ON_THEIR_WAY: Duration = Duration::from_millis(2);

fn path() -> PathBuf {
    mgmt::paths::in_rundir("ovs-vswitchd.flows")
}

/// Leaves the offloaded flows in force for some time, and the connections with them. The caller
/// ends. False if there are none, or it cannot be.
pub(crate) fn leave(datapath: &DpUser, time: Duration, leave_connections: impl FnOnce()) -> bool {
    let left = datapath.leave_offloaded().and_then(|programs| {
        let Some(programs) = programs else { return Ok(0) };
        // Before queues change hands, which closes flows: connections would forget their flows.
        leave_connections();
        let left = datapath.keep_offloaded(programs);
        match left.devices.len() {
            0 => Ok(0),
            _ => start_keeper(&left, time),
        }
    });
    match &left {
        Ok(0) => {}
        Ok(devices) => {
            let seconds = time.as_secs();
            tracing::info!(target: "dpif", "left the offloaded flows of {devices} devices in force for {seconds} s");
        }
        Err(error) => tracing::warn!(target: "dpif", "cannot leave offloaded flows in force: {error}"),
    }
    left.is_ok_and(|devices| devices > 0)
}

/// Starts a keeper, and waits until it can be found. Returns the number of devices.
fn start_keeper(left: &LeftFlows, time: Duration) -> io::Result<usize> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Command::new("/proc/self/exe")
        .arg0("oxvs")
        .arg(keeper::COMMAND)
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .spawn()?;
    wire::be_patient(&ours, PATIENCE)?;
    let programs: Vec<BorrowedFd<'_>> = left.programs.iter().map(AsFd::as_fd).collect();
    wire::send(&ours, &Message::Begin(FORMAT, time.as_secs() as u32), &programs)?;
    let sockets: Vec<BorrowedFd<'_>> = left.devices.iter().map(|kept| kept.socket.as_fd()).collect();
    for some in sockets.chunks(wire::MOST) {
        wire::send(&ours, &Message::Sockets, some)?;
    }
    wire::send_devices(&ours, left.devices.iter().map(|kept| &kept.device))?;
    wire::send(&ours, &Message::End, &[])?;
    match wire::receive(&ours)? {
        Some((Message::End, _)) => Ok(left.devices.len()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The flows of the process before, and who keeps them.
pub(crate) struct Inheritance {
    pub(crate) flows: Arc<Left>,
    pub(crate) connections: Arc<LeftConnections>,
    keeper: OwnedFd,
}

/// Takes over the flows that the process before has left, if it has left any. To be called before
/// devices are opened.
pub(crate) fn find() -> Option<Inheritance> {
    let keeper = match wire::connect(&path(), PATIENCE) {
        Ok(keeper) => keeper,
        Err(error) => {
            tracing::warn!(target: "dpif", "cannot ask for offloaded flows: {error}");
            None
        }
    }?;
    match take_over(&keeper) {
        Ok(flows) => Some(Inheritance {
            connections: LeftConnections::of(flows.clone()),
            flows,
            keeper,
        }),
        Err(error) => {
            tracing::warn!(target: "dpif", "cannot take over offloaded flows: {error}");
            end_keeper(&keeper);
            None
        }
    }
}

/// Lets a keeper end.
fn end_keeper(keeper: &OwnedFd) {
    // Without the message it ends when its time is over.
    let _ = wire::send(keeper, &Message::End, &[]);
    let _ = fs::remove_file(path());
}

fn take_over(keeper: &OwnedFd) -> io::Result<Arc<Left>> {
    let wrong = || io::Error::other("another version has left them");
    let Some((Message::Begin(FORMAT, _), programs)) = wire::receive(keeper)? else {
        return Err(wrong());
    };
    let flows = Arc::new(Left::new(programs)?);
    let mut devices = Vec::new();
    loop {
        match wire::receive(keeper)? {
            Some((Message::Devices(numbers), fds)) => devices.extend(wire::devices(&numbers, fds)?),
            Some((Message::End, _)) => break,
            _ => return Err(wrong()),
        }
    }
    tracing::info!(target: "dpif", "took over the offloaded flows of {} devices", devices.len());
    netdev::take_over(devices);
    Ok(flows)
}

/// Follows the first configuration, when it is applied: the flows end unless rules are still to
/// come, since some bridge has a controller, or forwards nothing without one. They end also where a
/// spanning tree begins anew, and where a device of theirs is not a port any more.
pub(crate) fn configured(state: &State, desired: &Desired) {
    if let Some(left) = &*state.inheritance.borrow() {
        // The queues have the filter now, which counts.
        let _ = wire::send(&left.keeper, &Message::Sockets, &[]);
    }
    let bridges = || desired.bridges.values();
    let rules = bridges().any(|bridge| bridge.fail_mode == FailMode::Secure || !bridge.controllers.is_empty());
    if !rules {
        end(state, "the configuration is applied");
    } else if bridges().any(|bridge| bridge.tree.is_some()) {
        end(state, "a spanning tree begins anew");
    } else if netdev::has_left() {
        end(state, "a device is not a port any more");
    }
}

/// Ends the flows of the process before, if there are any in force: from here on this process
/// forwards alone. Returns the thread that tidies up.
pub(crate) fn end(state: &State, why: &str) -> Option<JoinHandle<()>> {
    let Inheritance {
        flows,
        connections,
        keeper,
    } = state.inheritance.take()?;
    flows.end();
    tracing::info!(target: "dpif", "the offloaded flows of the process before end: {why}");
    let datapath = state.datapath.clone();
    // It takes its time: some milliseconds for a socket that is closed.
    let tidy = move || {
        std::thread::sleep(ON_THEIR_WAY);
        connections.close();
        datapath.attach_again();
        netdev::forget_left();
        end_keeper(&keeper);
    };
    let thread = std::thread::Builder::new().name("end-flows".to_owned()).spawn(tidy);
    thread
        .map_err(|error| tracing::error!(target: "dpif", "cannot start a thread: {error}; flows are not offloaded"))
        .ok()
}

/// Ends the flows of the process before when their keeper does.
pub(crate) async fn watch(state: Rc<State>) {
    let keeper = state.inheritance.borrow().as_ref().map(|left| left.keeper.try_clone());
    let watched = keeper.map(|fd| fd.and_then(|fd| Watched::new(fd, Interest::READABLE)));
    match watched {
        None => return,
        Some(Ok(watched)) => drop(watched.readable().await),
        Some(Err(error)) => tracing::warn!(target: "dpif", "cannot watch the keeper of offloaded flows: {error}"),
    }
    end(&state, "their time is over");
}
