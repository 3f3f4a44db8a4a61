//! A client that asks at random, about few records, so that clients meet.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::model::{Action, Answer, Change, Entry, Fields, Outcome, Request};
use super::recorder::{OWNERS, Recorder};
use crate::support::random::Random;
use crate::support::{Api, Reply};

const PATH: &str = "/employees.php";

/// The data that the clients of a tenant share.
#[derive(Default)]
pub(crate) struct Tenant {
    /// Records that were created.
    ids: Mutex<Vec<i64>>,
    /// Writes that were sent with an idempotency key.
    keyed: Mutex<Vec<Write>>,
}

#[derive(Clone)]
struct Write {
    changes: Vec<Change>,
    is_batch: bool,
    key: Option<Uuid>,
}

pub(crate) struct Client<'a> {
    api: Api,
    recorder: &'a Recorder,
    tenant: &'a Tenant,
    random: Random,
    /// The last versions that it has seen.
    versions: BTreeMap<i64, i64>,
}

impl<'a> Client<'a> {
    pub(crate) fn new(
        api: Api,
        recorder: &'a Recorder,
        tenant: &'a Tenant,
        random: Random,
    ) -> Client<'a> {
        Client { api, recorder, tenant, random, versions: BTreeMap::new() }
    }

    /// One request of any kind.
    pub(crate) fn ask(&mut self) {
        match self.random.below(20) {
            0..=4 => self.get(),
            5 => self.list(),
            6 => self.log(),
            7 => self.post(),
            8 | 9 => self.repeat(),
            10..=12 => self.batch(),
            13 | 14 => {
                let fields = [self.value(), self.value()];
                self.write_new(vec![Change::Upsert(fields)], false);
            }
            _ => {
                let change = self.change();
                self.write_new(vec![change], false);
            }
        }
    }

    /// One of the youngest records, or one of the first.
    fn id(&mut self) -> i64 {
        if self.random.one_in(3) {
            return 1 + self.random.below(OWNERS as usize) as i64;
        }
        let ids = self.tenant.ids.lock().unwrap();
        ids[ids.len().saturating_sub(4)..][self.random.below(ids.len().min(4))]
    }

    fn uuid(&mut self) -> Uuid {
        uuid::Builder::from_random_bytes(
            (u128::from(self.random.next()) << 64 | u128::from(self.random.next())).to_be_bytes(),
        )
        .into_uuid()
    }

    /// Few values, so that some changes change nothing. Each is the id of a customer.
    fn value(&mut self) -> Option<u16> {
        Some(1 + self.random.below(20) as u16)
    }

    fn put_fields(&mut self) -> Fields {
        match self.random.below(3) {
            0 => [self.value(), None],
            1 => [None, self.value()],
            _ => [self.value(), self.value()],
        }
    }

    /// A change of one of the youngest records.
    fn change(&mut self) -> Change {
        let id = self.id();
        let seen = self.versions.get(&id).copied();
        let if_match = seen.filter(|_| self.random.one_in(2));
        if self.random.one_in(8) {
            return Change::Delete { id, if_match };
        }
        Change::Put { id, fields: self.put_fields(), if_match }
    }

    fn batch(&mut self) {
        let mut changes = vec![self.change()];
        let other = self.change();
        if target(&other) != target(&changes[0]) {
            changes.push(other);
        }
        if self.random.one_in(3) {
            changes.push(Change::Post([self.value(), self.value()]));
        }
        self.write_new(changes, true);
    }

    pub(crate) fn post(&mut self) {
        let fields = [self.value(), self.value()];
        self.write_new(vec![Change::Post(fields)], false);
    }

    fn write_new(&mut self, changes: Vec<Change>, is_batch: bool) {
        let key = self.random.one_in(3).then(|| self.uuid());
        let write = Write { changes, is_batch, key };
        if key.is_some() {
            self.tenant.keyed.lock().unwrap().push(write.clone());
        }
        self.write(write);
    }

    /// Sends a write again that some client has sent, or another one under its key.
    fn repeat(&mut self) {
        let keyed = self.tenant.keyed.lock().unwrap().clone();
        let Some(mut write) = keyed.last().map(|_| self.random.pick(&keyed).clone()) else {
            return;
        };
        if self.random.one_in(4) {
            write.changes[0] = self.change();
        }
        self.write(write);
    }

    fn write(&mut self, write: Write) {
        let Write { changes, is_batch, key } = write;
        let request_id = self.uuid();
        let request = Request::Write { changes: changes.clone(), is_batch, key };
        let answer = self.recorder.record(request, request_id, || {
            let (method, path, body, if_match) = message(&changes, is_batch);
            let mut call = self.api.call(method, &path);
            call = call.header("X-Request-Id", &request_id.to_string());
            if let Some(key) = key {
                call = call.key(&key.to_string());
            }
            if let Some(version) = if_match {
                call = call.header("If-Match", &tag(version));
            }
            if let Some(body) = body {
                call = call.json(&body);
            }
            written(&call.send(), is_batch)
        });
        if let Answer::Written { outcomes, .. } = &answer {
            outcomes.iter().for_each(|outcome| self.has_seen(outcome));
        }
    }

    fn has_seen(&mut self, outcome: &Outcome) {
        let Some((id, _)) = outcome.record else { return };
        self.versions.extend(outcome.version.map(|version| (id, version)));
        let mut ids = self.tenant.ids.lock().unwrap();
        if !ids.contains(&id) {
            ids.push(id);
        }
    }

    fn get(&mut self) {
        let id = self.id();
        let is_through_device = self.random.one_in(2);
        let request_id = self.uuid();
        let answer = self.recorder.record(Request::Get(id), request_id, || {
            if id <= OWNERS && is_through_device {
                let target = format!("/hardware.php?id={id}&include=employee");
                let device = self.api.get(&target).found();
                let mut employee = device["employee"].clone();
                employee["customer_id"] = device["customer_id"].clone();
                let (record, version) = (Some(record_of(&employee)), employee["etag"].as_str());
                let version = version_of(version);
                return Answer::Record(Outcome { status: 200, record, version });
            }
            Answer::Record(outcome_of(&self.api.get(&format!("{PATH}?id={id}"))))
        });
        if let Answer::Record(outcome) = &answer {
            self.has_seen(outcome);
        }
    }

    pub(crate) fn list(&mut self) {
        let request_id = self.uuid();
        self.recorder.record(Request::List, request_id, || {
            let page = self.api.get(&format!("{PATH}?limit=200")).found();
            assert_eq!(page["next_cursor"], Value::Null, "the list is one page");
            let records = page["data"].as_array().unwrap();
            Answer::List(records.iter().map(record_of).collect())
        });
    }

    pub(crate) fn log(&mut self) {
        let request_id = self.uuid();
        self.recorder.record(Request::Log, request_id, || {
            let page = self.api.get("/changes.php?resource=employees&limit=200").found();
            assert_eq!(page["more"], false, "the change log is one page");
            let data = page["data"].as_array().unwrap();
            let present = |entry: &Value| {
                let record = &entry["record"];
                (entry["id"].as_i64().unwrap(), record.is_object().then(|| record_of(record).1))
            };
            Answer::Log(data.iter().map(entry_of).collect(), data.iter().map(present).collect())
        });
    }
}

