//! Tables, as every tool prints them: 2-D text, lists, HTML, CSV or JSON (ovs-vsctl(8),
//! ovsdb-client(1), "Output Formatting Options").

use std::fmt::Write;

use mgmt::cli::{Error, Opt};
use ovsdb::{Atom, ColumnType, Datum, Uuid};
use serde_json::{Map, Value};

/// The options that control how tables look.
pub const OPTIONS: &[Opt] = &[
    Opt::value("format", Some('f')),
    Opt::value("data", Some('d')),
    Opt::flag("no-headings", None),
    Opt::flag("pretty", None),
    Opt::flag("bare", None),
    Opt::value("max-column-width", None),
    Opt::flag("timestamp", None),
];

/// The help text of [`OPTIONS`].
pub const HELP: &str = "
Output formatting options:
  -f, --format=FORMAT         table, list, html, csv or json
  -d, --data=FORMAT           how values look: string, bare or json
  --no-headings               leave out the headings
  --pretty                    spread JSON over lines
  --bare                      same as \"--format=list --data=bare --no-headings\"
  --max-column-width=N        cut columns of tables to N characters
  --timestamp                 tell when each change came (\"monitor\")
";

/// The form of a whole table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns.
    Table,
    /// A line for each cell, a blank line between rows.
    List,
    /// An HTML table.
    Html,
    /// Comma-separated values (RFC 4180).
    Csv,
    /// One JSON object per table.
    Json,
}

/// The form of a cell, but in JSON tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellFormat {
    /// `[a, "b c"]`
    String,
    /// `a b c`
    Bare,
    /// `["set",["a","b c"]]`
    Json,
}

/// Format of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Of tables.
    pub format: Format,
    /// Of cells.
    pub data: CellFormat,
    /// Whether to print headings.
    pub headings: bool,
    /// Whether to print JSON over several lines.
    pub pretty: bool,
    /// Widest column of [`Format::Table`] in bytes, 0 for any.
    pub max_column_width: usize,
    /// Whether to print changes with their time.
    pub timestamp: bool,
}

impl Style {
    /// The style of a tool whose default format is `format`.
    pub fn new(format: Format) -> Style {
        Style {
            format,
            data: CellFormat::String,
            headings: true,
            pretty: false,
            max_column_width: 0,
            timestamp: false,
        }
    }

    /// Takes an option if it is one of [`OPTIONS`]; false if it is not.
    ///
    /// # Errors
    /// An unknown format.
    pub fn accept(&mut self, name: &str, value: Option<&str>) -> Result<bool, Error> {
        let value = value.unwrap_or_default();
        match name {
            "format" => {
                self.format = match value {
                    "table" => Format::Table,
                    "list" => Format::List,
                    "html" => Format::Html,
                    "csv" => Format::Csv,
                    "json" => Format::Json,
                    _ => return Err(Error(format!("unknown output format \"{value}\""))),
                }
            }
            "data" => {
                self.data = match value {
                    "string" => CellFormat::String,
                    "bare" => CellFormat::Bare,
                    "json" => CellFormat::Json,
                    _ => return Err(Error(format!("unknown data format \"{value}\""))),
                }
            }
            "no-headings" => self.headings = false,
            "pretty" => self.pretty = true,
            "bare" => {
                self.format = Format::List;
                self.data = CellFormat::Bare;
                self.headings = false;
            }
            "max-column-width" => self.max_column_width = value.trim().parse().unwrap_or(0),
            "timestamp" => self.timestamp = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// JSON in this style, without a newline.
    pub fn json(&self, value: &Value) -> String {
        if self.pretty { pretty(value) } else { value.to_string() }
    }
}

/// One cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Nothing.
    Empty,
    /// Text, shown as it is.
    Text(String),
    /// JSON, printed as JSON in any style of cells.
    Json(Value),
    /// The value of a column.
    Datum(Datum, ColumnType),
}

impl Cell {
    fn text(&self, style: &Style) -> String {
        match self {
            Cell::Empty => String::new(),
            Cell::Text(text) => text.clone(),
            Cell::Json(value) => value.to_string(),
            Cell::Datum(datum, kind) => match style.data {
                CellFormat::String => datum.to_text(kind),
                CellFormat::Bare => bare(datum),
                CellFormat::Json => datum.to_json(kind).to_string(),
            },
        }
    }

    fn json(&self) -> Value {
        match self {
            Cell::Empty => Value::Null,
            Cell::Text(text) => Value::from(text.as_str()),
            Cell::Json(value) => value.clone(),
            Cell::Datum(datum, kind) => datum.to_json(kind),
        }
    }
}

/// A table: headings and rows of as many cells.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// Printed above it.
    pub caption: Option<String>,
    /// Printed above it: when its contents came, e.g. `2026-01-31 12:00:00.000`.
    pub timestamp: Option<String>,
    /// The headings.
    pub columns: Vec<String>,
    /// The rows; each has a cell per heading, and missing cells are empty.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table of these columns without rows.
    pub fn new<S: Into<String>>(columns: impl IntoIterator<Item = S>) -> Table {
        let columns = columns.into_iter().map(Into::into).collect();
        Table {
            columns,
            ..Table::default()
        }
    }

