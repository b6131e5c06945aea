//! Runs tables of command lines through both programs.
//!
//! How to add a row
//! - A table is a constant [`Table`] in a file of its own (`ofctl.rs`, `vsctl.rs`, …), named in
//!   `main.rs`, with one `#[test] fn … { run(&TABLE) }`.
//! - A table has groups. Each [`Group`] has a pair of switches (or none, for tools that need no
//!   daemon), files, and set-up commands, which must succeed on both sides. Make few groups: a pair
//!   takes half a second to start, a row takes milliseconds. Rows run in their order and see what
//!   rows before them changed.
//! - A row is a command line as a shell takes it, with 'quotes' and "quotes": `row("ovs-ofctl show
//!   br0")`. Debian's program and daemon run it on one side, ours on the other, in the sandbox's
//!   directory. `{dir}` is that directory, `{db}` is `unix:…` of the database. `ovs-vsctl` has
//!   `--db={db}` from the environment's run directory; `ovs-appctl` finds both daemons by name.
//! - Standard output, standard error and exit status must be equal after [`normalise`]. Where more
//!   freedom is right, say so: `.unordered()` (the lines of a hash table), `.superset()` (ours may
//!   have more lines), `.options()` (help texts: ours names every option and command that theirs
//!   names), `.status()` (the exit status, and on which streams text appears), `.eventually()` (a
//!   command without effects, repeated for up to 5 s until the outputs agree).
//! - `.input("text")` is standard input. `step("…")` is a command that is not compared and must
//!   succeed on both sides; `ours("…")` runs on our side only and must succeed (for what Debian's
//!   release does not know).
//! - `.into_file("name")` sends both outputs to a file of the sandbox, for a program that stays in
//!   the background. Rows read the file later.
//! - `NAME=VALUE` before the command sets an environment variable.
//! - A difference that has to stay is an entry in `exceptions.rs`, never a weaker row.

use crate::exceptions::{EXCEPTIONS, Exception};
use crate::noise::normalise;
use std::cell::Cell;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use testkit::{Client, Devices, Done, Options, Sandbox, Vswitch, skip, try_run_in};

/// The rows of one file.
pub(crate) struct Table {
    /// The name that exceptions of this table have.
    pub(crate) name: &'static str,
    /// Its groups; each has switches of its own.
    pub(crate) groups: &'static [Group],
}

/// Rows with the same set-up.
pub(crate) struct Group {
    /// The daemons behind the commands.
    pub(crate) daemons: Daemons,
    /// Files in the sandbox: names and contents.
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// Commands that make the state that the rows look at.
    pub(crate) setup: &'static [&'static str],
    /// The rows, in order.
    pub(crate) rows: &'static [Row],
}

/// The daemons of a group.
#[derive(Clone, Copy)]
pub(crate) enum Daemons {
    /// None: the tools work by themselves.
    None,
    /// Database and switch with dummy devices (`--enable-dummy=override`), and more arguments of
    /// the switch.
    Dummy(&'static [&'static str]),
    /// Database and switch with only these arguments of the switch.
    Plain(&'static [&'static str]),
}

/// A command line and how to compare its results.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    line: &'static str,
    input: &'static str,
    /// The file that takes both outputs; they are not compared.
    file: Option<&'static str>,
    compare: Compare,
    patience: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Compare {
    Exactly,
    Unordered,
    Superset,
    Options,
    Status,
    Step,
    Ours,
}

/// A command line whose outputs are compared exactly.
pub(crate) const fn row(line: &'static str) -> Row {
    Row {
        line,
        input: "",
        file: None,
        compare: Compare::Exactly,
        patience: Duration::ZERO,
    }
}

/// A command that is not compared and must succeed on both sides.
pub(crate) const fn step(line: &'static str) -> Row {
    row(line).with(Compare::Step)
}

/// A command for our side only, which must succeed.
#[allow(dead_code, reason = "tables of other tools use it")]
pub(crate) const fn ours(line: &'static str) -> Row {
    row(line).with(Compare::Ours)
}

