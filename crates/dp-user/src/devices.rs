//! Slow queries about devices: a request by netlink or ethtool waits while another process
//! configures devices. A thread of its own asks the kernel for the workers, and answers with a
//! command.

use crate::command::{Command, CommandQueue, Released};
use flow::PortNo;
use netdev::Netdev;
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;

/// The way to that thread, which ends with the last of these.
#[derive(Clone)]
pub(crate) struct Devices(Sender<Job>);

/// A job of the thread.
enum Job {
    Answer(Request),
    Drop(Released),
}

/// A question, and whom to answer.
pub(crate) struct Request {
    pub(crate) port: PortNo,
    pub(crate) device: Arc<dyn Netdev>,
    pub(crate) what: What,
    pub(crate) to: Arc<CommandQueue>,
}

/// A worker's query.
pub(crate) enum What {
    /// Whether the device of a receive queue still exists under this number. The answer is
    /// [`Command::Checked`].
    Check { queue: u32, ifindex: u32 },
    /// A transmit handle. The answer is [`Command::Opened`], if the device can be opened.
    Open,
}

impl Devices {
    /// Starts the thread, in the network namespace of the caller.
    ///
    /// # Errors
    /// The kernel cannot create a thread.
    pub(crate) fn start() -> io::Result<Devices> {
        let (ask, asked) = mpsc::channel();
        let work = move || {
            for job in asked {
                match job {
                    Job::Answer(request) => request.answer(),
                    Job::Drop(released) => drop(released),
                }
            }
        };
        thread::Builder::new().name("oxvs-devices".to_owned()).spawn(work)?;
        Ok(Devices(ask))
    }

    /// Asks, and does not wait.
    pub(crate) fn ask(&self, request: Request) {
        // The thread lives as long as anybody can ask.
        let _ = self.0.send(Job::Answer(request));
    }

    /// Drops resources that the kernel may take long to close or to free.
    pub(crate) fn drop(&self, released: Released) {
        let _ = self.0.send(Job::Drop(released));
    }
}

impl Request {
    fn answer(self) {
        let Request { port, device, what, to } = self;
        match what {
            What::Check { queue, ifindex } => {
                let vanished = match device.state() {
                    Ok(state) => state.ifindex != ifindex,
                    Err(error) => Errno::from_io_error(&error) == Some(Errno::NODEV),
                };
                drop(device);
                to.push(Command::Checked { port, queue, vanished });
            }
            What::Open => match device.open_tx() {
                Ok(tx) => to.push(Command::Opened { port, device, tx }),
                // The worker asks again.
                Err(error) => {
                    let (name, error) = (device.name(), sys::strerror(&error));
                    telemetry::warn_limited!(target: "dpif_netdev", "{name}: cannot open the device to send: {error}");
                }
            },
        }
    }
}
