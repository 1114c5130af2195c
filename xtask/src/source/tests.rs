use super::{Source, has_word};

#[test]
fn strings_and_comments_are_told_from_code() {
    let text = r####"let a = "un//safe \" { "; // why: "quoted"
let b = r#"raw " unsafe"#; /* one /* two */ still */ let c = 'x';
fn life<'a>(x: &'a str) -> char { '\'' } // '
let d = "first
second unsafe"; e();
let f = b"bytes" ; let g = br##"x"# "##; h('"');
"####;
    let source = Source::new("crates/a/src/b.rs", text);
    let code: Vec<&str> = source.lines.iter().map(|line| line.code.trim_end()).collect();
    assert_eq!(
        code,
        [
            "let a = \"\";",
            "let b = r#\"\"#;  let c = '';",
            "fn life<'a>(x: &'a str) -> char { '' }",
            "let d = \"",
            "\"; e();",
            "let f = b\"\" ; let g = br##\"\"##; h('');",
        ]
    );
    assert_eq!(source.lines[0].comment, " why: \"quoted\"");
    assert_eq!(source.lines[1].comment, " one  two  still ");
}

#[test]
fn items_under_cfg_test_are_marked_to_their_end() {
    let text = "\
fn a() {}
#[cfg(test)]
mod tests {
    fn b() { c(); }
}
fn d() {}
#[cfg(test)]
#[path = \"x.rs\"]
pub(crate) mod suite;
fn e() {}
#[cfg(not(test))]
fn f() {}
";
    let source = Source::new("crates/a/src/table.rs", text);
    let marked: Vec<usize> =
        (1..).zip(&source.lines).filter(|(_, line)| line.test).map(|(number, _)| number).collect();
    assert_eq!(marked, [2, 3, 4, 5, 7, 8, 9]);
    assert_eq!(source.test_modules(), ["crates/a/src/table/suite"]);
    let lines: Vec<usize> = source.product_lines().map(|(number, _)| number).collect();
    assert_eq!(lines, [1, 6, 10, 11, 12]);
}

#[test]
fn tests_are_known_by_their_path() {
    for path in ["crates/a/src/x/tests.rs", "crates/a/tests/x.rs", "crates/a/examples/x.rs"] {
        assert!(Source::new(path, "").test, "{path}");
    }
    for path in ["crates/a/src/contests.rs", "xtask/src/test.rs"] {
        assert!(!Source::new(path, "").test, "{path}");
    }
    assert_eq!(Source::new("crates/zram/src/slot.rs", "").crate_name(), Some("zram"));
}

#[test]
fn words_are_whole() {
    assert!(has_word("unsafe { x }", "unsafe"));
    assert!(!has_word("#![forbid(unsafe_code)]", "unsafe"));
    assert!(has_word("use std::fs;", "std::"));
    assert!(!has_word("use mystd::fs;", "std::"));
}

#[test]
fn a_comment_is_found_on_the_line_and_above_it() {
    let source = Source::new("a.rs", "// one: Pairs\n// with two\nx();\ny();\n");
    assert!(source.comment_near(3, 2, "pairs with"));
    assert!(source.comment_near(4, 3, "pairs with"));
    assert!(!source.comment_near(4, 1, "pairs with"));
}
