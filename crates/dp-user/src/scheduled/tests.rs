use super::*;
use crate::stats::WorkerStats;
use netdev::Dummy;
use qos::PortSpeed;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

const NOW: Nanos = Nanos::from_secs(1);

struct Fixture {
    device: Arc<Dummy>,
    queue: PortQueue,
    stats: PortStats,
    worker: WorkerStats,
}

impl Fixture {
    /// Of 1 Mbit/s.
    fn new() -> Fixture {
        let device = Arc::new(Dummy::open("p", &BTreeMap::new()).unwrap());
        Fixture {
            queue: PortQueue::new(&*device, &Fixture::speed(1_000_000)).unwrap(),
            device,
            stats: PortStats::default(),
            worker: WorkerStats::default(),
        }
    }

    fn speed(bits: u64) -> PortConfig {
        PortConfig {
            discipline: Discipline::Noop,
            speed: Some(PortSpeed::new(bits).unwrap()),
        }
    }

    fn visit(&self, number: u32, frames: usize, now: Nanos) -> Visit {
        let visitor = Visitor {
            number,
            stats: &self.stats,
            drops: DropSink {
                worker: &self.worker,
                port: Some(&self.stats),
            },
        };
        let mut frames = (0..frames).map(|_| Frame::from_slice(&[0; 976])).collect();
        self.queue.visit(&mut frames, &visitor, now)
    }
}

#[test]
fn one_visitor_has_the_port_on_its_mind_until_another_knows_of_something_earlier_or_it_is_late() {
    let fixture = Fixture::new();
    let queue = &fixture.queue;
    assert_eq!((queue.join(), queue.join()), (1, 2));
    // 8 ms each on the link, less half a millisecond for what may be made up for.
    let first = fixture.visit(1, 3, NOW).wake.unwrap();
    assert!(first > NOW && first <= NOW + Duration::from_millis(8));
    assert_eq!(fixture.visit(2, 1, NOW).wake, None);
    assert_eq!(fixture.visit(1, 0, NOW).wake, Some(first));
    // The first does not come: the second sends, and takes over the claim.
    let later = first + Duration::from_micros(300);
    let second = fixture.visit(2, 0, later).wake.unwrap();
    assert_eq!(fixture.device.take_sent().len(), 2);
    assert_eq!(fixture.visit(1, 0, later).wake, None);
    // A faster link makes the next packet due earlier, for any visitor.
    queue
        .reconfigure(&Fixture::speed(100_000_000), later, &mut |_| ())
        .unwrap();
    assert!(
        fixture
            .visit(1, 1, second)
            .wake
            .is_none_or(|wake| wake <= second + Duration::from_millis(1))
    );
    let end = second + Duration::from_millis(10);
    let last = fixture.visit(2, 0, end);
    assert!(last.wake.is_none() && !last.over);
    assert_eq!(fixture.device.take_sent().len(), 3);
}

#[test]
fn a_clock_that_is_behind_another_workers_does_no_harm() {
    let fixture = Fixture::new();
    fixture.visit(1, 5, NOW + Duration::from_millis(100));
    let visit = fixture.visit(2, 1, NOW);
    assert_eq!((visit.wake, visit.over), (None, false));
    assert_eq!(fixture.queue.report().queues[0].1.backlog_packets, 5);
}

#[test]
fn a_released_queue_sends_all_it_has_and_tells_when_it_is_over() {
    let fixture = Fixture::new();
    fixture.visit(1, 100, NOW);
    fixture.device.set_room(Some(30));
    fixture.queue.release(NOW);
    let visit = fixture.visit(1, 0, NOW);
    assert!(!visit.over && visit.wake.is_some());
    let report = fixture.queue.report();
    assert!(report.held_packets > 0 && report.held_bytes == 976 * report.held_packets);
    fixture.device.set_room(None);
    let visit = fixture.visit(1, 1, visit.wake.unwrap());
    assert!(visit.over && visit.wake.is_none());
    assert_eq!(fixture.device.take_sent().len(), 101);
    assert_eq!(fixture.queue.clear(), 0);
}

#[test]
fn a_frame_of_a_control_protocol_leaves_before_all_that_is_queued_and_does_not_wait_for_the_speed() {
    let fixture = Fixture::new();
    fixture.visit(1, 100, NOW);
    fixture.device.take_sent();
    let visitor = Visitor {
        number: 1,
        stats: &fixture.stats,
        drops: DropSink {
            worker: &fixture.worker,
            port: Some(&fixture.stats),
        },
    };
    fixture.queue.put_ahead(Frame::from_slice(&[7; 60]), &visitor);
    fixture.visit(1, 0, NOW);
    let sent: Vec<usize> = fixture.device.take_sent().iter().map(|packet| packet.len()).collect();
    assert_eq!(sent, [60]);
    fixture.device.set_room(Some(0));
    for n in 0..AHEAD as u8 + 3 {
        fixture.queue.put_ahead(Frame::from_slice(&[n; 60]), &visitor);
    }
    assert_eq!(fixture.worker.dropped(DropCause::DeviceFull), 3);
}

/// Refuses frames whose last byte is not 0, as a full queue does.
struct Filter(Arc<Mutex<Vec<u8>>>);

