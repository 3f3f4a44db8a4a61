//! `openapi`: the OpenAPI document, indented; with `--json` on one line.

use super::General;
use super::output::print;
use crate::reference::openapi;

pub fn run(general: &General) -> anyhow::Result<()> {
    if general.json { print(&openapi::JSON) } else { print(openapi::pretty().trim_end()) }
}