    /// Adds a column at the right.
    pub fn add_column(&mut self, heading: impl Into<String>) {
        self.columns.push(heading.into());
    }

    /// Adds a row at the bottom.
    pub(crate) fn add_row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }
}

/// Prints tables one after another in a style.
#[derive(Debug)]
pub struct Printer {
    style: Style,
    first: bool,
}

impl Printer {
    /// A printer before its first table.
    pub fn new(style: Style) -> Printer {
        Printer { style, first: true }
    }

    /// The next table as text, with the separator from the one before.
    pub fn print(&mut self, table: &Table) -> String {
        let mut out = String::new();
        let apart = matches!(self.style.format, Format::Table | Format::List | Format::Csv);
        if apart && !std::mem::replace(&mut self.first, false) {
            out.push('\n');
        }
        if self.style.format != Format::Json
            && let Some(time) = &table.timestamp
        {
            out.push_str(time);
            out.push('\n');
        }
        match self.style.format {
            Format::Table => self.text(table, &mut out),
            Format::List => self.list(table, &mut out),
            Format::Html => self.html(table, &mut out),
            Format::Csv => self.csv(table, &mut out),
            Format::Json => self.json(table, &mut out),
        }
        out
    }

    fn text(&self, table: &Table, out: &mut String) {
        caption(table, out);
        let style = &self.style;
        let rows = self.cells(table);
        let mut widths: Vec<usize> = vec![0; table.columns.len()];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.len());
            }
        }
        if style.max_column_width > 0 {
            widths.iter_mut().for_each(|w| *w = (*w).min(style.max_column_width));
        }
        if style.headings {
            for (width, heading) in widths.iter_mut().zip(&table.columns) {
                *width = (*width).max(heading.len());
            }
            line(table.columns.iter().map(String::as_str), &widths, out);
            let dashes: Vec<String> = widths.iter().map(|w| "-".repeat(*w)).collect();
            line(dashes.iter().map(String::as_str), &widths, out);
        }
        for row in &rows {
            line(row.iter().map(String::as_str), &widths, out);
        }
    }

    fn list(&self, table: &Table, out: &mut String) {
        caption(table, out);
        for (i, row) in self.cells(table).iter().enumerate() {
            if i > 0 {
                out.push('\n');
            }
            for (heading, cell) in table.columns.iter().zip(row) {
                if self.style.headings {
                    let _ = write!(out, "{heading:<20}: ");
                }
                out.push_str(cell);
                out.push('\n');
            }
        }
    }

    fn html(&self, table: &Table, out: &mut String) {
        out.push_str("<table border=1>\n");
        if let Some(caption) = &table.caption {
            out.push_str("    <caption>");
            html_text(caption, out);
            out.push_str("</caption>\n");
        }
        let mut row = |cells: &[String], element: &str| {
            out.push_str("  <tr>\n");
            for (heading, cell) in table.columns.iter().zip(cells) {
                let _ = write!(out, "    <{element}>");
                if element == "td" && heading == "_uuid" {
                    html_anchor(cell, out);
                } else {
                    html_text(cell, out);
                }
                let _ = writeln!(out, "</{element}>");
            }
            out.push_str("  </tr>\n");
        };
        if self.style.headings {
            row(&table.columns, "th");
        }
        for cells in self.cells(table) {
            row(&cells, "td");
        }
        out.push_str("</table>\n");
    }

    fn csv(&self, table: &Table, out: &mut String) {
        caption(table, out);
        let mut row = |cells: &[String]| {
            for (i, cell) in cells.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                if cell.contains(['\n', '\r', '"', ',']) {
                    let _ = write!(out, "\"{}\"", cell.replace('"', "\"\""));
                } else {
                    out.push_str(cell);
                }
            }
            out.push('\n');
        };
        if self.style.headings {
            row(&table.columns);
        }
        self.cells(table).iter().for_each(|cells| row(cells));
    }

    fn json(&self, table: &Table, out: &mut String) {
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        if let Some(caption) = &table.caption {
            put("caption", caption.as_str().into());
        }
        if let Some(time) = &table.timestamp {
            put("time", time.as_str().into());
        }
        put("headings", table.columns.clone().into());
        let row = |cells: &Vec<Cell>| -> Value {
            (0..table.columns.len())
                .map(|i| cells.get(i).map_or(Value::Null, Cell::json))
                .collect()
        };
        put("data", table.rows.iter().map(row).collect());
        out.push_str(&self.style.json(&Value::Object(object)));
        out.push('\n');
    }

    fn cells(&self, table: &Table) -> Vec<Vec<String>> {
        let text = |cells: &Vec<Cell>, i| cells.get(i).map(|c: &Cell| c.text(&self.style)).unwrap_or_default();
        let columns = table.columns.len();
        table
            .rows
            .iter()
            .map(|row| (0..columns).map(|i| text(row, i)).collect())
            .collect()
    }
}

/// JSON spread over lines, two spaces a level, closing brackets at the end of the last line.
pub fn pretty(value: &Value) -> String {
    let mut out = String::new();
    pretty_into(value, 0, &mut out);
    out
}

