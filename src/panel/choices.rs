//! The choices of time in the forms: the end of a new key, and the end of a key that is replaced
//! (contract section 14).

use jiff::Span;

use crate::clock::{Moment, Timestamp};
use crate::model::validation::is_date;

/// When a new key ends: values and labels.
pub(super) const ENDS: [(&str, &str); 5] = [
    ("never", "Never"),
    ("30d", "In 30 days"),
    ("90d", "In 90 days"),
    ("1y", "In a year"),
    ("date", "On a date"),
];

/// How long a replaced key is still accepted: values and labels.
pub(super) const OVERLAPS: [(&str, &str); 4] =
    [("0", "At once"), ("1h", "In an hour"), ("1d", "In a day"), ("7d", "In a week")];

/// The end of a key that is created at `now`; `None` for a key without an end. `date` is the other
/// field of the form.
///
/// # Errors
///
/// The fault and the remedy, for the user.
pub(super) fn end(
    choice: &str,
    date: &str,
    now: Moment,
) -> Result<Option<Timestamp>, &'static str> {
    if choice != "date" && !date.is_empty() {
        return Err("Select “On a date”, or leave the date empty.");
    }
    let end = match choice {
        "" | "never" => return Ok(None),
        "date" if !is_date(date) => return Err("Enter a date."),
        "date" => Timestamp::end_of_day(date),
        "30d" | "90d" | "1y" => choice.parse().ok().and_then(|span| now.after(span)),
        _ => return Err("Select one of these."),
    };
    match end {
        None => Err("This end is too far away."),
        Some(end) if end <= now.timestamp() => Err("This date is in the past."),
        Some(end) => Ok(Some(end)),
    }
}

/// The overlap of a form, if it is one of [`OVERLAPS`].
pub(super) fn overlap(choice: &str) -> Option<Span> {
    match choice {
        "0" => Some(Span::new()),
        "1h" | "1d" | "7d" => choice.parse().ok(),
        _ => None,
    }
}
