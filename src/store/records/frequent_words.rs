//! The words that many records of a resource have (`frequent_words` in `schema.sql`). They are learned from samples while records are
//! added. A record's text has the same terms as long as its `last_word` is the same, since rows of the table do not change.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _, Rows, params};

use super::statements::Statements;
use crate::model::{ALL, Resource};

/// The most words of one resource: a search compares all of them, in about a millisecond.
const MAX_WORDS: i64 = 8_192;

/// The longest word that is kept, in bytes.
const MAX_LENGTH: usize = 64;

/// A word is frequent if at least one record of as many has it, and as many records of the sample.
const ONE_OF: usize = 64;
const FEWEST: usize = 4;

/// The records of a sample.
const SAMPLES: i64 = 256;

/// The bytes of texts from which a sample takes no more records.
const SAMPLE_BYTES: usize = 512 << 10;

/// Words are learned when records are added with ids on both sides of a multiple of this. It takes about a millisecond.
const INTERVAL: i64 = 256;

/// Returns the highest id of a frequent word, 0 without any.
///
/// # Errors
///
/// Those of SQLite.
pub(super) fn last_word(connection: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT coalesce(max(max(id), 0), 0) FROM frequent_words";
    connection.prepare_cached(sql)?.query_row([], |row| row.get(0))
}

/// Whether words are learned when records with ids from `first` to `last` are added.
pub(super) fn is_due(first: i64, last: i64) -> bool {
    first.saturating_sub(1) / INTERVAL < last / INTERVAL
}

/// Learns words from the last records up to `id`. Records that are indexed from then on have terms of them.
///
/// # Errors
///
/// Those of SQLite.
pub(super) fn learn(connection: &Connection, resource: &Resource, id: i64) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(&Statements::of(resource).texts_up_to)?;
    let texts = read_sample(statement.query([id, SAMPLES])?, SAMPLE_BYTES)?;
    let first = last_word(connection)? + 1;
    add(connection, resource, find_frequent(&texts), first).map(drop)
}

/// Learns words from samples of all records, for a file whose records all have the `last_word` 0.
///
/// # Errors
///
/// Those of SQLite.
pub(super) fn learn_from_all(connection: &Connection) -> rusqlite::Result<()> {
    let mut found = Vec::new();
    for resource in ALL {
        let mut statement = connection.prepare(&Statements::of(resource).texts_everywhere)?;
        let texts = read_sample(statement.query([4 * SAMPLES])?, 16 * SAMPLE_BYTES)?;
        found.push((resource, find_frequent(&texts)));
    }
    let count: usize = found.iter().map(|(_, words)| words.len()).sum();
    let mut next = 1 - i64::try_from(count).unwrap_or(i64::MAX);
    for (resource, words) in found {
        next = add(connection, resource, words, next)?;
    }
    Ok(())
}

fn read_sample(mut rows: Rows<'_>, bytes: usize) -> rusqlite::Result<Vec<String>> {
    let (mut texts, mut read) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let text: String = row.get(0)?;
        read += text.len();
        texts.push(text);
        if read >= bytes {
            break;
        }
    }
    Ok(texts)
}

/// Returns the words that many of the texts have, the most frequent first.
fn find_frequent(texts: &[String]) -> Vec<String> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for text in texts {
        let mut words: Vec<&str> = text.split_whitespace().filter(|word| word.len() <= MAX_LENGTH).collect();
        words.sort_unstable();
        words.dedup();
        words.into_iter().for_each(|word| *counts.entry(word).or_default() += 1);
    }
    let fewest = FEWEST.max(texts.len() / ONE_OF);
    let mut frequent: Vec<(usize, &str)> =
        counts.into_iter().map(|(word, count)| (count, word)).filter(|(count, _)| *count >= fewest).collect();
    frequent.sort_unstable_by(|one, other| other.cmp(one));
    frequent.into_iter().map(|(_, word)| word.to_owned()).collect()
}

/// Adds those of the words that are not known, with the ids from `next` on, until there are [`MAX_WORDS`]. Returns the next id.
fn add(connection: &Connection, resource: &Resource, words: Vec<String>, mut next: i64) -> rusqlite::Result<i64> {
    let count = "SELECT count(*) FROM frequent_words WHERE resource = ?";
    let known: i64 = connection.prepare_cached(count)?.query_row([resource.plural], |row| row.get(0))?;
    let mut room = MAX_WORDS - known;
    let sql = "INSERT INTO frequent_words (id, resource, word) VALUES (?, ?, ?) ON CONFLICT DO NOTHING";
    let mut statement = connection.prepare_cached(sql)?;
    for word in words {
        if room <= 0 {
            break;
        }
        if statement.execute(params![next, resource.plural, word])? == 1 {
            next += 1;
            room -= 1;
        }
    }
    Ok(next)
}

