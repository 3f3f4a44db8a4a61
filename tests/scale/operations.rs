//! The API's operations.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::measure::{Table, fastest, request, watch};
use crate::records::{COLUMNS, CUSTOM, EMPLOYEES, Key, value};
use crate::support::client::Call;
use crate::support::{Api, TestServer, encoded};

const PATH: &str = "/hardware.php";

/// Records of a page that is measured.
const PAGE: usize = 50;

/// The page that is compared with the first.
const FAR_PAGE: usize = 1_000;

/// How long a page may take that has to cost about what the first page costs. One that was read by
/// its offset, or by passing all records, would take hundreds of times that.
fn longest(first: Duration) -> Duration {
    25 * first.max(Duration::from_millis(2))
}

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

/// The slowest lists with filters, their first pages.
#[derive(Default)]
struct Filters {
    in_order_of_ids: Slowest,
    sorted: Slowest,
    with_total: Slowest,
}

fn get<'a>(api: &'a Api, query: &str) -> Call<'a> {
    api.call("GET", &format!("{PATH}?limit={PAGE}&{query}"))
}

fn ids(page: &Value) -> Vec<i64> {
    page["data"].as_array().unwrap().iter().map(|record| record["id"].as_i64().unwrap()).collect()
}

/// Every sort in both directions, the first page and a far one; every filter, with and without the
/// total.
pub(crate) fn lists(server: &TestServer, api: &Api, count: i64, table: &mut Table) {
    let (mut first, mut far) = (Slowest::default(), Slowest::default());
    let (mut filtered, mut custom) = (Filters::default(), Filters::default());
    table.add_served(server, "GET one record", || {
        let (time, record) = fastest(|| api.call("GET", &format!("{PATH}?id={count}")));
        assert_eq!(record["asset_tag"], value(count, "asset_tag").cell());
        assert_eq!(record["custom"]["room"], value(count, "custom.room").cell());
        time
    });
    let (_, usage) = watch(server, || {
        for column in COLUMNS {
            let mut sorted: Vec<(Key, i64)> = (1..=count).map(|n| (value(n, column), n)).collect();
            sorted.sort_unstable();
            pages(api, column, sorted.iter().map(|(_, id)| *id), &mut first, &mut far);
            pages(
                api,
                &format!("-{column}"),
                sorted.iter().rev().map(|(_, id)| *id),
                &mut first,
                &mut far,
            );
            filters(api, column, &sorted, &mut filtered);
        }
        for column in ["created_at", "updated_at"] {
            pages(api, column, 1..=count, &mut first, &mut far);
            pages(api, &format!("-{column}"), (1..=count).rev(), &mut first, &mut far);
        }
        timestamps(api, count, &mut filtered);
        several(api, count, &mut filtered);
        customers(api, count, &mut filtered);
    });
    let (_, custom_usage) =
        watch(server, || CUSTOM.map(|column| custom_filters(api, column, count, &mut custom)));
    table.add(format!("first page, slowest sort ({})", first.1), first.0, usage);
    table.add(format!("page {FAR_PAGE}, slowest sort ({})", far.1), far.0, usage);
    for (kind, slowest, usage) in
        [("filter", filtered, usage), ("filter by a custom field", custom, custom_usage)]
    {
        for (more, Slowest(time, whose)) in [
            ("", slowest.in_order_of_ids),
            (" with another sort", slowest.sorted),
            (" with its total", slowest.with_total),
        ] {
            table.add(format!("first page, slowest {kind}{more} ({whose})"), time, usage);
        }
    }
}

/// Reads the first page and one far behind it, or the last; both have the records that they should
/// have.
fn pages(
    api: &Api,
    sort: &str,
    expected: impl Iterator<Item = i64>,
    first: &mut Slowest,
    far: &mut Slowest,
) {
    let expected: Vec<i64> = expected.take(FAR_PAGE * PAGE).collect();
    let skipped = expected.len() - PAGE;
    let (first_time, page) = fastest(|| get(api, &format!("sort={sort}")));
    assert_eq!(ids(&page), expected[..PAGE], "{sort}");
    let mut cursor = String::new();
    let mut passed = 0;
    while passed < skipped {
        let step = (skipped - passed).min(200);
        let target = format!("{PATH}?sort={sort}&limit={step}{cursor}");
        let (_, page) = request(api.call("GET", &target));
        cursor = format!("&cursor={}", page["next_cursor"].as_str().unwrap());
        passed += step;
    }
    let (far_time, page) = fastest(|| get(api, &format!("sort={sort}{cursor}")));
    assert_eq!(ids(&page), expected[skipped..], "{sort}");
    assert!(
        far_time < longest(first_time),
        "{sort}: page {FAR_PAGE} took {far_time:?}, the first {first_time:?}"
    );
    first.take(first_time, sort);
    far.take(far_time, sort);
}

