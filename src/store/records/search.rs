//! The search text of a record, and what is asked of the search tables.
//!
//! Each record has one case-folded text of all its searched fields. A word of `q` is found within one word of it. The search table finds
//! the records with a frequent word that contains the word of `q`, and those that have all of its parts; whether the latter have the word
//! is decided by comparing on the text itself.

use super::search_terms;
use crate::model::{Resource, Value};

/// Unicode's full case folding: SQLite's own folds letter by letter, so that `strasse` would miss `Straße`.
pub fn fold(text: &str) -> String {
    unicase::UniCase::unicode(text).to_folded_case()
}

/// The folded text of all searched fields, one a line: a word of `q` has no white space and so stays within one.
pub(super) fn search_text(resource: &Resource, values: &[Value]) -> String {
    let mut text = String::new();
    for (_, value) in resource.fields.iter().zip(values).filter(|(field, _)| field.is_searched()) {
        if let Value::Text(value) = value {
            text.push_str(&fold(value));
            text.push('\n');
        }
    }
    text
}

/// A word of `q` that more frequent words contain is not asked of the search table: most records have it, and FTS5 compares each of
/// these words at every record.
const MAX_FREQUENT: usize = 32;

/// The most parts that are looked for in the samples and asked of the search table, for all words together. A long word has
/// thousands of them, and a few narrow the rows down as well.
const MAX_PARTS: usize = 64;

/// As many parts of each word are always asked for, so that rows are narrowed down even where all are common.
const FEWEST_PARTS: usize = 2;

/// What is asked of the search table, and which words are looked for in the rows that it finds.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    /// Folded.
    pub words: Vec<String>,
    /// Finds all records that may have the words, in the full-text query language. `None` where any record may.
    pub expression: Option<String>,
    /// Finds records that do have the words.
    certain: Option<String>,
    /// Whether no word is so short that FTS5 collects all records that may have it before it returns the first.
    pub is_incremental: bool,
}

/// The same for one word.
struct WordSearch {
    /// Terms of which each is in records that have the word, and in no others.
    certain: Vec<String>,
    /// Terms that are all in the other records that may have it. Empty if there are none.
    parts: Vec<String>,
}

impl Search {
    /// `frequent` has the ids of the frequent words that contain each of the folded `words`. `samples` are the texts of some records.
    pub fn new(words: Vec<String>, frequent: &[Vec<i64>], samples: &[String]) -> Search {
        let most = (MAX_PARTS / words.len().max(1)).max(FEWEST_PARTS);
        let asked = words.iter().zip(frequent).filter(|(_, ids)| ids.len() <= MAX_FREQUENT);
        let found: Vec<WordSearch> = asked.map(|(word, ids)| WordSearch::new(word, ids, samples, most)).collect();
        let certain: Option<Vec<String>> = found.iter().map(WordSearch::certain).collect();
        let possible: Vec<String> = found.iter().map(WordSearch::possible).collect();
        Search {
            expression: (!possible.is_empty()).then(|| possible.join(" AND ")),
            certain: certain
                .filter(|certain| certain.len() == words.len() && !certain.is_empty())
                .map(|certain| certain.join(" AND ")),
            is_incremental: words.iter().all(|word| !search_terms::parts(word).is_empty()),
            words,
        }
    }

    /// The search in two: for the records that have the words for certain, whose rows need no look, and for the others.
    pub fn in_two(&self) -> Vec<Search> {
        let (Some(possible), Some(certain)) = (&self.expression, &self.certain) else { return vec![self.clone()] };
        let exact = Search { words: Vec::new(), expression: Some(certain.clone()), ..self.clone() };
        if possible == certain {
            return vec![exact];
        }
        vec![exact, Search { expression: Some(format!("({possible}) NOT ({certain})")), ..self.clone() }]
    }
}

impl WordSearch {
    fn new(word: &str, frequent: &[i64], samples: &[String], most: usize) -> WordSearch {
        let mut certain: Vec<String> = frequent.iter().map(|id| quoted(&search_terms::of_frequent_word(*id))).collect();
        let parts = rarest(search_terms::parts(word), samples, most);
        match parts.as_slice() {
            [] => certain.push(format!("{} *", quoted(&search_terms::of_part(word)))),
            [only] if only.len() == word.len() => certain.push(quoted(&search_terms::of_part(only))),
            _ => {
                return WordSearch {
                    certain,
                    parts: parts.iter().map(|part| quoted(&search_terms::of_part(part))).collect(),
                };
            }
        }
        WordSearch { certain, parts: Vec::new() }
    }

