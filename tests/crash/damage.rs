//! Bits that flip in the files: no panic, no other tenant affected, and a restore mends it.

use std::fs;
use std::sync::Arc;

use serde_json::json;

use crate::client::{Client, observe};
use crate::disk::{Disk, Image, Loss, write};
use crate::history::State;
use crate::recorder::{Recorder, temporary_directory};
use crate::support::random::Random;
use crate::support::{DataDir, Setup};
use crate::{THREADS, in_threads};

const TENANT: &str = "data/tenants/1.db";

/// The files that are damaged in turn.
const FILES: [&str; 4] =
    [TENANT, "data/tenants/1.db-wal", "data/registry.db", "data/registry.db-wal"];

const PAGE: usize = 4096;

/// The files of two tenants and of a backup of both.
struct Fixture {
    files: Image,
    keys: [String; 2],
    /// The records of the second tenant, whose file is not damaged.
    other: State,
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
        let other = observe(&data_dir.with_key(&keys[1]));
        server.kill();
        let mut files = Disk::of(data_dir.home()).after(Loss::Nothing);
        files.retain(|path, _| !path.ends_with("-shm"));
        Fixture { files, keys, other }
    }

    /// Flips one bit of `file`, and examines what becomes of it. Returns whether `check` finds it.
    fn flip(&self, file: &str, random: &mut Random) -> bool {
        let mut files = self.files.clone();
        let content = Arc::make_mut(files.get_mut(file).unwrap().as_mut().unwrap());
        let (place, bit) = (choose(content, random), random.below(8));
        content[place] ^= 1 << bit;
        let home = temporary_directory();
        write(&files, home.path());
        let what = format!("bit {bit} of byte {place} of {file}");
        let data_dir = DataDir::in_home(home, false);
        let is_tenants = file.starts_with(TENANT);
        match Setup::without_rate_limit().try_start_at(&data_dir) {
            Ok(mut server) => {
                self.ask(&data_dir, is_tenants, &what);
                server.kill();
                assert!(!server.log().contains("panicked"), "{what}: {}", server.log());
            }
            Err(log) => assert!(!is_tenants, "{what}: the service does not start: {log}"),
        }
        let mut found = damaged(&data_dir);
        let is_found = !found.is_empty();
        found.retain(|database| !file.contains(database));
        assert!(!is_tenants || found.is_empty(), "{what}: {found:?}");
        let mut restore = vec!["restore", "backups"];
        if is_tenants {
            restore.extend(["one", "--force"]);
        } else {
            fs::rename(data_dir.data(), data_dir.home().join("moved away")).unwrap();
        }
        data_dir.cli(&restore).done();
        assert!(damaged(&data_dir).is_empty(), "{what}: after the restore");
        is_found
    }

    fn ask(&self, data_dir: &Arc<DataDir>, is_tenants: bool, what: &str) {
        let [one, two] = [0, 1].map(|number: usize| data_dir.with_key(&self.keys[number]));
        if is_tenants {
            assert_eq!(observe(&two), self.other, "{what}: another tenant");
            two.customer("Served");
        }
        // A damaged registry may not know the key, and an answer that needs it is 500.
        let failures: &[u16] = if is_tenants { &[503] } else { &[401, 403, 500, 503] };
        for resource in ["customers", "employees", "hardware"] {
            for query in ["?limit=200", "?q=basel&total=true&sort=-id"] {
                // A text that has changed may fit no rule of the contract. SQLite cannot tell.
                let reply = one.call("GET", &format!("/{resource}.php{query}")).try_send().unwrap();
                assert!(reply.status == 200 || failures.contains(&reply.status), "{what}: {reply}");
                _ = reply.json();
            }
        }
        let reply = one.post("/customers.php", json!({"name": "Afterwards"}));
        assert!(reply.status == 201 || failures.contains(&reply.status), "{what}: {reply}");
    }
}

/// The databases in which `check` finds a problem.
fn damaged(data_dir: &DataDir) -> Vec<String> {
    let output = data_dir.cli(&["--json", "check"]);
    assert!(!output.stderr.contains("panicked"), "{output:?}");
    let findings = output.json();
    let damaged = findings.as_array().unwrap().iter().filter(|finding| finding["ok"] == false);
    damaged.map(|finding| finding["database"].as_str().unwrap().to_owned()).collect()
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
#[ignore = "takes 5 s; `make proof` runs it"]
fn proof_bits_that_flip() {
    let fixture = Fixture::new();
    let places = if crate::moments().is_some() { 1_000 } else { 64 };
    let found: usize = in_threads(|part| {
        let mut random = Random::new(part as u64);
        let files = (part..places).step_by(THREADS).map(|number| number / THREADS % FILES.len());
        files.filter(|file| fixture.flip(FILES[*file], &mut random)).count()
    })
    .into_iter()
    .sum();
    eprintln!("{places} flipped bits: `check` found {found}");
    assert!(found > 0);
}
