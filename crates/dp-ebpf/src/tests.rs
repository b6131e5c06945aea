use super::*;
use dp::offload::Steps;
use dp::offload::{ANY_GIVEN, Egress, Epoch, MAX_OUTPUTS, OWNER_EPOCHS, OffloadPort, OffloadTable, OffloadedFlow};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, LazyLock};
use testkit::{Packet, mac, skip};

mod connections;
mod tunnels;

const LONG: Egress = Egress {
    longest: 1514,
    rewrite: None,
};

fn v4() -> Packet {
    Packet::new(mac(1), mac(2)).ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))
}

fn v6() -> Packet {
    let address = |n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
    Packet::new(mac(1), mac(2)).ipv6(address(1), address(2))
}

/// One packet of each kind that can be offloaded.
fn packets() -> Vec<Vec<u8>> {
    [v4, v6]
        .into_iter()
        .flat_map(|ip| {
            [
                ip().udp(1000, 2000, b"some payload"),
                ip().tcp(1000, 2000, 0x10, b"some payload"),
                ip().echo(7, 1, b"some payload"),
            ]
        })
        .map(Packet::bytes)
        .collect()
}

/// A table, and its offload.
fn table() -> Option<(Arc<OffloadTable>, Arc<Ebpf>)> {
    let ebpf = Arc::new(Ebpf::load(None).ok()?);
    Some((OffloadTable::new(ebpf.clone()), ebpf))
}

/// The number of the device that packets without a device are taken to come in by: `lo`.
const LOOPBACK: u32 = 1;

impl Ebpf {
    /// Whether the filter takes a packet without a tag; `None` if the kernel does not try it.
    fn takes(&self, packet: &[u8]) -> Option<bool> {
        self.takes_segment(packet, 0)
    }

    /// The same of a packet that a device is to cut, if `size` is not 0.
    fn takes_segment(&self, packet: &[u8], size: u32) -> Option<bool> {
        /// Where `struct __sk_buff` has `gso_size`.
        const GSO_SIZE: usize = 176;
        let mut context = [0; GSO_SIZE + 4];
        context[GSO_SIZE..].copy_from_slice(&size.to_ne_bytes());
        let mut object = self.object.lock();
        let probe: &mut SchedClassifier = program(&mut object, "oxvs_probe").unwrap();
        let run = probe.test_run(TestRunOptions {
            data_in: Some(packet),
            ctx_in: Some(&context),
            ..TestRunOptions::default()
        });
        run.ok().map(|run| run.return_value == 0)
    }

    /// What the redirect makes of a packet without a tag that the filter takes; `None` if that does
    /// not take it, or the kernel does not try it.
    fn forwards(&self, packet: &[u8]) -> Option<Vec<u8>> {
        const REDIRECT: u32 = 7;
        // Both have to be on one processor.
        for _ in 0..100 {
            if !self.takes(packet)? {
                return None;
            }
            let (mut object, mut out) = (self.object.lock(), vec![0; packet.len() + 256]);
            let redirect: &mut SchedClassifier = program(&mut object, "oxvs_redirect").unwrap();
            let run = redirect.test_run(TestRunOptions {
                data_in: Some(packet),
                data_out: Some(&mut out),
                ..TestRunOptions::default()
            });
            let run = run.ok()?;
            if run.return_value == REDIRECT {
                out.truncate(run.data_size_out as usize);
                return Some(out);
            }
        }
        panic!("the redirect does not forward what the filter takes");
    }
}

/// Says that the worker has sent all that it got.
fn settle(flow: &OffloadedFlow) {
    flow.settle(flow.given());
}

/// Puts a flow in force, whose worker has sent all that it got.
fn resume(flow: &OffloadedFlow, sum: u64) {
    flow.resume(sum);
    settle(flow);
}

