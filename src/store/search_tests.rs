//! What a search finds, compared with a look at every text.

use std::collections::BTreeMap;

use rusqlite::Connection;
use uuid::Uuid;

use super::records::{self, KeyLabel, Origin, Reading, Writing, fold};
use super::schema;
use super::tenants::SCHEMA;
use crate::api::list::sortable;
use crate::clock::Clock;
use crate::model::{CUSTOMER, Column, Field, ListQuery, Predicate, Value};

/// Words of decreasing frequency.
const WORDS: [&str; 24] = [
    "with",
    "the",
    "Station",
    "with,",
    "charger",
    "Straße",
    "it's",
    "语言",
    "A-1",
    "é",
    "x",
    "+49",
    "under_score",
    "say\"",
    "🦀🦀",
    "ОФИС",
    "ab",
    "100%",
    "of\u{1}fice",
    "a\\b",
    "q",
    "(paren)",
    "ﬁnal",
    "-",
];

/// A xorshift generator: the same records in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }

    /// A frequent word, or one that hardly another record has.
    fn word(&mut self) -> String {
        if self.below(4) == 0 {
            return format!("S{:x}-{}", self.below(1 << 20), self.below(1_000));
        }
        let (one, other) = (self.below(WORDS.len()), self.below(WORDS.len()));
        WORDS[one.min(other)].to_owned()
    }

    fn words(&mut self) -> String {
        let count = 1 + self.below(12);
        (0..count).map(|_| self.word()).collect::<Vec<_>>().join([" ", "\n", "\u{3000}"][count % 3])
    }

    /// A few neighbouring letters of a word.
    fn part(&mut self) -> String {
        let word: Vec<char> = self.word().chars().collect();
        let start = self.below(word.len());
        let length = 1 + self.below(word.len() - start);
        word.iter().skip(start).take(length).collect()
    }
}

fn field(name: &str) -> &'static Field {
    CUSTOMER.fields.iter().find(|field| field.name == name).unwrap()
}

fn values(name: &str, notes: &str, status: &str) -> Vec<Value> {
    let text = |field: &Field| match field.name {
        "name" => Some(name),
        "notes" => Some(notes),
        "status" => Some(status),
        _ => None,
    };
    let value = |field: &Field| text(field).map_or_else(|| field.default_value(), |text| Value::Text(text.to_owned()));
    CUSTOMER.fields.iter().map(value).collect()
}

/// Customers, as the file has them and as they should be: name, notes, status.
struct Customers {
    _folder: tempfile::TempDir,
    connection: Connection,
    expected: BTreeMap<i64, [String; 3]>,
    origin: Origin,
}

impl Customers {
    fn new() -> Customers {
        let folder = tempfile::tempdir().unwrap();
        let connection = schema::create(&folder.path().join("1.db"), &SCHEMA).unwrap();
        connection.pragma_update(None, "synchronous", "OFF").unwrap();
        let key = KeyLabel { id: 1, name: "key".to_owned(), prefix: "tdk_abcd".to_owned() };
        let origin = Origin::new(Clock::system().now(), key, Uuid::nil());
        Customers { _folder: folder, connection, expected: BTreeMap::new(), origin }
    }

