use super::*;
use openflow::model::{ALL_GROUPS, ANY_GROUP, Bucket, GroupCommand, GroupMod, GroupType, Selection, bucket_ids};

fn bucket(id: u32, actions: Vec<Action>) -> Bucket {
    Bucket {
        id,
        weight: 0,
        watch_port: Port::ANY,
        watch_group: ANY_GROUP,
        actions,
    }
}

fn to_port(id: u32) -> Bucket {
    let port = Port(id + 1);
    bucket(id, vec![Action::Output { port, max_len: 0 }])
}

fn group(command: GroupCommand, id: u32, kind: GroupType, buckets: Vec<Bucket>) -> GroupMod {
    GroupMod {
        command,
        kind,
        group: id,
        bucket_id: bucket_ids::ALL,
        buckets,
        selection: None,
    }
}

fn change(tables: &mut FlowTables, change: &GroupMod) -> Result<(), OfError> {
    let mut log = tables.log();
    tables.group_mod(change, T1, &mut log).map(drop)
}

fn ids(tables: &FlowTables, id: u32) -> Vec<u32> {
    tables
        .group(id)
        .unwrap()
        .buckets
        .iter()
        .map(|bucket| bucket.id)
        .collect()
}

#[test]
fn each_bad_group_has_its_error() {
    use GroupCommand as C;
    use GroupType as T;
    let mut tables = tables();
    change(&mut tables, &group(C::Add, 1, T::All, vec![to_port(0)])).unwrap();
    change(
        &mut tables,
        &group(C::Add, 2, T::All, vec![bucket(0, vec![Action::Group(1)])]),
    )
    .unwrap();
    let watched = |bucket: Bucket| Bucket {
        watch_port: Port(1),
        ..bucket
    };
    let weighed = Bucket {
        weight: 1,
        ..to_port(0)
    };
    let chosen = |kind: T, method: &str| GroupMod {
        selection: Some(Selection {
            method: method.into(),
            ..Selection::default()
        }),
        ..group(C::Add, 3, kind, vec![to_port(0)])
    };
    let cases = [
        ("there", group(C::Add, 1, T::All, vec![]), OfError::GmfcGroupExists),
        (
            "unknown",
            group(C::Modify, 9, T::All, vec![]),
            OfError::GmfcUnknownGroup,
        ),
        (
            "number",
            group(C::Add, 0xffff_ff01, T::All, vec![]),
            OfError::GmfcInvalidGroup,
        ),
        (
            "empty indirect",
            group(C::Add, 3, T::Indirect, vec![]),
            OfError::GmfcInvalidGroup,
        ),
        (
            "two of indirect",
            group(C::Add, 3, T::Indirect, vec![to_port(0), to_port(1)]),
            OfError::GmfcInvalidGroup,
        ),
        (
            "weight",
            group(C::Add, 3, T::All, vec![weighed.clone()]),
            OfError::GmfcInvalidGroup,
        ),
        (
            "watch",
            group(C::Add, 3, T::All, vec![watched(to_port(0))]),
            OfError::GmfcWatchUnsupported,
        ),
        (
            "no watch",
            group(C::Add, 3, T::FastFailover, vec![to_port(0)]),
            OfError::GmfcInvalidGroup,
        ),
        (
            "twice",
            group(C::Add, 3, T::All, vec![to_port(0), to_port(0)]),
            OfError::GmfcBucketExists,
        ),
        (
            "bucket's number",
            group(C::Add, 3, T::All, vec![to_port(bucket_ids::FIRST)]),
            OfError::GmfcBadBucket,
        ),
        (
            "itself",
            group(C::Add, 3, T::All, vec![bucket(0, vec![Action::Group(3)])]),
            OfError::GmfcLoop,
        ),
        (
            "loop",
            group(C::Modify, 1, T::All, vec![bucket(0, vec![Action::Group(2)])]),
            OfError::GmfcLoop,
        ),
        (
            "action",
            group(C::Add, 3, T::All, vec![bucket(0, vec![Action::PushVlan(1)])]),
            OfError::BacBadArgument,
        ),
        ("method", chosen(T::Select, "dice"), OfError::BpcBadValue),
        ("method of all", chosen(T::All, "hash"), OfError::BpcBadValue),
    ];
    for (name, wrong, error) in cases {
        assert_eq!(change(&mut tables, &wrong), Err(error), "{name}");
    }
    assert_eq!(tables.groups().len(), 2);
    change(&mut tables, &chosen(T::Select, "hash")).unwrap();
    change(&mut tables, &group(C::Modify, 3, T::Select, vec![weighed])).unwrap();
    change(
        &mut tables,
        &group(C::Add, 4, T::FastFailover, vec![watched(to_port(0))]),
    )
    .unwrap();
    change(
        &mut tables,
        &group(C::Add, 5, T::All, vec![bucket(0, vec![Action::Group(77)])]),
    )
    .unwrap();
    change(&mut tables, &group(C::AddOrMod, 6, T::All, vec![])).unwrap();
}