proptest! {
    /// The kernel's program parses the same kind from any packet: it takes packets of the offloaded
    /// flow's kind, and no others.
    #[test]
    fn the_kernel_takes_packets_of_the_same_kind(
        kind in 0..6_usize,
        changes in prop::collection::vec((0..90_usize, any::<u8>(), any::<bool>()), 0..4),
        cut in prop::option::of(14..100_usize),
        more in 0..30_usize,
    ) {
        static LOADED: LazyLock<Option<(Arc<OffloadTable>, Arc<Ebpf>)>> = LazyLock::new(table);
        let Some((table, ebpf)) = &*LOADED else {
            testkit::say_skipped(module_path!(), "needs the right to load BPF programs");
            return Ok(());
        };
        let (port, exit) = (table.port(LOOPBACK).unwrap(), table.port(2).unwrap());
        let packet = packets().remove(kind);
        let kind = port.kind(&packet).unwrap();
        let flow = port.open(&[(&exit, LONG)], kind, Steps::default(), &[], 0).unwrap();
        settle(&flow);
        let mut other = packet.clone();
        other.resize(other.len() + more, 0);
        for (at, value, low) in changes {
            if let Some(byte) = other.get_mut(at) {
                *byte = if low { byte.wrapping_add(value % 3) } else { value };
            }
        }
        other.truncate(cut.unwrap_or(usize::MAX).max(14));
        let is_same = port.kind(&other) == Some(kind);
        match ebpf.takes(&other) {
            Some(takes) => prop_assert_eq!(takes, is_same, "{:02x?}", other),
            // The kernel does not try packets without a whole IP header.
            None => prop_assert!(!is_same && other.len() < 54),
        }
        prop_assert_eq!(flow.carried().packets, u64::from(is_same));
        prop_assert_eq!(exit.carried().tx_bytes, if is_same { other.len() as u64 } else { 0 });
        prop_assert_eq!(port.carried().rx_packets, u64::from(is_same));
    }
}

#[test]
fn a_flow_is_in_force_while_no_epoch_that_it_depends_on_changes_until_it_is_suspended_or_dropped() {
    let Some((table, ebpf)) = table() else {
        skip!("needs the right to load BPF programs");
    };
    let (port, exit) = (table.port(LOOPBACK).unwrap(), table.port(2).unwrap());
    let packet = packets().remove(0);
    let kind = port.kind(&packet).unwrap();
    let takes = || ebpf.takes(&packet).unwrap();
    assert!(!takes());
    let own: Vec<Epoch> = (0..OWNER_EPOCHS).map(|_| table.epoch().unwrap()).collect();
    let numbers: Vec<u32> = own.iter().map(Epoch::number).collect();
    for count in [0, 1, 3, 4, 5, 13, OWNER_EPOCHS] {
        let (own, numbers) = (&own[..count], &numbers[..count]);
        let sum = || port.sum([&exit].into_iter(), numbers);
        let flow = port
            .open(&[(&exit, LONG)], kind, Steps::default(), numbers, sum())
            .unwrap();
        settle(&flow);
        let suspends = |change: &dyn Fn(), what: &str| {
            assert!(takes(), "{what}");
            change();
            assert!(!takes(), "a change of {what} suspends it");
            resume(&flow, sum());
            assert!(takes(), "{what}");
        };
        suspends(&|| table.suspend_all(), "everything");
        suspends(&|| port.suspend(), "the port that it comes from");
        suspends(&|| exit.suspend(), "the port that it leads to");
        for epoch in own {
            suspends(&|| epoch.advance(), "what it depends on");
        }
        table.epoch().unwrap().advance();
        table.port(3).unwrap().suspend();
        assert!(takes(), "others' changes do not");
    }
    let more = vec![MAX_PORTS; FLOW_EPOCHS - 1];
    assert!(matches!(
        port.open(&[(&exit, LONG)], kind, Steps::default(), &more, 0),
        Err(Refused::Unsupported(_))
    ));

    let mut flow = port
        .open(
            &[(&exit, LONG)],
            kind,
            Steps::default(),
            &[],
            port.sum([&exit].into_iter(), &[]),
        )
        .unwrap();
    settle(&flow);
    assert!(takes() && takes());
    assert!(matches!(
        port.open(
            &[(&exit, LONG)],
            kind,
            Steps::default(),
            &[],
            port.sum([&exit].into_iter(), &[])
        ),
        Err(Refused::Taken)
    ));
    assert!(takes());
    flow.suspend();
    assert!(!takes());
    assert_eq!(
        (flow.carried().packets, flow.carried().bytes),
        (3, 3 * packet.len() as u64)
    );
    assert!(flow.carried().used > Nanos::ZERO);
    drop(flow);
    assert!(!takes());

    let exits: Vec<Arc<OffloadPort>> = (0..=MAX_OUTPUTS).map(|_| table.port(2).unwrap()).collect();
    let outputs: Vec<(&Arc<OffloadPort>, Egress)> = exits.iter().map(|exit| (exit, LONG)).collect();
    let too_many = port.open(&outputs, kind, Steps::default(), &[], 0);
    assert!(matches!(too_many, Err(Refused::Unsupported(_))));
    for count in 1..=MAX_OUTPUTS {
        let sum = || port.sum(exits[..count].iter(), &[]);
        let flow = port
            .open(&outputs[..count], kind, Steps::default(), &[], sum())
            .unwrap();
        settle(&flow);
        for exit in &exits[..count] {
            assert!(takes());
            exit.suspend();
            assert!(!takes(), "a change of any port that it leads to suspends it");
            resume(&flow, sum());
        }
    }

    let short = Egress {
        longest: packet.len() as u32 - 1,
        ..LONG
    };
    let flow = port
        .open(
            &[(&exit, short)],
            kind,
            Steps::default(),
            &[],
            port.sum([&exit].into_iter(), &[]),
        )
        .unwrap();
    settle(&flow);
    assert!(!takes(), "too long for its device");
    assert_eq!(flow.carried(), Carried::default(), "counters start at zero");
}

