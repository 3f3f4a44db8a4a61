//! One page of a list, read along an index from where the last page ended (contract section 4).

use std::borrow::Cow;

use rusqlite::Row;
use rusqlite::types::FromSql;

use super::Reading;
use super::encoding::{checked, read_value, write_row};
use super::frequent_words;
use super::pending_imports::IdBlock;
use super::search::{Search, fold};
use super::statements::Statements;
use crate::model::{Column, KeysetPosition, ListQuery, Predicate, Value};
use crate::store::error::DatabaseError;

/// A range with at most this many records is narrow.
const NARROW: u32 = 4_000;

/// Rows that are looked at to learn whether a page is full soon in the list's order.
const AHEAD: u32 = 3_000;

/// Reading more rows than this along an index, which is all over the table, takes longer than reading a table of a million rows.
const SCATTERED: u32 = 50_000;

impl Reading<'_> {
    /// One page of a list. All of it, the count too, is of one moment.
    pub fn page(&self, list: &ListQuery) -> Result<Page, DatabaseError> {
        // The ids of hidden records and the records are of one moment.
        let moment = self.connection().unchecked_transaction()?;
        let hidden = self.hidden_ids(list.resource)?;
        let search = self.search(list)?;
        let access = self.access(list, &search)?;
        let mut page = PageWriter::new(list);
        for (segment, ids) in segments(list, hidden) {
            if page.is_full() {
                break;
            }
            let access = self.access_to_segment(list, &search, access, &segment, ids, page.missing())?;
            let (sql, values) = select(list, &search, access, &segment, ids, page.missing());
            let mut statement = self.connection().prepare_cached(&sql)?;
            let mut rows = statement.query(rusqlite::params_from_iter(values.iter()))?;
            while let Some(row) = rows.next()? {
                page.take(row)?;
            }
        }
        let total = if list.total { Some(self.count(list, &search, access, hidden)?) } else { None };
        moment.finish()?;
        Ok(page.finish(total)?)
    }

    /// What the list's words ask of the search table. A few records tell which of their parts nearly all have.
    fn search(&self, list: &ListQuery) -> rusqlite::Result<Search> {
        if list.words.is_empty() {
            return Ok(Search::default());
        }
        let words: Vec<String> = list.words.iter().map(|word| fold(word)).collect();
        let frequent = frequent_words::containing(self.connection(), list.resource, &words)?;
        let mut statement = self.connection().prepare_cached(&Statements::of(list.resource).samples)?;
        let samples: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        Ok(Search::new(words, &frequent, &samples))
    }

    /// How to read a list with words, with ranges, or with a filter by a referenced record. SQLite plans without knowing how many
    /// records pass them.
    fn access(&self, list: &ListQuery, search: &Search) -> rusqlite::Result<Access> {
        if let Some(referenced) = referenced(list) {
            return self.access_by_reference(list, referenced);
        }
        if let Some(expression) = &search.expression {
            return self.access_by_search(list, search, expression);
        }
        let ranges = list.filters.iter().filter(|(column, predicate)| *column != list.sort && predicate.is_range());
        if ranges.clone().next().is_none() {
            return Ok(Access::Planned);
        }
        for (column, _) in ranges {
            if self.has_at_most(list, *column, NARROW)? {
                return Ok(Access::Along(*column));
            }
        }
        Ok(Access::InOrder)
    }

    /// Words or a filter that few records pass are followed.
    fn access_by_search(&self, list: &ListQuery, search: &Search, expression: &str) -> rusqlite::Result<Access> {
        // The search table is in the order of ids.
        let is_ordered = search.is_incremental && list.sort == Column::Id;
        if is_ordered && list.filters.is_empty() {
            return Ok(Access::Planned);
        }
        if search.is_incremental && self.finds_at_most(list, expression, NARROW)? {
            return Ok(Access::Planned);
        }
        for (column, _) in &list.filters {
            if self.has_at_most(list, *column, NARROW)? {
                return Ok(Access::Along(*column));
            }
        }
        Ok(if is_ordered { Access::Planned } else { Access::Scan(None) })
    }

    /// A filter that few records pass is followed, with and without words.
    fn access_by_reference(&self, list: &ListQuery, referenced: Column) -> rusqlite::Result<Access> {
        for column in [referenced].into_iter().chain(list.filters.iter().map(|(column, _)| *column)) {
            if self.has_at_most(list, column, NARROW)? {
                return Ok(Access::Along(column));
            }
        }
        Ok(Access::Scan(Some(referenced)))
    }

    /// A scan that would not end soon is replaced: the records of one customer may be the last ones of the list.
    fn access_to_segment(
        &self,
        list: &ListQuery,
        search: &Search,
        access: Access,
        segment: &Segment,
        ids: Ids,
        count: usize,
    ) -> rusqlite::Result<Access> {
        match access {
            Access::Scan(other) if !self.ends_soon(list, search, access, segment, ids, count)? => match other {
                Some(column) => self.access_out_of_order(list, search, column),
                None => self.access_to_all_found(list, search),
            },
            access => Ok(access),
        }
    }

    /// How to read a list of which the next rows have few records that the search table finds.
    fn access_to_all_found(&self, list: &ListQuery, search: &Search) -> rusqlite::Result<Access> {
        let Some(expression) = &search.expression else { return Ok(Access::InOrder) };
        let is_sorted = list.sort == Column::Id || self.finds_at_most(list, expression, NARROW)?;
        Ok(if is_sorted { Access::Planned } else { Access::Among })
    }

    /// How to find all records of a list in any order.
    fn access_out_of_order(&self, list: &ListQuery, search: &Search, column: Column) -> rusqlite::Result<Access> {
        if search.expression.is_some() {
            return Ok(Access::Planned);
        }
        Ok(if self.has_at_most(list, column, SCATTERED)? { Access::Along(column) } else { Access::Unindexed })
    }

    /// Whether the next rows of a segment hold `count` records of the list, or are all rows of the segment.
    fn ends_soon(
        &self,
        list: &ListQuery,
        search: &Search,
        access: Access,
        segment: &Segment,
        ids: Ids,
        count: usize,
    ) -> rusqlite::Result<bool> {
        let mut ahead = SqlQuery::new(list, &Search::default(), access);
        ahead.begin(list, segment);
        let mut passing = SqlQuery::new(list, search, access);
        passing.filter(list);
        // Hidden records in the list's order are rows to look at, too.
        if let Ids::Outside(_) = ids {
            passing.keep_to(ids)
        } else {
            ahead.keep_to(ids)
        }
        let rows = format!("FROM {}{}", ahead.from, ahead.conditions());
        let order = ahead.order(list, segment);
        let sql = format!(
            "SELECT EXISTS (SELECT 1 FROM (SELECT * {rows} ORDER BY {order} LIMIT {AHEAD}) AS r{} LIMIT 1 OFFSET ?)
             OR NOT EXISTS (SELECT 1 {rows} LIMIT 1 OFFSET {AHEAD})",
            passing.conditions()
        );
        let skipped = Value::Integer(i64::try_from(count.saturating_sub(1)).unwrap_or(i64::MAX));
        let values = ahead.values.iter().chain(&passing.values).chain([&skipped]).chain(&ahead.values);
        self.value(&sql, values)
    }

    /// The only value that a statement returns.
    fn value<'v, T: FromSql>(&self, sql: &str, values: impl Iterator<Item = &'v Value>) -> rusqlite::Result<T> {
        self.connection().prepare_cached(sql)?.query_row(rusqlite::params_from_iter(values), |row| row.get(0))
    }

    /// Whether at most `count` records pass the predicates of the column.
    fn has_at_most(&self, list: &ListQuery, column: Column, count: u32) -> rusqlite::Result<bool> {
        let mut query = SqlQuery::new(list, &Search::default(), Access::Planned);
        for (_, predicate) in list.filters.iter().filter(|(filtered, _)| *filtered == column) {
            query.add_predicate(column, predicate);
        }
        self.are_at_most(&format!("{}{}", query.from, query.conditions()), &query.values, count)
    }

    /// Whether the search table finds at most `count` records.
    fn finds_at_most(&self, list: &ListQuery, expression: &str, count: u32) -> rusqlite::Result<bool> {
        let table = list.resource.plural;
        let rows = format!("{table}_search WHERE {table}_search MATCH ?");
        self.are_at_most(&rows, &[Value::Text(expression.to_owned())], count)
    }

    /// Whether there are at most `count` of the rows that `rows` says, a table with conditions. No more than one further row is read.
    fn are_at_most(&self, rows: &str, values: &[Value], count: u32) -> rusqlite::Result<bool> {
        let sql = format!("SELECT count(*) <= {count} FROM (SELECT 1 FROM {rows} LIMIT {count} + 1)");
        self.value(&sql, values.iter())
    }

    fn count(
        &self,
        list: &ListQuery,
        search: &Search,
        access: Access,
        hidden: Option<IdBlock>,
    ) -> rusqlite::Result<i64> {
        let access = match access {
            Access::Along(_) => access,
            Access::Scan(Some(column)) if !search.words.is_empty() => self.access_out_of_order(list, search, column)?,
            _ => Access::Planned,
        };
        if access != Access::Planned {
            return self.count_rows(list, search, access, hidden);
        }
        let counts = search.in_two().into_iter().map(|part| self.count_found(list, &part, hidden));
        counts.sum()
    }

    /// Counts the records of a list that the search table finds. Where they are many and filtered, their rows are not read if an index
    /// has all filtered columns.
    fn count_found(&self, list: &ListQuery, search: &Search, hidden: Option<IdBlock>) -> rusqlite::Result<i64> {
        let are_rows_read = match &search.expression {
            Some(expression) if search.words.is_empty() && !list.filters.is_empty() => {
                self.finds_at_most(list, expression, NARROW)?
            }
            _ => true,
        };
        self.count_rows(list, search, if are_rows_read { Access::Planned } else { Access::Filtered }, hidden)
    }

    fn count_rows(
        &self,
        list: &ListQuery,
        search: &Search,
        access: Access,
        hidden: Option<IdBlock>,
    ) -> rusqlite::Result<i64> {
        let mut query = SqlQuery::new(list, search, access);
        query.filter(list);
        query.keep_to(hidden.map_or(Ids::All, Ids::Outside));
        let sql = format!("SELECT count(*) FROM {}{}", query.from, query.conditions());
        self.value(&sql, query.values.iter())
    }
}

