//! Messages about rules that end and tables that fill.

use crate::world::{BRIDGE, Lab, rule};
use nanos::Nanos;
use ofproto::{ConnId, Env, Kind};
use openflow::Version;
use openflow::model::*;
use openflow::text::{Names, parse_group_mod, parse_meter_mod};
use std::time::Duration as Span;
use switch::tables::{Condition, Overflow, Patience, TableSettings};

const REQUESTER: Version = Version::V15;
const CONTROLLERS: [Version; 6] = Version::ALL;

/// A switch that reports removed rules to controllers of every version. One controller has asked
/// for no reports, and one is a slave.
struct Watched {
    lab: Lab,
    requester: ConnId,
    told: Vec<(ConnId, Version)>,
    untold: Vec<(ConnId, Version)>,
}

impl Watched {
    fn new() -> Watched {
        let mut lab = Lab::new();
        let requester = lab.open(Kind::Service, REQUESTER);
        let told = CONTROLLERS
            .map(|version| (lab.open(Kind::Primary, version), version))
            .to_vec();
        let refuses = lab.open(Kind::Primary, Version::V13);
        let masks = AsyncConfig {
            given: AsyncConfig::GIVEN_OLD,
            packet_in: [3, 0],
            port_status: [7, 7],
            ..AsyncConfig::default()
        };
        lab.say(refuses, Version::V13, 2, Body::SetAsync(masks));
        let slave = lab.open(Kind::Primary, Version::V14);
        let role = RoleMsg {
            role: Role::Slave,
            generation: Some(1),
            nicira: false,
            short_id: 0,
        };
        lab.say(slave, Version::V14, 2, Body::RoleRequest(role));
        lab.hear_raw(slave);
        Watched {
            lab,
            requester,
            told,
            untold: vec![(refuses, Version::V13), (slave, Version::V14), (requester, REQUESTER)],
        }
    }

    fn say(&mut self, body: Body) {
        self.lab.say(self.requester, REQUESTER, 7, body);
        assert_eq!(self.lab.hear(self.requester, REQUESTER), [], "it is no error");
    }

    /// Lets time pass until rules end, and reports them to the agent.
    fn pass(&mut self, span: Span) {
        let now = self.lab.world.now.get() + span;
        self.lab.world.now.set(now);
        self.lab.world.switch.borrow_mut().tick(now);
        self.lab.agent.tables_changed(&self.lab.world, now);
    }

    /// Packets go by the rules.
    fn carry(&mut self, packets: u64, bytes: u64) {
        carry(&self.lab, packets, bytes);
    }

    /// Each controller has heard of one end and nothing else; of this reason in its version.
    fn heard(&mut self, expected: &FlowRemoved, reason: impl Fn(Version) -> u8) {
        for (id, version) in self.told.clone() {
            let heard = self.lab.hear(id, version);
            let [
                Message {
                    body: Body::FlowRemoved(removed),
                    ..
                },
            ] = &heard[..]
            else {
                panic!("{version}: {heard:?}")
            };
            let expected = FlowRemoved {
                reason: reason(version),
                table: expected.table.filter(|_| version > Version::V10),
                hard_timeout: if version > Version::V10 {
                    expected.hard_timeout
                } else {
                    0
                },
                matching: removed.matching.clone(),
                ..expected.clone()
            };
            assert_eq!(**removed, expected, "{version}");
        }
        for (id, version) in self.untold.clone() {
            assert_eq!(self.lab.hear(id, version), [], "{version}");
        }
    }
}

/// Packets go by the one rule that there is for them.
fn carry(lab: &Lab, packets: u64, bytes: u64) {
    let mut switch = lab.world.switch.borrow_mut();
    let mut key = dp::Key::ZERO;
    key.set(flow::Field::InPort, 1);
    let upcall = dp::Upcall::new(&key, &[]);
    let translated = switch.translate(&upcall, Nanos::ZERO, Patience::Whole).unwrap();
    let rules = translated.rules;
    assert_eq!(rules.len(), 1);
    switch.credit(&rules, packets, bytes, lab.world.now.get());
}

