//! Query strings, through everything that a list makes of them.

use tenantdesk::api::list;
use tenantdesk::api::query::Query;
use tenantdesk::resources;

use crate::mutate::fuzz;

const PIECES: &[&[u8]] = &[
    b"&",
    b"=",
    b"%",
    b"%00",
    b"%ff",
    b"%C3%BC",
    b"+",
    b"limit=",
    b"cursor=",
    b"sort=-",
    b"total=true",
    b"q=",
    b"_from=",
    b"_to=",
    b"null",
    b"2026-02-30",
    b"2026-11-20T19:30:00%2B14:00",
    b"9223372036854775808",
    b"-1",
    b"created_at",
    b"name=",
    b"is_active=1",
    b"customer_id=",
    b"\xc3\xa9",
    b"9999-12-31T23:59:60Z",
    b"-9999",
];

#[test]
fn query() {
    fuzz("query", PIECES, |input| {
        let text = String::from_utf8_lossy(input);
        let Ok(query) = Query::parse(Some(&text)) else { return };
        for resource in resources::ALL {
            let Ok(listing) = list::parse(resource, &query) else { continue };
            assert!((1..=200).contains(&listing.limit));
            assert!(listing.words.len() <= 20);
        }
        // The next page's address says the same, and can stand in a header.
        let next = query.with_cursor("abc");
        assert!(next.bytes().all(|byte| (0x21..0x7f).contains(&byte)), "{next:?}");
        let again = Query::parse(Some(&next)).unwrap();
        assert_eq!(again.get("cursor"), Some("abc"));
        for (name, value) in query.iter().filter(|(name, _)| *name != "cursor") {
            assert_eq!(again.get(name), Some(value), "{next:?}");
        }
    });
}
