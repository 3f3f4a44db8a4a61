//! The map of a file (contract section 10, `--map`): the fields of its headings, the values of its
//! words, and its formats.

use std::collections::HashMap;

use encoding_rs::Encoding;
use serde::Deserialize;
use toml::Spanned;

use super::columns::Columns;
use crate::model::Resource;
use crate::model::custom::name_in;
use crate::model::validation::is_date;
use crate::words;

#[derive(Debug, Default)]
pub struct Map {
    /// The field of each heading. An empty name leaves the column out.
    pub(super) columns: Words,
    /// Unknown columns are left out.
    pub(super) ignores_others: bool,
    /// The values of words, for each field.
    words: HashMap<String, Words>,
    dates: Vec<String>,
    pub(super) decimal: Option<char>,
    pub(super) encoding: Option<&'static Encoding>,
}

type Words = HashMap<String, String>;

/// A map as TOML has it.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Document {
    other_columns: Option<OtherColumns>,
    columns: HashMap<String, Spanned<String>>,
    values: HashMap<String, Spanned<Words>>,
    formats: Formats,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum OtherColumns {
    Ignore,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Formats {
    date: Option<Spanned<Dates>>,
    decimal: Option<Decimal>,
    encoding: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "the form of a date is a text, or an array of texts")]
enum Dates {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
enum Decimal {
    #[serde(rename = ",")]
    Comma,
    #[serde(rename = ".")]
    Point,
}

impl Map {
    /// A map that gives only the encoding.
    pub fn of_encoding(encoding: Option<&'static Encoding>) -> Map {
        Map { encoding, ..Map::default() }
    }

    /// Reads a map for files of `resource`. The error names the line.
    pub fn parse(text: &str, resource: &'static Resource) -> Result<Map, String> {
        let located = |start: usize, message: &str| {
            let line = text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1;
            format!("line {line}: {}", words::capitalize(message))
        };
        let document: Document = toml::from_str(text)
            .map_err(|error| located(error.span().map_or(0, |span| span.start), error.message()))?;
        let nothing = Map::default();
        let columns = Columns::of(resource, &nothing);
        let check_field = |name: &str, at: usize| {
            if columns.is_known(name) || name_in(name).is_some() {
                return Ok(());
            }
            let known = columns.names.iter().map(String::as_str).chain(["custom.NAME"]);
            Err(located(at, &words::unknown("field", name, known)))
        };
        let mut map = Map { ignores_others: document.other_columns.is_some(), ..Map::default() };
        for (heading, field) in document.columns {
            if !field.get_ref().is_empty() {
                check_field(field.get_ref(), field.span().start)?;
            }
            map.columns.insert(heading.trim().to_owned(), field.into_inner());
        }
        for (field, values) in document.values {
            check_field(&field, values.span().start)?;
            let words = values.into_inner().into_iter();
            let words = words.map(|(word, value)| (word.trim().to_owned(), value));
            map.words.insert(field, words.collect());
        }
        let Formats { date, decimal, encoding } = document.formats;
        if let Some(date) = date {
            let at = date.span().start;
            map.dates = match date.into_inner() {
                Dates::One(form) => vec![form],
                Dates::Several(forms) => forms,
            };
            if !map.dates.iter().all(|form| is_date_form(form)) {
                return Err(located(at, DATE_FORM));
            }
        }
        map.decimal = decimal.map(|sign| match sign {
            Decimal::Comma => ',',
            Decimal::Point => '.',
        });
        if let Some(label) = encoding {
            map.encoding = Encoding::for_label(label.get_ref().as_bytes());
            if map.encoding.is_none() {
                let (at, label) = (label.span().start, label.get_ref());
                let message = format!("Unknown encoding {label:?}. Example: \"windows-1252\".");
                return Err(located(at, &message));
            }
        }
        Ok(map)
    }

    /// The value that a word of the file stands for, else the word itself.
    pub(super) fn translate(&self, field: &str, word: String) -> String {
        let value = self.words.get(field).and_then(|words| words.get(word.trim()));
        value.cloned().unwrap_or(word)
    }

    /// The date in the form `YYYY-MM-DD`. A text of no known form remains as it is.
    pub(super) fn date(&self, text: String) -> String {
        self.dates.iter().find_map(|form| parse_date(text.trim(), form)).unwrap_or(text)
    }
}

const DATE_FORM: &str = "\"date\" has a day, a month and a year, such as \"DD.MM.YYYY\", \
                         \"MM/DD/YY\" or \"YYYY-MM-DD\".";

fn is_date_form(form: &str) -> bool {
    let mut units: Vec<char> = parts(form).map(|(letter, _)| letter).collect();
    units.sort_unstable();
    units.retain(|letter| letter.is_ascii_alphabetic());
    let has_lengths = parts(form).all(|(letter, length)| match letter {
        'Y' => matches!(length, 2 | 4),
        'D' | 'M' => length <= 2,
        letter => !letter.is_alphanumeric(),
    });
    units == ['D', 'M', 'Y'] && has_lengths
}

/// The runs of equal letters in a form of dates, each with its length.
fn parts(form: &str) -> impl Iterator<Item = (char, usize)> {
    form.as_bytes()
        .chunk_by(|a, b| a == b)
        .map(|run| (char::from(run.first().copied().unwrap_or_default()), run.len()))
}

/// Converts a date of the form `form`, such as `DD.MM.YYYY`, to `YYYY-MM-DD`. Days and months may
/// have one digit. A year has two or four digits: `69` is 1969, and `68` is 2068.
pub(super) fn parse_date(text: &str, form: &str) -> Option<String> {
    let (mut year, mut month, mut day) = (0, 0, 0);
    let mut rest = text;
    let mut parts = parts(form).peekable();
    while let Some((letter, length)) = parts.next() {
        if !letter.is_ascii_alphabetic() {
            rest = rest.strip_prefix(&letter.to_string().repeat(length))?;
            continue;
        }
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let end = end.min(match (letter, parts.peek()) {
            // Nothing separates the digits from the next ones.
            (_, Some((next, _))) if next.is_ascii_alphabetic() => length,
            ('Y', _) => 4,
            _ => 2,
        });
        let (digits, after) = rest.split_at_checked(end)?;
        let number: u32 = digits.parse().ok()?;
        match (letter, digits.len()) {
            ('Y', 2) => year = if number > 68 { 1900 + number } else { 2000 + number },
            ('Y', 4) => year = number,
            ('M', 1 | 2) => month = number,
            ('D', 1 | 2) => day = number,
            _ => return None,
        }
        rest = after;
    }
    let date = format!("{year:04}-{month:02}-{day:02}");
    (rest.is_empty() && is_date(&date)).then_some(date)
}
