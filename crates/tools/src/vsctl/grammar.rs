//! Parsing of the command line into commands.

use std::collections::BTreeMap;

use mgmt::cli::{Opt, Takes};
use ovsdb::DatabaseSchema;
use ovsdb::idl::Selection;

use super::Stop;
use super::commands::COMMANDS;
use super::context::Context;

/// The syntax of a command and its functions.
pub(super) struct Spec {
    pub(super) name: &'static str,
    /// The least number of arguments.
    pub(super) min: usize,
    /// The greatest number of arguments.
    pub(super) max: usize,
    /// Its options, with a `=` at the end where a value must follow.
    pub(super) options: &'static [&'static str],
    /// Its arguments as `--commands` lists them: `!` one, `?` one or none, `+` one or more, `*` any
    /// number.
    pub(super) usage: &'static str,
    /// Selects what the command will read, before connecting.
    pub(super) prepare: fn(&mut Prepare<'_>, &Command) -> Result<(), Stop>,
    /// Reads the replica, changes the transaction, writes the output.
    pub(super) run: fn(&mut Context<'_>, &Command) -> Result<(), Stop>,
}

impl Spec {
    /// Whether it may change the database.
    pub(super) fn writes(&self) -> bool {
        const READERS: &[&str] = &[
            "show",
            "list",
            "find",
            "get",
            "wait-until",
            "comment",
            "br-exists",
            "br-to-vlan",
            "br-to-parent",
        ];
        const BEGINNINGS: &[&str] = &["list-", "get-", "br-get-", "port-to-", "iface-to-"];
        !READERS.contains(&self.name) && !BEGINNINGS.iter().any(|beginning| self.name.starts_with(beginning))
    }
}

/// The context of a command before connecting.
pub(super) struct Prepare<'a> {
    pub(super) schema: &'a DatabaseSchema,
    pub(super) selection: &'a mut Selection,
}

/// A parsed command.
pub(super) struct Command {
    pub(super) spec: &'static Spec,
    options: BTreeMap<String, Option<String>>,
    pub(super) args: Vec<String>,
}

impl Command {
    /// Whether the option was given.
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.contains_key(option)
    }

    /// The value of an option.
    pub(super) fn value(&self, option: &str) -> Option<&str> {
        self.options.get(option)?.as_deref()
    }

    /// The argument at `at`; empty if the user gave fewer.
    pub(super) fn arg(&self, at: usize) -> &str {
        self.args.get(at).map_or("", String::as_str)
    }

    /// The command as messages quote it.
    pub(super) fn text(&self) -> String {
        let options = self.options.iter().map(|(name, value)| match value {
            Some(value) => format!("{name}={value}"),
            None => name.clone(),
        });
        let words = options
            .chain([self.spec.name.to_owned()])
            .chain(self.args.iter().cloned());
        words.collect::<Vec<_>>().join(" ")
    }
}

/// The options of all commands. They are recognized among the global ones before the first command.
pub(super) fn local_options() -> &'static [Opt] {
    const LOCAL: &[Opt] = &[
        Opt::flag("may-exist", None),
        Opt::flag("if-exists", None),
        Opt::flag("real", None),
        Opt::flag("fake", None),
        Opt::flag("fake-iface", None),
        Opt::flag("with-iface", None),
        Opt::value("inactivity-probe", None),
        Opt::flag("bootstrap", None),
        Opt {
            long: "id",
            short: None,
            takes: Takes::Value,
        },
        Opt::value("columns", None),
        Opt::flag("all", None),
    ];
    LOCAL
}

/// Splits `words` at each `--` into commands; `leading` are options of the first command that stood
/// among the global ones.
pub(super) fn parse(mut leading: Vec<String>, words: &[String]) -> Result<Vec<Command>, Stop> {
    let mut commands = Vec::new();
    for part in words.split(|word| word == "--").filter(|part| !part.is_empty()) {
        commands.push(parse_command(std::mem::take(&mut leading), part)?);
    }
    if commands.is_empty() {
        return Stop::fatal("missing command name (use --help for help)");
    }
    Ok(commands)
}

