//! Groups that watch groups, in trees, chains and circles.

use crate::ask::Ask;
use crate::frozen::bridge;
use dp::{Action as Step, DropCause, Key, PortNo};
use flow::extract;
use nanos::Nanos;
use std::collections::BTreeSet;
use switch::tables::Patience;
use switch::trace::Request;
use testkit::{Packet, Rng, mac};

fn key() -> Key {
    extract(
        &Packet::new(mac(1), mac(2)).payload(0x88b5, b"data").bytes(),
        &PortNo(1).into(),
    )
    .unwrap()
}

/// Groups of fast failover, each with two buckets that watch the next; the last watches a port.
fn levels(levels: u32, port: u32) -> Vec<String> {
    let bucket = |what: &str| format!(",bucket={what},output:2").repeat(2);
    let link = |n: u32| format!("group_id={n},type=ff{}", bucket(&format!("watch_group:{}", n + 1)));
    let end = format!("group_id={levels},type=ff{}", bucket(&format!("watch_port:{port}")));
    (1..levels).map(link).chain([end]).collect()
}

fn work(groups: &[String]) -> (u32, Option<DropCause>) {
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let translated = bridge(&groups, &["actions=group:1"]).ask(&key());
    assert_eq!(translated.ran_out, None);
    (translated.work, translated.translation.drop)
}

#[test]
fn each_group_is_looked_at_once_however_many_buckets_watch_it() {
    const NO_PORT: u32 = 4242;
    let (short, dead) = work(&levels(24, NO_PORT));
    let (long, also_dead) = work(&levels(96, NO_PORT));
    assert_eq!(
        (dead, also_dead),
        (Some(DropCause::PortDown), Some(DropCause::PortDown))
    );
    assert!(long < 5 * short && short < 100 * 24, "{short} {long}");
    assert_eq!(work(&levels(96, 2)).1, None);
    let groups = levels(24, NO_PORT);
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let switch = bridge(&groups, &["actions=group:1"]);
    let traced = switch
        .trace(&Request::new("br0", key(), 1), Nanos::ZERO, Patience::Whole)
        .unwrap()
        .unwrap();
    assert!(traced.text.len() < 10_000, "{}", traced.text.len());
}

#[test]
fn groups_in_a_circle_are_live_by_a_bucket_outside_it_only() {
    let circle = |ports: &str| {
        [
            "group_id=1,type=ff,bucket=watch_group:2,output:2".to_owned(),
            format!("group_id=2,type=ff,bucket=watch_group:3,output:3,{ports}"),
            "group_id=3,type=ff,bucket=watch_group:2,output:4".to_owned(),
        ]
    };
    assert_eq!(
        work(&circle("bucket=watch_port:4242,output:3")).1,
        Some(DropCause::PortDown)
    );
    assert_eq!(work(&circle("bucket=watch_port:2,output:3")).1, None);
}

/// Whether a group leads to a live port, found by going from the ports back.
fn plainly_live(watches: &[Vec<Result<u32, usize>>]) -> BTreeSet<usize> {
    let mut live = BTreeSet::new();
    loop {
        let is_live = |bucket: &Result<u32, usize>| match bucket {
            Ok(port) => *port <= 4,
            Err(group) => live.contains(group),
        };
        let more: Vec<usize> = (0..watches.len())
            .filter(|group| !live.contains(group) && watches[*group].iter().any(is_live))
            .collect();
        if more.is_empty() {
            return live;
        }
        live.extend(more);
    }
}

#[test]
fn random_groups_that_watch_groups_are_live_where_they_lead_to_a_live_port() {
    let (mut some, mut none) = (0, 0);
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let count = 2 + rng.below(8);
        // Ports 1 to 4 exist, 50 does not.
        let watches: Vec<Vec<Result<u32, usize>>> = (0..count)
            .map(|_| {
                let bucket = |rng: &mut Rng| match rng.chance(10) {
                    true => Ok(1 + rng.below(4) as u32),
                    false if rng.chance(20) => Ok(50),
                    false => Err(rng.below(count)),
                };
                (0..1 + rng.below(3)).map(|_| bucket(&mut rng)).collect()
            })
            .collect();
        let live = plainly_live(&watches);
        let mut groups: Vec<String> = (0..count)
            .map(|group| {
                let buckets = watches[group].iter().map(|bucket| match bucket {
                    Ok(port) => format!(",bucket=watch_port:{port},output:2"),
                    Err(group) => format!(",bucket=watch_group:{},output:2", group + 1),
                });
                format!("group_id={},type=ff{}", group + 1, buckets.collect::<String>())
            })
            .collect();
        // Several selections in one translation.
        let ask = (0..count).map(|group| format!(",bucket=group:{}", group + 1));
        groups.push(format!("group_id=99,type=all{}", ask.collect::<String>()));
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        let translated = bridge(&groups, &["actions=group:99"]).ask(&key());
        let sent = translated.translation.actions.iter();
        let sent = sent.filter(|step| matches!(step, Step::Output(_))).count();
        assert_eq!(sent, live.len(), "seed {seed}: {groups:?}");
        some += live.len();
        none += count - live.len();
    }
    assert!(some > 100 && none > 100, "{some} {none}");
}
