//! Names the shared library for those that are linked with it.

fn main() {
    // Another number when a program would have to be built anew.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librampack.so.0");
    // What a dependency exports for C is none of this library's interface.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    println!("cargo::rerun-if-changed=build.rs");
}
