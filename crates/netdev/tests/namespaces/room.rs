//! Devices without room: the frames that they leave, and the signal that they have room again.

use crate::lab::{Lab, Queues};
use netdev::{Frame, Tap, Tx, TxReport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::Arc;
use std::time::Duration;
use testkit::{Netns, eventually, skip};

/// Frames with a number.
fn frames(count: u32) -> Vec<Frame> {
    (0..count)
        .map(|n| {
            let mut packet = vec![0; 1_000];
            packet[..6].fill(0xff);
            packet[6] = 2;
            packet[12..14].copy_from_slice(&[0x88, 0xb5]);
            packet[14..18].copy_from_slice(&n.to_be_bytes());
            Frame::from_slice(&packet)
        })
        .collect()
}

/// Offers frames until all are taken; says how often there was no room, and how often it could be
/// waited for.
fn offer_all(tx: &mut dyn Tx, frames: &mut Vec<Frame>) -> (TxReport, u32, u32) {
    let (mut report, mut full, mut waited) = (TxReport::default(), 0, 0);
    while !frames.is_empty() {
        assert!(full < 10_000, "the device takes no more");
        report += tx.offer(frames);
        if frames.is_empty() {
            break;
        }
        full += 1;
        match tx.room() {
            None => std::thread::sleep(Duration::from_micros(500)),
            Some(fd) => {
                let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
                let timeout = Timespec { tv_sec: 5, tv_nsec: 0 };
                waited += poll(&mut fds, Some(&timeout)).unwrap() as u32;
            }
        }
    }
    (report, full, waited)
}

/// The numbers of arriving packets, until `count` have come.
fn arrived(host: &mut Queues, count: usize) -> Vec<u32> {
    let (mut frames, mut numbers) = (Vec::new(), Vec::new());
    eventually("all have arrived", || {
        while host.rx.recv(&mut frames, 32).unwrap() > 0 {}
        numbers.extend(frames.drain(..).filter_map(|frame| {
            let data = frame.data();
            (data[12..14] == [0x88, 0xb5]).then(|| u32::from_be_bytes([data[14], data[15], data[16], data[17]]))
        }));
        (numbers.len() >= count).then_some(())
    });
    numbers
}

/// A token bucket of 50 Mbit/s at the switch's end, where the kernel has one.
fn slow(lab: &Lab, limit: u32) -> bool {
    let limit = limit.to_string();
    let command = [
        "tc", "qdisc", "add", "dev", "oxp1", "root", "tbf", "rate", "50mbit", "burst", "3000", "limit",
    ];
    let done = lab.sw.try_run(&[&command[..], &[&limit]].concat(), &[]);
    if !done.ok() {
        eprintln!("skipped: no token bucket filter in this kernel");
    }
    done.ok()
}

#[test]
fn what_is_under_way_in_a_device_is_limited_and_the_rest_waits_until_there_is_room() {
    skip!(unless root, "ip", "tc");
    let lab = Lab::new();
    if !slow(&lab, 10_000_000) {
        return;
    }
    let (mut port, mut host) = (lab.port("oxp1"), lab.host(&lab.h1));
    port.tx.limit(16 << 10);
    let (report, full, waited) = offer_all(&mut *port.tx, &mut frames(300));
    assert_eq!((report.packets, report.dropped), (300, 0));
    assert!(full > 0 && waited == full, "{full} {waited}");
    assert!(port.tx.under_way().unwrap() > 0);
    assert!(port.tx.room().is_none());
    assert!(arrived(&mut host, 300).into_iter().eq(0..300));
    assert_eq!(port.tx.under_way(), Some(0));
}

#[test]
fn what_a_full_queue_of_the_kernel_refuses_is_left_and_can_be_offered_again() {
    skip!(unless root, "ip", "tc");
    let lab = Lab::new();
    if !slow(&lab, 6_000) {
        return;
    }
    let (mut port, mut host) = (lab.port("oxp1"), lab.host(&lab.h1));
    let (report, full, waited) = offer_all(&mut *port.tx, &mut frames(300));
    assert_eq!((report.packets, report.dropped), (300, 0));
    assert!(full > 0 && waited == 0, "{full} {waited}");
    assert!(arrived(&mut host, 300).into_iter().eq(0..300));
}

#[test]
fn a_tap_device_with_a_limit_passes_everything() {
    skip!(unless root, "ip");
    let sw = Netns::new("sw");
    let mut tap = sw.enter(|| Queues::open(Arc::new(Tap::internal("oxint", None, 1_500).unwrap())));
    tap.device.set_up(true).unwrap();
    tap.tx.limit(16 << 10);
    let (report, ..) = offer_all(&mut *tap.tx, &mut frames(1_000));
    assert_eq!((report.packets, report.dropped, report.errors), (1_000, 0, 0));
    let received = sw.run(&["cat", "/sys/class/net/oxint/statistics/rx_packets"]);
    assert!(received.trim().parse::<u64>().unwrap() >= 1_000, "{received}");
}
