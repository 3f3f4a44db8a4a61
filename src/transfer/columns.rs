//! The columns of a CSV file or a workbook, which are also the members of a line in JSON Lines.

use serde_json::json;

use super::map::Map;
use super::references::name_of;
use super::{Cell, CellFault, Place, RowError};
use crate::model::validation::{
    CUSTOM_NAME_RULE, CUSTOM_PREFIX, MAX_CUSTOM_LENGTH, MAX_EMAIL, custom_name_in, is_empty,
    is_integer, shorten,
};
use crate::model::{
    CREATED_AT, CUSTOM, Field, ID, Json, JsonObject, Kind, READ_ONLY, Resource, UPDATED_AT, Value,
};
use crate::words;

/// The columns that a file of a resource can have: its fields, the read-only fields that an export
/// writes, the natural keys of the records that it refers to, and amounts of money.
#[derive(Debug)]
pub(super) struct Columns<'a> {
    pub resource: &'static Resource,
    pub map: &'a Map,
    pub references: Vec<ReferenceColumn>,
    /// All names but those of custom fields.
    pub names: Vec<String>,
}

/// A column that stands for a reference, such as `customer_number` for the field `customer_id`.
#[derive(Debug)]
pub(super) struct ReferenceColumn {
    pub name: String,
    /// The reference.
    pub field: &'static Field,
    pub target: &'static Resource,
    /// The field of `target` that the column holds. Without one, it holds the name.
    pub key: Option<&'static Field>,
}

/// The columns that stand for references, in the order of the fields.
pub(super) fn reference_columns(
    resource: &'static Resource,
) -> impl Iterator<Item = ReferenceColumn> {
    resource.fields.iter().filter_map(|field| Some((field, field.references?))).flat_map(
        |(field, target)| {
            let keys = resource.natural_references().iter().filter(move |key| key.field == field);
            let keys = keys.map(|key| (key.name.clone(), Some(key.key)));
            keys.chain([(format!("{}_name", target.name), None)])
                .map(move |(name, key)| ReferenceColumn { name, field, target, key })
        },
    )
}

impl ReferenceColumn {
    /// What the column has for a referred record.
    pub(super) fn text(&self, values: &[Value]) -> String {
        match self.key.and_then(|key| self.target.value(values, key.name)) {
            Some(Value::Text(text)) => text.clone(),
            _ if self.key.is_some() => String::new(),
            _ => name_of(self.target, values),
        }
    }
}

/// A column of a file.
#[derive(Debug)]
pub(super) struct Column {
    /// As the file names it.
    heading: String,
    /// The field, natural key or `custom.NAME` of its cells. If it has none, they are not used.
    pub name: Option<String>,
    kind: Option<Kind>,
    is_date: bool,
    /// If the column has amounts of money: the field of the cents.
    cents: Option<&'static str>,
}

impl Column {
    /// The heading, unless it is the field `name` in another spelling.
    pub(super) fn other_heading(&self, name: &str) -> Option<String> {
        let is_same = spelling(&self.heading) == name;
        (!is_same).then(|| shorten(&self.heading).into_owned())
    }

    /// The name, unless the file or the map leaves the column out.
    pub(super) fn used_name(&self) -> Option<&str> {
        self.name.as_deref().filter(|name| !name.is_empty() && !self.heading.is_empty())
    }
}

