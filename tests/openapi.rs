//! The interface description: a change of the interface is seen as a change of its golden copy.

use std::path::Path;

use tenantdesk::reference::openapi;

/// Renewed by `UPDATE_GOLDEN=1 cargo test --test openapi`.
#[test]
fn the_document_is_its_golden_copy() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/openapi.json");
    let now = openapi::pretty();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let line = golden.lines().zip(now.lines()).position(|(old, new)| old != new);
    assert!(
        golden == now,
        "the interface differs from tests/golden/openapi.json (first at line {:?}); \
         UPDATE_GOLDEN=1 cargo test --test openapi renews it, and its diff is the change of the interface",
        line.map(|line| line + 1)
    );
}
