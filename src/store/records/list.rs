//! One page of a list, read along an index from where the last page ended (contract section 4).

use rusqlite::types::FromSql;
use rusqlite::{Connection, params_from_iter};

use super::read::{MAX_PAGE, Reading, Statements, including, read_value, write_row};
use crate::json_writer::JsonWriter;
use crate::model::{Bound, Field, ID, KeysetPosition, ListQuery, RecordId, Value};
use crate::store::database::fold;
use crate::store::error::Result;

/// If at most this many records pass a filter, they are found by the filter's index and then
/// sorted. Otherwise the list is read in its order. Many records pass, so a page is full soon.
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
    pub fn page(&self, list: &ListQuery) -> Result<Page> {
        if let Some(last) = self.last() {
            self.check_changed(list.resource, last)?;
        }
        let access = access(self.connection(), list)?;
        let (json, next, count) = self.rows(&PageQuery::new(*self, list, access))?;
        let is_whole_list = list.after.is_none() && next.is_none();
        let total = match list.total {
            true if is_whole_list => Some(count),
            true => Some(self.total(list, access)?),
            false => None,
        };
        Ok(Page { json, next, total })
    }

    /// The rows of a page as a JSON array, the last one's position while more follow, and the
    /// number of rows. One row more is read, to know whether more follow. A page is full with
    /// `limit` rows or [`MAX_PAGE`] bytes.
    fn rows(&self, query: &PageQuery<'_>) -> Result<(Vec<u8>, Option<KeysetPosition>, i64)> {
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
                    return Ok((json.take(), full_at, taken as i64));
                }
                if self.last().is_none() {
                    write_row(&mut json, list.resource, &list.include, row, 0)?;
                } else if let Some(record) = self.record(list.resource, RecordId(row.get(0)?))? {
                    self.write_former(&mut json, list.resource, &list.include, &record)?;
                }
                taken += 1;
                if taken == list.limit || json.written() >= MAX_PAGE {
                    let value = row.get_ref(list.sort.name)?;
                    let value = read_value(value, list.sort.kind)?;
                    full_at = Some(KeysetPosition { value, id: RecordId(row.get("id")?) });
                }
            }
        }
        json.end_array();
        Ok((json.take(), None, taken as i64))
    }

    fn total(&self, list: &ListQuery, access: AccessPath) -> rusqlite::Result<i64> {
        let is_planned = access == AccessPath::InOrder && !reads_texts(list);
        let query = PageQuery::new(*self, list, if is_planned { AccessPath::Any } else { access });
        let sql = format!("SELECT count(*) {}", query.clauses());
        value(self.connection(), &sql, &query.values)
    }
}

fn value<T: FromSql>(connection: &Connection, sql: &str, values: &[Value]) -> rusqlite::Result<T> {
    connection.prepare_cached(sql)?.query_row(params_from_iter(values), |row| row.get(0))
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
    /// In the order of ids, and then sorted. Few records may have a word, so nearly all may have to
    /// be read. In the order of ids, they stand side by side in the file.
    Scan,
    /// As SQLite plans it, for a count.
    Any,
}

/// How to find the rows of a page. SQLite plans without knowing how many records pass a filter. So
/// this function counts them, up to [`MAX_SORTED`]. It does not count if the index of the only
/// filter has the order of the list.
pub(super) fn access(connection: &Connection, list: &ListQuery) -> rusqlite::Result<AccessPath> {
    let filter_has_order =
        matches!(list.filters[..], [(_, bound, _)] if has_order_of_ids(list, bound));
    for (field, ..) in list.filters.iter().filter(|_| !filter_has_order) {
        let present = Reading::new(connection);
        let mut query = PageQuery::without_conditions(present, list, AccessPath::Filter(field));
        for (_, bound, value) in list.filters.iter().filter(|(filtered, ..)| filtered == field) {
            query.filter(field, *bound, value);
        }
        let some = format!("SELECT 1 {} LIMIT {MAX_SORTED} + 1", query.clauses());
        let sql = format!("SELECT count(*) <= {MAX_SORTED} FROM ({some})");
        if value(connection, &sql, &query.values)? {
            return Ok(AccessPath::Filter(field));
        }
    }
    let is_scan = reads_texts(list) && *list.sort != ID;
    Ok(if is_scan { AccessPath::Scan } else { AccessPath::InOrder })
}

fn reads_texts(list: &ListQuery) -> bool {
    !list.words.is_empty() || !list.custom.is_empty()
}

type Condition = (String, Vec<Value>);

/// The rows of a list: the statement that is being built.
pub(super) struct PageQuery<'a> {
    reading: Reading<'a>,
    list: &'a ListQuery,
    access: AccessPath,
    conditions: Vec<String>,
    values: Vec<Value>,
}

