//! `check`: examines integrity, foreign keys and schema version of every database.

use anyhow::ensure;
use serde_json::{Value, json};

use super::GlobalOptions;
use crate::store::archive::check::{self, Finding};

/// The message about a file without a tenant. The file is no fault.
pub(super) const ORPHAN: &str = "no tenant in the registry has this file; it is left as it is";

pub(super) fn run(options: &GlobalOptions) -> anyhow::Result<()> {
    let findings = check::check(&options.data_dir).map_err(|error| options.explain(error))?;
    let documents: Vec<Value> = findings.iter().map(document).collect();
    options.list(&documents.into(), &["database", "ok", "problems"])?;
    let faulty = findings.iter().filter(|finding| !finding.problems.is_empty()).count();
    ensure!(faulty == 0, "{faulty} of {} databases have faults", findings.len());
    Ok(())
}

fn document(finding: &Finding) -> Value {
    let orphan = finding.is_orphan.then_some(ORPHAN);
    let problems: Vec<&str> = finding.problems.iter().map(String::as_str).chain(orphan).collect();
    json!({"database": finding.database, "ok": finding.problems.is_empty(), "problems": problems})
}
