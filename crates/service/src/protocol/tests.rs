use super::*;

fn refused(line: &str) -> ControlError {
    parse_message(line.as_bytes()).expect_err(line)
}

#[test]
fn every_request_survives_the_wire() {
    let device = Device { device: "zram0".into(), force: true };
    let add = Add { size: Some("1G".into()), level: Some(-3), ..Add::default() };
    let get = Get { device: "zram0".into(), attributes: vec!["disksize".into()] };
    let set = Set { device: "a".into(), attribute: "b".into(), value: "ü \"\n".into() };
    for request in [
        Request::Status(Status {}),
        Request::Add(add),
        Request::Add(Add::default()),
        Request::Remove(device.clone()),
        Request::Reset(device),
        Request::Get(get),
        Request::Set(set),
        Request::Describe(Describe { device: "zram7".into() }),
        Request::Tree(Tree { values: true }),
        Request::Metrics(Metrics {}),
        Request::Stop(Stop { force: true }),
    ] {
        let line = request_line(&request);
        assert_eq!(line.matches('\n').count(), 1, "{line:?}");
        assert_eq!(parse_message(line.as_bytes()), Ok(request));
    }
}

#[test]
fn an_unknown_command_is_told_the_known_ones() {
    let error = refused(r#"{"version":1,"command":"explode"}"#);
    assert_eq!(error.errno, Errno::EINVAL);
    for name in COMMANDS {
        assert!(error.message.contains(name), "{error}");
    }
}

#[test]
fn the_list_of_commands_is_complete() {
    for name in COMMANDS {
        let line = format!(r#"{{"version":1,"command":"{name}","nonsense":1}}"#);
        let error = refused(&line);
        assert!(!error.message.contains("no command"), "{name}: {error}");
        assert!(error.message.contains("nonsense"), "{name} must refuse unknown fields: {error}");
    }
}

#[test]
fn an_unknown_field_is_told_the_known_ones() {
    let error = refused(r#"{"version":1,"command":"get","device":"zram0","attribute":"x"}"#);
    assert!(error.message.contains("`attribute`"), "{error}");
    assert!(
        error.message.contains("`device`") && error.message.contains("`attributes`"),
        "{error}"
    );
}

#[test]
fn a_missing_field_is_named() {
    let error = refused(r#"{"version":1,"command":"set","device":"zram0","value":"1"}"#);
    assert!(error.message.contains("`attribute`"), "{error}");
}

#[test]
fn other_versions_are_refused() {
    assert!(refused(r#"{"command":"status"}"#).message.contains("\"version\" is missing"));
    let error = refused(r#"{"version":2,"command":"status"}"#);
    assert!(error.message.contains("version 2") && error.message.contains("this is 1"), "{error}");
    refused(r#"{"version":"1","command":"status"}"#);
}

#[test]
fn garbage_is_refused() {
    for line in ["", "\n", "{", "[]", "null", "\u{0}", r#"{"version":1,"command":7}"#, "{} {}"] {
        assert_eq!(refused(line).errno, Errno::EINVAL, "{line:?}");
    }
    assert!(parse_message(&[0xff, 0xfe, b'{']).is_err());
    let deep = "[".repeat(60_000);
    assert_eq!(refused(&deep).errno, Errno::EINVAL);
}

#[test]
fn a_long_line_is_refused_and_not_repeated() {
    assert_eq!(refused(&" ".repeat(LINE_MAX + 1)).errno, Errno::E2BIG);
    let line = format!(r#"{{"version":1,"command":"{}"}}"#, "é".repeat(20_000));
    assert!(refused(&line).message.len() < 400);
    let line = format!(r#"{{"version":1,"command":"status","{}":1}}"#, "é".repeat(20_000));
    assert!(refused(&line).message.len() < 1400);
}

#[test]
fn a_configuration_of_all_disks_there_can_be_is_a_request() {
    let some = |name: &str, value: &str| Attribute { name: name.into(), value: value.into() };
    let disk = |number| {
        let attributes = vec![
            some("backing_layout", "log"),
            some("backing_dev", "/var/lib/rampack/backing/of/zram0"),
            some("when_full", "wait"),
            some("recomp_algorithm", "algo=zstd priority=1"),
            some("auto_writeback", "1099511627776"),
            some("auto", "1"),
        ];
        let add = Add { number: Some(number), attributes, ..Add::default() };
        ConfiguredDisk { add, fs: Some("ext4".into()), mount: Some("/srv/disks/zram0".into()) }
    };
    let apply = Apply { disks: (0..1024).map(disk).collect(), ..Apply::default() };
    let line = request_line(&Request::Apply(apply.clone()));
    assert_eq!(parse_message(line.as_bytes()), Ok(Request::Apply(apply)));
}

#[test]
fn answers_survive_the_wire() {
    let line = reply_line(&Ok(serde_json::json!([{ "name": "disksize", "value": "0" }])));
    let values: Vec<Attribute> = parse_reply(line.as_bytes()).unwrap();
    assert_eq!(values, [Attribute { name: "disksize".into(), value: "0".into() }]);
    let error = ControlError::new(Errno::EBUSY, "in use");
    let line = reply_line(&Err(error.clone()));
    assert!(line.contains("EBUSY"));
    assert_eq!(parse_reply::<Value>(line.as_bytes()), Err(error));
    assert_eq!(parse_reply::<Value>(b"{}").unwrap_err().errno, Errno(libc::EPROTO));
    assert_eq!(parse_reply::<()>(b"{\"version\":1,\"ok\":null}"), Ok(()));
}
