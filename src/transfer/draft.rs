//! The draft of a map (contract section 10, `--draft-map`), made from the headings and the words of
//! a file.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use encoding_rs::Encoding;

use super::columns::{AmountForm, Columns, ReferenceColumn, cents_of};
use super::csv::without_midnight;
use super::map::parse_date;
use super::{Cell, InputFile, InputRow, Map, Place, TransferError, unsuitable};
use crate::model::validation::{custom_name_in, is_custom_name, is_date};
use crate::model::{self, Field, Kind, Resource};
use crate::words::{printable_json, similarity};

/// Returns a map for the file, as text. If `is_cut`, the source has only the start of the file.
pub fn draft(
    source: InputFile<'_>,
    map: &Map,
    resource: &'static Resource,
    is_cut: bool,
) -> Result<String, TransferError> {
    let columns = Columns::of(resource, map);
    let (headings, formats) = (Vec::new(), FormatGuess::default());
    let mut reader = DraftReader { columns: &columns, headings, formats, is_cut };
    source.read(&mut |place, row| reader.take_row(place, row))?;
    let DraftReader { mut headings, formats, .. } = reader;
    choose_references(&columns, &mut headings);
    headings.iter_mut().for_each(Heading::drop_unfit);
    if headings.is_empty() {
        return Err(unsuitable("the file is empty"));
    }
    let mut text = better_fit(resource, map, &headings);
    text += &format!(
        "# Correct this map. `tenantdesk fields {}` lists the fields. \"\" leaves a column out.\n\n\
         [columns]\n",
        resource.plural
    );
    let mut seen = BTreeSet::new();
    for heading in headings.iter().filter(|heading| !heading.text.is_empty()) {
        if seen.insert(&heading.text) {
            text += &heading.entry();
        } else {
            text +=
                &format!("# {} stands twice; rename one in the file\n", toml_text(&heading.text));
        }
    }
    for heading in &headings {
        text += &heading.section();
    }
    let formats = formats.lines(map.encoding, &headings);
    if !formats.is_empty() {
        text += &format!("\n[formats]\n{formats}");
    }
    Ok(text)
}

/// Lets the cells decide whether a column such as `Kunde` has numbers, addresses or names.
fn choose_references(columns: &Columns<'_>, headings: &mut [Heading]) {
    let better: Vec<_> = headings.iter().map(|one| better_reference(columns, one)).collect();
    let kept = headings.iter().zip(&better).filter(|(_, better)| better.is_none());
    let mut taken: Vec<String> = kept.map(|(heading, _)| heading.name.clone()).collect();
    for (heading, better) in headings.iter_mut().zip(better) {
        let Some(better) = better else { continue };
        if !taken.contains(better) {
            heading.name.clone_from(better);
            heading.fits = true;
        } else if taken.contains(&heading.name) {
            heading.name.clear();
        }
        taken.push(heading.name.clone());
    }
}

/// The column that fits the cells under `heading` better than that of its name.
fn better_reference<'c>(columns: &'c Columns<'_>, heading: &Heading) -> Option<&'c String> {
    let Heading { addresses, numbers, names, .. } = *heading;
    let column = columns.references.iter().find(|column| column.name == heading.name)?;
    let is_exact = columns.find(&heading.text).name.as_ref() == Some(&heading.name);
    if is_exact || addresses + numbers + names == 0 {
        return None;
    }
    let end = if names > addresses + numbers {
        "_name"
    } else if addresses > numbers {
        "_email"
    } else {
        "_number"
    };
    let is_better = |one: &&ReferenceColumn| one.field == column.field && one.name.ends_with(end);
    let better = columns.references.iter().find(is_better).map(|one| &one.name);
    better.filter(|name| **name != heading.name)
}

/// A comment if another resource has clearly more of the columns.
fn better_fit(resource: &'static Resource, map: &Map, own: &[Heading]) -> String {
    let count = |headings: &[Heading]| headings.iter().filter(|h| !h.name.is_empty()).count();
    let cells: Vec<Cell> = own.iter().map(|heading| Cell::Text(heading.text.clone())).collect();
    for other in model::ALL.into_iter().filter(|other| *other != resource) {
        let found = count(&headings(&Columns::of(other, map), &cells));
        if found >= count(own) + 2 {
            let (other, own) = (other.plural, resource.plural);
            return format!("# This file looks like {other}, not {own}.\n");
        }
    }
    String::new()
}

