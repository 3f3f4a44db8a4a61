//! Bits that flip in the files: no panic, no other tenant affected, and a restore mends it.

use std::fs;
use std::sync::Arc;

use serde_json::json;

use crate::client::{Client, observe};
use crate::disk::{Disk, Image, Loss, write};
use crate::history::State;
use crate::recorder::{Recorder, temporary_directory};
use crate::support::in_process::AppServer;
use crate::support::random::Random;
use crate::support::{DataDir, Setup};
use crate::{THREADS, in_threads};

const TENANT: &str = "data/tenants/1.db";

/// The files that are damaged in turn.
const FILES: [&str; 4] =
    [TENANT, "data/tenants/1.db-wal", "data/registry.db", "data/registry.db-wal"];

const PAGE: usize = 4096;

/// The files of two tenants and of a backup of both, and what the tenants hold.
struct Fixture {
    files: Image,
    keys: [String; 2],
    content: [State; 2],
}

/// The findings in all places.
#[derive(Debug, Default)]
struct Counts {
    places: usize,
    found_by_check: usize,
    refused: usize,
    wrong_but_sound_for_sqlite: usize,
}

impl Fixture {
    fn new() -> Fixture {
        let recorder = Recorder::in_memory();
        let data_dir = &recorder.data_dir;
        let mut server = Setup::without_rate_limit().start_at(Arc::clone(data_dir));
        let keys = ["one", "two"].map(|name| data_dir.tenant(name).key(&["all"]).key);
        let mut clients =
            [Client::new(&recorder, "one", &keys[0]), Client::new(&recorder, "two", &keys[1])];
        clients.iter_mut().for_each(|client| client.make_requests(24));
        data_dir.cli(&["backup", "backups"]).done();
        // Half of the content is in the files, and half in their logs.
        server.stop();
        server.restart();
        clients.iter_mut().for_each(|client| client.make_requests(24));
        data_dir.cli(&["key", "create", "two", "--name", "in the log", "--scope", "all"]).done();
        let content = [0, 1].map(|number: usize| observe(&data_dir.with_key(&keys[number])));
        server.kill();
        let mut files = Disk::of(data_dir.home()).after(Loss::Nothing);
        files.retain(|path, _| !path.ends_with("-shm"));
        Fixture { files, keys, content }
    }

    /// Flips one bit of `file`, and examines what becomes of it.
    fn flip(&self, server: &AppServer, file: &str, random: &mut Random, counts: &mut Counts) {
        let mut files = self.files.clone();
        let content = Arc::make_mut(files.get_mut(file).unwrap().as_mut().unwrap());
        let (place, bit) = (choose(content, random), random.below(8));
        content[place] ^= 1 << bit;
        let home = temporary_directory();
        write(&files, home.path());
        let what = format!("bit {bit} of byte {place} of {file}");
        let data_dir = DataDir::in_home(home, false);
        self.examine(server, &data_dir, file, &what, counts);
        counts.places += 1;
    }

    fn examine(
        &self,
        server: &AppServer,
        data_dir: &Arc<DataDir>,
        file: &str,
        what: &str,
        counts: &mut Counts,
    ) {
        let is_tenants = file.starts_with(TENANT);
        let is_wrong = match server.open(data_dir) {
            Err(error) => {
                assert!(!is_tenants, "{what}: the service does not start: {error}");
                counts.refused += 1;
                false
            }
            Ok(_app) => self.ask(data_dir, is_tenants, what, counts),
        };
        let findings = tenantdesk::store::archive::check::check(&data_dir.data()).unwrap();
        let is_found = findings.iter().any(|finding| !finding.problems.is_empty());
        assert!(
            !is_tenants
                || findings
                    .iter()
                    .all(|finding| finding.problems.is_empty() || file.contains(&finding.database)),
            "{what}: {findings:?}"
        );
        counts.found_by_check += usize::from(is_found);
        counts.wrong_but_sound_for_sqlite += usize::from(is_wrong && !is_found);
        let mut restore = vec!["restore", "backups"];
        if is_tenants {
            restore.extend(["one", "--force"]);
        } else {
            fs::rename(data_dir.data(), data_dir.home().join("moved away")).unwrap();
        }
        data_dir.cli(&restore).done();
        let findings = tenantdesk::store::archive::check::check(&data_dir.data()).unwrap();
        let left: Vec<_> = findings.iter().filter(|finding| !finding.problems.is_empty()).collect();
        assert!(left.is_empty(), "{what}: after the restore: {left:?}");
    }

