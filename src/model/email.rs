//! The syntax of e-mail addresses (contract section 2).

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};
use idna_adapter::Adapter;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

/// In characters.
pub const MAX_EMAIL: usize = 254;

/// Returns whether `text` is one e-mail address as contract section 2 defines it.
pub fn is_email(text: &str) -> bool {
    text.rsplit_once('@').is_some_and(|(local, domain)| is_local_part(local) && is_domain(domain))
}

/// The maximum length of the part before the `@`, in octets.
const MAX_LOCAL_PART: usize = 64;

/// Returns whether `local` is a dot-atom (RFC 5322 section 3.2.3), possibly with characters beyond
/// ASCII (RFC 6531 section 3.3).
fn is_local_part(local: &str) -> bool {
    local.len() <= MAX_LOCAL_PART
        && local.split('.').all(|atom| {
            !atom.is_empty()
                && !atom.starts_with(is_combining_mark)
                && atom.chars().all(is_atom_character)
        })
}

/// Beyond ASCII, the tables of UTS 46 tell which characters have a shape. They delete most
/// invisible characters and turn others, such as those of private use, into U+FFFD. In scripts that
/// need joiners, they keep joiners. Two addresses that look the same would be two customers.
fn is_atom_character(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c);
    }
    let mapped: String = Adapter::new().map_normalize([c].into_iter()).collect();
    let is_joiner = matches!(c, '\u{200c}' | '\u{200d}');
    !mapped.is_empty() && !mapped.contains('\u{fffd}') && !is_joiner && !c.is_whitespace()
}

/// Returns whether the domain is valid for IDNA (UTS 46, non-transitional, STD3 rules) and has at
/// least two labels of letters, digits and hyphens. Punycode is decoded for this check.
fn is_domain(domain: &str) -> bool {
    let (uts46, hyphens) = (Uts46::new(), Hyphens::CheckFirstLast);
    let (unicode, _) = uts46.to_unicode(domain.as_bytes(), AsciiDenyList::STD3, hyphens);
    uts46
        .to_ascii(domain.as_bytes(), AsciiDenyList::STD3, hyphens, DnsLength::Verify)
        .is_ok_and(|ascii| ascii.contains('.'))
        && domain.chars().chain(unicode.chars()).all(is_domain_character)
}

