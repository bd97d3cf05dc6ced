//! What a content type looks like.

/// Most bytes of one: it is stored with every message that names none.
pub(super) const MEDIA_TYPE_BYTES_MAX: usize = 255;

/// True if that is a media type as `Content-Type` has it (RFC 9110, section 8.3.1): type, subtype, parameters.
pub(super) fn is_media_type(text: &str) -> bool {
    let (essence, mut rest) = match text.split_once(';') {
        Some((essence, rest)) => (essence, Some(rest)),
        None => (text, None),
    };
    let is_named = (essence.trim_end_matches(BLANK).split_once('/'))
        .is_some_and(|(name, subtype)| is_token(name) && is_token(subtype));
    while let Some(parameters) = rest {
        let Some(behind) = behind_parameter(parameters.trim_start_matches(BLANK)) else { return false };
        let behind = behind.trim_start_matches(BLANK);
        rest = behind.strip_prefix(';');
        if rest.is_none() && !behind.is_empty() {
            return false;
        }
    }
    is_named && text.len() <= MEDIA_TYPE_BYTES_MAX
}

const BLANK: [char; 2] = [' ', '\t'];

/// What stands behind a parameter, which may be missing; `None` if it is none.
fn behind_parameter(text: &str) -> Option<&str> {
    if text.is_empty() || text.starts_with(';') {
        return Some(text);
    }
    let (_, value) = text.split_once('=').filter(|(name, _)| is_token(name))?;
    let Some(quoted) = value.strip_prefix('"') else {
        let end = value.find(|c| !is_of_token(c)).unwrap_or(value.len());
        return (end > 0).then(|| &value[end..]);
    };
    let mut is_escaped = false;
    for (at, byte) in quoted.bytes().enumerate() {
        match byte {
            0..=8 | 10..=31 | 127.. => return None,
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Some(&quoted[at + 1..]),
            _ => {}
        }
    }
    None
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_of_token)
}

fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_is_what_the_standard_says() {
        for yes in [
            "application/json",
            "text/plain; charset=utf-8",
            "text/plain;charset=\"utf-8\" ; format=flowed",
            "application/vnd.weir.batch",
            "application/problem+json;",
            "multipart/mixed; boundary=\"a;\\\"b\"",
        ] {
            assert!(is_media_type(yes), "{yes}");
        }
        let long = format!("a/{}", "b".repeat(MEDIA_TYPE_BYTES_MAX));
        for no in [
            "",
            "json",
            "not a type\nx",
            "text/",
            "/plain",
            "text/plain\n",
            "text/plain, text/html",
            "text/plain; charset",
            "text/plain; charset=",
            "text/plain; charset=\"utf-8",
            "text/plain; a=\"\n\"",
            "text/plain; a=b c",
            "tëxt/plain",
            &long,
        ] {
            assert!(!is_media_type(no), "{no:?}");
        }
    }
}
