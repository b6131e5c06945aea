//! The datapath with its threads.

use crate::common::{FakeSwitch, dummy, eventually, number, output, packet, translation};
use dp::{
    Action, Band, BandEffect, Datapath, DpError, DropCause, MAX_METERS, MAX_PORT_METERS, MeterConfig, MeterUnit, PortNo,
};
use dp_user::{DpUser, Options};
use flow::{Field, Mask};
use netdev::{DeviceDrops, Dummy, Frame, Kind, Netdev, Rx, State, Tx, TxReport};
use parking_lot::Mutex;
use qos::{Discipline, PortConfig, PortSpeed};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use wire::MacAddr;

fn options(workers: usize) -> Options {
    Options {
        workers,
        ..Options::default()
    }
}

/// Ports 0 to n − 1 on dummy devices; packets from one port leave by the next.
fn ring(ports: u32, workers: usize) -> (Arc<DpUser>, Vec<Arc<Dummy>>, Arc<FakeSwitch>) {
    let switch = FakeSwitch::new(move |key| {
        let to = (key.in_port().0 + 1) % ports;
        translation(&[output(to)], &[Field::InPort, Field::EthDst])
    });
    let datapath = DpUser::new(options(workers), switch.clone(), Arc::default()).unwrap();
    let devices: Vec<_> = (0..ports).map(|n| dummy(&format!("p{n}"))).collect();
    for (n, device) in (0..).zip(&devices) {
        datapath.add_port(PortNo(n), device.clone()).unwrap();
    }
    (datapath, devices, switch)
}

#[test]
fn workers_forward_between_ports_and_count() {
    for workers in 1..=3 {
        let (datapath, devices, _) = ring(4, workers);
        let mut sent = vec![Vec::new(); 4];
        for n in 0..400 {
            assert!(devices[n as usize % 4].inject(&packet(5, 1, n)));
        }
        eventually("all packets arrive", || {
            for (sent, device) in sent.iter_mut().zip(&devices) {
                sent.extend(device.take_sent());
            }
            sent.iter().map(Vec::len).sum::<usize>() == 400
        });
        for (port, sent) in (0..).zip(&sent) {
            let from = (port + 3) % 4;
            let expected: Vec<u32> = (0..100).map(|n| 4 * n + from).collect();
            let numbers: Vec<u32> = sent.iter().map(|packet| number(packet)).collect();
            assert_eq!(numbers, expected);
        }
        eventually("the counters follow", || {
            (0..4).all(|port| {
                let counters = datapath.port_counters(PortNo(port)).unwrap();
                (counters.rx_packets, counters.rx_bytes) == (100, 6000)
                    && (counters.tx_packets, counters.tx_bytes) == (100, 6000)
            })
        });
        assert_eq!(datapath.port_counters(PortNo(9)), None);
    }
}

#[test]
fn flows_are_dumped_and_flushed() {
    let (datapath, devices, switch) = ring(2, 2);
    let inject = |n: u32| assert!(devices[0].inject(&packet(n, 1, n)));
    (0..1000).for_each(inject);
    eventually("all megaflows are made", || datapath.dump_flows().len() == 1000);
    (0..1000).for_each(inject);
    eventually("each carried one more packet", || {
        datapath
            .dump_flows()
            .iter()
            .all(|flow| (flow.stats.packets, flow.stats.bytes) == (1, 60))
    });
    let mut mask = Mask::exact(Field::InPort);
    mask.add(Field::EthDst);
    for flow in datapath.dump_flows() {
        assert_eq!(flow.mask, mask);
        assert_eq!(flow.actions[..], [output(1)]);
        assert_eq!(flow.key.get(Field::EthSrc), 0);
        assert!(flow.stats.idle.is_some());
    }
    assert_eq!(switch.upcalls(), 1000);
    datapath.flush_flows();
    assert!(datapath.dump_flows().is_empty());
    eventually("the number is published", || datapath.cache_stats().flows == 0);
}

