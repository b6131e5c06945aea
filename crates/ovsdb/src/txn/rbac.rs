//! Role-based access control (ovsdb-server(1) and the schema of OVN's southbound database): which
//! rows a client with a role may change.
//!
//! The rules are rows of the database itself: `RBAC_Role` maps the names of tables to rows of
//! `RBAC_Permission`. A client without a role, and a database without roles, have no rules.

use super::Txn;
use crate::atom::Atom;
use crate::database::Database;
use crate::error::{Error, ErrorKind};
use crate::row::Row;
use crate::schema::TableSchema;
use crate::uuid::Uuid;

/// Who changes something.
#[derive(Debug, Clone, Copy)]
pub struct Rbac<'a> {
    /// The name of the role.
    pub role: &'a str,
    /// The name of the client, which its certificate has; `None` if it has none.
    pub client: Option<&'a str>,
}

/// What a change does, as the error says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change<'a> {
    Insert,
    Delete,
    /// The columns by number.
    Update(&'a [usize]),
    /// The columns by number.
    Mutate(&'a [usize]),
}

impl Change<'_> {
    fn describe(self) -> &'static str {
        match self {
            Change::Insert => "row insertion into",
            Change::Delete => "row deletion from",
            Change::Update(_) => "modification of",
            Change::Mutate(_) => "mutate operation on",
        }
    }
}

impl Txn<'_> {
    /// Checks that the client may make a change to these rows, which are those before the change.
    ///
    /// # Errors
    /// `permission error`
    pub(super) fn check_role(&self, table: usize, rows: &[Uuid], change: Change<'_>) -> Result<(), Error> {
        let rows = rows
            .iter()
            .filter_map(|uuid| self.db.row(table, *uuid).map(|row| &**row));
        self.check_rows(table, rows, change)
    }

    /// Checks that the client may insert the row.
    ///
    /// # Errors
    /// `permission error`
    pub(super) fn check_new_row(&self, table: usize, row: &Row) -> Result<(), Error> {
        self.check_rows(table, std::iter::once(row), Change::Insert)
    }

    fn check_rows<'a>(
        &self,
        table: usize,
        mut rows: impl Iterator<Item = &'a Row>,
        change: Change<'_>,
    ) -> Result<(), Error> {
        let Some(rbac) = self.ctx.rbac.filter(|rbac| !rbac.role.is_empty()) else {
            return Ok(());
        };
        let Some(roles) = self.schema.table_index("RBAC_Role") else {
            return Ok(());
        };
        let definition = &self.schema.tables()[table];
        let allowed = rbac.client.is_some_and(|client| {
            let permission = permission(self.db, roles, rbac.role, definition.name());
            permission.is_some_and(|permission| rows.all(|row| permission.allows(definition, row, change, client)))
        });
        if allowed {
            return Ok(());
        }
        let details = format!(
            "RBAC rules for client \"{}\" role \"{}\" prohibit {} table \"{}\".",
            rbac.client.unwrap_or("(null)"),
            rbac.role,
            change.describe(),
            definition.name()
        );
        Err(Error::new(ErrorKind::Permission, details))
    }
}

/// A row of `RBAC_Permission`.
struct Permission<'a> {
    row: &'a Row,
    table: &'a TableSchema,
}

/// What a role permits for a table.
fn permission<'a>(db: &'a Database, roles: usize, role: &str, table: &str) -> Option<Permission<'a>> {
    let tables = db.schema().tables();
    let (name, permissions) = (
        tables[roles].column_index("name")?,
        tables[roles].column_index("permissions")?,
    );
    let wanted = Atom::string(role);
    let row = db.rows(roles).find(|row| row.get(name).as_one() == Some(&wanted))?;
    let uuid = row.get(permissions).get(&Atom::string(table))?.as_uuid()?;
    let at = db.schema().table_index("RBAC_Permission")?;
    Some(Permission {
        row: db.row(at, uuid)?,
        table: &tables[at],
    })
}

impl Permission<'_> {
    /// Whether the client may change a row.
    fn allows(&self, definition: &TableSchema, row: &Row, change: Change<'_>, client: &str) -> bool {
        let listed = |column: &usize| self.lists("update", &definition.columns()[*column].name);
        let permitted = match change {
            Change::Insert | Change::Delete => self.may_insert_and_delete(),
            Change::Update(columns) | Change::Mutate(columns) => columns.iter().all(listed),
        };
        permitted && self.owns(definition, row, client)
    }

    fn may_insert_and_delete(&self) -> bool {
        let column = self.table.column_index("insert_delete");
        column.and_then(|column| self.row.get(column).as_one()?.as_bool()) == Some(true)
    }

    /// Whether a set of strings has that one.
    fn lists(&self, column: &str, wanted: &str) -> bool {
        let column = self.table.column_index(column);
        column.is_some_and(|column| self.row.get(column).contains(&Atom::string(wanted)))
    }

    /// Whether a column in `authorization` has the client's name. The empty string stands for
    /// every client, `COLUMN:KEY` for the value of a key.
    fn owns(&self, definition: &TableSchema, row: &Row, client: &str) -> bool {
        let Some(column) = self.table.column_index("authorization") else {
            return false;
        };
        let names = self.row.get(column).atoms().iter().filter_map(Atom::as_str);
        let wanted = Atom::string(client);
        { names }.any(|name| {
            if name.is_empty() {
                return true;
            }
            let (name, key) = name
                .split_once(':')
                .map_or((name, None), |(name, key)| (name, Some(key)));
            let Some(column) = definition.column_index(name) else {
                return false;
            };
            let value = row.get(column);
            match key {
                Some(key) => value.get(&Atom::string(key)) == Some(&wanted),
                None => value.as_one() == Some(&wanted),
            }
        })
    }
}
