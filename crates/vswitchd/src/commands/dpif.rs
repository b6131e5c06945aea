//! `dpif/*`, `upcall/*` and `revalidator/*`: bridges as the datapath sees them, upcalls and the
//! ageing of megaflows.

use super::{Answer, leading_number};
use crate::show::{self, FlowFormat};
use crate::state::State;
use std::collections::BTreeMap;
use std::fmt::Write;

pub(super) fn register(add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Answer)) {
    add("dpif/dump-dps", "", 0, 0, dump_dps);
    add(
        "dpif/dump-flows",
        "[-m] [--names | --no-names] bridge",
        1,
        usize::MAX,
        dump_flows,
    );
    add("dpif/show-dp-features", "bridge", 1, 1, show_features);
    add("dpif/set-dp-features", "bridge", 1, 3, set_features);

    add("revalidator/wait", "", 0, 0, |state, _| {
        state.collect_statistics();
        Ok(String::new())
    });
    add("revalidator/purge", "", 0, 0, |state, _| {
        state.dp().flush_flows();
        Ok(String::new())
    });
    add("revalidator/pause", "", 0, 0, |state, _| {
        state.pause_ageing(true);
        Ok(String::new())
    });
    add("revalidator/resume", "", 0, 0, |state, _| {
        state.pause_ageing(false);
        Ok(String::new())
    });

    add("upcall/show", "", 0, 0, |state, _| Ok(show::upcall_show(state)));
    // The limit holds until the configuration changes, as in Open vSwitch.
    add("upcall/set-flow-limit", "flow-limit-number", 1, 1, |state, args| {
        let limit = leading_number(&args[0]);
        // The datapath keeps at least one.
        state.set_flow_limit((limit as usize).max(1));
        Ok(format!("set flow_limit to {limit}\n"))
    });
    add("upcall/disable-megaflows", "", 0, 0, |state, _| {
        set_megaflows(state, false);
        Ok("megaflows disabled".to_owned())
    });
    add("upcall/enable-megaflows", "", 0, 0, |state, _| {
        set_megaflows(state, true);
        Ok("megaflows enabled".to_owned())
    });
    add("upcall/disable-ufid", "", 0, 0, |state, _| {
        state.ufid.set(false);
        Ok("Datapath dumping tersely using UFID disabled".to_owned())
    });
    add("upcall/enable-ufid", "", 0, 0, |state, _| {
        state.ufid.set(true);
        Ok("Datapath dumping tersely using UFID enabled for supported datapaths".to_owned())
    });
}

const NO_BRIDGE: &str = "no such bridge";

/// Bridges with their type.
fn dump_dps(state: &State, _: &[String]) -> Answer {
    let bridges = state.bridges.borrow();
    let bridges = bridges.state().iter();
    Ok(bridges
        .map(|(name, bridge)| format!("{}@{name}\n", bridge.datapath_type))
        .collect())
}

/// Options are recognised anywhere before the bridge, which is the last word; others are ignored,
/// as in Open vSwitch.
fn dump_flows(state: &State, args: &[String]) -> Answer {
    let mut format = FlowFormat::default();
    let (bridge, options) = args.split_last().ok_or(NO_BRIDGE)?;
    let mut names = None;
    for option in options {
        match option.as_str() {
            "-m" => format.more = true,
            "--names" => names = Some(true),
            "--no-names" => names = Some(false),
            _ => {}
        }
    }
    format.names = names.unwrap_or(format.more);
    let bridges = state.bridges.borrow();
    if !bridges.state().contains_key(bridge) {
        return Err(NO_BRIDGE.to_owned());
    }
    Ok(show::dump_flows(state, &bridges, bridge, format))
}

/// Turns off wildcards in megaflows, or on again, and forgets the present ones.
fn set_megaflows(state: &State, enabled: bool) {
    state.shared.set_megaflows(enabled);
    state.dp().flush_flows();
}

