//! The terms of a text in its search table.
//!
//! A frequent word has one term: [`AFTER_WORD`] and its id. Any other word has a term for every three neighbouring characters, of which
//! the last two terms end with [`AFTER_WORD`]. So each character of a word begins a term, and one or two letters are found as the
//! beginning of a term.

/// White space, which is in no word. Two follow each word.
const AFTER_WORD: char = '\u{a0}';

/// The characters of a term that is a part of a word.
const TERM: usize = 3;

/// Returns the terms of all words of a folded text, separated by spaces. `frequent` returns the id of a frequent word.
///
/// # Errors
///
/// Those of `frequent`.
pub(super) fn of_text<E>(text: &str, mut frequent: impl FnMut(&str) -> Result<Option<i64>, E>) -> Result<String, E> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    words.sort_unstable();
    words.dedup();
    let mut terms = String::with_capacity(text.len());
    for word in words {
        match frequent(word)? {
            Some(id) => terms.push_str(&of_frequent_word(id)),
            None => push_parts(&mut terms, word.chars().chain([AFTER_WORD; TERM - 1])),
        }
        terms.push(' ');
    }
    Ok(terms)
}

/// Returns the term of a frequent word. No part of a word begins as it does.
pub(super) fn of_frequent_word(id: i64) -> String {
    encoded(AFTER_WORD.to_string().chars().chain(id.to_string().chars()))
}

/// Returns every [`TERM`] neighbouring characters of `word`. None if it has fewer.
pub(super) fn parts(word: &str) -> Vec<String> {
    let characters: Vec<char> = word.chars().collect();
    characters.windows(TERM).map(|part| part.iter().collect()).collect()
}

/// Returns the term of a part of a word, or the beginning of the terms that begin with a shorter part.
pub(super) fn of_part(part: &str) -> String {
    encoded(part.chars())
}

fn push_parts(terms: &mut String, characters: impl Iterator<Item = char>) {
    let characters: Vec<char> = characters.collect();
    for (n, part) in characters.windows(TERM).enumerate() {
        if n > 0 {
            terms.push(' ');
        }
        part.iter().for_each(|character| push_encoded(terms, *character));
    }
}

fn encoded(characters: impl Iterator<Item = char>) -> String {
    let mut text = String::new();
    characters.for_each(|character| push_encoded(&mut text, character));
    text
}

/// FTS5's tokenizer `ascii` parts texts at ASCII characters that are neither letters nor digits. Each of them is written as white space
/// of Unicode, which is in no word, and a digit.
fn push_encoded(text: &mut String, character: char) {
    const SPACES: [char; 8] =
        ['\u{2000}', '\u{2001}', '\u{2002}', '\u{2003}', '\u{2004}', '\u{2005}', '\u{2006}', '\u{2007}'];
    let code = character as usize;
    match (SPACES.get(code / 16), char::from_digit((code % 16) as u32, 16)) {
        (Some(space), Some(digit)) if !character.is_ascii_alphanumeric() => text.extend([*space, digit]),
        _ => text.push(character),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use super::*;

    fn terms(text: &str) -> Vec<String> {
        let Ok(terms) = of_text(text, |word| Ok::<_, Infallible>((word == "the").then_some(-7)));
        terms.split(' ').filter(|term| !term.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn a_word_has_a_term_for_each_of_its_characters_or_one() {
        assert_eq!(terms("abcd\ne\n"), ["abc", "bcd", "cd\u{a0}", "d\u{a0}\u{a0}", "e\u{a0}\u{a0}"]);
        assert_eq!(terms("the ab the"), ["ab\u{a0}", "b\u{a0}\u{a0}", "\u{a0}\u{2002}d7"]);
        assert_eq!(parts("abcd"), ["abc", "bcd"]);
        assert_eq!(parts("ab"), [""; 0]);
        assert_eq!(of_part("a-"), "a\u{2002}d");
    }

    #[test]
    fn no_term_is_parted_and_no_two_characters_are_written_alike() {
        let written: Vec<String> =
            ('\0'..='\u{2fff}').filter(|c| !c.is_whitespace()).map(|c| encoded([c].into_iter())).collect();
        assert!(written.iter().all(|text| text.chars().all(|c| c.is_ascii_alphanumeric() || !c.is_ascii())));
        let begins = |text: &String, other: &String| text != other && text.starts_with(other.as_str());
        let ascii: BTreeSet<&String> = written.iter().take(128).collect();
        assert!(ascii.iter().all(|text| !ascii.iter().any(|other| begins(text, other))));
        assert_eq!(written.iter().collect::<BTreeSet<_>>().len(), written.len());
    }
}
