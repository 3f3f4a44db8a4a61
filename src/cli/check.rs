//! `check`: examines integrity, foreign keys and schema version of every database.

use anyhow::bail;
use serde_json::{Value, json};

use super::GlobalOptions;
use super::output::{print, print_json};
use crate::store::check::{self, Finding};
use crate::store::restore;

pub fn run(options: &GlobalOptions) -> anyhow::Result<()> {
    // An error is ignored: the check reports what is wrong.
    let _ = restore::finish_interrupted(&options.data_dir);
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

fn document(finding: &Finding) -> Value {
    json!({"database": finding.database, "ok": finding.problems.is_empty(), "problems": finding.problems})
}

fn text(finding: &Finding) -> String {
    if finding.problems.is_empty() {
        return format!("{}: ok", finding.database);
    }
    let lines: Vec<String> =
        finding.problems.iter().map(|problem| format!("{}: {problem}", finding.database)).collect();
    lines.join("\n")
}