#[test]
fn the_control_plane_sends_packets() {
    let (datapath, devices, switch) = ring(3, 2);
    let packet = packet(5, 1, 42);
    datapath.execute(PortNo(0), &packet, &[output(1), output(2), output(9)]);
    let mut sent = Vec::new();
    eventually("both copies are sent", || {
        sent.extend(devices[1].take_sent());
        sent.extend(devices[2].take_sent());
        sent.len() == 2
    });
    assert_eq!(sent, [packet.clone(), packet]);
    eventually("the third is counted", || {
        datapath.drops().contains(&(DropCause::PortDown, 1))
    });
    assert_eq!(switch.upcalls(), 0);
}

#[test]
fn meters_are_shared_by_workers_and_controllers_get_what_the_control_plane_sends() {
    let switch = FakeSwitch::new(|key| {
        let to = (key.in_port().0 + 1) % 4;
        translation(&[Action::Meter(7), output(to)], &[Field::InPort])
    });
    let datapath = DpUser::new(options(2), switch.clone(), Arc::default()).unwrap();
    let devices: Vec<_> = (0..4).map(|n| dummy(&format!("p{n}"))).collect();
    for (n, device) in (0..).zip(&devices) {
        datapath.add_port(PortNo(n), device.clone()).unwrap();
    }
    // Ten at once, and then one a second.
    let config = MeterConfig {
        unit: MeterUnit::Pktps,
        bands: vec![Band {
            rate: 1,
            burst: 10,
            effect: BandEffect::Drop,
        }],
        cause: DropCause::Meter,
    };
    assert!(matches!(
        datapath.set_meter(MAX_METERS + MAX_PORT_METERS, &config),
        Err(DpError::BadMeter(_))
    ));
    datapath.set_meter(7, &config).unwrap();
    for n in 0..400 {
        assert!(devices[n as usize % 4].inject(&packet(5, 1, n)));
    }
    let measured = || datapath.meter_stats(7).map_or(0, |stats| stats.packets);
    eventually("all packets are measured", || measured() == 400);
    let dropped = datapath.meter_stats(7).unwrap().bands[0].packets;
    assert!((300..=390).contains(&dropped), "{dropped}");
    let counted = || {
        datapath
            .drops()
            .into_iter()
            .find(|(cause, _)| *cause == DropCause::Meter)
    };
    eventually("the drops are counted", || {
        counted() == Some((DropCause::Meter, dropped))
    });
    assert_eq!(datapath.del_meter(7).map(|stats| stats.packets), Some(400));
    assert_eq!(datapath.meter_stats(7), None);
    let controller = Action::Punt {
        reason: dp::PuntReason::Controller,
        handle: 3,
        max_len: 20,
    };
    datapath.execute(PortNo(2), &packet(5, 1, 9), &[controller]);
    eventually("the controller gets it", || !switch.punts.lock().is_empty());
    let expected = (3, PortNo(2), packet(5, 1, 9)[..20].to_vec());
    assert_eq!(*switch.punts.lock(), [expected]);
}

#[test]
fn a_port_number_is_used_once_and_a_missing_one_is_an_error() {
    let (datapath, _, _) = ring(2, 2);
    let again = datapath.add_port(PortNo(1), dummy("again"));
    assert!(matches!(again, Err(DpError::PortExists(PortNo(1)))));
    assert!(matches!(datapath.del_port(PortNo(7)), Err(DpError::NoPort(PortNo(7)))));
}

#[test]
fn ports_come_and_go_under_traffic_and_leave_nothing_behind() {
    let (datapath, devices, _) = ring(4, 2);
    let stop = Arc::new(AtomicBool::new(false));
    let sender = std::thread::spawn({
        let (devices, stop) = (devices.clone(), stop.clone());
        move || {
            for n in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                devices[n as usize % 4].inject(&packet(n % 50, 1, n));
                if n % 64 == 0 {
                    std::thread::yield_now();
                }
            }
        }
    });
    for _ in 0..200 {
        let device = dummy("guest");
        datapath.add_port(PortNo(4), device.clone()).unwrap();
        device.inject(&packet(1, 1, 0));
        datapath.del_port(PortNo(4)).unwrap();
        assert_eq!(Arc::strong_count(&device), 1, "no worker holds the device");
        datapath.del_port(PortNo(2)).unwrap();
        datapath.add_port(PortNo(2), devices[2].clone()).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    sender.join().unwrap();
    datapath.del_port(PortNo(2)).unwrap();
    assert!(datapath.dump_flows().iter().all(|flow| flow.key.in_port() != PortNo(2)));
}

