//! A client that keeps a history of its changes. All its records have labels that begin with its
//! name.

use std::io;

use serde_json::{Value, json};

use crate::history::{Change, History, Request, State, mismatch};
use crate::recorder::Recorder;
use crate::support::{Api, DataDir, Reply, uuid};

/// The resources, and the field of each that holds the label.
const LABELS: [(&str, &str); 3] =
    [("customers", "customer_number"), ("employees", "department"), ("hardware", "asset_tag")];

/// The name of a record in a [`State`]: its resource and its label.
pub(crate) fn label(resource: &str, record: &Value) -> String {
    let field = LABELS.iter().find(|(name, _)| *name == resource).unwrap().1;
    match record[field].as_str() {
        Some(label) => format!("{resource}/{label}"),
        None => format!("{resource}/unnamed-{}", record["id"]),
    }
}

/// The client that a label belongs to.
pub(crate) fn client_of(label: &str) -> &str {
    let label = label.split_once('/').map_or(label, |(_, label)| label);
    label.split_once('-').map_or(label, |(client, _)| client)
}

/// All records of a tenant.
pub(crate) fn observe(api: &Api) -> State {
    let mut state = State::new();
    for (resource, _) in LABELS {
        for record in api.all(&format!("/{resource}.php?limit=200")) {
            let before = state.insert(label(resource, &record), record.clone());
            assert!(before.is_none(), "twice: {record}");
        }
    }
    state
}

/// The part of a tenant's records that belongs to the client `name`.
pub(crate) fn of_client(state: &State, name: &str) -> State {
    let own = state.iter().filter(|(label, _)| client_of(label) == name);
    own.map(|(label, record)| (label.clone(), record.clone())).collect()
}

/// Sends a request with its idempotency key.
pub(crate) fn send(api: &Api, request: &Request) -> Reply {
    try_send(api, request)
        .unwrap_or_else(|error| panic!("{} {}: {error}", request.method, request.target))
}

fn try_send(api: &Api, request: &Request) -> io::Result<Reply> {
    let call = api.call(request.method, &request.target).key(&request.idempotency_key);
    let reply = match &request.body {
        Some(body) => call.json(body).try_send(),
        None => call.try_send(),
    };
    reply.inspect(Reply::check)
}

/// A record after a change with `body`. Only the answer tells the stamps.
fn changed(record: &Value, body: &Value) -> Value {
    let mut record = record.clone();
    for (field, value) in body.as_object().unwrap() {
        record[field] = value.clone();
    }
    for stamp in ["updated_at", "etag"] {
        record.as_object_mut().unwrap().remove(stamp);
    }
    record
}

/// A client of one tenant.
pub(crate) struct Client<'a> {
    recorder: &'a Recorder,
    api: Api,
    pub name: String,
    pub history: History,
    /// The number of its requests.
    count: usize,
    /// Names that it may change again: of customers, employees and pieces of hardware.
    own: [Vec<String>; 3],
}

impl<'a> Client<'a> {
    pub(crate) fn new(recorder: &'a Recorder, name: &str, key: &str) -> Client<'a> {
        let api = DataDir::with_key(&recorder.data_dir, key);
        Client {
            recorder,
            api,
            name: name.to_owned(),
            history: History::default(),
            count: 0,
            own: Default::default(),
        }
    }

    /// One request after the other, of all kinds in turn. Returns the answer.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Reply {
        self.attempt().expect("an answer")
    }

    #[track_caller]
    pub(crate) fn make_requests(&mut self, count: usize) {
        for _ in 0..count {
            self.next();
        }
    }

    /// The same with a server that may end. `None`: there was no answer.
    pub(crate) fn attempt(&mut self) -> Option<Reply> {
        self.count += 1;
        match self.count % 8 {
            1 | 4 => self.post_customer(40),
            2 => self.post_employee(),
            3 => self.post_hardware(),
            5 => self.put(),
            6 => self.batch(),
            7 => self.move_employee(),
            _ => self.delete(),
        }
    }

    fn new_label(&self) -> String {
        format!("{}-{}", self.name, self.count)
    }

