//! The statement of a list: which rows, in which order, found along which index.

use std::borrow::Cow;

use super::search::match_expression;
use super::statements::{Statements, including};
use crate::model::{Column, KeysetPosition, ListQuery, Predicate, Value};

/// The folded words of a list, and what is asked of the search table for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    pub(super) words: Vec<String>,
    pub(super) expression: Option<String>,
}

impl Search {
    pub(super) fn new(list: &ListQuery) -> Search {
        let words: Vec<String> = list.words.iter().map(|word| super::fold(word)).collect();
        // FTS5 ends a string at U+0000. No record has a word with one.
        let is_clean = words.iter().all(|word| !word.contains('\0'));
        let expression = is_clean.then(|| match_expression(&words)).flatten();
        Search { words, expression }
    }
}

/// How the rows of a list are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// In the list's order: along the index of the sort column, or along one that has the rows of
    /// one value in the order of ids. Filters are tested on the rows.
    Sort,
    /// Along the index of a column that few records pass, and then sorted.
    Filter(Column),
    /// By the search table, and then sorted.
    Search,
    /// As SQLite plans it, for a count.
    Any,
}

/// One stretch of a list in its order. Nulls and ties need stretches of their own, so that each is
/// read along an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stretch {
    All,
    /// The rest of those with the position's sort value, behind its id.
    Ties(KeysetPosition),
    /// Values behind the position's. Nulls are none of them.
    Beyond(Value),
    NotNull,
    Null,
}

/// The stretches of a list from its position on.
pub(super) fn stretches(list: &ListQuery) -> Vec<Stretch> {
    let Some(position) = &list.after else { return vec![Stretch::All] };
    let ties = Stretch::Ties(position.clone());
    if list.sort == Column::Id {
        return vec![Stretch::Beyond(Value::Integer(position.id.0))];
    }
    match (&position.value, list.descending) {
        (Value::Null, false) => vec![ties, Stretch::NotNull],
        (Value::Null, true) => vec![ties],
        (value, true) if list.sort.is_nullable() => {
            vec![ties, Stretch::Beyond(value.clone()), Stretch::Null]
        }
        (value, _) => vec![ties, Stretch::Beyond(value.clone())],
    }
}

/// A query that is being built.
pub(super) struct SqlQuery<'a> {
    list: &'a ListQuery,
    access: Access,
    from: String,
    conditions: Vec<Cow<'static, str>>,
    values: Vec<Value>,
}

