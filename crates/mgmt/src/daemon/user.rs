//! `--user`: the daemon starts as root, and serves as another user with the capabilities that it
//! needs.
//!
//! The change is made before the monitor and the daemon start. They are started by `exec`, which
//! takes all capabilities from a process of an ordinary user but the ambient ones
//! (capabilities(7)); so these carry the capabilities across, and the daemon gives them up again:
//! programs that it starts get none.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::Path;

use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::cli::Error;

/// What every daemon keeps.
const ALWAYS: CapabilitySet = CapabilitySet::NET_BIND_SERVICE.union(CapabilitySet::IPC_LOCK);

/// What a daemon keeps besides for network devices, and for programs of the kernel (Linux 5.8).
const DEVICES: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_BROADCAST)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON);

/// The user and group to run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// Looks up `[USER][:GROUP]`. Without a user it is the one that starts the program, without a
    /// group the user's own.
    ///
    /// # Errors
    /// The user or group does not exist; the user is not in the group; the program runs neither as
    /// root nor as that user.
    pub(super) fn parse(spec: &str) -> Result<User, Error> {
        let running = User::running();
        let user = Self::look_up(spec, running, &list("/etc/passwd"), &list("/etc/group"))?;
        match running.uid == 0 || running == user {
            true => Ok(user),
            false => Err(Error("only root can use --user option".to_owned())),
        }
    }

    fn look_up(spec: &str, running: User, passwd: &str, group: &str) -> Result<User, Error> {
        let (name, group_name) = spec.split_once(':').unwrap_or((spec, ""));
        let entry = match name {
            "" => entry(passwd, |fields| number(fields, 2) == Some(running.uid)),
            name => entry(passwd, |fields| fields[0] == name),
        };
        let (uid, own) = match &entry {
            Some(fields) => (number(fields, 2), number(fields, 3)),
            None if name.is_empty() => (Some(running.uid), Some(running.gid)),
            None => (None, None),
        };
        let (Some(uid), Some(own)) = (uid, own) else {
            return Err(Error(format!("user {name} not found, aborting.")));
        };
        if group_name.is_empty() {
            return Ok(User { uid, gid: own });
        }
        let found = entry_of_group(group, group_name);
        let Some((gid, members)) = found else {
            return Err(Error(format!("group {group_name} not found, aborting.")));
        };
        let name = entry.as_ref().map_or(name, |fields| fields[0]);
        if gid != own && !members.split(',').any(|member| member == name) {
            return Err(Error(format!(
                "Invalid --user option {spec} (user {name} is not in group {group_name}), aborting."
            )));
        }
        Ok(User { uid, gid })
    }

    fn running() -> User {
        User {
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
        }
    }

    /// Becomes this user, and gives it the log file. Call it before any thread starts, in each
    /// process of the daemon: one that is that user already only gives up the ambient
    /// capabilities. `with_devices`: keep the capabilities for network devices.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn take_over(self, log_file: Option<&Path>, with_devices: bool) -> io::Result<()> {
        if User::running() == self {
            return Ok(());
        }
        if let Some(file) = log_file {
            // The daemon reports a file that it cannot open.
            let _ = OpenOptions::new().append(true).create(true).mode(0o640).open(file);
            let _ = chown(file, Some(self.uid), Some(self.gid));
        }
        let keep = if with_devices { ALWAYS | DEVICES } else { ALWAYS };
        become_user(self, keep)
    }
}

fn become_user(user: User, keep: CapabilitySet) -> io::Result<()> {
    use rustix::process::{Gid, Uid};
    use rustix::thread as t;
    // A capability that the process has not, as in a container, is not kept.
    let before = t::capabilities(None)?;
    let keep = keep & before.permitted;
    // Only capabilities of the bounding set can become inheritable, which ambient ones must be.
    let inheritable = keep;
    t::set_capabilities(None, CapabilitySets { inheritable, ..before })?;
    for capability in CapabilitySet::all().iter() {
        // Older kernels do not know all.
        let _ = t::remove_capability_from_bounding_set(capability);
    }
    t::set_keep_capabilities(true)?;
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    t::set_thread_groups(&[])?;
    t::set_thread_res_gid(gid, gid, gid)?;
    t::set_thread_res_uid(uid, uid, uid)?;
    let sets = CapabilitySets {
        effective: keep,
        permitted: keep,
        inheritable,
    };
    t::set_capabilities(None, sets)?;
    for capability in keep.iter() {
        t::configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Programs that this process starts from now on get no capabilities from it.
pub(super) fn keep_capabilities_here() -> io::Result<()> {
    let sets = rustix::thread::capabilities(None)?;
    let inheritable = CapabilitySet::empty();
    // Ambient capabilities are inheritable ones, so they go too.
    rustix::thread::set_capabilities(None, CapabilitySets { inheritable, ..sets })?;
    Ok(())
}

fn list(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

/// The fields of the first line that is wanted. passwd(5): name, password, uid, gid, …
fn entry(list: &str, wanted: impl Fn(&[&str]) -> bool) -> Option<Vec<&str>> {
    list.lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| wanted(fields))
}

/// The number and members of a group. group(5): name, password, gid, members.
fn entry_of_group<'a>(list: &'a str, name: &str) -> Option<(u32, &'a str)> {
    let fields = entry(list, |fields| fields[0] == name)?;
    Some((number(&fields, 2)?, fields.get(3).copied().unwrap_or_default()))
}

fn number(fields: &[&str], at: usize) -> Option<u32> {
    fields.get(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\
                          switch:x:103:110::/nonexistent:/bin/false\n\
                          broken:x:none:7::/:\n";
    const GROUP: &str = "root:x:0:\nswitch:x:110:\nadmin:x:5:other,switch\nempty:x:6\n";
    const ROOT: User = User { uid: 0, gid: 0 };

    fn look_up(spec: &str) -> Result<(u32, u32), String> {
        let found = User::look_up(spec, ROOT, PASSWD, GROUP);
        found.map(|user| (user.uid, user.gid)).map_err(|error| error.0)
    }

    #[test]
    fn a_user_has_its_own_group_or_another_that_it_is_in() {
        assert_eq!(look_up("switch"), Ok((103, 110)));
        assert_eq!(look_up("switch:"), Ok((103, 110)));
        assert_eq!(look_up("switch:admin"), Ok((103, 5)));
        assert_eq!(look_up(""), Ok((0, 0)));
        assert_eq!(look_up(":root"), Ok((0, 0)));
    }

    #[test]
    fn users_and_groups_that_do_not_exist_or_do_not_match_are_named() {
        for (spec, error) in [
            ("nobody", "user nobody not found, aborting."),
            ("broken", "user broken not found, aborting."),
            ("switch:wheel", "group wheel not found, aborting."),
            (
                "switch:empty",
                "Invalid --user option switch:empty (user switch is not in group empty), aborting.",
            ),
            (
                ":admin",
                "Invalid --user option :admin (user root is not in group admin), aborting.",
            ),
        ] {
            assert_eq!(look_up(spec), Err(error.to_owned()), "{spec}");
        }
    }

    #[test]
    fn a_user_without_an_entry_may_name_none() {
        let running = User { uid: 9, gid: 8 };
        assert_eq!(User::look_up("", running, PASSWD, GROUP).ok(), Some(running));
    }
}
