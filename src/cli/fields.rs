//! `fields`: prints what the columns of a file can be.

use clap::Args;
use serde_json::Value;

use super::output::print_document;
use super::{GlobalOptions, resource};
use crate::model::Resource;
use crate::transfer;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The records
    #[arg(value_parser = resource())]
    resource: &'static Resource,
    /// Print a header for a new CSV file
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

pub(super) fn run(options: &GlobalOptions, arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.csv {
        return print_document(&transfer::header(arguments.resource));
    }
    let documents = Value::from(transfer::describe(arguments.resource));
    options.list(&documents, &["name", "type", "required", "limits", "values", "example"])
}
