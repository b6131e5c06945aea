//! The kernel forwards packets of offloaded flows from device to device.

use dp::offload::{ANY_GIVEN, Egress, OffloadPort, OffloadTable, OffloadedFlow, Steps};
use dp_ebpf::Ebpf;
use lab::{Lab, Queues};
use netdev::{Frame, Isolation};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use testkit::{Iperf3, ping, skip};

#[path = "../../netdev/tests/namespaces/lab.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod lab;

/// A port that offloaded flows lead from and to.
struct Port {
    queues: Queues,
    offload: Arc<OffloadPort>,
}

impl Port {
    fn open(lab: &Lab, table: &Arc<OffloadTable>, name: &str, isolation: Isolation) -> Port {
        let mut queues = lab.port_with(name, isolation);
        let ifindex = queues.device.state().unwrap().ifindex;
        let offload = table.port(ifindex).unwrap();
        assert!(lab.sw.enter(|| offload.attach(&mut *queues.rx)).unwrap());
        Port { queues, offload }
    }

    fn wait_for(&mut self, protocol: u8) -> Frame {
        let wanted =
            |frame: &Frame| frame.data().len() > 34 && frame.data()[12..14] == [8, 0] && frame.data()[23] == protocol;
        self.queues.wait_for(wanted).unwrap()
    }
}

fn table() -> Option<Arc<OffloadTable>> {
    Some(OffloadTable::new(Arc::new(Ebpf::load(None).ok()?)))
}

/// Says that all packets that came here have been sent.
fn settle(flow: &OffloadedFlow) {
    flow.settle(flow.given());
}

#[test]
fn packets_of_offloaded_flows_pass_by_the_process_and_others_come_to_it_however_the_stack_is_kept_out() {
    skip!(unless root, "ip", "ping", "iperf3");
    for isolation in [Isolation::Tcx, Isolation::Filter] {
        let lab = Lab::new();
        let Some(table) = table() else {
            skip!("needs the right to load BPF programs");
        };
        let mut ports = ["oxp1", "oxp2"].map(|name| Port::open(&lab, &table, name, isolation));
        let egress = Egress {
            longest: 1514,
            rewrite: None,
        };
        for (host, other, address) in [(&lab.h1, &lab.h2, "192.168.77.2"), (&lab.h2, &lab.h1, "192.168.77.1")] {
            host.ip(&format!(
                "neigh replace {address} lladdr {} dev eth0",
                other.mac_of("eth0")
            ));
        }
        let mut open = Vec::new();
        for (from, to) in [(0, 1), (1, 0)] {
            assert_eq!(ping(&lab.h1, "192.168.77.2", 1).received, 0);
            let packet = ports[from].wait_for(1);
            let kind = ports[from].offload.kind(packet.data()).unwrap();
            let outputs = [(&ports[to].offload, egress)];
            open.push(
                ports[from]
                    .offload
                    .open(&outputs, kind, Steps::default(), &[], 0)
                    .unwrap(),
            );
            open.iter().for_each(settle);
        }
        assert_eq!(ping(&lab.h1, "192.168.77.2", 5).received, 5, "{isolation:?}");
        let carried: Vec<u64> = open.iter().map(|flow| flow.carried().packets).collect();
        assert_eq!(carried, [6, 5], "{isolation:?}");
        let counted = ports[1].offload.carried();
        assert_eq!((counted.tx_packets, counted.rx_packets), (6, 5));
        assert_eq!(counted.tx_bytes, 6 * 98);

        table.suspend_all();
        assert_eq!(ping(&lab.h1, "192.168.77.2", 1).received, 0);
        ports[0].wait_for(1);
        open.iter().for_each(|flow| flow.resume(1));
        open.iter().for_each(settle);
        assert_eq!(ping(&lab.h1, "192.168.77.2", 1).received, 1);

        // Longer than the device takes.
        drop(open.remove(0));
        let request = {
            assert_eq!(ping(&lab.h1, "192.168.77.2", 1).received, 0);
            ports[0].wait_for(1)
        };
        let kind = ports[0].offload.kind(request.data()).unwrap();
        let short = Egress { longest: 97, ..egress };
        open.push(
            ports[0]
                .offload
                .open(&[(&ports[1].offload, short)], kind, Steps::default(), &[], 1)
                .unwrap(),
        );
        open.iter().for_each(settle);
        assert_eq!(ping(&lab.h1, "192.168.77.2", 1).received, 0);
        ports[0].wait_for(1);
    }
}

#[test]
fn segments_that_a_host_leaves_to_its_device_are_forwarded_whole() {
    skip!(unless root, "ip", "iperf3");
    let lab = Lab::new();
    let Some(table) = table() else {
        skip!("needs the right to load BPF programs");
    };
    let mut ports = ["oxp1", "oxp2"].map(|name| Port::open(&lab, &table, name, Isolation::Auto));
    let egress = Egress {
        longest: 1514,
        rewrite: None,
    };
    let stop = AtomicBool::new(false);
    let mut large = 0;
    std::thread::scope(|scope| {
        let forwarder = scope.spawn(|| {
            let (mut open, mut frames, mut large) = (Vec::new(), Vec::new(), 0);
            let end = Instant::now() + Duration::from_secs(30);
            while !stop.load(Relaxed) && Instant::now() < end {
                let mut idle = true;
                for (from, to) in [(0, 1), (1, 0)] {
                    idle &= ports[from].queues.rx.recv(&mut frames, 32).unwrap() == 0;
                    for frame in &frames {
                        large += u64::from(frame.len() > 1514);
                        let kind = ports[from].offload.kind(frame.data());
                        if let Some(kind) = kind
                            && open.iter().all(|(other, _)| *other != kind)
                        {
                            let outputs = [(&ports[to].offload, egress)];
                            let flow = ports[from]
                                .offload
                                .open(&outputs, kind, Steps::default(), &[], 0)
                                .unwrap();
                            flow.settle(ANY_GIVEN);
                            open.push((kind, flow));
                        }
                    }
                    ports[to].queues.tx.send(&mut frames);
                }
                if idle {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            large
        });
        let speed = Iperf3::tcp_bytes(50 << 20).run(&lab.h1, &lab.h2, "192.168.77.2");
        assert!(speed > 0.0);
        stop.store(true, Relaxed);
        large = forwarder.join().unwrap();
    });
    let counted = ports[1].offload.carried();
    assert!(counted.tx_bytes > 40 << 20, "{counted:?}");
    assert!(counted.tx_bytes / counted.tx_packets > 3000, "{counted:?}");
    assert!(large < 100, "{large} segments went through the process");
}
