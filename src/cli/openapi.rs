//! `openapi`: prints the OpenAPI document, indented, or with `--json` on one line.

use super::GlobalOptions;
use super::output::print;
use crate::reference::openapi;

pub(super) fn run(options: &GlobalOptions) -> anyhow::Result<()> {
    if options.json { print(&openapi::JSON) } else { print(openapi::pretty().trim_end()) }
}