/// One stretch of a list in its order. Nulls and ties need stretches of their own, so that each is read along an index.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// From the beginning to the end.
    All,
    /// The rest of those with the position's sort value, behind its id.
    Ties(KeysetPosition),
    /// Values behind the position's. Nulls are none of them.
    Beyond(Value),
    NotNull,
    Null,
}

/// The column by which referenced records filter the list. A null is in the record itself.
fn referenced(list: &ListQuery) -> Option<Column> {
    let mut columns = list.filters.iter().map(|(column, predicate)| stored_column(*column, predicate));
    columns.find(|column| matches!(column, Column::Referenced { .. }))
}

/// A required field of a referenced record is null where the reference is.
fn stored_column(column: Column, predicate: &Predicate) -> Column {
    match (column, predicate) {
        (Column::Referenced { reference, .. }, Predicate::Equals(Value::Null)) => Column::Field(reference),
        _ => column,
    }
}

/// Which ids a stretch may have, so that no hidden record is on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ids {
    All,
    Outside(IdBlock),
    Below(i64),
    Above(i64),
}

/// A list in the order of ids is read up to the hidden records, and from there on. In another order they are passed over.
fn segments(list: &ListQuery, hidden: Option<IdBlock>) -> Vec<(Segment, Ids)> {
    let parts = match hidden {
        None => vec![Ids::All],
        Some(block) if list.sort != Column::Id => vec![Ids::Outside(block)],
        Some(IdBlock { first, last }) if list.descending => vec![Ids::Above(last), Ids::Below(first)],
        Some(IdBlock { first, last }) => vec![Ids::Below(first), Ids::Above(last)],
    };
    let of_part = |ids| segments_after(list).into_iter().map(move |segment| (segment, ids));
    parts.into_iter().flat_map(of_part).collect()
}