    /// Its last customer.
    fn customer(&self) -> i64 {
        let state = self.history.end();
        let name = self.own[0].iter().rev().find(|name| state.contains_key(*name)).unwrap();
        state[name]["id"].as_i64().unwrap()
    }

    /// A record so large that few of them fill the write-ahead log.
    #[track_caller]
    pub(crate) fn post_large_customer(&mut self) -> Reply {
        self.attempt_large_customer().expect("an answer")
    }

    /// The same with a server that may end.
    pub(crate) fn attempt_large_customer(&mut self) -> Option<Reply> {
        self.count += 1;
        self.post_customer(700)
    }

    /// Adds a customer whose notes have this many words.
    fn post_customer(&mut self, words: usize) -> Option<Reply> {
        let label = self.new_label();
        let notes: Vec<String> = (0..words)
            .map(|n| format!("{:x}", (n + self.count) * 2_654_435_761 % 999_983))
            .collect();
        let body = json!({"name": "A customer", "customer_number": label, "city": "Basel", "notes": notes.join(" ")});
        self.post("customers", body)
    }

    fn post_employee(&mut self) -> Option<Reply> {
        let label = self.new_label();
        let body = json!({"customer_id": self.customer(), "email": "eva@shop.example", "department": label});
        self.post("employees", body)
    }

    fn post_hardware(&mut self) -> Option<Reply> {
        let label = self.new_label();
        self.post(
            "hardware",
            json!({"name": "A laptop", "asset_tag": label, "purchase_cost_cents": 99}),
        )
    }

    fn post(&mut self, resource: &'static str, body: Value) -> Option<Reply> {
        let name = label(resource, &body);
        let effect = vec![(name.clone(), Some(body.clone()))];
        let own = LABELS.iter().position(|(other, _)| *other == resource).unwrap();
        self.own[own].push(name);
        self.run("POST", format!("/{resource}.php"), Some(body), effect)
    }

    /// Changes one of its customers.
    fn put(&mut self) -> Option<Reply> {
        let state = self.history.end();
        let names: Vec<&String> =
            self.own[0].iter().filter(|name| state.contains_key(*name)).collect();
        let name = names[self.count * 7 % names.len()].clone();
        let body = json!({"city": format!("Town {}", self.count), "status": "inactive"});
        let target = format!("/customers.php?id={}", state[&name]["id"]);
        let changed = changed(&state[&name], &body);
        self.run("PUT", target, Some(body), vec![(name, Some(changed))])
    }

    /// Moves the employee of its last batch to its first customer. The employee's device goes along.
    fn move_employee(&mut self) -> Option<Reply> {
        let state = self.history.end();
        let [customers, employees, devices] = &self.own;
        let first = customers.iter().find_map(|name| state.get(name)).unwrap();
        let body = json!({"customer_id": first["id"]});
        let (employee, device) = (employees.last().unwrap(), devices.last().unwrap());
        let (Some(moved), Some(taken)) = (state.get(employee), state.get(device)) else {
            return self.put();
        };
        let effect = vec![
            (employee.clone(), Some(changed(moved, &body))),
            (device.clone(), Some(changed(taken, &body))),
        ];
        self.run("PUT", format!("/employees.php?id={}", moved["id"]), Some(body), effect)
    }

    /// Removes its last piece of hardware, or adds one.
    fn delete(&mut self) -> Option<Reply> {
        let state = self.history.end();
        let Some(name) = self.own[2].iter().rev().find(|name| state.contains_key(*name)).cloned()
        else {
            return self.post_hardware();
        };
        let target = format!("/hardware.php?id={}", state[&name]["id"]);
        self.run("DELETE", target, None, vec![(name, None)])
    }

