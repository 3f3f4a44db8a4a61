//! One page of a list, read along an index from where the last page ended (contract section 4).

use rusqlite::types::FromSql;
use rusqlite::{Connection, params_from_iter};

use super::read::{MAX_PAGE, Reading, Statements, including, read_value, write_row};
use super::search::{fold, match_expression};
use crate::json_writer::JsonWriter;
use crate::model::{Bound, Field, ID, KeysetPosition, ListQuery, RecordId, Value};
use crate::store::error::DatabaseError;

/// If at most this many records pass a filter, they are found by the filter's index and then
/// sorted. Otherwise a list without words is read in its order. Many records pass, so a page is
/// full soon.
const MAX_SORTED: u32 = 4_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The records as a JSON array.
    pub json: Vec<u8>,
    /// The last record's position, while more follow.
    pub next: Option<KeysetPosition>,
    /// The number of all matching records, if it was asked for.
    pub total: Option<i64>,
}

impl Reading<'_> {
    pub fn page(&self, list: &ListQuery) -> Result<Page, DatabaseError> {
        let search = Search::new(list);
        let access = access(self.connection(), list, &search)?;
        let (json, next) = self.rows(&PageQuery::new(list, &search, access))?;
        let total = || {
            let access = if access == AccessPath::InOrder { AccessPath::Any } else { access };
            let query = PageQuery::new(list, &search, access);
            let sql = format!("SELECT count(*) {}", query.clauses());
            value(self.connection(), &sql, &query.values)
        };
        let total = list.total.then(total).transpose()?;
        Ok(Page { json, next, total })
    }

    /// The rows of a page as a JSON array, and the last one's position while more follow. One row
    /// more is read, to know that. A page is full with `limit` rows or [`MAX_PAGE`] bytes.
    fn rows(&self, query: &PageQuery<'_>) -> rusqlite::Result<(Vec<u8>, Option<KeysetPosition>)> {
        let list = query.list;
        let mut json = JsonWriter::with_capacity(512 * list.limit.min(64));
        json.begin_array();
        let mut taken = 0;
        let mut full_at = None;
        for stretch in query.stretches() {
            let (sql, values) = query.select(stretch, list.limit + 1 - taken);
            let mut statement = self.connection().prepare_cached(&sql)?;
            let mut rows = statement.query(params_from_iter(values.iter()))?;
            while let Some(row) = rows.next()? {
                if full_at.is_some() {
                    json.end_array();
                    return Ok((json.take(), full_at));
                }
                write_row(&mut json, list.resource, &list.include, row, 0)?;
                taken += 1;
                if taken == list.limit || json.written() >= MAX_PAGE {
                    let value = row.get_ref(list.sort.name)?;
                    let value = read_value(value, list.sort.kind)?;
                    full_at = Some(KeysetPosition { value, id: RecordId(row.get("id")?) });
                }
            }
        }
        json.end_array();
        Ok((json.take(), None))
    }
}

/// The only value that a statement returns.
fn value<T: FromSql>(connection: &Connection, sql: &str, values: &[Value]) -> rusqlite::Result<T> {
    connection.prepare_cached(sql)?.query_row(params_from_iter(values), |row| row.get(0))
}

/// The folded words of a list, and the query of the search table for them.
pub(super) struct Search {
    words: Vec<String>,
    expression: Option<String>,
}

impl Search {
    pub(super) fn new(list: &ListQuery) -> Search {
        let words: Vec<String> = list.words.iter().map(|word| fold(word)).collect();
        // FTS5 ends a string at U+0000. No record has a word with U+0000, so `contains` finds
        // nothing without the search table.
        let is_clean = words.iter().all(|word| !word.contains('\0'));
        let expression = is_clean.then(|| match_expression(&words)).flatten();
        Search { words, expression }
    }
}

/// How the rows of a list are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessPath {
    /// In the list's order: along the index of the sort column. In a list by id, the index of a
    /// filter by equality has its records in the order of ids, and may be used, too. Other filters
    /// are tested on the rows.
    InOrder,
    /// Along the index of a column whose filter few records pass, and then sorted.
    Filter(&'static Field),
    /// By the search table, and then sorted.
    Search,
    /// As SQLite plans it, for a count.
    Any,
}

