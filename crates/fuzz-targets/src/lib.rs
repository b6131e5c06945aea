//! The fuzz targets.
//!
//! One function per place where bytes from outside come in; each takes any bytes and panics only if
//! the product has a fault. The fuzzers in `fuzz/` feed them at length, the test of this crate
//! feeds them the corpora in `fuzz/corpus/` and mutations of those on every `make test`.

mod aggregation;
mod configuration;
mod discovery;
mod exports;
mod liveness;
mod snooping;
mod tracking;
mod trees;
mod tunnels;
mod underlay;

pub use aggregation::aggregation;
pub use configuration::configuration;
pub use discovery::discovery;
use dp::offload::PacketKind;
pub use exports::exports;
use flow::PortNo;
use lab::scenario::{Profile, Scenario};
pub use liveness::liveness;
use mgmt::jsonrpc::{Framer, Limits, Message};
use netdev::{Csum, Frame, Gso, Offload};
use openflow::model::{FlowCommand, GroupCommand, GroupMod, MeterCommand};
use openflow::text::{Names, Style, instructions, matching, parse_flow};
use openflow::{Codec, ErrorBody, Version};
use ovsdb::log::{load, schema_record, snapshot_record};
use ovsdb::{Database, DatabaseSchema, Outcome, TxnCtx, UpdateForm, schemas};
use serde_json::Value;
use sha1_smol::Sha1;
pub use snooping::snooping;
use std::sync::OnceLock;
pub use tracking::{fragments, ftp, records, tracking};
pub use trees::trees;
pub use tunnels::tunnels;
pub use underlay::underlay;

/// A target's name, as in `fuzz/fuzz_targets` and `fuzz/corpus`, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("packet", packet),
    ("jsonrpc", jsonrpc),
    ("transact", transact),
    ("configuration", configuration),
    ("log", log),
    ("flows", flows),
    ("texts", texts),
    ("openflow", openflow),
    ("capture", capture),
    ("scenario", scenario),
    ("exports", exports),
    ("trees", trees),
    ("snooping", snooping),
    ("aggregation", aggregation),
    ("discovery", discovery),
    ("liveness", liveness),
    ("tunnels", tunnels),
    ("underlay", underlay),
    ("tracking", tracking),
    ("ftp", ftp),
    ("records", records),
    ("fragments", fragments),
];

/// A capture file that the laboratory replays.
pub fn capture(data: &[u8]) {
    if let Ok(recorded) = lab::traffic::replay::read(data) {
        assert!(recorded.frames.is_sorted_by_key(|(at, _)| *at));
        assert!(recorded.frames.iter().all(|(_, frame)| frame.len() >= 14));
    }
}

/// A scenario of the laboratory: each of its cells, and where its results belong.
pub fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match Scenario::parse("scenario.toml", text) {
        Ok(scenario) => {
            for profile in [Profile::Quick, Profile::Full] {
                for cell in scenario.cells(profile) {
                    scenario
                        .feeds(&cell.at, "oxvs")
                        .expect("what was read has a value in each cell");
                }
            }
        }
        Err(error) => {
            let lines = text.matches('\n').count() + 1;
            assert!(error.problems.iter().all(|problem| problem.line <= lines), "{error}");
        }
    }
}

/// A frame from the wire: its key, frames with the same offloaded flow, its headers, tags and
/// segmentation.
pub fn packet(data: &[u8]) {
    let key = flow::extract(data, &PortNo(1).into());
    if let Some(key) = key {
        assert_eq!(Some(key), flow::extract(data, &PortNo(1).into()));
        let _ = key.display(&flow::Mask::full()).to_string();
    }
    kinds(data);
    kinds_of_tunnels(data);
    headers(data);
    if data.len() >= 14 {
        tags(data);
        segments(data);
    }
}

/// A frame that differs in a byte and belongs to the same offloaded flow has the same key, except
/// TCP flags.
fn kinds(data: &[u8]) {
    let Some(key) = PacketKind::of(1, data) else { return };
    let read = |packet: &[u8]| {
        let mut key = flow::extract(packet, &PortNo(1).into()).expect("what has a kind has a key");
        key.set(flow::Field::TcpFlags, 0);
        key
    };
    let (whole, mut other) = (read(data), data.to_vec());
    for at in 0..data.len().min(100) {
        other[at] ^= data.first().copied().unwrap_or_default() | 1;
        if PacketKind::of(1, &other) == Some(key) {
            assert_eq!(whole, read(&other));
        }
        other[at] = data[at];
    }
}

