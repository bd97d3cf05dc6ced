//! Filters: what they mean, what is refused and where, and that any text is read or refused.

use proptest::prelude::*;

use super::*;
use crate::batch::HeadersBuilder;

fn headers(pairs: &[(&str, &str)]) -> Headers {
    let mut builder = HeadersBuilder::default();
    builder.content_type("application/json");
    for (name, value) in pairs {
        builder.user(name, value.as_bytes()).unwrap();
    }
    builder.finish()
}

#[test]
fn a_filter_says_which_records_are_meant() {
    let record = headers(&[("region", "eu-west"), ("Tier", "gold*"), ("note", "it's \\")]);
    for (text, is_meant) in [
        ("header.region == 'eu*'", true),
        ("header.region == 'eu'", false),
        ("header.region != 'eu'", true),
        ("header.REGION == 'eu-west'", true),
        ("header.region == '*'", true),
        ("header.missing == '*'", false),
        ("header.missing != 'x'", true),
        ("not header.missing == 'x'", true),
        (r"header.tier == 'gold\*'", true),
        (r"header.note == 'it\'s \\'", true),
        ("key == 'cust-4*'", true),
        ("key == 'cust'", false),
        ("content_type == 'application/*'", true),
        ("header.region=='eu*'and not header.test=='1'", true),
        ("header.region == 'us*' or header.region == 'eu*' and header.tier == 'x'", false),
        ("(header.region == 'us*' or header.region == 'eu*') and key == '*'", true),
        ("not (header.region == 'us*' or header.region == 'eu*')", false),
        ("not not key == 'cust-42'", true),
    ] {
        let filter = Filter::parse(text).unwrap();
        assert_eq!(filter.matches(Some(b"cust-42"), &record), is_meant, "{text}");
    }
    let keyless = Filter::parse("key == '*'").unwrap();
    assert!(!keyless.matches(None, &Headers::default()));
}

#[test]
fn what_is_no_filter_is_refused_with_its_place() {
    use FilterFault as F;
    for (text, at, why) in [
        ("", 0, F::ExpectedField),
        ("  header.x", 10, F::ExpectedOperator),
        ("header.x = 'a'", 9, F::ExpectedOperator),
        ("header. == 'a'", 7, F::ExpectedName),
        ("headers.x == 'a'", 0, F::ExpectedField),
        ("key == a", 7, F::ExpectedText),
        ("key == 'a", 7, F::OpenText),
        ("key == 'a*b'", 9, F::MisplacedStar),
        (r"key == 'a\n'", 9, F::BadEscape),
        ("(key == 'a'", 11, F::ExpectedClose),
        ("key == 'a')", 10, F::ExpectedEnd),
        ("key == 'a' key == 'b'", 11, F::ExpectedEnd),
        ("key == 'a' and", 14, F::ExpectedField),
        ("notkey == 'a'", 0, F::ExpectedField),
        ("key == 'ä' xor", 12, F::ExpectedEnd),
    ] {
        assert_eq!(Filter::parse(text), Err(FilterError { at, why }), "{text}");
    }
    let long = format!("key == '{}'", "a".repeat(FILTER_BYTES_MAX));
    assert_eq!(Filter::parse(&long).unwrap_err().why, F::TooLong);
    let deep = |levels: usize| format!("{}key == 'a'{}", "(".repeat(levels), ")".repeat(levels));
    assert!(Filter::parse(&deep(FILTER_DEPTH_MAX)).is_ok());
    assert_eq!(Filter::parse(&deep(FILTER_DEPTH_MAX + 1)).unwrap_err().why, F::TooDeep);
    assert_eq!(Filter::parse(&"not ".repeat(200)).unwrap_err().why, F::TooDeep);
}