impl<'a> SqlQuery<'a> {
    /// The rows of a list that pass its filters and have its words.
    pub(super) fn new(list: &'a ListQuery, search: &Search, access: Access) -> SqlQuery<'a> {
        let mut query = SqlQuery::of_table(list, access);
        let table = list.resource.plural;
        let uses_search = matches!(access, Access::Search | Access::Any);
        if let Some(expression) = search.expression.clone().filter(|_| uses_search) {
            // The search table comes first: its rows are in the order of ids.
            query.from = format!("{table}_search AS s CROSS JOIN {table} AS r ON r.id = s.rowid");
            query.add(format!("s.{table}_search MATCH ?"), Value::Text(expression));
        }
        for (column, predicate) in &list.filters {
            query.filter(*column, predicate);
        }
        for word in &search.words {
            query.add("contains(r.search, ?)", Value::Text(word.clone()));
        }
        query
    }

    fn of_table(list: &'a ListQuery, access: Access) -> SqlQuery<'a> {
        let from = format!("{} AS r", list.resource.plural);
        SqlQuery { list, access, from, conditions: Vec::new(), values: Vec::new() }
    }

    /// Whether at most `count` records pass the predicates of one column. No more than one further
    /// row is read.
    pub(super) fn are_at_most(
        list: &ListQuery,
        column: Column,
        count: u32,
    ) -> (String, Vec<Value>) {
        let mut query = SqlQuery::of_table(list, Access::Filter(column));
        for (_, predicate) in list.filters.iter().filter(|(filtered, _)| *filtered == column) {
            query.filter(column, predicate);
        }
        let rows = format!("{}{}", query.from, query.conditions());
        let sql =
            format!("SELECT count(*) <= {count} FROM (SELECT 1 FROM {rows} LIMIT {count} + 1)");
        (sql, query.values)
    }

    /// The statement that counts the rows.
    pub(super) fn count(self) -> (String, Vec<Value>) {
        (format!("SELECT count(*) FROM {}{}", self.from, self.conditions()), self.values)
    }

    /// The statement for at most `count` rows of a stretch.
    pub(super) fn select(mut self, stretch: &Stretch, count: usize) -> (String, Vec<Value>) {
        self.begin(stretch);
        let ListQuery { resource, include, sort, .. } = self.list;
        let columns = &Statements::of(resource).columns;
        let direction = if self.list.descending { "DESC" } else { "ASC" };
        let mut sql = format!(
            "SELECT {columns} FROM {}{} ORDER BY {} LIMIT ?",
            self.from,
            self.conditions(),
            self.order(stretch, direction)
        );
        if !include.is_empty() {
            let rows = including(resource, include, &sql);
            sql = format!("{rows} ORDER BY r.{} {direction}, r.id {direction}", sort.name());
        }
        self.values.push(Value::Integer(i64::try_from(count).unwrap_or(i64::MAX)));
        (sql, self.values)
    }

    /// The id as the table that is read first knows it, so that a page begins where it should there
    /// too. SQLite uses no index for a term with a unary `+`.
    fn id(&self) -> &'static str {
        match self.access {
            _ if self.from.contains("_search") => "s.rowid",
            Access::Filter(_) => "+r.id",
            _ => "r.id",
        }
    }

    fn sort_term(&self) -> String {
        match (self.list.sort, self.access) {
            (Column::Id, _) => self.id().to_owned(),
            (sort, Access::Filter(_)) => format!("+r.{}", sort.name()),
            (sort, _) => format!("r.{}", sort.name()),
        }
    }

    fn add(&mut self, condition: impl Into<Cow<'static, str>>, value: Value) {
        self.conditions.push(condition.into());
        self.values.push(value);
    }

    fn filter(&mut self, column: Column, predicate: &Predicate) {
        // A required field of a referenced record is null where the reference is.
        let column = match (column, predicate) {
            (Column::Referenced { reference, .. }, Predicate::Equals(Value::Null)) => {
                Column::Field(reference)
            }
            _ => column,
        };
        let uses_index = match self.access {
            Access::Sort => {
                column == self.list.sort || has_order_of_ids(self.list, column, predicate)
            }
            Access::Filter(narrow) => column == narrow,
            Access::Search => false,
            Access::Any => true,
        };
        let plus = if uses_index { "" } else { "+" };
        let condition = match column {
            Column::Referenced { reference, resource, field } => {
                let (name, table) = (reference.name, resource.plural);
                let passing = comparison(field.name, predicate);
                format!("{plus}r.{name} IN (SELECT id FROM {table} WHERE {passing})")
            }
            _ => comparison(&format!("{plus}r.{}", column.name()), predicate),
        };
        self.conditions.push(condition.into());
        self.values.extend(bound_value(predicate));
    }

    fn begin(&mut self, stretch: &Stretch) {
        let (column, id) = (self.sort_term(), self.id());
        let beyond = if self.list.descending { "<" } else { ">" };
        match stretch {
            Stretch::All => (),
            Stretch::Ties(KeysetPosition { value, id: after }) => {
                self.add(format!("{column} IS ?"), value.clone());
                self.add(format!("{id} {beyond} ?"), Value::Integer(after.0));
            }
            Stretch::Beyond(value) => self.add(format!("{column} {beyond} ?"), value.clone()),
            Stretch::NotNull => self.conditions.push(format!("{column} IS NOT NULL").into()),
            Stretch::Null => self.conditions.push(format!("{column} IS NULL").into()),
        }
    }

    fn conditions(&self) -> String {
        let all = self.conditions.join(" AND ");
        if all.is_empty() { all } else { format!(" WHERE {all}") }
    }

    /// Only what differs within the stretch: the search table has one order, that of ids.
    fn order(&self, stretch: &Stretch, direction: &str) -> String {
        let id = self.id();
        match stretch {
            Stretch::Ties(_) | Stretch::Null => format!("{id} {direction}"),
            _ if self.list.sort == Column::Id => format!("{id} {direction}"),
            _ => format!("{} {direction}, {id} {direction}", self.sort_term()),
        }
    }
}

/// Whether the index of a filter's column has the rows that pass in the order of the list.
pub(super) fn has_order_of_ids(list: &ListQuery, column: Column, predicate: &Predicate) -> bool {
    let is_own = !matches!(column, Column::Referenced { .. });
    list.sort == Column::Id && is_own && !predicate.is_range()
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
