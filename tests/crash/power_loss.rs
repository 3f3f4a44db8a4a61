//! The power fails at many moments of each run, and leaves several disks at each.

use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;

use crate::disk::{Image, Loss, digest, write};
use crate::examination::examine;
use crate::failed_syncs;
use crate::history::History;
use crate::recorder::{Kind, Record, temporary_directory};
use crate::run::{self, Run};
use crate::support::DataDir;
use crate::support::random::Random;

/// One disk in so many is examined thoroughly.
const THOROUGH: usize = 12;

/// The moments without `CRASH_MOMENTS`.
const SAMPLE: usize = 6;

/// One disk to examine.
struct Case {
    moment: usize,
    loss: Loss,
    image: Image,
}

/// The number of tries, and the rules that were broken.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub moments: usize,
    pub disks: usize,
    pub findings: Vec<Finding>,
}

/// A rule that was broken.
#[derive(Debug)]
pub(crate) struct Finding {
    pub text: String,
    place: String,
}

/// Lets the power fail at `count` moments of a run.
pub(crate) fn fail(run: &Run, count: usize) -> Report {
    fail_at(run, &choose(run, count))
}

/// Lets the power fail at these moments of a run.
pub(crate) fn fail_at(run: &Run, moments: &[usize]) -> Report {
    let (sender, receiver) = mpsc::sync_channel::<Case>(4);
    let receiver = Mutex::new(receiver);
    let (examined, findings) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..crate::THREADS {
            scope.spawn(|| {
                loop {
                    let case = receiver.lock().unwrap().recv();
                    let Ok(case) = case else { return };
                    let number = examined.fetch_add(1, Ordering::Relaxed);
                    if let Some(finding) = judge(run, &case, number.is_multiple_of(THOROUGH)) {
                        findings.lock().unwrap().push(finding);
                    }
                }
            });
        }
        send_cases(run, moments, &sender);
        drop(sender);
    });
    Report {
        moments: moments.len(),
        disks: examined.into_inner(),
        findings: findings.into_inner().unwrap(),
    }
}

/// Moments of a run in their order: one half of them next to a sync or a change of names, the rest
/// anywhere.
fn choose(run: &Run, count: usize) -> Vec<usize> {
    let all: Vec<usize> = (0..run.moments()).collect();
    let special: Vec<usize> = all
        .iter()
        .copied()
        .filter(|moment| {
            let around =
                &run.log.records[moment.saturating_sub(1)..(moment + 1).min(run.log.records.len())];
            around.iter().any(|record| !matches!(record.kind, Kind::Write | Kind::Truncate))
        })
        .collect();
    let mut random = Random::new(7);
    let mut chosen = HashSet::new();
    while chosen.len() < count.min(all.len()) {
        let from = if random.below(2) == 0 && !special.is_empty() { &special } else { &all };
        chosen.insert(from[random.below(from.len())]);
    }
    let mut chosen: Vec<usize> = chosen.into_iter().collect();
    chosen.sort_unstable();
    chosen
}

/// Sends the disks of each moment. A disk with the same content and the same obligations is sent
/// once.
fn send_cases(run: &Run, moments: &[usize], cases: &mpsc::SyncSender<Case>) {
    let mut seen = HashSet::new();
    let mut disk = run.start.clone();
    let mut applied = 0;
    for &moment in moments {
        for record in &run.log.records[applied..moment] {
            disk.apply(&run.log, record);
        }
        applied = moment;
        let seed = moment as u64;
        let random = [512, 4096].map(|sector| Loss::Random { sector, seed: seed + sector as u64 });
        for loss in
            [Loss::Unsynced, Loss::Nothing, Loss::Content, Loss::Names].into_iter().chain(random)
        {
            let image = disk.after(loss);
            if seen.insert((digest(&image), obligations(run, moment))) {
                cases.send(Case { moment, loss, image }).unwrap();
            }
        }
    }
}

/// The changes that a disk must have at `moment`, and the number of changes that it may have.
fn obligations(run: &Run, moment: usize) -> Vec<(Option<usize>, usize)> {
    let of = |history: &History| {
        (history.last_acknowledged(moment), history.unacknowledged(moment).len())
    };
    let backups = run.backups.iter().filter(|backup| backup.acknowledged <= moment).count();
    let clients = run.clients.iter().map(|client| of(&client.history));
    [of(&run.registry), (None, backups)].into_iter().chain(clients).collect()
}

