//! Ports with a scheduler, on virtual time and with real workers.

use crate::common::{Bench, FakeSwitch, dummy, eventually, number, output, packet, translation};
use dp::{Action, Datapath, DpError, DropCause, PortNo};
use dp_user::{DpUser, Options};
use flow::Field;
use netdev::{Csum, Dummy, Gso, Offload};
use qos::police::{EgressPolicerConfig, IngressPolicerConfig};
use qos::{Cause, CodelConfig, Discipline, FifoConfig, HtbClass, HtbConfig, LeafConfig, PortConfig, PortSpeed};
use std::sync::Arc;
use std::time::Duration;
use wire::checksum::checksum;

const OUT: PortNo = PortNo(1);

/// Everything goes to port 1, through the queue that the source's number says.
fn to_port_one() -> Arc<FakeSwitch> {
    FakeSwitch::new(|key| {
        let queue = key.get(Field::EthSrc) as u32 & 0xff;
        match queue {
            0 => translation(&[output(1)], &[Field::EthSrc]),
            queue => translation(&[Action::SetQueue(queue), output(1)], &[Field::EthSrc]),
        }
    })
}

fn speed(bits: u64) -> PortConfig {
    PortConfig {
        discipline: Discipline::Noop,
        speed: Some(PortSpeed::new(bits).unwrap()),
    }
}

fn fifo(limit: u64) -> PortConfig {
    PortConfig::new(Discipline::Leaf(LeafConfig::Fifo(FifoConfig::new(limit).unwrap())))
}

fn htb(bits: u64) -> PortConfig {
    let class = |n, share| HtbClass::new(n).unwrap().min_rate(bits * share / 4).unwrap();
    PortConfig::new(Discipline::Htb(
        HtbConfig::new(bits, vec![class(1, 1), class(2, 3)]).unwrap(),
    ))
}

/// Paces until nothing is held back.
fn run(bench: &mut Bench) {
    while let Some(due) = bench.pipeline.due() {
        bench.now = bench.now.max(due);
        bench.pipeline.pace(bench.now);
    }
}

fn dropped(bench: &Bench, cause: DropCause) -> u64 {
    bench.pipeline.drops()[cause as usize].1
}

fn long(number: u32, len: usize) -> Vec<u8> {
    let mut packet = packet(9, 0x100, number);
    packet.resize(len, 0);
    packet
}

#[test]
fn packets_leave_a_port_at_its_speed_in_order_and_its_worker_is_told_when() {
    let mut bench = Bench::new(2, to_port_one());
    let config = speed(10_000_000);
    bench.pipeline.set_qos(OUT, Some(&config), bench.now).unwrap();
    assert_eq!(bench.pipeline.due(), None);
    let begun = bench.now;
    // A millisecond each, with the overhead of Ethernet.
    let packets: Vec<_> = (0..500).map(|n| long(n, 1_226)).collect();
    bench.receive(0, &packets);
    let mut numbers = bench.numbers(1);
    assert!(numbers.len() <= 2, "{numbers:?}");
    let mut late = Duration::ZERO;
    while let Some(due) = bench.pipeline.due() {
        bench.now = due;
        bench.pipeline.pace(bench.now);
        for n in bench.numbers(1) {
            let on_time = begun + Duration::from_millis(1) * n;
            late = late.max(bench.now.since(on_time));
            assert!(bench.now + Duration::from_millis(1) >= on_time);
            numbers.push(n);
        }
    }
    assert!(numbers.into_iter().eq(0..500));
    assert!(late < Duration::from_millis(1), "{late:?}");
    assert_eq!(bench.pipeline.due(), None);
}