impl<'a> Columns<'a> {
    pub(super) fn of(resource: &'static Resource, map: &'a Map) -> Columns<'a> {
        let references: Vec<_> = reference_columns(resource).collect();
        let fields = resource.fields.iter().filter(|field| field.kind != Kind::Custom);
        let fields = fields.map(|field| field.name);
        let amounts = resource.fields.iter().filter_map(amount_name);
        let mut names: Vec<_> = fields.chain(amounts).chain(READ_ONLY).map(str::to_owned).collect();
        names.extend(references.iter().map(|column| column.name.clone()));
        Columns { resource, map, references, names }
    }

    pub(super) fn is_known(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// The column with this heading. Case, spaces and hyphens do not matter.
    pub(super) fn find(&self, heading: &str) -> Column {
        let heading = heading.trim();
        let name = spelling(heading);
        let is_known = self.is_known(&name) || custom_name_in(&name).is_some();
        self.column(heading, is_known.then_some(name))
    }

    /// The member of a line in JSON Lines. Its name is exact.
    pub(super) fn find_member(&self, member: &str) -> Column {
        let is_known = member == CUSTOM.name || self.is_known(member);
        self.column(member, is_known.then(|| member.to_owned()))
    }

    /// The column with this heading. If the map does not name another one, it is `known`.
    fn column(&self, heading: &str, known: Option<String>) -> Column {
        let name = self.map.columns.get(heading).cloned().or(known);
        let name = name.or_else(|| self.map.ignores_others.then(String::new));
        let (mut kind, mut cents) = (None, None);
        for field in [&ID].into_iter().chain(self.resource.fields) {
            if name.as_deref() == Some(field.name) {
                kind = Some(field.kind);
            } else if name.is_some() && name.as_deref() == amount_name(field) {
                cents = Some(field.name);
            }
        }
        let is_date = kind == Some(Kind::Date)
            || name.as_deref().is_some_and(|name| self.map.has_dates(name));
        Column { heading: heading.to_owned(), name, kind, is_date, cents }
    }

    /// The headings of the map that name a field, but no column of the file.
    pub(super) fn absent_headings(&self, columns: &[Column]) -> Vec<String> {
        let is_absent = |heading: &&String| columns.iter().all(|one| one.heading != **heading);
        let used = self.map.columns.iter().filter(|(_, name)| !name.is_empty());
        let mut absent: Vec<_> = used.map(|(heading, _)| heading).filter(is_absent).collect();
        absent.sort();
        absent.into_iter().map(|heading| shorten(heading).into_owned()).collect()
    }

    /// Returns an error for each column that does not exist, and for each that sets the same field
    /// as an earlier one. Members of JSON Lines have no numbers.
    pub(super) fn check(
        &self,
        place: Place,
        columns: &[Column],
        is_numbered: bool,
    ) -> Vec<RowError> {
        let (mut errors, mut has_listed) = (Vec::new(), false);
        // The columns so far, each with the field that it sets.
        let mut set: Vec<(String, &str)> = Vec::new();
        let custom = if is_numbered { "custom.NAME" } else { "custom" };
        let names = self.names.iter().map(String::as_str).chain([custom]);
        for (index, column) in columns.iter().enumerate() {
            let heading = column.heading.as_str();
            if heading.is_empty() || column.name.as_deref() == Some("") {
                continue;
            }
            let label = if is_numbered { column_label(index) } else { "member".to_owned() };
            let mut reject = |code, message| {
                errors.push(RowError::new(place, heading, code, message));
            };
            let Some(name) = &column.name else {
                let is_similar = words::closest(heading, names.clone()).is_some();
                let message = if is_numbered && heading.to_lowercase().starts_with(CUSTOM_PREFIX) {
                    format!("Unknown {label} {:?}. {CUSTOM_NAME_RULE}", shorten(heading))
                } else if has_listed && !is_similar {
                    format!("Unknown {label} {:?}.", shorten(heading))
                } else {
                    words::unknown(&label, &shorten(heading), names.clone())
                };
                has_listed |= !is_similar;
                reject("unknown_column", message);
                continue;
            };
            let field = self.field_of(name);
            let label = format!("{label} \"{heading}\"");
            if let Some((first, _)) = set.iter().find(|(_, earlier)| *earlier == field) {
                let first = words::capitalize(first);
                reject("bad_request", format!("{first} and {label} set the same field. Keep one."));
            } else {
                set.push((label, field));
            }
        }
        errors
    }

    /// The name of the field that a column sets. Several columns can name one reference.
    pub(super) fn field_of<'n>(&'n self, name: &'n str) -> &'n str {
        let amount = self.resource.fields.iter().find(|field| amount_name(field) == Some(name));
        amount.map_or(name, |field| field.name)
    }

    /// The column with the name of the record that the reference column `name` stands for.
    pub(super) fn reference_name(&self, name: &str) -> Option<&str> {
        let field = self.references.iter().find(|column| column.name == name)?.field;
        let mut own = self.references.iter().filter(|column| column.field == field);
        own.find(|column| column.key.is_none()).map(|column| column.name.as_str())
    }

    /// Converts the cells of a row to an object as in JSON Lines. A row that ends early has empty
    /// cells to its end.
    pub(super) fn convert_cells(
        &self,
        columns: &[Column],
        mut cells: Vec<Cell>,
        is_workbook: bool,
    ) -> Converted {
        let mut row = Converted::default();
        let mut stray = None;
        cells.resize(cells.len().max(columns.len()), Cell::default());
        for (index, cell) in cells.into_iter().enumerate() {
            let column = columns.get(index).filter(|column| !column.heading.is_empty());
            let Some(column) = column else {
                // A row has one such fault, however many cells it has.
                if stray.is_none() {
                    stray = stray_fault(index, &cell, is_workbook);
                    row.stray = stray.is_some().then_some(index);
                }
                continue;
            };
            let Some(name) = column.used_name() else { continue };
            let (text, amounts) = match cell {
                // An import does not use this time.
                Cell::Fault(_) if name == CREATED_AT.name => continue,
                // The fault of a time that is not used does no harm.
                Cell::Fault(message) if name == UPDATED_AT.name => (message, AmountForm::default()),
                Cell::Fault(message) => {
                    row.faults.push((name.to_owned(), "invalid_row", message));
                    continue;
                }
                Cell::Number { mut text, digits, is_decorated } => {
                    let is_text = matches!(column.kind, None | Some(Kind::Text { .. }));
                    let is_whole = text.bytes().all(|byte| byte.is_ascii_digit());
                    if is_text && is_whole && column.cents.is_none() && !column.is_date {
                        text = format!("{text:0>digits$}");
                        row.decorated.extend(is_decorated.then(|| name.to_owned()));
                    }
                    (text, AmountForm::default())
                }
                Cell::Text(text) => (text, self.map.amounts),
            };
            let text = self.map.translate(name, text);
            if !column.is_date || text.trim().is_empty() {
                row.insert(column, name, parse_cell(column.kind, text), amounts);
                continue;
            }
            match self.map.date(name, &text) {
                Ok(date) => row.insert(column, name, date.into(), amounts),
                Err(message) => row.faults.push((name.to_owned(), "invalid_date", message)),
            }
        }
        row.faults.extend(stray);
        row
    }

    /// Converts the members of a line in JSON Lines.
    pub(super) fn convert_members(&self, columns: &[Column], members: JsonObject) -> Converted {
        let mut row = Converted::default();
        for (column, (name, value)) in columns.iter().zip(members) {
            match value {
                // As in a request.
                Json::Array(array) if name == CUSTOM.name && array.is_empty() => {
                    row.object.insert(name, JsonObject::new().into());
                }
                value => row.insert(column, &name, value, AmountForm::default()),
            }
        }
        row
    }
}