    fn in_transaction(&mut self, work: impl FnOnce(&Writing<'_>, &Origin, &mut BTreeMap<i64, [String; 3]>)) {
        let transaction = self.connection.unchecked_transaction().unwrap();
        let writing = Writing::new(&transaction);
        work(&writing, &self.origin, &mut self.expected);
        writing.finish_search().unwrap();
        writing.finish_journal(None).unwrap();
        transaction.commit().unwrap();
    }

    fn add(&mut self, random: &mut Random, count: usize) {
        self.in_transaction(|writing, origin, expected| {
            for _ in 0..count {
                let status = ["active", "prospect"][random.below(2)];
                let record = [random.words(), random.words(), status.to_owned()];
                let values = values(&record[0], &record[1], &record[2]);
                let id = writing.insert(&CUSTOMER, values, origin).unwrap().id;
                expected.insert(id, record);
            }
        });
    }

    /// Deletes one of a few records and changes the others.
    fn change(&mut self, random: &mut Random) {
        let ids: Vec<i64> = self.expected.keys().copied().collect();
        self.in_transaction(|writing, origin, expected| {
            for _ in 0..1 + random.below(5) {
                let id = ids[random.below(ids.len())];
                let Some([_, notes, _]) = expected.get_mut(&id) else { continue };
                if random.below(4) == 0 {
                    writing.delete(&CUSTOMER, id, origin).unwrap();
                    expected.remove(&id);
                } else {
                    *notes = random.words();
                    let change = [(field("notes"), Value::Text(notes.clone()))];
                    writing.update(&CUSTOMER, id, &change, origin).unwrap().unwrap();
                }
            }
        });
    }

    /// The ids of the records that should be found, in the order of the list.
    fn expected(&self, list: &ListQuery) -> Vec<i64> {
        let words: Vec<String> = list.words.iter().map(|word| fold(word)).collect();
        let has_words = |[name, notes, _]: &[String; 3]| {
            let text = format!("{}\n{}", fold(name), fold(notes));
            words.iter().all(|word| text.contains(word.as_str()))
        };
        let is_active = |status: &str| list.filters.is_empty() || status == "active";
        let found = self.expected.iter().filter(|(_, record)| has_words(record) && is_active(&record[2]));
        let mut found: Vec<(&str, i64)> =
            found.map(|(id, [name, ..])| (if list.sort == Column::Id { "" } else { name.as_str() }, *id)).collect();
        found.sort_unstable();
        if list.descending {
            found.reverse();
        }
        found.into_iter().map(|(_, id)| id).collect()
    }

    /// The ids on all pages. Each page has the same total.
    fn found(&self, mut list: ListQuery, total: usize) -> Vec<i64> {
        let mut ids = Vec::new();
        loop {
            let page = Reading::new(&self.connection).page(&list).unwrap();
            assert_eq!(page.total, Some(i64::try_from(total).unwrap()), "{list:?}");
            let records: Vec<serde_json::Value> = serde_json::from_slice(&page.json).unwrap();
            ids.extend(records.iter().map(|record| record["id"].as_i64().unwrap()));
            list.after = page.next;
            if list.after.is_none() {
                return ids;
            }
        }
    }

    fn compare(&self, random: &mut Random, words: Vec<String>) {
        let name = sortable(&CUSTOMER).find(|column| column.name() == "name").unwrap();
        let status = sortable(&CUSTOMER).find(|column| column.name() == "status").unwrap();
        let is_active = (status, Predicate::Equals(Value::Text("active".to_owned())));
        let list = ListQuery {
            resource: &CUSTOMER,
            sort: [Column::Id, name][random.below(2)],
            descending: random.below(2) == 0,
            filters: if random.below(3) == 0 { vec![is_active] } else { Vec::new() },
            words,
            limit: 400,
            after: None,
            total: true,
        };
        let expected = self.expected(&list);
        assert_eq!(self.found(list.clone(), expected.len()), expected, "{list:?}");
    }

    fn frequent_words(&self) -> i64 {
        self.connection.query_row("SELECT count(*) FROM frequent_words", [], |row| row.get(0)).unwrap()
    }
}

#[test]
fn a_search_finds_what_a_look_at_every_text_finds() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut customers = Customers::new();
    while customers.expected.len() < 1_200 {
        let count = [1, 7, 100][random.below(3)];
        customers.add(&mut random, count);
        if random.below(4) == 0 {
            customers.change(&mut random);
        }
    }
    assert!(customers.frequent_words() > 20, "words are learned on the way");
    (0..100).for_each(|_| customers.change(&mut random));
    assert_eq!(records::damaged_search(&customers.connection).unwrap(), [""; 0]);
    for _ in 0..200 {
        let count = [1, 1, 1, 2, 3][random.below(5)];
        let words = (0..count).map(|_| random.part()).collect();
        customers.compare(&mut random, words);
    }
    for nothing in ["ж", "zz", "\0", "withal", "s\0", "\u{2002}d"] {
        customers.compare(&mut random, vec![nothing.to_owned()]);
    }
}

#[test]
fn words_of_any_length_are_found_by_each_of_their_parts() {
    let mut random = Random(7);
    let mut customers = Customers::new();
    customers.add(&mut random, 20);
    let long: String = (0..65_000_u64).map(|n| char::from(b'a' + (n * n % 26) as u8)).collect();
    let texts = [long.clone(), format!("{}!{}", &long[..32_500], &long[32_500..]), "🦀".repeat(9_000)];
    customers.in_transaction(|writing, origin, expected| {
        for text in &texts {
            let record = ["Long".to_owned(), format!("before {text} after"), "active".to_owned()];
            let id = writing.insert(&CUSTOMER, values(&record[0], &record[1], &record[2]), origin).unwrap().id;
            expected.insert(id, record);
        }
    });
    for part in [&texts[1][..], &long[..1], &long[64_998..], &long[..40_000], "!", "z!", "🦀", "🦀🦀🦀🦀", "🦀!"]
    {
        customers.compare(&mut random, vec![part.to_owned()]);
    }
    assert_eq!(records::damaged_search(&customers.connection).unwrap(), [""; 0]);
}

#[test]
fn an_entry_that_does_not_fit_its_record_is_found() {
    for change in [
        "UPDATE customers SET search = search || 'more' WHERE id = 3",
        "INSERT INTO customers_search (rowid, terms) VALUES (4, 'abc')",
        "DELETE FROM customers WHERE id = 5",
    ] {
        let mut customers = Customers::new();
        customers.add(&mut Random(3), 5);
        assert_eq!(records::damaged_search(&customers.connection).unwrap(), [""; 0]);
        customers.connection.execute_batch(change).unwrap();
        assert_eq!(records::damaged_search(&customers.connection).unwrap(), ["customers"], "{change}");
    }
}
