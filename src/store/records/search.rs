//! Search text and trigrams.
//!
//! Each record has one case-folded text of all its searched fields. A search table of trigrams narrows down which rows to look at;
//! whether a word is there is decided by comparing on the text itself.

use crate::model::{ListQuery, Resource, Value};

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

/// Words of fewer characters have no trigram and are looked for in every record.
const TRIGRAM: usize = 3;

/// As many trigrams are always asked for, so that rows are narrowed down even where all are common.
pub(super) const FEWEST_TRIGRAMS: usize = 2;

/// The most trigrams that are looked for in the samples and asked of the search table. A long word has thousands of them,
/// and a few narrow the rows down as well.
const MAX_TRIGRAMS: usize = 64;

/// FTS5 ends a string at this character. No text field holds it, so a word that has it is in no record.
const NUL: char = '\0';

/// The words of `q`, and by which trigrams the search table narrows the rows down to those that may have them.
#[derive(Default)]
pub(super) struct Search {
    /// Folded.
    pub words: Vec<String>,
    pub trigrams: Vec<String>,
}

impl Search {
    pub fn of(list: &ListQuery) -> Search {
        let words: Vec<String> = list.words.iter().map(|word| fold(word)).collect();
        let for_fts5 = words.iter().filter(|word| !word.contains(NUL));
        let mut trigrams: Vec<String> = for_fts5.flat_map(|word| trigrams(word)).collect();
        trigrams.sort_unstable();
        trigrams.dedup();
        let step = trigrams.len().div_ceil(MAX_TRIGRAMS).max(1);
        Search { words, trigrams: trigrams.into_iter().step_by(step).collect() }
    }

    /// Drops trigrams that half of the samples have: they narrow little down, and going through their long lists is what
    /// a search for a serial number would spend its time with.
    pub fn leave_out_common(&mut self, samples: &[String]) {
        let having = |trigram: &String| samples.iter().filter(|text| text.contains(trigram.as_str())).count();
        self.trigrams.sort_by_cached_key(having);
        let rare = self.trigrams.partition_point(|trigram| having(trigram) * 2 < samples.len());
        self.trigrams.truncate(rare.max(FEWEST_TRIGRAMS));
    }

    /// In the full-text query language. `None` where every word is too short.
    pub fn expression(&self) -> Option<String> {
        let quoted = |trigram: &String| format!("\"{}\"", trigram.replace('"', "\"\""));
        let all: Vec<String> = self.trigrams.iter().map(quoted).collect();
        (!all.is_empty()).then(|| all.join(" AND "))
    }
}

/// Every three neighbouring characters of a folded word.
fn trigrams(word: &str) -> Vec<String> {
    let characters: Vec<char> = word.chars().collect();
    characters.windows(TRIGRAM).map(|three| three.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CUSTOMER;
    use crate::model::Column;

    fn search(q: &str) -> Search {
        Search::of(&ListQuery {
            resource: &CUSTOMER,
            sort: Column::Id,
            descending: false,
            filters: Vec::new(),
            words: q.split_whitespace().map(str::to_owned).collect(),
            limit: 50,
            after: None,
            total: false,
        })
    }

    /// A word of `count` letters in which no trigram comes twice.
    fn word(count: u32) -> String {
        (0..count).filter_map(|n| char::from_u32(0x4e00 + n)).collect()
    }

    #[test]
    fn a_long_search_looks_at_a_bounded_number_of_trigrams() {
        for letters in [67, 200, 8_000] {
            let word = word(letters);
            let search = search(&word);
            let count = search.trigrams.len();
            assert!((MAX_TRIGRAMS / 2..=MAX_TRIGRAMS).contains(&count), "{count} trigrams of {letters} letters");
            assert!(search.trigrams.iter().all(|trigram| word.contains(trigram.as_str())));
        }
        assert_eq!(search(&word(66)).trigrams.len(), 64);
        assert_eq!(search("alpha be").trigrams, ["alp", "lph", "pha"]);
    }

    #[test]
    fn a_word_with_nul_does_not_reach_the_search_table() {
        assert_eq!(search("a\0b").expression(), None);
        assert_eq!(search("abcdef\0").expression(), None);
        assert_eq!(search("a\0bcde needle").trigrams, ["dle", "edl", "eed", "nee"]);
    }
}
