//! Gives the shared library the name that programs look for at run time, which is the installed one.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdunlin.so.0");
}
