//! A guest's parts, and QEMU that runs it.

use super::image::{Image, find};
use super::kernel::Kernel;
use super::libvirt::{self, Lines};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const QEMU: &str = "qemu-system-x86_64";

/// Programs that every guest has: those that start others, since busybox's would start its own `ip`
/// and `tc`, and these.
const PROGRAMS: &[&str] = &["sh", "env", "timeout", "unshare", "ip", "tc"];

/// The kernel's command line. Emulated on a busy machine, the timer is later than the kernel's
/// check of it allows.
pub(super) const CMDLINE: &str = "console=ttyS0 loglevel=4 panic=-1 mitigations=off no_timer_check";

/// The options of a device without offloads.
const NO_OFFLOADS: &str = ",csum=off,gso=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off,\
                           guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off";

/// How long a guest may take until it can be spoken to.
const BOOT: Duration = Duration::from_secs(60);

/// The same where the processor itself runs it: a guest that does not boot in this time is
/// emulated.
const KVM_BOOT: Duration = Duration::from_secs(10);

/// A guest that can be started.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Programs that it gets beside a shell, `ip` and `tc`; by path, or by name as a shell finds
    /// them.
    pub programs: Vec<String>,
    /// Other files: the name there, and the file here.
    pub files: Vec<(String, PathBuf)>,
    /// Kernel modules that are loaded before the command, with those that they need.
    pub modules: Vec<String>,
    /// In MiB.
    pub memory: u32,
    /// How many processors.
    pub processors: u32,
    /// Its time passes with its instructions, and is skipped while it idles: a run is the same on a
    /// busy machine. Needs one processor.
    pub virtual_time: bool,
    /// Its Ethernet devices, `eth0` and on.
    pub networks: Vec<Network>,
    /// Network namespace in which the devices' other ends are; none: this one.
    pub namespace: Option<String>,
    /// What starts and ends it.
    pub manager: Manager,
}

/// What starts QEMU, and ends it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manager {
    /// The laboratory.
    #[default]
    Lab,
    /// libvirt.
    Libvirt,
}

/// An Ethernet device of a guest.
#[derive(Clone, Debug)]
pub struct Network {
    /// The existing TAP device on this machine.
    pub tap: String,
    /// The guest's address.
    pub mac: [u8; 6],
    /// Its checksums and the cutting of its segments may be left to the device.
    pub offloads: bool,
}

/// The accelerator of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor itself.
    Kvm,
    /// QEMU's emulation.
    Tcg,
}

/// The destination of the command's files.
#[derive(Clone, Copy, Debug)]
pub enum Output<'a> {
    /// Nowhere.
    None,
    /// The contents of the guest's `/out` at the end are unpacked into this directory.
    Archive(&'a Path),
    /// Data that the command writes to [`Output::DEVICE`] is appended to this file.
    Stream(&'a Path),
}

impl Output<'_> {
    /// Device of the guest whose output [`Output::Stream`] takes.
    pub const DEVICE: &'static str = "/dev/ttyS3";
}

/// How a command of a guest ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its exit status.
    pub status: i32,
}

/// A guest that runs. Dropping it ends it.
pub struct Machine {
    child: Child,
    files: TempDir,
    stream: UnixStream,
    accelerator: Accelerator,
    manager: Manager,
}

impl Default for Guest {
    fn default() -> Guest {
        Guest {
            programs: Vec::new(),
            files: Vec::new(),
            modules: Vec::new(),
            memory: 512,
            processors: 1,
            virtual_time: false,
            networks: Vec::new(),
            namespace: None,
            manager: Manager::default(),
        }
    }
}

