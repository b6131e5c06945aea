//! The state that commands run on: the replica, the transaction under construction, row names,
//! output.

use std::collections::BTreeMap;
use std::rc::Rc;

use ovsdb::idl::{Idl, Txn, View};
use ovsdb::rows::{ToDatum, open_vswitch};
use ovsdb::{Atom, BaseType, ColumnType, DatabaseSchema, Datum, RefType, Uuid};

use super::Stop;
use super::model::Model;
use crate::table::Table;

/// One attempt to run all commands of an invocation.
pub(super) struct Context<'a> {
    pub(super) schema: &'a DatabaseSchema,
    idl: &'a Idl,
    txn: Txn,
    symbols: BTreeMap<String, Symbol>,
    model: Option<Rc<Model>>,
    /// The only row of `Open_vSwitch`.
    pub(super) root: Uuid,
    output: Vec<Output>,
    /// Interfaces that this invocation creates. Their errors are reported when the switch has
    /// applied the change.
    pub(super) new_interfaces: Vec<String>,
}

/// A part of a command's output.
pub(super) enum Output {
    Text(String),
    Table(Table),
    /// The UUID of an inserted row, which the database chooses.
    Inserted(Uuid),
}

/// A name that `--id=@name` gives to a row.
struct Symbol {
    uuid: Uuid,
    /// Whether a command has given the name to a row.
    created: bool,
    /// Whether the database deletes the row when nothing refers to it.
    needs_reference: bool,
    /// Whether something refers to it.
    referenced: bool,
}

