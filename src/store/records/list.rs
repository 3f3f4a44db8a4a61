//! One page of a list, read along an index from where the last page ended (contract section 4).

use rusqlite::types::FromSql;
use rusqlite::{Row, params_from_iter};

use super::Reading;
use super::encoding::{checked, read_value, write_row};
use super::query::{Access, Search, SqlQuery, stretches};
use crate::model::{Column, KeysetPosition, ListQuery, Value};
use crate::store::error::DatabaseError;

/// As many records are found along a filter and then sorted. More are read in the list's order,
/// where a page is full soon.
const FEW: u32 = 4_000;

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

impl Reading<'_> {
    /// One page of a list. All of it, the count too, is of one moment.
    pub fn page(&self, list: &ListQuery) -> Result<Page, DatabaseError> {
        let snapshot = self.connection.unchecked_transaction()?;
        let search = Search::new(list);
        let access = self.access(list, &search)?;
        let mut page = PageWriter::new(list);
        for stretch in stretches(list) {
            if page.more {
                break;
            }
            let query = SqlQuery::new(list, &search, access);
            let (sql, values) = query.select(&stretch, page.missing());
            let mut statement = self.connection.prepare_cached(&sql)?;
            let mut rows = statement.query(params_from_iter(values.iter()))?;
            while let Some(row) = rows.next()? {
                page.take(row)?;
            }
        }
        let total = list.total.then(|| self.total(list, &search, access)).transpose()?;
        snapshot.finish()?;
        Ok(page.finish(total)?)
    }

    /// How to find the rows. SQLite plans without knowing how many records pass a filter.
    pub(super) fn access(&self, list: &ListQuery, search: &Search) -> rusqlite::Result<Access> {
        let is_decided = match list.filters.as_slice() {
            [] => true,
            // One index has the rows, in the list's order.
            [(column, predicate)] => {
                !predicate.is_range()
                    && !matches!(column, Column::Referenced { .. })
                    && search.words.is_empty()
                    && list.sort == Column::Id
            }
            _ => false,
        };
        if !is_decided {
            for (column, _) in &list.filters {
                let (sql, values) = SqlQuery::are_at_most(list, *column, FEW);
                if self.value(&sql, &values)? {
                    return Ok(Access::Filter(*column));
                }
            }
        }
        Ok(match search.expression {
            Some(_) => Access::Search,
            None if is_decided && list.sort == Column::Id => Access::Id,
            None => Access::Sort,
        })
    }

    /// The number of all rows of a list.
    fn total(&self, list: &ListQuery, search: &Search, access: Access) -> rusqlite::Result<i64> {
        let access = match access {
            Access::Filter(_) | Access::Search => access,
            _ => Access::Any,
        };
        let (sql, values) = SqlQuery::new(list, search, access).count();
        self.value(&sql, &values)
    }

    /// The only value that a statement returns.
    fn value<T: FromSql>(&self, sql: &str, values: &[Value]) -> rusqlite::Result<T> {
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.query_row(params_from_iter(values), |row| row.get(0))
    }
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

    fn take(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        if self.taken == self.list.limit {
            self.more = true;
            return Ok(());
        }
        if self.taken > 0 {
            self.json.push(b',');
        }
        write_row(&mut self.json, self.list.resource, &self.list.include, row);
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
        let next = self.last.filter(|_| self.more);
        Ok(Page { json: checked(self.json)?, next, total })
    }
}