/// How to find the rows of a page. SQLite plans without knowing how many records pass a filter. So
/// this function counts them, up to [`MAX_SORTED`]. It does not count if the index of the only
/// filter has the order of the list.
pub(super) fn access(
    connection: &Connection,
    list: &ListQuery,
    search: &Search,
) -> rusqlite::Result<AccessPath> {
    let filter_has_order = match list.filters.as_slice() {
        [(_, bound, _)] => search.words.is_empty() && has_order_of_ids(list, *bound),
        _ => false,
    };
    for (field, ..) in list.filters.iter().filter(|_| !filter_has_order) {
        let mut query = PageQuery::of_table(list, AccessPath::Filter(field));
        for (_, bound, value) in list.filters.iter().filter(|(filtered, ..)| filtered == field) {
            query.filter(field, *bound, value);
        }
        let some = format!("SELECT 1 {} LIMIT {MAX_SORTED} + 1", query.clauses());
        let sql = format!("SELECT count(*) <= {MAX_SORTED} FROM ({some})");
        if value(connection, &sql, &query.values)? {
            return Ok(AccessPath::Filter(field));
        }
    }
    Ok(if search.expression.is_some() { AccessPath::Search } else { AccessPath::InOrder })
}

type Condition = (String, Vec<Value>);

/// The rows of a list: the statement that is being built.
pub(super) struct PageQuery<'a> {
    list: &'a ListQuery,
    access: AccessPath,
    /// The search table is read first. Its rows are in the order of ids.
    from_search: bool,
    conditions: Vec<String>,
    values: Vec<Value>,
}