/// The forms of dates that a draft knows.
const DATE_FORMS: [&str; 9] = [
    "DD.MM.YYYY",
    "DD/MM/YYYY",
    "MM/DD/YYYY",
    "DD-MM-YYYY",
    "YYYY/MM/DD",
    "YYYY.MM.DD",
    "YYYYMMDD",
    "D. MMMM YYYY",
    "MMMM YYYY",
];

/// So many different words of a column are in the draft.
const MAX_WORDS: usize = 100;

/// A column of the file.
#[derive(Default)]
struct Heading {
    text: String,
    /// The most similar column, or nothing.
    name: String,
    field: Option<&'static Field>,
    /// The first value.
    example: String,
    words: BTreeSet<String>,
    /// A value is a date or an e-mail address, if the column has these.
    fits: bool,
    /// The values with an at sign, those with a digit, and the others.
    addresses: u64,
    numbers: u64,
    names: u64,
}

struct DraftReader<'a> {
    columns: &'a Columns<'a>,
    headings: Vec<Heading>,
    formats: FormatGuess,
    is_cut: bool,
}

impl DraftReader<'_> {
    fn take_row(
        &mut self,
        place: Place,
        row: Result<InputRow, String>,
    ) -> Result<bool, TransferError> {
        let cells = match row {
            Ok(InputRow::Cells(cells)) => cells,
            Ok(InputRow::Object(_)) => return Err(unsuitable("JSON Lines have no headings")),
            // The last row may end early.
            Err(_) if self.is_cut && !self.headings.is_empty() => return Ok(true),
            Err(message) => return Err(unsuitable(format!("{place}: {message}"))),
        };
        if self.headings.is_empty() {
            self.headings = headings(self.columns, &cells);
            return Ok(true);
        }
        let is_title = self.headings.iter().filter(|heading| !heading.text.is_empty()).count() == 1;
        if is_title && cells.iter().filter(|cell| !cell.text().is_empty()).count() > 1 {
            return Err(unsuitable(format!(
                "the first row has only one cell, but {place} has more; delete the rows above the \
                 header, such as a title"
            )));
        }
        for (heading, cell) in self.headings.iter_mut().zip(&cells) {
            heading.add(cell, &mut self.formats);
        }
        Ok(true)
    }
}

/// Finds the most similar column for each heading. Each field is found once.
fn headings(columns: &Columns<'_>, cells: &[Cell]) -> Vec<Heading> {
    let mut pairs = Vec::new();
    for (index, cell) in cells.iter().enumerate() {
        for name in &columns.names {
            let score = heading_score(columns, cell.text(), name);
            if score > 0.0 {
                pairs.push((score, index, name));
            }
        }
    }
    // A stable sort: of equal scores, the first heading and the first name win.
    pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut headings: Vec<Heading> = Vec::new();
    for cell in cells {
        let custom = columns.find(cell.text()).name.filter(|name| custom_name_in(name).is_some());
        let name = custom.unwrap_or_default();
        headings.push(Heading { text: cell.text().to_owned(), name, ..Heading::default() });
    }
    let mut set = Vec::new();
    for (score, index, name) in pairs {
        let field = columns.field_of(name);
        let Some(heading) = headings.get_mut(index).filter(|one| one.name.is_empty()) else {
            continue;
        };
        if !set.contains(&field) {
            set.push(field);
            heading.name.clone_from(name);
            heading.field = columns.resource.field(field);
        } else if score >= SAME_WORD
            && let Some(other) = columns.reference_name(name)
            && !set.contains(&other)
        {
            // `Kunde` beside `Kundennr.` has names.
            set.push(other);
            other.clone_into(&mut heading.name);
        }
    }
    headings
}

fn heading_score(columns: &Columns<'_>, heading: &str, name: &str) -> f64 {
    if columns.find(heading).name.as_deref() == Some(name) {
        return 3.0;
    }
    let own = format!("{}.{name}", columns.resource.plural);
    let mut score: f64 = 0.0;
    for (key, words) in synonyms(0) {
        if key == name || key == own {
            score = score.max(word_score(&simplify(heading), words));
        }
    }
    score.max(word_score(&simplify(heading), &simplify(name)))
}

/// Whether the text begins like the opposite of another word. Umlauts and spaces are left out.
fn is_negated(text: &str) -> bool {
    const NEGATIONS: [&str; 7] = ["ausser", "in", "kein", "nicht", "no", "ohne", "un"];
    NEGATIONS.iter().any(|start| text.starts_with(start))
}

/// The score of a word that is exactly the text.
const SAME_WORD: f64 = 2.0;