fn pretty_into(value: &Value, depth: usize, out: &mut String) {
    let indent = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', depth * 2));
    };
    match value {
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                indent(out, depth + 1);
                pretty_into(item, depth + 1, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (i, (name, member)) in members.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                indent(out, depth + 1);
                let _ = write!(out, "{}: ", Value::from(name.as_str()));
                pretty_into(member, depth + 1, out);
            }
            if members.is_empty() {
                indent(out, depth + 1);
            }
            out.push('}');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

fn caption(table: &Table, out: &mut String) {
    if let Some(caption) = &table.caption {
        out.push_str(caption);
        out.push('\n');
    }
}

/// A value's elements, apart by spaces.
fn bare(datum: &Datum) -> String {
    let atoms = datum.atoms().iter().map(Atom::to_bare_text);
    let pairs = datum
        .pairs()
        .iter()
        .map(|(k, v)| format!("{}={}", k.to_bare_text(), v.to_bare_text()));
    atoms.chain(pairs).collect::<Vec<_>>().join(" ")
}

/// One line of a text table, without blanks at its end. Widths count bytes, as theirs do.
fn line<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize], out: &mut String) {
    for (cell, width) in cells.zip(widths) {
        let mut end = cell.len().min(*width);
        while !cell.is_char_boundary(end) {
            end -= 1;
        }
        out.push_str(&cell[..end]);
        out.extend(std::iter::repeat_n(' ', width - end + 1));
    }
    out.truncate(out.trim_end_matches(' ').len());
    out.push('\n');
}

/// The name of a row in HTML: where links to its UUID lead.
fn html_anchor(text: &str, out: &mut String) {
    let short = text.char_indices().nth(8).map_or(text, |(end, _)| &text[..end]);
    out.push_str("<a name=\"");
    text.chars().for_each(|c| html_char(c, out));
    out.push_str("\">");
    short.chars().for_each(|c| html_char(c, out));
    out.push_str("</a>");
}

/// Text for HTML; UUIDs become links, shown by their first part.
fn html_text(text: &str, out: &mut String) {
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(uuid) = rest.get(..36).filter(|t| t.parse::<Uuid>().is_ok()) {
            let _ = write!(out, "<a href=\"#{uuid}\">{}</a>", &uuid[..8]);
            rest = &rest[36..];
            continue;
        }
        html_char(c, out);
        rest = &rest[c.len_utf8()..];
    }
}

fn html_char(c: char, out: &mut String) {
    match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '"' => out.push_str("&quot;"),
        c => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(["name", "value"]);
        table.add_row(vec![Cell::Text("a<b".into()), Cell::Json(json!(["set", [1, "x,\"y"]]))]);
        table.add_row(vec![
            Cell::Text("722ca457-6917-4300-b533-7383d9928df1".into()),
            Cell::Empty,
        ]);
        table
    }

    fn show(options: &[(&str, &str)], tables: &[Table]) -> String {
        let mut style = Style::new(Format::Table);
        for (name, value) in options {
            assert!(style.accept(name, Some(value)).unwrap());
        }
        let mut printer = Printer::new(style);
        tables.iter().map(|t| printer.print(t)).collect()
    }

    #[test]
    fn tables_align_and_leave_the_last_column_unpadded() {
        assert_eq!(
            show(&[("max-column-width", "8")], &[sample()]),
            "name     value\n-------- --------\na<b      [\"set\",[\n722ca457\n"
        );
        assert_eq!(show(&[], &[Table::new(["a"]), Table::new(["b"])]), "a\n-\n\nb\n-\n");
    }

    #[test]
    fn other_formats_escape_what_they_must() {
        assert_eq!(
            show(&[("format", "csv")], &[sample()]),
            "name,value\na<b,\"[\"\"set\"\",[1,\"\"x,\\\"\"y\"\"]]\"\n\
             722ca457-6917-4300-b533-7383d9928df1,\n"
        );
        let html = show(&[("format", "html"), ("no-headings", "")], &[sample()]);
        assert!(html.contains("<td>a&lt;b</td>"), "{html}");
        assert!(
            html.contains("<a href=\"#722ca457-6917-4300-b533-7383d9928df1\">722ca457</a>"),
            "{html}"
        );
        assert_eq!(
            show(&[("format", "json")], &[sample()]),
            "{\"data\":[[\"a<b\",[\"set\",[1,\"x,\\\"y\"]]],[\"722ca457-6917-4300-b533-7383d9928df1\",null]],\
             \"headings\":[\"name\",\"value\"]}\n"
        );
        assert_eq!(
            show(&[("format", "list")], &[sample()]).lines().next(),
            Some("name                : a<b")
        );
        assert!(show(&[("bare", "")], &[sample()]).starts_with("a<b\n"));
    }

    #[test]
    fn pretty_json_closes_its_brackets_at_once() {
        assert_eq!(
            pretty(&json!({"a": [1, [2]], "b": {}})),
            "{\n  \"a\": [\n    1,\n    [\n      2]],\n  \"b\": {\n    }}"
        );
    }
}