#[allow(dead_code, reason = "not every table uses every comparison")]
impl Row {
    const fn with(self, compare: Compare) -> Row {
        Row { compare, ..self }
    }

    /// Lines in any order.
    pub(crate) const fn unordered(self) -> Row {
        self.with(Compare::Unordered)
    }

    /// Our lines are theirs and more, in any order.
    pub(crate) const fn superset(self) -> Row {
        self.with(Compare::Superset)
    }

    /// Ours names every option and every first word of a line that theirs names.
    pub(crate) const fn options(self) -> Row {
        self.with(Compare::Options)
    }

    /// The exit status, and whether each stream is empty.
    pub(crate) const fn status(self) -> Row {
        self.with(Compare::Status)
    }

    /// Repeated for up to 5 s until the outputs agree.
    pub(crate) const fn eventually(self) -> Row {
        Row {
            patience: Duration::from_secs(5),
            ..self
        }
    }

    /// Both outputs go to a file of the sandbox: for a program that stays in the background with
    /// its standard error.
    pub(crate) const fn into_file(self, name: &'static str) -> Row {
        Row {
            file: Some(name),
            ..self
        }
    }

    /// Text for standard input.
    pub(crate) const fn input(self, input: &'static str) -> Row {
        Row { input, ..self }
    }
}

/// Runs a table; fails with all rows that differ and all exceptions that no row needed.
pub(crate) fn run(table: &'static Table) {
    skip!(unless "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovsdb-client", "ovs-vsctl", "ovs-ofctl", "ovs-appctl", "setpriv");
    let only = std::env::var("PARITY").ok();
    let exceptions: Vec<_> = EXCEPTIONS.iter().filter(|e| e.table == table.name).collect();
    let used: Vec<Cell<bool>> = exceptions.iter().map(|_| Cell::new(false)).collect();
    let mut faults = Vec::new();
    let mut count = 0;
    for group in table.groups {
        let wanted = |row: &&Row| only.as_ref().is_none_or(|text| row.line.contains(text.as_str()));
        let chosen = |row: &&Row| wanted(row) || matches!(row.compare, Compare::Step | Compare::Ours);
        if group.rows.iter().any(|row| wanted(&row)) {
            let pair = Pair::start(group);
            for row in group.rows.iter().filter(chosen) {
                count += 1;
                faults.extend(pair.check(row, &exceptions, &used));
            }
        }
    }
    if only.is_none() {
        let unused = exceptions.iter().zip(&used).filter(|(_, used)| !used.get());
        faults.extend(unused.map(|(e, _)| format!("no row needs this exception: {} {:?}\n", e.rows, e.change)));
    }
    assert!(
        faults.is_empty(),
        "{} of {count} rows of table {} differ:\n\n{}",
        faults.len(),
        table.name,
        faults.join("\n")
    );
    println!("{}: {count} rows agree", table.name);
}

impl Table {
    /// The words of the command lines of a program; options without their values.
    pub(crate) fn words_of(&self, program: &str) -> impl Iterator<Item = &'static str> {
        self.words_where(move |line| line.split_whitespace().any(|word| word == program))
    }

    /// The words of all command lines; options without their values.
    pub(crate) fn words(&self) -> impl Iterator<Item = &'static str> {
        self.words_where(|_| true)
    }

    fn words_where(&self, is_wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = &'static str> {
        let lines = self.groups.iter().flat_map(|group| group.rows).map(|row| row.line);
        lines
            .filter(move |line| is_wanted(line))
            .flat_map(str::split_whitespace)
            .map(|word| word.split_once('=').map_or(word, |(option, _)| option))
    }
}

/// The text and status of a command, normalised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
    status: Option<i32>,
}

impl Said {
    /// Whether the exit status is 0.
    pub(crate) fn succeeded(&self) -> bool {
        self.status == Some(0)
    }
}

struct Pair {
    theirs: Side,
    ours: Side,
}