/// How similar `text` is to the most similar word; 0 if to none.
fn word_score(text: &str, words: &str) -> f64 {
    /// A shorter beginning says nothing.
    const MIN_BEGINNING: usize = 5;
    let mut best: f64 = 0.0;
    for word in words.split(' ') {
        let likeness = similarity(text, word);
        let score = if text == word {
            SAME_WORD
        } else if is_negated(text) != is_negated(word) {
            // "inaktiv" is not "aktiv".
            0.0
        } else if likeness >= 0.8 {
            likeness
        } else if word.len() >= MIN_BEGINNING && (text.starts_with(word) || text.ends_with(word)) {
            0.5 + 0.01 * word.len() as f64
        } else {
            0.0
        };
        best = best.max(score);
    }
    best
}

/// The text in lower case, without umlauts, spaces and punctuation.
fn simplify(text: &str) -> String {
    let mut folded = String::new();
    for letter in text.to_lowercase().chars() {
        match letter {
            'ä' => folded += "ae",
            'ö' => folded += "oe",
            'ü' => folded += "ue",
            'ß' => folded += "ss",
            letter => folded.extend(letter.is_alphanumeric().then_some(letter)),
        }
    }
    folded
}

fn is_bit(word: &str) -> bool {
    matches!(word.to_ascii_lowercase().as_str(), "true" | "false" | "1" | "0")
}

/// Whether a text is a number such as `K-1042`, and no name such as `Bau 2000 GmbH`.
fn is_number(text: &str) -> bool {
    let digits = text.chars().filter(char::is_ascii_digit).count();
    let letters = text.chars().filter(|letter| letter.is_alphabetic()).count();
    digits > 0 && (digits >= letters || !text.contains(' '))
}

/// The value that is most similar to a simplified word, or nothing.
fn closest_value<'v>(simple: &str, values: &[&'v str]) -> &'v str {
    let mut best = ("", 0.0);
    for value in values {
        let words = synonyms(1).find(|(known, _)| known == value).map_or("", |(_, words)| words);
        let score = word_score(simple, words).max(word_score(simple, &simplify(value)));
        if score > best.1 {
            best = (value, score);
        }
    }
    best.0
}