#[test]
fn an_idle_datapath_sleeps() {
    let (datapath, devices, _) = ring(2, 2);
    devices[0].inject(&packet(5, 1, 0));
    eventually("the packet arrives", || devices[1].take_sent().len() == 1);
    datapath.flush_flows();
    let wakes = || -> u64 {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        tasks
            .flatten()
            .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok())
            .filter(|status| status.starts_with("Name:\toxvs-worker"))
            .flat_map(|status| {
                status
                    .lines()
                    .filter_map(|line| line.split_once("ctxt_switches:"))
                    .map(|(_, count)| count.trim().parse::<u64>().unwrap())
                    .collect::<Vec<_>>()
            })
            .sum()
    };
    // Workers of other tests run in this process too; at some moment none of them wakes.
    eventually("no worker wakes for a while", || {
        let before = wakes();
        std::thread::sleep(std::time::Duration::from_millis(50));
        wakes() == before
    });
}

#[test]
fn a_datapath_whose_switch_holds_it_ends() {
    let (datapath, _, switch) = ring(2, 2);
    drop(datapath);
    eventually("the workers let go of the switch", || Arc::strong_count(&switch) == 1);
}

/// A device that is always ready and always fails, or has nothing to say.
struct Broken {
    ready: Arc<OwnedFd>,
    errno: Option<Errno>,
    asked: Arc<AtomicU64>,
    gone: Arc<AtomicBool>,
    /// It can be opened for sending, and fails then.
    sends: AtomicBool,
    /// The threads that asked for its state, or opened it for sending.
    callers: Mutex<Vec<String>>,
}

impl Broken {
    fn new(errno: Option<Errno>) -> Arc<Broken> {
        let ready = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        Arc::new(Broken {
            ready: Arc::new(ready),
            errno,
            asked: Arc::default(),
            gone: Arc::default(),
            sends: AtomicBool::default(),
            callers: Mutex::default(),
        })
    }

    fn note_caller(&self) {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        self.callers.lock().push(name);
    }
}

impl Rx for Broken {
    fn fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    fn recv(&mut self, _: &mut Vec<Frame>, _: usize) -> io::Result<usize> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.errno.map_or(Ok(0), |errno| Err(errno.into()))
    }
}

impl Tx for Broken {
    fn send(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        let errors = frames.drain(..).count() as u64;
        TxReport {
            errors,
            ..TxReport::default()
        }
    }
}

