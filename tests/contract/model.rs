//! The service beside a model of it: the same long run of operations on both, which must agree after every one. Lists are
//! asked for with sorts, filters and searches together, in combinations that nobody would think of.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::support::contract::{Field, Kind, RESOURCES, Resource};
use crate::support::{ALL, Api, Reply, TestServer, encoded};

/// The same numbers in every run, so that a failure comes again (Knuth's constants).
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// Few enough that ties are many, awkward enough to be worth comparing.
const WORDS: [&str; 9] =
    ["Alpha", "alphabet", "Beta Blocker", "50% off", "a_b", "O'Neil \"Q\"", "back\\slash", "ÄRGER", "ärger im Büro"];

/// What the model knows: for each resource its records by id, and the next id.
struct Model {
    records: [BTreeMap<i64, Value>; 3],
    next: [i64; 3],
}

impl Model {
    fn has(&self, resource: usize, id: i64) -> bool {
        self.records[resource].contains_key(&id)
    }

    /// The records that refer to this one.
    fn is_needed(&self, resource: usize, id: i64) -> bool {
        RESOURCES
            .get(resource + 1)
            .and_then(|dependent| dependent.reference)
            .is_some_and(|(field, ..)| self.records[resource + 1].values().any(|record| record[field] == id))
    }
}

fn value(rng: &mut Rng, resource: &Resource, field: &Field) -> Value {
    let refers = resource.reference.is_some_and(|(name, ..)| name == field.name);
    match field.kind {
        _ if !field.required && rng.below(4) == 0 => Value::Null,
        _ if refers => json!(rng.below(12) + 1),
        Kind::Text(_, 2) => json!(*rng.pick(&["DE", "AT", "de"])),
        Kind::Text(..) => {
            let longest = if let Kind::Text(_, max) = field.kind { max } else { 0 };
            json!(rng.pick(&WORDS).chars().take(longest).collect::<String>())
        }
        Kind::Email => json!(*rng.pick(&["eva@shop.example", "EVA@shop.example", "o.neil@b.example"])),
        Kind::Integer => json!(i64::try_from(rng.below(5)).unwrap() - 2),
        Kind::Boolean => json!(rng.below(2) == 1),
        Kind::Date => json!(*rng.pick(&["2024-02-29", "2023-12-31", "2025-06-01"])),
        Kind::Choice(names) => json!(*rng.pick(names)),
    }
}

/// Some fields with values; the required ones too where a whole record is to be made.
fn body(rng: &mut Rng, resource: &Resource, whole: bool) -> Map<String, Value> {
    let mut body = Map::new();
    for field in resource.fields {
        if (whole && field.required) || rng.below(3) == 0 {
            body.insert(field.name.to_owned(), value(rng, resource, field));
        }
    }
    body
}

/// What the fields of a record are after `body` was written over `record`.
fn merged(resource: &Resource, mut record: Value, body: &Map<String, Value>) -> Value {
    for field in resource.fields {
        match body.get(field.name) {
            Some(Value::Null) => record[field.name] = field.default_value(),
            Some(value) => record[field.name] = value.clone(),
            None => (),
        }
    }
    record
}

/// The code of a reference that points nowhere, if there is one.
fn dangling(model: &Model, resource: usize, body: &Map<String, Value>) -> Option<&'static str> {
    let (field, _, code) = RESOURCES[resource].reference?;
    let id = body.get(field)?.as_i64()?;
    (!model.has(resource - 1, id)).then_some(code)
}

fn without_times(record: &Value) -> Value {
    let mut record = record.clone();
    let members = record.as_object_mut().unwrap();
    members.remove("created_at");
    members.remove("updated_at");
    record
}

fn create(rng: &mut Rng, model: &mut Model, api: &Api, resource: usize) {
    let kind = RESOURCES[resource];
    let body = body(rng, kind, true);
    let reply = api.post(kind.path, Value::Object(body.clone()));
    if let Some(code) = dangling(model, resource, &body) {
        reply.fails_with(422, code);
        return;
    }
    let mut blank = json!({});
    for field in kind.fields {
        blank[field.name] = field.default_value();
    }
    let made = without_times(&reply.created());
    let mut expected = merged(kind, blank, &body);
    let id = made["id"].as_i64().unwrap();
    assert!(id >= model.next[resource], "ids rise: {id}");
    model.next[resource] = id + 1;
    expected["id"] = json!(id);
    assert_eq!(made, expected);
    model.records[resource].insert(id, expected);
}

