use super::*;

const TEXT: &str = r#"fio: a message
{ "fio version" : "fio-3.33", "jobs" : [ { "jobname" : "lab", "error" : 0,
  "read" : { "total_ios" : 0, "iops" : 0.0 },
  "write" : { "total_ios" : 1200, "iops" : 40000.5,
    "clat_ns" : { "percentile" : { "50.000000" : 250000, "99.000000" : 900000 } } } } ] }
"#;

#[test]
fn reads_the_figures_of_a_load() {
    let figures = parse(TEXT, Load::Write).expect("figures");
    assert_eq!(figures.per_second, 40_000.5);
    assert_eq!(figures.requests, 1200);
    assert_eq!(figures.p50_us, 250.0);
}

#[test]
fn no_figures_are_an_error() {
    assert!(parse(TEXT, Load::Read).is_err(), "no read was made");
    assert!(parse("", Load::Read).is_err());
    assert!(parse("{ \"jobs\": [] }", Load::Write).is_err());
    let failed = TEXT.replace("\"error\" : 0", "\"error\" : 5");
    assert!(parse(&failed, Load::Write).expect_err("an error").to_string().contains('5'));
}
