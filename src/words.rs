//! The words of messages: suggestions for unknown names, capital letters, and numbers.

/// Returns the message about the unknown `name`. It suggests the most similar of the `known` names,
/// or lists all of them. `what` says what is named, such as `column`.
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

/// Returns the most similar known name, if one is similar enough.
pub(crate) fn closest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// The minimum similarity of a suggestion, from 0 to 1. It accepts `cutsomer_id` for
    /// `customer_id`, but not `page` for `name`.
    const MIN_SIMILARITY: f64 = 0.6;
    /// Longer names, in bytes, get no suggestion: the comparison takes quadratic time.
    const MAX_LENGTH: usize = 100;
    if name.len() > MAX_LENGTH {
        return None;
    }
    let name = name.to_lowercase();
    known
        .map(|candidate| (strsim::normalized_damerau_levenshtein(&name, candidate), candidate))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// `text` with its first letter in upper case.
pub(crate) fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// A number with its noun: `1 row`, `5,000 rows`.
pub(crate) fn count(number: impl ToString, noun: &str) -> String {
    let number = grouped(number);
    let ending = if number == "1" { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

/// A number with commas between groups of three digits.
pub(crate) fn grouped(number: impl ToString) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