#[test]
fn buckets_come_and_go_where_the_request_says() {
    use GroupCommand as C;
    let mut tables = tables();
    change(
        &mut tables,
        &group(C::Add, 1, GroupType::All, vec![to_port(1), to_port(4)]),
    )
    .unwrap();
    let insert = |at: u32, id: u32| GroupMod {
        bucket_id: at,
        ..group(C::InsertBucket, 1, GroupType::All, vec![to_port(id)])
    };
    let remove = |at: u32| GroupMod {
        bucket_id: at,
        ..group(C::RemoveBucket, 1, GroupType::All, vec![])
    };
    change(&mut tables, &insert(1, 7)).unwrap();
    assert_eq!(ids(&tables, 1), [1, 7, 4]);
    change(&mut tables, &insert(bucket_ids::LAST, 9)).unwrap();
    change(&mut tables, &insert(bucket_ids::FIRST, 0)).unwrap();
    assert_eq!(ids(&tables, 1), [0, 1, 7, 4, 9]);
    assert_eq!(
        change(&mut tables, &insert(bucket_ids::LAST, 4)),
        Err(OfError::GmfcBucketExists)
    );
    assert_eq!(change(&mut tables, &insert(8, 10)), Err(OfError::GmfcUnknownBucket));
    assert_eq!(change(&mut tables, &remove(99)), Err(OfError::GmfcUnknownBucket));
    for (at, left) in [
        (7, vec![0, 1, 4, 9]),
        (bucket_ids::FIRST, vec![1, 4, 9]),
        (bucket_ids::LAST, vec![1, 4]),
        (bucket_ids::ALL, vec![]),
        (bucket_ids::LAST, vec![]),
    ] {
        change(&mut tables, &remove(at)).unwrap();
        assert_eq!(ids(&tables, 1), left);
    }
    let mut other = remove(bucket_ids::ALL);
    other.group = 2;
    assert_eq!(change(&mut tables, &other), Err(OfError::GmfcUnknownGroup));
}

#[test]
fn a_group_grows_as_far_as_a_message_can_say_it() {
    use GroupCommand as C;
    let mut tables = tables();
    change(&mut tables, &group(C::Add, 1, GroupType::All, vec![])).unwrap();
    let insert = |ids: std::ops::Range<u32>| GroupMod {
        bucket_id: bucket_ids::LAST,
        ..group(C::InsertBucket, 1, GroupType::All, ids.map(to_port).collect())
    };
    // In OpenFlow 1.1, a bucket that sends to a port takes 32 bytes.
    change(&mut tables, &insert(0..2040)).unwrap();
    assert_eq!(change(&mut tables, &insert(2040..3000)), Err(OfError::GmfcOutOfBuckets));
    assert_eq!(ids(&tables, 1).len(), 2040);
    let most = (2040..).find(|n| change(&mut tables, &insert(*n..n + 1)).is_err());
    assert_eq!(most, Some(2047));
    // Without actions, it is the counters of buckets that take most: 16 bytes each.
    let bare = |ids: std::ops::Range<u32>| GroupMod {
        group: 2,
        buckets: ids.map(|id| bucket(id, vec![])).collect(),
        ..insert(0..0)
    };
    change(&mut tables, &group(C::Add, 2, GroupType::All, vec![])).unwrap();
    change(&mut tables, &bare(0..4000)).unwrap();
    assert_eq!(change(&mut tables, &bare(4000..8000)), Err(OfError::GmfcOutOfBuckets));
}

