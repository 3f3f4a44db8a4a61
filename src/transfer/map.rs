//! The map of a file (contract section 10, `--map`): the fields of its headings, the values of its
//! words, and its formats.

use std::collections::{HashMap, HashSet};

use encoding_rs::Encoding;
use jiff::fmt::strtime::BrokenDownTime;
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
    decimal: Option<Spanned<char>>,
    thousands: Option<Spanned<char>>,
    delimiter: Option<Spanned<char>>,
    encoding: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "the form of a date is a text, or an array of texts")]
enum Dates {
    One(String),
    Several(Vec<String>),
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
            if !self.dates.iter().all(|form| directives(form).is_some()) {
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
        let sign =
            |sent: Option<Spanned<char>>, is_allowed: fn(char) -> bool, rule: &str| match sent {
                Some(sign) if !is_allowed(*sign.get_ref()) => Err(located(sign.span().start, rule)),
                sign => Ok(sign.map(Spanned::into_inner)),
            };
        self.amounts.decimal = sign(decimal, |sign| ",.".contains(sign), DECIMAL)?;
        self.amounts.thousands = sign(thousands, |sign| " ,.'".contains(sign), THOUSANDS)?;
        let separates = |sign: char| !sign.is_alphanumeric() && sign != '"';
        self.delimiter = sign(delimiter, separates, DELIMITER)?;
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

    pub(super) fn has_words(&self, field: &str) -> bool {
        self.words.contains_key(field)
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
            message += " A date has no time: remove the time, or leave the column out.";
        }
        Err(message)
    }
}

const DATE_FORM: &str = "\"date\" has a day, a month and a year, such as \"DD.MM.YYYY\", \
                         \"MM/DD/YY\", \"YYYY-MM-DD\", \"D. MMMM YYYY\" or \"MMMM YYYY\".";
const DECIMAL: &str = "\"decimal\" is \",\" or \".\".";
const THOUSANDS: &str = "\"thousands\" is a space, or one of , . '.";
const DELIMITER: &str = "\"delimiter\" is one sign, such as \";\" or \"\\t\".";
const ENCODINGS: &str = "Example: \"windows-1252\". Convert a file in a DOS code page first: \
                         iconv -f CP850 -t UTF-8 FILE > NEW";

/// The form as `strptime` has it, or `None` if it is none of a date. Example: `DD.MM.YYYY` is
/// `%d.%m.%Y`.
fn directives(form: &str) -> Option<String> {
    let letters: Vec<char> = form.chars().collect();
    let mut runs = letters.chunk_by(|a, b| a == b).peekable();
    let (mut directives, mut units) = (String::new(), Vec::new());
    while let Some(run) = runs.next() {
        let [letter, ..] = *run else { continue };
        let is_joined = runs.peek().is_some_and(|next| next.iter().all(char::is_ascii_alphabetic));
        let (unit, directive) = match (letter, run.len()) {
            ('D', 1 | 2) => ('D', "%d"),
            ('M', 1 | 2) => ('M', "%m"),
            ('M', 3 | 4) => ('N', "%b"),
            ('Y', 2) if is_joined => ('Y', "%y"),
            // With two or four digits.
            ('Y', 2 | 4) => ('Y', "%Y"),
            (letter, _) if letter.is_alphanumeric() || letter == '%' => return None,
            _ => {
                directives.extend(run);
                continue;
            }
        };
        units.push(unit);
        directives += directive;
    }
    units.sort_unstable();
    let is_date = matches!(*units, ['D', 'M' | 'N', 'Y'] | ['N', 'Y']);
    is_date.then_some(directives)
}

/// Converts a date of the form `form`, such as `DD.MM.YYYY`, to `YYYY-MM-DD`. Days and months may
/// have one digit. A year has two or four digits: `69` is 1969, and `68` is 2068. Without a day, the
/// date is the first of the month.
pub(super) fn parse_date(text: &str, form: &str) -> Option<String> {
    let time = BrokenDownTime::parse(directives(form)?, with_english_month(text)?).ok()?;
    let year = match time.year()? {
        year @ 0..=68 => 2000 + year,
        year @ 69..=99 => 1900 + year,
        year @ 1000.. => year,
        _ => return None,
    };
    let date = format!("{year}-{:02}-{:02}", time.month()?, time.day().unwrap_or(1));
    is_date(&date).then_some(date)
}

/// The text with the English abbreviation in place of the name of a month.
fn with_english_month(text: &str) -> Option<String> {
    let Some(start) = text.find(char::is_alphabetic) else { return Some(text.to_owned()) };
    let (before, name) = text.split_at(start);
    let end = name.find(|letter: char| !letter.is_alphabetic()).unwrap_or(name.len());
    let (name, after) = name.split_at(end);
    Some(format!("{before}{}{}", month_of(name)?, after.strip_prefix('.').unwrap_or(after)))
}

/// The English abbreviation of a month, by its name in English or German or at least three of the
/// first letters.
fn month_of(name: &str) -> Option<&'static str> {
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
    let is_month = |names: &&&str| names.split(' ').any(|month| month.starts_with(&name));
    let names = MONTHS.iter().find(is_month).filter(|_| name.chars().count() >= 3)?;
    names.get(..3)
}
