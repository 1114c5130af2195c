//! The library as C and C++ have it: its header, its symbols, and the examples under checkers.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::{Need, Output, TempDir, is_long, met, run, try_run};

const CC: Need = Need::program("cc", "build-essential");
const CXX: Need = Need::program("c++", "build-essential");
const QEMU_IO: Need = Need::program("qemu-io", "qemu-utils");
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A library, which cargo has built beside this test.
fn library(name: &str) -> PathBuf {
    let library = env::current_exe().unwrap().with_file_name(name);
    assert!(library.exists(), "cargo has built no {}", library.display());
    library
}

/// A directory with what a program is linked with.
fn linked() -> TempDir {
    let place = TempDir::new();
    let shared = library("librampack_capi.so");
    fs::copy(&shared, place.join("librampack.so.0")).unwrap();
    std::os::unix::fs::symlink("librampack.so.0", place.join("librampack.so")).unwrap();
    place
}

/// A command that builds an example in `place`.
fn compiler(place: &TempDir, example: &str) -> Command {
    let (program, standard) = match example.ends_with(".c") {
        true => ("cc", "-std=c99"),
        false => ("c++", "-std=c++17"),
    };
    let mut compiler = Command::new(program);
    compiler.arg(standard).args(WARNINGS).arg("-g").arg("-I").arg(here("include"));
    compiler.arg(here("examples").join(example)).arg("-o").arg(place.join("program"));
    compiler
}

/// Builds an example against the shared library; the words are for the compiler.
fn build(place: &TempDir, example: &str, words: &[&str]) {
    let mut compiler = compiler(place, example);
    compiler.args(words).arg("-L").arg(place.path()).arg("-lrampack").arg("-pthread");
    run(compiler.arg(format!("-Wl,-rpath,{}", place.path().display())));
}

/// The example that serves a disk to a client.
const SERVES: &str = "serve.c";

const EXAMPLES: [(&str, &str); 4] = [
    (
        "cold.c",
        "user:7 is {\"user\": 7, \"name\": \"somebody\", \"mails\": []}, 45 bytes\n\
         in 5 bytes: the buffer is too small for the value of 45 bytes\n\
         a part: \"user\"\n\
         user:7: there is no value of this key\n\
         999 keys, 999 values; less memory than data: yes\n\
         several: first, 6 bytes; a short buffer for 7: yes; none: yes; the first: yes\n\
         saved and loaded: yes; user:8 is there: yes\n\
         again: there is nothing to restore: the input is empty\n\
         at most 64 MiB\n\
         each that left was told: yes; memory is short: yes\n\
         a clone has 200 values, as they were; compressed once more: yes; saved: yes; lost: 0\n",
    ),
    ("cache.cpp", "401 values; key 300 has 50"),
    (
        "disk.c",
        "the last page: page 255\nbehind it: the range passes the end of the disk\n128 pages\n",
    ),
    (SERVES, "clients; a client wrote \"www\"\n"),
];

/// Runs an example. One that serves a disk has a client that reads and writes it.
fn run_example(example: &str, program: &mut Command) -> Output {
    if example != SERVES {
        return run(program);
    }
    let place = TempDir::new();
    let socket = place.join("s");
    let (stdin, stdout) = (Stdio::piped(), Stdio::piped());
    let mut child = program.arg(&socket).stdin(stdin).stdout(stdout).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    said.read_line(&mut text).unwrap();
    let commands = ["read -P 0x6f 0 1", "read -P 0x73 13 1", "write -P 0x77 4096 3"];
    let uri = format!("nbd+unix:///disk?socket={}", socket.display());
    let mut client = Command::new("qemu-io");
    run(client.args(["-f", "raw"]).args(commands.map(|it| ["-c", it]).concat()).arg(&uri));
    // One that goes without a word must not end the program.
    drop(std::os::unix::net::UnixStream::connect(&socket).unwrap());
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    said.read_to_string(&mut text).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success() && !socket.exists(), "{example}: {status}, and said {text}");
    Output { status, stdout: text, stderr: String::new() }
}