/// A row as an object of JSON Lines, and the faults of its cells.
#[derive(Debug, Default)]
pub(super) struct Converted {
    pub object: JsonObject,
    pub faults: Vec<CellFault>,
    /// The columns in which the sheet shows other characters around a number.
    pub decorated: Vec<String>,
    /// The first column with a value and no heading.
    pub stray: Option<usize>,
}

impl Converted {
    /// Adds a value. Custom fields become members of the object `custom`, and an amount becomes
    /// cents.
    fn insert(&mut self, column: &Column, name: &str, value: Json, amounts: AmountForm) {
        if let Some(custom) = custom_name_in(name) {
            let members =
                self.object.entry(CUSTOM.name).or_insert_with(|| JsonObject::new().into());
            members.as_object_mut().map(|members| members.insert(custom.to_owned(), value));
            return;
        }
        let Some(field) = column.cents.filter(|_| !is_empty(&value)) else {
            self.object.insert(column.cents.unwrap_or(name).to_owned(), value);
            return;
        };
        let text = match &value {
            Json::String(text) => text.clone(),
            value => value.to_string(),
        };
        if let Some(cents) = cents_of(&text, amounts) {
            self.object.insert(field.to_owned(), cents.into());
            return;
        }
        let (shown, sign) = (shorten(&text), amounts.decimal.unwrap_or('.'));
        let mut message = format!(
            "\"{name}\" was {shown:?}; send an amount with at most two decimals, such as \
             1299{sign}50."
        );
        message += match amounts.decimal {
            None if text.contains(',') => {
                " If the comma is a decimal sign, write decimal = \",\" below [formats] of a map. If \
                 it separates thousands, write decimal = \".\"."
            }
            _ => " In a map, \"decimal\" and \"thousands\" set other signs.",
        };
        self.faults.push((name.to_owned(), "invalid_int", message));
    }
}

/// The signs of amounts. Without them, `1,299` is no amount, because it may be 1299 or 1.299.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AmountForm {
    pub decimal: Option<char>,
    pub thousands: Option<char>,
}

/// The codes of currencies that an amount may have in place of a sign.
const CURRENCIES: [&str; 4] = ["EUR", "USD", "GBP", "CHF"];

