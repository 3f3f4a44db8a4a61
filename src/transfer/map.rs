//! The map of a file (contract section 10, `--map`): the fields of its headings, the values of its
//! words, and its formats.

use std::collections::{HashMap, HashSet};

use encoding_rs::Encoding;
use serde::Deserialize;
use toml::Spanned;

use super::columns::{AmountForm, Columns};
use super::csv::without_midnight;
use crate::model::Resource;
use crate::model::validation::{
    CUSTOM_NAME_RULE, CUSTOM_PREFIX, custom_name_in, is_custom_name, is_date, shorten,
};
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
    /// The custom fields that have dates.
    custom_dates: HashSet<String>,
    pub(super) amounts: AmountForm,
    pub(super) delimiter: Option<char>,
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
    formats: MapFormats,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum OtherColumns {
    Ignore,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MapFormats {
    date: Option<Spanned<Dates>>,
    custom_dates: Vec<Spanned<String>>,
    decimal: Option<Decimal>,
    thousands: Option<Thousands>,
    delimiter: Option<Spanned<String>>,
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

#[derive(Deserialize)]
enum Thousands {
    #[serde(rename = " ")]
    Space,
    #[serde(rename = ",")]
    Comma,
    #[serde(rename = ".")]
    Point,
    #[serde(rename = "'")]
    Apostrophe,
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
            if columns.is_known(name) || custom_name_in(name).is_some() {
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
        map.set_formats(document.formats, &located)?;
        Ok(map)
    }

    fn set_formats(
        &mut self,
        formats: MapFormats,
        located: &dyn Fn(usize, &str) -> String,
    ) -> Result<(), String> {
        let MapFormats { date, custom_dates, decimal, thousands, delimiter, encoding } = formats;
        if let Some(date) = date {
            let at = date.span().start;
            self.dates = match date.into_inner() {
                Dates::One(form) => vec![form],
                Dates::Several(forms) => forms,
            };
            if !self.dates.iter().all(|form| is_date_form(form)) {
                return Err(located(at, DATE_FORM));
            }
        }
        for name in custom_dates {
            let at = name.span().start;
            let name = name.into_inner();
            let name = name.strip_prefix(CUSTOM_PREFIX).unwrap_or(&name);
            if !is_custom_name(name) {
                return Err(located(at, CUSTOM_NAME_RULE));
            }
            self.custom_dates.insert(format!("{CUSTOM_PREFIX}{name}"));
        }
        self.amounts.decimal = decimal.map(|sign| match sign {
            Decimal::Comma => ',',
            Decimal::Point => '.',
        });
        self.amounts.thousands = thousands.map(|sign| match sign {
            Thousands::Space => ' ',
            Thousands::Comma => ',',
            Thousands::Point => '.',
            Thousands::Apostrophe => '\'',
        });
        if let Some(delimiter) = delimiter {
            let mut letters = delimiter.get_ref().chars();
            self.delimiter = match (letters.next(), letters.next()) {
                (Some(letter), None) if !letter.is_alphanumeric() && letter != '"' => Some(letter),
                _ => return Err(located(delimiter.span().start, DELIMITER)),
            };
        }
        if let Some(label) = encoding {
            self.encoding = Encoding::for_label(label.get_ref().as_bytes());
            if self.encoding.is_none() {
                let (at, label) = (label.span().start, label.get_ref());
                return Err(located(at, &format!("Unknown encoding {label:?}. {ENCODINGS}")));
            }
        }
        Ok(())
    }

    /// The value that a word of the file stands for, else the word itself.
    pub(super) fn translate(&self, field: &str, word: String) -> String {
        let value = self.words.get(field).and_then(|words| words.get(word.trim()));
        value.cloned().unwrap_or(word)
    }

    /// Whether the map says that this custom field has dates.
    pub(super) fn has_dates(&self, name: &str) -> bool {
        self.custom_dates.contains(name)
    }

    /// The date in the form `YYYY-MM-DD`, or the message about a text of no known form.
    pub(super) fn date(&self, name: &str, text: &str) -> Result<String, String> {
        let date = without_midnight(text.trim());
        let by_map = self.dates.iter().find_map(|form| parse_date(date, form));
        if let Some(date) = by_map.or_else(|| is_date(date).then(|| date.to_owned())) {
            return Ok(date);
        }
        let forms = self.dates.iter().map(String::as_str).filter(|form| *form != "YYYY-MM-DD");
        let forms: Vec<&str> = forms.chain(["YYYY-MM-DD"]).collect();
        let mut message =
            format!("\"{name}\" was {:?}; write it as {}.", shorten(text), forms.join(" or "));
        if date.contains(':') {
            message += " A date has no time: format the cell as a date, or leave the column out.";
        }
        Err(message)
    }
}

const DATE_FORM: &str = "\"date\" has a day, a month and a year, such as \"DD.MM.YYYY\", \
                         \"MM/DD/YY\", \"YYYY-MM-DD\", \"D. MMMM YYYY\" or \"MMMM YYYY\".";
const DELIMITER: &str = "\"delimiter\" is one sign, such as \";\" or \"\\t\".";
const ENCODINGS: &str = "Example: \"windows-1252\". Convert a file in a DOS code page first: \
                         iconv -f CP850 -t UTF-8 FILE > NEW";

fn is_date_form(form: &str) -> bool {
    let mut units: Vec<char> = parts(form).map(|(letter, _)| letter).collect();
    units.sort_unstable();
    units.retain(|letter| letter.is_ascii_alphabetic());
    let names_month = parts(form).any(|(letter, length)| letter == 'M' && length > 2);
    let has_lengths = parts(form).all(|(letter, length)| match letter {
        'Y' => matches!(length, 2 | 4),
        'D' => length <= 2,
        'M' => length <= 4,
        letter => !letter.is_alphanumeric(),
    });
    has_lengths && (units == ['D', 'M', 'Y'] || names_month && units == ['M', 'Y'])
}

/// The runs of equal letters in a form of dates, each with its length.
fn parts(form: &str) -> impl Iterator<Item = (char, usize)> {
    form.as_bytes()
        .chunk_by(|a, b| a == b)
        .map(|run| (char::from(run.first().copied().unwrap_or_default()), run.len()))
}

/// Converts a date of the form `form`, such as `DD.MM.YYYY`, to `YYYY-MM-DD`. Days and months may
/// have one digit. A year has two or four digits: `69` is 1969, and `68` is 2068. Without a day, the
/// date is the first of the month.
pub(super) fn parse_date(text: &str, form: &str) -> Option<String> {
    let (mut year, mut month, mut day) = (0, 0, 1);
    let mut rest = text;
    let mut parts = parts(form).peekable();
    while let Some((letter, length)) = parts.next() {
        if !letter.is_ascii_alphabetic() {
            rest = rest.strip_prefix(&letter.to_string().repeat(length))?;
            continue;
        }
        if letter == 'M' && length > 2 {
            let end = rest.find(|letter: char| !letter.is_alphabetic()).unwrap_or(rest.len());
            let (name, after) = rest.split_at_checked(end)?;
            month = month_of(name)?;
            rest = after.strip_prefix('.').unwrap_or(after);
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

/// The number of a month by its name in English or German, or by at least three of its first
/// letters.
fn month_of(name: &str) -> Option<u32> {
    const MONTHS: [&str; 12] = [
        "january januar jänner",
        "february februar feber",
        "march märz maerz mrz",
        "april",
        "may mai",
        "june juni",
        "july juli",
        "august",
        "september",
        "october oktober",
        "november",
        "december dezember",
    ];
    let name = name.to_lowercase();
    let is_month = |names: &&str| names.split(' ').any(|month| month.starts_with(&name));
    let index = MONTHS.iter().position(is_month)?;
    (name.chars().count() >= 3).then_some(index as u32 + 1)
}
