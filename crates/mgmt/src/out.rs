//! Standard output of programs, whose reader may go away before they have said everything
//! (`oxvs lab list | head -1`).
//!
//! Such a program ends at once, without a word and with status 0: the reader has what it wanted.
//! [`out!`](crate::out!) and [`outln!`](crate::outln!) print like `print!` and `println!`. Where
//! the reader is gone they unwind, so that what the program holds is given up, to [`run`].

use std::fmt;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;

/// What unwinds a program whose reader is gone.
struct ReaderGone;

/// Runs a program's `main`, which ends quietly if the reader of its output goes away.
pub fn run(main: impl FnOnce() -> ExitCode) -> ExitCode {
    match catch_unwind(AssertUnwindSafe(main)) {
        Ok(code) => code,
        Err(why) if why.is::<ReaderGone>() => ExitCode::SUCCESS,
        Err(why) => resume_unwind(why),
    }
}

/// Prints what [`out!`](crate::out!) is given.
///
/// # Panics
/// Where standard output cannot be written: quietly where its reader is gone.
pub fn print(args: fmt::Arguments<'_>) {
    if let Err(error) = Stdout.write_fmt(args) {
        panic!("writing to standard output failed: {error}");
    }
}

/// Standard output for functions that write to anything. Unwinds where its reader is gone.
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

/// Prints to standard output; ends the program quietly where the reader is gone.
#[macro_export]
macro_rules! out {
    ($($arg:tt)*) => { $crate::out::print(::core::format_args!($($arg)*)) };
}

/// As [`out!`], with a newline.
#[macro_export]
macro_rules! outln {
    ($($arg:tt)*) => { $crate::out::print(::core::format_args!("{}\n", ::core::format_args!($($arg)*))) };
}
