//! Crashes: a signal that says that the process is at fault (SIGSEGV, SIGBUS, SIGILL, SIGFPE,
//! SIGABRT) has the stack of its thread reported before the process ends.
//!
//! The thread that crashed may hold any lock, and its heap may be damaged. So the signal's handler
//! only notes addresses in memory that is there already, and wakes a thread that has waited for
//! this since [`report`]. That thread may look up names, allocate and write. The handler waits for
//! it, for a limited time, because the locks that the crashed thread holds may stop it. The process
//! then ends by the signal, as it would have without a handler, with its core dump.

use std::ffi::c_int;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::IntoRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use crate::error::{Error, Result, check};

/// The signals that are crashes.
const SIGNALS: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT];

/// The number of frames that are reported, from the innermost on.
const MOST_FRAMES: usize = 64;

/// How long a crashed thread waits for the report, in milliseconds.
const PATIENCE: c_int = 10_000;

/// A crash of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crash {
    /// The signal's number.
    pub signal: i32,
    /// The stack of the thread that crashed, innermost function first.
    pub frames: Vec<Frame>,
}

/// A function that has not returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The address of the instruction that goes on when it is called back.
    pub ip: usize,
    /// The address of the function, 0 if it is not known.
    pub function: usize,
}

/// The one crash of the process, written by the thread that crashes, read by the thread that
/// reports.
struct Note {
    signal: AtomicI32,
    thread: AtomicI32,
    count: AtomicUsize,
    frames: [(AtomicUsize, AtomicUsize); MOST_FRAMES],
}

static NOTE: Note = Note {
    signal: AtomicI32::new(0),
    thread: AtomicI32::new(0),
    count: AtomicUsize::new(0),
    frames: [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; MOST_FRAMES],
};

/// What the handler needs.
struct Pipes {
    /// A byte to it wakes the thread that reports.
    wake: c_int,
    /// A byte from it says that the report is made.
    made: c_int,
}

static PIPES: OnceLock<Pipes> = OnceLock::new();

/// Has crashes of this process reported from now on, by a thread named `crash`. A second call has
/// no effect.
///
/// # Errors
/// The kernel's, when pipes, the thread or handlers cannot be had.
pub fn report(report: impl FnOnce(Crash) + Send + 'static) -> Result<()> {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let (wait, wake) = io::pipe().map_err(Error::of("pipe"))?;
    let (made, tell) = io::pipe().map_err(Error::of("pipe"))?;
    std::thread::Builder::new()
        .name("crash".to_owned())
        .spawn(move || wait_and_report(wait, tell, report))
        .map_err(Error::of("clone"))?;
    // Open until the process ends.
    PIPES.get_or_init(|| Pipes {
        wake: wake.into_raw_fd(),
        made: made.into_raw_fd(),
    });
    SIGNALS.into_iter().try_for_each(install)
}

fn wait_and_report(mut wait: PipeReader, mut tell: PipeWriter, report: impl FnOnce(Crash)) {
    if wait.read_exact(&mut [0]).is_err() {
        return;
    }
    let count = NOTE.count.load(Ordering::Acquire).min(MOST_FRAMES);
    let frames = NOTE.frames[..count].iter();
    report(Crash {
        signal: NOTE.signal.load(Ordering::Relaxed),
        frames: frames
            .map(|(ip, function)| Frame {
                ip: ip.load(Ordering::Relaxed),
                function: function.load(Ordering::Relaxed),
            })
            .collect(),
    });
    let _ = tell.write_all(&[0]);
}

fn install(signal: c_int) -> Result<()> {
    // SAFETY: all of the structure may be zero: no flags, no signals blocked.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as extern "C" fn(c_int) as usize;
    // The standard library gives each thread such a stack, for the overflow of its own.
    action.sa_flags = libc::SA_ONSTACK;
    // SAFETY: the structure is whole, its handler has the type that its flags say and calls only
    // functions that a handler may call (signal-safety(7)); the old action is not asked for.
    let done = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    check("sigaction", done).map(drop)
}