    /// A customer with an employee and a piece of hardware, and the removal of an earlier employee
    /// who has no hardware, in one transaction.
    fn batch(&mut self) -> Option<Reply> {
        let state = self.history.end();
        let tag = self.new_label();
        let customer = json!({"name": "In a batch", "customer_number": tag});
        let device = json!({"name": "Of a batch", "asset_tag": tag});
        let mut hardware = device.clone();
        hardware["employee_id"] = json!({"result": 1});
        let employee =
            json!({"customer_id": {"result": 0}, "email": "max@shop.example", "department": tag});
        let post = |resource: &str, body: &Value| json!({"method": "POST", "path": format!("/{resource}.php"), "body": body});
        let mut operations = vec![
            post("customers", &customer),
            post("employees", &employee),
            post("hardware", &hardware),
        ];
        let mut effect = vec![
            (label("customers", &customer), Some(customer)),
            (
                label("employees", &employee),
                Some(json!({"department": tag, "email": "max@shop.example"})),
            ),
            (label("hardware", &device), Some(device)),
        ];
        // Hardware remains if the disk refused its removal.
        let has_none =
            |employee: &Value| state.values().all(|record| record["employee_id"] != employee["id"]);
        if let Some(old) = self.own[1].iter().find(|name| state.get(*name).is_some_and(has_none)) {
            let path = format!("/employees.php?id={}", state[old]["id"]);
            operations.push(json!({"method": "DELETE", "path": path}));
            effect.push((old.clone(), None));
        }
        for (own, (name, _)) in self.own.iter_mut().zip(&effect) {
            own.push(name.clone());
        }
        self.run("POST", "/batch.php".to_owned(), Some(json!({"operations": operations})), effect)
    }

    /// Sends a request and keeps it in the history.
    fn run(
        &mut self,
        method: &'static str,
        target: String,
        body: Option<Value>,
        effect: Vec<(String, Option<Value>)>,
    ) -> Option<Reply> {
        let request = Request { method, target, body, idempotency_key: uuid(), answer: None };
        let started = self.recorder.moment();
        let reply = try_send(&self.api, &request).ok();
        let what =
            format!("{method} {} of {}, its request {}", request.target, self.name, self.count);
        let mut change =
            Change { what, started, acknowledged: None, effect, request: Some(request) };
        if let Some(reply) = reply.as_ref().filter(|reply| reply.status < 300) {
            change.answered(reply, self.recorder.moment());
        }
        self.history.changes.push(change);
        reply
    }

    /// Repeats the last request, which had no answer, with its idempotency key. The answer says
    /// whether the first one took effect.
    #[track_caller]
    pub(crate) fn repeat(&mut self) -> Reply {
        let found = of_client(&observe(&self.api), &self.name);
        let before = self.history.end();
        let change = self.history.changes.last_mut().unwrap();
        assert!(change.acknowledged.is_none(), "{} was answered", change.what);
        let mut after = before.clone();
        change.apply_to(&mut after);
        let has_effect = mismatch(&found, &before).is_some();
        if let Some(difference) = mismatch(&found, &after).filter(|_| has_effect) {
            panic!("{} is half done: {difference}", change.what);
        }
        let reply = send(&self.api, change.request.as_ref().unwrap());
        assert!(reply.status < 300, "the repeat of {}: {reply}", change.what);
        let is_replayed = reply.header("Idempotent-Replayed").is_some();
        assert_eq!(
            is_replayed, has_effect,
            "the repeat of {} does not tell whether it took effect",
            change.what
        );
        change.answered(&reply, self.recorder.moment());
        reply
    }
}

impl Change {
    /// A request succeeded.
    fn answered(&mut self, reply: &Reply, moment: usize) {
        self.acknowledged = Some(moment);
        self.request.as_mut().unwrap().answer = Some((reply.status, reply.body.clone()));
        for ((_, expected), record) in self.effect.iter_mut().zip(records(reply)) {
            if expected.is_some() {
                *expected = Some(record);
            }
        }
    }
}

/// The records in an answer. The records of a batch come in their order.
fn records(reply: &Reply) -> Vec<Value> {
    if reply.body.is_empty() {
        return vec![Value::Null];
    }
    match reply.json() {
        Value::Object(body) if body.contains_key("results") => body["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|result| result["body"].clone())
            .collect(),
        record => vec![record],
    }
}
