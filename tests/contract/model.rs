//! A model-based test: random operations run on the service and on a model of it, and both must
//! agree after each one. Lists combine sorts, filters and searches at random. Each run has another
//! seed.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::support::contract::{Field, Kind, RESOURCES, Resource, at, default_value, fields};
use crate::support::random::{Random, seed};
use crate::support::{Api, Reply, TestServer, encoded};

/// Few words, so that ties are frequent, with characters that need escaping.
const WORDS: [&str; 9] = [
    "Alpha",
    "alphabet",
    "Beta Blocker",
    "50% off",
    "a_b",
    "O'Neil \"Q\"",
    "back\\slash",
    "ÄRGER",
    "ärger im Büro",
];

/// A character that no text of one line may have.
const HIDDEN: char = '\u{200b}';

/// The model's knowledge of each resource.
#[derive(Clone)]
struct Table {
    records: BTreeMap<i64, Value>,
    /// The lowest id that the next record may have.
    next: i64,
}

/// The tables, in the order of [`RESOURCES`].
struct Model {
    tables: Vec<Table>,
}

impl Model {
    fn has(&self, resource: usize, id: i64) -> bool {
        self.tables[resource].records.contains_key(&id)
    }

    /// Whether a record refers to this one.
    fn has_dependents(&self, resource: usize, id: i64) -> bool {
        RESOURCES.iter().zip(&self.tables).any(|(other, table)| {
            let to_this = |field: &&Field| field.references == Some(RESOURCES[resource]);
            let mut references = fields(other).filter(to_this);
            references.any(|field| table.records.values().any(|record| record[field.name] == id))
        })
    }

    /// The code of a reference in `body` to a record that does not exist, if there is one.
    fn dangling(&self, resource: usize, body: &Map<String, Value>) -> Option<String> {
        for field in fields(RESOURCES[resource]) {
            let Some(target) = field.references else { continue };
            let place = RESOURCES.iter().position(|other| *other == target).unwrap();
            if body.get(field.name).and_then(Value::as_i64).is_some_and(|id| !self.has(place, id)) {
                return Some(format!("{}_not_found", target.name));
            }
        }
        None
    }

    /// Gives a device with an employee the employee's customer. Returns whether `body` may name the
    /// customer that it names. `stored` is the device before the change.
    fn set_owner(&self, stored: &Value, body: &Map<String, Value>, device: &mut Value) -> bool {
        let Some(employee) = device["employee_id"].as_i64() else { return true };
        let owner = self.tables[1].records[&employee]["customer_id"].clone();
        let named = body.get("customer_id");
        let agrees =
            named.is_none_or(|named| *named == owner || stored.get("customer_id") == Some(named));
        device["customer_id"] = owner;
        agrees
    }
}

fn value(rng: &mut Random, field: &Field) -> Value {
    match field.kind {
        _ if !field.required && rng.below(4) == 0 => Value::Null,
        _ if field.references.is_some() => json!(rng.below(12) + 1),
        Kind::Text { max: 2, .. } => json!(*rng.pick(&["DE", "AT", "de"])),
        Kind::Text { max, .. } => {
            let word = rng.pick(&WORDS).chars().take(max).collect::<String>();
            match rng.below(20) {
                0 => json!(format!("{HIDDEN}{word}")),
                1 | 2 => json!(format!("\u{a0}{word} \n")),
                _ => json!(word),
            }
        }
        Kind::Email => {
            json!(*rng.pick(&["eva@shop.example", "EVA@shop.example", "o.neil@b.example"]))
        }
        Kind::Integer => json!(i64::try_from(rng.below(5)).unwrap() - 2),
        Kind::Boolean => json!(rng.below(2) == 1),
        Kind::Date => json!(*rng.pick(&["2024-02-29", "2023-12-31", "2025-06-01"])),
        Kind::Choice(names) => json!(*rng.pick(names)),
        Kind::Custom | Kind::Timestamp => unreachable!("no request sets {}", field.name),
    }
}

/// Random fields with values; with `whole`, also every required field.
pub(crate) fn body(rng: &mut Random, resource: &Resource, whole: bool) -> Map<String, Value> {
    let mut body = Map::new();
    for field in fields(resource) {
        if (whole && field.required) || rng.below(3) == 0 {
            body.insert(field.name.to_owned(), value(rng, field));
        }
    }
    body
}