fn told(priority: u16) -> FlowMod {
    FlowMod {
        flags: FlowFlags::SEND_FLOW_REM,
        new_cookie: Some(0x55aa),
        ..rule(priority)
    }
}

fn flow(change: FlowMod) -> Body {
    Body::FlowMod(Box::new(change))
}

fn removed(change: &FlowMod, age: Span, (packets, bytes): (u64, u64)) -> FlowRemoved {
    FlowRemoved {
        table: Some(0),
        reason: 0,
        priority: change.priority,
        cookie: 0x55aa,
        duration: Duration {
            sec: age.as_secs() as u32,
            nsec: age.subsec_nanos(),
        },
        idle_timeout: change.idle_timeout,
        hard_timeout: change.hard_timeout,
        packets,
        bytes,
        matching: Match::default(),
    }
}

#[test]
fn a_rule_that_comes_again_counts_anew_where_the_version_has_no_flag_that_says_so() {
    for version in CONTROLLERS {
        let mut lab = Lab::new();
        let requester = lab.open(Kind::Service, version);
        let commands = [FlowCommand::Add, FlowCommand::Modify, FlowCommand::Add];
        let counts = commands.map(|command| {
            let change = FlowMod { command, ..rule(5) };
            lab.say(requester, version, 7, flow(change));
            assert_eq!(lab.hear(requester, version), [], "{version}: it is no error");
            carry(&lab, 3, 300);
            lab.world.look(|switch| {
                let mut count = 0;
                let tables = switch.bridge(BRIDGE).unwrap().tables();
                tables.for_each(None, &Condition::ANY, |_, _, rule| count += rule.packets);
                count
            })
        });
        let last = if version < Version::V12 { 3 } else { 9 };
        assert_eq!(counts, [3, 6, last], "{version}");
    }
}

#[test]
fn timeouts_are_told_with_age_and_counts_in_every_version() {
    let mut watched = Watched::new();
    let idle = FlowMod {
        idle_timeout: 10,
        hard_timeout: 60,
        ..told(5)
    };
    watched.say(flow(idle.clone()));
    watched.pass(Span::from_millis(4_250));
    watched.carry(3, 300);
    watched.pass(Span::from_secs(9));
    assert_eq!(watched.lab.rules(), 2, "the packets keep it");
    watched.pass(Span::from_secs(1));
    watched.heard(&removed(&idle, Span::from_millis(14_250), (3, 300)), |_| 0);

    let hard = FlowMod {
        hard_timeout: 2,
        ..told(6)
    };
    watched.say(flow(hard.clone()));
    watched.carry(1, 64);
    watched.pass(Span::from_millis(2_500));
    watched.heard(&removed(&hard, Span::from_millis(2_500), (1, 64)), |_| 1);
}

#[test]
fn deletions_are_told_only_of_rules_that_ask_and_with_the_reason_that_a_version_has() {
    let mut watched = Watched::new();
    let deletes = FlowMod {
        command: FlowCommand::Delete,
        ..told(0)
    };
    watched.say(flow(told(5)));
    watched.say(flow(FlowMod {
        flags: FlowFlags::default(),
        ..told(4)
    }));
    watched.carry(2, 128);
    watched.pass(Span::from_secs(3));
    watched.say(flow(deletes));
    assert_eq!(watched.lab.rules(), 0);
    watched.heard(&removed(&told(5), Span::from_secs(3), (2, 128)), |_| 2);

    let group = |command| {
        parse_group_mod(command, "group_id=9,type=all,bucket=output:2", &Names::default())
            .unwrap()
            .0
    };
    watched.say(Body::GroupMod(group(GroupCommand::Add)));
    let mut of_group = told(6);
    of_group.instructions = Instructions::apply(vec![Action::Group(9)]);
    watched.say(flow(of_group.clone()));
    watched.pass(Span::from_secs(1));
    let gone = parse_group_mod(GroupCommand::Delete, "group_id=9", &Names::default())
        .unwrap()
        .0;
    watched.say(Body::GroupMod(gone));
    let none = (0, 0);
    watched.heard(&removed(&of_group, Span::from_secs(1), none), |version| match version {
        Version::V10 => 2,
        _ => 3,
    });

    let meter = parse_meter_mod(MeterCommand::Add, "meter=4,kbps,band=type=drop,rate=1000").unwrap();
    watched.say(Body::MeterMod(meter));
    let mut of_meter = told(7);
    of_meter.instructions = Instructions::apply(vec![Action::Meter(4)]);
    watched.say(flow(of_meter.clone()));
    watched.pass(Span::from_millis(1));
    let gone = parse_meter_mod(MeterCommand::Delete, "meter=4").unwrap();
    watched.say(Body::MeterMod(gone));
    let since_14 = |reason| move |version| if version >= Version::V14 { reason } else { 2 };
    watched.heard(&removed(&of_meter, Span::from_millis(1), none), since_14(4));

    let settings = TableSettings {
        limit: Some(1),
        overflow: Overflow::Evict,
        ..TableSettings::default()
    };
    let now = watched.lab.world.now.get();
    watched
        .lab
        .world
        .switch
        .borrow_mut()
        .set_table(BRIDGE, 0, settings, now);
    let short = FlowMod {
        hard_timeout: 30,
        ..told(8)
    };
    watched.say(flow(short.clone()));
    watched.pass(Span::from_secs(2));
    watched.say(flow(FlowMod {
        flags: FlowFlags::default(),
        ..told(9)
    }));
    assert_eq!(watched.lab.rules(), 1);
    watched.heard(&removed(&short, Span::from_secs(2), none), since_14(5));
}