fn target(change: &Change) -> Option<i64> {
    match change {
        Change::Post(_) | Change::Upsert(_) => None,
        Change::Put { id, .. } | Change::Delete { id, .. } => Some(*id),
    }
}

fn tag(version: i64) -> String {
    format!("\"{version}\"")
}

/// Method, target, body and `If-Match` of a request.
fn message(
    changes: &[Change],
    is_batch: bool,
) -> (&'static str, String, Option<Value>, Option<i64>) {
    if !is_batch {
        return single(&changes[0]);
    }
    let operations = changes.iter().map(|change| {
        let (method, path, body, if_match) = single(change);
        let mut operation = Map::new();
        operation.insert("method".to_owned(), json!(method));
        operation.insert("path".to_owned(), json!(path));
        operation.extend(body.map(|body| ("body".to_owned(), body)));
        operation.extend(if_match.map(|version| ("if_match".to_owned(), json!(tag(version)))));
        Value::Object(operation)
    });
    let body = json!({"operations": operations.collect::<Vec<_>>()});
    ("POST", "/batch.php".to_owned(), Some(body), None)
}

fn single(change: &Change) -> (&'static str, String, Option<Value>, Option<i64>) {
    match change {
        Change::Post(fields) | Change::Upsert(fields) => {
            let mut body = body(fields);
            body["email"] = json!("contended@shop.example");
            let is_upsert = matches!(change, Change::Upsert(_));
            let query = if is_upsert { "?update_by=phone" } else { "" };
            ("POST", format!("{PATH}{query}"), Some(body), None)
        }
        Change::Put { id, fields, if_match } => {
            ("PUT", format!("{PATH}?id={id}"), Some(body(fields)), *if_match)
        }
        Change::Delete { id, if_match } => ("DELETE", format!("{PATH}?id={id}"), None, *if_match),
    }
}