/// A value as it is stored: a text of one line has no white space at its ends.
fn trimmed(field: &Field, value: &Value) -> Value {
    match value.as_str() {
        Some(text) if field.name != "notes" => json!(text.trim()),
        _ => value.clone(),
    }
}

/// Whether a text of one line, other than in `stored`, has a hidden character.
fn has_hidden(body: &Map<String, Value>, stored: &Value) -> bool {
    let mut texts = body.iter().filter(|(name, value)| {
        *name != "notes" && value.is_string() && stored.get(name) != Some(value)
    });
    texts.any(|(_, text)| text.as_str().unwrap().contains(HIDDEN))
}

/// The fields of `record` after a change with `body`.
fn merged(resource: &Resource, mut record: Value, body: &Map<String, Value>) -> Value {
    for field in fields(resource) {
        match body.get(field.name) {
            Some(Value::Null) => record[field.name] = default_value(field),
            Some(value) => record[field.name] = trimmed(field, value),
            None => (),
        }
    }
    record
}

fn without_times_and_etag(record: &Value) -> Value {
    let mut record = record.clone();
    let members = record.as_object_mut().unwrap();
    members.remove("created_at");
    members.remove("updated_at");
    members.remove("etag");
    assert_eq!(members.remove("custom"), Some(json!({})));
    record
}

fn create(rng: &mut Random, model: &mut Model, api: &Api, resource: usize) {
    let kind = RESOURCES[resource];
    let body = body(rng, kind, true);
    let reply = api.post(kind.path, Value::Object(body.clone()));
    if has_hidden(&body, &Value::Null) {
        reply.fails_with(400, "bad_request");
        return;
    }
    if let Some(code) = model.dangling(resource, &body) {
        reply.fails_with(422, &code);
        return;
    }
    let mut blank = json!({});
    for field in fields(kind) {
        blank[field.name] = default_value(field);
    }
    let mut expected = merged(kind, blank, &body);
    if !model.set_owner(&Value::Null, &body, &mut expected) {
        reply.fails_with(400, "bad_request");
        return;
    }
    let made = without_times_and_etag(&reply.created());
    let id = made["id"].as_i64().unwrap();
    assert!(id >= model.tables[resource].next, "ids rise: {id}");
    model.tables[resource].next = id + 1;
    expected["id"] = json!(id);
    assert_eq!(made, expected);
    model.tables[resource].records.insert(id, expected);
}

/// Whether a PUT of `body` would reset the field to its default, which it may not.
fn resets(field: &Field, body: &Map<String, Value>) -> bool {
    body.get(field.name) == Some(&Value::Null) && default_value(field) != Value::Null
}

fn change(rng: &mut Random, model: &mut Model, api: &Api, resource: usize, id: i64) {
    let kind = RESOURCES[resource];
    let body = body(rng, kind, false);
    let reply = api.put(&at(kind, id), Value::Object(body.clone()));
    if body.is_empty() {
        reply.fails_with(400, "no_updatable_fields");
    } else if fields(kind).any(|field| resets(field, &body)) {
        reply.fails_with(422, "validation_failed");
    } else if !model.has(resource, id) {
        reply.fails_with(404, "not_found");
    } else if let Some(code) = model.dangling(resource, &body) {
        reply.fails_with(422, &code);
    } else {
        let stored = model.tables[resource].records[&id].clone();
        if has_hidden(&body, &stored) {
            reply.fails_with(400, "bad_request");
            return;
        }
        let mut expected = merged(kind, stored.clone(), &body);
        if !model.set_owner(&stored, &body, &mut expected) {
            reply.fails_with(400, "bad_request");
            return;
        }
        assert_eq!(without_times_and_etag(&reply.found()), expected);
        if kind.name == "employee" {
            for device in model.tables[2].records.values_mut() {
                if device["employee_id"] == id {
                    device["customer_id"] = expected["customer_id"].clone();
                }
            }
        }
        model.tables[resource].records.insert(id, expected);
    }
}

