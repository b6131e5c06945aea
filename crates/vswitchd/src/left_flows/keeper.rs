//! The process that keeps offloaded flows in force from the end of the switch to its next start.
//!
//! It only keeps descriptors open: the kernel takes flows away when the last copy is closed. One
//! process at a time can take them over; if that ends before it has ended the flows, the next one
//! can.

use super::wire::{self, Message};
use super::{FORMAT, PATIENCE, path};
use netdev::LeftDevice;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with};
use rustix::process::{setsid, umask};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The subcommand of `oxvs` that runs it.
pub const COMMAND: &str = "keep-flows";

/// Runs the keeper. Its standard input is a socket of the process that ends.
pub fn main() -> ExitCode {
    match keep() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("oxvs {COMMAND}: {error}; oxvs starts this command itself (other_config:offload-hand-over)");
            ExitCode::FAILURE
        }
    }
}

/// What is kept.
struct Kept {
    programs: Vec<OwnedFd>,
    /// With the filter, until other queues have it.
    sockets: Vec<OwnedFd>,
    devices: Vec<LeftDevice>,
    until: Instant,
}

fn keep() -> io::Result<()> {
    let from = rustix::stdio::stdin().try_clone_to_owned()?;
    let mut kept = receive(&from)?;
    // It may lead a session already.
    let _ = setsid();
    umask(Mode::RWXG | Mode::RWXO | Mode::XUSR);
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let path = path();
    // A keeper whose time was over has left its socket behind.
    let _ = std::fs::remove_file(&path);
    bind(&listener, &SocketAddrUnix::new(&path)?)?;
    listen(&listener, 1)?;
    wire::send(&from, &Message::End, &[])?;
    drop(from);
    while wait(&listener, kept.until)? {
        let asker = accept_with(&listener, SocketFlags::CLOEXEC)?;
        if give(&asker, &kept).is_err() {
            continue;
        }
        loop {
            if !wait(&asker, kept.until)? {
                return Ok(());
            }
            match wire::receive(&asker) {
                Ok(Some((Message::Sockets, _))) => kept.sockets.clear(),
                Ok(Some((Message::End, _))) => return Ok(()),
                _ => break,
            }
        }
    }
    Ok(())
}

fn receive(from: &OwnedFd) -> io::Result<Kept> {
    wire::be_patient(from, PATIENCE)?;
    let (mut sockets, mut devices) = (Vec::new(), Vec::new());
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let Some((Message::Begin(FORMAT, seconds), programs)) = wire::receive(from)? else {
        return Err(wrong());
    };
    loop {
        match wire::receive(from)?.ok_or_else(wrong)? {
            (Message::Sockets, fds) => sockets.extend(fds),
            (Message::Devices(numbers), fds) => devices.extend(wire::devices(&numbers, fds)?),
            (Message::End, _) => break,
            (Message::Begin(..), _) => return Err(wrong()),
        }
    }
    Ok(Kept {
        programs,
        sockets,
        devices,
        until: Instant::now() + Duration::from_secs(seconds.into()),
    })
}

/// Gives the next process copies of what it needs.
fn give(asker: &OwnedFd, kept: &Kept) -> io::Result<()> {
    wire::be_patient(asker, PATIENCE)?;
    let left = kept.until.saturating_duration_since(Instant::now()).as_secs() as u32;
    let programs: Vec<BorrowedFd<'_>> = kept.programs.iter().map(AsFd::as_fd).collect();
    wire::send(asker, &Message::Begin(FORMAT, left), &programs)?;
    wire::send_devices(asker, kept.devices.iter())?;
    wire::send(asker, &Message::End, &[])
}

/// Waits for a message or its end; false at the time given.
fn wait(socket: &OwnedFd, until: Instant) -> io::Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let left = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&left)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        }
    }
}