/// Returns whether IDNA 2008 permits the character. UTS 46 also permits symbols, emoji, and
/// variants of other characters, such as `²`, which it maps to `2`.
fn is_domain_character(c: char) -> bool {
    /// The signs that RFC 5892 permits within words (section 2.6, appendix A). `idna` checks the
    /// context of joiners.
    const SIGNS: &str = "\u{b7}\u{375}\u{5f3}\u{5f4}\u{6fd}\u{6fe}\u{f0b}\u{200c}\u{200d}\u{30fb}";
    matches!(c, '.' | '-')
        || SIGNS.contains(c)
        || (c.is_alphanumeric() || is_combining_mark(c))
            && [c].into_iter().nfd().eq([c].into_iter().nfkd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_parts() {
        let longest = "a".repeat(64);
        for valid in [
            "a",
            "a.b+c",
            "müller",
            "mu\u{308}ller",
            "उदाहरण",
            "用户",
            "☕",
            "x_y-z",
            "!#$%&'*+-/=?^_`{|}~",
            longest.as_str(),
        ] {
            assert!(is_email(&format!("{valid}@shop.example")), "{valid}");
        }
        let long = "a".repeat(65);
        let long_in_octets = "ü".repeat(33);
        for invalid in [
            "",
            ".a",
            "a.",
            "a..b",
            "a b",
            " a",
            "a\t",
            "\"a\"",
            "A <a",
            "<a",
            "a@b",
            "a,b",
            "a;b",
            "a:b",
            "(a)",
            "[a]",
            "a\\b",
            "a\0",
            "\u{3000}a",
            "a\u{a0}b",
            "\u{85}",
            "a\u{ad}b",
            "a\u{34f}b",
            "a\u{61c}b",
            "a\u{115f}b",
            "a\u{180e}b",
            "a\u{200b}b",
            "a\u{200d}b",
            "a\u{202e}b",
            "a\u{2060}b",
            "a\u{3164}b",
            "☕\u{fe0f}",
            "\u{feff}a",
            "a\u{600}b",
            "a\u{fff9}b",
            "a\u{fffd}b",
            "a\u{e000}b",
            "a\u{e0041}b",
            "a\u{10fffd}b",
            "\u{308}a",
            "a.\u{94d}b",
            long.as_str(),
            long_in_octets.as_str(),
        ] {
            assert!(!is_email(&format!("{invalid}@shop.example")), "{invalid:?}");
        }
        for invalid in ["", "@", "a", "a@", "shop.example"] {
            assert!(!is_email(invalid), "{invalid:?}");
        }
    }

    /// Returns a domain of `octets` octets. Its labels have 49 octets, the last one the remainder.
    fn domain_of(octets: usize) -> String {
        let mut domain = format!("{}.", "a".repeat(49)).repeat(octets / 50);
        domain.push_str(&"b".repeat(octets % 50));
        domain
    }

    #[test]
    fn domains() {
        let label_63 = format!("{}.example", "a".repeat(63));
        // 61 characters, and 67 octets as `xn--tdaaa…`.
        let long_in_ascii = format!("{}.example", "ü".repeat(61));
        for valid in [
            "b.example",
            "a-b.example",
            "SHOP.Example",
            "b.c1",
            "1.2",
            "a--b.example",
            "ab--c.example",
            "Bücher.example",
            "BÜCHER.EXAMPLE",
            "bu\u{308}cher.example",
            "straße.example",
            "STRAẞE.example",
            "βόλος.example",
            "ΒΌΛΟΣ.example",
            "हिन्दी.example",
            "हिन्दी.भारत",
            "क\u{93c}लम.भारत",
            "\u{958}लम.भारत",
            "தமிழ்.example",
            "ไทย.example",
            "مثال.إختبار",
            "نامه\u{200c}ای.example",
            "דוגמה.example",
            "例子.测试",
            "二〇二四.example",
            "例え・テスト.example",
            "한국.example",
            "пример.рф",
            "col·legi.example",
            "Ꭰ.example",
            "xn--bcher-kva.example",
            "XN--BCHER-KVA.example",
            "xn--strae-oqa.müller.example",
            "xn--j2bd4cyah0f.example",
            label_63.as_str(),
        ] {
            assert!(is_domain(valid), "{valid}");
        }
        for invalid in [
            "",
            ".",
            "b",
            "bücher",
            ".example",
            "b.",
            "b..example",
            "b.example.",
            "-b.example",
            "b-.example",
            "b.-example",
            "-.example",
            "ü-.example",
            "b_c.example",
            "b!c.example",
            "b c.example",
            " b.example",
            "b.example ",
            "b.example\n",
            "b\0.example",
            "[127.0.0.1]",
            "[IPv6:::1]",
            "½.example",
            "1⁄2.example",
            "²³.example",
            "①.example",
            "ﬁsch.example",
            "ｂ.example",
            "b。example",
            "a\u{ad}b.example",
            "a\u{200b}b.example",
            "a\u{200d}b.example",
            "a\u{202e}b.example",
            "\u{94d}a.example",
            "\u{308}a.example",
            "1א.example",
            "☕.example",
            "€.example",
            "xn--53h.example",
            "xn--a.example",
            "xn--abc.example",
            "xn--.example",
            "xn--bcher-kva-.example",
            "xn--shop-.example",
            "xn--\u{fc}.example",
            "\u{fffd}.example",
            long_in_ascii.as_str(),
        ] {
            assert!(!is_domain(invalid), "{invalid:?}");
        }
    }

    #[test]
    fn the_length_of_labels_and_domains_is_limited() {
        assert!(
            is_domain(&format!("{}.example", "a".repeat(63)))
                && !is_domain(&format!("{}.example", "a".repeat(64)))
        );
        assert!(domain_of(253).len() == 253 && is_domain(&domain_of(253)));
        assert!(domain_of(254).len() == 254 && !is_domain(&domain_of(254)));
    }
}
