//! Command lines as with `getopt_long`: long options may be abbreviated, options and arguments may
//! be mixed, and errors have its texts.
//!
//! A program lists its options in tables of [`Opt`], so that the daemon and logging options that
//! many programs share are written once, and reads [`Item`]s off a [`Parser`] one by one.

use std::ffi::OsString;

use lexopt::Arg as Lex;

/// Whether an option takes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// `--flag`
    Nothing,
    /// `--opt=VALUE`, `--opt VALUE`, `-oVALUE` or `-o VALUE`
    Value,
    /// `--opt` or `--opt=VALUE`; `-o` or `-oVALUE`
    Maybe,
}

/// One option of a program. A short-only option has an empty `long`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opt {
    /// Long name, without the dashes; it is also the name by which [`Item::Opt`] tells it.
    pub long: &'static str,
    /// One-letter name.
    pub short: Option<char>,
    /// Whether a value follows.
    pub takes: Takes,
}

impl Opt {
    /// An option without a value.
    pub const fn flag(long: &'static str, short: Option<char>) -> Opt {
        Opt {
            long,
            short,
            takes: Takes::Nothing,
        }
    }

    /// An option that needs a value.
    pub const fn value(long: &'static str, short: Option<char>) -> Opt {
        Opt {
            long,
            short,
            takes: Takes::Value,
        }
    }

    /// An option whose value may be left out.
    pub const fn maybe(long: &'static str, short: Option<char>) -> Opt {
        Opt {
            long,
            short,
            takes: Takes::Maybe,
        }
    }
}

/// `-h`/`--help` and `-V`/`--version`, which every program has.
pub const COMMON: &[Opt] = &[Opt::flag("help", Some('h')), Opt::flag("version", Some('V'))];

/// One thing read off the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// An option, by its long name, with its value if it has one.
    Opt(&'static str, Option<String>),
    /// Anything else.
    Arg(String),
}

/// A mistake on the command line; it prints as `getopt_long` would say it, without the program's
/// name in front.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// Reads a command line.
#[derive(Debug)]
pub struct Parser {
    lex: lexopt::Parser,
    tables: Vec<&'static [Opt]>,
    order: Order,
    /// After `--`, or after the first argument when options must come first.
    rest: Option<std::vec::IntoIter<OsString>>,
}

/// Where options may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Anywhere before `--`.
    Mixed,
    /// Before the first argument only: what follows belongs to a command.
    OptionsFirst,
}

impl Parser {
    /// A parser of `args` (without the program's name) for the options in `tables`.
    pub fn new<I>(args: I, tables: Vec<&'static [Opt]>, order: Order) -> Parser
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
        Parser {
            lex: lexopt::Parser::from_args(args),
            tables,
            order,
            rest: None,
        }
    }

    /// The next option or argument, `None` at the end.
    ///
    /// # Errors
    /// An unknown or ambiguous option, a value missing or where none belongs.
    #[expect(clippy::should_implement_trait, reason = "it can fail")]
    pub fn next(&mut self) -> Result<Option<Item>, Error> {
        if let Some(rest) = &mut self.rest {
            return Ok(rest.next().map(|a| Item::Arg(lossy(a))));
        }
        let arg = self.lex.next().map_err(|e| Error(e.to_string()))?;
        match arg {
            None => Ok(None),
            Some(Lex::Value(first)) => {
                if self.order == Order::OptionsFirst {
                    let rest: Vec<OsString> = self.lex.raw_args().map(Iterator::collect).unwrap_or_default();
                    self.rest = Some(rest.into_iter());
                }
                Ok(Some(Item::Arg(lossy(first))))
            }
            Some(Lex::Long(name)) => {
                let name = name.to_owned();
                self.long(&name).map(Some)
            }
            Some(Lex::Short(c)) => self.short(c).map(Some),
        }
    }

    /// Everything that is left, for programs whose commands have a syntax of their own.
    pub fn rest(&mut self) -> Vec<String> {
        let rest: Vec<OsString> = match self.rest.take() {
            Some(rest) => rest.collect(),
            None => self.lex.raw_args().map(Iterator::collect).unwrap_or_default(),
        };
        rest.into_iter().map(lossy).collect()
    }