    /// Asks for everything. Returns whether an answer was wrong.
    fn ask(
        &self,
        data_dir: &Arc<DataDir>,
        is_tenants: bool,
        what: &str,
        counts: &mut Counts,
    ) -> bool {
        let [one, two] = [0, 1].map(|number: usize| data_dir.with_key(&self.keys[number]));
        let mut is_wrong = false;
        if is_tenants {
            assert_eq!(observe(&two), self.content[1], "{what}: another tenant");
            two.customer("Served");
        }
        for resource in ["customers", "employees", "hardware"] {
            for target in [
                format!("/{resource}.php?limit=200"),
                format!("/{resource}.php?q=basel&total=true&sort=-id"),
                "/changes.php".to_owned(),
            ] {
                // A text that has changed may fit no rule of the contract. SQLite cannot tell.
                let reply = one.call("GET", &target).try_send().unwrap();
                // A damaged registry may not know the key, and an answer that needs it is 500.
                let expected: &[u16] =
                    if is_tenants { &[200, 503] } else { &[200, 401, 403, 500, 503] };
                assert!(expected.contains(&reply.status), "{what}: {reply}");
                if reply.status != 200 {
                    reply.check();
                    counts.refused += 1;
                    continue;
                }
                let body: serde_json::Value = serde_json::from_slice(&reply.body)
                    .unwrap_or_else(|error| panic!("{what}: {error}: {reply}"));
                if target.ends_with("=200") {
                    let expected: Vec<_> = self.content[0]
                        .iter()
                        .filter(|(label, _)| label.starts_with(resource))
                        .collect();
                    let found = body["data"].as_array().unwrap();
                    is_wrong |= found.len() != expected.len()
                        || !expected.iter().all(|(_, record)| found.contains(record));
                }
            }
        }
        let reply = one.post("/customers.php", json!({"name": "Afterwards"}));
        let expected: &[u16] = if is_tenants { &[201, 503] } else { &[201, 401, 403, 500, 503] };
        assert!(expected.contains(&reply.status), "{what}: {reply}");
        is_wrong
    }
}

/// A place in a file: at the start of a page, where SQLite keeps the structure, or at a byte that
/// is not 0.
fn choose(content: &[u8], random: &mut Random) -> usize {
    if random.below(2) == 0 {
        return random.below(content.len() / PAGE) * PAGE + random.below(16);
    }
    let used: Vec<usize> = (0..content.len()).filter(|place| content[*place] != 0).collect();
    used[random.below(used.len())]
}

#[test]
#[ignore = "takes 5 s; .ci/run runs it"]
fn long_bits_that_flip() {
    let fixture = Fixture::new();
    let places = if crate::moments().is_some() { 1_000 } else { 64 };
    let try_part = |part: usize| {
        let server = AppServer::start();
        let (mut random, mut counts) = (Random::new(part as u64), Counts::default());
        for number in (part..places).step_by(THREADS) {
            fixture.flip(&server, FILES[number / THREADS % FILES.len()], &mut random, &mut counts);
        }
        counts
    };
    let counts = in_threads(try_part);
    let sum = |count: fn(&Counts) -> usize| -> usize { counts.iter().map(count).sum() };
    eprintln!(
        "{} flipped bits: `check` found {}, {} answers were refused, {} places had a wrong answer that SQLite cannot tell",
        sum(|counts| counts.places),
        sum(|counts| counts.found_by_check),
        sum(|counts| counts.refused),
        sum(|counts| counts.wrong_but_sound_for_sqlite),
    );
    assert!(sum(|counts| counts.found_by_check) > 0);
}
