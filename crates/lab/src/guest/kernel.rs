//! Debian's cloud kernel and busybox, fetched into a cache.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const METAPACKAGE: &str = "linux-image-cloud-amd64";
const BUSYBOX: &str = "busybox-static";

/// A kernel with its modules, and busybox, unpacked.
#[derive(Clone, Debug)]
pub struct Kernel {
    root: PathBuf,
    version: String,
}

impl Kernel {
    /// The kernel in the cache; fetched if it is not there.
    ///
    /// # Errors
    /// No such package, no way to fetch it, no room.
    pub fn fetch() -> Result<Kernel> {
        let root = cache()?.join("kernel");
        if !root.join("complete").exists() {
            download(&root).with_context(|| format!("fetching {METAPACKAGE} into {}", root.display()))?;
        }
        let version = only_entry(&root.join("lib/modules"))?;
        Ok(Kernel { root, version })
    }

    /// As `uname -r` says it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The kernel image.
    pub fn image(&self) -> PathBuf {
        self.root.join("boot").join(format!("vmlinuz-{}", self.version))
    }

    /// A file with the probe results for this kernel since the machine's boot.
    pub(super) fn note(&self, about: &str) -> PathBuf {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        self.root.join(format!("{about}-{}", boot.trim()))
    }

    pub(super) fn busybox(&self) -> PathBuf {
        self.root.join("bin/busybox")
    }

    /// Directory of the modules.
    pub(super) fn modules(&self) -> PathBuf {
        self.root.join("lib/modules").join(&self.version)
    }

    /// Files of a module and of those it needs, below [`Kernel::modules`]; none if it is built in.
    ///
    /// # Errors
    /// The kernel has no such module.
    pub(super) fn module_files(&self, name: &str) -> Result<BTreeSet<String>> {
        let read = |file: &str| {
            let path = self.modules().join(file);
            fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        let dependencies = read("modules.dep")?;
        for line in dependencies.lines() {
            let Some((file, needs)) = line.split_once(':') else {
                continue;
            };
            if module_name(file) == name {
                return Ok(std::iter::once(file)
                    .chain(needs.split_whitespace())
                    .map(str::to_owned)
                    .collect());
            }
        }
        ensure!(
            read("modules.builtin")?.lines().any(|file| module_name(file) == name),
            "kernel {} has no module {name}",
            self.version
        );
        Ok(BTreeSet::new())
    }
}

/// Of `kernel/net/packet/af_packet.ko`: `af_packet`.
fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split(".ko").next().unwrap_or(name).replace('-', "_")
}

/// The download cache: `$XDG_CACHE_HOME/oxvs`, or `~/.cache/oxvs`.
fn cache() -> Result<PathBuf> {
    let base = match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(home)) => Path::new(&home).join(".cache"),
        (None, None) => bail!("neither XDG_CACHE_HOME nor HOME is set: no place for a guest's kernel"),
    };
    Ok(base.join("oxvs"))
}

/// Downloads and unpacks in a temporary directory, and renames it when complete.
fn download(root: &Path) -> Result<()> {
    let parent = root.parent().context("the cache has a directory")?;
    fs::create_dir_all(parent)?;
    let fresh = tempfile::Builder::new().prefix("kernel-").tempdir_in(parent)?;
    let packages = fresh.path().join("packages");
    fs::create_dir(&packages)?;
    let depends = said(Command::new("apt-cache").args(["depends", METAPACKAGE]))?;
    let image = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "))
        .with_context(|| format!("apt knows no {METAPACKAGE}: it is in Debian's main section"))?;
    said(
        Command::new("apt-get")
            .args(["-qq", "download", image, BUSYBOX])
            .current_dir(&packages),
    )?;
    for package in fs::read_dir(&packages)? {
        said(
            Command::new("dpkg-deb")
                .arg("-x")
                .arg(package?.path())
                .arg(fresh.path()),
        )?;
    }
    fs::remove_dir_all(&packages)?;
    let version = only_entry(&fresh.path().join("lib/modules"))?;
    said(
        Command::new(fresh.path().join("bin/busybox"))
            .arg("depmod")
            .arg("-b")
            .arg(fresh.path())
            .arg(version),
    )?;
    fs::write(fresh.path().join("complete"), "")?;
    let is_complete = || root.join("complete").exists();
    // Another process may have fetched it meanwhile, and may use it.
    if root.exists() && !is_complete() {
        fs::remove_dir_all(root)?;
    }
    match fs::rename(fresh.path(), root) {
        Err(_) if is_complete() => Ok(()),
        done => Ok(done?),
    }
}

fn only_entry(directory: &Path) -> Result<String> {
    let mut entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let entry = entries
        .next()
        .with_context(|| format!("{} is empty", directory.display()))??;
    Ok(entry.file_name().to_string_lossy().into_owned())
}

/// A command's output.
pub(super) fn said(command: &mut Command) -> Result<String> {
    let name = format!("{command:?}");
    let output = command.output().with_context(|| name.clone())?;
    ensure!(
        output.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::module_name;

    #[test]
    fn a_module_is_named_as_its_file_without_compression_and_with_underscores() {
        assert_eq!(module_name("kernel/net/sched/sch_fq_codel.ko"), "sch_fq_codel");
        assert_eq!(module_name("kernel/crypto/crc32c-intel.ko.xz"), "crc32c_intel");
    }
}
