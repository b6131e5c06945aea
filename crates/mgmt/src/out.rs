//! Standard output of programs whose reader may close it early (`oxvs lab list | head -1`).
//!
//! Such a program ends at once, silently and with status 0: the reader has what it wanted.
//! [`out!`](crate::out!) and [`outln!`](crate::outln!) print like `print!` and `println!`. When the
//! output is closed they unwind to [`run`], so that the program drops what it holds.

use std::fmt;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;

/// The panic payload when the output is closed.
struct ReaderGone;

/// Runs a program's `main`, which ends silently if its output is closed.
pub fn run(main: impl FnOnce() -> ExitCode) -> ExitCode {
    match catch_unwind(AssertUnwindSafe(main)) {
        Ok(code) => code,
        Err(why) if why.is::<ReaderGone>() => ExitCode::SUCCESS,
        Err(why) => resume_unwind(why),
    }
}

/// Prints the arguments of [`out!`](crate::out!).
///
/// # Panics
/// If standard output cannot be written; silently if it is closed.
pub fn print(args: fmt::Arguments<'_>) {
    if let Err(error) = Stdout.write_fmt(args) {
        panic!("writing to standard output failed: {error}");
    }
}

/// Standard output as a writer. Unwinds if it is closed.
#[derive(Debug, Default)]
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        or_unwind(io::stdout().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        or_unwind(io::stdout().flush())
    }
}

fn or_unwind<T>(result: io::Result<T>) -> io::Result<T> {
    match result {
        // Without the message of a panic.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => resume_unwind(Box::new(ReaderGone)),
        result => result,
    }
}

/// Prints to standard output; ends the program silently if it is closed.
#[macro_export]
macro_rules! out {
    ($($arg:tt)*) => { $crate::out::print(::core::format_args!($($arg)*)) };
}

/// As [`out!`], with a newline.
#[macro_export]
macro_rules! outln {
    ($($arg:tt)*) => { $crate::out::print(::core::format_args!("{}\n", ::core::format_args!($($arg)*))) };
}