#[test]
fn queues_that_actions_set_share_a_port_as_its_classes_say() {
    let mut bench = Bench::new(2, to_port_one());
    bench.pipeline.set_qos(OUT, Some(&htb(10_000_000)), bench.now).unwrap();
    let packets: Vec<_> = (0..1_000)
        .map(|n| {
            let mut packet = packet(9, 1 + n % 2, n);
            packet.resize(1_250, 0);
            packet
        })
        .collect();
    bench.receive(0, &packets);
    let end = bench.now + Duration::from_millis(400);
    bench.sent(1);
    let mut sent = [0; 3];
    while let Some(due) = bench.pipeline.due().filter(|due| *due < end) {
        bench.now = due;
        bench.pipeline.pace(due);
        for packet in bench.sent(1) {
            sent[usize::from(packet[11])] += 1;
        }
    }
    // 400 packets, less a first burst, in the ratio of one to three.
    assert!((385..=401).contains(&(sent[1] + sent[2])), "{sent:?}");
    let share = f64::from(sent[2]) / f64::from(sent[1] + sent[2]);
    assert!((share - 0.75).abs() < 0.02, "{sent:?}");
}

#[test]
fn what_a_device_has_no_room_for_waits_at_the_head_of_the_line() {
    let mut bench = Bench::new(2, to_port_one());
    bench.pipeline.set_qos(OUT, Some(&fifo(1_000)), bench.now).unwrap();
    bench.devices[1].set_room(Some(10));
    let packets: Vec<_> = (0..300).map(|n| packet(9, 0x100, n)).collect();
    bench.receive(0, &packets);
    assert!(bench.numbers(1).into_iter().eq(0..10));
    // It is asked again, but not all the time.
    for _ in 0..5 {
        let due = bench.pipeline.due().unwrap();
        assert!(due >= bench.now + Duration::from_micros(50));
        bench.now = due;
        bench.pipeline.pace(due);
        assert!(bench.numbers(1).is_empty());
    }
    bench.devices[1].set_room(Some(100));
    bench.now = bench.pipeline.due().unwrap();
    bench.pipeline.pace(bench.now);
    assert!(bench.numbers(1).into_iter().eq(10..110));
    bench.devices[1].set_room(None);
    run(&mut bench);
    assert!(bench.numbers(1).into_iter().eq(110..300));
    assert_eq!(dropped(&bench, DropCause::DeviceFull), 0);
    assert_eq!(dropped(&bench, DropCause::QueueFull), 0);
}

#[test]
fn what_a_queue_has_no_room_for_is_counted_as_that() {
    let mut bench = Bench::new(2, to_port_one());
    bench.pipeline.set_qos(OUT, Some(&fifo(50)), bench.now).unwrap();
    bench.devices[1].set_room(Some(0));
    let packets: Vec<_> = (0..300).map(|n| packet(9, 0x100, n)).collect();
    bench.receive(0, &packets);
    bench.devices[1].set_room(None);
    run(&mut bench);
    let sent = bench.numbers(1).len() as u64;
    // Those that were offered to the device have left the queue.
    assert!((50..=50 + 64).contains(&sent), "{sent}");
    assert_eq!(dropped(&bench, DropCause::QueueFull), 300 - sent);
}

#[test]
fn a_voice_packet_overtakes_others_on_a_slow_link() {
    let mut bench = Bench::new(2, to_port_one());
    bench.pipeline.set_qos(OUT, Some(&speed(1_000_000)), bench.now).unwrap();
    let mut packets: Vec<_> = (0..20).map(|n| long(n, 1_000)).collect();
    packets[19][12..14].copy_from_slice(&[8, 0]);
    packets[19][14..16].copy_from_slice(&[0x45, 46 << 2]);
    bench.receive(0, &packets);
    run(&mut bench);
    let place = bench.sent(1).iter().position(|packet| packet[12] == 8).unwrap();
    assert!(place <= 2, "{place}");
}

/// A TCP segment of `payload` bytes, to be cut at 1000.
fn segment(payload: usize) -> (Vec<u8>, Offload) {
    let mut packet = vec![0; 54 + payload];
    packet[..12].copy_from_slice(&crate::common::packet(9, 0x100, 0)[..12]);
    packet[12..14].copy_from_slice(&[8, 0]);
    packet[14] = 0x45;
    packet[16..18].copy_from_slice(&((40 + payload) as u16).to_be_bytes());
    packet[23] = 6;
    packet[46] = 0x50;
    let offload = Offload {
        csum: Csum::Partial { start: 34, offset: 16 },
        gso: Gso::Tcp4,
        gso_size: 1_000,
        hdr_len: 54,
        ecn: false,
        ..Offload::default()
    };
    (packet, offload)
}