impl Tx for Filter {
    fn send(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        self.offer(frames)
    }

    fn offer(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        let wanted = |frame: &Frame| frame.data()[59] == 0;
        let n = frames.iter().position(|frame| !wanted(frame)).unwrap_or(frames.len());
        self.0.lock().extend(frames.drain(..n).map(|frame| frame.data()[0]));
        TxReport {
            packets: n as u64,
            ..TxReport::default()
        }
    }
}

#[test]
fn a_frame_that_a_device_never_takes_holds_up_the_others_for_a_short_time_only() {
    let fixture = Fixture::new();
    let unshaped = PortConfig::new(Discipline::Leaf(LeafConfig::default()));
    fixture.queue.reconfigure(&unshaped, NOW, &mut |_| ()).unwrap();
    let sent = Arc::default();
    fixture.queue.state.lock().device.tx = Some(Box::new(Filter(Arc::clone(&sent))));
    // One among others, then two that nothing follows.
    let refused = [0, 0, 1, 0, 0, 1, 1];
    let mut frames: Vec<Frame> = (0..7_u8)
        .map(|n| {
            let mut packet = [n; 60];
            packet[59] = refused[usize::from(n)];
            Frame::from_slice(&packet)
        })
        .collect();
    let visitor = Visitor {
        number: 1,
        stats: &fixture.stats,
        drops: DropSink {
            worker: &fixture.worker,
            port: Some(&fixture.stats),
        },
    };
    let mut wake = fixture.queue.visit(&mut frames, &visitor, NOW).wake;
    let mut last = NOW;
    let mut others_went = None;
    while let Some(at) = wake {
        last = at;
        wake = fixture.queue.visit(&mut frames, &visitor, at).wake;
        if sent.lock().len() == 4 {
            others_went.get_or_insert(at);
        }
    }
    assert_eq!(*sent.lock(), [0, 1, 3, 4]);
    assert!(others_went.unwrap() < NOW + Duration::from_millis(3));
    assert!(last < NOW + Duration::from_millis(600));
    assert_eq!(fixture.worker.dropped(DropCause::DeviceFull), 3);
}

/// Signals that it was asked to send, and sends when the test allows it.
struct Slow {
    asked: Sender<()>,
    go: Receiver<()>,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Tx for Slow {
    fn send(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        self.offer(frames)
    }

    fn offer(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        self.asked.send(()).unwrap();
        self.go.recv().unwrap();
        let packets = frames.len() as u64;
        self.sent.lock().extend(frames.drain(..).map(|frame| frame.data()[0]));
        TxReport {
            packets,
            ..TxReport::default()
        }
    }
}

#[test]
fn a_worker_queues_its_frames_while_another_is_sending_and_that_one_sends_them_in_order() {
    let fixture = Arc::new(Fixture::new());
    let unshaped = PortConfig::new(Discipline::Leaf(LeafConfig::default()));
    fixture.queue.reconfigure(&unshaped, NOW, &mut |_| ()).unwrap();
    let ((asked, is_asked), (tell, go)) = (mpsc::channel(), mpsc::channel());
    let sent = Arc::default();
    fixture.queue.state.lock().device.tx = Some(Box::new(Slow {
        asked,
        go,
        sent: Arc::clone(&sent),
    }));
    let visit = |number: u32, first: u8| {
        let (fixture, (done, visited)) = (fixture.clone(), mpsc::channel());
        thread::spawn(move || {
            let mut frames = (first..first + 3).map(|n| Frame::from_slice(&[n; 60])).collect();
            let (stats, worker) = (PortStats::default(), WorkerStats::default());
            let drops = DropSink {
                worker: &worker,
                port: None,
            };
            let visitor = Visitor {
                number,
                stats: &stats,
                drops,
            };
            let visit = fixture.queue.visit(&mut frames, &visitor, NOW);
            done.send((visit.wake, stats.tx_packets.get())).unwrap();
        });
        visited
    };
    let patience = Duration::from_secs(60);
    let first = visit(1, 0);
    is_asked.recv_timeout(patience).unwrap();
    let second = visit(2, 3);
    assert_eq!(
        second.recv_timeout(patience),
        Ok((None, 0)),
        "it does not wait for the first"
    );
    for _ in 0..2 {
        tell.send(()).unwrap();
    }
    assert_eq!(first.recv_timeout(patience), Ok((None, 6)));
    assert_eq!(*sent.lock(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_worker_with_a_claim_that_finds_another_sending_leaves_the_queue_to_it() {
    let fixture = Fixture::new();
    let wake = fixture.visit(1, 3, NOW).wake.unwrap();
    fixture.queue.state.lock().device.sending = true;
    assert_eq!(fixture.visit(1, 0, wake).wake, None);
    fixture.queue.state.lock().device.sending = false;
    assert!(fixture.visit(2, 0, wake).wake.is_some());
}

#[test]
fn segments_are_cut_for_a_link_whose_speed_becomes_known_later() {
    let fixture = Fixture::new();
    let rate = || fixture.queue.state.lock().device_rate;
    assert_eq!(rate(), None);
    fixture.queue.set_speed(Some(10_000_000));
    assert_eq!(rate(), Some(1250));
    fixture.queue.set_speed(None);
    assert_eq!(rate(), None);
}