/// What the datapath supports: the key, the name and the value.
const FEATURES: &[(&str, &str, Support)] = &[
    ("masked_set_action", "Masked set action", Support::Has(true)),
    ("tnl_push_pop", "Tunnel push pop", Support::Has(false)),
    ("ufid", "Ufid", Support::Has(true)),
    ("trunc", "Truncate action", Support::Has(true)),
    ("clone", "Clone action", Support::Has(true)),
    ("sample_nesting", "Sample nesting", Support::Up(0)),
    ("ct_eventmask", "Conntrack eventmask", Support::Has(true)),
    ("ct_clear", "Conntrack clear", Support::Has(true)),
    ("max_hash_alg", "Max dp_hash algorithm", Support::Up(1)),
    ("check_pkt_len", "Check pkt length action", Support::Has(true)),
    ("ct_timeout", "Conntrack timeout policy", Support::Has(true)),
    ("explicit_drop_action", "Explicit Drop action", Support::Has(true)),
    ("lb_output_action", "Optimized Balance TCP mode", Support::Has(true)),
    ("ct_zero_snat", "Conntrack all-zero IP SNAT", Support::Has(true)),
    ("add_mpls", "MPLS Label add", Support::Has(true)),
    ("max_vlan_headers", "Max VLAN headers", Support::Up(2)),
    ("max_mpls_depth", "Max MPLS depth", Support::Up(3)),
    ("recirc", "Recirc", Support::Has(true)),
    ("ct_state", "CT state", Support::Has(true)),
    ("ct_zone", "CT zone", Support::Has(true)),
    ("ct_mark", "CT mark", Support::Has(true)),
    ("ct_label", "CT label", Support::Has(true)),
    ("ct_state_nat", "CT state NAT", Support::Has(true)),
    ("ct_orig_tuple", "CT orig tuple", Support::Has(true)),
    ("ct_orig_tuple6", "CT orig tuple for IPv6", Support::Has(true)),
    ("nd_ext", "IPv6 ND Extension", Support::Has(true)),
];

/// What the datapath supports, as the column `Datapath.capabilities` has it.
pub(crate) fn capabilities() -> BTreeMap<String, String> {
    let features = FEATURES.iter().map(|(key, _, support)| (*key, support.value()));
    let others = [("ct_flush", "true".to_owned())];
    features
        .chain(others)
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// The value of a feature.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Support {
    Has(bool),
    Up(u64),
}

impl Support {
    fn value(self) -> String {
        match self {
            Support::Has(has) => has.to_string(),
            Support::Up(most) => most.to_string(),
        }
    }
}

fn check_bridge(state: &State, name: &str) -> Result<(), String> {
    match state.bridges.borrow().state().contains_key(name) {
        true => Ok(()),
        false => Err(NO_BRIDGE.to_owned()),
    }
}

fn show_features(state: &State, args: &[String]) -> Answer {
    check_bridge(state, &args[0])?;
    let mut out = String::new();
    for (_, name, support) in FEATURES {
        let value = match support {
            Support::Has(true) => "Yes".to_owned(),
            Support::Has(false) => "No".to_owned(),
            Support::Up(most) => most.to_string(),
        };
        let _ = writeln!(out, "{name}: {value}");
    }
    Ok(out)
}

/// Shows features, or sets one to the value that it has: the translator always uses what the
/// datapath supports.
fn set_features(state: &State, args: &[String]) -> Answer {
    check_bridge(state, &args[0])?;
    let line = |(key, name, support): &(&str, &str, Support)| {
        let value = support.value();
        format!("{key} ({name}) : [run time]:{value}, [boot time]:{value}\n")
    };
    let Some(wanted) = args.get(1) else {
        return Ok(FEATURES.iter().map(line).collect());
    };
    let Some(feature) = FEATURES.iter().find(|(key, ..)| key == wanted) else {
        return Ok("Unexpected support field".to_owned());
    };
    let Some(value) = args.get(2) else {
        return Ok(line(feature));
    };
    let value = match feature.2 {
        Support::Has(_) => match value.to_ascii_lowercase().as_str() {
            "true" => Support::Has(true),
            "false" => Support::Has(false),
            _ => return Ok("Boolean value expected".to_owned()),
        },
        Support::Up(_) => match value.parse() {
            Ok(most) => Support::Up(most),
            Err(_) => return Ok("Integer number expected".to_owned()),
        },
    };
    match value == feature.2 {
        true => Ok(String::new()),
        false => Err(format!("{wanted} cannot be changed: not supported yet")),
    }
}
