//! One page of a list, read along an index from where the last page ended (contract section 4).

use rusqlite::params_from_iter;
use rusqlite::types::FromSql;

use super::Reading;
use super::encoding::{checked, read_value, write_row};
use super::query::{Access, Search, SqlQuery, has_order_of_ids, stretches};
use crate::model::{KeysetPosition, ListQuery, Value};
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
        let (json, next) = self.rows(list, &search, access)?;
        let total = list.total.then(|| self.total(list, &search, access)).transpose()?;
        snapshot.finish()?;
        Ok(Page { json: checked(json)?, next, total })
    }

    /// The rows of a page as a JSON array, and the last one's position while more follow. One row
    /// more is read, to know that.
    fn rows(
        &self,
        list: &ListQuery,
        search: &Search,
        access: Access,
    ) -> rusqlite::Result<(Vec<u8>, Option<KeysetPosition>)> {
        let mut json = Vec::with_capacity(512 * list.limit.min(64));
        json.push(b'[');
        let (mut taken, mut last, mut more) = (0, None, false);
        for stretch in &stretches(list) {
            if more {
                break;
            }
            let query = SqlQuery::new(list, search, access);
            let (sql, values) = query.select(stretch, list.limit + 1 - taken);
            let mut statement = self.connection.prepare_cached(&sql)?;
            let mut rows = statement.query(params_from_iter(values.iter()))?;
            while let Some(row) = rows.next()? {
                if taken == list.limit {
                    more = true;
                    break;
                }
                if taken > 0 {
                    json.push(b',');
                }
                write_row(&mut json, list.resource, &list.include, row);
                taken += 1;
                if taken == list.limit {
                    let value = row.get_ref(list.sort.name())?;
                    let value = read_value(value, list.sort.is_boolean())?;
                    last = Some(KeysetPosition { value, id: row.get("id")? });
                }
            }
        }
        json.push(b']');
        Ok((json, last.filter(|_| more)))
    }

    /// How to find the rows. SQLite plans without knowing how many records pass a filter.
    pub(super) fn access(&self, list: &ListQuery, search: &Search) -> rusqlite::Result<Access> {
        let is_decided = match list.filters.as_slice() {
            [] => true,
            [(column, predicate)] => {
                search.words.is_empty() && has_order_of_ids(list, *column, predicate)
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
        Ok(if search.expression.is_some() { Access::Search } else { Access::Sort })
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