fn delete(model: &mut Model, api: &Api, resource: usize, id: i64) -> Reply {
    let reply = api.delete(&at(RESOURCES[resource], id));
    if !model.has(resource, id) {
        return reply.fails_with(404, "not_found");
    }
    if model.has_dependents(resource, id) {
        return reply.fails_with(409, "has_dependents");
    }
    model.tables[resource].records.remove(&id);
    reply.is(204)
}

/// Whether every word of `q` occurs in the record. For [`WORDS`], case folding is the same as lower
/// case.
fn matches(kind: &Resource, record: &Value, q: &str) -> bool {
    q.split_whitespace().all(|word| {
        fields(kind)
            .filter(|field| matches!(field.kind, Kind::Text { .. } | Kind::Email))
            .filter_map(|field| record[field.name].as_str())
            .any(|text| text.to_lowercase().contains(&word.to_lowercase()))
    })
}

fn list(rng: &mut Random, model: &Model, api: &Api, resource: usize) {
    let kind = RESOURCES[resource];
    let fields: Vec<&Field> = fields(kind).filter(|field| field.name != "notes").collect();
    let mut records: Vec<&Value> = model.tables[resource].records.values().collect();
    let mut query = format!("limit={}", rng.below(7) + 1);
    if rng.below(2) == 0 {
        let field = *rng.pick(&fields);
        let wanted = value(rng, field);
        let text = wanted.as_str().map_or(wanted.to_string(), str::to_owned);
        query += &format!("&{}={}", field.name, encoded(&text));
        let wanted = trimmed(field, &wanted);
        records.retain(|record| record[field.name] == wanted);
    }
    if rng.below(2) == 0 {
        let words: Vec<&str> = WORDS.iter().flat_map(|words| words.split(' ')).collect();
        let word = *rng.pick(&words);
        let from = rng.below(word.chars().count());
        let part: String = word.chars().skip(from).collect();
        let q = if rng.below(2) == 0 {
            part.to_uppercase()
        } else {
            format!("{part} {}", rng.pick(&["a", "", "eva"]))
        };
        query += &format!("&q={}", encoded(&q));
        records.retain(|record| matches(kind, record, &q));
    }
    let field = rng.pick(&fields).name;
    let descending = rng.below(2) == 0;
    query += &format!("&sort={}{field}", if descending { "-" } else { "" });
    records.sort_by(|a, b| {
        let order = crate::lists::compare(&a[field], &b[field])
            .then(a["id"].as_i64().cmp(&b["id"].as_i64()));
        if descending { order.reverse() } else { order }
    });
    let target = format!("{}?{query}", kind.path);
    let got: Vec<Value> = api.all(&target).iter().map(without_times_and_etag).collect();
    assert_eq!(got.iter().collect::<Vec<_>>(), records, "{target}");
    let total = api.get(&format!("{target}&total=true")).found()["total"].as_i64();
    assert_eq!(total, i64::try_from(records.len()).ok(), "{target}");
}

fn run(seed: u64, steps: usize) {
    let (server, api) = TestServer::with_unlimited_api();
    let empty = Table { records: BTreeMap::new(), next: 1 };
    let mut model = Model { tables: vec![empty; RESOURCES.len()] };
    let mut rng = Random::new(seed);
    for _ in 0..steps {
        let resource = rng.below(RESOURCES.len());
        let id =
            i64::try_from(rng.below(usize::try_from(model.tables[resource].next).unwrap() + 2))
                .unwrap()
                + 1;
        match rng.below(10) {
            0..=3 => create(&mut rng, &mut model, &api, resource),
            4..=5 => change(&mut rng, &mut model, &api, resource, id),
            6 => drop(delete(&mut model, &api, resource, id)),
            _ => list(&mut rng, &model, &api, resource),
        }
    }
    for device in api.all("/hardware.php?limit=200&include=employee") {
        let employee = &device["employee"];
        assert!(employee.is_null() || device["customer_id"] == employee["customer_id"]);
    }
    for (resource, table) in RESOURCES.iter().zip(&model.tables) {
        let kept: Vec<Value> = api.all(resource.path).iter().map(without_times_and_etag).collect();
        assert!(kept.iter().eq(table.records.values()), "{} at the end", resource.plural);
    }
    server.cli(&["check"]).done();
}

/// `MODEL_SEED` repeats a run.
#[test]
fn the_service_agrees_with_a_model_of_it() {
    run(seed("MODEL_SEED"), 300);
}