/// The cents of an amount such as `1299`, `$1,299.50` or, with the decimal sign `,`, `-1.299,50 €`.
pub(super) fn cents_of(text: &str, form: AmountForm) -> Option<i64> {
    let is_currency = |letter: char| "€$£".contains(letter) || letter.is_whitespace();
    let text = CURRENCIES.iter().fold(text.to_owned(), |text, code| text.replacen(code, "€", 1));
    let text = text.trim_matches(is_currency);
    let (sign, text) = match text.strip_prefix('-') {
        Some(text) => (-1, text.trim_start_matches(is_currency)),
        None => (1, text),
    };
    let AmountForm { decimal, thousands } = form;
    let decimal_sign = decimal.unwrap_or(if thousands == Some('.') { ',' } else { '.' });
    let (whole, decimals) = text.split_once(decimal_sign).unwrap_or((text, "00"));
    let thousands = thousands.or(match decimal {
        Some(',') => Some('.'),
        Some(_) => Some(','),
        None => text.contains('.').then_some(','),
    });
    let is_separator = |letter: char| match thousands {
        // Programs write a space that does not break.
        Some(' ') => letter.is_whitespace(),
        thousands => Some(letter) == thousands,
    };
    let mut groups = whole.split(is_separator);
    let mut digits = groups.next()?.to_owned();
    let is_grouped = digits.len() <= 3;
    for group in groups {
        if !is_grouped || group.len() != 3 {
            return None;
        }
        digits += group;
    }
    let decimals = if decimals.len() == 1 { format!("{decimals}0") } else { decimals.to_owned() };
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if digits.is_empty() || decimals.len() != 2 || !is_number(&digits) || !is_number(&decimals) {
        return None;
    }
    format!("{digits}{decimals}").parse::<i64>().ok()?.checked_mul(sign)
}

/// A heading as fields are spelled.
fn spelling(heading: &str) -> String {
    heading.to_lowercase().replace([' ', '-'], "_")
}

/// Converts a cell to the type of its column. A cell that cannot be converted remains text, and
/// validation rejects it.
fn parse_cell(kind: Option<Kind>, cell: String) -> Json {
    let text = cell.trim();
    match kind {
        Some(Kind::Integer | Kind::Boolean) if is_integer(text) => {
            serde_json::from_str(text).unwrap_or_default()
        }
        // Spreadsheets write booleans in capitals.
        Some(Kind::Boolean) if text.eq_ignore_ascii_case("true") => true.into(),
        Some(Kind::Boolean) if text.eq_ignore_ascii_case("false") => false.into(),
        Some(Kind::Text { .. }) => cell.into(),
        _ => text.into(),
    }
}

/// The column with the amount of an integer field of cents: `purchase_cost` has the amount of
/// `purchase_cost_cents` in the currency's main unit.
pub(super) fn amount_name(field: &Field) -> Option<&'static str> {
    field.name.strip_suffix("_cents")
}

/// The columns of a resource's files for `fields`: a document for each.
pub fn describe(resource: &'static Resource) -> Vec<Json> {
    let map = Map::default();
    let columns = Columns::of(resource, &map);
    let mut documents = Vec::new();
    for field in resource.fields {
        let (kind, limits, values): (&str, String, &[&str]) = match field.kind {
            Kind::Text { min, max } => ("text", format!("{min} to {max} characters"), &[]),
            Kind::Email => ("email", format!("at most {MAX_EMAIL} characters"), &[]),
            Kind::Integer => ("integer", String::new(), &[]),
            Kind::Boolean => ("boolean", String::new(), &["true", "false"]),
            Kind::Date => ("date", "YYYY-MM-DD".to_owned(), &[]),
            Kind::Choice(values) => ("choice", String::new(), values),
            Kind::Custom => ("text", format!("at most {MAX_CUSTOM_LENGTH} characters"), &[]),
            Kind::Timestamp => ("timestamp", String::new(), &[]),
        };
        let (name, example) = match field.kind {
            Kind::Custom => ("custom.NAME", "2.14".into()),
            _ => (field.name, example_of(field)),
        };
        documents.push(json!({"name": name, "type": kind, "required": field.required,
            "limits": limits, "values": values, "example": example}));
        let mut stands_for = |name: &str, kind, example| {
            documents.push(json!({"name": name, "type": kind, "required": false,
                "limits": format!("stands for {}", field.name), "values": [], "example": example}));
        };
        if let Some(amount) = amount_name(field) {
            stands_for(amount, "amount", "1299.00".into());
        }
        for column in columns.references.iter().filter(|column| column.field == field) {
            let example = match column.key {
                Some(key) => example_of(key),
                None => example_of_name(column.target),
            };
            stands_for(&column.name, "text", example);
        }
    }
    documents
}

