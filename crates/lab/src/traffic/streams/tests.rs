//! Streams over the loopback device.

use super::control::{Arranged, Line, Wanted};
use super::{Kind, Stream, StreamClient, StreamServer, Streamed};
use crate::traffic::protocol::{Outcome, Task};
use crate::traffic::{Agent, Remote};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

fn client(kind: Kind, port: u16) -> StreamClient {
    StreamClient {
        to: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
        kind,
        streams: 3,
        message: None,
        buffer: None,
        congestion: None,
        seconds: 0.1,
        warmup: 0.0,
        patience: 20.0,
    }
}

fn serve(agent: &Agent) -> (Remote, u16) {
    let server = agent.start(Task::StreamServer(StreamServer::default())).unwrap();
    let port = server.ports()[0];
    (server, port)
}

fn run(agent: &Agent, client: StreamClient) -> Streamed {
    let mut client = agent.start(Task::StreamClient(client)).unwrap();
    client.go().unwrap();
    match client.wait(Duration::from_secs(120)).unwrap() {
        Outcome::Streamed(streamed) => streamed,
        other => panic!("{other:?}"),
    }
}

fn whole(streamed: &Streamed) -> &[Stream] {
    for stream in &streamed.streams {
        assert_eq!(stream.lost, None);
    }
    assert_eq!(streamed.streams.len(), 3);
    &streamed.streams
}

#[test]
fn a_tcp_stream_arrives_whole() {
    let agent = Agent::here("here").unwrap();
    let (server, port) = serve(&agent);
    let streamed = run(
        &agent,
        StreamClient {
            message: Some(10_000),
            buffer: Some(32_768),
            ..client(Kind::TcpStream, port)
        },
    );
    for stream in whole(&streamed) {
        assert!(
            stream.sent > 0 && stream.received == stream.sent && stream.seconds >= 0.1,
            "{stream:?}"
        );
    }
    assert!(matches!(server.stop().unwrap(), Outcome::ServedStreams(_)));
}

#[test]
fn what_a_tcp_stream_sends_in_its_warm_up_does_not_count() {
    let agent = Agent::here("here").unwrap();
    let (_server, port) = serve(&agent);
    let task = StreamClient {
        message: Some(10_000),
        warmup: 0.2,
        ..client(Kind::TcpStream, port)
    };
    let begin = std::time::Instant::now();
    let streamed = run(&agent, task);
    assert!(begin.elapsed() >= Duration::from_millis(300));
    for stream in whole(&streamed) {
        assert!(stream.received > 0 && stream.seconds >= 0.1, "{stream:?}");
        // Its time does not begin before the warm-up's end.
        assert!(stream.seconds < begin.elapsed().as_secs_f64() - 0.19, "{stream:?}");
    }
}

#[test]
fn of_a_udp_stream_no_more_arrives_than_was_sent() {
    let agent = Agent::here("here").unwrap();
    let (server, port) = serve(&agent);
    let streamed = run(
        &agent,
        StreamClient {
            message: Some(1000),
            ..client(Kind::UdpStream, port)
        },
    );
    let Outcome::ServedStreams(served) = server.stop().unwrap() else {
        panic!("a server of streams tells something else");
    };
    assert_eq!(served.messages.len(), 3);
    for stream in whole(&streamed) {
        let number = stream.number.unwrap() as usize;
        assert_eq!(served.messages[number], stream.datagrams_received);
        assert_eq!(stream.sent, stream.datagrams_sent * 1000);
        assert_eq!(stream.received, stream.datagrams_received * 1000);
        assert!(
            (1..=stream.datagrams_sent).contains(&stream.datagrams_received),
            "{stream:?}"
        );
    }
}

#[test]
fn the_server_knows_what_has_arrived_of_a_lost_stream() {
    let agent = Agent::here("here").unwrap();
    let (server, port) = serve(&agent);
    let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let mut line = Line::new(connected).unwrap();
    let wanted = Wanted {
        kind: Kind::UdpStream,
        buffer: None,
        congestion: None,
        message: Some(100),
        warmup: 0,
    };
    let patience = Duration::from_secs(20);
    line.send(&wanted, patience).unwrap();
    let Arranged::At { port, number } = line.receive(patience).unwrap() else {
        panic!("refused");
    };
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for _ in 0..30 {
        socket.send_to(&[0; 100], (Ipv4Addr::LOCALHOST, port)).unwrap();
    }
    // Without a word that it has sent all.
    drop(line);
    let Outcome::ServedStreams(served) = server.stop().unwrap() else {
        panic!("a server of streams tells something else");
    };
    let mut streamed = Streamed::default();
    for number in [Some(number), None] {
        streamed.streams.push(Stream {
            lost: Some("no result".to_owned()),
            number,
            ..Stream::default()
        });
    }
    streamed.take_arrived(&served).unwrap();
    assert_eq!(streamed.streams[0].datagrams_received, 30);
    assert_eq!(streamed.streams[1].datagrams_received, 0);
    streamed.streams[1].number = Some(1);
    assert!(streamed.take_arrived(&served).is_err());
}

