//! The schemas of the two kinds of database. `migrations/README.md` says how to change one.

use super::database::Schema;
use super::records;

pub(crate) static REGISTRY: Schema = Schema {
    name: "registry",
    version: 3,
    sql: include_str!("registry/schema.sql"),
    steps: &[(3, include_str!("migrations/registry/3.sql"))],
    complete: |_| Ok(()),
};

pub(crate) static TENANT: Schema = Schema {
    name: "tenant",
    version: 4,
    sql: include_str!("../../schema.sql"),
    steps: &[
        (3, include_str!("migrations/tenant/3.sql")),
        (4, include_str!("migrations/tenant/4.sql")),
    ],
    complete: records::build_search,
};