impl Accelerator {
    /// The accelerator for this kernel: KVM if it boots, probed once.
    pub fn probe(kernel: &Kernel) -> Accelerator {
        static FOUND: OnceLock<Accelerator> = OnceLock::new();
        *FOUND.get_or_init(|| {
            if !Path::new("/dev/kvm").exists() {
                return Accelerator::Tcg;
            }
            let known = kernel.note("accelerator");
            match fs::read_to_string(&known).unwrap_or_default().as_str() {
                "kvm" => return Accelerator::Kvm,
                "tcg" => return Accelerator::Tcg,
                _ => {}
            }
            let boots = || {
                let mut machine =
                    Guest::default().start(kernel, &["true".to_owned()], Output::None, Accelerator::Kvm)?;
                machine.finish(KVM_BOOT, &mut io::sink())
            };
            let (found, name) = match boots() {
                Ok(Finished { status: 0 }) => (Accelerator::Kvm, "kvm"),
                _ => (Accelerator::Tcg, "tcg"),
            };
            // Unless it can be kept it is found out again next time.
            let _ = fs::write(known, name);
            found
        })
    }

    fn option(self, guest: &Guest) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg if guest.processors > 1 => "tcg,thread=multi",
            Accelerator::Tcg => "tcg,thread=single",
        }
    }
}

impl Guest {
    /// Runs a command to its end; what it prints goes to `printed`.
    ///
    /// # Errors
    /// QEMU or a program is missing, the guest does not boot or does not end within
    /// `limit`: with its console output.
    pub fn run(
        &self,
        kernel: &Kernel,
        command: &[String],
        out: Output<'_>,
        limit: Duration,
        printed: &mut dyn Write,
    ) -> Result<Finished> {
        let accelerator = self.accelerator(kernel);
        let mut machine = self.start(kernel, command, out, accelerator)?;
        let finished = machine.finish(limit, printed)?;
        if let Output::Archive(directory) = out {
            fs::create_dir_all(directory)?;
            super::kernel::said(
                Command::new("tar")
                    .arg("-xf")
                    .arg(machine.file("left"))
                    .arg("-C")
                    .arg(directory),
            )?;
        }
        Ok(finished)
    }

    /// Starts a command and leaves it running; text written to its input reaches it.
    ///
    /// # Errors
    /// As [`Guest::run`].
    pub fn spawn(&self, kernel: &Kernel, command: &[String]) -> Result<Machine> {
        self.start(kernel, command, Output::None, self.accelerator(kernel))
    }

    /// Virtual time is the emulation's.
    fn accelerator(&self, kernel: &Kernel) -> Accelerator {
        if self.virtual_time {
            Accelerator::Tcg
        } else {
            Accelerator::probe(kernel)
        }
    }