    fn certain(&self) -> Option<String> {
        (!self.certain.is_empty()).then(|| format!("({})", self.certain.join(" OR ")))
    }

    fn possible(&self) -> String {
        let parts = (!self.parts.is_empty()).then(|| format!("({})", self.parts.join(" AND ")));
        let all: Vec<&str> = self.certain.iter().chain(&parts).map(String::as_str).collect();
        format!("({})", all.join(" OR "))
    }
}

/// No term has a quotation mark: [`search_terms`] writes it otherwise.
fn quoted(term: &str) -> String {
    format!("\"{term}\"")
}

/// At most `most` of the parts, without those that most of the samples have: they narrow little down, and going through their long
/// lists is what a search for a serial number would spend its time with.
fn rarest(mut parts: Vec<String>, samples: &[String], most: usize) -> Vec<String> {
    parts.sort_unstable();
    parts.dedup();
    let step = parts.len().div_ceil(most).max(1);
    let mut parts: Vec<String> = parts.into_iter().step_by(step).collect();
    let having = |part: &String| samples.iter().filter(|text| text.contains(part.as_str())).count();
    parts.sort_by_cached_key(having);
    let rare = parts.partition_point(|part| having(part) * 2 <= samples.len());
    parts.truncate(rare.max(FEWEST_PARTS));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(q: &str, frequent: &[i64]) -> Search {
        let words: Vec<String> = q.split_whitespace().map(str::to_owned).collect();
        let ids = vec![frequent.to_vec(); words.len()];
        Search::new(words, &ids, &[])
    }

    /// A word of `count` letters in which no part comes twice.
    fn word(count: u32) -> String {
        (0..count).filter_map(|n| char::from_u32(0x4e00 + n)).collect()
    }

    fn expressions(search: &Search) -> Vec<(&str, bool)> {
        let is_certain = |search: &Search| search.words.is_empty();
        search.expression.iter().map(|expression| (expression.as_str(), is_certain(search))).collect()
    }

    #[test]
    fn a_long_search_looks_at_a_bounded_number_of_parts() {
        for (letters, words) in [(67, 1), (200, 1), (8_000, 1), (200, 20)] {
            let words = vec![word(letters); words].join(" ");
            let count = search(&words, &[]).expression.unwrap().matches('"').count() / 2;
            assert!((MAX_PARTS / 2..=MAX_PARTS).contains(&count), "{count} parts of {letters} letters");
        }
    }

    #[test]
    fn a_word_is_asked_for_by_frequent_words_and_by_its_parts() {
        assert_eq!(expressions(&search("abcd", &[])), [("((\"abc\" AND \"bcd\"))", false)]);
        let found = search("abcd", &[7]).in_two();
        let found: Vec<_> = found.iter().flat_map(expressions).collect();
        let possible = "((\"\u{a0}7\" OR (\"abc\" AND \"bcd\"))) NOT ((\"\u{a0}7\"))";
        assert_eq!(found, [("(\"\u{a0}7\")", true), (possible, false)]);
    }

    #[test]
    fn the_rows_of_short_words_need_no_look() {
        for (q, expression) in [("abc", "(\"abc\")"), ("a-", "(\"a\u{2002}d\" *)"), ("é", "(\"é\" *)")] {
            let found = search(q, &[]).in_two();
            assert_eq!(found.iter().flat_map(expressions).collect::<Vec<_>>(), [(expression, true)]);
        }
    }

    #[test]
    fn a_word_that_many_frequent_words_contain_is_looked_for_in_the_rows() {
        let many: Vec<i64> = (0..=32).collect();
        assert_eq!(search("ab", &many).expression, None);
        let found = Search::new(vec!["ab".to_owned(), "xyz".to_owned()], &[many, Vec::new()], &[]).in_two();
        assert_eq!(found.iter().flat_map(expressions).collect::<Vec<_>>(), [("(\"xyz\")", false)]);
    }
}
