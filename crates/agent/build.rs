//! Packs the relocations of the agent's binary, a fourteenth of its size: glibc reads them so since
//! 2.36, and says so where it is older.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