impl Heading {
    /// The values of the field, if it has few.
    fn values(&self) -> Vec<&'static str> {
        match self.field.map(|field| field.kind) {
            Some(Kind::Choice(values)) => values.to_vec(),
            Some(Kind::Boolean) => vec!["true", "false"],
            // A country.
            Some(Kind::Text { min: 2, max: 2 }) => {
                let values = synonyms(1).map(|(value, _)| value);
                values.filter(|value| value.starts_with(char::is_uppercase)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn add(&mut self, cell: &Cell, formats: &mut FormatGuess) {
        let text = cell.text();
        if text.is_empty() {
            return;
        }
        if self.example.is_empty() {
            text.clone_into(&mut self.example);
        }
        match text {
            text if text.contains('@') => self.addresses += 1,
            text if is_number(text) => self.numbers += 1,
            _ => self.names += 1,
        }
        // The cell may be a date with a time.
        let is_fault = matches!(cell, Cell::Fault(..));
        self.fits |= match self.field.map(|field| field.kind) {
            _ if self.name.ends_with("email") => text.contains('@'),
            Some(Kind::Date) => {
                let date = without_midnight(text);
                is_date(date) || formats.add_date(date) || is_fault
            }
            Some(Kind::Boolean) => {
                is_bit(text) || !closest_value(&simplify(text), &["true", "false"]).is_empty()
            }
            _ => true,
        };
        match self.field.map(|field| field.kind) {
            Some(Kind::Integer) if matches!(cell, Cell::Text(_)) => formats.add_amount(text),
            _ if !self.values().is_empty() && self.words.len() < MAX_WORDS => {
                self.words.insert(text.to_owned());
            }
            _ => {}
        }
    }

    /// Leaves the column out if all its values would be faults, such as names in place of e-mail
    /// addresses.
    fn drop_unfit(&mut self) {
        if !self.example.is_empty() && !self.fits {
            self.name.clear();
            self.field = None;
        }
    }

    /// The line in the section of columns.
    fn entry(&self) -> String {
        let (heading, name) = (toml_text(&self.text), toml_text(&self.name));
        if !self.name.is_empty() {
            return format!("{heading} = {name}\n");
        }
        let custom: Vec<String> =
            self.text.split(|letter: char| !letter.is_alphanumeric()).map(simplify).collect();
        let custom = custom.join("_").trim_matches('_').to_owned();
        let advice = if is_custom_name(&custom) {
            format!(" or \"custom.{custom}\":")
        } else {
            String::new()
        };
        format!("{heading} = \"\"  #{advice} {}\n", toml_text(&self.example))
    }

    /// The section of the words that are no values.
    fn section(&self) -> String {
        let values = self.values();
        let mut lines = String::new();
        for word in &self.words {
            let is_boolean = values.contains(&"true") && is_bit(word);
            let is_code = values.contains(&"DE") && word.chars().count() == 2;
            if values.contains(&word.as_str()) || is_boolean || is_code {
                continue;
            }
            lines += &match closest_value(&simplify(word), &values) {
                "" => {
                    format!("# {} = \"\"  # choose one of {}\n", toml_text(word), values.join(", "))
                }
                value => format!("{} = {}\n", toml_text(word), toml_text(value)),
            };
        }
        if lines.is_empty() { lines } else { format!("\n[values.{}]\n{lines}", self.name) }
    }
}

/// What the cells tell about the formats of the file.
#[derive(Default)]
struct FormatGuess {
    /// How many dates can be read by each of [`DATE_FORMS`].
    dates: [u64; DATE_FORMS.len()],
    /// How many amounts need a decimal comma, and how many exclude it.
    commas: u64,
    points: u64,
    /// How many amounts have spaces between their digits.
    spaces: u64,
}

impl FormatGuess {
    /// Returns whether a form fits.
    fn add_date(&mut self, text: &str) -> bool {
        let mut fits = false;
        for (count, form) in self.dates.iter_mut().zip(DATE_FORMS) {
            if parse_date(text, form).is_some() {
                *count += 1;
                fits = true;
            }
        }
        fits
    }

    fn add_amount(&mut self, text: &str) {
        let amount = |decimal, thousands| cents_of(text, AmountForm { decimal, thousands });
        let is_spaced = amount(None, None).or(amount(Some(','), None)).is_none();
        let thousands = is_spaced.then_some(' ');
        let (comma, plain) = (amount(Some(','), thousands), amount(None, thousands));
        self.spaces += u64::from(is_spaced && comma.or(plain).is_some());
        self.commas += u64::from(comma.is_some() && plain.is_none());
        self.points += u64::from(comma.is_none() && plain.is_some());
    }

    /// The lines in the section of formats.
    fn lines(&self, encoding: Option<&'static Encoding>, headings: &[Heading]) -> String {
        let mut forms: Vec<(u64, &str)> = self.dates.into_iter().zip(DATE_FORMS).collect();
        forms.retain(|(count, _)| *count > 0);
        // A stable sort: of equal counts, the earlier form wins.
        forms.sort_by_key(|(count, _)| Reverse(*count));
        // Of the forms with the same separator, the one that reads most of the dates. The others can
        // read the same texts as other dates.
        let separator = |form: &str| match form.contains("MMMM") {
            true => form.chars().next(),
            false => form.chars().find(|letter| !letter.is_alphabetic()),
        };
        let mut chosen: Vec<&str> = Vec::new();
        for (_, form) in forms {
            if chosen.iter().all(|earlier| separator(earlier) != separator(form)) {
                chosen.push(form);
            }
        }
        let [_, day_first, month_first, ..] = self.dates;
        let is_end = |heading: &Heading| heading.name.ends_with("_until");
        let mut advice = String::new();
        if day_first > 0 && day_first == month_first {
            advice += "  # or months before days: \"MM/DD/YYYY\"";
        }
        if chosen.contains(&"MMMM YYYY") && headings.iter().any(is_end) {
            advice += "  # a month is its first day, also at the end of a warranty or lease";
        }
        let chosen: Vec<String> = chosen.into_iter().map(toml_text).collect();
        let mut lines = match chosen.as_slice() {
            [] => String::new(),
            [form] => format!("date = {form}{advice}\n"),
            forms => format!("date = [{}]{advice}\n", forms.join(", ")),
        };
        if self.commas > self.points {
            lines += "decimal = \",\"\n";
        }
        if self.spaces > 0 {
            lines += "thousands = \" \"\n";
        }
        if let Some(encoding) = encoding {
            lines += &format!("encoding = \"{}\"\n", encoding.name().to_ascii_lowercase());
        }
        lines
    }
}

/// A text as TOML has it.
fn toml_text(text: &str) -> String {
    printable_json(&serde_json::to_string(text).unwrap_or_default())
}

/// English and German words for columns, and after an empty line for values, as [`simplify`] writes
/// them.
const SYNONYMS: &str = include_str!("synonyms.txt");

/// The names and the words of the table `index`.
fn synonyms(index: usize) -> impl Iterator<Item = (&'static str, &'static str)> {
    let table = SYNONYMS.split("\n\n").nth(index).unwrap_or_default();
    table.lines().filter_map(|line| line.split_once(": "))
}