    fn start(&self, kernel: &Kernel, command: &[String], out: Output<'_>, accelerator: Accelerator) -> Result<Machine> {
        let boot = if accelerator == Accelerator::Kvm {
            KVM_BOOT
        } else {
            BOOT
        };
        let qemu = find(QEMU).with_context(|| format!("{QEMU} is not installed (Debian's qemu-system-x86)"))?;
        let prefix = directory_prefix(std::process::id());
        let files = tempfile::Builder::new().prefix(&prefix).tempdir()?;
        let at = |name: &str| files.path().join(name);
        self.write_image(kernel, command, matches!(out, Output::Archive(_)), &at("initramfs"))?;
        let left = match out {
            Output::Stream(file) => file.to_owned(),
            Output::Archive(_) | Output::None => at("left"),
        };
        let listener = UnixListener::bind(at("input-output"))?;
        let lines = Lines {
            console: &at("console"),
            input_output: &at("input-output"),
            status: &at("status"),
            left: &left,
        };
        let run = match self.manager {
            Manager::Lab => self.qemu(kernel, accelerator, &qemu, &at("initramfs"), &lines),
            Manager::Libvirt => libvirt::command(self, kernel, accelerator, &qemu, files.path(), &lines)?,
        };
        let mut run = self.in_namespace(run);
        run.stdin(Stdio::null())
            .stdout(File::create(at("qemu"))?)
            .stderr(File::create(at("qemu-errors"))?);
        let mut child = run.spawn().with_context(|| format!("starting {QEMU}"))?;
        let stream = accept(&listener, &mut child).with_context(|| read_file(&at("qemu-errors")));
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                // It is not to outlive the error; it may have ended already.
                end(self.manager, &mut child, files.path());
                return Err(error);
            }
        };
        let mut machine = Machine {
            child,
            files,
            stream,
            accelerator,
            manager: self.manager,
        };
        machine.wait_until_ready(boot)?;
        Ok(machine)
    }

    fn in_namespace(&self, command: Command) -> Command {
        let Some(namespace) = &self.namespace else {
            return command;
        };
        let mut run = Command::new("ip");
        run.args(["netns", "exec", namespace]).arg(command.get_program());
        run.args(command.get_args());
        run
    }

    /// The command that runs it without another manager.
    fn qemu(
        &self,
        kernel: &Kernel,
        accelerator: Accelerator,
        qemu: &Path,
        initramfs: &Path,
        lines: &Lines<'_>,
    ) -> Command {
        let mut run = Command::new(qemu);
        run.args([
            "-accel",
            accelerator.option(self),
            "-machine",
            "pc,hpet=off",
            "-display",
            "none",
        ])
        .args(["-nodefaults", "-no-reboot", "-cpu"])
        .arg(if accelerator == Accelerator::Kvm {
            "host"
        } else {
            "qemu64"
        })
        .args(["-smp", &self.processors.to_string(), "-m", &self.memory.to_string()])
        .arg("-kernel")
        .arg(kernel.image())
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", CMDLINE]);
        if self.virtual_time {
            run.args([
                "-icount",
                "shift=1,sleep=off,align=off",
                "-rtc",
                "base=2026-01-01,clock=vm",
            ]);
        }
        for (number, network) in self.networks.iter().enumerate() {
            let offloads = if network.offloads { "" } else { NO_OFFLOADS };
            let mac: Vec<String> = network.mac.iter().map(|byte| format!("{byte:02x}")).collect();
            run.args([
                "-netdev",
                &format!("tap,id=n{number},ifname={},script=no,downscript=no", network.tap),
            ])
            .args([
                "-device",
                &format!("virtio-net-pci,netdev=n{number},mac={}{offloads}", mac.join(":")),
            ]);
        }
        let serial = |kind: &str, file: &Path, more: &str| format!("{kind},id=c{kind},path={}{more}", file.display());
        run.arg("-serial")
            .arg(format!("file:{}", lines.console.display()))
            .args([
                "-chardev",
                &serial("socket", lines.input_output, ""),
                "-serial",
                "chardev:csocket",
            ])
            .arg("-serial")
            .arg(format!("file:{}", lines.status.display()))
            .args([
                "-chardev",
                &serial("file", lines.left, ",append=on"),
                "-serial",
                "chardev:cfile",
            ]);
        run
    }

    fn write_image(&self, kernel: &Kernel, command: &[String], collect: bool, file: &Path) -> Result<()> {
        let mut image = Image::new(BufWriter::new(File::create(file)?));
        for directory in [
            "dev", "etc", "out", "proc", "run", "sys", "tmp", "usr/bin", "usr/sbin", "var/run", "var/log",
        ] {
            image.directory(directory)?;
        }
        for link in ["sbin", "lib64"] {
            image.symlink(link, if link == "sbin" { "bin" } else { "lib" })?;
        }
        for program in PROGRAMS.iter().copied().chain(self.programs.iter().map(String::as_str)) {
            let found = find(program).with_context(|| format!("no program {program} for the guest"))?;
            image.program(&found)?;
        }
        image.busybox(kernel)?;
        image.modules(kernel, &self.modules)?;
        for (name, file) in &self.files {
            let content = fs::read(file).with_context(|| file.display().to_string())?;
            image.file(name.trim_start_matches('/'), &content)?;
        }
        if collect {
            image.file("etc/collect", b"")?;
        }
        let quoted: Vec<String> = command
            .iter()
            .map(|word| format!("'{}'", word.replace('\'', r"'\''")))
            .collect();
        image.file("etc/command", quoted.join(" ").as_bytes())?;
        image.file("init", include_bytes!("init"))?;
        image.finish()?.flush()?;
        Ok(())
    }
}

