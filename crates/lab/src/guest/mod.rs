//! Virtual machines on Debian's cloud kernel, for features that this machine's kernel lacks, and
//! for hosts that are guests.
//!
//! A guest has no disk: its system is an initramfs with busybox, the programs asked for and the
//! libraries they need. Kernel and busybox are fetched with `apt-get download` into a cache and not
//! installed. [`Guest::run`] runs one command to its end; [`Guest::spawn`] leaves it running, with
//! its standard input and output on a socket.

mod image;
mod kernel;
mod laboratory;
mod libvirt;
mod machine;

pub(crate) use image::find;
pub use kernel::Kernel;
pub use laboratory::run;
pub(crate) use libvirt::PROGRAM as LIBVIRT;
pub use machine::{Accelerator, Finished, Guest, Machine, Manager, Network, Output};
pub(crate) use machine::{arguments, directory_maker, is_emulator};