fn check_said(example: &str, output: &Output) {
    let said = EXAMPLES.iter().find(|(name, _)| *name == example).unwrap().1;
    assert!(output.stdout.contains(said), "{example} said {}{}", output.stdout, output.stderr);
}

#[test]
fn the_lines_of_the_guide_compile() {
    if !met("the_lines_of_the_guide_compile", &[CC]) {
        return;
    }
    let text = fs::read_to_string(here("../../docs/guide/recipes.md")).unwrap();
    let block = text.split("\n```c\n").nth(1).unwrap().split("\n```").next().unwrap();
    let place = TempDir::new();
    let program = place.join("guide.c");
    let text = format!("#include <stddef.h>\n#include <rampack.h>\nint f(void)\n{{\n{block}");
    fs::write(&program, text + "\nreturn 0;\n}\n").unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-fsyntax-only", "-I"]).arg(here("include"));
    run(compiler.args(["-Wall", "-Wextra", "-Werror"]).arg(&program));
}

#[test]
fn the_header_is_strict_c_and_cplusplus() {
    if !met("the_header_is_strict_c_and_cplusplus", &[CC, CXX]) {
        return;
    }
    for (program, language, standard) in [("cc", "c", "-std=c99"), ("c++", "c++", "-std=c++17")] {
        let mut compiler = Command::new(program);
        compiler.args([standard, "-fsyntax-only", "-x", language]).args(WARNINGS);
        run(compiler
            .args(["-Wstrict-prototypes"][..usize::from(language == "c")].iter())
            .arg(here("include/rampack.h")));
    }
}

#[test]
fn the_header_is_what_cbindgen_makes() {
    if !is_long() {
        return;
    }
    let cbindgen = Need::other(
        Command::new("cbindgen").arg("--version").output().is_ok(),
        "cbindgen (cargo install cbindgen --locked)",
    );
    if !met("the_header_is_what_cbindgen_makes", &[cbindgen]) {
        return;
    }
    let mut make = Command::new("cbindgen");
    let made = run(make.arg("--config").arg(here("cbindgen.toml")).arg(here(""))).stdout;
    let header = here("include/rampack.h");
    if env::var_os("RAMPACK_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&header, &made).unwrap();
    }
    assert!(
        made == fs::read_to_string(header).unwrap(),
        "make include/rampack.h anew, with RAMPACK_GOLDEN=write"
    );
}

#[test]
fn nothing_but_the_interface_is_exported() {
    if !met("nothing_but_the_interface_is_exported", &[Need::program("nm", "binutils")]) {
        return;
    }
    let mut nm = Command::new("nm");
    let nm = run(nm.args(["-D", "--defined-only"]).arg(library("librampack_capi.so"))).stdout;
    let mut exported: Vec<&str> =
        nm.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    exported.sort_unstable();
    let listed = fs::read_to_string(here("symbols.txt")).unwrap();
    assert_eq!(exported, listed.lines().collect::<Vec<_>>(), "symbols.txt");
    let header = fs::read_to_string(here("include/rampack.h")).unwrap();
    let examples: String =
        EXAMPLES.map(|(name, _)| fs::read_to_string(here("examples").join(name)).unwrap()).concat();
    let manual = fs::read_to_string(here("man/rampack.3")).unwrap();
    for name in listed.lines() {
        for (place, text) in [("header", &header), ("example", &examples), ("manual", &manual)] {
            assert!(text.contains(name), "the {place} has no {name}");
        }
    }
}

#[test]
fn the_shared_library_has_a_number() {
    if !met("the_shared_library_has_a_number", &[Need::program("readelf", "binutils")]) {
        return;
    }
    let mut readelf = Command::new("readelf");
    let dynamic = run(readelf.arg("-d").arg(library("librampack_capi.so"))).stdout;
    assert!(dynamic.contains("soname: [librampack.so.0]"), "{dynamic}");
}

#[test]
fn examples_run_with_the_static_library() {
    if !met("examples_run_with_the_static_library", &[CC, CXX, QEMU_IO]) {
        return;
    }
    for (example, _) in EXAMPLES {
        let place = TempDir::new();
        let mut compiler = compiler(&place, example);
        compiler.arg(library("librampack_capi.a"));
        run(compiler.args(["-lpthread", "-ldl", "-lm", "-lgcc_s"]));
        check_said(example, &run_example(example, &mut Command::new(place.join("program"))));
    }
}