#[test]
fn a_large_segment_is_cut_on_a_slow_link_and_stays_whole_on_a_fast_one() {
    for (bits, whole) in [(10_000_000, false), (1_000_000_000, true)] {
        let mut bench = Bench::new(2, to_port_one());
        bench.pipeline.set_qos(OUT, Some(&speed(bits)), bench.now).unwrap();
        let (packet, offload) = segment(40_000);
        assert!(bench.devices[0].inject_with(&packet, offload));
        bench.drain(0);
        // The link is busy with what went first: on a slow one with one packet, or a few that make
        // up for time before.
        let first = bench.sent(1).len();
        assert_eq!(first == 40, whole, "{first}");
        let begun = bench.now;
        run(&mut bench);
        assert_eq!(bench.sent(1).len() + first, 40);
        let took = bench.now.since(begun);
        assert!(whole || (30..36).contains(&took.as_millis()), "{took:?}");
    }
}

#[test]
fn congestion_is_marked_with_a_checksum_that_is_right() {
    let mut bench = Bench::new(2, to_port_one());
    let codel = CodelConfig::new(5_000, 100_000, 1_000, true).unwrap();
    let config = PortConfig {
        discipline: Discipline::Leaf(LeafConfig::Codel(codel)),
        speed: Some(PortSpeed::new(10_000_000).unwrap()),
    };
    bench.pipeline.set_qos(OUT, Some(&config), bench.now).unwrap();
    let packets: Vec<_> = (0..600_u16)
        .map(|n| {
            let mut packet = long(0, 1_000);
            packet[12..14].copy_from_slice(&[8, 0]);
            let header = &mut packet[14..34];
            header.fill(0);
            header[..4].copy_from_slice(&[0x45, 0x02, 0x03, 0xda]);
            header[4..6].copy_from_slice(&n.to_be_bytes());
            header[8..10].copy_from_slice(&[64, 17]);
            let sum = checksum(header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            packet
        })
        .collect();
    bench.receive(0, &packets);
    run(&mut bench);
    let sent = bench.sent(1);
    assert_eq!(sent.len(), 600);
    let marked = sent.iter().filter(|packet| packet[15] & 3 == 3).count();
    assert!(marked > 0);
    assert!(sent.iter().all(|packet| checksum(&packet[14..34]) == 0));
    assert_eq!(dropped(&bench, DropCause::QueueDelay), 0);
}

#[test]
fn a_policer_drops_the_excess_and_counts_it_and_nothing_else_is_lost() {
    let mut bench = Bench::new(2, to_port_one());
    // 10 packets of 46 bytes behind the Ethernet header at once, and no more for a long time.
    let policer = Discipline::EgressPolicer(EgressPolicerConfig::new(1, 460).unwrap());
    bench
        .pipeline
        .set_qos(OUT, Some(&PortConfig::new(policer)), bench.now)
        .unwrap();
    let packets: Vec<_> = (0..30).map(|n| packet(9, 0x100, n)).collect();
    bench.receive(0, &packets);
    assert!(bench.numbers(1).into_iter().eq(0..10));
    assert_eq!(dropped(&bench, DropCause::Policed), 20);
}

#[test]
fn what_a_policer_lets_through_waits_in_its_order_while_the_device_has_no_room() {
    let mut bench = Bench::new(2, to_port_one());
    let policer = Discipline::EgressPolicer(EgressPolicerConfig::new(1, 46 * 40).unwrap());
    bench
        .pipeline
        .set_qos(OUT, Some(&PortConfig::new(policer)), bench.now)
        .unwrap();
    bench.devices[1].set_room(Some(3));
    for n in 0..6 {
        let packets: Vec<_> = (n * 10..n * 10 + 10).map(|n| packet(9, 0x100, n)).collect();
        bench.receive(0, &packets);
    }
    assert!(bench.numbers(1).into_iter().eq(0..3));
    bench.devices[1].set_room(None);
    run(&mut bench);
    assert!(bench.numbers(1).into_iter().eq(3..40));
    assert_eq!(dropped(&bench, DropCause::Policed), 20);
}

#[test]
fn taking_the_scheduler_away_sends_what_is_queued_before_what_comes() {
    let mut bench = Bench::new(2, to_port_one());
    bench.pipeline.set_qos(OUT, Some(&htb(1_000_000)), bench.now).unwrap();
    let packets: Vec<_> = (0..300).map(|n| long(n, 500)).collect();
    bench.receive(0, &packets);
    let mut numbers = bench.numbers(1);
    assert!(numbers.len() < 20);
    // The device has no room yet: new packets have to wait too.
    bench.devices[1].set_room(Some(50));
    bench.pipeline.set_qos(OUT, None, bench.now).unwrap();
    bench.receive(0, &[long(300, 500)]);
    bench.devices[1].set_room(None);
    run(&mut bench);
    bench.receive(0, &[long(301, 500)]);
    numbers.extend(bench.numbers(1));
    assert!(numbers.into_iter().eq(0..302));
    assert_eq!(bench.pipeline.due(), None);
    assert_eq!(dropped(&bench, DropCause::DeviceFull), 0);
}

/// A packet for interactive traffic: IPv4 with DSCP 46.
fn voice(number: u32) -> Vec<u8> {
    let mut packet = long(number, 100);
    packet[12..14].copy_from_slice(&[8, 0]);
    packet[14..16].copy_from_slice(&[0x45, 46 << 2]);
    packet
}

#[test]
fn a_port_without_a_scheduler_holds_packets_in_three_bands_while_its_device_is_full_and_sends_directly_else() {
    let mut bench = Bench::new(2, to_port_one());
    bench.receive(0, &[long(0, 500)]);
    assert_eq!((bench.numbers(1), bench.pipeline.due()), (vec![0], None));
    for _ in 0..2 {
        bench.devices[1].set_room(Some(10));
        let packets: Vec<_> = (0..200).map(|n| long(n, 500)).collect();
        bench.receive(0, &packets);
        bench.receive(0, &[voice(999)]);
        let mut sent: Vec<_> = bench.sent(1);
        assert_eq!(sent.len(), 10);
        assert!(bench.pipeline.due().is_some());
        bench.devices[1].set_room(None);
        run(&mut bench);
        sent.extend(bench.sent(1));
        let is_voice = |packet: &Vec<u8>| packet[12] == 8;
        // Behind the packets that the device had been offered already, and no further.
        let place = sent.iter().position(is_voice).unwrap();
        assert!((10..=10 + 64).contains(&place), "{place}");
        sent.retain(|packet| !is_voice(packet));
        assert!(sent.iter().map(|packet| number(packet)).eq(0..200));
        // Directly again.
        assert_eq!(bench.pipeline.due(), None);
        bench.receive(0, &[long(7, 500)]);
        assert_eq!((bench.numbers(1), bench.pipeline.due()), (vec![7], None));
    }
    assert_eq!(dropped(&bench, DropCause::DeviceFull), 0);
}

#[test]
fn a_port_without_a_scheduler_holds_a_thousand_packets_and_gives_them_up_when_its_device_takes_none() {
    let mut bench = Bench::new(2, to_port_one());
    bench.devices[1].set_room(Some(0));
    let packets: Vec<_> = (0..1_500).map(|n| long(n, 100)).collect();
    for some in packets.chunks(100) {
        bench.receive(0, some);
    }
    let full = dropped(&bench, DropCause::QueueFull);
    assert!((1_500 - 1_064..=1_500 - 1_000).contains(&full), "{full}");
    run(&mut bench);
    assert_eq!(full + dropped(&bench, DropCause::DeviceFull), 1_500);
    bench.devices[1].set_room(None);
    bench.receive(0, &[long(3, 100)]);
    assert_eq!(bench.numbers(1), [3]);
}

#[test]
fn what_waits_for_a_full_device_goes_first_into_a_scheduler_that_comes_and_is_counted_when_the_port_goes() {
    let mut bench = Bench::new(2, to_port_one());
    bench.devices[1].set_room(Some(5));
    let packets: Vec<_> = (0..100).map(|n| long(n, 500)).collect();
    bench.receive(0, &packets);
    bench.pipeline.set_qos(OUT, Some(&fifo(1_000)), bench.now).unwrap();
    bench.receive(0, &[long(100, 500)]);
    bench.devices[1].set_room(None);
    run(&mut bench);
    assert!(bench.numbers(1).into_iter().eq(0..101));
    bench.pipeline.set_qos(OUT, None, bench.now).unwrap();
    bench.receive(0, &[long(101, 500)]);
    bench.devices[1].set_room(Some(0));
    bench.receive(0, &packets);
    bench.pipeline.remove_port(OUT);
    assert_eq!(dropped(&bench, DropCause::QueueRemoved), 100);
    run(&mut bench);
}

#[test]
fn another_discipline_takes_over_what_is_queued_in_order() {
    let mut bench = Bench::new(2, to_port_one());
    let order = [htb(1_000_000), fifo(1_000), speed(1_000_000), htb(2_000_000)];
    bench.pipeline.set_qos(OUT, Some(&order[0]), bench.now).unwrap();
    let packets: Vec<_> = (0..200).map(|n| long(n, 500)).collect();
    bench.receive(0, &packets);
    // The FIFO would send at once.
    bench.devices[1].set_room(Some(10));
    for config in &order[1..] {
        bench.pipeline.set_qos(OUT, Some(config), bench.now).unwrap();
        bench.now += Duration::from_millis(3);
        bench.pipeline.pace(bench.now);
    }
    bench.devices[1].set_room(None);
    run(&mut bench);
    assert!(bench.numbers(1).into_iter().eq(0..200));
}

fn datapath(ports: u32, workers: usize, switch: Arc<FakeSwitch>) -> (Arc<DpUser>, Vec<Arc<Dummy>>) {
    let options = Options {
        workers,
        ..Options::default()
    };
    let datapath = DpUser::new(options, switch, Arc::default()).unwrap();
    let devices: Vec<_> = (0..ports).map(|n| dummy(&format!("p{n}"))).collect();
    for (n, device) in (0..).zip(&devices) {
        datapath.add_port(PortNo(n), device.clone()).unwrap();
    }
    (datapath, devices)
}

#[test]
fn two_workers_share_the_scheduler_of_a_port_and_each_flow_keeps_its_order() {
    let (datapath, devices) = datapath(4, 2, to_port_one());
    // 2000 packets of 100 bytes, 80 ms.
    datapath.set_qos(OUT, Some(&speed(20_000_000))).unwrap();
    for n in 0..500 {
        for port in [0, 2, 3] {
            let mut packet = packet(9, 0x100 * port as u32, n);
            packet.resize(100, 0);
            assert!(devices[port].inject(&packet));
        }
        if n % 50 == 49 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let mut sent = Vec::new();
    eventually("all have gone", || {
        sent.extend(devices[1].take_sent());
        let lost = datapath.port_counters(OUT).unwrap().tx_dropped;
        sent.len() as u64 + lost == 1_500
    });
    for source in [0, 2, 3] {
        let numbers: Vec<u32> = sent
            .iter()
            .filter(|packet| packet[10] == source)
            .map(|packet| number(packet))
            .collect();
        assert!(numbers.is_sorted() && numbers.len() > 100, "{source}: {numbers:?}");
    }
    let counters = datapath.port_counters(OUT).unwrap();
    assert_eq!(counters.tx_packets, sent.len() as u64);
    assert_eq!(counters.drops[DropCause::QueueFull as usize], counters.tx_dropped);
    let report = datapath.qos(OUT).unwrap();
    assert_eq!(report.queues[0].1.packets, sent.len() as u64);
    assert_eq!(report.queues[0].1.dropped(Cause::Full), counters.tx_dropped);
    assert_eq!(report.queues[0].1.backlog_packets + report.held_packets, 0);
}

#[test]
fn a_port_that_goes_with_packets_queued_counts_them_and_lets_its_device_go() {
    let (datapath, devices) = datapath(2, 2, to_port_one());
    datapath.set_qos(OUT, Some(&speed(1_000))).unwrap();
    for n in 0..100 {
        assert!(devices[0].inject(&packet(9, 0x100, n)));
    }
    eventually("they are queued", || {
        let report = datapath.qos(OUT).unwrap();
        let (_, stats) = &report.queues[0];
        stats.packets + stats.backlog_packets == 100
    });
    datapath.del_port(OUT).unwrap();
    assert_eq!(Arc::strong_count(&devices[1]), 1);
    let removed = datapath.drops()[DropCause::QueueRemoved as usize].1;
    assert_eq!(removed + devices[1].take_sent().len() as u64, 100);
    assert!(removed >= 98);
    assert!(matches!(datapath.set_qos(OUT, None), Err(DpError::NoPort(OUT))));
    assert!(datapath.qos(OUT).is_none());
}

#[test]
fn ingress_policing_drops_the_excess_before_the_lookup_and_counts_it() {
    let switch = to_port_one();
    let (datapath, devices) = datapath(2, 1, switch.clone());
    // 1000 packets at once, and one a millisecond.
    let config = IngressPolicerConfig::new(0, 0, 1, 1).unwrap();
    datapath.set_policing(PortNo(0), Some(&config)).unwrap();
    for n in 0..3_000 {
        assert!(devices[0].inject(&packet(9, 0x100, n)));
    }
    eventually("all have been looked at", || {
        datapath.port_counters(PortNo(0)).unwrap().rx_packets == 3_000
    });
    // Packets are counted as received before those of them that are dropped are.
    let mut passed = 0;
    eventually("each has passed or was dropped", || {
        passed += devices[1].take_sent().len() as u64;
        passed + datapath.port_counters(PortNo(0)).unwrap().rx_dropped == 3_000
    });
    let counters = datapath.port_counters(PortNo(0)).unwrap();
    assert!(passed >= 1_000);
    assert_eq!(counters.drops[DropCause::Policed as usize], counters.rx_dropped);
    assert_eq!(datapath.drops()[DropCause::Policed as usize].1, counters.rx_dropped);
    datapath.set_policing(PortNo(0), None).unwrap();
    for n in 0..2_000 {
        assert!(devices[0].inject(&packet(9, 0x100, n)));
    }
    eventually("all arrive", || {
        passed += devices[1].take_sent().len() as u64;
        passed + counters.rx_dropped == 5_000
    });
}

#[test]
fn a_policer_passes_segments_of_more_packets_than_a_batch() {
    let (datapath, devices) = datapath(2, 1, to_port_one());
    let config = IngressPolicerConfig::new(0, 0, 1, 1).unwrap();
    datapath.set_policing(PortNo(0), Some(&config)).unwrap();
    let (packet, offload) = segment(60_000);
    for _ in 0..3 {
        assert!(devices[0].inject_with(&packet, offload));
    }
    let mut lengths = Vec::new();
    eventually("all arrive", || {
        lengths.extend(devices[1].take_sent().iter().map(Vec::len));
        lengths.iter().map(|len| len - 54).sum::<usize>() == 180_000
    });
    assert_eq!(datapath.port_counters(PortNo(0)).unwrap().rx_dropped, 0);
}

#[test]
fn a_port_with_a_speed_takes_packets_in_at_that_speed_too() {
    let (datapath, devices) = datapath(2, 1, to_port_one());
    datapath.set_qos(PortNo(0), Some(&speed(1_000_000))).unwrap();
    let begun = std::time::Instant::now();
    // 10 ms each.
    for n in 0..21 {
        assert!(devices[0].inject(&long(n, 1_226)));
    }
    let mut numbers = Vec::new();
    eventually("all arrive", || {
        numbers.extend(devices[1].take_sent().iter().map(|packet| number(packet)));
        numbers.len() == 21
    });
    // The link is not faster; how much later it is depends on the machine.
    assert!(begun.elapsed() >= Duration::from_millis(199), "{:?}", begun.elapsed());
    assert!(numbers.into_iter().eq(0..21));
    // Without the speed, what waits comes at once.
    for n in 0..500 {
        assert!(devices[0].inject(&long(n, 1_226)));
    }
    datapath.set_qos(PortNo(0), None).unwrap();
    eventually("all arrive", || {
        devices[1].take_sent().iter().any(|packet| number(packet) == 499)
    });
    assert!(begun.elapsed() < Duration::from_secs(4));
}