#[test]
fn rules_need_their_group_and_go_with_it() {
    use GroupCommand as C;
    let mut tables = tables();
    let mut rule = add(1, &[in_port(1)], 1);
    rule.instructions = Instructions::apply(vec![Action::Clone(vec![Action::Group(1)])]);
    rule.flags = FlowFlags::SEND_FLOW_REM;
    assert_eq!(tables.flow_mod(&rule, T1).unwrap_err(), OfError::BacBadOutGroup);
    change(&mut tables, &group(C::Add, 1, GroupType::All, vec![to_port(0)])).unwrap();
    change(&mut tables, &group(C::Add, 2, GroupType::All, vec![to_port(0)])).unwrap();
    tables.flow_mod(&rule, T1).unwrap();
    let mut written = add(1, &[in_port(2)], 1);
    written.instructions = Instructions {
        write: vec![Action::Group(2)],
        ..Instructions::default()
    };
    tables.flow_mod(&written, T1).unwrap();
    let references = |tables: &FlowTables, id| tables.group_stats(id..=id, 1, T1)[0].ref_count;
    assert_eq!((references(&tables, 1), references(&tables, 2)), (1, 1));
    // A rule that is changed to another group refers to the new one.
    let mut changed = to(FlowCommand::Modify, &written);
    changed.instructions = Instructions::apply(vec![Action::Group(1)]);
    tables.flow_mod(&changed, T1).unwrap();
    assert_eq!((references(&tables, 1), references(&tables, 2)), (2, 0));

    let mut log = tables.log();
    tables
        .group_mod(&group(C::Delete, 1, GroupType::All, vec![]), T1, &mut log)
        .unwrap();
    assert!(tables.is_empty());
    assert!(matches!(&log.events[..], [TableEvent::Removed(gone)] if gone.reason == Reason::GroupDelete));
    change(&mut tables, &group(C::Delete, 1, GroupType::All, vec![])).unwrap();
    change(&mut tables, &group(C::Delete, ALL_GROUPS, GroupType::All, vec![])).unwrap();
    assert!(tables.groups().is_empty());
}

#[test]
fn packets_count_for_a_bucket_or_the_group_as_long_as_these_stay() {
    use GroupCommand as C;
    let mut tables = tables();
    change(
        &mut tables,
        &group(C::Add, 1, GroupType::All, vec![to_port(0), to_port(1)]),
    )
    .unwrap();
    let (group_serial, serials) = {
        let group = tables.group(1).unwrap();
        (group.serial, group.serials.clone())
    };
    tables.credit_bucket(1, serials[1], Some(1), 2, 200);
    tables.credit_bucket(1, group_serial, None, 1, 100);
    // What counts for a bucket of an earlier group is lost.
    tables.credit_bucket(1, group_serial + 99, Some(0), 1, 100);
    let stats = |tables: &FlowTables| tables.group_stats(1..=1, 1, Nanos::from_secs(3))[0].clone();
    assert_eq!(
        (
            stats(&tables).packets,
            stats(&tables).bytes,
            stats(&tables).duration.sec
        ),
        (1, 100, 2)
    );
    assert_eq!(stats(&tables).buckets, [(0, 0), (2, 200)]);
    // A bucket that comes before others changes none of them.
    let insert = GroupMod {
        bucket_id: bucket_ids::FIRST,
        ..group(C::InsertBucket, 1, GroupType::All, vec![to_port(7)])
    };
    change(&mut tables, &insert).unwrap();
    tables.credit_bucket(1, serials[1], Some(1), 1, 50);
    assert_eq!(stats(&tables).buckets, [(0, 0), (0, 0), (3, 250)]);
    // A modified group begins at zero.
    change(&mut tables, &group(C::Modify, 1, GroupType::All, vec![to_port(1)])).unwrap();
    assert_eq!((stats(&tables).packets, stats(&tables).buckets), (0, vec![(0, 0)]));
    tables.credit_bucket(1, serials[0], Some(0), 5, 500);
    tables.credit_bucket(1, serials[1], Some(1), 5, 500);
    assert_eq!(stats(&tables).buckets, [(5, 500)]);
    // Another group with the same number.
    change(&mut tables, &group(C::Delete, 1, GroupType::All, vec![])).unwrap();
    change(&mut tables, &group(C::Add, 1, GroupType::All, vec![to_port(1)])).unwrap();
    tables.credit_bucket(1, serials[1], Some(0), 5, 500);
    tables.credit_bucket(1, group_serial, None, 5, 500);
    assert_eq!((stats(&tables).packets, stats(&tables).buckets), (0, vec![(0, 0)]));
    assert_eq!(tables.group_descriptions(0..=u32::MAX, 9).len(), 1);
    assert!(tables.group_descriptions(2..=2, 9).is_empty());
}
