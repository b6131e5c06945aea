//! Limits on the memory that sessions use together.

use super::*;
use crate::core::hold::RESERVED;

const BUDGET: usize = 8 << 20;
const LONG: usize = BUDGET / 4;

#[test]
fn the_longest_unfinished_message_is_given_up_and_refused_by_its_id() {
    let mut world = World::with_budget(BUDGET);
    let sessions: Vec<SessionId> = (0..10).map(|_| world.connect()).collect();
    let longest = sessions[3];
    assert_eq!(world.core.input(longest, LONG), None);
    let mut given_up = Vec::new();
    for round in 1..40 {
        for session in sessions.iter().filter(|session| **session != longest) {
            given_up.extend(world.core.input(*session, round * (LONG / 40)));
        }
        assert!(world.core.budget().0 <= BUDGET + sessions.len() * RESERVED);
    }
    assert_eq!(given_up.first(), Some(&longest));
    assert!(
        world
            .core
            .refuse_input(longest, br#"{"id":"x","method":"transact","params":[]}"#)
    );
    let read = world.read(longest);
    assert_eq!(read[0]["id"], "x");
    assert_eq!(read[0]["error"]["error"], "resources exhausted");
    for outline in [&b"{"[..], b"{}", br#"{"id":null,"params":[]}"#] {
        assert!(!world.core.refuse_input(longest, outline));
    }
    for session in sessions {
        world.core.disconnect(session);
    }
    assert_eq!(world.core.budget().0, 0);
}

#[test]
fn waiting_transactions_of_all_sessions_are_bounded_together_and_each_may_have_a_few() {
    let mut world = World::with_budget(BUDGET);
    let wait = |world: &mut World, session: SessionId, id: usize, length: usize| {
        let long = json!({"op": "comment", "comment": "x".repeat(length)});
        world.send(
            session,
            json!({"id": id, "method": "transact", "params": ["D", wait_for("never"), long]}),
        );
        world.read(session)
    };
    let mut refused = 0;
    let mut sessions = Vec::new();
    for _ in 0..20 {
        let session = world.connect();
        sessions.push(session);
        for id in 0..15 {
            for reply in wait(&mut world, session, id, 1 << 18) {
                assert_eq!(reply["error"]["error"], "resources exhausted");
                refused += 1;
            }
        }
        assert!(world.core.budget().0 <= BUDGET + sessions.len() * RESERVED);
    }
    assert!(refused > 100, "{refused}");
    let last = world.connect();
    assert!(
        wait(&mut world, last, 1, 1000).is_empty(),
        "what is reserved for each is there"
    );
    sessions.iter().for_each(|session| world.core.disconnect(*session));
    assert!(wait(&mut world, last, 2, 1 << 18).is_empty());
}

#[test]
fn replies_that_nobody_reads_are_bounded_together() {
    let mut world = World::with_budget(BUDGET);
    let writer = world.connect();
    for n in 0..8 {
        world.transact(writer, insert(&format!("{n}{}", "x".repeat(1 << 17))));
    }
    let request = |n: usize| match n % 3 {
        0 => json!({"id": n, "method": "monitor", "params": ["D", n, {"T": {}}]}),
        1 => json!({"id": n, "method": "transact", "params": ["D", {"op": "select", "table": "T", "where": []}]}),
        _ => {
            json!({"id": n, "method": "monitor_cond_since", "params": ["D", n, {"T": [{}]}, "00000000-0000-0000-0000-000000000000"]})
        }
    };
    let sessions: Vec<SessionId> = (0..30).map(|_| world.connect()).collect();
    for (n, session) in sessions.iter().enumerate() {
        world.send(*session, request(n));
        world.flush();
        assert!(world.core.budget().0 <= BUDGET + sessions.len() * RESERVED);
    }
    let answers: Vec<Value> = sessions.iter().flat_map(|session| world.read(*session)).collect();
    assert_eq!(answers.len(), sessions.len());
    let refused = |answer: &&Value| answer["error"]["error"] == "resources exhausted";
    let count = answers.iter().filter(refused).count();
    assert!((1..sessions.len()).contains(&count), "{count}");
    // Refused requests succeed once other clients have read.
    let last = sessions[29];
    assert!(world.call(last, "monitor", json!(["D", "again", {"T": {}}]))[0]["error"].is_null());
}

#[test]
fn the_switch_in_the_same_process_is_served_whatever_clients_hold() {
    let mut world = World::with_budget(BUDGET);
    let client = world.connect();
    world.core.input(client, BUDGET / 2);
    let options = SessionOptions {
        name: "internal".into(),
        remote: String::new(),
        local: true,
        read_only: false,
        role: String::new(),
        client: None,
        probe: None,
    };
    let now = world.now();
    let switch = world.core.connect(options, now);
    assert_eq!(world.core.input(switch, 2 * BUDGET), None);
    let long = json!({"op": "comment", "comment": "x".repeat(1 << 20)});
    let mut ops = vec![json!("D"), wait_for("never")];
    ops.extend(std::iter::repeat_n(long, 9));
    assert!(world.call(switch, "transact", json!(ops)).is_empty(), "it waits");
    assert_eq!(world.core.budget().0, BUDGET / 2);
}