fn segments_after(list: &ListQuery) -> Vec<Segment> {
    let Some(position) = &list.after else { return vec![Segment::All] };
    let ties = Segment::Ties(position.clone());
    if list.sort == Column::Id {
        return vec![Segment::Beyond(Value::Integer(position.id))];
    }
    match (&position.value, list.descending) {
        (Value::Null, false) => vec![ties, Segment::NotNull],
        (Value::Null, true) => vec![ties],
        (value, false) => vec![ties, Segment::Beyond(value.clone())],
        (value, true) if list.sort.is_nullable() => vec![ties, Segment::Beyond(value.clone()), Segment::Null],
        (value, true) => vec![ties, Segment::Beyond(value.clone())],
    }
}

/// How the rows of a list are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// As SQLite plans it.
    Planned,
    /// In the list's order. Every range is wide, so the page is full after few rows.
    InOrder,
    /// In the list's order, with every filter tested on the rows, where that ends soon. The column is the one to follow otherwise, or
    /// the search table.
    Scan(Option<Column>),
    /// In the list's order, with every filter tested on the rows that the search table has found.
    Among,
    /// As SQLite plans it for the filters, among the rows that the search table has found.
    Filtered,
    /// All rows in the order of ids, and then sorted.
    Unindexed,
    /// Along the index of a column whose range is narrow, and then sorted. In the list's order nearly all rows might have to be read
    /// before the page is full.
    Along(Column),
}

