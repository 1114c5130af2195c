//! Small crates with and without circles.

use super::{check, circles_by_crate};
use crate::tree::{File, Tree};

fn tree(files: &[(&str, &str)]) -> Tree {
    let file = |(path, text): &(&str, &str)| File {
        path: format!("crates/nowhere/src/{path}"),
        bytes: text.as_bytes().to_vec(),
    };
    Tree::new(files.iter().map(file).collect())
}

/// The files of each circle.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let circles = circles_by_crate(&tree(files)).remove("nowhere").unwrap_or_default();
    let files = circles.into_iter().map(|circle| {
        let files: Vec<&str> = circle.files.iter().map(|path| super::in_src(path)).collect();
        files.join(" ")
    });
    files.collect()
}

const LIB: (&str, &str) = ("lib.rs", "mod a;\nmod b;\nmod c;\n");

#[test]
fn imports_that_only_go_down_are_no_circle() {
    let files = [
        LIB,
        ("a.rs", "use crate::b::B;\nuse crate::c::C;\n"),
        ("b.rs", "use super::c::{self, C};\npub struct B(C);\nfn d() { c::e() }\n"),
        ("c.rs", "use std::fmt;\nuse ::a::A;\npub struct C;\npub fn e() { fmt::write() }\n"),
    ];
    assert_eq!(found(&files), [""; 0]);
}

#[test]
fn two_files_are_a_circle_however_they_name_each_other() {
    let b = ("b.rs", "use crate::a::A;\npub struct B;\npub fn f(a: A) {}\n");
    for a in [
        "use crate::b::B;\npub struct A;\n",
        "use crate::{b::{self, B}, c::C};\npub struct A;\n",
        "use super::{c::C,\n    b::f as g};\npub struct A;\n",
        "use crate::b::*;\npub struct A;\n",
        "use crate::b;\npub struct A;\nfn d() { b::f(A) }\n",
        "use super::b as e;\npub struct A;\nfn d() { e::f(A) }\n",
        "pub struct A;\nfn d() { crate::b::f(A) }\n",
        "pub struct A;\nimpl super::b::Any for A {}\n",
        "pub struct A;\nmod inside {\n    fn d() { super::super::b::f(super::A) }\n}\n",
        "pub use crate::b::B;\npub struct A(B);\n",
    ] {
        let files = [LIB, ("a.rs", a), b, ("c.rs", "pub struct C;\n")];
        assert_eq!(found(&files), ["a.rs b.rs"], "{a}");
    }
}

#[test]
fn a_circle_may_be_long_and_there_may_be_several() {
    let files = [
        ("main.rs", "mod a;\nmod b;\nmod c;\nmod d;\nmod e;\nfn main() { a::a() }\n"),
        ("a.rs", "pub fn a() { crate::b::b() }\n"),
        ("b.rs", "pub fn b() { crate::c::c() }\n"),
        ("c.rs", "use crate::d::d;\npub fn c() { crate::a::a(); d() }\n"),
        ("d.rs", "pub fn d() { crate::e::e() }\n"),
        ("e.rs", "pub fn e() { crate::d::d() }\n"),
    ];
    assert_eq!(found(&files), ["a.rs b.rs c.rs", "d.rs e.rs"]);
    let findings = check(&tree(&files));
    let first = findings[0].to_string();
    assert_eq!(findings.len(), 2);
    assert!(first.starts_with("crates/nowhere/src/a.rs:1: [circles] 3 files"), "{first}");
    assert!(first.contains("a.rs:1 -> b.rs:1 -> c.rs:2 -> a.rs:"), "{first}");
}

#[test]
fn parent_and_child_are_two_files() {
    let child = ("a/inner.rs", "use super::Shared;\npub struct Inner(Shared);\n");
    let lib = ("lib.rs", "mod a;\n");
    for (parent, expected) in [
        ("mod inner;\nuse inner::Inner;\npub struct Shared;\n", true),
        ("mod inner;\nuse self::inner::Inner;\npub struct Shared;\n", true),
        ("mod inner;\npub struct Shared;\nfn d() { inner::e() }\n", true),
        ("mod inner;\npub use inner::Inner;\npub struct Shared(Inner);\n", true),
        // The parent only declares it, or hands it on.
        ("mod inner;\npub struct Shared;\n", false),
        ("mod inner;\npub use inner::Inner;\npub struct Shared;\n", false),
    ] {
        let files = [lib, ("a.rs", parent), child];
        assert_eq!(found(&files).len(), usize::from(expected), "{parent}");
        let files = [lib, ("a/mod.rs", parent), child];
        assert_eq!(found(&files).len(), usize::from(expected), "{parent}");
    }
}

#[test]
fn a_name_is_where_it_is_defined() {
    // The face of a crate is no part of a circle.
    let lib = ("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::{C, d};\npub use a::*;\n");
    let c = ("c.rs", "pub struct C;\npub fn d() {}\n");
    let b = ("b.rs", "use crate::C;\npub struct B(C);\n");
    assert_eq!(found(&[lib, c, b, ("a.rs", "use crate::{C, d, b::B};\n")]), [""; 0]);
    // Through it, and through two of them, files find each other.
    let a = ("a.rs", "use crate::b::C;\npub struct A;\n");
    assert_eq!(found(&[lib, a, b, ("c.rs", "use crate::A;\npub struct C;\n")]), ["a.rs c.rs"]);
    // A parent's imports are in its children's reach.
    let files = [
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "mod inner;\nuse crate::b::B;\npub struct A(B);\n"),
        ("a/inner.rs", "use super::B;\npub struct Inner;\n"),
        ("b.rs", "use crate::a::inner::Inner;\npub struct B;\n"),
    ];
    assert_eq!(found(&files), ["a/inner.rs b.rs"]);
}

#[test]
fn what_is_no_import_does_not_count() {
    let b = ("b.rs", "use crate::a::A;\npub struct B;\npub(in crate::a) fn f() {}\n");
    for a in [
        "pub struct A;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n",
        "pub struct A;\n#[cfg(test)]\nuse crate::b::B;\n",
        "pub struct A;\n/// See [`crate::b::B`].\nfn d() { e(\"crate::b::B\") }\n",
        "pub struct A;\npub(crate) fn d(b: Vec<u8>) -> impl Iterator<Item = u8> + use<'_> { b.e() }\n",
        "use self::A as B;\npub struct A;\npub(super) fn d(c: C) { c.b::<u8>() }\n",
        "mod tests;\npub struct A;\n",
    ] {
        let files = [LIB, ("a.rs", a), b, ("c.rs", ""), ("a/tests.rs", "use crate::b::B;\n")];
        assert_eq!(found(&files), [""; 0], "{a}");
    }
}

#[test]
fn a_library_and_programs_beside_it_are_crates_of_their_own() {
    let files = [
        ("lib.rs", "pub mod a;\n"),
        ("a.rs", "pub fn a() {}\n"),
        ("main.rs", "mod b;\npub struct Top;\nfn main() { b::b() }\n"),
        ("b.rs", "use crate::Top;\npub fn b() {}\n"),
        ("bin/other.rs", "fn main() { nowhere::a::a() }\n"),
    ];
    assert_eq!(found(&files), ["b.rs main.rs"]);
}
