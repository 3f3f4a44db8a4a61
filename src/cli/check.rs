//! `check`: examines integrity, foreign keys and schema version of every database.

use anyhow::bail;
use serde_json::{Value, json};

use super::GlobalOptions;
use super::output::{print, print_json};
use crate::store::archive::check::{self, Finding};

pub(super) fn run(options: &GlobalOptions) -> anyhow::Result<()> {
    let findings = check::check(&options.data_dir).map_err(|error| options.explain(error))?;
    if options.json {
        print_json(&Value::Array(findings.iter().map(document).collect()))?;
    } else {
        for finding in &findings {
            print(&text(finding))?;
        }
    }
    let faulty = findings.iter().filter(|finding| !finding.problems.is_empty()).count();
    if faulty > 0 {
        bail!("{faulty} of {} databases have faults", findings.len());
    }
    Ok(())
}

/// What is said of a file without a tenant. It is no fault.
pub(super) const ORPHAN: &str = "no tenant in the registry has this file; it is left as it is";

fn document(finding: &Finding) -> Value {
    let ok = finding.problems.is_empty();
    let orphan = finding.is_orphan.then(|| ORPHAN.to_owned());
    let problems: Vec<&String> = finding.problems.iter().chain(&orphan).collect();
    json!({"database": finding.database, "ok": ok, "problems": problems})
}

fn text(finding: &Finding) -> String {
    if finding.is_orphan {
        return format!("{}: {ORPHAN}", finding.database);
    }
    if finding.problems.is_empty() {
        return format!("{}: ok", finding.database);
    }
    let lines: Vec<String> =
        finding.problems.iter().map(|problem| format!("{}: {problem}", finding.database)).collect();
    lines.join("\n")
}
