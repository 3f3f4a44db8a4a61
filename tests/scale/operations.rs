//! The API's operations.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::measure::{Table, fastest, request, watch};
use crate::records::{COLUMNS, CUSTOM, Key, value};
use crate::support::client::Call;
use crate::support::{Api, TestServer, encoded};

const PATH: &str = "/hardware.php";

/// Records of a page that is measured.
const PAGE: usize = 50;

/// The page that is measured beside the first.
const FAR_PAGE: usize = 1_000;

/// The longest time of several operations, and whose it is.
#[derive(Default)]
struct Slowest(Duration, String);

impl Slowest {
    fn take(&mut self, time: Duration, what: &str) {
        if time >= self.0 {
            *self = Slowest(time, what.to_owned());
        }
    }
}

fn get<'a>(api: &'a Api, query: &str) -> Call<'a> {
    api.call("GET", &format!("{PATH}?limit={PAGE}&{query}"))
}

fn ids(page: &Value) -> Vec<i64> {
    page["data"].as_array().unwrap().iter().map(|record| record["id"].as_i64().unwrap()).collect()
}

/// The first page and a far one of every sort in both directions; every filter, alone, with another
/// sort, and with its total. Unit tests of `store/records/` find a sort or a filter without an
/// index.
pub(crate) fn lists(server: &TestServer, api: &Api, count: i64, table: &mut Table) {
    table.add_served(server, "GET one record", || {
        let (time, record) = fastest(|| api.call("GET", &format!("{PATH}?id={count}")));
        assert_eq!(record["asset_tag"], value(count, "asset_tag").cell());
        assert_eq!(record["custom"]["room"], value(count, "custom.room").cell());
        time
    });
    let [mut first, mut far] = [(); 2].map(|()| Slowest::default());
    let mut filters = Filters::default();
    let ((), usage) = watch(server, || {
        for column in COLUMNS {
            let mut sorted: Vec<(Key, i64)> = (1..=count).map(|n| (value(n, column), n)).collect();
            sorted.sort_unstable();
            for sort in [column.to_owned(), format!("-{column}")] {
                let expected: Vec<i64> = sorted.iter().map(|(_, id)| *id).collect();
                pages(api, &sort, &expected, &mut first, &mut far);
                sorted.reverse();
            }
        }
        // Record 2 has a value in every column.
        for column in COLUMNS.into_iter().skip(1).chain(CUSTOM) {
            for wanted in [value(2, column), Key::Null] {
                let having = |n: &i64| value(*n, column) == wanted;
                let text = if wanted == Key::Null { "null".to_owned() } else { wanted.cell() };
                let filter = format!("{column}={}", encoded(&text));
                filter_finds(api, &filter, (1..=count).filter(having).count(), &mut filters);
            }
        }
        let wanted = [("type", "laptop"), ("manufacturer", "Dell"), ("is_leased", "1")];
        let having =
            |n: &i64| wanted.iter().all(|(column, cell)| value(*n, column).cell() == *cell);
        let filter = wanted.map(|(column, cell)| format!("{column}={cell}")).join("&");
        filter_finds(api, &filter, (1..=count).filter(having).count(), &mut filters);
    });
    for (page, Slowest(time, whose)) in [
        ("first page, slowest sort", first),
        ("page 1,000, slowest sort", far),
        ("first page, slowest filter", filters.alone),
        ("first page, slowest filter with another sort", filters.sorted),
        ("first page, slowest filter with its total", filters.with_total),
    ] {
        table.add(format!("{page} ({whose})"), time, usage);
    }
}

/// Reads the first page and one far behind it, or the last.
fn pages(api: &Api, sort: &str, expected: &[i64], first: &mut Slowest, far: &mut Slowest) {
    let (time, page) = fastest(|| get(api, &format!("sort={sort}")));
    assert_eq!(ids(&page), expected[..PAGE], "{sort}");
    first.take(time, sort);
    let skipped = expected.len().min(FAR_PAGE * PAGE) - PAGE;
    let (mut cursor, mut passed) = (String::new(), 0);
    while passed < skipped {
        let step = (skipped - passed).min(200);
        let target = format!("{PATH}?sort={sort}&limit={step}{cursor}");
        let (_, page) = request(api.call("GET", &target));
        cursor = format!("&cursor={}", page["next_cursor"].as_str().unwrap());
        passed += step;
    }
    let (time, page) = fastest(|| get(api, &format!("sort={sort}{cursor}")));
    assert_eq!(ids(&page), expected[skipped..skipped + PAGE], "{sort}");
    far.take(time, sort);
}

