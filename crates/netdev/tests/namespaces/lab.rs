//! Two hosts, a switch's namespace between them, and the simplest of forwarders.

use netdev::{Frame, Isolation, LinkMonitor, Netdev, Rx, System, Tx, TxReport};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use testkit::Netns;

/// Hosts with `eth0` and the addresses 192.168.77.1 and .2, whose other ends are `oxp1` and `oxp2`
/// in the switch's namespace.
pub(crate) struct Lab {
    pub(crate) h1: Netns,
    pub(crate) h2: Netns,
    pub(crate) sw: Netns,
}

impl Lab {
    pub(crate) fn new() -> Lab {
        let lab = Lab {
            h1: Netns::new("h1"),
            h2: Netns::new("h2"),
            sw: Netns::new("sw"),
        };
        for (host, port, address) in [
            (&lab.h1, "oxp1", "192.168.77.1/24"),
            (&lab.h2, "oxp2", "192.168.77.2/24"),
        ] {
            lab.sw.veth(port, host, "eth0");
            host.address("eth0", address);
        }
        lab
    }

    /// A port of the switch.
    pub(crate) fn port(&self, name: &str) -> Queues {
        self.port_with(name, Isolation::Auto)
    }

    pub(crate) fn port_with(&self, name: &str, isolation: Isolation) -> Queues {
        self.sw
            .enter(|| Queues::open(Arc::new(System::open(name, isolation).unwrap())))
    }

    /// A host's device, opened for raw packets; the host's stack sees them too.
    pub(crate) fn host(&self, host: &Netns) -> Queues {
        host.enter(|| Queues::open(Arc::new(System::open("eth0", Isolation::Off).unwrap())))
    }

    pub(crate) fn monitor(&self) -> LinkMonitor {
        self.sw.enter(|| LinkMonitor::open().unwrap())
    }
}

/// A device with its queues.
pub(crate) struct Queues {
    pub(crate) device: Arc<dyn Netdev>,
    pub(crate) rx: Box<dyn Rx>,
    pub(crate) tx: Box<dyn Tx>,
}

impl Queues {
    pub(crate) fn open(device: Arc<dyn Netdev>) -> Queues {
        let rx = device.open_rx().unwrap().remove(0);
        let tx = device.open_tx().unwrap();
        Queues { device, rx, tx }
    }

    /// Sends one frame.
    pub(crate) fn send(&mut self, frame: Frame) -> TxReport {
        self.tx.send(&mut vec![frame])
    }

    /// Waits up to two seconds for a frame that is wanted; others are thrown away.
    pub(crate) fn wait_for(&mut self, wanted: impl Fn(&Frame) -> bool) -> Option<Frame> {
        let mut frames = Vec::new();
        for _ in 0..20 {
            while self.rx.recv(&mut frames, 32).unwrap() > 0 {
                if let Some(at) = frames.iter().position(&wanted) {
                    return Some(frames.swap_remove(at));
                }
                frames.clear();
            }
            wait(&[self.rx.as_ref()], None);
        }
        None
    }
}

/// Forwards everything between two devices until it is stopped.
pub(crate) struct Forwarder {
    stop: Arc<OwnedFd>,
    thread: JoinHandle<Forwarded>,
}

/// The forwarded packets, and the devices.
pub(crate) struct Forwarded {
    pub(crate) report: TxReport,
    /// Frames of more than an Ethernet packet.
    pub(crate) large: u64,
    pub(crate) ports: [Queues; 2],
}

impl Forwarder {
    pub(crate) fn start(mut ports: [Queues; 2]) -> Forwarder {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut report, mut large, mut frames) = (TxReport::default(), 0, Vec::new());
            loop {
                let [a, b] = &mut ports;
                let mut moved = 0;
                for (rx, tx) in [(&mut a.rx, &mut b.tx), (&mut b.rx, &mut a.tx)] {
                    moved += rx.recv(&mut frames, 32).unwrap();
                    large += frames.iter().filter(|frame| frame.len() > 1518).count() as u64;
                    report += tx.send(&mut frames);
                }
                if moved == 0 && wait(&[a.rx.as_ref(), b.rx.as_ref()], Some(&stopped)) {
                    return Forwarded { report, large, ports };
                }
            }
        });
        Forwarder { stop, thread }
    }

    pub(crate) fn stop(self) -> Forwarded {
        rustix::io::write(&self.stop, &1_u64.to_ne_bytes()).unwrap();
        self.thread.join().unwrap()
    }
}

/// Waits until a queue is readable, 100 ms have passed, or `stop` is set; returns whether it is.
fn wait(queues: &[&dyn Rx], stop: Option<&OwnedFd>) -> bool {
    let mut fds: Vec<_> = queues
        .iter()
        .map(|rx| PollFd::from_borrowed_fd(rx.fd(), PollFlags::IN))
        .collect();
    fds.extend(stop.map(|stop| PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)));
    poll(
        &mut fds,
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        }),
    )
    .unwrap();
    stop.is_some() && fds.last().is_some_and(|fd| !fd.revents().is_empty())
}