impl<'a> PageQuery<'a> {
    /// The rows that pass the filters of a list and have its words.
    pub(super) fn new(
        reading: Reading<'a>,
        list: &'a ListQuery,
        access: AccessPath,
    ) -> PageQuery<'a> {
        let mut query = PageQuery::without_conditions(reading, list, access);
        for (field, bound, value) in &list.filters {
            query.filter(field, *bound, value);
        }
        for (name, bound, value) in &list.custom {
            query.add(custom_comparison(name, *bound, value));
        }
        if !list.words.is_empty() {
            let words = list.words.iter().map(|word| Value::Text(fold(word))).collect();
            let condition = format!("contains(r.search{})", ", ?".repeat(list.words.len()));
            query.add((condition, words));
        }
        query
    }

    fn without_conditions(
        reading: Reading<'a>,
        list: &'a ListQuery,
        access: AccessPath,
    ) -> PageQuery<'a> {
        PageQuery { reading, list, access, conditions: Vec::new(), values: Vec::new() }
    }

    fn add(&mut self, (condition, values): Condition) {
        self.conditions.push(condition);
        self.values.extend(values);
    }

    fn filter(&mut self, field: &'static Field, bound: Bound, value: &Value) {
        let uses_index = match self.access {
            AccessPath::InOrder => field == self.list.sort || has_order_of_ids(self.list, bound),
            AccessPath::Filter(narrow) => field == narrow,
            // The index has equal values in the order of ids.
            AccessPath::Scan => bound == Bound::Equal,
            AccessPath::Any => true,
        };
        // SQLite uses no index for a term with a unary `+`.
        let plus = if uses_index { "" } else { "+" };
        self.add(comparison(&format!("{plus}r.{}", field.name), bound, value));
    }

    /// SQLite seeks to the beginning of the page, except along the index of a filter.
    fn id(&self) -> &'static str {
        if matches!(self.access, AccessPath::Filter(_)) { "+r.id" } else { "r.id" }
    }

    fn sort_term(&self) -> String {
        match (self.list.sort, self.access) {
            (sort, _) if *sort == ID => self.id().to_owned(),
            (sort, AccessPath::InOrder) => format!("r.{}", sort.name),
            (sort, _) => format!("+r.{}", sort.name),
        }
    }

    /// The rest of the list behind its position, in stretches. A stretch is a range that one index
    /// gives in the list's order. Example: a list by city stands at a record in Kiel. The first
    /// stretch has the remaining records in Kiel, the second the later cities, and in descending
    /// order a third has the records without a city. Rows that are sorted are read once.
    pub(super) fn stretches(&self) -> Vec<Condition> {
        let stretches = self.ranges();
        if self.access == AccessPath::InOrder {
            return stretches;
        }
        let (conditions, values): (Vec<_>, Vec<_>) = stretches.into_iter().unzip();
        vec![(format!("({})", conditions.join(" OR ")), values.concat())]
    }

    fn ranges(&self) -> Vec<Condition> {
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
            (_, true) if sort.is_nullable() || self.list.moment.is_some() => {
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
        let is_past = self.reading.last().is_some();
        let columns = match is_past {
            true => format!("r.id, r.{}", sort.name),
            false => Statements::of(resource).columns.clone(),
        };
        let (term, id, rows) = (self.sort_term(), self.id(), self.clauses());
        let direction = if *descending { "DESC" } else { "ASC" };
        // Ids have no ties.
        let ties = if **sort == ID { String::new() } else { format!(", {id} {direction}") };
        let mut sql = format!(
            "SELECT {columns} {rows} AND {condition} ORDER BY {term} {direction}{ties} LIMIT ?"
        );
        if !include.is_empty() && !is_past {
            let rows = including(include, &sql);
            sql = format!("{rows} ORDER BY r.{} {direction}, r.id {direction}", sort.name);
        }
        let count = Value::Integer(i64::try_from(count).unwrap_or(i64::MAX));
        let values = self.values.iter().cloned().chain(condition_values).chain([count]);
        (sql, values.collect())
    }

    fn clauses(&self) -> String {
        let conditions = self.conditions.iter().map(|condition| format!(" AND {condition}"));
        let (conditions, source) = (conditions.collect::<String>(), self.source());
        format!("FROM {source} AS r WHERE TRUE{conditions}")
    }

    fn source(&self) -> String {
        let ListQuery { resource, filters, sort, .. } = self.list;
        let mut with_order =
            filters.iter().filter(|(_, bound, _)| has_order_of_ids(self.list, *bound));
        let index = match self.access {
            AccessPath::InOrder => with_order.next().map_or(*sort, |(field, ..)| *field),
            AccessPath::Filter(field) => field,
            AccessPath::Scan => &ID,
            AccessPath::Any => filters.first().map_or(&ID, |(field, ..)| *field),
        };
        let mut columns: Vec<&str> = filters.iter().map(|(field, ..)| field.name).collect();
        columns.push(sort.name);
        if reads_texts(self.list) {
            columns.extend(["custom", "search"]);
        }
        columns.sort_unstable();
        columns.dedup();
        columns.retain(|name| *name != ID.name && *name != index.name);
        self.reading.source(resource, index, &columns)
    }
}

/// Whether the index of a filter's field has the rows that pass in the order of the list.
fn has_order_of_ids(list: &ListQuery, bound: Bound) -> bool {
    *list.sort == ID && bound == Bound::Equal
}

/// A filter by the value of a custom field searches the JSON text, which [`custom_to_text`] writes.
/// A quotation mark in a value is escaped, so `"room":"2.14"` stands nowhere else.
///
/// [`custom_to_text`]: crate::model::validation::custom_to_text
fn custom_comparison(name: &str, bound: Bound, value: &Value) -> Condition {
    if bound != Bound::Equal {
        let (comparison, values) = comparison("(r.custom ->> ?)", bound, value);
        return (comparison, [vec![Value::of(name)], values].concat());
    }
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