/// What has a kind of a tunnel's packet has outer headers and an inner packet.
fn kinds_of_tunnels(data: &[u8]) {
    use tunnel::format::Format;
    for format in [Format::Vxlan { gbp: false, gpe: false }, Format::Geneve] {
        for is_segment in [false, true] {
            if let Some(kind) = PacketKind::of_tunnel(1, data, format, is_segment) {
                let inner = &data[kind.outer_len() as usize..];
                assert!(PacketKind::of(1, inner).is_some_and(|inner| inner.headers() == kind.headers()));
            }
        }
    }
}

/// The walk over the headers from every even place: what it finds lies in the bytes, whole.
fn headers(data: &[u8]) {
    use wire::headers::{Ip, Ipv6, behind_tags, ipv4, ipv4_header, ipv6, ipv6_header, is_whole, snap};
    for at in (0..data.len().min(64)).step_by(2) {
        let data = &data[at..];
        let within = |ip: Ip, v6| is_whole(ip.protocol, v6, &data[ip.start..ip.end]);
        for most in [0, 1, usize::MAX] {
            assert!(behind_tags(data, most).is_none_or(|(_, start)| start <= data.len()));
        }
        assert!(snap(data).is_none() || data.len() >= 8);
        if let Some((_, ip)) = ipv4(data) {
            within(ip, false);
            assert_eq!(ipv4_header(data), ipv4(data));
        }
        if let Some((_, Ipv6::Whole(ip))) = ipv6(data) {
            within(ip, true);
            assert_eq!(ipv6_header(data), ipv6(data));
        }
    }
}

/// Popping and pushing a tag gives the original frame.
fn tags(data: &[u8]) {
    let mut frame = Frame::from_slice(data);
    if let Some(tag) = frame.pop_vlan() {
        assert_eq!(frame.len(), data.len() - 4);
        frame.push_vlan(tag).expect("there was room for it");
        assert_eq!(frame.data(), data);
    }
}

/// Offload metadata that contradicts the frame is refused; an accepted frame can be segmented.
fn segments(data: &[u8]) {
    let (a, b) = (usize::from(data[0]), usize::from(data[1]));
    for gso in [Gso::Tcp4, Gso::Tcp6, Gso::Udp] {
        let mut frame = Frame::from_slice(data);
        frame.offload = Offload {
            csum: Csum::Partial {
                start: a as u16,
                offset: (b % 32) as u16,
            },
            gso,
            ecn: false,
            gso_size: (b * 7) as u16,
            hdr_len: (a / 2) as u16,
            ..Offload::default()
        };
        if let Ok(pieces) = netdev::gso::segment(frame) {
            assert!(pieces.iter().all(|p| p.len() <= data.len() + 4));
        }
    }
}

/// A peer's byte stream on a JSON-RPC socket: however it is cut into reads, the messages are the
/// same.
pub fn jsonrpc(data: &[u8]) {
    let limits = Limits {
        max_bytes: 1 << 16,
        max_depth: 100,
    };
    let mut framer = Framer::with_limits(limits);
    framer.push(data);
    let whole = drain(&mut framer);
    let is_legal = framer.next().is_ok();

    let mut cut = Framer::with_limits(limits);
    let mut parts = Vec::new();
    for part in data.chunks(1 + data.len() / 5) {
        cut.push(part);
        parts.extend(drain(&mut cut));
    }
    assert_eq!(whole, parts);

    // Skips each message that comes in parts.
    let mut skimming = Framer::with_limits(limits);
    let (mut kept, mut discarded) = (Vec::new(), 0);
    for part in data.chunks(1 + data.len() / 5) {
        skimming.push(part);
        discarded += usize::from(skimming.take_discarded().is_some());
        kept.extend(drain(&mut skimming));
        skimming.discard();
    }
    if is_legal {
        assert_eq!(kept.len() + discarded, whole.len());
        assert!(kept.iter().all(|frame| whole.contains(frame)));
    }
    for frame in &whole {
        if let Ok(message) = Message::parse(frame) {
            let bytes = message.clone().to_bytes();
            let again = Message::parse(&bytes).expect("what we write, we read");
            assert_eq!(again.into_value(), message.into_value());
        }
    }
}

