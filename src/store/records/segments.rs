//! The segments of the search tables, and their merging in bounded steps.
//!
//! FTS5 adds a segment with every commit. A search looks into each of them, so they are merged. FTS5 would merge them inside the
//! commit that reaches a limit, and that commit would take longer for a larger tenant. `schema.sql` turns this off.

use rusqlite::Connection;

use super::statements::Statements;
use crate::model::{ALL, Resource};

/// The pages that one step writes for each search table: about a millisecond.
const STEP_PAGES: i64 = 16;

/// Merges segments of each search table, in a transaction of the caller. Returns whether there was anything to merge.
///
/// # Errors
///
/// Those of SQLite.
pub(in crate::store) fn merge_segments(connection: &Connection) -> rusqlite::Result<bool> {
    let mut merged = false;
    for resource in ALL {
        merged |= merge_segments_of(connection, resource, STEP_PAGES)?;
    }
    Ok(merged)
}

/// The same for one resource. The step writes about `pages` pages.
///
/// # Errors
///
/// Those of SQLite.
pub(in crate::store) fn merge_segments_of(
    connection: &Connection,
    resource: &Resource,
    pages: i64,
) -> rusqlite::Result<bool> {
    let before = connection.total_changes();
    connection.prepare_cached(&Statements::of(resource).merge)?.execute([pages])?;
    // The statement itself counts as one change (FTS5 documentation, "The 'merge' Command").
    Ok(connection.total_changes() - before >= 2)
}

/// Returns the number of segments of the search table that has most.
///
/// # Errors
///
/// Those of SQLite.
pub(in crate::store) fn most_segments(connection: &Connection) -> rusqlite::Result<u64> {
    let mut most = 0;
    for resource in ALL {
        let mut statement = connection.prepare_cached(&Statements::of(resource).structure)?;
        let count = statement.query_row([], |row| Ok(count_segments(row.get_ref(0)?.as_blob()?)))?;
        most = most.max(count.unwrap_or(0));
    }
    Ok(most)
}

/// Reads the number of segments from the structure record of an FTS5 table: a cookie of four bytes, the number of levels, the number
/// of segments, both as variable-length integers. `None` if the record is shorter.
fn count_segments(structure: &[u8]) -> Option<u64> {
    let (_levels, rest) = variable_length_integer(structure.get(4..)?)?;
    variable_length_integer(rest).map(|(segments, _)| segments)
}

/// Returns the integer at the beginning and the bytes after it. SQLite's format: seven bits in each byte, the high bit set in all but
/// the last. Longer integers than four bytes do not occur here.
fn variable_length_integer(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let length = bytes.iter().take(4).position(|byte| byte & 0x80 == 0)? + 1;
    let (integer, rest) = bytes.split_at_checked(length)?;
    Some((integer.iter().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f)), rest))
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::store::schema;
    use crate::store::tenants::SCHEMA;

    fn add_customer(connection: &Connection, id: i64) {
        connection
            .execute(
                "INSERT INTO customers_search (rowid, terms) VALUES (?, 'customer ' || hex(randomblob(1000)))",
                [id],
            )
            .unwrap();
    }

    /// The segments as FTS5's own index of their pages lists them.
    fn listed_segments(connection: &Connection) -> u64 {
        let sql = "SELECT count(DISTINCT segid) FROM customers_search_idx";
        connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned()
    }

    #[test]
    fn a_commit_adds_a_segment_and_merges_none() {
        let folder = tempfile::tempdir().unwrap();
        let connection = schema::create(&folder.path().join("1.db"), &SCHEMA).unwrap();
        assert_eq!(most_segments(&connection).unwrap(), 0);
        for id in 1..=200 {
            add_customer(&connection, id);
            assert_eq!(most_segments(&connection).unwrap(), id.cast_unsigned());
        }
        assert_eq!(listed_segments(&connection), 200);
    }

    #[test]
    fn steps_merge_until_few_segments_are_left() {
        let folder = tempfile::tempdir().unwrap();
        let connection = schema::create(&folder.path().join("1.db"), &SCHEMA).unwrap();
        (1..=200).for_each(|id| add_customer(&connection, id));
        let mut steps = 0;
        while merge_segments(&connection).unwrap() {
            steps += 1;
            assert!(steps < 1_000, "merging ends");
        }
        assert!(steps > 1, "one step is bounded");
        let left = most_segments(&connection).unwrap();
        assert!(left < 32, "{left}");
        assert_eq!(left, listed_segments(&connection));
        let found = "SELECT count(*) FROM customers_search('customer')";
        assert_eq!(connection.query_row(found, [], |row| row.get::<_, i64>(0)).unwrap(), 200);
    }
}
