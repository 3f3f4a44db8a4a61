//! The rules for a data directory after a power loss. Each rule that is broken is a panic that says
//! which.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::client::{client_of, observe, of_client, send};
use crate::disk::{Disk, Loss, digest};
use crate::history::{Candidate, Change, History, State, mismatch, without_stamps};
use crate::recorder::temporary_directory;
use crate::run::{ClientRun, Run};
use crate::support::browser::Browser;
use crate::support::{Api, DataDir, Setup};

/// Examines the directory `data_dir` that `run` left at `moment`. If `thorough`, also tries all
/// passwords, and repeats the commands that were interrupted.
pub(crate) fn examine(data_dir: &Arc<DataDir>, run: &Run, moment: usize, thorough: bool) {
    if !run.repeated.is_empty() && !data_dir.registry_file().exists() {
        assert!(run.registry.last_acknowledged(moment).is_none(), "the data directory is lost");
        if thorough {
            repeat_in_empty_directory(data_dir, run);
        }
        return;
    }
    assert_checked(data_dir, run, moment);
    let setup = Setup::without_rate_limit();
    let setup = run.serve.iter().fold(setup, |setup, option| setup.option(option));
    let mut server = setup.start_at(Arc::clone(data_dir));
    let (registry, taken) = examine_registry(data_dir, run, moment, thorough);
    for client in &run.clients {
        if registry.get(&format!("key {}", client.key)) == Some(&json!("active")) {
            examine_client(data_dir, run, client, moment);
        }
    }
    server.stop();
    examine_backups(data_dir, run, moment);
    if thorough {
        repeat_commands(data_dir, run, moment, taken);
        assert_intact(data_dir, "after the server was started and stopped");
    }
}

/// The message of every command but `serve` about databases of an earlier version.
const OLDER: &str = "was written by an older version";

/// The check before any start is clean.
fn assert_checked(data_dir: &DataDir, run: &Run, moment: usize) {
    if !data_dir.data().exists() {
        let nothing = run.registry.last_acknowledged(moment).is_none()
            && run.registry.candidates(0)[0].state.is_empty();
        assert!(nothing, "the data directory is lost");
        return;
    }
    let is_empty = run.registry.state(run.registry.last_acknowledged(moment)).is_empty();
    // Without a registry the command fails, as long as none was reported made.
    if is_empty && !data_dir.registry_file().exists() {
        return;
    }
    let output = data_dir.cli(&["check"]);
    let is_older = run.migrates && format!("{output:?}").contains(OLDER);
    assert!(is_older || output.code == Some(0), "`check` before any start: {output:?}");
}

#[track_caller]
fn assert_intact(data_dir: &DataDir, when: &str) {
    let output = data_dir.cli(&["check"]);
    assert_eq!(output.code, Some(0), "{when}: {output:?}");
}

/// Compares tenants, keys and passwords. Returns them, and the command that was not acknowledged
/// and has taken effect.
fn examine_registry(
    data_dir: &Arc<DataDir>,
    run: &Run,
    moment: usize,
    thorough: bool,
) -> (State, Option<usize>) {
    let mut found = State::new();
    for tenant in data_dir.cli_json(&["tenant", "list"]).as_array().unwrap() {
        if !run.serve.is_empty() {
            assert_eq!(tenant["keys"], 1, "{tenant} has been made without its key");
        }
        found.insert(format!("tenant {}", tenant["name"].as_str().unwrap()), json!(true));
    }
    let secrets: BTreeSet<&str> =
        names(&run.registry).filter_map(|name| name.strip_prefix("key ")).collect();
    for secret in secrets {
        let reply = data_dir.with_key(secret).get("/whoami.php");
        let state = if reply.status == 200 { "active".to_owned() } else { reply.code() };
        if state != "invalid_api_key" {
            found.insert(format!("key {secret}"), json!(state));
        }
    }
    let mut candidates = run.registry.candidates(moment);
    if !run.serve.is_empty() {
        // `serve --create-tenant` makes what is missing.
        candidates.iter_mut().for_each(|candidate| {
            candidate.state.insert("tenant acme".to_owned(), json!(true));
        });
    }
    let candidate =
        assert_one_of("the registry", &found, &candidates, |name| !name.starts_with("password "));
    // A hash takes its time.
    let passwords = candidate.state.iter().filter(|_| thorough || moment.is_multiple_of(8));
    for (name, expected) in passwords {
        let Some(tenant) = name.strip_prefix("password ") else { continue };
        // Of one that was being changed, the new one is tried as well.
        let changed = candidates.iter().filter_map(|candidate| candidate.state.get(name));
        let accepted: BTreeSet<&str> =
            changed.chain([expected]).filter_map(|password| password.as_str()).collect();
        let mut admin = Browser::at(data_dir, "127.0.0.1");
        let is_known =
            accepted.iter().any(|password| admin.sign_in(tenant, password).status == 303);
        assert!(is_known, "the password of {tenant} is lost");
    }
    (found, candidate.unacknowledged)
}

/// All names that a history mentions.
fn names(history: &History) -> impl Iterator<Item = &str> {
    history.changes.iter().flat_map(|change| change.effect.iter().map(|(name, _)| name.as_str()))
}

/// Finds the candidate that was found. Names that are not `compared` are left out.
fn assert_one_of<'a>(
    what: &str,
    found: &State,
    candidates: &'a [Candidate],
    compared: impl Fn(&str) -> bool,
) -> &'a Candidate {
    let mut differences = Vec::new();
    for candidate in candidates {
        let mut expected = candidate.state.clone();
        expected.retain(|name, _| compared(name));
        match mismatch(found, &expected) {
            None => return candidate,
            Some(difference) => differences.push(difference),
        }
    }
    panic!("{what}: {}", differences.join("; or "));
}