fn drain(framer: &mut Framer) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Ok(Some(frame)) = framer.next() {
        frames.push(frame.to_vec());
    }
    frames
}

/// Transactions, a JSON array of operations a line, on an empty database of the switch's schema. A
/// line with an object is an update of another server that the database follows.
pub fn transact(data: &[u8]) {
    static SCHEMA: OnceLock<DatabaseSchema> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| DatabaseSchema::from_text(schemas::OPEN_VSWITCH).expect("our schema is good"));
    let mut database = Database::new(schema.clone(), 1);
    for line in data.split(|b| *b == b'\n').take(64) {
        let ops = match serde_json::from_slice(line) {
            Ok(Value::Array(ops)) => ops,
            Ok(updates) => {
                follow(&mut database, &updates);
                continue;
            }
            Err(_) => continue,
        };
        let before = (database.n_rows(), database.last_txn());
        let changed = match database.transact(&ops, &TxnCtx::PLAIN) {
            Outcome::Done { reply, commit } => {
                let results = reply.as_array().expect("results are an array");
                assert!(results.len() <= ops.len() + 1);
                let failed = results.iter().any(|r| r.get("error").is_some());
                assert!(!failed || commit.is_none(), "a transaction that failed left a trace");
                commit.is_some()
            }
            Outcome::Blocked { .. } => false,
        };
        if !changed {
            assert_eq!(before, (database.n_rows(), database.last_txn()));
        }
    }
}

/// Updates that fail change nothing, and contents that were adopted are those that were sent.
fn follow(database: &mut Database, updates: &Value) {
    for form in [UpdateForm::Rows, UpdateForm::Differences] {
        let before = (database.n_rows(), database.last_txn());
        if database.follow(updates, form, None).is_err() {
            assert_eq!(before, (database.n_rows(), database.last_txn()));
        }
        if database.adopt(updates, form, None, &|_| false).is_ok() {
            let again = database.adopt(updates, form, None, &|_| false);
            database.check().expect("references and indexes are right");
            // Garbage collection may have removed rows that nothing refers to.
            assert!(again.is_ok(), "what was adopted can be adopted again");
        }
    }
}

/// A database file: as it is, and with every record's length and checksum corrected, so that the
/// records' content is parsed.
pub fn log(data: &[u8]) {
    file(data);
    let mut repaired = Vec::new();
    for body in data.split(|b| *b == b'\n').filter(|l| !l.starts_with(b"OVSDB")) {
        let body = [body, b"\n"].concat();
        let header = format!("OVSDB JSON {} {}\n", body.len(), Sha1::from(&body).digest());
        repaired.extend(header.into_bytes());
        repaired.extend(body);
    }
    file(&repaired);
}

/// The valid part of a file is a valid file, and its snapshot has the same content.
fn file(bytes: &[u8]) {
    let Ok(loaded) = load(bytes, 1) else {
        return;
    };
    let good = usize::try_from(loaded.good_length).expect("no longer than the file");
    assert!(good <= bytes.len());
    assert!(good == bytes.len() || loaded.damage.is_some());
    let again = load(&bytes[..good], 1).expect("the good part is good");
    assert!(again.damage.is_none());
    assert_eq!(again.database.n_rows(), loaded.database.n_rows());

    let mut snapshot = schema_record(loaded.database.schema());
    snapshot.extend(snapshot_record(&loaded.database, None, 0).unwrap_or_default());
    let copy = load(&*snapshot, 1).expect("a snapshot is good");
    assert_eq!(copy.damage, None);
    assert_eq!(copy.database.n_rows(), loaded.database.n_rows());
}

/// A message of a controller, or of a switch: a decoded message can be encoded, and decodes to the
/// same. Any bytes can be printed.
pub fn openflow(data: &[u8]) {
    use openflow::text::print;
    print::message(data, None, 3);
    print::warnings(data);
    let mut framer = openflow::Framer::new();
    framer.push(data);
    while let Ok(Some(message)) = framer.next() {
        for version in Version::ALL {
            for (nxm, table_id) in [(false, false), (true, true)] {
                let mut message = message.to_vec();
                message[0] = version.number();
                let codec = Codec { version, nxm, table_id };
                again(&codec, &message);
                if nxm {
                    print::message(&message, None, 3);
                    print::warnings(&message);
                }
            }
        }
    }
}

