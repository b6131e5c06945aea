//! Receiving from rings: order, lent places that come back, and a ring without free places.

use crate::lab::{Lab, Queues};
use netdev::{Frame, Netdev, Rx, System};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use testkit::skip;

/// Held by each test here: one takes all the memory that there is for rings, and the others want to
/// have some.
static MEMORY: Mutex<()> = Mutex::new(());

/// A frame with a number, of a protocol for experiments, as long as asked for.
fn numbered(number: u32, len: usize) -> Frame {
    let mut packet = vec![0; len];
    packet[..14].copy_from_slice(b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x88\xb5");
    packet[14..18].copy_from_slice(&number.to_be_bytes());
    Frame::from_slice(&packet)
}

/// The number of such a frame.
fn number(frame: &Frame) -> Option<u32> {
    let rest = frame.data()[12..].strip_prefix(b"\x88\xb5")?;
    Some(u32::from_be_bytes(*rest.first_chunk()?))
}

/// Appends the packets received now to `frames`, without those of hosts that search for others.
fn receive(rx: &mut dyn Rx, frames: &mut Vec<Frame>) {
    while rx.recv(frames, 32).unwrap() > 0 {}
    frames.retain(|frame| number(frame).is_some());
}

/// A lab whose device `eth0` on one side sends packets of up to 9000 bytes, and the port on the
/// other, opened when its MTU was the usual.
fn jumbo() -> (Lab, Queues, Queues) {
    let lab = Lab::new();
    let (host, port) = (lab.host(&lab.h1), lab.port("oxp1"));
    lab.h1.ip("link set eth0 mtu 9000");
    lab.sw.ip("link set oxp1 mtu 9000");
    (lab, host, port)
}

#[test]
fn short_and_long_packets_come_in_the_order_in_which_they_were_sent() {
    skip!(unless root, "ip");
    let _memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let (_lab, mut host, mut port) = jumbo();
    let mut frames = Vec::new();
    let (mut sent, mut came) = (0, Vec::new());
    for round in 0..40_usize {
        for at in 0..17_usize {
            let len = if (round * 7 + at * 5) % 3 == 0 {
                5000 + at
            } else {
                60 + at
            };
            assert_eq!(host.send(numbered(sent, len)).packets, 1);
            sent += 1;
        }
        receive(port.rx.as_mut(), &mut frames);
        came.extend(frames.drain(..).filter_map(|frame| number(&frame)));
    }
    assert_eq!(came, (0..sent).collect::<Vec<_>>());
}

#[test]
fn a_frame_that_is_kept_stays_what_it_was_however_much_comes_after_it_and_if_its_device_is_closed() {
    skip!(unless root, "ip");
    let _memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let (_lab, mut host, mut port) = jumbo();
    let mut kept = Vec::new();
    for (at, len) in [(1, 200), (2, 5000)] {
        host.send(numbered(at, len));
    }
    receive(port.rx.as_mut(), &mut kept);
    let before: Vec<_> = kept.iter().map(|frame| frame.data().to_vec()).collect();
    assert_eq!(before.len(), 2);
    // More than there are places.
    for at in 0..3000 {
        host.send(numbered(1000 + at, 100 + at as usize % 7000));
        let mut others = Vec::new();
        receive(port.rx.as_mut(), &mut others);
    }
    drop(port);
    let after: Vec<_> = kept.iter().map(|frame| frame.data().to_vec()).collect();
    assert_eq!(after, before);
}

#[test]
fn detached_frames_leave_their_places_to_others_and_those_that_are_kept_do_not() {
    skip!(unless root, "ip");
    let _memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let (_lab, mut host, mut port) = jumbo();
    // More than there are places.
    const SENT: u32 = 1100;
    let mut keep = |detach: bool| {
        let (mut all, mut frames) = (Vec::new(), Vec::new());
        for at in 0..SENT {
            host.send(numbered(at, 200));
            receive(port.rx.as_mut(), &mut frames);
            for mut frame in frames.drain(..) {
                if detach {
                    frame.detach();
                }
                all.push(frame);
            }
        }
        (all.len(), port.device.drops().queue_full)
    };
    assert_eq!(keep(true), (SENT as usize, 0), "as if they had been dropped");
    let (received, lost) = keep(false);
    assert_eq!(
        received as u64 + lost,
        u64::from(SENT),
        "what finds no place is counted"
    );
    assert!(received < SENT as usize, "a place is not used twice");
}

#[test]
fn a_device_of_many_finds_no_memory_for_rings_left_and_receives_all_the_same() {
    skip!(unless root, "ip");
    let _memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let lab = Lab::new();
    let mut host = lab.host(&lab.h1);
    let device = lab
        .sw
        .enter(|| Arc::new(System::open("oxp1", netdev::Isolation::Off).unwrap()));
    let mut queues: Vec<_> = (0..140)
        .map(|_| lab.sw.enter(|| device.open_rx().unwrap().remove(0)))
        .collect();
    // The last ones have one descriptor, as they have one socket without a ring.
    assert!(queues[0].is_free_to_ask() && !queues[139].is_free_to_ask());
    host.send(numbered(7, 100));
    for rx in [0, 139] {
        let mut frames = Vec::new();
        receive(queues[rx].as_mut(), &mut frames);
        assert_eq!(frames.iter().filter_map(number).collect::<Vec<_>>(), [7]);
    }
}

#[test]
fn of_many_long_segments_that_nobody_takes_yet_none_is_lost() {
    skip!(unless root, "ip");
    let _memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let (_lab, mut host, mut port) = jumbo();
    let sent = 500;
    for at in 0..sent {
        assert_eq!(host.send(numbered(at, 9000 + at as usize % 14)).packets, 1);
    }
    let mut frames = Vec::new();
    receive(port.rx.as_mut(), &mut frames);
    let came: Vec<_> = frames.iter().map(|frame| (number(frame), frame.data().len())).collect();
    let wanted: Vec<_> = (0..sent).map(|at| (Some(at), 9000 + at as usize % 14)).collect();
    assert_eq!(came, wanted);
    assert_eq!(port.device.drops().queue_full, 0);
}

#[test]
fn packets_that_come_while_others_are_taken_are_what_they_were_sent_as() {
    skip!(unless root, "ip");
    let _memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let (_lab, mut host, mut port) = jumbo();
    let sent = 20_000;
    let len = |number: u32| {
        if number.is_multiple_of(3) {
            5000
        } else {
            60 + number as usize % 100
        }
    };
    let (mut frames, mut last) = (Vec::new(), None);
    // So far ahead that packets come while others are taken, and not so far that the ring fills up
    // where the receiver has no processor for long.
    let (ahead, taken, begun) = (1_000, AtomicU32::new(0), Instant::now());
    std::thread::scope(|scope| {
        let taken = &taken;
        let sender = scope.spawn(move || {
            for at in 0..sent {
                // Where the test has failed, nobody takes any more.
                while at > taken.load(Ordering::Relaxed) + ahead && begun.elapsed() < Duration::from_secs(20) {
                    std::thread::yield_now();
                }
                host.send(numbered(at, len(at)));
            }
            host
        });
        loop {
            let over = sender.is_finished();
            receive(port.rx.as_mut(), &mut frames);
            for frame in frames.drain(..) {
                let number = number(&frame);
                assert!(number > last, "{number:?} came after {last:?}");
                assert_eq!(number.map(len), Some(frame.data().len()));
                last = number;
                taken.store(number.unwrap_or_default(), Ordering::Relaxed);
            }
            if over {
                break;
            }
        }
    });
    assert_eq!(last, Some(sent - 1));
}