#[test]
fn a_flow_carries_no_packet_while_its_worker_has_earlier_ones() {
    let Some((table, ebpf)) = table() else {
        skip!("needs the right to load BPF programs");
    };
    let (port, exit) = (table.port(LOOPBACK).unwrap(), table.port(2).unwrap());
    let packet = packets().remove(0);
    let takes = || ebpf.takes(&packet).unwrap();
    let sum = || port.sum([&exit].into_iter(), &[]);
    let kind = port.kind(&packet).unwrap();
    let flow = port.open(&[(&exit, LONG)], kind, Steps::default(), &[], sum()).unwrap();
    for suspended in [false, true] {
        if suspended {
            port.suspend();
            assert!(!takes());
            flow.resume(sum());
        }
        let given = flow.given();
        assert!(!takes(), "nothing is said of those before");
        flow.settle(given);
        assert!(!takes(), "one has come since");
        let given = flow.given();
        flow.settle(given);
        assert!(takes() && takes());
        assert_eq!(flow.given(), given, "those that are carried do not count");
    }
    port.suspend();
    assert!(!takes());
    flow.settle(ANY_GIVEN);
    assert!(!takes(), "it is not in force");
    flow.resume(sum());
    assert!(takes());
    let other = packets().remove(1);
    let reopened = port
        .open(
            &[(&exit, LONG)],
            port.kind(&other).unwrap(),
            Steps::default(),
            &[],
            sum(),
        )
        .unwrap();
    assert!(!ebpf.takes(&other).unwrap());
    drop(reopened);
}

#[test]
fn ports_share_the_pool_and_what_is_closed_can_be_opened_again() {
    let Some((table, _)) = table() else {
        skip!("needs the right to load BPF programs");
    };
    let (port, exit) = (table.port(LOOPBACK).unwrap(), table.port(2).unwrap());
    let key = |n: u32| {
        let packet = v4().udp(n as u16, (n >> 16) as u16, b"").bytes();
        port.kind(&packet).unwrap()
    };
    let other = table.port(3).unwrap();
    let open = |port: &Arc<OffloadPort>, n| port.open(&[(&exit, LONG)], key(n), Steps::default(), &[], 0);
    let all: Vec<OffloadedFlow> = (0..MAX_FLOWS).map_while(|n| open(&port, n).ok()).collect();
    assert_eq!(all.len(), MAX_FLOWS as usize / 8 * 7);
    assert!(matches!(open(&port, MAX_FLOWS), Err(Refused::OverShare)));
    let others: Vec<OffloadedFlow> = (MAX_FLOWS..).map_while(|n| open(&other, n).ok()).collect();
    assert_eq!(all.len() + others.len(), MAX_FLOWS as usize);
    assert!(matches!(open(&other, 0), Err(Refused::Full)));
    drop((all, others));
    assert!(open(&port, 0).is_ok());
    drop(other);
    let ports: Vec<_> = std::iter::from_fn(|| table.port(LOOPBACK)).collect();
    assert_eq!(ports.len() as u32, MAX_PORTS - 3);
    drop(ports);
    assert!(table.port(LOOPBACK).is_some());
}