/// A query that is being built.
struct SqlQuery {
    from: String,
    access: Access,
    sort: Column,
    conditions: Vec<Cow<'static, str>>,
    values: Vec<Value>,
}

impl SqlQuery {
    /// The search table comes first: its rows are in the order of ids.
    fn new(list: &ListQuery, search: &Search, access: Access) -> SqlQuery {
        let table = list.resource.plural;
        let (from, sort) = (format!("{table} AS r"), list.sort);
        let mut query = SqlQuery { from, access, sort, conditions: Vec::new(), values: Vec::new() };
        let expression = search.expression.clone().map(Value::Text);
        match (access, expression) {
            (Access::Planned, Some(expression)) => {
                // Nothing is asked of the rows where the search table alone decides.
                let needs_rows = !search.words.is_empty() || !list.filters.is_empty();
                let rows =
                    if needs_rows { format!(" CROSS JOIN {table} AS r ON r.id = s.rowid") } else { String::new() };
                query.from = format!("{table}_search AS s{rows}");
                query.add(format!("s.{table}_search MATCH ?"), expression);
            }
            (Access::Among | Access::Filtered, Some(expression)) => {
                let found = format!("SELECT rowid FROM {table}_search WHERE {table}_search MATCH ?");
                query.add(format!("+r.id IN ({found})"), expression);
            }
            _ => (),
        }
        for word in &search.words {
            query.add("instr(r.search, ?) > 0", Value::Text(word.clone()));
        }
        query
    }