impl<'a> PageQuery<'a> {
    /// The rows that pass the filters of a list and have its words.
    pub(super) fn new(list: &'a ListQuery, search: &Search, access: AccessPath) -> PageQuery<'a> {
        let mut query = PageQuery::of_table(list, access);
        let table = list.resource.plural;
        let uses_search = matches!(access, AccessPath::Search | AccessPath::Any);
        if let Some(expression) = search.expression.clone().filter(|_| uses_search) {
            query.from_search = true;
            query.add((format!("s.{table}_search MATCH ?"), vec![Value::Text(expression)]));
        }
        for (field, bound, value) in &list.filters {
            query.filter(field, *bound, value);
        }
        for (name, value) in &list.custom {
            query.add(custom_comparison(name, value));
        }
        for word in &search.words {
            query.add(("contains(r.search, ?)".to_owned(), vec![Value::Text(word.clone())]));
        }
        query
    }

    fn of_table(list: &'a ListQuery, access: AccessPath) -> PageQuery<'a> {
        PageQuery { list, access, from_search: false, conditions: Vec::new(), values: Vec::new() }
    }

    fn add(&mut self, (condition, values): Condition) {
        self.conditions.push(condition);
        self.values.extend(values);
    }

    fn filter(&mut self, field: &'static Field, bound: Bound, value: &Value) {
        let uses_index = match self.access {
            AccessPath::InOrder => field == self.list.sort || has_order_of_ids(self.list, bound),
            AccessPath::Filter(narrow) => field == narrow,
            AccessPath::Search => false,
            AccessPath::Any => true,
        };
        // SQLite uses no index for a term with a unary `+`.
        let plus = if uses_index { "" } else { "+" };
        self.add(comparison(&format!("{plus}r.{}", field.name), bound, value));
    }

    /// The id column of the table that SQLite reads first. SQLite then seeks to the beginning of
    /// the page in this table, except along the index of a filter.
    fn id(&self) -> &'static str {
        match self.access {
            _ if self.from_search => "s.rowid",
            AccessPath::Filter(_) => "+r.id",
            _ => "r.id",
        }
    }

    fn sort_term(&self) -> String {
        match (self.list.sort, self.access) {
            (sort, _) if *sort == ID => self.id().to_owned(),
            (sort, AccessPath::Filter(_)) => format!("+r.{}", sort.name),
            (sort, _) => format!("r.{}", sort.name),
        }
    }

    /// The rest of the list behind its position, in stretches. A stretch is a range that one index
    /// gives in the list's order. Example: a list by city stands at a record in Kiel. The first
    /// stretch has the remaining records in Kiel, the second the later cities, and in descending
    /// order a third has the records without a city.
    pub(super) fn stretches(&self) -> Vec<Condition> {
        let ListQuery { sort, descending, after, .. } = self.list;
        let (term, id) = (self.sort_term(), self.id());
        let beyond = if *descending { "<" } else { ">" };
        let Some(KeysetPosition { value, id: after }) = after else {
            return vec![("TRUE".to_owned(), Vec::new())];
        };
        let after = Value::Integer(after.0);
        if **sort == ID {
            return vec![(format!("{id} {beyond} ?"), vec![after])];
        }
        let ties = (format!("{term} IS ? AND {id} {beyond} ?"), vec![value.clone(), after]);
        let further = (format!("{term} {beyond} ?"), vec![value.clone()]);
        match (value, descending) {
            (Value::Null, false) => vec![ties, (format!("{term} IS NOT NULL"), Vec::new())],
            (Value::Null, true) => vec![ties],
            (_, true) if sort.is_nullable() => {
                vec![ties, further, (format!("{term} IS NULL"), Vec::new())]
            }
            _ => vec![ties, further],
        }
    }

    /// The statement for at most `count` rows of a stretch.
    pub(super) fn select(
        &self,
        (condition, condition_values): Condition,
        count: usize,
    ) -> (String, Vec<Value>) {
        let ListQuery { resource, include, sort, descending, .. } = self.list;
        let columns = &Statements::of(resource).columns;
        let (term, id, rows) = (self.sort_term(), self.id(), self.clauses());
        let direction = if *descending { "DESC" } else { "ASC" };
        // Ids have no ties. A second term would make SQLite sort the rows of the search table.
        let ties = if **sort == ID { String::new() } else { format!(", {id} {direction}") };
        let mut sql = format!(
            "SELECT {columns} {rows} AND {condition} ORDER BY {term} {direction}{ties} LIMIT ?"
        );
        if !include.is_empty() {
            let rows = including(include, &sql);
            sql = format!("{rows} ORDER BY r.{} {direction}, r.id {direction}", sort.name);
        }
        let count = Value::Integer(i64::try_from(count).unwrap_or(i64::MAX));
        let values = self.values.iter().cloned().chain(condition_values).chain([count]);
        (sql, values.collect())
    }

    /// The clauses FROM and WHERE of a statement for the rows.
    fn clauses(&self) -> String {
        let conditions = self.conditions.iter().map(|condition| format!(" AND {condition}"));
        let (conditions, table) = (conditions.collect::<String>(), self.list.resource.plural);
        // `CROSS JOIN` has SQLite read the first table first.
        let search = format!("{table}_search AS s CROSS JOIN {table} AS r ON r.id = s.rowid");
        let from = if self.from_search { search } else { format!("{table} AS r") };
        format!("FROM {from} WHERE TRUE{conditions}")
    }
}

/// Whether the index of a filter's field has the rows that pass in the order of the list.
fn has_order_of_ids(list: &ListQuery, bound: Bound) -> bool {
    *list.sort == ID && bound == Bound::Equal
}

/// A filter by a custom field searches the JSON text, which [`custom::to_text`] writes. A quotation
/// mark in a value is escaped, so `"room":"2.14"` stands nowhere else.
///
/// [`custom::to_text`]: crate::model::custom::to_text
fn custom_comparison(name: &str, value: &Value) -> Condition {
    let (negation, value) = match value {
        Value::Null => ("NOT ", String::new()),
        value => ("", serde_json::json!(value).to_string()),
    };
    let member = Value::Text(format!("\"{name}\":{value}"));
    (format!("{negation}contains(r.custom, ?)"), vec![member])
}

fn comparison(operand: &str, bound: Bound, value: &Value) -> Condition {
    let operator = match (bound, value) {
        (Bound::Equal, Value::Null) => return (format!("{operand} IS NULL"), Vec::new()),
        (Bound::Equal, _) => "=",
        (Bound::From, _) => ">=",
        (Bound::To, _) => "<=",
    };
    (format!("{operand} {operator} ?"), vec![value.clone()])
}
