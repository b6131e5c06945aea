//! Requests that arrive in pieces, with pauses between them, and over small buffers.

mod common;

use std::time::{Duration, Instant};

use common::{Client, Server, database, directory, insert};
use rustix::net::sockopt;
use serde_json::json;

/// Sends requests until the connection is in its steady state.
fn settle(client: &mut Client) {
    for _ in 0..20 {
        assert_eq!(client.call("echo", json!([1]))["result"], json!([1]));
    }
}

#[test]
fn requests_are_answered_whatever_the_pieces_and_pauses_they_arrive_in() {
    let dir = directory();
    let file = database(dir.path());
    let server = Server::start(dir.path(), &file, &[]);
    let mut client = server.connect();
    settle(&mut client);
    for round in 0..200usize {
        // Short and long requests: whole, in pieces, and several at once.
        let text = "x".repeat(round % 7 * 400);
        let request = json!({"id": round, "method": "echo", "params": [text]}).to_string();
        let pieces = round % 4 + 1;
        for piece in request.as_bytes().chunks(request.len().div_ceil(pieces)) {
            client.send(std::str::from_utf8(piece).unwrap());
            if round % 3 == 0 {
                std::thread::sleep(Duration::from_micros(20 * (round as u64 % 5)));
            }
        }
        let more = if round % 5 == 0 { 3 } else { 0 };
        client.send(&r#"{"id":"more","method":"echo","params":[]}"#.repeat(more));
        let reply = client.recv().unwrap();
        assert_eq!((&reply["id"], &reply["result"][0]), (&json!(round), &json!(text)));
        for _ in 0..more {
            assert_eq!(client.recv().unwrap()["id"], "more");
        }
    }
}

#[test]
fn a_client_with_the_smallest_of_buffers_is_not_stuck() {
    let dir = directory();
    let file = database(dir.path());
    let server = Server::start(dir.path(), &file, &[]);
    let mut client = server.connect();
    sockopt::set_socket_send_buffer_size(&client.stream, 1).unwrap();
    settle(&mut client);
    for round in 0..20 {
        // One byte at a time: the buffer is full after a few.
        let request = json!({"id": round, "method": "echo", "params": ["a few bytes more"]}).to_string();
        for byte in request.chars() {
            client.send(&byte.to_string());
        }
        assert_eq!(client.recv().unwrap()["id"], round);
    }
}

#[test]
fn others_are_served_while_one_sends_request_after_request() {
    let dir = directory();
    let file = database(dir.path());
    let server = Server::start(dir.path(), &file, &[]);
    let mut busy = server.connect();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                settle(&mut busy);
            }
        });
        for at in 0..20 {
            std::thread::sleep(Duration::from_millis(5));
            let began = Instant::now();
            let mut other = server.connect();
            assert!(other.transact(insert(&format!("row{at}")))["error"].is_null());
            assert!(began.elapsed() < Duration::from_secs(2), "another client waits");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(server.connect().names().len(), 20);
}

#[test]
fn the_end_of_a_client_is_noticed() {
    let dir = directory();
    let file = database(dir.path());
    let server = Server::start(dir.path(), &file, &[]);
    for _ in 0..50 {
        let mut client = server.connect();
        settle(&mut client);
        client.send(r#"{"id":0,"method":"echo","params":[]}{"id":"#);
    }
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let usage = server.control("memory/show", &[]).unwrap();
        if !usage
            .split_whitespace()
            .any(|word| word.starts_with("sessions:") && word != "sessions:0")
        {
            break;
        }
        assert!(Instant::now() < until, "{usage}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