    /// The id as the table that is read first knows it, so that a page begins where it should there too.
    fn id(&self) -> &'static str {
        match self.access {
            _ if self.from.contains("_search") => "s.rowid",
            Access::Along(_) => "+r.id",
            _ => "r.id",
        }
    }

    /// The sort column in the order and in the position. SQLite uses no index for a term with a unary `+`.
    fn sort_term(&self) -> String {
        let plus = if matches!(self.access, Access::Along(_) | Access::Unindexed) { "+" } else { "" };
        format!("{plus}r.{}", self.sort.name())
    }

    fn add(&mut self, condition: impl Into<Cow<'static, str>>, value: Value) {
        self.conditions.push(condition.into());
        self.values.push(value);
    }

    fn filter(&mut self, list: &ListQuery) {
        for (column, predicate) in &list.filters {
            self.add_predicate(*column, predicate);
        }
    }

    fn add_predicate(&mut self, column: Column, predicate: &Predicate) {
        let column = stored_column(column, predicate);
        let uses_index = match self.access {
            Access::Planned | Access::Filtered => true,
            Access::InOrder => column == self.sort || !predicate.is_range(),
            Access::Scan(_) | Access::Among => column == self.sort,
            Access::Unindexed => false,
            Access::Along(narrow) => column == narrow,
        };
        let plus = if uses_index { "" } else { "+" };
        let condition = match column {
            Column::Referenced { reference, resource, field } if uses_index || self.access == Access::Unindexed => {
                let passing = comparison(field.name, predicate);
                format!("{plus}r.{} IN (SELECT id FROM {} WHERE {passing})", reference.name, resource.plural)
            }
            // Few rows are tested: each takes a look at one other.
            Column::Referenced { reference, resource, field } => {
                let referenced =
                    format!("SELECT {} FROM {} WHERE id = r.{}", field.name, resource.plural, reference.name);
                comparison(&format!("({referenced})"), predicate)
            }
            _ => comparison(&format!("{plus}r.{}", column.name()), predicate),
        };
        self.conditions.push(condition.into());
        self.values.extend(bound_value(predicate));
    }

    fn begin(&mut self, list: &ListQuery, segment: &Segment) {
        let (column, id, beyond) = (self.sort_term(), self.id(), if list.descending { "<" } else { ">" });
        match segment {
            Segment::All => (),
            Segment::Beyond(value) if list.sort == Column::Id => {
                self.add(format!("{id} {beyond} ?"), value.clone());
            }
            Segment::Ties(position) => {
                self.add(format!("{column} IS ?"), position.value.clone());
                self.add(format!("{id} {beyond} ?"), Value::Integer(position.id));
            }
            Segment::Beyond(value) => self.add(format!("{column} {beyond} ?"), value.clone()),
            Segment::NotNull => self.conditions.push(format!("{column} IS NOT NULL").into()),
            Segment::Null => self.conditions.push(format!("{column} IS NULL").into()),
        }
    }

    fn keep_to(&mut self, ids: Ids) {
        let id = self.id();
        match ids {
            Ids::All => (),
            Ids::Below(first) => self.add(format!("{id} < ?"), Value::Integer(first)),
            Ids::Above(last) => self.add(format!("{id} > ?"), Value::Integer(last)),
            Ids::Outside(block) => {
                self.add(format!("+{id} NOT BETWEEN ? AND ?"), Value::Integer(block.first));
                self.values.push(Value::Integer(block.last));
            }
        }
    }

    fn conditions(&self) -> String {
        if self.conditions.is_empty() { String::new() } else { format!(" WHERE {}", self.conditions.join(" AND ")) }
    }

    fn order(&self, list: &ListQuery, segment: &Segment) -> String {
        let (id, direction) = (self.id(), if list.descending { "DESC" } else { "ASC" });
        match segment {
            Segment::Ties(_) | Segment::Null => format!("{id} {direction}"),
            _ if list.sort == Column::Id => format!("{id} {direction}"),
            _ => format!("{} {direction}, {id} {direction}", self.sort_term()),
        }
    }
}

