//! A record as JSON, and back.

use super::*;

fn record(headers: &Headers, key: Option<&[u8]>, value: &[u8]) -> Msg {
    let mut builder = BatchBuilder::anonymous();
    builder.push(RecordParts { key, headers, value }).unwrap();
    let batch = builder.build(Compression::None).unwrap();
    Msg::of(&batch.records().unwrap().next().unwrap().unwrap(), 1, PartitionId(2))
}

fn typed(content_type: &str, value: &[u8]) -> Msg {
    record(&HeadersBuilder::default().content_type(content_type).finish(), None, value)
}

#[test]
fn a_record_is_shown_by_its_content_type() {
    let shown = |content_type, value: &[u8]| {
        let msg = typed(content_type, value);
        let back = msg.value().unwrap();
        assert_eq!(
            back,
            value
                .iter()
                .map(|b| if *b == b'\n' && msg.ct.as_deref() == Some("application/json") { b' ' } else { *b })
                .collect::<Vec<_>>()
        );
        msg.data.map(|it| it.get().to_owned())
    };
    assert_eq!(shown("application/json", b"{\"a\":1.10}").as_deref(), Some("{\"a\":1.10}"));
    assert_eq!(shown("application/json", b"{\n\"a\":1}").as_deref(), Some("{ \"a\":1}"), "a line is a frame");
    assert_eq!(shown("application/problem+json; x=y", b"[]").as_deref(), Some("[]"));
    assert_eq!(shown("text/plain; charset=\"UTF-8\"", b"a\nb").as_deref(), Some("\"a\\nb\""));
    for text in [
        "application/x-www-form-urlencoded",
        "application/xml",
        "image/svg+xml",
        "application/x-yaml",
        "application/yaml; charset=utf-8",
        "Application/JavaScript",
        "application/graphql",
    ] {
        assert_eq!(shown(text, "é <a/>".as_bytes()).as_deref(), Some("\"é <a/>\""), "{text}");
    }
    for (content_type, value) in [
        ("application/xml", &b"\xff"[..]),
        ("application/vnd.wap.wbxml", b"a"),
        ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", b"a"),
        ("application/xml; charset=utf-16", b"a"),
        ("", b"a"),
        ("application/json", b"{\"a\":"),
        ("text/plain", b"\xff"),
        ("text/plain; charset=latin1", b"a"),
        ("application/octet-stream", b"a"),
    ] {
        assert_eq!(shown(content_type, value), None, "{content_type}");
    }
}

#[test]
fn what_is_not_text_is_shown_in_base64() {
    let mut headers = HeadersBuilder::default();
    headers.user("text", b"eu").unwrap().user("bin", &[0xff]).unwrap();
    headers.content_type("application/json").reserved(Reserved::ContentEncoding, b"gzip");
    let msg = record(&headers.finish(), Some(&[0xfe]), b"[]");
    assert_eq!((msg.key.clone(), msg.key_b64.as_deref()), (None, Some("/g==")));
    assert_eq!(msg.h, HeaderMap(vec![("text".into(), "eu".into())]));
    assert_eq!(msg.h_b64, HeaderMap(vec![("bin".into(), "/w==".into())]));
    assert_eq!((msg.data.clone(), msg.b64.as_deref()), (None, Some("W10=")), "an encoded value is no JSON");
    assert_eq!(msg.value().unwrap(), &b"[]"[..]);
}

#[test]
fn a_publish_has_one_payload_and_one_key() {
    let data = Some(raw("\"text\""));
    let b64 = Some("AAE=".to_owned());
    let content = |publish: &Pub| publish.content().map(|it| it.value.into_owned());
    assert_eq!(content(&Pub::default()), Err(ContentError::OnePayload));
    assert_eq!(
        content(&Pub { data: data.clone(), b64: b64.clone(), ..Pub::default() }),
        Err(ContentError::OnePayload)
    );
    assert_eq!(content(&Pub { b64: b64.clone(), ..Pub::default() }), Ok(vec![0, 1]));
    assert_eq!(content(&Pub { b64: Some("AAE".into()), ..Pub::default() }), Err(ContentError::Base64("b64")));
    let two_keys = Pub { key: Some("a".into()), key_b64: b64, data: data.clone(), ..Pub::default() };
    assert_eq!(content(&two_keys), Err(ContentError::OneKey));
    let text =
        |ct: &str, data: &str| content(&Pub { ct: Some(ct.into()), data: Some(raw(data)), ..Pub::default() });
    assert_eq!(text("text/plain", "\"a\\n\""), Ok(b"a\n".to_vec()));
    assert_eq!(text("text/plain", "1"), Err(ContentError::Text));
    assert_eq!(text("image/png", "1"), Err(ContentError::ContentType));
    let null = r#"{"t":"pub","ch":1,"seq":0,"data":null}"#;
    let (_, ClientFrame::Pub(null)) = json::client_frames(null).next().unwrap().unwrap() else { panic!() };
    assert_eq!(content(&null), Ok(b"null".to_vec()), "null is a payload");
}

#[test]
fn a_publish_becomes_the_record_that_is_delivered() {
    let publish = publish();
    let content = publish.content().unwrap();
    let mut headers = HeadersBuilder::default();
    publish.add_headers(content.content_type, &mut headers).unwrap();
    let headers = headers.finish();
    assert_eq!(
        (headers.deliver_at(), headers.ttl_ms()),
        (Some(TimestampMs(1_787_654_321_123)), Some(60_000))
    );
    let msg = record(&headers, content.key.as_deref(), &content.value);
    assert_eq!((msg.h, msg.key, msg.data), (publish.h.clone(), publish.key.clone(), publish.data.clone()));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (parent, is_kept) in
        [(trace, true), ("00-1", false), (&trace.replace("b7ad6b7169203331", "0000000000000000"), false)]
    {
        let traced =
            Pub { traceparent: Some(parent.into()), tracestate: Some("a=b".into()), ..publish.clone() };
        let mut headers = HeadersBuilder::default();
        traced.add_headers(None, &mut headers).unwrap();
        let headers = headers.finish();
        let kept = is_kept.then_some((trace, "a=b")).unzip();
        assert_eq!((headers.trace_parent(), headers.trace_state()), kept, "{parent}");
    }
    let broken = Pub { tracestate: Some("a\nb".into()), ..publish.clone() };
    let refused = broken.add_headers(None, &mut HeadersBuilder::default());
    assert_eq!(refused, Err(ContentError::HeaderText("tracestate")));
    for name in ["\u{1}", "", "a b", "a:", "größe", "a\n"] {
        let unnamed = Pub { h: HeaderMap(vec![(name.into(), String::new())]), ..publish.clone() };
        let refused = unnamed.add_headers(None, &mut HeadersBuilder::default());
        assert_eq!(refused, Err(ContentError::HeaderName), "{name:?}");
    }
}