    fn long(&mut self, name: &str) -> Result<Item, Error> {
        let all = || self.tables.iter().flat_map(|t| t.iter()).filter(|o| !o.long.is_empty());
        let opt = match all().find(|o| o.long == name) {
            Some(opt) => *opt,
            None => {
                let near: Vec<&Opt> = all().filter(|o| o.long.starts_with(name)).collect();
                match near.as_slice() {
                    [] => return Err(Error(format!("unrecognized option '--{name}'"))),
                    [one] => **one,
                    many => {
                        let names: Vec<String> = many.iter().map(|o| format!("'--{}'", o.long)).collect();
                        let value = self.lex.optional_value();
                        let value = value.map(|v| format!("={}", lossy(v))).unwrap_or_default();
                        return Err(Error(format!(
                            "option '--{name}{value}' is ambiguous; possibilities: {}",
                            names.join(" ")
                        )));
                    }
                }
            }
        };
        let value = match opt.takes {
            Takes::Maybe => self.lex.optional_value(),
            Takes::Value => match self.lex.value() {
                Ok(value) => Some(value),
                Err(_) => {
                    return Err(Error(format!("option '--{}' requires an argument", opt.long)));
                }
            },
            Takes::Nothing => {
                if self.lex.optional_value().is_some() {
                    return Err(Error(format!("option '--{}' doesn't allow an argument", opt.long)));
                }
                None
            }
        };
        Ok(Item::Opt(opt.long, value.map(lossy)))
    }

    fn short(&mut self, c: char) -> Result<Item, Error> {
        let opt = self
            .tables
            .iter()
            .flat_map(|t| t.iter())
            .find(|o| o.short == Some(c))
            .copied();
        let Some(opt) = opt else {
            return Err(Error(format!("invalid option -- '{c}'")));
        };
        let value = match opt.takes {
            Takes::Nothing => None,
            Takes::Maybe => self.lex.optional_value(),
            Takes::Value => match self.lex.value() {
                Ok(value) => Some(value),
                Err(_) => return Err(Error(format!("option requires an argument -- '{c}'"))),
            },
        };
        Ok(Item::Opt(opt.long, value.map(lossy)))
    }
}

fn lossy(s: OsString) -> String {
    s.into_string().unwrap_or_else(|s| s.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTS: &[Opt] = &[
        Opt::value("target", Some('t')),
        Opt::value("timeout", Some('T')),
        Opt::maybe("verbose", Some('v')),
        Opt::flag("pretty", None),
    ];

    fn all(args: &[&str], order: Order) -> Result<Vec<Item>, String> {
        let mut parser = Parser::new(args.iter().copied(), vec![OPTS, COMMON], order);
        let mut items = Vec::new();
        while let Some(item) = parser.next().map_err(|e| e.to_string())? {
            items.push(item);
        }
        Ok(items)
    }

    #[test]
    fn options_and_arguments_may_be_mixed_and_abbreviated() {
        let items = all(&["a", "--targ=x", "-vdbg", "-v", "b", "--", "-T"], Order::Mixed).unwrap();
        assert_eq!(
            items,
            [
                Item::Arg("a".into()),
                Item::Opt("target", Some("x".into())),
                Item::Opt("verbose", Some("dbg".into())),
                Item::Opt("verbose", None),
                Item::Arg("b".into()),
                Item::Arg("-T".into()),
            ]
        );
    }

    #[test]
    fn a_command_keeps_its_own_options_when_options_come_first() {
        let items = all(&["-T", "-1", "cmd", "--pretty", "--"], Order::OptionsFirst).unwrap();
        assert_eq!(
            items,
            [
                Item::Opt("timeout", Some("-1".into())),
                Item::Arg("cmd".into()),
                Item::Arg("--pretty".into()),
                Item::Arg("--".into()),
            ]
        );
    }

    #[test]
    fn mistakes_are_told_as_getopt_tells_them() {
        let wrong = |arg: &str| all(&[arg], Order::Mixed).unwrap_err();
        assert_eq!(wrong("--foo"), "unrecognized option '--foo'");
        assert_eq!(wrong("--pretty=x"), "option '--pretty' doesn't allow an argument");
        assert_eq!(wrong("--target"), "option '--target' requires an argument");
        assert_eq!(wrong("-t"), "option requires an argument -- 't'");
        assert_eq!(wrong("-q"), "invalid option -- 'q'");
        assert_eq!(
            wrong("--t=3"),
            "option '--t=3' is ambiguous; possibilities: '--target' '--timeout'"
        );
    }
}
