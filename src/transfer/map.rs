//! The map of a file (contract section 10, `--map`): the fields of its headings, the values of its
//! words, and its formats.

use std::collections::HashMap;

use encoding_rs::Encoding;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::columns::Columns;
use crate::model::Resource;
use crate::model::custom::name_in;
use crate::model::validation::is_date;
use crate::words;

#[derive(Debug, Default)]
pub struct Map {
    /// The field of each heading. An empty name leaves the column out.
    pub(super) columns: HashMap<String, String>,
    /// Unknown columns are left out.
    pub(super) ignores_others: bool,
    /// The values of words, for each field.
    words: HashMap<String, HashMap<String, String>>,
    dates: Vec<String>,
    pub(super) decimal: Option<char>,
    pub(super) encoding: Option<&'static Encoding>,
}

/// What is wrong in a map, and the byte at which it stands.
type Fault = (usize, String);

const SECTIONS: [&str; 4] = ["other_columns", "columns", "values", "formats"];

impl Map {
    /// A map that gives only the encoding.
    pub fn of_encoding(encoding: Option<&'static Encoding>) -> Map {
        Map { encoding, ..Map::default() }
    }

    /// Reads a map for files of `resource`. The error names the line.
    pub fn parse(text: &str, resource: &'static Resource) -> Result<Map, String> {
        let located = |(start, message): Fault| {
            let line = text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1;
            format!("line {line}: {message}")
        };
        let document = DeTable::parse(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            located((start, words::capitalize(error.message())))
        })?;
        let mut map = Map::default();
        map.read(document.get_ref(), resource).map_err(located)?;
        Ok(map)
    }

    fn read(&mut self, document: &DeTable<'_>, resource: &'static Resource) -> Result<(), Fault> {
        let nothing = Map::default();
        let columns = Columns::of(resource, &nothing);
        let check_field = |name: &str, at: usize| {
            if columns.is_known(name) || name_in(name).is_some() {
                return Ok(());
            }
            let known = columns.names.iter().map(String::as_str).chain(["custom.NAME"]);
            Err((at, words::unknown("field", name, known)))
        };
        for (section, content) in document {
            let at = section.span().start;
            match (section.get_ref().as_ref(), content.get_ref()) {
                ("other_columns", DeValue::String(word)) if word == "ignore" => {
                    self.ignores_others = true;
                }
                ("other_columns", _) => {
                    return Err((at, "\"other_columns\" can only be \"ignore\".".to_owned()));
                }
                ("columns", DeValue::Table(entries)) => {
                    self.columns = words_of(entries)?;
                    for field in entries.values() {
                        let name = field.get_ref().as_str().unwrap_or_default();
                        if !name.is_empty() {
                            check_field(name, field.span().start)?;
                        }
                    }
                }
                ("values", DeValue::Table(fields)) => {
                    for (field, entries) in fields {
                        check_field(field.get_ref(), field.span().start)?;
                        let DeValue::Table(words) = entries.get_ref() else {
                            let message =
                                format!("[values.{}] must be a section.", field.get_ref());
                            return Err((entries.span().start, message));
                        };
                        self.words.insert(field.get_ref().to_string(), words_of(words)?);
                    }
                }
                ("formats", DeValue::Table(formats)) => {
                    for (name, value) in formats {
                        self.read_format(name, value)?;
                    }
                }
                (name, _) if SECTIONS.contains(&name) => {
                    return Err((at, format!("\"{name}\" must be a section: [{name}].")));
                }
                (name, _) => {
                    return Err((at, words::unknown("section", name, SECTIONS.into_iter())));
                }
            }
        }
        Ok(())
    }

    fn read_format(
        &mut self,
        name: &Spanned<DeString<'_>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), Fault> {
        let (start, at) = (name.span().start, value.span().start);
        match (name.get_ref().as_ref(), value.get_ref()) {
            ("date", DeValue::String(form)) => self.add_date_form(form, at),
            ("date", DeValue::Array(forms)) => {
                for form in forms.iter() {
                    self.add_date_form(form.get_ref().as_str().unwrap_or_default(), at)?;
                }
                Ok(())
            }
            ("decimal", DeValue::String(sign)) if matches!(sign.as_ref(), "," | ".") => {
                self.decimal = sign.chars().next();
                Ok(())
            }
            ("encoding", DeValue::String(label)) => {
                self.encoding = Encoding::for_label(label.as_bytes());
                let message = || format!("Unknown encoding {label:?}. Example: \"windows-1252\".");
                self.encoding.map(drop).ok_or_else(|| (at, message()))
            }
            ("date", _) => Err((at, DATE_FORM.to_owned())),
            ("decimal", _) => Err((at, "\"decimal\" must be \",\" or \".\".".to_owned())),
            ("encoding", _) => Err((at, "\"encoding\" must be a text.".to_owned())),
            (name, _) => {
                let known = ["date", "decimal", "encoding"].into_iter();
                Err((start, words::unknown("format", name, known)))
            }
        }
    }

    fn add_date_form(&mut self, form: &str, at: usize) -> Result<(), Fault> {
        let mut units: Vec<char> = parts(form).map(|(letter, _)| letter).collect();
        units.sort_unstable();
        units.retain(|letter| letter.is_ascii_alphabetic());
        let has_lengths = parts(form).all(|(letter, length)| match letter {
            'Y' => matches!(length, 2 | 4),
            'D' | 'M' => length <= 2,
            letter => !letter.is_alphanumeric(),
        });
        if units != ['D', 'M', 'Y'] || !has_lengths {
            return Err((at, DATE_FORM.to_owned()));
        }
        self.dates.push(form.to_owned());
        Ok(())
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

/// The entries of a section.
fn words_of(section: &DeTable<'_>) -> Result<HashMap<String, String>, Fault> {
    let mut words = HashMap::new();
    for (word, value) in section {
        let Some(text) = value.get_ref().as_str() else {
            let message = format!("The value of {:?} must be a text in quotes.", word.get_ref());
            return Err((value.span().start, message));
        };
        words.insert(word.get_ref().trim().to_owned(), text.to_owned());
    }
    Ok(words)
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