fn body(fields: &Fields) -> Value {
    let mut body = json!({});
    if let Some(phone) = fields[0] {
        body["phone"] = json!(phone.to_string());
    }
    if let Some(customer) = fields[1] {
        body["customer_id"] = json!(customer);
    }
    body
}

fn fields_of(record: &Value) -> Fields {
    let phone = record["phone"].as_str().map(|phone| phone.parse().unwrap());
    [phone, record["customer_id"].as_u64().map(|id| id as u16)]
}

fn record_of(record: &Value) -> (i64, Fields) {
    (record["id"].as_i64().unwrap(), fields_of(record))
}

fn version_of(tag: Option<&str>) -> Option<i64> {
    tag.map(|tag| tag.trim_matches('"').parse().unwrap())
}

fn outcome_of(reply: &Reply) -> Outcome {
    let has_record = [200, 201].contains(&reply.status);
    let record = has_record.then(|| record_of(&reply.json()));
    Outcome { status: reply.status, record, version: version_of(reply.header("ETag")) }
}

fn written(reply: &Reply, is_batch: bool) -> Answer {
    match reply.status {
        503 => Answer::Refused,
        422 => {
            assert_eq!(reply.code(), "idempotency_key_reused", "{reply}");
            Answer::Reused
        }
        404 | 409 | 412 => {
            let number = if is_batch { reply.json()["operation"].as_u64().unwrap() } else { 0 };
            Answer::Failed { outcome: outcome_of(reply), number: number as usize }
        }
        200 | 201 | 204 => {
            let outcomes = if is_batch {
                let results = reply.json()["results"].take();
                results.as_array().unwrap().iter().map(result_of).collect()
            } else {
                vec![outcome_of(reply)]
            };
            Answer::Written { outcomes, is_replay: reply.was_replayed() }
        }
        _ => panic!("unexpected: {reply}"),
    }
}

fn result_of(result: &Value) -> Outcome {
    let body = &result["body"];
    Outcome {
        status: u16::try_from(result["status"].as_u64().unwrap()).unwrap(),
        record: body.is_object().then(|| record_of(body)),
        version: version_of(result["etag"].as_str()),
    }
}

fn entry_of(entry: &Value) -> Entry {
    let action = match entry["action"].as_str().unwrap() {
        "created" => Action::Created,
        "updated" => Action::Updated,
        _ => Action::Deleted,
    };
    Entry {
        seq: entry["seq"].as_i64(),
        id: entry["id"].as_i64().unwrap(),
        action,
        before: fields_of(&entry["before"]),
        // `None` for an import.
        request_id: (entry["by"]["kind"] == "key")
            .then(|| entry["request_id"].as_str().unwrap().parse().unwrap()),
    }
}