/// The slowest lists with filters, their first pages.
#[derive(Default)]
struct Filters {
    alone: Slowest,
    sorted: Slowest,
    with_total: Slowest,
}

fn filter_finds(api: &Api, filter: &str, count: usize, slowest: &mut Filters) {
    let (time, page) = fastest(|| get(api, filter));
    assert_eq!(ids(&page).len(), count.min(PAGE), "{filter}");
    slowest.alone.take(time, filter);
    // With another sort, a filter that finds nothing may take longer than the limit of 5 s.
    if count > 0 {
        let (time, page) = fastest(|| get(api, &format!("{filter}&sort=-serial_number")));
        assert_eq!(ids(&page).len(), count.min(PAGE), "{filter}");
        slowest.sorted.take(time, filter);
    }
    let (time, page) = fastest(|| get(api, &format!("{filter}&total=true")));
    assert_eq!(page["total"], count, "{filter}");
    slowest.with_total.take(time, filter);
}

/// `q` with words that few, many and no records have.
pub(crate) fn searches(server: &TestServer, api: &Api, count: i64, table: &mut Table) {
    let serial = value(count / 2, "serial_number").cell();
    let having = |word: &str| {
        let columns = || {
            COLUMNS.into_iter().chain(CUSTOM).chain(["notes"]).filter(|column| is_searched(column))
        };
        (1..=count)
            .filter(|n| {
                columns().any(|column| value(*n, column).cell().to_lowercase().contains(word))
            })
            .count()
    };
    let all = usize::try_from(count).unwrap();
    for (operation, query, found) in [
        ("q, a word of one record", serial.to_lowercase(), 1),
        ("q, a word of every record", "charger".to_owned(), all),
        ("q, a word of an eighth, by name", "fujitsu&sort=-name".to_owned(), having("fujitsu")),
        ("q, two letters of every record", "sn".to_owned(), all),
        ("q, two letters of no record", "qq".to_owned(), 0),
        ("q, an unknown word", "zeppelin".to_owned(), 0),
        // "cha", "han" and "and" are in every record, but not together.
        ("q, an unknown word of frequent parts", "chand".to_owned(), 0),
    ] {
        table.add_served(server, operation, || {
            let (time, page) = fastest(|| get(api, &format!("q={query}")));
            assert_eq!(ids(&page).len(), found.min(PAGE), "{query}");
            time
        });
        table.add_served(server, &format!("{operation}, with its total"), || {
            let (time, page) = fastest(|| get(api, &format!("q={query}&total=true")));
            assert_eq!(page["total"], found, "{query}");
            time
        });
    }
}

fn is_searched(column: &str) -> bool {
    ["name", "manufacturer", "model", "serial_number", "asset_tag", "notes"].contains(&column)
        || CUSTOM.contains(&column)
}

/// POST, PUT and DELETE, one after the other. In the end a tenth of the new records is left.
pub(crate) fn changes(server: &TestServer, api: &Api, count: i64, table: &mut Table) {
    const MADE: i64 = 500;
    let body = |n: i64| json!({"name": format!("New {n}"), "serial_number": format!("NEW-{n}"), "notes": value(n, "notes").cell(), "custom": {"room": value(1, "custom.room").cell()}});
    let mut each = |method: &str, ids: std::ops::RangeInclusive<i64>| {
        let make = |id: i64| match method {
            "POST" => api.call(method, PATH).json(&body(id)),
            "PUT" => {
                api.call(method, &format!("{PATH}?id={id}")).json(&json!({"asset_tag": "changed"}))
            }
            _ => api.call(method, &format!("{PATH}?id={id}")),
        };
        let (times, usage) =
            watch(server, || ids.map(|id| request(make(id)).0).collect::<Vec<Duration>>());
        assert_eq!(usage.temporary, 0, "a change needs no temporary file");
        let mean = times.iter().sum::<Duration>() / u32::try_from(times.len()).unwrap();
        table.add(format!("{method}, mean"), mean, usage);
        table.add(format!("{method}, slowest"), times.into_iter().max().unwrap_or_default(), usage);
    };
    each("POST", count + 1..=count + MADE);
    each("PUT", count + 1..=count + MADE);
    each("DELETE", count + 1 + MADE / 10..=count + MADE);
    assert_eq!(api.total(PATH), count + MADE / 10);
    assert_eq!(api.total(&format!("{PATH}?q=new-{}", count + 1)), 1);
    assert_eq!(api.total(&format!("{PATH}?q=new-{}", count + MADE)), 0);
    table.add_served(server, "DELETE, refused because of dependents", || {
        let begun = Instant::now();
        api.delete("/employees.php?id=1").fails_with(409, "has_dependents");
        begun.elapsed()
    });
}
