//! The harness reports losses where there are some.

use std::collections::HashMap;

use crate::failed_syncs;
use crate::power_loss::{Report, fail, fail_at, summary};
use crate::recorder::{Kind, Record};
use crate::run::{Run, first_start};

/// Enough moments of a short run that one of them is after an answer and before the next sync of
/// the database.
const MOMENTS: usize = 8;

#[track_caller]
fn assert_reports(run: &Run, loss: &str) {
    let Report { findings, .. } = fail(run, MOMENTS);
    assert!(
        findings.iter().any(|finding| finding.text.contains(loss)),
        "{loss:?} is not reported: {}",
        summary(&findings)
    );
}

/// The run, where the syncs that `concerns` selects have no effect.
fn without_syncs(mut run: Run, concerns: impl Fn(&Record) -> bool) -> Run {
    for record in run.log.records.iter_mut().filter(|record| concerns(record)) {
        match record.kind {
            // As if it had begun before the first write.
            Kind::Sync => record.offset = 0,
            Kind::SyncDirectory => record.failed = true,
            _ => (),
        }
    }
    run
}

/// `synchronous=NORMAL` does not sync the log at a commit.
#[test]
#[ignore = "takes 2 s; .ci/run runs it"]
fn long_commits_that_are_not_synced_are_reported() {
    let run = without_syncs(first_start(), |record| record.path == "data/tenants/1.db-wal");
    assert_reports(&run, "is lost");
}

#[test]
#[ignore = "takes 2 s; .ci/run runs it"]
fn long_names_that_are_not_synced_are_reported() {
    let run = without_syncs(first_start(), |record| record.kind == Kind::SyncDirectory);
    assert_reports(&run, "the data directory is lost");
    let run = without_syncs(first_start(), |record| record.path == "data/tenants");
    assert_reports(&run, "tenants/1.db");
}

#[test]
#[ignore = "takes 2 s; .ci/run runs it"]
fn long_answers_before_the_commit_are_reported() {
    let mut run = first_start();
    for change in run.clients.iter_mut().flat_map(|client| &mut client.history.changes) {
        change.acknowledged = Some(change.started);
    }
    assert_reports(&run, "is lost");
}

/// SQLite writes at most so many bytes of a log at once.
const PAGE: usize = 4096;

/// The run without the writes that leave a log as it is: those by which it is made durable again.
fn without_recovery(mut run: Run) -> Run {
    let mut files: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut left_out = 0;
    for number in 0..run.log.records.len() {
        let record = &run.log.records[number];
        let bytes = run.log.bytes(record).to_vec();
        let (content, at) =
            (files.entry(record.inode).or_default(), usize::try_from(record.offset).unwrap());
        match record.kind {
            Kind::Create => content.clear(),
            Kind::Truncate => content.resize(at, 0),
            Kind::Write
                if bytes.len() > PAGE && content.get(at..at + bytes.len()) == Some(&bytes[..]) =>
            {
                assert!(record.path.ends_with("-wal"), "{record:?}");
                left_out += 1;
                let record = &mut run.log.records[number];
                (record.kind, record.failed) = (Kind::SyncDirectory, true);
            }
            Kind::Write => {
                content.resize(content.len().max(at + bytes.len()), 0);
                content[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            _ => (),
        }
    }
    assert!(left_out > 0, "no log is made durable again");
    run
}

/// The moments after failed syncs: enough that some are after an answer that depends on the
/// recovery.
const AFTER_FAILED_SYNCS: usize = 48;

/// Without the writes that make a log durable again after a failed sync, changes are lost.
#[test]
#[ignore = "takes 15 s; .ci/run runs it"]
fn long_a_restart_without_recovery_is_reported() {
    let run = failed_syncs::by_commands_beside_a_server();
    let moments = failed_syncs::moments(&run);
    let step = moments.len().div_ceil(AFTER_FAILED_SYNCS);
    let moments: Vec<usize> = moments.into_iter().step_by(step).collect();
    let Report { findings, disks, .. } = fail_at(&without_recovery(run), &moments);
    eprintln!(
        "without recovery: {} findings in {disks} disks\n{}",
        findings.len(),
        summary(&findings)
    );
    assert!(!findings.is_empty(), "no loss is reported");
}