fn again(codec: &Codec, sent: &[u8]) {
    let read = match codec.decode(sent) {
        Ok(read) => read,
        Err(error) => {
            // The error reply can be decoded.
            let body = openflow::model::Body::Error(ErrorBody::of(error, sent));
            let answer = codec.encode(&openflow::model::Message { xid: 1, body });
            assert!(codec.decode(&answer).is_ok());
            return;
        }
    };
    let written = codec.encode(&read);
    let mut framer = openflow::Framer::new();
    framer.push(&written);
    let mut whole = Vec::new();
    while let Some(message) = framer.next().expect("what is written has a length") {
        let read = codec.decode(message);
        let read = read.unwrap_or_else(|e| panic!("{:?} {e}: {sent:02x?} {message:02x?}", codec));
        whole.extend(codec.encode(&read));
    }
    assert_eq!(whole, written, "{codec:?} {sent:02x?}");
}

/// Flows as text, one on each line: printed text parses to the same.
pub fn flows(data: &[u8]) {
    let names = Names::default();
    for line in String::from_utf8_lossy(data).lines().take(64) {
        let Ok(m) = parse_flow(FlowCommand::Add, line, &names) else {
            continue;
        };
        for version in [Version::V10, Version::V13] {
            let style = Style::of(version);
            let print = |m: &openflow::model::FlowMod| {
                let (m, i) = (matching(&m.matching, style), instructions(&m.instructions, style));
                format!("{m} actions={i}")
            };
            let printed = print(&m);
            let again = parse_flow(FlowCommand::Add, &printed, &names);
            let again = again.unwrap_or_else(|e| panic!("{printed}: {e}"));
            assert_eq!(print(&again), printed, "{line}");
        }
    }
}

/// Groups, meters, requests, settings and files of flows as text: printed text parses to the same.
pub fn texts(data: &[u8]) {
    use openflow::text as t;
    let names = Names::default();
    let text = String::from_utf8_lossy(data);
    for step in t::parse_bundle_file("file", &text, &names).take(64).flatten() {
        if let (t::BundleStep::Group(m), _) = step {
            group(&m);
        }
    }
    let _ = t::parse_flow_file("file", &text, None, &names).take(64).count();
    for (_, line) in t::Lines::new(&text).take(64) {
        if let Ok((m, _)) = t::parse_group_line(line, &names) {
            group(&m);
        }
        for command in [MeterCommand::Add, MeterCommand::Delete] {
            if let Ok(m) = t::parse_meter_mod(command, line) {
                let printed = t::meter_config(&m.config);
                assert_eq!(
                    t::parse_meter_mod(MeterCommand::Add, &printed).is_ok(),
                    command == MeterCommand::Add
                );
                assert!(
                    command == MeterCommand::Delete || t::parse_meter_mod(command, &printed) == Ok(m),
                    "{line}"
                );
            }
        }
        if let Ok(protocols) = t::parse_protocols(line) {
            assert_eq!(t::parse_protocols(&protocols.to_string()), Ok(protocols));
        }
        if let Ok(fields) = t::parse_nxm(line) {
            let _ = t::nxm_outside_mask(&fields);
            assert_eq!(t::parse_nxm(&t::nxm(&fields)), Ok(fields), "{line}");
        }
        let _ = t::parse_packet_out(line, &names);
        let _ = t::parse_flow_stats_request(line, &names);
        let _ = t::parse_flow_monitor_request(line, &names);
        let _ = t::parse_tlv_maps(line);
        let _ = t::parse_ct_flush(&line.split(' ').collect::<Vec<_>>());
        let _ = t::parse_table_mod("3", line, &names);
        let _ = t::parse_port_config(line);
    }
}

fn group(m: &GroupMod) {
    let print = |m: &GroupMod| openflow::text::group_mod(m, Style::of(Version::V15));
    let printed = print(m);
    let rest = printed.split_once(' ').map_or("", |(_, rest)| rest);
    let again = match m.command {
        // A deletion prints an optional type.
        GroupCommand::Delete => return,
        command => openflow::text::parse_group_mod(command, rest, &Names::default()),
    };
    let (again, _) = again.unwrap_or_else(|e| panic!("{printed}: {e}"));
    assert_eq!(print(&again), printed);
}