/// Examines one disk.
fn judge(run: &Run, case: &Case, thorough: bool) -> Option<Finding> {
    let home = temporary_directory();
    write(&case.image, home.path());
    let data_dir = DataDir::in_home(home, false);
    let examined =
        catch_unwind(AssertUnwindSafe(|| examine(&data_dir, run, case.moment, thorough)));
    let payload = examined.err()?;
    let text = payload.downcast_ref::<String>().cloned();
    let text = text
        .or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default();
    let before = case.moment.checked_sub(1).map(|last| &run.log.records[last]);
    let before =
        before.map(|record| format!(" (after {:?} {} {})", record.kind, record.path, record.other));
    let place = format!(
        "{}, moment {}{}, {:?}",
        run.name,
        case.moment,
        before.unwrap_or_default(),
        case.loss
    );
    Some(Finding { text: text.chars().take(600).collect(), place })
}

/// Findings whose texts differ only in numbers are shown once.
pub(crate) fn summary(findings: &[Finding]) -> String {
    let mut kinds: BTreeMap<String, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        let kind = finding.text.chars().filter(|char| char.is_alphabetic()).take(60).collect();
        kinds.entry(kind).or_default().push(finding);
    }
    let show = |found: &Vec<&Finding>| {
        format!("{} times, {}: {}\n", found.len(), found[0].place, found[0].text)
    };
    kinds.values().map(show).collect()
}

/// The moments of one run: its part of `CRASH_MOMENTS` or of the sample, in percent.
fn moments(percent: usize) -> usize {
    (crate::moments().unwrap_or(SAMPLE) * percent).div_ceil(100)
}

#[track_caller]
fn assert_nothing_is_lost(run: &Run, percent: usize) {
    assert_sound(run, fail(run, moments(percent)));
}

#[track_caller]
fn assert_sound(run: &Run, report: Report) {
    let Report { moments, disks, findings } = report;
    eprintln!("{}: {} records, {moments} moments, {disks} disks", run.name, run.log.records.len());
    assert!(
        disks > 0 && findings.is_empty(),
        "{} findings:\n{}",
        findings.len(),
        summary(&findings)
    );
}

#[test]
fn clients_and_commands() {
    assert_nothing_is_lost(&run::everything(), 45);
}

#[test]
fn a_first_start() {
    assert_nothing_is_lost(&run::first_start(), 10);
}

#[test]
#[ignore = "takes 6 s; `make proof` runs it"]
fn proof_a_log_that_is_copied_into_the_file() {
    assert_nothing_is_lost(&run::checkpoints(), 15);
}

/// The power fails at every moment from each failed sync up to some commits after the restart; in a
/// sample, at some of these. A sync that failed is not made good by a later one. Every acknowledged
/// change is there. A change without an answer may be there.
#[track_caller]
fn assert_nothing_is_lost_after_failed_syncs(run: &Run) {
    let all = failed_syncs::moments(run);
    eprintln!("{}: {} moments after failed syncs", run.name, all.len());
    let step = if crate::moments().is_some() { 1 } else { all.len().div_ceil(SAMPLE / 3) };
    let chosen: Vec<usize> = all.into_iter().step_by(step).collect();
    assert_sound(run, fail_at(run, &chosen));
}

#[test]
#[ignore = "takes 8 s; `make proof` runs it"]
fn proof_a_server_whose_disk_refuses_to_sync() {
    assert_nothing_is_lost_after_failed_syncs(&failed_syncs::by_server());
}

#[test]
#[ignore = "takes 6 s; `make proof` runs it"]
fn proof_commands_beside_a_server_whose_disk_refuses_to_sync() {
    assert_nothing_is_lost_after_failed_syncs(&failed_syncs::by_commands_beside_a_server());
}

#[test]
#[ignore = "takes 6 s; `make proof` runs it"]
fn proof_commands_whose_disk_refuses_to_sync() {
    assert_nothing_is_lost_after_failed_syncs(&failed_syncs::by_commands_alone());
}

#[test]
fn an_upgrade_of_1_0_0() {
    assert_nothing_is_lost(&run::upgrade(), 10);
}

#[test]
fn a_restore_into_a_new_data_directory() {
    assert_nothing_is_lost(&run::restore_anew(), 10);
}

/// Enough moments of a short run that one of them is after an answer and before the next sync of
/// the database.
const FEW_MOMENTS: usize = 8;

#[track_caller]
fn assert_reports(run: &Run, loss: &str) {
    let Report { findings, .. } = fail(run, FEW_MOMENTS);
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
    let run = without_syncs(run::first_start(), |record| record.path == "data/tenants/1.db-wal");
    assert_reports(&run, "is lost");
}

#[test]
#[ignore = "takes 2 s; `make proof` runs it"]
fn proof_names_that_are_not_synced_are_reported() {
    let run = without_syncs(run::first_start(), |record| record.kind == Kind::SyncDirectory);
    assert_reports(&run, "the data directory is lost");
    let run = without_syncs(run::first_start(), |record| record.path == "data/tenants");
    assert_reports(&run, "tenants/1.db");
}
