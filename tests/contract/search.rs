//! Contract section 4, `q`: every word of it, in whatever case, as part of any text or e-mail
//! field.

use serde_json::json;

use crate::support::{Api, TestServer, encoded};

/// No record.
const NONE: [i64; 0] = [];

fn found(api: &Api, q: &str) -> Vec<i64> {
    api.ids(&format!("/customers.php?q={}", encoded(q)))
}

#[test]
fn a_word_is_found_as_part_of_any_text_or_e_mail_field() {
    let (_server, api) = TestServer::with_unlimited_api();
    let fields = ["customer_number", "phone", "street", "postal_code", "city", "notes"];
    for field in fields {
        api.create("/customers.php", json!({"name": "Plain", field: "before needle after"}));
    }
    api.create("/customers.php", json!({"name": "haNEEDLEstack"}));
    api.create("/customers.php", json!({"name": "Plain", "email": "the.needle@shop.example"}));
    api.create(
        "/customers.php",
        json!({"name": "Plain", "country": "QZ", "status": "prospect", "customer_since": "2024-05-06"}),
    );
    assert_eq!(found(&api, "needle"), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(found(&api, "eedl"), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(found(&api, "needle@"), [8]);
    assert_eq!(found(&api, "qz"), [9], "the country is text");
    assert_eq!(found(&api, "prospect"), NONE, "an enumerated value is not");
    assert_eq!(found(&api, "2024-05"), NONE, "nor is a date");
    assert_eq!(found(&api, "needlework"), NONE);
    let employee =
        json!({"customer_id": 1, "email": "x@shop.example", "job_title": "Needle maker"});
    api.create("/employees.php", employee);
    assert_eq!(api.total("/employees.php?q=NEEDLE"), 1);
    api.create("/hardware.php", json!({"name": "Sewing machine", "serial_number": "NEEDLE-1"}));
    assert_eq!(api.total("/hardware.php?q=needle-1"), 1);
}

#[test]
fn every_word_has_to_be_there_in_whichever_field() {
    let (_server, api) = TestServer::with_api();
    api.create("/customers.php", json!({"name": "Alpha Works", "city": "Bonn"}));
    api.create("/customers.php", json!({"name": "Beta Works", "city": "Bonn"}));
    api.create("/customers.php", json!({"name": "Alpha", "notes": "works in Ulm"}));
    assert_eq!(found(&api, "alpha works"), [1, 3]);
    assert_eq!(found(&api, "works   bonn"), [1, 2]);
    assert_eq!(found(&api, "bonn alpha"), [1]);
    assert_eq!(found(&api, "alpha\u{3000}bonn\n"), [1], "any white space parts words");
    assert_eq!(found(&api, "alpha alpha ALPHA"), [1, 3]);
    assert_eq!(found(&api, "alpha beta"), NONE);
    assert_eq!(found(&api, "worksbonn"), NONE, "fields are not run together");
}

#[test]
fn letters_that_mean_something_to_a_database_mean_themselves() {
    let (_server, api) = TestServer::with_unlimited_api();
    let names = [
        "100% sure",
        "100 sure",
        "under_score",
        "underxscore",
        "back\\slash",
        "it's",
        "say \"hi\"",
        "star*",
        "a AND b",
        "NEAR(x y)",
        "name:value",
        "-minus",
        "(paren)",
        "semi; --",
        "caret^",
        "{brace}",
        "plus+plus",
    ];
    for name in names {
        api.customer(name);
    }
    // `100 sure` finds both, because its words are parts of the other name.
    for (name, id) in names.into_iter().zip(1..).filter(|(name, _)| *name != "100 sure") {
        assert_eq!(found(&api, name), [id], "{name}");
    }
    for (q, id) in
        [("100%", 1), ("%", 1), ("_", 3), ("\\", 5), ("'", 6), ("\"", 7), ("*", 8), ("and", 9)]
    {
        assert_eq!(found(&api, q), [id], "{q}");
    }
    for nothing in ["sta*r", "OR 1=1", "%%", "__", "\"\"", "a* b*", "NOT x", "\\\\"] {
        assert_eq!(found(&api, nothing), NONE, "{nothing}");
    }
}

#[test]
fn case_is_folded_as_unicode_folds_it() {
    let (_server, api) = TestServer::with_unlimited_api();
    let pairs = [
        ("Müller", "MÜLLER"),
        ("ÄÖÜ", "äöü"),
        ("Straße", "STRASSE"),
        ("FUSSBALL", "fußball"),
        ("GROẞ", "gross"),
        ("σίγμας", "ΣΊΓΜΑΣ"),
        ("Москва", "МОСКВА"),
        ("ﬁnale", "FINALE"),
        ("Ǆep", "ǆEP"),
        ("\u{212a}elvin", "kelvin"),
        ("Ꮳꮃꭹ", "ꮳꮃꭹ"),
        ("ΐota", "\u{399}\u{308}\u{301}OTA"),
        ("𐐀𐐁𐐂", "𐐨𐐩𐐪"),
    ];
    for (stored, _) in pairs {
        api.customer(&format!("{stored} {stored}"));
    }
    for (n, (stored, asked)) in pairs.into_iter().enumerate() {
        let id = i64::try_from(n).unwrap() + 1;
        for q in [stored, asked] {
            assert!(found(&api, q).contains(&id), "{q} finds {stored}");
        }
    }
    assert!(!found(&api, "MULLER").contains(&1), "folding takes no marks away");
}

#[test]
fn a_search_takes_twenty_words() {
    let (_server, api) = TestServer::with_api();
    let words = |count: usize| (0..count).map(|n| format!("w{n}")).collect::<Vec<_>>().join(" ");
    api.create("/customers.php", json!({"name": "Wordy", "notes": words(30)}));
    assert_eq!(found(&api, &words(20)), [1]);
    let reply = api.get(&format!("/customers.php?q={}", encoded(&words(21))));
    reply.fails_with(400, "bad_request").saying("20");
}

#[test]
fn a_search_takes_two_hundred_characters_and_compares_all_of_them() {
    let (_server, api) = TestServer::with_api();
    let notes = |last: char| format!("{}{last}x", "abcdefghiÜ".repeat(19) + "klmnopqr");
    for last in "0123".chars() {
        let notes = format!("before {}", notes(last));
        api.create("/customers.php", json!({"name": "Wordy", "notes": notes}));
    }
    for (last, id) in "0123".chars().zip(1..) {
        assert_eq!(notes(last).chars().count(), 200);
        assert_eq!(found(&api, &notes(last)), [id]);
        assert_eq!(found(&api, &notes(last).to_uppercase()), [id]);
    }
    assert_eq!(found(&api, &notes('4')), NONE);
    let reply = api.get(&format!("/customers.php?q={}", encoded(&format!("{}x", notes('0')))));
    reply.fails_with(400, "bad_request").saying("200");
}

#[test]
fn a_blank_search_is_none() {
    let (_server, api) = TestServer::with_api();
    api.customer("One");
    api.customer("Two");
    for q in ["", " ", "\t\n", "\u{3000}\u{a0}"] {
        assert_eq!(found(&api, q), [1, 2], "{q:?}");
    }
    assert_eq!(api.ids("/customers.php?q"), [1, 2]);
}