/// Returns for each of the folded `parts` the ids of the frequent words that contain it, in their order.
///
/// # Errors
///
/// Those of SQLite.
pub(super) fn containing(
    connection: &Connection,
    resource: &Resource,
    parts: &[String],
) -> rusqlite::Result<Vec<Vec<i64>>> {
    let mut found = vec![Vec::new(); parts.len()];
    let mut statement = connection.prepare_cached("SELECT id, word FROM frequent_words WHERE resource = ?")?;
    let mut rows = statement.query([resource.plural])?;
    while let Some(row) = rows.next()? {
        let (id, word) = (row.get(0)?, row.get_ref(1)?.as_str()?);
        let ids = parts.iter().zip(&mut found).filter(|(part, _)| word.contains(part.as_str()));
        ids.for_each(|(_, ids)| ids.push(id));
    }
    found.iter_mut().for_each(|ids| ids.sort_unstable());
    Ok(found)
}

/// Looks up the ids of words of one resource, each word once.
#[derive(Debug)]
pub(super) struct FrequentWords<'a> {
    connection: &'a Connection,
    resource: &'static str,
    ids: HashMap<String, Option<i64>>,
    /// Whether every frequent word is in `ids`.
    has_all: bool,
}

/// From so many texts on, all words are read at once.
const MANY_TEXTS: u64 = 32;

impl<'a> FrequentWords<'a> {
    /// `texts` is the number of texts whose words will be looked up.
    ///
    /// # Errors
    ///
    /// Those of SQLite.
    pub fn new(connection: &'a Connection, resource: &Resource, texts: u64) -> rusqlite::Result<FrequentWords<'a>> {
        let resource = resource.plural;
        let mut words = FrequentWords { connection, resource, ids: HashMap::new(), has_all: false };
        if texts >= MANY_TEXTS {
            let sql = "SELECT word, id FROM frequent_words WHERE resource = ?";
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map([resource], |row| Ok((row.get(0)?, row.get(1)?)))?;
            words.ids = rows.collect::<rusqlite::Result<_>>()?;
            words.has_all = true;
        }
        Ok(words)
    }

    /// The id of `word`, if it was frequent when a record with this `last_word` was indexed.
    ///
    /// # Errors
    ///
    /// Those of SQLite.
    pub fn id(&mut self, word: &str, last_word: i64) -> rusqlite::Result<Option<i64>> {
        let id = match self.ids.get(word) {
            Some(id) => *id,
            None if self.has_all => None,
            None => {
                let id = self.read(word)?;
                self.ids.insert(word.to_owned(), id);
                id
            }
        };
        Ok(id.filter(|id| *id <= last_word))
    }

    fn read(&self, word: &str) -> rusqlite::Result<Option<i64>> {
        let sql = "SELECT id FROM frequent_words WHERE resource = ? AND word = ?";
        self.connection.prepare_cached(sql)?.query_row([self.resource, word], |row| row.get(0)).optional()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CUSTOMER;
    use crate::store::schema;
    use crate::store::tenants::SCHEMA;

    fn texts(count: usize, text: impl Fn(usize) -> String) -> Vec<String> {
        (0..count).map(text).collect()
    }

    #[test]
    fn words_of_many_texts_are_frequent() {
        let long = "x".repeat(65);
        let sample = texts(256, |n| {
            format!(
                "all all {long} n{n}{}{}",
                if n.is_multiple_of(64) { " some" } else { "" },
                if n.is_multiple_of(86) { " few" } else { "" }
            )
        });
        assert_eq!(find_frequent(&sample), ["all", "some"]);
        assert_eq!(find_frequent(&texts(3, |_| "all".to_owned())), [""; 0], "three texts tell nothing");
        assert_eq!(find_frequent(&texts(1_024, |n| format!("w{}", n % 100))), [""; 0], "one of a hundred has them");
    }

    #[test]
    fn words_are_learned_when_the_ids_pass_a_multiple() {
        let due = [(256, 256), (250, 270), (1, 256), (1, 5_000), (511, 512)];
        assert!(due.into_iter().all(|(first, last)| is_due(first, last)));
        let not_due = [(1, 1), (1, 255), (257, 257), (257, 511)];
        assert!(!not_due.into_iter().any(|(first, last)| is_due(first, last)));
    }

    #[test]
    fn a_word_keeps_its_id_and_their_number_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let connection = schema::create(&folder.path().join("1.db"), &SCHEMA).unwrap();
        let _one_commit = connection.unchecked_transaction().unwrap();
        let words = |range: std::ops::Range<i64>| range.map(|n| format!("w{n}")).collect::<Vec<_>>();
        assert_eq!(last_word(&connection).unwrap(), 0);
        assert_eq!(add(&connection, &CUSTOMER, words(0..3), 1).unwrap(), 4);
        assert_eq!(add(&connection, &CUSTOMER, words(1..5), 4).unwrap(), 6);
        let mut known = FrequentWords::new(&connection, &CUSTOMER, 1).unwrap();
        let found: Vec<Option<i64>> = (0..6).map(|n| known.id(&format!("w{n}"), 4).unwrap()).collect();
        assert_eq!(found, [Some(1), Some(2), Some(3), Some(4), None, None], "the last came later");
        add(&connection, &CUSTOMER, words(0..MAX_WORDS + 9), 6).unwrap();
        assert_eq!(last_word(&connection).unwrap(), MAX_WORDS);
        let found = containing(&connection, &CUSTOMER, &["w819".to_owned(), "w3".to_owned(), "x".to_owned()]).unwrap();
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1_111, 0]);
    }
}