impl Pair {
    fn start(group: &Group) -> Pair {
        let pair = Pair {
            theirs: Side::start(None, group),
            ours: Side::start(Some(binary()), group),
        };
        for line in group.setup {
            pair.both(&step(line));
        }
        pair
    }

    fn both(&self, row: &Row) {
        self.theirs.run(row).expect_ok();
        self.ours.run(row).expect_ok();
    }

    /// The difference that a row shows, if any.
    fn check(&self, row: &Row, exceptions: &[&'static Exception], used: &[Cell<bool>]) -> Option<String> {
        match row.compare {
            Compare::Step => {
                self.both(row);
                return None;
            }
            Compare::Ours => {
                self.ours.run(row).expect_ok();
                return None;
            }
            _ => {}
        }
        let end = Instant::now() + row.patience;
        loop {
            let (mut theirs, mut ours) = (self.theirs.said(row), self.ours.said(row));
            let mut needed = vec![false; used.len()];
            for (exception, needed) in exceptions.iter().zip(&mut needed) {
                if row.line.contains(exception.rows) && !alike(row.compare, &theirs, &ours) {
                    *needed = exception.apply(&mut theirs, &mut ours);
                }
            }
            if alike(row.compare, &theirs, &ours) {
                used.iter()
                    .zip(needed)
                    .filter(|(_, needed)| *needed)
                    .for_each(|(used, _)| used.set(true));
                return None;
            }
            if Instant::now() >= end {
                return Some(difference(row, &theirs, &ours));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn alike(compare: Compare, theirs: &Said, ours: &Said) -> bool {
    let status = theirs.status == ours.status;
    let contains = |theirs: Vec<&str>, ours: Vec<&str>| theirs.iter().all(|line| ours.contains(line));
    status
        && match compare {
            Compare::Exactly | Compare::Step | Compare::Ours => theirs == ours,
            Compare::Unordered => sorted(&theirs.out) == sorted(&ours.out) && sorted(&theirs.err) == sorted(&ours.err),
            Compare::Superset => contains(sorted(&theirs.out), sorted(&ours.out)) && theirs.err == ours.err,
            Compare::Options => contains(options(&theirs.out), options(&ours.out)) && theirs.err == ours.err,
            Compare::Status => {
                theirs.out.is_empty() == ours.out.is_empty() && theirs.err.is_empty() == ours.err.is_empty()
            }
        }
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// The options and commands of a help text: words that begin with a dash, and the first words of
/// indented lines that look like commands.
pub(crate) fn options(text: &str) -> Vec<&str> {
    let edge = |c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '/';
    let dashed = text.split(|c: char| c.is_whitespace() || "[]()=,|".contains(c));
    let dashed = dashed
        .map(|word| word.trim_end_matches(edge))
        .filter(|word| word.len() > 1);
    let dashed = dashed.filter(|word| word.starts_with('-'));
    let indented = text.lines().filter_map(|line| line.strip_prefix("  "));
    let commands = indented.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let commands = commands.filter_map(|line| line.split_whitespace().next());
    dashed.chain(commands).collect()
}

fn difference(row: &Row, theirs: &Said, ours: &Said) -> String {
    let mut text = format!("$ {}   ({:?})\n", row.line, row.compare);
    if theirs.status != ours.status {
        text += &format!("  status: theirs {:?}, ours {:?}\n", theirs.status, ours.status);
    }
    for (theirs, ours) in [(&theirs.out, &ours.out), (&theirs.err, &ours.err)] {
        if theirs == ours {
            continue;
        }
        let (old, new) = match row.compare {
            Compare::Exactly => (theirs.split('\n').collect(), ours.split('\n').collect()),
            Compare::Options => (options(theirs), options(ours)),
            _ => (sorted(theirs), sorted(ours)),
        };
        let missing = |from: &Vec<&str>, other: &Vec<&str>, mark: char| -> String {
            let only = from.iter().filter(|line| !other.contains(line));
            only.map(|line| format!("  {mark}{line}\n")).collect()
        };
        let mut lines = missing(&old, &new, '-');
        if !matches!(row.compare, Compare::Superset | Compare::Options) {
            lines += &missing(&new, &old, '+');
        }
        text += &match lines.is_empty() {
            true => format!("  the lines have another order or number; theirs:\n{theirs}\n  ours:\n{ours}\n"),
            false => lines,
        };
    }
    text
}

/// One of the two programs.
struct Side {
    ours: Option<&'static Path>,
    switch: Option<Vswitch>,
    sandbox: Option<Sandbox>,
}

impl Side {
    fn start(ours: Option<&'static Path>, group: &Group) -> Side {
        let mut side = Side {
            ours,
            switch: None,
            sandbox: None,
        };
        match group.daemons {
            Daemons::None => side.sandbox = Some(Sandbox::new()),
            Daemons::Dummy(args) | Daemons::Plain(args) => {
                let devices = match group.daemons {
                    Daemons::Plain(_) => Devices::System,
                    _ => Devices::Dummy,
                };
                let client = ours.map_or(Client::Debian, |binary| Client::Ours(binary.to_owned()));
                let args = args.iter().map(|arg| (*arg).to_owned()).collect();
                let options = Options {
                    client,
                    devices,
                    args,
                    ..Options::default()
                };
                side.switch = Some(match ours {
                    Some(binary) => Vswitch::oxvs(binary, options),
                    None => Vswitch::debian(options),
                });
            }
        }
        for (name, content) in group.files {
            let path = side.sandbox().path(name);
            std::fs::write(&path, side.expand(content)).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        side
    }

    fn sandbox(&self) -> &Sandbox {
        let of_switch = self.switch.as_ref().map(|switch| &switch.sandbox);
        self.sandbox.as_ref().or(of_switch).expect("one of the two is there")
    }

    fn expand(&self, text: &str) -> String {
        let text = text.replace("{dir}", &self.sandbox().dir().display().to_string());
        text.replace("{db}", &self.sandbox().db_remote())
    }

    fn run(&self, row: &Row) -> Done {
        let mut words: Vec<String> = words(row.line).iter().map(|word| self.expand(word)).collect();
        let sandbox = self.sandbox();
        let mut env = sandbox.env();
        while let Some((name, value)) = words[0].split_once('=') {
            env.push((name.to_owned(), value.to_owned()));
            words.remove(0);
        }
        // Debian's other programs (`sh`, `python3`) are tools of both sides.
        if let Some(binary) = self
            .ours
            .filter(|_| words[0].starts_with("ovs") || words[0].starts_with("vtep"))
        {
            words.insert(0, binary.display().to_string());
        }
        if let Some(name) = row.file {
            let into = format!("exec \"$@\" >{name} 2>&1");
            words.splice(0..0, ["sh", "-c", &into, "sh"].map(str::to_owned));
        }
        let input = match row.input {
            "" => Stdio::null(),
            text => {
                let path = sandbox.path("stdin");
                std::fs::write(&path, self.expand(text)).unwrap_or_else(|e| panic!("stdin: {e}"));
                File::open(&path).unwrap_or_else(|e| panic!("stdin: {e}")).into()
            }
        };
        try_run_in(sandbox.dir(), &words, &env, input)
    }

    fn said(&self, row: &Row) -> Said {
        let done = self.run(row);
        Said {
            out: normalise(&done.stdout, self.sandbox()),
            err: normalise(&done.stderr, self.sandbox()),
            status: done.status,
        }
    }
}

/// The binary under test.
pub(crate) fn binary() -> &'static Path {
    Path::new(option_env!("CARGO_BIN_EXE_oxvs").unwrap_or("oxvs"))
}

/// The words of a command line, split as a shell does with quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    assert!(quote.is_none(), "{line}: a quote is missing");
    words.extend(word);
    words
}

#[test]
fn quotes_hold_words_together() {
    assert_eq!(words("a 'b c' d\"e f\" ''"), ["a", "b c", "de f", ""]);
}