#[test]
fn examples_run_under_valgrind() {
    if !is_long() {
        return;
    }
    let valgrind = Need::program("valgrind", "valgrind");
    if !met("examples_run_under_valgrind", &[CC, CXX, valgrind]) {
        return;
    }
    // For a disk memcheck would look at each byte of the 32 GiB of addresses of its table.
    for (example, _) in EXAMPLES.into_iter().filter(|(name, _)| !["disk.c", SERVES].contains(name))
    {
        let place = linked();
        build(&place, example, &[]);
        let mut under = Command::new("valgrind");
        under.args([
            "--error-exitcode=99",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
        ]);
        check_said(example, &run(under.arg(place.join("program"))));
    }
}

#[test]
fn examples_run_under_address_sanitizer() {
    if !met("examples_run_under_address_sanitizer", &[CC, CXX, QEMU_IO]) {
        return;
    }
    for (example, _) in EXAMPLES {
        let place = linked();
        build(&place, example, &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
        check_said(example, &run_example(example, &mut Command::new(place.join("program"))));
    }
}

/// Builds a program from its text.
fn build_text(place: &TempDir, name: &str, text: &str) {
    let source = place.join(name);
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    compiler.arg("-I").arg(here("include")).arg(&source).arg("-o").arg(place.join("program"));
    compiler.arg("-L").arg(place.path()).arg("-lrampack");
    run(compiler.arg(format!("-Wl,-rpath,{}", place.path().display())));
}

#[test]
fn who_is_told_that_memory_is_short_may_free_all() {
    let valgrind = Need::program("valgrind", "valgrind");
    if !met("who_is_told_that_memory_is_short_may_free_all", &[CC, valgrind]) {
        return;
    }
    let place = linked();
    let text = "#include <rampack.h>\n#include <stdlib.h>\n\
         static struct rampack *memory; static struct rampack_store *store; static int told;\n\
         static void on_pressure(void *data, int why) {\n\
         (void)data; (void)why; told = 1; rampack_store_free(store); rampack_free(memory); }\n\
         int main(void) {\n\
         struct rampack_options o = {sizeof o, 1 << 20, 1, 0, on_pressure, NULL};\n\
         struct rampack_store_options s = {sizeof s}; char value[4096]; int key, i;\n\
         s.no_eviction = 1;\n\
         if (rampack_new(&o, &memory) < 0 || rampack_store_new(memory, &s, &store)) return 1;\n\
         for (key = 0; ; key++) {\n\
         for (i = 0; i < 4096; i++) value[i] = (char)rand();\n\
         if (rampack_store_put(store, &key, sizeof key, value, 4096, 0)) break; }\n\
         return rampack_upkeep(memory) || !told; }\n";
    build_text(&place, "frees.c", text);
    run(Command::new("valgrind").arg("--error-exitcode=99").arg(place.join("program")));
}

/// A program of one expression that must give the number, and say the words.
fn refuses(place: &TempDir, number: i32, words: &str, expression: &str) {
    let text = format!(
        "#include <rampack.h>\n#include <stdio.h>\n#include <stdint.h>\n\
         #include <string.h>\n\
         struct rampack *memory; struct rampack_disk *disk; struct rampack_store *store;\n\
         size_t length; char bytes[8192];\n\
         int main(void) {{\n\
         if (rampack_new(NULL, &memory) < 0) return 1;\n\
         if (rampack_disk_new(memory, 1 << 20, NULL, &disk) < 0) return 1;\n\
         if (rampack_store_new(memory, NULL, &store) < 0) return 1;\n\
         int code = {expression};\n\
         printf(\"%d %s\", code, rampack_last_error());\nreturn 0; }}\n"
    );
    build_text(place, "refuses.c", &text);
    let output = try_run(&mut Command::new(place.join("program")));
    let (code, said) = output.stdout.split_once(' ').unwrap_or_default();
    assert_eq!(code, number.to_string(), "{expression}: {output:?}");
    assert!(said.contains(words), "{expression}: {said}");
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    if !met("what_cannot_be_is_refused_in_words", &[CC]) {
        return;
    }
    let place = linked();
    let refuses = |number, words, expression| refuses(&place, number, words, expression);
    refuses(
        -22,
        "1000 bytes of memory are too few",
        "0; struct rampack_options o = {sizeof o, 1000, 0, 0}; code = rampack_new(&o, &memory)",
    );
    refuses(-22, "made is NULL", "rampack_new(NULL, NULL)");
    refuses(-22, "rampack is NULL", "rampack_upkeep(NULL)");
    refuses(-22, "disk is NULL", "rampack_disk_read(NULL, 0, bytes, 1)");
    refuses(-22, "into is NULL", "rampack_disk_read(disk, 0, NULL, 1)");
    refuses(-22, "no 18446744073709551615 bytes", "rampack_disk_write(disk, 0, bytes, SIZE_MAX)");
    refuses(-22, "passes the end", "rampack_disk_read(disk, UINT64_MAX - 1, bytes, 8)");
    refuses(-22, "multiples of 4096", "rampack_disk_discard(disk, 1, 4096)");
    refuses(
        -22,
        "set it to sizeof",
        "0; struct rampack_disk_stats s = {0}; code = rampack_disk_get_stats(disk, &s)",
    );
    refuses(
        -7,
        "older than",
        "0; struct rampack_store_options o = {900}; code = rampack_store_new(memory, &o, &store)",
    );
    refuses(
        -22,
        "no algorithm \"zip\"",
        "0; struct rampack_disk_options o = {sizeof o, \"zip\", 0}; code = rampack_disk_new(memory, 4096, &o, &disk)",
    );
    refuses(-22, "1024", "rampack_store_put(store, bytes, 1025, bytes, 0, 0)");
    refuses(-2, "no value", "rampack_store_get(store, \"k\", 1, bytes, 8, &length)");
    refuses(
        -22,
        "length is NULL",
        "0; rampack_store_put(store, \"k\", 1, \"v\", 1, 0); code = rampack_store_length(store, \"k\", 1, NULL)",
    );
    refuses(-22, "items is NULL", "rampack_store_put_many(store, NULL, 1, 0)");
    refuses(-22, "items: there are no", "rampack_store_get_many(store, (void *)8, SIZE_MAX / 64)");
    refuses(
        -22,
        "1024",
        "0; struct rampack_item i[2] = {{bytes, 1025, bytes, 0, 1}, {\"k\", 1, \"v\", 1, 1}}; \
         code = rampack_store_put_many(store, i, 2, 0); \
         if (i[0].status != -22 || i[1].status != 0) code = 1",
    );
    refuses(-22, "visit is NULL", "rampack_store_keys(store, NULL, NULL)");
    let serve = |number, words, path: &str| {
        let call = format!(
            "0; struct rampack_server *server; memset(bytes, 'x', 108); \
             code = rampack_disk_serve_nbd(disk, NULL, {path}, &server)"
        );
        self::refuses(&place, number, words, &call);
    };
    serve(-22, "path is NULL", "NULL");
    serve(-2, "/none/s: cannot listen", "\"/none/s\"");
    serve(-22, "cannot listen", "\"\"");
    serve(-36, "at most 107 bytes", "bytes");
    serve(-98, "refuses.c: exists and is not a socket", &format!("{:?}", place.join("refuses.c")));
    refuses(-22, "disk is NULL", "rampack_disk_serve_nbd(NULL, NULL, \"/s\", NULL)");
    let path = place.join("s");
    let call = format!("rampack_disk_serve_nbd(disk, \"a\", {path:?}, NULL)");
    self::refuses(&place, -22, "made is NULL", &call);
    assert!(!path.exists(), "nobody has the server, and it goes on");
}

#[test]
fn the_manual_page_has_no_faults() {
    if !met("the_manual_page_has_no_faults", &[Need::program("mandoc", "mandoc")]) {
        return;
    }
    let mut mandoc = Command::new("mandoc");
    let said = try_run(mandoc.args(["-T", "lint", "-W", "warning"]).arg(here("man/rampack.3")));
    assert!(said.status.success() && said.stdout.is_empty(), "{}{}", said.stdout, said.stderr);
}
