//! The harness reports losses where there are some.

use crate::power_loss::{Report, fail, summary};
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
#[ignore = "takes 2 s; `make proof` runs it"]
fn proof_commits_that_are_not_synced_are_reported() {
    let run = without_syncs(first_start(), |record| record.path == "data/tenants/1.db-wal");
    assert_reports(&run, "is lost");
}

#[test]
#[ignore = "takes 2 s; `make proof` runs it"]
fn proof_names_that_are_not_synced_are_reported() {
    let run = without_syncs(first_start(), |record| record.kind == Kind::SyncDirectory);
    assert_reports(&run, "the data directory is lost");
    let run = without_syncs(first_start(), |record| record.path == "data/tenants");
    assert_reports(&run, "tenants/1.db");
}

#[test]
#[ignore = "takes 2 s; `make proof` runs it"]
fn proof_answers_before_the_commit_are_reported() {
    let mut run = first_start();
    for change in run.clients.iter_mut().flat_map(|client| &mut client.history.changes) {
        change.acknowledged = Some(change.started);
    }
    assert_reports(&run, "is lost");
}