/// Compares a client's records, and repeats its last requests.
fn examine_client(data_dir: &Arc<DataDir>, run: &Run, client: &ClientRun, moment: usize) {
    let ClientRun { name, history, .. } = client;
    let api = data_dir.with_key(&client.key);
    let all = observe(&api);
    for label in all.keys() {
        let owner = client_of(label);
        assert!(
            run.clients.iter().any(|client| client.name == owner),
            "{label} is a record of nobody"
        );
    }
    let found = of_client(&all, name);
    let candidates = history.candidates(moment);
    let candidate = assert_one_of(&format!("the records of {name}"), &found, &candidates, |_| true);
    let taken = candidate.unacknowledged;
    if taken.is_some_and(|number| history.changes[number].request.is_none()) {
        // A restore brings back the idempotency keys of its backup, too.
        return;
    }
    if let Some(last) = history.last_acknowledged(moment) {
        // A request that was not acknowledged may have taken effect after it, so the answer alone
        // is compared.
        repeat(&api, &history.changes[last], true);
        assert_eq!(
            of_client(&observe(&api), name),
            found,
            "{name}: a repeat of what was acknowledged had an effect"
        );
    }
    for number in history.unacknowledged(moment) {
        let change = &history.changes[number];
        let has_effect = taken == Some(number);
        if change.request.is_some() && taken.is_none_or(|other| other == number) {
            repeat(&api, change, has_effect);
            let mut expected = history.state(history.last_acknowledged(moment));
            change.apply_to(&mut expected);
            let found = without_stamps(of_client(&observe(&api), name));
            if let Some(difference) = mismatch(&found, &without_stamps(expected)) {
                panic!("after the repeat of {}: {difference}", change.what);
            }
            return;
        }
    }
}

/// Repeats a request with its idempotency key. If the request had an effect, the first answer comes
/// again.
fn repeat(api: &Api, change: &Change, had_effect: bool) {
    let Some(request) = &change.request else { return };
    let reply = send(api, request);
    assert!(reply.status < 300, "the repeat of {} failed: {reply}", change.what);
    let replayed = reply.header("Idempotent-Replayed").is_some();
    assert_eq!(replayed, had_effect, "the repeat of {} was done twice or not at all", change.what);
    if let Some((status, body)) = request.answer.as_ref().filter(|_| had_effect) {
        assert_eq!(
            (reply.status, &reply.body),
            (*status, body),
            "the repeat of {}: another answer",
            change.what
        );
    }
}

/// Every directory with the name of a backup is one, and all that were reported done are there.
fn examine_backups(data_dir: &Arc<DataDir>, run: &Run, moment: usize) {
    let directory = data_dir.home().join("backups");
    let mut kept: BTreeSet<String> = BTreeSet::new();
    for entry in std::fs::read_dir(&directory).into_iter().flatten() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.starts_with('.') {
            kept.insert(format!("backups/{name}"));
        }
    }
    for backup in &run.backups {
        let is_removed = backup.removed.is_some_and(|moment_of_removal| moment_of_removal < moment);
        if backup.acknowledged <= moment && !is_removed {
            assert!(kept.contains(&backup.directory), "the backup {} is lost", backup.directory);
        }
    }
    for directory in kept {
        let content = digest(&Disk::of(&data_dir.home().join(&directory)).after(Loss::Nothing));
        if !COMPLETE.lock().unwrap().contains(&content) {
            assert_complete(&data_dir.home().join(&directory));
            COMPLETE.lock().unwrap().insert(content);
        }
    }
}

/// The content of the backups that were found complete.
static COMPLETE: Mutex<BTreeSet<[u8; 32]>> = Mutex::new(BTreeSet::new());

/// Restores a backup.
fn assert_complete(source: &Path) {
    let target = DataDir::in_home(temporary_directory(), false);
    let output = target.cli(&["restore", source.to_str().unwrap()]);
    assert_eq!(output.code, Some(0), "the backup {} is not complete: {output:?}", source.display());
    assert_intact(&target, "of a backup");
}

/// The operator empties the data directory and repeats what was interrupted.
fn repeat_in_empty_directory(data_dir: &Arc<DataDir>, run: &Run) {
    if data_dir.data().exists() {
        std::fs::remove_dir_all(data_dir.data()).unwrap();
    }
    let output = data_dir.cli(&run.repeated);
    assert_eq!(output.code, Some(0), "the repeat of `{}`: {output:?}", run.repeated.join(" "));
    assert_intact(data_dir, "after the repeat");
}

/// The operator repeats what was under way, unless it has taken effect, and makes a backup.
fn repeat_commands(data_dir: &Arc<DataDir>, run: &Run, moment: usize, taken: Option<usize>) {
    for number in run.registry.unacknowledged(moment) {
        let command = &run.registry.changes[number].what;
        if command.starts_with("--json") && taken != Some(number) {
            let arguments: Vec<&str> = command.split(' ').collect();
            let output = data_dir.cli(&arguments);
            assert_eq!(output.code, Some(0), "the repeat of `{command}`: {output:?}");
        }
    }
    let output = data_dir.cli(&["backup", "backups"]);
    assert_eq!(output.code, Some(0), "a backup afterwards: {output:?}");
}
