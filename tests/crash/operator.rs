//! The operator of a run: commands that change tenants, keys, passwords and backups, one after the
//! other.

use std::{fs, io};

use serde_json::{Value, json};

use crate::client::label;
use crate::history::{Effect, History, State};
use crate::recorder::{Recorder, temporary_directory};
use crate::run::BackupRun;
use crate::support::browser::Browser;
use crate::support::server::Output;

/// The operator: commands that change the registry, one after the other.
pub(crate) struct Operator<'a> {
    pub recorder: &'a Recorder,
    pub history: History,
    pub backups: Vec<BackupRun>,
}

impl<'a> Operator<'a> {
    pub(crate) fn new(recorder: &'a Recorder) -> Operator<'a> {
        Operator { recorder, history: History::default(), backups: Vec::new() }
    }

    /// Runs a command that changes the registry.
    fn run(&mut self, arguments: &[&str], effect: impl FnOnce(&Value) -> Effect) -> Value {
        let (started, output, acknowledged) = timed(self.recorder, arguments);
        let document = output.json();
        let effect = effect(&document);
        self.history.add(arguments.join(" "), started, Some(acknowledged), effect);
        document
    }

    pub(crate) fn create_tenant(&mut self, name: &str) -> Value {
        self.run(&["--json", "tenant", "create", name], |made| {
            vec![
                (format!("tenant {name}"), Some(json!(true))),
                (format!("password {name}"), Some(made["password"].clone())),
            ]
        })
    }

    pub(crate) fn create_key(&mut self, tenant: &str) -> (String, String) {
        let made = self.run(
            &["--json", "key", "create", tenant, "--name", "client", "--scope", "all"],
            key_made,
        );
        (made["key"].as_str().unwrap().to_owned(), made["id"].to_string())
    }

    /// Backs up everything, or one tenant.
    pub(crate) fn back_up(&mut self, options: &[&str]) {
        let arguments = [&["--json", "backup", "backups"], options].concat();
        let (started, output, acknowledged) = timed(self.recorder, &arguments);
        let document = output.json();
        for name in document["removed"].as_array().unwrap() {
            let removed = self.backups.iter_mut().find(|backup| *name == *backup.directory);
            removed.unwrap().removed = Some(started);
        }
        self.backups.push(BackupRun {
            directory: document["folder"].as_str().unwrap().to_owned(),
            acknowledged,
            removed: None,
        });
    }

    pub(crate) fn revoke(&mut self, key: &str, id: &str) {
        self.run(&["--json", "key", "revoke", "acme", id], |_| {
            vec![(name(key), Some(json!("revoked_api_key")))]
        });
    }

    /// Revokes a key, replaces one and deletes one.
    pub(crate) fn change_keys(&mut self) {
        let (key, id) = self.create_key("acme");
        self.revoke(&key, &id);
        let (key, id) = self.create_key("globex");
        self.run(&["--json", "key", "replace", "globex", &id, "--overlap", "0"], |made| {
            let mut effect = key_made(made);
            effect.push((name(&key), Some(json!("expired_api_key"))));
            effect
        });
        let (key, id) = self.create_key("globex");
        self.run(&["--json", "key", "delete", "globex", &id], |_| vec![(name(&key), None)]);
    }

    /// Makes a tenant, renames and deletes it.
    pub(crate) fn change_tenants(&mut self) {
        self.create_tenant("brief");
        let (key, _) = self.create_key("brief");
        let password = self.history.end()["password brief"].clone();
        self.run(&["--json", "tenant", "rename", "brief", "renamed"], |_| {
            let old = ["tenant brief", "password brief"].map(|name| (name.to_owned(), None));
            let new = [("tenant renamed", json!(true)), ("password renamed", password)];
            old.into_iter().chain(new.map(|(name, value)| (name.to_owned(), Some(value)))).collect()
        });
        self.run(&["--json", "tenant", "delete", "renamed", "--yes"], |_| {
            ["tenant renamed", "password renamed", &name(&key)]
                .map(|name| (name.to_owned(), None))
                .into()
        });
    }

    pub(crate) fn generate_password(&mut self, tenant: &str) {
        self.run(&["--json", "tenant", "password", tenant, "--generate"], |made| {
            vec![(format!("password {tenant}"), Some(made["password"].clone()))]
        });
    }

    /// Changes one tenant's password with the command, and another one's in the panel.
    pub(crate) fn change_passwords(&mut self, by_command: &str, in_panel: &str) {
        self.generate_password(by_command);
        let name = format!("password {in_panel}");
        let present = self.history.end()[&name].clone();
        let new = "a new password, made in the panel";
        let started = self.recorder.moment();
        let present = present.as_str().unwrap();
        try_change_password_in_panel(self.recorder, in_panel, present, new).unwrap();
        let acknowledged = self.recorder.moment();
        let effect = vec![(name, Some(json!(new)))];
        self.history.add("a new password in the panel", started, Some(acknowledged), effect);
    }

    /// Imports customers whose labels begin with `prefix`.
    /// Returns the id of the run.
    pub(crate) fn import(&self, tenant: &str, prefix: &str, history: &mut History) -> String {
        let (directory, effect) = import_change(prefix);
        let file = directory.path().join("rows.jsonl");
        let (started, output, acknowledged) =
            timed(self.recorder, &["import", tenant, "customers", file.to_str().unwrap()]);
        history.add(format!("import into {tenant}"), started, Some(acknowledged), effect);
        output.stderr.split_whitespace().last().unwrap().to_owned()
    }

    /// Takes the run of an import back. The history has no other changes.
    pub(crate) fn undo(&self, tenant: &str, run: &str, history: &mut History) {
        let (started, _, acknowledged) = timed(self.recorder, &["undo", tenant, "--request", run]);
        history.restored(started, acknowledged, &State::new());
    }
}

/// A directory with customers to import, `rows.jsonl`, whose labels begin with `prefix`. The second
/// value is the effect of the import.
pub(crate) fn import_change(prefix: &str) -> (tempfile::TempDir, Effect) {
    let row = |n: usize| json!({"name": "Imported", "customer_number": format!("{prefix}-{n}"), "notes": "word ".repeat(n + 1)});
    let rows: Vec<Value> = (0..60).map(row).collect();
    let directory = temporary_directory();
    fs::write(
        directory.path().join("rows.jsonl"),
        rows.iter().map(|row| format!("{row}\n")).collect::<String>(),
    )
    .unwrap();
    (directory, rows.into_iter().map(|row| (label("customers", &row), Some(row))).collect())
}

fn key_made(made: &Value) -> Effect {
    vec![(name(made["key"].as_str().unwrap()), Some(json!("active")))]
}

/// The name of a key in the history.
fn name(key: &str) -> String {
    format!("key {key}")
}

/// Runs a command between two moments.
pub(crate) fn timed(recorder: &Recorder, arguments: &[&str]) -> (usize, Output, usize) {
    let started = recorder.moment();
    let output = recorder.cli(arguments).done();
    (started, output, recorder.moment())
}

/// Signs in to the panel and changes the password, where the server may end.
pub(crate) fn try_change_password_in_panel(
    recorder: &Recorder,
    tenant: &str,
    present: &str,
    new: &str,
) -> io::Result<()> {
    let mut admin = Browser::at(&recorder.data_dir, "127.0.0.1");
    admin.try_send("sign-in", &[("tenant", tenant), ("password", present)])?.is(303);
    let fields = [("current", present), ("new", new), ("again", new)];
    admin.try_send("password", &fields)?.is(303);
    Ok(())
}
