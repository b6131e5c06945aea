//! Hosts that are virtual machines: their other end of the cable is a TAP device, and their agent
//! is reached over a serial line.

use super::cable::{Cable, Plug};
use super::host::{DEVICE, Host};
use super::program;
use crate::guest::{Accelerator, Guest, Kernel, LIBVIRT, Machine, Manager, Network, find};
use crate::results::Acceleration;
use crate::topology::{self, Attachment, Topology};
use crate::traffic::Agent;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::sync::Arc;
use std::thread;

/// The modules of a guest's kernel: its device, and VLAN devices.
const MODULES: &[&str] = &["virtio_pci", "virtio_net", "8021q"];

/// A virtual machine that runs, with its agent.
pub(crate) struct Running {
    agent: Agent,
    machine: Machine,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "guest {}", self.agent.name())
    }
}

impl Running {
    pub(crate) fn agent(&self) -> Agent {
        self.agent.clone()
    }

    pub(crate) fn acceleration(&self) -> Acceleration {
        match self.machine.accelerator() {
            Accelerator::Kvm => Acceleration::Kvm,
            Accelerator::Tcg => Acceleration::Tcg,
        }
    }
}

/// Why this machine can have no guests; none if it can, or need not.
pub(crate) fn missing(topology: &Topology) -> Option<String> {
    let guest = topology.hosts.iter().find(|host| memory(host).is_some())?;
    let qemu = "qemu-system-x86_64";
    if find(qemu).is_none() {
        return Some(format!(
            "host {} is a guest, and {qemu} is not installed (Debian's qemu-system-x86)",
            guest.name
        ));
    }
    let managed = topology.hosts.iter().find(|host| is_managed(host))?;
    let (package, user) = ("libvirt-daemon-system", "libvirt-qemu");
    let has_user = fs::read_to_string("/etc/passwd").is_ok_and(|all| all.contains(&format!("\n{user}:")));
    let reason = if find(LIBVIRT).is_none() {
        format!("{LIBVIRT} is not installed (Debian's libvirt-clients-qemu)")
    } else if !has_user {
        format!("its driver for QEMU is not installed (Debian's {package})")
    } else {
        return None;
    };
    Some(format!("host {} is a guest of libvirt, and {reason}", managed.name))
}

fn is_managed(host: &topology::Host) -> bool {
    matches!(host.attachment, Attachment::Libvirt { .. })
}

/// A guest's memory in MiB; none of a host that is no guest.
pub(crate) fn memory(host: &topology::Host) -> Option<u32> {
    host.attachment.memory()
}

impl Cable {
    /// Where the TAP devices of its guests are made: namespace, device, and the address that it has
    /// at a bridge.
    pub(crate) fn taps(&self) -> impl Iterator<Item = (&str, &str, Option<[u8; 6]>)> {
        [(&self.a, &self.b), (&self.b, &self.a)]
            .into_iter()
            .filter(|(plug, _)| plug.is_guest)
            .map(|(plug, other)| self.tap(plug, other))
    }

    fn tap<'a>(&'a self, guest: &'a Plug, other: &'a Plug) -> (&'a str, &'a str, Option<[u8; 6]>) {
        match &self.namespace {
            None => (&other.namespace, &other.device, Some(other.mac)),
            Some(own) => (own, &guest.inner, None),
        }
    }
}

/// Starts all guests of a testbed whose devices are there, and waits for their agents. `set_up`:
/// commands of `ip` for a host.
pub(crate) fn start(
    topology: &Topology,
    hosts: &[Host],
    cables: &[Cable],
    set_up: impl Fn(&topology::Host) -> Vec<String> + Sync,
) -> Result<Vec<(String, Arc<Running>)>> {
    let guests = topology.hosts.iter().filter(|host| memory(host).is_some());
    thread::scope(|scope| {
        let set_up = &set_up;
        let starting: Vec<_> = guests
            .map(|host| {
                let made = hosts.iter().find(|made| made.name == host.name);
                let cable = cables
                    .iter()
                    .find(|cable| [&cable.a.at, &cable.b.at].contains(&&host.name));
                scope.spawn(move || {
                    let made = made.context("every host is planned")?;
                    let running =
                        boot(host, made, cable, set_up(host)).with_context(|| format!("guest {}", host.name))?;
                    anyhow::Ok((host.name.clone(), Arc::new(running)))
                })
            })
            .collect();
        let ended = starting.into_iter().map(|thread| thread.join());
        ended
            .map(|ended| ended.map_err(|_| anyhow::anyhow!("a thread that starts a guest has panicked"))?)
            .collect()
    })
}

fn boot(host: &topology::Host, made: &Host, cable: Option<&Cable>, mut lines: Vec<String>) -> Result<Running> {
    let kernel = Kernel::fetch()?;
    let mut guest = Guest {
        modules: MODULES.iter().map(|name| (*name).to_owned()).collect(),
        memory: memory(host).unwrap_or_default(),
        manager: if is_managed(host) {
            Manager::Libvirt
        } else {
            Manager::Lab
        },
        ..Guest::default()
    };
    ensure!(
        guest.memory >= 256,
        "{} MiB of memory are too few: 256 or more",
        guest.memory
    );
    if let Some(cable) = cable {
        let (own, other) = if cable.a.at == host.name {
            (&cable.a, &cable.b)
        } else {
            (&cable.b, &cable.a)
        };
        ensure!(
            !other.is_guest || cable.namespace.is_some(),
            "a bare cable leads to another guest"
        );
        let (namespace, device, _) = cable.tap(own, other);
        guest.namespace = Some(namespace.to_owned());
        guest.networks.push(Network {
            tap: device.to_owned(),
            mac: made.mac,
            // A cable with a rate or a delay takes none from anyone.
            offloads: cable.namespace.is_none(),
        });
        // It has one queue and no more, as a container's.
        lines.insert(0, format!("link set {DEVICE} txqueuelen 1000"));
    }
    guest.programs.push(program::lab()?.display().to_string());
    let mut script = String::from("echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; ");
    for name in ["rp_filter", "send_redirects", "accept_redirects"] {
        script +=
            &format!("echo 0 >/proc/sys/net/ipv4/conf/all/{name}; echo 0 >/proc/sys/net/ipv4/conf/default/{name}; ");
    }
    script += "echo 3600000 >/proc/sys/net/ipv4/neigh/default/base_reachable_time_ms; echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save; ";
    if host.forwards {
        script += "echo 1 >/proc/sys/net/ipv4/ip_forward; ";
    }
    for line in lines {
        script += &format!("ip {line}; ");
    }
    script += "exec oxvs-lab agent";
    let machine = guest.spawn(&kernel, &["sh".to_owned(), "-c".to_owned(), script])?;
    let line = machine.stream();
    line.set_read_timeout(None)?;
    let agent = Agent::new(&host.name, line.try_clone()?, line.try_clone()?)?;
    Ok(Running { agent, machine })
}
