//! `dpif-netdev/*` and `odp-execute/*` commands that choose between implementations of the datapath
//! for the processor's instruction sets. oxvs has one implementation of each, so these commands
//! answer as a build of Open vSwitch that has only the scalar ones.

use super::Answer;
use crate::show;
use crate::state::State;

/// `is_netlink_there`: whether a kernel's datapath could be asked for; oxvs never has one.
pub(super) fn register(
    add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Answer),
    is_netlink_there: bool,
) {
    add("dpif-netdev/bond-show", "[dp]", 0, 1, |state, args| {
        // The translation selects the members of bonds: the datapath has none.
        show::check_datapath(state, args.first())?;
        Ok(String::new())
    });
    // Where dummies stand in for its datapaths, Open vSwitch does not know the command either.
    if is_netlink_there {
        add("dpif-netlink/dispatch-mode", "", 0, 0, |_, _| Ok(String::new()));
    }
    add("dpif-netdev/dpif-impl-get", "", 0, 0, |state, _| {
        let pmds = workers(state);
        Ok(format!(
            "Available DPIF implementations:\n  dpif_scalar (pmds: {pmds})\n"
        ))
    });
    add(
        "dpif-netdev/dpif-impl-set",
        "dpif_implementation_name",
        1,
        1,
        |_, args| match args[0].as_str() {
            "dpif_scalar" => Ok("DPIF implementation set to dpif_scalar.\n".to_owned()),
            other => Err(format!(
                "DPIF implementation not available: Unknown DPIF implementation {other}.\n"
            )),
        },
    );
    add("dpif-netdev/miniflow-parser-get", "", 0, 0, |state, _| {
        let pmds = workers(state);
        Ok(format!(
            "Available MFEX implementations:\n  scalar (available: True pmds: {pmds})\n"
        ))
    });
    add(
        "dpif-netdev/miniflow-parser-set",
        "[-pmd core] miniflow_implementation_name [study_pkt_cnt]",
        1,
        5,
        set_parser,
    );
    add(
        "dpif-netdev/pmd-perf-log-set",
        "on|off [-b before] [-a after] [-e|-ne] [-us usec] [-q qlen]",
        0,
        10,
        |_, args| {
            check_log_set(args).ok_or("Usage: ovs-appctl dpif-netdev/pmd-perf-log-set [on|off] [-b before] [-a after] [-e|-ne] [-us usec] [-q qlen]\n")?;
            Err("not supported yet".to_owned())
        },
    );
    for name in [
        "dpif-netdev/subtable-lookup-info-get",
        "dpif-netdev/subtable-lookup-prio-get",
    ] {
        add(name, "", 0, 0, |_, _| {
            Ok("Available dpcls implementations:\n  generic (Use count: 0, Priority: 1)\n".to_owned())
        });
    }
    add(
        "dpif-netdev/subtable-lookup-prio-set",
        "[lookup_func] [prio]",
        2,
        2,
        |_, args| {
            // Text that is no number counts as 0, as C reads it. There is one function, so its
            // priority does not matter.
            if args[1].parse::<i128>().is_ok_and(|prio| !(0..=255).contains(&prio)) {
                return Err("error converting priority, use integer in range 0-255\n".to_owned());
            }
            match args[0].as_str() {
                "generic" => Ok("Lookup priority change affected 0 dpcls ports and 0 subtables.\n".to_owned()),
                _ => Err("error, subtable lookup function not found\n".to_owned()),
            }
        },
    );
    add("odp-execute/action-impl-set", "name", 1, 1, |_, args| {
        match args[0].as_str() {
            "scalar" => Ok("Action implementation set to scalar.\n".to_owned()),
            other => Err(format!("Error: unknown action implementation, {other}, specified!\n")),
        }
    });
    add("odp-execute/action-impl-show", "", 0, 0, |_, _| {
        Ok("Available Actions implementations:\n  scalar (available: Yes, active: Yes)\n".to_owned())
    });
}

/// The numbers of the workers' cores.
fn workers(state: &State) -> String {
    let reports = state.dp().workers().map(|workers| workers.reports(Default::default()));
    let cores: Vec<String> = reports
        .into_iter()
        .flatten()
        .map(|report| report.core.to_string())
        .collect();
    match cores.is_empty() {
        true => "none".to_owned(),
        false => cores.join(","),
    }
}

fn set_parser(state: &State, args: &[String]) -> Answer {
    let (core, rest) = match args {
        [option, core, rest @ ..] if option == "-pmd" => (Some(core), rest),
        _ => (None, args),
    };
    let Some(name) = rest.first() else {
        return Err("Error: miniflow extract implementation is missing.\n".to_owned());
    };
    if name != "scalar" {
        return Err(format!("Error: unknown miniflow extract implementation {name}.\n"));
    }
    let Some(core) = core else {
        return Ok("Miniflow extract implementation set to scalar.\n".to_owned());
    };
    let reports = state.dp().workers().map(|workers| workers.reports(Default::default()));
    let known = reports
        .into_iter()
        .flatten()
        .any(|report| Ok(report.core) == core.parse());
    match known {
        true => Ok(format!(
            "Miniflow extract implementation set to scalar, on pmd thread {core}.\n"
        )),
        false => Err(format!(
            "Error: miniflow extract parser not changed, PMD thread {core} not in use, pass a valid pmd thread ID.\n"
        )),
    }
}

/// `Some` if the arguments of `pmd-perf-log-set` are valid.
fn check_log_set(args: &[String]) -> Option<()> {
    let mut words = args.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "on" | "off" | "-e" | "-ne" => {}
            "-b" | "-a" | "-us" | "-q" => _ = words.next()?.parse::<u32>().ok()?,
            _ => return None,
        }
    }
    Some(())
}