fn parse_command(leading: Vec<String>, words: &[String]) -> Result<Command, Stop> {
    let count = words.iter().take_while(|word| word.starts_with('-')).count();
    let mut options = BTreeMap::new();
    for word in leading.iter().chain(&words[..count]) {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        if options.insert(name.to_owned(), value).is_some() {
            return Stop::fatal(format!("'{word}' option specified multiple times"));
        }
    }
    let Some((name, args)) = words[count..].split_first() else {
        return Stop::fatal("missing command name (use --help for help)");
    };
    let Some(spec) = COMMANDS.iter().find(|spec| spec.name == name) else {
        return Stop::fatal(format!("unknown command '{name}'; use --help for help"));
    };
    for (option, value) in &options {
        let known = spec.options.iter().find(|known| known.trim_end_matches('=') == option);
        match (known.map(|known| known.ends_with('=')), value) {
            (None, _) => return Stop::fatal(format!("'{name}' command has no '{option}' option")),
            (Some(true), None) => {
                return Stop::fatal(format!("missing argument to '{option}' option on '{name}' command"));
            }
            (Some(false), Some(_)) => {
                return Stop::fatal(format!("'{option}' option on '{name}' does not accept an argument"));
            }
            (Some(_), _) => {}
        }
    }
    if args.len() < spec.min {
        return Stop::fatal(format!("'{name}' command requires at least {} arguments", spec.min));
    }
    if args.len() > spec.max {
        let hint = match args.iter().any(|arg| arg.starts_with('-')) {
            true => " (note that options must precede command names and follow a \"--\" argument)",
            false => "",
        };
        return Stop::fatal(format!("'{name}' command takes at most {} arguments{hint}", spec.max));
    }
    Ok(Command {
        spec,
        options,
        args: args.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn error(text: &str) -> String {
        match parse(Vec::new(), &words(text)) {
            Err(Stop::Fatal(text)) => text,
            _ => String::new(),
        }
    }

    #[test]
    fn double_dashes_separate_commands_and_each_has_its_options() {
        let commands = parse(
            words("--may-exist"),
            &words("add-br b -- --if-exists del-port p -- -- list-br"),
        )
        .unwrap_or_default();
        let texts: Vec<String> = commands.iter().map(Command::text).collect();
        assert_eq!(texts, ["--may-exist add-br b", "--if-exists del-port p", "list-br"]);
    }

    #[test]
    fn mistakes_are_told_in_the_words_that_users_know() {
        assert_eq!(error(""), "missing command name (use --help for help)");
        assert_eq!(error("--if-exists"), "missing command name (use --help for help)");
        assert_eq!(error("fly"), "unknown command 'fly'; use --help for help");
        assert_eq!(error("--real add-br b"), "'add-br' command has no '--real' option");
        assert_eq!(
            error("--columns list t"),
            "missing argument to '--columns' option on 'list' command"
        );
        assert_eq!(
            error("--if-exists=1 del-br b"),
            "'--if-exists' option on 'del-br' does not accept an argument"
        );
        assert_eq!(
            error("--id=@a --id=@b create t a=b"),
            "'--id=@b' option specified multiple times"
        );
        assert_eq!(error("add-br"), "'add-br' command requires at least 1 arguments");
        assert_eq!(error("list-br x"), "'list-br' command takes at most 0 arguments");
    }

    #[test]
    fn every_option_of_a_command_may_stand_among_the_global_ones() {
        for option in COMMANDS.iter().flat_map(|spec| spec.options) {
            let name = option.trim_start_matches("--").trim_end_matches('=');
            let known = local_options().iter().find(|known| known.long == name);
            assert_eq!(
                known.map(|known| known.takes == Takes::Value),
                Some(option.ends_with('=')),
                "{option}"
            );
        }
    }
}
