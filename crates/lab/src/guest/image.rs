//! A guest's root file system: an archive that the kernel unpacks at boot (`newc` of cpio(5); the
//! kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`).

use super::kernel::{Kernel, said};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// An archive that is being written.
pub(super) struct Image<W: Write> {
    to: W,
    names: BTreeSet<String>,
    /// Of the next file.
    inode: u32,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const SYMLINK: u32 = 0o120_777;

impl<W: Write> Image<W> {
    pub(super) fn new(to: W) -> Image<W> {
        Image {
            to,
            names: BTreeSet::new(),
            inode: 1,
        }
    }

    /// A file, with the directories above it. An existing file stays.
    pub(super) fn file(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.entry(name, PROGRAM, content)
    }

    pub(super) fn symlink(&mut self, name: &str, target: &str) -> io::Result<()> {
        self.entry(name, SYMLINK, target.as_bytes())
    }

    pub(super) fn directory(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, DIRECTORY, b"")
    }

    /// A program in `bin`, with the libraries that it is linked with.
    pub(super) fn program(&mut self, file: &Path) -> Result<()> {
        // A process's own program is named by a link, to which the kernel adds a word when the file
        // is replaced.
        let real = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        let named = if file.starts_with("/proc") { &real } else { file };
        let name = named.file_name().context("a program has a name")?.to_string_lossy();
        let name = name.trim_end_matches(" (deleted)");
        let content = fs::read(file).with_context(|| file.display().to_string())?;
        self.file(&format!("bin/{name}"), &content)?;
        // A program without libraries makes ldd fail.
        let linked = said(Command::new("ldd").arg(file)).unwrap_or_default();
        for library in linked.split_whitespace().filter(|word| word.starts_with('/')) {
            let name = Path::new(library).file_name().unwrap_or_default().to_string_lossy();
            let content = fs::read(library).with_context(|| library.to_owned())?;
            self.file(&format!("lib/{name}"), &content)?;
        }
        Ok(())
    }

    /// Busybox under every name that no program has.
    pub(super) fn busybox(&mut self, kernel: &Kernel) -> Result<()> {
        let busybox = kernel.busybox();
        let content = fs::read(&busybox).with_context(|| busybox.display().to_string())?;
        self.file("bin/busybox", &content)?;
        for name in said(Command::new(&busybox).arg("--list"))?.lines() {
            self.symlink(&format!("bin/{name}"), "busybox")?;
        }
        Ok(())
    }

    /// Modules with those they need, and `etc/modules`, which lists them.
    pub(super) fn modules(&mut self, kernel: &Kernel, names: &[String]) -> Result<()> {
        let below = format!("lib/modules/{}", kernel.version());
        for list in [
            "modules.dep",
            "modules.alias",
            "modules.symbols",
            "modules.builtin",
            "modules.order",
        ] {
            if let Ok(content) = fs::read(kernel.modules().join(list)) {
                self.file(&format!("{below}/{list}"), &content)?;
            }
        }
        for name in names {
            for file in kernel.module_files(name)? {
                let content = fs::read(kernel.modules().join(&file)).with_context(|| file.clone())?;
                self.file(&format!("{below}/{file}"), &content)?;
            }
        }
        self.file("etc/modules", (names.join("\n") + "\n").as_bytes())?;
        Ok(())
    }

    /// Ends the archive.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.write("TRAILER!!!", 0, b"")?;
        Ok(self.to)
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        if let Some((above, _)) = name.rsplit_once('/') {
            self.entry(above, DIRECTORY, b"")?;
        }
        if !self.names.insert(name.to_owned()) {
            return Ok(());
        }
        self.write(name, mode, content)
    }

    fn write(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let size =
            u32::try_from(content.len()).map_err(|_| io::Error::other(format!("{name} is too large for a guest")))?;
        let links = 1 + u32::from(mode == DIRECTORY);
        let named = name.len() as u32 + 1;
        let mut header = String::from("070701");
        for field in [self.inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, named, 0] {
            header += &format!("{field:08X}");
        }
        self.inode += 1;
        self.padded(&[header.as_bytes(), name.as_bytes(), b"\0"])?;
        self.padded(&[content])
    }

    /// Header and content each end at a multiple of four bytes.
    fn padded(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        for part in parts {
            self.to.write_all(part)?;
        }
        self.to.write_all(&[0; 3][..length.next_multiple_of(4) - length])
    }
}

/// The path of a program in the `PATH` and in the system directories.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|file| file.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_what_cpio_writes() {
        let mut image = Image::new(Vec::new());
        image.file("etc/hello", b"world").unwrap();
        image.symlink("bin/sh", "busybox").unwrap();
        let archive = image.finish().unwrap();
        assert_eq!(archive.len() % 4, 0);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("archive");
        fs::write(&file, &archive).unwrap();
        // The header of the first entry, field by field: the directory above the file.
        let text = String::from_utf8_lossy(&archive[..110]).into_owned();
        assert_eq!(&text[..6], "070701");
        assert_eq!(&text[14..22], "000041ED", "mode of a directory");
        assert_eq!(&text[94..102], "00000004", "length of `etc` with its end");
        assert_eq!(&archive[110..114], b"etc\0");
        let names: Vec<&str> = ["etc", "etc/hello", "bin", "bin/sh", "TRAILER!!!"].to_vec();
        let whole = String::from_utf8_lossy(&archive).into_owned();
        let mut from = 0;
        for name in names {
            from += whole[from..]
                .find(&format!("{name}\0"))
                .unwrap_or_else(|| panic!("{name} after byte {from}"));
        }
    }

    #[test]
    fn what_was_written_first_stays() {
        let mut image = Image::new(Vec::new());
        image.file("bin/ip", b"mine").unwrap();
        let before = image.to.len();
        image.symlink("bin/ip", "busybox").unwrap();
        assert_eq!(image.to.len(), before);
    }
}
