//! Runs a scenario on the running kernel: its qdisc on one end of a veth pair; the packets are read
//! at the other.

use crate::offer;
use crate::record::{Fate, Record};
use crate::scenario::{DEV, Scenario};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use sys::PacketSocket;
use testkit::Netns;

/// After this silence no further packet is expected.
const SILENCE: Duration = Duration::from_millis(400);

/// Runs a scenario; the error is the message of a failed `tc` command. A polite sender yields to
/// the kernel and the receiver if all are on one processor.
pub(crate) fn run(scenario: &Scenario, polite: bool) -> Result<Record, String> {
    let from = Netns::new("from");
    let to = Netns::new("to");
    from.veth(DEV, &to, DEV);
    for line in &scenario.tc {
        let command = format!("tc {line}");
        let done = from.try_run(&command.split(' ').collect::<Vec<_>>(), &[]);
        if !done.ok() {
            return Err(format!("{command}: {}", done.stderr.trim()));
        }
    }
    let sender = from.enter(|| socket(false));
    let receiver = to.enter(|| socket(true));
    let sending = AtomicBool::new(true);
    let begin = Instant::now() + Duration::from_millis(20);
    let fates = std::thread::scope(|scope| {
        let arrivals = scope.spawn(|| receive(&receiver, &sending));
        let mut fates = scope
            .spawn(|| send(&sender, scenario, begin, polite))
            .join()
            .expect("the sender");
        sending.store(false, Ordering::Relaxed);
        for (number, marked, at) in arrivals.join().expect("the receiver") {
            if let Some(fate) = fates.get_mut(number as usize) {
                assert_eq!(fate.left, None, "packet {number} came twice");
                fate.left = Some(((at - begin).as_micros() as u64).max(fate.sent));
                fate.marked = marked;
            }
        }
        fates
    });
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Ok(Record {
        kernel: kernel.trim().to_owned(),
        fates,
    })
}

fn send(sender: &PacketSocket, scenario: &Scenario, begin: Instant, polite: bool) -> Vec<Fate> {
    if polite {
        rustix::process::setpriority_process(None, 19).expect("a lower priority");
    }
    let send = |(number, offer): (usize, &offer::Offer)| {
        let frame = offer.frame(number as u32);
        let at = begin + Duration::from_micros(offer.at);
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        let sent = (Instant::now() - begin).as_micros() as u64;
        // A qdisc that drops the packet reports an error to the sender, which is no failure.
        let _ = rustix::net::send(sender, &frame, rustix::net::SendFlags::empty());
        Fate {
            sent,
            left: None,
            marked: false,
        }
    };
    scenario.offers.iter().enumerate().map(send).collect()
}

fn socket(receive: bool) -> PacketSocket {
    let socket = PacketSocket::new().expect("a packet socket");
    let index = rustix::net::netdevice::name_to_index(&socket, DEV).expect("the device");
    socket.set_receive_buffer(16 << 20).expect("room");
    socket.set_send_buffer(64 << 20).expect("room");
    socket.bind(index, receive).expect("bound");
    socket
}

fn receive(socket: &PacketSocket, sending: &AtomicBool) -> Vec<(u32, bool, Instant)> {
    let mut came = vec![];
    let mut frame = [0; 2048];
    loop {
        let limit = Timespec::try_from(SILENCE).ok();
        let ready = poll(&mut [PollFd::new(socket, PollFlags::IN)], limit.as_ref());
        if ready == Ok(0) && !sending.load(Ordering::Relaxed) {
            return came;
        }
        while let Ok((length, _)) = rustix::net::recv(socket.as_fd(), &mut frame[..], rustix::net::RecvFlags::empty()) {
            let now = Instant::now();
            if let Some((number, marked)) = offer::number(&frame[..length]) {
                came.push((number, marked, now));
            }
        }
    }
}