#[test]
fn the_masks_of_a_connection_say_which_ends_it_is_told_of() {
    let version = Version::V14;
    let mut lab = Lab::new();
    let id = lab.open(Kind::Primary, version);
    // Hard timeouts, of six reasons.
    let masks = AsyncConfig {
        given: AsyncConfig::GIVEN_ALL,
        flow_removed: [1 << 1, 0],
        ..AsyncConfig::default()
    };
    lab.say(id, version, 2, Body::SetAsync(masks));
    lab.say(
        id,
        version,
        3,
        flow(FlowMod {
            hard_timeout: 1,
            ..told(5)
        }),
    );
    lab.say(id, version, 4, flow(told(6)));
    lab.say(
        id,
        version,
        5,
        flow(FlowMod {
            command: FlowCommand::DeleteStrict,
            ..told(6)
        }),
    );
    assert_eq!(lab.hear(id, version), []);
    let now = lab.world.now.get() + Span::from_secs(1);
    lab.world.switch.borrow_mut().tick(now);
    lab.agent.tables_changed(&lab.world, now);
    let heard = lab.hear(id, version);
    let [
        Message {
            body: Body::FlowRemoved(removed),
            ..
        },
    ] = &heard[..]
    else {
        panic!("{heard:?}")
    };
    assert_eq!((removed.reason, removed.priority), (1, 5));
}

/// Asks for table 0's vacancy to be told, or not.
fn watch(vacancy: Option<(u8, u8)>) -> Body {
    Body::TableMod(TableMod {
        table: 0,
        config: vacancy.map_or(0, |_| table_config::VACANCY),
        eviction: None,
        vacancy: vacancy.map(|(down, up)| Vacancy { down, up, now: 0 }),
    })
}