/// Equality with the value in the middle, null, and for dates what is from there on, and up to it.
fn filters(api: &Api, column: &str, sorted: &[(Key, i64)], slowest: &mut Filters) {
    if column == "id" {
        return;
    }
    let (middle, _) = &sorted[sorted.len() / 2];
    let below = sorted.partition_point(|(key, _)| key < middle);
    let up_to = sorted.partition_point(|(key, _)| key <= middle);
    let nulls = sorted.partition_point(|(key, _)| *key == Key::Null);
    let text = encoded(&middle.cell());
    let (first, _) = fastest(|| get(api, ""));
    let mut wanted = vec![
        (format!("{column}={text}"), up_to - below),
        (format!("{column}={text}&sort=-serial_number"), up_to - below),
        (format!("{column}=null"), nulls),
    ];
    if column.contains("date") || column.contains("until") {
        wanted.push((format!("{column}_from={text}"), sorted.len() - below));
        wanted.push((format!("{column}_to={text}"), up_to - nulls));
        wanted.push((format!("{column}_to={text}&sort=-name"), up_to - nulls));
        wanted.push((format!("{column}_from=2100-01-01"), 0));
        wanted.push((format!("{column}_to=1900-01-01&sort=name"), 0));
    }
    for (filter, count) in wanted {
        let time = filter_finds(api, &filter, count, slowest);
        assert!(
            count > 0 || time < longest(first),
            "{filter} took {time:?} to find nothing, a page {first:?}"
        );
    }
}

/// Equality with a value, with a value that no record has, and null.
fn custom_filters(api: &Api, column: &str, count: i64, slowest: &mut Filters) {
    // Record 2 has all custom fields.
    let some = value(2, column);
    let having = |wanted: &Key| (1..=count).filter(|n| value(*n, column) == *wanted).count();
    for (text, found) in [
        (encoded(&some.cell()), having(&some)),
        ("null".to_owned(), having(&Key::Null)),
        ("zeppelin".to_owned(), 0),
    ] {
        filter_finds(api, &format!("{column}={text}"), found, slowest);
        // With another sort, a filter that finds nothing may take longer than the limit of 5 s.
        if found > 0 {
            filter_finds(api, &format!("{column}={text}&sort=-serial_number"), found, slowest);
        }
    }
}

/// Several filters at once, each of which many records pass.
fn several(api: &Api, count: i64, slowest: &mut Filters) {
    let wanted = [("type", "laptop"), ("manufacturer", "Dell"), ("is_leased", "1")];
    let passes = |n: &i64| wanted.iter().all(|(column, cell)| value(*n, column).cell() == *cell);
    let filter = wanted.map(|(column, cell)| format!("{column}={cell}")).join("&");
    filter_finds(api, &filter, (1..=count).filter(passes).count(), slowest);
}

/// All hardware that an employee has is the first customer's, but what one employee takes along to
/// a second customer.
fn customers(api: &Api, count: i64, slowest: &mut Filters) {
    let of = |wanted: fn(i64) -> bool| (1..=count).filter(|n| wanted(n % (EMPLOYEES + 1))).count();
    let mover = format!("/employees.php?id={EMPLOYEES}");
    let other = api.customer("Of one employee");
    api.put(&mover, json!({"customer_id": other})).is(200);
    let nobody = api.customer("Of no employee");
    for (customer, found) in [
        ("1".to_owned(), of(|employee| (1..EMPLOYEES).contains(&employee))),
        (other.to_string(), of(|employee| employee == EMPLOYEES)),
        (nobody.to_string(), 0),
        ("null".to_owned(), of(|employee| employee == 0)),
    ] {
        for more in [
            "",
            "&sort=name",
            "&sort=-purchase_date",
            "&sort=employee_id",
            "&sort=-customer_id",
            "&q=charger",
        ] {
            filter_finds(api, &format!("customer_id={customer}{more}"), found, slowest);
        }
    }
    api.put(&mover, json!({"customer_id": 1})).is(200);
    for customer in [other, nobody] {
        api.delete(&format!("/customers.php?id={customer}")).is(204);
    }
}

fn timestamps(api: &Api, count: i64, slowest: &mut Filters) {
    let (_, record) = request(api.call("GET", &format!("{PATH}?id=1")));
    let all = usize::try_from(count).unwrap();
    for column in ["created_at", "updated_at"] {
        let moment = encoded(record[column].as_str().unwrap());
        for side in ["", "_from", "_to"] {
            filter_finds(api, &format!("{column}{side}={moment}"), all, slowest);
        }
    }
}

/// Returns how long the first page takes.
fn filter_finds(api: &Api, filter: &str, count: usize, slowest: &mut Filters) -> Duration {
    let (time, page) = fastest(|| get(api, filter));
    assert_eq!(ids(&page).len(), count.min(PAGE), "{filter}");
    let kind =
        if filter.contains("sort=") { &mut slowest.sorted } else { &mut slowest.in_order_of_ids };
    kind.take(time, filter);
    let (counting, page) = fastest(|| get(api, &format!("{filter}&total=true")));
    assert_eq!(page["total"], count, "{filter}");
    slowest.with_total.take(counting, filter);
    time
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