impl<'a> Context<'a> {
    pub(super) fn new(schema: &'a DatabaseSchema, idl: &'a Idl, txn: Txn) -> Context<'a> {
        let mut context = Context {
            schema,
            idl,
            txn,
            symbols: BTreeMap::new(),
            model: None,
            root: Uuid::ZERO,
            output: Vec::new(),
            new_interfaces: Vec::new(),
        };
        context.root = match context.rows(open_vswitch::TABLE).first() {
            Some(root) => *root,
            None => {
                context.txn.verify_empty(open_vswitch::TABLE);
                context.txn.insert(open_vswitch::TABLE)
            }
        };
        context
    }

    /// The database after the commands so far.
    pub(super) fn view(&self) -> View<'_> {
        View::new(self.schema, self.idl.tables(), &self.txn)
    }

    pub(super) fn rows(&self, table: &str) -> Vec<Uuid> {
        self.view().rows(table)
    }

    /// The value of a column; its default if the server lacks the column.
    pub(super) fn get(&self, table: &str, row: Uuid, column: &str) -> Datum {
        let value = self.view().get(table, row, column);
        value.unwrap_or_else(|| {
            self.view()
                .kind(table, column)
                .map(ColumnType::default_datum)
                .unwrap_or_default()
        })
    }

    /// The value of a string column, or nothing.
    pub(super) fn text(&self, table: &str, row: Uuid, column: &str) -> String {
        self.get(table, row, column)
            .as_one()
            .map(Atom::to_bare_text)
            .unwrap_or_default()
    }

    /// The rows that a column refers to.
    pub(super) fn references(&self, table: &str, row: Uuid, column: &str) -> Vec<Uuid> {
        self.get(table, row, column)
            .atoms()
            .iter()
            .filter_map(Atom::as_uuid)
            .collect()
    }

    /// The transaction, to change.
    pub(super) fn txn(&mut self) -> &mut Txn {
        self.model = None;
        &mut self.txn
    }

    /// Makes the transaction verify a column's current value, and sets the column.
    pub(super) fn replace(&mut self, table: &str, row: Uuid, column: &str, value: impl ToDatum) {
        self.txn.verify(self.idl.tables(), table, row, column);
        self.txn().set(table, row, column, value);
    }

    /// Makes the transaction verify a column's current value.
    pub(super) fn verify(&mut self, table: &str, row: Uuid, column: &str) {
        self.txn.verify(self.idl.tables(), table, row, column);
    }

    /// Refuses to write a column that the server lacks.
    pub(super) fn check_server_has(&self, table: &str, column: &str) -> Result<(), Stop> {
        if self.idl.server_has(table, column) {
            return Ok(());
        }
        Stop::fatal(format!(
            "{table} table in {} database lacks {column} column (database needs upgrade?)",
            self.idl.db()
        ))
    }

    /// Bridges, ports and interfaces.
    pub(super) fn model(&mut self) -> Rc<Model> {
        match &self.model {
            Some(model) => Rc::clone(model),
            None => {
                let model = Rc::new(Model::build(self));
                self.model = Some(Rc::clone(&model));
                model
            }
        }
    }

    pub(super) fn line(&mut self, line: impl std::fmt::Display) {
        self.output.push(Output::Text(format!("{line}\n")));
    }

    pub(super) fn table(&mut self, table: Table) {
        self.output.push(Output::Table(table));
    }

    pub(super) fn inserted(&mut self, row: Uuid) {
        self.output.push(Output::Inserted(row));
    }

    /// The output since the last call.
    pub(super) fn take_output(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.output)
    }

    /// Parses a value as the user typed it; `@name` is the row of that name.
    pub(super) fn parse_datum(&mut self, text: &str, kind: &ColumnType) -> Result<Datum, Stop> {
        let strong = kind.bases().any(|base| base.refers(RefType::Strong));
        self.parse(strong, |resolve| Datum::from_text(text, kind, resolve))
    }

    /// Parses one atom as the user typed it.
    pub(super) fn parse_atom(&mut self, text: &str, base: &BaseType) -> Result<Atom, Stop> {
        let strong = base.refers(RefType::Strong);
        self.parse(strong, |resolve| Atom::from_text(text, base, resolve))
    }

    fn parse<T>(
        &mut self,
        strong: bool,
        parse: impl FnOnce(ovsdb::Resolve<'_>) -> Result<T, ovsdb::Error>,
    ) -> Result<T, Stop> {
        let Context { symbols, txn, .. } = self;
        let mut resolve = |name: &str| {
            let symbol = symbols
                .entry(name.to_owned())
                .or_insert_with(|| Symbol::new(txn.reserve()));
            symbol.referenced |= strong;
            Some(symbol.uuid)
        };
        Ok(parse(&mut resolve)?)
    }

    /// Gives a row that `get` found the name `name`.
    pub(super) fn name_row(&mut self, name: &str, row: Uuid) -> Result<(), Stop> {
        check_name(name)?;
        match self.symbols.get(name) {
            Some(symbol) if symbol.created => duplicate_name(name),
            Some(_) => Stop::fatal(format!(
                "row id \"{name}\" specified on \"get\" command was used before it was defined"
            )),
            None => {
                self.symbols.insert(
                    name.to_owned(),
                    Symbol {
                        created: true,
                        ..Symbol::new(row)
                    },
                );
                Ok(())
            }
        }
    }

    /// Inserts a row into `table`. `name` is its name (`@name`) or its UUID.
    pub(super) fn create(&mut self, table: &str, name: Option<&str>) -> Result<Uuid, Stop> {
        let Some(name) = name else {
            return Ok(self.txn().insert(table));
        };
        if let Ok(uuid) = name.parse() {
            self.txn().insert_as(table, uuid);
            return Ok(uuid);
        }
        check_name(name)?;
        let root = self.schema.table(table).is_some_and(|table| table.is_root());
        let Context { symbols, txn, .. } = self;
        let symbol = symbols
            .entry(name.to_owned())
            .or_insert_with(|| Symbol::new(txn.reserve()));
        if std::mem::replace(&mut symbol.created, true) {
            return duplicate_name(name);
        }
        symbol.needs_reference = !root;
        let uuid = symbol.uuid;
        self.txn().insert_reserved(table, uuid);
        Ok(uuid)
    }

    /// Checks that every name used is the name of a row, and returns the transaction.
    pub(super) fn finish(self) -> Result<Txn, Stop> {
        for (name, symbol) in &self.symbols {
            if !symbol.created {
                let hint = format!("(e.g. with \"-- --id={name} create ...\")");
                return Stop::fatal(format!("row id \"{name}\" is referenced but never created {hint}"));
            }
            if symbol.needs_reference && !symbol.referenced {
                tracing::warn!(
                    target: "vsctl",
                    "row id \"{name}\" was created but no reference to it was inserted, so it will not actually appear \
                     in the database"
                );
            }
        }
        Ok(self.txn)
    }
}

impl Symbol {
    fn new(uuid: Uuid) -> Symbol {
        Symbol {
            uuid,
            created: false,
            needs_reference: false,
            referenced: false,
        }
    }
}

fn check_name(name: &str) -> Result<(), Stop> {
    if name.starts_with('@') {
        return Ok(());
    }
    Stop::fatal(format!("row id \"{name}\" does not begin with \"@\""))
}

fn duplicate_name<T>(name: &str) -> Result<T, Stop> {
    Stop::fatal(format!("row id \"{name}\" may only be specified on one --id option"))
}