#[test]
fn a_table_that_fills_and_empties_is_told_once_each_way_to_those_who_ask() {
    const DOWN: u8 = 3;
    const UP: u8 = 4;
    for version in [Version::V14, Version::V15] {
        let mut lab = Lab::new();
        let both = lab.open(Kind::Primary, version);
        let up = lab.open(Kind::Primary, version);
        let neither = lab.open(Kind::Primary, version);
        let old = lab.open(Kind::Primary, Version::V13);
        for (id, reasons) in [(both, 1 << DOWN | 1 << UP), (up, 1 << UP)] {
            let masks = AsyncConfig {
                given: AsyncConfig::GIVEN_ALL,
                table_status: [reasons, 0],
                ..AsyncConfig::default()
            };
            lab.say(id, version, 2, Body::SetAsync(masks));
        }
        let settings = TableSettings {
            limit: Some(10),
            ..TableSettings::default()
        };
        lab.world
            .switch
            .borrow_mut()
            .set_table(BRIDGE, 0, settings, lab.world.now.get());
        lab.say(
            both,
            version,
            3,
            flow(FlowMod {
                command: FlowCommand::Delete,
                ..rule(0)
            }),
        );
        lab.say(both, version, 4, watch(Some((30, 60))));
        let put = |lab: &mut Lab, priorities: std::ops::RangeInclusive<u16>| {
            for priority in priorities {
                lab.say(both, version, 5, flow(rule(priority)));
            }
        };
        let take = |lab: &mut Lab, priorities: std::ops::RangeInclusive<u16>| {
            for priority in priorities {
                let gone = FlowMod {
                    command: FlowCommand::DeleteStrict,
                    ..rule(priority)
                };
                lab.say(both, version, 6, flow(gone));
            }
        };
        let statuses = |lab: &mut Lab, id| {
            let status = |message: Message| match message.body {
                Body::TableStatus(status) => {
                    let vacancy = status.desc.vacancy.expect("it is about vacancy");
                    assert_eq!((status.desc.table, status.desc.config), (0, table_config::VACANCY));
                    assert_eq!((vacancy.down, vacancy.up), (30, 60));
                    (status.reason, vacancy.now)
                }
                other => panic!("{version}: {other:?}"),
            };
            lab.hear(id, version).into_iter().map(status).collect::<Vec<_>>()
        };
        put(&mut lab, 1..=7);
        assert_eq!(statuses(&mut lab, both), [], "30 percent are free");
        put(&mut lab, 8..=8);
        assert_eq!(statuses(&mut lab, both), [(DOWN, 20)]);
        take(&mut lab, 8..=8);
        put(&mut lab, 8..=10);
        assert_eq!(statuses(&mut lab, both), [], "it has not been empty meanwhile");
        assert_eq!(statuses(&mut lab, up), []);
        take(&mut lab, 5..=10);
        assert_eq!(statuses(&mut lab, both), [], "60 percent are free");
        take(&mut lab, 4..=4);
        assert_eq!(statuses(&mut lab, both), [(UP, 70)]);
        assert_eq!(statuses(&mut lab, up), [(UP, 70)]);
        put(&mut lab, 4..=8);
        assert_eq!(statuses(&mut lab, both), [(DOWN, 20)]);
        lab.say(both, version, 7, watch(None));
        take(&mut lab, 1..=8);
        for id in [both, up, neither] {
            assert_eq!(statuses(&mut lab, id), [], "nobody is told of what nobody watches");
        }
        assert_eq!(lab.hear(old, Version::V13), []);
    }
}

#[test]
fn a_watch_on_a_table_that_is_fuller_already_begins_with_its_rise() {
    let version = Version::V14;
    let mut lab = Lab::new();
    let id = lab.open(Kind::Primary, version);
    let masks = AsyncConfig {
        given: AsyncConfig::GIVEN_ALL,
        table_status: [1 << 3 | 1 << 4, 0],
        ..AsyncConfig::default()
    };
    lab.say(id, version, 2, Body::SetAsync(masks));
    let settings = TableSettings {
        limit: Some(4),
        ..TableSettings::default()
    };
    lab.world
        .switch
        .borrow_mut()
        .set_table(BRIDGE, 0, settings, lab.world.now.get());
    for priority in 1..=3 {
        lab.say(id, version, 3, flow(rule(priority)));
    }
    lab.say(id, version, 4, watch(Some((20, 40))));
    assert_eq!(lab.hear(id, version), [], "the table's own rule is the fourth");
    let gone = |priority| {
        flow(FlowMod {
            command: FlowCommand::DeleteStrict,
            ..rule(priority)
        })
    };
    lab.say(id, version, 5, gone(1));
    assert_eq!(lab.hear(id, version), [], "a quarter is free");
    lab.say(id, version, 6, gone(2));
    let heard = lab.hear(id, version);
    let [
        Message {
            body: Body::TableStatus(status),
            ..
        },
    ] = &heard[..]
    else {
        panic!("{heard:?}")
    };
    assert_eq!(
        (status.reason, status.desc.vacancy.map(|vacancy| vacancy.now)),
        (4, Some(50))
    );
}
