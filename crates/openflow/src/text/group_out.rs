//! Groups and meters as text.

use super::field::{format_value, hex_bytes};
use super::{Style, actions, port};
use crate::Version;
use crate::model::*;
use std::fmt::Write;

/// A group's description.
pub fn group_desc(desc: &GroupDesc, style: Style<'_>) -> String {
    let mut out = String::new();
    let kind = Some(desc.kind);
    group(
        &mut out,
        desc.group,
        kind,
        desc.selection.as_ref(),
        &desc.buckets,
        style,
    );
    out
}

/// A change of a group: the command, then the group.
pub fn group_mod(m: &GroupMod, style: Style<'_>) -> String {
    let (word, picks) = match m.command {
        GroupCommand::Add => ("ADD", false),
        GroupCommand::Modify => ("MOD", false),
        GroupCommand::AddOrMod => ("ADD_OR_MOD", false),
        GroupCommand::Delete => ("DEL", false),
        GroupCommand::InsertBucket => ("INSERT_BUCKET", true),
        GroupCommand::RemoveBucket => ("REMOVE_BUCKET", true),
    };
    let mut out = format!("{word} ");
    if picks {
        let _ = match m.bucket_id {
            bucket_ids::ALL => write!(out, "command_bucket_id:all,"),
            bucket_ids::FIRST => write!(out, "command_bucket_id:first,"),
            bucket_ids::LAST => write!(out, "command_bucket_id:last,"),
            id => write!(out, "command_bucket_id:{id},"),
        };
    }
    let kind = (!picks).then_some(m.kind);
    group(&mut out, m.group, kind, m.selection.as_ref(), &m.buckets, style);
    out
}

fn group(
    out: &mut String,
    number: u32,
    kind: Option<GroupType>,
    selection: Option<&Selection>,
    buckets: &[Bucket],
    style: Style<'_>,
) {
    let _ = write!(out, "group_id={number}");
    let name = GroupType::ALL.iter().find(|(k, _)| Some(*k) == kind);
    if let Some((_, name)) = name {
        let _ = write!(out, ",type={name}");
    }
    if let Some(selection) = selection.filter(|s| !s.method.is_empty()) {
        let _ = write!(out, ",selection_method={}", selection.method);
        if selection.param != 0 {
            let _ = write!(out, ",selection_method_param={}", selection.param);
        }
        let fields = selection.fields.iter().map(|(field, bits)| match bits {
            bits if *bits == Value::all_ones(*field) => field.to_string(),
            Value::Wide(_) => format!("{field}={}", hex_bytes(bits)),
            bits => format!("{field}={}", format_value(*field, bits, None, style)),
        });
        match &fields.collect::<Vec<_>>()[..] {
            [] => {}
            [field] => *out += &format!(",fields={field}"),
            fields => *out += &format!(",fields({})", fields.join(",")),
        }
    }
    let usual = u16::from(kind == Some(GroupType::Select));
    for bucket in buckets {
        *out += ",bucket=";
        // Other versions have no numbers of buckets; OpenFlow 1.0 has them in Nicira's messages.
        if matches!(style.version, Version::V10 | Version::V15) {
            let _ = write!(out, "bucket_id:{},", bucket.id);
        }
        if bucket.weight != usual {
            let _ = write!(out, "weight:{},", bucket.weight);
        }
        if bucket.watch_port != Port::ANY {
            let _ = write!(out, "watch_port:{},", port(bucket.watch_port, style));
        }
        if bucket.watch_group != ANY_GROUP {
            let _ = write!(out, "watch_group:{},", bucket.watch_group);
        }
        let _ = write!(out, "actions={}", actions(&bucket.actions, style));
    }
}