/// The example of a field, as JSON.
fn example_of(field: &Field) -> Json {
    serde_json::from_str(field.example).unwrap_or_default()
}

fn example_of_name(resource: &Resource) -> Json {
    let value = |field: &Field| example_of(field).as_str().map_or(Value::Null, Value::of);
    let values: Vec<_> = resource.fields.iter().map(value).collect();
    name_of(resource, &values).into()
}

/// The header of a file that a person can fill in. It has a number in place of an id, and an amount
/// in place of cents.
pub fn template_header(resource: &'static Resource) -> String {
    let map = Map::default();
    let columns = Columns::of(resource, &map);
    let mut names = Vec::new();
    for field in resource.fields.iter().filter(|field| **field != CUSTOM) {
        let key = columns.references.iter().find(|key| key.field == field);
        let key = key.map(|key| key.name.as_str());
        names.push(key.or(amount_name(field)).unwrap_or(field.name));
    }
    names.join(",")
}

/// Whether a row is a total below the table: a word for it, and after it only numbers in columns
/// that can be added up. A customer may have the name Total.
pub(super) fn is_total(columns: &[Column], cells: &[Cell]) -> bool {
    const WORDS: [&str; 10] = [
        "ergebnis",
        "gesamt",
        "gesamtergebnis",
        "gesamtsumme",
        "grand total",
        "subtotal",
        "sum",
        "summe",
        "total",
        "totals",
    ];
    let is_sum = |(index, cell): (usize, &Cell)| {
        let is_sign = |letter: char| letter.is_ascii_digit() || " .,-€$£".contains(letter);
        let adds_up = |column: &Column| match column.used_name() {
            Some(name) => {
                column.cents.is_some()
                    || column.kind == Some(Kind::Integer)
                    || custom_name_in(name).is_some()
            }
            None => true,
        };
        // A sum may be a formula that no program has computed.
        let is_number = matches!(cell, Cell::Fault(_)) || cell.text().chars().all(is_sign);
        is_number && columns.get(index).is_none_or(adds_up)
    };
    let mut filled = cells.iter().enumerate().filter(|(_, cell)| !cell.text().is_empty());
    let Some((_, first)) = filled.next() else { return false };
    let word = first.text().trim_end_matches(':').to_lowercase();
    let mut sums = filled.peekable();
    WORDS.contains(&&*word) && sums.peek().is_some() && sums.all(is_sum)
}

/// The fault of a value in a column without a heading.
fn stray_fault(index: usize, cell: &Cell, is_workbook: bool) -> Option<CellFault> {
    if cell.text().is_empty() {
        return None;
    }
    let (value, column) = (shorten(cell.text()), column_label(index));
    let cure = match is_workbook {
        true => "Write a heading, or empty the cell.",
        false => "If it belongs to the cell before it, put that cell in quotes.",
    };
    let message = format!("The value {value:?} stands in {column}, which has no heading. {cure}");
    Some(("-".to_owned(), "invalid_row", message))
}

/// The label of the column at `index`: `column 12 (L)`.
fn column_label(index: usize) -> String {
    format!("column {} ({})", index + 1, column_letters(index))
}

/// The column at `index` as a spreadsheet names it.
pub(super) fn column_letters(index: usize) -> String {
    let mut letters = Vec::new();
    let mut rest = index + 1;
    while rest > 0 {
        letters.extend(('A'..='Z').nth((rest - 1) % 26));
        rest = (rest - 1) / 26;
    }
    letters.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_may_have_a_currency_sign_and_separated_thousands() {
        for (text, decimal, cents) in [
            ("1299", None, Some(129_900)),
            ("€5", None, Some(500)),
            ("5 €", None, Some(500)),
            ("1.299,50 EUR", Some(','), Some(129_950)),
            ("EUR 5", None, Some(500)),
            ("EUR", None, None),
            ("-£ 12.5", None, Some(-1250)),
            ("$1,299.50", None, Some(129_950)),
            ("$1,299", Some('.'), Some(129_900)),
            ("€-1.299,50", Some(','), Some(-129_950)),
            ("1,299", None, None),
            ("1,29.50", None, None),
            ("1299.505", None, None),
            ("1.299,50", None, None),
            ("€", None, None),
        ] {
            let form = AmountForm { decimal, thousands: None };
            assert_eq!(cents_of(text, form), cents, "{text}");
        }
    }
}
