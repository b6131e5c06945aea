//! The agent as the lab sees it, over pipes and the loopback device.

use super::protocol::{Answer, Outcome, Said, Task};
use super::udp::{Echo, IMIX_MEAN, Probe, Receive, ReceiveFlow, Send, SendFlow, SentFlow};
use super::{Agent, agent};
use std::io::Write;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(data)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// An agent's answers to an input.
fn answers(input: &[u8]) -> Vec<Answer> {
    let sink = Sink::default();
    agent::main(input, sink.clone()).unwrap();
    let text = sink.0.lock().unwrap();
    let lines = text.split(|&b| b == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

fn error(input: &[u8]) -> (Option<u64>, String) {
    match &answers(input)[..] {
        [
            Answer {
                id,
                said: Said::Error(reason),
            },
        ] => (*id, reason.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn whatever_is_no_request_gets_an_error() {
    for garbage in [
        &b"what\n"[..],
        b"{}\n",
        b"[1,2]\n",
        b"\xff\xfe\x00\n",
        b"{\"id\":-1,\"ask\":\"go\"}\n",
        b"{\"id\":18446744073709551616,\"ask\":\"go\"}\n",
        b"no end of line",
        "[".repeat(100_000).as_bytes(),
    ] {
        let (id, reason) = error(garbage);
        assert!(id.is_none() && reason.starts_with("not a request"), "{reason}");
    }
}

#[test]
fn an_unknown_task_gets_an_error_with_its_number() {
    let (id, reason) = error(b"{\"id\":7,\"ask\":{\"start\":{\"dance\":{}}}}\n");
    assert_eq!(id, Some(7));
    assert!(reason.contains("unknown variant `dance`"), "{reason}");
    let (id, reason) = error(b"{\"id\":8,\"ask\":{\"start\":{\"echo\":{\"port\":70000}}}}\n");
    assert_eq!(id, Some(8));
    assert!(reason.contains("70000"), "{reason}");
}

#[test]
fn a_line_too_long_gets_one_error_and_the_next_line_is_read() {
    let mut input = vec![b'x'; 3 << 20];
    input.extend_from_slice(b"\n\n  \n{\"id\":1,\"ask\":\"jump\"}\n");
    let answers = answers(&input);
    assert_eq!(answers.len(), 2);
    assert!(matches!(&answers[0].said, Said::Error(reason) if reason.contains("1048576")));
    assert_eq!(answers[1].id, Some(1));
}

#[test]
fn the_end_of_the_input_ends_what_runs_and_what_waits() {
    let input = b"{\"id\":1,\"ask\":{\"start\":{\"echo\":{}}}}\n\
        {\"id\":2,\"ask\":{\"start\":{\"receive\":{\"flows\":[],\"quiet\":0}}}}\n\
        {\"id\":3,\"ask\":{\"start\":{\"probe\":{\"to\":\"127.0.0.1:9\",\"payload\":8,\"seconds\":1e9}}}}\n";
    let answers = answers(input);
    for id in 1..=3 {
        let of_task: Vec<_> = answers.iter().filter(|answer| answer.id == Some(id)).collect();
        assert!(
            matches!(of_task[..], [a, b] if matches!(a.said, Said::Ready(_)) && matches!(b.said, Said::Done(_))),
            "{of_task:?}"
        );
    }
}

#[test]
fn a_number_in_use_is_refused_and_words_to_a_task_that_has_ended_are_not_missed() {
    let input = b"{\"id\":1,\"ask\":\"go\"}\n{\"id\":1,\"ask\":\"stop\"}\n\
        {\"id\":1,\"ask\":{\"start\":{\"echo\":{}}}}\n{\"id\":1,\"ask\":{\"start\":{\"echo\":{}}}}\n";
    let answers = answers(input);
    let errors: Vec<_> = answers
        .iter()
        .filter(|a| matches!(&a.said, Said::Error(e) if e.contains("already")))
        .collect();
    assert_eq!((answers.len(), errors.len()), (3, 1));
}

fn probe(to: u16) -> Probe {
    Probe {
        to: (Ipv4Addr::LOCALHOST, to).into(),
        port: 0,
        payload: 100,
        exchanges: Some(50),
        interval: 0,
        warmup: 0.0,
        seconds: 60.0,
        timeout: 1_000_000,
        spin: 0,
        fresh: None,
    }
}

#[test]
fn exchanges_with_an_echo_server_are_counted_and_timed() {
    let agent = Agent::here("here").unwrap();
    for spin in [0, 50] {
        for interval in [0, 100] {
            let echo = agent
                .start(Task::Echo(Echo {
                    spin,
                    ..Echo::default()
                }))
                .unwrap();
            let task = Probe {
                spin,
                interval,
                ..probe(echo.ports()[0])
            };
            let mut probe = agent.start(Task::Probe(task)).unwrap();
            probe.go().unwrap();
            let Outcome::Probed(probed) = probe.wait(LONG).unwrap() else {
                panic!()
            };
            assert_eq!((probed.sent, probed.answered, probed.errors), (50, 50, 0), "{probed:?}");
            let rtt = probed.rtt.unwrap();
            assert_eq!(rtt.count, 50);
            assert!(probed.mean.unwrap() >= rtt.quantiles[0].1);
            assert_eq!(probed.jitter.unwrap().count, 49);
            assert_eq!(probed.pacing.is_some(), interval > 0);
            assert!(matches!(echo.stop().unwrap(), Outcome::Served));
        }
    }
}

#[test]
fn exchanges_that_nobody_answers_are_lost() {
    let agent = Agent::here("here").unwrap();
    // A socket that is there, and does not answer.
    let deaf = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let task = Probe {
        exchanges: Some(3),
        timeout: 2000,
        ..probe(deaf.local_addr().unwrap().port())
    };
    let mut probe = agent.start(Task::Probe(task)).unwrap();
    probe.go().unwrap();
    let Outcome::Probed(probed) = probe.wait(LONG).unwrap() else {
        panic!()
    };
    assert_eq!((probed.sent, probed.answered, probed.mean), (3, 0, None));
}

#[test]
fn a_task_that_cannot_be_done_says_why() {
    let agent = Agent::here("pc1").unwrap();
    let task = Probe { payload: 7, ..probe(9) };
    let error = agent.start(Task::Probe(task)).err().unwrap().to_string();
    assert!(error.contains("pc1: payload 7: 8 to 65507 bytes"), "{error}");
}

fn flow(number: u16, to: u16) -> SendFlow {
    SendFlow {
        flow: number,
        to: Ipv4Addr::LOCALHOST,
        ports: vec![to],
        port: 0,
        payload: 200,
        rate: 800_000,
        new_flows: false,
        first_pair: 0,
        imix: false,
    }
}

#[test]
fn what_is_sent_of_each_flow_is_received_or_accounted_for() {
    let agent = Agent::here("here").unwrap();
    let flows = (0..3).map(|flow| ReceiveFlow {
        flow,
        ports: vec![0],
        buffer: Some(1 << 20),
    });
    let task = Receive {
        flows: flows.collect(),
        quiet: 50,
    };
    let receiver = agent.start(Task::Receive(task)).unwrap();
    let ports = receiver.ports().to_vec();
    let task = Send {
        flows: vec![flow(0, ports[0]), flow(1, ports[1]), flow(9, ports[2])],
        warmup: 0.1,
        seconds: 0.4,
        knock: true,
        spin: 0,
        pinned: false,
    };
    let mut sender = agent.start(Task::Send(task)).unwrap();
    sender.go().unwrap();
    let Outcome::Sent(sent) = sender.wait(LONG).unwrap() else {
        panic!()
    };
    let Outcome::Received(received) = receiver.stop().unwrap() else {
        panic!()
    };
    for (sent, received) in sent.flows.iter().zip(&received.flows) {
        // 500 datagrams a second: each is sent, or known not to have been.
        assert!((199..=200).contains(&(sent.sent + sent.behind)), "{sent:?}");
        let arrived = received.received + received.warmup + received.foreign;
        assert_eq!(
            arrived + received.dropped.unwrap(),
            sent.sent + sent.warmup,
            "{received:?}"
        );
        assert_eq!(received.bytes, received.received * 200);
    }
    assert_eq!(received.flows[2].received, 0, "another flow's");
    assert!(received.flows[2].foreign > 0);
    assert!(received.flows[0].jitter.is_some() && sent.flows[0].pacing.is_some());
}

/// The results of a sender of one flow to a socket, and the socket.
fn sent_to_a_socket(change: impl FnOnce(SendFlow) -> SendFlow, seconds: f64) -> (SentFlow, std::net::UdpSocket) {
    let agent = Agent::here("here").unwrap();
    let deaf = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let task = Send {
        flows: vec![change(flow(0, deaf.local_addr().unwrap().port()))],
        warmup: 0.0,
        seconds,
        knock: false,
        spin: 0,
        pinned: false,
    };
    let mut sender = agent.start(Task::Send(task)).unwrap();
    sender.go().unwrap();
    let Outcome::Sent(sent) = sender.wait(LONG).unwrap() else {
        panic!()
    };
    (sent.flows[0].clone(), deaf)
}

#[test]
fn a_constant_rate_is_what_it_says_however_few_datagrams_it_is() {
    let asked = |flow| SendFlow {
        payload: 1470,
        rate: 1_000_000,
        ..flow
    };
    let (sent, _deaf) = sent_to_a_socket(asked, 0.3);
    let offered = (sent.sent + sent.behind) as f64 * 1470.0 * 8.0 / sent.seconds;
    assert!((offered - 1e6).abs() < 1.0, "{offered}: {sent:?}");
}

#[test]
fn a_mix_has_datagrams_of_three_lengths() {
    let asked = |flow| SendFlow {
        payload: IMIX_MEAN,
        imix: true,
        ..flow
    };
    let (sent, deaf) = sent_to_a_socket(asked, 0.1);
    deaf.set_nonblocking(true).unwrap();
    let mut lengths = std::collections::BTreeMap::new();
    while let Ok(length) = deaf.recv(&mut [0; 2000]) {
        *lengths.entry(length).or_insert(0_u64) += 1;
    }
    assert!(lengths.keys().copied().eq([20, 548, 1472]), "{lengths:?}");
    assert_eq!(lengths.values().sum::<u64>(), sent.sent);
}

#[test]
fn exchanges_of_new_flows_come_each_from_a_port_of_its_own() {
    let agent = Agent::here("here").unwrap();
    let server = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = server.local_addr().unwrap().port();
    let echo = std::thread::spawn(move || {
        let mut ports = std::collections::BTreeSet::new();
        // One is the warm-up's.
        for _ in 0..51 {
            let mut buffer = [0; 200];
            let (length, from) = server.recv_from(&mut buffer).unwrap();
            ports.insert(from.port());
            server.send_to(&buffer[..length], from).unwrap();
        }
        ports
    });
    let task = Probe {
        fresh: Some(40_000),
        ..probe(port)
    };
    let mut probe = agent.start(Task::Probe(task)).unwrap();
    probe.go().unwrap();
    let Outcome::Probed(probed) = probe.wait(LONG).unwrap() else {
        panic!()
    };
    // On a loaded machine an answer may be late.
    assert_eq!(probed.sent, 50, "{probed:?}");
    // A port that another program has is left out, and the one before serves again.
    assert!(echo.join().unwrap().len() >= 48);
}

#[test]
fn a_sender_that_is_stopped_says_what_it_sent() {
    let agent = Agent::here("here").unwrap();
    let deaf = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = deaf.local_addr().unwrap().port();
    let task = Send {
        flows: vec![flow(0, port)],
        warmup: 0.0,
        seconds: 1e6,
        knock: false,
        spin: 0,
        pinned: false,
    };
    let mut sender = agent.start(Task::Send(task)).unwrap();
    sender.go().unwrap();
    deaf.recv(&mut [0; 300]).unwrap();
    let Outcome::Sent(sent) = sender.stop().unwrap() else {
        panic!()
    };
    assert!(sent.flows[0].sent > 0 && sent.flows[0].seconds < 1e6);
}

#[test]
fn tasks_end_when_the_agent_has_gone() {
    let (input, to) = std::io::pipe().unwrap();
    let (from, output) = std::io::pipe().unwrap();
    let agent = Agent::new("pc1", from, to).unwrap();
    drop((input, output));
    let error = agent.start(Task::Echo(Echo::default())).err().unwrap();
    assert!(error.to_string().contains("pc1"), "{error}");
}