#[test]
fn a_field_stands_alone() {
    let record = headers(&[("Tenant", "a")]);
    let value = |text: &str| Field::parse(text).unwrap().value(Some(b"k"), &record).map(<[u8]>::to_vec);
    assert_eq!(value("header.tenant"), Some(b"a".to_vec()));
    assert_eq!((value("key"), value("header.other")), (Some(b"k".to_vec()), None));
    for (text, at) in [("tenant", 0), ("header.", 7), ("key ", 3), ("header.a == 'b'", 8)] {
        assert_eq!(Field::parse(text).unwrap_err().at, at, "{text}");
    }
}

fn any_node() -> impl Strategy<Value = Node> {
    let field = prop_oneof![
        3 => "[A-Za-z0-9._~-]{1,4}".prop_map(Field::Header),
        1 => Just(Field::Key),
        1 => Just(Field::ContentType),
    ];
    let leaf = (field, "[a-c'*\\\\ä]{0,3}", any::<bool>(), any::<bool>()).prop_map(
        |(field, text, is_prefix, is_equal)| Node::Compare {
            field,
            pattern: Pattern { text, is_prefix },
            is_equal,
        },
    );
    leaf.prop_recursive(4, 12, 3, |inner| {
        let list = || proptest::collection::vec(inner.clone(), 2..4);
        prop_oneof![
            list().prop_map(Node::Any),
            list().prop_map(Node::All),
            inner.clone().prop_map(|node| Node::Not(Box::new(node))),
        ]
    })
}

/// What a filter means, said in another way: truth of `or` and `and` by counting.
fn means(node: &Node, key: Option<&str>, pairs: &[(&str, &str)]) -> bool {
    let count = |nodes: &[Node]| nodes.iter().filter(|node| means(node, key, pairs)).count();
    match node {
        Node::Any(nodes) => count(nodes) > 0,
        Node::All(nodes) => count(nodes) == nodes.len(),
        Node::Not(node) => count(std::slice::from_ref(node)) == 0,
        Node::Compare { field, pattern, is_equal } => {
            let value = match field {
                Field::Header(name) => {
                    pairs.iter().find(|(n, _)| n.to_lowercase() == name.to_lowercase()).map(|(_, v)| *v)
                }
                Field::Key => key,
                Field::ContentType => Some("application/json"),
            };
            let is = match value {
                None => false,
                Some(value) if pattern.is_prefix => value.get(..pattern.text.len()) == Some(&pattern.text),
                Some(value) => value == pattern.text,
            };
            is == *is_equal
        }
    }
}

proptest! {
    #[test]
    fn what_is_shown_is_read_as_the_same_and_means_the_same(
        node in any_node(),
        key in proptest::option::of("[a-c]{0,3}"),
        values in proptest::collection::vec(("[a-c]{1,2}", "[a-c*]{0,3}"), 0..4),
    ) {
        let filter = Filter(node);
        let text = filter.to_string();
        match Filter::parse(&text) {
            Ok(read) => prop_assert_eq!(&read, &filter),
            Err(error) => prop_assert_eq!(error.why, FilterFault::TooLong, "{}", text),
        }
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for (name, value) in &values {
            if !pairs.iter().any(|(known, _)| known == name) {
                pairs.push((name, value));
            }
        }
        let is_meant = filter.matches(key.as_deref().map(str::as_bytes), &headers(&pairs));
        prop_assert_eq!(is_meant, means(&filter.0, key.as_deref(), &pairs));
    }

    #[test]
    fn any_text_is_read_or_refused_inside_it(
        text in prop_oneof![
            any::<String>(),
            "(header\\.[a-z]|key|not|and|or|\\(|\\)|==|!=|'[a-z*\\\\]{0,3}'| ){0,30}",
        ],
    ) {
        match Filter::parse(&text) {
            Ok(filter) => match Filter::parse(&filter.to_string()) {
                Ok(read) => prop_assert_eq!(read, filter),
                Err(error) => prop_assert_eq!(error.why, FilterFault::TooLong),
            },
            Err(error) => prop_assert!(error.at <= text.len() && text.is_char_boundary(error.at)),
        }
    }
}