fn change(rng: &mut Rng, model: &mut Model, api: &Api, resource: usize, id: i64) {
    let kind = RESOURCES[resource];
    let body = body(rng, kind, false);
    let reply = api.put(&kind.at(id), Value::Object(body.clone()));
    if body.is_empty() {
        reply.fails_with(400, "no_updatable_fields");
    } else if !model.has(resource, id) {
        reply.fails_with(404, "not_found");
    } else if let Some(code) = dangling(model, resource, &body) {
        reply.fails_with(422, code);
    } else {
        let expected = merged(kind, model.records[resource][&id].clone(), &body);
        assert_eq!(without_times(&reply.found()), expected);
        model.records[resource].insert(id, expected);
    }
}

fn delete(model: &mut Model, api: &Api, resource: usize, id: i64) -> Reply {
    let reply = api.delete(&RESOURCES[resource].at(id));
    if !model.has(resource, id) {
        return reply.fails_with(404, "not_found");
    }
    if model.is_needed(resource, id) {
        return reply.fails_with(409, "has_dependents");
    }
    model.records[resource].remove(&id);
    reply.is(204)
}

/// Whether every word of `q` is somewhere in the record. Folding a case of these words is no more than small letters.
fn matches(kind: &Resource, record: &Value, q: &str) -> bool {
    q.split_whitespace().all(|word| {
        kind.fields
            .iter()
            .filter(|field| matches!(field.kind, Kind::Text(..) | Kind::Email))
            .filter_map(|field| record[field.name].as_str())
            .any(|text| text.to_lowercase().contains(&word.to_lowercase()))
    })
}

fn list(rng: &mut Rng, model: &Model, api: &Api, resource: usize) {
    let kind = RESOURCES[resource];
    let fields: Vec<&Field> = kind.fields.iter().filter(|field| field.name != "notes").collect();
    let mut records: Vec<&Value> = model.records[resource].values().collect();
    let mut query = format!("limit={}", rng.below(7) + 1);
    if rng.below(2) == 0 {
        let field = *rng.pick(&fields);
        let wanted = value(rng, kind, field);
        let text = wanted.as_str().map_or(wanted.to_string(), str::to_owned);
        query += &format!("&{}={}", field.name, encoded(&text));
        records.retain(|record| record[field.name] == wanted);
    }
    if rng.below(2) == 0 {
        let words: Vec<&str> = WORDS.iter().flat_map(|words| words.split(' ')).collect();
        let word = *rng.pick(&words);
        let from = rng.below(word.chars().count());
        let part: String = word.chars().skip(from).collect();
        let q = if rng.below(2) == 0 { part.to_uppercase() } else { format!("{part} {}", rng.pick(&["a", "", "eva"])) };
        query += &format!("&q={}", encoded(&q));
        records.retain(|record| matches(kind, record, &q));
    }
    let field = rng.pick(&fields).name;
    let descending = rng.below(2) == 0;
    query += &format!("&sort={}{field}", if descending { "-" } else { "" });
    records.sort_by(|a, b| {
        let order = crate::paging::compare(&a[field], &b[field]).then(a["id"].as_i64().cmp(&b["id"].as_i64()));
        if descending { order.reverse() } else { order }
    });
    let target = format!("{}?{query}", kind.path);
    let got: Vec<Value> = api.all(&target).iter().map(without_times).collect();
    assert_eq!(got.iter().collect::<Vec<_>>(), records, "{target}");
    let total = api.get(&format!("{target}&total=true")).found()["total"].as_i64();
    assert_eq!(total, i64::try_from(records.len()).ok(), "{target}");
}

fn run(seed: u64, steps: usize) {
    let server = TestServer::without_rate_limit();
    let api = server.tenant("acme").with_scopes(ALL);
    let mut model = Model { records: Default::default(), next: [1; 3] };
    let mut rng = Rng(seed);
    for _ in 0..steps {
        let resource = rng.below(3);
        let id = i64::try_from(rng.below(usize::try_from(model.next[resource]).unwrap() + 2)).unwrap() + 1;
        match rng.below(10) {
            0..=3 => create(&mut rng, &mut model, &api, resource),
            4..=5 => change(&mut rng, &mut model, &api, resource, id),
            6 => drop(delete(&mut model, &api, resource, id)),
            _ => list(&mut rng, &model, &api, resource),
        }
    }
    for (resource, records) in RESOURCES.iter().zip(&model.records) {
        let kept: Vec<Value> = api.all(resource.path).iter().map(without_times).collect();
        assert!(kept.iter().eq(records.values()), "{} at the end", resource.plural);
    }
    server.cli(&["check"]).done();
}

#[test]
fn the_service_agrees_with_a_model_of_it() {
    run(20_261_121, 400);
}

#[test]
fn the_service_agrees_with_a_model_of_it_on_another_way() {
    run(3, 400);
}
