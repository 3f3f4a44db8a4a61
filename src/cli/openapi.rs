//! `openapi`: prints the OpenAPI document, indented, or with `--json` on one line.

use super::GlobalOptions;
use super::output::print_document;
use crate::reference::openapi;

pub(super) fn run(options: &GlobalOptions) -> anyhow::Result<()> {
    if options.json {
        print_document(&openapi::JSON)
    } else {
        print_document(openapi::pretty().trim_end())
    }
}