/// The comparison of `operand` with the value that [`bound_value`] returns.
fn comparison(operand: &str, predicate: &Predicate) -> String {
    match predicate {
        Predicate::Equals(Value::Null) => format!("{operand} IS NULL"),
        Predicate::Equals(_) => format!("{operand} = ?"),
        Predicate::AtLeast(_) => format!("{operand} >= ?"),
        Predicate::AtMost(_) => format!("{operand} <= ?"),
    }
}

fn bound_value(predicate: &Predicate) -> Option<Value> {
    match predicate {
        Predicate::Equals(Value::Null) => None,
        Predicate::Equals(value) => Some(value.clone()),
        Predicate::AtLeast(text) | Predicate::AtMost(text) => Some(Value::Text(text.clone())),
    }
}

/// The statement for a segment, of at most `count` rows, with its values.
fn select(
    list: &ListQuery,
    search: &Search,
    access: Access,
    segment: &Segment,
    ids: Ids,
    count: usize,
) -> (String, Vec<Value>) {
    let mut query = SqlQuery::new(list, search, access);
    query.filter(list);
    query.begin(list, segment);
    query.keep_to(ids);
    let columns = &Statements::of(list.resource).qualified_columns;
    let order = query.order(list, segment);
    let sql = format!("SELECT {columns} FROM {}{} ORDER BY {order} LIMIT ?", query.from, query.conditions());
    query.values.push(Value::Integer(i64::try_from(count).unwrap_or(i64::MAX)));
    (sql, query.values)
}

/// The statements of a whole page, for tests of how they are read.
#[cfg(test)]
pub(in crate::store) fn statements(reading: &Reading<'_>, list: &ListQuery) -> Vec<(String, Vec<Value>)> {
    let search = reading.search(list).unwrap();
    let access = reading.access(list, &search).unwrap();
    let hidden = reading.hidden_ids(list.resource).unwrap();
    let statement = |(segment, ids): &(Segment, Ids)| {
        let access = reading.access_to_segment(list, &search, access, segment, *ids, 51).unwrap();
        select(list, &search, access, segment, *ids, 51)
    };
    segments(list, hidden).iter().map(statement).collect()
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The records as a JSON array.
    pub json: Vec<u8>,
    /// The last record's position, while more follow.
    pub next: Option<KeysetPosition>,
    /// The number of all matching records, if it was asked for.
    pub total: Option<i64>,
}

/// Writes the rows of a page as they come, and looks one row further to know whether more follow.
struct PageWriter<'a> {
    list: &'a ListQuery,
    json: Vec<u8>,
    taken: usize,
    last: Option<KeysetPosition>,
    more: bool,
}

impl<'a> PageWriter<'a> {
    fn new(list: &'a ListQuery) -> PageWriter<'a> {
        let mut json = Vec::with_capacity(512 * list.limit.min(64));
        json.push(b'[');
        PageWriter { list, json, taken: 0, last: None, more: false }
    }

    /// Rows to ask for: those that the page lacks, and one.
    fn missing(&self) -> usize {
        (self.list.limit + 1).saturating_sub(self.taken)
    }

    fn is_full(&self) -> bool {
        self.more
    }

    fn take(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        if self.taken == self.list.limit {
            self.more = true;
            return Ok(());
        }
        if self.taken > 0 {
            self.json.push(b',');
        }
        write_row(&mut self.json, self.list.resource, row);
        self.taken += 1;
        if self.taken == self.list.limit {
            let sort = self.list.sort;
            let value = read_value(row.get_ref(sort.name())?, sort.is_boolean())?;
            self.last = Some(KeysetPosition { value, id: row.get("id")? });
        }
        Ok(())
    }

    fn finish(mut self, total: Option<i64>) -> rusqlite::Result<Page> {
        self.json.push(b']');
        Ok(Page { json: checked(self.json)?, next: self.last.filter(|_| self.more), total })
    }
}