/// QEMU's connection to the socket of the guest's input and output.
fn accept(listener: &UnixListener, child: &mut Child) -> Result<UnixStream> {
    listener.set_nonblocking(true)?;
    let until = Instant::now() + BOOT;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(status) = child.try_wait()? {
            bail!("{QEMU} ended at once ({status})");
        }
        ensure!(
            Instant::now() < until,
            "{QEMU} did not start within {} s",
            BOOT.as_secs()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Machine {
    /// What runs it: QEMU does not start without it.
    pub fn accelerator(&self) -> Accelerator {
        self.accelerator
    }

    /// The command's standard input and output.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Process that runs it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The guest's console output.
    pub fn console(&self) -> String {
        read_file(&self.file("console"))
    }

    /// Reads up to the marker that its first process prints before the command. The terminal echoes
    /// until that process switches echo off.
    fn wait_until_ready(&mut self, boot: Duration) -> Result<()> {
        let until = Instant::now() + boot;
        let mut heard = Vec::new();
        while !heard.ends_with(b"ready\n") {
            let left = until.saturating_duration_since(Instant::now());
            let mut byte = [0];
            let read = match left.is_zero() {
                true => Ok(0),
                false => self
                    .stream
                    .set_read_timeout(Some(left))
                    .and_then(|()| self.stream.read(&mut byte)),
            };
            match read {
                Ok(1..) => heard.push(byte[0]),
                Err(error) if waits(&error) => {}
                Ok(0) | Err(_) => bail!(
                    "the guest did not boot:\n{}{}",
                    read_file(&self.file("qemu-errors")),
                    self.console()
                ),
            }
        }
        Ok(())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Waits for the guest's end and passes on what its command prints.
    fn finish(&mut self, limit: Duration, printed: &mut dyn Write) -> Result<Finished> {
        let until = Instant::now() + limit;
        let mut buffer = [0; 4096];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            ensure!(
                !left.is_zero(),
                "the guest did not end within {} s; its console:\n{}",
                limit.as_secs(),
                self.console()
            );
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => printed.write_all(&buffer[..n])?,
                Err(error) if waits(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.child.wait()?;
        let errors = read_file(&self.file("qemu-errors"));
        let status = read_file(&self.file("status"))
            .trim()
            .parse()
            .with_context(|| format!("the guest did not end:\n{errors}{}", self.console()))?;
        Ok(Finished { status })
    }
}

/// Whether the error is a timeout.
fn waits(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// A file's text; empty if it does not exist.
fn read_file(file: &Path) -> String {
    fs::read(file)
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .unwrap_or_default()
}

impl Drop for Machine {
    fn drop(&mut self) {
        end(self.manager, &mut self.child, self.files.path());
    }
}

/// Ends a guest, which may have ended by itself.
fn end(manager: Manager, child: &mut Child, files: &Path) {
    if manager == Manager::Libvirt {
        libvirt::end(child, files);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The beginning of the names of directories with the files of a process's guests.
pub(super) fn directory_prefix(maker: u32) -> String {
    format!("{DIRECTORIES}{maker}-")
}

const DIRECTORIES: &str = "oxvs-guest-";

/// The process that made a directory of that name for its guests; none for other directories.
pub(crate) fn directory_maker(name: &str) -> Option<u32> {
    name.strip_prefix(DIRECTORIES)?.split_once('-')?.0.parse().ok()
}

/// Whether a process is QEMU of a guest that the process `maker` has started with libvirt: that one
/// is no descendant of the maker.
pub(crate) fn is_emulator(maker: u32, pid: u32, name: &str) -> bool {
    // The kernel cuts names to 15 bytes.
    QEMU.starts_with(name) && arguments(pid).contains(&directory_prefix(maker))
}

/// The command line of a process; empty if it has ended.
pub(crate) fn arguments(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}
