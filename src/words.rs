//! The words of messages: suggestions for unknown names, escapes, capital letters, and numbers.

/// Returns the message about the unknown `name`. It suggests the most similar of the `known` names,
/// or lists all of them. `what` is the kind of thing, such as `column`.
pub(crate) fn unknown<'a>(
    what: &str,
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    match closest(name, known.clone()) {
        Some(similar) => format!("Unknown {what} {name:?}. Did you mean \"{similar}\"?"),
        None if known.clone().next().is_none() => {
            format!("Unknown {what} {name:?}. None is known here; leave it out.")
        }
        None => format!(
            "Unknown {what} {name:?}. Known here: {}.",
            known.collect::<Vec<_>>().join(", ")
        ),
    }
}

/// Longer names, in bytes, are similar to none: the comparison takes quadratic time.
const MAX_LENGTH: usize = 100;

/// Returns the known name that begins alike or is similar enough, and of several the most similar.
pub(crate) fn closest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// The minimum similarity of a suggestion, from 0 to 1. It accepts `cutsomer_id` for
    /// `customer_id`, but not `page` for `name`.
    const MIN_SIMILARITY: f64 = 0.6;
    /// A shorter beginning says nothing: many names begin with `e`.
    const MIN_BEGINNING: usize = 3;
    if name.len() > MAX_LENGTH {
        return None;
    }
    let name = name.to_lowercase();
    let score = |candidate: &str| {
        let is_long = name.len().min(candidate.len()) >= MIN_BEGINNING;
        let similarity = similarity(&name, candidate);
        let is_similar = similarity >= MIN_SIMILARITY || is_long && name.starts_with(candidate);
        let is_beginning = is_long && candidate.starts_with(&name);
        (is_beginning || is_similar).then_some((is_beginning, similarity))
    };
    known
        .filter_map(|candidate| Some((score(candidate)?, candidate)))
        .max_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))
        .map(|(_, candidate)| candidate)
}

/// How similar two short words are, from 0 to 1.
pub(crate) fn similarity(a: &str, b: &str) -> f64 {
    if a.len().max(b.len()) > MAX_LENGTH {
        0.0
    } else {
        strsim::normalized_damerau_levenshtein(a, b)
    }
}

/// Escapes control characters, which would take effect in a terminal, and characters that reorder
/// or hide text (contract section 11 has the same of the log).
pub(crate) fn printable(text: &str) -> String {
    escape(text, |character| character.escape_default().to_string())
}

/// The same for a text in the syntax of JSON or TOML: `\u009b`.
pub(crate) fn printable_json(text: &str) -> String {
    escape(text, |character| format!("\\u{:04x}", u32::from(character)))
}

/// Whether a character controls a terminal, ends a line, or reorders or hides text. Joiners and
/// variation selectors are parts of words and of emoji.
pub(crate) fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'
                | '\u{2066}'..='\u{2069}' | '\u{feff}'
        )
}

fn escape(text: &str, escaped: fn(char) -> String) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        // U+061C reorders text, too, but it is a part of words.
        if is_hidden(character) || character == '\u{61c}' {
            shown += &escaped(character);
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Removes the system's numbers of errors, such as ` (os error 13)`, from a message.
pub(crate) fn without_error_numbers(message: &str) -> String {
    let mut message = message.to_owned();
    while let Some((before, rest)) = message.split_once(" (os error ")
        && let Some((_, after)) = rest.split_once(')')
    {
        message = format!("{before}{after}");
    }
    message
}

pub(crate) fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// A number with its noun: `1 row`, `5,000 rows`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

pub(crate) fn grouped(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", grouped(number / 1_000), number % 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_begins_alike_is_suggested_first() {
        const KNOWN: [&str; 7] = [
            "purchase_date",
            "purchase_cost_cents",
            "email",
            "id",
            "name",
            "created_at",
            "created_at_from",
        ];
        for (name, expected) in [
            ("purchase_cost", Some("purchase_cost_cents")),
            ("purchase_dat", Some("purchase_date")),
            ("purhcase_date", Some("purchase_date")),
            ("E-Mail", Some("email")),
            ("email_address", Some("email")),
            ("created_at_form", Some("created_at_from")),
            ("nmae", Some("name")),
            ("id_number", None),
            ("page", None),
        ] {
            assert_eq!(closest(name, KNOWN.into_iter()), expected, "{name}");
        }
    }

    #[test]
    fn numbers_are_grouped_and_nouns_have_a_plural() {
        assert_eq!(
            [0, 1, 1_000, 1_234_050].map(|n| count(n, "row")).join(" "),
            "0 rows 1 row 1,000 rows 1,234,050 rows"
        );
    }

    #[test]
    fn the_numbers_of_errors_are_removed() {
        let text = "a: no file (os error 2); b (no room (os error 28)); c (os error";
        assert_eq!(without_error_numbers(text), "a: no file; b (no room); c (os error");
    }

    #[test]
    fn control_and_bidirectional_characters_are_escaped() {
        assert_eq!(printable("a\nb\u{1b}[2J\u{9b}"), "a\\nb\\u{1b}[2J\\u{9b}");
        assert_eq!(printable("\u{202e}x\u{2069} ü 😀"), "\\u{202e}x\\u{2069} ü 😀");
        assert_eq!(printable_json("[\"\u{9b}\u{202e} ü\"]"), "[\"\\u009b\\u202e ü\"]");
    }
}
