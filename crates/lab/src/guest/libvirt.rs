//! Guests that libvirt runs: a domain with the kernel, the initramfs, the lines and the devices
//! that a guest of QEMU has.
//!
//! `virt-qemu-run` has libvirt's driver for QEMU within itself, with its state in a directory of
//! the guest: no daemon runs, and libvirt's other domains are not touched.

use super::image::find;
use super::kernel::Kernel;
use super::machine::{Accelerator, CMDLINE, Guest, Network};
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Runs one domain until it ends.
pub(crate) const PROGRAM: &str = "virt-qemu-run";

/// The name of the domain, unique in its directory.
const NAME: &str = "guest";

/// How long libvirt may take to end a domain.
const PATIENCE: Duration = Duration::from_secs(10);

/// Settings of the driver: QEMU runs as the user that the laboratory is, and opens its files by
/// itself.
const SETTINGS: &str = "user = \"root\"\ngroup = \"root\"\ndynamic_ownership = 0\nremember_owner = 0\n\
                        namespaces = []\nsecurity_driver = \"none\"\ncgroup_controllers = []\n\
                        stdio_handler = \"file\"\n";

/// The files of the lines of a guest, in the order of its serial ports.
pub(super) struct Lines<'a> {
    pub(super) console: &'a Path,
    /// A socket at which the laboratory listens.
    pub(super) input_output: &'a Path,
    pub(super) status: &'a Path,
    pub(super) left: &'a Path,
}

/// The words of a command that runs a guest, whose files are in `directory`.
pub(super) fn command(
    guest: &Guest,
    kernel: &Kernel,
    accelerator: Accelerator,
    qemu: &Path,
    directory: &Path,
    lines: &Lines<'_>,
) -> Result<Command> {
    ensure!(!guest.virtual_time, "a guest of libvirt has no virtual time");
    let program = find(PROGRAM).context("virt-qemu-run is not installed")?;
    let root = root(directory);
    fs::create_dir_all(root.join("etc"))?;
    fs::write(root.join("etc/qemu.conf"), SETTINGS)?;
    let file = directory.join("domain.xml");
    let initramfs = directory.join("initramfs");
    fs::write(
        &file,
        domain(guest, &kernel.image(), &initramfs, accelerator, qemu, lines),
    )?;
    let mut command = Command::new(program);
    command.arg("--root").arg(root).arg(file);
    Ok(command)
}

/// Ends the domain of a guest, and QEMU where libvirt does not.
pub(super) fn end(child: &mut Child, directory: &Path) {
    let pid = Pid::from_raw(child.id().cast_signed());
    let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
    let until = Instant::now() + PATIENCE;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    // libvirt removes the file when QEMU has ended. If libvirt was killed, the file is left, and
    // another process may have the number.
    let file = root(directory).join(format!("run/qemu/{NAME}.pid"));
    let left = fs::read_to_string(file).unwrap_or_default().trim().parse().ok();
    if let Some(qemu) = left.and_then(Pid::from_raw)
        && names(qemu, directory)
    {
        let _ = kill_process(qemu, Signal::KILL);
    }
}

/// Whether the command line of a process names a directory.
fn names(pid: Pid, directory: &Path) -> bool {
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default();
    String::from_utf8_lossy(&line).contains(&*directory.to_string_lossy())
}

fn root(directory: &Path) -> PathBuf {
    directory.join("libvirt")
}

/// The domain's description.
fn domain(
    guest: &Guest,
    kernel: &Path,
    initramfs: &Path,
    accelerator: Accelerator,
    qemu: &Path,
    lines: &Lines<'_>,
) -> String {
    let (kind, processor) = match accelerator {
        Accelerator::Kvm => ("kvm", "\n  <cpu mode='host-passthrough'/>"),
        Accelerator::Tcg => ("qemu", ""),
    };
    let (memory, processors) = (guest.memory, guest.processors);
    let shown = |path: &Path| text(&path.display().to_string());
    let mut domain = format!(
        "<domain type='{kind}'>
  <name>{NAME}</name>
  <memory unit='MiB'>{memory}</memory>
  <vcpu>{processors}</vcpu>{processor}
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
    <kernel>{}</kernel>
    <initrd>{}</initrd>
    <cmdline>{CMDLINE}</cmdline>
  </os>
  <features><acpi/></features>
  <clock offset='utc'><timer name='hpet' present='no'/></clock>
  <on_reboot>destroy</on_reboot>
  <devices>
    <emulator>{}</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
",
        shown(kernel),
        shown(initramfs),
        shown(qemu),
    );
    for network in &guest.networks {
        domain += &interface(network);
    }
    let ports = [
        ("file", "", lines.console),
        ("unix", " mode='connect'", lines.input_output),
        ("file", "", lines.status),
        ("file", " append='on'", lines.left),
    ];
    for (port, (kind, more, file)) in ports.into_iter().enumerate() {
        let file = shown(file);
        let _ = writeln!(
            domain,
            "    <serial type='{kind}'><source{more} path='{file}'/><target port='{port}'/></serial>"
        );
    }
    domain + "  </devices>\n</domain>\n"
}

/// A device over a TAP device that exists: the laboratory makes it a port of the switch.
fn interface(network: &Network) -> String {
    let mac: Vec<String> = network.mac.iter().map(|byte| format!("{byte:02x}")).collect();
    let offloads = if network.offloads {
        ""
    } else {
        "<host csum='off' gso='off' tso4='off' tso6='off' ecn='off' ufo='off'/>\
         <guest csum='off' tso4='off' tso6='off' ecn='off' ufo='off'/>"
    };
    format!(
        "    <interface type='ethernet'><mac address='{}'/><target dev='{}' managed='no'/>\
         <model type='virtio'/><driver name='qemu'>{offloads}</driver></interface>\n",
        mac.join(":"),
        text(&network.tap),
    )
}

/// As XML's character data.
fn text(plain: &str) -> String {
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&apos;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_has_what_the_guest_has() {
        let network = |offloads| Network {
            tap: "s1-PC<1".to_owned(),
            mac: [2, 0, 0, 1, 0, 0xa],
            offloads,
        };
        let guest = Guest {
            memory: 300,
            networks: vec![network(false)],
            ..Guest::default()
        };
        let lines = Lines {
            console: Path::new("/d/console"),
            input_output: Path::new("/d/line"),
            status: Path::new("/d/status"),
            left: Path::new("/d/left"),
        };
        let paths = [Path::new("/k"), Path::new("/i"), Path::new("/q")];
        let made = domain(&guest, paths[0], paths[1], Accelerator::Tcg, paths[2], &lines);
        for part in [
            "<domain type='qemu'>",
            "<memory unit='MiB'>300</memory>",
            "<kernel>/k</kernel>",
            "<mac address='02:00:00:01:00:0a'/><target dev='s1-PC&lt;1' managed='no'/>",
            "<host csum='off'",
            "<serial type='unix'><source mode='connect' path='/d/line'/><target port='1'/></serial>",
            "<serial type='file'><source append='on' path='/d/left'/><target port='3'/></serial>",
        ] {
            assert!(made.contains(part), "{part}\n{made}");
        }
        assert!(!interface(&network(true)).contains("csum"));
        let made = domain(&guest, paths[0], paths[1], Accelerator::Kvm, paths[2], &lines);
        assert!(made.contains("<domain type='kvm'>") && made.contains("host-passthrough"));
    }
}