impl Netdev for Broken {
    fn name(&self) -> &str {
        "broken"
    }
    fn kind(&self) -> Kind {
        Kind::Dummy
    }
    fn state(&self) -> io::Result<State> {
        self.note_caller();
        match self.gone.load(Ordering::Relaxed) {
            true => Err(Errno::NODEV.into()),
            false => Ok(State::default()),
        }
    }
    fn set_mtu(&self, _: u32) -> io::Result<()> {
        Ok(())
    }
    fn set_mac(&self, _: MacAddr) -> io::Result<()> {
        Ok(())
    }
    fn set_up(&self, _: bool) -> io::Result<()> {
        Ok(())
    }
    fn open_rx(&self) -> io::Result<Vec<Box<dyn Rx>>> {
        Ok(vec![Box::new(Broken {
            ready: self.ready.clone(),
            errno: self.errno,
            asked: self.asked.clone(),
            gone: self.gone.clone(),
            sends: AtomicBool::default(),
            callers: Mutex::default(),
        })])
    }
    fn open_tx(&self) -> io::Result<Box<dyn Tx>> {
        self.note_caller();
        match self.sends.load(Ordering::Relaxed) {
            true => Ok(Box::new(Arc::into_inner(Broken::new(None)).unwrap())),
            false => Err(Errno::NODEV.into()),
        }
    }
    fn drops(&self) -> DeviceDrops {
        DeviceDrops::default()
    }
    fn status(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

#[test]
fn a_device_that_keeps_failing_is_left_alone_and_disturbs_no_other() {
    for errno in [None, Some(Errno::NETDOWN), Some(Errno::IO)] {
        let (datapath, devices, switch) = ring(2, 1);
        let broken = Broken::new(errno);
        datapath.add_port(PortNo(5), broken.clone()).unwrap();
        eventually("it was asked often enough", || {
            broken.asked.load(Ordering::Relaxed) > 16
        });
        devices[0].inject(&packet(5, 1, 0));
        eventually("the packet arrives", || devices[1].take_sent().len() == 1);
        // From here on the time between attempts doubles, up to a second.
        let asked = broken.asked.load(Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(broken.asked.load(Ordering::Relaxed) - asked < 100);
        assert!(switch.failed.lock().is_empty());
        datapath.del_port(PortNo(5)).unwrap();
        assert_eq!(Arc::strong_count(&broken), 1);
    }
}

#[test]
fn no_worker_waits_for_the_kernels_control_plane() {
    let (datapath, devices, switch) = ring(2, 1);
    datapath.del_port(PortNo(1)).unwrap();
    let broken = Broken::new(None);
    datapath.add_port(PortNo(1), broken.clone()).unwrap();
    let counters = || datapath.port_counters(PortNo(1)).unwrap();
    let send = || assert!(devices[0].inject(&packet(5, 1, 0)));
    send();
    eventually("a packet is lost for want of a way to send", || {
        counters().tx_dropped > 0
    });
    broken.sends.store(true, Ordering::Relaxed);
    eventually("there is a way to send some time", || {
        send();
        counters().tx_errors > 0
    });
    let shaped = PortConfig {
        speed: PortSpeed::new(1_000_000_000).ok(),
        ..PortConfig::new(Discipline::Noop)
    };
    let errors = counters().tx_errors;
    datapath.set_qos(PortNo(1), Some(&shaped)).unwrap();
    eventually("it sends by way of a scheduler", || {
        send();
        counters().tx_errors > errors
    });
    let (errors, dropped) = (counters().tx_errors, counters().tx_dropped);
    datapath.set_qos(PortNo(1), None).unwrap();
    eventually("it sends without one again", || {
        send();
        counters().tx_errors > errors + 3
    });
    assert_eq!(counters().tx_dropped, dropped);
    eventually("the queue was looked into in vain", || {
        broken.asked.load(Ordering::Relaxed) > 16
    });
    broken.gone.store(true, Ordering::Relaxed);
    eventually("the device is missed", || !switch.failed.lock().is_empty());
    let callers = broken.callers.lock();
    assert!(
        !callers.iter().any(|name| name.starts_with("oxvs-worker")),
        "{callers:?}"
    );
    assert!(callers.iter().any(|name| name == "oxvs-devices"));
}

#[test]
fn a_device_that_vanished_is_reported_once() {
    for errno in [Errno::NODEV, Errno::NETDOWN] {
        let (datapath, devices, switch) = ring(2, 1);
        let broken = Broken::new(Some(errno));
        broken.gone.store(errno == Errno::NETDOWN, Ordering::Relaxed);
        datapath.add_port(PortNo(5), broken.clone()).unwrap();
        eventually("it is reported", || !switch.failed.lock().is_empty());
        devices[0].inject(&packet(5, 1, 0));
        eventually("the packet arrives", || devices[1].take_sent().len() == 1);
        assert_eq!(*switch.failed.lock(), [PortNo(5)]);
        // Until the worker has heard that the device is gone, it may ask some times more: 17 times
        // at once, and 15 times before it rests for a second.
        let asked = broken.asked.load(Ordering::Relaxed);
        assert!((1..=32).contains(&asked), "{asked}");
        assert_eq!(datapath.port_counters(PortNo(5)).unwrap().rx_errors, asked);
        datapath.del_port(PortNo(5)).unwrap();
    }
}

#[test]
fn a_port_that_cannot_be_sent_on_drops_and_counts() {
    let (datapath, devices, _) = ring(2, 1);
    datapath.del_port(PortNo(1)).unwrap();
    let broken = Broken::new(Some(Errno::NETDOWN));
    datapath.add_port(PortNo(1), broken).unwrap();
    devices[0].inject(&packet(5, 1, 0));
    eventually("the drop is counted", || {
        let counters = datapath.port_counters(PortNo(1)).unwrap();
        counters.tx_dropped == 1 && counters.drops[DropCause::PortDown as usize] == 1
    });
}
