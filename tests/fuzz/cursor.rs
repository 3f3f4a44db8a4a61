//! Cursors: the service accepts each cursor that it gave out, and refuses any other text.

use tenantdesk::api::list;
use tenantdesk::api::parameters::Query;
use tenantdesk::model::{self, KeysetPosition, RecordId, Resource, Scopes, Value};

use crate::mutate::{fuzz, words};

const SEEDS: &[&[u8]] =
    &[b"AQAAAAAAAAAAAAAAAAAAAAAAbgAAAAAAAAAA&sort=-name", &[b'A'; 600], b"", b"AQAA====", b"AQ"];

const PIECES: &str =
    "AAAA ____ ==== %00 - eyJ &sort=name &sort=-created_at &q=a &status=active Z 0";

#[test]
fn cursor() {
    fuzz("cursor", SEEDS, &words(PIECES), |input| {
        let text = format!("cursor={}", String::from_utf8_lossy(input));
        let Ok(query) = Query::parse(Some(&text)) else { return };
        for resource in model::ALL {
            forge(resource, input);
            let Ok(list) = list::parse(resource, &query, Scopes::every()) else { continue };
            let Some(position) = &list.after else {
                assert_eq!(query.get("cursor"), Some(""), "only an empty cursor has no place");
                continue;
            };
            let written = list::write_cursor(position, &list);
            let again = Query::parse(Some(&query.with_cursor(&written))).unwrap();
            assert_eq!(
                list::parse(resource, &again, Scopes::every()).unwrap().after.as_ref(),
                Some(position),
                "{written}"
            );
        }
    });
}

/// A cursor that was put together by someone who knows how: its sum is right, its content is not.
fn forge(resource: &'static Resource, input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut number = [0; 8];
    number.iter_mut().zip(input).for_each(|(to, from)| *to = *from);
    let number = i64::from_be_bytes(number);
    let values = [
        Value::Null,
        Value::Boolean(number & 1 == 1),
        Value::Integer(number),
        Value::Text(text.into_owned()),
    ];
    for sort in resource.sortable_fields() {
        let query = format!("sort={}", sort.name);
        let list =
            list::parse(resource, &Query::parse(Some(&query)).unwrap(), Scopes::every()).unwrap();
        for value in &values {
            let position = KeysetPosition { value: value.clone(), id: RecordId(number) };
            let forged = format!("{query}&cursor={}", list::write_cursor(&position, &list));
            if let Ok(taken) =
                list::parse(resource, &Query::parse(Some(&forged)).unwrap(), Scopes::every())
            {
                assert_eq!(taken.after, Some(position));
            }
        }
    }
}