/// The handler. When it returns, the process ends by the signal.
extern "C" fn handle(signal: c_int) {
    // SAFETY: it has no arguments and cannot fail.
    let thread = unsafe { libc::gettid() };
    let first = NOTE
        .signal
        .compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok();
    if first {
        NOTE.thread.store(thread, Ordering::Relaxed);
        note_frames();
        wait_for_report();
    } else if NOTE.thread.load(Ordering::Relaxed) != thread {
        // Another thread has crashed and ends the process.
        loop {
            // SAFETY: it has no arguments, and only waits.
            unsafe { libc::pause() };
        }
    }
    // SAFETY: both take numbers only. The signal comes when this handler has returned, since it is
    // blocked until then, and ends the process.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Notes the stack of this thread without the frames of the handler.
fn note_frames() {
    let (mut count, mut skip) = (0, false);
    let note = |frame: &backtrace::Frame| {
        let (ip, function) = (frame.ip() as usize, frame.symbol_address() as usize);
        if ip == 0 {
            // The end of the stack.
        } else if function == handle as extern "C" fn(c_int) as usize {
            // The kernel's call of the handler has a frame too.
            (count, skip) = (0, true);
        } else if !std::mem::take(&mut skip) {
            NOTE.frames[count].0.store(ip, Ordering::Relaxed);
            NOTE.frames[count].1.store(function, Ordering::Relaxed);
            count += 1;
        }
        count < MOST_FRAMES
    };
    // SAFETY: no other thread traces a stack by this function, since only the first crash of the
    // process comes here. The unwinder of Linux locks and allocates nothing (glibc 2.35 and later).
    unsafe { backtrace::trace_unsynchronized(note) };
    NOTE.count.store(count, Ordering::Release);
}

fn wait_for_report() {
    let Some(pipes) = PIPES.get() else { return };
    let mut made = libc::pollfd {
        fd: pipes.made,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the buffer has a byte, and `made` is one structure; the descriptors stay open.
    unsafe {
        if libc::write(pipes.wake, [0u8].as_ptr().cast(), 1) == 1 {
            libc::poll(&raw mut made, 1, PATIENCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// The variable that has this test crash, and tells how.
    const CRASH: &str = "OXVS_TEST_CRASH";

    #[test]
    fn the_stack_of_the_thread_that_crashed_is_reported_and_the_signal_ends_the_process() {
        if let Ok(how) = std::env::var(CRASH) {
            report(|crash| {
                let mut out = io::stderr().lock();
                let mut say = |line: String| writeln!(out, "{line}").expect("the parent reads");
                say(format!("signal {}", crash.signal));
                for frame in crash.frames {
                    backtrace::resolve(frame.ip as *mut _, |symbol| {
                        say(symbol.name().map(|name| name.to_string()).unwrap_or_default());
                    });
                }
            })
            .unwrap();
            crash(&how);
        }
        for (how, signal) in [
            ("fault", libc::SIGSEGV),
            ("abort", libc::SIGABRT),
            ("overflow", libc::SIGSEGV),
            ("thread", libc::SIGSEGV),
        ] {
            let name = "crash::tests::the_stack_of_the_thread_that_crashed_is_reported_and_the_signal_ends_the_process";
            let mut again = Command::new(std::env::current_exe().unwrap());
            let out = again.args(["--exact", name, "--nocapture"]).env(CRASH, how).output();
            let out = out.unwrap();
            let text = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.signal(), Some(signal), "{how}: {text}");
            assert!(text.contains(&format!("signal {signal}\n")), "{how}: {text}");
            // The function that was left last; debug information may name it without its module.
            let called = match how {
                "abort" | "overflow" => how,
                _ => "fault",
            };
            let named = |line: &str| line.rsplit("::").next() == Some(called);
            assert!(text.lines().any(named), "{how}: {text}");
            assert!(!text.contains("sys::crash::note_frames"), "{how}: {text}");
        }
    }

    #[inline(never)]
    fn crash(how: &str) {
        match how {
            "fault" => fault(),
            "abort" => std::process::abort(),
            "overflow" => assert_eq!(overflow(1), 0),
            _ => drop(std::thread::spawn(|| crash("fault")).join()),
        }
    }

    #[inline(never)]
    fn fault() {
        let nowhere = std::hint::black_box(std::ptr::without_provenance::<u64>(16));
        // SAFETY: none; this is the fault.
        std::hint::black_box(unsafe { nowhere.read_volatile() });
    }

    #[inline(never)]
    #[expect(unconditional_recursion, reason = "that is the fault")]
    fn overflow(depth: u64) -> u64 {
        std::hint::black_box(depth) + overflow(std::hint::black_box(depth + 1)) + depth
    }
}