#[test]
fn transactions_are_counted_and_timed() {
    let agent = Agent::here("here").unwrap();
    let (_server, port) = serve(&agent);
    for (kind, message) in [
        (Kind::TcpRr, None),
        (Kind::TcpRr, Some(5000)),
        (Kind::TcpCrr, None),
        (Kind::UdpRr, None),
        (Kind::UdpRr, Some(1000)),
    ] {
        let streamed = run(
            &agent,
            StreamClient {
                message,
                ..client(kind, port)
            },
        );
        let transactions: u64 = whole(&streamed).iter().map(|stream| stream.transactions).sum();
        assert!(transactions > 0, "{kind:?}");
        assert_eq!(streamed.latency.as_ref().unwrap().count, transactions);
        assert_eq!(streamed.message, message.unwrap_or(1));
    }
}

#[test]
fn streams_without_a_server_are_lost_with_the_reason() {
    let agent = Agent::here("here").unwrap();
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = nobody.local_addr().unwrap().port();
    drop(nobody);
    let streamed = run(&agent, client(Kind::TcpStream, port));
    for stream in &streamed.streams {
        let reason = stream.lost.as_ref().unwrap();
        assert!(reason.contains("the control connection cannot be made"), "{reason}");
    }
}

#[test]
fn a_stream_whose_control_connection_is_silent_or_breaks_is_lost() {
    let agent = Agent::here("here").unwrap();
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let task = StreamClient {
        streams: 1,
        patience: 0.05,
        ..client(Kind::TcpRr, silent.local_addr().unwrap().port())
    };
    let streamed = run(&agent, task.clone());
    let reason = streamed.streams[0].lost.as_ref().unwrap();
    assert!(reason.contains("nothing came over the control connection"), "{reason}");

    let hangs_up = std::thread::spawn(move || {
        // The one from before, and then this.
        drop(silent.accept().unwrap());
        let (mut stream, _) = silent.accept().unwrap();
        BufReader::new(stream.try_clone().unwrap())
            .read_line(&mut String::new())
            .unwrap();
        stream.write_all(b"{\"refused\":\"no more\"}\n").unwrap();
    });
    let streamed = run(&agent, StreamClient { patience: 20.0, ..task });
    hangs_up.join().unwrap();
    assert_eq!(streamed.streams[0].lost.as_deref(), Some("the server refused: no more"));
}

#[test]
fn what_cannot_be_done_is_refused_before_it_begins() {
    let agent = Agent::here("pc1").unwrap();
    let refused = |client: StreamClient| agent.start(Task::StreamClient(client)).err().unwrap().to_string();
    let task = client(Kind::UdpStream, 9);
    assert!(
        refused(StreamClient {
            streams: 0,
            ..task.clone()
        })
        .contains("pc1: 0 streams")
    );
    let long = StreamClient {
        message: Some(70_000),
        ..task.clone()
    };
    assert!(refused(long).contains("message 70000: 1 to 65507 bytes in a datagram"));
    let congestion = StreamClient {
        congestion: Some("pigeon".into()),
        ..task
    };
    assert!(refused(congestion).contains("no congestion control pigeon"));
}

#[test]
fn a_client_that_is_stopped_says_what_it_has() {
    let agent = Agent::here("here").unwrap();
    let (_server, port) = serve(&agent);
    for kind in [Kind::TcpStream, Kind::UdpStream, Kind::TcpRr, Kind::TcpCrr, Kind::UdpRr] {
        let task = StreamClient {
            seconds: 1e6,
            ..client(kind, port)
        };
        let mut task = agent.start(Task::StreamClient(task)).unwrap();
        task.go().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let Outcome::Streamed(streamed) = task.stop().unwrap() else {
            panic!()
        };
        assert_eq!(streamed.streams.len(), 3, "{kind:?}");
    }
}

#[test]
fn strangers_on_the_control_port_do_the_server_no_harm() {
    let agent = Agent::here("here").unwrap();
    let (server, port) = serve(&agent);
    for hostile in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0; 100_000],
        b"{\"kind\":\"tcp_rr\"",
        b"{}\n",
    ] {
        let mut stranger = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let _ = stranger.write_all(hostile);
    }
    let streamed = run(&agent, client(Kind::TcpRr, port));
    whole(&streamed);
    server.stop().unwrap();
}
